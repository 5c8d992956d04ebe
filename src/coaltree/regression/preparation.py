"""User input, checked and converted to the form the chains need: centred, scaled features, labels by family."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coaltree._arrays import Bools, Floats
from coaltree.errors import InputError
from coaltree.regression.encoding import as_labels
from coaltree.regression.families import Chosen, Families, grouped
from coaltree.regression.families.base import Observed, OutcomeScale
from coaltree.regression.likelihood import BLOCK, Likelihood, SparseLikelihood, as_columns, row_weights

# With a full Φ every iteration factorises a matrix of up to this size; a larger one would take seconds.
LARGEST = 5000
# By default Φ is full up to this many features, and this many intercepts and coefficients.
MOST_FULL, LARGEST_FULL = 10, 300


@dataclass(frozen=True, eq=False)
class Scaling:
    """Features as chains see them: (x − centre)/width of the columns that vary."""

    centre: Floats  # (K,)
    width: Floats  # (K,), 0 where a column is constant
    n_columns: int

    @property
    def varying(self) -> Bools:
        """Columns that are in the model."""
        return np.asarray(self.width > 0)

    def apply(self, X: Any) -> Floats:
        """(N, K) → (N, 1 + varying columns), a column of ones first."""
        varying, X = self.varying, dense(X)
        rows = np.ones((len(X), 1 + int(varying.sum())))
        rows[:, 1:] = (X[:, varying] - self.centre[varying]) / self.width[varying]
        return rows

    def undo(self, theta: Floats) -> tuple[Floats, Floats]:
        """Intercepts (…,) and coefficients (…, K) of the features as given, from (…, 1 + varying columns)."""
        varying = self.varying
        coef = np.zeros((*theta.shape[:-1], self.n_columns))
        coef[..., varying] = theta[..., 1:] / self.width[varying]
        return theta[..., 0] - coef @ self.centre, coef


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything `fit_regression` needs from its input."""

    likelihood: Likelihood
    scaling: Scaling
    families: Families  # of the P outcomes
    scale: OutcomeScale  # of the outcomes
    wide: bool  # whether every feature has its own width, or all have a full covariance

    @property
    def units(self) -> Floats:
        """Centre and width of the outcomes, (2, P): 0 and 1 but of continuous ones."""
        own = [family.continuous for family in self.families]
        return np.where(own, [self.scale.centre, self.scale.width], [[0.0], [1.0]])

    def residual_sd(self, theta: Floats) -> Floats:
        """Standard deviation of continuous outcomes given features, (P,), from draws (C, S, P, ·); NaN for others."""
        own = np.array([family.pooled for family in self.families])
        if not own.any():
            return np.full(len(own), np.nan)
        draws = theta.reshape(-1, *theta.shape[2:]).astype(np.float64)
        variance = np.mean([self.likelihood.residual_variance(draw) for draw in draws], axis=0)
        return np.where(self.scale.fitted, np.sqrt(variance) * self.scale.width, np.where(own, 0.0, np.nan))

    def undo(self, theta: Floats) -> tuple[Floats, Floats]:
        """Intercepts (…, P) and coefficients (…, P, K) in the units of features and outcomes, from θ (…, P, ·)."""
        intercept, coef = self.scaling.undo(theta)
        fitted, constant, centre, width = self.scale
        coef *= width[:, None]
        intercept *= width
        intercept += centre
        coef[..., ~fitted, :] = 0.0
        intercept[..., ~fitted] = constant[~fitted]
        return intercept, coef


def dense(table: Any) -> Any:
    """Turn a scipy sparse matrix into an array; return anything else unchanged."""
    return table.toarray() if hasattr(table, "toarray") else table


def as_features(X: Any) -> Any:
    """Return X (N, K) as a finite float64 array, or as compressed sparse rows if it is sparse."""
    try:
        if hasattr(X, "tocsr"):
            array = X.tocsr().astype(np.float64)
            array.sum_duplicates()
        else:
            array = np.ascontiguousarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"X must be a table of numbers: {error}. Encode categories first.") from error
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"X must be a table (N, K) with rows and columns, got shape {array.shape}.")
    bad = ~np.isfinite(array.data if hasattr(array, "tocsr") else array)
    if bad.any():
        row, column = np.argwhere(~np.isfinite(dense(array)))[0]
        raise InputError(
            f"X must be finite: {int(bad.sum())} entries are NaN or infinite, the first in row {row}, column {column}. "
            "Impute them first, for example with sklearn.impute.SimpleImputer."
        )
    return array


