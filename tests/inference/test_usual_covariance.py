"""Which covariance a table has by default."""

import numpy as np
import pytest

import coaltree as ct
from coaltree.estimators.clustering import CoalescentClustering
from coaltree.inference.effort import suits_full_covariance
from tests.seeds import seed

SHORT = {"n_draws": 4, "warmup": 2, "n_chains": 1}


def table(n=60, d=3):
    return ct.sample_data(ct.sample_tree(n, random_state=seed(1)), d, leaf_noise=0.1, random_state=seed(2))


def with_a_gap(X):
    X = X.copy()
    X[3, 1] = np.nan
    return X


def levels(X, number):
    """With `number` distinct values in the last column."""
    return np.column_stack([X[:, :-1], np.arange(len(X)) % number])


@pytest.mark.parametrize(
    ("X", "suits"),
    [
        (table(), True),
        (table(50), True),
        (table(49), False),
        (table(60, 15), True),
        (table(60, 16), False),
        (table(60, 1), False),
        (with_a_gap(table()), False),
        (levels(table(), 11), True),
        (levels(table(), 10), False),
    ],
)
def test_the_rule(X, suits):
    assert suits_full_covariance(X) == suits


def used(X, **settings):
    return ct.learn_posterior(X, **{**SHORT, **settings}).posterior.info["covariance"]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_is_taken():
    X = table()
    assert used(X) == "shrunk"
    assert used(X[:30]) == "spherical"
    assert used(np.column_stack([X, X.sum(axis=1)])) == "spherical"  # a sum of others
    assert used(X, method="greedy") == "spherical"
    assert used(X, effective_columns="all") == "spherical"
    assert used(X, covariance="diagonal") == "diagonal"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_distances_and_directions_are_spherical():
    X = table()
    for metric, rows in (("cosine", X), ("precomputed", ((X[:, None] - X) ** 2).sum(axis=2) ** 0.5)):
        model = CoalescentClustering(metric=metric, random_state=0, **SHORT).fit(rows)
        assert model.posterior_.info["covariance"] == "spherical"
