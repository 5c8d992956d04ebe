"""When a pair is due to merge, by each rule of the greedy tree, with bounds on that time."""

from __future__ import annotations

import math

from coaltree._compile import inline
from coaltree.model.gig import tables
from coaltree.model.gig.tables import GigTable

MODE, MEAN, TRUNCATED_MEAN, PEAK = range(4)
RULES = {"mode": MODE, "mean": MEAN, "truncated_mean": TRUNCATED_MEAN, "peak": PEAK}
# Relative slack for the error of the table of means in a bound.
_TABLE_ERROR = 1e-8


@inline
def expected(rule: int, d: float, eps: float, lam: float, table: GigTable) -> float:
    """v at which a pair is expected to merge, whatever has happened before; 2t = v − a_i − a_j is its due time."""
    if rule == PEAK:
        return eps / d
    if rule == MODE:
        # (−d/2 + √(d²/4 + λε))/λ without cancellation.
        return eps / (0.5 * d + math.sqrt(0.25 * d * d + lam * eps))
    return tables.tabled_mean(table, d, eps, lam)


@inline
def farthest(rule: int, d: float, lam: float, v: float) -> float:
    """An ε beyond which `expected` is at least v: the inverse of a lower bound, for the mean that of Segura (2011)."""
    if v <= 0.0:
        return 0.0
    if rule == PEAK:
        return d * v * (1.0 + _TABLE_ERROR)
    # (c + √(c² + λε))/λ with c = −d/2 is the mode; with (3 − d)/2, or (2 − d)/2 if d < 3, a bound of the mean.
    less = 0.0 if rule == MODE else (3.0 if d >= 3.0 else 2.0)
    return v * (lam * v + (d - less)) * (1.0 + _TABLE_ERROR)


@inline
def comes_first(due: float, node_i: int, node_j: int, best: float, best_i: int, best_j: int) -> bool:
    """Whether a pair is due before the best so far; of equal times the smaller node ids go first."""
    if due != best:
        return due < best
    low, best_low = min(node_i, node_j), min(best_i, best_j)
    return low < best_low or (low == best_low and max(node_i, node_j) < max(best_i, best_j))
