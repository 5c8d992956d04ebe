"""One tree drawn as a dendrogram: clusters in colour, expected overlaps and time intervals at the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.patheffects import withStroke

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputError, InputTypeError
from coaltree.plots.collapse import Collapsed, collapse
from coaltree.plots.layout import (
    FAINT,
    INK,
    PALETTE,
    Canvas,
    Orientation,
    TimeScale,
    drawn_times,
    finish_axes,
    label_leaves,
    ladderised_order,
    make_canvas,
    node_places,
)
from coaltree.tree import Tree, as_index
from coaltree.validation import check_choice, check_count

_SUPPORT_COLOURS = LinearSegmentedColormap.from_list("support", ["#FFFFFF", INK])
_SUPPORT_TEXT_ROOM = 9.0  # points per leaf; with less, supports are shown by shade alone
_MARKER_ROOM = 2.5  # points per leaf; with less, nodes are too close for a marker each
_LARGE_CLADE = 12.0  # points along the leaf axis; in a crowded drawing only clades that long get marks
_MARK_DISTANCE = 17.0  # points between marks in a crowded drawing
_THINNEST_LINE = 0.2
_CERTAIN = 0.995
_MOST_LEAVES = 1_000  # larger trees are drawn with closed clades by default
_TIP_ROOM = 7.5  # points for a tip with its label
_FEWEST_TIPS, _MOST_TIPS = 20, 150
_HALF_TIP = 0.4  # of a triangle's base
_DOUBTFUL = 0.5
_HALO = withStroke(linewidth=2.0, foreground="white")


def plot_dendrogram(
    tree: Any,
    ax: Axes | None = None,
    *,
    support: npt.ArrayLike | None = None,
    min_support_shown: float = 0.5,
    intervals: npt.ArrayLike | None = None,
    labels: Sequence[object] | None = None,
    n_clusters: int | None = None,
    orientation: Orientation = "left",
    time_scale: TimeScale = "linear",
    max_tips: int | None = None,
) -> Axes:
    """Draw a tree; in a large one all but the largest clades are closed.

    Parameters
    ----------
    tree : Tree or fitted CoalescentClustering
        The tree; of a model, its `tree_` with the expected overlap and the interval of every merge and its clusters,
        outliers grey, unless these are given. At every merge the larger side is drawn last (upper, or to the right).
    ax : Axes, optional
        Where to draw; by default a new figure whose length follows the number of leaves.
    support : array-like (n−1,), optional
        Certainty of every clade, as from `TreePosterior.expected_overlap(tree)`: a dot at the node, darker
        for higher values, with the percentage beside it where there is room and it is not 100. With too many
        leaves for that, the largest clades have dots as long as these do not touch.
    min_support_shown : float
        Nodes with less support than this get no dot.
    intervals : array-like (n−1, 2), optional
        Interval of every merge time, as from `TreePosterior.time_intervals(tree)`: a bar at the node. Rows
        with NaN are left out, as are the bars of small clades when there is no room for them.
    labels : sequence (n,), optional
        Leaf labels in the order of the leaves; the tree's names by default. Left out when they cannot fit.
    n_clusters : int, optional
        Colour the clusters of `cut(n_clusters)` of the tree or the model; cluster c has colour
        `PALETTE[c % len(PALETTE)]`. With more clusters than tips none is coloured.
    orientation : {"left", "right", "top", "bottom"}
        Side of the root.
    time_scale : {"linear", "sqrt", "log"}
        Scale of the time axis. The last two open up the early merges of large trees; on the log axis the
        earliest twentieth of them is drawn at its edge.
    max_tips : int, optional
        At most this many tips, 2 or more: a closed clade is one tip, a triangle from its merge to the leaves labelled
        with their number, dashed if its support is below one half. Clades above the cut into `n_clusters` are opened
        first, then the others by size, with preference for those whose parts have support. By default trees of more
        than 1 000 leaves are reduced to as many tips as can have labels; `max_tips=tree.n_leaves` draws every leaf.

    Returns
    -------
    Axes
        The axes drawn on.
    """
    model = tree if hasattr(tree, "labels_") else None
    if model is not None:
        tree = model.tree_
        if len(model.posterior_) > 1:
            support = model.posterior_.expected_overlap(tree) if support is None else support
            intervals = model.posterior_.time_intervals(tree) if intervals is None else intervals
    if not isinstance(tree, Tree):
        raise InputTypeError(f"tree must be a Tree or a fitted CoalescentClustering, got {type(tree).__name__}.")
    n = tree.n_leaves
    shares = _check_support(support, n)
    bars = _check_intervals(intervals, n)
    texts = tree.leaf_names if labels is None else tuple(str(label) for label in labels)
    if len(texts) != n:
        raise InputError(f"labels must have one label per leaf, {n}, got {len(texts)}.")
    if n_clusters is not None and not 1 <= as_index(n_clusters, "n_clusters") <= n:
        raise InputError(f"n_clusters must be between 1 and {n}, the number of leaves, got {n_clusters}.")
    check_choice(time_scale, "time_scale", ("linear", "sqrt", "log"))
    if max_tips is not None:
        max_tips = check_count(max_tips, "max_tips", at_least=2)

    cluster: Ints | None = None
    if n_clusters is not None:
        cluster = tree.cut(n_clusters=n_clusters) if model is None else model.cut(n_clusters)
    elif model is not None:
        cluster = model.labels_
        n_clusters = int(cluster.max()) + 1

    canvas = make_canvas(ax, orientation, n if max_tips is None else min(n, max_tips))
    most = _fitting_tips(canvas, n) if max_tips is None else max_tips
    if most >= n:
        _draw(canvas, tree, shares, min_support_shown, bars, texts, cluster, time_scale)
        return canvas.ax
    closed = collapse(tree, most, shares, n_clusters)
    _draw(
        canvas,
        closed.tree,
        None if shares is None else shares[closed.merges],
        min_support_shown,
        None if bars is None else bars[closed.merges],
        tuple(
            texts[tip] if tip < n else f"{rows:,} leaves" for tip, rows in zip(closed.tips, closed.rows, strict=True)
        ),
        # With too many clusters for the tips, their borders lie inside the triangles.
        None if cluster is None or cluster.max() >= len(closed.tips) else _spread(tree, cluster)[closed.tips],
        time_scale,
        closed,
        np.array([1.0 if tip < n or shares is None else shares[tip - n] for tip in closed.tips]),
    )
    return canvas.ax


def _fitting_tips(canvas: Canvas, n_leaves: int) -> int:
    """All leaves of a small tree; for a large one, as many tips as can have labels."""
    room = canvas.points_per_leaf(n_leaves) * (n_leaves + 1) / _TIP_ROOM
    return n_leaves if n_leaves <= _MOST_LEAVES else int(np.clip(room, _FEWEST_TIPS, _MOST_TIPS))


def _draw(
    canvas: Canvas,
    tree: Tree,
    shares: Floats | None,
    min_support_shown: float,
    bars: Floats | None,
    texts: tuple[str, ...],
    cluster: Ints | None,
    time_scale: TimeScale,
    closed: Collapsed | None = None,
    tip_support: Floats | None = None,
) -> None:
    """Draw a tree whose leaves may be closed clades, each of a cluster or, if negative, of none."""
    n = tree.n_leaves
    rows = np.ones(n, dtype=np.int64) if closed is None else closed.rows
    tip_times = np.zeros(n) if closed is None else closed.times
    node_times, leaf_time = drawn_times(np.append(tip_times, tree.times), time_scale)
    times = node_times[n:]
    order = ladderised_order(tree, rows)
    places = node_places(tree.children[None], order)[0]
    room = canvas.points_per_leaf(n)

    large = room >= _MARKER_ROOM or tree.sizes() * room >= _LARGE_CLADE
    if bars is not None:
        seen = np.where(np.reshape(large, (-1, 1)), bars, np.nan)
        _draw_intervals(canvas, np.maximum(seen, leaf_time), places[n:], room)
    _draw_branches(canvas, tree, node_times, places, cluster, room)
    if tip_support is not None:
        _draw_closed(canvas, np.flatnonzero(rows > 1), node_times, leaf_time, places, cluster, tip_support)
    latest = times[-1] if bars is None else np.nanmax(np.append(bars, times[-1]))
    finish_axes(canvas, n, (leaf_time, _beyond(latest, time_scale)), time_scale)
    if shares is not None:
        shown = np.flatnonzero((shares[:-1] >= min_support_shown) & np.broadcast_to(large, n - 1)[:-1])
        if room < _MARKER_ROOM:
            shown = _apart(canvas, shown[np.argsort(-tree.sizes()[shown], kind="stable")], times, places[n:])
        _draw_support(canvas, shares, shown, times, places[n:], room)
    if not label_leaves(canvas, texts, order) and cluster is not None:
        _label_clusters(canvas, cluster, places[:n], rows)


def _spread(tree: Tree, cluster: Ints) -> Ints:
    """Cluster of every node, (2n−1,), −1 where its leaves are not all of one."""
    n = tree.n_leaves
    found = np.concatenate([cluster, np.full(n - 1, -1)])
    for k, (left, right) in enumerate(tree.children):
        if found[left] == found[right]:
            found[n + k] = found[left]
    return found


def _draw_closed(
    canvas: Canvas,
    tips: Ints,
    node_times: Floats,
    leaf_time: float,
    places: Floats,
    cluster: Ints | None,
    support: Floats,
) -> None:
    """Draw some tips as triangles from their merge to the leaves, dashed and pale where their support is low."""
    colours = np.array([to_rgba(INK)] * len(support))
    if cluster is not None:
        colours = np.array([to_rgba(colour) for colour in (*PALETTE, FAINT)])[_shade(cluster)]
    for doubtful in (False, True):
        chosen = tips[(support[tips] < _DOUBTFUL) == doubtful]
        faces = colours[chosen] * [1.0, 1.0, 1.0, 0.12 if doubtful else 0.4]
        base = np.full(len(chosen), leaf_time)
        corners = [
            canvas.xy(node_times[chosen], places[chosen]),
            canvas.xy(base, places[chosen] - _HALF_TIP),
            canvas.xy(base, places[chosen] + _HALF_TIP),
        ]
        triangles = PolyCollection(
            list(np.stack(corners, axis=1)),
            facecolors=faces,
            edgecolors=colours[chosen],
            linewidths=0.7,
            linestyles="--" if doubtful else "-",
        )
        canvas.ax.add_collection(triangles, autolim=False)


def _shade(cluster: Ints) -> Ints:
    """Place of a cluster's colour in PALETTE, the place after its end for none."""
    return np.where(cluster < 0, len(PALETTE), cluster % len(PALETTE))


