"""Greedy trees by near neighbours: exact if every pair is a candidate, close if not, whole if the graph is not."""

import numpy as np
import pytest

import coaltree as ct
from coaltree.inference.greedy import neighbors as graph
from coaltree.inference.greedy.rules import MEAN, PEAK
from coaltree.inference.neighbors import nearest
from tests.seeds import seed


def data(n, d, key=0):
    return ct.sample_data(ct.sample_tree(n, random_state=seed(key)), d, random_state=seed(key + 1))


@pytest.mark.parametrize("rule", ["mode", "mean", "peak"])
@pytest.mark.parametrize(("d", "leaf_noise"), [(2, 0.0), (5, 0.2)])
def test_all_neighbours_give_the_exact_tree(rule, d, leaf_noise):
    X = data(80, d)
    exact = ct.greedy_tree(X, rule=rule, leaf_noise=leaf_noise)
    ours = ct.greedy_tree(X, rule=rule, leaf_noise=leaf_noise, neighbors=79)
    np.testing.assert_array_equal(np.sort(ours.children), np.sort(exact.children))
    np.testing.assert_allclose(ours.times, exact.times, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rule", ["mean", "peak"])
def test_what_few_neighbours_lose(rule):
    """The log joint at n = 1000 is within half a per cent of the exact greedy tree's; one neighbour loses more."""
    X = data(1000, 16, key=2)
    exact, few, one = (ct.log_joint(ct.greedy_tree(X, rule=rule, neighbors=k), X) for k in (None, 16, 1))
    assert abs(few - exact) < 0.005 * abs(exact)
    assert abs(one - exact) > abs(few - exact)


def test_a_graph_in_pieces_is_joined():
    """Far groups larger than the number of neighbours, and a covariance: the last merges join the groups."""
    rng = np.random.default_rng(seed(4))
    centres = 50 * rng.normal(size=(4, 3))
    X = np.repeat(centres, 30, axis=0) + rng.normal(size=(120, 3))
    tree = ct.greedy_tree(X, 2.0 * np.eye(3), neighbors=3)
    assert tree.n_leaves == 120
    assert ct.metrics.subtree_score(tree, np.repeat(range(4), 30)) == 1.0


@pytest.mark.parametrize("rule", [MEAN, PEAK])
def test_a_graph_that_is_known_is_not_made_again(rule, monkeypatch):
    """The same tree from neighbours that are given, and from more of them than there is room for; fewer are obeyed."""
    X, noise = data(300, 4), np.zeros(300)
    children, times = graph.build_by_graph(X, noise, rule, 5)
    sizes = []
    monkeypatch.setattr(graph, "nearest", lambda rows, k: sizes.append(len(rows)) or nearest(rows, k))
    for k in (5, 20):
        again = graph.build_by_graph(X, noise, rule, 5, near=nearest(X, k))
        assert len(sizes) > 0
        assert max(sizes) < 300  # only clusters' means
        if k == 5:
            np.testing.assert_array_equal(again[0], children)
            np.testing.assert_array_equal(again[1], times)
    # Wrong neighbours make another tree, so they are what is used.
    wrong = graph.build_by_graph(X, noise, rule, 5, near=nearest(X[::-1], 5))
    assert not np.array_equal(wrong[0], children)


def test_candidates_are_mutual():
    """A cluster that is near one whose neighbours are all nearer is a candidate of that one, if there is room."""
    X = np.array([[0.0], [1.0], [2.1], [10.0], [20.5], [np.nan], [np.nan], [np.nan], [np.nan]])
    near, eps = graph.empty_lists(9, 2)
    forest = graph.MergingForest(X, np.zeros(9), np.arange(9, dtype=np.int32), near, eps)
    graph.connect_neighbors(forest, np.arange(5), *nearest(X[:5], 1))
    assert near[:5].tolist() == [[1, 9], [0, 2], [1, 3], [2, 4], [3, 9]]
    np.testing.assert_allclose(eps[:5, 0], [1.0, 1.0, 1.1**2, 7.9**2, 10.5**2])


@pytest.mark.parametrize("rule", ["mode", "mean", "peak"])
@pytest.mark.parametrize("copies", [2, 5, 30])
def test_copies_with_noise(rule, copies):
    """Fewer copies than neighbours, and more: each group is a clade, and none has a time that is no number."""
    X = np.repeat(data(20, 3) * 10.0, copies, axis=0)
    tree = ct.greedy_tree(X, rule=rule, leaf_noise=0.01, neighbors=4)
    assert np.isfinite(tree.times).all()
    assert ct.metrics.subtree_score(tree, np.repeat(range(20), copies)) == 1.0


@pytest.mark.parametrize("rule", ["mode", "mean", "peak"])
@pytest.mark.parametrize("X", [np.ones((70, 2)), np.arange(2.0)[:, None], np.arange(70.0)[:, None], np.zeros((2, 1))])
@pytest.mark.parametrize("neighbors", [1, 3, 100])
def test_degenerate_tables(X, rule, neighbors):
    """Rows all equal, two rows, one column, all distances the same, more neighbours than rows."""
    tree = ct.greedy_tree(X, rule=rule, leaf_noise=0.1, neighbors=neighbors)
    assert tree.n_leaves == len(X)
    assert np.isfinite(ct.log_joint(tree, X, leaf_noise=0.1))


def test_constant_columns_and_a_far_row():
    X = np.column_stack([data(200, 3), np.full(200, 7.0)])
    X[17, 0] += 1e6
    tree = ct.greedy_tree(X, rule="peak", neighbors=8)
    assert 17 in tree.children[-1]


def test_no_distances_of_all_pairs(monkeypatch):
    """Memory of order n² is never asked for."""
    monkeypatch.setattr("coaltree.inference.greedy.build.pair_distances", None)
    assert ct.greedy_tree(data(50, 3), neighbors=5).n_leaves == 50


def test_bad_input():
    X = np.array([[0.0], [0.0], [1.0]])
    with pytest.raises(ValueError, match=r"duplicate rows \(0 and 1; 1 "):
        ct.greedy_tree(X, neighbors=2)
    noise = np.where(np.isin(range(50), [0, 40]), 0.0, 0.1)
    with pytest.raises(ValueError, match=r"duplicate rows \(0 and 40; "):
        ct.greedy_tree(np.ones((50, 2)), neighbors=2, leaf_noise=noise)
    assert ct.greedy_tree(X, neighbors=2, leaf_noise=0.1).children[0].tolist() == [0, 1]
    with pytest.raises(ValueError, match="got 'truncated_mean'"):
        ct.greedy_tree(X, neighbors=2, rule="truncated_mean")
    with pytest.raises(ValueError, match="neighbors must be"):
        ct.greedy_tree(X, neighbors=0)


@pytest.mark.slow
def test_ten_thousand():
    X = data(10_000, 16, key=6)
    exact, ours = (ct.log_joint(ct.greedy_tree(X, neighbors=k), X) for k in (None, 16))
    assert abs(ours - exact) < 0.005 * abs(exact)
