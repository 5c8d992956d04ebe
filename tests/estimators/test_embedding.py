"""Rows from distances, and rows as directions."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist, squareform

from coaltree import memory
from coaltree.estimators.distances import compared_by, directions, embed, embed_new, square_matrix
from coaltree.frame import as_frame

X = np.random.default_rng(0).normal(size=(9, 4)) + 5.0
NEW = np.random.default_rng(1).normal(size=(3, 4)) + 5.0


def squares(a, b):
    return cdist(a, b, "sqeuclidean")


def test_distances_are_kept():
    rows = embed(squares(X, X))
    assert rows.shape == (9, 4)
    np.testing.assert_allclose(squares(rows, rows), squares(X, X), atol=1e-9)
    assert embed(squares(X, X), 7).shape == (9, 7)


@pytest.mark.parametrize("n_rows", [9, 3])
def test_new_points(n_rows):
    """With three rows they span a plane, and new points lie outside it."""
    rows = embed(squares(X[:n_rows], X[:n_rows]), 5)
    points = embed_new(rows, squares(NEW, X[:n_rows]))
    np.testing.assert_allclose(squares(points, rows), squares(NEW, X[:n_rows]), atol=1e-8)


def test_points_outside_a_space_without_room():
    rows = embed(squares(X[:3], X[:3]))
    with pytest.raises(ValueError, match="larger n_dimensions"):
        embed_new(rows, squares(NEW, X[:3]))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((2, 3)), "square matrix"),
        (np.ones((3, 3)), "zero on the diagonal"),
        (np.zeros((3, 3)), "all rows are equal"),
    ],
)
def test_bad_matrices(matrix, message):
    with pytest.raises(ValueError, match=message):
        embed(matrix)


def test_a_matrix_that_does_not_fit(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match="Pass the table itself"):
        embed(squares(X, X))


def test_too_few_dimensions():
    with pytest.raises(ValueError, match="at least 4, the rank"):
        embed(squares(X, X), 2)


def test_plain_and_squared_distances_give_the_same_rows():
    rows = embed(cdist(X, X), 5, "precomputed")
    np.testing.assert_allclose(squares(rows, rows), squares(X, X), atol=1e-9)
    points = embed_new(rows, cdist(NEW, X), "precomputed")
    np.testing.assert_allclose(squares(points, rows), squares(NEW, X), atol=1e-8)


@pytest.mark.parametrize("n", [9, 300])
def test_squares_for_plain_distances_are_noticed(n):
    rows = np.random.default_rng(n).normal(size=(n, 3))
    with pytest.warns(UserWarning, match=r"violates the triangle inequality.*precomputed_squared"):
        embed(squares(rows, rows), metric="precomputed")


def test_other_distances_are_kept_as_far_as_rows_can_have_them():
    rows = np.random.default_rng(3).normal(size=(30, 6))
    with pytest.warns(UserWarning, match=r"No rows have these distances exactly: \d\d% of"):
        found = embed(cdist(rows, rows, "cityblock"), metric="precomputed")
    assert np.corrcoef(pdist(found), pdist(rows, "cityblock"))[0, 1] > 0.95


def test_rounded_distances_keep_their_dimension():
    """Rounding makes small eigenvalues of both signs; only those beyond the negative ones count."""
    rows = np.random.default_rng(4).normal(size=(60, 3))
    assert embed(cdist(rows, rows).round(3), metric="precomputed").shape == (60, 3)


def test_condensed_distances():
    np.testing.assert_array_equal(square_matrix(pdist(X)), squareform(pdist(X)))
    np.testing.assert_array_equal(square_matrix(cdist(X, X)), cdist(X, X))
    with pytest.raises(ValueError, match="condensed vector"):
        square_matrix(np.ones(4))


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_directions_have_the_distances_of_the_metric(metric):
    unit = directions(X, metric)
    np.testing.assert_allclose(squares(unit, unit), 2.0 * cdist(X, X, metric), atol=1e-12)
    with pytest.raises(ValueError, match="row 9 has none"):
        directions(np.vstack([X, np.full(4, float(metric == "correlation"))]), metric)
    with pytest.raises(ValueError, match="complete rows"):
        directions(np.vstack([X, np.full(4, np.nan)]), metric)


def test_columns_of_a_metric_have_one_unit():
    table = as_frame(X)
    assert compared_by(table, "euclidean") == (table, ())
    frame, told = compared_by(table, "cosine")
    assert frame.one_unit
    assert "cosine" in told[0]
    frame, told = compared_by(as_frame(cdist(X, X)), "precomputed")
    assert frame.names == ("axis 1", "axis 2", "axis 3", "axis 4")
    with pytest.raises(ValueError, match="needs numbers"):
        compared_by(as_frame(np.array([["a", "b"], ["c", "d"]], dtype=object)), "cosine")
