r"""The likelihood of all outcomes, its gradient and its curvature.

With rows x_i = (1, features) and θ_j = (μ_j, β_j), label signs s_ij = ±1 (0 if missing) and case weights w_i or w_ij,

    l(θ) = Σ_ij w_ij |s_ij| log Ψ(s_ij x_i θ_j),   ∇_j l = Σ_i w_ij s_ij λ(s_ij x_i θ_j) x_i,   λ = (log Ψ)′.

Rows are processed in blocks that fit the processor's cache: a matrix product, the link, a matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats
from coaltree.regression import links
from coaltree.regression.links import PROBIT

BLOCK = 1024


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Labels given features; immutable, so that chains share it."""

    rows: Floats  # (N, K+1), the first column ones
    signs: links.Signs  # (N, P): 1, −1, or 0 where the label is missing
    weights: Floats  # (N,), or (N, P) where every label has its own
    link: int = PROBIT

    @property
    def n_outcomes(self) -> int:
        """P."""
        return int(self.signs.shape[1])

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
        n = len(self.signs)
        buffer = np.empty((min(BLOCK, n), n_outcomes))
        for first in range(0, n, BLOCK):
            yield slice(first, first + BLOCK), buffer[: min(BLOCK, n - first)]

    def values_and_gradient(self, theta: Floats) -> tuple[Floats, Floats]:
        """l of each outcome (P,), and the gradient (P, K+1)."""
        values, gradient = np.zeros(len(theta)), np.zeros_like(theta)
        tables = links.table(self.link)
        for block, buffer in self._blocks(len(theta)):
            eta = self.forward(block, theta, buffer)
            links.values_and_slopes(eta, self.signs[block], self.columns[block], tables, self.link, values, eta)
            gradient += self.backward(block, eta)
        return values, gradient

    def gradient(self, theta: Floats) -> Floats:
        """Gradient alone, (P, K+1)."""
        gradient = np.zeros_like(theta)
        tables = links.table(self.link)
        for block, buffer in self._blocks(len(theta)):
            eta = self.forward(block, theta, buffer)
            links.slopes(eta, self.signs[block], self.columns[block], tables, self.link, eta)
            gradient += self.backward(block, eta)
        return gradient

    def predictor(self, theta: Floats) -> Floats:
        """η of all rows, (N, P)."""
        eta = np.empty((len(self.signs), len(theta)))
        for block, _ in self._blocks(len(theta)):
            self.forward(block, theta, eta[block])
        return eta

    def transposed(self, values: Floats) -> Floats:
        """Σ_i values_ij x_i over all rows, (P, K+1)."""
        return np.asarray(sum(self.backward(block, values[block]) for block, _ in self._blocks(1)))

    def bend(self, theta: Floats) -> Floats:
        """Minus the second derivative of l along η of each row and outcome, (N, P).

        It is λ(λ + z) for the probit and λ(1 − λ) for the logit.
        """
        z = self.signs * self.predictor(theta)
        slope = links.link_slope(z, self.link)
        bend = slope * (slope + z) if self.link == PROBIT else slope * (1.0 - slope)
        # Far in the lower tail λ + z is a difference of near equals; the true value lies between 0 and 1.
        return np.asarray(np.clip(bend, 0.0, 1.0) * self.columns * np.abs(self.signs))

    def curvature(self, theta: Floats) -> Floats:
        """Minus the Hessian, one positive semi-definite block per outcome, (P, K+1, K+1)."""
        bend = self.bend(theta)
        return np.stack([(self.rows * bend[:, [j]]).T @ self.rows for j in range(len(theta))])

    def gram(self, part: slice, weights: Floats) -> Floats:
        """Σ_i w_i (x_i − x̄)(x_i − x̄)ᵀ of a part of the features, x̄ their weighted mean; w is (N,)."""
        return _centred_gram(self.rows[:, 1:][:, part], weights)

    def of_outcome(self, j: int) -> Likelihood:
        """The likelihood of one outcome alone, labels (N, 1)."""
        return replace(self, signs=np.ascontiguousarray(self.signs[:, [j]]), weights=self._weights_of(j))

    def _weights_of(self, j: int) -> Floats:
        return self.weights if self.weights.ndim == 1 else np.ascontiguousarray(self.weights[:, j])

    def digest(self) -> list[npt.NDArray[Any]]:
        """All arrays that decide its values."""
        return [self.rows, self.signs, self.weights]


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
        return [*parts, self.shift, self.signs, self.weights]


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
        signs = np.ascontiguousarray(self.signs[:, one])
        return replace(self, signs=signs, weights=self._weights_of(j), own=self.own[:, :, one])

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
