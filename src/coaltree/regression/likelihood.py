r"""The likelihood of all outcomes, its gradient and its curvature.

With rows x_i = (1, features) and θ_j = (μ_j, β_j), label signs s_ij = ±1 (0 if missing) and case weights w_i,

    l(θ) = Σ_ij w_i |s_ij| log Ψ(s_ij x_i θ_j),   ∇_j l = Σ_i w_i s_ij λ(s_ij x_i θ_j) x_i,   λ = (log Ψ)′.

Rows pass through in blocks that stay in the processor's cache: a matrix product, the link, a matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coaltree.regression import links
from coaltree.regression.links import PROBIT

Floats = npt.NDArray[np.float64]

BLOCK = 1024


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Labels given features; immutable, so that chains share it."""

    rows: Floats  # (N, K+1), the first column ones
    signs: links.Signs  # (N, P): 1, −1, or 0 where the label is missing
    weights: Floats  # (N,)
    link: int = PROBIT

    @property
    def n_outcomes(self) -> int:
        """P."""
        return int(self.signs.shape[1])

    @property
    def n_features(self) -> int:
        """K."""
        return int(self.rows.shape[1]) - 1

    def values_and_gradient(self, theta: Floats) -> tuple[Floats, Floats]:
        """l of each outcome (P,), and the gradient (P, K+1)."""
        values, gradient = np.zeros(len(theta)), np.zeros_like(theta)
        tables = links.table(self.link)
        buffer = np.empty((min(BLOCK, len(self.rows)), len(theta)))
        for first in range(0, len(self.rows), BLOCK):
            rows = self.rows[first : first + BLOCK]
            eta = np.matmul(rows, theta.T, out=buffer[: len(rows)])
            block = slice(first, first + BLOCK)
            links.values_and_slopes(eta, self.signs[block], self.weights[block], tables, self.link, values, eta)
            gradient += eta.T @ rows
        return values, gradient

    def gradient(self, theta: Floats) -> Floats:
        """Gradient alone, (P, K+1)."""
        gradient = np.zeros_like(theta)
        tables = links.table(self.link)
        buffer = np.empty((min(BLOCK, len(self.rows)), len(theta)))
        for first in range(0, len(self.rows), BLOCK):
            rows = self.rows[first : first + BLOCK]
            eta = np.matmul(rows, theta.T, out=buffer[: len(rows)])
            block = slice(first, first + BLOCK)
            links.slopes(eta, self.signs[block], self.weights[block], tables, self.link, eta)
            gradient += eta.T @ rows
        return gradient

    def curvature(self, theta: Floats) -> Floats:
        """Minus the Hessian, one positive semi-definite block an outcome, (P, K+1, K+1).

        Its weights are λ(λ + z) for the probit and λ(1 − λ) for the logit.
        """
        z = self.signs * (self.rows @ theta.T)
        slope = links.link_slope(z, self.link)
        bend = slope * (slope + z) if self.link == PROBIT else slope * (1.0 - slope)
        # Far in the lower tail λ + z is a difference of near equals; the truth is between 0 and 1.
        bend = np.clip(bend, 0.0, 1.0) * self.weights[:, None] * np.abs(self.signs)
        return np.stack([(self.rows * bend[:, [j]]).T @ self.rows for j in range(len(theta))])


def penalised_mode(likelihood: Likelihood, precision: Floats, n_steps: int = 50) -> Floats:
    """Maximise l(θ) − ½ Σ_jk precision_k θ_jk² by Newton's method, each outcome with a step of its own; (P, K+1)."""
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
