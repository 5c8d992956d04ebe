"""Scores against scikit-learn, pair counting, DeLong's variance and simulated truth."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn import metrics as sk

from coaltree.regression import scores
from tests.reference import regression as twin
from tests.seeds import seed


def simulate(n=400, number=21, decimals=1):
    rng = np.random.default_rng(seed(number))
    eta = rng.normal(size=n) - 1.0
    y = (rng.random(n) < expit(eta)).astype(float)
    return y, np.round(eta + 0.5 * rng.normal(size=n), decimals), rng


@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_auroc_with_ties(decimals):
    y, score, _ = simulate(decimals=decimals)
    assert scores.auroc(y, score) == pytest.approx(sk.roc_auc_score(y, score), abs=1e-12)


def test_auroc_within_groups_and_without_missing_labels():
    y, score, rng = simulate(n=120)
    y[rng.random(120) < 0.2] = np.nan
    groups = rng.integers(4, size=120)
    y[groups == 3] = 0.0  # a group of one class has no pairs
    assert scores.auroc(y, score, groups) == pytest.approx(twin.auroc(y, score, groups), abs=1e-12)
    known = ~np.isnan(y)
    assert scores.auroc(y, score) == pytest.approx(sk.roc_auc_score(y[known], score[known]), abs=1e-12)


def test_groups_remove_what_folds_do_to_rare_outcomes():
    rng = np.random.default_rng(seed(22))
    y = np.zeros(200)
    y[rng.choice(200, 7, replace=False)] = 1.0
    folds = np.arange(200) % 10
    rate = np.array([y[folds != f].mean() for f in folds])  # the training rate: no information about y
    assert scores.auroc(y, rate, folds) == 0.5
    assert scores.auroc(y, rate) < 0.4


def test_resamples_against_the_twin():
    y, score, rng = simulate(n=60)
    groups = rng.integers(2, size=60)
    counts = scores.resample_counts(60, 5, seed(1))
    assert (counts.sum(axis=1) == 60).all()
    found = scores.bootstrap_auroc(y, score, groups, counts=counts)
    np.testing.assert_allclose(found, [twin.auroc(y, score, groups, c) for c in counts], atol=1e-12)


def test_bootstrap_agrees_with_delong():
    y, score, rng = simulate(n=500, decimals=9)
    other = score + 0.8 * rng.normal(size=500)
    counts = scores.resample_counts(500, 2000, seed(2))
    first, second = (scores.bootstrap_auroc(y, s, counts=counts) for s in (score, other))
    # 2000 resamples give a standard deviation to 1/√4000 = 1.6 %; the plain bootstrap also resamples the class sizes.
    assert first.std() == pytest.approx(twin.delong_variance(y, score) ** 0.5, rel=0.08)
    paired, unpaired = (first - second).std(), np.hypot(first.std(), second.std())
    expected = twin.delong_variance(y, score, other) ** 0.5
    assert paired == pytest.approx(expected, rel=0.08)
    assert unpaired != pytest.approx(expected, rel=0.08)
    low, high = scores.interval(first)
    assert low < scores.auroc(y, score) < high
    assert high - low == pytest.approx(2 * 1.96 * first.std(), rel=0.1)


def test_probability_scores_against_scikit_learn():
    y, score, rng = simulate()
    p = expit(score)
    assert scores.auprc(y, p) == pytest.approx(sk.average_precision_score(y, p), abs=1e-12)
    assert scores.brier(y, p) == pytest.approx(sk.brier_score_loss(y, p), abs=1e-12)
    assert scores.log_loss(y, p) == pytest.approx(sk.log_loss(y, p), abs=1e-12)
    missing = rng.random(len(y)) < 0.3
    for score_of in (scores.auprc, scores.brier, scores.log_loss):
        assert score_of(np.where(missing, np.nan, y), p) == pytest.approx(score_of(y[~missing], p[~missing]))


def test_log_loss_of_a_certain_mistake_is_finite():
    assert scores.log_loss([0.0, 1.0], [1.0, 1.0]) == pytest.approx(-0.5 * np.log(1e-12), rel=1e-4)


def test_calibration_of_the_truth_and_of_distortions():
    rng = np.random.default_rng(seed(23))
    eta = rng.normal(size=20_000) - 1.0
    y = (rng.random(20_000) < expit(eta)).astype(float)
    information = expit(eta) * expit(-eta)
    error = (information.sum()) ** -0.5
    centred = eta - np.average(eta, weights=information)
    slope_error = (information @ centred**2) ** -0.5
    true = scores.calibration(y, expit(eta))
    assert abs(true.intercept) < 4 * error
    assert abs(true.slope - 1.0) < 4 * slope_error
    extreme = scores.calibration(y, expit(2 * eta))
    assert abs(extreme.slope - 0.5) < 4 * slope_error
    shifted = scores.calibration(y, expit(eta + 1.0))
    assert abs(shifted.intercept + 1.0) < 4 * error
    assert shifted.slope == pytest.approx(true.slope, abs=1e-6)


def test_calibration_without_spread_or_with_separation():
    y = np.array([0.0, 0.0, 0.0, 1.0])
    constant = scores.calibration(y, np.full(4, 0.5))
    assert constant.intercept == pytest.approx(np.log(1 / 3))
    assert np.isnan(constant.slope)
    assert 1.0 < scores.calibration(y, [0.1, 0.2, 0.3, 0.9]).slope < np.inf


def test_calibration_table():
    y, score, _ = simulate(n=1000, decimals=9)
    table = scores.calibration_table(y, expit(score))
    assert len(table.n) == 10
    assert table.n.sum() == 1000
    assert table.n_events.sum() == y.sum()
    assert (np.diff(table.predicted) > 0).all()
    assert ((table.low < table.observed) & (table.observed < table.high)).all()
    np.testing.assert_allclose(table.n @ table.predicted, expit(score).sum())
    assert len(scores.calibration_table(y, np.full(1000, 0.2)).n) == 1


@pytest.mark.parametrize("y", [[0.0, 0.0, 0.0], [1.0, np.nan, 1.0], [np.nan] * 3])
def test_one_class_is_not_available(y):
    p = [0.1, 0.2, 0.3]
    values = [
        scores.auroc(y, p),
        scores.auprc(y, p),
        scores.brier(y, p),
        scores.log_loss(y, p),
        *scores.calibration(y, p),
        *scores.interval(scores.bootstrap_auroc(y, p, n_resamples=10)),
    ]
    assert np.isnan(values).all()


def test_bad_shapes():
    with pytest.raises(ValueError, match="score"):
        scores.auroc([0, 1], [0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="groups"):
        scores.auroc([0, 1], [0.1, 0.2], [1, 2, 3])
    with pytest.raises(ValueError, match="NaN"):
        scores.auroc([0, 1], [0.1, np.nan])
