r"""How a particle chooses its next merge, and the weight that makes the choice right.

Local methods choose the pair C with probability q(C) ∝ q̃(C) and then draw the merge time exactly from the truncated
GIG of that pair. The incremental weight is Σ q̃ · Z_C / q̃(C), with the exact local evidence Z_C of the chosen pair:

    postpost   q̃ = Z_C itself, one integral per pair (Teh et al. 2008)
    tpost      q̃ = Z_C by truncated Laplace
    mpost1     q̃ = e^(λr/2) times the untruncated Bessel form (Henao & Lucas)
    mpost2     the same with λ dropped from the Bessel part, which is then computed once per pair

The race (smc1, Görür & Teh 2008) lets every pair draw its merge time once, at rate 1 from the pair's birth, and merges
the earliest. With N_C(t) the local evidence at rate 1 from time t on, the pair that merges contributes N_C(birth), and
each pair that is dropped because a member merged at t contributes N_C(birth)/N_C(t).

A retained path (conditional SMC) follows given merges and times; its weights are computed by the same code.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._compile import inline, kernel
from coaltree.inference.particles import Floats, Ints, Particles, merge, place, slots
from coaltree.model import concave, gig
from coaltree.randomness import uniform
from coaltree.tree import Tree

POSTPOST, TPOST, MPOST1, MPOST2, SMC1 = range(5)
METHODS = {"tpost": TPOST, "mpost1": MPOST1, "mpost2": MPOST2, "postpost": POSTPOST, "smc1": SMC1}
CACHED = (MPOST2, SMC1)
# Pairs whose choice is e^(−45) = 3e-20 of the likeliest are left out: a million of them weigh less than rounding.
NEGLIGIBLE = 45.0


class Retained(NamedTuple):
    """A path to be followed by particle 0; empty arrays if there is none."""

    children: Ints  # (n−1, 2) or (0, 2)
    times: Floats  # (n−1,) or (0,)
    merge: Ints  # (2n−1,) or (0,): the stage at which each node merges


def retain(tree: Tree | None) -> Retained:
    """Return the path of a tree, or the empty one."""
    if tree is None:
        return Retained(np.empty((0, 2), dtype=np.int64), np.empty(0), np.empty(0, dtype=np.int64))
    return Retained(tree.children, tree.times, tree.parents() - tree.n_leaves)


@inline
def choices_postpost(d: float, lam: float, now: float, eps: Floats, offset: Floats, log_q: Floats) -> None:
    """log q̃ of every live pair: the exact local evidence."""
    for pair in range(log_q.size):
        i, j = slots(pair)
        log_q[pair] = gig.log_local(d, eps[pair], lam, 2.0 * now + offset[i] + offset[j])


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
def farthest_worth_a_look(d: float, lam: float, now: float, eps: Floats, offset: Floats, log_q: Floats) -> float:
    """An ε beyond which every live pair is negligible beside the closest one."""
    n_pairs = log_q.size
    nearest = int(np.argmin(eps[:n_pairs]))
    i, j = slots(nearest)
    low = float(eps[nearest])
    high = float(eps[:n_pairs].max())
    enough = gig.log_local_laplace(d, low, lam, 2.0 * now + offset[i] + offset[j]) - NEGLIGIBLE
    r_high = 2.0 * (now + offset.max())
    if low <= 0.0 or log_local_bound(d, high, lam, r_high) > enough:
        return math.inf
    for _ in range(10):
        middle = math.sqrt(low) * math.sqrt(high)
        if log_local_bound(d, middle, lam, r_high) > enough:
            low = middle
        else:
            high = middle
    return high


@inline
def choices_tpost(d: float, lam: float, now: float, eps: Floats, offset: Floats, log_q: Floats) -> None:
    """log q̃ of every live pair: the local evidence by truncated Laplace."""
    farthest = farthest_worth_a_look(d, lam, now, eps, offset, log_q)
    pair = 0
    for i in range(1, offset.size):
        base = 2.0 * now + offset[i]
        for j in range(i):
            if eps[pair] > farthest:
                log_q[pair] = -math.inf
            else:
                log_q[pair] = gig.log_local_laplace(d, eps[pair], lam, base + offset[j])
            pair += 1


@inline
def choices_mpost1(d: float, lam: float, now: float, eps: Floats, offset: Floats, log_q: Floats) -> None:
    """log q̃ of every live pair: the local evidence as if times were not truncated (truncated where ε = 0 diverges)."""
    for pair in range(log_q.size):
        i, j = slots(pair)
        r = 2.0 * now + offset[i] + offset[j]
        log_q[pair] = gig.log_local(d, eps[pair], lam, 0.0) + 0.5 * lam * r
        if log_q[pair] == math.inf:
            log_q[pair] = gig.log_local(d, eps[pair], lam, r)


@inline
def choices_mpost2(
    d: float, lam: float, now: float, eps: Floats, offset: Floats, log_q: Floats, cache: Floats, newest: int
) -> None:
    """log q̃ of every live pair: mpost1 at λ = 1, from `cache`, which first learns of the newest cluster's pairs."""
    for pair in range(log_q.size):
        i, j = slots(pair)
        if newest < 0 or i == newest or j == newest:
            cache[pair] = gig.log_local(d, eps[pair], 1.0, 0.0)
        r = 2.0 * now + offset[i] + offset[j]
        log_q[pair] = cache[pair] + 0.5 * lam * r
        if log_q[pair] == math.inf:
            log_q[pair] = gig.log_local(d, eps[pair], lam, r)


