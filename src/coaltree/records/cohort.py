"""Who is studied: subjects who are born, alive and under observation on day 0, and how many each rule removed.

`CohortRule` has the rules. A subject must be under observation on day 0, the day of the threshold: from the start to
the end of one period of observation (`coaltree.records.observation`). Observation ends with that period, with death or
with the data, whichever is first; events on the last day count, later ones do not. In data without any
OBSERVATION_START subjects have no known start, see `CohortRule.without_periods`; in data that have some, a subject
without one is not under observation.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Bools, Floats, Ints
from coaltree.records.codes import BIRTH, DEATH, OBSERVATION_END, OBSERVATION_START
from coaltree.records.engine import DAY, Events, fetch, memory_table, timestamps
from coaltree.records.errors import RecordsError
from coaltree.records.observation import ALWAYS, NEVER, find_data_end, make_periods
from coaltree.records.outcomes import Definition
from coaltree.records.privacy import shown_count
from coaltree.records.rule import CohortRule, as_day

__all__ = ["Cohort", "CohortRule", "as_day", "build_cohort"]


@dataclass(frozen=True, eq=False)
class Cohort:
    """Subjects that passed every rule, one row each, by subject.

    Attributes
    ----------
    subject : ndarray (n,)
        Subjects.
    threshold : ndarray (n,)
        Day of the threshold, counted from 1970-01-01.
    last_day : ndarray (n,)
        Last day of observation.
    died : ndarray (n,)
        Whether that is the day of death.
    rule : CohortRule
        The rules.
    attrition : tuple of (text, int)
        What was asked in turn, and how many subjects were left.
    born : ndarray (n,), optional
        Day of birth, far in the past where it is not known.
    notes : tuple of str
        What the report must say of dates.
    """

    subject: Ints
    threshold: Ints
    last_day: Ints
    died: Bools
    rule: CohortRule
    attrition: tuple[tuple[str, int], ...] = field(default=())
    born: Ints | None = None
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.subject)

    def take(self, keep: npt.NDArray[Any], reason: str | None = None) -> Cohort:
        """Return the cohort of some rows (mask or index); `reason` adds a line to the attrition."""
        chosen = replace(
            self,
            subject=self.subject[keep],
            threshold=self.threshold[keep],
            last_day=self.last_day[keep],
            died=self.died[keep],
            born=None if self.born is None else self.born[keep],
        )
        if reason is None:
            return chosen
        if not len(chosen):
            raise RecordsError(_nobody(self.attrition, reason))
        return replace(chosen, attrition=(*self.attrition, (reason, len(chosen))))

    def window(self, first: int, last: int) -> Any:
        """Table (subject_id, row, begins, ends) of a window of offsets, cut at the last day of observation."""
        ends = np.minimum(self.threshold + last, self.last_day) + 1
        return memory_table(
            {
                "subject_id": self.subject,
                "row": np.arange(len(self)),
                "begins": timestamps(self.threshold + first),
                "ends": timestamps(ends),
            }
        )

    @property
    def age(self) -> Floats:
        """Age in years on day 0, NaN where the birth is not known."""
        if self.born is None:
            return np.full(len(self), np.nan)
        return np.where(self.born > NEVER, (self.threshold - self.born) / 365.25, np.nan)


def build_cohort(
    events: Events,
    threshold: Any,
    rule: CohortRule | None = None,
    inclusion: Definition | None = None,
    today: datetime.date | None = None,
) -> Cohort:
    """Apply the rules in turn.

    Parameters
    ----------
    events : Events
        From `open_events`.
    threshold : date, str or mapping
        One date, or a mapping from subject to date.
    rule : CohortRule, optional
        Windows and conditions; the defaults of `CohortRule` if not given.
    inclusion : Definition, optional
        Codes of which a subject must have one before the threshold, such as `OutcomeSet.inclusion`.
    today : date, optional
        Events after this day cannot have happened and are not taken for the end of the data; by default the day on
        which this runs.

    Returns
    -------
    Cohort
    """
    rule = CohortRule() if rule is None else rule
    today = datetime.date.today() if today is None else today
    per_subject = isinstance(threshold, Mapping)
    table = events.table.filter(events.table.time.notnull())
    if per_subject:
        asked = {int(subject): as_day(day) for subject, day in threshold.items()}
        if not asked:
            raise RecordsError("threshold is an empty mapping: no subject has a date.")
        days = np.array(list(asked.values()))
        thresholds = memory_table({"subject_id": np.array(list(asked)), "at": timestamps(days + rule.lookback[1] + 1)})
        table = table.inner_join(thresholds, "subject_id")
        before = table.time < table.at
    else:
        day = as_day(threshold)
        before = table.time < timestamps(day + rule.lookback[1] + 1).item()
    found = fetch(table.group_by("subject_id").agg(**_facts(events, table, before, inclusion)))
    if not len(found["subject_id"]):
        raise RecordsError("no event has a time, so there is nobody to study.")
    order = np.argsort(found["subject_id"])
    seen = {name: days_of(column[order]) for name, column in found.items() if name != "subject_id"}
    subject = found["subject_id"][order].astype(np.int64)
    at = np.array([asked[int(s)] for s in subject], dtype=np.int64) if per_subject else np.full(len(subject), day)

    notes: list[str] = []
    if rule.data_end is not None:
        data_end = as_day(rule.data_end, "data_end")
    else:
        future = seen["last"] > as_day(today)
        last = _last_possible(table, subject, today) if future.any() else seen["last"]
        data_end, notes = find_data_end(last, int(future.sum()), today)
    begins, ends = _observed(events, table, subject, at, seen["first"], rule)
    death = np.where(seen["death"] == NEVER, ALWAYS, seen["death"])
    last_day = np.minimum(np.minimum(death, ends), data_end)
    everybody = _count_subjects(events) if per_subject else len(subject)
    cohort = Cohort(
        subject,
        at,
        last_day,
        death == last_day,
        rule,
        (("subjects with dated events", everybody),),
        seen["birth"],
        tuple(notes),
    )
    if per_subject:
        cohort = cohort.take(np.ones(len(subject), dtype=bool), "have a threshold date")
    late = (data_end < at + rule.horizon[1]).sum()
    if late and not per_subject:
        cohort = replace(cohort, notes=(*cohort.notes, _late(data_end, int(at[0]) + rule.horizon[1])))

    first = np.where(begins > NEVER, begins, seen["first"])  # of the period, or of the events
    until = "" if rule.horizon[0] == 0 else f" to {rule.horizon[0]}"
    rules: list[tuple[str, Bools]] = [("are born by day 0", seen["birth"] <= at)] if (seen["birth"] > at).any() else []
    rules.append(
        (f"are under observation on day 0{until}", (begins <= at) & (last_day >= np.maximum(at, at + rule.horizon[0])))
    )
    if inclusion is not None:
        latest = seen.get("included", np.full(len(subject), NEVER))
        since = NEVER + 1 if rule.inclusion_days is None else at - rule.inclusion_days
        within = "" if rule.inclusion_days is None else f" within {rule.inclusion_days} days"
        rules.append((f"have a code of {inclusion.name} before the threshold{within}", latest >= since))
    if rule.min_history_days:
        enough = (first != NEVER) & (first <= at - rule.min_history_days)
        rules.append((f"have at least {rule.min_history_days} days of history", enough))
    if rule.min_follow_up_days:
        enough = (last_day - at >= rule.min_follow_up_days) | cohort.died
        rules.append((f"are followed for at least {rule.min_follow_up_days} days or until death", enough))
    kept = np.ones(len(subject), dtype=bool)
    attrition = list(cohort.attrition)
    for text, passed in rules:
        kept &= passed
        if not kept.any():
            raise RecordsError(_nobody(attrition, text))
        attrition.append((text, int(kept.sum())))
    return replace(cohort.take(kept), attrition=tuple(attrition))


def _facts(events: Events, table: Any, before: Any, inclusion: Definition | None) -> Any:
    """Columns of one row a subject: days of first and last events, birth, death, and the code of inclusion."""

    def when(code: str) -> Any:
        return table.code.isin(events.spellings_of(code))

    columns = {
        "first": table.time.min(where=~when(BIRTH)),
        "last": table.time.max(),
        "birth": table.time.min(where=when(BIRTH)),
        "death": table.time.min(where=when(DEATH)),
    }
    included = events.matching(inclusion.matches) if inclusion is not None else []
    if included:
        columns["included"] = table.time.max(where=table.code.isin(included) & before)
    return columns


def _last_possible(table: Any, subject: Ints, today: datetime.date) -> Ints:
    """Day of every subject's last event up to today, NEVER for those who have none."""
    table = table.filter(table.time < timestamps(as_day(today) + 1).item())
    found = fetch(table.group_by("subject_id").agg(last=table.time.max()))
    last = np.full(len(subject), NEVER)
    last[np.searchsorted(subject, found["subject_id"])] = days_of(found["last"])
    return last


