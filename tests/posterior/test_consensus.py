import numpy as np
import pytest

from coaltree import Tree, memory
from coaltree.posterior import clades
from tests.reference import posteriors as reference
from tests.reference.posteriors import make_posterior, noisy_posterior, unrelated_posterior
from tests.reference.trees import caterpillar, random_tree

NAMES = ("plain", "two words", "it's", "a_b", "(x)", "5")


def dendropy_trees(posterior):
    """Return the posterior as an array of weighted DendroPy trees."""
    dendropy = pytest.importorskip("dendropy")
    namespace = dendropy.TaxonNamespace([f"t{i}" for i in range(posterior.n_leaves)])
    trees = dendropy.TreeArray(taxon_namespace=namespace, is_rooted_trees=True, use_tree_weights=True)
    for tree, weight in zip(posterior, posterior.weights, strict=True):
        named = Tree(tree.children, tree.times, [f"t{i}" for i in range(tree.n_leaves)])
        read = dendropy.Tree.get(
            data=named.to_newick(), schema="newick", rooting="force-rooted", taxon_namespace=namespace
        )
        read.weight = float(weight)
        trees.add_tree(read)
    return trees


def clades_of_dendropy(tree):
    return {
        frozenset(int(leaf.taxon.label[1:]) for leaf in node.leaf_iter()): node
        for node in tree.preorder_internal_node_iter()
    }


# ---- majority-rule consensus


def test_hand_example():
    trees = [
        Tree([[0, 1], [2, 3], [4, 5]], [1.0, 2.0, 4.0]),
        Tree([[0, 1], [2, 4], [3, 5]], [2.0, 3.0, 5.0]),
        Tree([[1, 2], [0, 4], [3, 5]], [0.5, 3.0, 6.0]),
    ]
    tree = make_posterior(trees, [0.5, 0.2, 0.3]).consensus()
    # {0,1}: 0.7; {2,3}: 0.5, not a majority; {0,1,2}: 0.5.
    np.testing.assert_array_equal(tree.parents, [4, 4, 5, 5, 5, -1])
    np.testing.assert_allclose(tree.support, [0.7, 1.0])
    np.testing.assert_allclose(tree.times, [(0.5 * 1 + 0.2 * 2) / 0.7, 0.5 * 4 + 0.2 * 5 + 0.3 * 6])
    np.testing.assert_array_equal(tree.clades().astype(int), [[1, 1, 0, 0], [1, 1, 1, 1]])
    assert (tree.n_leaves, tree.n_clades) == (4, 2)
    assert repr(tree) == "ConsensusTree(n_leaves=4, n_clades=2)"


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_consensus_agrees_with_the_twin(seed, threshold):
    posterior = noisy_posterior(np.random.default_rng(seed), noise=0.4)
    tree = posterior.consensus(threshold)
    support = reference.support(posterior)
    expected = {clade: share for clade, share in support.items() if share > 0.5 + 1e-9 and share >= threshold - 1e-9}
    found = {
        frozenset(np.flatnonzero(row).tolist()): share for row, share in zip(tree.clades(), tree.support, strict=True)
    }
    assert found.keys() == expected.keys()
    assert all(found[clade] == pytest.approx(expected[clade]) for clade in expected)


@pytest.mark.parametrize("seed", range(4))
def test_consensus_agrees_with_dendropy(seed):
    posterior = noisy_posterior(np.random.default_rng(seed), noise=0.4)
    theirs = clades_of_dendropy(dendropy_trees(posterior).consensus_tree())
    tree = posterior.consensus()
    ours = {frozenset(np.flatnonzero(row).tolist()) for row in tree.clades()}
    assert ours == theirs.keys()
    assert 1 < tree.n_clades < posterior.n_leaves - 1  # neither a star nor resolved


@pytest.mark.parametrize("seed", range(4))
def test_credibility_and_mcc_agree_with_dendropy(seed):
    posterior = noisy_posterior(np.random.default_rng(seed))
    trees = dendropy_trees(posterior)
    score = clades.clade_credibility(clades.clade_ids(posterior.children), posterior.weights)
    np.testing.assert_allclose(score, trees.calculate_log_product_of_split_supports()[0], atol=1e-9)
    theirs = trees.maximum_product_of_split_support_tree()
    assert clades_of_dendropy(theirs).keys() == set(reference.clades_of(posterior.mcc_tree()))


def test_strict_consensus_of_equal_topologies_is_the_tree():
    rng = np.random.default_rng(0)
    tree = random_tree(rng, 30)
    trees = [Tree(tree.children, tree.times * rng.uniform(0.5, 2)) for _ in range(7)]
    resolved = make_posterior(trees, np.full(7, 1 / 7)).consensus(1.0)
    assert resolved.n_clades == 29
    assert {tuple(row) for row in resolved.clades()} == {tuple(row) for row in tree.clades()}
    np.testing.assert_array_equal(resolved.support, 1.0)


