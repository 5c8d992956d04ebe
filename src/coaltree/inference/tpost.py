r"""tpost: choose a pair by its local evidence in Laplace's truncated form, looking only at pairs that can matter.

The evidence falls with the squared distance ε, up to what the accumulated variance does, for which there is a bound. A
list of the pairs within some ε is kept from merge to merge, and sorted roughly, by eighths of octaves of ε. Counts
times bounds say how much evidence lies beyond each such cell, listed or not: only cells within which all but
`NEGLECTED` of the total lies are looked at. A step costs O(n) and what the pairs that matter cost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._compile import inline, kernel
from coaltree.inference.particles import Floats, Ints, Particles, merge, place, slots
from coaltree.inference.proposals import Retained, retained_slots
from coaltree.inference.shortlist import Shortlist, enlist, refill, strike_out
from coaltree.model import gig
from coaltree.model.laplace import exponentials, log_local_laplace_all
from coaltree.randomness import uniform

# Share of the total evidence, at most, that is never looked at in one step.
NEGLECTED = 1e-9
# A first look at the pairs that hold all but this share of the evidence tells how much there is.
FIRST_LOOK = 1e-2
# The list reaches this many times as far as pairs may matter at the time.
LONGER = 1.3
# Room in the list, per leaf.
ROOM = 64
# Cells an octave, and cells; the last holds all pairs that are closer still.
_SHIFT = 52 - 3
N_CELLS = 128
# The bound below holds of the evidence itself; Laplace's form of it is off by less than this factor.
_LOG_LAPLACE = math.log(4.0)


@inline
def log_local_bound(d: float, eps: float, lam: float, r_high: float) -> float:
    """Upper bound of Laplace's form of the local evidence of all pairs as far or farther with r ≤ r_high.

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


@inline
def count_cells(listed: Shortlist, m: int, last: int, counts: Ints) -> int:
    """Count the listed pairs in each cell; returns the place in the list of the closest pair, −1 if it is empty."""
    value = listed.value[m]
    counts[:] = 0
    best = -1
    low = math.inf
    for k in range(listed.n_listed[m]):
        counts[cell_of(value[k], last)] += 1
        if value[k] < low:
            low = value[k]
            best = k
    return best


@inline
def farthest_cell(
    counts: Ints, limit: float, n_unlisted: int, d: float, lam: float, r_high: float, log_enough: float
) -> int:
    """The farthest cell worth a look: pairs beyond have at most exp(log_enough); −1 if unlisted ones may have more."""
    last = leading_bits(limit)
    beyond = 0.0
    for cell in range(-1, N_CELLS - 1):
        count = n_unlisted if cell < 0 else counts[cell]
        if count > 0:
            # No pair of a cell is closer than its lower edge, and no unlisted one than the limit.
            bound = log_local_bound(d, limit if cell < 0 else lowest_in(cell, last), lam, r_high)
            beyond += count * math.exp(min(bound - log_enough, 1.0))
            if not beyond <= 1.0:
                return cell
    return N_CELLS - 1


class Looked(NamedTuple):
    """The pairs looked at in one step, with room for more."""

    eps: Floats
    r: Floats
    which: Ints  # place in the list, or among all pairs
    log_q: Floats
    q: Floats
    of_list: bool


@inline
def make_room(n: int, of_list: bool) -> Looked:
    """Room for n pairs, and one more that `gather` may write to."""
    which = np.empty(n + 1, np.int64)
    return Looked(np.empty(n + 1), np.empty(n + 1), which, np.empty(n + 1), np.empty(n + 1), of_list)


@inline
def gather(
    state: Particles, listed: Shortlist, m: int, low: float, high: float, base: float, n: int, looked: Looked
) -> int:
    """Add the listed pairs from ε = low to below `high` to the n that are there; returns how many there are now."""
    offset = state.offset[m]
    value, higher, lower = listed.value[m], listed.higher[m], listed.lower[m]
    for k in range(listed.n_listed[m]):
        looked.eps[n] = value[k]
        looked.r[n] = base + (offset[higher[k]] + offset[lower[k]])
        looked.which[n] = k
        n += 1 if low <= value[k] < high else 0
    return n


@inline
def gather_all(state: Particles, m: int, live: int, far: float, base: float, looked: Looked) -> int:
    """All pairs within `far`, listed or not."""
    offset, eps = state.offset[m], state.eps[m]
    n = pair = 0
    for i in range(1, live):
        for j in range(i):
            looked.eps[n] = eps[pair]
            looked.r[n] = base + (offset[i] + offset[j])
            looked.which[n] = pair
            n += 1 if eps[pair] <= far else 0
            pair += 1
    return n


