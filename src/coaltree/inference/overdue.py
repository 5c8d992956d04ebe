r"""The greedy tree by truncated means: the pair with the smallest mean wait, given that it is still to come, goes next.

A pair is due at 2t = 2 now + E[v − r | v > r] = E[v | v > r] − a_i − a_j. Time passes and λ falls, and both only raise
that: what was once computed of a pair stays a lower bound. So a queue holds, by such bounds, all pairs that may be due
before a horizon; the first is computed anew, and put back, until one that is up to date comes out. When the queue has
nothing before the horizon, that moves on to where a share of the clusters may have their first pair due.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._compile import inline, kernel
from coaltree.inference.clusters import CROWDED, Clusters, join, pack
from coaltree.inference.due import MEAN, comes_first, excess_floor, expected, farthest
from coaltree.inference.particles import Floats, Ints
from coaltree.model import gig
from coaltree.model.tables import Table

# The horizon is where this share of the clusters may have a pair due.
SHARE = 0.125
# Quadrature is right to 1e-13: a pair computed again may seem due earlier by that much.
_SLACK = 1e-11


class Queue(NamedTuple):
    """A heap: no due time is before that of its parent, (k − 1)/2."""

    due: Floats  # (room,)
    newer: Ints  # (room,) node ids, newer > older
    older: Ints  # (room,)
    length: Ints  # (1,)


@inline
def make_queue(room: int) -> Queue:
    """Return an empty queue."""
    return Queue(np.empty(room), np.empty(room, np.int64), np.empty(room, np.int64), np.zeros(1, np.int64))


@inline
def push(queue: Queue, due: float, newer: int, older: int) -> Queue:
    """Add a pair; returns the queue, which is a larger one if there was no room."""
    n = queue.length[0]
    if n == queue.due.size:
        larger = make_queue(2 * n)
        larger.due[:n] = queue.due
        larger.newer[:n] = queue.newer
        larger.older[:n] = queue.older
        queue = larger
    k = n
    while k > 0 and queue.due[(k - 1) // 2] > due:
        parent = (k - 1) // 2
        queue.due[k], queue.newer[k], queue.older[k] = queue.due[parent], queue.newer[parent], queue.older[parent]
        k = parent
    queue.due[k], queue.newer[k], queue.older[k] = due, newer, older
    queue.length[0] = n + 1
    return queue


@inline
def pop(queue: Queue) -> tuple[float, int, int]:
    """Remove the first pair and return it."""
    first = queue.due[0], queue.newer[0], queue.older[0]
    n = queue.length[0] - 1
    queue.length[0] = n
    due, newer, older = queue.due[n], queue.newer[n], queue.older[n]
    k = 0
    while 2 * k + 1 < n:
        child = 2 * k + 1
        if child + 1 < n and queue.due[child + 1] < queue.due[child]:
            child += 1
        if queue.due[child] >= due:
            break
        queue.due[k], queue.newer[k], queue.older[k] = queue.due[child], queue.newer[child], queue.older[child]
        k = child
    queue.due[k], queue.newer[k], queue.older[k] = due, newer, older
    return first


@inline
def take_in(
    state: Clusters,
    queue: Queue,
    d: float,
    lam: float,
    now: float,
    horizon: float,
    highest: float,
    i: int,
    others: Floats,
    first: int,
    table: Table,
) -> Queue:
    """Queue the pairs of slot i and slots `first` on, at squared distances `others`, that may be due by the horizon."""
    node, offset = state.node, state.offset
    # The mean without truncation is a bound, and the distance a bound of that.
    far = farthest(MEAN, d, lam, horizon + offset[i] + highest)
    for k in range(others.size):
        q = first + k
        if others[k] <= far and node[q] >= 0 and q != i:
            r = 2.0 * now + (offset[i] + offset[q])
            mean = expected(MEAN, d, others[k], lam, table)
            due = 2.0 * now + excess_floor(d, others[k], lam, r, r, mean)
            if due <= horizon:
                queue = push(queue, due, max(node[i], node[q]), min(node[i], node[q]))
    return queue


@inline
def move_horizon(
    state: Clusters, d: float, lam: float, now: float, size: int, highest: float, share: float, table: Table
) -> float:
    """Time 2t at which `share` of the clusters, by their closest partners, may have a pair due; ∞ if that is all."""
    node, offset = state.node, state.offset
    lowest = math.inf
    for i in range(size):
        if node[i] >= 0:
            lowest = min(lowest, offset[i])
    floors = np.empty(size)
    n = 0
    for i in range(1, size):
        row = state.eps[i * (i - 1) // 2 : i * (i + 1) // 2]
        closest = math.inf
        for j in range(i):
            if row[j] < closest and node[j] >= 0:
                closest = row[j]
        if node[i] >= 0 and closest < math.inf:
            base = 2.0 * now + offset[i]
            mean = expected(MEAN, d, closest, lam, table)
            floors[n] = 2.0 * now + excess_floor(d, closest, lam, base + lowest, base + highest, mean)
            n += 1
    rank = int(share * n)
    return math.inf if rank >= n - 1 else float(np.partition(floors[:n], rank)[rank])


@inline
def first_of(
    state: Clusters, queue: Queue, slot: Ints, d: float, lam: float, now: float
) -> tuple[Queue, float, int, int]:
    """The pair due first of those in the queue, which it leaves: when, and its nodes; ∞ if there is none."""
    offset = state.offset
    best = math.inf
    newer = older = -1
    seen = make_queue(16)
    while queue.length[0] > 0 and queue.due[0] <= best:
        _, a, b = pop(queue)
        i, j = max(slot[a], slot[b]), min(slot[a], slot[b])
        if j < 0:
            continue  # one of the two has merged
        e, r = state.eps[i * (i - 1) // 2 + j], 2.0 * now + (offset[i] + offset[j])
        due = 2.0 * now + gig.mean_excess(d, e, lam, r)
        seen = push(seen, due - _SLACK * (due + r), a, b)
        if newer < 0 or comes_first(due, a, b, best, newer, older):
            best, newer, older = due, a, b
    for k in range(seen.length[0]):
        queue = push(queue, seen.due[k], seen.newer[k], seen.older[k])
    return queue, best, newer, older


@kernel
def agglomerate_truncated(state: Clusters, d: float, table: Table, out: Ints, out_times: Floats) -> None:
    """Merge down to one cluster; `out` (n−1, 2) gets the children, `out_times` (n−1,) the times."""
    n = state.node.size
    size = n
    now = 0.0
    horizon = -math.inf
    highest = state.offset.max()
    kept = np.empty(n, np.int64)
    slot = np.full(2 * n, -1)
    slot[:n] = np.arange(n)
    queue = make_queue(16 * n)
    for stage in range(n - 1):
        live = n - stage
        lam = 0.5 * live * (live - 1)
        if live < CROWDED * size:
            size = pack(state, size, kept)
            highest = state.offset[:size].max()
            for i in range(size):
                slot[state.node[i]] = i
        queue, due, newer, older = first_of(state, queue, slot, d, lam, now)
        share = SHARE
        while due > horizon:
            # What is not in the queue may come first.
            horizon = move_horizon(state, d, lam, now, size, highest, share, table)
            queue.length[0] = 0
            for i in range(1, size):
                if state.node[i] >= 0:
                    row = state.eps[i * (i - 1) // 2 : i * (i + 1) // 2]
                    queue = take_in(state, queue, d, lam, now, horizon, highest, i, row, 0, table)
            queue, due, newer, older = first_of(state, queue, slot, d, lam, now)
            share *= 2.0

        i, j = max(slot[newer], slot[older]), min(slot[newer], slot[older])
        e, r = state.eps[i * (i - 1) // 2 + j], 2.0 * now + (state.offset[i] + state.offset[j])
        now += 0.5 * gig.mean_excess(d, e, lam, r)
        out[stage, 0] = older
        out[stage, 1] = newer
        out_times[stage] = now
        join(state, size, i, j, now)
        slot[newer] = slot[older] = -1
        slot[n + stage] = i
        state.node[i] = n + stage
        if live > 2:
            lam = 0.5 * (live - 1) * (live - 2)
            own = i * (i - 1) // 2
            queue = take_in(state, queue, d, lam, now, horizon, highest, i, state.eps[own : own + i], 0, table)
            queue = take_in(state, queue, d, lam, now, horizon, highest, i, state.fresh[i + 1 : size], i + 1, table)
