"""Hand-made patients, the guard on outlying dates, the future that must not be seen, and thresholds that overlap."""

import datetime

import numpy as np
import pytest

from coaltree.records import CohortRule, RecordsError, build_cohort, count_codes, load_config, open_events
from coaltree.records.cohort import ALWAYS, NEVER, as_day, find_data_end, make_periods
from coaltree.records.dataset import index_days, prepare_data, read_thresholds
from coaltree.records.features import find_sex, measured_values
from tests.records import patients
from tests.records.patients import PATIENTS, check_patients, rows_of, write_meds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    everybody = {**PATIENTS, "anchor": patients.ANCHOR}
    return write_meds(tmp_path_factory.mktemp("patients") / "meds", rows_of(everybody))


def test_thirty_patients(folder):
    assert len(PATIENTS) >= 30
    assert check_patients(open_events(folder)) == {}


@pytest.mark.parametrize("name", ["observed from the day after", "an outcome on day 0", "codes beside the lookback"])
def test_a_wrong_patient_is_found(folder, monkeypatch, name):
    """Negative control: another expectation is noticed."""
    events, expected = PATIENTS[name]
    monkeypatch.setitem(PATIENTS, name, (events, (0, 0, 5) if expected is None else None))
    assert set(check_patients(open_events(folder))) == {name}


def test_periods():
    def make(*marks):
        days, starts = zip(*marks, strict=True)
        found = make_periods(np.ones(len(days), dtype=np.int64), np.array(days), np.array(starts))
        return list(zip(found.begins.tolist(), found.ends.tolist(), strict=True))

    S, E = True, False
    assert make((1, S), (5, E), (7, S), (9, E)) == [(1, 5), (7, 9)]
    assert make((1, S), (5, E), (6, S), (9, E)) == [(1, 9)]
    assert make((1, S), (5, E), (5, S), (9, E)) == [(1, 9)]
    assert make((3, S), (3, E)) == [(3, 3)]
    assert make((5, E), (7, S)) == [(NEVER, 5), (7, ALWAYS)]
    assert make((5, E), (8, E)) == [(NEVER, 8)]
    assert make((1, S), (2, S), (5, E), (6, E)) == [(1, 6)]


def test_the_end_of_the_data():
    today = datetime.date(2020, 1, 1)
    last = np.arange(10_000, 10_300)
    assert find_data_end(last, 0, today) == (10_299, [])
    wrong = np.append(last, 10_299 + 366)
    end, notes = find_data_end(wrong, 0, today)
    assert end == 10_299
    assert "<11 subject(s)" in notes[0]
    assert find_data_end(np.append(last, 10_299 + 365), 0, today)[0] == 10_299 + 365  # a gap of a year may be real
    assert find_data_end(np.append(last, [11_000] * 10), 0, today)[0] == 11_000  # 3 per cent are no error
    assert find_data_end(np.append(last[:20], 11_000), 0, today)[0] == 11_000  # one of few
    assert "after 2020-01-01" in find_data_end(last, 3, today)[1][0]
    assert find_data_end(np.array([NEVER]), 0, today) == (NEVER, [])


def test_one_wrong_date_does_not_uncensor_everybody(tmp_path):
    rows = [(s, datetime.datetime(2010, 1, 1) + datetime.timedelta(days=s % 90), "A") for s in range(1, 201)]
    rule = CohortRule()

    def followed(extra, name):
        events = open_events(write_meds(tmp_path / name, rows + extra))
        cohort = build_cohort(events, "2010-01-01", rule, today=datetime.date(2020, 1, 1))
        return int(cohort.last_day.max()), cohort.notes

    plain, notes = followed([], "plain")
    assert any("before the horizon does" in note for note in notes)
    for year in (2012, 2019, 2099):
        end, notes = followed([(1, datetime.datetime(year, 6, 1), "A")], str(year))
        assert end == plain, year
        assert any("do not count" in note or "wrong dates" in note for note in notes)


