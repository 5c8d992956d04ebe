r"""Greedy trees of more leaves than their distances fit in memory: only near neighbours are candidates for a merge.

Every cluster keeps a short list of candidates, which it inherits from the two that it was made of, nearest first. Pairs
wait in a heap by the time at which they were due when last looked at: as λ falls that only rises, so the first of the
heap is looked at again, and put back, until one that is up to date comes out. As clusters become fewer, or when no pair
is left between them, the graph of neighbours is made anew from their means.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._compile import inline, kernel
from coaltree.inference.due import MEAN, expected
from coaltree.inference.particles import Floats, Ints
from coaltree.model import tables
from coaltree.model.tables import Table

Nodes = npt.NDArray[np.int32]

# The graph is made anew when this share of the clusters is left.
AGAIN = 0.25


class Forest(NamedTuple):
    """Clusters by node id: leaves first, then merges."""

    mean: Floats  # (2n−1, d)
    offset: Floats  # (2n−1,) a = s − t
    parent: Nodes  # (2n−1,) the node it has merged into, or itself
    near: Nodes  # (2n−1, room) candidates
    n_near: Nodes  # (2n−1,)


class Heap(NamedTuple):
    """Pairs; none is due before its parent, (k − 1)/2."""

    due: Floats  # (room,)
    first: Nodes  # (room,)
    second: Nodes  # (room,)
    length: Ints  # (1,)


@inline
def make_heap(room: int) -> Heap:
    """Return an empty heap."""
    return Heap(np.empty(room), np.empty(room, np.int32), np.empty(room, np.int32), np.zeros(1, np.int64))


@inline
def push(heap: Heap, due: float, first: int, second: int) -> Heap:
    """Add a pair; returns the heap, which is a larger one if there was no room."""
    n = heap.length[0]
    if n == heap.due.size:
        larger = make_heap(2 * n)
        larger.due[:n] = heap.due
        larger.first[:n] = heap.first
        larger.second[:n] = heap.second
        heap = larger
    k = n
    while k > 0 and heap.due[(k - 1) // 2] > due:
        above = (k - 1) // 2
        heap.due[k], heap.first[k], heap.second[k] = heap.due[above], heap.first[above], heap.second[above]
        k = above
    heap.due[k], heap.first[k], heap.second[k] = due, first, second
    heap.length[0] = n + 1
    return heap


@inline
def pop(heap: Heap) -> tuple[int, int]:
    """Remove the first pair and return it."""
    first, second = heap.first[0], heap.second[0]
    n = heap.length[0] - 1
    heap.length[0] = n
    due, last_first, last_second = heap.due[n], heap.first[n], heap.second[n]
    k = 0
    while 2 * k + 1 < n:
        child = 2 * k + 1
        if child + 1 < n and heap.due[child + 1] < heap.due[child]:
            child += 1
        if heap.due[child] >= due:
            break
        heap.due[k], heap.first[k], heap.second[k] = heap.due[child], heap.first[child], heap.second[child]
        k = child
    heap.due[k], heap.first[k], heap.second[k] = due, last_first, last_second
    return int(first), int(second)


@inline
def due_time(forest: Forest, rule: int, d: float, lam: float, i: int, j: int, table: Table) -> float:
    """When two clusters are due, 2t."""
    eps = 0.0
    for column in range(forest.mean.shape[1]):
        eps += (forest.mean[i, column] - forest.mean[j, column]) ** 2
    return expected(rule, d, eps, lam, table) - float(forest.offset[i] + forest.offset[j])


@inline
def living(parent: Nodes, node: int) -> int:
    """The cluster that a node is in now; the way there gets shorter."""
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = int(parent[node])
    return node


@inline
def inherit(forest: Forest, new: int, i: int, j: int) -> None:
    """Give the new cluster the candidates of i and j, the nearest if there are too many."""
    room = forest.near.shape[1]
    ids, eps = np.empty(2 * room, np.int64), np.empty(2 * room)
    n = 0
    for old in (i, j):
        for k in range(forest.n_near[old]):
            q = living(forest.parent, int(forest.near[old, k]))
            known = q == new
            for other in range(n):
                known = known or ids[other] == q
            if not known:
                total = 0.0
                for column in range(forest.mean.shape[1]):
                    total += (forest.mean[new, column] - forest.mean[q, column]) ** 2
                ids[n], eps[n] = q, total
                n += 1
    order = np.argsort(eps[:n])
    kept = min(n, room)
    for k in range(kept):
        forest.near[new, k] = ids[order[k]]
    forest.n_near[new] = kept


@kernel
def follow_graph(
    state: Forest, rule: int, d: float, first: int, stop: int, now: float, table: Table, out: Ints, out_times: Floats
) -> int:
    """Merge along the graph from merge `first` to before `stop`, or until no pair is left; how many are done then."""
    forest = state
    n = out_times.size + 1
    live = n - first
    lam = 0.5 * live * (live - 1)
    heap = make_heap(16 * live)
    for i in range(n + first):
        if forest.parent[i] == i:
            for k in range(forest.n_near[i]):
                j = int(forest.near[i, k])
                heap = push(heap, due_time(forest, rule, d, lam, i, j, table), max(i, j), min(i, j))
    stage = first
    while stage < stop and heap.length[0] > 0:
        i, j = pop(heap)
        if forest.parent[i] != i or forest.parent[j] != j:
            continue
        live = n - stage
        lam = 0.5 * live * (live - 1)
        due = due_time(forest, rule, d, lam, i, j, table)
        if heap.length[0] > 0 and due > heap.due[0]:
            heap = push(heap, due, i, j)
            continue
        now = max(now, 0.5 * due)
        new = n + stage
        out[stage, 0], out[stage, 1], out_times[stage] = min(i, j), max(i, j), now
        var_i, var_j = now + forest.offset[i], now + forest.offset[j]
        weight = var_j / (var_i + var_j) if var_i + var_j > 0.0 else 0.5
        for column in range(forest.mean.shape[1]):
            forest.mean[new, column] = weight * forest.mean[i, column] + (1.0 - weight) * forest.mean[j, column]
        forest.offset[new] = var_i * weight - now
        forest.parent[new] = new
        forest.parent[i] = forest.parent[j] = new
        inherit(forest, new, i, j)
        lam = 0.5 * (live - 1) * (live - 2)
        for k in range(forest.n_near[new]):
            q = int(forest.near[new, k])
            heap = push(heap, due_time(forest, rule, d, lam, new, q, table), new, q)
        stage += 1
    return stage


def connect(forest: Forest, alive: Ints, neighbors: int) -> float:
    """Give every living cluster its nearest ones as candidates, in both directions; returns the largest distance."""
    from sklearn.neighbors import NearestNeighbors

    k = min(neighbors, len(alive) - 1)
    distance, index = NearestNeighbors(n_neighbors=k).fit(forest.mean[alive]).kneighbors()
    tied = np.argwhere((distance == 0.0) & (forest.offset[alive][:, None] + forest.offset[alive][index] == 0.0))
    if len(tied):
        i, j = alive[tied[0][0]], alive[index[tied[0][0], tied[0][1]]]
        raise ValueError(
            f"X has duplicate rows ({i} and {j}), which would merge at time 0 with infinite density. "
            "Set leaf_noise > 0 or drop the duplicates."
        )
    room = forest.near.shape[1]
    # Both directions, nearest first within each cluster; what exceeds the room is dropped.
    source = np.concatenate([np.repeat(np.arange(len(alive)), k), index.ravel()])
    target = np.concatenate([index.ravel(), np.repeat(np.arange(len(alive)), k)])
    order = np.lexsort((np.concatenate([distance.ravel()] * 2), source))
    source, target = source[order], target[order]
    rank = np.arange(len(source)) - np.searchsorted(source, source)
    kept = rank < room
    forest.near[alive[source[kept]], rank[kept]] = alive[target[kept]]
    forest.n_near[alive] = np.bincount(source[kept], minlength=len(alive))
    return float(distance.max())


def build_by_graph(rows: Floats, leaf_noise: Floats, rule: int, neighbors: int) -> tuple[Ints, Floats]:
    """Children (n−1, 2) and times (n−1,) from whitened rows (n, d), each with `neighbors` candidates or more."""
    n, d = rows.shape
    forest = Forest(
        mean=np.concatenate([rows, np.empty((n - 1, d))]),
        offset=np.concatenate([leaf_noise, np.empty(n - 1)]),
        parent=np.arange(2 * n - 1, dtype=np.int32),
        near=np.empty((2 * n - 1, 2 * neighbors), dtype=np.int32),
        n_near=np.zeros(2 * n - 1, dtype=np.int32),
    )
    children, times = np.empty((n - 1, 2), dtype=np.int64), np.empty(n - 1)
    done = 0
    table = tables.empty_table()
    while done < n - 1:
        nodes = np.arange(n + done)
        alive = nodes[forest.parent[: n + done] == nodes]
        longest = connect(forest, alive, neighbors)
        if rule == MEAN and done == 0 and longest > 0.0:
            largest = 0.5 * n * (n - 1) * longest**2
            table = tables.make_mean_table(d, largest * 1e-12, largest * 16.0)
        now = times[done - 1] if done else 0.0
        stop = min(n - 1, done + max(1, math.ceil((1.0 - AGAIN) * len(alive))))
        done = follow_graph(forest, rule, float(d), done, stop, now, table, children, times)
    return children, times
