"""Who is studied: threshold dates, windows around them, rules of entry, and how many each rule removed.

All rules are in whole days. With D the calendar day of a subject's threshold, an event of day E has the offset
d = E − D. The lookback of L days is −L … 0 and the horizon of H days 0 … H, with or without each of their ends:

    closed      lookback           horizon
    "left"      −L ≤ d < 0         0 ≤ d < H
    "right"     −L < d ≤ 0         0 < d ≤ H
    "both"      −L ≤ d ≤ 0         0 ≤ d ≤ H
    "neither"   −L < d < 0         0 < d < H

Observation of a subject ends with death, with an event OBSERVATION_END, or with the data, whichever is first; events
on the last day count, later ones do not.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree.records.codes import BIRTH, DEATH, OBSERVATION_END, OBSERVATION_START
from coaltree.records.engine import DAY, Events, fetch, memory_table, timestamps
from coaltree.records.errors import RecordsError
from coaltree.records.outcomes import Definition
from coaltree.validation import check_choice, check_count

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CLOSED = ("left", "right", "both", "neither")
PRIOR_RULES = ("mask", "remove", "keep")
DEATH_RULES = ("censor", "negative")
_ALWAYS = 2_000_000  # a day far in the future
_NEVER = -_ALWAYS


@dataclass(frozen=True)
class CohortRule:
    """How a cohort is formed; see the module for windows and `closed`.

    Attributes
    ----------
    lookback_days, lookback_closed
        The window of features.
    horizon_days, horizon_closed
        The window of outcomes and costs. No day may be in both windows.
    inclusion_days
        A code of inclusion must occur within so many days before the threshold (None: ever before it).
    min_history_days
        The first event, or OBSERVATION_START, must be at least so many days before the threshold.
    min_follow_up_days
        The last day of observation must be at least so many days after the threshold; death counts as complete
        follow-up.
    prior_outcome
        What to do if an outcome happened before the horizon: "mask" its label, "remove" the subject, or "keep".
    death
        Label of other outcomes of a subject who died in the horizon without them: "censor" (undefined) or "negative".
    data_end
        Last day of the data (None: the day of the last event).
    """

    lookback_days: int = 183
    lookback_closed: str = "left"
    horizon_days: int = 365
    horizon_closed: str = "left"
    inclusion_days: int | None = None
    min_history_days: int = 0
    min_follow_up_days: int = 0
    prior_outcome: str = "mask"
    death: str = "censor"
    data_end: datetime.date | None = None

    def __post_init__(self) -> None:
        check_count(self.lookback_days, "lookback_days", at_least=1)
        check_count(self.horizon_days, "horizon_days", at_least=1)
        check_count(self.min_history_days, "min_history_days", at_least=0)
        check_count(self.min_follow_up_days, "min_follow_up_days", at_least=0)
        if self.inclusion_days is not None:
            check_count(self.inclusion_days, "inclusion_days", at_least=1)
        check_choice(self.lookback_closed, "lookback_closed", CLOSED)
        check_choice(self.horizon_closed, "horizon_closed", CLOSED)
        check_choice(self.prior_outcome, "prior_outcome", PRIOR_RULES)
        check_choice(self.death, "death", DEATH_RULES)
        if self.lookback[1] >= self.horizon[0]:
            raise ValueError(
                "the day of the threshold is in the lookback and in the horizon, so outcomes would leak into features: "
                'choose lookback_closed "left" or "neither", or horizon_closed "right" or "neither".'
            )
        if self.lookback[0] > self.lookback[1] or self.horizon[0] > self.horizon[1]:
            raise ValueError("a window has no day in it: lengthen lookback_days or horizon_days, or close an end.")

    @property
    def lookback(self) -> tuple[int, int]:
        """First and last offset of the lookback."""
        return (
            -self.lookback_days + (self.lookback_closed not in ("left", "both")),
            0 if self.lookback_closed in ("right", "both") else -1,
        )

    @property
    def horizon(self) -> tuple[int, int]:
        """First and last offset of the horizon."""
        return (
            0 if self.horizon_closed in ("left", "both") else 1,
            self.horizon_days - (self.horizon_closed not in ("right", "both")),
        )


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
    """

    subject: Ints
    threshold: Ints
    last_day: Ints
    died: Bools
    rule: CohortRule
    attrition: tuple[tuple[str, int], ...] = field(default=())

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