def _beyond(latest: float, scale: TimeScale) -> float:
    """End of the time axis: a little past the root, and never zero."""
    return (latest * (1.2 if scale == "log" else 1.04)) or 1.0


def _draw_branches(
    canvas: Canvas,
    tree: Tree,
    node_times: Floats,
    places: Floats,
    cluster: Ints | None,
    room: float,
) -> None:
    """Draw every branch as an elbow from the node to its parent's centre; cluster branches in colour."""
    n = tree.n_leaves
    parent = tree.parents()[:-1]
    node = np.arange(2 * n - 2)
    start, end = node_times[node], node_times[parent]
    elbows = np.stack(
        [canvas.xy(start, places[node]), canvas.xy(end, places[node]), canvas.xy(end, places[parent])], axis=1
    )
    # In a crowded drawing the lines of small clades are hair-thin, so that large clades stand out.
    size = np.concatenate([np.ones(n), tree.sizes()])[node]
    full = float(np.clip(0.16 * room, 0.8, 1.3))
    widths = np.clip(0.3 * room * np.sqrt(size), _THINNEST_LINE, full)
    if cluster is None:
        _add_lines(canvas, elbows, INK, widths)
        return
    of_node = _spread(tree, cluster)
    inside = of_node[node] >= 0
    stem = inside & (of_node[parent] < 0)
    colours = np.array([to_rgba(colour) for colour in (*PALETTE, FAINT)])[_shade(of_node[node])]
    widths[~inside | stem] = full
    _add_lines(canvas, elbows[~inside | stem], FAINT, widths[~inside | stem])
    _add_lines(canvas, elbows[inside & ~stem], colours[inside & ~stem], widths[inside & ~stem])
    if stem.any():
        # The branch above a cluster keeps its colour up to the cut, halfway between the merges around it; if clusters
        # are not of one time, halfway up.
        last_below, first_above = node_times[of_node >= 0].max(), end[stem].min()
        cut = np.full(stem.sum(), 0.5 * (last_below + first_above))
        if last_below > first_above:
            cut = 0.5 * (start[stem] + end[stem])
        stems = elbows[stem][:, :2].copy()
        stems[:, 1] = canvas.xy(cut, places[node[stem]])
        _add_lines(canvas, stems, colours[stem], widths[stem])


