"""Pairs of leaves: all of them, and those that are asked for."""

import numpy as np
import pytest

from coaltree import Tree, memory
from coaltree.posterior import coclustering
from tests.reference.posteriors import make_posterior, noisy_posterior
from tests.reference.trees import caterpillar, leaves_below, random_tree


@pytest.mark.parametrize("n", [2, 3, 17])
def test_pair_sums(n):
    rng = np.random.default_rng(n)
    trees = [random_tree(rng, n) for _ in range(5)]
    values = rng.normal(size=(5, n - 1))
    expected = np.zeros((n, n))
    for tree, row in zip(trees, values, strict=True):
        order_of_merge = Tree(tree.children, np.arange(1.0, n)).cophenetic()
        expected += np.append(0.0, row)[order_of_merge.astype(int)]
    children = np.array([tree.children for tree in trees])
    np.testing.assert_allclose(coclustering.pair_sums(children, values), expected)
    # Fewer columns: later merges count nothing.
    values[:, 1:] = 0.0
    np.testing.assert_allclose(
        coclustering.pair_sums(children, values[:, :1]), coclustering.pair_sums(children, values)
    )


@pytest.fixture
def posterior():
    return noisy_posterior(np.random.default_rng(0), n_leaves=20, noise=0.6)


@pytest.mark.parametrize("deep", [False, True])
def test_pairs_asked_for_are_those_of_the_matrix(posterior, deep):
    if deep:
        tree = caterpillar(20)
        posterior = make_posterior([tree, Tree(tree.children[:, ::-1], 2 * tree.times)], [0.3, 0.7])
    n = posterior.n_leaves
    asked = np.array([(i, j) for i in range(n) for j in range(n)])
    np.testing.assert_allclose(posterior.cophenetic(asked).reshape(n, n), posterior.cophenetic(), rtol=1e-12)
    for n_clusters in (1, 2, 7, n - 1, n):
        found = posterior.coclustering(n_clusters, pairs=asked)
        np.testing.assert_allclose(found.reshape(n, n), posterior.coclustering(n_clusters), atol=1e-12)
        assert found.max() <= 1.0
    assert posterior.cophenetic(np.empty((0, 2), dtype=int)).shape == (0,)
    assert posterior.cophenetic([[3, 4]]) == pytest.approx(posterior.cophenetic()[3, 4])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([0, 1], r"pairs must hold two leaf indices per row, shape \(P, 2\), got shape \(2,\)"),
        ([[0, 1, 2]], r"got shape \(1, 3\)"),
        ([[0.0, 1.0]], "of float64"),
        ([[0, 20]], "pairs must hold leaf indices between 0 and 19, got 0 to 20"),
        ([[-1, 2]], "got -1 to 2"),
    ],
)
def test_bad_pairs(posterior, asked, message):
    with pytest.raises(ValueError, match=message):
        posterior.cophenetic(asked)
    with pytest.raises(ValueError, match=message):
        posterior.coclustering(3, asked)


def test_matrices_that_do_not_fit(posterior, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 5000)
    for method in (posterior.cophenetic, lambda: posterior.coclustering(3)):
        with pytest.raises(MemoryError, match=r"\(20, 20\) .* Ask for some pairs of leaves with pairs="):
            method()
    with pytest.raises(MemoryError, match=r"Take `point_tree\(\)` instead"):
        posterior.mean_tree()
    assert posterior.cophenetic([[0, 1]]).shape == posterior.coclustering(3, [[0, 1]]).shape == (1,)
    posterior.point_tree()


def test_mean_time_of_the_ancestor_of_a_clade(posterior):
    tree = random_tree(np.random.default_rng(1), 20)
    found = coclustering.mean_ancestor_times(tree.children, posterior.children, posterior.times, posterior.weights)
    expected = np.zeros(19)
    for k in range(19):
        own = leaves_below(tree, 20 + k)
        for weight, other in zip(posterior.weights, posterior, strict=True):
            first = next(j for j in range(19) if own <= leaves_below(other, 20 + j))
            expected[k] += weight * other.times[first]
    np.testing.assert_allclose(found, expected)
