"""Which covariance, and whether noise has heavy tails: short chains compared by leave-one-out density.

The density decides what predicts best, for new rows, missing entries and `score_samples`. It does not decide what tree
looks best to those who have labels in mind: see "Which covariance" in the documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.inference.effort import Effort
from coaltree.inference.learn import AUTO
from coaltree.model.columns import Columns
from coaltree.posterior.loo import Compared, LeaveOneOut, compare

LEARN, ROBUST = "learn", "robust"
# A short chain has this share of the iterations of a long one, and at least so many; half of them are warm-up.
PILOT_SHARE, FEWEST_ITERATIONS = 0.25, 100
# A full matrix needs so many rows per column to be worth trying, and more columns than this are too many for factors.
ROWS_PER_COLUMN, MOST_COLUMNS = 1.5, 400
# An iteration takes time n D² where coordinates are latent and the matrix is full.
MOST_LATENT = 60


def is_auto(value: Any) -> bool:
    """Whether a choice is left to the data."""
    return isinstance(value, str) and value == AUTO


def pilot(effort: Effort) -> Effort:
    """How long to run for a comparison."""
    n_iter = min(max(math.ceil(PILOT_SHARE * effort.n_iter), FEWEST_ITERATIONS), effort.n_iter)
    warmup = n_iter // 2
    return Effort(warmup, (n_iter - warmup) * effort.n_chains, effort.n_chains, 1)


def candidates(X: Floats) -> tuple[str, ...]:
    """Covariances that suit a table: those that its columns and rows can tell apart."""
    d = X.shape[1]
    if d == 1 or np.any(np.nanmin(X, axis=0) == np.nanmax(X, axis=0)):
        return ("spherical",)
    names = ["spherical", "diagonal"]
    complete = X[~np.isnan(X).any(axis=1)]
    if len(complete) >= ROWS_PER_COLUMN * d and not collinear(complete):
        names.append("wishart")
    if 3 <= d <= MOST_COLUMNS:
        names.append("factors")
    return tuple(names)


def candidates_of(columns: Columns, n: int) -> tuple[str, ...]:
    """Covariances that suit a mixed table of n rows: a scale for each column that has one, and all correlations."""
    n_scaled = int(np.count_nonzero(~columns.unit))
    names = ["spherical", *(["diagonal"] if n_scaled > 1 else [])]
    if columns.d > 1 and n >= ROWS_PER_COLUMN * columns.d and columns.d <= MOST_LATENT:
        names.append("wishart")
    return tuple(names)


def collinear(X: Floats) -> bool:
    """Whether some column is a linear combination of the others, up to rounding."""
    standard = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), np.finfo(np.float64).tiny)
    singular = np.linalg.svd(standard, compute_uv=False)
    return bool(len(singular) < X.shape[1] or singular[-1] < 1e-7 * singular[0])


def choose(
    suited: tuple[str, ...], covariance: Any, leaf_noise: Any, try_out: Callable[[Any, Any], LeaveOneOut]
) -> tuple[Any, Any, dict[str, Compared]]:
    """Return the covariance and leaf noise to run with, and the table of what was compared.

    Covariances first, with the noise that is asked for or one for all rows; then heavy tails, with the best of them.
    """
    names = suited if is_auto(covariance) else (covariance,)
    noise = LEARN if is_auto(leaf_noise) else leaf_noise
    fits = {_label(name): try_out(name, noise) for name in names}
    best = max(names, key=lambda name: fits[_label(name)].elpd)
    if is_auto(leaf_noise):
        plain = fits[_label(best)]
        robust = fits[f"{_label(best)}, {ROBUST}"] = try_out(best, ROBUST)
        if robust.elpd > plain.elpd:
            noise = ROBUST
    return best, noise, compare(fits)


def _label(covariance: Any) -> str:
    return covariance if isinstance(covariance, str) else "as given"
