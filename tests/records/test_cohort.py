import datetime

import numpy as np
import pyarrow as pa
import pytest

from coaltree.records import (
    CodeFactors,
    CohortRule,
    Counts,
    RecordsError,
    build_cohort,
    build_labels,
    connect,
    count_codes,
    load_outcomes,
    open_events,
    write_labels,
)
from coaltree.records.cohort import as_day
from coaltree.records.engine import memory_table
from coaltree.records.privacy import attrition_table, shown_count

OUTCOMES = load_outcomes(keys=["death", "stroke"])


def table(*rows):
    """Events in memory, from (subject, ISO time or None, code)."""
    import ibis

    times = [None if time is None else datetime.datetime.fromisoformat(time) for _, time, _ in rows]
    return ibis.memtable(
        pa.table(
            {
                "subject_id": pa.array([row[0] for row in rows], pa.int64()),
                "time": pa.array(times, pa.timestamp("us")),
                "code": [row[2] for row in rows],
            }
        )
    )


def events_of(*rows):
    return open_events(table(*rows), connection=connect())


def test_windows_in_days():
    rule = CohortRule(lookback_days=10, horizon_days=5)
    assert (rule.lookback, rule.horizon) == ((-10, -1), (0, 4))
    rule = CohortRule(lookback_days=10, lookback_closed="right", horizon_days=5, horizon_closed="right")
    assert (rule.lookback, rule.horizon) == ((-9, 0), (1, 5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lookback_closed": "both"}, "leak into features"),
        ({"lookback_closed": "right", "horizon_closed": "both"}, "leak into features"),
        ({"lookback_days": 1, "lookback_closed": "neither"}, "no day in it"),
        ({"horizon_days": 0}, "horizon_days must be at least 1"),
        ({"death": "ignore"}, "death must be one of"),
    ],
)
def test_rules_that_make_no_sense(settings, message):
    with pytest.raises(ValueError, match=message):
        CohortRule(**settings)


def test_an_empty_cohort_names_the_rule():
    events = events_of((1, "2008-06-01", "ICD9//250.00"), (1, "2010-01-01", "ICD9//401.9"))
    with pytest.raises(RecordsError, match="nobody is left of those who are under observation on day 0"):
        build_cohort(events, "2015-01-01")
    with pytest.raises(RecordsError, match=r"have a code of Diabetes .* Before that rule: <11 subjects"):
        build_cohort(events, "2008-01-01", inclusion=OUTCOMES.inclusion)
    with pytest.raises(RecordsError, match="have at least 1000 days of history"):
        build_cohort(events, "2009-01-01", CohortRule(min_history_days=1000))
    with pytest.raises(RecordsError, match="threshold must be a date"):
        build_cohort(events, "soon")
    with pytest.raises(RecordsError, match="without a time zone"):
        as_day("2009-01-01T00:00:00+01:00")


def test_boundaries_to_the_microsecond():
    events = events_of(
        (1, "2008-12-31T23:59:59.999999", "ICD9//431"),
        (2, "2009-01-01T00:00:00", "ICD9//431"),
        (3, "2009-12-31T23:59:59.999999", "ICD9//431"),
        (4, "2010-01-01T00:00:00", "ICD9//431"),
        (5, None, "ICD9//431"),
        (5, "2008-01-01", "ICD9//401.9"),
    )
    labels = build_labels(events, build_cohort(events, "2009-01-01"), OUTCOMES)
    assert labels.cohort.subject.tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(labels.Y[:, 1], [np.nan, 1.0, 1.0, 0.0, 0.0])
    assert labels.prior[:, 1].tolist() == [True, False, False, False, False]


def test_death_and_leaving():
    events = events_of(
        (1, "2009-03-01", "MEDS_DEATH"),
        (1, "2009-03-02", "ICD9//431"),  # billed after death
        (2, "2009-03-01", "OBSERVATION_END"),
        (3, "2009-02-01", "ICD9//431"),
        (3, "2009-03-01", "MEDS_DEATH"),
        (4, "2011-01-01", "ICD9//401.9"),
    )
    labels = build_labels(events, build_cohort(events, "2009-01-01"), OUTCOMES)
    nan = np.nan
    np.testing.assert_array_equal(labels.Y, [[1, 0], [nan, nan], [1, 1], [0, 0]])
    np.testing.assert_array_equal(labels.time_at_risk, [[59, 59], [59, 59], [59, 31], [364, 364]])
    censor = CohortRule(death="censor")
    labels = build_labels(events, build_cohort(events, "2009-01-01", censor), OUTCOMES)
    np.testing.assert_array_equal(labels.Y, [[1, nan], [nan, nan], [1, 1], [0, 0]])
    followed = build_cohort(events, "2009-01-01", CohortRule(min_follow_up_days=300))
    assert followed.subject.tolist() == [1, 3, 4]  # death is complete follow-up


