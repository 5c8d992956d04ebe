"""Does an MCMC kernel leave its posterior invariant? Two exact tests that need no converged chain.

Draw a state from the prior and contrasts from the state: the state is then an exact posterior draw. Moved by a kernel
that leaves the posterior invariant it still is, so any statistic of (state, S) keeps its mean (`drift`, a z-score
each); and if the kernel draws independently, the rank of the first state among later ones is uniform (`rank_p_value`).
"""

import math

import numpy as np
from scipy.stats import chi2

from tests.seeds import seed

LIMIT = 4.5  # in standard errors; a few dozen z-scores a run


def stream(request):
    """A generator of a test's own, so that adding a test does not change the others."""
    return np.random.default_rng([seed(0), *request.node.name.encode()])


def simulate(state, m, rng):
    u = rng.standard_normal((m, state.d)) @ state.factor.T
    return u.T @ u


def statistics(state, S, m):
    phi = state.matrix()
    scalars = [math.log(phi[0, 0]), math.log(phi[-1, -1]), phi[0, -1] / math.sqrt(phi[0, 0] * phi[-1, -1])]
    for value in state.values.values():
        if np.ndim(value) < 2:
            scalars += [math.log(each) for each in np.atleast_1d(value)]
    scalars = np.array([*scalars, state.log_det / state.d])
    return np.concatenate([scalars, scalars**2, [state.log_likelihood(S, m)]])


def drift(family, d, m, n_replicates, n_steps, rng, m_claimed=None):
    """Z-scores of the change of each statistic over `n_steps` updates that are told there are `m_claimed` contrasts."""
    changes = []
    for _ in range(n_replicates):
        first = family.sample_prior(d, rng)
        S = simulate(first, m, rng)
        state = first
        for _ in range(n_steps):
            state = family.update(state, S, m if m_claimed is None else m_claimed, rng)
        changes.append(statistics(state, S, m) - statistics(first, S, m))
    changes = np.array(changes)
    spread = changes.std(axis=0, ddof=1)
    moved = spread > 1e-9  # a correlation that is always zero, say
    assert moved.any()
    return changes.mean(axis=0)[moved] / spread[moved] * math.sqrt(n_replicates)


def rank_p_value(family, d, m, statistic, rng, m_claimed=None, n_replicates=240, n_draws=7):
    ranks = []
    for _ in range(n_replicates):
        first = state = family.sample_prior(d, rng)
        S = simulate(first, m, rng)
        below, truth = 0, statistic(first)
        for _ in range(n_draws):
            state = family.update(state, S, m if m_claimed is None else m_claimed, rng)
            below += statistic(state) < truth
        ranks.append(below)
    counts = np.bincount(ranks, minlength=n_draws + 1).reshape(8, -1).sum(axis=1)
    expected = n_replicates / 8
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), 7)


def batch_z(draws, truth, n_batches=25):
    """(mean of a correlated sequence − truth) / its standard error by batch means."""
    batches = np.asarray(draws).reshape(n_batches, -1, *np.shape(draws)[1:]).mean(axis=1)
    return (batches.mean(axis=0) - truth) / (batches.std(axis=0, ddof=1) / math.sqrt(n_batches))
