"""Weights of labels: whole numbers are copies of rows, in the likelihood, the posterior, baselines and scores."""

import numpy as np
import pytest
from scipy.special import expit, ndtr

from coaltree.errors import InputError
from coaltree.estimators.probit import CoalescentProbit
from coaltree.regression import scores
from coaltree.regression.baselines import BASELINES
from coaltree.regression.comparison import compare
from coaltree.regression.families.binary import LOGIT, PROBIT
from coaltree.regression.fit import fit_regression
from coaltree.regression.penalised import crossfit_ridge
from coaltree.regression.preparation import prepare
from tests.regression.invariance import binary
from tests.seeds import seed


def table(n=400, n_outcomes=3, number=1):
    """Features, labels with gaps, and whole weights of labels that depend on them."""
    rng = np.random.default_rng(seed(number))
    X = rng.normal(size=(n, 3))
    Y = (rng.random((n, n_outcomes)) < ndtr(X[:, :1] + 0.5 * X[:, 1:2] - 0.5)).astype(float)
    Y[rng.random(Y.shape) < 0.1] = np.nan
    return X, Y, np.where(Y == 0, rng.integers(0, 5, Y.shape), rng.integers(0, 2, Y.shape)).astype(float)


def copies(X, Y, weights):
    """Every row as often as its largest weight; in copy c those labels are there whose weight is above c."""
    times = weights.max(axis=1).astype(int)
    row = np.repeat(np.arange(len(X)), times)
    number = np.concatenate([np.arange(t) for t in times])
    return X[row], np.where(number[:, None] < weights[row], Y[row], np.nan)


