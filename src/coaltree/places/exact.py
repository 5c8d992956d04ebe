"""What the exact values of a row say: squared distances from a place, in whitened columns, with gaps or without.

Columns that are not observed follow the same model with their block of Φ. Messages of a tree are convex combinations of
rows with weights that do not depend on Φ, so one description of a tree serves all patterns of gaps: in whitened columns
z = L⁻¹(x − y) the distance under the block of Φ is |L_oo⁻¹ L_o· z|².
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from coaltree._arrays import Bools, Floats, Ints
from coaltree._compile import borrowing
from coaltree.model.factorisations import DenseRoot, DiagonalRoot
from coaltree.model.messages import squared_distance


class View(NamedTuple):
    """How the distance to a point is measured, in whitened columns: all, some, or through a lens for a block of Φ."""

    columns: Ints  # (q,): the columns that count, if there is no lens
    lens: Floats  # (q, d): |lens (x − y)|² is the distance, and its rows are orthonormal; (0, d) for none


def make_view(root: DiagonalRoot | DenseRoot, observed: Bools) -> tuple[View, float]:
    """How distances from points with these columns to whitened rows are measured, and log|Φ| of their block."""
    columns, no_lens = np.flatnonzero(observed), np.empty((0, len(observed)))
    if isinstance(root, DiagonalRoot):
        return View(columns, no_lens), float(np.log(root.variances[observed]).sum())
    if observed.all():
        return View(columns, no_lens), root.log_det
    factor = root.factor[observed]
    inner = np.linalg.cholesky(factor @ factor.T)
    lens = np.ascontiguousarray(solve_triangular(inner, factor, lower=True))
    return View(columns, lens), 2.0 * float(np.log(np.diag(inner)).sum())


@borrowing
def measure(view: View, x: Floats, i: int, y: Floats, j: int) -> float:
    """Squared distance of two rows, as a point with gaps sees it."""
    total = 0.0
    if view.lens.shape[0] > 0:
        for k in range(view.lens.shape[0]):
            along = 0.0
            for c in range(x.shape[1]):
                along += view.lens[k, c] * (x[i, c] - y[j, c])
            total += along * along
        return total
    if view.columns.size == x.shape[1]:
        return squared_distance(x, i, y, j)
    for c in view.columns:
        total += (x[i, c] - y[j, c]) ** 2
    return total
