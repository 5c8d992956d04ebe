"""The tree of all draws and its cuts: linkage against scipy, outliers against simulation, labels against the loss."""

import numpy as np
import pytest
from scipy.cluster import hierarchy as scipy_hierarchy
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import adjusted_rand_score

import coaltree as ct
from coaltree.posterior import hierarchy
from coaltree.posterior.clades import as_merges
from coaltree.posterior.coclustering import restrict
from coaltree.posterior.hierarchy import (
    expected_merges,
    hierarchy_of_one,
    lineages,
    lone_tail,
    make_hierarchy,
    outlier_probability,
    ward,
)
from tests.reference.posteriors import jittered_posterior, make_posterior, noisy_posterior
from tests.seeds import seed


def same_partition(a, b):
    return adjusted_rand_score(a, b) == 1.0


def two_groups(n_outliers=0, n=80, number=1):
    """Rows in two cubes ten apart, and outliers far from both and from each other."""
    rng = np.random.default_rng([seed(number), n_outliers])
    X = rng.uniform(-1.5, 1.5, size=(n, 3))  # no corner is far
    X[n // 2 :, 0] += 10.0
    X[:n_outliers] = 100.0 * np.linalg.qr(rng.normal(size=(3, 3)))[0][np.arange(n_outliers) % 3]
    X[:n_outliers] *= 1.0 + np.arange(n_outliers)[:, None]
    return X, np.repeat([0, 1], n // 2)


# ---- Ward's linkage


def test_linkage_of_equal_weights_is_scipys():
    squared = squareform(pdist(np.random.default_rng(0).normal(size=(30, 4)), "sqeuclidean"))
    expected = scipy_hierarchy.linkage(squareform(np.sqrt(squared), checks=False), "ward")
    merges, cost = ward(squared.copy(), np.ones(30))
    np.testing.assert_allclose(np.sqrt(2.0 * cost), expected[:, 2], rtol=1e-10)
    np.testing.assert_array_equal(np.sort(merges, axis=1), np.sort(expected[:, :2].astype(int), axis=1))


def test_a_weight_is_so_many_rows():
    rng = np.random.default_rng(1)
    X, weights = rng.normal(size=(12, 3)), rng.integers(1, 5, size=12)
    rows = np.repeat(np.arange(12), weights)
    every = scipy_hierarchy.linkage(X[rows], "ward")
    merges, cost = ward(squareform(pdist(X, "sqeuclidean")), weights.astype(float))
    np.testing.assert_allclose(np.sqrt(2.0 * cost), every[-11:, 2], rtol=1e-8)
    labels = ct.Tree(merges, cost).cut(n_clusters=4)
    assert same_partition(labels[rows], scipy_hierarchy.fcluster(every, 4, "maxclust"))
    # The control: without weights the costs are others.
    assert not np.allclose(ward(squareform(pdist(X, "sqeuclidean")), np.ones(12))[1], cost)


def test_trees_of_fewer_rows():
    posterior = noisy_posterior(np.random.default_rng(2), n_leaves=15, n_trees=5)
    rows = np.array([8, 1, 3, 14, 7])
    children, times = restrict(as_merges(posterior.children), posterior.times, rows)
    for tree, merges, when in zip(posterior, children, times, strict=True):
        np.testing.assert_array_equal(ct.Tree(merges, when).cophenetic(), tree.cophenetic()[np.ix_(rows, rows)])


# ---- outliers


def test_lone_rows_are_those_of_the_coalescent():
    rng = np.random.default_rng(seed(3))
    n, n_trees, k = 20, 4000, 6
    counts = np.empty(n_trees, dtype=int)
    for m in range(n_trees):
        counts[m] = (np.bincount(ct.sample_tree(n, random_state=rng).cut(n_clusters=k)) == 1).sum()
    expected = lone_tail(n, k)
    found = np.array([(counts >= s).mean() for s in range(k + 1)])
    error = np.sqrt(expected * (1.0 - expected) / n_trees)
    assert (np.abs(found - expected) <= 5 * error + 1e-12).all()
    assert -np.diff(expected) @ np.arange(k) == pytest.approx(k * (k - 1) / (n - 1))
    # The control: the numbers of another k are others.
    assert (np.abs(found - lone_tail(n, k - 1)[np.minimum(np.arange(k + 1), k - 1)]) > 5 * error).any()


def test_expected_merges_are_those_of_the_coalescent():
    rng = np.random.default_rng(seed(5))
    n, n_trees = 30, 2000
    lone = np.zeros((n_trees, n + 1))
    for counts in lone:
        tree = ct.sample_tree(n, random_state=rng)
        sizes = np.concatenate([np.ones(n, dtype=int), tree.sizes()])
        beside = sizes[tree.children].min(axis=1) == 1
        counts[:] = [(beside & (tree.sizes() >= size)).sum() for size in range(n + 1)]
    mean, error = lone.mean(axis=0), lone.std(axis=0) / np.sqrt(n_trees)
    assert (np.abs(mean - expected_merges(n))[2:] < 5 * error[2:] + 1e-12).all()
    # The control: without the root, which holds all leaves for certain.
    assert (np.abs(mean - expected_merges(n) + 2 / (n - 1))[2:] > 5 * error[2:]).any()


def test_lone_rows_by_hand():
    # Five leaves in three lineages: 1 + 1 + 3 in three orders, 1 + 2 + 2 in three.
    np.testing.assert_allclose(lone_tail(5, 3), [1.0, 1.0, 0.5, 0.0])
    np.testing.assert_allclose(lone_tail(100, 2), [1.0, 2 / 99, 0.0])
    assert [lineages(n).tolist() for n in (2, 3, 30)] == [[], [2], [2, 3, 4]]


@pytest.mark.parametrize("n_outliers", [0, 1, 4])
def test_far_rows_are_outliers_and_no_others(n_outliers):
    X, groups = two_groups(n_outliers)
    found = make_hierarchy(jittered_posterior(X, 0.5))
    np.testing.assert_array_equal(np.flatnonzero(found.is_outlier), np.arange(n_outliers))
    labels = found.cut(2)
    np.testing.assert_array_equal(labels[:n_outliers], -1)
    assert same_partition(labels[n_outliers:], groups[n_outliers:])
    assert set(labels[n_outliers:]) == {0, 1}


@pytest.mark.parametrize(("n", "rare"), [(60, False), (80, True)])
def test_of_few_rows_a_single_one_is_no_outlier(n, rare):
    X, _ = two_groups(1, n=n)
    assert (make_hierarchy(jittered_posterior(X, 0.5)).outlier[0] > 0.9) == rare


def test_a_far_pair_is_two_outliers():
    X, _ = two_groups(0)
    X[:2] += 500.0
    found = make_hierarchy(jittered_posterior(X, 0.2))
    np.testing.assert_array_equal(np.flatnonzero(found.is_outlier), [0, 1])


def test_more_than_a_few_far_rows_are_a_cluster():
    X, _ = two_groups()
    X[:8] += 200.0
    found = make_hierarchy(jittered_posterior(X, 0.5))
    assert not found.is_outlier.any()
    assert same_partition(found.cut(2), np.arange(80) < 8)


def test_rows_of_the_prior_are_seldom_outliers():
    rng = np.random.default_rng(seed(4))
    trees = [ct.sample_tree(80, random_state=rng).children[None] for _ in range(400)]
    found = np.mean([outlier_probability(tree, np.ones(1)).any() for tree in trees])
    assert 0.0 < found < 0.2


# ---- the tree and its cuts


def test_labels_are_wards_of_the_mean_times():
    posterior = jittered_posterior(two_groups()[0], 1.5)
    found = make_hierarchy(posterior)
    Z = scipy_hierarchy.linkage(squareform(posterior.cophenetic(), checks=False), "ward")
    for k in range(1, 81):
        assert same_partition(found.cut(k), scipy_hierarchy.fcluster(Z, k, "maxclust"))
    # The control: the last merges in time are others.
    assert not all(same_partition(found.cut(k), found.tree.cut(n_clusters=k)) for k in range(2, 20))


def test_clusters_are_clades_at_median_times():
    posterior = jittered_posterior(two_groups(2)[0], 1.0)
    found = make_hierarchy(posterior)
    clades = {frozenset(np.flatnonzero(row).tolist()) for row in found.tree.clades()}
    before = found.cut(1)
    for k in range(2, 12):
        labels = found.cut(k)
        assert labels.max() == k - 1
        assert len(set(zip(labels, before, strict=True))) == k + 1  # nested; the outliers are one more pair
        first = [int(np.flatnonzero(labels == c)[0]) for c in range(k)]
        assert first == sorted(first)
        for c in range(k):
            members = frozenset(np.flatnonzero(labels == c).tolist())
            assert len(members) == 1 or members in clades
        before = labels
    np.testing.assert_array_equal(found.tree.times, posterior.median_times(found.tree))


def test_groups_stand_for_many_rows(monkeypatch):
    X, _ = two_groups(1, n=120)
    X[80:, 1] += 12.0
    posterior = jittered_posterior(X, 0.7)
    full = make_hierarchy(posterior)
    monkeypatch.setattr(hierarchy, "MOST_ROWS", 30)
    coarse = make_hierarchy(posterior)
    assert coarse.tree.n_leaves == 120
    np.testing.assert_array_equal(coarse.outlier, full.outlier)
    for k in (1, 2, 3):
        assert same_partition(coarse.cut(k), full.cut(k))
    sizes = [len(set(coarse.cut(k).tolist())) for k in (1, 29, 31, 119)]
    assert sizes == [2, 30, 32, 120]


def test_cuts_of_one_tree_split_what_costs_most():
    tree = ct.sample_tree(9, random_state=5)
    found = hierarchy_of_one(tree)
    assert found.tree == tree
    times = tree.cophenetic()

    def loss(labels):
        return sum(times[np.ix_(labels == c, labels == c)].sum() / 2 / (labels == c).sum() for c in np.unique(labels))

    for k in range(1, 9):
        now, then = found.cut(k), found.cut(k + 1)
        others = []
        for node, (left, _) in enumerate(tree.children, start=9):
            members, part = tree.leaves(node), tree.leaves(left)
            if len(set(now[members])) == 1 and (now == now[members[0]]).sum() == len(members):
                split = now.copy()
                split[part] = k
                others.append(loss(split))
        assert loss(then) == pytest.approx(min(others))


def test_outliers_of_one_tree():
    X, groups = two_groups(2)
    found = hierarchy_of_one(ct.greedy_tree(X, rule="peak"))
    labels = found.cut(2)
    np.testing.assert_array_equal(labels[:2], -1)
    assert same_partition(labels[2:], groups[2:])


def test_two_rows_and_bad_numbers():
    found = make_hierarchy(make_posterior([ct.Tree([[0, 1]], [1.0])] * 2, [0.5, 0.5]))
    np.testing.assert_array_equal(found.cut(2), [0, 1])
    with pytest.raises(ValueError, match="n_clusters must be between 1 and 2 for 2 rows, got 3"):
        found.cut(3)
    apart = make_hierarchy(jittered_posterior(two_groups(1)[0], 0.5))
    with pytest.raises(ValueError, match="between 1 and 79 for 80 rows, of which 1 are outliers"):
        apart.cut(80)


def test_draws_without_weight_do_not_count():
    posterior = jittered_posterior(two_groups()[0], 1.0, n_trees=6)
    weights = np.array([0.5, 0.5, 0, 0, 0, 0])
    some = make_posterior(list(posterior), weights)
    few = make_posterior(list(posterior)[:2], weights[:2])
    assert make_hierarchy(some).tree == make_hierarchy(few).tree
