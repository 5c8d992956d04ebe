"""Moving widths with Φ and the coefficients: all at once, and of every feature."""

import numpy as np
import pytest

from coaltree.model.covariance import PooledWishart
from coaltree.regression.moves.coefficients import evaluate, make_pilot
from coaltree.regression.moves.widths import move_common, move_widths
from coaltree.regression.prior import precision
from tests.model.invariance import LIMIT
from tests.regression.invariance import PRIOR, drift, simulate
from tests.seeds import seed

both = pytest.mark.parametrize("move", [move_common, move_widths])


def kernel(move, family=PRIOR.family):
    def step(hyper, theta, likelihood, rng):
        pilot, point = make_pilot(likelihood, np.zeros_like(theta)), evaluate(likelihood, theta)
        for _ in range(2):
            hyper, point, _ = move(hyper, point, likelihood, pilot, family, rng)
        return hyper, point.theta

    return step


@both
def test_the_joint_distribution_stays(move):
    assert np.abs(drift(kernel(move), 4, 600, 30)).max() < LIMIT


def test_another_prior_is_noticed():
    assert np.abs(drift(kernel(move_common, PooledWishart(5.0, 0.02)), 4, 600, 30)).max() > LIMIT
    assert np.abs(drift(kernel(move_widths, PooledWishart(0.2, 0.7)), 4, 600, 30)).max() > LIMIT


@both
def test_differences_keep_their_place_in_the_prior(move):
    """Deviations and Φ change together, so that the prior's exponent does not, and the common level stays."""
    rng = np.random.default_rng(seed(0))
    hyper, theta, likelihood = simulate(4, rng)
    pilot, point, moved = make_pilot(likelihood, theta), evaluate(likelihood, theta), 0

    def exponent(hyper, theta):
        centred = np.hstack([np.zeros((4, 1)), theta[:, 1:] - theta[:, 1:].mean(axis=0)]).ravel()
        return centred @ precision(hyper, PRIOR, 4, 2).reshape(12, 12) @ centred

    before = exponent(hyper, theta)
    for _ in range(60):
        hyper, point, accepted = move(hyper, point, likelihood, pilot, PRIOR.family, rng)
        moved += accepted
    assert moved > 3
    np.testing.assert_allclose(exponent(hyper, point.theta), before, rtol=1e-8)
    np.testing.assert_allclose(point.theta[:, 1:].mean(axis=0), theta[:, 1:].mean(axis=0), atol=1e-12)
    np.testing.assert_array_equal(point.theta[:, 0], theta[:, 0])
    assert not np.allclose(point.theta, theta)
