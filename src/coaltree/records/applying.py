"""A model applied elsewhere: scores of new patients and, where outcomes are known, external validation."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.records.bundle import PROBIT, TravellingModel
from coaltree.records.checking import as_date
from coaltree.records.cohort import Cohort, build_cohort, days_of
from coaltree.records.config import DataConfig
from coaltree.records.demographics import find_sex
from coaltree.records.engine import Events, fetch, timestamps
from coaltree.records.errors import RecordsError, need
from coaltree.records.features import bare_code
from coaltree.records.labels import build_labels
from coaltree.records.preparing import Period, make_features, open_source
from coaltree.records.privacy import FEWEST, attrition_table, outcome_digits, shown_count
from coaltree.records.publishing import auc_rows, calibration_rows, score_rows, summary_rows
from coaltree.records.review import Review, driver_rows, outcome_curves, subgroup_rows, table_one
from coaltree.records.rule import CohortRule, as_day
from coaltree.records.study import period_group
from coaltree.records.thresholds import index_days, read_thresholds
from coaltree.regression.comparison import Comparison
from coaltree.regression.table import Table

EXTERNAL = "external"
SCORES = "scores.parquet"


@dataclass(frozen=True, eq=False)
class Application:
    """What came of applying a model; all but `scores`, a private file, may be shown.

    Attributes
    ----------
    model : TravellingModel
        The model.
    attrition : Table
        Rule, subjects left, subjects removed.
    comparison : Comparison, optional
        External validation; None if no outcome can be judged.
    review : Review
        Table 1, curves, subgroups.
    known_codes : tuple of int
        How many of the model's codes occur in the data, and how many it has.
    """

    model: TravellingModel
    threshold: str
    source: str
    n_subjects: int
    attrition: Table
    outcomes: Table
    comparison: Comparison | None
    review: Review
    known_codes: tuple[int, int]
    notes: tuple[str, ...]
    scores: Path

    def tables(self, level: float = 0.95) -> dict[str, Table]:
        """Return every table by the name of its file."""
        found = {"attrition": self.attrition, "outcomes": self.outcomes, "table-one": self.review.table_one}
        if self.comparison is not None:
            hidden = {
                row["outcome"]: any(isinstance(row[why], str) for why in ("had it before", "censored"))
                for row in self.outcomes
            }
            found |= {
                "auc": auc_rows({EXTERNAL: self.comparison}, self.comparison.outcomes),
                f"scores-{EXTERNAL}": score_rows(self.comparison, hidden, self.n_subjects, level),
                f"summary-{EXTERNAL}": summary_rows(self.comparison, level),
                f"calibration-{EXTERNAL}": calibration_rows(self.comparison),
                "subgroups": self.review.subgroups,
            }
        return {name: table for name, table in found.items() if len(table)}


def apply_model(
    model: TravellingModel | str | Path,
    data: DataConfig | str | Path,
    private: str | Path,
    threshold: Any = None,
    connection: Any = None,
    n_resamples: int = 1000,
    level: float = 0.95,
) -> Application:
    """Score the subjects of a data set, and validate the model where the horizon has passed.

    Parameters
    ----------
    model : TravellingModel or path
        A model, or the file or folder that a study wrote.
    data : DataConfig or path
        The events; a path is a MEDS dataset.
    private : path
        Folder for imported events and for scores.parquet, which has a row a subject: do not share it.
    threshold : date, str, mapping or path, optional
        The day 0 of the subjects: one date, a mapping, or a file of dates or MEDS labels. By default the model's index
        events.
    connection : ibis backend, optional
        Where to run queries instead of an embedded DuckDB.
    n_resamples, level
        Bootstrap of the intervals.
    """
    found = model if isinstance(model, TravellingModel) else TravellingModel.load(model)
    settings = data if isinstance(data, DataConfig) else DataConfig(path=str(data))
    folder = Path(private)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    events, imported, _ = open_source(settings, folder, connection)
    at, name = _threshold(threshold, found, events)
    rule = dataclasses.replace(found.rule, min_follow_up_days=0, data_end=_data_end(events, at, found.rule))
    inclusion = found.outcomes.inclusion if found.info["inclusion_used"] else None
    cohort = build_cohort(events, at, rule, inclusion)
    labels = build_labels(events, cohort, found.outcomes)
    labels.Y[:, [bool(outcome.origin) for outcome in found.outcomes.outcomes]] = np.nan  # labels were files
    female = find_sex(events, labels.cohort)
    counts = make_features(events, labels.cohort, found.features, female)
    probability, score = found.predict(counts)
    scores = _write_scores(folder / SCORES, labels.cohort, found, probability)
    comparison = Comparison(
        (PROBIT,),
        found.outcomes.names,
        labels.Y,
        np.zeros(len(labels.Y), dtype=np.int64),
        probability[None],
        score[None],
        np.zeros((1, 1)),
        n_resamples,
        int(found.info["seed"]),
    )
    judged = any(digits is not None for digits in outcome_digits(labels.Y))
    occurring = {bare_code(label) for label in counts.codes}
    known = sum(code in occurring for code in found.codes)
    period = Period(name, labels, counts, None, female)
    if len(labels.cohort) < FEWEST:
        raise RecordsError(f"a cohort of {shown_count(len(labels.cohort))} subjects is too small to be reported.")
    return Application(
        found,
        name,
        str(imported.get("dataset_name") or settings.path),
        len(labels.cohort),
        attrition_table(labels.cohort.attrition),
        _outcome_table(found, period),
        comparison if judged else None,
        Review(
            table_one([period_group(period)], found.outcomes.names),
            outcome_curves(comparison, PROBIT, level, comparison.seed) if judged else (),
            subgroup_rows(comparison, PROBIT, labels.cohort, female, level) if judged else Table(),
            driver_rows(
                found.outcomes.names, found.info["regressors"], found.arrays["coef"], found.arrays["coef_draws"], level
            ),
            "external validation",
        ),
        (known, len(found.codes)),
        (*cohort.notes, *(imported.get("notes") or [])),
        scores,
    )


def _threshold(given: Any, model: TravellingModel, events: Events) -> tuple[Any, str]:
    """Return the threshold as a cohort takes it, and its name."""
    if given is None:
        if model.index is None:
            raise RecordsError(
                "state the threshold (--threshold): the model was trained on a date, not on index events."
            )
        days = index_days(events, dataclasses.replace(model.index, begin=None, end=None, split=None))
        if not days:
            raise RecordsError("no subject has one of the model's index events.")
        return {subject: as_date(day) for subject, day in days.items()}, "index events"
    if isinstance(given, Path) or (isinstance(given, str) and given.endswith((".csv", ".csv.gz", ".parquet"))):
        return read_thresholds(Path(given), model.rule), "one date a subject"
    if isinstance(given, dict):
        return given, "one date a subject"
    return given, str(as_date(as_day(given)))


def _data_end(events: Events, at: Any, rule: CohortRule) -> Any:
    """Let patients be scored on a day that the data have not reached: the horizon is still to come for everybody."""
    last = int(days_of(fetch(events.table.agg(last=events.table.time.max()))["last"])[0])
    day = max(as_day(value) for value in at.values()) if isinstance(at, dict) else as_day(at)
    return as_date(day + rule.horizon[0]) if last < day + rule.horizon[0] else None


def _write_scores(file: Path, cohort: Cohort, model: TravellingModel, probability: Floats) -> Path:
    """Write subject, time of the prediction and the probability of every outcome."""
    pa = need("pyarrow")
    times = timestamps(cohort.threshold + cohort.rule.lookback[1] + 1) - np.timedelta64(1, "us")
    columns = {"subject_id": cohort.subject, "prediction_time": pa.array(times)}
    columns |= {outcome.key: probability[:, j] for j, outcome in enumerate(model.outcomes.outcomes)}
    need("pyarrow.parquet").write_table(pa.table(columns), file)
    file.chmod(0o600)
    return file


def _outcome_table(model: TravellingModel, period: Period) -> Table:
    rows = Table()
    for j, outcome in enumerate(model.outcomes.outcomes):
        labels = period.labels
        rows.append(
            {
                "outcome": outcome.name,
                "codes": outcome.describe(),
                "events": shown_count(int(np.nansum(labels.Y[:, j]))),
                "had it before": shown_count(int(labels.prior[:, j].sum())),
                "censored": shown_count(int(labels.censored[:, j].sum())),
                "events in training": model.info["training"]["events"].get(outcome.name),
            }
        )
    return rows
