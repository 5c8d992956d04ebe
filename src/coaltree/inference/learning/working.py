r"""What a spherical or diagonal Φ leaves out, and how the chain makes up for it.

**Columns that vary together.** A diagonal Φ is a working model: it takes d columns for d independent witnesses. If the
contrasts of the tree have the covariance C, their squared length |u|² has mean tr C and variance 2 tr C², that of a
scaled χ² with

    d_e = (tr C)² / tr C²

degrees of freedom (Satterthwaite). A tree of rows that are near in all columns alike has contrasts that are nearly
independent whatever Φ is: rows far apart along a common direction were not merged. So C and the tree are estimated in
turns, each tree greedy in the metric of the C before, shrunk towards a multiple of I (Ledoit and Wolf 2004). Where
columns are independent this ends at once. The likelihood is therefore raised to the power d_e / d, which restores the
information identity for log branch lengths, as in the magnitude adjustment of composite likelihoods (Pauli, Racugno and
Ventura 2011). With Φ = φI this is the model with d_e columns at the same distances: a table with a copy of every column
has the same posterior as without the copies.

**Values that are rounded.** Rows that share rounded values make noise of zero infinitely likely. A value known to a
step h is off by a variance of h²/12, so the noise variance s₀φ of a spherical Φ, or s₀σ² of one shrunk towards σ²I, is
at least that of the median column.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from coaltree import sizes
from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.inference.learning.start import Unknowns, greedy_start
from coaltree.model.covariance import CovarianceFamily, Diagonal, ShrunkWishart, Spherical, State
from coaltree.model.diffusion import pass_up
from coaltree.validation import check_real

AUTO, ALL = "auto", "all"
# Rounds of tree and C, and the share by which d_e still changes at the end.
MOST_ROUNDS, SETTLED = 12, 0.01
# A column has ties if fewer of its values than this share are distinct. Values nearer than this share of their range
# are equal, up to rounding in floating point.
TIED, EQUAL = 0.9, 1e-9


class Working(NamedTuple):
    """How the likelihood is used."""

    power: float = 1.0  # to which it is raised
    rounding: float = 0.0  # least variance of the noise, in the units of X

    def given(self, noise_level: float) -> dict[str, float]:
        """What a family must know to draw Φ given s₀: nothing unless it matters, which not all families allow."""
        told = {} if self.power == 1.0 else {"power": self.power}
        return told if self.rounding == 0.0 else {**told, "least": self.rounding / noise_level}

    def least_noise(self, covariance: State) -> float:
        """Least s₀ that rounding allows, given Φ."""
        return self.rounding / covariance.amplitude


def check_effective_columns(value: Any, d: int) -> str | float:
    """Return "auto", "all", or a number of columns between 0 and d."""
    if isinstance(value, str):
        if value not in (AUTO, ALL):
            raise InputError(f'effective_columns must be "auto", "all" or a number, got {value!r}.')
        return value
    number = check_real(value, "effective_columns", at_least=0.0)
    if not 0.0 < number <= d:
        raise InputError(f"effective_columns must be above 0 and at most {d}, the number of columns, got {value!r}.")
    return number


def work_with(
    start: Unknowns, X: Floats, filled: Floats, family: CovarianceFamily, effective: str | float, learn_noise: bool
) -> Working:
    """How to use the likelihood for a table X, (n, d), from a first guess of the tree and of missing entries.

    A Φ that is given, or that learns correlations, needs no power; a noise that is given needs no bound.
    """
    d = X.shape[1]
    columns = float(d)
    if isinstance(family, Spherical | Diagonal) and effective != ALL:
        if effective == AUTO:
            columns = count_columns(start.covariance.whiten(filled), start.leaf_noise)
        else:
            columns = float(effective)
    bounded = learn_noise and isinstance(family, Spherical | ShrunkWishart)
    return Working(columns / d, rounding_variance(X) if bounded else 0.0)


def with_room(start: Unknowns, working: Working) -> Unknowns:
    """Return a start whose noise is above the bound."""
    least = 2.0 * working.least_noise(start.covariance)
    return start if start.noise_level >= least else start.with_noise_level(least)


def count_columns(rows: Floats, noise: Floats) -> float:
    """d_e of rows (n, d) with independent noise (n,), from trees that allow for what they say about the covariance."""
    from sklearn.covariance import ledoit_wolf  # slow to import

    n, d = rows.shape
    if n > sizes.ROWS_COUNTED:
        some = np.linspace(0, n - 1, sizes.ROWS_COUNTED).astype(int)
        rows, noise, n = rows[some], noise[some], sizes.ROWS_COUNTED
    rows = rows - rows.mean(axis=0)
    if d >= n:  # what is said of C, and distances, are the same in the space of the rows
        left, lengths, _ = np.linalg.svd(rows, full_matrices=False)
        rows = (left * lengths)[:, :-1]
    metric: Floats = rows
    found = float(d)
    for _ in range(MOST_ROUNDS):
        tree = greedy_start(metric, noise, None)
        u = pass_up(tree, rows, noise).messages.contrasts(tree)
        before, found = found, effective_columns(u, d)
        if abs(found - before) <= SETTLED * before:
            break
        shrunk = ledoit_wolf(u, assume_centered=True)[0]
        shrunk *= len(shrunk) / np.trace(shrunk)  # contrasts stay as long as they are, beside noise in units of before
        metric = solve_triangular(np.linalg.cholesky(shrunk), rows.T, lower=True).T
    return found


def effective_columns(u: Floats, d: int | None = None) -> float:
    """d_e = (tr C)² / tr C², between 1 and d, of the covariance C of contrasts (m, d), or (m, r) in a subspace.

    Both parts are estimated without bias for normal contrasts: with Ĉ = uᵀu/m,
    E tr Ĉ² = (1 + 1/m) tr C² + (tr C)²/m and E (tr Ĉ)² = (tr C)² + 2 tr C²/m.
    """
    m = len(u)
    d = u.shape[1] if d is None else d
    if m < 3:
        return float(d)
    products = u.T @ u if u.shape[1] <= m else u @ u.T  # of equal trace and norm
    square, norm = (np.trace(products) / m) ** 2, float(np.sum(products**2)) / m**2
    trace_of_square = (norm - square / m) / (1.0 + 1.0 / m - 2.0 / m**2)
    square_of_trace = square - 2.0 * trace_of_square / m
    if trace_of_square * d <= square_of_trace:  # also where rounding, or chance, makes it negative
        return float(d)
    return max(float(square_of_trace / trace_of_square), 1.0)


def rounding_variance(X: Floats) -> float:
    """Median over columns of h²/12, h the least distance of two values; 0 for a column without ties."""
    return float(np.median([_rounding_of(column[~np.isnan(column)]) for column in X.T]))


def _rounding_of(known: Floats) -> float:
    distinct = np.unique(known)
    if not 1 < len(distinct) < TIED * len(known):
        return 0.0
    gaps = np.diff(distinct)
    gaps = gaps[gaps > EQUAL * (distinct[-1] - distinct[0])]
    return float(gaps.min()) ** 2 / 12.0