def _add_lines(canvas: Canvas, lines: Floats, colours: Any, widths: Floats) -> None:
    canvas.ax.add_collection(
        LineCollection(list(lines), colors=colours, linewidths=widths, capstyle="projecting", joinstyle="miter"),
        autolim=False,
    )


def _draw_intervals(canvas: Canvas, bars: Floats, places: Floats, room: float) -> None:
    known = np.isfinite(bars).all(axis=1)
    ends = np.stack([canvas.xy(bars[known, side], places[known]) for side in (0, 1)], axis=1)
    width = float(np.clip(0.45 * room, 0.8, 6.0))
    lines = LineCollection(list(ends), colors=PALETTE[6], linewidths=width, alpha=0.45, capstyle="round", zorder=1)
    canvas.ax.add_collection(lines, autolim=False)


def _apart(canvas: Canvas, merges: Ints, times: Floats, places: Floats) -> Ints:
    """From merges in order of importance, choose those far enough from the ones already chosen."""
    points = canvas.ax.transData.transform(canvas.xy(times[merges], places[merges]))
    points *= 72.0 / canvas.ax.figure.dpi
    kept: list[int] = []
    for i, point in enumerate(points):
        if not kept or (np.abs(points[kept] - point).max(axis=1) >= _MARK_DISTANCE).all():
            kept.append(i)
    return merges[kept]


