r"""Rows from distances: classical multidimensional scaling, and new points placed among them.

With J = I − 11ᵀ/n, −½ J D J = X Xᵀ for squared distances D of centred rows X: its eigenvectors times the roots of its
eigenvalues are rows with exactly these distances. A new point with squared distances δ to the rows has the coordinates
X⁺ · ½(|x_i|² − δ_i), centred, in their span, and what is left of its distance lies outside.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.memory import check_matrix
from coaltree.validation import check_array, check_count

# Eigenvalues below this fraction of the largest are rounding; below minus this, the matrix is not Euclidean.
_ROUNDING = 1e-9
_NEGATIVE = 1e-6


def embed(distances: Any, n_dimensions: int | None = None) -> Floats:
    """Return centred rows (n, n_dimensions) with the given squared Euclidean distances (n, n).

    Parameters
    ----------
    distances : array-like (n, n)
        Squared distances: symmetric, zero on the diagonal.
    n_dimensions : int, optional
        Dimension of the space they were measured in, at least their rank; further columns are zero. Default: the rank.
    """
    D = check_array(distances, "X", 2)
    n = len(D)
    if D.shape != (n, n) or n < 2:
        raise InputError(f"X must be a square matrix of squared distances between at least 2 rows, got {D.shape}.")
    # The centred matrix, its eigenvectors and the work space of finding them, beside D.
    check_matrix(n, n, 4 * 8, "products of rows", "Pass the table itself with metric='euclidean', or fewer rows.")
    size = float(np.abs(D).max())
    if np.any(D < 0) or np.abs(np.diag(D)).max() > 1e-8 * size or np.abs(D - D.T).max() > 1e-8 * size:
        raise InputError("X must hold squared distances: non-negative, symmetric, zero on the diagonal.")
    if size == 0.0:
        raise InputError("X must hold some positive distance, but all rows are equal.")
    centred = D - D.mean(axis=0)
    values, vectors = np.linalg.eigh(-0.5 * (centred - centred.mean(axis=1, keepdims=True)))
    values, vectors = values[::-1], vectors[:, ::-1]
    if values[-1] < -_NEGATIVE * values[0]:
        raise InputError(
            f"X must hold squared Euclidean distances, but no rows have these (smallest eigenvalue {values[-1]:.3g}, "
            f"largest {values[0]:.3g} of the centred matrix): pass squares, or pass the table itself with "
            "metric='euclidean'."
        )
    rank = int((values > _ROUNDING * values[0]).sum())
    d = rank if n_dimensions is None else check_count(n_dimensions, "n_dimensions", at_least=1)
    if d < rank:
        raise InputError(f"n_dimensions must be at least {rank}, the rank of the distances, got {d}.")
    rows = np.zeros((n, d))
    rows[:, :rank] = vectors[:, :rank] * np.sqrt(values[:rank])
    return rows


def embed_new(rows: Floats, distances: Any) -> Floats:
    """Coordinates (B, d) of new points from their squared distances (B, n) to embedded rows (n, d)."""
    D = check_array(distances, "X", 2)
    squares = np.einsum("ij,ij->i", rows, rows)
    products = 0.5 * (squares - D)
    products -= products.mean(axis=1, keepdims=True)
    points: Floats = products @ np.linalg.pinv(rows, rcond=_ROUNDING).T
    outside = np.maximum(D[:, 0] - ((points - rows[0]) ** 2).sum(axis=1), 0.0)
    free = np.flatnonzero(~rows.any(axis=0))
    if len(free):
        points[:, free[0]] = np.sqrt(outside)
    elif np.any(outside > 1e-6 * np.maximum(D.max(axis=1), squares.max())):
        raise InputError(
            f"X must hold squared distances to the {len(rows)} training rows in {rows.shape[1]} dimensions, but some "
            "points lie outside their span: fit with a larger n_dimensions."
        )
    return points
