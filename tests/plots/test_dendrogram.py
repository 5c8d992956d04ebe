import io
import time

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba

from coaltree import CoalescentClustering, Tree
from coaltree.errors import InputTypeError
from coaltree.plots import PALETTE, plot_dendrogram, plot_densitree
from coaltree.plots.layout import FAINT, INK, ladderised_order, node_places
from tests.reference.posteriors import make_posterior, noisy_posterior
from tests.reference.trees import caterpillar, random_tree

ORIENTATIONS = ("left", "right", "top", "bottom")
#        root at 2.0: leaf 2 | ((0, 1) at 0.5, 3) at 1.0
SMALL = Tree([[0, 1], [3, 4], [2, 5]], [0.5, 1.0, 2.0], names=["a", "b", "c", "d"])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def lines_of(ax):
    return [c for c in ax.collections if isinstance(c, LineCollection)]


def segments_of(ax):
    return [segment for collection in lines_of(ax) for segment in collection.get_segments()]


def colours_of(ax):
    """Return the colour of every segment, in the order of `segments_of`."""
    return [
        tuple(collection.get_colors()[i % len(collection.get_colors())])
        for collection in lines_of(ax)
        for i in range(len(collection.get_segments()))
    ]


def dots_of(ax):
    (dots,) = [c for c in ax.collections if isinstance(c, PathCollection)]
    return dots


def render(ax):
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, format="png", dpi=50)
    return buffer.getvalue()


# ---- layout


def test_leaf_order_puts_the_larger_side_last():
    np.testing.assert_array_equal(ladderised_order(SMALL), [2, 3, 0, 1])
    tree = random_tree(np.random.default_rng(0), 50)
    order = ladderised_order(tree)
    place = np.empty(50)
    place[order] = np.arange(50)
    for k, (left, right) in enumerate(tree.children):
        first, second = place[tree.leaves(left)], place[tree.leaves(right)]
        small, large = (first, second) if len(first) <= len(second) else (second, first)
        assert small.max() < large.min() or len(small) == len(large)
        assert np.ptp(place[tree.leaves(50 + k)]) == len(first) + len(second) - 1  # no crossing lines


def test_nodes_are_midway_between_their_children():
    places = node_places(SMALL.children[None], ladderised_order(SMALL))[0]
    np.testing.assert_array_equal(places, [2, 3, 0, 1, 2.5, 1.75, 0.875])


# ---- dendrogram


def test_elbows_of_the_hand_example():
    ax = plot_dendrogram(SMALL)
    segments = {tuple(map(tuple, segment)) for segment in segments_of(ax)}
    assert len(segments) == 6
    assert ((0, 2), (0.5, 2), (0.5, 2.5)) in segments  # leaf a to its parent
    assert ((0, 0), (2.0, 0), (2.0, 0.875)) in segments  # leaf c to the root
    assert ((1.0, 1.75), (2.0, 1.75), (2.0, 0.875)) in segments
    assert [text.get_text() for text in ax.get_yticklabels()] == ["c", "d", "a", "b"]
    assert ax.get_xlim()[0] > 2.0
    assert ax.get_xlim()[1] == 0.0  # root at the left
    assert set(colours_of(ax)) == {to_rgba(INK)}


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_orientations(orientation):
    _, ax = plt.subplots()
    assert plot_dendrogram(SMALL, ax, orientation=orientation, support=[0.7, 0.9, 1.0], n_clusters=2) is ax
    sideways = orientation in ("left", "right")
    limits = ax.get_xlim() if sideways else ax.get_ylim()
    assert limits[0 if orientation in ("right", "top") else 1] == 0.0
    assert max(limits) > 2.0
    labels = ax.get_yticklabels() if sideways else ax.get_xticklabels()
    assert [text.get_text() for text in labels] == ["c", "d", "a", "b"]
    xs = np.concatenate(segments_of(ax))[:, 0 if sideways else 1]
    assert (xs.min(), xs.max()) == (0.0, 2.0)
    assert render(ax)


