r"""The likelihood of all outcomes, its gradient and its curvature.

With rows x_i = (1, features) and θ_j = (μ_j, β_j), η_ij = x_i θ_j, and case weights w_i or w_ij,

    l(θ) = Σ_ij w_ij l_j(y_ij, η_ij),   ∇_j l = Σ_i w_ij l_j′(y_ij, η_ij) x_i,

over the labels that are there, l_j the log likelihood of outcome j's family (`families`). If that is pooled, l(θ_j) is
a function g of the sum over rows instead, and ∇_j l gets the factor g′.

Rows are processed in blocks that fit the processor's cache: a matrix product, the family's kernel, a matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats, Ints
from coaltree.regression.families.base import Observed

BLOCK = 1024


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Labels given features; immutable, so that chains share it."""

    rows: Floats  # (N, K+1), the first column ones
    observed: tuple[Observed, ...]  # all outcomes, by family
    weights: Floats  # (N,), or (N, P) where every label has its own

    @property
    def n_outcomes(self) -> int:
        """P."""
        return sum(len(part.columns) for part in self.observed)

    @property
    def n_rows(self) -> int:
        """N."""
        return len(self.weights)

    @property
    def n_features(self) -> int:
        """K."""
        return int(self.rows.shape[1]) - 1

    @property
    def columns(self) -> Floats:
        """The weights as columns, (N, 1) or (N, P)."""
        return as_columns(self.weights)

    @property
    def cases(self) -> Floats:
        """The weight of every row, (N,): the mean over its labels where these have their own."""
        return row_weights(self.weights)

    def forward(self, block: slice, theta: Floats, out: Floats) -> Floats:
        """η of a block of rows, (n, P), into `out`."""
        return np.asarray(np.matmul(self.rows[block], theta.T, out=out))

    def backward(self, block: slice, values: Floats) -> Floats:
        """Σ_i values_ij x_i over a block of rows, (P, K+1)."""
        return np.asarray(values.T @ self.rows[block])

    def _blocks(self, n_outcomes: int) -> Iterator[tuple[slice, Floats]]:
        """Blocks of rows, each with room for its η."""
        n = self.n_rows
        buffer = np.empty((min(BLOCK, n), n_outcomes))
        for first in range(0, n, BLOCK):
            yield slice(first, first + BLOCK), buffer[: min(BLOCK, n - first)]

    def _parts(self, block: slice, eta: Floats) -> Iterator[tuple[Observed, Floats, Floats]]:
        """Families with their data, their η and their weights in a block; their changes to η are taken over."""
        weights = self.columns[block]
        for part in self.observed:
            data = tuple(array[block] for array in part.data)
            if len(self.observed) == 1:
                yield part._replace(data=data), eta, weights
                continue
            own = np.ascontiguousarray(eta[:, part.columns])
            shared = weights.shape[1] == 1
            yield part._replace(data=data), own, weights if shared else np.ascontiguousarray(weights[:, part.columns])
            eta[:, part.columns] = own

    def values_and_gradient(self, theta: Floats) -> tuple[Floats, Floats]:
        """l of each outcome (P,), and the gradient (P, K+1)."""
        values, gradient = self._sums(theta)
        for columns, value, factor in self._pooled(values):
            values[columns] = value
            gradient[columns] *= factor[:, None]
        return values, gradient

    def _sums(self, theta: Floats) -> tuple[Floats, Floats]:
        """The same as sums over rows, before families are pooled."""
        values, gradient = np.zeros(len(theta)), np.zeros_like(theta)
        for block, buffer in self._blocks(len(theta)):
            eta = self.forward(block, theta, buffer)
            for (family, columns, data), own, weights in self._parts(block, eta):
                sums = values[columns]
                family.values_and_slopes(own, data, weights, sums, own)
                values[columns] = sums
            gradient += self.backward(block, eta)
        return values, gradient

    def gradient(self, theta: Floats) -> Floats:
        """Gradient alone, (P, K+1)."""
        if self._is_pooled:
            return self.values_and_gradient(theta)[1]
        gradient = np.zeros_like(theta)
        for block, buffer in self._blocks(len(theta)):
            eta = self.forward(block, theta, buffer)
            for (family, _, data), own, weights in self._parts(block, eta):
                family.slopes(own, data, weights, own)
            gradient += self.backward(block, eta)
        return gradient

    @property
    def _is_pooled(self) -> bool:
        return any(part.family.pooled for part in self.observed)

    def _pooled(self, sums: Floats) -> Iterator[tuple[Ints, Floats, Floats]]:
        """The outcomes of pooled families, g and g′ at the sums over rows."""
        for family, columns, _ in self.observed:
            if family.pooled:
                yield columns, *family.pool(sums[columns], self._sizes[columns])

    @cached_property
    def _sizes(self) -> Floats:
        """Weight of the labels of each outcome of a pooled family, (P,)."""
        sizes = np.zeros(self.n_outcomes)
        for part in self.observed:
            if part.family.pooled:
                own = self.columns if self.columns.shape[1] == 1 else self.columns[:, part.columns]
                sizes[part.columns] = part.family.size(part.data, own)
        return sizes

    def predictor(self, theta: Floats) -> Floats:
        """η of all rows, (N, P)."""
        eta = np.empty((self.n_rows, len(theta)))
        for block, _ in self._blocks(len(theta)):
            self.forward(block, theta, eta[block])
        return eta

    def transposed(self, values: Floats) -> Floats:
        """Σ_i values_ij x_i over all rows, (P, K+1)."""
        return np.asarray(sum(self.backward(block, values[block]) for block, _ in self._blocks(1)))

    def bend(self, theta: Floats) -> Floats:
        """Minus the second derivative of l along η of each row and outcome, (N, P); of pooled families, g′ times it.

        That leaves out −g″ times the square of a gradient, which vanishes at the mode, so the rest is an approximation
        that is never negative.
        """
        eta = self.predictor(theta)
        for (family, _, data), own, _ in self._parts(slice(0, self.n_rows), eta):
            own[:] = family.bend(own, data)
        bend = np.asarray(eta * self.columns)
        if self._is_pooled:
            for columns, _, factor in self._pooled(self._sums(theta)[0]):
                bend[:, columns] *= factor
        return bend

    def residual_variance(self, theta: Floats) -> Floats:
        """Variance of labels given features, (P,): its posterior mean given θ; NaN where the family has none."""
        found = np.full(len(theta), np.nan)
        if self._is_pooled:
            sums = self._sums(theta)[0]
            for family, columns, _ in self.observed:
                if family.pooled:
                    found[columns] = family.residual_variance(sums[columns], self._sizes[columns])
        return found

    def curvature(self, theta: Floats) -> Floats:
        """Minus the Hessian, one positive semi-definite block per outcome, (P, K+1, K+1)."""
        bend = self.bend(theta)
        return np.stack([(self.rows * bend[:, [j]]).T @ self.rows for j in range(len(theta))])

    def gram(self, part: slice, weights: Floats) -> Floats:
        """Σ_i w_i (x_i − x̄)(x_i − x̄)ᵀ of a part of the features, x̄ their weighted mean; w is (N,)."""
        return _centred_gram(self.rows[:, 1:][:, part], weights)

    def of_outcome(self, j: int) -> Likelihood:
        """The likelihood of one outcome alone, labels (N, 1)."""
        return replace(self, observed=self._observed_of(j), weights=self._weights_of(j))

    def _observed_of(self, j: int) -> tuple[Observed, ...]:
        return tuple(part.of_outcome(j) for part in self.observed if j in part.columns)

    def _weights_of(self, j: int) -> Floats:
        return self.weights if self.weights.ndim == 1 else np.ascontiguousarray(self.weights[:, j])

    def digest(self) -> list[npt.NDArray[Any]]:
        """All arrays that decide its values."""
        return [self.rows, *self._labels(), self.weights]

    def _labels(self) -> list[npt.NDArray[Any]]:
        return [array for part in self.observed for array in (part.columns, *part.data)]


