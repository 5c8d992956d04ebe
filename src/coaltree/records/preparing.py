"""From files to arrays: the import, both cohorts, their counts, labels and costs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.records.cohort import Cohort, build_cohort
from coaltree.records.config import DataConfig, FeatureConfig, StudyConfig
from coaltree.records.cost import Costs, future_costs, load_prices
from coaltree.records.demographics import AGE, FEMALE, find_sex, measured_values
from coaltree.records.engine import Events, connect_to, open_events, open_table, parquet_files
from coaltree.records.errors import RecordsError
from coaltree.records.features import Counts, count_codes
from coaltree.records.intake import COMMAND, import_summary
from coaltree.records.labels import Labels, build_labels, label_outcomes, read_labels, write_labels
from coaltree.records.omop import import_omop
from coaltree.records.outcomes import OutcomeSet, load_outcomes
from coaltree.records.privacy import shown_count
from coaltree.records.sources import HELD_OUT, import_csv, import_meds, import_synpuf, read_splits
from coaltree.records.thresholds import check_overlap, find_thresholds


@dataclass(frozen=True, eq=False)
class Period:
    """One threshold: who, what they had before, what happened after, and what it cost."""

    threshold: str
    labels: Labels
    counts: Counts
    costs: Costs | None
    female: Floats

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
    names: dict[str, str]  # of codes
    notes: tuple[str, ...] = ()
    held_out: bool = False  # whether the second period is of other subjects, not of a later time


def prepare_data(config: StudyConfig, private: Path, connection: Any = None) -> StudyData:
    """Import the events if need be, form both cohorts and count; tables of subjects go to the folder `private`."""
    given = config.outcomes.labels
    outcomes = load_outcomes(config.outcomes.file, config.outcomes.keys) if given is None else label_outcomes(given)
    prices = load_prices(config.cost.prices) if config.cost.source == "prices" and config.cost.prices else None
    events, imported, splits = open_source(config.data, private, connection)
    inclusion = outcomes.inclusion if config.outcomes.inclusion else None
    thresholds = find_thresholds(config, events)
    cohorts = [build_cohort(events, threshold, config.cohort, inclusion) for _, threshold in thresholds]
    names = [name for name, _ in thresholds]
    held_out = False
    if splits is not None and config.validation.splits == "honour":
        held_out = True
        cohorts, names = _split(cohorts, names, splits)
    notes = list(dict.fromkeys(note for cohort in cohorts for note in cohort.notes))
    notes += [] if held_out else check_overlap(cohorts, config)
    labels = [
        build_labels(events, cohort, outcomes) if given is None else read_labels(given, cohort, outcomes)
        for cohort in cohorts
    ]
    n_events = np.nansum(labels[0].Y, axis=0).astype(int)
    kept = np.flatnonzero(n_events >= config.outcomes.min_events)
    if len(kept) == 0:
        raise RecordsError(
            f"no outcome has {config.outcomes.min_events} events in the training cohort; the commonest, "
            f"{outcomes.names[int(np.argmax(n_events))]}, has {shown_count(int(n_events.max()))}. Lower "
            "outcomes.min_events or check the definitions."
        )
    left_out = tuple((outcomes.names[j], int(n_events[j])) for j in range(len(n_events)) if j not in kept)
    chosen = OutcomeSet(tuple(outcomes.outcomes[j] for j in kept), outcomes.inclusion)
    periods = []
    for name, label in zip(names, labels, strict=True):
        part = Labels(label.cohort, label.Y[:, kept], label.prior[:, kept], label.censored[:, kept])
        write_labels(part, chosen, private / "labels" / name.replace(" ", "-").replace("one-date-a-", "per-"))
        female = find_sex(events, label.cohort)
        counts = make_features(events, label.cohort, config.features, female)
        costs = None if config.cost.source == "none" else future_costs(events, label.cohort, prices)
        periods.append(Period(name, part, counts, costs, female))
    return StudyData(tuple(periods), chosen, left_out, imported, dict(events.names), tuple(notes), held_out)


def make_features(events: Events, cohort: Cohort, settings: FeatureConfig, female: Floats) -> Counts:
    """Counts in the windows asked for, and the regressors beside them."""
    counts = count_codes(events, cohort, settings.exclude, settings.windows, settings.days_since)
    columns: list[tuple[str, Floats]] = []
    if settings.age:
        columns.append((AGE, cohort.age))
    if settings.sex:
        columns.append((FEMALE, female))
    if settings.measurements:
        values, names = measured_values(events, cohort, counts, settings.windows)
        columns += [(name, values[:, i]) for i, name in enumerate(names)]
    if not columns:
        return counts
    extra = np.column_stack([column for _, column in columns])
    return dataclasses.replace(counts, extra=extra, extra_names=tuple(name for name, _ in columns))


def _split(cohorts: list[Cohort], names: list[str], splits: dict[int, str]) -> tuple[list[Cohort], list[str]]:
    """Train on the subjects that are not held out, and validate on those that are."""
    first, last = cohorts[0], cohorts[-1]

    def part(cohort: Cohort, held_out: bool) -> Cohort:
        chosen = np.array([(splits.get(int(s)) == HELD_OUT) == held_out for s in cohort.subject])
        return cohort.take(chosen, "are held out (subject_splits)" if held_out else "are not held out (subject_splits)")

    return [part(first, False), part(last, True)], [names[0], f"{names[-1]}, held out"]


def open_source(
    data: DataConfig, private: Path, connection: Any = None
) -> tuple[Events, dict[str, Any], dict[int, str] | None]:
    """Return the events of a study, what their import counted, and the splits of subjects if there are any."""
    if data.events is not None:
        connection = connect_to(data.connection or "") if connection is None else connection
        events = open_table(data.events, connection, data.timezone)
        return events, {"dataset_name": f"table {data.events}"}, None
    folder = imported_events(data, private)
    return open_events(folder, connection, data.memory_limit), _summary(folder), read_splits(folder)


def _summary(folder: Path) -> dict[str, Any]:
    try:
        return import_summary(folder)
    except (OSError, ValueError):
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
        files = sorted(file for file in source.rglob("*") if file.is_file())
    facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    settings = {**dataclasses.asdict(data), "memory_limit": ""}
    digest = hashlib.sha256(json.dumps([settings, facts], sort_keys=True).encode()).hexdigest()[:16]
    out = private / f"events-{digest}"
    if out.exists():  # an import becomes visible only when it is complete
        return out
    if data.source == "meds":
        import_meds(source, out, data.timezone, data.duplicates)
    elif data.source == "omop":
        import_omop(source, out, data.timezone, data.duplicates, schema=data.schema)
    elif data.source == "synpuf":
        import_synpuf(source, out, data.duplicates)
    else:
        import_csv(source, out, data.columns, data.vocabulary, data.date_format, data.timezone, data.duplicates)
    return out
