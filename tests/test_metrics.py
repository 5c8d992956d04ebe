import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage

from coaltree import Tree, metrics
from tests.reference import scores as reference
from tests.reference.trees import caterpillar, random_tree, trees

# ((0, 1), (2, 3)) with a singleton 4 joined last.
SMALL = Tree([[0, 1], [2, 3], [5, 6], [4, 7]], [0.1, 0.2, 0.5, 1.0])
thorough = settings(deadline=None, max_examples=60)


# ---- against class labels


def test_hand_example():
    labels = ["a", "a", "b", "b", "b"]
    # Pure: {0,1} and {2,3}; n − K = 3.
    assert metrics.subtree_score(SMALL, labels) == pytest.approx(2 / 3)
    curve = metrics.ari_curve(SMALL, labels)
    np.testing.assert_array_equal(curve.n_clusters, [1, 2, 3, 4, 5])
    # Two clusters: {0,1,2,3} ties and votes a, {4} votes b; voted table [[2, 2], [0, 1]]:
    # (2 − 6·4/10) / (5 − 6·4/10).
    np.testing.assert_allclose(curve.ari, [0.0, (2 - 2.4) / (5 - 2.4), 1.0, 1.0, 1.0])
    area = ((0.0 + curve.ari[1]) / 2 + (curve.ari[1] + 1) / 2 + 2) / 4
    assert metrics.ari_auc(SMALL, labels) == pytest.approx(area)


def test_tie_goes_to_the_smallest_class():
    tree = Tree([[0, 1], [2, 3]], [1.0, 2.0])
    # At two clusters the cut is {0, 1} and {2}: the tie of "b" and "a" is won by "a".
    assert metrics.ari_curve(tree, ["b", "a", "b"]).ari[1] < 1
    assert metrics.ari_curve(tree, ["b", "a", "b"]).ari[1] == reference.ari_curve(tree, ["b", "a", "b"])[1]
    np.testing.assert_array_equal(metrics.ari_curve(tree, [1, 0, 1]).ari, metrics.ari_curve(tree, [5, 3, 5]).ari)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("n", [8, 33])
def test_scores_agree_with_the_twin(n, n_classes):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        tree = random_tree(rng, n)
        labels = np.concatenate([np.arange(n_classes), rng.integers(n_classes, size=n - n_classes)])
        rng.shuffle(labels)
        np.testing.assert_allclose(metrics.ari_curve(tree, labels).ari, reference.ari_curve(tree, labels), atol=1e-12)
        assert metrics.subtree_score(tree, labels) == pytest.approx(reference.subtree_score(tree, labels))


@given(tree=trees(max_leaves=12), data=st.data())
@thorough
def test_scores_of_any_tree_and_labels(tree, data):
    n = tree.n_leaves
    labels = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(lambda x: len(set(x)) > 1))
    curve = metrics.ari_curve(tree, labels)
    np.testing.assert_allclose(curve.ari, reference.ari_curve(tree, labels), atol=1e-12)
    assert curve.ari[0] == 0.0
    assert curve.ari[-1] == 1.0
    assert metrics.ari_auc(tree, labels) <= 1.0
    if len(set(labels)) < n:
        assert metrics.subtree_score(tree, labels) == pytest.approx(reference.subtree_score(tree, labels))


def test_perfect_tree_scores_one():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(size=(20, 2)), rng.normal(size=(30, 2)) + 100])
    tree = Tree.from_linkage(linkage(points, "average"))
    labels = [0] * 20 + [1] * 30
    assert metrics.subtree_score(tree, labels) == 1.0
    np.testing.assert_array_equal(metrics.ari_curve(tree, labels).ari, [0.0] + [1.0] * 49)
    assert metrics.ari_auc(tree, labels) == pytest.approx(1 - 0.5 / 49)


def test_scores_do_not_depend_on_label_type():
    tree = random_tree(np.random.default_rng(1), 20)
    codes = np.random.default_rng(2).integers(3, size=20)
    expected = metrics.ari_curve(tree, codes).ari
    for labels in (
        codes.astype(float),
        codes.tolist(),
        np.array(["x", "y", "z"])[codes],
        codes.astype(np.uint8),
    ):
        np.testing.assert_array_equal(metrics.ari_curve(tree, labels).ari, expected)


