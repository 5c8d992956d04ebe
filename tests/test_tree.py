import copy
import doctest
import pickle
import time
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

import coaltree.tree
from coaltree import Tree
from tests.reference import trees as reference
from tests.reference.trees import NAMES, caterpillar, random_tree, trees

BALANCED = Tree([[0, 1], [2, 3], [4, 5]], [0.5, 1.0, 2.0], names=["a", "b", "c", "d"])
thorough = settings(deadline=None, max_examples=60)


def test_hand_example():
    tree = BALANCED
    assert tree.n_leaves == 4
    assert tree.leaf_names == tree.names == ("a", "b", "c", "d")
    np.testing.assert_array_equal(tree.parents(), [4, 4, 5, 5, 6, 6, -1])
    np.testing.assert_array_equal(tree.node_times(), [0, 0, 0, 0, 0.5, 1, 2])
    np.testing.assert_array_equal(tree.sizes(), [2, 2, 4])
    np.testing.assert_array_equal(tree.cophenetic(), [[0, 0.5, 2, 2], [0.5, 0, 2, 2], [2, 2, 0, 1], [2, 2, 1, 0]])
    np.testing.assert_array_equal(tree.clades().astype(int), [[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]])
    np.testing.assert_array_equal(tree.cut(n_clusters=3), [0, 0, 1, 2])
    np.testing.assert_array_equal(tree.cut(time=1.0), [0, 0, 1, 1])
    np.testing.assert_array_equal(tree.leaves(5), [2, 3])
    np.testing.assert_array_equal(tree.leaf_order(), [0, 1, 2, 3])


def test_dtypes():
    tree = Tree(np.array([[0, 1], [2, 3]], dtype=np.int32), np.array([1, 2], dtype=np.float32))
    assert tree.children.dtype == np.int64
    assert tree.times.dtype == np.float64
    for array in (tree.parents(), tree.sizes(), tree.leaves(3), tree.leaf_order(), tree.cut(2)):
        assert array.dtype == np.int64
    assert tree.clades().dtype == np.bool_
    assert tree.cophenetic().dtype == tree.node_times().dtype == np.float64


def test_labels_are_numbered_by_first_appearance():
    tree = Tree([[2, 3], [0, 1], [4, 5]], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(tree.cut(n_clusters=3), [0, 1, 2, 2])
    np.testing.assert_array_equal(Tree([[1, 2], [0, 3]], [1.0, 2.0]).cut(2), [0, 1, 1])


@thorough
@given(trees(max_leaves=14))
def test_twins(tree):
    n = tree.n_leaves
    np.testing.assert_array_equal(tree.cophenetic(), reference.cophenetic(tree))
    np.testing.assert_array_equal(tree.clades(), reference.clades(tree))
    np.testing.assert_array_equal(tree.sizes(), reference.clades(tree).sum(axis=1))
    for node in range(2 * n - 1):
        np.testing.assert_array_equal(tree.leaves(node), sorted(reference.leaves_below(tree, node)))
    for n_clusters in range(1, n + 1):
        np.testing.assert_array_equal(tree.cut(n_clusters=n_clusters), reference.cut(tree, n - n_clusters))
    for t in [-1.0, 0.0, np.inf, *tree.times, *np.nextafter(tree.times, 0)]:
        np.testing.assert_array_equal(tree.cut(time=t), reference.cut(tree, int(np.sum(tree.times <= t))))


@thorough
@given(trees())
def test_drawing_order_keeps_clades_together(tree):
    order = tree.leaf_order()
    np.testing.assert_array_equal(np.sort(order), np.arange(tree.n_leaves))
    for members in tree.clades()[:, order]:
        assert np.ptp(np.flatnonzero(members)) == members.sum() - 1


@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_scipy(seed):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, int(rng.integers(3, 60)))
    Z = tree.to_linkage()
    assert hierarchy.is_valid_linkage(Z)
    assert hierarchy.is_monotonic(Z)
    np.testing.assert_array_equal(squareform(hierarchy.cophenet(Z)), tree.cophenetic())
    for n_clusters in range(1, tree.n_leaves + 1):
        expected = hierarchy.cut_tree(Z, n_clusters=n_clusters).ravel()  # fcluster had a bug before scipy 1.12
        assert same_partition(tree.cut(n_clusters=n_clusters), expected)
    for t in [0.0, *tree.times, *(tree.times * 1.01)]:
        assert same_partition(tree.cut(time=t), hierarchy.fcluster(Z, t, criterion="distance"))
    assert not same_partition(tree.cut(n_clusters=2), tree.cut(n_clusters=3))


