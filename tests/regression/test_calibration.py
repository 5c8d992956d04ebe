"""Simulation-based calibration: among draws given labels that it made, the truth has a uniform rank."""

import numpy as np
import pytest

from coaltree.regression.chain import Chain, Settings
from coaltree.regression.families.binary import PROBIT
from tests.model.invariance import LIMIT
from tests.regression.invariance import PRIOR, signs_of, simulate
from tests.seeds import seed

N_KEPT = 24


def quantities(state):
    """One number for each unknown: tree (height, depth of a pair, first merge), Φ, σ, s₀, τ, β, μ."""
    hyper, theta = state
    tree, covariance, noise = hyper.unknowns[:3]
    phi = covariance.matrix()
    return np.array(
        [
            tree.times[-1],
            tree.cophenetic()[0, 1],
            tree.times[0],
            phi[0, 0],
            phi[0, 1],
            covariance.values["width"],
            noise[0],
            hyper.spread,
            theta[0, 1],
            theta[-1, 2],
            theta[0, 1] - theta[1, 1],
            theta[0, 0],
            theta[-1, 0],
        ]
    )


def ranks(n_replicates, n, n_outcomes, burn_in, thin, prior=PRIOR, flip=False, family=PROBIT, make=simulate):
    """Fractions of draws below the truth, (replicates, quantities), ties broken at random."""
    found = []
    for replicate in range(n_replicates):
        rng = np.random.default_rng([seed(40), replicate])
        hyper, theta, likelihood = make(n_outcomes, rng, family, n)
        if flip:
            signs_of(likelihood)[:, 0] *= -1
        truth = quantities((hyper, theta))
        chain = Chain(likelihood, prior, Settings(burn_in), rng)
        below = np.zeros(len(truth))
        for step in range(burn_in + N_KEPT * thin):
            chain.advance()
            if step >= burn_in and (step - burn_in) % thin == thin - 1:
                below += quantities((chain.moving.hyper, chain.moving.point.theta)) < truth
        found.append((below + rng.random(len(truth))) / (N_KEPT + 1))
    return np.array(found)


def worst(uniform):
    """Largest z-score of the means of u and of (u − ½)², which say how far from uniform and in which way."""
    n = len(uniform)
    centred = uniform - 0.5
    level = centred.mean(axis=0) * np.sqrt(12 * n)
    width = ((centred**2).mean(axis=0) - 1 / 12) * np.sqrt(180 * n)
    return np.abs(np.concatenate([level, width])).max()


def test_ranks_notice_what_is_wrong():
    """The yardstick itself: uniform numbers pass; shifted, narrow and wide ones do not."""
    rng = np.random.default_rng(seed(41))
    u = rng.random((150, 13))
    assert worst(u) < LIMIT
    assert worst(u**1.7) > LIMIT
    assert worst(0.2 + 0.6 * u) > LIMIT
    assert worst(np.round(u)) > LIMIT


@pytest.mark.slow
@pytest.mark.ci
def test_ranks_are_uniform_in_a_few_replicates():
    assert worst(ranks(10, 40, 4, burn_in=40, thin=4)) < LIMIT


@pytest.mark.slow
@pytest.mark.ci
def test_wrong_labels_are_noticed():
    assert worst(ranks(12, 200, 2, burn_in=30, thin=2, flip=True)) > LIMIT


@pytest.mark.slow
def test_ranks_are_uniform():
    assert worst(ranks(100, 60, 5, burn_in=80, thin=10)) < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"spread_scale": 0.02}, {"intercept_sd": 0.2}])
def test_another_prior_is_noticed(wrong):
    assert worst(ranks(40, 40, 4, burn_in=40, thin=4, prior=PRIOR._replace(**wrong))) > LIMIT
