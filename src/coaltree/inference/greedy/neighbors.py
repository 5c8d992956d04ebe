r"""Greedy trees over leaves whose distances do not fit in memory: only near neighbours are candidates for a merge.

Every cluster keeps a short list of candidates, nearest first, inherited from the two clusters it was made of. The
clusters wait in a heap, ordered by the time at which the first of their candidates was due when last computed. As λ
falls and candidates merge with others this time can only rise, so the top of the heap is recomputed and put back until
one that is up to date comes out. As clusters become fewer, or when no pair is left between them, the graph of
neighbours is rebuilt from their means.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.inference.greedy.rules import MEAN, expected
from coaltree.inference.heap import pop, push
from coaltree.inference.neighbors import Nodes, empty_lists, has, insert_neighbor, nearest
from coaltree.model.gig import tables
from coaltree.model.gig.tables import GigTable
from coaltree.model.messages import meet_by_weight, squared_distance

# The graph is rebuilt when this share of the clusters is left.
AGAIN = 0.25


class MergingForest(NamedTuple):
    """Clusters by node id: leaves first, then merges."""

    mean: Floats  # (2n−1, d)
    offset: Floats  # (2n−1,) a = s − t
    parent: Nodes  # (2n−1,) the node it has merged into, or itself
    near: Nodes  # (2n−1, room) candidates, nearest first
    eps: Floats  # (2n−1, room) their squared distances; infinite from the end of the list on


@inline
def first_candidate(
    forest: MergingForest, rule: int, d: float, lam: float, i: int, table: GigTable
) -> tuple[float, int]:
    """When the first of the living candidates of a cluster is due, 2t, and which it is; −1 if there is none."""
    best, best_j = math.inf, -1
    for k in range(forest.near.shape[1]):
        if forest.eps[i, k] == math.inf:
            break
        j = int(forest.near[i, k])
        if forest.parent[j] == j:
            due = expected(rule, d, forest.eps[i, k], lam, table) - (forest.offset[i] + forest.offset[j])
            if due < best:
                best, best_j = due, j
    return best, best_j


@inline
def living(parent: Nodes, node: int) -> int:
    """The cluster that a node is in now; compresses the path to it."""
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = int(parent[node])
    return node


@inline
def inherit(forest: MergingForest, new: int, i: int, j: int, seen: Nodes) -> None:
    """Give the new cluster the candidates of i and j, the nearest if there are too many."""
    forest.eps[new] = math.inf
    forest.near[new] = seen.size
    for old in (i, j):
        for k in range(forest.near.shape[1]):
            if forest.eps[old, k] == math.inf:
                break
            q = living(forest.parent, int(forest.near[old, k]))
            if q != new and seen[q] != new:
                seen[q] = new
                insert_neighbor(
                    forest.near[new], forest.eps[new], q, squared_distance(forest.mean, new, forest.mean, q)
                )


@kernel
def follow_graph(
    state: MergingForest,
    rule: int,
    d: float,
    first: int,
    stop: int,
    now: float,
    table: GigTable,
    out: Ints,
    out_times: Floats,
) -> int:
    """Merge along the graph from merge `first` to before `stop`, or until no pair is left; returns the number done."""
    forest = state
    n = out_times.size + 1
    live = n - first
    lam = 0.5 * live * (live - 1)
    # One place for every cluster there is or will be.
    heap, waiting, score = np.empty(2 * live, np.int64), 0, np.empty(2 * n - 1)
    seen = np.zeros(2 * n - 1, np.int32)
    for i in range(n + first):
        if forest.parent[i] == i:
            score[i] = -first_candidate(forest, rule, d, lam, i, table)[0]
            waiting = push(heap, score, waiting, i)
    stage = first
    while stage < stop and waiting > 0:
        i = pop(heap, score, waiting)
        waiting -= 1
        if forest.parent[i] != i:
            continue
        live = n - stage
        lam = 0.5 * live * (live - 1)
        due, j = first_candidate(forest, rule, d, lam, i, table)
        if j < 0:
            continue
        if waiting > 0 and -due < score[heap[0]]:
            score[i] = -due
            waiting = push(heap, score, waiting, i)
            continue
        now = max(now, 0.5 * due)
        new = n + stage
        out[stage, 0], out[stage, 1], out_times[stage] = min(i, j), max(i, j), now
        var_i, var_j = now + forest.offset[i], now + forest.offset[j]
        _, weight, variance = meet_by_weight(var_i, var_j)
        for column in range(forest.mean.shape[1]):
            forest.mean[new, column] = weight * forest.mean[i, column] + (1.0 - weight) * forest.mean[j, column]
        forest.offset[new] = variance - now
        forest.parent[new] = new
        forest.parent[i] = forest.parent[j] = new
        inherit(forest, new, i, j, seen)
        lam = 0.5 * (live - 1) * (live - 2)
        score[new] = -first_candidate(forest, rule, d, lam, new, table)[0]
        waiting = push(heap, score, waiting, new)
        stage += 1
    return stage


@kernel
def connect_neighbors(state: MergingForest, alive: Ints, index: Nodes, eps: Floats) -> None:
    """Make the nearest ones of every living cluster its candidates, and it theirs, as far as there is room."""
    near, distance = state.near, state.eps
    for i in alive:
        near[i], distance[i] = len(near), math.inf
    for k in range(index.shape[1]):
        for place in range(alive.size):
            i, j = alive[place], alive[index[place, k]]
            for one, other in ((i, j), (j, i)):
                if not has(near[one], other):
                    insert_neighbor(near[one], distance[one], other, eps[place, k])


def build_by_graph(
    rows: Floats, leaf_noise: Floats, rule: int, neighbors: int, near: tuple[Nodes, Floats] | None = None
) -> tuple[Ints, Floats]:
    """Children (n−1, 2) and times (n−1,) from whitened rows (n, d), each with `neighbors` candidates or more.

    `near` is what `nearest` returns for these rows, if already known.
    """
    n, d = rows.shape
    if near is None:
        near = nearest(rows, neighbors)
    candidates, eps = empty_lists(2 * n - 1, 2 * min(neighbors, n - 1))
    forest = MergingForest(
        mean=np.concatenate([rows, np.empty((n - 1, d))]),
        offset=np.concatenate([leaf_noise, np.empty(n - 1)]),
        parent=np.arange(2 * n - 1, dtype=np.int32),
        near=candidates,
        eps=eps,
    )
    children, times = np.empty((n - 1, 2), dtype=np.int64), np.empty(n - 1)
    table = tables.empty_table()
    largest = 0.5 * n * (n - 1) * float(near[1].max())
    if rule == MEAN and largest > 0.0:
        table = tables.make_mean_table(d, largest * 1e-12, largest * 16.0)
    done = 0
    while done < n - 1:
        nodes = np.arange(n + done)
        alive = nodes[forest.parent[: n + done] == nodes]
        connect_neighbors(forest, alive, *(nearest(forest.mean[alive], neighbors) if done else near))
        now = times[done - 1] if done else 0.0
        stop = min(n - 1, done + max(1, math.ceil((1.0 - AGAIN) * len(alive))))
        done = follow_graph(forest, rule, float(d), done, stop, now, table, children, times)
    return children, times
