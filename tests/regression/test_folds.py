"""Folds: shares of every outcome's events, missing labels, seeds, bad input."""

import numpy as np
import pytest

from coaltree.regression.encoding import as_outcomes
from coaltree.regression.folds import stratified_folds
from tests.seeds import seed


@pytest.fixture(scope="module")
def outcomes():
    rng = np.random.default_rng(seed(11))
    common = rng.normal(size=(3000, 1))
    cut = np.linspace(1.3, 3.2, 12)
    Y = (0.6 * common + 0.8 * rng.normal(size=(3000, 12)) > cut).astype(float)
    Y[rng.random(Y.shape) < 0.1] = np.nan
    return Y


def farthest(Y, folds):
    """Largest distance of a fold's events from its share, over outcomes."""
    counts = np.array([np.nansum(Y[folds == f], axis=0) for f in range(folds.max() + 1)])
    return np.abs(counts - counts.mean(axis=0)).max()


def test_every_fold_has_its_share(outcomes):
    folds = stratified_folds(outcomes, 10, seed(1))
    assert set(folds) == set(range(10))
    assert np.ptp(np.bincount(folds)) <= 1
    assert farthest(outcomes, folds) <= 3
    at_random = np.random.default_rng(seed(2)).permutation(folds)
    assert farthest(outcomes, at_random) > 3  # the control: chance does not do that


def test_rarest_outcome_is_dealt_first():
    Y = np.zeros((100, 3))
    Y[:4, 0], Y[:40, 1], Y[20:70, 2] = 1, 1, 1
    folds = stratified_folds(Y, 4, 0)
    assert sorted(folds[:4]) == [0, 1, 2, 3]
    assert farthest(Y, folds) <= 1


def test_seed_decides(outcomes):
    np.testing.assert_array_equal(stratified_folds(outcomes, 5, 3), stratified_folds(outcomes, 5, 3))
    assert (stratified_folds(outcomes, 5, 3) != stratified_folds(outcomes, 5, 4)).any()


def test_no_events_and_only_events():
    assert np.ptp(np.bincount(stratified_folds(np.zeros(10), 3, 0))) <= 1
    assert np.ptp(np.bincount(stratified_folds(np.ones(10), 3, 0))) <= 1
    assert np.ptp(np.bincount(stratified_folds(np.full(10, np.nan), 3, 0))) <= 1


@pytest.mark.parametrize("n_folds", [1, 0, 11, 2.5])
def test_bad_number_of_folds(n_folds):
    with pytest.raises((ValueError, TypeError), match="n_folds"):
        stratified_folds(np.zeros(10), n_folds)


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        ([[0, 1], [2, 0]], "outcome 0 holds 2"),
        ([[np.inf], [0]], "outcome 0 holds inf"),
        ([["yes"], ["no"]], "Y must hold 0, 1 or NaN"),
        (np.zeros((0, 2)), "shape"),
        (np.zeros((2, 2, 2)), "shape"),
    ],
)
def test_bad_outcomes(Y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        as_outcomes(Y)


def test_outcomes_must_match_features():
    with pytest.raises(ValueError, match="5 rows of X"):
        as_outcomes(np.zeros((4, 2)), n_rows=5)