def same_partition(a, b):
    return np.array_equal(a[:, None] == a, b[:, None] == b)


def test_frozen_and_copied():
    children, times = np.array([[0, 1], [2, 3]]), np.array([1.0, 2.0])
    tree = Tree(children, times)
    children[0] = 7
    times[0] = 7
    np.testing.assert_array_equal(tree.children, [[0, 1], [2, 3]])
    np.testing.assert_array_equal(tree.times, [1, 2])
    for array in (tree.children, tree.times, pickle.loads(pickle.dumps(tree)).times):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(FrozenInstanceError):
        tree.times = times
    for answer in (tree.leaf_order(), tree.sizes(), tree.parents(), tree.cut(2), tree.node_times()):
        answer[:] = 99
    np.testing.assert_array_equal(tree.leaf_order(), Tree(tree.children, tree.times).leaf_order())
    np.testing.assert_array_equal(tree.sizes(), [2, 3])


def test_equality_and_hash():
    tree = Tree([[0, 1], [2, 3]], [1.0, 2.0])
    turned = Tree([[1, 0], [3, 2]], [1.0, 2.0])
    assert tree == turned
    assert hash(tree) == hash(turned)
    zero, minus_zero = Tree([[0, 1]], [0.0]), Tree([[0, 1]], [-0.0])
    assert zero == minus_zero
    assert hash(zero) == hash(minus_zero)
    others = [
        Tree([[0, 2], [1, 3]], [1.0, 2.0]),
        Tree([[0, 1], [2, 3]], [1.0, 2.5]),
        Tree([[0, 1], [2, 3]], [1.0, 2.0], names=["a", "b", "c"]),
        Tree([[0, 1]], [1.0]),
        "tree",
        None,
    ]
    assert all(tree != other for other in others)
    assert len({tree, turned, zero}) == 2
    assert Tree(BALANCED.children, BALANCED.times, names=["a", "b", "d", "c"]) != BALANCED


@thorough
@given(trees(names=NAMES))
def test_copies_are_equal(tree):
    assert pickle.loads(pickle.dumps(tree)) == copy.deepcopy(tree) == copy.copy(tree) == tree


def test_repr():
    assert repr(Tree([[0, 1]], [1.5])) == "Tree(n_leaves=2, root_time=1.5)"
    assert repr(BALANCED) == "Tree(n_leaves=4, root_time=2, names=('a', 'b', 'c', …))"


