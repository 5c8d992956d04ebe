"""CoalescentProbit as scikit-learn sees it."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from coaltree import CoalescentProbit

QUICK = {"n_iter": 20, "burn_in": 10, "n_chains": 1, "random_state": 0}


def expected_failures(estimator):
    """With numpy 1 weighted rows and repeated ones are added up differently in the last digit: twenty steps of a chain
    make it another chain, with the same posterior."""
    old = int(np.__version__.split(".")[0]) < 2
    names = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
    return dict.fromkeys(names, "another chain by rounding") if old else {}


@parametrize_with_checks([CoalescentProbit(**QUICK)], expected_failed_checks=expected_failures)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    coef = np.array([[1.5, 1.2, -1.0, 0.5], [0.0, 0.3, 0.5, 0.0], [0.0, 0.0, 0.2, 1.0]])
    return X, (X @ coef + rng.standard_normal((200, 4)) > 0.3).astype(int)


@pytest.fixture(scope="module")
def fitted(data):
    return CoalescentProbit(n_iter=150, burn_in=50, random_state=0).fit(*data)


def test_shapes_of_the_contract(data, fitted):
    X, Y = data
    assert fitted.coef_.shape == (4, 3)
    assert fitted.intercept_.shape == (4,)
    assert fitted.node_coef_.shape == (7, 3)
    assert fitted.node_intercept_.shape == (7,)
    assert fitted.covariance_.shape == (3, 3)
    assert fitted.tree_.n_leaves == fitted.posterior_.n_leaves == 4
    assert fitted.trace_["log_likelihood"].shape == (2, 150)
    assert isinstance(fitted.classes_, np.ndarray)
    assert len(fitted.classes_) == 4
    probability = fitted.predict_proba(X)
    np.testing.assert_array_equal(fitted.predict(X), probability > 0.5)
    assert (fitted.predict(X) == Y).mean() > 0.7
    assert fitted.score(X, Y) > 0.2  # all four outcomes at once
    mean, deviation = fitted.predict_proba(X, return_std=True)
    np.testing.assert_array_equal(mean, probability)
    assert deviation.shape == (200, 4)
    for node in range(7):
        assert fitted.predict_node(X, node).shape == (200,)
    np.testing.assert_allclose(fitted.predict_node(X, 2), probability[:, 2], rtol=1e-12)


def test_cross_validation(data):
    X, Y = data
    model = make_pipeline(StandardScaler(), CoalescentProbit(**QUICK))
    probability = cross_val_predict(model, X, Y, cv=3, method="predict_proba")
    assert probability.shape == (200, 4)
    assert ((probability > 0.5) == Y).mean() > 0.65
    assert np.all(cross_val_score(model, X, Y, cv=3, scoring="roc_auc") > 0.7)
    assert np.all(cross_val_score(CoalescentProbit(**QUICK), X, Y[:, 0], cv=3, scoring="roc_auc") > 0.7)


def test_frames_keep_their_names(data):
    X, Y = data
    frame, outcomes = pd.DataFrame(X, columns=["x", "y", "z"]), pd.DataFrame(Y, columns=["a", "b", "c", "d"])
    model = CoalescentProbit(**QUICK).fit(frame, outcomes)
    assert list(model.feature_names_in_) == ["x", "y", "z"]
    assert model.tree_.names == model.outcome_names_ == ("a", "b", "c", "d")
    np.testing.assert_array_equal(model.coef_, CoalescentProbit(**QUICK).fit(X, Y).coef_)
    with pytest.raises(ValueError, match="unseen at fit time"):
        model.predict_proba(frame.rename(columns={"z": "other"}))
    with pytest.raises(ValueError, match="seen at fit time, yet now missing"):
        model.predict_proba(frame[["x", "y"]])
    with pytest.raises(ValueError, match="same order"):
        model.predict_proba(frame[["z", "y", "x"]])


def test_missing_labels_in_a_frame_with_nullable_columns(data):
    X, Y = data
    frame = pd.DataFrame(Y, columns=list("abcd")).astype("Int64")
    frame.iloc[:50, 1] = pd.NA
    expected = Y.astype(float)
    expected[:50, 1] = np.nan
    ours, plain = CoalescentProbit(**QUICK).fit(X, frame), CoalescentProbit(**QUICK).fit(X, expected)
    np.testing.assert_array_equal(ours.coef_, plain.coef_)


def test_one_dimensional_labels_make_a_binary_classifier(data):
    X, Y = data
    labels = np.where(Y[:, 0] == 1, "yes", "no")
    model = CoalescentProbit(**QUICK).fit(X, labels)
    assert list(model.classes_) == ["no", "yes"]
    assert model.predict_proba(X).shape == (200, 2)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert (model.predict(X) == labels).mean() > 0.7
    assert [part.shape for part in model.predict_proba(X, return_std=True)] == [(200, 2), (200, 2)]
    assert model.tree_ is None
    column = CoalescentProbit(**QUICK).fit(X, Y[:, [0]])
    np.testing.assert_array_equal(column.predict_proba(X)[:, 0], model.predict_proba(X)[:, 1])
    with pytest.raises(ValueError, match="must hold two labels, got 3 classes"):
        CoalescentProbit(**QUICK).fit(X, np.arange(200) % 3)


def test_sparse_features(data):
    X, Y = data
    X = np.where(X > 0, X, 0.0)
    model, thin = CoalescentProbit(**QUICK).fit(X, Y), CoalescentProbit(**QUICK).fit(sparse.csr_array(X), Y)
    np.testing.assert_array_equal(model.coef_, thin.coef_)
    np.testing.assert_array_equal(model.predict_proba(X), thin.predict_proba(sparse.csc_matrix(X)))


def test_same_seed_same_result_whatever_the_threads(data):
    X, Y = data
    options = QUICK | {"n_chains": 2}
    one, two = (CoalescentProbit(**options, n_jobs=k).fit(X, Y) for k in (1, 2))
    assert one.fit_.coef_draws.tobytes() == two.fit_.coef_draws.tobytes()
    assert clone(one).fit(X, Y).coef_.tobytes() == one.coef_.tobytes()


def test_bad_input(data):
    X, Y = data
    with pytest.raises(ValueError, match="SimpleImputer"):
        CoalescentProbit(**QUICK).fit(np.where(X > 2, np.nan, X), Y)
    with pytest.raises(ValueError, match="outcome 0 holds 2"):
        CoalescentProbit(**QUICK).fit(X, 2 * Y)
    with pytest.raises(ValueError, match="n_iter must be at least 1"):
        CoalescentProbit(n_iter=0).fit(X, Y)
    with pytest.warns(UserWarning, match="single class"):
        model = CoalescentProbit(**QUICK).fit(X, np.column_stack([Y, np.zeros(200)]))
    assert model.predict_proba(X).shape == (200, 5)
    assert model.node_coef_.shape == (9, 3)


def test_logit_and_checkpoint_are_passed_on(data, tmp_path):
    X, Y = data
    model = CoalescentProbit(**QUICK, link="logit", checkpoint=tmp_path / "chains.npz").fit(X, Y)
    assert (tmp_path / "chains.npz").exists()
    assert {family.name for family in model.fit_.families} == {"logit"}
    margin = model.decision_function(X)
    np.testing.assert_allclose(1 / (1 + np.exp(-margin)), model.predict_proba(X), rtol=1e-9)
