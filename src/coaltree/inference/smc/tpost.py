r"""tpost: choose a pair by its local evidence in Laplace's truncated form, considering only pairs that can matter.

The evidence falls with the squared distance ε, up to the effect of the accumulated variance, for which there is a
bound. A list of the pairs within some ε is kept from merge to merge, and sorted roughly, by eighths of octaves of ε.
Counts times bounds show how much evidence lies beyond each such cell, listed or not: only cells that hold all but
`NEGLECTED` of the total are examined; a short list is examined as a whole. A step costs O(n) plus the cost of the pairs
that matter.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, inline, kernel
from coaltree.inference.smc.candidate_pairs import Shortlist, copy_list, enlist, refill, smallest, strike_out
from coaltree.inference.smc.particles import Particles, distances, largest, place, slots
from coaltree.inference.smc.proposals import Retained, follows, merge_chosen, retained_slots
from coaltree.model import gig
from coaltree.model.gig.laplace import (
    exponentials,
    fast_exp,
    fast_log,
    log_local_laplace_all,
    log_local_laplace_many,
    pad,
)
from coaltree.randomness import uniform

# Largest share of the total evidence that is ignored in one step.
NEGLECTED = 1e-9
# A first look at the pairs that hold all but this share of the evidence shows how much there is.
FIRST_LOOK = 1e-2
# The list reaches this many times as far as pairs may matter at the time.
LONGER = 1.3
# Room in the list, per leaf.
ROOM = 64
# A list with no more pairs than this is examined as a whole: cells would cost more than they save.
SHORT = 96
# Cells per octave, and cells in all; the last holds all pairs that are closer still.
_SHIFT = 52 - 3
N_CELLS = 128
# Fewer pairs than this are weighed without checking where their modes are.
_FEW = 64
# The bound below is for the evidence itself; Laplace's form of it is off by less than this factor.
_LOG_LAPLACE = math.log(4.0)


@inline
def log_local_bound(d: float, eps: float, lam: float, r_high: float) -> float:
    """Upper bound on Laplace's form of the local evidence of all pairs at least as far apart with r ≤ r_high.

    With g(v) = v^(−d/2) e^(−ε/2v), which rises up to v = ε/d, Z(r) satisfies Z′ = (λZ − g)/2: it rises to one peak, at
    some r ≤ ε/d where λZ = g, and falls. So its maximum is at most g/λ at r_high or at ε/d, whichever is less, unless
    it still rises at r_high.
    """
    v = min(r_high, eps / d)
    bound = -0.5 * (d * math.log(v) + eps / v) - math.log(lam)
    if r_high < eps / d:
        at_end = gig.log_local_laplace(d, eps, lam, r_high)
        bound = at_end if r_high <= 0.0 else max(at_end, bound)
    return bound + _LOG_LAPLACE


@inline
def farthest_worth_a_look(d: float, lam: float, low: float, enough: float, r_high: float) -> float:
    """An ε ≥ low beyond which the log evidence of every pair is below `enough`."""
    closest = low
    high = max(low, 1e-6 * d * r_high)
    while log_local_bound(d, high, lam, r_high) > enough:
        high *= 2.0
        if high > 1e300:
            return math.inf
    low = max(low, 0.5 * high)
    for _ in range(6):
        middle = math.sqrt(low) * math.sqrt(high)
        if log_local_bound(d, middle, lam, r_high) > enough:
            low = middle
        else:
            high = middle
    return max(high, closest)  # a mean of equals may round below them


@inline
def leading_bits(eps: float) -> int:
    """Number of the cell of ε, counted from 0."""
    return int(np.float64(eps).view(np.int64)) >> _SHIFT


@inline
def cell_of(eps: float, last: int) -> int:
    """Cells below the one of the limit, whose leading bits are `last`."""
    return min(last - leading_bits(eps), N_CELLS - 1)


@inline
def lowest_in(cell: int, last: int) -> float:
    """The smallest ε of a cell."""
    return float(np.int64(max(last - cell, 0) << _SHIFT).view(np.float64))


class PairCells(NamedTuple):
    """The cells of one step, with room for all: first what is not listed, then from the farthest cell on."""

    counts: Ints  # (N_CELLS,) listed pairs in each cell
    which: Ints  # (N_CELLS,) the cells that are not empty; −1 for what is not listed
    edge: Floats  # (N_CELLS,) no pair there is closer
    r_high: Floats  # (N_CELLS,) nor has a larger r
    share: Floats  # (N_CELLS,) so none has more evidence, relative to what is enough for a first look


@inline
def make_cells() -> PairCells:
    """Room for the cells of a step."""
    counts, which = np.empty(N_CELLS, np.int64), np.empty(N_CELLS, np.int64)
    return PairCells(counts, which, np.empty(N_CELLS), np.empty(N_CELLS), np.empty(N_CELLS))


@borrowing
def count_cells(value: Floats, last: int, counts: Ints) -> int:
    """Count the listed pairs in each cell; returns the place in the list of the closest pair, −1 if it is empty."""
    counts[:] = 0
    best = -1
    low = math.inf
    for k in range(value.size):
        counts[cell_of(value[k], last)] += 1
        if value[k] < low:
            low = value[k]
            best = k
    return best


@borrowing
def find_cells(cells: PairCells, limit: float, nearest: int, n_unlisted: int, r: float) -> int:
    """The cells that are not empty, from outside to the nearest; returns how many."""
    last = leading_bits(limit)
    n = 0
    for cell in range(-1, min(nearest + 1, N_CELLS - 1)):
        if (n_unlisted if cell < 0 else cells.counts[cell]) > 0:
            cells.which[n] = cell
            cells.edge[n] = limit if cell < 0 else lowest_in(cell, last)
            cells.r_high[n] = r
            n += 1
    return n


@borrowing
def bound_cells(cells: PairCells, n: int, d: float, lam: float, r: float, log_enough: float) -> None:
    """`log_local_bound` of n cells at once, relative to `log_enough`, with r as the largest r of all."""
    edge, share = cells.edge, cells.share
    many = pad(edge, cells.r_high, n)
    log_local_laplace_all(d, lam, edge[:many], cells.r_high[:many], share[:many])
    log_scale = _LOG_LAPLACE - log_enough
    log_lam = math.log(lam)
    for k in range(many):
        peak = edge[k] / d
        v = peak if peak < r else r
        falling = -0.5 * (d * fast_log(v) + edge[k] / v) - log_lam
        rising = share[k] if r <= 0.0 or share[k] > falling else falling
        bound = log_scale + (rising if r < peak else falling)
        share[k] = fast_exp(1.0 if bound > 1.0 else bound)


@borrowing
def farthest_cell(cells: PairCells, n: int, n_unlisted: int, enough: float) -> int:
    """The farthest of n cells to examine: pairs beyond have at most `enough`; −1 if unlisted ones may have more."""
    beyond = 0.0
    for k in range(n):
        cell = cells.which[k]
        beyond += (n_unlisted if cell < 0 else cells.counts[cell]) * cells.share[k]
        if not beyond <= enough:
            return int(cell)
    return N_CELLS - 1


class Looked(NamedTuple):
    """The pairs examined in one step, with room for more."""

    eps: Floats
    r: Floats
    which: Ints  # place in the list, or among all pairs
    log_q: Floats
    q: Floats


class Seen(NamedTuple):
    """How much was examined."""

    n: int  # −1 if more pairs matter than a list holds
    log_top: float  # the largest evidence
    total: float  # of all, relative to the largest, as `Looked.q` is


@inline
def make_room(n: int) -> Looked:
    """Room for n pairs, and for a few more that `gather` and `weigh` may write to."""
    size = n + 8
    return Looked(np.empty(size), np.empty(size), np.empty(size, np.int64), np.empty(size), np.empty(size))


@borrowing
def gather_pairs(
    listed: Shortlist, m: int, offset: Floats, low: float, high: float, base: float, n: int, looked: Looked
) -> int:
    """Add the listed pairs from ε = low to below `high` to the n that are there; returns how many there are now."""
    value, higher, lower = listed.value[m], listed.higher[m], listed.lower[m]
    for k in range(listed.n_listed[m]):
        looked.eps[n] = value[k]
        looked.r[n] = base + (offset[higher[k]] + offset[lower[k]])
        looked.which[n] = k
        n += 1 if low <= value[k] < high else 0
    return n


@borrowing
def gather_all(eps: Floats, offset: Floats, live: int, far: float, base: float, looked: Looked) -> int:
    """All pairs within `far`, listed or not."""
    n = pair = 0
    for i in range(1, live):
        for j in range(i):
            looked.eps[n] = eps[pair]
            looked.r[n] = base + (offset[i] + offset[j])
            looked.which[n] = pair
            n += 1 if eps[pair] <= far else 0
            pair += 1
    return n


@borrowing
def add_evidence(d: float, lam: float, n: int, looked: Looked, seen: Seen) -> Seen:
    """Evidence of the pairs from `seen.n` to n, in addition to what was seen."""
    if n == seen.n:
        return seen
    eps, r, log_q, q = looked.eps, looked.r, looked.log_q, looked.q
    first, total = seen.n, seen.total
    many = first + pad(eps[first:], r[first:], n - first)
    if many - first < _FEW:
        log_local_laplace_all(d, lam, eps[first:many], r[first:many], log_q[first:many])
    else:
        log_local_laplace_many(d, lam, eps[first:many], r[first:many], log_q[first:many])
    log_top = largest(log_q[first:n])
    if log_top <= seen.log_top:
        log_top = seen.log_top
    else:
        first, total = 0, 0.0
    exponentials(log_q[first:many], log_top, q[first:many])
    for k in range(first, n):
        total += q[k]
    return Seen(n, log_top, total)


@borrowing
def look_at_few(
    listed: Shortlist, m: int, offset: Floats, d: float, lam: float, base: float, r_high: float, looked: Looked
) -> Seen:
    """Examine all listed pairs; n = −1 if there are none, or if others may hold more than `NEGLECTED`."""
    n = gather_pairs(listed, m, offset, 0.0, math.inf, base, 0, looked)
    if n == 0:
        return Seen(-1, 0.0, 0.0)
    seen = add_evidence(d, lam, n, looked, Seen(0, -math.inf, 0.0))
    if n < lam:
        beyond = (lam - n) * math.exp(log_local_bound(d, listed.limit[m], lam, r_high) - seen.log_top)
        if not beyond <= NEGLECTED * seen.total:
            return Seen(-1, 0.0, 0.0)
    return seen


@borrowing
def look_at_cells(
    listed: Shortlist,
    m: int,
    offset: Floats,
    d: float,
    lam: float,
    base: float,
    r_high: float,
    cells: PairCells,
    looked: Looked,
) -> Seen:
    """Examine the listed pairs that hold all but `NEGLECTED` of the evidence; n = −1 if others may hold more."""
    limit, n_listed = listed.limit[m], listed.n_listed[m]
    last = leading_bits(limit)
    k = count_cells(listed.value[m, :n_listed], last, cells.counts)
    low, out = listed.value[m, k], int(lam) - n_listed
    r = base + offset[listed.higher[m, k]] + offset[listed.lower[m, k]]
    log_enough = gig.log_local_laplace(d, low, lam, r) + math.log(FIRST_LOOK)
    n_cells = find_cells(cells, limit, cell_of(low, last), out, r_high)
    bound_cells(cells, n_cells, d, lam, r_high, log_enough)
    near = farthest_cell(cells, n_cells, out, 1.0)
    if near < 0:
        return Seen(-1, 0.0, 0.0)
    edge = lowest_in(near - 1, last)
    n = gather_pairs(listed, m, offset, 0.0, edge, base, 0, looked)
    seen = add_evidence(d, lam, n, looked, Seen(0, -math.inf, 0.0))
    all_but = NEGLECTED * seen.total * math.exp(seen.log_top - log_enough)
    cell = farthest_cell(cells, n_cells, out, all_but)
    if cell < 0:
        return Seen(-1, 0.0, 0.0)
    if cell < near:
        n = gather_pairs(listed, m, offset, edge, lowest_in(cell - 1, last), base, n, looked)
        seen = add_evidence(d, lam, n, looked, seen)
    return seen


@borrowing
def look(
    eps: Floats, offset: Floats, listed: Shortlist, d: float, m: int, now: float, cells: PairCells, looked: Looked
) -> Seen:
    """Examine the pairs that hold all but `NEGLECTED` of the evidence, if they are in the list or fit into it."""
    live = offset.size
    n_pairs = live * (live - 1) // 2
    lam, base = float(n_pairs), 2.0 * now
    r_high = 2.0 * (now + largest(offset))
    seen = Seen(-1, 0.0, 0.0)
    for attempt in range(2):
        if listed.n_listed[m] <= SHORT:
            seen = look_at_few(listed, m, offset, d, lam, base, r_high, looked)
        else:
            seen = look_at_cells(listed, m, offset, d, lam, base, r_high, cells, looked)
        if seen.n >= 0 or attempt == 1:
            break
        k = smallest(listed, m)
        if k >= 0:
            i, j = int(listed.higher[m, k]), int(listed.lower[m, k])
        else:
            i, j = slots(int(np.argmin(eps[:n_pairs])))
        low = eps[place(i, j)]
        log_low = gig.log_local_laplace(d, low, lam, base + offset[i] + offset[j])
        far = farthest_worth_a_look(d, lam, low, log_low - math.log(n_pairs / NEGLECTED), r_high)
        refill(listed, m, eps, live, min(LONGER * far, 1e300))
    return seen


@inline
def pick_by_share(q: Floats, n: int, u: float, total: float) -> int:
    """Which of n is drawn by its share of the total."""
    left = u * total
    picked = 0
    while picked < n - 1:
        left -= q[picked]
        if left < 0.0:
            break
        picked += 1
    return picked


@inline
def choose_of_all(eps: Floats, offset: Floats, d: float, now: float, u: float) -> tuple[int, int, float]:
    """Draw from all pairs that matter if a list cannot hold them: slots i > j, and the log of the total."""
    live = offset.size
    n_pairs = live * (live - 1) // 2
    lam = float(n_pairs)
    i, j = slots(int(np.argmin(eps[:n_pairs])))
    low = eps[place(i, j)]
    log_low = gig.log_local_laplace(d, low, lam, 2.0 * now + offset[i] + offset[j])
    far = farthest_worth_a_look(d, lam, low, log_low - math.log(n_pairs / NEGLECTED), 2.0 * (now + largest(offset)))
    looked = make_room(n_pairs)
    n = gather_all(eps, offset, live, far, 2.0 * now, looked)
    seen = add_evidence(d, lam, n, looked, Seen(0, -math.inf, 0.0))
    i, j = slots(looked.which[pick_by_share(looked.q, n, u, seen.total)])
    return i, j, seen.log_top + math.log(seen.total)


@kernel
def advance_tpost(
    state: Particles,
    state_list: Shortlist,
    d: float,
    stage: int,
    first: int,
    stop: int,
    retained: Retained,
    out: Floats,
) -> None:
    """Merge once in each of the particles first … stop−1; `out` gets log incremental weights."""
    listed = state_list
    live = state.node.shape[1] - stage
    lam = float(live * (live - 1) // 2)
    cells, looked, fresh = make_cells(), make_room(listed.value.shape[1]), np.empty(live)
    seen = Seen(0, 0.0, 0.0)
    for m in range(first, stop):
        eps, offset = distances(state.leaves, state.eps, m, stage), state.offset[m, :live]
        now = state.times[m, stage - 1] if stage > 0 else 0.0
        # All begin with the same pairs: one search serves all.
        if stage > 0 or m == first:
            seen = look(eps, offset, listed, d, m, now, cells, looked)
        if stage == 0 and m + 1 < stop:
            copy_list(listed, m + 1, m)
        u = uniform(state.streams[m])
        if seen.n >= 0:
            k = looked.which[pick_by_share(looked.q, seen.n, u, seen.total)]
            i, j, log_total = int(listed.higher[m, k]), int(listed.lower[m, k]), seen.log_top + math.log(seen.total)
        else:
            i, j, log_total = choose_of_all(eps, offset, d, now, u)
        if follows(m, retained):
            i, j = retained_slots(state, stage, retained)
        log_q = gig.log_local_laplace(d, eps[place(i, j)], lam, 2.0 * now + offset[i] + offset[j])
        out[m] = merge_chosen(state, retained, d, m, stage, i, j, log_q - log_total, fresh)
        strike_out(listed, m, i, j, live - 1)
        enlist(listed, m, fresh[: live - 1], j)
