r"""Regrafts that take a subtree's latent coordinates along: their common shift is integrated out, then drawn.

Given its leaves' coordinates a subtree S is pinned to where all of them say, also those of which only an interval is
seen. Within S the likelihood does not change if all its leaves are shifted by the same δ, so place and shift are moved
together: in a column whose cells let S be shifted by l ≤ δ ≤ u, a place at which the rest of the tree expects S's root
at c, with variance v, has in place of a normal density

    ∫ N(δ; c − m, v) 1[l ≤ δ ≤ u] dδ = Φ((u + m − c)/√v) − Φ((l + m − c)/√v),

and once the place is known, δ is drawn from the truncated normal. Weights and proposal depend on the coordinates of S
only up to a shift (l + m and u + m do not change with it), so the rule of `moves.local` holds for the sum over shifts,
at the old place as well, and whatever was decided δ is an exact draw given it.

In a column of which one leaf of S is seen exactly, l = u = 0, and the density is that of a number; of which none of the
leaves says anything, the weight is 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, inline, kernel
from coaltree.inference.moves.edge_density import Edge, Others, blend_distance
from coaltree.inference.moves.lineages import Lineages
from coaltree.inference.moves.local import Local, Nodes, compiled_regraft
from coaltree.inference.moves.regraft_proposal import edge_at
from coaltree.inference.moves.search import N_ANCHORS, Search, compiled_search, tell_from_above
from coaltree.model.truncated import log_between, roughly_between, standard_between
from coaltree.randomness import Stream

# A place is proposed as if cells narrower than this were numbers, in standard deviations of S's root.
NARROW = 1.5
BELOW, ABOVE, SPAN = range(3)  # rows of `exact`
LEAST, MOST = range(2)  # rows of `shift`
N_EXACT, N_NUMBERS, N_TOLD = range(3)  # of `numbers`


class Shifted(NamedTuple):
    """The state of a chain as in `moves.local.Local`, with the cells of its leaves."""

    children: Ints
    parent: Ints
    time: Floats
    mean: Floats
    variance: Floats
    above_mean: Floats
    above_variance: Floats
    others: Others
    lineages: Lineages
    near: Nodes
    search: Search
    heat: Floats
    log_joint: Floats
    least: Floats  # (n, d) lowest value of each coordinate of a leaf; equal to the highest where it is seen exactly
    most: Floats  # (n, d)
    shift: Floats  # (2, d) between which the cells of the cut subtree let it be shifted
    columns: Ints  # (d,) those in which it cannot be, those with a narrow cell, with any other bound, with none
    numbers: Ints  # (3,) how many are of the first kind, of the first two, and of the first three
    exact: Floats  # (3, 2n−1) as `eps_…` of `Edge`, over the columns of the first kind
    rough: Floats  # (3, 2n−1) over those of the first two
    leaves: Ints  # (2n−1,) room for a traversal


def make_shifted(state: Local) -> Shifted:
    """Room for moves of a chain's subtrees with their coordinates; it shares the chain's arrays."""
    n, d = state.near.shape[0], state.mean.shape[1]
    return Shifted(
        *state,
        least=np.empty((n, d)),
        most=np.empty((n, d)),
        shift=np.empty((2, d)),
        columns=np.empty(d, dtype=np.int64),
        numbers=np.zeros(3, dtype=np.int64),
        exact=np.empty((3, 2 * n - 1)),
        rough=np.empty((3, 2 * n - 1)),
        leaves=np.empty(2 * n - 1, dtype=np.int64),
    )


@borrowing
def confine(state: Shifted, cut: int) -> None:
    """Find between which bounds the subtree S under `cut` can be shifted, and sort the columns by them."""
    d = state.mean.shape[1]
    low, high = state.shift[LEAST], state.shift[MOST]
    for k in range(d):
        low[k], high[k] = -math.inf, math.inf
    waiting = 1
    state.leaves[0] = cut
    while waiting > 0:
        waiting -= 1
        node = state.leaves[waiting]
        if state.children[node, 0] >= 0:
            state.leaves[waiting] = state.children[node, 0]
            state.leaves[waiting + 1] = state.children[node, 1]
            waiting += 2
        else:
            for k in range(d):
                low[k] = max(low[k], state.least[node, k] - state.mean[node, k])
                high[k] = min(high[k], state.most[node, k] - state.mean[node, k])
    narrow = NARROW * math.sqrt(state.variance[cut])
    end, n_free = 0, 0
    for kind in range(3):
        for k in range(d):
            if kind == 0:  # a leaf is in its cell up to rounding
                low[k], high[k] = min(low[k], 0.0), max(high[k], 0.0)
            width = high[k] - low[k]
            if width == math.inf and low[k] == -math.inf and high[k] == math.inf:
                if kind == 0:
                    n_free += 1
                    state.columns[d - n_free] = k
            elif kind == (0 if width == 0.0 else 1 if width < narrow else 2):
                state.columns[end] = k
                end += 1
        state.numbers[kind] = end


@borrowing
def variance_at(edge: Edge, time: float) -> tuple[float, float]:
    """The share of what is above the edge in what is expected at a time on it, and v."""
    alpha = edge.below + time
    share = alpha / (edge.below + edge.above)
    return share, edge.offset + time + alpha * (1.0 - share)


@borrowing
def describe_cells(state: Shifted, cut: int, node: int) -> None:
    """Distances over the columns that are seen exactly, and over all, from the nearest points of their cells."""
    survey, mean, above = state.search.survey, state.mean, state.above_mean
    rooted = state.time[state.parent[node]] == math.inf
    eps_below = eps_above = eps_span = 0.0
    for j in range(state.numbers[N_TOLD]):
        if j == state.numbers[N_EXACT]:
            state.exact[BELOW, node], state.exact[ABOVE, node], state.exact[SPAN, node] = eps_below, eps_above, eps_span
        if j == state.numbers[N_NUMBERS]:
            state.rough[BELOW, node], state.rough[ABOVE, node], state.rough[SPAN, node] = eps_below, eps_above, eps_span
        k = state.columns[j]
        here, there, point = mean[node, k], above[node, k], mean[cut, k]
        if j >= state.numbers[N_EXACT]:
            low, high = point + state.shift[LEAST, k], point + state.shift[MOST, k]
            point = 0.5 * (low + high)
            if j >= state.numbers[N_NUMBERS]:
                point = min(max(here if rooted else 0.5 * (here + there), low), high)
                if low < here < high and low < there < high:
                    continue
        eps_below += (point - here) ** 2
        if not rooted:
            eps_above += (point - there) ** 2
            eps_span += (here - there) ** 2
    if state.numbers[N_EXACT] == state.numbers[N_TOLD]:
        state.exact[BELOW, node], state.exact[ABOVE, node], state.exact[SPAN, node] = eps_below, eps_above, eps_span
    if state.numbers[N_NUMBERS] == state.numbers[N_TOLD]:
        state.rough[BELOW, node], state.rough[ABOVE, node], state.rough[SPAN, node] = eps_below, eps_above, eps_span
    survey.eps_below[node], survey.eps_above[node], survey.eps_span[node] = eps_below, eps_above, eps_span
    state.search.columns[node] = max(float(state.numbers[N_NUMBERS]), 1.0)


@borrowing
def log_rough(state: Shifted, cut: int, node: int, edge: Edge, time: float) -> float:
    """About `log_place_of_cells`, up to a constant: narrow cells as numbers, tails of normals from a table."""
    share, v = variance_at(edge, time)
    if not v > 0.0:
        return -math.inf
    rough = state.rough
    eps = blend_distance(share, rough[BELOW, node], rough[ABOVE, node], rough[SPAN, node])
    total: float = -0.5 * (state.numbers[N_NUMBERS] * math.log(v) + eps / v)
    scale = 1.0 / math.sqrt(v)
    for j in range(state.numbers[N_NUMBERS], state.numbers[N_TOLD]):
        k = state.columns[j]
        here = state.mean[node, k]
        off = here + share * (state.above_mean[node, k] - here) - state.mean[cut, k]
        total += roughly_between((state.shift[LEAST, k] - off) * scale, (state.shift[MOST, k] - off) * scale)
    return total


@borrowing
def log_place_of_cells(state: Shifted, cut: int, node: int, edge: Edge, time: float) -> float:
    """Log density of the subtree's root at a time on an edge, the shift integrated out, without −Λ."""
    share, v = variance_at(edge, time)
    if not v > 0.0:
        return -math.inf
    exact = state.exact
    eps = blend_distance(share, exact[BELOW, node], exact[ABOVE, node], exact[SPAN, node])
    total: float = -0.5 * (state.numbers[N_EXACT] * math.log(v) + eps / v)
    scale = 1.0 / math.sqrt(v)
    for j in range(state.numbers[N_EXACT], state.numbers[N_TOLD]):
        k = state.columns[j]
        here = state.mean[node, k]
        off = here + share * (state.above_mean[node, k] - here) - state.mean[cut, k]
        total += log_between((state.shift[LEAST, k] - off) * scale, (state.shift[MOST, k] - off) * scale)
    return total