def test_names():
    unnamed = Tree([[0, 1], [2, 3]], [1, 2])
    assert unnamed.names is None
    assert unnamed.leaf_names == ("0", "1", "2")
    named = Tree([[0, 1]], [1], names=np.array(["x", "y"]))
    assert named.names == ("x", "y")
    assert all(type(name) is str for name in named.names)
    assert Tree([[0, 1]], [1], names=(name for name in "xy")).names == ("x", "y")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([[0.0, 1.0]], [1.0]), TypeError, "children.*float64"),
        (([[True, False]], [1.0]), TypeError, "children.*bool"),
        ((None, [1.0]), TypeError, "children"),
        (([["a", "b"]], [1.0]), TypeError, "children"),
        (([[0, 1], [2]], [1.0, 2.0]), ValueError, "children"),
        (([], []), ValueError, r"children.*\(n − 1, 2\)"),
        ((np.empty((0, 2), dtype=int), []), ValueError, "n ≥ 2"),
        (([0, 1], [1.0]), ValueError, r"children.*\(2,\)"),
        (([[0, 1, 2]], [1.0]), ValueError, "children"),
        (([[0, -1]], [1.0]), ValueError, r"children\[0\] = \[0, -1\]"),
        (([[0, 2]], [1.0]), ValueError, r"children\[0\].*between 0 and 1"),
        ((np.array([[0, 2**63]], dtype=np.uint64), [1.0]), ValueError, "children"),
        (([[0, 4], [1, 2]], [1.0, 2.0]), ValueError, "joins earlier nodes"),
        (([[0, 1], [2, 4]], [1.0, 2.0]), ValueError, r"children\[1\]"),
        (([[0, 0]], [1.0]), ValueError, "node 0 appears 2 times and node 1 never"),
        (([[0, 1], [1, 3]], [1.0, 2.0]), ValueError, "node 1 appears 2 times and node 2 never"),
        (([[0, 1], [0, 2]], [1.0, 2.0]), ValueError, "node 0 appears 2 times and node 3 never"),
        (([[0, 1]], [1.0, 2.0]), ValueError, r"times.*\(1,\)"),
        (([[0, 1]], 1.0), ValueError, "times"),
        (([[0, 1]], [[1.0]]), ValueError, "times"),
        (([[0, 1]], ["1"]), TypeError, "times"),
        (([[0, 1]], [1j]), TypeError, "times"),
        (([[0, 1]], None), TypeError, "times"),
        (([[0, 1]], [np.nan]), ValueError, r"times\[0\] = nan"),
        (([[0, 1]], [np.inf]), ValueError, r"times\[0\] = inf"),
        (([[0, 1]], [-1e-9]), ValueError, r"times\[0\] = -1e-09"),
        (([[0, 1], [2, 3]], [2.0, 1.0]), ValueError, r"non-decreasing.*times\[0\] = 2.0"),
        (([[0, 1]], [1.0], "ab"), TypeError, "names.*str"),
        (([[0, 1]], [1.0], 3), TypeError, "names.*int"),
        (([[0, 1]], [1.0], ["a", 3]), TypeError, r"names\[1\] = 3"),
        (([[0, 1]], [1.0], ["a"]), ValueError, "names.*2 in all, got 1"),
        (([[0, 1]], [1.0], ["a", "a"]), ValueError, "'a' appears more than once"),
    ],
)
def test_bad_trees(arguments, error, words):
    with pytest.raises(error, match=words):
        Tree(*arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, ValueError, "exactly one"),
        ({"n_clusters": 2, "time": 1.0}, ValueError, "exactly one"),
        ({"n_clusters": 0}, ValueError, "between 1 and 4"),
        ({"n_clusters": 5}, ValueError, "between 1 and 4"),
        ({"n_clusters": 2.0}, TypeError, "n_clusters"),
        ({"n_clusters": True}, TypeError, "n_clusters"),
        ({"time": np.nan}, ValueError, "nan"),
        ({"time": "1"}, TypeError, "time"),
        ({"time": True}, TypeError, "time"),
        ({"time": [1.0]}, TypeError, "time"),
    ],
)
def test_bad_cuts(arguments, error, words):
    with pytest.raises(error, match=words):
        BALANCED.cut(**arguments)


@pytest.mark.parametrize(("node", "error"), [(-1, ValueError), (7, ValueError), (1.0, TypeError)])
def test_bad_nodes(node, error):
    with pytest.raises(error, match="node"):
        BALANCED.leaves(node)


@pytest.mark.parametrize("shape", ["random", "caterpillar"])
def test_hundred_thousand_leaves(shape):
    n = 100_000
    tree = random_tree(np.random.default_rng(0), n) if shape == "random" else caterpillar(n)
    started = time.process_time()
    tree = Tree(tree.children, tree.times)
    assert time.process_time() - started < 1  # takes milliseconds; a Python loop over nodes would not
    assert tree.sizes()[-1] == n
    np.testing.assert_array_equal(np.sort(tree.leaf_order()), np.arange(n))
    labels = tree.cut(n_clusters=1000)
    assert labels[0] == 0
    assert np.unique(labels).size == 1000
    assert np.unique(tree.cut(time=tree.times[-2])).size == 2
    assert tree.leaves(2 * n - 2).size == n


def test_deep_cophenetic():
    n = 1500
    tree = caterpillar(n)
    later = np.maximum.outer(np.arange(n), np.arange(n))
    expected = np.concatenate([[0.0], tree.times])[later]
    np.fill_diagonal(expected, 0)
    np.testing.assert_array_equal(tree.cophenetic(), expected)


@thorough
@given(st.data())
def test_broken_children_never_pass(data):
    tree = data.draw(trees())
    children = tree.children.copy()
    row = data.draw(st.integers(0, len(children) - 1))
    side = data.draw(st.integers(0, 1))
    children[row, side] += data.draw(st.integers(-30, 30).filter(bool))
    with pytest.raises(ValueError, match="children"):
        Tree(children, tree.times)


def test_examples_in_docstrings():
    assert doctest.testmod(coaltree.tree).failed == 0
