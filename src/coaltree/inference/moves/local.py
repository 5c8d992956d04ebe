r"""Regrafts that consider only near edges: the cost of a move depends on its neighbourhood, not on n.

A subtree S is cut off and reattached to the rest of the tree T, as in `moves.whole_tree`, but not all edges of T are
weighed. A search finds edges best first: the best edge so far yields its parent's, its sibling's and its children's
edges, until there are enough. There are two ways to start, and each leaves the posterior invariant:

**Anchored.** A leaf of S is drawn, and rows near it that are not in S, from a fixed list. The search starts at their
edges in T. All of this depends only on T and S, not on where S was attached, so it is the same for the reverse move:

    accept with probability min(1, f(new) q(old) / f(old) q(new)),   q(old) = 0 if the old edge was not found.

**Around the old place.** The search starts there. The reverse move would start at the new place, so that is searched as
well, and has its own q.

f is exact: its Λ is that of all merges (`moves.lineages`). The proposal q takes Λ from a clock that is held fixed.

Messages from above are computed on the way down from the root to where a search starts, and at each edge it finds:
O(d) times the depth of the tree and the number of edges.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints, SmallInts
from coaltree._compile import borrowing, inline, kernel
from coaltree.inference.heap import pop, push
from coaltree.inference.moves import edge_density
from coaltree.inference.moves.edge_density import (
    Others,
    interpolate,
    lay_knots,
    log_density,
    log_knot_mass,
    log_likelihood,
    root_excess,
)
from coaltree.inference.moves.lineages import Lineages, exposure, insert, remove
from coaltree.inference.moves.mutable_tree import hang, look_above, other_child, take_out
from coaltree.inference.moves.regraft_proposal import NEAR, ROUGHLY, Survey, choose_edge, edge_at, log_sum_of_masses
from coaltree.model import gig
from coaltree.model.messages import squared_distance
from coaltree.randomness import Stream, exponential, uniform

Nodes = SmallInts

# Rows at which an anchored search starts, and how many leaves of a large subtree are tried for rows outside it.
N_ANCHORS = 3
N_TRIES = 12
# Edges around the old place.
N_AROUND = 16
# Share of moves around the old place.
AROUND = 0.2
ANCHORED, FOUND, ACCEPTED, ELSEWHERE, SURROUNDED, SURROUNDED_ACCEPTED, SCALES, SCALES_ACCEPTED = range(8)
PAIRS, PAIRS_ACCEPTED = 8, 9
N_COUNTS = 10


class Search(NamedTuple):
    """Room for a search, and what it has found."""

    survey: Survey
    stamp: Ints  # (2n,) the move in which a node's message from above was last updated
    found: Ints  # (2n,) the search in which its edge was last found
    now: Ints  # (2,): this move, this search
    heap: Ints  # (room,) edges found but not yet expanded, best first
    path: Ints  # (2n,) a path upwards


class Local(NamedTuple):
    """The state of a Markov chain on trees over n whitened rows; the first seven as in `mutable_tree.Chain`."""

    children: Ints  # (2n, 2), −1 for none
    parent: Ints  # (2n,)
    time: Floats  # (2n,)
    mean: Floats  # (2n−1, d)
    variance: Floats  # (2n−1,)
    above_mean: Floats  # (2n−1, d)
    above_variance: Floats  # (2n−1,)
    others: Others  # the clock
    lineages: Lineages
    near: Nodes  # (n, k) near rows of every row
    search: Search
    heat: Floats  # (2,): βd and β, where the likelihood is raised to the power β
    log_joint: Floats  # (1,), up to −½(n−1) log|Φ|; the likelihood to the power β


def make_search(n: int) -> Search:
    """Room for searches in trees of n leaves."""
    size = 2 * n - 1
    below, above, span, peak, width, mass = np.empty((6, size))
    knots = np.empty((2, edge_density.N_KNOTS))
    survey = Survey(np.empty(size, dtype=np.int64), below, above, span, peak, width, mass, knots)
    stamps = np.zeros((2, 2 * n), dtype=np.int64)
    now = np.zeros(2, dtype=np.int64)
    return Search(survey, stamps[0], stamps[1], now, np.empty(size, np.int64), np.empty(2 * n, np.int64))


# ---- the search


@borrowing
def tell_from_above(state: Local, node: int) -> None:
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
def weigh(state: Local, cut: int, node: int) -> None:
    """Describe the edge above a node: its three distances, the peak of f along it, and log f there."""
    survey, mean = state.search.survey, state.mean
    tell_from_above(state, node)
    rooted = state.time[state.parent[node]] == math.inf
    beta = state.heat[1]
    survey.eps_below[node] = beta * squared_distance(mean, cut, mean, node)
    survey.eps_above[node] = 0.0 if rooted else beta * squared_distance(mean, cut, state.above_mean, node)
    survey.eps_span[node] = 0.0 if rooted else beta * squared_distance(mean, node, state.above_mean, node)
    survey.log_mass[node] = -math.inf
    edge = edge_at(state, survey, cut, node)
    if edge.low < edge.high:
        d = state.heat[0]
        survey.peak[node], survey.width[node] = edge_density.find_peak(edge, state.others, d, ROUGHLY)
        survey.log_mass[node] = log_density(edge, state.others, d, survey.peak[node])


@borrowing
def look_at(state: Local, cut: int, node: int, n_edges: int, waiting: int) -> tuple[int, int]:
    """Add the edge above a node, unless it was found before or S cannot be there; numbers found and waiting."""
    search = state.search
    if search.found[node] == search.now[1] or state.time[state.parent[node]] <= state.time[cut]:
        return n_edges, waiting
    search.found[node] = search.now[1]
    weigh(state, cut, node)
    search.survey.edge[n_edges] = node
    return n_edges + 1, push(search.heap, search.survey.log_mass, waiting, node)


@borrowing
def climb_to(state: Local, cut: int, node: int) -> int:
    """The ancestor of a node, or itself, to whose edge S can be attached."""
    while state.time[state.parent[node]] <= state.time[cut]:
        node = state.parent[node]
    return node


@borrowing
def find_edges(state: Local, cut: int, starts: Ints, n_starts: int, most: int) -> int:
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
def is_below(state: Local, node: int, cut: int) -> bool:
    """Whether a node is in the subtree S under `cut`."""
    while node != cut and state.time[node] <= state.time[cut] and node < state.parent.size - 1:
        node = state.parent[node]
    return node == cut


@borrowing
def is_in(state: Local, row: int, one: int, two: int) -> bool:
    """Whether a row is in either of two subtrees, which may be the same."""
    return is_below(state, row, one) or (one != two and is_below(state, row, two))


@borrowing
def find_anchors(state: Local, cut: int, away: int, stream: Stream, starts: Ints) -> int:
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


# ---- the proposal


@borrowing
def mass_found(state: Local, cut: int, node: int) -> float:
    """Approximate log mass of f on an edge; below the root by knots, which are left in the survey."""
    survey, d = state.search.survey, state.heat[0]
    edge = edge_at(state, survey, cut, node)
    if edge.high == math.inf:
        eps, r = root_excess(edge)
        return gig.log_local_laplace(d, eps, 1.0, r) - math.log(2.0) - edge_density.exposure(state.others, edge.low)[0]
    lay_knots(edge, state.others, d, 1.0, survey.peak[node], survey.width[node], survey.knots)
    return log_knot_mass(survey.knots)


@borrowing
def weigh_found(state: Local, cut: int, n_edges: int) -> float:
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
def draw_found(state: Local, cut: int, node: int, stream: Stream) -> float:
    """A time on an edge from the proposal."""
    survey = state.search.survey
    mass_found(state, cut, node)
    return edge_density.draw_time(edge_at(state, survey, cut, node), state.heat[0], 1.0, survey.knots, stream)


@borrowing
def log_target(state: Local, cut: int, node: int, time: float) -> float:
    """Log f of a place, exactly."""
    edge = edge_at(state, state.search.survey, cut, node)
    return log_likelihood(edge, state.heat[0], time) - exposure(state.lineages, state.time, time)


@inline
def log_proposal(state: Local, cut: int, node: int, time: float, log_total: float) -> float:
    """Log q of a place on an edge that was found."""
    survey, d = state.search.survey, state.heat[0]
    log_mass = mass_found(state, cut, node)
    edge = edge_at(state, survey, cut, node)
    if edge.high == math.inf:
        eps, r = root_excess(edge)
        log_shape = log_likelihood(edge, d, time) - (time - edge.low) - gig.log_local(d, eps, 1.0, r) + math.log(2.0)
    else:
        log_shape = interpolate(survey.knots, time) - log_mass
    log_edge: float = survey.log_mass[node] - log_total
    return log_edge + log_shape


@inline
def regraft_near(state: Local, cut: int, most: int, starts: Ints, stream: Stream, counts: Ints) -> None:
    """Cut off the subtree under `cut`, not the root, and reattach it to a near edge."""
    merge = state.parent[cut]
    home, home_time = other_child(state, cut), state.time[merge]
    remove(state.lineages, merge, home_time)
    take_out(state, cut)
    search = state.search
    search.now[0] += 1
    search.stamp[state.parent.size - 1] = search.now[0]

    n_starts = 0 if uniform(stream) < AROUND else find_anchors(state, cut, cut, stream, starts)
    anchored = n_starts > 0
    if not anchored:
        starts[0], n_starts, most = home, 1, N_AROUND
    n_edges = find_edges(state, cut, starts, n_starts, most)
    known = search.found[home] == search.now[1]
    counts[ANCHORED if anchored else SURROUNDED] += 1
    counts[FOUND] += anchored and known

    accepted = False
    if known:
        log_total = weigh_found(state, cut, n_edges)
        node = choose_edge(search.survey, n_edges, log_total, stream)
        time = draw_found(state, cut, node, stream)
        new_f = log_target(state, cut, node, time)
        new_q = log_proposal(state, cut, node, time, log_total)
        if not anchored and node != home:
            starts[0] = node
            n_edges = find_edges(state, cut, starts, 1, most)
            known = search.found[home] == search.now[1]
            log_total = weigh_found(state, cut, n_edges)
        if search.survey.log_mass[home] == -math.inf:
            # An edge of zero length has no density: the chain was put there and leaves at once.
            accepted = known
            old_f = -math.inf
        elif known:
            old_f = log_target(state, cut, home, home_time)
            old_q = log_proposal(state, cut, home, home_time, log_total)
            accepted = -exponential(stream) < (new_f - new_q) - (old_f - old_q)
        if accepted:
            state.log_joint[0] += new_f - old_f
            counts[ACCEPTED if anchored else SURROUNDED_ACCEPTED] += 1
            counts[ELSEWHERE] += node != home
            home, home_time = node, time
    insert(state.lineages, merge, home_time)
    hang(state, cut, home, home_time)


@kernel
def regraft_nodes(state: Local, first: int, step: int, most: int, stream: Stream, counts: Ints) -> None:
    """Reattach the subtrees under nodes first, first + step, …, each in turn."""
    starts = np.empty(N_ANCHORS + 1, dtype=np.int64)
    for cut in range(first, state.variance.size, step):
        if cut != state.children[-1, 0]:
            regraft_near(state, cut, most, starts, stream, counts)
