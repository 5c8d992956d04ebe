"""Where rows join a tree: one search, best first from the root down, that ends when what is left does not matter.

A new lineage meets each live lineage at rate 1, so given the tree a row joins the edge above node a at time t with
density

    f(a, t) = exp(−Λ(t)) N(x; μ(a, t), v(a, t) Φ),   Λ′(t) = number of live lineages,

where μ is the tree's expected value at that place and v includes the row's own branch to it
(`inference.moves.edge_density`). For a row of which cells are observed, N is the probability of these
(`places.cells`). The sum over edges of ∫ f dt is p(x | X, tree), since the coalescent of n + 1 leaves restricted to n
is that of n.

Two kinds of things wait in one queue, by a bound on the mass they may have: an edge, by that of `edge_mass.log_bound`,
and all that is under a node c. There places are within R_c of c's position (`places.host`), so with δ the distance of
the row from that position, less R_c, all edges under c have together at most

    Σ ∫ exp(−Λ) dt · max v^(−d/2) exp(−δ²/2v)   over the variances there are under c.

Distances from cells are no different: that from intervals, in units of their standard deviations, grows by no more than
the whitened mean moves. The best waiting edge is integrated, and under the best waiting node its two children are put
into the queue. The search ends when all that waits is bounded by e^(−MARGIN) of the sum, together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, inline, kernel
from coaltree.inference.heap import pop, push
from coaltree.inference.moves.edge_density import Edge, Others, blend_distance, expectation, exposure
from coaltree.inference.moves.mutable_tree import other_child
from coaltree.model import gig
from coaltree.model.messages import blend, meet
from coaltree.places.cells import Cells, cells_distance, cells_with_room, look_from
from coaltree.places.edge_mass import N_SUMS, add_logs, integrate, log_bound, log_highest
from coaltree.places.exact import View, measure
from coaltree.places.host import Host, log_prior_along, put_leaf, set_clock, take_leaf

# What a search leaves out is below e^(−MARGIN) of the sum.
MARGIN = 10.0
# Of the edges that were integrated, those with less than e^(−NEGLIGIBLE) of the sum are not told.
NEGLIGIBLE = 16.0
# Accuracy of an edge's mass, as `edge_mass.integrate` has it.
KINKS = 0.05
# Beyond Λ = FALL above the root nothing is left of the prior.
FALL = 46.0
# Stands for an infinite log mass, and unlike infinity can be subtracted from itself.
POLE = 1e300
# A sum over a row's noise ends where a term is below e^(−LITTLE) of it.
LITTLE = 5.0


class Task(NamedTuple):
    """What the rows of one search have in common."""

    host: Host
    sight: View
    cells: Cells  # of a single row; none for rows of exact values
    d: float  # exact columns that count
    margin: float
    kinks: float


class Room(NamedTuple):
    """Room for a search: edges in the order in which they were found, which is their slot.

    What waits in the queue has the number 2 · slot if it is an edge, and one more if it is all that is under its node.
    """

    node: Ints  # (2n−1,)
    above: Floats  # (2n−1, d): message from above
    above_variance: Floats  # (2n−1,)
    eps: Floats  # (2n−1, 3): below, above, span, as in `edge_density.Edge`
    log_mass: Floats  # (2n−1,), −inf before it is integrated
    time: Floats  # (2n−1,)
    score: Floats  # (2 (2n−1),): bounds on log masses
    heap: Ints  # (2 (2n−1),)
    n: Ints  # (2,): found, waiting
    log_sum: Floats  # (1,)
    sums: Floats  # (N_SUMS,)
    clock: Others
    cells: Cells


class Found(NamedTuple):
    """Edges of each row; those of row b are first[b] … first[b + 1] − 1."""

    first: Ints  # (B+1,)
    node: Ints  # (E,)
    log_mass: Floats  # (E,)
    time: Floats  # (E,): mean time at which the row joins
    log_sum: Floats  # (B,)
    looked: Ints  # (B,): edges that were looked at


FOUND, WAITING = range(2)


@inline
def make_search_room(task: Task) -> Room:
    """Room for searches in a tree."""
    size, d = task.host.mean.shape
    n_knots = task.host.clock.times.size + 1
    return Room(
        np.empty(size, dtype=np.int64),
        np.empty((size, d)),
        np.empty(size),
        np.empty((size, 3)),
        np.empty(size),
        np.empty(size),
        np.empty(2 * size),
        np.empty(2 * size, dtype=np.int64),
        np.zeros(2, dtype=np.int64),
        np.empty(1),
        np.empty(N_SUMS),
        Others(np.empty(n_knots), np.empty(n_knots + 1), np.empty(n_knots + 1)),
        cells_with_room(task.cells, size),
    )


# ---- one edge


@borrowing
def edge_of(task: Task, room: Room, slot: int, noise: float) -> Edge:
    """An edge that was found."""
    host, node = task.host, room.node[slot]
    high = host.time[host.parent[node]]
    return Edge(
        low=host.time[node],
        high=high,
        below=host.variance[node] - host.time[node],
        above=room.above_variance[slot] + high,
        offset=noise,
        eps_below=room.eps[slot, 0],
        eps_above=room.eps[slot, 1],
        eps_span=room.eps[slot, 2],
    )


@borrowing
def _add(room: Room, item: int, score: float) -> None:
    if score > -math.inf:
        room.score[item] = score
        room.n[WAITING] = push(room.heap, room.score, room.n[WAITING], item)


@borrowing
def _moved(host: Host, room: Room, slot: int, share: float) -> float:
    """How far the position of a node is from where it is in the whole tree."""
    node, total = room.node[slot], 0.0
    for k in range(host.mean.shape[1]):
        now = host.mean[node, k] + share * (room.above[slot, k] - host.mean[node, k])
        total += (now - host.position[node, k]) ** 2
    return math.sqrt(total)


@borrowing
def look_under(task: Task, room: Room, slot: int, noise: float, gone: float) -> None:
    """Put all that is under a node into the queue."""
    host, node = task.host, room.node[slot]
    if host.marked[node]:  # a leaf is missing there
        _add(room, 2 * slot + 1, math.inf)
        return
    edge = edge_of(task, room, slot, noise)
    _, share, variance = meet(host.variance[node], room.above_variance[slot] + edge.high - edge.low)
    eps = blend_distance(share, edge.eps_below, edge.eps_above, edge.eps_span)
    if room.cells.low.size > 0:
        eps += cells_distance(room.cells, slot, share, share)
    radius = host.radius[node]
    if gone > 0.0:
        radius += _moved(host, room, slot, share)
    eps = max(math.sqrt(eps) - radius, 0.0) ** 2
    most = log_highest(eps, task.d, noise + host.least[node], noise + edge.low + variance)
    _add(room, 2 * slot + 1, host.log_prior[node] + min(edge.low, gone) + most)


@borrowing
def look_at(task: Task, room: Room, points: Floats, b: int, noise: float, gone: float, node: int, parent: int) -> None:
    """Put the edge above a node, and all that is under it, into the queue; `parent` is the slot of the node above."""
    host, view = task.host, task.sight
    slot = room.n[FOUND]
    room.n[FOUND] += 1
    room.node[slot] = node
    room.log_mass[slot] = -math.inf
    upper, sibling = room.node[parent], other_child(host, node)
    var_sibling = host.variance[sibling] + host.time[upper] - host.time[sibling]
    var_above = room.above_variance[parent] + host.time[host.parent[upper]] - host.time[upper]
    _, share, room.above_variance[slot] = meet(var_sibling, var_above)
    blend(host.mean, sibling, room.above, parent, share, room.above, slot)
    room.eps[slot, 0] = measure(view, points, b, host.mean, node)
    room.eps[slot, 1] = measure(view, points, b, room.above, slot)
    room.eps[slot, 2] = measure(view, host.mean, node, room.above, slot)
    if room.cells.low.size > 0:
        look_from(room.cells, host.mean, node, room.cells.below, slot)
        look_from(room.cells, room.above, slot, room.cells.above, slot)
    edge = edge_of(task, room, slot, noise)
    room.time[slot] = edge.low
    if edge.low < edge.high:
        most = log_bound(edge, room.cells, slot, task.d, edge.low, edge.high)
        _add(room, 2 * slot, log_prior_along(room.clock, edge.low, edge.high) + most)
    if host.children[node, 0] >= 0:
        look_under(task, room, slot, noise, gone)


@inline
def weigh(task: Task, room: Room, slot: int, noise: float) -> None:
    """Integrate f over an edge and add it to the sum."""
    edge = edge_of(task, room, slot, noise)
    if task.d > 1.0 and edge.eps_below <= 0.0 and expectation(edge, edge.low)[0] <= 0.0:
        # The row equals a noiseless one: the density has a pole there.
        room.log_mass[slot] = POLE
        room.log_sum[0] = POLE
        return
    # All tails together weigh less than what is left out.
    floor = room.log_sum[0] - task.margin - math.log(20.0 * room.n[FOUND])
    room.log_mass[slot], room.time[slot] = integrate(
        edge, room.cells, slot, room.clock, task.d, floor, task.kinks, room.sums
    )
    both = room.log_sum[0] > -math.inf
    room.log_sum[0] = add_logs(room.log_sum[0], room.log_mass[slot]) if both else room.log_mass[slot]


@inline
def weigh_root(task: Task, room: Room, points: Floats, b: int, noise: float) -> None:
    """Begin with the edge above the root, which without cells is a truncated GIG."""
    host, cells, d = task.host, room.cells, task.d
    root = host.children[-1, 0]
    room.node[0] = root
    room.n[FOUND], room.n[WAITING] = 1, 0
    for k in range(room.above.shape[1]):
        room.above[0, k] = 0.0
    room.above_variance[0] = math.inf
    room.eps[0, 0] = measure(task.sight, points, b, host.mean, root)
    room.eps[0, 1], room.eps[0, 2] = 0.0, 0.0
    edge = edge_of(task, room, 0, noise)
    if cells.low.size == 0:
        r = 2.0 * edge.low + noise + edge.below
        room.log_mass[0] = gig.log_local(d, edge.eps_below, 1.0, r) - math.log(2.0) - exposure(room.clock, edge.low)[0]
        room.time[0] = edge.low + 0.5 * gig.mean_excess(d, edge.eps_below, 1.0, r)
    else:
        look_from(cells, host.mean, root, cells.below, 0)
        look_from(cells, room.above, 0, cells.above, 0)
        # Beyond this nothing is left: neither of the prior, nor where values as far as these are explained best.
        high = edge.low + FALL + math.sqrt(edge.eps_below + cells_distance(cells, 0, 0.0, 0.0))
        edge = Edge(edge.low, high, edge.below, edge.above, noise, edge.eps_below, 0.0, 0.0)
        room.log_mass[0], room.time[0] = integrate(edge, cells, 0, room.clock, d, -math.inf, task.kinks, room.sums)
    room.log_sum[0] = room.log_mass[0]


# ---- the search


@inline
def search(task: Task, room: Room, points: Floats, b: int, noise: float, gone: float) -> None:
    """Find the edges that matter for a row with this noise; `gone` is when the lineage of a leaf left out ended."""
    host = task.host
    weigh_root(task, room, points, b, noise)
    if host.children[room.node[0], 0] >= 0:
        _add(room, 1, math.inf)
    while room.n[WAITING] > 0:
        item = room.heap[0]
        if room.score[item] + math.log(room.n[WAITING]) < room.log_sum[0] - task.margin:
            break
        pop(room.heap, room.score, room.n[WAITING])
        room.n[WAITING] -= 1
        slot = item // 2
        if item % 2 == 0:
            weigh(task, room, slot, noise)
        else:
            node = room.node[slot]
            look_at(task, room, points, b, noise, gone, host.children[node, 0], slot)
            look_at(task, room, points, b, noise, gone, host.children[node, 1], slot)


@kernel
def find_places(task: Task, points: Floats, noise: float) -> Found:
    """Edges of rows (B, d), whitened, with this noise; those below e^(−NEGLIGIBLE) of the sum are left out.

    Masses lack the constant −(d/2) log 2π − ½ log|Φ| of exact values.
    """
    n_points, n_nodes = len(points), len(task.host.variance)
    room = make_search_room(task)
    set_clock(task.host.clock, 0.0, room.clock)
    size = 16 * n_points + n_nodes
    node, log_mass, time = np.empty(size, dtype=np.int64), np.empty(size), np.empty(size)
    first, looked = np.zeros(n_points + 1, dtype=np.int64), np.empty(n_points, dtype=np.int64)
    log_sum = np.empty(n_points)
    for b in range(n_points):
        search(task, room, points, b, noise, 0.0)
        log_sum[b], looked[b] = room.log_sum[0], room.n[FOUND]
        kept = first[b]
        if kept + room.n[FOUND] > size:
            # Twice as much room.
            node = np.append(node, np.empty(size + n_nodes, dtype=np.int64))
            log_mass = np.append(log_mass, np.empty(size + n_nodes))
            time = np.append(time, np.empty(size + n_nodes))
            size = node.size
        for slot in range(room.n[FOUND]):
            if room.log_mass[slot] >= room.log_sum[0] - NEGLIGIBLE:
                node[kept], log_mass[kept], time[kept] = room.node[slot], room.log_mass[slot], room.time[slot]
                kept += 1
        first[b + 1] = kept
    kept = first[-1]
    return Found(first, node[:kept].copy(), log_mass[:kept].copy(), time[:kept].copy(), log_sum, looked)


@kernel
def leave_out(task: Task, points: Floats, leaves: Ints, noise: Floats, log_weight: Floats, out: Floats) -> None:
    """Log density of leaves given the rest of the tree, out (H,), summed over their noise (K,), which is ascending.

    What is observed of them is in `points` (H, d). As a function of log noise, f times its weight has one peak: sums
    start near it and stop when little is left.
    """
    host, room = task.host, make_search_room(task)
    for h in range(leaves.size):
        leaf = leaves[h]
        gone = host.time[host.parent[leaf]]
        take_leaf(host, leaf)
        set_clock(host.clock, gone, room.clock)
        # The noise that would explain how far the row is from where it was.
        start = 0
        if noise.size > 1 and task.d > 0.0:
            eps = measure(task.sight, points, h, host.mean, other_child(host, leaf))
            while start < noise.size - 1 and noise[start] < eps / task.d:
                start += 1
        search(task, room, points, h, noise[start], gone)
        middle = log_weight[start] + room.log_sum[0]
        total = middle
        for side in (-1, 1):
            k = start + side
            before = middle
            while 0 <= k < noise.size:
                search(task, room, points, h, noise[k], gone)
                term = log_weight[k] + room.log_sum[0]
                total = add_logs(total, term)
                if term < before and term < total - LITTLE:
                    break
                before = term
                k += side
        out[h] = total
        put_leaf(host, leaf)
