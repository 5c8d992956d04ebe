"""Sharing a cluster without the matrix of all pairs, against that matrix."""

import numpy as np
import pytest

from coaltree.posterior.coclustering import cut_labels, mean_sharing, sharing_of_rows, spread_rows
from tests.reference.posteriors import noisy_posterior
from tests.reference.trees import caterpillar, random_tree


def same_partition(a, b):
    return len(set(zip(a, b, strict=True))) == len(set(a)) == len(set(b))


@pytest.mark.parametrize("tree", [random_tree(np.random.default_rng(0), 30), caterpillar(30)])
def test_cut(tree):
    for k in (1, 2, 7, 29, 30):
        labels = cut_labels(tree.children, k)
        assert len(set(labels)) == k
        assert same_partition(labels, tree.cut(n_clusters=k))


@pytest.mark.parametrize("n_clusters", [1, 3, 8, 19, 20])
def test_against_all_pairs(n_clusters):
    posterior = noisy_posterior(np.random.default_rng(n_clusters), 20, 15, noise=0.8)
    labels = posterior.mcc_tree().cut(n_clusters=n_clusters)
    together = posterior.coclustering(n_clusters)
    rows = np.array([5, 0, 13, 7])
    np.testing.assert_allclose(sharing_of_rows(posterior, rows, n_clusters), together[np.ix_(rows, rows)], atol=1e-12)
    pairs = {True: [], False: []}
    for i in range(20):
        others = [j for j in range(20) if j != i]
        for j in others:
            pairs[bool(labels[i] == labels[j])].append(together[i, j])
    expected = [np.mean(pairs[True]) if pairs[True] else 1.0, np.mean(pairs[False]) if pairs[False] else 0.0]
    np.testing.assert_allclose(mean_sharing(posterior, labels), expected, atol=1e-12)


def test_spread_rows():
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat([0, 1, 2, 3], [9_000, 900, 99, 1]))
    order = np.lexsort((rng.random(10_000), labels))
    rows = spread_rows(order, labels, 400)
    np.testing.assert_array_equal(rows, spread_rows(order, labels, 400))
    assert np.bincount(labels[rows]).tolist() == [360, 36, 4, 1]
    place = np.empty(10_000, dtype=int)
    place[order] = np.arange(10_000)
    assert (np.diff(place[rows]) > 0).all()  # in the order of the tree, each once
    assert np.diff(place[rows])[:350].max() <= 26  # and evenly
    np.testing.assert_array_equal(spread_rows(order[:5], labels, 400), order[:5])
    singles = np.arange(10_000)
    assert len(spread_rows(order, singles, 400)) == 400
