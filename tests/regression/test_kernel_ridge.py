"""Kernel ridge regression: that rows are left out exactly, weights count rows, and smooth effects are found."""

import numpy as np
import pytest

from coaltree.regression import kernel_ridge
from coaltree.regression.kernel_ridge import PENALTIES, _kernel, _ridge, fit_kernel
from tests.seeds import seed


def ring(n, rng, n_noise=2):
    """Whether the first two features are near the origin, and a coin."""
    X = rng.standard_normal((n, 2 + n_noise))
    inside = np.hypot(X[:, 0], X[:, 1]) < 1.2
    return X, np.column_stack([inside ^ (rng.random(n) < 0.05), rng.random(n) < 0.5]).astype(float)


@pytest.mark.parametrize("n_others", [30, 12])
def test_a_row_left_out_is_predicted_as_by_a_fit_without_it(n_others):
    """The plain way: solve for every row's prediction with its weight set to zero, at every penalty."""
    rng = np.random.default_rng(seed(90))
    rows, weights = 0.4 * rng.standard_normal((30, 3)), rng.uniform(0.5, 2.0, 30)
    residuals = rng.standard_normal((30, 2)) + rows[:, :1]
    others = rows[:n_others]
    alpha, without, losses = _ridge(rows, others, residuals, weights)
    across, within = _kernel(rows, others), _kernel(others, others)

    def solve(counted, penalty):
        return np.linalg.solve(
            across.T @ (counted[:, None] * across) + penalty * within, across.T * counted @ residuals
        )

    expected = np.empty((len(PENALTIES), 30, 2))
    for p, penalty in enumerate(PENALTIES):
        for i in range(30):
            expected[p, i] = across[i] @ solve(np.where(np.arange(30) == i, 0.0, weights), penalty)
    errors = np.mean(weights[:, None] * (residuals - expected) ** 2, axis=1)
    best = errors.argmin(axis=0)
    np.testing.assert_allclose(losses, errors.min(axis=0), rtol=1e-5)
    for j in range(2):
        np.testing.assert_allclose(without[:, j], expected[best[j], :, j], atol=1e-5)
        np.testing.assert_allclose(across @ alpha[:, j], across @ solve(weights, PENALTIES[best[j]])[:, j], atol=1e-5)


def test_smooth_effects_are_found_and_coins_are_not():
    rng = np.random.default_rng(seed(91))
    X, Y = ring(600, rng)
    rates, weights = Y.mean(axis=0), np.ones(600)
    model, without = fit_kernel(X, Y, weights, rates, rng)
    new, labels = ring(600, rng)
    found = model.predict(new)
    assert np.mean((found[:, 0] > 0.5) == labels[:, 0]) > 0.85
    assert np.mean((without[:, 0] > 0.5) == Y[:, 0]) > 0.85
    # Whoever looks at a row's own label predicts a coin.
    assert abs(np.mean((without[:, 1] > 0.5) == Y[:, 1]) - 0.5) < 4 * 0.5 / np.sqrt(600)
    assert np.isfinite(model.logits(new)).all()


def test_few_rows_stand_for_many(monkeypatch):
    rng = np.random.default_rng(seed(92))
    X, Y = ring(500, rng)
    rates, weights = Y.mean(axis=0), np.ones(500)
    monkeypatch.setattr(kernel_ridge, "MOST_ROWS", 120)
    monkeypatch.setattr(kernel_ridge, "N_SEARCHED", 100)
    model, without = fit_kernel(X, Y, weights, rates, rng)
    assert model.rows.shape == (120, 4)
    whole = model.predict(X)
    monkeypatch.setattr(kernel_ridge, "BLOCK", 64)
    np.testing.assert_allclose(model.predict(X), whole, rtol=1e-9)
    assert np.mean((without[:, 0] > 0.5) == Y[:, 0]) > 0.8


def test_units_constant_features_gaps_and_more_features_than_rows(monkeypatch):
    monkeypatch.setattr(kernel_ridge, "POWERS", (1.0,))  # whole deviations: units do not matter
    rng = np.random.default_rng(seed(93))
    X, Y = ring(60, rng, 90)
    rates, weights = Y.mean(axis=0), np.ones(60)
    plain, _ = fit_kernel(X, Y, weights, rates, np.random.default_rng(0))
    other = np.hstack([1e9 + 1e3 * X, np.full((60, 1), 7.0)])
    scaled, _ = fit_kernel(other, Y, weights, rates, np.random.default_rng(0))
    np.testing.assert_allclose(scaled.predict(other), plain.predict(X), atol=1e-4)
    assert scaled.inverse_width[-1] == 0.0
    Y[:5, 0] = np.nan
    _, without = fit_kernel(X, Y, weights, rates, np.random.default_rng(0))
    assert np.isfinite(without).all()
    np.testing.assert_array_equal(fit_kernel(X, Y, weights, rates, np.random.default_rng(0))[1], without)
