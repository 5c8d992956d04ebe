"""Effects that are not linear: forests as arrays, ridge paths, and that no row is predicted from its own label."""

import numpy as np
import pytest
from scipy.special import expit, logit, ndtr
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression

from coaltree import CoalescentProbit
from coaltree.regression import forest, penalised, stacking
from coaltree.regression.folds import stratified_folds
from coaltree.regression.forest import grow_forest
from coaltree.regression.penalised import crossfit_ridge, ridge_path
from tests.seeds import seed


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(forest, "N_TREES", 60)
    monkeypatch.setattr(forest, "N_TUNING", 20)
    monkeypatch.setattr(stacking, "N_FOLDS", 3)
    monkeypatch.setattr("coaltree.estimators.regression.FOLD_ITERATIONS", 60)
    monkeypatch.setattr("coaltree.estimators.regression.FOLD_BURN_IN", 30)


def bent(n, rng):
    """Two outcomes that depend on the square of a feature, and one that is linear."""
    X = rng.standard_normal((n, 4))
    eta = np.column_stack([1.5 * X[:, 0] ** 2 - 1.5, 1.4 * X[:, 0] ** 2 - 1.0, 1.2 * X[:, 1] - 0.4])
    return X, (rng.random(eta.shape) < ndtr(eta)).astype(float)


def test_a_forest_of_arrays_votes_as_scikit_learn_does():
    rng = np.random.default_rng(seed(80))
    X, Y = bent(150, rng)
    grown = RandomForestRegressor(7, min_samples_leaf=3, random_state=0).fit(X.astype(np.float32), Y)
    plain = forest._plain(grown, np.ones(3), Y.mean(axis=0))
    new = rng.standard_normal((40, 4))
    np.testing.assert_allclose(plain.predict(new), grown.predict(new.astype(np.float32)), atol=1e-6)


def test_votes_out_of_bag_have_not_seen_the_label():
    """Labels are coins: whoever looks at a row's own label predicts it, and nobody else does."""
    rng = np.random.default_rng(seed(81))
    X, Y = rng.standard_normal((300, 5)), (rng.random((300, 2)) < 0.5).astype(float)
    rates, weights = Y.mean(axis=0), np.ones(300)
    grown, votes = grow_forest(X, Y, weights, rates, 0)
    _, held = crossfit_ridge(X, Y, weights, rates, stratified_folds(Y, 5, 0))
    seen = np.mean((grown.predict(X) > 0.5) == Y)
    assert seen > 0.7
    for told in (votes - 0.5, held):
        assert abs(np.mean((told > 0) == Y) - 0.5) < 4 * 0.5 / np.sqrt(600)


def test_the_ridge_path_meets_its_optimum():
    rng = np.random.default_rng(seed(82))
    X, Y = bent(200, rng)
    X = X * [1.0, 5.0, 0.1, 2.0]
    path = ridge_path(X, Y, np.ones(200), Y.mean(axis=0))
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    for k in (1, 4):
        penalty = 4 / penalised.VARIANCES[k]
        for j in range(3):
            exact = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=1000).fit(scaled, Y[:, j])
            np.testing.assert_allclose(path[k].logits(X)[:, j], exact.decision_function(scaled), atol=0.02)


def test_ridge_of_more_features_than_rows_and_of_copies():
    rng = np.random.default_rng(seed(83))
    X, Y = bent(60, rng)
    wide = np.hstack([X, X, np.ones((60, 1)), rng.standard_normal((60, 90))])
    model, held = crossfit_ridge(wide, Y, np.ones(60), Y.mean(axis=0), stratified_folds(Y, 3, 0))
    assert np.isfinite(held).all()
    assert np.isfinite(model.logits(wide)).all()
    assert np.all(model.coef[:, 8] == 0)


@pytest.fixture(scope="module")
def fitted():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forest, "N_TREES", 60)
        patch.setattr(forest, "N_TUNING", 20)
        patch.setattr(stacking, "N_FOLDS", 3)
        patch.setattr("coaltree.estimators.regression.FOLD_ITERATIONS", 60)
        patch.setattr("coaltree.estimators.regression.FOLD_BURN_IN", 30)
        X, Y = bent(700, np.random.default_rng(seed(84)))
        Y[3, 1] = np.nan
        model = CoalescentProbit(n_iter=120, burn_in=50, n_chains=1, random_state=0, features="auto")
        return X[:350], Y[:350], X[350:], Y[350:], model.fit(X[:350], Y[:350])


