"""Pictures of a regression: what is drawn, where, and what is refused."""

import io

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection

import coaltree as ct
from coaltree.plots import plot_auc, plot_calibration, plot_node_models, plot_outcome_tree
from coaltree.plots.layout import ladderised_order
from coaltree.regression.comparison import Comparison

NAMES = [f"outcome with a long name, number {j}" for j in range(21)]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def make_tree(n):
    tree = ct.sample_tree(n, random_state=0)
    return ct.Tree(tree.children, tree.times, NAMES[:n])


def make_comparison(n_outcomes, empty=None):
    rng = np.random.default_rng(0)
    score = rng.normal(size=(3, 400, n_outcomes))
    Y = (score[0] + rng.normal(size=(400, n_outcomes)) > np.linspace(0.2, 2.5, n_outcomes)).astype(float)
    if empty is not None:
        Y[:, empty] = 0.0
    return Comparison(
        ("ours", "ridge", "lasso"),
        tuple(NAMES[:n_outcomes]),
        Y,
        np.arange(400) % 5,
        1 / (1 + np.exp(-score)),
        score,
        np.ones((3, 5)),
        n_resamples=50,
    )


def render(ax):
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, format="png", dpi=60)
    return buffer.getvalue()


@pytest.mark.parametrize("n", [2, 5, 21])
def test_outcome_tree(n):
    tree, coef = make_tree(n), np.random.default_rng(1).normal(size=(n, 6))
    sure = np.abs(coef) > 1.0
    ax = plot_outcome_tree(tree, coef, features=list("abcdef"), support=np.linspace(0, 1, n - 1), sure=sure)
    image = ax.images[0]
    np.testing.assert_array_equal(image.get_array(), coef[ladderised_order(tree)])
    low, high = image.get_clim()
    assert low == -high  # white is zero
    dots = next(c for c in ax.collections if isinstance(c, PathCollection)).get_offsets()
    assert {(int(row), int(column)) for column, row in dots} == set(
        zip(*np.nonzero(sure[ladderised_order(tree)]), strict=True)
    )
    assert len(render(ax)) > 3000


def test_outcome_tree_of_zeros():
    ax = plot_outcome_tree(make_tree(4), np.zeros((4, 2)))
    assert ax.images[0].get_clim() == (-1.0, 1.0)


def test_node_models_go_from_the_root_down():
    tree = ct.Tree([[0, 1], [3, 4], [2, 5]], [0.5, 1.0, 2.0], names=["a", "b", "c", "d"])
    node_coef = np.zeros((7, 3))
    node_coef[4:] = [[1, 0, 5], [1, 2, 0], [1, 0, 0]]
    ax = plot_node_models(tree, node_coef, features=["x", "y", "z"], support=[0.4, 0.9, 1.0], n_features=3)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["all 4 outcomes", "a, b, d (90%)", "a, b (40%)"]
    np.testing.assert_array_equal(ax.images[0].get_array(), node_coef[[6, 5, 4]])


def test_rings_mark_what_differs_from_the_parent():
    tree = ct.Tree([[0, 1], [2, 3]], [0.5, 1.0], names=["a", "b", "c"])
    node_coef = np.zeros((5, 6))
    node_coef[4] = [9, 8, 7, 0.1, 0.1, 0.1]
    node_coef[3] = [9, 8, 7, 3.0, 2.0, 1.0]
    ax = plot_node_models(tree, node_coef)
    rings = next(c for c in ax.collections if isinstance(c, PathCollection)).get_offsets()
    marked = {row: {int(x) for x, y in rings if y == row} for row in (0, 1)}
    assert marked == {0: {0, 1, 2}, 1: {3, 4, 5}}


def test_node_models_keep_the_largest_features():
    node_coef = np.random.default_rng(2).normal(size=(41, 50))
    node_coef[21:, 7] = 100.0
    ax = plot_node_models(make_tree(21), node_coef, n_features=10)
    ticks = [label.get_text() for label in ax.get_xticklabels()]
    assert len(ticks) == 10
    assert "8" in ticks
    assert all(len(label.get_text()) < 60 for label in ax.get_yticklabels())
    assert len(render(ax)) > 3000


@pytest.mark.parametrize("n", [1, 5, 21])
def test_auc(n):
    comparison = make_comparison(n, empty=1 if n > 1 else None)
    ax = plot_auc(comparison, labels=["Ours", "Ridge", "Lasso"])
    labels = [label.get_text() for label in ax.get_yticklabels()]
    events = [int(label.rsplit("(", 1)[1].rstrip(")")) for label in labels]
    assert events == sorted(events, reverse=True)  # upwards, so the rarest is on top
    dots = [c for c in ax.collections if isinstance(c, PathCollection)]
    bars = [c for c in ax.collections if isinstance(c, LineCollection)]
    n_drawn = n - (n > 1)
    assert [len(d.get_offsets()) for d in dots] == [len(b.get_segments()) for b in bars] == [n_drawn] * 3
    order = np.argsort(-comparison.n_events, kind="stable")[:n_drawn]
    np.testing.assert_allclose(dots[-1].get_offsets()[:, 0], comparison.auroc[0, order])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["Ours", "Ridge", "Lasso"]
    assert ax.get_xlim()[1] <= 1.0
    assert len(render(ax)) > 3000


def test_calibration():
    comparison = make_comparison(5)
    ax = plot_calibration(comparison, methods=["ours", "lasso"])
    lines = [line for line in ax.get_lines() if line.get_label() in ("ours", "lasso")]
    table = comparison.calibration_table("ours")
    np.testing.assert_allclose(lines[0].get_xydata(), np.column_stack([table.predicted, table.observed]))
    assert len(lines) == 2
    one = plot_calibration(comparison, outcome=2, n_bins=4)
    assert len(one.get_lines()[0].get_xdata()) == 4
    assert len(render(ax)) > 3000


def test_given_axes_are_used():
    _, ax = plt.subplots()
    assert plot_auc(make_comparison(2), ax) is ax
    _, ax = plt.subplots()
    assert plot_calibration(make_comparison(2), ax) is ax
    _, ax = plt.subplots()
    assert plot_node_models(make_tree(3), np.ones((5, 2)), ax) is ax


@pytest.mark.parametrize("plot", [plot_auc, plot_calibration])
def test_unknown_methods_and_missing_labels(plot):
    with pytest.raises(ValueError, match="methods must be among ours, ridge, lasso, got 'rigde'"):
        plot(make_comparison(2), methods=["rigde"])
    with pytest.raises(ValueError, match="labels must have one name for each of 3 methods"):
        plot(make_comparison(2), labels=["Ours"])


def test_bad_input():
    tree = make_tree(3)
    with pytest.raises(ValueError, match="sure"):
        plot_outcome_tree(tree, np.zeros((3, 2)), sure=np.zeros((3, 3), dtype=bool))
    with pytest.raises(ValueError, match="node_coef"):
        plot_node_models(tree, np.zeros((4, 2)))
    with pytest.raises(ValueError, match="features"):
        plot_node_models(tree, np.zeros((5, 2)), features=["a"])
    with pytest.raises(ValueError, match="methods"):
        plot_auc(make_comparison(2), methods=["theirs"])
