"""The number of clusters: agreement against scikit-learn, gaps against simulation, the choice on simulated blobs."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

import coaltree as ct
from coaltree.posterior.partition import EVEN, best_agreement, gaps, score_clusters
from coaltree.posterior.rejuvenate import rejuvenate
from tests.seeds import seed


def blobs(k, d, separation, number):
    """80 rows in k normal clusters of deviation 1, their centres `separation` or farther apart."""
    rng = np.random.default_rng([seed(number), k, d])
    centres = np.zeros((1, d))
    while len(centres) < k:
        centre = rng.uniform(-1, 1, size=d) * separation * k ** (1 / d)
        if np.linalg.norm(centres - centre, axis=1).min() >= separation:
            centres = np.vstack([centres, centre])
    return make_blobs(80, centers=centres, random_state=int(rng.integers(2**31)))[0]


def choose(X, n_particles=12):
    """Choose as the estimator does, with fewer iterations."""
    learned = ct.learn_posterior(X, n_iter=6, burn_in=3, n_particles=n_particles)
    posterior = rejuvenate(learned.posterior, X, learned.covariance, learned.leaf_noise, n_sweeps=4)
    return score_clusters(posterior, posterior.mcc_tree())


def test_agreement_is_the_best_adjusted_rand_index_over_cuts():
    labels = np.random.default_rng(0).integers(3, size=15)
    labels[:3] = range(3)
    trees = [ct.sample_tree(15, random_state=m) for m in range(4)]
    found = best_agreement(np.array([tree.children for tree in trees]), labels, 3)
    for tree, value in zip(trees, found, strict=True):
        expected = max(adjusted_rand_score(labels, tree.cut(n_clusters=j)) for j in range(1, 16))
        assert value == pytest.approx(max(expected, 0.0))


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
