r"""Search for edges near a cut-off subtree, best first, and propose one of them with a time on it.

`moves.local` says how a move uses this, and what a place is worth, by two functions:

    describe(state, cut, node)                 three squared distances, and a number of columns, by which the time on
                                               the edge above `node` is roughly that of `edge_density`
    log_place(state, cut, node, edge, time)    the exact log density of the subtree at that time, without −Λ

Messages from above are computed on the way down from the root to where a search starts, and at each edge it finds:
O(d) times the depth of the tree and the number of edges.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, inline
from coaltree.inference.heap import pop, push
from coaltree.inference.moves import edge_density
from coaltree.inference.moves.edge_density import (
    DEPTH,
    LOG,
    N_KNOTS,
    TIME,
    interpolate,
    log_edge_likelihood,
    log_knot_mass,
    root_excess,
    spread_knots,
)
from coaltree.inference.moves.lineages import exposure_without
from coaltree.inference.moves.mutable_tree import look_above, other_child
from coaltree.inference.moves.regraft_proposal import NEAR, ROUGHLY, Survey, edge_at, log_sum_of_masses
from coaltree.model import gig
from coaltree.randomness import Stream, uniform

# Rows at which an anchored search starts, and how many leaves of a large subtree are tried for rows outside it.
N_ANCHORS = 3
N_TRIES = 12


class Search(NamedTuple):
    """Room for a search, and what it has found."""

    survey: Survey
    columns: Floats  # (2n−1,) how many columns the time on an edge is proposed by
    stamp: Ints  # (2n,) the move in which a node's message from above was last updated
    found: Ints  # (2n,) the search in which its edge was last found
    now: Ints  # (2,): this move, this search
    heap: Ints  # (room,) edges found but not yet expanded, best first
    path: Ints  # (2n,) a path upwards


def make_search(n: int) -> Search:
    """Room for searches in trees of n leaves."""
    size = 2 * n - 1
    below, above, span, peak, width, mass, columns = np.empty((7, size))
    knots = np.empty((2, edge_density.N_KNOTS))
    survey = Survey(np.empty(size, dtype=np.int64), below, above, span, peak, width, mass, knots)
    stamps = np.zeros((2, 2 * n), dtype=np.int64)
    now = np.zeros(2, dtype=np.int64)
    return Search(survey, columns, stamps[0], stamps[1], now, np.empty(size, np.int64), np.empty(2 * n, np.int64))


# ---- where a search starts


@borrowing
def tell_from_above(state: Any, node: int) -> None:
    """Bring messages from above up to date on the way from the root to a node."""
    search = state.search
    now, length = search.now[0], 0
    while search.stamp[node] != now:
        search.path[length] = node
        length += 1
        node = state.parent[node]
    for k in range(length - 1, -1, -1):
        look_above(state, search.path[k])
        search.stamp[search.path[k]] = now


@borrowing
def climb_to(state: Any, cut: int, node: int) -> int:
    """The ancestor of a node, or itself, to whose edge S can be attached."""
    while state.time[state.parent[node]] <= state.time[cut]:
        node = state.parent[node]
    return node


@borrowing
def is_below(state: Any, node: int, cut: int) -> bool:
    """Whether a node is in the subtree S under `cut`."""
    while node != cut and state.time[node] <= state.time[cut] and node < state.parent.size - 1:
        node = state.parent[node]
    return node == cut


@borrowing
def is_in(state: Any, row: int, one: int, two: int) -> bool:
    """Whether a row is in either of two subtrees, which may be the same."""
    return is_below(state, row, one) or (one != two and is_below(state, row, two))


@borrowing
def find_anchors(state: Any, cut: int, away: int, stream: Stream, starts: Ints) -> int:
    """Rows near S, neither in it nor in `away`: the nearest to a leaf of S, and others at random.

    Depends only on these subtrees; `away` is another cut-off subtree, or S.
    """
    n_near, n_found = state.near.shape[1], 0
    for attempt in range(N_TRIES):
        leaf = cut
        while state.children[leaf, 0] >= 0:
            leaf = state.children[leaf, 0 if uniform(stream) < 0.5 else 1]
        if attempt == 0:
            for k in range(n_near):
                row = int(state.near[leaf, k])
                if not is_in(state, row, cut, away):
                    starts[0] = row
                    n_found = 1
                    break
        row = int(state.near[leaf, int(uniform(stream) * n_near)])
        if not is_in(state, row, cut, away):
            starts[n_found] = row
            n_found += 1
        if n_found == N_ANCHORS:
            break
    return n_found


# ---- the search and the proposal


class Functions(NamedTuple):
    """What `compiled_search` makes, for use in kernels."""

    find_edges: Any  # (state, cut, starts, n_starts, most) → number of edges found
    weigh_found: Any  # (state, cut, n_edges) → log Σ of their masses
    draw_found: Any  # (state, cut, node, stream) → time
    log_target: Any  # (state, cut, node, time) → log f
    log_proposal: Any  # (state, cut, node, time, log Σ) → log q


def compiled_search(describe: Any, log_place: Any, log_exact: Any = None) -> Functions:
    """Make the functions of a search from compiled ones; with `log_exact`, `log_place` need only be near it."""
    log_exact = log_place if log_exact is None else log_exact

    @borrowing
    def log_rough(state: Any, cut: int, node: int, edge: edge_density.Edge, time: float) -> float:
        """Log f of a place by the clock."""
        value: float = log_place(state, cut, node, edge, time) - edge_density.exposure(state.others, time)[0]
        return value

    @borrowing
    def weigh(state: Any, cut: int, node: int) -> None:
        """Describe the edge above a node: its three distances, the peak of f along it, and log f there."""
        survey = state.search.survey
        tell_from_above(state, node)
        describe(state, cut, node)
        survey.log_mass[node] = -math.inf
        edge = edge_at(state, survey, cut, node)
        if edge.low < edge.high:
            d = state.search.columns[node]
            survey.peak[node], survey.width[node] = edge_density.find_peak(edge, state.others, d, ROUGHLY)
            survey.log_mass[node] = log_rough(state, cut, node, edge, survey.peak[node])

    @borrowing
    def look_at(state: Any, cut: int, node: int, n_edges: int, waiting: int) -> tuple[int, int]:
        """Add the edge above a node, unless it was found before or S cannot be there; numbers found and waiting."""
        search = state.search
        if search.found[node] == search.now[1] or state.time[state.parent[node]] <= state.time[cut]:
            return n_edges, waiting
        search.found[node] = search.now[1]
        weigh(state, cut, node)
        search.survey.edge[n_edges] = node
        return n_edges + 1, push(search.heap, search.survey.log_mass, waiting, node)

    @borrowing
    def find_edges(state: Any, cut: int, starts: Ints, n_starts: int, most: int) -> int:
        """Find about `most` edges for S, best first from the edges above `starts`; returns their number."""
        search, parent, children = state.search, state.parent, state.children
        origin = parent.size - 1
        search.now[1] += 1
        n_edges, waiting = 0, 0
        for k in range(n_starts):
            n_edges, waiting = look_at(state, cut, climb_to(state, cut, starts[k]), n_edges, waiting)
        while n_edges < most and waiting > 0:
            node = pop(search.heap, search.survey.log_mass, waiting)
            waiting -= 1
            if parent[node] != origin:
                n_edges, waiting = look_at(state, cut, parent[node], n_edges, waiting)
                n_edges, waiting = look_at(state, cut, other_child(state, node), n_edges, waiting)
            if children[node, 0] >= 0:
                n_edges, waiting = look_at(state, cut, children[node, 0], n_edges, waiting)
                n_edges, waiting = look_at(state, cut, children[node, 1], n_edges, waiting)
        return n_edges

    @borrowing
    def mass_found(state: Any, cut: int, node: int) -> float:
        """Approximate log mass of f on an edge; below the root by knots, which are left in the survey."""
        survey, d = state.search.survey, state.search.columns[node]
        edge, peak = edge_at(state, survey, cut, node), survey.peak[node]
        if edge.high == math.inf:
            eps, r = root_excess(edge)
            log_prior = edge_density.exposure(state.others, edge.low)[0]
            log_mass = gig.log_local_laplace(d, eps, 1.0, r) - math.log(2.0) - log_prior
            rough = log_edge_likelihood(edge, d, peak)
            if rough > -math.inf:  # equal rows without noise
                log_mass += log_place(state, cut, node, edge, peak) - rough
            return float(log_mass)
        knots = survey.knots
        spread_knots(edge, peak, survey.width[node], knots)
        top = log_rough(state, cut, node, edge, peak)
        for k in range(N_KNOTS):
            knots[LOG, k] = max(log_rough(state, cut, node, edge, knots[TIME, k]), top - DEPTH)
        return log_knot_mass(knots)

    @borrowing
    def weigh_found(state: Any, cut: int, n_edges: int) -> float:
        """Turn peaks into masses: peak times width far from the best edge, by knots near it. Returns log Σ."""
        survey = state.search.survey
        top = -math.inf
        for k in range(n_edges):
            node = survey.edge[k]
            if survey.log_mass[node] > -math.inf:
                length = state.time[state.parent[node]] - max(state.time[node], state.time[cut])
                survey.log_mass[node] += math.log(min(2.5 * survey.width[node], length))
                top = max(top, survey.log_mass[node])
        for k in range(n_edges):
            node = survey.edge[k]
            if survey.log_mass[node] > top - NEAR:
                survey.log_mass[node] = mass_found(state, cut, node)
        return log_sum_of_masses(survey, n_edges)

    @inline
    def draw_found(state: Any, cut: int, node: int, stream: Stream) -> float:
        """A time on an edge from the proposal."""
        survey, d = state.search.survey, state.search.columns[node]
        mass_found(state, cut, node)
        return edge_density.draw_edge_time(edge_at(state, survey, cut, node), d, 1.0, survey.knots, stream)

    @borrowing
    def log_target(state: Any, cut: int, node: int, time: float) -> float:
        """Log f of a place, exactly."""
        edge = edge_at(state, state.search.survey, cut, node)
        value: float = log_exact(state, cut, node, edge, time) - exposure_without(state.lineages, state.time, time)
        return value

    @inline
    def log_proposal(state: Any, cut: int, node: int, time: float, log_total: float) -> float:
        """Log q of a place on an edge that was found."""
        survey, d = state.search.survey, state.search.columns[node]
        log_mass = mass_found(state, cut, node)
        edge = edge_at(state, survey, cut, node)
        if edge.high == math.inf:
            eps, r = root_excess(edge)
            log_shape = (
                log_edge_likelihood(edge, d, time) - (time - edge.low) - gig.log_local(d, eps, 1.0, r) + math.log(2.0)
            )
        else:
            log_shape = interpolate(survey.knots, time) - log_mass
        log_edge: float = survey.log_mass[node] - log_total
        return log_edge + log_shape

    return Functions(find_edges, weigh_found, draw_found, log_target, log_proposal)