def test_labels():
    ax = plot_dendrogram(SMALL, labels=[10, 11, 12, 13])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["12", "13", "10", "11"]
    unnamed = plot_dendrogram(Tree(SMALL.children, SMALL.times))
    assert [text.get_text() for text in unnamed.get_yticklabels()] == ["2", "3", "0", "1"]


def test_clusters_have_the_colours_of_the_cut():
    tree = random_tree(np.random.default_rng(0), 30)
    ax = plot_dendrogram(tree, n_clusters=4)
    cluster = tree.cut(n_clusters=4)
    order = ladderised_order(tree)
    found = {}
    for segment, colour in zip(segments_of(ax), colours_of(ax), strict=True):
        time_, place = segment[0]
        if time_ == 0.0 and colour != to_rgba(FAINT):
            found[int(order[round(place)])] = colour
    assert found == {leaf: to_rgba(PALETTE[c]) for leaf, c in enumerate(cluster)}
    # Above the cut nothing is coloured: every coloured line ends before the first merge above it.
    first_above = tree.times[-3]
    for segment, colour in zip(segments_of(ax), colours_of(ax), strict=True):
        if colour != to_rgba(FAINT):
            assert segment[:, 0].max() < first_above


def test_a_fitted_model_is_drawn_with_what_it_knows():
    """Its tree with overlaps and intervals, and clusters as its labels have them, outliers grey."""
    X = np.random.default_rng(0).normal(size=(30, 2)) + 9.0 * (np.arange(30) % 2)[:, None]
    model = CoalescentClustering(2, n_draws=6, warmup=10, random_state=0).fit(X)
    post, tree = model.posterior_, model.tree_
    model.labels_ = np.where(np.arange(30) == 4, -1, model.labels_)
    overlap, intervals = post.expected_overlap(tree), post.time_intervals(tree)
    by_hand, ax = plot_dendrogram(tree, support=overlap, intervals=intervals), plot_dendrogram(model)
    np.testing.assert_array_equal(dots_of(ax).get_array(), dots_of(by_hand).get_array())
    np.testing.assert_array_equal(lines_of(ax)[0].get_segments(), lines_of(by_hand)[0].get_segments())  # intervals
    order, found = ladderised_order(tree), {}
    for segment, colour in zip(segments_of(ax), colours_of(ax), strict=True):
        if segment[0][0] == 0.0 and colour[3] == 1.0 and colour != to_rgba(FAINT):
            found[int(order[round(segment[0][1])])] = colour
    assert found == {leaf: to_rgba(PALETTE[label]) for leaf, label in enumerate(model.labels_) if label >= 0}
    greedy = CoalescentClustering(2, method="greedy", random_state=0).fit(X)
    assert not [each for each in plot_dendrogram(greedy).collections if isinstance(each, PathCollection)]
    model.labels_ = np.arange(30) // 15  # not clades: some have merged before others end
    render(plot_dendrogram(model))
    render(plot_dendrogram(model, max_tips=5))
    render(plot_dendrogram(model, n_clusters=3))
    by_hand, ax = plot_densitree(post, reference=tree), plot_densitree(model)
    for one, other in zip(lines_of(by_hand), lines_of(ax), strict=True):
        np.testing.assert_array_equal(one.get_segments(), other.get_segments())


@pytest.mark.parametrize("draw", [plot_dendrogram, plot_densitree])
@pytest.mark.parametrize("given", [CoalescentClustering(3), np.zeros((4, 2))])
def test_what_is_no_tree_and_no_fitted_model_is_refused(draw, given):
    with pytest.raises(InputTypeError, match=r"a fitted CoalescentClustering, got (ndarray|CoalescentClustering)\."):
        draw(given)


@pytest.mark.parametrize("n_clusters", [1, 30])
def test_extreme_cuts(n_clusters):
    ax = plot_dendrogram(random_tree(np.random.default_rng(0), 30), n_clusters=n_clusters)
    shown = {colour for colour in colours_of(ax) if colour != to_rgba(FAINT)}
    assert len(shown) == min(n_clusters, len(PALETTE))
    assert render(ax)


