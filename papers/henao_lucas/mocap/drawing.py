"""The subtrees of two axes with markers labelled by body part, and the series of three clades."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import coaltree as ct
from coaltree.plots.dendrogram import plot_dendrogram
from papers.henao_lucas.figures import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from papers.henao_lucas.mocap.markers import PARTS, body_part

COLOURS = dict(zip(PARTS, (BLACK, PURPLE, VERMILION, ORANGE, BLUE, SKY), strict=True))
SYMBOLS = ("s", "^", "D")


def subtree(tree: ct.Tree, leaves: np.ndarray) -> ct.Tree:
    """Return the tree restricted to some leaves: their merges keep their times."""
    n = tree.n_leaves
    number = {int(leaf): k for k, leaf in enumerate(leaves)}  # node of `tree` → node of the smaller one
    children, times = [], []
    for k, (left, right) in enumerate(tree.children.tolist()):
        below = [number[node] for node in (left, right) if node in number]
        if len(below) == 2:
            number[n + k] = len(leaves) + len(children)
            children.append(sorted(below))
            times.append(tree.times[k])
        elif below:
            number[n + k] = below[0]
    return ct.Tree(children, times, [tree.leaf_names[leaf] for leaf in leaves])


def draw_subtrees(tree: ct.Tree, clades: list[dict[str, Any]]) -> Figure:
    """Draw the Y and Z markers' trees side by side; the clades of the heat maps carry a symbol."""
    figure = Figure(figsize=(7.2, 7.4), layout="constrained")
    for ax, axis in zip(figure.subplots(1, 2), ("Y", "Z"), strict=True):
        leaves = np.array([k for k, name in enumerate(tree.leaf_names) if name.endswith(f":{axis}")])
        part_of = subtree(tree, leaves)
        labels = [f"{body_part(name.split(':')[0])}  {name.split(':')[0]}" for name in part_of.leaf_names]
        plot_dendrogram(part_of, ax, labels=labels, time_scale="log")
        for text in ax.get_yticklabels():
            text.set_color(COLOURS[text.get_text().split()[0]])
            text.set_fontsize(8)
        members = part_of.clades()
        for symbol, clade in zip(SYMBOLS, clades, strict=True):
            wanted = np.isin(part_of.leaf_names, clade["names"])
            for k in np.flatnonzero((members == wanted).all(axis=1)):
                _mark(ax, part_of, int(k), symbol)
        ax.set_title(f"{axis} axis")
        ax.grid(visible=False)
    return figure


def _mark(ax: Any, tree: ct.Tree, merge: int, symbol: str) -> None:
    """Put a symbol on a merge."""
    from coaltree.plots.layout import drawn_times, ladderised_order, node_places

    time = drawn_times(tree.times, "log")[0][merge]
    place = node_places(tree.children[None], ladderised_order(tree))[0, tree.n_leaves + merge]
    ax.plot([time], [place], symbol, ms=8, mfc="white", mec=GREEN, mew=2.0, zorder=6, clip_on=False)


def draw_heat_maps(clades: list[dict[str, Any]]) -> Figure:
    """Draw the series of three clades, each less its mean, in metres."""
    heights = [len(clade["names"]) for clade in clades]
    figure = Figure(figsize=(7.0, 0.9 + 0.21 * sum(heights)), layout="constrained")
    axes = figure.subplots(len(clades), 1, sharex=True, height_ratios=heights)
    for ax, symbol, clade in zip(axes, SYMBOLS, clades, strict=True):
        values = np.array(clade["values"]) / 1000.0
        most = np.abs(values).max()
        image = ax.imshow(values, aspect="auto", cmap="PuOr", vmin=-most, vmax=most, interpolation="nearest")
        labels = [f"{body_part(name.split(':')[0])}  {name}" for name in clade["names"]]
        ax.set_yticks(range(len(labels)), labels, fontsize=7.5)
        for text in ax.get_yticklabels():
            text.set_color(COLOURS[text.get_text().split()[0]])
        ax.plot([1.06], [1.0], symbol, transform=ax.transAxes, ms=8, mfc="white", mec=GREEN, mew=2.0, clip_on=False)
        ax.grid(visible=False)
        figure.colorbar(image, ax=ax, label="m", pad=0.02)
    axes[-1].set_xlabel("frame")
    return figure
