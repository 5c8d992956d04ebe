"""When subjects are observed: periods from events OBSERVATION_START and OBSERVATION_END, and the end of the data.

Within a subject, a period begins with the first of a run of OBSERVATION_START and ends with the last of the run of
OBSERVATION_END that follows; both days belong to it. Before a first OBSERVATION_END without a start the subject was
always observed, and after a last start without an end observation goes on. Periods that touch (the next begins on the
day after) are one.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Bools, Ints
from coaltree.records.privacy import shown_count

ALWAYS = 2_000_000  # a day far in the future
NEVER = -ALWAYS
LONGEST_GAP = 365  # days without the last event of anybody, after which what follows may be outlying
OUTLYING = 0.01  # share of subjects whose last events may be outlying


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
    # Join what touches: a period goes on with the next if that begins by the day after.
    joined = np.zeros(len(owner), dtype=bool)
    joined[1:] = (owner[1:] == owner[:-1]) & (begins[1:] <= ends[:-1] + 1)
    heads = np.flatnonzero(~joined)
    tails = np.append(heads[1:], len(owner))[: len(heads)] - 1
    return Periods(owner[heads], begins[heads], ends[tails])


def find_data_end(last: Ints, n_future: int, today: datetime.date) -> tuple[int, list[str]]:
    """Return the last day of the data and notes about outlying dates.

    `last` is the day of each subject's last event up to today. It is the latest of them, but for the last events of at
    most one subject in a hundred that come after more than a year in which nobody has a last event: one wrong date
    must not tell that everybody was still observed then. Later events count as after the end of observation.
    """
    days = np.sort(last[last > NEVER])
    if not len(days):
        return NEVER, []
    notes = []
    if n_future:
        notes.append(
            f"{shown_count(n_future)} subject(s) have events dated after {today}, the day of the study, which do not "
            "count."
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
