"""From files to arrays: the import, both cohorts, their counts, labels and costs."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import gzip
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree.records.cohort import Cohort, as_day, build_cohort
from coaltree.records.config import DataConfig, StudyConfig
from coaltree.records.cost import Costs, future_costs, load_prices
from coaltree.records.engine import open_events, parquet_files
from coaltree.records.errors import RecordsError
from coaltree.records.features import Counts, count_codes
from coaltree.records.intake import COMMAND, import_summary
from coaltree.records.labels import Labels, build_labels, write_labels
from coaltree.records.omop import import_omop
from coaltree.records.outcomes import OutcomeSet, load_outcomes
from coaltree.records.reading import choose_columns
from coaltree.records.sources import import_csv, import_meds, import_synpuf

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Period:
    """One threshold: who, what they had before, what happened after, and what it cost."""

    threshold: str
    labels: Labels
    counts: Counts
    costs: Costs | None

    @property
    def cohort(self) -> Cohort:
        """The subjects."""
        return self.labels.cohort


@dataclass(frozen=True, eq=False)
class StudyData:
    """What a study works on. Outcomes with too few training events are left out of `outcomes` and named."""

    periods: tuple[Period, ...]
    outcomes: OutcomeSet
    left_out: tuple[tuple[str, int], ...]  # name, training events
    imported: dict[str, Any]


def prepare_data(config: StudyConfig, private: Path, connection: Any = None) -> StudyData:
    """Import the events if need be, form both cohorts and count; tables of subjects go to the folder `private`."""
    outcomes = load_outcomes(config.outcomes.file, config.outcomes.keys)
    prices = load_prices(config.cost.prices) if config.cost.source == "prices" and config.cost.prices else None
    thresholds = [read_thresholds(value) if isinstance(value, Path) else value for value in config.thresholds]
    folder = imported_events(config.data, private)
    events = open_events(folder, connection, config.data.memory_limit)
    inclusion = outcomes.inclusion if config.outcomes.inclusion else None
    labels = []
    for threshold in thresholds:
        cohort = build_cohort(events, threshold, config.cohort, inclusion)
        labels.append(build_labels(events, cohort, outcomes))
    n_events = np.nansum(labels[0].Y, axis=0).astype(int)
    kept = np.flatnonzero(n_events >= config.outcomes.min_events)
    if len(kept) == 0:
        raise RecordsError(
            f"no outcome has {config.outcomes.min_events} events in the training cohort; the commonest, "
            f"{outcomes.names[int(np.argmax(n_events))]}, has {_suppressed(int(n_events.max()))}. Lower "
            "outcomes.min_events or check the definitions."
        )
    left_out = tuple((outcomes.names[j], int(n_events[j])) for j in range(len(n_events)) if j not in kept)
    chosen = OutcomeSet(tuple(outcomes.outcomes[j] for j in kept), outcomes.inclusion)
    periods = []
    for value, label in zip(config.thresholds, labels, strict=True):
        part = Labels(label.cohort, label.Y[:, kept], label.prior[:, kept], label.censored[:, kept])
        name = "one date a subject" if isinstance(value, Path) else str(value)
        write_labels(part, chosen, private / "labels" / ("per-subject" if isinstance(value, Path) else name))
        counts = count_codes(events, label.cohort, config.features.exclude)
        costs = None if config.cost.source == "none" else future_costs(events, label.cohort, prices)
        periods.append(Period(name, part, counts, costs))
    return StudyData(tuple(periods), chosen, left_out, _summary(folder))


def _suppressed(n: int) -> str:
    return "fewer than 11" if 0 < n < 11 else str(n)


def _summary(folder: Path) -> dict[str, Any]:
    try:
        return import_summary(folder)
    except OSError:
        return {}


def imported_events(data: DataConfig, private: Path) -> Path:
    """Return the folder of the events in normal form: the source itself if it is, else an import kept in `private`."""
    source = Path(data.path)
    if not source.exists():
        raise RecordsError(f"[data]: path {source} does not exist.")
    if data.source == "meds" and _summary(source).get("command") == COMMAND:
        return source
    files = [source]
    if data.source == "meds":
        files = parquet_files(source)
    elif source.is_dir():
        files = sorted(file for file in source.iterdir() if file.is_file())
    facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    settings = {**dataclasses.asdict(data), "memory_limit": ""}
    digest = hashlib.sha256(json.dumps([settings, facts], sort_keys=True).encode()).hexdigest()[:16]
    out = private / f"events-{digest}"
    if out.exists():  # an import becomes visible only when it is complete
        return out
    if data.source == "meds":
        import_meds(source, out, data.timezone, data.duplicates)
    elif data.source == "omop":
        import_omop(source, out, data.timezone, data.duplicates)
    elif data.source == "synpuf":
        import_synpuf(source, out, data.duplicates)
    else:
        import_csv(source, out, data.columns, data.vocabulary, data.date_format, data.timezone, data.duplicates)
    return out


def read_thresholds(file: Path) -> dict[int, datetime.date]:
    """Read a threshold for each subject from a CSV file with columns subject_id and date."""
    opener: Any = gzip.open if file.suffix == ".gz" else open
    dates: dict[int, datetime.date] = {}
    try:
        with opener(file, "rt", newline="", encoding="utf-8-sig") as stream:
            rows = csv.DictReader(stream)
            names = choose_columns(rows.fieldnames or [], ["subject_id", "date"], [], f"the thresholds {file}")
            for line, row in enumerate(rows, start=2):
                text = row[names["subject_id"]]
                try:
                    subject = int(text)
                except (TypeError, ValueError):
                    raise RecordsError(f"{file}, row {line}: subject_id {text!r} is not an integer.") from None
                if subject in dates:
                    raise RecordsError(f"{file}, row {line}: subject {subject} has two thresholds.")
                day = as_day(row[names["date"]] or "", f"{file}, row {line}: date")
                dates[subject] = datetime.date(1970, 1, 1) + datetime.timedelta(days=day)
    except FileNotFoundError:
        raise RecordsError(f"the file of thresholds {file} does not exist.") from None
    if not dates:
        raise RecordsError(f"the file of thresholds {file} has no rows.")
    return dates
