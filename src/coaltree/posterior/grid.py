r"""One grid of times per tree, for all points that may join it.

Along an edge the mass of a place is exp(−Λ(t)) g(t), g = v^(−d/2) exp(−ε/2v). The first factor is the tree's: it has a
kink at each merge, and is the same for every point. The second is smooth, on the scale of v. So each edge is cut into
intervals short beside v, and g is interpolated between p Gauss–Legendre nodes of each, at which it is weighed by

    W_j = ∫ exp(−Λ) ℓ_j dt,   ℓ_j = w_j Σ_m (m + ½) P_m(x_j) P_m   (Lagrange's polynomials by Legendre's),

exact for the kinks. A point then costs one exponential a node.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.inference.attachment import Others, n_until

ORDER = 6
NODES, WEIGHTS = np.polynomial.legendre.leggauss(ORDER)
FINE_NODES, FINE_WEIGHTS = np.polynomial.legendre.leggauss(ORDER + 2)
_LEGENDRE = np.polynomial.legendre.legvander(NODES, ORDER - 1)  # (node, degree)
# Rows: nodes; columns: degrees. Times the moments ∫ exp(−Λ) P_m it gives the weights.
FROM_MOMENTS = np.ascontiguousarray(WEIGHTS[:, None] * _LEGENDRE * (np.arange(ORDER) + 0.5))
# An interval is this long beside v/2, or less in many dimensions, where g is narrower.
LONGEST, PER_ROOT_D = 1.0, 2.0
# Where v starts at 0 the grid starts at this fraction of its end; closer points need an integral of their own.
SMALLEST = 1e-6
# exp(−Λ) is integrated in steps of Λ no longer than this, and not at all when it has fallen by e^(−FALL).
SHORT, FALL = 3.0, 46.0


class Grid(NamedTuple):
    """Nodes of all edges; those of one edge are first[edge] … first[edge + 1] − 1."""

    first: Ints  # (number of edges + 1,), in intervals
    weight: Floats  # (intervals, ORDER), in units of exp(log_scale)
    log_scale: Floats  # (intervals,): −Λ at the start
    time: Floats  # (intervals, ORDER)
    share: Floats  # (intervals, ORDER): ω
    log_v: Floats  # (intervals, ORDER)
    half_precision: Floats  # (intervals, ORDER): 1/2v


@inline
def _variance(below: float, above: float, noise: float, time: float) -> float:
    alpha = below + time
    return noise + time + alpha * (1.0 - alpha / (below + above))


@inline
def _next_time(below: float, above: float, noise: float, time: float, high: float, step: float) -> float:
    """End of the interval that starts at `time`."""
    v = max(_variance(below, above, noise, time), SMALLEST * _variance(below, above, noise, high))
    after = time + 0.5 * step * v
    # No sliver at the end.
    return high if after > high - 0.2 * (after - time) else after


@kernel
def count_intervals(low: Floats, high: Floats, below: Floats, above: Floats, noise: float, step: float) -> Ints:
    """First interval of every edge, and their number, (edges + 1,)."""
    first = np.zeros(low.size + 1, dtype=np.int64)
    for edge in range(low.size):
        count = 0
        time = low[edge]
        while time < high[edge]:
            time = _next_time(below[edge], above[edge], noise, time, high[edge], step)
            count += 1
        first[edge + 1] = first[edge] + count
    return first


@inline
def _fill_moments(merges: Others, low: float, high: float, out: Floats) -> None:
    """∫ exp(Λ(low) − Λ(t)) P_m(x) dt over the interval, x from −1 to 1."""
    half, middle = 0.5 * (high - low), 0.5 * (high + low)
    out[:] = 0.0
    fallen = 0.0
    start = low
    done = n_until(merges.times, low)
    while start < high and fallen < FALL:
        rate = merges.times.size + 1.0 - done
        end = min(high, merges.times[done]) if done < merges.times.size else high
        done += 1
        if end <= start:
            continue
        n_steps = int(rate * (end - start) / SHORT) + 1
        length = (end - start) / n_steps
        for step in range(n_steps):
            if fallen > FALL:
                break
            left = start + step * length
            for k in range(FINE_NODES.size):
                along = 0.5 * length * (1.0 + FINE_NODES[k])
                mass = 0.5 * length * FINE_WEIGHTS[k] * math.exp(-fallen - rate * along)
                x = (left + along - middle) / half
                before, now = 0.0, 1.0
                for m in range(ORDER):
                    out[m] += mass * now
                    before, now = now, ((2 * m + 1) * x * now - m * before) / (m + 1)
            fallen += rate * length
        start = end


@kernel
def fill_grid(
    merges: Others, low: Floats, high: Floats, below: Floats, above: Floats, noise: float, step: float, out: Grid
) -> None:
    """Lay the grid on every edge."""
    moments = np.empty(ORDER)
    for edge in range(low.size):
        time = low[edge]
        for i in range(out.first[edge], out.first[edge + 1]):
            end = _next_time(below[edge], above[edge], noise, time, high[edge], step)
            done = n_until(merges.times, time)
            before = merges.times[done - 1] if done > 0 else 0.0
            out.log_scale[i] = -(merges.exposure[done] + (merges.times.size + 1.0 - done) * (time - before))
            _fill_moments(merges, time, end, moments)
            for j in range(ORDER):
                weight = 0.0
                for m in range(ORDER):
                    weight += FROM_MOMENTS[j, m] * moments[m]
                at = time + 0.5 * (end - time) * (1.0 + NODES[j])
                v = _variance(below[edge], above[edge], noise, at)
                out.weight[i, j] = weight
                out.time[i, j] = at
                out.share[i, j] = (below[edge] + at) / (below[edge] + above[edge])
                out.log_v[i, j] = math.log(v)
                out.half_precision[i, j] = 0.5 / v
            time = end


def make_grid(merges: Others, low: Floats, high: Floats, below: Floats, above: Floats, noise: float, d: int) -> Grid:
    """Lay a grid on edges from `low` to `high`, whose α is below + t and β is above − t, for points with this noise."""
    step = min(LONGEST, PER_ROOT_D / math.sqrt(d))
    first = count_intervals(low, high, below, above, noise, step)
    shape = (int(first[-1]), ORDER)
    grid = Grid(
        first, np.empty(shape), np.empty(shape[0]), np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape)
    )
    fill_grid(merges, low, high, below, above, noise, step, grid)
    return grid
