"""Hand-made patients, each of them a rule of cohort, window, censoring or label."""

import datetime

import pyarrow as pa
import pyarrow.parquet as pq

THRESHOLD = "2010-01-01"
TODAY = datetime.date(2020, 1, 1)
STROKE, CODE = "ICD9//431", "ICD9//401.9"
NAN = None

BIRTH = ("1950-05-05", "MEDS_BIRTH")
LONG = (("2005-01-01", "OBSERVATION_START"), ("2012-12-31", "OBSERVATION_END"))


def period(begin, end):
    return ((begin, "OBSERVATION_START"), (end, "OBSERVATION_END"))


# name: (events, expected); expected is None for those who must not enter, else (label of stroke, label of death, number
# of CODE in the lookback). The lookback is 2009-01-01 … 2009-12-31, the horizon 2010-01-01 … 2010-12-31.
PATIENTS = {
    "plain": ((BIRTH, *LONG, ("2009-06-01", CODE)), (0, 0, 1)),
    "observed from the day after": ((BIRTH, *period("2010-01-02", "2012-12-31")), None),
    "observed from day 0": ((BIRTH, *period("2010-01-01", "2012-12-31")), (0, 0, 0)),
    "observed until day 0": ((BIRTH, *period("2005-01-01", "2010-01-01")), (NAN, NAN, 0)),
    "observed until the day before": ((BIRTH, *period("2005-01-01", "2009-12-31")), None),
    "a gap over day 0": (
        (BIRTH, *period("2005-01-01", "2009-12-30"), *period("2010-01-02", "2012-12-31"), ("2009-06-01", CODE)),
        None,
    ),
    "periods that touch": (
        (BIRTH, *period("2005-01-01", "2009-12-31"), *period("2010-01-01", "2012-12-31")),
        (0, 0, 0),
    ),
    "periods that overlap": (
        (BIRTH, *period("2005-01-01", "2010-03-01"), *period("2009-12-01", "2012-12-31")),
        (0, 0, 0),
    ),
    "an outcome in the next period": (
        (BIRTH, *period("2005-01-01", "2010-03-01"), *period("2010-06-01", "2012-12-31"), ("2010-07-01", STROKE)),
        (NAN, NAN, 0),
    ),
    "born after day 0": ((("2010-01-02", "MEDS_BIRTH"), *LONG), None),
    "born on day 0": ((("2010-01-01", "MEDS_BIRTH"), *LONG), (0, 0, 0)),
    "no period at all": ((BIRTH, ("2009-06-01", CODE), ("2010-06-01", CODE)), None),
    "a start without an end": ((BIRTH, ("2005-01-01", "OBSERVATION_START"), ("2009-06-01", CODE)), (0, 0, 1)),
    "an end without a start": ((BIRTH, ("2012-12-31", "OBSERVATION_END")), (0, 0, 0)),
    "observed until 2099": ((BIRTH, *period("2005-01-01", "2099-12-31")), (0, 0, 0)),
    "dead the day before": ((BIRTH, *LONG, ("2009-12-31", "MEDS_DEATH")), None),
    "dead on day 0": ((BIRTH, *LONG, ("2010-01-01T08:00:00", "MEDS_DEATH")), (0, 1, 0)),
    "dead in the horizon": ((BIRTH, *LONG, ("2010-05-01", "MEDS_DEATH")), (0, 1, 0)),
    "dead on the last day": ((BIRTH, *LONG, ("2010-12-31", "MEDS_DEATH")), (0, 1, 0)),
    "dead the day after": ((BIRTH, *LONG, ("2011-01-01", "MEDS_DEATH")), (0, 0, 0)),
    "a stroke, then death": ((BIRTH, *LONG, ("2010-02-01", STROKE), ("2010-05-01", "MEDS_DEATH")), (1, 1, 0)),
    "billed after death": ((BIRTH, *LONG, ("2010-05-01", "MEDS_DEATH"), ("2010-05-02", STROKE)), (0, 1, 0)),
    "an outcome on day 0": ((BIRTH, *LONG, ("2010-01-01", STROKE)), (1, 0, 0)),
    "an outcome in the last microsecond": ((BIRTH, *LONG, ("2010-12-31T23:59:59.999999", STROKE)), (1, 0, 0)),
    "an outcome a microsecond later": ((BIRTH, *LONG, ("2011-01-01T00:00:00", STROKE)), (0, 0, 0)),
    "an outcome the day before": ((BIRTH, *LONG, ("2009-12-31T23:59:59.999999", STROKE)), (NAN, 0, 0)),
    "an outcome before and within": ((BIRTH, *LONG, ("2001-01-01", STROKE), ("2010-02-01", STROKE)), (NAN, 0, 0)),
    "an outcome after the end": (
        (BIRTH, *period("2005-01-01", "2010-02-01"), ("2010-02-02", STROKE)),
        (NAN, NAN, 0),
    ),
    "an outcome on the last day of observation": (
        (BIRTH, *period("2005-01-01", "2010-02-01"), ("2010-02-01T23:00:00", STROKE)),
        (1, NAN, 0),
    ),
    "an outcome without a time": ((BIRTH, *LONG, (None, STROKE)), (0, 0, 0)),
    "history and look-alikes": (
        (BIRTH, *LONG, *(("2010-03-01", code) for code in ("ICD9//V12.54", "ICD9PROC//43.11", "ICD9//433.10"))),
        (0, 0, 0),
    ),
    "codes on both ends of the lookback": (
        (BIRTH, *LONG, ("2009-01-01", CODE), ("2009-12-31T23:59:59.999999", CODE)),
        (0, 0, 2),
    ),
    "codes beside the lookback": ((BIRTH, *LONG, ("2008-12-31T23:59:59", CODE), ("2010-01-01", CODE)), (0, 0, 0)),
    "spellings of one code": (
        (BIRTH, *LONG, ("2009-03-01", "ICD9CM//4019"), ("2009-03-02", "DIAGNOSIS//ICD//9//4019"), ("2009-03-03", CODE)),
        (0, 0, 3),
    ),
    "one date in 2099": ((BIRTH, *LONG, ("2009-06-01", CODE), ("2099-01-01", CODE)), (0, 0, 1)),
}  # fmt: skip
# Somebody who has events later, so that the data go on.
ANCHOR = ((BIRTH, *LONG, ("2011-06-01", CODE)), (0, 0, 0))


