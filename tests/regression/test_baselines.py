"""The baselines: one face for all, missing labels, single classes, settings chosen by the data."""

import numpy as np
import pytest

from coaltree.regression import scores
from coaltree.regression.baselines import BASELINES, PenalisedRegression, PerOutcome, TunedForest
from tests.seeds import seed

FAST = {
    **{name: make for name, make in BASELINES.items() if name != "random_forest"},
    "random_forest": lambda: PerOutcome(TunedForest(leaf_sizes=(4, 20), n_trees=20)),
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(31)  # one example for all, with scores that were looked at: not a matter of seeds
    X = rng.normal(size=(400, 5)) * [1, 1, 10, 0.1, 1] + 3.0
    eta = (X - 3.0) @ np.array([[1.5, 0, 0.05, 0, 0], [0, 1.0, 0, 10, 0], [1.0, 1.0, 0, 0, 0]]).T - 1.0
    Y = (eta + rng.logistic(size=eta.shape) > 0).astype(float)
    return X, Y


@pytest.mark.parametrize("name", FAST)
def test_one_face(data, name):
    X, Y = data
    Y = np.column_stack([Y, np.zeros(len(Y)), np.full(len(Y), np.nan)])
    Y[::7, 0] = np.nan
    model = FAST[name]().fit(X[:300], Y[:300])
    p, score = model.predict_proba(X[300:]), model.decision_function(X[300:])
    assert p.shape == score.shape == (100, 5)
    assert np.isfinite(score).all()
    assert ((p >= 0) & (p <= 1)).all()
    for j in range(3):
        assert scores.auroc(Y[300:, j], score[:, j]) > 0.65
        assert scores.auroc(Y[300:, j], score[:, j]) == pytest.approx(scores.auroc(Y[300:, j], p[:, j]))
    np.testing.assert_allclose(p[:, 3], 0.5 / 301)
    np.testing.assert_allclose(p[:, 4], 0.5)


@pytest.mark.parametrize("name", FAST)
def test_missing_labels_are_rows_left_out(data, name):
    X, Y = data
    missing = np.arange(len(X)) % 3 == 0
    with_gaps = np.where(missing[:, None], np.nan, Y[:, :1])
    gaps = FAST[name]().fit(X, with_gaps).decision_function(X)
    np.testing.assert_array_equal(gaps, FAST[name]().fit(X[~missing], Y[~missing, :1]).decision_function(X))


@pytest.mark.parametrize("name", ["ml_probit", "ml_logit", "ridge", "lasso", "elastic_net"])
def test_units_of_features_do_not_matter(data, name):
    X, Y = data
    unit = np.array([1e3, 1e-3, 1.0, 5.0, 1.0])
    plain = FAST[name]().fit(X, Y).decision_function(X)
    np.testing.assert_allclose(FAST[name]().fit(X * unit - 7.0, Y).decision_function(X * unit - 7.0), plain, atol=1e-5)


def test_penalties_follow_the_signal(data):
    X, Y = data
    noise = np.random.default_rng(32).normal(size=X.shape)
    on_signal = PenalisedRegression("logit", (1.0,)).fit(X, Y[:, 0])
    on_noise = PenalisedRegression("logit", (1.0,)).fit(noise, Y[:, 0])
    assert on_signal.penalty_ < on_noise.penalty_
    assert np.abs(on_noise.coef_).max() < 0.2 < np.abs(on_signal.coef_).max()
    assert PenalisedRegression("logit", (0.0, 1.0)).fit(X, Y[:, 0]).l1_ratio_ in (0.0, 1.0)


@pytest.mark.parametrize("n_events", [1, 2, 3])
@pytest.mark.parametrize("name", FAST)
def test_a_handful_of_events(data, name, n_events):
    X, _ = data
    y = np.zeros(60)
    y[:n_events] = 1.0
    p = FAST[name]().fit(X[:60], y).predict_proba(X)
    assert np.isfinite(p).all()


def test_forest_prefers_large_leaves_in_noise_and_small_ones_in_detail():
    rng = np.random.default_rng(seed(33))
    X = rng.normal(size=(600, 3))
    noise = TunedForest(leaf_sizes=(1, 60), n_trees=40).fit(X, (rng.random(600) < 0.3).astype(float))
    detail = TunedForest(leaf_sizes=(1, 60), n_trees=40).fit(X, (np.sin(4 * X[:, 0]) > 0).astype(float))
    assert noise.leaf_size_ == 60
    assert detail.leaf_size_ == 1
    assert len(noise.forest_.estimators_) == 40


def test_maximum_likelihood_is_unpenalised(data):
    X, Y = data
    model = PenalisedRegression("logit").fit(X, Y[:, 0])
    residual = Y[:, 0] - model.predict_proba(X)
    # The score equations of maximum likelihood, Xᵀ(y − p) = 0, in units of standardised features.
    np.testing.assert_allclose(((X - X.mean(0)) / X.std(0)).T @ residual, 0.0, atol=1e-3)
    assert residual.sum() == pytest.approx(0.0, abs=1e-6)


def test_bad_input(data):
    X, Y = data
    model = BASELINES["ml_logit"]().fit(X, Y)
    with pytest.raises(ValueError, match="5 columns"):
        model.predict_proba(X[:, :4])
    with pytest.raises(ValueError, match="X must be finite"):
        BASELINES["ridge"]().fit(np.where(X > 3, np.nan, X), Y)
    with pytest.raises(ValueError, match="Y must have one row"):
        BASELINES["ridge"]().fit(X, Y[:5])
    with pytest.raises(ValueError, match="link"):
        PenalisedRegression("cauchit").fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="logit"):
        PenalisedRegression("probit", (1.0,)).fit(X, Y[:, 0])
