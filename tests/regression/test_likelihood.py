"""The likelihood against its plain twin and finite differences."""

import numpy as np
import pytest

from coaltree.regression import likelihood as module
from coaltree.regression.families import FAMILIES
from coaltree.regression.likelihood import penalised_mode
from coaltree.regression.links import LINKS
from tests.reference import probit as twin
from tests.regression.invariance import binary


def problem(link="probit", n=37, n_outcomes=3, n_features=4):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, n_features))
    Y = (rng.random((n, n_outcomes)) < 0.4).astype(float)
    Y[rng.random(Y.shape) < 0.15] = np.nan
    weights = rng.choice([0.5, 1.0, 3.0], size=n)
    theta = rng.standard_normal((n_outcomes, n_features + 1))
    signs = np.where(np.isnan(Y), 0, np.where(Y == 1, 1, -1)).astype(np.int8)
    return X, Y, weights, theta, binary(np.hstack([np.ones((n, 1)), X]), signs, weights, FAMILIES[link])


@pytest.mark.parametrize("block", [8, 37, 1024])
@pytest.mark.parametrize("link", LINKS)
def test_value_and_gradient_equal_the_twin(link, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    X, Y, weights, theta, likelihood = problem(link)
    values, gradient = likelihood.values_and_gradient(theta)
    assert values.sum() == pytest.approx(twin.log_likelihood(X, Y, weights, theta, link), rel=1e-11)
    np.testing.assert_allclose(gradient, twin.gradient(X, Y, weights, theta, link), rtol=1e-9)
    np.testing.assert_allclose(likelihood.gradient(theta), gradient, rtol=1e-13)


@pytest.mark.parametrize("link", LINKS)
def test_derivatives_equal_finite_differences(link):
    *_, theta, likelihood = problem(link)
    step = 1e-5
    curvature = likelihood.curvature(theta)
    for j, k in np.ndindex(theta.shape):
        ahead, behind = theta.copy(), theta.copy()
        ahead[j, k] += step
        behind[j, k] -= step
        (value_ahead, slope_ahead), (value_behind, slope_behind) = map(likelihood.values_and_gradient, (ahead, behind))
        _, gradient = likelihood.values_and_gradient(theta)
        assert gradient[j, k] == pytest.approx((value_ahead - value_behind).sum() / (2 * step), rel=1e-6, abs=1e-6)
        np.testing.assert_allclose(-(slope_ahead - slope_behind)[j] / (2 * step), curvature[j, k], rtol=1e-5, atol=1e-6)


def test_far_away_nothing_overflows():
    *_, theta, likelihood = problem()
    values, gradient = likelihood.values_and_gradient(1e6 * theta)
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(gradient))
    assert np.linalg.eigvalsh(likelihood.curvature(1e6 * theta)).min() > -1e-9


@pytest.mark.parametrize("link", LINKS)
def test_mode_is_stationary(link):
    *_, likelihood = problem(link)
    precision = np.array([0.04, 1.0, 1.0, 1.0, 2.0])
    mode = penalised_mode(likelihood, precision)
    np.testing.assert_allclose(likelihood.gradient(mode), precision * mode, atol=1e-4)


def test_mode_of_separated_labels_is_finite():
    x = np.linspace(-1, 1, 20)
    rows = np.column_stack([np.ones(20), 50 * x])
    likelihood = binary(rows, np.sign(x)[:, None].astype(np.int8), np.ones(20))
    mode = penalised_mode(likelihood, np.array([0.04, 1.0]))
    assert np.all(np.isfinite(mode))
    np.testing.assert_allclose(likelihood.gradient(mode), np.array([0.04, 1.0]) * mode, atol=1e-4)
