"""Estimators, the regression and the comparison."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import coaltree as ct
from coaltree.regression.baselines import BASELINES
from coaltree.regression.comparison import compare
from coaltree.regression.fit import fit_regression
from coaltree.regression.folds import stratified_folds
from tests.properties.strategies import Refused, arrays, counts, is_finite, outcome, scalars, seeds, tables

few = settings(max_examples=max(5, settings().max_examples // 2))
rows = st.integers(4, 12)


@st.composite
def outcomes(draw, n):
    """Labels that are mostly 0, 1 and NaN."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.one_of(scalars, tables(), arrays((n,))))
    p = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    Y = (rng.random((n, p)) < draw(st.sampled_from([0.5, 0.5, 0.1, 0.0]))).astype(float)
    if draw(st.booleans()):
        Y[rng.random((n, p)) < 0.1] = np.nan
        return Y
    return draw(st.sampled_from([Y, Y.astype(bool), Y.astype(int), Y.astype(object), Y.tolist(), Y[:, 0]]))


def n_rows(X):
    return np.shape(X)[0] if np.ndim(X) else 4


@few
@given(st.data(), st.one_of(tables(rows, st.integers(1, 3)), tables(rows, st.integers(1, 3), wild=False)))
def test_fit_regression(data, X):
    Y = data.draw(outcomes(n_rows(X)))
    fit = outcome(
        fit_regression,
        X,
        Y,
        sample_weight=data.draw(st.one_of(st.none(), st.none(), scalars, arrays((n_rows(X),)))),
        family=data.draw(st.sampled_from(["probit", "logit", "poisson", "cauchit"])),
        n_iter=data.draw(st.sampled_from([2, 3, 0])),
        burn_in=1,
        n_chains=data.draw(st.sampled_from([1, 2, None])),
        scale=data.draw(st.one_of(st.just(1.0), scalars)),
        random_state=data.draw(seeds),
    )
    if isinstance(fit, Refused):
        return
    assert is_finite(fit.coef, fit.intercept, fit.covariance, fit.node_coef, fit.node_intercept)
    chance = fit.predict_proba(X)
    assert is_finite(chance)
    assert ((chance >= 0) & (chance <= 1)).all()
    found = outcome(fit.predict_proba, data.draw(tables()))
    assert isinstance(found, Refused) or is_finite(found)


@few
@given(st.data(), st.one_of(tables(rows, st.integers(1, 3)), tables(rows, st.integers(1, 3), wild=False)))
def test_coalescent_probit(data, X):
    if data.draw(st.booleans()) and np.ndim(X) == 2 and np.asarray(X).dtype.kind == "f":
        X = sparse.csr_matrix(np.asarray(X, dtype=np.float64))
    n = X.shape[0] if sparse.issparse(X) else n_rows(X)
    model = ct.CoalescentProbit(n_iter=2, burn_in=1, n_chains=1, random_state=0)
    fitted = outcome(model.fit, X, data.draw(outcomes(n)), also=["Y", "input", "labels", "classes", "samples", "label"])
    if not isinstance(fitted, Refused):
        assert is_finite(fitted.predict_proba(X), fitted.coef_, fitted.decision_function(X))


@few
@given(st.data(), st.one_of(tables(rows, st.integers(1, 3)), tables(rows, st.integers(1, 3), wild=False)))
def test_coalescent_clustering(data, X):
    model = ct.CoalescentClustering(
        n_draws=2,
        warmup=1,
        random_state=0,
        method=data.draw(st.sampled_from(["auto", "greedy"])),
        covariance=data.draw(st.sampled_from(["spherical", "diagonal", "wishart"])),
        n_clusters=data.draw(st.none() | counts),
        distance_threshold=data.draw(st.one_of(st.none(), st.none(), scalars)),
    )
    words = ["array", "samples", "features", "dtype", "input", *model.get_params(), "time"]
    fitted = outcome(model.fit, X, also=words)
    if isinstance(fitted, Refused):
        return
    assert is_finite(fitted.labels_, fitted.distances_, fitted.covariance_, fitted.completed_)
    table = np.asarray(X, dtype=np.float64)
    assert is_finite(fitted.predict_proba(table), fitted.score_samples(table), fitted.impute(table))
    new = outcome(fitted.score_samples, data.draw(tables()), also=words)
    assert isinstance(new, Refused) or is_finite(new)


@given(st.data(), tables(rows, st.integers(1, 3)))
def test_folds(data, X):
    folds = outcome(stratified_folds, data.draw(outcomes(n_rows(X))), data.draw(counts), data.draw(seeds))
    assert isinstance(folds, Refused) or folds.min() == 0


@few
@given(st.data(), st.one_of(tables(rows, st.integers(1, 2)), tables(st.just(12), st.integers(1, 2), wild=False)))
def test_compare(data, X):
    name = data.draw(st.sampled_from(["ml_probit", "ridge"]))
    found = outcome(
        compare, {name: BASELINES[name]()}, X, data.draw(outcomes(n_rows(X))), n_folds=data.draw(counts), n_resamples=10
    )
    if not isinstance(found, Refused):
        assert is_finite(found.probability)
        assert ((found.probability >= 0) & (found.probability <= 1)).all()
        assert found.table()
