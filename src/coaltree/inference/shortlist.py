"""A list, for every particle, of the pairs that matter next: all live pairs whose value is at most a limit.

The value is a squared distance (tpost) or the time at which the pair is due (smc1); it does not change while both
clusters live. A list that is full gives up its largest values and lowers the limit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._compile import inline
from coaltree.inference.particles import Floats, Ints, copy_start

Slots = npt.NDArray[np.int32]


class Shortlist(NamedTuple):
    """M lists."""

    limit: Floats  # (M,)
    n_listed: Ints  # (M,)
    value: Floats  # (M, room)
    higher: Slots  # (M, room): slots of each pair, higher > lower
    lower: Slots  # (M, room)


def start_list(n_particles: int, room: int) -> Shortlist:
    """Lists that hold nothing, with nothing below their limit."""
    return Shortlist(
        limit=np.full(n_particles, -math.inf),
        n_listed=np.zeros(n_particles, dtype=np.int64),
        value=np.empty((n_particles, room)),
        higher=np.empty((n_particles, room), dtype=np.int32),
        lower=np.empty((n_particles, room), dtype=np.int32),
    )


@inline
def _shorten(listed: Shortlist, m: int) -> None:
    """Lower the limit to the mean of the values, and drop what lies above; if all are equal, all."""
    value = listed.value[m]
    n = listed.n_listed[m]
    limit = value[:n].mean()
    kept = 0
    for k in range(n):
        if value[k] <= limit:
            value[kept] = value[k]
            listed.higher[m, kept] = listed.higher[m, k]
            listed.lower[m, kept] = listed.lower[m, k]
            kept += 1
    if kept == n:
        kept = 0
        limit = value[:n].min() * (1.0 - 1e-15)
    listed.n_listed[m] = kept
    listed.limit[m] = limit


@inline
def enlist(listed: Shortlist, m: int, value: float, i: int, j: int) -> None:
    """Add the pair of slots i ≠ j if its value is within the limit."""
    if value <= listed.limit[m] and listed.n_listed[m] == listed.value.shape[1]:
        _shorten(listed, m)
    if value <= listed.limit[m]:
        k = listed.n_listed[m]
        listed.value[m, k] = value
        listed.higher[m, k] = max(i, j)
        listed.lower[m, k] = min(i, j)
        listed.n_listed[m] = k + 1


@inline
def refill(listed: Shortlist, m: int, eps: Floats, live: int, limit: float) -> None:
    """List all pairs within `limit`, or within less if there are too many."""
    listed.limit[m] = limit
    listed.n_listed[m] = 0
    pair = 0
    for i in range(1, live):
        # Most rows have nothing to list: counting, four at a time, tells.
        within = 0
        for j in range(i):
            within += 1 if eps[pair + j] <= limit else 0
        if within > 0:
            for j in range(i):
                if eps[pair + j] <= listed.limit[m]:
                    enlist(listed, m, eps[pair + j], i, j)
        pair += i


@inline
def smallest(listed: Shortlist, m: int) -> int:
    """Place in the list of the smallest value, −1 if the list is empty."""
    best = -1
    for k in range(listed.n_listed[m]):
        if best < 0 or listed.value[m, k] < listed.value[m, best]:
            best = k
    return best


@inline
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
