"""What rows are compared by: a table as it is, its directions, or distances that were computed elsewhere.

Distances become rows by classical multidimensional scaling (`embed`), and new points are placed among them
(`embed_new`). With J = I − 11ᵀ/n, −½ J D J = X Xᵀ for squared distances D of centred rows X: its eigenvectors times the
roots of its eigenvalues are rows with exactly these distances. A new point with squared distances δ to the rows has the
coordinates X⁺ · ½(|x_i|² − δ_i), centred, in their span, and the rest of its distance lies outside.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.cells import NUMBER
from coaltree.errors import InputError
from coaltree.frame import Column, Frame, listed
from coaltree.memory import check_matrix
from coaltree.validation import check_array, check_choice, check_count

EUCLIDEAN, COSINE, CORRELATION = "euclidean", "cosine", "correlation"
PLAIN, SQUARED = "precomputed", "precomputed_squared"
METRICS = (EUCLIDEAN, COSINE, CORRELATION, PLAIN, SQUARED)
# Eigenvalues below this fraction of the largest are rounding error.
_ROUNDING = 1e-9
# If rows cannot have more than this share of the distances, a warning says so.
_LOST = 0.01
# Triangles are looked at over this many rows, and over all pairs of others.
_CORNERS = 50
_TRIANGLE = 1e-6


def is_precomputed(metric: str) -> bool:
    """Whether X holds distances."""
    return metric in (PLAIN, SQUARED)


def directions(rows: Floats, metric: str) -> Floats:
    """Rows scaled to length 1, for "correlation" each less its mean: squared distances are then 2 (1 − cosine)."""
    if np.isnan(rows).any():
        raise InputError(f"metric={metric!r} needs complete rows. Drop or impute the missing entries.")
    if metric == CORRELATION:
        rows = rows - rows.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(rows, axis=1)
    if not np.all(lengths > _ROUNDING * max(float(lengths.max()), np.finfo(np.float64).tiny)):
        place = int(np.argmin(lengths))
        what = "all entries of it are equal" if metric == CORRELATION else "all entries of it are zero"
        raise InputError(f"metric={metric!r} needs rows with a direction, and row {place} has none: {what}. Drop it.")
    turned: Floats = rows / lengths[:, None]
    return turned


def compared_by(frame: Frame, metric: str) -> tuple[Frame, tuple[str, ...]]:
    """Return what a table is clustered by, in columns of one unit, and a remark; unchanged if it is Euclidean."""
    if check_choice(metric, "metric", METRICS) == EUCLIDEAN:
        return frame, ()
    other = [column.name for column in frame.columns if column.type != NUMBER]
    if other:
        raise InputError(f"metric={metric!r} needs numbers, but {listed(other)} hold something else. Drop them.")
    if is_precomputed(metric):
        rows = embed(frame.matrix(), metric=metric)
        names = tuple(f"axis {j + 1}" for j in range(rows.shape[1]))
        told = (
            f"The table holds distances: rows are placed in {len(names)} dimensions, which the page shows as columns."
        )
    else:
        rows, names = directions(frame.matrix(), metric), frame.names
        told = f"Rows are compared by their {metric}: each is scaled to length 1" + (
            " once its mean is taken off." if metric == CORRELATION else "."
        )
    columns = tuple(Column(name, NUMBER, rows[:, j].copy()) for j, name in enumerate(names))
    return Frame(columns, len(rows), frame.ids, one_unit=True), (told,)


def square_matrix(distances: Any) -> Any:
    """Return the (n, n) matrix of a condensed vector of distances, as scipy's pdist gives; a matrix unchanged."""
    if hasattr(distances, "columns") or np.ndim(distances) != 1:
        return distances
    pairs = check_array(distances, "X", 1)
    n = round(0.5 + math.sqrt(0.25 + 2.0 * len(pairs)))
    if n < 2 or n * (n - 1) // 2 != len(pairs):
        raise InputError(
            f"X must be a square matrix of distances or a condensed vector of n (n − 1) / 2 of them, got {len(pairs)}."
        )
    D = np.zeros((n, n))
    D[np.triu_indices(n, 1)] = pairs
    return D + D.T