@inline
def draw_shift(state: Shifted, cut: int, node: int, time: float, stream: Stream) -> None:
    """Draw the shift of the subtree at its place, and shift it."""
    tell_from_above(state, node)
    share, v = variance_at(edge_at(state, state.search.survey, cut, node), time)
    spread = math.sqrt(v)
    first = state.numbers[N_EXACT]
    shift = state.shift[LEAST]
    for j in range(first, state.columns.size):
        k = state.columns[j]
        here = state.mean[node, k]
        off = here + share * (state.above_mean[node, k] - here) - state.mean[cut, k]
        low, high = state.shift[LEAST, k], state.shift[MOST, k]
        drawn = off + spread * standard_between((low - off) / spread, (high - off) / spread, stream)
        shift[k] = min(max(drawn, low), high)
    waiting = 1
    state.leaves[0] = cut
    while waiting > 0:
        waiting -= 1
        part = state.leaves[waiting]
        for j in range(first, state.columns.size):
            k = state.columns[j]
            state.mean[part, k] += shift[k]
        if state.children[part, 0] >= 0:
            state.leaves[waiting] = state.children[part, 0]
            state.leaves[waiting + 1] = state.children[part, 1]
            waiting += 2
        else:
            for j in range(first, state.columns.size):
                k = state.columns[j]
                state.mean[part, k] = min(max(state.mean[part, k], state.least[part, k]), state.most[part, k])


SEARCH = compiled_search(describe_cells, log_rough, log_place_of_cells)
regraft_shifted = compiled_regraft(SEARCH, draw_shift)


@kernel
def regraft_with_rows(state: Shifted, first: int, step: int, most: int, stream: Stream, counts: Ints) -> None:
    """Reattach the subtrees under nodes first, first + step, …, each in turn, with their coordinates."""
    starts = np.empty(N_ANCHORS + 1, dtype=np.int64)
    for cut in range(first, state.variance.size, step):
        if cut != state.children[-1, 0]:
            confine(state, cut)
            regraft_shifted(state, cut, most, starts, stream, counts)
