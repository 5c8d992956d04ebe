"""Expected overlap, transfer support and merge times: twin, enumeration, coherence, and Monte Carlo error."""

import numpy as np
import pytest

from coaltree import Tree
from coaltree.posterior import clades, overlap
from coaltree.posterior.annotate import to_annotated_nexus
from coaltree.posterior.coclustering import mean_ancestor_times
from coaltree.posterior.hierarchy import make_hierarchy
from tests.reference import overlap as twin
from tests.reference import posteriors as reference
from tests.reference.posteriors import make_posterior, noisy_posterior, unrelated_posterior
from tests.reference.trees import random_tree
from tests.seeds import seed as shifted


def all_shapes(rows):
    """Every rooted binary tree over the rows, as nested pairs."""
    if len(rows) == 1:
        yield rows[0]
        return
    first, rest = rows[0], rows[1:]
    for chosen in range(2 ** len(rest) - 1):
        left = [first, *(row for i, row in enumerate(rest) if chosen >> i & 1)]
        right = [row for i, row in enumerate(rest) if not chosen >> i & 1]
        for one in all_shapes(left):
            for other in all_shapes(right):
                yield one, other


def as_tree(shape, n_leaves):
    merges = []

    def visit(node):
        if not isinstance(node, tuple):
            return node
        pair = [visit(side) for side in node]
        merges.append(pair)
        return n_leaves + len(merges) - 1

    visit(shape)
    return Tree(merges, np.arange(1.0, n_leaves))


def check(posterior, tree):
    found = [posterior.expected_overlap(tree), posterior.clade_support(tree), posterior.transfer_support(tree)]
    expected = [twin.summary(clade, posterior) for clade in reference.clades_of(tree)]
    np.testing.assert_allclose(found, np.array([each[:3] for each in expected], dtype=float).T, atol=1e-12)
    times = np.array([[reference.quantile(each[3], q) for q in (0.05, 0.5, 0.95)] for each in expected])
    for k, clade in enumerate(reference.clades_of(tree)):
        inside = [j for j, other in enumerate(reference.clades_of(tree)) if other <= clade]
        low, middle, high = times[inside].max(axis=0)
        assert posterior.median_times(tree)[k] == middle
        assert posterior.time_intervals(tree)[k].tolist() == [low, high]


@pytest.mark.parametrize("n_leaves", [2, 3, 4, 5])
def test_all_trees_by_enumeration(n_leaves):
    trees = [as_tree(shape, n_leaves) for shape in all_shapes(list(range(n_leaves)))]
    assert len(trees) == np.prod(np.arange(1, 2 * n_leaves - 2, 2), initial=1)
    posterior = make_posterior(trees, np.full(len(trees), 1.0 / len(trees)))
    check(posterior, trees[-1])
    check(posterior, trees[0])


def test_pair_by_hand():
    # Under all 15 trees of four rows, two are a clade in 3, inside one of three in 6 and apart in 6.
    trees = [as_tree(shape, 4) for shape in all_shapes([0, 1, 2, 3])]
    posterior = make_posterior(trees, np.full(15, 1 / 15))
    pairs = [clade for tree in trees for clade in reference.clades_of(tree)]
    assert pairs.count(frozenset([0, 1])) == 3
    found = posterior.expected_overlap([0, 0, -1, -1])
    within_three = sum({0, 1} < clade and len(clade) == 3 for clade in pairs) - 2  # in two trees as a clade as well
    rest = 15 - 3 - within_three
    # One third with {0, 2}; if the two merge last of three, two thirds; if only with all four, one half.
    alone = sum(not any({0, 1} <= clade and len(clade) < 4 for clade in reference.clades_of(tree)) for tree in trees)
    assert alone == rest
    assert found[0] == pytest.approx((3 + within_three * 2 / 3 + rest / 2) / 15)


@pytest.mark.parametrize("make", [noisy_posterior, unrelated_posterior])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_twin(make, seed):
    rng = np.random.default_rng(shifted(seed))
    posterior = make(rng, n_leaves=24, n_trees=12)
    for tree in (posterior[0], random_tree(rng, 24)):
        check(posterior, tree)


def test_sets_of_any_size_in_ladders():
    """Small sets far apart in a ladder: the walk must go on far beyond twice their size."""
    n = 64
    ladder = Tree([[0, 1], *([k + 1, n + k - 1] for k in range(1, n - 1))], np.arange(1.0, n))
    posterior = make_posterior([ladder, random_tree(np.random.default_rng(0), n)], [0.5, 0.5])
    for rows in ([60, 61, 63], [1, 63], [40, 41, 42, 62, 63], list(range(0, 60, 3)), [5]):
        labels = np.full(n, -1)
        labels[rows] = 0
        expected = twin.summary(rows, posterior)
        assert posterior.expected_overlap(labels)[0] == pytest.approx(float(expected[0]), abs=1e-12)
        assert posterior.transfer_support(labels)[0] == pytest.approx(float(expected[2]), abs=1e-12)


