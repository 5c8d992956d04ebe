r"""Regrafts of two subtrees at once, where one alone cannot move: with many columns, times and places fix each other.

With d columns a merge time is known to a relative precision of about √(2/d). Attaching S below a merge that is too
young for it costs tens of nats, and so does leaving a merge that was moved to make room for it, although a tree and
times that change together may be as good as before. So S and a second subtree F near it are both cut off, which leaves
T without both their merges; S is attached to T, and F to the result.

    π(T + S + F) ∝ f(S's place | T) f(F's place | T + S),

and each place is proposed from a search that starts at rows near the subtree (`moves.search`), so the reverse move
needs only one more search, for F's old place in T with S where it was. S is not put back on its old edge, so

    q(edge) = mass(edge) / (sum of all masses − mass(old edge)).

S and F are chosen by their contents, never by where they are attached: some steps up from a row, and from a row near S.
F must not contain S. Once S is attached to T this cannot occur, so it can be ignored in both directions.
"""

from __future__ import annotations

import math

import numpy as np

from coaltree._arrays import Ints
from coaltree._compile import borrowing, inline, kernel
from coaltree.inference.moves.lineages import insert, remove
from coaltree.inference.moves.local import PAIRS, PAIRS_ACCEPTED, SEARCH, Local
from coaltree.inference.moves.mutable_tree import hang, other_child, take_out
from coaltree.inference.moves.regraft_proposal import Survey, choose_edge, log_sum_of_masses
from coaltree.inference.moves.search import N_ANCHORS, find_anchors, is_below
from coaltree.randomness import Stream, exponential, uniform

# Probability of a further step up from a row to the subtree that is cut off.
FURTHER = 0.5
find_edges, weigh_found, draw_found, log_target, log_proposal = SEARCH


@borrowing
def climb(state: Local, node: int, stream: Stream) -> int:
    """Some steps up from a leaf; the origin if that is above the root."""
    while node < state.variance.size and uniform(stream) < FURTHER:
        node = state.parent[node]
    return node


@borrowing
def cut_off(state: Local, cut: int) -> None:
    """Remove a subtree and its merge."""
    merge = state.parent[cut]
    remove(state.lineages, merge, state.time[merge])
    take_out(state, cut)


@borrowing
def put_on(state: Local, cut: int, node: int, time: float) -> None:
    """Attach a cut-off subtree, and its merge, to the edge above `node`."""
    insert(state.lineages, state.parent[cut], time)
    hang(state, cut, node, time)


@borrowing
def search_near(state: Local, cut: int, away: int, most: int, starts: Ints, stream: Stream) -> int:
    """Find edges for S from rows near it, where `away` is cut off as well (or is S); their number."""
    search = state.search
    search.now[0] += 1
    search.stamp[state.parent.size - 1] = search.now[0]
    n_edges: int = find_edges(state, cut, starts, find_anchors(state, cut, away, stream, starts), most)
    return n_edges


@borrowing
def is_found(state: Local, node: int) -> bool:
    """Whether the search found the edge above a node, and S can be there."""
    search = state.search
    return bool(search.found[node] == search.now[1] and search.survey.log_mass[node] > -math.inf)


@inline
def choose_another(survey: Survey, n_edges: int, skipped: int, log_others: float, stream: Stream) -> int:
    """Draw an edge by its mass, excluding the skipped one."""
    log_mass = survey.log_mass[skipped]
    survey.log_mass[skipped] = -math.inf
    node = choose_edge(survey, n_edges, log_others, stream)
    survey.log_mass[skipped] = log_mass
    return node


@inline
def hang_two(state: Local, one: int, two: int, most: int, starts: Ints, stream: Stream) -> bool:
    """Cut off S under `one` and F under `two`, neither in the other, and reattach them; whether they have moved."""
    survey = state.search.survey
    place_2, time_2 = other_child(state, two), state.time[state.parent[two]]
    cut_off(state, two)
    n_edges = search_near(state, two, two, most, starts, stream)
    if one == state.children[-1, 0] or not is_found(state, place_2):
        put_on(state, two, place_2, time_2)
        return False
    log_total = weigh_found(state, two, n_edges)
    old_f = log_target(state, two, place_2, time_2)
    log_q = log_proposal(state, two, place_2, time_2, log_total)

    place_1, time_1 = other_child(state, one), state.time[state.parent[one]]
    cut_off(state, one)
    n_edges = search_near(state, one, two, most, starts, stream)
    log_others = -math.inf
    if is_found(state, place_1):
        log_total = weigh_found(state, one, n_edges)
        log_others = log_sum_of_masses(survey, n_edges, place_1)
    if log_others > -math.inf:
        # While F is removed there is, at any time, one lineage fewer for S to meet than Λ counts.
        old_f += log_target(state, one, place_1, time_1) + time_1
        log_q += log_proposal(state, one, place_1, time_1, log_total)
        node = choose_another(survey, n_edges, place_1, log_others, stream)
        time = draw_found(state, one, node, stream)
        new_f = log_target(state, one, node, time) + time
        log_q += log_others - log_sum_of_masses(survey, n_edges, node)
        log_q -= log_proposal(state, one, node, time, log_total)

        put_on(state, one, node, time)
        n_edges = search_near(state, two, two, most, starts, stream)
        log_total = weigh_found(state, two, n_edges)
        if log_total > -math.inf:
            node = choose_edge(survey, n_edges, log_total, stream)
            time = draw_found(state, two, node, stream)
            new_f += log_target(state, two, node, time)
            log_q -= log_proposal(state, two, node, time, log_total)
            if -exponential(stream) < new_f - old_f + log_q:
                state.log_joint[0] += new_f - old_f
                put_on(state, two, node, time)
                return True
        cut_off(state, one)
    put_on(state, one, place_1, time_1)
    put_on(state, two, place_2, time_2)
    return False


@kernel
def regraft_two(state: Local, one: int, two: int, most: int, stream: Stream, counts: Ints) -> None:
    """Regraft the subtrees under two nodes together, if neither is the root or in the other."""
    root = state.children[-1, 0]
    if one == root or two == root or is_below(state, two, one) or is_below(state, one, two):
        return
    starts = np.empty(N_ANCHORS + 1, dtype=np.int64)
    counts[PAIRS] += 1
    counts[PAIRS_ACCEPTED] += hang_two(state, one, two, most, starts, stream)


@kernel
def regraft_pairs(state: Local, n_pairs: int, most: int, stream: Stream, counts: Ints) -> None:
    """Regraft the given number of pairs of near subtrees."""
    n, origin = state.near.shape[0], state.parent.size - 1
    starts = np.empty(N_ANCHORS + 1, dtype=np.int64)
    for _ in range(n_pairs):
        one = climb(state, int(uniform(stream) * n), stream)
        if one < origin:
            n_near = find_anchors(state, one, one, stream, starts)
            two = climb(state, starts[int(uniform(stream) * n_near)], stream) if n_near > 0 else origin
            if two < origin:
                regraft_two(state, one, two, most, stream, counts)