@pytest.mark.parametrize("family", [PROBIT, LOGIT])
def test_likelihood_of_copies(family):
    X, Y, weights = table()
    theta = np.random.default_rng(seed(2)).normal(size=(3, 4))

    def likelihood(X, Y, weights):
        signs = np.where(np.isnan(Y), 0, 2 * np.nan_to_num(Y) - 1).astype(np.int8)
        return binary(np.column_stack([np.ones(len(X)), X]), signs, weights, family)

    more = copies(X, Y, weights)
    weighted, copied = likelihood(X, Y, weights), likelihood(*more, np.ones(len(more[0])))
    for one, other in zip(weighted.values_and_gradient(theta), copied.values_and_gradient(theta), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    np.testing.assert_allclose(weighted.gradient(theta), copied.gradient(theta), rtol=1e-10)
    np.testing.assert_allclose(weighted.curvature(theta), copied.curvature(theta), rtol=1e-9)
    for j in range(3):
        value, gradient = weighted.of_outcome(j).values_and_gradient(theta[[j]])
        np.testing.assert_allclose(value[0], copied.values_and_gradient(theta)[0][j], rtol=1e-10)
        np.testing.assert_allclose(gradient[0], copied.gradient(theta)[j], rtol=1e-10)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.filterwarnings("ignore::UserWarning")  # short chains
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_posterior_of_copies(covariance):
    """Risks of a fit with weights agree with those of copies within their errors; without weights they do not."""
    X, Y, weights = table()
    run = {"n_iter": 500, "burn_in": 100, "n_chains": 1, "covariance": covariance}
    weighted = fit_regression(X, Y, sample_weight=weights, random_state=seed(3), **run)
    copied = fit_regression(*copies(X, Y, weights), random_state=seed(4), **run)
    plain = fit_regression(X, Y, random_state=seed(5), **run)
    for name in ("intercept_draws", "coef_draws"):
        one, other, control = (getattr(fit, name)[0] for fit in (weighted, copied, plain))
        spread = other.std(axis=0)
        assert np.abs(one.mean(axis=0) - other.mean(axis=0)).max() < 0.5 * spread.max()
        np.testing.assert_allclose(one.std(axis=0), spread, rtol=0.35)
        if name == "intercept_draws":
            assert np.abs(control.mean(axis=0) - other.mean(axis=0)).min() > 3.0 * spread.max()


def test_scores_of_copies():
    X, Y, weights = table()
    p = expit(X[:, 0] - 0.3)
    times = weights[:, 0].astype(int)
    y, w = Y[:, 0], weights[:, 0]
    many, q = np.repeat(y, times), np.repeat(p, times)
    folds = np.arange(len(y)) % 4
    for score in (scores.auprc, scores.brier, scores.log_loss):
        assert score(y, p, w) == pytest.approx(score(many, q), rel=1e-12)
        assert score(y, p, 7.0 * w) == pytest.approx(score(many, q), rel=1e-12)
        assert score(y, p) != pytest.approx(score(many, q), rel=1e-3)
    assert scores.auroc(y, p, folds, w) == pytest.approx(scores.auroc(many, q, np.repeat(folds, times)), rel=1e-12)
    np.testing.assert_allclose(scores.calibration(y, p, w), scores.calibration(many, q), rtol=1e-5)
    found = scores.calibration_table(y, np.full(len(y), 0.3), sample_weight=w)
    assert found.observed[0] == pytest.approx(np.nanmean(many))
    assert found.n[0] == np.count_nonzero(~np.isnan(y) & (w > 0))
    with pytest.raises(InputError, match="sample_weight"):
        scores.brier(y, p, w[:-1])


@pytest.mark.parametrize("method", ["ml_probit", "ml_logit"])
def test_maximum_likelihood_of_copies(method):
    X, Y, weights = table()
    one = BASELINES[method]().fit(X, Y, weights).predict_proba(X)
    np.testing.assert_allclose(one, BASELINES[method]().fit(*copies(X, Y, weights)).predict_proba(X), atol=1e-5)


QUICK = ["ridge", "wide_ridge", "boosting"]
LONG = sorted(set(BASELINES) - {"ml_probit", "ml_logit", *QUICK})


@pytest.mark.parametrize("method", [*QUICK, *(pytest.param(m, marks=[pytest.mark.slow, pytest.mark.ci]) for m in LONG)])
def test_weights_move_risks(method):
    """Labels without the event count more, and risks fall; weights all alike change nothing much."""
    X, Y, _ = table(300)
    given = None, np.where(Y == 0, 4.0, 1.0), np.ones(Y.shape)
    plain, moved, alike = (BASELINES[method]().fit(X, Y, weights).predict_proba(X).mean() for weights in given)
    assert moved < plain - 0.05
    assert alike == pytest.approx(plain, abs=0.02)


def test_ridge_of_all_outcomes_is_ridge_of_each():
    X, Y, weights = table()
    Y = np.where(weights > 0, Y, np.nan)
    folds, rates = np.arange(len(X)) % 5, np.full(3, 0.4)
    same = np.tile(weights[:, :1], 3)
    both = crossfit_ridge(X, Y, same, rates, folds)[1]
    np.testing.assert_allclose(both, crossfit_ridge(X, Y, weights[:, 0], rates, folds)[1], atol=1e-8)


def test_comparison_passes_weights_to_fits_and_scores():
    X, Y, _ = table()
    heavy = np.where(Y == 0, 4.0, 1.0)
    models = {"ml": BASELINES["ml_probit"]()}
    found, plain = (compare(models, X, Y, n_folds=3, n_resamples=20, sample_weight=w) for w in (heavy, None))
    assert found.probability.mean() < plain.probability.mean() - 0.1
    for row in found.table():
        assert abs(row["calibration_intercept"]) < 0.25  # of the weighted labels, from which it has learned
    table_ = found.calibration_table("ml")
    assert np.average(table_.observed, weights=table_.effective) < 0.3
    # Scores without weights contradict the fit.
    assert abs(scores.calibration(Y[:, 0], found.probability[0, :, 0]).intercept) > 0.8


def test_checks():
    X, Y, weights = table()
    with pytest.raises(InputError, match="per row of X"):
        fit_regression(X, Y, sample_weight=weights[:, :2])
    weights[:, 1] = 0.0
    with pytest.warns(UserWarning, match="single class"):
        assert prepare(X, Y, weights).scale.fitted.tolist() == [True, False, True]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.filterwarnings("ignore::UserWarning")  # short chains
def test_the_stack_takes_weights():
    X, Y, _ = table(300)
    heavy, labels = np.where(Y == 0, 4.0, 1.0), np.nan_to_num(Y)
    model = CoalescentProbit(n_iter=20, burn_in=5, n_chains=1, features="auto", random_state=0)
    plain = model.fit(X, labels).predict_proba(X).mean()
    assert model.fit(X, labels, sample_weight=heavy).predict_proba(X).mean() < plain - 0.05
