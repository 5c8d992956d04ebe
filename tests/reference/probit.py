"""The multi-outcome probit written for reading: sums over rows and outcomes, densities by scipy, trees by recursion."""

import numpy as np
from scipy import stats
from scipy.special import erfcx, expit, log_expit

from tests.reference.trees import cophenetic


def log_likelihood(X, Y, weights, theta, link="probit"):
    """Σ w log P(y | x), label by label; NaN is no label."""
    total = 0.0
    for x, y, w in zip(X, Y, weights, strict=True):
        for label, (mu, *beta) in zip(y, theta, strict=True):
            if not np.isnan(label):
                z = (2 * label - 1) * (mu + x @ beta)
                total += w * (stats.norm.logcdf(z) if link == "probit" else log_expit(z))
    return total


def gradient(X, Y, weights, theta, link="probit"):
    result = np.zeros_like(theta)
    for x, y, w in zip(X, Y, weights, strict=True):
        for j, label in enumerate(y):
            if not np.isnan(label):
                sign = 2 * label - 1
                z = sign * (theta[j, 0] + x @ theta[j, 1:])
                slope = np.sqrt(2 / np.pi) / erfcx(-z / np.sqrt(2)) if link == "probit" else expit(-z)
                result[j] += w * sign * slope * np.append(1.0, x)
    return result


def log_prior(theta, tree, phi, noise, spread, intercept_sd):
    """log p(μ, β | tree, Φ, s₀, τ): dense covariance of the differences from the first leaf, and the mean apart."""
    mu, beta = theta[:, 0], theta[:, 1:]
    n = len(beta)
    total = stats.norm.logpdf(mu, scale=intercept_sd).sum() + stats.norm.logpdf(beta.mean(axis=0), scale=spread).sum()
    if n > 1:
        height = tree.times[-1]
        among_leaves = height - cophenetic(tree) + noise * np.eye(n)
        take = np.hstack([-np.ones((n - 1, 1)), np.eye(n - 1)])
        covariance = np.kron(take @ among_leaves @ take.T, phi)
        total += stats.multivariate_normal.logpdf((take @ beta).ravel(), cov=covariance)
    return total