def test_consensus_of_nothing_in_common_is_a_star():
    left, right = Tree([[0, 1], [2, 3]], [1.0, 2.0]), Tree([[0, 2], [1, 3]], [1.0, 4.0])
    star = make_posterior([left, right], [0.5, 0.5]).consensus()
    np.testing.assert_array_equal(star.parents, [3, 3, 3, -1])
    assert star.to_newick() == "(0:3.0,1:3.0,2:3.0)1;"


def test_times_never_go_down_toward_the_root():
    # {0,1} merges late in the trees that have it without {0,1,2}, which pulls its mean above its parent's.
    early = Tree([[0, 1], [2, 4], [3, 5]], [0.1, 0.2, 9.0])
    late = Tree([[2, 3], [0, 1], [4, 5]], [0.1, 8.0, 9.0])
    tree = make_posterior([early, late], [0.6, 0.4]).consensus()
    np.testing.assert_allclose(tree.times, [0.6 * 0.1 + 0.4 * 8, 0.6 * 0.1 + 0.4 * 8, 9.0])
    node_times = np.concatenate([np.zeros(4), tree.times])
    assert (node_times[tree.parents[:-1]] >= node_times[:-1]).all()


def test_consensus_of_deep_trees():
    """Caterpillars have n²/2 leaves in their clades: no step may list them."""
    n = 30_000
    tree = caterpillar(n)
    swapped = tree.children.copy()
    swapped[100], swapped[n - 2] = [n + 99, n - 1], [2 * n - 3, 101]
    posterior = make_posterior([tree, Tree(swapped, tree.times), tree], [0.4, 0.3, 0.3])
    found = posterior.consensus(0.9)
    # Leaves 101 and n − 1 have changed places, so from merge 100 to the last but one no clade is in all trees.
    assert found.n_clades == 101
    np.testing.assert_array_equal(found.parents[101:n], n + 100)
    np.testing.assert_array_equal(found.parents[n:-1], np.arange(n + 1, n + 101))
    assert posterior.consensus().n_clades == n - 1


def test_nested_clades_that_are_not_in_every_tree():
    """The parent of a clade is the smallest kept clade around it, though some trees that hold it lack that one."""
    first = Tree([[0, 1], [2, 5], [3, 6], [4, 7]], [1.0, 2.0, 3.0, 4.0])  # 01, 012, 0123
    second = Tree([[0, 1], [3, 5], [2, 6], [4, 7]], [1.0, 2.0, 3.0, 4.0])  # 01, 013, 0123
    third = Tree([[0, 2], [1, 5], [3, 6], [4, 7]], [1.0, 2.0, 3.0, 4.0])  # 02, 012, 0123
    for order in ([0, 1, 2], [1, 2, 0], [2, 1, 0]):
        trees = [(first, second, third)[i] for i in order]
        found = make_posterior(trees, np.array([0.4, 0.3, 0.3])[order]).consensus()
        np.testing.assert_array_equal(found.parents, [5, 5, 6, 7, 8, 6, 7, 8, -1])


def test_matrix_of_clades_that_does_not_fit(monkeypatch):
    tree = unrelated_posterior(np.random.default_rng(0)).consensus()
    monkeypatch.setattr(memory, "available_memory", lambda: 10)
    with pytest.raises(MemoryError, match="Follow `parents`"):
        tree.clades()


@pytest.mark.parametrize("threshold", [0.49, 1.01, -1, np.nan])
def test_bad_threshold(threshold):
    posterior = unrelated_posterior(np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"threshold must be in \[0.5, 1\]"):
        posterior.consensus(threshold)


# ---- Newick


def test_newick_reads_back_in_dendropy():
    dendropy = pytest.importorskip("dendropy")
    posterior = noisy_posterior(np.random.default_rng(1), n_leaves=6, noise=0.4, names=NAMES)
    tree = posterior.consensus()
    read = dendropy.Tree.get(data=tree.to_newick(), schema="newick", rooting="force-rooted", preserve_underscores=True)
    names = np.array(NAMES)
    expected = {frozenset(names[row]): share for row, share in zip(tree.clades(), tree.support, strict=True)}
    found = {
        frozenset(leaf.taxon.label for leaf in node.leaf_iter()): float(node.label)
        for node in read.preorder_internal_node_iter()
    }
    assert found == pytest.approx(expected, abs=1e-5)
    read.calc_node_root_distances()
    depths = [leaf.root_distance for leaf in read.leaf_node_iter()]
    np.testing.assert_allclose(depths, tree.times[-1])  # ultrametric, as high as the root


def test_newick_of_a_caterpillar_does_not_recurse():
    tree = make_posterior([caterpillar(3000)], [1.0]).consensus()
    assert tree.to_newick().count("(") == 2999


def test_resolved_consensus_reads_back_as_a_tree():
    tree = random_tree(np.random.default_rng(4), 12, [f"t{i}" for i in range(12)])
    text = make_posterior([tree], [1.0]).consensus().to_newick()
    read = Tree.from_newick(text, names=tree.names)
    np.testing.assert_allclose(read.cophenetic(), tree.cophenetic())


def test_consensus_tree_is_read_only():
    tree = unrelated_posterior(np.random.default_rng(0)).consensus()
    with pytest.raises(ValueError, match="read-only"):
        tree.support[0] = 0.0
