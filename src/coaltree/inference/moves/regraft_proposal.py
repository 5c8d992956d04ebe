r"""All places where a cut-off subtree may be attached, weighed against each other in one traversal.

The traversal goes down from the root. At merge k with children a and b the message from above, N(y, β Φ), is known, and
gives the message from above to each child's edge: with b's message N(m_b, α Φ) at k and ω = α/(α + β),

    u_a = (1 − ω) m_b + ω y,   variance α (1 − ω).

Squared distances to such a blend follow from those to its parts, which leaves five distances per merge, and a vector u
only for children that are merges themselves.

The proposal is q(edge) q(time | edge). Edges near the best get the mass of their knots (`edge_density.log_mass`), far
ones a rougher value: any will do, as long as it depends only on the rest of the tree and the subtree.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, inline
from coaltree.inference.moves import edge_density
from coaltree.inference.moves.edge_density import N_KNOTS, Edge, Others, blend_distance, log_edge_density
from coaltree.inference.moves.mutable_tree import MutableTree, Pointers, look_above
from coaltree.model.messages import blend, meet, squared_distance
from coaltree.randomness import Stream, uniform

# Edges whose rough mass is below e^(−NEAR) of the largest keep it; the others get an accurate one.
NEAR = 6.0
# The proposal needs the peak of an edge only roughly, in units of its width.
ROUGHLY = 0.1


class Survey(NamedTuple):
    """The edges to which a cut-off subtree may be attached; an edge has the number of the node below it."""

    edge: Ints  # (2n−1,), of which the first few are filled
    eps_below: Floats  # (2n−1,), as in `edge_density.Edge`
    eps_above: Floats
    eps_span: Floats
    peak: Floats  # (2n−1,) time at which the density peaks
    width: Floats  # (2n−1,) of the peak
    log_mass: Floats  # (2n−1,) log q(edge), not normalised; −inf where the subtree cannot be
    knots: Floats  # (2, N_KNOTS), of the edge last weighed


@inline
def make_survey(n_nodes: int) -> Survey:
    """Room for a survey."""
    return Survey(
        np.empty(n_nodes, dtype=np.int64),
        np.empty(n_nodes),
        np.empty(n_nodes),
        np.empty(n_nodes),
        np.empty(n_nodes),
        np.empty(n_nodes),
        np.empty(n_nodes),
        np.empty((2, N_KNOTS)),
    )


@borrowing
def edge_at(state: Pointers, survey: Survey, cut: int, node: int) -> Edge:
    """The edge above a node, after the traversal."""
    high = state.time[state.parent[node]]
    return Edge(
        low=max(state.time[node], state.time[cut]),
        high=high,
        below=state.variance[node] - state.time[node],
        above=state.above_variance[node] + high,
        offset=state.variance[cut] - state.time[cut],
        eps_below=survey.eps_below[node],
        eps_above=survey.eps_above[node],
        eps_span=survey.eps_span[node],
    )


@inline
def _describe_children(state: MutableTree, cut: int, node: int, out: Survey) -> None:
    """From a merge to the edges below it: messages from above, and the three distances of each edge."""
    mean, above_mean = state.mean, state.above_mean
    time = state.time[node]
    var_above = state.above_variance[node] + state.time[state.parent[node]] - time
    left, right = state.children[node, 0], state.children[node, 1]
    span = squared_distance(mean, left, mean, right)
    eps_left = squared_distance(above_mean, node, mean, left)
    eps_right = squared_distance(above_mean, node, mean, right)
    out.eps_below[left] = squared_distance(mean, cut, mean, left)
    out.eps_below[right] = squared_distance(mean, cut, mean, right)
    for child, sibling, eps_child, eps_sibling in (
        (left, right, eps_left, eps_right),
        (right, left, eps_right, eps_left),
    ):
        var_sibling = state.variance[sibling] + time - state.time[sibling]
        _, share, state.above_variance[child] = meet(var_sibling, var_above)
        out.eps_above[child] = blend_distance(share, out.eps_below[sibling], out.eps_above[node], eps_sibling)
        out.eps_span[child] = blend_distance(share, span, eps_child, eps_sibling)
        if state.children[child, 0] >= 0:
            blend(mean, sibling, above_mean, node, share, above_mean, child)


@inline
def visit_edges(state: MutableTree, cut: int, tolerance: float, out: Survey) -> int:
    """Find all edges for a cut-off subtree, with their peaks; returns their number.

    Until `weigh_edges` the log mass is log f at the peak. The edge above the root comes first.
    """
    d = float(state.mean.shape[1])
    for node in range(out.edge.size):
        out.log_mass[node] = -math.inf
    root = state.children[-1, 0]
    look_above(state, root)
    out.eps_below[root] = squared_distance(state.mean, cut, state.mean, root)
    out.eps_above[root] = 0.0
    out.eps_span[root] = 0.0
    n_edges = 0
    # Waiting nodes fill the same array from the end: together they never outnumber the nodes.
    waiting = out.edge.size - 1
    out.edge[waiting] = root
    while waiting < out.edge.size:
        node = out.edge[waiting]
        waiting += 1
        edge = edge_at(state, out, cut, node)
        if edge.low < edge.high:
            out.edge[n_edges] = node
            n_edges += 1
            peak, width = edge_density.find_peak(edge, state.others, d, tolerance)
            out.peak[node] = peak
            out.width[node] = width
            out.log_mass[node] = log_edge_density(edge, state.others, d, peak)
        if state.time[node] >= state.time[cut] and state.children[node, 0] >= 0:
            _describe_children(state, cut, node, out)
            waiting -= 2
            out.edge[waiting] = state.children[node, 0]
            out.edge[waiting + 1] = state.children[node, 1]
    return n_edges


class WithOthers(Pointers, Protocol):
    """A tree that changes in place, and the Λ by which places are weighed."""

    @property
    def others(self) -> Others: ...  # noqa: D102


@inline
def edge_mass(state: WithOthers, cut: int, node: int, beta: float, out: Survey) -> float:
    """Log mass of f^β on an edge under the proposal for the time; `out.knots` is left filled for it."""
    d = float(state.mean.shape[1])
    edge = edge_at(state, out, cut, node)
    return edge_density.log_edge_mass(edge, state.others, d, beta, out.peak[node], out.width[node], out.knots)


@borrowing
def log_sum_of_masses(survey: Survey, n_edges: int, skipped: int = -1) -> float:
    """Log sum of the masses of all edges that were found, or of all but one."""
    top, total = -math.inf, 0.0
    for k in range(n_edges):
        if survey.edge[k] != skipped:
            top = max(top, survey.log_mass[survey.edge[k]])
    if top > -math.inf:
        for k in range(n_edges):
            if survey.edge[k] != skipped:
                total += math.exp(survey.log_mass[survey.edge[k]] - top)
        top += math.log(total)
    return top


@inline
def weigh_proposals(state: MutableTree, cut: int, beta: float, n_edges: int, out: Survey) -> float:
    """Turn peaks into masses of f^β: peak times width far from the best edge, by knots near it. Returns log Σ."""
    root = out.edge[0]
    out.log_mass[root] = edge_mass(state, cut, root, beta, out)
    top: float = out.log_mass[root]
    for k in range(1, n_edges):
        node = out.edge[k]
        length = state.time[state.parent[node]] - max(state.time[node], state.time[cut])
        width = min(2.5 * out.width[node] / math.sqrt(beta), length)
        out.log_mass[node] = beta * out.log_mass[node] + math.log(width)
        top = max(top, out.log_mass[node])
    near = top - NEAR
    for k in range(1, n_edges):
        node = out.edge[k]
        if out.log_mass[node] > near:
            out.log_mass[node] = edge_mass(state, cut, node, beta, out)
    return log_sum_of_masses(out, n_edges)


@borrowing
def choose_edge(survey: Survey, n_edges: int, log_total: float, stream: Stream) -> int:
    """Draw an edge by its mass."""
    left, node = uniform(stream), -1
    for k in range(n_edges):
        mass = math.exp(survey.log_mass[survey.edge[k]] - log_total)
        if mass > 0.0:
            node = survey.edge[k]
            left -= mass
            if left < 0.0:
                break
    return node


@inline
def draw_place(
    state: MutableTree, cut: int, beta: float, n_edges: int, survey: Survey, log_total: float, stream: Stream
) -> tuple[int, float]:
    """Draw an edge and a time from the proposal."""
    node = choose_edge(survey, n_edges, log_total, stream)
    edge_mass(state, cut, node, beta, survey)
    edge = edge_at(state, survey, cut, node)
    return node, edge_density.draw_edge_time(edge, float(state.mean.shape[1]), beta, survey.knots, stream)


@inline
def weigh_place(
    state: MutableTree, cut: int, node: int, time: float, beta: float, survey: Survey, log_total: float
) -> tuple[float, float]:
    """Log f^β and log q of one place: the edge above `node`, and a time."""
    edge = edge_at(state, survey, cut, node)
    log_mass = edge_mass(state, cut, node, beta, survey)
    log_f = beta * log_edge_density(edge, state.others, float(state.mean.shape[1]), time)
    log_shape = log_f if edge.high == math.inf else edge_density.interpolate(survey.knots, time)
    return log_f, survey.log_mass[node] - log_total + log_shape - log_mass
