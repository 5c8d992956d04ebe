"""Input to `CoalescentClustering`, checked: its table, and how long to run, with former parameter names translated.

Distances become rows by classical multidimensional scaling (`embed`), and new points are placed among them
(`embed_new`). With J = I − 11ᵀ/n, −½ J D J = X Xᵀ for squared distances D of centred rows X: its eigenvectors times the
roots of its eigenvalues are rows with exactly these distances. A new point with squared distances δ to the rows has the
coordinates X⁺ · ½(|x_i|² − δ_i), centred, in their span, and the rest of its distance lies outside.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.frame import listed
from coaltree.inference.effort import N_CHAINS
from coaltree.inference.learning.learn import LEARN, collinear
from coaltree.inference.learning.working import rounding_variance
from coaltree.inference.moves.row_noise import FAR
from coaltree.inference.neighbors import nearest
from coaltree.memory import check_matrix
from coaltree.validation import check_array, check_choice, check_count

# Eigenvalues below this fraction of the largest are rounding error; below minus this, the matrix is not Euclidean.
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
    # Besides D: the centred matrix, its eigenvectors and the workspace for computing them.
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


# With more columns than this, linear combinations are not searched for.
MOST_COLLINEAR = 500
# Below this share of independent columns, a note says so.
VARY_TOGETHER = 0.8
# If this share of the rows is far from all others, a note says so; with more rows than this they are not searched for.
MANY_FAR, MOST_SEARCHED = 0.05, 5000
# A column with fewer distinct values than this share of the rows has ties; with fewer rows that may be chance.
FEW_VALUES, FEWEST_FOR_TIES = 0.7, 10


def is_spherical(covariance: Any) -> bool:
    """Whether a table of numbers has one variance for all columns, as it has by default."""
    return covariance is None or (isinstance(covariance, str) and covariance == "spherical")


def check_table(model: Any, X: Any) -> Floats:
    """Return the table of numbers that a model is fitted to, (n, d); given distances, the embedded rows."""
    check_choice(model.metric, "metric", ("euclidean", "precomputed"))
    if model.metric == "precomputed":
        if not is_spherical(model.covariance):
            raise InputError("metric='precomputed' needs covariance='spherical': distances carry no directions.")
        return embed(validate_data(model, X, dtype=np.float64, ensure_min_samples=2), model.n_dimensions)
    table: Floats = validate_data(
        model, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2, order="C"
    )
    empty = np.flatnonzero(np.isnan(table).all(axis=0))
    if len(empty):
        shown = getattr(model, "feature_names_in_", np.arange(table.shape[1]))[empty].tolist()
        raise InputError(f"X must have a value in every column, but these are all NaN: {shown}. Drop them.")
    return table


def notes_on(model: Any, table: Floats, effective_columns: float = math.inf) -> tuple[str, ...]:
    """Describe in words what makes the tree of a table of numbers less trustworthy than it looks."""
    if model.metric == "precomputed":
        return ()
    n, d = table.shape
    shown: list[Any] = getattr(model, "feature_names_in_", np.arange(d)).tolist()
    spread = np.nanmax(table, axis=0) - np.nanmin(table, axis=0)
    varying = np.flatnonzero(spread > 0.0)
    told = []
    if len(varying) < d:
        same = listed([shown[j] for j in np.flatnonzero(spread == 0.0)])
        told.append(f"Constant, so that they tell nothing of the tree: column(s) {same}. Drop them.")
    # Copies are equal once columns have the same scale and sign.
    unit = (table[:, varying] - np.nanmean(table[:, varying], axis=0)) / spread[varying]
    first = unit[np.argmax(~np.isnan(unit) & (np.abs(unit) > 1e-6), axis=0), np.arange(len(varying))]
    kept: dict[bytes, int] = {}
    copies = list[Any]()
    for j, column in zip(varying, np.round(np.sign(first) * unit, 8).T + 0.0, strict=True):
        original = kept.setdefault(column.tobytes(), int(j))
        if original != j:
            copies.append(shown[j])
    if copies:
        told.append(f"Copies of other columns, up to unit and sign: {listed(copies)}. Drop them.")
    elif 2 < len(varying) <= min(n, MOST_COLLINEAR) and not np.isnan(table).any() and collinear(table[:, varying]):
        told.append("Some column is a linear combination of others.")
    if len(varying) > n:
        told.append(f"More columns ({len(varying)}) than rows ({n}): a full Φ cannot be learned from them.")
    tied = [j for j in varying if len(np.unique(table[:, j])) < FEW_VALUES * n]
    if n >= FEWEST_FOR_TIES and 2 * len(tied) > len(varying):
        told.append(
            f"Many rows share values in {len(tied)} of {len(varying)} columns, as rounded values do. "
            'columns="auto" takes such columns for what they are.'
        )
    told += note_on_counting(len(varying), effective_columns)
    if (n_far := _count_far(model, table)) >= max(2.0, MANY_FAR * n):
        told.append(
            f"{n_far} rows are far from all others, which makes supports overconfident. "
            'With leaf_noise="auto" such rows can have more noise than the rest.'
        )
    return tuple(told)


def note_on_counting(d: int, effective_columns: float) -> list[str]:
    """Say how many independent columns d columns count as, if clearly fewer."""
    if effective_columns >= VARY_TOGETHER * d:
        return []
    return [f"The columns vary together: these {d} count as {effective_columns:.1f} independent ones."]


def _count_far(model: Any, table: Floats) -> int:
    """Count the rows from which the next is far, where one noise for all was to be learned."""
    if not (isinstance(model.leaf_noise, str) and model.leaf_noise == LEARN and is_spherical(model.covariance)):
        return 0
    if len(table) > MOST_SEARCHED or np.isnan(table).any():
        return 0
    distance = nearest(table, 1)[1][:, 0]
    typical = max(float(np.median(distance)), 2.0 * table.shape[1] * rounding_variance(table))
    return int(np.count_nonzero(distance > FAR * typical)) if typical > 0.0 else 0


def effort(model: Any) -> dict[str, Any]:
    """Return draws, warm-up, chains and thinning."""
    draws = model.n_particles if model.n_draws is None else model.n_draws
    warmup = model.burn_in if model.warmup is None else model.warmup
    found: dict[str, Any] = {"n_draws": draws, "warmup": warmup, "n_chains": model.n_chains, "thin": None}
    if model.n_iter is not None:
        n_iter = check_count(model.n_iter, "n_iter", at_least=1)
        warmup = n_iter // 5 if warmup is None else check_count(warmup, "burn_in", at_least=0)
        if warmup >= n_iter:
            raise InputError(f"burn_in must be below n_iter = {n_iter}, got {warmup}.")
        n_chains = N_CHAINS if model.n_chains is None else model.n_chains
        kept = n_chains * (n_iter - warmup)
        draws = kept if draws is None else min(check_count(draws, "n_particles", at_least=1), kept)
        found |= {"n_draws": draws, "warmup": warmup, "thin": max(1, kept // draws)}
    return found
