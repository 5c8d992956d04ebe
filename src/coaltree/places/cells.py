r"""What the cells of a row say about its coordinates, and how probable that is at a place in a tree.

A row that joins an edge at time t has coordinates z ~ N(μ(t), v(t) Φ) there. Some are observed exactly; others are
known to lie in intervals, and those of a categorical column to give its level the largest utility. Exact ones,
whitened, enter by their squared distance alone, as those of a table of numbers do (`inference.moves.edge_density`). The
rest is y = C z, with C such that given the exact ones y ~ N(C μ(t), v(t) F Fᵀ).

If columns are independent the probability of y is a product over them. Utilities have the covariance v (I − 1/L);
adding a common normal of variance v/L, which changes no order, makes them independent, so the probability of a level is
a one-dimensional integral. Otherwise, and where coordinates are to be drawn, the observation is that differences of
utilities are positive, and the probability is a product along F, each given a draw within those before (Geweke,
Hajivassiliou and Keane): unbiased.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, inline
from coaltree.model.columns import Columns
from coaltree.model.kinds.circular import log_wedge
from coaltree.model.truncated import log_between, log_largest, standard_between
from coaltree.randomness import Stream


class Observation(NamedTuple):
    """What is observed of one row."""

    exact: Floats  # (q, D): maps coordinates to whitened exact ones
    value: Floats  # (q,)
    log_scale: float  # log density of the exact ones is this much less than that of the whitened ones
    rest: Floats  # (K, D), C: intervals, then utilities, or what is unobserved and only drawn
    low: Floats  # (K,)
    high: Floats  # (K,)
    n_inside: int  # the number of intervals
    # (K,): where positive, |y − low| is at most this times y − low of the row before, which has it with a minus
    slope: Floats
    scale: Floats  # (K,): standard deviations of y over √v
    blocks: Ints  # (B, 3): where utilities of a column begin and end, and the observed level
    factor: Floats  # (K, K): F, or empty if columns are independent


class Cells(NamedTuple):
    """Cells of one row in one tree; messages are filled in for the edges that are looked at."""

    maps: Floats  # (K, D): C
    below: Floats  # (edges, K): C times messages from below
    above: Floats  # (edges, K)
    low: Floats  # (K,), and as in `Observation`
    high: Floats
    n_inside: int
    slope: Floats
    scale: Floats
    blocks: Ints
    factor: Floats
    state: Floats  # (K,): means of y, or standard normals that give such y
    stream: Stream


def observe_cells(
    columns: Columns, cells: Floats, cuts: Floats, phi: Floats, recorded: bool = True, draws: bool = False
) -> Observation:
    """What the cells (J,) of a row say about its coordinates.

    With `recorded`, exact values on a grid are treated as cells. If coordinates are to be drawn, all are included.
    """
    eye, independent = np.eye(columns.d), phi.ndim == 1 and not draws
    exact, inside, rest = list[Floats](), list[tuple[Floats, float, float]](), list[Floats]()
    values, blocks, slopes = list[float](), list[tuple[int, int, int]](), dict[int, float]()
    for j, model in enumerate(columns.models):
        here = columns.coordinates(j)
        if math.isnan(cells[j]):
            if draws:
                rest += list(eye[here])
            continue
        seen = model.seen(float(cells[j]), cuts[columns.cuts_of(j)], recorded, independent)
        exact += [row @ eye[here] for row, _ in seen.exact]
        values += [value for _, value in seen.exact]
        inside += [(row @ eye[here], low, high) for row, low, high in seen.inside]
        if seen.wedge is not None:
            (along, across), slope = seen.wedge[0] @ eye[here], seen.wedge[1]
            slopes |= {len(inside): -slope, len(inside) + 1: slope}
            inside += [(along, 0.0, math.inf), (across, 0.0, 0.0)]
        if seen.largest is not None:
            utilities, level = seen.largest
            blocks.append((len(rest), len(rest) + len(utilities), level))
            rest += list(utilities @ eye[here])
    q, n_inside = len(exact), len(inside)
    maps = np.array([*exact, *(gap for gap, _, _ in inside), *rest]).reshape(-1, columns.d)
    low, high = np.full((2, len(maps) - q), [[-np.inf], [np.inf]])
    slope_of = np.array([slopes.get(i, 0.0) for i in range(len(low))])
    low[:n_inside], high[:n_inside] = [a for _, a, _ in inside], [b for _, _, b in inside]
    where = np.array(blocks, dtype=np.int64).reshape(-1, 3) + np.array([n_inside, n_inside, 0])
    if independent:
        scale = np.sqrt((maps * maps) @ phi)
        own = scale[:q]
        white, value, factor = maps[:q] / own[:, None], np.array(values) / own, np.empty((0, 0))
        return Observation(
            white, value, float(np.log(own).sum()), maps[q:], low, high, n_inside, slope_of, scale[q:], where, factor
        )
    root = np.linalg.cholesky(maps @ (np.diag(phi) if phi.ndim == 1 else phi) @ maps.T)
    white, value = (solve_triangular(root[:q, :q], each, lower=True) for each in (maps[:q], np.array(values)))
    # Given the exact ones y is shifted by their regression.
    across, factor = root[q:, :q], np.ascontiguousarray(root[q:, q:])
    shift, log_scale = across @ value, float(np.log(np.diag(root)[:q]).sum())
    scale = np.sqrt((factor * factor).sum(axis=1))
    low, high, rest = low - shift, high - shift, maps[q:] - across @ white
    return Observation(white, value, log_scale, rest, low, high, n_inside, slope_of, scale, where, factor)


def row_cells(seen: Observation, mean: Floats, above_mean: Floats, stream: Stream) -> Cells:
    """Cells of a row on edges that have these messages, (edges, D)."""
    maps, state = np.ascontiguousarray(seen.rest), np.empty(len(seen.low))
    below, above = mean @ maps.T, above_mean @ maps.T
    shape = (seen.low, seen.high, seen.n_inside, seen.slope, seen.scale, seen.blocks, seen.factor)
    return Cells(maps, below, above, *shape, state, stream)


def no_cells(d: int) -> Cells:
    """Make cells for a row of d columns all of whose values are exact or missing."""
    none, nothing = np.empty((0, 0)), np.empty(0)
    blocks, stream = np.empty((0, 3), dtype=np.int64), np.empty(0, dtype=np.uint64)
    return Cells(np.empty((0, d)), none, none, nothing, nothing, 0, nothing, nothing, blocks, none, nothing, stream)


@inline
def cells_with_room(cells: Cells, n_edges: int) -> Cells:
    """Return the same with room for messages on some edges."""
    k = cells.low.size
    below, above = np.empty((n_edges, k)), np.empty((n_edges, k))
    return Cells(
        cells.maps,
        below,
        above,
        cells.low,
        cells.high,
        cells.n_inside,
        cells.slope,
        cells.scale,
        cells.blocks,
        cells.factor,
        cells.state,
        cells.stream,
    )


@borrowing
def look_from(cells: Cells, mean: Floats, i: int, out: Floats, edge: int) -> None:
    """Fill in C times a message, row i of `mean`, for an edge: `out` is `below` or `above`."""
    for k in range(cells.maps.shape[0]):
        along = 0.0
        for column in range(cells.maps.shape[1]):
            along += cells.maps[k, column] * mean[i, column]
        out[edge, k] = along


@borrowing
def log_cells(cells: Cells, node: int, share: float, v: float) -> float:
    """Log probability of the cells where the message from above the node has this share and a row the variance v."""
    if not v > 0.0:
        return -math.inf
    total, spread, state = 0.0, math.sqrt(v), cells.state
    if cells.factor.size == 0:
        for i in range(state.size):
            state[i] = _mean(cells, node, share, i)
        for i in range(cells.n_inside):
            own = spread * cells.scale[i]
            if cells.slope[i] == 0.0:
                total += log_between((cells.low[i] - state[i]) / own, (cells.high[i] - state[i]) / own)
            elif cells.slope[i] > 0.0:
                along, across = state[i - 1] - cells.low[i - 1], state[i] - cells.low[i]
                total += log_wedge(along / own, across / own, math.atan(cells.slope[i]))
        for b in range(len(cells.blocks)):
            first, last, level = cells.blocks[b]
            total += log_largest(state[first:last], level, spread)
        return total
    along = 0.0
    for i in range(state.size):
        centre = _mean(cells, node, share, i)
        for j in range(i):
            centre += spread * cells.factor[i, j] * state[j]
        own = spread * cells.factor[i, i]
        reach = max(cells.slope[i], 0.0) * along
        low, high = (cells.low[i] - reach - centre) / own, (cells.high[i] + reach - centre) / own
        if i < cells.n_inside:
            total += log_between(low, high)
            if total == -math.inf:
                return total
        state[i] = standard_between(low, high, cells.stream)
        along = centre + own * state[i] - cells.low[i] if cells.slope[i] < 0.0 else 0.0
    return total


@borrowing
def _mean(cells: Cells, node: int, share: float, i: int) -> float:
    above = share * cells.above[node, i] if share > 0.0 else 0.0
    mean: float = (1.0 - share) * cells.below[node, i] + above
    return mean


@inline
def place_cells(cells: Cells, node: int, share: float, v: float, out: Floats) -> None:
    """y from the standard normals that `log_cells` left, out (K,)."""
    spread = math.sqrt(v)
    for i in range(out.size):
        out[i] = _mean(cells, node, share, i)
        for j in range(i + 1):
            out[i] += spread * cells.factor[i, j] * cells.state[j]


@borrowing
def cells_distance(cells: Cells, node: int, first: float, last: float) -> float:
    """Squared distance δ² such that along an edge the cells have a probability of at most exp(−δ²/2v).

    Means are between those at the two ends, where the message from above has the shares `first` and `last`. An interval
    that is δ deviations from the mean has at most exp(−δ²/2). Independent columns multiply; of others one counts.
    """
    total = 0.0
    for i in range(cells.n_inside):
        start, end = _mean(cells, node, first, i), _mean(cells, node, last, i)
        gap = max(cells.low[i] - max(start, end), min(start, end) - cells.high[i], 0.0) / cells.scale[i]
        if cells.slope[i] > 0.0:
            gap = _beside(cells, node, first, last, i) if cells.factor.size == 0 else 0.0
        total = total + gap * gap if cells.factor.size == 0 else max(total, gap * gap)
    for b in range(len(cells.blocks)):
        begin, stop, level = cells.blocks[b, 0], cells.blocks[b, 1], cells.blocks[b, 2]
        own_start, own_end = _mean(cells, node, first, begin + level), _mean(cells, node, last, begin + level)
        most = 0.0
        for i in range(begin, stop):
            most = max(most, min(_mean(cells, node, first, i) - own_start, _mean(cells, node, last, i) - own_end))
        # The difference of two utilities has the variance 2v.
        total += 0.5 * most * most
    return total


@borrowing
def _beside(cells: Cells, node: int, first: float, last: float, i: int) -> float:
    """How far beside a wedge the means are at least, in deviations, over what the row before says of it.

    A wedge lies within three half-planes: the one in front of its apex, which is that row, and those of its two sides.
    """
    cos = 1.0 / math.sqrt(1.0 + cells.slope[i] ** 2)
    sin, ahead, most = cells.slope[i] * cos, -math.inf, 0.0
    for side in (-1.0, 1.0):
        beside = math.inf
        for share in (first, last):
            along = _mean(cells, node, share, i - 1) - cells.low[i - 1]
            across = _mean(cells, node, share, i) - cells.low[i]
            beside, ahead = min(beside, side * cos * across - sin * along), max(ahead, along)
        most = max(most, beside)
    behind = max(-ahead, 0.0)
    gap: float = math.sqrt(max(most * most - behind * behind, 0.0)) / cells.scale[i]
    return gap
