"""Deviances out of fold: against likelihoods of scipy, and a signal that is or is not there."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import PoissonRegressor

from coaltree.regression.deviances import SeparateRidge, compare_deviances
from coaltree.regression.families import FAMILIES, as_families
from tests.seeds import seed


def test_deviances_are_lost_log_likelihood():
    rng = np.random.default_rng(seed(170))
    mean = rng.uniform(0.1, 5.0, 30)
    counts = rng.poisson(mean).astype(float)
    lost = stats.poisson.logpmf(counts, np.maximum(counts, 1e-300)) - stats.poisson.logpmf(counts, mean)
    np.testing.assert_allclose(FAMILIES["poisson"].deviance(counts, mean), 2 * lost, rtol=1e-9)
    labels, p = (rng.random(30) < 0.4).astype(float), rng.uniform(0.1, 0.9, 30)
    expected = -2 * stats.bernoulli.logpmf(labels.astype(int), p)
    np.testing.assert_allclose(FAMILIES["logit"].deviance(labels, p), expected)
    y = rng.standard_normal(30)
    lost = stats.norm.logpdf(0.0) - stats.norm.logpdf(y, mean)
    np.testing.assert_allclose(FAMILIES["normal"].deviance(y, mean), 2 * lost)
    assert np.isnan([FAMILIES[name].deviance(np.array([np.nan]), np.array([0.5])) for name in FAMILIES]).all()


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(seed(171))
    X, exposure = rng.standard_normal((400, 3)), rng.uniform(0.2, 2.0, (400, 3))
    Y = np.column_stack(
        [
            rng.poisson(exposure[:, 0] * np.exp(0.8 * X[:, 0])),
            3.0 + X[:, 1] + 0.5 * rng.standard_normal(400),
            rng.random(400) < 0.3,
        ]
    ).astype(float)
    Y[::7, 1] = np.nan
    return X, Y, exposure, as_families(["poisson", "normal", "probit"], 3)


def test_ridge_explains_what_is_there(table):
    X, Y, exposure, families = table
    found = compare_deviances({"ridge": SeparateRidge(families)}, X, Y, families, exposure, 5)
    rows = {row["family"]: row for row in found.table()}
    assert rows["normal"]["explained"] == pytest.approx(0.8, abs=0.1)
    assert rows["poisson"]["explained"] > 0.2
    assert abs(rows["probit"]["explained"]) < 0.05  # noise
    assert rows["normal"]["n"] == np.count_nonzero(~np.isnan(Y[:, 1]))
    # The time at risk is known: without it the same counts are predicted worse.
    without = compare_deviances({"ridge": SeparateRidge(families)}, X, Y, families, None, 5)
    assert without.table()[0]["deviance"] > 1.2 * rows["poisson"]["deviance"]


def test_ridge_is_scikit_learns(table):
    X, Y, exposure, families = table
    model = SeparateRidge(families).fit(X, Y, exposure)
    alone = PoissonRegressor(alpha=model.models_[0].best_params_["alpha"], max_iter=500)
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    alone.fit(rows, Y[:, 0] / exposure[:, 0], sample_weight=exposure[:, 0])
    expected = alone.predict(rows) * exposure[:, 0]
    np.testing.assert_allclose(model.predict_mean(X, exposure)[:, 0], expected, rtol=1e-6)