def _observed(events: Events, table: Any, subject: Ints, at: Ints, first: Ints, rule: CohortRule) -> tuple[Ints, Ints]:
    """First and last day of the period of observation around every subject's threshold.

    A subject who is in none has a first day after its last. Without periods observation is from NEVER to ALWAYS.
    """
    starts, stops = (events.spellings_of(code) for code in (OBSERVATION_START, OBSERVATION_END))
    marks = table.filter(table.code.isin([*starts, *stops]))
    found = {"subject_id": np.empty(0), "time": np.empty(0, "datetime64[us]"), "is_start": np.empty(0)}
    if events.matching((OBSERVATION_START, OBSERVATION_END).__contains__):
        found = fetch(marks.select("subject_id", "time", is_start=marks.code.isin(starts)))
    owner = found["subject_id"].astype(np.int64)
    is_start = found["is_start"].astype(bool)
    periods = make_periods(owner, days_of(found["time"]), is_start)
    begins, ends = periods.around(subject, at)
    outside = ends == NEVER
    begins[outside] = ALWAYS
    if not is_start.any():
        # Only ends are told: those without one are observed throughout, the others to their last.
        unknown = ~np.isin(subject, owner)
        begins[unknown], ends[unknown] = NEVER, ALWAYS
        if rule.without_periods == "first_event":
            begins = np.where(first > NEVER, np.maximum(begins, first), ALWAYS)
    return begins, ends


def _late(data_end: int, horizon_end: int) -> str:
    day, wanted = (np.datetime64(n, "D") for n in (data_end, horizon_end))
    return f"The data end on {day}, before the horizon does on {wanted}: subjects without an event are undefined."


def _nobody(attrition: Any, text: str) -> str:
    steps = "; ".join(f"{shown_count(n)} {step}" for step, n in attrition)
    return f"the cohort is empty: nobody is left of those who {text}. Before that rule: {steps}."


def days_of(times: npt.NDArray[Any]) -> Ints:
    """Days since 1970 of timestamps, NEVER where there is none."""
    stamps = times.astype("datetime64[us]")
    missing = np.isnat(stamps)
    days: Ints = np.where(missing, 0, stamps.astype(np.int64)) // DAY
    return np.where(missing, NEVER, days)


def _count_subjects(events: Events) -> int:
    dated = events.table.filter(events.table.time.notnull())
    return int(dated.subject_id.nunique().to_pyarrow().as_py())