def test_support_dots_and_texts():
    ax = plot_dendrogram(SMALL, support=[0.4, 0.8, 1.0])
    dots = dots_of(ax)
    np.testing.assert_allclose(dots.get_offsets(), [[1.0, 1.75]])  # 0.4 is below the limit, the root has no dot
    np.testing.assert_allclose(dots.get_array(), [0.8])
    assert [text.get_text() for text in ax.texts] == ["80"]
    ax = plot_dendrogram(SMALL, support=[0.4, 1.0, 1.0], min_support_shown=0.0)
    assert len(dots_of(ax).get_offsets()) == 2
    assert [text.get_text() for text in ax.texts] == ["40"]  # a black dot says 100


def test_support_text_is_dropped_when_crowded():
    tree = random_tree(np.random.default_rng(0), 100)
    ax = plot_dendrogram(tree, support=np.full(99, 0.8))
    assert len(ax.texts) == 0
    assert len(dots_of(ax).get_offsets()) == 98


def test_largest_clades_keep_their_marks_when_crowded():
    tree = random_tree(np.random.default_rng(0), 1000)
    ax = plot_dendrogram(tree, support=np.full(999, 0.8), intervals=np.stack([0.9 * tree.times, 1.1 * tree.times], 1))
    at = dots_of(ax).get_offsets()
    assert 5 <= len(at) <= 100
    assert len(ax.texts) == len(at)
    points = ax.transData.transform(at) * 72 / ax.figure.dpi
    apart = np.abs(points[:, None] - points).max(axis=2)
    assert apart[np.triu_indices(len(at), 1)].min() >= 17
    sizes = tree.sizes()[np.searchsorted(tree.times, at[:, 0])]
    assert sizes[0] == sizes.max() > 100
    bars = lines_of(ax)[0].get_segments()
    assert 5 <= len(bars) < 300


def test_intervals():
    ax = plot_dendrogram(SMALL, intervals=[[0.2, 0.7], [np.nan, np.nan], [1.5, 3.0]])
    bars = [segment for segment in segments_of(ax) if len(segment) == 2]
    np.testing.assert_allclose(bars, [[[0.2, 2.5], [0.7, 2.5]], [[1.5, 0.875], [3.0, 0.875]]])
    assert ax.get_xlim()[0] > 3.0


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log"])
def test_time_scales(scale):
    tree = random_tree(np.random.default_rng(0), 100)
    bars = np.column_stack([0.5 * tree.times, 2 * tree.times])
    ax = plot_dendrogram(tree, time_scale=scale, intervals=bars, n_clusters=3)
    times = np.concatenate(segments_of(ax))[:, 0]
    assert np.isfinite(times).all()
    assert times.min() == ax.get_xlim()[1]
    assert (times.min() > 0) == (scale == "log")
    assert (ax.get_xscale() == "function") == (scale == "sqrt")
    assert render(ax)


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log"])
def test_all_times_zero(scale):
    assert render(plot_dendrogram(Tree(SMALL.children, [0.0, 0.0, 0.0]), time_scale=scale, n_clusters=2))


def test_two_leaves():
    assert render(plot_dendrogram(Tree([[0, 1]], [1.0]), support=[1.0], n_clusters=2, intervals=[[0.5, 1.5]]))


def test_large_trees_are_fast_and_unlabelled():
    rng = np.random.default_rng(0)
    for tree in (random_tree(rng, 5_000), caterpillar(5_000)):
        start = time.process_time()
        ax = plot_dendrogram(tree, n_clusters=6, max_tips=5_000)
        assert len(ax.collections) <= 3
        assert render(ax)
        assert time.process_time() - start < 5.0
        assert ax.get_ylabel() == "5,000 leaves"
    ax = plot_dendrogram(random_tree(rng, 5_000), n_clusters=6, max_tips=5_000)
    sizes = [int(text.get_text().replace(",", "")) for text in ax.get_yticklabels()]
    assert 1 <= len(sizes) <= 6  # sizes of clusters instead of labels
    assert not plot_dendrogram(random_tree(rng, 5_000), max_tips=5_000).get_yticklabels()


