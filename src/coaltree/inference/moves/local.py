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

A move consists of the search (`moves.search`), of what a place is worth, and of what else is drawn once it is known,
which is nothing where all rows are given.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints, SmallInts
from coaltree._compile import borrowing, inline, kernel
from coaltree.inference.moves.edge_density import Edge, Others, log_edge_likelihood
from coaltree.inference.moves.lineages import Lineages, insert, remove
from coaltree.inference.moves.mutable_tree import hang, other_child, take_out
from coaltree.inference.moves.regraft_proposal import choose_edge
from coaltree.inference.moves.search import N_ANCHORS, Functions, Search, compiled_search, find_anchors
from coaltree.model.messages import squared_distance
from coaltree.randomness import Stream, exponential, uniform

Nodes = SmallInts

# Edges around the old place.
N_AROUND = 16
# Share of moves around the old place.
AROUND = 0.2
ANCHORED, FOUND, ACCEPTED, ELSEWHERE, SURROUNDED, SURROUNDED_ACCEPTED, SCALES, SCALES_ACCEPTED = range(8)
PAIRS, PAIRS_ACCEPTED = 8, 9
N_COUNTS = 10


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


def compiled_regraft(search_with: Functions, settle: Any) -> Any:
    """Make the function that moves one subtree; it calls `settle(state, cut, node, time, stream)` at its place."""
    find_edges, weigh_found, draw_found, log_target, log_proposal = search_with

    @inline
    def regraft_near(state: Any, cut: int, most: int, starts: Ints, stream: Stream, counts: Ints) -> None:
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
        settle(state, cut, home, home_time, stream)
        insert(state.lineages, merge, home_time)
        hang(state, cut, home, home_time)

    return regraft_near


# ---- given all rows


@borrowing
def measure_edge(state: Local, cut: int, node: int) -> None:
    """Squared distances, and the number of columns, to the power of the likelihood."""
    search, mean = state.search, state.mean
    survey = search.survey
    rooted = state.time[state.parent[node]] == math.inf
    beta = state.heat[1]
    survey.eps_below[node] = beta * squared_distance(mean, cut, mean, node)
    survey.eps_above[node] = 0.0 if rooted else beta * squared_distance(mean, cut, state.above_mean, node)
    survey.eps_span[node] = 0.0 if rooted else beta * squared_distance(mean, node, state.above_mean, node)
    search.columns[node] = state.heat[0]


@borrowing
def log_place(state: Local, cut: int, node: int, edge: Edge, time: float) -> float:
    """Log density of the subtree's root at a time on an edge, without −Λ."""
    return log_edge_likelihood(edge, state.heat[0], time)


@borrowing
def _stay(state: Local, cut: int, node: int, time: float, stream: Stream) -> None:
    """Nothing else is drawn."""


SEARCH = compiled_search(measure_edge, log_place)
regraft_near = compiled_regraft(SEARCH, _stay)


@kernel
def regraft_nodes(state: Local, first: int, step: int, most: int, stream: Stream, counts: Ints) -> None:
    """Reattach the subtrees under nodes first, first + step, …, each in turn."""
    starts = np.empty(N_ANCHORS + 1, dtype=np.int64)
    for cut in range(first, state.variance.size, step):
        if cut != state.children[-1, 0]:
            regraft_near(state, cut, most, starts, stream, counts)