def test_label_files_are_meds(tmp_path):
    import meds
    import pyarrow.parquet as pq

    events = events_of((1, "2009-02-01", "ICD9//431"), (2, "2009-02-01", "OBSERVATION_END"), (3, "2011-01-01", "A"))
    labels = build_labels(events, build_cohort(events, "2009-01-01"), OUTCOMES)
    files = write_labels(labels, OUTCOMES, tmp_path)
    found = pq.read_table(files[1])
    meds.LabelSchema.validate(found)
    assert found["subject_id"].to_pylist() == [1, 3]
    assert found["boolean_value"].to_pylist() == [True, False]
    assert found["prediction_time"].to_pylist()[0] == datetime.datetime(2008, 12, 31, 23, 59, 59, 999999)


def test_columns_are_checked():
    connection = connect()
    with pytest.raises(RecordsError, match=r"lack the column.*code"):
        open_events(memory_table({"subject_id": np.arange(2), "time": np.arange(2)}), connection)
    aware = table((1, "2009-01-01", "A"))
    aware = aware.mutate(time=aware.time.cast("timestamp('Europe/Paris')"))
    with pytest.raises(RecordsError, match="has the time zone"):
        open_events(aware, connection)
    with pytest.raises(RecordsError, match="memory_limit"):
        connect("much")


# ---- features


def test_counts_join_spellings_and_leave_out_what_is_no_feature():
    events = events_of(
        (1, "2008-12-01", "ICD9//25000"),
        (1, "2008-12-02", "ICD9CM//250.00"),
        (1, "2008-12-02", "HCPCS//99213"),
        (1, "1950-01-01", "MEDS_BIRTH"),
        (2, "2010-12-02", "ICD9//401.9"),
    )
    cohort = build_cohort(events, "2009-01-01")
    counts = count_codes(events, cohort, exclude=["HCPCS//"])
    assert counts.codes == ("ICD9//250.00", "ICD9//401.9")
    assert counts.matrix.toarray().tolist() == [[2, 0], [0, 0]]
    with pytest.raises(RecordsError, match="no codes are left"):
        count_codes(events, cohort, exclude=["ICD9", "HCPCS"])
    with pytest.raises(RecordsError, match="no subject of the cohort has a code in the lookback"):
        count_codes(events, build_cohort(events, "2007-01-01"))


def planted(rng, n):
    """Counts from two groups of codes, and one rare code."""
    from scipy import sparse

    group = rng.gamma(1.0, 4.0, (n, 2))
    rates = np.concatenate([np.outer(group[:, 0], [1, 2, 3]), np.outer(group[:, 1], [3, 2, 1])], axis=1)
    table = np.column_stack([rng.poisson(rates), np.arange(n) == 0])
    return Counts(sparse.csr_matrix(table), tuple("abcdefr")), group


def test_factors_are_fitted_to_training_subjects_and_applied_to_others():
    rng = np.random.default_rng(1)
    (train, group), (test, new_group) = planted(rng, 300), planted(rng, 200)
    model = CodeFactors(n_factors=2, min_subjects=5)
    X, Z = model.fit_transform(train), model.transform(test)
    assert model.codes_ == tuple("abcdef")  # the rare code is gone
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(X.std(axis=0), 1.0)
    for values, truth in ((X, group), (Z, new_group)):
        correlation = np.abs(np.corrcoef(values.T, np.sqrt(truth).T)[:2, 2:])
        assert correlation.max(axis=1).min() > 0.9
    tops = {frozenset(code for code, _ in row) for row in model.top_codes(3)}
    assert tops == {frozenset("abc"), frozenset("def")}
    # Subjects whose data know fewer codes: the others are zero.
    fewer = Counts(test.matrix[:, [5, 0]], ("f", "a"))
    padded = test.matrix.toarray() * np.array([1, 0, 0, 0, 0, 1, 0])
    np.testing.assert_allclose(model.transform(fewer), model.transform(Counts(type(test.matrix)(padded), test.codes)))


def test_any_transformer_and_too_few_codes():
    from sklearn.decomposition import TruncatedSVD

    train, _ = planted(np.random.default_rng(2), 100)
    model = CodeFactors(transformer=TruncatedSVD(3, random_state=0), min_subjects=5)
    assert model.fit_transform(train).shape == (100, 3)
    for name in ("svd", "lda"):
        assert CodeFactors(3, min_subjects=5, transformer=name).fit_transform(train).shape == (100, 3)
    with pytest.raises(ValueError, match="transformer must be one of"):
        CodeFactors(transformer="pca")
    with pytest.raises(RecordsError, match="fewer than 9 factors"):
        CodeFactors(n_factors=9, min_subjects=5).fit_transform(train)


# ---- what may be shown


def test_small_numbers_are_hidden():
    assert [shown_count(n) for n in (0, 1, 10, 11)] == [0, "<11", "<11", 11]
    rows = attrition_table([("all", 100), ("a", 95), ("b", 60), ("c", 60), ("d", 57)])
    assert [tuple(row.values()) for row in rows] == [("all", 100, 0), ("a; b; c; d", 57, 43)]
    rows = attrition_table([("all", 100), ("a", 80), ("b", 75)])
    assert [tuple(row.values()) for row in rows] == [("all", 100, 0), ("a; b", 75, 25)]
    assert attrition_table([("all", 100), ("a", 95)]) == [{"rule": "all; a", "left": 95, "removed": 0}]