def rows_of(patients):
    """(subject, time or None, code) of patients numbered from 1."""
    return [
        (number, None if time is None else datetime.datetime.fromisoformat(time), code)
        for number, (events, _) in enumerate(patients.values(), start=1)
        for time, code in events
    ]


def write_meds(folder, rows):
    """Write rows as a MEDS dataset."""
    (folder / "data").mkdir(parents=True)
    table = pa.table(
        {
            "subject_id": pa.array([row[0] for row in rows], pa.int64()),
            "time": pa.array([row[1] for row in rows], pa.timestamp("us")),
            "code": [row[2] for row in rows],
            "numeric_value": pa.array([row[3] if len(row) > 3 else None for row in rows], pa.float32()),
        }
    )
    pq.write_table(table, folder / "data" / "0.parquet")
    return folder


def check_patients(events):
    """What is wrong with the hand-made patients on one engine, by name."""
    import numpy as np

    from coaltree.records.cohort import CohortRule, build_cohort
    from coaltree.records.features import count_codes
    from coaltree.records.labels import build_labels
    from coaltree.records.outcomes import load_outcomes

    patients = {**PATIENTS, "anchor": ANCHOR}
    outcomes = load_outcomes(keys=["stroke", "death"])
    cohort = build_cohort(events, THRESHOLD, CohortRule(lookback_days=365), today=TODAY)
    labels = build_labels(events, cohort, outcomes)
    counts = count_codes(events, cohort)
    column = counts.codes.index(CODE)
    wrong = {}
    for number, (name, (_, expected)) in enumerate(patients.items(), start=1):
        row = np.flatnonzero(cohort.subject == number)
        found = None
        if len(row):
            values = [None if np.isnan(value) else int(value) for value in labels.Y[row[0]]]
            found = (*values, int(counts.matrix[row[0], column]))
        if found != expected:
            wrong[name] = (found, expected)
    return wrong
