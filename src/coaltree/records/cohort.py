"""Who is studied: subjects born, alive and under observation on day 0, and how many each rule removed.

All rules are in whole days. With D the calendar day of a subject's threshold, day 0, an event on day E has the offset
d = E − D. The lookback of L days is −L … 0 and the horizon of H days 0 … H, each with or without its end points:

    closed      lookback           horizon
    "left"      −L ≤ d < 0         0 ≤ d < H
    "right"     −L < d ≤ 0         0 < d ≤ H
    "both"      −L ≤ d ≤ 0         0 ≤ d ≤ H
    "neither"   −L < d < 0         0 < d < H

A subject must be under observation on day 0: from the start to the end of one period. Within a subject, a period
begins with the first of a run of OBSERVATION_START and ends with the last of the run of OBSERVATION_END that follows;
both days belong to it. Before a first OBSERVATION_END without a start the subject was always observed, and after a
last start without an end observation continues. Adjacent periods (the next begins on the day after) are merged.
Observation ends with that period, with death or with the data, whichever comes first; events on the last day count,
later ones do not. In data without any OBSERVATION_START, subjects have no known start (see
`CohortRule.without_periods`); in data that have some, a subject without one is not under observation.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Bools, Floats, Ints
from coaltree.errors import InputError
from coaltree.records.codes import BIRTH, DEATH, OBSERVATION_END, OBSERVATION_START
from coaltree.records.engine import DAY, Events, fetch, memory_table, timestamps
from coaltree.records.errors import RecordsError
from coaltree.records.outcomes import Definition
from coaltree.records.privacy import shown_count
from coaltree.validation import check_choice, check_count

CLOSED = ("left", "right", "both", "neither")
PRIOR_RULES = ("mask", "remove", "keep")
DEATH_RULES = ("censor", "negative")
WITHOUT_PERIODS = ("always", "first_event")
LONGEST = 36_525  # days: a hundred years


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
        An inclusion code must occur within this many days before the threshold (None: at any time before it).
    min_history_days
        The first event, or OBSERVATION_START, must be at least this many days before the threshold.
    min_follow_up_days
        The last day of observation must be at least this many days after the threshold; death counts as complete
        follow-up.
    prior_outcome
        What to do if an outcome happened before the horizon: "mask" its label, "remove" the subject, or "keep".
    death
        Label of the other outcomes if a subject dies in the horizon without them: "negative", death being a competing
        risk, or "censor", undefined as if the subject had left.
    without_periods
        In data without any OBSERVATION_START: subjects are observed "always", or from their "first_event" onwards.
    data_end
        Last day of the data (None: the day of the last event that is not an outlier, see `find_data_end`; events
        after the day of the study count as such unless most subjects have no others).
    """

    lookback_days: int = 183
    lookback_closed: str = "left"
    horizon_days: int = 365
    horizon_closed: str = "left"
    inclusion_days: int | None = None
    min_history_days: int = 0
    min_follow_up_days: int = 0
    prior_outcome: str = "mask"
    death: str = "negative"
    without_periods: str = "always"
    data_end: datetime.date | None = None

    def __post_init__(self) -> None:
        for name, least in (
            ("lookback_days", 1),
            ("horizon_days", 1),
            ("min_history_days", 0),
            ("min_follow_up_days", 0),
            ("inclusion_days", 1),
        ):
            days = getattr(self, name)
            if days is not None and check_count(days, name, at_least=least) > LONGEST:
                raise InputError(f"{name} must be at most {LONGEST}, a hundred years, got {days}.")
        check_choice(self.lookback_closed, "lookback_closed", CLOSED)
        check_choice(self.horizon_closed, "horizon_closed", CLOSED)
        check_choice(self.prior_outcome, "prior_outcome", PRIOR_RULES)
        check_choice(self.death, "death", DEATH_RULES)
        check_choice(self.without_periods, "without_periods", WITHOUT_PERIODS)
        if self.lookback[1] >= self.horizon[0]:
            raise InputError(
                "the day of the threshold is in the lookback and in the horizon, so outcomes would leak into features: "
                'choose lookback_closed "left" or "neither", or horizon_closed "right" or "neither".'
            )
        if self.lookback[0] > self.lookback[1] or self.horizon[0] > self.horizon[1]:
            raise InputError("a window has no day in it: lengthen lookback_days or horizon_days, or close an end.")

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


def as_day(value: Any, name: str = "threshold") -> int:
    """Return the number of a calendar day from a date, a datetime or an ISO string."""
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


__all__ = ["Cohort", "CohortRule", "as_day", "build_cohort"]


