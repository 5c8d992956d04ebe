"""The mass of one edge: the density of a row's place integrated along it, with a bound that is cheap.

Gauss–Legendre is used on intervals that double away from the density's peak, as far as a bound shows that something is
left. The cells of a row (`places.cells`) multiply the density of its exact values by their probability.
"""

from __future__ import annotations

import math

import numpy as np

from coaltree._arrays import Floats
from coaltree._compile import borrowing
from coaltree.inference.moves.edge_density import (
    Edge,
    Others,
    blend_distance,
    expectation,
    exposure,
    find_peak,
    log_edge_density,
    log_edge_likelihood,
    n_until,
)
from coaltree.places.cells import Cells, cells_distance, log_cells

NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
# Probabilities of cells take long to evaluate and change slowly: fewer do. Along an edge on which nothing changes by
# more than FLAT still fewer do.
CELL_NODES, CELL_WEIGHTS = np.polynomial.legendre.leggauss(5)
FLAT_NODES, FLAT_WEIGHTS = np.polynomial.legendre.leggauss(3)
FLAT = 0.05
# The intervals start from the peak, which need not be exact.
ROUGHLY = 0.1
# Room for sums: the mass, its first moment, and the log of their unit.
_MASS, _MOMENT, _LOG_UNIT = range(3)
N_SUMS = 3


@borrowing
def add_logs(x: float, y: float) -> float:
    """log(e^x + e^y), x finite."""
    larger, smaller = max(x, y), min(x, y)
    return larger + math.log1p(math.exp(smaller - larger))


@borrowing
def share_above(edge: Edge, time: float) -> float:
    """ω: the share that the message from above has in the mean at a time; 0 above the root."""
    return (edge.below + time) / (edge.below + edge.above)


@borrowing
def log_highest(eps: float, d: float, v_low: float, v_high: float) -> float:
    """Largest log v^(−d/2) exp(−ε/2v) between two variances."""
    if d == 0.0:
        return -0.5 * eps / v_high if eps > 0.0 else 0.0
    v = min(max(eps / d, v_low), v_high)
    return -0.5 * (d * math.log(v) + eps / v) if v > 0.0 else math.inf


@borrowing
def log_bound(edge: Edge, cells: Cells, node: int, d: float, low: float, high: float) -> float:
    """Bound on log v^(−d/2) exp(−ε/2v) P(cells) for times in [low, high]: v grows with time and ε is convex in it."""
    first, last = share_above(edge, low), share_above(edge, high)
    best = first
    if edge.eps_span > 0.0:
        best = 0.5 * (1.0 + (edge.eps_below - edge.eps_above) / edge.eps_span)
        best = min(max(best, first), last)
    elif edge.eps_above < edge.eps_below:
        best = last
    eps = blend_distance(best, edge.eps_below, edge.eps_above, edge.eps_span)
    if cells.low.size > 0:
        eps += cells_distance(cells, node, first, last)
    v_low = edge.offset + low + (edge.below + low) * (1.0 - first)
    v_high = edge.offset + high + (edge.below + high) * (1.0 - last)
    return log_highest(eps, d, v_low, v_high)


@borrowing
def _add_interval(
    edge: Edge,
    cells: Cells,
    node: int,
    merges: Others,
    d: float,
    low: float,
    high: float,
    nodes: Floats,
    weights: Floats,
    state_sums: Floats,
) -> None:
    """Add ∫ f and ∫ f t over [low, high]."""
    half, middle = 0.5 * (high - low), 0.5 * (high + low)
    done = n_until(merges.times, low)
    for k in range(nodes.size):
        time = middle + half * nodes[k]
        while done < merges.times.size and merges.times[done] <= time:
            done += 1
        since = time - merges.times[done - 1] if done > 0 else time
        value = log_edge_likelihood(edge, d, time) - merges.exposure[done] - merges.rate[done] * since
        if cells.low.size > 0 and value > -math.inf:
            value += log_cells(cells, node, share_above(edge, time), expectation(edge, time)[0])
        if value > state_sums[_LOG_UNIT]:
            fall = math.exp(state_sums[_LOG_UNIT] - value)
            state_sums[_MASS] *= fall
            state_sums[_MOMENT] *= fall
            state_sums[_LOG_UNIT] = value
        if value > -math.inf:
            mass = half * weights[k] * math.exp(value - state_sums[_LOG_UNIT])
            state_sums[_MASS] += mass
            state_sums[_MOMENT] += mass * time


