"""Moving the width of every feature with Φ and the coefficients."""

import numpy as np

from coaltree.model.covariance import HuangWand
from coaltree.regression.coefficients import evaluate, make_pilot
from coaltree.regression.prior import precision
from coaltree.regression.widths import move_widths
from tests.model.invariance import LIMIT
from tests.regression.invariance import PRIOR, drift, simulate
from tests.seeds import seed


def kernel(family):
    def move(hyper, theta, likelihood, rng):
        pilot, point = make_pilot(likelihood, np.zeros_like(theta)), evaluate(likelihood, theta)
        for _ in range(2):
            hyper, point, _ = move_widths(hyper, point, likelihood, pilot, family, rng)
        return hyper, point.theta

    return move


def test_the_joint_distribution_stays():
    assert np.abs(drift(kernel(PRIOR.family), 4, 800, 30)).max() < LIMIT


def test_another_prior_is_noticed():
    assert np.abs(drift(kernel(HuangWand(6.0, 0.1)), 4, 200, 30)).max() > LIMIT


def test_differences_keep_their_place_in_the_prior():
    """Deviations and Φ change together, so that the prior's exponent does not, and the common level stays."""
    rng = np.random.default_rng(seed(0))
    hyper, theta, likelihood = simulate(4, rng)
    pilot, point, moved = make_pilot(likelihood, theta), evaluate(likelihood, theta), 0

    def exponent(hyper, theta):
        centred = np.hstack([np.zeros((4, 1)), theta[:, 1:] - theta[:, 1:].mean(axis=0)]).ravel()
        return centred @ precision(hyper, PRIOR, 4, 2).reshape(12, 12) @ centred

    before = exponent(hyper, theta)
    for _ in range(20):
        hyper, point, accepted = move_widths(hyper, point, likelihood, pilot, PRIOR.family, rng)
        moved += accepted
    assert moved > 3
    np.testing.assert_allclose(exponent(hyper, point.theta), before, rtol=1e-8)
    np.testing.assert_allclose(point.theta[:, 1:].mean(axis=0), theta[:, 1:].mean(axis=0), atol=1e-12)
    np.testing.assert_array_equal(point.theta[:, 0], theta[:, 0])
    assert not np.allclose(point.theta, theta)
