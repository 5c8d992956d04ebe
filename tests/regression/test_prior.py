"""The prior: its precision against a dense density, its draws against its precision, and the draw of τ."""

import numpy as np
import pytest
from scipy import integrate, stats

import coaltree as ct
from coaltree.inference.learning.chain import Unknowns
from coaltree.model.covariance import PooledWishart
from coaltree.model.wishart import log_half_t
from coaltree.regression.moves.hyperparameters import draw_spread
from coaltree.regression.prior import (
    DF,
    Hyper,
    Prior,
    default_prior,
    precision,
    sample_prior,
)
from tests.model.invariance import LIMIT, batch_z
from tests.reference import probit as twin
from tests.seeds import seed

PRIOR = Prior(PooledWishart(5.0, 0.7), 0.6, 1.5)


def quadratic(theta, matrix):
    return -0.5 * theta.ravel() @ matrix.reshape(theta.size, theta.size) @ theta.ravel()


@pytest.mark.parametrize("n_outcomes", [1, 2, 5])
def test_precision_is_that_of_the_density(n_outcomes):
    rng = np.random.default_rng(1)
    hyper, theta = sample_prior(PRIOR, n_outcomes, 3, rng)
    _, other = sample_prior(PRIOR, n_outcomes, 3, rng)
    matrix = precision(hyper, PRIOR, n_outcomes, 3)
    if n_outcomes == 1:
        arguments = (None, None, 0.0, hyper.spread, PRIOR.intercept_sd)
    else:
        tree, covariance, noise = hyper.unknowns[:3]
        arguments = (tree, covariance.matrix(), noise[0], hyper.spread, PRIOR.intercept_sd)
    expected = twin.log_prior(theta, *arguments) - twin.log_prior(other, *arguments)
    assert quadratic(theta, matrix) - quadratic(other, matrix) == pytest.approx(expected, rel=1e-8)
    assert np.linalg.eigvalsh(matrix.reshape(theta.size, -1)).min() > 0


def test_draws_have_that_precision():
    """Under its precision a draw's squared length is χ² with as many degrees of freedom as coefficients."""
    rng = np.random.default_rng(seed(2))
    lengths = []
    for _ in range(400):
        hyper, theta = sample_prior(PRIOR, 4, 2, rng)
        lengths.append(-2 * quadratic(theta, precision(hyper, PRIOR, 4, 2)))
    assert abs(np.mean(lengths) - 12) / np.sqrt(24 / 400) < LIMIT
    assert abs(np.mean(lengths) - 10) / np.sqrt(24 / 400) > LIMIT  # were the common level left out


def test_half_t_is_a_density():
    assert integrate.quad(lambda x: np.exp(log_half_t(x, 0.3)), 0, np.inf)[0] == pytest.approx(1.0)
    assert default_prior(0.3) == Prior(PooledWishart(DF, 0.3), 0.3)


def test_spread_given_the_level_equals_quadrature():
    rng = np.random.default_rng(seed(3))
    level = np.array([0.4, -0.2, 0.1])

    def density(log_tau, scale=0.5):
        tau = np.exp(log_tau)
        return stats.t(2).pdf(tau / scale) * tau**-2.0 * np.exp(-0.5 * level @ level / tau**2)

    def mean(scale=0.5):
        grid = np.linspace(-8, 12, 4001)
        weight = density(grid, scale)
        return (weight * grid).sum() / weight.sum()

    draws, tau = [], 1.0
    for _ in range(3000):
        tau = draw_spread(tau, level, 0.5, rng)
        draws.append(np.log(tau))
    assert abs(batch_z(draws, mean())) < LIMIT
    assert abs(batch_z(draws, mean(scale=5.0))) > LIMIT


def test_the_level_does_not_touch_the_tree():
    """Moving all coefficients together changes the prior by the level's own term alone."""
    rng = np.random.default_rng(4)
    tree = ct.sample_tree(4, random_state=rng)
    covariance = PRIOR.family.sample_prior(2, rng)
    theta = rng.standard_normal((4, 3))
    moved = theta + np.array([0.0, 1.0, -2.0])
    gaps = []
    for times in (tree.times, 3 * tree.times):
        hyper = Hyper(Unknowns(ct.Tree(tree.children, times), covariance, np.full(4, 0.1)), 0.8)
        matrix = precision(hyper, PRIOR, 4, 2)
        gaps.append(quadratic(moved, matrix) - quadratic(theta, matrix))
    assert gaps[0] == pytest.approx(gaps[1], rel=1e-10)
