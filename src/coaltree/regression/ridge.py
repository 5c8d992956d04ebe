r"""Ridge logistic regression of all outcomes at once, along a path of penalties.

After rotation to the principal axes of the scaled features the curvature is close to w_j d_k + penalty, w_j the mean of
p(1 − p): a few steps with that inverse, all outcomes in one matrix product, come close enough. Weak penalties are only
approached, which is a penalty too; the path is the same wherever it runs, and its best point is chosen by predictions
of rows left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit

from coaltree._arrays import Floats, Ints

# Prior variance of the linear predictor at each penalty.
VARIANCES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
# Features are divided by their deviation to these powers: rare words have too loud a voice under the first.
POWERS = (1.0, 0.5)
N_STEPS = 12


@dataclass(frozen=True, eq=False)
class Ridge:
    """A linear predictor of every outcome."""

    intercept: Floats  # (P,)
    coef: Floats  # (P, K)

    def logits(self, X: Any) -> Floats:
        """(N, P)."""
        return np.asarray(X @ self.coef.T + self.intercept)


def ridge_path(X: Floats, Y: Floats, weights: Floats, rates: Floats) -> list[Ridge]:
    """One model a way of scaling and a penalty, the strongest first."""
    return [model for power in POWERS for model in _path(X, Y, weights, rates, power)]


def _path(X: Floats, Y: Floats, weights: Floats, rates: Floats, power: float) -> list[Ridge]:
    share = weights / weights.sum()
    centre = share @ X
    width = np.sqrt(share @ (X - centre) ** 2)
    width[width <= 1e-10 * np.maximum(np.abs(centre), np.abs(X).max(axis=0))] = np.inf
    width = width**power
    rows = (X - centre) / width
    root = np.sqrt(weights)[:, None]
    if rows.shape[1] <= len(rows):
        d, axes = np.linalg.eigh((rows * root).T @ (rows * root))
        keep = d > 1e-9 * max(d[-1], 1e-300)
        d, axes = d[keep], axes[:, keep]
    else:
        d, left = np.linalg.eigh((rows * root) @ (rows * root).T)
        keep = d > 1e-9 * max(d[-1], 1e-300)
        d = d[keep]
        axes = (rows * root).T @ left[:, keep] / np.sqrt(d)
    turned = rows @ axes
    known = np.where(np.isnan(Y), 0.0, weights[:, None])
    labels = np.where(np.isnan(Y), 0.0, Y)
    theta, mu = np.zeros((Y.shape[1], len(d))), logit(rates)
    total, path = np.maximum(known.sum(axis=0), 1e-12), []
    spread = max(float(np.sum(share @ rows**2)), 1e-300)
    signs = known * (2.0 * labels - 1.0)

    def height(mu: Floats, theta: Floats, penalty: float) -> tuple[Floats, Floats]:
        """η, and the penalised log likelihood of each outcome."""
        eta = turned @ theta.T + mu
        fit = -np.einsum("ij,ij->j", known, np.logaddexp(0.0, -np.sign(signs) * eta))
        return eta, fit - 0.5 * penalty * (theta**2).sum(axis=1)

    for variance in VARIANCES:
        penalty, caution = spread / variance, np.ones(Y.shape[1])
        eta, now = height(mu, theta, penalty)
        for _ in range(N_STEPS):
            p = expit(eta)
            residual = known * (labels - p)
            bend = caution * np.maximum((known * p * (1.0 - p)).sum(axis=0) / total, 1e-6)
            new_mu = mu + residual.sum(axis=0) / (bend * total)
            new_theta = theta + (residual.T @ turned - penalty * theta) / (bend[:, None] * d + penalty)
            new_eta, new = height(new_mu, new_theta, penalty)
            # Rows that matter have more curvature than the mean: a step too far is taken back and made shorter.
            better = new >= now - 1e-9 * np.abs(now)  # at the top all steps are level
            mu, now, eta = np.where(better, new_mu, mu), np.where(better, new, now), np.where(better, new_eta, eta)
            theta = np.where(better[:, None], new_theta, theta)
            caution = np.where(better, np.maximum(0.8 * caution, 1.0), 3.0 * caution)
        coef = (theta @ axes.T) / width
        path.append(Ridge(mu - coef @ centre, coef))
    return path


def crossfit_ridge(X: Floats, Y: Floats, weights: Floats, rates: Floats, folds: Ints) -> tuple[Ridge, Floats]:
    """Choose every outcome's penalty by the loss of rows left out; return the model and logits of rows left out."""
    held = np.empty((len(POWERS) * len(VARIANCES), *Y.shape))
    for fold in range(int(folds.max()) + 1):
        out = folds == fold
        for k, model in enumerate(ridge_path(X[~out], Y[~out], weights[~out], rates)):
            held[k, out] = model.logits(X[out])
    labels = np.where(np.isnan(Y), 0.0, 2.0 * Y - 1.0)
    loss = (np.logaddexp(0.0, -labels * held) * np.abs(labels) * weights[:, None]).sum(axis=1)
    best = np.argmin(loss, axis=0)
    path, outcomes = ridge_path(X, Y, weights, rates), np.arange(Y.shape[1])
    intercept = np.array([path[k].intercept[j] for j, k in enumerate(best)])
    coef = np.array([path[k].coef[j] for j, k in enumerate(best)])
    return Ridge(intercept, coef), np.moveaxis(held, 0, 2)[:, outcomes, best]
