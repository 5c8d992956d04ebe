"""Matrices in the leaf order of a tree: the data beside it, and how often leaves share a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputError
from coaltree.plots.dendrogram import plot_dendrogram
from coaltree.plots.layout import FAINT, INK, PALETTE, TimeScale, ladderised_order, plain
from coaltree.tree import Tree

# Blue and red of equal lightness about white, distinguishable for colour-blind readers.
DIVERGING = LinearSegmentedColormap.from_list(
    "coaltree", ["#2166AC", "#92C5DE", "#F7F7F7", "#F4A582", "#B2182B"]
).with_extremes(bad="#D0D4DA")
TOGETHER = LinearSegmentedColormap.from_list("together", ["#FFFFFF", "#88CCEE", PALETTE[0]])

_LIMIT = 2.5  # standard deviations at which the colour scale ends
_MOST_CELLS = 600  # rows of a matrix beyond which cells are smaller than pixels
_TEXT_ROOM = 7.0  # points that a column label needs
_LONGEST_LABEL = 24


def plot_heatmap(
    tree: Tree,
    X: npt.ArrayLike,
    ax: Axes | None = None,
    *,
    features: Sequence[object] | None = None,
    labels: Sequence[object] | None = None,
    standardise: bool = True,
    support: npt.ArrayLike | None = None,
    n_clusters: int | None = None,
    time_scale: TimeScale = "linear",
) -> Axes:
    """Draw the data beside the tree, rows in the order of its leaves.

    Parameters
    ----------
    tree : Tree
        Tree over the n rows.
    X : array-like (n, d)
        The data; NaN is drawn grey.
    ax : Axes, optional
        Space for tree, matrix and colour bar, which are placed inside it; a new figure by default.
    features : sequence (d,), optional
        Names of the columns; long ones are shortened, and all are left out when they cannot fit.
    labels : sequence (n,), optional
        Names of the rows; the tree's names by default.
    standardise : bool
        Draw every column as deviations from its mean in units of its standard deviation; else the raw values.
    support, n_clusters, time_scale
        As in `plot_dendrogram`.

    Returns
    -------
    Axes
        The axes of the matrix.
    """
    values = np.asarray(X, dtype=np.float64)
    n = tree.n_leaves
    if values.ndim != 2 or len(values) != n or values.shape[1] < 1:
        raise InputError(f"X must have shape ({n}, d), one row per leaf of the tree, got {values.shape}.")
    d = values.shape[1]
    if features is not None and len(features) != d:
        raise InputError(f"features must have one name per column of X, {d}, got {len(features)}.")
    shown = standardised(values) if standardise else values

    if ax is None:
        height = float(np.clip(0.19 * n + 1.2, 3.2, 9.0))
        _, ax = plt.subplots(figsize=(float(np.clip(5.5 + 0.22 * d, 6.5, 12.0)), height), layout="constrained")
    ax.set_axis_off()
    tree_ax, matrix_ax = ax.inset_axes((0.0, 0.0, 0.4, 1.0)), ax.inset_axes((0.41, 0.0, 0.54, 1.0))
    plot_dendrogram(
        tree,
        tree_ax,
        support=support,
        labels=labels,
        n_clusters=n_clusters,
        time_scale=time_scale,
        max_tips=n,  # the matrix beside it has a place for every leaf
    )
    names, places = [label.get_text() for label in tree_ax.get_yticklabels()], tree_ax.get_yticks()
    label_size = tree_ax.yaxis.get_tick_params()["labelsize"] if len(names) else 8
    axis_label = tree_ax.get_ylabel()
    tree_ax.set_yticks([])
    tree_ax.set_ylabel("")

    limits = (-_LIMIT, _LIMIT) if standardise else _finite_range(shown)
    rows = np.ma.masked_invalid(_row_means(shown[ladderised_order(tree)], _MOST_CELLS))
    image = matrix_ax.imshow(
        rows,
        cmap=DIVERGING,
        vmin=limits[0],
        vmax=limits[1],
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        extent=(-0.5, d - 0.5, -0.5, n - 0.5),
    )
    matrix_ax.set_ylim(tree_ax.get_ylim())
    matrix_ax.set_yticks(places, names)
    matrix_ax.yaxis.set_ticks_position("right")
    matrix_ax.yaxis.set_label_position("right")
    matrix_ax.yaxis.set_tick_params(length=0, pad=3, labelsize=label_size, labelcolor=INK)
    matrix_ax.set_ylabel(axis_label, color=INK, fontsize=9)
    _label_columns(matrix_ax, [str(i + 1) for i in range(d)] if features is None else [str(name) for name in features])
    matrix_ax.spines[:].set_visible(False)
    inch = float(ax.figure.dpi / ax.bbox.height)
    bar_ax = ax.inset_axes((0.41, 1.0 + 0.05 * inch, 0.3, 0.09 * inch))
    _colour_bar(bar_ax, image, "deviation from the column's mean, in standard deviations" if standardise else "value")
    return matrix_ax


def plot_coclustering(
    together: npt.ArrayLike,
    tree: Tree,
    ax: Axes | None = None,
    *,
    labels: Sequence[object] | None = None,
    n_clusters: int | None = None,
) -> Axes:
    """Draw the probability that two leaves share a cluster, in the leaf order of a tree.

    Parameters
    ----------
    together : array-like (n, n)
        Probabilities, as from `TreePosterior.coclustering(n_clusters)`; for more than 600 leaves, means over
        blocks are drawn.
    tree : Tree
        Gives the order of the leaves.
    ax : Axes, optional
        Where to draw; a new figure by default.
    labels : sequence (n,), optional
        Names of the leaves; the tree's by default. Left out when they cannot fit.
    n_clusters : int, optional
        Frame the clusters of `tree.cut(n_clusters)` in their colours.

    Returns
    -------
    Axes
        The axes drawn on.
    """
    n = tree.n_leaves
    matrix = np.asarray(together, dtype=np.float64)
    if matrix.shape != (n, n):
        raise InputError(f"together must have shape ({n}, {n}), one row and column per leaf, got {matrix.shape}.")
    names = tree.leaf_names if labels is None else tuple(str(label) for label in labels)
    if len(names) != n:
        raise InputError(f"labels must have one label per leaf, {n}, got {len(names)}.")
    order = ladderised_order(tree)
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 5.8), layout="constrained")
    image = ax.imshow(
        block_means(matrix[np.ix_(order, order)], _MOST_CELLS),
        cmap=TOGETHER,
        vmin=0.0,
        vmax=1.0,
        origin="lower",
        extent=(-0.5, n - 0.5, -0.5, n - 0.5),
    )
    room = float(ax.bbox.height / ax.figure.dpi * 72.0 / n)
    if room >= 5.5:
        size = min(9.0, 0.85 * room)
        ax.set_yticks(range(n), [plain(names[leaf], _LONGEST_LABEL) for leaf in order], fontsize=size, color=INK)
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{n:,} leaves", color=INK, fontsize=9)
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_color(FAINT)
    if n_clusters is not None:
        _frame_clusters(ax, tree.cut(n_clusters=n_clusters)[order])
    bar = ax.figure.colorbar(image, ax=ax, fraction=0.04, pad=0.02)
    bar.set_label("probability of the same cluster", color=INK, fontsize=9)
    bar.ax.tick_params(labelsize=8, color=FAINT, labelcolor=INK)
    bar.outline.set_visible(False)
    return ax


def standardised(values: Floats) -> Floats:
    """Columns with mean 0 and standard deviation 1, ignoring NaN; constant columns become 0."""
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, values, 0.0).sum(axis=0) / count
    centred = values - mean
    deviation = np.sqrt((np.where(known, centred, 0.0) ** 2).sum(axis=0) / count)
    # A column that is constant up to rounding has nothing to show.
    constant = deviation <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
    return np.asarray(np.where(constant, centred * 0.0, centred / np.where(constant, 1.0, deviation)))


def block_means(matrix: Floats, most: int) -> Floats:
    """Means of blocks of a square matrix, so that at most `most` rows are left; blocks differ by one row at most."""
    return _row_means(_row_means(matrix, most).T, most).T


def _row_means(rows: Floats, most: int) -> Floats:
    """Means of runs of rows, ignoring NaN, so that at most `most` rows are left."""
    n = len(rows)
    if n <= most:
        return rows
    starts = np.arange(most) * n // most
    known = np.isfinite(rows)
    counts = np.add.reduceat(known.astype(np.float64), starts, axis=0)
    sums = np.add.reduceat(np.where(known, rows, 0.0), starts, axis=0)
    return np.asarray(np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0.0))


def _frame_clusters(ax: Axes, cluster: Ints) -> None:
    """Outline every cluster; in leaf order a cluster is contiguous."""
    n = len(cluster)
    starts = np.flatnonzero(np.append(True, np.diff(cluster) != 0))
    ends = np.append(starts[1:], n)
    frames = [Rectangle((s - 0.5, s - 0.5), e - s, e - s) for s, e in zip(starts, ends, strict=True)]
    colours = [PALETTE[cluster[s] % len(PALETTE)] for s in starts]
    width = 1.6 if len(starts) <= 60 else 0.6
    ax.add_collection(PatchCollection(frames, facecolor="none", edgecolor=colours, linewidth=width, clip_on=False))


def _label_columns(ax: Axes, names: list[str]) -> None:
    d = len(names)
    room = float(ax.bbox.width / ax.figure.dpi * 72.0 / d)
    if room >= _TEXT_ROOM:
        ax.set_xticks(range(d), [plain(name, _LONGEST_LABEL) for name in names])
        ax.tick_params(axis="x", length=0, labelsize=min(8.5, 0.9 * room), labelcolor=INK)
        if max(map(len, names)) * 5.0 > room:
            ax.tick_params(axis="x", rotation=90)
    else:
        ax.set_xticks([])
        ax.set_xlabel(f"{d:,} columns", color=INK, fontsize=9)


def _colour_bar(bar_ax: Axes, image: Any, text: str) -> None:
    bar = bar_ax.figure.colorbar(image, cax=bar_ax, orientation="horizontal")
    bar.ax.xaxis.set_ticks_position("top")
    bar.ax.tick_params(labelsize=7, color=FAINT, labelcolor=INK, length=2)
    bar.ax.xaxis.set_label_position("top")
    bar.set_label(text, fontsize=8, color=INK, loc="left")
    bar.outline.set_visible(False)


def _finite_range(values: Floats) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
