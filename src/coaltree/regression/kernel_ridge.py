r"""Kernel ridge regression of all outcomes at once: smooth effects of all features together.

With features z, centred and divided by their deviation to some power, the predictor of outcome j is

    f_j(x) = rate_j + Σ_l k(z, z_l) α_lj,   k(z, z′) = exp(−γ |z − z′|² / D),

D the mean squared distance of two rows, over L rows z_l of the table (all of them, or MOST_ROWS at random). Then
f = rates + Bθ with B = K_{NL} K_{LL}^(−½) and a penalty ρ_j |θ_j|², and what a row is predicted to be without itself
follows from the fit to all rows,

    f_j(x_i without i) − rate_j = (b_i θ_j − h_i r_ij) / (1 − h_i),   h = diag(B (BᵀB + ρ)⁻¹ Bᵀ),   r = labels − rates,

exactly. The power and γ, common to all outcomes, are chosen by these predictions for a part of the rows, and the
penalty of each outcome for all. Outcomes count in units of their standard deviation. A missing label is set to its
outcome's rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.regression.forest import log_odds
from coaltree.regression.penalised import POWERS
from coaltree.regression.preparation import scale_features

INVERSE_LENGTHS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
# Rows that choose the power and γ, and rows that predict.
N_SEARCHED, MOST_ROWS = 800, 2_000
# Rows predicted at a time.
BLOCK = 4096
# Eigenvalues of K below this share of the largest are left out.
SMALLEST = 1e-9


@dataclass(frozen=True, eq=False)
class Kernel:
    """A weighted sum of kernels around rows of the table."""

    centre: Floats  # (K,)
    inverse_width: Floats  # (K,), 0 where a feature is constant; √(γ/D) is included
    rows: Floats  # (L, K), centred and scaled
    weights: Floats  # (L, P), α
    rates: Floats  # (P,)

    def predict(self, X: Any) -> Floats:
        """Expected labels, (N, P): about probabilities, but not bounded."""
        blocks = range(0, len(X), BLOCK)  # the kernel between all rows would be (N, L)
        found = [_kernel(self.scaled(X[first : first + BLOCK]), self.rows) @ self.weights for first in blocks]
        return np.asarray(np.concatenate(found) + self.rates)

    def scaled(self, X: Any) -> Floats:
        """Features as the kernel sees them, (N, K)."""
        return np.asarray((X - self.centre) * self.inverse_width)

    def logits(self, X: Any) -> Floats:
        """Log odds, (N, P)."""
        return log_odds(self.predict(X), self.rates)


def _kernel(rows: Floats, others: Floats) -> Floats:
    from sklearn.metrics.pairwise import rbf_kernel  # slow to import

    return np.asarray(rbf_kernel(rows, others, gamma=1.0))


def fit_kernel(X: Floats, Y: Floats, weights: Floats, rates: Floats, rng: np.random.Generator) -> tuple[Kernel, Floats]:
    """Return the model and what every row is expected to be without itself, (N, P)."""
    deviation = np.sqrt(rates * (1.0 - rates))
    residuals = np.where(np.isnan(Y), 0.0, Y - rates) / deviation
    scaling = scale_features(X, weights)
    centre, width = scaling.centre, np.where(scaling.varying, scaling.width, np.inf)
    share = weights / weights.sum()
    order = rng.permutation(len(X))
    part = order[:N_SEARCHED]
    lowest, inverse_width = np.inf, np.zeros(X.shape[1])
    for power in POWERS:
        scaled = width**-power
        apart = max(2.0 * float(share @ (((X - centre) * scaled) ** 2).sum(axis=1)), 1e-300)
        for inverse_length in INVERSE_LENGTHS:
            tried = scaled * np.sqrt(inverse_length / apart)
            rows = (X[part] - centre) * tried
            losses = _ridge(rows, rows, residuals[part], weights[part])[2]
            if (loss := float(losses.sum())) < lowest:
                lowest, inverse_width = loss, tried
    rows = (X - centre) * inverse_width
    chosen = np.sort(order[:MOST_ROWS])
    alpha, without, _ = _ridge(rows, rows[chosen], residuals, weights)
    return Kernel(centre, inverse_width, rows[chosen], alpha * deviation, rates), without * deviation + rates


def _ridge(rows: Floats, others: Floats, residuals: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """α (L, P), predictions of the residuals (N, P) without their rows, and their mean squared errors (P,).

    Every outcome has the penalty with the least error.
    """
    values, vectors = np.linalg.eigh(_kernel(others, others))
    kept = values > SMALLEST * values[-1]
    half = vectors[:, kept] / np.sqrt(values[kept])
    B = _kernel(rows, others) @ half
    root = np.sqrt(weights)[:, None]
    spectrum, axes = np.linalg.eigh((root * B).T @ (root * B))
    spectrum, turned = np.maximum(spectrum, 0.0), root * (B @ axes)
    labels = root * residuals
    pulled, squares = turned.T @ labels, turned**2
    lowest = np.full(residuals.shape[1], np.inf)
    alpha, without = np.zeros_like(pulled), np.zeros_like(residuals)
    for penalty in PENALTIES:
        theta = pulled / (spectrum + penalty)[:, None]
        lever = np.minimum(squares @ (1.0 / (spectrum + penalty)), 1.0 - 1e-9)[:, None]
        left = (turned @ theta - lever * labels) / (1.0 - lever)
        losses = np.mean((labels - left) ** 2, axis=0)
        better = losses < lowest
        lowest, alpha = np.where(better, losses, lowest), np.where(better, theta, alpha)
        without = np.where(better, left, without)
    return half @ (axes @ alpha), without / root, lowest
