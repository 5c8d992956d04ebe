r"""The greedy tree by truncated means: the pair with the smallest mean wait, given that it is still to come, goes next.

A pair is due at 2t = 2 now + E[v − r | v > r]. Many pairs are overdue at any time, and their waits differ little. So
the wait of every pair that is near enough is bounded from below, first cheaply and then tightly, and only those whose
bounds are below the best wait are computed. A list of the close pairs is kept from merge to merge, as in
`inference.smc.tpost`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.inference.greedy.rules import MEAN, comes_first, farthest
from coaltree.inference.smc.candidate_pairs import Shortlist, Slots, enlist, refill, start_list, strike_out
from coaltree.inference.smc.particles import Particles, merge, slots, start
from coaltree.model import gig
from coaltree.model.gig.laplace import fast_exp

# The list reaches this many times as far as pairs may come first at the time.
LONGER = 1.3
# Room in the list, per leaf.
ROOM = 64
# Where the intervals of a bound begin and end: a wait is about 1.
_STRETCHES = np.array([0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 4.0, 7.0, 40.0])
# Relative slack for rounding.
_ROUNDING = 1e-9


class Best(NamedTuple):
    """The pair that comes first, of those seen."""

    wait: float
    i: Any  # slots, i > j, as 64-bit integers; −1 if none was seen
    j: Any


@inline
def floors(d: float, lam: float, eps: Floats, r: Floats, out: Floats) -> None:
    """Lower bounds on the mean of v − r given v > r for many pairs, in arithmetic that compilers can vectorise.

    Truncation can only raise the mean of v, for which (c + √(c² + λε))/λ is a bound (Segura 2011). And if the log
    density falls nowhere beyond r faster than at the rate η, the mean wait is at least 1/η. That rate is λ/2 + β(v),
    β = (d − ε/v)/2v, with β at its largest, d²/8ε, at v = 2ε/d; if that is 80/λ or more beyond r, it is practically
    never reached, and η is the rate at r + 80/λ.
    """
    c = 0.5 * ((3.0 if d >= 3.0 else 2.0) - d)
    for k in range(eps.size):
        e, low = eps[k], r[k]
        root = math.sqrt(c * c + lam * e)
        mean = e / (root - c) if c < 0.0 else (c + root) / lam
        at = low + 80.0 / lam if d * low < 2.0 * e else low
        rate = 0.5 * (d - e / at) / at
        rate = 0.125 * d * d / e if d * low < 2.0 * e and d * at >= 2.0 * e else rate
        rate = rate if rate > 0.0 else 0.0
        wait = 1.0 / (0.5 * lam + rate)
        out[k] = (wait if wait > mean - low else mean - low) * (1.0 - _ROUNDING) - _ROUNDING * low


@inline
def close_floors(d: float, lam: float, eps: Floats, r: Floats, out: Floats, room: Floats) -> None:
    """Tighter lower bounds on the same, at ten times the cost; `room` (4, …) is scratch.

    A density that falls faster everywhere has the smaller mean (likelihood ratio order). Here it falls on each of a few
    intervals at the largest rate there, and ends after the last. The intervals are in units of one over the largest
    rate of all; any unit gives a bound.
    """
    n = eps.size
    unit, height, mass, moment = room[0, :n], room[1, :n], room[2, :n], room[3, :n]
    for k in range(n):
        e, low = eps[k], r[k]
        rate = 0.125 * d * d / e if d * low < 2.0 * e else 0.5 * (d - e / low) / low
        unit[k] = 1.0 / (0.5 * lam + rate)
        height[k], mass[k], moment[k] = 1.0, 0.0, 0.0
    for stretch in range(_STRETCHES.size - 1):
        first, second = _STRETCHES[stretch], _STRETCHES[stretch + 1]
        for k in range(n):
            e = eps[k]
            left, right = r[k] + first * unit[k], r[k] + second * unit[k]
            rate, other = 0.5 * (d - e / left) / left, 0.5 * (d - e / right) / right
            rate = rate if rate > other else other
            rate = 0.125 * d * d / e if d * left < 2.0 * e and d * right > 2.0 * e else rate
            rate = (0.5 * lam + rate) * unit[k]
            rate = rate if rate > 0.05 else 0.05  # a faster fall still gives a bound, and avoids division by 0
            fall = rate * (second - first)
            left_over = fast_exp(-fall)
            share = height[k] * (1.0 - left_over) / rate
            mass[k] += share
            moment[k] += share * first + height[k] * (1.0 - left_over * (1.0 + fall)) / (rate * rate)
            height[k] *= left_over
    for k in range(n):
        out[k] = moment[k] / mass[k] * unit[k] * (1.0 - _ROUNDING) - _ROUNDING * r[k]


@inline
def earlier(state: Particles, d: float, lam: float, now: float, i: int, j: int, e: float, best: Best) -> Best:
    """The best so far, or the pair of slots i > j if it comes first."""
    offset, node = state.offset[0], state.node[0]
    wait = gig.mean_excess(d, e, lam, 2.0 * now + (offset[i] + offset[j]))
    if best.i < 0 or comes_first(wait, node[i], node[j], best.wait, node[best.i], node[best.j]):
        return Best(wait, np.int64(i), np.int64(j))
    return best


@inline
def improve(
    state: Particles,
    d: float,
    lam: float,
    now: float,
    eps: Floats,
    higher: Slots,
    lower: Slots,
    best: Best,
    room: Floats,
) -> Best:
    """The best so far, or one of many pairs of slots if it comes first; `room` (8, …) is scratch."""
    offset = state.offset[0]
    n = eps.size
    r, floor, close_eps, close_r = room[0, :n], room[1, :n], room[2, :n], room[3, :n]
    for k in range(n):
        r[k] = 2.0 * now + (offset[higher[k]] + offset[lower[k]])
    floors(d, lam, eps, r, floor)
    # The most promising first, so that few others need checking: first by the rough bounds, then by the tight ones.
    k = int(np.argmin(floor))
    if floor[k] <= best.wait:
        best = earlier(state, d, lam, now, higher[k], lower[k], eps[k], best)
    which = np.empty(n, np.int64)
    n_close = 0
    for k in range(n):
        which[n_close], close_eps[n_close], close_r[n_close] = k, eps[k], r[k]
        n_close += 1 if floor[k] <= best.wait else 0
    if n_close == 0:
        return best
    close_floors(d, lam, close_eps[:n_close], close_r[:n_close], floor[:n_close], room[4:])
    promising = int(np.argmin(floor[:n_close]))
    for step in range(n_close + 1):
        c = promising if step == 0 else step - 1
        if floor[c] <= best.wait:
            k = which[c]
            best = earlier(state, d, lam, now, higher[k], lower[k], eps[k], best)
    return best


@inline
def first_due_truncated(state: Particles, listed: Shortlist, d: float, live: int, now: float, room: Floats) -> Best:
    """The pair with the smallest mean wait."""
    eps, offset = state.eps[0], state.offset[0, :live]
    n_pairs = live * (live - 1) // 2
    lam = float(n_pairs)
    latest = 2.0 * (now + offset.max())
    best = Best(math.inf, np.int64(-1), np.int64(-1))
    for attempt in range(2):
        many = listed.n_listed[0]
        if many > 0:
            close, higher, lower = listed.value[0, :many], listed.higher[0, :many], listed.lower[0, :many]
            best = improve(state, d, lam, now, close, higher, lower, best, room)
            # No pair beyond this can be due as early.
            if many == n_pairs or farthest(MEAN, d, lam, best.wait + latest) <= listed.limit[0]:
                return best
        if attempt == 0:
            i, j = slots(int(np.argmin(eps[:n_pairs])))
            e, r = eps[i * (i - 1) // 2 + j], 2.0 * now + (offset[i] + offset[j])
            wait = min(best.wait, gig.mean_excess(d, e, lam, r))
            refill(listed, 0, eps, live, min(LONGER * farthest(MEAN, d, lam, wait + latest), 1e300))
    # More pairs matter than a list holds.
    for i in range(1, live):
        row = eps[i * (i - 1) // 2 : i * (i + 1) // 2]
        best = improve(state, d, lam, now, row, np.full(i, i, np.int32), np.arange(i).astype(np.int32), best, room)
    return best


@kernel
def agglomerate_truncated(state: Particles, state_list: Shortlist, d: float) -> None:
    """Merge particle 0 down to one cluster."""
    listed = state_list
    n = state.node.shape[1]
    now = 0.0
    room, fresh = np.empty((8, max(listed.value.shape[1], n))), np.empty(n)
    for stage in range(n - 1):
        best = first_due_truncated(state, listed, d, n - stage, now, room)
        merge(state, d, 0, stage, best.i, best.j, 0.5 * best.wait, fresh)
        now = state.times[0, stage]
        strike_out(listed, 0, best.i, best.j, n - stage - 1)
        enlist(listed, 0, fresh[: n - stage - 1], best.j)


def build_truncated(eps: Floats, d: int, leaf_noise: Floats) -> tuple[Ints, Floats]:
    """Children (n−1, 2) and times (n−1,) from packed squared distances `eps` (P,), which are overwritten."""
    n = len(leaf_noise)
    state = start(eps[:0], leaf_noise, 1, np.random.default_rng(0), with_cache=False)
    state = state._replace(leaves=eps, eps=eps[None])
    agglomerate_truncated(state, start_list(1, min(len(eps), ROOM * n)), float(d))
    return state.children[0], state.times[0]
