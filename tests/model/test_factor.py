"""Φ of a few factors: an exact kernel, sums drawn from S alone, and tables for which a full matrix is too much."""

import math

import numpy as np
import pytest

import coaltree as ct
from coaltree.model import factor
from coaltree.model.covariance import as_family
from coaltree.model.factor import Factors
from tests.model.invariance import LIMIT, drift, stream
from tests.seeds import seed

FAMILY = Factors(n_factors=2, shape=3.0, scale=2.0)


@pytest.mark.parametrize("m", [3, 12])
def test_updates_leave_the_posterior_invariant(m, request):
    """With fewer contrasts than columns, too, where S is singular."""
    assert np.abs(drift(FAMILY, 4, m, 700, 3, stream(request))).max() < LIMIT


def test_a_wrong_count_of_contrasts_is_noticed(request):
    assert np.abs(drift(FAMILY, 4, 12, 700, 3, stream(request), m_claimed=15)).max() > LIMIT


def test_sums_over_factors_are_those_of_the_contrasts_themselves():
    """Means and variances of Σ u fᵀ and Σ f fᵀ from S, against draws of every f."""
    rng = np.random.default_rng(seed(1))
    state = FAMILY.sample_prior(3, rng)
    loadings = np.asarray(state.values["loadings"])
    u = rng.standard_normal((5, 3)) @ state.factor.T
    beta = loadings.T @ np.linalg.inv(state.matrix())
    V = np.eye(2) - beta @ loadings
    f = u @ beta.T + rng.standard_normal((6000, 5, 2)) @ np.linalg.cholesky(V).T
    plain = np.concatenate(
        [np.einsum("ki,rkh->rih", u, f).reshape(6000, -1), np.einsum("rkg,rkh->rgh", f, f).reshape(6000, -1)], axis=1
    )
    draws = np.array(
        [
            np.concatenate([each.ravel() for each in factor._draw_factors(state, loadings, u.T @ u, 5, rng)])
            for _ in range(6000)
        ]
    )
    error = np.sqrt((plain.var(axis=0) + draws.var(axis=0)) / 6000)
    assert np.abs((plain.mean(axis=0) - draws.mean(axis=0)) / error).max() < 4.5
    np.testing.assert_allclose(np.corrcoef(draws.T), np.corrcoef(plain.T), atol=0.06)


def test_rescaling_is_what_the_prior_says():
    rng = np.random.default_rng(seed(2))
    state = FAMILY.sample_prior(4, rng)
    new, log_ratio = FAMILY.rescale(state, 2.5)
    np.testing.assert_allclose(new.matrix(), state.matrix() / 2.5)
    jacobian = -4 * math.log(2.5) - 0.5 * 4 * 2 * math.log(2.5)
    assert log_ratio == pytest.approx(FAMILY.log_prior(new) - FAMILY.log_prior(state) + jacobian)


def test_more_columns_than_rows_and_copies_of_columns():
    rng = np.random.default_rng(seed(3))
    X = ct.sample_data(ct.sample_tree(15, random_state=rng), 5, leaf_noise=0.05, random_state=rng)
    X = np.column_stack([X, X[:, :2], X @ rng.normal(size=(5, 20)) + 0.1 * rng.normal(size=(15, 20))])
    learned = ct.learn_posterior(X, "factors", n_draws=40, warmup=60)
    assert np.linalg.eigvalsh(learned.covariance).min() > 0
    correlation = learned.covariance[0, 5] / math.sqrt(learned.covariance[0, 0] * learned.covariance[5, 5])
    assert correlation > 0.9


def test_factors_by_name_and_bad_values():
    assert isinstance(as_family("factors"), Factors)
    with pytest.raises(ValueError, match="n_factors"):
        Factors(n_factors=0)
    with pytest.raises(ValueError, match="positive"):
        FAMILY.from_values({"unique": -np.ones(2), "loadings": np.zeros((2, 2)), "factor_scales": np.ones(2)}, 2)
