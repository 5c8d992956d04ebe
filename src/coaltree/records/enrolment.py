"""Periods of observation from claims: the months in which a person's bills would have come to this payer.

A yearly summary says in how many months of the year a person was covered, not in which. Months are placed only where
one reading is left: a whole year, or a whole year up to death; the first months of a year if the year before is covered
and the year after is not; the last months (up to death) if it is the other way round. Other partial years are left out.
"""

from __future__ import annotations

import calendar
import datetime
import itertools
from collections.abc import Mapping
from typing import NamedTuple

YEAR = 12  # months


class Enrolment(NamedTuple):
    """Periods of every person, as pairs of first and last day, and how many partial years were left out."""

    periods: dict[int, list[tuple[datetime.date, datetime.date]]]
    n_unplaced: int


def enrolment_periods(
    months: Mapping[int, Mapping[int, int]], deaths: Mapping[int, datetime.date] | None = None
) -> Enrolment:
    """Return the periods in which persons were covered, from the number of months by person and year."""
    deaths = deaths or {}
    periods, n_unplaced = {}, 0
    for person, years in months.items():
        covered: list[int] = []  # months counted from year 0
        for year, number in sorted(years.items()):
            place = _place(number, years.get(year - 1, 0) > 0, years.get(year + 1, 0) > 0, deaths.get(person), year)
            n_unplaced += place is None
            covered += [year * YEAR + month for month in place or ()]
        # Within a run of consecutive months, month minus position is constant.
        runs = itertools.groupby(enumerate(covered), key=lambda pair: pair[1] - pair[0])
        periods[person] = [_days([month for _, month in run]) for _, run in runs]
    return Enrolment(periods, n_unplaced)


def _place(number: int, before: bool, after: bool, death: datetime.date | None, year: int) -> range | None:
    """Months of a year, from 0, that are covered; None if they cannot be told."""
    died = death is not None and death.year == year
    last = death.month if death is not None and died else YEAR
    number = min(max(number, 0), last)
    if number in (0, last) or (before and not after):
        return range(number)
    return range(last - number, last) if not before and (after or died) else None


def _days(run: list[int]) -> tuple[datetime.date, datetime.date]:
    """First and last day of consecutive months."""
    (first_year, first), (last_year, last) = divmod(run[0], YEAR), divmod(run[-1], YEAR)
    return (
        datetime.date(first_year, first + 1, 1),
        datetime.date(last_year, last + 1, calendar.monthrange(last_year, last + 1)[1]),
    )
