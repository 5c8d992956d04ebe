"""Clades by number, against sets."""

import numpy as np
import pytest

from coaltree import Tree
from coaltree.posterior import clades
from tests.reference import posteriors as reference
from tests.reference.posteriors import noisy_posterior, unrelated_posterior
from tests.reference.trees import random_tree


def test_equal_clades_have_equal_numbers_across_shapes_and_orders():
    first = Tree([[0, 1], [2, 3], [4, 5]], [1, 2, 3])
    second = Tree([[3, 2], [1, 0], [4, 5]], [1, 2, 3])
    third = Tree([[0, 1], [4, 2], [5, 3]], [1, 2, 3])
    ids = clades.clade_ids([tree.children for tree in (first, second, third)])
    np.testing.assert_array_equal(ids, [[0, 1, 2], [1, 0, 2], [0, 3, 2]])


@pytest.mark.parametrize("seed", range(3))
def test_numbers_are_a_bijection_with_leaf_sets(seed):
    rng = np.random.default_rng(seed)
    trees = [random_tree(rng, 7) for _ in range(200)]
    ids = clades.clade_ids([tree.children for tree in trees])
    sets = [clade for tree in trees for clade in reference.clades_of(tree)]
    assert len(set(zip(ids.ravel().tolist(), sets, strict=True))) == len(set(sets)) == ids.max() + 1


def test_words_are_the_sums_of_the_leaf_keys_modulo_two_to_the_64():
    tree = random_tree(np.random.default_rng(0), 20)
    keys = clades.leaf_keys(20)
    expected = [
        [sum(int(keys[i, word]) for i in clade) % 2**64 for word in range(2)] for clade in reference.clades_of(tree)
    ]
    assert clades.number_clades(tree.children[None]).words.tolist() == expected
    assert max(map(max, expected)) > 2**63  # the sums did wrap


@pytest.mark.parametrize("bits", [0, 1, 8])
def test_clades_whose_fingerprints_collide_stay_apart(bits):
    trees = [random_tree(np.random.default_rng(m), 12) for m in range(300)]
    children = np.array([tree.children for tree in trees])
    numbered = clades.number_clades(children, bits)
    n_clades = len(numbered.words)
    assert len(np.unique(numbered.words[:, 0])) <= 2**bits < n_clades / 4  # most do collide
    sets = [clade for tree in trees for clade in reference.clades_of(tree)]
    assert len(set(zip(numbered.ids.ravel().tolist(), sets, strict=True))) == len(set(sets)) == n_clades
    np.testing.assert_array_equal(numbered.ids, clades.clade_ids(children))
    # The control: by the fingerprint alone they would be taken for each other.
    alone = numbered.words[numbered.ids.ravel(), 0].tolist()
    assert len(set(zip(alone, sets, strict=True))) > len(set(alone))


def test_a_table_that_grows_keeps_what_it_holds():
    trees = [random_tree(np.random.default_rng(m), 50) for m in range(200)]
    ids = clades.clade_ids([tree.children for tree in trees])
    assert ids.max() > 4 * 1024  # beyond the first size, twice
    again = clades.clade_ids([tree.children for tree in trees + trees])
    np.testing.assert_array_equal(again, np.concatenate([ids, ids]))


def test_clades_found_in_one_tree():
    posterior = noisy_posterior(np.random.default_rng(0))
    tree = posterior[5]
    wanted = reference.clades_of(tree)
    found = clades.clades_in(posterior.children, tree.children)
    for row, other in zip(found, posterior, strict=True):
        expected = [wanted.index(clade) if clade in wanted else -1 for clade in reference.clades_of(other)]
        assert row.tolist() == expected


# ---- support, credibility, intervals against the twins


@pytest.mark.parametrize("make", [noisy_posterior, unrelated_posterior])
@pytest.mark.parametrize("seed", range(3))
def test_support_and_times_of_clades(make, seed):
    posterior = make(np.random.default_rng(seed))
    ids = clades.clade_ids(posterior.children)
    support = clades.support_of_clades(ids, posterior.weights)
    times = clades.mean_time_of_clades(ids, posterior.times, posterior.weights)
    table = reference.clade_table(posterior)
    for row, tree in zip(ids, posterior, strict=True):
        for clade, number in zip(reference.clades_of(tree), row, strict=True):
            found = np.array(table[clade])
            assert support[number] == pytest.approx(found[:, 1].sum())
            assert times[number] == pytest.approx(np.average(found[:, 0], weights=found[:, 1]))


def test_credibility():
    posterior = noisy_posterior(np.random.default_rng(0))
    score = clades.clade_credibility(clades.clade_ids(posterior.children), posterior.weights)
    np.testing.assert_allclose(score, reference.log_credibility(posterior), atol=1e-12)


def test_credibility_of_trees_without_weight():
    trees = [random_tree(np.random.default_rng(seed), 8) for seed in range(3)]
    ids = clades.clade_ids([tree.children for tree in trees])
    score = clades.clade_credibility(ids, np.array([0.0, 1.0, 0.0]))
    np.testing.assert_array_equal(score, [-np.inf, 0.0, -np.inf])


@pytest.mark.parametrize("shares", [[0.05, 0.95], [0.5], [0.0, 0.3, 1.0]])
def test_quantiles_of_sorted_times(shares):
    rng = np.random.default_rng(2)
    times, weights = rng.exponential(size=(2, 30, 7))
    weights[rng.random((30, 7)) < 0.3] = 0.0
    weights[1:, 6] = 0.0
    found = clades.quantiles(clades.sort_times(times, weights), shares)
    for column, row in enumerate(found):
        pairs = [(t, w) for t, w in zip(times[:, column], weights[:, column], strict=True) if w > 0]
        np.testing.assert_array_equal(row, [reference.quantile(pairs, q) for q in shares])


def test_too_many_merges():
    with pytest.raises(ValueError, match="take fewer trees"):
        clades.as_merges(np.broadcast_to(np.int64(0), (2**31, 1, 2)))