@inline
def _retained_slots(state: Particles, stage: int, retained: Retained) -> tuple[int, int]:
    first = second = -1
    for slot in range(state.node.shape[1] - stage):
        if state.node[0, slot] == retained.children[stage, 0]:
            first = slot
        elif state.node[0, slot] == retained.children[stage, 1]:
            second = slot
    return max(first, second), min(first, second)


@inline
def _pick(log_q: Floats, u: float) -> tuple[int, float]:
    """Index drawn with probability ∝ exp(log_q) by inversion of u, and log Σ exp(log_q)."""
    top = log_q.max()
    total = 0.0
    for index in range(log_q.size):
        if log_q[index] >= top - NEGLIGIBLE:
            total += math.exp(log_q[index] - top)
    left = u * total
    chosen = 0
    for index in range(log_q.size):
        if log_q[index] >= top - NEGLIGIBLE:
            chosen = index
            left -= math.exp(log_q[index] - top)
            if left < 0.0:
                break
    return chosen, top + math.log(total)


@kernel
def advance_local(
    state: Particles,
    method: int,
    d: float,
    stage: int,
    first: int,
    stop: int,
    retained: Retained,
    out: Floats,
) -> None:
    """Merge once in each of the particles first … stop−1 by a local method; `out` gets log incremental weights."""
    live = state.node.shape[1] - stage
    lam = 0.5 * live * (live - 1)
    log_q = np.empty(live * (live - 1) // 2)
    for m in range(first, stop):
        eps, offset, stream = state.eps[m], state.offset[m, :live], state.streams[m]
        now = state.times[m, stage - 1] if stage > 0 else 0.0
        if method == TPOST:
            choices_tpost(d, lam, now, eps, offset, log_q)
        elif method == POSTPOST:
            choices_postpost(d, lam, now, eps, offset, log_q)
        elif method == MPOST1:
            choices_mpost1(d, lam, now, eps, offset, log_q)
        else:
            choices_mpost2(d, lam, now, eps, offset, log_q, state.cache[m], state.newest[m])

        chosen, log_total = _pick(log_q, uniform(stream))
        i, j = slots(chosen)
        followed = m == 0 and retained.times.size > 0
        if followed:
            i, j = _retained_slots(state, stage, retained)
            chosen = place(i, j)
        r = 2.0 * now + offset[i] + offset[j]
        if log_q[chosen] == -math.inf:
            # Only a retained pair can have been passed over as negligible; its weight is large, but finite.
            log_q[chosen] = gig.log_local_laplace(d, eps[chosen], lam, r)
        delta = retained.times[stage] - now if followed else gig.draw_time(d, eps[chosen], lam, r, stream)[1]
        out[m] = log_total - log_q[chosen] + gig.log_local(d, eps[chosen], lam, r)
        merge(state, d, m, stage, i, j, delta)


@inline
def _log_survival(d: float, eps: float, r_born: float, r_now: float) -> float:
    """log N(birth)/N(now) of a pair that did not merge, at rate 1."""
    _, _, a, b, x_low = gig.peak(d, eps, 1.0, r_now)
    if x_low < 0.0 and concave.beyond_reach(x_low, a, b):
        # Both truncations lie where the density is negligible, so only the prior's e^(−(now − birth)) is left.
        return 0.5 * (r_born - r_now)
    return gig.log_local(d, eps, 1.0, r_born) - gig.log_local(d, eps, 1.0, r_now)


@kernel
def advance_race(
    state: Particles,
    method: int,
    d: float,
    stage: int,
    first: int,
    stop: int,
    retained: Retained,
    out: Floats,
) -> None:
    """Merge once in each of the particles first … stop−1 by the race; `out` gets log incremental weights.

    `state.cache` holds the time at which each pair would merge.
    """
    live = state.node.shape[1] - stage
    for m in range(first, stop):
        eps, offset, born, stream = state.eps[m], state.offset[m], state.born[m], state.streams[m]
        due = state.cache[m]
        now = state.times[m, stage - 1] if stage > 0 else 0.0
        newest = state.newest[m]
        followed = m == 0 and retained.times.size > 0
        for i in range(live if newest < 0 else 1):
            row = i if newest < 0 else newest
            for j in range(row if newest < 0 else live):
                if j != row:
                    pair = place(row, j)
                    after = now
                    if followed:
                        # A pair on the retained path outlived the first merge of its members.
                        stages = retained.merge[state.node[0, row]], retained.merge[state.node[0, j]]
                        after = retained.times[min(stages)]
                    r = 2.0 * after + offset[row] + offset[j]
                    due[pair] = after + gig.draw_time(d, eps[pair], 1.0, r, stream)[1]

        if followed:
            i, j = _retained_slots(state, stage, retained)
            chosen = place(i, j)
            time = retained.times[stage]
        else:
            chosen = int(np.argmin(due[: live * (live - 1) // 2]))
            i, j = slots(chosen)
            time = due[chosen]

        birth = max(born[i], born[j])
        out[m] = gig.log_local(d, eps[chosen], 1.0, 2.0 * birth + offset[i] + offset[j])
        for member in (i, j):
            for q in range(live):
                if q != i and q != j:
                    birth = max(born[member], born[q])
                    total = offset[member] + offset[q]
                    out[m] += _log_survival(d, eps[place(member, q)], 2.0 * birth + total, 2.0 * time + total)
        merge(state, d, m, stage, i, j, time - now)