def test_shifted_dates_count(tmp_path):
    """De-identified records such as MIMIC's are dated 2110 to 2202, by subject; a few wrong dates are none."""
    today = datetime.date(2026, 1, 1)

    def made(years, name):
        rows = [
            (s, datetime.datetime(year, 3, 1) + datetime.timedelta(days=d), "A")
            for s, year in enumerate(years, start=1)
            for d in (0, 200)
        ]
        rows += [(s, datetime.datetime(1950, 1, 1), "MEDS_BIRTH") for s in range(1, len(years) + 1)]
        return open_events(write_meds(tmp_path / name, rows))

    shifted = made([2110 + s % 93 for s in range(100)], "shifted")
    days = {s: datetime.date(2110 + (s - 1) % 93, 6, 1) for s in range(1, 101)}
    cohort = build_cohort(shifted, days, today=today)
    assert len(cohort) == 100
    assert int(cohort.last_day.max()) == as_day("2202-09-17")
    assert any("dates are taken to be shifted" in note and "data_end" in note for note in cohort.notes)
    # A study of the wrong century is told when its data end.
    with pytest.raises(RecordsError, match=r"The data end on 2202-09-17, before the threshold.*State data_end"):
        build_cohort(shifted, "2500-01-01", today=today)
    with pytest.raises(RecordsError, match="correct data_end"):
        build_cohort(shifted, "2500-01-01", CohortRule(data_end=datetime.date(2400, 1, 1)), today=today)

    mostly = made([2010] * 60 + [2110] * 40, "mostly")
    cohort = build_cohort(mostly, "2010-06-01", today=today)
    assert int(cohort.last_day.max()) == as_day("2010-09-17")
    assert any("which do not count. State data_end if they do" in note for note in cohort.notes)
    with pytest.raises(RecordsError, match=r"40 subject\(s\) have events dated after.*State data_end"):
        build_cohort(mostly, "2110-06-01", today=today)


def test_without_periods(tmp_path):
    rows = [(1, datetime.datetime(2009, 6, 1), "A"), (2, datetime.datetime(2010, 6, 1), "A")]
    events = open_events(write_meds(tmp_path / "meds", rows))
    assert build_cohort(events, "2010-01-01").subject.tolist() == [1, 2]
    first = CohortRule(without_periods="first_event")
    assert build_cohort(events, "2010-01-01", first).subject.tolist() == [1]


# ---- the future


def everything(folder, rule):
    """All features of the cohort of 2009, and its subjects."""
    events = open_events(folder)
    cohort = build_cohort(events, "2009-01-01", rule, today=datetime.date(2020, 1, 1))
    windows = [30, 365, "all"]
    counts = count_codes(events, cohort, windows=windows, days_since=True)
    values, names = measured_values(events, cohort, counts, windows)
    columns = dict(zip(counts.codes, counts.matrix.toarray().T, strict=True)) | dict(zip(names, values.T, strict=True))
    return cohort.subject, cohort.age, find_sex(events, cohort), columns


def read_rows_of(folder):
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "data")
    return list(zip(*(table[n].to_pylist() for n in ("subject_id", "time", "code", "numeric_value")), strict=True))


@pytest.mark.parametrize("closed", ["left", "both"])
def test_the_future_is_not_seen(cohort_folder, tmp_path, closed):
    """Whatever happens from the end of the lookback on: no feature changes by a digit."""
    rule = CohortRule(lookback_days=365, lookback_closed=closed, horizon_closed="right")
    first = datetime.datetime(2009, 1, 1) if closed == "left" else datetime.datetime(2009, 1, 2)
    rows = read_rows_of(cohort_folder)
    subjects = sorted({row[0] for row in rows})
    codes = sorted({row[2] for row in rows if row[2].startswith(("ICD9", "LOINC"))})[:40]
    planted = [
        (s, first + datetime.timedelta(days=k), code, 1e6 if code.startswith("LOINC") else None)
        for k, code in enumerate(codes)
        for s in subjects
    ]
    planted += [(s, first, "ICD9//999.9", 7.0) for s in subjects]
    seen = []
    for name, content in (("plain", rows), ("planted", rows + planted)):
        seen.append(everything(write_meds(tmp_path / name, content), rule))
    (subject, age, female, columns), (subject_2, age_2, female_2, columns_2) = seen
    np.testing.assert_array_equal(subject, subject_2)
    np.testing.assert_array_equal(age, age_2)
    np.testing.assert_array_equal(female, female_2)
    assert any(name.endswith("[last value]") for name in columns)
    for name, values in columns_2.items():
        expected = columns.get(name, np.zeros(len(subject)))
        np.testing.assert_array_equal(values, expected, err_msg=name)
    # Negative control: the same, a day earlier, is seen.
    earlier = [(s, time - datetime.timedelta(days=1), code, value) for s, time, code, value in planted]
    columns_3 = everything(write_meds(tmp_path / "earlier", rows + earlier), rule)[3]
    assert columns_3["ICD9//999.9 [30 days]"].all()


# ---- features beside counts


