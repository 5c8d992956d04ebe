"""Curves and traces: the numbers drawn are the numbers given."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import coaltree as ct
from coaltree.plots import plot_ari_curve, plot_traces
from coaltree.posterior.diagnostics import effective_size


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_ari_curves_and_areas():
    labels = np.repeat([0, 1, 2], 10)
    trees = {f"tree {i}": ct.sample_tree(30, random_state=i) for i in range(11)}
    ax = plot_ari_curve(trees, labels, log=True)
    for line, (name, tree) in zip(ax.lines, trees.items(), strict=True):
        curve = ct.metrics.ari_curve(tree, labels)
        np.testing.assert_array_equal(line.get_xdata(), curve.n_clusters)
        np.testing.assert_array_equal(line.get_ydata(), curve.ari)
        assert line.get_label() == f"{name} ({ct.metrics.ari_auc(tree, labels):.3f})"
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == len(trees)
    assert ax.get_xscale() == "log"
    assert len(plot_ari_curve(trees["tree 0"], labels, ax=Figure().add_subplot()).lines) == 1
    with pytest.raises(ValueError, match="at least one tree"):
        plot_ari_curve({}, labels)


def test_traces():
    rng = np.random.default_rng(0)
    trace = {
        "a": rng.normal(size=60),
        "many": rng.normal(size=(1, 60, 5, 5)),
        "two": rng.normal(size=(2, 60)),
        "constant": np.ones(60),
    }
    panels = plot_traces(trace, burn_in=10)
    lowest = effective_size(trace["many"][:, 10:].reshape(1, 50, -1)[..., :12]).min()
    assert len(panels) == 4
    assert [len(ax.lines) for ax in panels] == [1, 12, 2, 1]
    np.testing.assert_array_equal(panels[0].lines[0].get_ydata(), trace["a"])
    assert panels[0].get_title("left") == "a"
    assert panels[0].get_title("right") == f"ESS {effective_size(trace['a'][None, 10:]):.0f} of 50"
    assert panels[1].get_title("right") == f"lowest ESS {lowest:.0f} of 50"
    assert panels[2].get_title("right").endswith("of 100")
    assert panels[3].get_title("right") == "ESS unknown"
    assert panels[0].patches[0].get_extents().width > 0
    panels[0].figure.canvas.draw()
    assert not plot_traces(trace)[0].patches


@pytest.mark.parametrize(("trace", "burn_in"), [({}, 0), ({"a": np.ones(5)}, 5), ({"a": 1.0}, 0), ({"a": [1.0]}, -1)])
def test_bad_traces(trace, burn_in):
    with pytest.raises(ValueError, match=r"trace must hold|burn_in must be"):
        plot_traces(trace, burn_in)