@inline
def pair_of(listed: Shortlist, m: int, looked: Looked, picked: int) -> tuple[int, int]:
    """Slots i > j of a pair that was looked at."""
    k = looked.which[picked]
    if looked.of_list:
        return int(listed.higher[m, k]), int(listed.lower[m, k])
    return slots(k)


@inline
def weigh(d: float, lam: float, first: int, n: int, looked: Looked) -> float:
    """Evidence of the pairs from `first` on; the log of the total of all n, relative to whose largest `q` is."""
    log_local_laplace_all(d, lam, looked.eps[first:n], looked.r[first:n], looked.log_q[first:n])
    top = looked.log_q[:n].max()
    exponentials(looked.log_q[:n], top, looked.q[:n])
    return float(top + math.log(looked.q[:n].sum()))


@inline
def look(
    state: Particles, listed: Shortlist, d: float, m: int, live: int, now: float, counts: Ints
) -> tuple[Looked, int, float]:
    """Look at the pairs that hold all but `NEGLECTED` of the evidence: what was seen, how many, log of the total."""
    eps, offset = state.eps[m], state.offset[m, :live]
    n_pairs = live * (live - 1) // 2
    lam, base = float(n_pairs), 2.0 * now
    r_high = 2.0 * (now + offset.max())
    far = 0.0
    for attempt in range(2):
        limit = listed.limit[m]
        last = leading_bits(limit)
        k = count_cells(listed, m, last, counts)
        if k >= 0:
            i, j = int(listed.higher[m, k]), int(listed.lower[m, k])
        else:
            i, j = slots(int(np.argmin(eps[:n_pairs])))
        low = eps[place(i, j)]
        log_low = gig.log_local_laplace(d, low, lam, base + offset[i] + offset[j])
        n_unlisted = n_pairs - listed.n_listed[m]
        if k >= 0:
            near = farthest_cell(counts, limit, n_unlisted, d, lam, r_high, log_low + math.log(FIRST_LOOK))
            if near >= 0:
                looked = make_room(listed.n_listed[m], True)
                n = gather(state, listed, m, 0.0, lowest_in(near - 1, last), base, 0, looked)
                log_total = weigh(d, lam, 0, n, looked)
                all_but = log_total + math.log(NEGLECTED)
                cell = farthest_cell(counts, limit, n_unlisted, d, lam, r_high, all_but)
                if cell >= 0:
                    if cell < near:
                        first = n
                        edges = lowest_in(near - 1, last), lowest_in(cell - 1, last)
                        n = gather(state, listed, m, edges[0], edges[1], base, n, looked)
                        log_total = weigh(d, lam, first, n, looked)
                    return looked, n, log_total
        if attempt == 0:
            enough = log_low - math.log(n_pairs / NEGLECTED)
            far = farthest_worth_a_look(d, lam, low, enough, r_high)
            refill(listed, m, eps, live, min(LONGER * far, 1e300))
    # More pairs matter than a list holds.
    looked = make_room(n_pairs, False)
    n = gather_all(state, m, live, far, base, looked)
    return looked, n, weigh(d, lam, 0, n, looked)


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
    n_pairs = live * (live - 1) // 2
    lam = float(n_pairs)
    counts = np.empty(N_CELLS, np.int64)
    for m in range(first, stop):
        eps, offset, stream = state.eps[m], state.offset[m, :live], state.streams[m]
        now = state.times[m, stage - 1] if stage > 0 else 0.0
        looked, n_looked, log_total = look(state, listed, d, m, live, now, counts)
        left = uniform(stream) * looked.q[:n_looked].sum()
        picked = 0
        while picked < n_looked - 1:
            left -= looked.q[picked]
            if left < 0.0:
                break
            picked += 1
        i, j = pair_of(listed, m, looked, picked)
        followed = m == 0 and retained.times.size > 0
        if followed:
            i, j = retained_slots(state, stage, retained)
        e, r = eps[place(i, j)], 2.0 * now + offset[i] + offset[j]
        delta = retained.times[stage] - now if followed else gig.draw_time(d, e, lam, r, stream)[1]
        out[m] = log_total - gig.log_local_laplace(d, e, lam, r) + gig.log_local(d, e, lam, r)
        fresh = merge(state, d, m, stage, i, j, delta)
        strike_out(listed, m, i, j, live - 1)
        for q in range(live - 1):
            if fresh[q] <= listed.limit[m]:
                enlist(listed, m, fresh[q], j, q)
