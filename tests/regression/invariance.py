"""Does a kernel leave p(everything | labels) alone? Prior → labels → kernel must give the prior back.

A state drawn from the prior, with labels drawn from the state, is an exact posterior draw. A kernel that is right
leaves it one, so every statistic of (state, labels) keeps its mean: `drift` gives a z-score each.
"""

import numpy as np

from coaltree.model.covariance import PooledWishart
from coaltree.regression.chain import Chain, Settings
from coaltree.regression.families.base import Observed
from coaltree.regression.families.binary import PROBIT
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.moves import coefficients
from coaltree.regression.prior import Prior, sample_prior
from tests.seeds import seed

PRIOR = Prior(PooledWishart(5.0, 0.7), 0.6, 1.2)
N, K = 15, 2


def binary(rows, signs, weights, family=PROBIT):
    """The likelihood of labels given as signs, 0 where there is none."""
    return Likelihood(rows, (Observed(family, np.arange(signs.shape[1]), (signs,)),), weights)


def signs_of(likelihood):
    """The signs of binary outcomes."""
    ((signs,),) = (part.data for part in likelihood.observed)
    return signs


def simulate(n_outcomes, rng, family=PROBIT, n=N):
    """Hyperparameters, θ and labels from the prior; a tenth of the labels are missing, some rows count twice."""
    hyper, theta = sample_prior(PRIOR, n_outcomes, K, rng)
    rows = np.hstack([np.ones((n, 1)), rng.standard_normal((n, K))])
    signs = np.where(rng.random((n, n_outcomes)) < family.mean(rows @ theta.T), 1, -1)
    signs[rng.random(signs.shape) < 0.1] = 0
    return hyper, theta, binary(rows, signs.astype(np.int8), np.ones(n), family)


def statistics(hyper, theta, likelihood):
    found = [np.log(hyper.spread), theta[0, 0], theta[:, 0].std(), theta[-1, 1], theta[:, 2].mean()]
    if hyper.unknowns is not None:
        tree, covariance, noise = hyper.unknowns[:3]
        phi = covariance.matrix()
        found += [
            np.log(tree.times[-1]),
            np.log(tree.times).mean(),
            np.log(tree.cophenetic()[0, 1]),
            np.log(noise[0]),
            np.log(phi[0, 0]),
            np.log(covariance.values["width"]),
            phi[0, 1] / np.sqrt(phi[0, 0] * phi[1, 1]),
            np.log(np.ptp(theta[:, 1])),
        ]
    found = np.array(found)
    value, gradient = likelihood.values_and_gradient(theta)
    return np.concatenate([found, np.clip(found, -9, 9) ** 2, [value.sum()], np.clip(gradient[:, 1], -20, 20)])


def begin(hyper, theta, likelihood, rng, prior=PRIOR, **settings):
    """A chain past its burn-in, at a given state; the pilot knows the labels alone."""
    chain = Chain(likelihood, prior, Settings(burn_in=0, **settings), rng)
    chain.moving = chain.start()._replace(point=coefficients.evaluate(likelihood, theta), hyper=hyper)
    return chain


def drift(kernel, n_outcomes, n_replicates, first_seed, family=PROBIT, make=simulate):
    """Z-scores of the mean change of every statistic; `kernel(hyper, theta, likelihood, rng)` returns a new state."""
    changes = []
    for replicate in range(n_replicates):
        rng = np.random.default_rng([seed(first_seed), replicate])
        hyper, theta, likelihood = make(n_outcomes, rng, family)
        before = statistics(hyper, theta, likelihood)
        changes.append(statistics(*kernel(hyper, theta, likelihood, rng), likelihood) - before)
    changes = np.array(changes)
    spread = changes.std(axis=0, ddof=1)
    moved = spread > 1e-9
    assert moved.any()
    return changes.mean(axis=0)[moved] / spread[moved] * np.sqrt(n_replicates)
