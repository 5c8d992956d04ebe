"""The number of clusters: silhouettes against scikit-learn, the choice on clouds, how sure a row's cluster is."""

from functools import partial

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score, silhouette_score

import coaltree as ct
from coaltree import greedy_tree
from coaltree.posterior import partition
from coaltree.posterior.hierarchy import hierarchy_of_one, make_hierarchy
from coaltree.posterior.partition import LEAST, LEAST_OF_ONE, cluster_probability, score_clusters
from tests.reference.posteriors import jittered_posterior, make_posterior, noisy_posterior
from tests.seeds import seed


def blobs(k, d, separation, number, n=80):
    """Rows in k normal clusters of deviation 1, their centres `separation` or farther apart, and their clusters."""
    rng = np.random.default_rng([seed(number), k, d])
    centres = np.zeros((1, d))
    while len(centres) < k:
        centre = rng.uniform(-1, 1, size=d) * separation * k ** (1 / d)
        if np.linalg.norm(centres - centre, axis=1).min() >= separation:
            centres = np.vstack([centres, centre])
    return make_blobs(n, centers=centres, random_state=int(rng.integers(2**31)))


def choose(X):
    """Choose as the estimator does, with fewer iterations."""
    posterior = ct.learn_posterior(X, n_draws=48, warmup=200).posterior
    return score_clusters(posterior, make_hierarchy(posterior))


def test_scores_are_silhouettes_by_merge_times():
    X, _ = blobs(3, 3, 6.0, 2, n=80)
    X[0] += 300.0  # an outlier, which does not count
    posterior = jittered_posterior(X, 1.0)
    found = make_hierarchy(posterior)
    assert found.is_outlier[0]
    scores = score_clusters(posterior, found, most_clusters=6)
    np.testing.assert_array_equal(scores.n_clusters, [2, 3, 4, 5, 6])
    kept = ~found.is_outlier
    each = np.array(
        [
            [silhouette_score(tree.cophenetic()[np.ix_(kept, kept)], found.cut(k)[kept], metric="precomputed")
             for k in scores.n_clusters]
            for tree in posterior
        ]
    )  # fmt: skip
    np.testing.assert_allclose(scores.score, posterior.weights @ each, atol=1e-10)
    assert (scores.low <= scores.score).all()
    assert (scores.score <= scores.high).all()
    assert (np.isclose(each, scores.low).any(axis=0) & np.isclose(each, scores.high).any(axis=0)).all()
    assert scores.probability.sum() == pytest.approx(1.0)
    assert scores.posterior().keys() <= set(range(1, 7))


@pytest.mark.parametrize(("k", "d"), [(1, 4), (2, 4), (3, 2), (5, 8)])
def test_blobs(k, d):
    scores = choose(blobs(k, d, 10.0, 1)[0])
    assert scores.chosen == k
    assert scores.posterior()[k] > 0.5
    if k > 1:
        assert scores.score[k - 2] > 0.7
    else:
        assert scores.score.max() < LEAST
    assert scores.as_dict()[1] == LEAST


@pytest.mark.parametrize(
    ("score", "chosen", "of_one"),
    [
        ((0.55, 0.3, 0.6, 0.54, 0.5), 4, 2),
        ((0.59, 0.3, 0.6), 2, 2),  # tied
        ((0.1, 0.26, 0.2), 3, 3),
        ((0.245, 0.26, 0.2), 3, 3),  # tied, but below the least that two clusters or more must reach
        ((0.251, 0.26, 0.2), 2, 2),
        ((0.1, 0.2, 0.24), 1, 1),  # none reaches the least
    ],
)
def test_the_fewest_clusters_of_those_tied_with_the_highest_score(score, chosen, of_one):
    assert partition._choose(np.array(score), LEAST, partition.TIED) == chosen
    assert partition._choose(np.array(score), LEAST, partition.TIED_OF_ONE) == of_one


def test_groups_of_groups_are_alternatives():
    """Six clusters in three pairs: three are shown, six are named, and cuts are nested."""
    rng = np.random.default_rng(seed(6))
    pairs = np.repeat([[0.0, 0.0], [60.0, 0.0], [0.0, 60.0]], 2, axis=0) + np.tile([[-4.0, -4.0], [4.0, 4.0]], (3, 1))
    posterior = jittered_posterior(np.repeat(pairs, 10, axis=0) + rng.normal(size=(60, 2)), 1.0)
    hierarchy = make_hierarchy(posterior)
    scores = score_clusters(posterior, hierarchy)
    assert scores.chosen == 3
    assert 6 in scores.alternatives
    assert not {2, 3, 9} & set(scores.alternatives)
    fine, coarse = hierarchy.cut(6), hierarchy.cut(3)
    assert all(len(np.unique(coarse[fine == c])) == 1 for c in range(6))


