"""Simulation, densities and the one integral."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coaltree as ct
from coaltree.model import diffusion, gig
from tests.properties.strategies import (
    Refused,
    arrays,
    counts,
    covariances,
    is_finite,
    leaf_noises,
    outcome,
    scalars,
    seeds,
    tables,
    texts,
    trees,
)


@given(counts, seeds, st.none() | st.lists(texts, max_size=6))
def test_sample_tree(n, seed, names):
    tree = outcome(ct.sample_tree, n, seed, names=names)
    if isinstance(tree, Refused):
        return
    assert tree.n_leaves == n
    assert is_finite(tree.times, ct.log_prior(tree))
    assert (np.diff(tree.times) >= 0).all()


@given(st.data(), trees())
def test_sample_data(data, tree):
    covariance = data.draw(st.one_of(counts, covariances(3)))
    noise = data.draw(leaf_noises(tree.n_leaves))
    seed, root = data.draw(seeds), data.draw(st.none() | arrays((3,)))
    X = outcome(ct.sample_data, tree, covariance, leaf_noise=noise, random_state=seed, root=root)
    if not isinstance(X, Refused):
        assert X.dtype == np.float64
        assert len(X) == tree.n_leaves
        assert is_finite(X)


@given(trees())
def test_log_prior(tree):
    value = outcome(ct.log_prior, tree)
    assert value <= 0.0
    assert not math.isnan(value)


@given(st.data(), trees())
def test_log_joint(data, tree):
    X = data.draw(st.one_of(tables(), tables(st.just(tree.n_leaves), st.integers(1, 3))))
    d = np.shape(X)[1] if np.ndim(X) == 2 else 2
    value = outcome(ct.log_joint, tree, X, data.draw(covariances(d)), leaf_noise=data.draw(leaf_noises(tree.n_leaves)))
    if not isinstance(value, Refused):
        assert isinstance(value, float)
        assert not math.isnan(value)


@given(st.data(), trees())
def test_messages_and_posteriors_of_nodes(data, tree):
    X = data.draw(tables(st.just(tree.n_leaves), st.integers(1, 3)))
    noise = data.draw(leaf_noises(tree.n_leaves))
    for function in (diffusion.messages, diffusion.node_posterior):
        found = outcome(function, tree, X, noise)
        assert isinstance(found, Refused) or is_finite(*found)
    drawn = outcome(diffusion.sample_nodes, tree, X, None, noise, data.draw(counts), data.draw(seeds))
    assert isinstance(drawn, Refused) or is_finite(drawn)


numbers = st.one_of(scalars, arrays((3,)), st.floats(1e-6, 1e6))


@given(numbers, numbers, numbers, numbers)
def test_the_integral(d, eps, lam, r):
    value = outcome(gig.log_integral, d, eps, lam, r)
    if not isinstance(value, Refused):
        assert not np.isnan(value).any()
    for function in (gig.mode, gig.mean, gig.variance):
        value = outcome(function, d, eps, lam, r)
        assert isinstance(value, Refused) or not np.isnan(value).any()


@given(
    st.floats(1, 500), st.sampled_from([0.0, 1e-300, 1e-5, 1.0, 1e5, 1e300]), st.floats(1e-3, 1e6), st.floats(0, 1e6)
)
def test_the_integral_of_what_occurs(d, eps, lam, r):
    value = outcome(gig.log_integral, d, eps, lam, r)
    assert not isinstance(value, Refused)
    assert not np.isnan(value)
    higher = gig.log_integral(d, eps, lam, r + 1.0)
    assert higher <= value + 1e-9 * (1 + abs(value))


@given(scalars, scalars, scalars, scalars, counts, seeds)
def test_draws_of_the_integral(d, eps, lam, r, size, seed):
    drawn = outcome(gig.sample, d, eps, lam, r, size, seed)
    if not isinstance(drawn, Refused):
        assert not np.isnan(drawn).any()
        assert (drawn >= r).all()


def test_found_by_more_examples():
    """What a larger number of examples found: different values at one point of the tree, products that underflow."""
    nowhere = ct.Tree([[0, 1]], [0.0])
    assert ct.log_joint(nowhere, [[1e9], [1e9 + 1e-6]]) == -math.inf
    assert ct.log_joint(nowhere, [[1.0], [1.0]]) == math.inf
    three = ct.Tree([[0, 1], [2, 3]], [0.0, 1.0])
    assert ct.log_joint(three, [[1.0, np.nan], [2.0, 0.0], [1.0, 1.0]]) == -math.inf
    assert ct.log_joint(three, [[1.0, np.nan], [1.0, 0.0], [1.0, 1.0]]) == math.inf
    assert gig.log_bessel_k(0.1, 1e-160) == pytest.approx(38.4702, abs=1e-4)
    with pytest.raises(ValueError, match="z must be"):
        gig.log_bessel_k(0.1, 1e-301)
    with pytest.raises(ValueError, match="eps must be 0 or"):
        gig.log_integral(2.1, 1e-160, 1e-160)
    assert np.isfinite(gig.log_integral([1, 2, 2.1, 3, 50], 1e-305, 1.0)).all()


@given(numbers, numbers)
def test_log_bessel(nu, z):
    value = outcome(gig.log_bessel_k, nu, z)
    assert isinstance(value, Refused) or not np.isnan(value).any()