def as_day(value: Any, name: str = "threshold") -> int:
    """Return the number of a calendar day from a date, a datetime or an ISO text."""
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError as error:
            raise RecordsError(f"{name} must be a date such as 2009-01-01, got {value!r}.") from error
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            raise RecordsError(f"{name} must be a local date without a time zone, got {value}.")
        value = value.date()
    if isinstance(value, datetime.date):
        return int(np.datetime64(value, "D").astype(np.int64))
    raise RecordsError(f"{name} must be a date such as 2009-01-01, got {value!r}.")


def build_cohort(
    events: Events,
    threshold: Any,
    rule: CohortRule | None = None,
    inclusion: Definition | None = None,
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

    Returns
    -------
    Cohort
    """
    rule = CohortRule() if rule is None else rule
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
    included = events.matching(inclusion.matches) if inclusion is not None else []

    def when(code: str) -> Any:
        return table.code.isin(events.matching(code.__eq__) or [code])

    columns = {
        "first": table.time.min(where=~when(BIRTH)),
        "last": table.time.max(),
        "death": table.time.min(where=when(DEATH)),
        "starts": table.time.min(where=when(OBSERVATION_START)),
        "ends": table.time.max(where=when(OBSERVATION_END)),
    }
    if included:
        columns["included"] = table.time.max(where=table.code.isin(included) & before)
    found = fetch(table.group_by("subject_id").agg(**columns))
    if not len(found["subject_id"]):
        raise RecordsError("no event has a time, so there is nobody to study.")
    order = np.argsort(found["subject_id"])
    seen = {name: _days(column[order]) for name, column in found.items() if name != "subject_id"}
    subject = found["subject_id"][order].astype(np.int64)
    at = np.array([asked[int(s)] for s in subject], dtype=np.int64) if per_subject else np.full(len(subject), day)

    data_end = as_day(rule.data_end, "data_end") if rule.data_end is not None else int(seen["last"].max())
    death = np.where(seen["death"] == _NEVER, _ALWAYS, seen["death"])
    ends = np.where(seen["ends"] == _NEVER, _ALWAYS, seen["ends"])
    last_day = np.minimum(np.minimum(death, ends), data_end)
    everybody = _count_subjects(events) if per_subject else len(subject)
    cohort = Cohort(subject, at, last_day, death == last_day, rule, (("subjects with dated events", everybody),))
    if per_subject:
        cohort = cohort.take(np.ones(len(subject), dtype=bool), "have a threshold date")

    first = np.where(seen["starts"] != _NEVER, seen["starts"], seen["first"])
    rules: list[tuple[str, Bools]] = [
        (f"are under observation on day {rule.horizon[0]}", last_day >= at + rule.horizon[0]),
    ]
    if inclusion is not None:
        latest = seen.get("included", np.full(len(subject), _NEVER))
        since = _NEVER + 1 if rule.inclusion_days is None else at - rule.inclusion_days
        within = "" if rule.inclusion_days is None else f" within {rule.inclusion_days} days"
        rules.append((f"have a code of {inclusion.name} before the threshold{within}", latest >= since))
    if rule.min_history_days:
        enough = (first != _NEVER) & (first <= at - rule.min_history_days)
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


def _nobody(attrition: Any, text: str) -> str:
    steps = "; ".join(f"{n} {step}" for step, n in attrition)
    return f"the cohort is empty: nobody is left of those who {text}. Before that rule: {steps}."


def _days(times: npt.NDArray[Any]) -> Ints:
    """Days since 1970 of timestamps, _NEVER where there is none."""
    stamps = times.astype("datetime64[us]")
    missing = np.isnat(stamps)
    days: Ints = np.where(missing, 0, stamps.astype(np.int64)) // DAY
    return np.where(missing, _NEVER, days)


def _count_subjects(events: Events) -> int:
    dated = events.table.filter(events.table.time.notnull())
    return int(dated.subject_id.nunique().to_pyarrow().as_py())