def embed(distances: Any, n_dimensions: int | None = None, metric: str = SQUARED) -> Floats:
    """Return centred rows (n, n_dimensions) with the given Euclidean distances (n, n), as far as rows can have these.

    Parameters
    ----------
    distances : array-like (n, n)
        Symmetric, zero on the diagonal; squared unless `metric` is "precomputed".
    n_dimensions : int, optional
        Dimension of the space they were measured in, at least their rank; further columns are zero. Default: the rank,
        which is the number of eigenvalues above rounding error and above what the most negative one is below zero.
    """
    D = check_array(distances, "X", 2)
    n = len(D)
    if D.shape != (n, n) or n < 2:
        raise InputError(f"X must be a square matrix of distances between at least 2 rows, got {D.shape}.")
    # Besides D: the centred matrix, its eigenvectors and the workspace for computing them.
    check_matrix(n, n, 4 * 8, "products of rows", "Pass the table itself with metric='euclidean', or fewer rows.")
    size = float(np.abs(D).max())
    if np.any(D < 0) or np.abs(np.diag(D)).max() > 1e-8 * size or np.abs(D - D.T).max() > 1e-8 * size:
        raise InputError("X must hold distances: non-negative, symmetric, zero on the diagonal.")
    if size == 0.0:
        raise InputError("X must hold some positive distance, but all rows are equal.")
    doubtful = metric == PLAIN and _breaks_triangles(D)
    D = D * D if metric == PLAIN else D
    centred = D - D.mean(axis=0)
    values, vectors = np.linalg.eigh(-0.5 * (centred - centred.mean(axis=1, keepdims=True)))
    values, vectors = values[::-1], vectors[:, ::-1]
    rank = int((values > max(_ROUNDING * values[0], -values[-1])).sum())
    if not rank:
        raise InputError("X must hold distances between rows, but no rows have distances anything like these.")
    lost = 1.0 - values[:rank].sum() / np.abs(values).sum()
    if lost > _LOST and not doubtful:
        warnings.warn(
            f"No rows have these distances exactly: {1.0 - lost:.0%} of them is kept, in {rank} dimensions. The model "
            "is of Euclidean distances; if there is a table behind these, pass the table.",
            stacklevel=2,
        )
    d = rank if n_dimensions is None else check_count(n_dimensions, "n_dimensions", at_least=1)
    if d < rank:
        raise InputError(f"n_dimensions must be at least {rank}, the rank of the distances, got {d}.")
    rows = np.zeros((n, d))
    rows[:, :rank] = vectors[:, :rank] * np.sqrt(values[:rank])
    return rows


def _breaks_triangles(distances: Floats) -> bool:
    """Whether some detour is shorter than the direct way, with a warning."""
    for corner in np.unique(np.linspace(0, len(distances) - 1, _CORNERS).round().astype(int)):
        detour = distances[corner][:, None] + distances[corner]
        short = distances * (1.0 - _TRIANGLE) > detour
        if short.any():
            i, j = np.unravel_index(np.argmax(short), short.shape)
            warnings.warn(
                f"X violates the triangle inequality: from row {i} to row {j} it is {distances[i, j]:.4g}, by row "
                f"{corner} only {detour[i, j]:.4g}. Squared distances do that; if X holds these, pass "
                "metric='precomputed_squared'.",
                stacklevel=2,
            )
            return True
    return False


def embed_new(rows: Floats, distances: Any, metric: str = SQUARED) -> Floats:
    """Coordinates (B, d) of new points from their distances (B, n) to embedded rows (n, d)."""
    D = check_array(distances, "X", 2)
    D = D * D if metric == PLAIN else D
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
            f"X must hold distances to the {len(rows)} training rows in {rows.shape[1]} dimensions, but some "
            "points lie outside their span: fit with a larger n_dimensions."
        )
    return points
