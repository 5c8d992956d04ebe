"""The arrays of a set of particles and the merge step that every sampler shares.

A particle is a partly built tree. Its live clusters sit in slots 0 … live−1, and a pair (i, j), i > j, at place
i(i−1)/2 + j of its packed rows: so the live pairs are always a contiguous prefix, which is all that is scanned or
copied. A cluster is its node id, its birth time and its offset a = s − t, where N(m, s Φ) is its message; means are
never needed, because squared distances obey a Lance–Williams recurrence. Until its first merge a particle reads the
distances of the leaves, of which there is one copy for all.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, inline
from coaltree.randomness import Stream, make_streams


class Particles(NamedTuple):
    """M particles over n leaves; P = n(n−1)/2 pairs."""

    leaves: Floats  # (P,) squared distance of each pair of leaves, shared
    eps: Floats  # (M, P) squared distance of each live pair, from the first merge on
    cache: Floats  # (M, P) what the method stores for each pair; (M, 0) if nothing
    offset: Floats  # (M, n) a = s − t of each slot
    born: Floats  # (M, n) time at which the cluster in each slot was made
    node: Ints  # (M, n) node id in each slot
    newest: Ints  # (M,) slot of the last merge, −1 before the first
    children: Ints  # (M, n−1, 2)
    times: Floats  # (M, n−1)
    log_joint: Floats  # (M,) Σ (−λΔ − (d/2) log 2πv − ε/2v) so far
    streams: Stream  # (M, 4)


def start(eps: Floats, leaf_noise: Floats, n_particles: int, rng: np.random.Generator, with_cache: bool) -> Particles:
    """Particles with every leaf alone. They read `eps` (P,), and do not change it."""
    n = len(leaf_noise)
    return Particles(
        leaves=eps,
        eps=np.empty((n_particles, len(eps))),
        cache=np.empty((n_particles, len(eps) if with_cache else 0)),
        offset=np.repeat(leaf_noise[None], n_particles, axis=0),
        born=np.zeros((n_particles, n)),
        node=np.repeat(np.arange(n)[None], n_particles, axis=0),
        newest=np.full(n_particles, -1),
        children=np.zeros((n_particles, n - 1, 2), dtype=np.int64),
        times=np.zeros((n_particles, n - 1)),
        log_joint=np.zeros(n_particles),
        streams=make_streams(rng, n_particles),
    )


@inline
def place(i: int, j: int) -> int:
    """Place of the pair of slots i ≠ j in a packed row."""
    return i * (i - 1) // 2 + j if i > j else j * (j - 1) // 2 + i


@inline
def slots(pair: int) -> tuple[int, int]:
    """Slots i > j of a place."""
    i = int((1.0 + math.sqrt(1.0 + 8.0 * pair)) * 0.5)
    while i * (i - 1) // 2 > pair:
        i -= 1
    while (i + 1) * i // 2 <= pair:
        i += 1
    return i, pair - i * (i - 1) // 2


@inline
def largest(values: Floats) -> float:
    """The largest of one or more values: a plain loop, because numba's `max` sets up an iterator at each call."""
    top = values[0]
    for k in range(1, values.size):
        top = max(top, values[k])
    return float(top)


@inline
def distances(leaves: Floats, eps: Floats, m: int, stage: int) -> Floats:
    """Squared distances (P,) of particle m after `stage` merges, from the fields of `Particles` of these names."""
    return eps[m] if stage > 0 else leaves


@borrowing
def merge(state: Particles, d: float, m: int, stage: int, i: int, j: int, delta: float, fresh: Floats) -> None:
    """Merge slots i > j of particle m, `delta` after the previous merge; stage counts from 0.

    The new cluster takes slot j and the last live slot moves to i. `fresh` gets the squared distances (live−1, …) of
    the new cluster to the others by their new slots, ∞ to itself.
    """
    eps, offset, node = state.eps[m], state.offset[m], state.node[m]
    if stage == 0:
        for pair in range(eps.size):
            eps[pair] = state.leaves[pair]
    live = node.size - stage
    time = delta + (state.times[m, stage - 1] if stage > 0 else 0.0)
    var_i = time + offset[i]
    var_j = time + offset[j]
    v = var_i + var_j
    weight_i = var_j / v
    weight_j = var_i / v
    eps_ij = eps[place(i, j)]
    state.log_joint[m] -= 0.5 * live * (live - 1) * delta + 0.5 * d * math.log(2.0 * math.pi * v) + 0.5 * eps_ij / v
    state.times[m, stage] = time
    state.children[m, stage, 0] = min(node[i], node[j])
    state.children[m, stage, 1] = max(node[i], node[j])

    # Columns are far apart in memory: each of their places is visited once, for reading, updating and moving.
    last = live - 1
    shift = weight_i * weight_j * eps_ij
    row_i, row_j, row_last = i * (i - 1) // 2, j * (j - 1) // 2, last * (last - 1) // 2
    to_last = 0.0
    if i != last:
        to_last = max(weight_i * eps[row_last + i] + weight_j * eps[row_last + j] - shift, 0.0)
    for q in range(j):
        fresh[q] = max(weight_i * eps[row_i + q] + weight_j * eps[row_j + q] - shift, 0.0)
        eps[row_j + q] = fresh[q]
        eps[row_i + q] = eps[row_last + q]
    pair = j * (j + 1) // 2 + j  # (q, j) of the row q
    for q in range(j + 1, i):
        fresh[q] = max(weight_i * eps[row_i + q] + weight_j * eps[pair] - shift, 0.0)
        eps[pair] = fresh[q]
        eps[row_i + q] = eps[row_last + q]
        pair += q
    pair += i
    for q in range(i + 1, last):
        fresh[q] = max(weight_i * eps[pair - j + i] + weight_j * eps[pair] - shift, 0.0)
        eps[pair] = fresh[q]
        eps[pair - j + i] = eps[row_last + q]
        pair += q
    fresh[j] = math.inf
    if i != last:
        fresh[i] = to_last
        eps[row_i + j] = to_last
    offset[j] = var_i * weight_i - time
    state.born[m, j] = time
    node[j] = node.size + stage
    state.newest[m] = j

    if i != last:
        if state.cache.shape[1] > 0:
            cache = state.cache[m]
            for q in range(last):
                if q != i:
                    cache[place(i, q)] = cache[place(last, q)]
        offset[i] = offset[last]
        state.born[m, i] = state.born[m, last]
        node[i] = node[last]


@inline
def copy_start(to: Any, of: Any, n: int) -> None:
    """Overwrite the first n values of a row with those of another: a plain loop, which compilers make a block copy."""
    for k in range(n):
        to[k] = of[k]


@inline
def copy_particle(state: Particles, stage: int, to: int, of: int) -> None:
    """Overwrite particle `to` with particle `of`, after `stage` merges; the stream stays in place."""
    live = state.node.shape[1] - stage
    n_pairs = live * (live - 1) // 2
    if stage > 0:
        copy_start(state.eps[to], state.eps[of], n_pairs)
    copy_start(state.cache[to], state.cache[of], min(state.cache.shape[1], n_pairs))
    copy_start(state.offset[to], state.offset[of], live)
    copy_start(state.born[to], state.born[of], live)
    copy_start(state.node[to], state.node[of], live)
    state.newest[to] = state.newest[of]
    for merged in range(stage):
        state.children[to, merged, 0] = state.children[of, merged, 0]
        state.children[to, merged, 1] = state.children[of, merged, 1]
    copy_start(state.times[to], state.times[of], stage)
    state.log_joint[to] = state.log_joint[of]
