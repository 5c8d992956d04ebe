"""The days around which a study is made: a date, a file of dates, MEDS labels, or index events."""

from __future__ import annotations

import csv
import datetime
import gzip
from pathlib import Path
from typing import Any

import numpy as np

from coaltree.records.checking import ALLOW, as_date, overlap_of_horizons
from coaltree.records.cohort import Cohort, days_of
from coaltree.records.config import IndexConfig, StudyConfig
from coaltree.records.engine import Events, fetch
from coaltree.records.errors import RecordsError
from coaltree.records.labelfiles import prediction_days, read_label_file
from coaltree.records.outcomes import Definition, read_definition
from coaltree.records.reading import choose_columns
from coaltree.records.rule import CohortRule, as_day


def find_thresholds(config: StudyConfig, events: Events) -> list[tuple[str, Any]]:
    """Return name and threshold (a date, or a mapping from subject to date) of each period of a study."""
    if config.index is not None:
        return index_periods(events, config.index, config.cohort)
    found: list[tuple[str, Any]] = []
    for value in config.thresholds:
        if isinstance(value, Path):
            found.append(("one date a subject", read_thresholds(value, config.cohort)))
        else:
            found.append((str(value), value))
    return found


# ---- index events


def index_definition(index: IndexConfig) -> Definition:
    """Return the codes of an index event."""
    return read_definition("index", {"name": "the index event", **index.codes}, "[index]")


def index_periods(events: Events, index: IndexConfig, rule: CohortRule) -> list[tuple[str, Any]]:
    """Return the days of subjects' first codes of a set, for training and, with a split, for validation."""
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
    spellings = events.matching(index_definition(index).matches)
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
    """Refuse, or note if that is allowed, a second cohort whose horizons begin before the first's have ended."""
    if len(cohorts) < 2:
        return []
    first, second = cohorts
    shared = np.isin(second.subject, first.subject).any()
    complaint = overlap_of_horizons(int(first.threshold.max()), int(second.threshold.min()), config)
    if complaint is None or not shared:
        return []
    if config.validation.overlap == "refuse":
        raise RecordsError(f"thresholds: {complaint} {ALLOW}")
    return [f"The two horizons overlap: {complaint} Scores of the second threshold are too good to be true."]
