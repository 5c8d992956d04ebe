r"""A tree as a row sees it that may join: messages both ways, a clock, and a ball around all places under each node.

Given all rows the expected value at a node is its position μ = (1 − ω) m + ω u, of the message m from below, that from
above, u, and the share ω of the latter. Along an edge the expected value goes from one position to the next in a
straight line, and that of an inner node lies between those of its neighbours. So all places under node c lie between
the positions of its leaves and its own, within

    R_c = max |μ_leaf − μ_c|   over the leaves under c.

The variance at a place given all rows grows upwards along every path, so under c it lies between the least of its
leaves and that at c.

**Without one of its leaves** expected values move, all in one direction, and by less the farther they are from where
the leaf was. So under a node c that is not above the leaf no place moves by more than c does, and R_c + |μ′_c − μ_c|
holds for the tree without the leaf. Variances grow, and Λ loses min(t, time of the leaf's merge). What is measured once
serves all rows that are left out: only the messages on the leaf's way to the root are computed anew, and those from
above on the way of the search.

The **clock** is Λ made linear between knots, never off by more than a tolerance: at 100 000 leaves it has a thousand
knots instead of one per leaf, which stay in the fastest memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Bools, Floats, Ints
from coaltree._compile import borrowing, inline, kernel
from coaltree.inference.moves.edge_density import Others, exposure, fill_exposure, n_until
from coaltree.inference.moves.mutable_tree import look_above, look_below_to_root, make_chain, other_child, replace_child
from coaltree.model.messages import blend, meet, squared_distance
from coaltree.places.edge_mass import add_logs
from coaltree.tree import Tree

# How far the clock may be from Λ.
CLOCK = 1e-5
# Radii of clades of up to this many leaves are exact; those of larger ones follow from their two parts.
MEASURED = 64


class Host(NamedTuple):
    """A tree over n whitened rows, as in `mutable_tree`; an edge has the number of the node below it."""

    children: Ints  # (2n, 2)
    parent: Ints  # (2n,)
    time: Floats  # (2n,)
    mean: Floats  # (2n−1, d), from below
    variance: Floats  # (2n−1,)
    above_mean: Floats  # (2n−1, d), from above, at the parent, in the whole tree
    above_variance: Floats  # (2n−1,)
    position: Floats  # (2n−1, d): expected value at the node given all rows
    radius: Floats  # (2n−1,): no place under the node is farther from its position
    least: Floats  # (2n−1,): no place under the node has a smaller variance given all rows
    log_prior: Floats  # (2n−1,): bound on log Σ ∫ exp(−Λ) of all edges under the node
    clock: Others
    marked: Bools  # (2n,): ancestors of the leaf that is left out


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


def exact_clock(merge_times: Floats) -> Others:
    """Λ of a row that joins a tree with these merges."""
    exact = Others(merge_times, np.zeros(len(merge_times) + 1), np.ones(len(merge_times) + 1))
    count_lineages(exact)
    return exact


@kernel
def count_lineages(out: Others) -> None:
    """Λ from its knots."""
    fill_exposure(out)


@borrowing
def set_clock(clock: Others, gone: float, out: Others) -> None:
    """Fill a clock that has one knot more, from which a lineage that ends at the time `gone` is left out."""
    place = n_until(clock.times, gone)
    for k in range(out.times.size):
        out.times[k] = gone if k == place else clock.times[k if k < place else k - 1]
    out.exposure[0] = clock.exposure[0]
    for k in range(out.times.size):
        out.exposure[k + 1] = exposure(clock, out.times[k])[0] - min(out.times[k], gone)
    for k in range(out.rate.size):
        out.rate[k] = clock.rate[k] - 1.0 if k <= place else clock.rate[k - 1]


def make_host(tree: Tree, rows: Floats, leaf_noise: Floats, tolerance: float = CLOCK) -> Host:
    """Describe a tree over whitened rows (n, d)."""
    state = make_chain(tree, rows, leaf_noise)
    size = len(state.variance)
    radius, least, log_prior = np.empty((3, size))
    host = Host(
        children=state.children,
        parent=state.parent,
        time=state.time,
        mean=state.mean,
        variance=state.variance,
        above_mean=state.above_mean,
        above_variance=state.above_variance,
        position=np.empty_like(state.mean),
        radius=radius,
        least=least,
        log_prior=log_prior,
        clock=make_clock(exact_clock(tree.times), tolerance),
        marked=np.zeros(size + 1, dtype=np.bool_),
    )
    measure_clades(host, host.radius)
    return host


@borrowing
def log_prior_along(clock: Others, low: float, high: float) -> float:
    """Bound on log ∫ exp(−Λ): as Λ′ falls, exp(−Λ) is at most what the last rate would give from the start."""
    last_rate = clock.rate[n_until(clock.times, np.nextafter(high, 0.0))]
    return math.log(min(high - low, 1.0 / last_rate)) - exposure(clock, low)[0]


@kernel
def measure_clades(host: Host, out: Floats) -> None:
    """Messages from above, positions, and what is under each node, of a tree whose nodes are in time order."""
    n = len(host.children) // 2
    size = np.ones(2 * n - 1, dtype=np.int64)
    for node in range(2 * n - 2, -1, -1):
        look_above(host, node)
        beyond = host.above_variance[node] + host.time[host.parent[node]] - host.time[node]
        _, share, host.least[node] = meet(host.variance[node], beyond)
        blend(host.mean, node, host.above_mean, node, share, host.position, node)
    for leaf in range(n):
        out[leaf], host.log_prior[leaf] = 0.0, -math.inf
    for node in range(n, 2 * n - 1):
        out[node], host.log_prior[node], host.least[node] = 0.0, -math.inf, math.inf
        size[node] = 0
        for child in host.children[node]:
            size[node] += size[child]
            host.least[node] = min(host.least[node], host.least[child])
            along = log_prior_along(host.clock, host.time[child], host.time[node])
            for log_mass in (along, host.log_prior[child]):
                if log_mass > -math.inf:
                    host.log_prior[node] = add_logs(log_mass, host.log_prior[node])
    for leaf in range(n):
        node = host.parent[leaf]
        while node < 2 * n - 1 and size[node] <= MEASURED:
            out[node] = max(out[node], math.sqrt(squared_distance(host.position, node, host.position, leaf)))
            node = host.parent[node]
    for node in range(n, 2 * n - 1):
        if size[node] > MEASURED:
            for child in host.children[node]:
                gap = math.sqrt(squared_distance(host.position, node, host.position, child))
                out[node] = max(out[node], gap + out[child])


@inline
def take_leaf(host: Host, leaf: int) -> None:
    """Leave a leaf out: messages from below are those of the rest."""
    merge, sibling = host.parent[leaf], other_child(host, leaf)
    upper = host.parent[merge]
    replace_child(host, upper, merge, sibling)
    look_below_to_root(host, upper)
    _mark(host, upper, True)


@inline
def put_leaf(host: Host, leaf: int) -> None:
    """Undo `take_leaf`, to the last bit."""
    merge, sibling = host.parent[leaf], other_child(host, leaf)
    upper = host.parent[sibling]
    replace_child(host, upper, sibling, merge)
    host.parent[sibling] = merge
    look_below_to_root(host, upper)
    _mark(host, upper, False)


@borrowing
def _mark(host: Host, node: int, marked: bool) -> None:
    """Mark a node and all above it."""
    while node >= 0:
        host.marked[node] = marked
        node = host.parent[node]