def test_blocks_do_not_matter(monkeypatch):
    posterior = noisy_posterior(np.random.default_rng(5), n_leaves=30)
    sets = overlap.RowSets.of(posterior[0], 30)
    draws = posterior.children, posterior.times, posterior.weights, 0
    whole = overlap.summarise(*draws, sets)
    monkeypatch.setattr(overlap, "CELLS", 150)
    parts = overlap.summarise(*draws, sets)
    for one, other in zip([*whole[:-1], *whole.held], [*parts[:-1], *parts.held], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_numbering_of_merges_does_not_matter():
    posterior = noisy_posterior(np.random.default_rng(6), n_leaves=20)
    tree = posterior[0]
    other = Tree.from_newick(Tree(tree.children, np.sqrt(np.arange(19.0)), None).to_newick())
    first = dict(zip(reference.clades_of(tree), posterior.expected_overlap(tree), strict=True))
    for clade, share in zip(reference.clades_of(other), posterior.expected_overlap(other), strict=True):
        assert first[clade] == share


def test_weightless_draws_do_not_count():
    rng = np.random.default_rng(7)
    trees = [random_tree(rng, 9) for _ in range(3)]
    both = make_posterior(trees, [0.5, 0.0, 0.5])
    without = make_posterior([trees[0], trees[2]], [0.5, 0.5])
    for method in ("expected_overlap", "transfer_support", "median_times", "time_intervals"):
        np.testing.assert_allclose(getattr(both, method)(trees[1]), getattr(without, method)(trees[1]))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0, 1], "one whole number per row"),
        ([0.0] * 10, "one whole number per row"),
        ([-1] * 10, "one whole number per row"),
        ([0, 2] * 5, "no row has label 1"),
    ],
)
def test_bad_labels(labels, message):
    with pytest.raises(ValueError, match=message):
        noisy_posterior(np.random.default_rng(0)).expected_overlap(labels)


# ---- coherence


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_times_are_within_their_intervals_and_do_not_fall(seed):
    posterior = noisy_posterior(np.random.default_rng(shifted(seed)), n_leaves=60, n_trees=30, noise=1.0)
    for tree in (make_hierarchy(posterior).tree, posterior.point_tree()):
        for intervals in (posterior.time_intervals(tree), posterior.shortest_time_intervals(tree)):
            assert (intervals[:, 0] <= tree.times).all()
            assert (tree.times <= intervals[:, 1]).all()
            parents = tree.parents()[60:-1] - 60
            assert (intervals[parents] >= intervals[:-1]).all()
        np.testing.assert_array_equal(tree.times, posterior.median_times(tree))
    # Ancestors of all rows of a clade, wanderers included, are much later: most are outside.
    ancestors = mean_ancestor_times(tree.children, posterior.children, posterior.times, posterior.weights)
    low, high = posterior.time_intervals(tree).T
    assert ((ancestors < low) | (ancestors > high)).mean() > 0.3


def test_files_have_the_numbers():
    posterior = noisy_posterior(np.random.default_rng(3), n_leaves=12)
    text = to_annotated_nexus(posterior)
    tree = make_hierarchy(posterior).tree
    assert Tree.from_nexus(text).to_newick(digits=6) == tree.to_newick(digits=6)
    for name, values in (("expected_overlap", posterior.expected_overlap(tree)), ("height", tree.times)):
        written = sorted(float(part.split(",")[0]) for part in text.replace("&", ",").split(f",{name}=")[1:])
        np.testing.assert_allclose(written, np.sort(values), rtol=1e-5)


# ---- Monte Carlo error


def chains(rng, stay, n_draws=200):
    """Two chains over four trees of 12 rows, which stay where they are with probability `stay`; and the trees."""
    trees = [random_tree(np.random.default_rng(i), 12) for i in range(4)]
    path = np.empty((2, n_draws), dtype=int)
    for chain in path:
        now = rng.integers(4)
        for i in range(n_draws):
            now = now if rng.random() < stay else rng.integers(4)
            chain[i] = now
    drawn = [trees[i] for i in path.ravel()]
    return make_posterior(drawn, np.full(2 * n_draws, 0.5 / n_draws), info={"n_chains": 2}), trees


def test_error_covers_what_another_seed_gives():
    for stay in (0.0, 0.9):
        means, errors = [], []
        for number in range(60):
            posterior, trees = chains(np.random.default_rng(shifted(number)), stay)
            means.append(posterior.expected_overlap(trees[0])[:-1])
            errors.append(posterior.overlap_error(trees[0])[:-1])
        spread, found = np.std(means, axis=0, ddof=1), np.mean(errors, axis=0)
        # A standard deviation of 60 runs is known to 9 %; two draws, 0 and 1, are added to what they are worth.
        added = 1.0 / (400 * (1 - stay) / (1 + stay))
        assert np.all((found > 0.7 * spread) & (found < 1.4 * spread + added)), (found, spread)
    posterior, trees = chains(np.random.default_rng(0), 0.9)
    blind = overlap.summarise(
        posterior.children, posterior.times, posterior.weights, 0, overlap.RowSets.of(trees[0], 12)
    )
    # Draws taken for independent: the error is far too small.
    assert np.median(blind.overlap_error[:-1] / posterior.overlap_error(trees[0])[:-1]) < 0.5


def test_error_of_shares_is_that_of_a_beta():
    share, size = np.array([0.0, 0.2, 1.0]), np.array([10.0, 50.0, 7.0])
    yes, no = 1.0 + size * share, 1.0 + size * (1.0 - share)
    expected = np.sqrt(yes * no / (size + 3.0)) / (size + 2.0)
    np.testing.assert_allclose(clades.monte_carlo_error(share, share, size), expected)
