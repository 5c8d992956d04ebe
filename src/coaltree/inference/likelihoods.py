"""The likelihood of tree and leaf noise, for blocks that ask for it often: Φ given, or integrated out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coaltree._arrays import Floats
from coaltree.model import missing
from coaltree.model.diffusion import log_density, pass_up
from coaltree.model.family import Integrated, State
from coaltree.tree import Tree


def likelihood(covariance: State, X: Floats) -> Callable[[Tree, Floats], float]:
    """log p(X | tree, Φ, s₀) as a function of tree and leaf noise, whitened once; NaN only where Φ is diagonal."""
    if np.isnan(X).any():
        variances = covariance.variances()
        return lambda tree, noise: missing.log_likelihood(tree, X, variances, noise)
    rows, log_volume = covariance.whiten(X), 0.5 * (len(X) - 1) * covariance.log_det
    return lambda tree, noise: log_density(tree, rows, noise) - log_volume


def marginal_likelihood(integrated: Integrated, X: Floats) -> Callable[[Tree, Floats], float]:
    """Likewise with Φ integrated out, up to a constant."""
    rows = integrated.rows(X)

    def log_p(tree: Tree, noise: Floats) -> float:
        up = pass_up(tree, rows, noise)
        log_volume: float = 0.5 * rows.shape[1] * float(np.log(up.messages.merge_variance).sum())
        if integrated.log_marginal_of_sums is None:
            log_marginal: float = integrated.log_marginal(up.messages.contrasts(tree))
        else:
            log_marginal = integrated.log_marginal_of_sums(up.sums, len(rows) - 1)
        return log_marginal - log_volume

    return log_p
