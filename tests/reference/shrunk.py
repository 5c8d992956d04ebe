"""A full Φ shrunk towards σ² I, written for reading: Φ integrated out by Bayes' rule, its parameters on a grid."""

import numpy as np
from scipy import stats
from scipy.special import multigammaln


def log_evidence(u, variance, nu):
    """log p(u | σ², ν) = log p(Φ) + log p(u | Φ) − log p(Φ | u), which holds at any Φ."""
    m, d = u.shape
    df, scale = nu + d - 1, nu * variance * np.eye(d)
    phi = (scale + u.T @ u) / (df + m)
    prior = stats.invwishart(df, scale).logpdf(phi)
    likelihood = stats.multivariate_normal(np.zeros(d), phi).logpdf(u).sum()
    return prior + likelihood - stats.invwishart(df + m, scale + u.T @ u).logpdf(phi)


def log_posterior(u, log_variance, log_excess, shape, scale):
    """Log posterior density of (log σ², log x), ν = 2 + x, on a grid, up to a constant: (V, X)."""
    m, d = u.shape
    variance, x = np.exp(log_variance)[:, None], np.exp(log_excess)
    f, level = x + 2 + d - 1, (x + 2) * variance
    prior = stats.invgamma.logpdf(variance, shape, scale=scale) + np.log(variance) + np.log(x * d / (x + d) ** 2)
    ratio = multigammaln((f + m) / 2, d) - multigammaln(f / 2, d)
    _, log_det = np.linalg.slogdet(level[:, :, None, None] * np.eye(d) + u.T @ u)
    return prior + ratio + f / 2 * d * np.log(level) - (f + m) / 2 * log_det