def loss(Y, p):
    return -np.nanmean(np.log(np.where(Y == 1, p, 1 - p)), axis=0)


def test_what_is_bent_is_seen_and_what_is_linear_is_called_so(fitted):
    _, _, X, Y, model = fitted
    assert model.stack_.chosen
    share = model.stack_.linear_share
    assert share[:2].max() < 0.3 < 0.8 < share[2]
    stacked, linear = loss(Y, model.predict_proba(X)), loss(Y, model.fit_.predict_proba(X))
    assert np.all(stacked[:2] < linear[:2] - 0.03)
    assert stacked[2] < linear[2] + 0.03
    # The density of rows left out is an honest one.
    told = -model.stack_.densities["stack"] / (~np.isnan(fitted[1])).sum(axis=0)
    np.testing.assert_allclose(told, stacked, atol=0.12)


def test_nodes_are_means_of_outcomes(fitted):
    X, *_, model = fitted
    assert model.coef_.shape == (3, 4)
    mean, deviation = model.predict_proba(X, return_std=True)
    assert np.all(deviation > 0)
    for node in range(3):
        np.testing.assert_allclose(model.predict_node(X, node), mean[:, node], rtol=1e-9)
    root = model.predict_node(X, 4)
    assert root.shape == (350,)
    low, high = mean.min(axis=1), mean.max(axis=1)
    assert np.mean((root >= low - 0.1) & (root <= high + 0.1)) > 0.95


def test_noise_is_left_to_the_linear_model_or_costs_nothing():
    rng = np.random.default_rng(seed(85))
    X = rng.standard_normal((250, 3))
    Y = (rng.random((250, 2)) < ndtr(X @ [[1.0, 0.8], [0.0, 0.0], [0.0, 0.4]])).astype(float)
    model = CoalescentProbit(n_iter=80, burn_in=40, n_chains=1, random_state=0, features="auto").fit(X[:150], Y[:150])
    auto, linear = loss(Y[150:], model.predict_proba(X[150:])), loss(Y[150:], model.fit_.predict_proba(X[150:]))
    assert np.all(auto < linear + 0.06)


def test_one_outcome_one_class_and_threads(monkeypatch):
    X, Y = bent(120, np.random.default_rng(seed(86)))
    monkeypatch.setattr("coaltree.estimators.regression.FOLD_ITERATIONS", 20)
    monkeypatch.setattr("coaltree.estimators.regression.FOLD_BURN_IN", 10)
    options = {"n_iter": 20, "burn_in": 10, "n_chains": 2, "random_state": 0, "features": "auto"}
    alone = CoalescentProbit(**options).fit(X, Y[:, 0])
    assert alone.predict_proba(X).shape == (120, 2)
    Y[:, 1] = 0.0
    with pytest.warns(UserWarning, match="single class"):
        one = CoalescentProbit(**options, n_jobs=1).fit(X, Y)
    with pytest.warns(UserWarning, match="single class"):
        two = CoalescentProbit(**options, n_jobs=2).fit(X, Y)
    assert one.predict_proba(X).tobytes() == two.predict_proba(X).tobytes()
    np.testing.assert_allclose(one.predict_proba(X)[:, 1], 0.5 / 121)
    assert np.isnan(one.stack_.linear_share[1])
    with pytest.raises(ValueError, match="features must be one of"):
        CoalescentProbit(features="forest").fit(X, Y)


def test_log_odds_are_finite_and_ordered():
    votes, rates = np.array([[0.0], [0.2], [1.0]]), np.array([0.1])
    odds = forest.log_odds(votes, rates)
    assert np.isfinite(odds).all()
    assert np.all(np.diff(odds[:, 0]) > 0)
    assert expit(odds[1, 0]) == pytest.approx((20 * 0.2 + 0.1) / 21)
    assert logit(0.5) == 0.0
