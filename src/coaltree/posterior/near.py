r"""Where new points join a large tree: the mass of the edges that matter, found from the rows near each point.

The sum of `posterior.places` over all edges costs O(n) a point, and nearly all of it is negligible. Here the edges on the
ways up from the nearest rows are found, and from them best first their neighbours in the tree: parent, sibling, children.
The score of an edge bounds its mass from above,

    ∫ f ≤ ∫ exp(−Λ) dt · max v^(−d/2) exp(−ε/2v),

and edges are weighed in its order until the best of those that wait has less than e^(−MARGIN) of the sum. A way up ends
where all that is above is that little: v ≥ t + s₀ on any edge, and a lineage still alone at t has the probability
exp(−Λ(t)), so all edges together have at most exp(−Λ(t)) (t + s₀)^(−d/2) from t on. The edge above the root is always
weighed, so that a point far from everything has its density too.

Whether the nearest rows were enough is seen from what the farther half of them has added.

Λ is taken from a clock, linear between knots and never farther than CLOCK from Λ: at 100 000 leaves a thousand knots
instead of as many as leaves, which stay in the fastest memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._compile import borrowing, inline, kernel
from coaltree.inference.attachment import Edge, Others, expectation, exposure
from coaltree.inference.chain import squared_distance
from coaltree.model import gig
from coaltree.posterior.places import NEGLIGIBLE, POLE, Sites, add_logs, integrate, log_bound

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# An edge waits for good when its mass is below this share of the sum, e^(−MARGIN).
MARGIN = 14.0
# Edges weighed for a point at most.
MOST = 20_000
# How far the clock may be from Λ.
CLOCK = 1e-5
# Kinks of Λ inside an interval of length h, K of them, cost about √K h/500 of its mass; it is split where √K h is more.
KINKS = 0.05


class View(NamedTuple):
    """How the distance of a point is measured, in whitened columns: all, some, or through a lens for a block of Φ."""

    columns: Ints  # (q,): the columns that count, if there is no lens
    lens: Floats  # (q, d): |lens (x − y)|² is the distance; (0, d) for none


class Room(NamedTuple):
    """Room for a search: edges by the order in which they were found."""

    stamp: Ints  # (2n−1,): the point for which an edge was last found
    node: Ints  # (room,)
    eps: Floats  # (room, 3): below, above, span, as in `attachment.Edge`
    score: Floats  # (room,)
    log_mass: Floats  # (room,), −inf before it is weighed
    time: Floats  # (room,)
    heap: Ints  # (room,): edges found but not weighed, the best first
    n: Ints  # (3,): found, waiting, weighed
    log_sum: Floats  # (1,)
    sums: Floats  # (2,)


class Found(NamedTuple):
    """Edges of each point; those of point b are first[b] … first[b + 1] − 1."""

    first: Ints  # (B+1,)
    node: Ints  # (E,)
    log_mass: Floats  # (E,)
    time: Floats  # (E,): mean time at which the point joins
    log_sum: Floats  # (B,)
    late: Floats  # (B,): share of the sum that the farther half of the rows has added


FOUND, WAITING, WEIGHED = range(3)


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
    """Draw a clock that is nowhere farther than this from Λ."""
    size = exact.times.size
    room = Others(np.empty(size), np.empty(size + 1), np.empty(size + 1))
    n_knots = draw_clock(exact, tolerance, room)
    return Others(room.times[:n_knots].copy(), room.exposure[: n_knots + 1].copy(), room.rate[: n_knots + 1].copy())


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
def edge_of(sites: Sites, room: Room, slot: int, noise: float) -> Edge:
    """An edge that was found."""
    node = room.node[slot]
    return Edge(
        low=sites.time[node],
        high=sites.time[sites.parent[node]],
        below=sites.below[node],
        above=sites.above[node],
        offset=noise,
        eps_below=room.eps[slot, 0],
        eps_above=room.eps[slot, 1],
        eps_span=room.eps[slot, 2],
    )


@borrowing
def look_at(
    sites: Sites, room: Room, points: Floats, b: int, noise: float, view: View, node: int, otherwise: float
) -> None:
    """Find the edge above a node and let it wait by its score; an edge without length leads on by `otherwise`."""
    if room.stamp[node] == b:
        return
    room.stamp[node] = b
    slot = room.n[FOUND]
    room.n[FOUND] += 1
    whole = view.lens.shape[0] == 0 and view.columns.size == points.shape[1]
    room.node[slot] = node
    room.eps[slot, 0] = measure(view, points, b, sites.mean, node)
    room.eps[slot, 1] = measure(view, points, b, sites.above_mean, node)
    room.eps[slot, 2] = sites.span[node] if whole else measure(view, sites.mean, node, sites.above_mean, node)
    room.log_mass[slot] = -math.inf
    edge = edge_of(sites, room, slot, noise)
    if edge.low < edge.high:
        d = float(max(view.columns.size, view.lens.shape[0]))
        room.score[slot] = sites.log_prior[node] + log_bound(edge, d, edge.low, edge.high)
    else:
        room.score[slot] = otherwise
    k = room.n[WAITING]
    room.n[WAITING] += 1
    heap, score = room.heap, room.score
    while k > 0 and score[heap[(k - 1) // 2]] < score[slot]:
        heap[k] = heap[(k - 1) // 2]
        k = (k - 1) // 2
    heap[k] = slot


@borrowing
def take_best(room: Room) -> int:
    """Take the best edge off the heap."""
    heap, score = room.heap, room.score
    best: int = heap[0]
    room.n[WAITING] -= 1
    size = room.n[WAITING]
    last = heap[size]
    k = 0
    while 2 * k + 1 < size:
        child = 2 * k + 1
        if child + 1 < size and score[heap[child + 1]] > score[heap[child]]:
            child += 1
        if score[heap[child]] <= score[last]:
            break
        heap[k] = heap[child]
        k = child
    heap[k] = last
    return best


@inline
def weigh(sites: Sites, clock: Others, room: Room, slot: int, noise: float, d: float, margin: float) -> None:
    """Integrate f over an edge and add it to the sum."""
    edge = edge_of(sites, room, slot, noise)
    room.time[slot] = edge.low
    room.n[WEIGHED] += 1
    if not edge.low < edge.high:
        return
    if d > 1.0 and edge.eps_below <= 0.0 and expectation(edge, edge.low)[0] <= 0.0:
        # A noiseless row met exactly: the density has a pole there.
        room.log_mass[slot] = POLE
        room.log_sum[0] = POLE
        return
    floor = room.log_sum[0] - margin
    room.log_mass[slot], room.time[slot] = integrate(edge, clock, d, floor, KINKS, room.sums)
    room.log_sum[0] = add_logs(room.log_sum[0], room.log_mass[slot])


# ---- the search


@inline
def weigh_root(sites: Sites, clock: Others, room: Room, eps: float, noise: float, d: float) -> None:
    """Begin with the edge above the root, which is a truncated GIG."""
    root = sites.parent.size - 1
    r = 2.0 * sites.time[root] + noise + sites.below[root]
    room.node[0] = root
    room.log_mass[0] = gig.log_local(d, eps, 1.0, r) - math.log(2.0) - exposure(clock, sites.time[root])[0]
    room.time[0] = sites.time[root] + 0.5 * gig.mean_excess(d, eps, 1.0, r)
    room.log_sum[0] = room.log_mass[0]
    room.n[FOUND], room.n[WAITING], room.n[WEIGHED] = 1, 0, 1


@inline
def search(
    sites: Sites,
    clock: Others,
    room: Room,
    points: Floats,
    b: int,
    noise: float,
    view: View,
    starts: Ints,
    margin: float,
    most: int,
) -> None:
    """Find edges on the ways up from some leaves, and then around the best ones."""
    root, n = sites.parent.size - 1, len(sites.children) + 1
    d = float(max(view.columns.size, view.lens.shape[0]))
    for leaf in starts:
        node = leaf
        while room.stamp[node] != b:
            above = sites.time[node] + noise
            if above > 0.0:
                rest = -exposure(clock, sites.time[node])[0] - 0.5 * d * math.log(above)
                if rest < room.log_sum[0] - margin:
                    break
            look_at(sites, room, points, b, noise, view, node, -math.inf)
            node = sites.parent[node]
    while room.n[WAITING] > 0 and room.n[WEIGHED] < most:
        if room.score[room.heap[0]] < room.log_sum[0] - margin:
            break
        slot = take_best(room)
        node, score = room.node[slot], room.score[slot]
        weigh(sites, clock, room, slot, noise, d, margin)
        parent = sites.parent[node]
        if parent != root:
            look_at(sites, room, points, b, noise, view, parent, score)
        for child in sites.children[parent - n]:
            look_at(sites, room, points, b, noise, view, child, score)
        if node >= n:
            for child in sites.children[node - n]:
                look_at(sites, room, points, b, noise, view, child, score)


@kernel
def find_places(
    sites: Sites,
    clock: Others,
    points: Floats,
    noise: float,
    view: View,
    first: Ints,
    starts: Ints,
    margin: float,
    most: int,
) -> Found:
    """Edges of whitened points (B, d) of this leaf noise, from rows near point b: starts[first[b] : first[b + 1]].

    Masses lack the constant −(d/2) log 2π − ½ log|Φ|. Edges below e^(−NEGLIGIBLE) of the sum are left out.
    """
    n_nodes, n_points = sites.parent.size, len(points)
    root, n = n_nodes - 1, len(sites.children) + 1
    room = Room(
        np.full(n_nodes, -1, dtype=np.int64),
        np.empty(n_nodes, dtype=np.int64),
        np.empty((n_nodes, 3)),
        np.empty(n_nodes),
        np.empty(n_nodes),
        np.empty(n_nodes),
        np.empty(n_nodes, dtype=np.int64),
        np.zeros(3, dtype=np.int64),
        np.empty(1),
        np.empty(2),
    )
    d = float(max(view.columns.size, view.lens.shape[0]))
    size = 64 * n_points + n_nodes
    node, log_mass, time = np.empty(size, dtype=np.int64), np.empty(size), np.empty(size)
    out = np.zeros(n_points + 1, dtype=np.int64)
    log_sum, late = np.empty(n_points), np.empty(n_points)
    for b in range(n_points):
        weigh_root(sites, clock, room, measure(view, points, b, sites.mean, root), noise, d)
        room.stamp[root] = b
        for child in sites.children[root - n]:
            look_at(sites, room, points, b, noise, view, child, -math.inf)
        # The nearest row alone first: it tells how little the others matter.
        begin, stop = first[b], first[b + 1]
        nearer = begin + (stop - begin + 1) // 2
        search(sites, clock, room, points, b, noise, view, starts[begin : begin + 1], margin, most)
        search(sites, clock, room, points, b, noise, view, starts[begin + 1 : nearer], margin, most)
        before = room.log_sum[0]
        search(sites, clock, room, points, b, noise, view, starts[nearer:stop], margin, most)
        log_sum[b] = room.log_sum[0]
        late[b] = -math.expm1(before - room.log_sum[0])
        kept = out[b]
        if kept + room.n[FOUND] > size:
            size = 2 * size + n_nodes
            node, log_mass, time = enlarged(node, size), enlarged(log_mass, size), enlarged(time, size)
        for slot in range(room.n[FOUND]):
            if room.log_mass[slot] >= room.log_sum[0] - NEGLIGIBLE:
                node[kept], log_mass[kept], time[kept] = room.node[slot], room.log_mass[slot], room.time[slot]
                kept += 1
        out[b + 1] = kept
    return Found(out, node[:kept].copy(), log_mass[:kept].copy(), time[:kept].copy(), log_sum, late)


@inline
def enlarged(array, size):  # type: ignore[no-untyped-def]
    """Copy into a longer array."""
    longer = np.empty(size, dtype=array.dtype)
    longer[: array.size] = array
    return longer
