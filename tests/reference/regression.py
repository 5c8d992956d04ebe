"""Twins of `coaltree.regression`: penalised fits by a general optimiser, areas by counting pairs, DeLong's variance."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.stats import logistic, norm


def objective(theta, X, y, penalty, l1_ratio, link):
    """Mean loss plus penalty; X has a first column of ones."""
    distribution = {"logit": logistic, "probit": norm}[link]
    margin = (2 * y - 1) * (X @ theta)
    size = l1_ratio * np.abs(theta[1:]).sum() + 0.5 * (1 - l1_ratio) * (theta[1:] ** 2).sum()
    return -distribution.logcdf(margin).mean() + penalty * size


def fit_coefficients(X, y, penalty, l1_ratio, link="logit"):
    """Minimise over positive and negative parts, so that the absolute values are smooth; L-BFGS-B."""
    k = X.shape[1]
    distribution = {"logit": logistic, "probit": norm}[link]
    sign = 2 * y - 1

    def value_and_gradient(parts):
        theta = parts[:k].copy()
        theta[1:] -= parts[k:]
        margin = sign * (X @ theta)
        rate = np.exp(distribution.logpdf(margin) - distribution.logcdf(margin))
        gradient = -(X.T @ (sign * rate)) / len(y)
        gradient[1:] += penalty * (1 - l1_ratio) * theta[1:]
        value = -distribution.logcdf(margin).mean() + penalty * 0.5 * (1 - l1_ratio) * (theta[1:] ** 2).sum()
        value += penalty * l1_ratio * (parts[1:k].sum() + parts[k:].sum())
        return value, np.concatenate(
            [gradient[:1], gradient[1:] + penalty * l1_ratio, -gradient[1:] + penalty * l1_ratio]
        )

    bounds = [(None, None)] + [(0, None)] * (2 * k - 2)
    options = {"maxiter": 20_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30}
    parts = minimize(value_and_gradient, np.zeros(2 * k - 1), jac=True, bounds=bounds, options=options).x
    theta = parts[:k].copy()
    theta[1:] -= parts[k:]
    return theta


def descend(hessian, linear, l1, l2, sweeps=10_000):
    """Proximal gradient steps on ½ θᵀHθ − bᵀθ + Σ_{k ≥ 1} (l1 |θ_k| + ½ l2 θ_k²) until they stand still."""
    theta = np.zeros(len(linear))
    step = 1.0 / (np.linalg.eigvalsh(hessian)[-1] + l2)
    for _ in range(sweeps):
        gradient = hessian @ theta - linear
        gradient[1:] += l2 * theta[1:]
        theta = theta - step * gradient
        theta[1:] = np.sign(theta[1:]) * np.maximum(np.abs(theta[1:]) - step * l1, 0.0)
    return theta


def auroc(y, score, groups=None, counts=None):
    """Share of concordant pairs (event, non-event) within groups, one pair at a time."""
    groups = np.zeros(len(y)) if groups is None else groups
    counts = np.ones(len(y)) if counts is None else counts
    concordant = pairs = 0.0
    for i in np.flatnonzero(y == 1):
        for j in np.flatnonzero((y == 0) & (groups == groups[i])):
            pairs += counts[i] * counts[j]
            concordant += counts[i] * counts[j] * (0.5 * (score[i] == score[j]) + (score[i] > score[j]))
    return concordant / pairs if pairs else np.nan


def delong_variance(y, score, other=None):
    """Variance of the area under the ROC curve, or of the difference of two, by DeLong, DeLong & Clarke-Pearson."""

    def placements(s):
        event, rest = s[y == 1], s[y == 0]
        above = (event[:, None] > rest) + 0.5 * (event[:, None] == rest)
        return above.mean(axis=1), above.mean(axis=0)

    of_events, of_rest = placements(score)
    if other is not None:
        other_events, other_rest = placements(other)
        of_events, of_rest = of_events - other_events, of_rest - other_rest
    return of_events.var(ddof=1) / len(of_events) + of_rest.var(ddof=1) / len(of_rest)
