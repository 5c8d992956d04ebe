"""From files to arrays: the import, both cohorts, their counts, labels and costs."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import gzip
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.records.censoring import censoring_weights, exposures, leaving_groups
from coaltree.records.cohort import Cohort, CohortRule, as_day, build_cohort, days_of
from coaltree.records.config import (
    ALLOW,
    DataConfig,
    FeatureConfig,
    IndexConfig,
    StudyConfig,
    as_date,
    overlap_of_horizons,
)
from coaltree.records.cost import Costs, future_costs, load_prices
from coaltree.records.engine import Events, connect_to, fetch, open_events, open_table, parquet_files
from coaltree.records.errors import RecordsError
from coaltree.records.factors import CodeFactors
from coaltree.records.features import AGE, FEMALE, Counts, bare_code, count_codes, find_sex, measured_values
from coaltree.records.importer import COMMAND, choose_columns, import_summary
from coaltree.records.labels import (
    Labels,
    build_labels,
    label_outcomes,
    prediction_days,
    read_label_file,
    read_labels,
    write_labels,
)
from coaltree.records.omop import import_omop
from coaltree.records.outcomes import OutcomeSet, load_outcomes, read_definition
from coaltree.records.privacy import shown_count
from coaltree.records.review import Group
from coaltree.records.sources import HELD_OUT, import_csv, import_meds, import_synpuf, read_splits
from coaltree.storage import fingerprint

N_LEAVING = 50  # components of codes that predict who leaves
FREQUENT = 20  # subjects who have each of these codes


@dataclass(frozen=True, eq=False)
class Period:
    """One threshold: the subjects, their history before it, what happened afterwards, and what it cost."""

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
    held_out: bool = False  # whether the second period has other subjects rather than a later time


def prepare_data(config: StudyConfig, private: Path, connection: Any = None) -> StudyData:
    """Import the events if necessary, form both cohorts and count; tables of subjects go to the folder `private`."""
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
    if config.outcomes.censoring == "absent":
        labels = [taken_as_absent(label) for label in labels]
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
        part = label.outcomes(kept)
        write_labels(part, chosen, private / "labels" / name.replace(" ", "-").replace("one-date-a-", "per-"))
        female = find_sex(events, label.cohort)
        counts = make_features(events, label.cohort, config.features, female)
        if config.outcomes.censoring == "weights":
            part = weighted_labels(part, counts, config.seed)
        costs = None if config.cost.source == "none" else future_costs(events, label.cohort, prices)
        periods.append(Period(name, part, counts, costs, female))
    return StudyData(tuple(periods), chosen, left_out, imported, dict(events.names), tuple(notes), held_out)


def weighted_labels(labels: Labels, counts: Counts, seed: int) -> Labels:
    """Give known labels the weights that make up for subjects who left, in groups by features and prior outcomes."""
    if labels.time_at_risk is None:  # labels were given, and nobody knows when subjects left
        return labels
    frequent = int((np.asarray((counts.matrix > 0).sum(axis=0)) >= FREQUENT).sum())
    features = labels.prior.astype(np.float64)
    if frequent:
        factors = CodeFactors(N_LEAVING, FREQUENT, "svd" if frequent > N_LEAVING else "none", seed)
        features = np.column_stack([features, factors.fit_transform(counts)])
    groups = leaving_groups(features, np.asarray(labels.lost.any(axis=1)), seed)
    return dataclasses.replace(labels, weights=censoring_weights(labels, groups), exposure=exposures(labels, groups))


def taken_as_absent(labels: Labels) -> Labels:
    """Label subjects who left as if what was not recorded had not happened."""
    return dataclasses.replace(labels, Y=np.where(labels.lost, 0.0, labels.Y), censored=labels.censored & ~labels.lost)


def make_features(events: Events, cohort: Cohort, settings: FeatureConfig, female: Floats) -> Counts:
    """Counts in the requested windows, and the additional regressors."""
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


def period_group(period: Period) -> Group:
    """Return a period as a column of Table 1."""
    counts = period.counts
    # Only the first window's columns: codes in other windows are the same events again.
    n_columns = len({bare_code(label) for label in counts.codes})
    n_codes = np.asarray(counts.matrix[:, :n_columns].sum(axis=1)).ravel()
    return Group(period.threshold, period.labels, period.female, n_codes)


def _split(cohorts: list[Cohort], names: list[str], splits: dict[int, str]) -> tuple[list[Cohort], list[str]]:
    """Train on the subjects who are not held out, and validate on those who are."""
    first, last = cohorts[0], cohorts[-1]

    def part(cohort: Cohort, held_out: bool) -> Cohort:
        chosen = np.array([(splits.get(int(s)) == HELD_OUT) == held_out for s in cohort.subject])
        return cohort.take(chosen, "are held out (subject_splits)" if held_out else "are not held out (subject_splits)")

    return [part(first, False), part(last, True)], [names[0], f"{names[-1]}, held out"]


def open_source(
    data: DataConfig, private: Path, connection: Any = None
) -> tuple[Events, dict[str, Any], dict[int, str] | None]:
    """Return the events of a study, the counts of their import, and the splits of subjects if there are any."""
    if data.events is not None:
        connection = connect_to(data.connection or "") if connection is None else connection
        events = open_table(data.events, connection, data.timezone)
        return events, {"dataset_name": f"table {data.events}"}, None
    folder = imported_events(data, private)
    imported = _summary(folder)
    # Reports show it: whatever a dataset calls itself, no folders of this machine.
    name = re.split(r"[/\\]", str(imported.get("dataset_name") or data.path).rstrip("/\\"))[-1]
    return open_events(folder, connection, data.memory_limit), imported | {"dataset_name": name}, read_splits(folder)


def _summary(folder: Path) -> dict[str, Any]:
    try:
        return import_summary(folder)
    except (OSError, ValueError):
        return {}


def imported_events(data: DataConfig, private: Path) -> Path:
    """Return the folder of events in normal form: the source if it already is, else an import kept in `private`."""
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
    out = private / f"events-{fingerprint(settings, facts)[:16]}"
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


# ---- thresholds of a study


def find_thresholds(config: StudyConfig, events: Events) -> list[tuple[str, Any]]:
    """Return name and threshold (a date, or a mapping from subject to date) of each period of a study."""
    if config.index is not None:
        return index_periods(events, config.index, config.cohort)
    found: list[tuple[str, Any]] = []
    both_files = len(config.thresholds) == 2 and all(isinstance(value, Path) for value in config.thresholds)
    for value, part in zip(config.thresholds, (", training", ", validation"), strict=False):
        if isinstance(value, Path):
            name = "one date a subject" + (part if both_files else "")  # names tell cohorts apart in tables and files
            found.append((name, read_thresholds(value, config.cohort)))
        else:
            found.append((str(value), value))
    return found


# ---- index events


def index_periods(events: Events, index: IndexConfig, rule: CohortRule) -> list[tuple[str, Any]]:
    """Return the days of the subjects' first codes from a set, for training and, with a split, for validation."""
    days = index_days(events, index)
    if not days:
        raise RecordsError("[index]: no subject has an index event; check its codes, washout_days, begin and end.")
    if index.split is None:
        return [("index events", {subject: as_date(day) for subject, day in days.items()})]
    split = as_day(index.split)
    before = {subject: as_date(day) for subject, day in days.items() if day + rule.horizon[1] < split}
    after = {subject: as_date(day) for subject, day in days.items() if day >= split}
    for name, found in (("before", before), ("after", after)):
        if not found:
            raise RecordsError(f"[index]: no index event {name} split {index.split}, with its horizon complete.")
    return [(f"index events before {index.split}", before), (f"index events from {index.split}", after)]