@borrowing
def _is_flat(edge: Edge, cells: Cells, node: int, merges: Others, d: float) -> bool:
    """Whether v, the mean in its units, and Λ are nearly constant along an edge."""
    v_low, v_high = expectation(edge, edge.low)[0], expectation(edge, edge.high)[0]
    most = FLAT / (d + cells.low.size + 1.0)
    if v_high - v_low > most * v_low or exposure(merges, edge.high)[0] - exposure(merges, edge.low)[0] > FLAT:
        return False
    along = share_above(edge, edge.high) - share_above(edge, edge.low)
    shift = edge.eps_span
    for i in range(cells.low.size):
        shift += ((cells.above[node, i] - cells.below[node, i]) / cells.scale[i]) ** 2
    return along * along * shift < most * most * v_low


@borrowing
def integrate(
    edge: Edge, cells: Cells, node: int, merges: Others, d: float, floor: float, kinks: float, state_sums: Floats
) -> tuple[float, float]:
    """Log ∫ f over a bounded edge above a node, and the mean time; tails below e^floor are left out.

    Λ has kinks at merges. Inside an interval of length h, K of them cost about √K h/500 of its mass, as their errors
    have either sign. Intervals are split at merges so that √K h is at most `kinks` in each piece.
    """
    state_sums[_MASS] = 0.0
    state_sums[_MOMENT] = 0.0
    state_sums[_LOG_UNIT] = -math.inf
    nodes, weights = (CELL_NODES, CELL_WEIGHTS) if cells.low.size > 0 else (NODES, WEIGHTS)
    if _is_flat(edge, cells, node, merges, d):
        _add_interval(edge, cells, node, merges, d, edge.low, edge.high, FLAT_NODES, FLAT_WEIGHTS, state_sums)
    else:
        peak, width = find_peak(edge, merges, d, ROUGHLY)
        if not width > 0.0 or log_edge_density(edge, merges, d, peak) == -math.inf:
            return -math.inf, peak
        for side in (-1, 1):
            end = edge.high if side > 0 else edge.low
            inner = peak
            step = 0.5 * width
            while inner != end:
                low, high = min(inner, end), max(inner, end)
                rest = math.log(high - low) - exposure(merges, low)[0]
                if rest + log_bound(edge, cells, node, d, low, high) < floor:
                    break
                outer = inner + side * step
                if not min(inner, end) < outer < max(inner, end) or abs(end - outer) < 0.1 * step:
                    outer = end
                low, high = min(inner, outer), max(inner, outer)
                first = n_until(merges.times, low)
                inside = n_until(merges.times, np.nextafter(high, low)) - first
                fall = merges.rate[first] - merges.rate[first + inside]
                # K/p kinks in pieces of length h/p: (K/p) (h/p)² ≤ kinks².
                pieces = int(min(float(inside), (fall * (high - low) ** 2 / kinks**2) ** (1.0 / 3.0)))
                for piece in range(1, pieces + 1):
                    cut = merges.times[first + (piece * inside) // pieces - 1]
                    if cut > low:
                        _add_interval(edge, cells, node, merges, d, low, cut, nodes, weights, state_sums)
                        low = cut
                _add_interval(edge, cells, node, merges, d, low, high, nodes, weights, state_sums)
                inner = outer
                step *= 2.0
    if not state_sums[_MASS] > 0.0:
        return -math.inf, edge.low
    return state_sums[_LOG_UNIT] + math.log(state_sums[_MASS]), state_sums[_MOMENT] / state_sums[_MASS]