@dataclass(frozen=True, eq=False)
class Cohort:
    """Subjects who passed every rule, one row each, sorted by subject.

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
        Each rule in turn, and how many subjects were left after it.
    born : ndarray (n,), optional
        Day of birth, far in the past where it is not known.
    notes : tuple of str
        What the report must say about dates.
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
        """Return the cohort restricted to some rows (mask or index); `reason` adds a line to the attrition."""
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
        Codes of which a subject must have at least one before the threshold, such as `OutcomeSet.inclusion`.
    today : date, optional
        Events after this day cannot have happened and do not count towards the end of the data, unless most subjects
        have no others: then the dates have been shifted, as they are in de-identified data. By default the current day.

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
        future, shifted = seen["last"] > as_day(today), are_shifted(seen["first"], today)
        last = _last_possible(table, subject, today) if future.any() and not shifted else seen["last"]
        data_end, notes = find_data_end(last, int(future.sum()), today, shifted)
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
            raise RecordsError(_nobody(attrition, text) + _ended(data_end, at + rule.horizon[0], rule, notes))
        attrition.append((text, int(kept.sum())))
    return replace(cohort.take(kept), attrition=tuple(attrition))


def _facts(events: Events, table: Any, before: Any, inclusion: Definition | None) -> Any:
    """Columns with one row per subject: days of first and last events, birth, death, and the inclusion code."""

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

    A subject in no period has a first day after its last. Without periods, observation is from NEVER to ALWAYS.
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
        # Only ends are recorded: subjects without one are observed throughout, the others up to their last.
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


def _ended(data_end: int, wanted: Ints, rule: CohortRule, notes: list[str]) -> str:
    """Say when the data end, and what ends them, if that is before the days that subjects must be observed on."""
    if (wanted <= data_end).any():
        return ""
    day = np.datetime64(data_end, "D")
    if rule.data_end is not None:
        return f" The data end on {day}, before the threshold: correct data_end."
    return " ".join([f" The data end on {day}, before the threshold.", *notes, "State data_end if they end later."])


def days_of(times: npt.NDArray[Any]) -> Ints:
    """Days since 1970 of timestamps, NEVER where there is none."""
    stamps = times.astype("datetime64[us]")
    missing = np.isnat(stamps)
    days: Ints = np.where(missing, 0, stamps.astype(np.int64)) // DAY
    return np.where(missing, NEVER, days)


def _count_subjects(events: Events) -> int:
    dated = events.table.filter(events.table.time.notnull())
    return int(dated.subject_id.nunique().to_pyarrow().as_py())


# ---- when subjects are observed

ALWAYS = 2_000_000  # a day far in the future
NEVER = -ALWAYS
LONGEST_GAP = 365  # days on which no subject has a last event, after which later dates may be outliers
OUTLYING = 0.01  # share of subjects whose last events may be outliers


class Periods(NamedTuple):
    """Periods of observation, by subject and then by day; a subject may have several."""

    subject: Ints
    begins: Ints
    ends: Ints

    def around(self, subject: Ints, day: Ints) -> tuple[Ints, Ints]:
        """First and last day of the period in which each subject's day lies, NEVER and NEVER if it lies in none."""
        begins, ends = np.full((2, len(subject)), NEVER)
        place = np.searchsorted(subject, self.subject)  # `subject` is sorted
        known = place < len(subject)
        known[known] = subject[place[known]] == self.subject[known]
        rows = np.flatnonzero(known)
        inside = rows[(self.begins[rows] <= day[place[rows]]) & (day[place[rows]] <= self.ends[rows])]
        begins[place[inside]], ends[place[inside]] = self.begins[inside], self.ends[inside]
        return begins, ends


def make_periods(subject: Ints, day: Ints, is_start: Bools) -> Periods:
    """Pair starts and ends; see the module for the rule."""
    order = np.lexsort((~is_start, day, subject))  # on one day a start comes first
    subject, day, is_start = subject[order], day[order], is_start[order]
    n = len(subject)
    new = np.ones(n, dtype=bool)
    new[1:] = subject[1:] != subject[:-1]
    opens = new.copy()
    opens[1:] |= is_start[1:] & ~is_start[:-1]
    first = np.flatnonzero(opens)
    last = np.append(first[1:], n)[: len(first)] - 1
    begins = np.where(is_start[first], day[first], NEVER)
    ends = np.where(is_start[last], ALWAYS, day[last])
    owner = subject[first]
    # Merge adjacent periods: a period continues into the next if that begins no later than the day after.
    joined = np.zeros(len(owner), dtype=bool)
    joined[1:] = (owner[1:] == owner[:-1]) & (begins[1:] <= ends[:-1] + 1)
    heads = np.flatnonzero(~joined)
    tails = np.append(heads[1:], len(owner))[: len(heads)] - 1
    return Periods(owner[heads], begins[heads], ends[tails])


def are_shifted(first: Ints, today: datetime.date) -> bool:
    """Whether most subjects have no event up to today; `first` is the day of each subject's first one."""
    known = first[first > NEVER]
    return 2 * int((known > as_day(today)).sum()) > len(known)


def find_data_end(last: Ints, n_future: int, today: datetime.date, shifted: bool = False) -> tuple[int, list[str]]:
    """Return the last day of the data and notes about outlying dates.

    `last` is the day of each subject's last event up to today, or of all events if dates are `shifted`. The result is
    the latest of these. Unless dates are shifted, it ignores the last events of at most one subject in a hundred that
    follow more than a year in which nobody has a last event: one wrong date must not imply that everybody was still
    observed then. Later events count as after the end of observation.
    """
    days = np.sort(last[last > NEVER])
    if not len(days):
        return NEVER, []
    notes = []
    if shifted:  # by another number of days for every subject, so that gaps say nothing
        note = (
            f"Most subjects have events after {today}, the day of the study, alone: dates are taken to be shifted, and "
        )
        return int(days[-1]), [f"{note}the data to end with the last of them. State data_end if they are wrong."]
    if n_future:
        notes.append(
            f"{shown_count(n_future)} subject(s) have events dated after {today}, the day of the study, which do not "
            "count. State data_end if they do."
        )
    gaps = np.flatnonzero(np.diff(days) > LONGEST_GAP)
    tails = [i for i in gaps if len(days) - 1 - i <= OUTLYING * len(days)]
    if tails:
        place = int(tails[0])
        end = np.datetime64(int(days[place]), "D")
        notes.append(
            f"The data end on {end}: the last events of {shown_count(len(days) - 1 - place)} subject(s) come more than "
            f"{LONGEST_GAP} days after everybody else's and are taken for wrong dates. State data_end if they are not."
        )
        return int(days[place]), notes
    return int(days[-1]), notes
