r"""tpost: choose a pair by its local evidence in Laplace's truncated form, looking only at pairs that can matter.

The evidence falls with the squared distance ε. At every merge a bound gives the ε beyond which all pairs together have
less than `NEGLECTED` of the closest pair's evidence, and a list of the pairs within some larger ε is kept from merge to
merge, so that a step costs O(n) and what the pairs that matter cost.
"""

from __future__ import annotations

import math

import numpy as np

from coaltree._compile import inline, kernel
from coaltree.inference.particles import Floats, Particles, merge, place, slots
from coaltree.inference.proposals import Retained, pick, retained_slots
from coaltree.inference.shortlist import Shortlist, enlist, smallest, strike_out
from coaltree.model import gig
from coaltree.randomness import uniform

# Share of the total evidence, at most, that is never looked at in one step.
NEGLECTED = 1e-10
# Room in the list, per leaf.
ROOM = 64


@inline
def log_local_bound(d: float, eps: float, lam: float, r_high: float) -> float:
    """Upper bound, to the accuracy of Laplace's formula, of the local evidence over all r ≤ r_high; falls with ε.

    With g(v) = v^(−d/2) e^(−ε/2v), Z(r) satisfies Z′ = (λZ − g)/2: it rises to one peak, where λZ = g, and falls. If it
    still rises at r_high that is its maximum; otherwise its peak lies at some r ≤ ε/d and is g/λ there.
    """
    at_end = gig.log_local_laplace(d, eps, lam, r_high)
    if r_high <= 0.0 or at_end + math.log(lam) >= -0.5 * (d * math.log(r_high) + eps / r_high):
        return at_end
    v = min(r_high, eps / d)
    return -0.5 * (d * math.log(v) + eps / v) - math.log(lam)


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
def refill(listed: Shortlist, m: int, eps: Floats, n_pairs: int, limit: float) -> None:
    """List all pairs within `limit`, or within less if there are too many."""
    listed.limit[m] = limit
    listed.n_listed[m] = 0
    for pair in range(n_pairs):
        if eps[pair] <= listed.limit[m]:
            i, j = slots(pair)
            enlist(listed, m, eps[pair], i, j)


@inline
def closest_pair(listed: Shortlist, m: int, eps: Floats, n_pairs: int) -> tuple[int, int]:
    """Slots of the closest pair: it is in the list unless that is empty."""
    k = smallest(listed, m)
    if k < 0:
        return slots(int(np.argmin(eps[:n_pairs])))
    return listed.higher[m, k], listed.lower[m, k]


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
    level = math.log(n_pairs / NEGLECTED)
    log_q, chosen = np.empty(listed.value.shape[1]), np.empty(listed.value.shape[1], np.int64)
    for m in range(first, stop):
        eps, offset, stream = state.eps[m], state.offset[m, :live], state.streams[m]
        now = state.times[m, stage - 1] if stage > 0 else 0.0
        newest = state.newest[m]
        if newest >= 0:
            for q in range(live):
                if q != newest:
                    enlist(listed, m, eps[place(newest, q)], newest, q)

        i, j = closest_pair(listed, m, eps, n_pairs)
        low = eps[place(i, j)]
        enough = gig.log_local_laplace(d, low, lam, 2.0 * now + offset[i] + offset[j]) - level
        far = farthest_worth_a_look(d, lam, low, enough, 2.0 * (now + offset.max()))
        if far > listed.limit[m]:
            refill(listed, m, eps, n_pairs, 2.0 * far)
        n_chosen = 0
        if far <= listed.limit[m]:
            for k in range(listed.n_listed[m]):
                if listed.value[m, k] <= far:
                    i, j = listed.higher[m, k], listed.lower[m, k]
                    r = 2.0 * now + offset[i] + offset[j]
                    log_q[n_chosen] = gig.log_local_laplace(d, listed.value[m, k], lam, r)
                    chosen[n_chosen] = place(i, j)
                    n_chosen += 1
        else:
            # More pairs matter than a list holds.
            if log_q.size < n_pairs:
                log_q, chosen = np.empty(n_pairs), np.empty(n_pairs, np.int64)
            for pair in range(n_pairs):
                if eps[pair] <= far:
                    i, j = slots(pair)
                    log_q[n_chosen] = gig.log_local_laplace(d, eps[pair], lam, 2.0 * now + offset[i] + offset[j])
                    chosen[n_chosen] = pair
                    n_chosen += 1

        picked, log_total = pick(log_q[:n_chosen], uniform(stream))
        i, j = slots(chosen[picked])
        followed = m == 0 and retained.times.size > 0
        if followed:
            i, j = retained_slots(state, stage, retained)
        e, r = eps[place(i, j)], 2.0 * now + offset[i] + offset[j]
        delta = retained.times[stage] - now if followed else gig.draw_time(d, e, lam, r, stream)[1]
        out[m] = log_total - gig.log_local_laplace(d, e, lam, r) + gig.log_local(d, e, lam, r)
        merge(state, d, m, stage, i, j, delta)
        strike_out(listed, m, i, j, live - 1)
