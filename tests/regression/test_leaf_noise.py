"""Leaf noise with the coefficients following: the joint distribution stays, and the evidence is the integral."""

import numpy as np
import pytest
from scipy import integrate

import coaltree as ct
from coaltree.inference.learning.chain import Unknowns
from coaltree.regression.moves import hyperparameters
from coaltree.regression.moves.coefficients import Pilot, approximate, evaluate, expansion, make_pilot
from coaltree.regression.moves.hyperparameters import log_evidence, move_noise
from coaltree.regression.prior import Hyper, precision
from tests.model.invariance import LIMIT
from tests.regression.invariance import PRIOR, K, drift, simulate
from tests.seeds import seed


def kernel(hyper, theta, likelihood, rng):
    # A poor pilot, so that acceptance matters.
    pilot, point = make_pilot(likelihood, np.full_like(theta, 0.2)), evaluate(likelihood, theta)
    gaussian = approximate(precision(hyper, PRIOR, len(theta), K), pilot)
    for _ in range(3):
        hyper, point, gaussian, _ = move_noise(hyper, point, gaussian, likelihood, pilot, PRIOR, rng)
    return hyper, point.theta


@pytest.mark.parametrize("n_outcomes", [2, 4])
def test_the_joint_distribution_stays(n_outcomes):
    assert np.abs(drift(kernel, n_outcomes, 400, 50)).max() < LIMIT


@pytest.mark.parametrize(
    ("broken", "by"),
    [("log_evidence", lambda hyper, gaussian: 0.0), ("correction", lambda pilot, point: point.log_likelihood)],
)
def test_a_part_left_out_is_noticed(broken, by, monkeypatch):
    monkeypatch.setattr(hyperparameters, broken, by)
    assert np.abs(drift(kernel, 4, 400, 50)).max() > LIMIT


def test_the_approximation_and_the_point_follow():
    rng = np.random.default_rng(seed(51))
    hyper, theta, likelihood = simulate(4, rng)
    pilot, point = make_pilot(likelihood, np.zeros_like(theta)), evaluate(likelihood, theta)
    gaussian = approximate(precision(hyper, PRIOR, 4, K), pilot)
    q, accepted = gaussian.whiten(theta), 0
    for _ in range(30):
        hyper, point, gaussian, moved = move_noise(hyper, point, gaussian, likelihood, pilot, PRIOR, rng)
        accepted += moved
    assert accepted > 3
    np.testing.assert_allclose(gaussian.factor, approximate(precision(hyper, PRIOR, 4, K), pilot).factor)
    np.testing.assert_allclose(gaussian.whiten(point.theta), q, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(point.gradient, evaluate(likelihood, point.theta).gradient)


def test_evidence_equals_quadrature():
    """Two outcomes and one feature, intercepts without labels: an integral over (β₁, β₂) for each leaf noise."""
    rng = np.random.default_rng(52)
    tree = ct.Tree([[0, 1]], [0.7])
    covariance = PRIOR.family.sample_prior(1, rng)
    curvature = np.zeros((2, 2, 2))
    curvature[:, 1, 1] = 1.3, 4.0
    pilot = Pilot(np.array([[0.0, 0.4], [0.0, -0.8]]), 0.0, np.array([[0.0, 0.6], [0.0, 0.1]]), curvature)

    def values(noise):
        hyper = Hyper(Unknowns(tree, covariance, np.full(2, noise)), 0.5)
        matrix = precision(hyper, PRIOR, 2, 1)
        variance = 2 * (0.7 + noise) * float(covariance.matrix()[0, 0])

        def density(a, b):
            theta = np.array([[0.0, a], [0.0, b]])
            prior = np.exp(-0.5 * theta.ravel() @ matrix.reshape(4, 4) @ theta.ravel()) / np.sqrt(variance)
            return prior * np.exp(expansion(pilot, theta)[0])

        integral = integrate.dblquad(density, -6, 6, -6, 6, epsabs=1e-9)[0]
        return log_evidence(hyper, approximate(matrix, pilot)), np.log(integral) - noise

    (one, truth), (other, other_truth) = values(0.1), values(2.0)
    assert one - other == pytest.approx(truth - other_truth, abs=1e-5)
    assert abs(truth - other_truth) > 0.1