def _draw_support(canvas: Canvas, shares: Floats, shown: Ints, times: Floats, places: Floats, room: float) -> None:
    """Mark some clades with dots (never the root, whose support is always one), with percentages where they fit."""
    x, y = canvas.xy(times[shown], places[shown]).T
    crowded = room < _MARKER_ROOM
    size = 3.5**2 if crowded else float(np.clip(0.45 * room, 1.5, 5.5)) ** 2
    canvas.ax.scatter(
        x,
        y,
        s=size,
        c=shares[shown],
        cmap=_SUPPORT_COLOURS,
        vmin=0.0,
        vmax=1.0,
        edgecolors=INK,
        linewidths=0.6,
        zorder=3,
    )
    if room < _SUPPORT_TEXT_ROOM and not crowded:
        return
    for k in shown[shares[shown] < _CERTAIN]:
        canvas.ax.annotate(
            f"{100 * shares[k]:.0f}",
            canvas.xy(times[k], places[k]).tolist(),
            xytext=canvas.toward_root(3.5, 2.5),
            textcoords="offset points",
            ha="right" if canvas.orientation == "left" else "left",
            va="top" if canvas.orientation == "bottom" else "bottom",
            fontsize=6.5,
            color=INK,
            zorder=4,
            path_effects=[_HALO],
        )


def _label_clusters(canvas: Canvas, cluster: Ints, leaf_places: Floats, rows: Ints) -> None:
    """Where leaf labels do not fit, show the size of each cluster beside its middle, the largest first."""
    gap = 11.0 / canvas.points_per_leaf(len(cluster))
    own = cluster >= 0
    sizes = np.bincount(cluster[own], weights=rows[own]).astype(np.int64)
    middles = np.bincount(cluster[own], weights=leaf_places[own]) / np.maximum(np.bincount(cluster[own]), 1)
    kept: list[int] = []
    for c in np.argsort(-sizes, kind="stable"):
        if sizes[c] and all(abs(middles[c] - middles[other]) >= gap for other in kept):
            kept.append(int(c))
    axis = canvas.ax.yaxis if canvas.time_is_horizontal else canvas.ax.xaxis
    axis.set_ticks(middles[kept], [f"{sizes[c]:,}" for c in kept])
    axis.set_tick_params(labelsize=8, labelcolor=INK)


def _check_support(support: npt.ArrayLike | None, n_leaves: int) -> Floats | None:
    if support is None:
        return None
    shares = np.asarray(support, dtype=np.float64)
    if shares.shape != (n_leaves - 1,):
        raise InputError(f"support must have shape ({n_leaves - 1},), one value per merge, got {shares.shape}.")
    if not ((shares >= 0.0) & (shares <= 1.0)).all():
        raise InputError("support must hold probabilities between 0 and 1; divide percentages by 100.")
    return shares


def _check_intervals(intervals: npt.ArrayLike | None, n_leaves: int) -> Floats | None:
    if intervals is None:
        return None
    bars = np.asarray(intervals, dtype=np.float64)
    if bars.shape != (n_leaves - 1, 2):
        raise InputError(f"intervals must have shape ({n_leaves - 1}, 2), one row per merge, got {bars.shape}.")
    if (bars[:, 0] > bars[:, 1]).any():
        raise InputError("intervals must be (lower, upper) in every row; swap their columns.")
    return bars
