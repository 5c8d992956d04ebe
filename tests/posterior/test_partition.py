"""The number of clusters: agreement against scikit-learn, gaps against simulation, the choice on simulated blobs."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

import coaltree as ct
from coaltree.posterior import partition
from coaltree.posterior.agreement import best_agreement
from coaltree.posterior.partition import EVEN, cluster_membership, gaps, score_clusters
from tests.reference.posteriors import make_posterior, noisy_posterior
from tests.seeds import seed


def sureness(together, labels):
    """What `cluster_membership` is, from the matrix of all pairs."""
    member = np.eye(int(labels.max()) + 1)[labels]
    others = together - np.eye(len(labels))
    n_others = member.sum(axis=0)[labels] - 1.0
    with_own = (others @ member)[np.arange(len(labels)), labels] / np.maximum(n_others, 1.0)
    return np.where(n_others > 0, with_own, 1.0 - others.max(axis=1))


def blobs(k, d, separation, number):
    """80 rows in k normal clusters of deviation 1, their centres `separation` or farther apart."""
    rng = np.random.default_rng([seed(number), k, d])
    centres = np.zeros((1, d))
    while len(centres) < k:
        centre = rng.uniform(-1, 1, size=d) * separation * k ** (1 / d)
        if np.linalg.norm(centres - centre, axis=1).min() >= separation:
            centres = np.vstack([centres, centre])
    return make_blobs(80, centers=centres, random_state=int(rng.integers(2**31)))[0]


def choose(X):
    """Choose as the estimator does, with fewer iterations."""
    posterior = ct.learn_posterior(X, n_draws=24, warmup=60).posterior
    return score_clusters(posterior, posterior.point_tree())


@pytest.mark.parametrize(("n", "k"), [(3, 2), (15, 14), (40, 5)])
def test_agreement_is_the_best_adjusted_rand_index_over_cuts(n, k):
    trees = [ct.sample_tree(n, random_state=m) for m in range(4)]
    # One that is close, so that clusters are pure up to a part of its height.
    close = ct.sample_data(trees[0], 200, random_state=0)
    trees.append(ct.greedy_tree(close))
    found = best_agreement(np.array([tree.children for tree in trees]), trees[0], k)
    assert found.shape == (5, k - 1)
    np.testing.assert_allclose(found[0], 1.0)
    for tree, values in zip(trees, found, strict=True):
        for j, value in enumerate(values, start=2):
            labels = trees[0].cut(n_clusters=j)
            expected = max(adjusted_rand_score(labels, tree.cut(n_clusters=i)) for i in range(1, n + 1))
            assert value == pytest.approx(max(expected, 0.0))


def test_gaps_equal_their_definition():
    rng = np.random.default_rng(0)
    n, numbers = 50, np.arange(2, 50)
    # From gaps of almost nothing to gaps of everything, and trees that begin with ties.
    times = np.cumsum(np.exp(rng.normal(size=(30, n - 1), scale=3.0)), axis=1)
    times[0, :20] = 0.0
    rates = np.arange(n + 1) * np.arange(-1.0, n) / 2.0
    found = gaps(times, numbers)
    for tree, row in zip(times, found, strict=True):
        for k, value in zip(numbers, row, strict=True):
            begin, end = tree[n - k - 1], tree[n - k]
            ratio = min(end / begin - 1.0, 1e12) if begin > 0.0 else 1e12
            assert value == pytest.approx(np.log1p(ratio * rates[k] / rates[k + 1 :]).sum(), abs=1e-6, rel=1e-8)


def test_gaps_are_exponential_under_the_coalescent():
    rng = np.random.default_rng(seed(1))
    times = np.array([ct.sample_tree(12, random_state=rng).times for _ in range(4000)])
    found = gaps(7.3 * times, np.arange(2, 12))  # whatever the scale
    error = 1 / np.sqrt(4000)
    assert (np.abs(found.mean(axis=0) - 1) < 5 * error).all()
    assert (np.abs((found > 2).mean(axis=0) - np.exp(-2)) < 5 * error).all()
    # The control: times of a star, all about equal, have no gaps.
    assert (np.abs(gaps(1 + 1e-3 * times, np.arange(2, 12)).mean(axis=0) - 1) > 5 * error).all()


@pytest.mark.parametrize(("k", "d"), [(1, 4), (2, 4), (3, 2), (5, 8)])
def test_blobs(k, d):
    scores = choose(blobs(k, d, 10.0, 1))
    assert scores.chosen == k
    if k > 1:
        assert scores.agreement[k - 2] > 0.9
    else:
        assert scores.agreement.max() < EVEN


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 8])
def test_blobs_most_of_the_time(d):
    right = [choose(blobs(k, d, 8.0, number)).chosen == k for number in range(6) for k in (1, 2, 3, 5, 8)]
    assert np.mean(right) > 0.8


def test_one_tree_needs_a_gap():
    def single(times):
        tree = ct.Tree([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]], times)
        posterior = ct.TreePosterior(
            children=[tree.children],
            times=[tree.times],
            weights=[1.0],
            log_evidence=0.0,
            log_joint=[0.0],
            ess_per_step=np.ones(5),
        )
        return score_clusters(posterior, tree)

    assert single([0.01, 0.011, 0.012, 5.0, 6.0]).chosen == 3
    scores = single([0.2, 0.4, 0.6, 0.8, 1.0])
    assert scores.chosen == 1
    np.testing.assert_array_equal(scores.agreement, 1.0)
    assert scores.as_dict().keys() == {1, 2, 3, 4, 5}


def test_two_rows_are_one_cluster():
    posterior = ct.sample_posterior(np.eye(2), n_particles=5)
    scores = score_clusters(posterior, posterior[0])
    assert scores.chosen == 1
    assert scores.as_dict() == {1: EVEN}


def test_some_trees_stand_for_many(monkeypatch):
    posterior = noisy_posterior(np.random.default_rng(0), n_leaves=20, n_trees=400)
    tree = posterior.mcc_tree()
    everything = score_clusters(posterior, tree)
    monkeypatch.setattr(partition, "MOST_MERGES", 20 * 100)
    some = score_clusters(posterior, tree)
    assert not np.array_equal(some.agreement, everything.agreement)
    np.testing.assert_allclose(some.agreement, everything.agreement, atol=0.05)
    used, weights = partition._spread(np.array([0.0, 0.5, 0.05, 0.05, 0.1, 0.3]), 4)
    np.testing.assert_array_equal(used, [1, 4, 5])
    np.testing.assert_array_equal(weights, [0.5, 0.25, 0.25])


# ---- how sure a row's cluster is


@pytest.mark.parametrize("n_clusters", [1, 2, 3, 7, 11, 12])
@pytest.mark.parametrize("noise", [0.2, 1.0])
def test_membership_is_what_the_matrix_of_all_pairs_says(n_clusters, noise):
    posterior = noisy_posterior(np.random.default_rng(1), n_leaves=12, noise=noise)
    labels = posterior.mcc_tree().cut(n_clusters=n_clusters)
    expected = sureness(posterior.coclustering(n_clusters), labels)
    np.testing.assert_allclose(cluster_membership(posterior, labels), expected, atol=1e-12)
    np.testing.assert_array_equal(cluster_membership(posterior, labels + 5), cluster_membership(posterior, labels))
    if n_clusters == 7:
        assert np.bincount(labels).min() == 1  # a row alone is among them
        assert expected[np.bincount(labels)[labels] == 1].max() > 0.0


def test_membership_by_hand():
    trees = [ct.Tree([[0, 1], [2, 4], [3, 5]], [1.0, 2.0, 3.0]), ct.Tree([[2, 3], [0, 1], [4, 5]], [1.0, 2.0, 3.0])]
    posterior = make_posterior(trees, [0.75, 0.25])
    # Row 3 is alone in the first tree, with row 2 in the second.
    np.testing.assert_allclose(cluster_membership(posterior, [0, 0, 0, 1]), [0.875, 0.875, 0.75, 0.75])


def test_bad_labels():
    posterior = noisy_posterior(np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"labels must hold one label a row, shape \(10,\)"):
        cluster_membership(posterior, [0, 1])
