"""A list, for every particle, of the pairs that matter next: all live pairs whose value is at most a limit.

The value is a squared distance (tpost) or the time at which the pair is due (smc1); it does not change while both
clusters are live. A full list drops its largest values and lowers the limit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints, SmallInts
from coaltree._compile import borrowing, inline
from coaltree.inference.smc.particles import copy_start

Slots = SmallInts


class Shortlist(NamedTuple):
    """M lists."""

    limit: Floats  # (M,)
    n_listed: Ints  # (M,)
    value: Floats  # (M, room)
    higher: Slots  # (M, room): slots of each pair, higher > lower
    lower: Slots  # (M, room)


def start_list(n_particles: int, room: int) -> Shortlist:
    """Empty lists, with nothing below their limit."""
    return Shortlist(
        limit=np.full(n_particles, -math.inf),
        n_listed=np.zeros(n_particles, dtype=np.int64),
        value=np.empty((n_particles, room)),
        higher=np.empty((n_particles, room), dtype=np.int32),
        lower=np.empty((n_particles, room), dtype=np.int32),
    )


@inline
def _shorten(value: Floats, higher: Slots, lower: Slots) -> tuple[int, float]:
    """Drop from a full list what lies above its mean, the new limit; if all are equal, all. Returns what is left."""
    limit = value.mean()
    kept = 0
    for k in range(value.size):
        if value[k] <= limit:
            value[kept], higher[kept], lower[kept] = value[k], higher[k], lower[k]
            kept += 1
    if kept == value.size:
        kept = 0
        limit = value[np.argmin(value)] * (1.0 - 1e-15)
    return kept, limit


@inline
def _add(
    value: Floats, higher: Slots, lower: Slots, n: int, limit: float, new: float, i: int, j: int
) -> tuple[int, float]:
    """Add a pair to a list of n, if it is within the limit; returns how many there are now, and the limit."""
    if new <= limit and n == value.size:
        n, limit = _shorten(value, higher, lower)
    if new <= limit:
        value[n], higher[n], lower[n] = new, max(i, j), min(i, j)
        n += 1
    return n, limit


@borrowing
def enlist(listed: Shortlist, m: int, new: Floats, i: int) -> None:
    """Add the pairs of slot i with slots 0, 1, … whose values `new` are within the limit; ∞ never is."""
    value, higher, lower = listed.value[m], listed.higher[m], listed.lower[m]
    n, limit = listed.n_listed[m], listed.limit[m]
    for j in range(new.size):
        if new[j] <= limit:
            n, limit = _add(value, higher, lower, n, limit, new[j], i, j)
    listed.n_listed[m], listed.limit[m] = n, limit


@borrowing
def enlist_one(listed: Shortlist, m: int, new: float, i: int, j: int) -> None:
    """Add the pair of slots i ≠ j if its value is within the limit."""
    listed.n_listed[m], listed.limit[m] = _add(
        listed.value[m], listed.higher[m], listed.lower[m], listed.n_listed[m], listed.limit[m], new, i, j
    )


@borrowing
def refill(listed: Shortlist, m: int, eps: Floats, live: int, limit: float) -> None:
    """List all pairs within `limit`, or within less if there are too many."""
    value, higher, lower = listed.value[m], listed.higher[m], listed.lower[m]
    n = pair = 0
    for i in range(1, live):
        # Most rows have nothing to list: counting, four at a time, shows this.
        within = 0
        for j in range(i):
            within += 1 if eps[pair + j] <= limit else 0
        if within > 0:
            for j in range(i):
                if eps[pair + j] <= limit:
                    n, limit = _add(value, higher, lower, n, limit, eps[pair + j], i, j)
        pair += i
    listed.n_listed[m], listed.limit[m] = n, limit


@inline
def smallest(listed: Shortlist, m: int) -> int:
    """Place in the list of the smallest value, −1 if the list is empty."""
    best = -1
    for k in range(listed.n_listed[m]):
        if best < 0 or listed.value[m, k] < listed.value[m, best]:
            best = k
    return best


@borrowing
def strike_out(listed: Shortlist, m: int, i: int, j: int, last: int) -> None:
    """After a merge of slots i and j: drop their pairs; the slot that was `last` is now i."""
    kept = 0
    for k in range(listed.n_listed[m]):
        a, b = listed.higher[m, k], listed.lower[m, k]
        if a in (i, j) or b in (i, j):
            continue
        if a == last:
            a = i
        listed.value[m, kept] = listed.value[m, k]
        listed.higher[m, kept] = max(a, b)
        listed.lower[m, kept] = min(a, b)
        kept += 1
    listed.n_listed[m] = kept


@inline
def copy_list(listed: Shortlist, to: int, of: int) -> None:
    """Overwrite list `to` with list `of`."""
    n = listed.n_listed[of]
    listed.limit[to] = listed.limit[of]
    listed.n_listed[to] = n
    copy_start(listed.value[to], listed.value[of], n)
    copy_start(listed.higher[to], listed.higher[of], n)
    copy_start(listed.lower[to], listed.lower[of], n)
