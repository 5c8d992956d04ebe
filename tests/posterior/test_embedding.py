"""Rows from squared distances."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from coaltree import memory
from coaltree.estimators.inputs import embed, embed_new

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
        (np.array([[0, 1, 1], [1, 0, 100], [1, 100, 0.0]]), "squared Euclidean"),
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
