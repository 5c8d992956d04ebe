"""Matrices beside trees: rows in leaf order, true colours, sizes from five to thousands."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import coaltree as ct
from coaltree.plots import PALETTE, plot_coclustering, plot_heatmap
from coaltree.plots.layout import ladderised_order, plain
from coaltree.plots.matrices import block_means, standardised


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def named_tree(n, number=0):
    return ct.Tree(*(lambda tree: (tree.children, tree.times))(ct.sample_tree(n, random_state=number)), names_of(n))


def names_of(n):
    return [f"leaf {i}" for i in range(n)]


def test_rows_are_in_leaf_order_and_labelled():
    tree = named_tree(12)
    X = np.random.default_rng(0).normal(size=(12, 3))
    ax = plot_heatmap(tree, X, features=["a", "b", "c"], standardise=False)
    order = ladderised_order(tree)
    np.testing.assert_array_equal(ax.images[0].get_array(), X[order])
    assert [label.get_text() for label in ax.get_yticklabels()] == [f"leaf {i}" for i in order]
    assert list(ax.get_yticks()) == list(range(12))
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b", "c"]
    ax.figure.canvas.draw()


def test_tree_and_matrix_share_the_leaf_axis():
    tree = named_tree(20)
    figure = Figure(figsize=(7, 5), layout="constrained")
    host = figure.add_subplot()
    matrix_ax = plot_heatmap(tree, np.zeros((20, 4)) + np.arange(20)[:, None], host, n_clusters=3)
    figure.canvas.draw()
    tree_ax = host.child_axes[0]
    assert tree_ax.get_ylim() == matrix_ax.get_ylim()
    assert np.isclose(tree_ax.bbox.y0, matrix_ax.bbox.y0)
    assert np.isclose(tree_ax.bbox.y1, matrix_ax.bbox.y1)


def test_missing_values_are_masked_and_columns_standardised():
    values = np.array([[1.0, 5.0], [2.0, 5.0], [np.nan, 5.0], [3.0, 5.0]])
    z = standardised(values)
    known = [0, 1, 3]
    assert np.isnan(z[2, 0])
    np.testing.assert_allclose(z[known, 0], (values[known, 0] - 2.0) / values[known, 0].std())
    np.testing.assert_array_equal(z[:, 1], 0.0)
    np.testing.assert_array_equal(standardised(np.full((3, 1), 0.1)), 0.0)
    ax = plot_heatmap(named_tree(4), values)
    assert ax.images[0].get_array().mask.sum() == 1


@pytest.mark.parametrize("n", [2, 5, 50, 3000])
def test_every_size_draws(n):
    tree = named_tree(n)
    X = np.random.default_rng(0).normal(size=(n, 4))
    for ax in (
        plot_heatmap(tree, X, support=np.ones(n - 1), n_clusters=min(n, 3), time_scale="sqrt"),
        plot_coclustering(np.eye(n), tree, n_clusters=min(n, 3)),
    ):
        ax.figure.canvas.draw()
        assert max(ax.images[0].get_array().shape) <= 600


def test_coclustering_is_in_leaf_order_with_clusters_framed():
    tree = named_tree(10)
    together = np.random.default_rng(0).uniform(size=(10, 10))
    ax = plot_coclustering(together, tree, n_clusters=3)
    order = ladderised_order(tree)
    np.testing.assert_array_equal(ax.images[0].get_array(), together[np.ix_(order, order)])
    boxes = [path.get_extents() for path in ax.collections[0].get_paths()]
    cluster = tree.cut(n_clusters=3)
    assert sorted(round(box.width) for box in boxes) == sorted(np.bincount(cluster))
    first = boxes[0]
    expected = plt.matplotlib.colors.to_rgba(PALETTE[cluster[order[round(first.x0 + 0.5)]]])
    assert tuple(ax.collections[0].get_edgecolor()[0]) == expected


def test_block_means_keep_the_total():
    matrix = np.random.default_rng(0).uniform(size=(70, 70))
    small = block_means(matrix, 16)
    starts = np.arange(16) * 70 // 16
    sizes = np.diff(np.append(starts, 70))
    assert np.isclose((small * np.outer(sizes, sizes)).sum(), matrix.sum())
    assert np.isclose(small[3, 5], matrix[starts[3] : starts[4], starts[5] : starts[6]].mean())
    assert block_means(matrix, 70) is matrix or np.array_equal(block_means(matrix, 70), matrix)


def test_labels_are_short_single_lines_and_never_mathematics():
    assert plain("a\nb\t c") == "a b c"
    assert len(plain("x" * 100, 24)) == 24
    assert plain("first words and last words", 12) == "first wo…rds"
    names = [r"$\broken{$", "cost in $ or $", "<b>bold</b>", "e"]
    tree = ct.Tree(ct.sample_tree(4, random_state=0).children, [1.0, 2.0, 3.0], names)
    ax = plot_heatmap(tree, np.arange(8.0).reshape(4, 2), features=[r"$\x$", "$"])
    ax.figure.canvas.draw()
    plot_coclustering(np.eye(4), tree).figure.canvas.draw()


def test_bad_input():
    tree = named_tree(5)
    with pytest.raises(ValueError, match=r"X must have shape \(5, d\)"):
        plot_heatmap(tree, np.ones((4, 2)))
    with pytest.raises(ValueError, match="features must have one name per column"):
        plot_heatmap(tree, np.ones((5, 2)), features=["a"])
    with pytest.raises(ValueError, match="together must have shape"):
        plot_coclustering(np.eye(4), tree)
    with pytest.raises(ValueError, match="labels must have one label per leaf"):
        plot_coclustering(np.eye(5), tree, labels=["a"])