@dataclass(frozen=True, eq=False)
class SparseLikelihood(Likelihood):
    """The same for features that are mostly zero, which are never made dense.

    `rows` is just a column of ones; `blocks` hold x/width as compressed sparse rows, and `shift` is what centring
    subtracts from them.
    """

    blocks: tuple[Any, ...] = ()  # scipy.sparse.csr_array, BLOCK rows each
    shift: Floats = field(default_factory=lambda: np.zeros(0))  # (K,)

    @property
    def n_features(self) -> int:
        """K."""
        return len(self.shift)

    def forward(self, block: slice, theta: Floats, out: Floats) -> Floats:
        """η of a block of rows, (n, P), into `out`."""
        beta = np.ascontiguousarray(theta[:, 1:].T)
        out[:] = self.blocks[block.start // BLOCK] @ beta
        out += theta[:, 0] - self.shift @ beta
        return out

    def backward(self, block: slice, values: Floats) -> Floats:
        """Σ_i values_ij x_i over a block of rows, (P, K+1)."""
        total = values.sum(axis=0)[:, None]
        raw = (self.blocks[block.start // BLOCK].T @ values).T
        return np.hstack([total, raw - total * self.shift])

    def curvature(self, theta: Floats) -> Floats:
        """Never called: sparse features are there to avoid P matrices of size (K+1)²."""
        raise NotImplementedError

    def gram(self, part: slice, weights: Floats) -> Floats:
        """Σ_i w_i (x_i − x̄)(x_i − x̄)ᵀ of a part of the features, x̄ their weighted mean; w is (N,)."""
        size = len(self.shift[part])
        total, sums = np.zeros((size, size)), np.zeros(size)
        for number, rows in enumerate(self.blocks):
            own, columns = weights[number * BLOCK : number * BLOCK + rows.shape[0]], rows[:, part]
            total += (columns.T @ columns.multiply(own[:, None])).toarray()
            sums += columns.T @ own
        return np.asarray(total - np.outer(sums, sums) / weights.sum())

    def digest(self) -> list[npt.NDArray[Any]]:
        """All arrays that decide its values."""
        parts = [part for rows in self.blocks for part in (rows.data, rows.indices, rows.indptr)]
        return [*parts, self.shift, *self._labels(), self.weights]


@dataclass(frozen=True, eq=False)
class OwnLikelihood(Likelihood):
    """Features that all outcomes share, `rows` (N, 1 + S), and C features with separate values for every outcome.

    θ_j holds the intercept, S shared and C own coefficients; all coefficients have the same tree prior.
    """

    own: Floats = field(default_factory=lambda: np.zeros((0, 0, 0)))  # (C, N, P)

    @property
    def n_features(self) -> int:
        """S + C."""
        return int(self.rows.shape[1]) - 1 + len(self.own)

    def forward(self, block: slice, theta: Floats, out: Floats) -> Floats:
        """η of a block of rows, (n, P), into `out`."""
        n_shared = self.rows.shape[1]
        np.matmul(self.rows[block], theta[:, :n_shared].T, out=out)
        for c, own in enumerate(self.own):
            out += own[block] * theta[:, n_shared + c]
        return out

    def backward(self, block: slice, values: Floats) -> Floats:
        """Σ_i values_ij x_ij over a block of rows, (P, 1 + S + C)."""
        mine = np.einsum("ij,cij->jc", values, self.own[:, block])
        return np.hstack([values.T @ self.rows[block], mine])

    def _rows_of(self, j: int) -> Floats:
        return np.hstack([self.rows, self.own[:, :, j].T])

    def curvature(self, theta: Floats) -> Floats:
        """Minus the Hessian, one block per outcome."""
        bend = self.bend(theta)
        rows = [self._rows_of(j) for j in range(len(theta))]
        return np.stack([(rows[j] * bend[:, [j]]).T @ rows[j] for j in range(len(theta))])

    def gram(self, part: slice, weights: Floats) -> Floats:
        """Σ_i w_i (x_ij − x̄_j)(x_ij − x̄_j)ᵀ of a part of the features, the mean over outcomes."""
        every = (self._rows_of(j)[:, 1:][:, part] for j in range(self.n_outcomes))
        return np.asarray(sum(_centred_gram(rows, weights) for rows in every) / self.n_outcomes)

    def of_outcome(self, j: int) -> Likelihood:
        """The likelihood of one outcome alone, labels (N, 1)."""
        one = slice(j, j + 1)
        return replace(self, observed=self._observed_of(j), weights=self._weights_of(j), own=self.own[:, :, one])

    def digest(self) -> list[npt.NDArray[Any]]:
        """All arrays that decide its values."""
        return [*super().digest(), self.own]


def as_columns(weights: Floats) -> Floats:
    """Return weights (N,) or (N, P) as columns, (N, 1) or (N, P)."""
    return weights[:, None] if weights.ndim == 1 else weights


def row_weights(weights: Floats) -> Floats:
    """Return one weight per row, the mean of its own if there are several."""
    return weights if weights.ndim == 1 else weights.mean(axis=1)


def _centred_gram(rows: Floats, weights: Floats) -> Floats:
    weighted = rows * weights[:, None]
    sums = weighted.sum(axis=0)
    return np.asarray(weighted.T @ rows - np.outer(sums, sums) / weights.sum())


def penalised_mode(likelihood: Likelihood, precision: Floats, n_steps: int = 50) -> Floats:
    """Maximise l(θ) − ½ Σ_jk precision_k θ_jk² by Newton's method, each outcome with its own step size; (P, K+1)."""
    theta = np.zeros((likelihood.n_outcomes, likelihood.n_features + 1))

    def objective(theta: Floats) -> tuple[Floats, Floats]:
        values, gradient = likelihood.values_and_gradient(theta)
        return values - 0.5 * (theta**2 @ precision), gradient - precision * theta

    height, slope = objective(theta)
    for _ in range(n_steps):
        curvature = likelihood.curvature(theta) + np.diag(precision)
        step = np.linalg.solve(curvature, slope[..., None])[..., 0]
        gain = np.einsum("jk,jk->j", step, slope)
        if np.all(gain < 1e-8 * (1.0 + np.abs(height))):
            break
        for _ in range(30):
            new_height, new_slope = objective(theta + step)
            worse = ~(new_height >= height - 1e-12 * np.abs(height))
            if not worse.any():
                break
            step[worse] *= 0.5
        theta, height, slope = theta + step, new_height, new_slope
    return theta