def test_windows_measurements_and_days_since(tmp_path):
    def at(days):
        return datetime.datetime(2010, 1, 1) - datetime.timedelta(days=days) + datetime.timedelta(hours=9)

    rows = [
        (1, None, "GENDER//F"), (1, datetime.datetime(1960, 1, 1), "MEDS_BIRTH"),
        (1, at(1), "LAB//X", 10.0), (1, at(1), "LAB//X", 20.0), (1, at(101), "LAB//X", 5.0),
        (1, at(2000), "LAB//X", 100.0),
        (1, at(40), "A"), (1, at(400), "A"),
        (2, None, "Gender/MALE"), (2, at(30), "A"), (2, datetime.datetime(2011, 1, 1), "A"),
        (3, None, "GENDER//1"), (3, None, "GENDER//2"), (3, at(31), "A"),
    ]  # fmt: skip
    events = open_events(write_meds(tmp_path / "meds", rows))
    cohort = build_cohort(events, "2010-01-01")
    windows = [30, 365, "all"]
    counts = count_codes(events, cohort, windows=windows, days_since=True)
    column = dict(zip(counts.codes, counts.matrix.toarray().T, strict=True))
    assert column["A [30 days]"].tolist() == [0, 1, 0]
    assert column["A [365 days]"].tolist() == [1, 1, 1]
    assert column["A [all time]"].tolist() == [2, 1, 1]
    np.testing.assert_allclose(column["A [days since]"], 1 / (1 + np.array([40, 30, 31]) / 30))
    values, names = measured_values(events, cohort, counts, [365])
    assert names == ("LAB//X [last value]", "LAB//X [trend a year]")
    slope = np.polyfit([-1, -1, -101], [10.0, 20.0, 5.0], 1)[0] * 365.25
    np.testing.assert_allclose(values[0], [15.0, slope], rtol=1e-6)
    assert np.isnan(values[1:]).all()
    np.testing.assert_array_equal(find_sex(events, cohort), [1.0, 0.0, np.nan])
    np.testing.assert_allclose(cohort.age[0], 50.0, atol=0.01)


# ---- index events


def test_index_events(tmp_path):
    from coaltree.records.config import IndexConfig

    day = datetime.datetime
    rows = [
        (1, day(2009, 1, 1), "NDC//1"), (1, day(2009, 2, 1), "NDC//1"),
        (2, day(2008, 1, 1), "NDC//1"), (2, day(2009, 6, 1), "NDC//2"), (2, day(2009, 7, 1), "NDC//1"),
        (3, day(2009, 3, 1), "NDC//3"),
    ]  # fmt: skip
    events = open_events(write_meds(tmp_path / "meds", rows))

    def found(**settings):
        index = IndexConfig(codes={"codes": ["NDC//1", "NDC//2"]}, **settings)
        return {s: str(np.datetime64(d, "D")) for s, d in index_days(events, index).items()}

    assert found() == {1: "2009-01-01", 2: "2008-01-01"}
    assert found(begin=datetime.date(2008, 6, 1)) == {1: "2009-01-01"}  # the second subject's first is before
    washed = found(begin=datetime.date(2008, 6, 1), washout_days=365)
    assert washed == {1: "2009-01-01", 2: "2009-06-01"}
    assert found(washout_days=20, end=datetime.date(2008, 12, 31)) == {2: "2008-01-01"}


# ---- thresholds


BASE = (
    '[data]\npath = "meds"\n[cohort]\nthresholds = {}\n'
    '[outcomes]\ninclusion = false\nmin_events = 1\nkeys = ["stroke"]\n'
)


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ('["2009-01-01", "2009-01-01"]', "repeat"),
        ('["2010-01-01", "2009-01-01"]', "run backwards"),
        ('["2009-01-01", "2009-12-31"]', r"goes on for 1 day\(s\)"),
        ('["2009-01-01", "2009-03-01"]', "learned from and predicted"),
        ('["a.csv", "a.csv"]', "twice"),
    ],
)
def test_thresholds_that_leak_are_refused(tmp_path, thresholds, message):
    file = tmp_path / "study.toml"
    file.write_text(BASE.format(thresholds))
    with pytest.raises(RecordsError, match=message):
        load_config(file)


def test_overlap_is_allowed_if_it_is_said(cohort_folder, tmp_path):
    (tmp_path / "study.toml").write_text(
        BASE.format('["2009-01-01", "2009-03-01"]').replace('"meds"', f'"{cohort_folder}"')
        + '[validation]\noverlap = "allow"\n'
    )
    data = prepare_data(load_config(tmp_path / "study.toml"), tmp_path / "private")
    assert any("are optimistic" in note for note in data.notes)
    # The same by files of dates, which are known only when they are read.
    for name, date in (("a.csv", "2009-01-01"), ("b.csv", "2009-03-01")):
        lines = ["subject_id,date", *(f"{s},{date}" for s in range(1, 300))]
        (tmp_path / name).write_text("\n".join(lines))
    (tmp_path / "files.toml").write_text(BASE.format('["a.csv", "b.csv"]').replace('"meds"', f'"{cohort_folder}"'))
    with pytest.raises(RecordsError, match='overlap = "allow"'):
        prepare_data(load_config(tmp_path / "files.toml"), tmp_path / "private")
    assert len(read_thresholds(tmp_path / "a.csv")) == 299