@pytest.mark.slow
@pytest.mark.parametrize(("d", "least"), [(2, 0.7), (8, 0.8)])
def test_blobs_most_of_the_time(d, least):
    # In the plane clusters are nearer to each other than in space, and some are told as one.
    right = [choose(blobs(k, d, 8.0, number)[0]).chosen == k for number in range(6) for k in (1, 2, 3, 5, 8)]
    assert np.mean(right) > least


@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_single_tree_is_compared_with_clouds(k):
    X, truth = blobs(k, 5, 10.0, 3)
    found = hierarchy_of_one(ct.greedy_tree(X, rule="peak"))
    posterior = make_posterior([found.tree], [1.0])
    scores = score_clusters(posterior, found, X, partial(greedy_tree, rule="peak"))
    assert scores.chosen == k
    assert scores.as_dict()[1] == LEAST_OF_ONE
    if k > 1:
        assert adjusted_rand_score(truth, found.cut(k)) == 1.0
    # By its own times even a cloud would have clusters: why the table is asked.
    codes, owner = partition._nested(found, np.arange(2, 31))
    assert partition._silhouettes(posterior.children, posterior.times, codes, owner).max() > LEAST
    assert score_clusters(posterior, found).chosen == 1


def test_many_rows_of_a_single_tree_are_thinned(monkeypatch):
    X, _ = blobs(3, 4, 10.0, 4, n=90)
    found = hierarchy_of_one(ct.greedy_tree(X, rule="peak"))
    posterior = make_posterior([found.tree], [1.0])
    monkeypatch.setattr(partition, "MOST_COMPARED", 40)
    monkeypatch.setattr(partition, "MOST_IN_CLOUD", 30)
    assert score_clusters(posterior, found, X, partial(greedy_tree, rule="peak")).chosen == 3


def test_two_rows_are_one_cluster():
    posterior = ct.sample_posterior(np.eye(2), n_particles=5)
    scores = score_clusters(posterior, make_hierarchy(posterior))
    assert scores.chosen == 1
    assert scores.as_dict() == {1: LEAST}
    assert scores.posterior() == {1: 1.0}


def test_some_trees_stand_for_many(monkeypatch):
    posterior = noisy_posterior(np.random.default_rng(0), n_leaves=20, n_trees=400)
    found = make_hierarchy(posterior)
    everything = score_clusters(posterior, found)
    monkeypatch.setattr(partition, "MOST_LEAVES", 20 * 100)
    some = score_clusters(posterior, found)
    assert not np.array_equal(some.score, everything.score)
    np.testing.assert_allclose(some.score, everything.score, atol=0.05)
    used, weights = partition._spread(np.array([0.0, 0.5, 0.05, 0.05, 0.1, 0.3]), 4)
    np.testing.assert_array_equal(used, [1, 4, 5])
    np.testing.assert_array_equal(weights, [0.5, 0.25, 0.25])


# ---- how certain a row's cluster is


def nearest_by_hand(posterior, labels):
    """What `cluster_probability` is, from the times of all pairs."""
    share = np.zeros(len(labels))
    for tree, weight in zip(posterior, posterior.weights, strict=True):
        times = tree.cophenetic()
        for i, own in enumerate(labels):
            others = np.arange(len(labels)) != i
            mean = {
                c: times[i, others & (labels == c)].mean() for c in set(labels) - {-1} if (others & (labels == c)).any()
            }
            best = [c for c, time in mean.items() if np.isclose(time, min(mean.values()), rtol=1e-9)]
            share[i] += weight if own < 0 or (labels == own).sum() == 1 else weight * (own in best) / len(best)
    return share


@pytest.mark.parametrize("n_clusters", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("noise", [0.2, 1.0])
def test_probability_is_the_share_of_draws_in_which_the_own_cluster_is_nearest(n_clusters, noise):
    posterior = noisy_posterior(np.random.default_rng(1), n_leaves=12, noise=noise)
    labels = make_hierarchy(posterior).cut(n_clusters)
    expected = nearest_by_hand(posterior, labels)
    np.testing.assert_allclose(cluster_probability(posterior, labels), expected, atol=1e-12)
    if n_clusters == 7 and noise == 1.0:
        assert expected.min() < 0.9  # there is some doubt to tell of


def test_many_clusters_are_counted_in_blocks():
    posterior = noisy_posterior(np.random.default_rng(2), n_leaves=90, noise=0.5, n_trees=6)
    labels = make_hierarchy(posterior).cut(40)
    np.testing.assert_allclose(cluster_probability(posterior, labels), nearest_by_hand(posterior, labels), atol=1e-12)


def test_probability_of_outliers_is_given():
    posterior = noisy_posterior(np.random.default_rng(3), n_leaves=10)
    labels = np.array([-1, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    outlier = np.linspace(0.9, 0.0, 10)
    assert cluster_probability(posterior, labels, outlier)[0] == outlier[0]


def test_bad_labels():
    posterior = noisy_posterior(np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"labels must be one whole number per row, shape \(10,\)"):
        cluster_probability(posterior, [0, 1])
