"""Labels: which outcomes happened in the horizon, and for whom the question has no answer.

Y_ij is 1 if subject i has an event of outcome j in the horizon and not after the last day of observation. Otherwise it
is NaN if observation ended before the horizon did, and 0 if not. Death is a competing risk: who died without the
outcome did not have it, so Y is 0, or with CohortRule.death "censor" NaN. An outcome that happened before the horizon
makes the label NaN, removes the subject, or is ignored, as set by CohortRule.prior_outcome. The module
`coaltree.records.censoring` makes up for labels that are not known because subjects left.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coaltree._arrays import Bools, Floats, Ints
from coaltree.records.cohort import Cohort, CohortRule, days_of
from coaltree.records.engine import DAY, Events, fetch, memory_table, timestamps
from coaltree.records.errors import RecordsError, need
from coaltree.records.importer import choose_columns
from coaltree.records.outcomes import Definition, OutcomeSet

_SINCE = -100_000  # days before a threshold: all of the past


@dataclass(frozen=True, eq=False)
class Labels:
    """Y and why some of it is undefined.

    Attributes
    ----------
    cohort : Cohort
        The subjects of the rows; fewer than in the input if prior outcomes remove subjects.
    Y : ndarray (n, P)
        0, 1 or NaN.
    prior : ndarray (n, P)
        Whether the outcome happened before the horizon.
    censored : ndarray (n, P)
        Whether observation ended before the outcome was known.
    time_at_risk : ndarray (n, P), optional
        Days from the threshold to the event, the end of observation or the end of the horizon, whichever came first;
        None for labels from files.
    weights : ndarray (n, P), optional
        How much each label counts in fits and scores (`censoring_weights`); None if all count alike.
    exposure : ndarray (n, P), optional
        Share of the horizon in which each subject was at risk (`exposures`).
    """

    cohort: Cohort
    Y: Floats
    prior: Bools
    censored: Bools
    time_at_risk: Ints | None = None
    weights: Floats | None = None
    exposure: Floats | None = None

    @property
    def events(self) -> Floats:
        """Events while at risk, (n, P): 0 or 1, also of subjects who left; NaN of those who were not at risk."""
        return np.where(self.lost, 0.0, self.Y)

    @property
    def lost(self) -> Bools:
        """Subjects at risk whose observation ended before the outcome was known, (n, P)."""
        masked = self.prior if self.cohort.rule.prior_outcome == "mask" else np.zeros_like(self.prior)
        return np.asarray(self.censored & ~masked)

    def outcomes(self, kept: Ints) -> Labels:
        """Return the labels of some outcomes, by position."""
        parts = (self.Y, self.prior, self.censored, self.time_at_risk, self.weights, self.exposure)
        return Labels(self.cohort, *(None if part is None else part[:, kept] for part in parts))  # type: ignore[arg-type]


def build_labels(events: Events, cohort: Cohort, outcomes: OutcomeSet) -> Labels:
    """Label every subject of the cohort with every outcome."""
    n, n_outcomes = len(cohort), len(outcomes.outcomes)
    happened, prior = np.zeros((2, n, n_outcomes), dtype=bool)
    end = np.minimum(cohort.last_day - cohort.threshold, cohort.rule.horizon[1])
    time = np.tile(end[:, None], n_outcomes)
    pairs = outcomes.match(events.codes)
    if pairs:
        found = fetch(_query(events, cohort, pairs))
        row, column = found["row"].astype(np.int64), found["outcome"].astype(np.int64)
        happened[row, column] = found["n_within"] > 0
        prior[row, column] = found["n_before"] > 0
        within = found["n_within"] > 0
        row, column = row[within], column[within]
        time[row, column] = days_of(found["first"][within]) - cohort.threshold[row]
    incomplete = cohort.last_day < cohort.threshold + cohort.rule.horizon[1]
    if cohort.rule.death == "negative":
        incomplete = incomplete & ~cohort.died
    censored = incomplete[:, None] & ~happened
    if outcomes.death is not None:
        censored[:, outcomes.death] &= ~cohort.died
    Y = happened.astype(np.float64)
    Y[censored] = np.nan
    if cohort.rule.prior_outcome == "mask":
        Y[prior] = np.nan
    elif cohort.rule.prior_outcome == "remove":
        clean = np.asarray(~prior.any(axis=1))
        cohort = cohort.take(clean, "have had none of the outcomes before")
        Y, prior, censored, time = Y[clean], prior[clean], censored[clean], time[clean]
    return Labels(cohort, Y, prior, censored, time)


def _query(events: Events, cohort: Cohort, pairs: list[tuple[str, int]]) -> object:
    """Numbers of events of each outcome before and within the horizon, and the first within, for subjects with any."""
    window = cohort.window(_SINCE, cohort.rule.horizon[1])
    begins = memory_table({"row": np.arange(len(cohort)), "at": timestamps(cohort.threshold + cohort.rule.horizon[0])})
    meaning = memory_table(
        {"code": [code for code, _ in pairs], "outcome": np.array([j for _, j in pairs], dtype=np.int32)}
    )
    table = events.table[["subject_id", "time", "code"]].inner_join(meaning, "code")
    table = table.inner_join(window, "subject_id").inner_join(begins, "row")
    table = table.filter(table.time < table.ends)
    return table.group_by("row", "outcome").agg(
        n_before=table.count(where=table.time < table.at),
        n_within=table.count(where=table.time >= table.at),
        first=table.time.min(where=table.time >= table.at),
    )


# ---- MEDS label files


def label_outcomes(folder: str | Path) -> OutcomeSet:
    """Return the outcomes of a folder of MEDS label files, one file each, named after it."""
    where = Path(folder)
    files = sorted(where.glob("*.parquet")) if where.is_dir() else []
    if not files:
        raise RecordsError(f"[outcomes]: labels {where} is no folder with label files KEY.parquet.")
    outcomes = []
    for file in files:
        read_label_file(file)  # report a faulty file before anything else is done
        name = file.stem.replace("_", " ")
        outcomes.append(Definition(file.stem, name[:1].upper() + name[1:], (), (), f"label file {file.name}"))
    return OutcomeSet(tuple(outcomes), None)


def read_labels(folder: str | Path, cohort: Cohort, outcomes: OutcomeSet) -> Labels:
    """Take labels from MEDS label files; the label of a subject missing from a file is undefined."""
    Y = np.full((len(cohort), len(outcomes.outcomes)), np.nan)
    for j, outcome in enumerate(outcomes.outcomes):
        file = Path(folder) / f"{outcome.key}.parquet"
        table = read_label_file(file)
        if "boolean_value" not in table.column_names:
            raise RecordsError(f"{file} has no boolean_value; give one for every subject and prediction time.")
        subject, day = prediction_days(table, cohort.rule)
        value = table["boolean_value"].to_numpy(zero_copy_only=False).astype(np.float64)
        place = np.searchsorted(cohort.subject, subject)
        known = place < len(cohort)
        known[known] = cohort.subject[place[known]] == subject[known]
        known[known] = cohort.threshold[place[known]] == day[known]
        Y[place[known], j] = value[known]
    return Labels(cohort, Y, np.zeros(Y.shape, dtype=bool), np.isnan(Y))


def write_labels(labels: Labels, outcomes: OutcomeSet, folder: str | Path) -> list[Path]:
    """Write one MEDS label file per outcome, labels/KEY.parquet, without the subjects whose label is undefined."""
    pa, meds = need("pyarrow"), need("meds")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    # A prediction is made with what is known up to the last moment of the lookback.
    times = timestamps(labels.cohort.threshold + labels.cohort.rule.lookback[1] + 1) - np.timedelta64(1, "us")
    files = []
    for j, outcome in enumerate(outcomes.outcomes):
        known = ~np.isnan(labels.Y[:, j])
        table = pa.table(
            {
                "subject_id": labels.cohort.subject[known],
                "prediction_time": pa.array(times[known]),
                "boolean_value": labels.Y[known, j] == 1.0,
            }
        )
        files.append(target / f"{outcome.key}.parquet")
        need("pyarrow.parquet").write_table(meds.LabelSchema.align(table), files[-1])
    return files


# ---- one MEDS label file


def read_label_file(file: Path) -> Any:
    """Return a MEDS label file as a table with subject_id, prediction_time and boolean_value (null if it has none)."""
    pa, pq = need("pyarrow"), need("pyarrow.parquet")
    try:
        table = pq.read_table(file)
    except Exception as error:
        raise RecordsError(f"the label file {file} cannot be read as parquet: {error}") from error
    names = choose_columns(table.column_names, ["subject_id", "prediction_time"], ["boolean_value"], str(file))
    table = table.select(list(names.values())).rename_columns(list(names))
    if not pa.types.is_integer(table["subject_id"].type):
        raise RecordsError(f"{file}: subject_id must be whole numbers, not {table['subject_id'].type}.")
    kind = table["prediction_time"].type
    if not pa.types.is_timestamp(kind) or kind.tz is not None:
        raise RecordsError(f"{file}: prediction_time must be timestamps without a zone, not {kind}.")
    if "boolean_value" in table.column_names and not pa.types.is_boolean(table["boolean_value"].type):
        raise RecordsError(f"{file}: boolean_value must be true or false, not {table['boolean_value'].type}.")
    if table["subject_id"].null_count or table["prediction_time"].null_count:
        raise RecordsError(f"{file}: subject_id or prediction_time is missing in some rows.")
    return table


def prediction_days(table: Any, rule: CohortRule) -> tuple[Ints, Ints]:
    """Subjects of a label file and the day of their threshold.

    A prediction uses what is known up to and including its time: the last day of the lookback is the last whole day
    that has ended by then.
    """
    subject = table["subject_id"].to_numpy().astype(np.int64)
    times = table["prediction_time"].to_numpy().astype("datetime64[us]").astype(np.int64)
    twice = np.flatnonzero(np.diff(np.sort(subject)) == 0)
    if len(twice):
        raise RecordsError(
            f"subject {np.sort(subject)[twice[0]]} has several prediction times; a study has one row per subject."
        )
    return subject, (times + 1) // DAY - rule.lookback[1] - 1