def as_weights(sample_weight: Any, shape: tuple[int, ...]) -> Floats:
    """Return the weights of labels of a shape (N, P): (N,), by default ones, or (N, P)."""
    n = shape[0]
    if sample_weight is None:
        return np.ones(n)
    weights = np.ascontiguousarray(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(n, float(weights))
    if weights.shape not in ((n,), shape):
        raise InputError(
            f"sample_weight must be one number per row of X ({n}) or per label {shape}, got shape {weights.shape}."
        )
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise InputError("sample_weight must be finite and not negative.")
    if not np.any(weights > 0):
        raise InputError("sample_weight must have a positive entry: all weights are zero.")
    return weights


def as_widths(widths: Any, n_columns: int) -> Floats:
    """Return relative widths of features, (K,)."""
    found = np.asarray(widths, dtype=np.float64)
    if found.shape != (n_columns,) or not np.isfinite(found).all() or not (found > 0).all():
        raise InputError(f"widths must be {n_columns} positive numbers, one per column of X.")
    return found


def as_exposure(
    exposure: Any, labels: Floats, families: Families, names: tuple[str, ...] | None = None
) -> tuple[Floats, Floats]:
    """Return times at risk (N, P), by default ones, and the labels without those that have no time at risk."""
    if exposure is None:
        return np.ones(labels.shape), labels
    timed = np.array([family.with_exposure for family in families])
    if not timed.any():
        raise InputError('exposure is the time at risk of counts and needs family="poisson". Leave it out.')
    given = np.ascontiguousarray(exposure, dtype=np.float64)
    if given.shape not in ((len(labels),), labels.shape):
        raise InputError(
            f"exposure must be one number per row of X ({len(labels)}) or per label {labels.shape}, got shape "
            f"{given.shape}."
        )
    times = np.broadcast_to(given.reshape(len(labels), -1), labels.shape)
    known = ~np.isnan(labels) & timed
    wrong = known & ~(np.isfinite(times) & (times >= 0.0))
    if wrong.any():
        raise InputError("exposure must be finite and not negative wherever there is a label.")
    impossible = (known & (times == 0.0) & (labels > 0.0)).any(axis=0)
    if impossible.any():
        j = int(np.argmax(impossible))
        raise InputError(
            f"exposure must be positive where events were counted, but outcome {names[j] if names else j} has events "
            "in no time at risk."
        )
    return np.where(known, times, 1.0), np.where(known & (times == 0.0), np.nan, labels)


def observe_labels(
    labels: Floats, exposure: Floats, weights: Floats, families: Families
) -> tuple[tuple[Observed, ...], OutcomeScale]:
    """Labels (N, P) as the kernels take them, and the scale of the outcomes."""
    n_outcomes, columns = labels.shape[1], as_columns(weights)
    scale = OutcomeScale(np.zeros(n_outcomes, dtype=bool), *(np.zeros(n_outcomes) for _ in range(3)))
    observed = []
    for family, own in grouped(families):
        parts = labels[:, own], exposure[:, own]
        found = family.scale(*parts, columns if columns.shape[1] == 1 else columns[:, own])
        for whole, part in zip(scale, found, strict=True):
            whole[own] = part
        observed.append(Observed(family, own, tuple(map(np.ascontiguousarray, family.observe(*parts, found)))))
    return tuple(observed), scale


def scale_features(X: Any, weights: Floats) -> Scaling:
    """Centre and scale by the weighted mean and deviation; a column that does not vary gets width 0."""
    if hasattr(X, "tocsr"):
        share = weights / weights.sum()
        centre, rows, columns = np.asarray(X.T @ share), np.repeat(share, np.diff(X.indptr)), X.indices
        squares = np.bincount(columns, rows * (X.data - centre[columns]) ** 2, X.shape[1])
        squares += centre**2 * np.maximum(1.0 - np.bincount(columns, rows, X.shape[1]), 0.0)
        width, largest = np.sqrt(squares), np.asarray(abs(X).max(axis=0).toarray()).ravel()
    else:
        centre = np.average(X, axis=0, weights=weights)
        width = np.sqrt(np.average((X - centre) ** 2, axis=0, weights=weights))
        largest = np.abs(X).max(axis=0)
    width[width <= 1e-10 * np.maximum(np.abs(centre), largest)] = 0.0
    return Scaling(centre, width, X.shape[1])


def choose_wide(n_features: int, n_outcomes: int) -> bool:
    """Whether to give each feature its own width: a full covariance of many can be neither learned nor afforded."""
    return n_features > MOST_FULL or n_outcomes * (n_features + 1) > LARGEST_FULL


def sparse_likelihood(X: Any, scaling: Scaling, observed: tuple[Observed, ...], weights: Floats) -> SparseLikelihood:
    """OutcomeScale the columns that vary, without centring them, and cut the rows into blocks."""
    varying = scaling.varying
    scaled = X[:, np.flatnonzero(varying)].multiply(1.0 / scaling.width[varying]).tocsr()
    blocks = tuple(scaled[first : first + BLOCK] for first in range(0, X.shape[0], BLOCK))
    shift = scaling.centre[varying] / scaling.width[varying]
    return SparseLikelihood(np.ones((X.shape[0], 1)), observed, weights, blocks, shift)


def prepare(
    X: Any,
    Y: Any,
    sample_weight: Any = None,
    exposure: Any = None,
    family: Chosen = "probit",
    names: tuple[str, ...] | None = None,
    wide: bool | None = None,
    widths: Any = None,
) -> Prepared:
    """Check everything, set aside outcomes that have nothing to explain, and build the likelihood."""
    features, (labels, families) = as_features(X), as_labels(Y, family, names)
    if features.shape[0] != len(labels):
        raise InputError(f"X and Y must have as many rows: {features.shape[0]} and {len(labels)}.")
    weights = as_weights(sample_weight, labels.shape)
    times, labels = as_exposure(exposure, labels, families, names)
    labels = np.where(as_columns(weights) > 0, labels, np.nan)
    counted = row_weights(weights) > 0
    features, labels, weights, times = features[counted], labels[counted], weights[counted], times[counted]
    observed, scale = observe_labels(labels, times, weights, families)
    _check_fitted(scale.fitted, families, names, len(labels))
    if wide is None:
        wide = choose_wide(features.shape[1], labels.shape[1])
    features = features if wide else dense(features)
    scaling = scale_features(features, row_weights(weights))
    if not scaling.varying.any():
        raise InputError("X must have a column that varies: every one is constant.")
    if widths is not None:
        scaling = replace(scaling, width=scaling.width / as_widths(widths, scaling.n_columns))
    if wide and hasattr(features, "tocsr"):
        return Prepared(sparse_likelihood(features, scaling, observed, weights), scaling, families, scale, wide)
    rows = scaling.apply(features)
    size = rows.shape[1] * labels.shape[1]
    if size > LARGEST and not wide:
        warnings.warn(
            f"{labels.shape[1]} outcomes times {rows.shape[1]} coefficients are {size} unknowns, and with a full "
            'covariance every iteration factorises a matrix of that size: use covariance="diagonal".',
            UserWarning,
            stacklevel=3,
        )
    return Prepared(Likelihood(rows, observed, weights), scaling, families, scale, wide)


def _check_fitted(fitted: Bools, families: Families, names: tuple[str, ...] | None, n_rows: int) -> None:
    """Name the outcomes that have nothing to explain."""
    if fitted.all():
        return
    for family, own in grouped(families):
        alone = [names[j] if names else str(j) for j in own[~fitted[own]]]
        if not fitted.any():
            if all(each.binary for each in families):
                raise InputError(
                    "Y has no outcome with both classes, so there is nothing to fit: every column is all 0, all 1 or "
                    "missing."
                )
            where = f"in {n_rows} sample{'s' * (n_rows != 1)}"
            raise InputError(f"Y has no outcome that can be fitted {where}: each has {family.lacks} or is missing.")
        if alone:
            warnings.warn(
                f"{len(alone)} outcome(s) have {family.lacks} and are predicted by their {family.instead}: "
                f"{', '.join(alone[:10])}{', …' if len(alone) > 10 else ''}.",
                UserWarning,
                stacklevel=4,
            )
