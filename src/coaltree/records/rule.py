"""The rules of a cohort: its windows around the threshold, who enters, and what an early end of observation means.

All rules are in whole days. With D the calendar day of a subject's threshold, an event of day E has the offset
d = E − D. The lookback of L days is −L … 0 and the horizon of H days 0 … H, with or without each of their ends:

    closed      lookback           horizon
    "left"      −L ≤ d < 0         0 ≤ d < H
    "right"     −L < d ≤ 0         0 < d ≤ H
    "both"      −L ≤ d ≤ 0         0 ≤ d ≤ H
    "neither"   −L < d < 0         0 < d < H
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import numpy as np

from coaltree.errors import InputError
from coaltree.records.errors import RecordsError
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
    without_periods
        In data without any OBSERVATION_START: subjects are observed "always", or from their "first_event" on.
    data_end
        Last day of the data (None: the day of the last event that is not outlying, see `observation.find_data_end`).
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