def test_labels_do_not_overlap_at_any_size():
    for n in (8, 40, 60, 300):
        for orientation in ("left", "top"):
            ax = plot_dendrogram(random_tree(np.random.default_rng(n), n), orientation=orientation)
            ax.figure.canvas.draw()
            labels = ax.get_yticklabels() if orientation == "left" else ax.get_xticklabels()
            side = 1 if orientation == "left" else 0
            boxes = np.array([text.get_window_extent().get_points()[:, side] for text in labels if text.get_text()])
            if len(boxes):
                boxes = boxes[np.argsort(boxes[:, 0])]
                overlap = boxes[:-1, 1] - boxes[1:, 0]
                assert overlap.max() < 0.15 * np.ptp(boxes, axis=1).max()  # the empty rims of letters may touch
            plt.close(ax.figure)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"support": [0.5]}, r"support must have shape \(3,\)"),
        ({"support": [50, 90, 100]}, "support must hold probabilities"),
        ({"support": [0.5, np.nan, 1.0]}, "support must hold probabilities"),
        ({"intervals": [[0, 1]]}, r"intervals must have shape \(3, 2\)"),
        ({"intervals": [[1, 0], [0, 1], [0, 1]]}, r"intervals must be \(lower, upper\)"),
        ({"labels": ["x"]}, "labels must have one label per leaf"),
        ({"n_clusters": 9}, "n_clusters must be between 1 and 4"),
        ({"orientation": "up"}, "orientation must be"),
        ({"time_scale": "cubic"}, "time_scale must be"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        plot_dendrogram(SMALL, **arguments)
    assert not plt.get_fignums()  # nothing was opened


# ---- densitree


def test_densitree_draws_every_tree_in_the_order_of_the_reference():
    other = Tree([[2, 3], [0, 1], [4, 5]], [0.2, 0.4, 1.5], names=SMALL.names)
    posterior = make_posterior([SMALL, other], [0.75, 0.25])
    ax = plot_densitree(posterior)
    sampled, reference = lines_of(ax)
    assert len(sampled.get_segments()) == 12
    assert len(reference.get_segments()) == 6
    assert [text.get_text() for text in ax.get_yticklabels()] == ["c", "d", "a", "b"]
    segments = {tuple(map(tuple, segment)) for segment in sampled.get_segments()}
    assert ((0.0, 2.0), (0.5, 2.5)) in segments  # leaf a to {a, b} in the first tree
    assert ((0.2, 0.5), (1.5, 1.5)) in segments  # {c, d} to the root in the second
    # Coinciding trees of total weight one are as dark as one tree of weight one.
    clear = 1 - sampled.get_colors()[[0, 6], 3]
    assert np.prod(clear) == pytest.approx(0.005)
    assert clear[0] == pytest.approx(0.005**0.75)


def test_densitree_samples_by_weight_when_there_are_many():
    posterior = noisy_posterior(np.random.default_rng(0))
    sampled, _ = lines_of(plot_densitree(posterior, max_trees=5))
    assert len(sampled.get_segments()) == 5 * 18
    drawn = posterior.sample(5, random_state=0)
    roots = {segment[:, 0].max() for segment in sampled.get_segments()}
    assert set(drawn.times[:, -1]) <= roots
    assert max(roots) == drawn.times[:, -1].max()


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_densitree_options(orientation, scale):
    posterior = noisy_posterior(np.random.default_rng(0), names=tuple("abcdefghij"))
    _, ax = plt.subplots()
    assert plot_densitree(posterior, ax, orientation=orientation, time_scale=scale) is ax
    assert render(ax)


def test_densitree_bad_arguments():
    posterior = noisy_posterior(np.random.default_rng(0))
    with pytest.raises(ValueError, match="max_trees must be at least 1"):
        plot_densitree(posterior, max_trees=0)
    with pytest.raises(ValueError, match="reference has 4 leaves"):
        plot_densitree(posterior, reference=SMALL)
    with pytest.raises(ValueError, match="orientation must be"):
        plot_densitree(posterior, orientation="up")
