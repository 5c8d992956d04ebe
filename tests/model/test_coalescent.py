"""Kingman's prior against theory and msprime."""

import numpy as np
import pytest
from scipy import stats

import coaltree as ct
from coaltree.model.coalescent import merge_rates
from tests.seeds import seed


def test_rates_count_pairs():
    np.testing.assert_array_equal(merge_rates(5), [10, 6, 3, 1])


def test_density_of_a_small_tree():
    tree = ct.Tree([[0, 1], [2, 3]], [0.2, 1.0])
    assert ct.log_prior(tree) == pytest.approx(-3 * 0.2 - 1 * 0.8)


def test_density_integrates_to_one_over_histories():
    """Two histories of three leaves … each pair may go first: 3 ∫∫ exp(−3Δ₁ − Δ₂) = 1."""
    rates = merge_rates(3)
    assert 3 * np.prod(1 / rates) == pytest.approx(1.0)


@pytest.mark.parametrize("n", [2, 5, 12])
def test_simulated_times_and_pairs(n):
    rng = np.random.default_rng(seed(n))
    trees = [ct.sample_tree(n, random_state=rng) for _ in range(4000)]
    gaps = np.diff([t.times for t in trees], prepend=0.0, axis=1)
    for k, rate in enumerate(merge_rates(n)):
        assert stats.kstest(gaps[:, k] * rate, "expon").pvalue > 1e-4
    last = np.array([t.times[-1] for t in trees])
    assert abs(last.mean() - 2 * (1 - 1 / n)) < 4.5 * last.std() / np.sqrt(len(last))
    _, counts = np.unique([t.children[0] for t in trees], axis=0, return_counts=True)
    assert len(counts) == n * (n - 1) // 2
    if len(counts) > 1:
        assert stats.chisquare(counts).pvalue > 1e-4
    if n > 2:
        # Second merges are uniform too: the first cluster takes part in 2/(n−1) of them.
        second = np.mean([n in t.children[1] for t in trees])
        expected = 2 / (n - 1)
        assert abs(second - expected) < 4.5 * np.sqrt(expected * (1 - expected) / len(trees)) + 1e-12


def test_against_msprime():
    msprime = pytest.importorskip("msprime", reason="msprime simulates the coalescent independently")
    n, n_trees = 8, 3000
    # Time in units of 2N generations with ploidy 2: pairs merge at rate 1.
    replicates = msprime.sim_ancestry(
        n, ploidy=1, population_size=1.0, num_replicates=n_trees, random_seed=seed(1) % 2**31 + 1
    )
    theirs, sizes = [], []
    for sequence in replicates:
        tree = sequence.first()
        internal = sorted((tree.time(u), u) for u in tree.nodes() if not tree.is_leaf(u))
        theirs.append([time for time, _ in internal])
        sizes.append(tree.num_samples(internal[2][1]))
    rng = np.random.default_rng(seed(2))
    ours = [ct.sample_tree(n, random_state=rng) for _ in range(n_trees)]
    times = np.array([t.times for t in ours])
    for k in range(n - 1):
        assert stats.ks_2samp(times[:, k], np.array(theirs)[:, k]).pvalue > 1e-4
    table = [np.bincount(sizes, minlength=9), np.bincount([t.sizes()[2] for t in ours], minlength=9)]
    table = np.array(table)[:, np.sum(table, axis=0) > 0]
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_seed_and_names():
    a, b = ct.sample_tree(9, random_state=4), ct.sample_tree(9, random_state=4)
    assert a == b
    assert a != ct.sample_tree(9, random_state=5)
    assert ct.sample_tree(3, random_state=0, names=list("xyz")).names == ("x", "y", "z")


@pytest.mark.parametrize("n", [1, 0, -3])
def test_too_few_leaves(n):
    with pytest.raises(ValueError, match="n must be at least 2"):
        ct.sample_tree(n)


def test_not_an_integer():
    with pytest.raises(TypeError, match="n must be an integer"):
        ct.sample_tree(2.5)
    with pytest.raises(ValueError, match="random_state"):
        ct.sample_tree(3, random_state=-1)
    with pytest.raises(TypeError, match="random_state"):
        ct.sample_tree(3, random_state="seed")
