"""Every block, and all of them together, leave the joint distribution of parameters and labels as it is."""

import numpy as np
import pytest

from coaltree.inference.learning import chain as learn
from coaltree.model.covariance import PooledWishart
from coaltree.regression.families.binary import LOGIT, PROBIT
from coaltree.regression.moves import coefficients
from coaltree.regression.moves.coefficients import approximate, evaluate, hamiltonian, make_pilot
from coaltree.regression.moves.hyperparameters import draw_hyper
from coaltree.regression.prior import precision
from tests.model.invariance import LIMIT
from tests.regression.invariance import PRIOR, K, begin, drift

LONG = [pytest.mark.slow, pytest.mark.ci]


def whole(n_steps=2, prior=PRIOR, **settings):
    def kernel(hyper, theta, likelihood, rng):
        chain = begin(hyper, theta, likelihood, rng, prior, **settings)
        for _ in range(n_steps):
            chain.advance()
        return chain.moving.hyper, chain.moving.point.theta

    return kernel


def trajectory(n_steps=2, pilot_at=0.0, always=False, prior=PRIOR):
    """The coefficient block alone, from a poor pilot point, so that acceptance matters."""

    def kernel(hyper, theta, likelihood, rng):
        n_outcomes = len(theta)
        pilot = make_pilot(likelihood, np.full_like(theta, pilot_at))
        gaussian = approximate(precision(hyper, prior, n_outcomes, K), pilot)
        if always:
            return hyper, gaussian.colour(rng.standard_normal(theta.size)).reshape(theta.shape)
        return hyper, hamiltonian(evaluate(likelihood, theta), likelihood, pilot, gaussian, n_steps, rng)[0].theta

    return kernel


def hyperparameters(hyper, theta, likelihood, rng):
    return draw_hyper(hyper, theta, PRIOR, 1, rng), theta


@pytest.mark.parametrize("link", [PROBIT, LOGIT])
def test_trajectories(link):
    assert np.abs(drift(trajectory(), 3, 1000, 10, link)).max() < LIMIT


def test_a_draw_from_the_approximation_without_correction_is_noticed():
    assert np.abs(drift(trajectory(always=True), 3, 400, 10)).max() > LIMIT


def test_albert_and_chib():
    def kernel(hyper, theta, likelihood, rng):
        curvature = coefficients.normal_curvature(likelihood)
        point = evaluate(likelihood, theta)
        return hyper, coefficients.albert_chib(
            point, likelihood, curvature, precision(hyper, PRIOR, len(theta), K), rng
        ).theta

    assert np.abs(drift(kernel, 3, 1000, 11)).max() < LIMIT


def test_hyperparameters_given_coefficients():
    assert np.abs(drift(hyperparameters, 4, 400, 12)).max() < LIMIT


def test_trees_of_other_coefficients_are_noticed(monkeypatch):
    draw = learn.draw_tree
    monkeypatch.setattr(learn, "draw_tree", lambda now, X, rng, n_sweeps: draw(now, 3.0 * X, rng, n_sweeps))
    assert np.abs(drift(hyperparameters, 4, 400, 12)).max() > LIMIT


@pytest.mark.parametrize("n_outcomes", [1, pytest.param(2, marks=LONG), pytest.param(4, marks=LONG)])
def test_whole_iterations(n_outcomes):
    assert np.abs(drift(whole(), n_outcomes, 200, 13)).max() < LIMIT


@pytest.mark.parametrize(
    "wrong",
    [{"spread_scale": 0.02}, {"intercept_sd": 0.3}, {"family": PooledWishart(5.0, 0.02)}],
)
@pytest.mark.slow
@pytest.mark.ci
def test_another_prior_is_noticed(wrong):
    assert np.abs(drift(whole(n_steps=3, prior=PRIOR._replace(**wrong)), 3, 100, 14)).max() > LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("method", ["hmc", "albert-chib"])
@pytest.mark.parametrize("n_outcomes", [1, 2, 3, 4])
def test_whole_iterations_at_length(n_outcomes, method):
    assert np.abs(drift(whole(n_steps=5, method=method), n_outcomes, 4000, 15)).max() < LIMIT
