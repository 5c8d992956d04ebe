r"""How a particle chooses its next merge, and the weight that corrects for the choice.

Local methods choose the pair C with probability q(C) ∝ q̃(C) and then draw the merge time exactly from the truncated
GIG of that pair. The incremental weight is Σ q̃ · Z_C / q̃(C), with the exact local evidence Z_C of the chosen pair:

    postpost   q̃ = Z_C itself, one integral per pair (Teh et al. 2008)
    tpost      q̃ = Z_C by truncated Laplace
    mpost1     q̃ = e^(λr/2) times the untruncated Bessel form (Henao & Lucas)
    mpost2     the same with λ dropped from the Bessel part, which is then computed once per pair

tpost is in its own module, `smc.tpost`, and so is the race (smc1), `smc.race`.

A retained path (conditional SMC) follows given merges and times; its weights are computed by the same code.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.inference.smc.particles import Particles, distances, merge, place, slots
from coaltree.model import gig
from coaltree.model.gig import tables
from coaltree.model.gig.tables import GigTable
from coaltree.randomness import uniform
from coaltree.tree import Tree

POSTPOST, TPOST, MPOST1, MPOST2, SMC1 = range(5)
METHODS = {"tpost": TPOST, "mpost1": MPOST1, "mpost2": MPOST2, "postpost": POSTPOST, "smc1": SMC1}
CACHED = (MPOST2,)
# Pairs below e^(−45) = 3e-20 of the likeliest are left out: a million of them weigh less than rounding.
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
    # Writable copies: for arrays of another kind every sampler would be compiled again.
    return Retained(tree.children.copy(), tree.times.copy(), tree.parents() - tree.n_leaves)


@inline
def choices_postpost(d: float, lam: float, now: float, eps: Floats, offset: Floats, log_q: Floats) -> None:
    """log q̃ of every live pair: the exact local evidence."""
    for pair in range(log_q.size):
        i, j = slots(pair)
        log_q[pair] = gig.log_local(d, eps[pair], lam, 2.0 * now + offset[i] + offset[j])


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
    d: float,
    lam: float,
    now: float,
    eps: Floats,
    offset: Floats,
    log_q: Floats,
    cache: Floats,
    newest: int,
    table: GigTable,
) -> None:
    """log q̃ of every live pair: mpost1 at λ = 1, from `cache`, to which the newest cluster's pairs are first added."""
    if newest >= 0:
        for other in range(offset.size):
            if other != newest:
                pair = place(newest, other)
                cache[pair] = tables.tabled_log_local(table, d, eps[pair])
    pair = 0
    for i in range(1, offset.size):
        for j in range(i):
            r = 2.0 * now + offset[i] + offset[j]
            log_q[pair] = cache[pair] + 0.5 * lam * r
            if log_q[pair] == math.inf:
                log_q[pair] = gig.log_local(d, eps[pair], lam, r)
            pair += 1


@inline
def follows(m: int, retained: Retained) -> bool:
    """Whether a particle follows the path."""
    return m == 0 and retained.times.size > 0


@inline
def retained_slots(state: Particles, stage: int, retained: Retained) -> tuple[int, int]:
    """Slots i > j of particle 0 that the path merges next."""
    first = second = -1
    for slot in range(state.node.shape[1] - stage):
        if state.node[0, slot] == retained.children[stage, 0]:
            first = slot
        elif state.node[0, slot] == retained.children[stage, 1]:
            second = slot
    return max(first, second), min(first, second)


@inline
def pick_by_log_weight(log_q: Floats, u: float) -> tuple[int, float]:
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


@inline
def merge_chosen(
    state: Particles, retained: Retained, d: float, m: int, stage: int, i: int, j: int, log_choice: float, fresh: Floats
) -> float:
    """Merge slots i > j at a time drawn exactly; `log_choice` is log q̃(C) / Σ q̃. Returns the log weight."""
    live = state.node.shape[1] - stage
    lam = 0.5 * live * (live - 1)
    now = state.times[m, stage - 1] if stage > 0 else 0.0
    eps = distances(state.leaves, state.eps, m, stage)[place(i, j)]
    r = 2.0 * now + state.offset[m, i] + state.offset[m, j]
    log_evidence = gig.log_local(d, eps, lam, r)
    delta = retained.times[stage] - now if follows(m, retained) else gig.draw_time(d, eps, lam, r, state.streams[m])[1]
    merge(state, d, m, stage, i, j, delta, fresh)
    return log_evidence - log_choice


@kernel
def advance_local(
    state: Particles,
    method: int,
    d: float,
    stage: int,
    first: int,
    stop: int,
    retained: Retained,
    table: GigTable,
    out: Floats,
) -> None:
    """Merge once in each of the particles first … stop−1 by a local method; `out` gets log incremental weights."""
    live = state.node.shape[1] - stage
    lam = 0.5 * live * (live - 1)
    log_q, fresh = np.empty(live * (live - 1) // 2), np.empty(live)
    for m in range(first, stop):
        eps, offset = distances(state.leaves, state.eps, m, stage), state.offset[m, :live]
        now = state.times[m, stage - 1] if stage > 0 else 0.0
        if method == POSTPOST:
            choices_postpost(d, lam, now, eps, offset, log_q)
        elif method == MPOST1:
            choices_mpost1(d, lam, now, eps, offset, log_q)
        else:
            choices_mpost2(d, lam, now, eps, offset, log_q, state.cache[m], state.newest[m], table)

        chosen, log_total = pick_by_log_weight(log_q, uniform(state.streams[m]))
        i, j = slots(chosen)
        if follows(m, retained):
            i, j = retained_slots(state, stage, retained)
        out[m] = merge_chosen(state, retained, d, m, stage, i, j, log_q[place(i, j)] - log_total, fresh)