def test_caterpillar_and_size():
    metrics.ari_auc(SMALL, [0, 0, 1, 1, 1])  # compile
    rng = np.random.default_rng(0)
    for tree in (caterpillar(20_000), random_tree(rng, 2_500)):
        labels = rng.integers(10, size=tree.n_leaves)
        start = time.process_time()
        curve = metrics.ari_curve(tree, labels)
        assert time.process_time() - start < 1.0
        assert curve.ari[0] == 0.0
        assert curve.ari[-1] == 1.0
        assert 0 <= metrics.subtree_score(tree, labels) < 0.3


@pytest.mark.parametrize("score", [metrics.subtree_score, metrics.ari_curve, metrics.ari_auc])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], r"labels must be one class per leaf, shape \(5,\), got shape \(2,\)"),
        (np.zeros((5, 1)), "labels must be one class per leaf"),
        ([0, 0, 0, 0, 0], "labels hold a single class"),
        ([0, 1, np.nan, 0, 1], "labels contain NaN"),
        (np.array([0, "a", None, 1, 2], dtype=object), "labels mix types"),
    ],
)
def test_bad_labels(score, labels, message):
    with pytest.raises(ValueError, match=message):
        score(SMALL, labels)


def test_subtree_score_needs_a_class_of_two():
    with pytest.raises(ValueError, match="labels put every observation in a class of its own"):
        metrics.subtree_score(SMALL, range(5))
    np.testing.assert_array_equal(metrics.ari_curve(SMALL, range(5)).ari, [0, 0, 0, 0, 1])


# ---- against the tree that generated the data


def test_merge_time_errors():
    times = SMALL.times * np.exp([[0.1, 0.2, -0.3, 0.4], [0.3, 0.2, -0.3, 0.0]])
    error = np.array([0.25, 0.2, -0.3, 0.1])  # weights 1 : 3
    errors = metrics.merge_time_errors(SMALL, times, weights=[2, 6])
    np.testing.assert_allclose(errors, [np.mean(error**2), np.mean(np.abs(error)), 0.3])
    assert errors._fields == ("mse", "mae", "mab")
    np.testing.assert_allclose(
        metrics.merge_time_errors(SMALL, times), metrics.merge_time_errors(SMALL, times, weights=[0.5, 0.5])
    )
    np.testing.assert_allclose(
        metrics.merge_time_errors(SMALL, times[0]), metrics.merge_time_errors(SMALL, times, weights=[1, 0])
    )
    assert metrics.merge_time_errors(SMALL, SMALL.times) == (0, 0, 0)


def test_distance_errors():
    other = Tree(SMALL.children, [0.1, 0.3, 0.5, 0.8])
    # Of the ten pairs, one meets at the second merge and four at the last.
    errors = metrics.distance_errors(SMALL, other.cophenetic())
    np.testing.assert_allclose(errors, [(0.01 + 4 * 0.04) / 10, (0.1 + 4 * 0.2) / 10, 0.2])
    assert metrics.distance_errors(SMALL, SMALL.cophenetic()) == (0, 0, 0)


def test_last_time_difference():
    assert metrics.last_time_difference(SMALL, [0.1, 0.2, 0.3, 0.75]) == pytest.approx(0.25)
    times = [[0.1, 0.2, 0.3, 0.5], [0.1, 0.2, 0.3, 2.0]]
    assert metrics.last_time_difference(SMALL, times, weights=[1, 3]) == pytest.approx(1 - 1.625)


@pytest.mark.parametrize("function", [metrics.merge_time_errors, metrics.last_time_difference])
@pytest.mark.parametrize(
    ("times", "weights", "message"),
    [
        ([1.0, 2.0], None, r"times must have shape \(M, 4\) or \(4,\)"),
        (np.ones((2, 3, 4)), None, "times must have shape"),
        (np.ones((0, 4)), None, "times must have shape"),
        ([1.0, 2.0, 3.0, np.inf], None, "times must be finite"),
        (np.ones((2, 4)), [1.0], r"weights must have shape \(2,\)"),
        (np.ones((2, 4)), [1.0, -1.0], "weights must be finite, non-negative"),
        (np.ones((2, 4)), [0.0, 0.0], "weights must be finite, non-negative"),
        (np.ones((2, 4)), [1.0, np.nan], "weights must be finite, non-negative"),
    ],
)
def test_bad_times(function, times, weights, message):
    with pytest.raises(ValueError, match=message):
        function(SMALL, times, weights=weights)


