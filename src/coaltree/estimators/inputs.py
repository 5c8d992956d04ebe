"""Input to `CoalescentClustering`, checked, and what is said of it."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from coaltree import sizes
from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.estimators.distances import (
    EUCLIDEAN,
    METRICS,
    directions,
    embed,
    embed_new,
    is_precomputed,
    square_matrix,
)
from coaltree.estimators.learn import collinear
from coaltree.frame import listed
from coaltree.inference.learning.working import rounding_variance
from coaltree.inference.neighbors import nearest
from coaltree.model.guess import AUTO, unequal
from coaltree.model.noise import FAR, LEARN
from coaltree.validation import check_choice

# Below this share of independent columns, a note says so.
VARY_TOGETHER = 0.8
# If this share of the rows is far from all others, a note says so.
MANY_FAR = 0.05
# A column with fewer distinct values than this share of the rows has ties; with fewer rows that may be chance.
FEW_VALUES, FEWEST_FOR_TIES = 0.7, 10
# Correlations of principal components, but for rounding.
_UNRELATED = 1e-6


def is_spherical(covariance: Any) -> bool:
    """Whether a table of numbers has one variance for all columns, as it has by default."""
    return covariance is None or (isinstance(covariance, str) and covariance == "spherical")


def check_table(model: Any, X: Any) -> Floats:
    """Return the rows that a model is fitted to, (n, d): the table, its directions, or rows with given distances."""
    check_choice(model.metric, "metric", METRICS)
    if is_precomputed(model.metric):
        if not is_spherical(model.covariance):
            raise InputError(f"metric={model.metric!r} needs covariance='spherical': distances carry no directions.")
        distances = validate_data(model, square_matrix(X), dtype=np.float64, ensure_min_samples=2)
        return embed(distances, model.n_dimensions, model.metric)
    table: Floats = validate_data(
        model, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2, order="C"
    )
    empty = np.flatnonzero(np.isnan(table).all(axis=0))
    if len(empty):
        shown = getattr(model, "feature_names_in_", np.arange(table.shape[1]))[empty].tolist()
        raise InputError(f"X must have a value in every column, but these are all NaN: {shown}. Drop them.")
    if model.metric != EUCLIDEAN:
        return directions(table, model.metric)
    warn_of_scales(model, table)
    return table


def check_new(model: Any, X: Any) -> Floats:
    """Return new rows as the fitted ones are, (B, d)."""
    finite = True if is_precomputed(model.metric) else "allow-nan"
    rows: Floats = validate_data(model, X, reset=False, dtype=np.float64, ensure_all_finite=finite, order="C")
    if is_precomputed(model.metric):
        return embed_new(model.completed_, rows, model.metric)
    return rows if model.metric == EUCLIDEAN else directions(rows, model.metric)


def notes_on(model: Any, table: Floats, effective_columns: float = math.inf) -> tuple[str, ...]:
    """Describe in words what makes the tree of a table of numbers less trustworthy than it looks."""
    if is_precomputed(model.metric):
        return ()
    n, d = table.shape
    shown: list[Any] = getattr(model, "feature_names_in_", np.arange(d)).tolist()
    spread = np.nanmax(table, axis=0) - np.nanmin(table, axis=0)
    varying = np.flatnonzero(spread > 0.0)
    told = []
    if len(varying) < d:
        same = listed([shown[j] for j in np.flatnonzero(spread == 0.0)])
        told.append(f"Constant, which says nothing about the tree: column(s) {same}. Drop them.")
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
    elif 2 < len(varying) <= min(n, sizes.COLUMNS_CHECKED) and _is_collinear(table[:, varying]):
        told.append("Some column is a linear combination of others.")
    if len(varying) > n:
        told.append(f"More columns ({len(varying)}) than rows ({n}): a full Φ cannot be learned from them.")
    tied = [j for j in varying if len(np.unique(table[:, j])) < FEW_VALUES * n]
    if n >= FEWEST_FOR_TIES and 2 * len(tied) > len(varying):
        told.append(
            f"Many rows share values in {len(tied)} of {len(varying)} columns, as rounded values do. "
            'columns="auto" models such columns as rounded.'
        )
    told += note_on_counting(len(varying), effective_columns)
    return (*told, *note_on_far(model, table))


def _is_collinear(table: Floats) -> bool:
    return not np.isnan(table).any() and collinear(table)


def warn_of_scales(model: Any, table: Floats) -> None:
    """Warn if a few columns of an array decide alone, because of their units; components of a reduction may."""
    if model.scale != AUTO or not is_spherical(model.covariance):
        return
    low, high = np.nanquantile(table, [0.25, 0.75], axis=0)  # standard deviations alone would be those of outliers
    varying = np.flatnonzero(high > low)
    spread = (high - low)[varying]
    if not (unequal(spread) and unequal(np.nanstd(table[:, varying], axis=0))):
        return
    if not np.isnan(table).any() and len(varying) <= sizes.COLUMNS_CHECKED:
        related = np.corrcoef(table[:, varying], rowvar=False) - np.eye(len(varying))
        if np.abs(related).max() < _UNRELATED:
            return
    warnings.warn(
        f"Columns of X differ in scale (interquartile ranges from {spread.min():.3g} to {spread.max():.3g}), so the "
        "widest decide the tree. Pass scale='standard' to bring all to standard deviation 1, as is done with a "
        "DataFrame, or scale='none' to keep the units without this warning.",
        stacklevel=2,
    )


def note_on_far(model: Any, table: Floats) -> list[str]:
    """Say if many rows of a table of numbers are far from all others."""
    n = len(table)
    if (n_far := _count_far(model, table)) >= max(2.0, MANY_FAR * n):
        return [
            f"{n_far} rows are far from all others, which makes supports overconfident. "
            'With leaf_noise="auto" such rows can have more noise than the rest.'
        ]
    return []


def note_on_counting(d: int, effective_columns: float) -> list[str]:
    """Say how many independent columns d columns count as, if clearly fewer."""
    if effective_columns >= VARY_TOGETHER * d:
        return []
    return [f"The columns vary together: these {d} count as {effective_columns:.1f} independent ones."]


def _count_far(model: Any, table: Floats) -> int:
    """Count the rows from which the next is far, where one noise for all was to be learned."""
    if not (isinstance(model.leaf_noise, str) and model.leaf_noise == LEARN and is_spherical(model.covariance)):
        return 0
    if len(table) > sizes.ROWS_CHECKED or np.isnan(table).any():
        return 0
    distance = nearest(table, 1)[1][:, 0]
    typical = max(float(np.median(distance)), 2.0 * table.shape[1] * rounding_variance(table))
    return int(np.count_nonzero(distance > FAR * typical)) if typical > 0.0 else 0
