"""Nearest rows: against all pairs, whichever way they are found, and on rows that are hard to tell apart."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import coaltree as ct
from coaltree.inference import neighbors
from tests.seeds import seed

WAYS = [neighbors.by_tree, neighbors.by_brute_force, neighbors.by_descent]


def plain(rows, k):
    """All distances, row by row."""
    found = []
    for i, row in enumerate(rows):
        distance = np.square(rows - row).sum(axis=1)
        distance[i] = np.inf
        found.append(np.sort(distance)[:k])
    return np.array(found)


def check(rows, answer, k, recall=1.0):
    """Whether the lists are lists of neighbours, and the distances those of the nearest."""
    index, distance = answer
    n = len(rows)
    assert index.dtype == np.int32
    assert distance.dtype == np.float64
    assert index.shape == distance.shape == (n, k)
    assert index.min() >= 0
    assert index.max() < n
    assert not (index == np.arange(n)[:, None]).any()
    assert (np.diff(np.sort(index)) > 0).all()
    assert (np.diff(distance) >= 0.0).all()
    np.testing.assert_allclose(distance, np.square(rows[index] - rows[:, None]).sum(axis=2), rtol=1e-12)
    true = plain(rows, k)
    assert (distance <= true[:, -1:] * (1.0 + 1e-12)).mean() >= recall
    if recall == 1.0:
        np.testing.assert_allclose(distance, true, rtol=1e-12)


def normal(n, d, key=0):
    return np.random.default_rng(seed(key)).normal(size=(n, d))


def coalescent(n, d, key=0):
    return ct.sample_data(ct.sample_tree(n, random_state=seed(key)), d, random_state=seed(key + 1))


def far_row(n, d):
    rows = normal(n, d, key=1)
    rows[3] += 1e6
    return rows


def far_groups(n, d):
    """Two groups so far apart that a product of rows keeps no digit of a distance within them."""
    rows = normal(n, d, key=2)
    rows[n // 2 :] += 1e9
    return rows


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "rows",
    [coalescent(500, 16), normal(500, 7), normal(40, 500), normal(300, 1), far_row(400, 4), far_groups(300, 5)],
    ids=["coalescent", "normal", "wide", "one column", "far row", "far groups"],
)
def test_against_all_pairs(way, rows):
    check(rows, way(rows, 16), 16, recall=0.95 if way is neighbors.by_descent else 1.0)


def test_descent_finds_most():
    """Without clusters, where neighbours are hardest to find; one list of a random tree's leaf has far fewer."""
    rows = normal(2500, 16)
    check(rows, neighbors.by_descent(rows, 16), 16, recall=0.95)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbors, "TREES", 1)
        patch.setattr(neighbors, "ROUNDS", 0)
        with pytest.raises(AssertionError, match="mean"):
            check(rows, neighbors.by_descent(rows, 16), 16, recall=0.95)


def chosen(rows, k=16):
    """The way that is taken, by name."""
    taken = []
    with pytest.MonkeyPatch.context() as patch:
        for way in WAYS:
            patch.setattr(neighbors, way.__name__, lambda *_, way=way: taken.append(way.__name__))
        neighbors.nearest(rows, k)
    return taken[0]


def test_the_way_suits_the_rows():
    assert chosen(coalescent(10_000, 16)) == "by_tree"
    assert chosen(normal(5000, 2)) == "by_tree"
    assert chosen(normal(5000, 16)) == "by_brute_force"
    assert chosen(normal(20_001, 16)) == "by_descent"
    assert chosen(coalescent(500, 16)) == "by_brute_force"


@pytest.mark.parametrize("n", [2, 3, 17])
@pytest.mark.parametrize("d", [1, 3])
def test_no_more_than_there_are(n, d):
    rows = normal(n, d)
    check(rows, neighbors.nearest(rows, 50), n - 1)


@pytest.mark.parametrize("copies", [1, 2, 16, 17, 40])
@pytest.mark.parametrize("k", [1, 5, 16])
def test_copies(copies, k):
    """Fewer and more of them than neighbours, beside rows that have none, and with zeros of both signs."""
    rows = np.concatenate([np.repeat(normal(3, 2), copies, axis=0), normal(20, 2, key=1), [[0.0, -0.0], [-0.0, 0.0]]])
    rows = rows[np.random.default_rng(seed(2)).permutation(len(rows))]
    check(rows, neighbors.nearest(rows, k), k)


def test_copies_are_found():
    rows = np.array([[0.0, -0.0], [1.0, 2.0], [-0.0, 0.0], [2.0, 1.0], [1.0, 2.0]])
    first = np.empty(5, dtype=np.int64)
    neighbors.group_copies(rows, first)
    assert first.tolist() == [0, 1, 0, 3, 1]


def test_all_rows_equal():
    rows = np.ones((50, 2))
    index, distance = neighbors.nearest(rows, 8)
    check(rows, (index, distance), 8)
    assert np.bincount(index.ravel(), minlength=50).max() == 8  # nobody is the neighbour of all


def test_many_copies_and_ties_take_no_time():
    """Thirty thousand rows of sixteen values, and one value that half of them have."""
    rows = np.random.default_rng(seed(0)).integers(0, 16, (30_000, 1)).astype(float)
    rows[::2] = 3.0
    index, distance = neighbors.nearest(rows, 16)
    assert (distance == 0.0).all()
    assert (rows[index, 0] == rows).all()


@pytest.mark.parametrize("rows", [normal(3500, 12), np.round(normal(2500, 12)), coalescent(10_000, 8)])
def test_the_same_on_any_number_of_threads(rows, monkeypatch):
    monkeypatch.setattr(neighbors, "BRUTE_MOST", 3000)
    with threadpool_limits(limits=1):
        one = neighbors.nearest(rows, 10)
    with threadpool_limits(limits=2):
        two = neighbors.nearest(rows, 10)
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])


def test_layout_of_the_rows_does_not_matter():
    rows = normal(300, 6)
    np.testing.assert_array_equal(neighbors.nearest(np.asfortranarray(rows), 4)[0], neighbors.nearest(rows, 4)[0])


def test_distances_that_are_no_numbers():
    with pytest.raises(ValueError, match="too far apart"):
        neighbors.nearest(np.array([[0.0], [1e200], [1.0]]), 1)