def test_log_needs_positive_times():
    with pytest.raises(ValueError, match=r"^times must be positive"):
        metrics.merge_time_errors(SMALL, [0.0, 0.2, 0.3, 1.0])
    with pytest.raises(ValueError, match=r"^truth.times must be positive"):
        metrics.merge_time_errors(Tree(SMALL.children, [0.0, 0.2, 0.3, 1.0]), SMALL.times)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((4, 4)), r"cophenetic must be .* \(5, 5\)"),
        (np.full((5, 5), np.nan), "cophenetic must be finite"),
    ],
)
def test_bad_cophenetic(matrix, message):
    with pytest.raises(ValueError, match=message):
        metrics.distance_errors(SMALL, matrix)


# ---- against another tree


@given(first=trees(max_leaves=9), data=st.data())
@thorough
def test_tree_distances_agree_with_the_twin(first, data):
    second = data.draw(trees(max_leaves=9).filter(lambda tree: tree.n_leaves == first.n_leaves))
    assert metrics.robinson_foulds(first, second) == reference.robinson_foulds(first, second)
    expected = reference.kuhner_felsenstein(first, second)
    assert metrics.kuhner_felsenstein(first, second) == pytest.approx(expected)


def test_tree_distances_are_zero_for_equal_trees_and_symmetric():
    rng = np.random.default_rng(3)
    a, b = random_tree(rng, 40), random_tree(rng, 40)
    flipped = Tree(a.children[:, ::-1], a.times)
    assert metrics.robinson_foulds(a, flipped) == 0
    assert metrics.kuhner_felsenstein(a, flipped) == 0
    assert metrics.robinson_foulds(a, b) == metrics.robinson_foulds(b, a) > 40
    assert metrics.kuhner_felsenstein(a, b) == pytest.approx(metrics.kuhner_felsenstein(b, a))
    assert metrics.robinson_foulds(a, b) <= 2 * 38


def test_tree_distances_match_leaves_by_name():
    a = Tree([[0, 1], [2, 3]], [1.0, 2.0], names=["x", "y", "z"])
    same = Tree([[1, 2], [0, 3]], [1.0, 2.0], names=["z", "x", "y"])
    other = Tree([[1, 2], [0, 3]], [1.0, 2.0], names=["x", "z", "y"])
    assert metrics.robinson_foulds(a, same) == 0
    assert metrics.kuhner_felsenstein(a, same) == 0
    assert metrics.robinson_foulds(a, other) == 2
    unnamed = Tree([[0, 1], [2, 3]], [1.0, 2.0])
    assert metrics.robinson_foulds(a, unnamed) == 0


@pytest.mark.parametrize("seed", range(5))
def test_tree_distances_agree_with_dendropy(seed):
    dendropy = pytest.importorskip("dendropy")
    from dendropy.calculate import treecompare

    rng = np.random.default_rng(seed)
    names = [f"t{i}" for i in range(12)]
    a = random_tree(rng, 12, names)
    # A neighbour of a, so that some clades are shared and some are not.
    children = a.children.copy()
    children[0, 0], children[5, 0] = a.children[5, 0], a.children[0, 0]
    b = random_tree(rng, 12, names) if children[0, 0] >= 12 else Tree(children, a.times * 1.3, names)
    namespace = dendropy.TaxonNamespace(names)
    theirs = [
        dendropy.Tree.get(data=tree.to_newick(), schema="newick", rooting="force-rooted", taxon_namespace=namespace)
        for tree in (a, b)
    ]
    assert metrics.robinson_foulds(a, b) == treecompare.symmetric_difference(*theirs)
    assert metrics.kuhner_felsenstein(a, b) == pytest.approx(treecompare.euclidean_distance(*theirs))


def test_tree_distances_are_fast_on_large_trees():
    rng = np.random.default_rng(0)
    a, b = random_tree(rng, 20_000), caterpillar(20_000)
    start = time.process_time()
    assert metrics.robinson_foulds(a, b) > 39_000
    assert time.process_time() - start < 5.0


def test_trees_over_different_leaves():
    with pytest.raises(ValueError, match="a has 5 leaves and b has 3"):
        metrics.robinson_foulds(SMALL, Tree([[0, 1], [2, 3]], [1.0, 2.0]))
    a = Tree([[0, 1]], [1.0], names=["x", "y"])
    with pytest.raises(ValueError, match="same leaf names"):
        metrics.kuhner_felsenstein(a, Tree([[0, 1]], [1.0], names=["x", "w"]))


def test_import_is_light():
    code = (
        "import sys, coaltree.metrics, coaltree.posterior.ensemble;"
        "print([name for name in ('matplotlib', 'sklearn', 'pandas') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
