r"""The number of live lineages at any time, and its integral, while merges are added and removed: O(log n) each.

The stem of a cut-off subtree meets each of the other live lineages at rate 1, so attaching it at time t costs

    Λ(t) = ∫_0^t (n − 1 − number of other merges by τ) dτ = (n − 1 − c) t + Σ_{merges τ ≤ t} τ,

where c is the number of those merges. Merges are kept in small buckets by time; a Fenwick tree holds the numbers and
sums of times of all buckets before a given one. The bounds of the buckets affect only speed.

A `clock` is a rough version of Λ, in a few dozen linear pieces, for use in a proposal, which must not depend on the
times that the move is about to change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, kernel
from coaltree.inference.moves.edge_density import Others, make_others, n_until

# Merges per bucket when the buckets are rebuilt.
PER_BUCKET = 8
# Linear pieces of a clock.
N_PIECES = 64
_NONE = -1


class Lineages(NamedTuple):
    """The merges of a tree over n leaves by their times; a merge is identified by its node number."""

    bounds: Floats  # (B−1,) times at which buckets 1, 2, … begin
    first: Ints  # (B,) one of the bucket's merges, or none
    after: Ints  # (2n,) another merge of the same bucket, or none
    before: Ints  # (2n,) the one whose `after` this is
    sums: Floats  # (B+1, 2) Fenwick tree of numbers and of sums of times


def make_lineages(time: Floats) -> Lineages:
    """Lineages of all merges n … 2n−2 of a tree, from the times of its nodes (2n,)."""
    n = len(time) // 2
    n_buckets = max(1, (n - 1) // PER_BUCKET)
    state = Lineages(
        np.zeros(n_buckets - 1),
        np.empty(n_buckets, dtype=np.int64),
        np.empty(2 * n, dtype=np.int64),
        np.empty(2 * n, dtype=np.int64),
        np.zeros((n_buckets + 1, 2)),
    )
    put_in_order(state, time)
    return state


@kernel
def put_in_order(state: Lineages, time: Floats) -> None:
    """Rebuild the buckets, about equally full."""
    n = time.size // 2
    n_buckets = state.first.size
    ordered = np.sort(time[n : 2 * n - 1])
    for b in range(1, n_buckets):
        state.bounds[b - 1] = ordered[(b * (n - 1)) // n_buckets]
    state.first[:] = _NONE
    state.sums[:] = 0.0
    for node in range(n, 2 * n - 1):
        insert(state, node, time[node])


@borrowing
def _count(state: Lineages, bucket: int, number: float, time: float) -> None:
    """Add to the sums of a bucket."""
    k = bucket + 1
    while k < len(state.sums):
        state.sums[k, 0] += number
        state.sums[k, 1] += time
        k += k & -k


@borrowing
def insert(state: Lineages, node: int, time: float) -> None:
    """Add a merge."""
    bucket = n_until(state.bounds, time)
    second = state.first[bucket]
    state.first[bucket] = node
    state.after[node] = second
    state.before[node] = _NONE
    if second >= 0:
        state.before[second] = node
    _count(state, bucket, 1.0, time)


@borrowing
def remove(state: Lineages, node: int, time: float) -> None:
    """Remove the merge `node`, which was added at `time`."""
    bucket = n_until(state.bounds, time)
    before, after = state.before[node], state.after[node]
    if before >= 0:
        state.after[before] = after
    else:
        state.first[bucket] = after
    if after >= 0:
        state.before[after] = before
    _count(state, bucket, -1.0, -time)


@borrowing
def exposure_without(state: Lineages, times: Floats, time: float) -> float:
    """Λ(t), with the merge of the cut-off subtree removed; `times` are those of all nodes."""
    bucket = n_until(state.bounds, time)
    number, total = 0.0, 0.0
    k = bucket
    while k > 0:
        number += state.sums[k, 0]
        total += state.sums[k, 1]
        k -= k & -k
    node = state.first[bucket]
    while node >= 0:
        if times[node] <= time:
            number += 1.0
            total += times[node]
        node = state.after[node]
    return (times.size // 2 - 1 - number) * time + total


def expected_times(n: int) -> Floats:
    """Merge times (n−1,) that Kingman's coalescent expects, 2/(n − k) − 2/n after k merges."""
    return 2.0 / np.arange(n - 1, 0, -1) - 2.0 / n


def make_coarse_clock(merge_times: Floats) -> Others:
    """Λ in linear pieces between which the number of lineages falls by a constant factor, from sorted times (n−1,)."""
    n = len(merge_times) + 1
    live = np.unique(np.geomspace(1.0, n, N_PIECES + 1).round())[-2::-1]
    done = n - live.astype(np.int64)  # merges by each knot, 1 … n−1
    clock = make_others(len(done))
    # One of the merges is the subtree's own, which may be any of them.
    weight = (n - 2.0) / (n - 1.0)
    total = weight * np.cumsum(merge_times)[done - 1]
    clock.times[:] = merge_times[done - 1]
    clock.exposure[1:] = (n - 1.0 - weight * done) * clock.times + total
    length = np.diff(clock.times, prepend=0.0)
    clock.rate[:-1] = np.divide(np.diff(clock.exposure), length, out=np.ones_like(length), where=length > 0)
    return clock
