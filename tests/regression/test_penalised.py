"""The penalised solver: against a general optimiser, its own conditions, and where estimates do not exist."""

import numpy as np
import pytest
from scipy.stats import norm

from coaltree.regression.penalised import (
    _derivatives,
    choose_penalty,
    descend,
    fit_coefficients,
    mean_loss,
    penalties,
)
from coaltree.regression.preparation import scale_features
from tests.reference import regression as twin
from tests.seeds import seed


def simulate(n=300, k=6, events=0.2, number=1):
    rng = np.random.default_rng(seed(number))
    X = rng.normal(size=(n, k)) @ (np.eye(k) + 0.2 * rng.normal(size=(k, k)))
    eta = X @ (rng.normal(size=k) * (rng.random(k) < 0.6)) + norm.ppf(events) * 1.5
    y = (eta + rng.logistic(size=n) > 0).astype(float)
    return scale_features(X, np.ones(len(X))).apply(X), y


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_derivatives_against_differences(link):
    eta = np.array([-30.0, -6.0, -0.5, 0.0, 0.3, 5.0, 30.0])
    for label in (0.0, 1.0):
        y = np.full_like(eta, label)
        first, second = _derivatives(y, eta, link)
        h = 1e-4
        loss = [np.array([mean_loss(y[i : i + 1], eta[i : i + 1] + s * h, link) for i in range(7)]) for s in (-1, 0, 1)]
        np.testing.assert_allclose(first, (loss[2] - loss[0]) / (2 * h), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(second, (loss[2] - 2 * loss[1] + loss[0]) / h**2, rtol=1e-3, atol=1e-6)
        assert (second >= 0).all()


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.1), (0.05, 0.0), (0.2, 0.1)])
def test_descent_against_twin(l1, l2):
    rng = np.random.default_rng(seed(2))
    root = rng.normal(size=(8, 5))
    hessian, linear = root.T @ root / 8, rng.normal(size=5)
    found = np.zeros(5)
    descend(hessian, linear, l1, l2, 1e-10, 10_000, found)
    np.testing.assert_allclose(found, twin.descend(hessian, linear, l1, l2), atol=1e-6)


@pytest.mark.parametrize("l1_ratio", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("penalty", [1e-4, 0.01, 0.1])
def test_fit_against_a_general_optimiser(l1_ratio, penalty):
    X, y = simulate()
    ours = fit_coefficients(X, y, penalty, l1_ratio)
    theirs = twin.fit_coefficients(X, y, penalty, l1_ratio)
    assert twin.objective(ours, X, y, penalty, l1_ratio, "logit") <= (
        twin.objective(theirs, X, y, penalty, l1_ratio, "logit") + 1e-10
    )
    # The optimum's own conditions: every slope of the loss is balanced by the penalty, or within reach of it at zero.
    slope = X.T @ (1 / (1 + np.exp(-X @ ours)) - y) / len(y)
    assert slope[0] == pytest.approx(0.0, abs=1e-6)
    pull = slope[1:] + penalty * (1 - l1_ratio) * ours[1:]
    at_zero = ours[1:] == 0.0
    np.testing.assert_allclose(pull[~at_zero], -penalty * l1_ratio * np.sign(ours[1:][~at_zero]), atol=1e-6)
    assert (np.abs(pull[at_zero]) <= penalty * l1_ratio + 1e-6).all()


def test_probit_against_a_general_optimiser():
    X, y = simulate(number=3)
    ours = fit_coefficients(X, y, 1e-9, 0.0, "probit")
    np.testing.assert_allclose(ours, twin.fit_coefficients(X, y, 1e-9, 0.0, "probit"), atol=2e-4)
    assert np.abs(ours - fit_coefficients(X, y, 1e-9, 0.0, "logit")).max() > 0.1


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_separated_classes_have_finite_estimates(link):
    X, _ = simulate()
    theta = fit_coefficients(X, (X[:, 1] > 0.5).astype(float), 1e-4 / len(X), 0.0, link)
    assert np.isfinite(theta).all()
    assert theta[1] > 3 * np.abs(theta[2:]).max()


def test_constant_and_repeated_features():
    X, y = simulate()
    raw = np.column_stack([X[:, 1:], np.full(len(X), 7.0), X[:, 1]])
    scaling = scale_features(raw, np.ones(len(raw)))
    _, coef = scaling.undo(fit_coefficients(scaling.apply(raw), y, 1e-4 / len(X), 0.0))
    plain = fit_coefficients(X, y, 1e-4 / len(X), 0.0)
    assert coef[-2] == 0.0
    np.testing.assert_allclose(coef[0] + coef[-1], plain[1], rtol=1e-3)
    np.testing.assert_allclose(coef[1:-2], plain[2:], rtol=1e-3, atol=1e-5)


def test_largest_penalty_is_where_coefficients_appear():
    X, y = simulate()
    top = penalties(X, y, np.ones(len(y)), 1.0)[0]
    assert not fit_coefficients(X, y, 1.0001 * top, 1.0)[1:].any()
    assert fit_coefficients(X, y, 0.99 * top, 1.0)[1:].any()


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
def test_chosen_penalty_has_the_lowest_held_out_loss(l1_ratio):
    X, y = simulate(n=200, number=4)
    folds = np.arange(200) % 4
    penalty, chosen_ratio, loss = choose_penalty(X, y, np.ones(len(y)), (l1_ratio,), folds)
    grid = penalties(X, y, np.ones(len(y)), l1_ratio)
    losses = np.zeros(len(grid))
    for f in range(4):
        inside, outside = folds != f, folds == f
        thetas = [fit_coefficients(X[inside], y[inside], lam, l1_ratio) for lam in grid]
        losses += [mean_loss(y[outside], X[outside] @ theta, "logit") / 4 for theta in thetas]
    assert chosen_ratio == l1_ratio
    assert loss == pytest.approx(min(losses), abs=1e-4)
    assert losses[int(np.argmin(np.abs(grid - penalty)))] == pytest.approx(min(losses), abs=1e-4)
    assert max(losses) > min(losses) + 1e-3