def index_days(events: Events, index: IndexConfig) -> dict[int, int]:
    """Day of each subject's first index event within begin … end that has no such code in the washout before it."""
    wanted = read_definition("index", {"name": "the index event", **index.codes}, "[index]")
    spellings = events.matching(wanted.matches)
    if not spellings:
        return {}
    table = events.table.filter(events.table.code.isin(spellings), events.table.time.notnull())
    table = table.select("subject_id", day=table.time.truncate("D")).distinct()
    found = fetch(table)
    subject, day = found["subject_id"].astype(np.int64), days_of(found["day"])
    order = np.lexsort((day, subject))
    subject, day = subject[order], day[order]
    gap = np.full(len(day), np.iinfo(np.int64).max)
    same = subject[1:] == subject[:-1]
    gap[1:][same] = np.diff(day)[same]
    fine = gap > index.washout_days
    if index.washout_days == 0:
        fine = gap == np.iinfo(np.int64).max  # the first of all
    if index.begin is not None:
        fine &= day >= as_day(index.begin)
    if index.end is not None:
        fine &= day <= as_day(index.end)
    first = np.unique(subject[fine], return_index=True)[1]
    return dict(zip(subject[fine][first].tolist(), day[fine][first].tolist(), strict=True))


# ---- files


def read_thresholds(file: Path, rule: CohortRule | None = None) -> dict[int, datetime.date]:
    """Read a threshold for each subject: CSV with subject_id and date, or MEDS labels with prediction_time."""
    if not file.exists():
        raise RecordsError(f"the file of thresholds {file} does not exist.")
    if file.suffix == ".parquet":
        subject, day = prediction_days(read_label_file(file), rule or CohortRule())
        dates = {s: as_date(d) for s, d in zip(subject.tolist(), day.tolist(), strict=True)}
    else:
        dates = _read_csv_thresholds(file)
    if not dates:
        raise RecordsError(f"the file of thresholds {file} has no rows.")
    return dates


def _read_csv_thresholds(file: Path) -> dict[int, datetime.date]:
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
                dates[subject] = as_date(as_day(row[names["date"]] or "", f"{file}, row {line}: date"))
    except (UnicodeDecodeError, OSError, csv.Error) as error:
        raise RecordsError(f"the file of thresholds {file} cannot be read as text: {error}.") from error
    return dates


def check_overlap(cohorts: list[Cohort], config: StudyConfig) -> list[str]:
    """Refuse (or, if allowed, note) a second cohort whose horizons begin before those of the first have ended."""
    if len(cohorts) < 2:
        return []
    first, second = cohorts
    shared = np.isin(second.subject, first.subject).any()
    complaint = overlap_of_horizons(int(first.threshold.max()), int(second.threshold.min()), config)
    if complaint is None or not shared:
        return []
    if config.validation.overlap == "refuse":
        raise RecordsError(f"thresholds: {complaint} {ALLOW}")
    return [f"The two horizons overlap: {complaint} Scores of the second threshold are optimistic."]
