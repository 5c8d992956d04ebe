"""Where new points join a large tree: the mass of the edges that matter, found from near rows and proved by bounds.

The sum of `inference.predictive.mass` over all edges costs O(n) per point, and nearly all of it is negligible. Two
searches avoid that part.

**Best first**, upwards: the edges on the paths up from the nearest rows, and then their neighbours in the tree. The
score of an edge bounds its mass from above,

    ∫ f ≤ ∫ exp(−Λ) dt · max v^(−d/2) exp(−ε/2v),

and edges are weighed in its order until the best one waiting has less than e^(−MARGIN) of the sum. A path ends where
everything above it is that small: v ≥ t + s₀ on any edge, and a lineage is still alone at t with probability
exp(−Λ(t)), so all edges together have at most exp(−Λ(t)) (t + s₀)^(−d/2) from t on. The edge above the root is always
weighed, so that a point far from everything also has a density.

**Downwards**, from the root: what the first search did not find. Everywhere under node c the tree's expected value is

    μ = (a mean of rows under c) + K (u − m_c),   0 ≤ K ≤ ω_c,

where u is the message from above and (1 − ω_c) m_c + ω_c u is the expectation at c given the whole tree. Rows under c
are within R_c of m_c, so |x − μ| is at least the distance of x from that segment minus R_c, and the bound on f times
all of ∫ exp(−Λ) under c shows whether to look there. It stops after a number of fruitless edges: in many dimensions
balls around clades overlap, but then only near rows matter.

Both searches use two things computed beforehand in O(n): a description of what is under each node, and a clock. The
clock is Λ made linear between knots, never off by more than CLOCK: at 100 000 leaves it has a thousand knots instead of
one per leaf, which stay in the fastest memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Bools, Floats, Ints
from coaltree._compile import borrowing, inline, kernel
from coaltree.inference.heap import pop, push
from coaltree.inference.moves.edge_density import Edge, Others, blend_distance, expectation, exposure
from coaltree.inference.predictive.cells import Cells, no_cells
from coaltree.inference.predictive.edge_mass import N_SUMS, add_logs, integrate, log_bound
from coaltree.inference.predictive.mass import NEGLIGIBLE, POLE, Sites
from coaltree.model import gig
from coaltree.model.messages import squared_distance

# How far the clock may be from Λ.
CLOCK = 1e-5


class Clades(NamedTuple):
    """What is under each node."""

    radius: Floats  # (2n−1,): no row under it is farther from its mean
    log_prior: Floats  # (2n−1,): bound on log Σ ∫ exp(−Λ) of all edges under it
    most_noise: Floats  # (1,): the largest leaf noise


@kernel
def draw_clock(exact: Others, tolerance: float, out: Others) -> int:
    """Knots of a clock, from the exact Λ into `out` of the same size; returns their number.

    Λ is concave, so on a piece of length T along which its slope falls by J it is at most J T/4 above the chord.
    """
    size, begun, n_knots = exact.times.size, -1, 0
    out.exposure[0] = 0.0
    start = 0.0
    for k in range(size):
        # The piece from knot `begun` to merge k; the next would have one kink more inside.
        last = k == size - 1
        if not last:
            fall = exact.rate[begun + 1] - exact.rate[k + 1]
            last = fall * (exact.times[k + 1] - start) > 4.0 * tolerance
        if last:
            length = exact.times[k] - start
            gained = exact.exposure[k + 1] - out.exposure[n_knots]
            out.rate[n_knots] = gained / length if length > 0.0 else exact.rate[k]
            out.times[n_knots] = exact.times[k]
            out.exposure[n_knots + 1] = exact.exposure[k + 1]
            n_knots += 1
            begun, start = k, exact.times[k]
    out.rate[n_knots] = 1.0
    return n_knots


def make_clock(exact: Others, tolerance: float = CLOCK) -> Others:
    """Make a clock that is nowhere farther than `tolerance` from Λ."""
    size = exact.times.size
    room = Others(np.empty(size), np.empty(size + 1), np.empty(size + 1))
    n_knots = draw_clock(exact, tolerance, room)
    return Others(room.times[:n_knots].copy(), room.exposure[: n_knots + 1].copy(), room.rate[: n_knots + 1].copy())


@kernel
def measure_clades(sites: Sites, out: Clades) -> None:
    """Radius of every clade, by the triangle inequality along the tree, and its prior mass."""
    n = len(sites.children) + 1
    for leaf in range(n):
        out.radius[leaf], out.log_prior[leaf] = 0.0, -math.inf
        out.most_noise[0] = max(out.most_noise[0], sites.below[leaf])
    for node in range(n, 2 * n - 1):
        left, right = sites.children[node - n]
        gap, share = math.sqrt(sites.gap_below[node]), sites.share_below[node]
        out.radius[node] = max(share * gap + out.radius[left], (1.0 - share) * gap + out.radius[right])
        total = -math.inf
        for child in (left, right):
            for log_mass in (out.log_prior[child], sites.log_prior[child]):
                if log_mass > -math.inf:
                    total = add_logs(log_mass, total)
        out.log_prior[node] = total


def make_clades(sites: Sites) -> Clades:
    """Measure what is under each node."""
    clades = Clades(np.empty(len(sites.parent)), np.empty(len(sites.parent)), np.zeros(1))
    measure_clades(sites, clades)
    return clades


# Edges whose mass is below e^(−MARGIN) of the sum, over the number of edges, are left out.
MARGIN = 8.0
# Largest number of fruitless edges on the way down, and how many more for each that was not: where many edges matter,
# bounds are close enough to find all of them.
MOST_IN_VAIN, MORE_IN_VAIN = 2000, 4
# Kinks of Λ inside an interval of length h, K of them, cost about √K h/500 of its mass; it is split where √K h is more.
KINKS = 0.05


class View(NamedTuple):
    """How the distance to a point is measured, in whitened columns: all, some, or through a lens for a block of Φ."""

    columns: Ints  # (q,): the columns that count, if there is no lens
    lens: Floats  # (q, d): |lens (x − y)|² is the distance; (0, d) for none


class Task(NamedTuple):
    """Points to be put into a tree."""

    sites: Sites
    clades: Clades
    clock: Others
    points: Floats  # (B, d), whitened
    noise: float  # their leaf noise
    sight: View
    d: float  # columns that count
    margin: float  # what is below e^(−margin) of the sum does not matter


class Room(NamedTuple):
    """Room for a search: edges by the order in which they were found."""

    stamp: Ints  # (2n−1,): the point for which an edge was last found
    slot: Ints  # (2n−1,): its position among those found
    node: Ints  # (room,)
    eps: Floats  # (room, 3): below, above, span, as in `edge_density.Edge`
    score: Floats  # (room,)
    log_mass: Floats  # (room,), −inf before it is weighed
    time: Floats  # (room,)
    heap: Ints  # (room,): edges found but not weighed, best first
    n: Ints  # (2,): found, waiting
    log_sum: Floats  # (1,)
    sums: Floats  # (N_SUMS,)
    none: Cells


class Found(NamedTuple):
    """Edges of each point; those of point b are first[b] … first[b + 1] − 1."""

    first: Ints  # (B+1,)
    node: Ints  # (E,)
    log_mass: Floats  # (E,)
    time: Floats  # (E,): mean time at which the point joins
    log_sum: Floats  # (B,)
    proved: Bools  # (B,): whether the downward search was completed


FOUND, WAITING = range(2)


# ---- one edge


@borrowing
def measure(view: View, x: Floats, i: int, y: Floats, j: int) -> float:
    """Squared distance of two rows, as a point with gaps sees it."""
    total = 0.0
    if view.lens.shape[0] > 0:
        for k in range(view.lens.shape[0]):
            along = 0.0
            for c in range(x.shape[1]):
                along += view.lens[k, c] * (x[i, c] - y[j, c])
            total += along * along
        return total
    if view.columns.size == x.shape[1]:
        return squared_distance(x, i, y, j)
    for c in view.columns:
        total += (x[i, c] - y[j, c]) ** 2
    return total


@borrowing
def edge_of(task: Task, room: Room, slot: int) -> Edge:
    """An edge that was found."""
    sites, node = task.sites, room.node[slot]
    return Edge(
        low=sites.time[node],
        high=sites.time[sites.parent[node]],
        below=sites.below[node],
        above=sites.above[node],
        offset=task.noise,
        eps_below=room.eps[slot, 0],
        eps_above=room.eps[slot, 1],
        eps_span=room.eps[slot, 2],
    )


@borrowing
def describe(task: Task, room: Room, b: int, node: int, otherwise: float) -> int:
    """Find the edge above a node; the score of an edge without length is `otherwise`."""
    sites, points, view = task.sites, task.points, task.sight
    slot: int = room.n[FOUND]
    room.n[FOUND] += 1
    room.stamp[node], room.slot[node] = b, slot
    whole = view.lens.shape[0] == 0 and view.columns.size == points.shape[1]
    room.node[slot] = node
    room.eps[slot, 0] = measure(view, points, b, sites.mean, node)
    room.eps[slot, 1] = measure(view, points, b, sites.above_mean, node)
    room.eps[slot, 2] = sites.span[node] if whole else measure(view, sites.mean, node, sites.above_mean, node)
    room.log_mass[slot] = -math.inf
    edge = edge_of(task, room, slot)
    if edge.low < edge.high:
        room.score[slot] = sites.log_prior[node] + log_bound(edge, room.none, slot, task.d, edge.low, edge.high)
    else:
        room.score[slot] = otherwise
    return slot


@borrowing
def look_at(task: Task, room: Room, b: int, node: int, otherwise: float) -> None:
    """Queue the edge above a node by its score, unless it was found before."""
    if room.stamp[node] == b:
        return
    slot = describe(task, room, b, node, otherwise)
    room.n[WAITING] = push(room.heap, room.score, room.n[WAITING], slot)


@inline
def weigh(task: Task, room: Room, slot: int) -> None:
    """Integrate f over an edge and add it to the sum."""
    edge = edge_of(task, room, slot)
    room.time[slot] = edge.low
    if not edge.low < edge.high:
        return
    if task.d > 1.0 and edge.eps_below <= 0.0 and expectation(edge, edge.low)[0] <= 0.0:
        # The point equals a noiseless row: the density has a pole there.
        room.log_mass[slot] = POLE
        room.log_sum[0] = POLE
        return
    floor = room.log_sum[0] - task.margin
    room.log_mass[slot], room.time[slot] = integrate(edge, room.none, slot, task.clock, task.d, floor, KINKS, room.sums)
    room.log_sum[0] = add_logs(room.log_sum[0], room.log_mass[slot])


# ---- the search


@inline
def weigh_root(task: Task, room: Room, b: int) -> None:
    """Begin with the edge above the root, which is a truncated GIG."""
    sites, d = task.sites, task.d
    root = sites.parent.size - 1
    eps = measure(task.sight, task.points, b, sites.mean, root)
    r = 2.0 * sites.time[root] + task.noise + sites.below[root]
    room.node[0] = root
    room.log_mass[0] = gig.log_local(d, eps, 1.0, r) - math.log(2.0) - exposure(task.clock, sites.time[root])[0]
    room.time[0] = sites.time[root] + 0.5 * gig.mean_excess(d, eps, 1.0, r)
    room.log_sum[0] = room.log_mass[0]
    room.n[FOUND], room.n[WAITING] = 1, 0
    room.stamp[root] = b


@inline
def search(task: Task, room: Room, b: int, starts: Ints) -> None:
    """Find edges on the paths up from some leaves, and then around the best ones."""
    sites, noise, margin = task.sites, task.noise, task.margin
    root, n = sites.parent.size - 1, len(sites.children) + 1
    for leaf in starts:
        node, score = leaf, -math.inf
        while room.stamp[node] != b:
            above = sites.time[node] + noise
            if above > 0.0:
                rest = -exposure(task.clock, sites.time[node])[0] - 0.5 * task.d * math.log(above)
                if rest < room.log_sum[0] - margin:
                    break
            look_at(task, room, b, node, score)
            score = room.score[room.slot[node]]
            node = sites.parent[node]
    while room.n[WAITING] > 0:
        if room.score[room.heap[0]] < room.log_sum[0] - margin:
            break
        slot = pop(room.heap, room.score, room.n[WAITING])
        room.n[WAITING] -= 1
        node, score = room.node[slot], room.score[slot]
        weigh(task, room, slot)
        parent = sites.parent[node]
        if parent != root:
            look_at(task, room, b, parent, score)
        for child in sites.children[parent - n]:
            look_at(task, room, b, child, score)
        if node >= n:
            for child in sites.children[node - n]:
                look_at(task, room, b, child, score)


@borrowing
def log_bound_under(task: Task, room: Room, slot: int) -> float:
    """Bound on the log mass of all edges under the node of an edge that was found."""
    clades, noise, d = task.clades, task.noise, task.d
    edge = edge_of(task, room, slot)
    node = room.node[slot]
    furthest = (edge.below + edge.low) / (edge.below + edge.above)
    share = 0.0
    if edge.eps_span > 0.0:
        share = min(max(0.5 * (1.0 + (edge.eps_below - edge.eps_above) / edge.eps_span), 0.0), furthest)
    eps = blend_distance(share, edge.eps_below, edge.eps_above, edge.eps_span)
    eps = max(math.sqrt(eps) - clades.radius[node], 0.0) ** 2
    # Between the point's own variance and that of a place informed by a single leaf.
    v = min(max(eps / d, noise), noise + 2.0 * edge.low + clades.most_noise[0])
    return clades.log_prior[node] - 0.5 * (d * math.log(v) + eps / v) if v > 0.0 else math.inf


@inline
def search_down(task: Task, room: Room, b: int, in_vain: int) -> bool:
    """Weigh what else matters, from the root down; returns whether nothing that may matter is left out."""
    sites, margin = task.sites, task.margin
    n, root = len(sites.children) + 1, sites.parent.size - 1
    # The queue is no longer needed, so the heap is free.
    stack, height = room.heap, 0
    if in_vain > 0:
        in_vain += MORE_IN_VAIN * room.n[FOUND]
    for child in sites.children[root - n]:
        stack[height] = child
        height += 1
    while height > 0 and in_vain > 0:
        height -= 1
        node = stack[height]
        if room.stamp[node] != b:
            slot = describe(task, room, b, node, -math.inf)
            if room.score[slot] >= room.log_sum[0] - margin:
                weigh(task, room, slot)
                in_vain += MORE_IN_VAIN
            else:
                in_vain -= 1
        else:
            slot = room.slot[node]
        if node >= n and log_bound_under(task, room, slot) >= room.log_sum[0] - margin:
            for child in sites.children[node - n]:
                stack[height] = child
                height += 1
    return height == 0


@kernel
def find_places(task: Task, near: Ints, in_vain: int) -> Found:
    """Edges of points, from near rows of each, (B, k); those below e^(−NEGLIGIBLE) of the sum are left out.

    The second search stops after too many fruitless edges. Masses lack the constant −(d/2) log 2π − ½ log|Φ|.
    """
    sites = task.sites
    n_nodes, n_points = sites.parent.size, len(task.points)
    root, n = n_nodes - 1, len(sites.children) + 1
    room = Room(
        np.full(n_nodes, -1, dtype=np.int64),
        np.empty(n_nodes, dtype=np.int64),
        np.empty(n_nodes, dtype=np.int64),
        np.empty((n_nodes, 3)),
        np.empty(n_nodes),
        np.empty(n_nodes),
        np.empty(n_nodes),
        np.empty(n_nodes, dtype=np.int64),
        np.zeros(2, dtype=np.int64),
        np.empty(1),
        np.empty(N_SUMS),
        no_cells(),
    )
    size = 64 * n_points + n_nodes
    node, log_mass, time = np.empty(size, dtype=np.int64), np.empty(size), np.empty(size)
    out = np.zeros(n_points + 1, dtype=np.int64)
    log_sum, proved = np.empty(n_points), np.empty(n_points, dtype=np.bool_)
    for b in range(n_points):
        weigh_root(task, room, b)
        for child in sites.children[root - n]:
            look_at(task, room, b, child, room.log_sum[0])
        # Only the nearest row at first: it shows how little the others matter.
        search(task, room, b, near[b, :1])
        search(task, room, b, near[b, 1:])
        proved[b] = search_down(task, room, b, in_vain)
        log_sum[b] = room.log_sum[0]
        kept = out[b]
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
        out[b + 1] = kept
    return Found(out, node[:kept].copy(), log_mass[:kept].copy(), time[:kept].copy(), log_sum, proved)
