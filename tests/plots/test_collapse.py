"""Large trees, closed to a few tips: which clades are opened, what the small tree says, what is drawn."""

import time

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba

from coaltree import Tree
from coaltree.plots import PALETTE, plot_dendrogram
from coaltree.plots.collapse import collapse, open_clades
from tests.reference.trees import caterpillar, leaves_below, random_tree


def slow_choice(tree, max_tips, support, n_clusters):
    """Again and again, look at all closed clades and open the one that counts most."""
    n = tree.n_leaves
    top = 2 * n - n_clusters if n_clusters and n_clusters <= max_tips else 2 * n - 1

    def count(node):
        if node >= top:
            return np.inf
        shares = [0.0 if child < n else support[child - n] for child in tree.children[node - n]]
        return len(leaves_below(tree, node)) * (1 + max(shares)) / 2

    tips = {2 * n - 2}
    while len(tips) < max_tips and any(tip >= n for tip in tips):
        chosen = max((tip for tip in tips if tip >= n), key=lambda tip: (count(tip), tip))
        tips = tips - {chosen} | {int(child) for child in tree.children[chosen - n]}
    return tips


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_clusters", [None, 4, 11, 30])
def test_choice_and_small_tree(seed, n_clusters):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 40)
    support = rng.random(39)
    small = collapse(tree, 12, support, n_clusters)
    assert set(small.tips.tolist()) == slow_choice(tree, 12, support, n_clusters)
    leaves = [leaves_below(tree, tip) for tip in small.tips]
    assert sorted(leaf for tip in leaves for leaf in tip) == list(range(40))
    assert small.rows.tolist() == [len(tip) for tip in leaves]
    np.testing.assert_array_equal(small.tree.times, tree.times[small.merges])
    np.testing.assert_array_equal(small.times, tree.node_times()[small.tips])
    for k, merge in enumerate(small.merges):  # every merge of the small tree holds the leaves of the one it stands for
        held = set().union(*(leaves[tip] for tip in leaves_below(small.tree, 12 + k)))
        assert held == leaves_below(tree, 40 + merge)
    if n_clusters in (4, 11):  # clusters keep their numbers
        own = small.tree.cut(n_clusters=n_clusters)
        labels = tree.cut(n_clusters=n_clusters)
        assert all(labels[leaf] == own[i] for i, tip in enumerate(leaves) for leaf in tip)


def test_support_decides_between_clades_of_one_size():
    """Two clades of four leaves each, of which one has parts with support."""
    tree = Tree([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13]], np.arange(1.0, 8.0))
    for sure in ((0, 1), (2, 3)):
        support = np.full(7, 0.1)
        support[list(sure)] = 0.9
        assert open_clades(tree, 3, support).tolist() == [4 if sure == (0, 1) else 5, 6]


def triangles(ax):
    return [each for each in ax.collections if isinstance(each, PolyCollection)]


def labels(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def test_drawing():
    tree = random_tree(np.random.default_rng(0), 60)
    support = np.full(59, 0.9)
    small = collapse(tree, 15, support, 3)
    doubtful = next(tip for tip in small.tips if tip >= 60)
    support[doubtful - 60] = 0.2
    ax = plot_dendrogram(tree, support=support, n_clusters=3, max_tips=15)
    sure, unsure = triangles(ax)
    n_clades = int((small.rows > 1).sum())
    assert (len(sure.get_paths()), len(unsure.get_paths())) == (n_clades - 1, 1)
    apexes = sorted(path.vertices[0, 0] for each in (sure, unsure) for path in each.get_paths())
    np.testing.assert_allclose(apexes, np.sort(small.times[small.rows > 1]))
    assert unsure.get_paths()[0].vertices[0, 0] == tree.times[doubtful - 60]
    wanted = [f"{rows} leaves" if rows > 1 else str(tip) for tip, rows in zip(small.tips, small.rows, strict=True)]
    assert sorted(labels(ax)) == sorted(wanted)
    cut = tree.cut(n_clusters=3)
    colour = to_rgba(PALETTE[cut[min(leaves_below(tree, doubtful))]])
    np.testing.assert_allclose(unsure.get_edgecolor()[0], colour)


def test_small_trees_are_drawn_whole():
    tree = random_tree(np.random.default_rng(1), 1_000)
    assert not triangles(plot_dendrogram(tree))
    assert not triangles(plot_dendrogram(tree, max_tips=1_000))
    assert triangles(plot_dendrogram(tree, max_tips=999))


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log"])
@pytest.mark.parametrize("orientation", ["left", "top"])
def test_every_scale_and_side(scale, orientation):
    tree = random_tree(np.random.default_rng(2), 200)
    bars = np.stack([0.9 * tree.times, 1.1 * tree.times], axis=1)
    ax = plot_dendrogram(tree, intervals=bars, max_tips=20, time_scale=scale, orientation=orientation, n_clusters=20)
    ax.figure.canvas.draw()
    assert len(triangles(ax)[0].get_paths()) > 5


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("make", [lambda n: random_tree(np.random.default_rng(3), n), caterpillar])
def test_a_hundred_thousand_leaves(make):
    tree = make(100_000)
    start = time.process_time()
    ax = plot_dendrogram(tree, support=np.full(99_999, 0.7), n_clusters=8)
    ax.figure.canvas.draw()
    assert time.process_time() - start < 15.0
    assert 20 <= len(labels(ax)) <= 150
    assert any(text.endswith(" leaves") for text in labels(ax))


def test_arguments():
    tree = random_tree(np.random.default_rng(4), 2_000)
    with pytest.raises(ValueError, match="max_tips"):
        plot_dendrogram(tree, max_tips=1)
    with pytest.raises(ValueError, match="n_clusters"):
        plot_dendrogram(tree, n_clusters=2_001)
