"""Many sampled trees drawn over each other: agreement is dark, disagreement is a haze."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba

from coaltree.errors import InputError, InputTypeError
from coaltree.plots.layout import (
    INK,
    PALETTE,
    Orientation,
    TimeScale,
    drawn_times,
    finish_axes,
    label_leaves,
    ladderised_order,
    make_canvas,
    node_places,
)
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.hierarchy import make_hierarchy
from coaltree.tree import Tree

_FULL_OPACITY = 0.995


def plot_densitree(
    posterior: Any,
    ax: Axes | None = None,
    *,
    max_trees: int = 200,
    reference: Tree | None = None,
    orientation: Orientation = "left",
    time_scale: TimeScale = "linear",
) -> Axes:
    """Draw the sampled trees over each other in one leaf order.

    Branches are straight lines. A tree of weight w is drawn with opacity 1 − (1 − A)^w, so that where trees
    with total weight p coincide the opacity is 1 − (1 − A)^p whatever their number.

    Parameters
    ----------
    posterior : TreePosterior or fitted CoalescentClustering
        The weighted trees, or the model that has them.
    ax : Axes, optional
        Where to draw; by default a new figure whose length follows the number of leaves.
    max_trees : int
        At most this many trees; if there are more, a fixed sample by weight.
    reference : Tree, optional
        Tree that gives the leaf order and is drawn on top; by default `CoalescentClustering.tree_`, of all draws.
    orientation : {"left", "right", "top", "bottom"}
        Side of the root.
    time_scale : {"linear", "sqrt", "log"}
        Scale of the time axis.

    Returns
    -------
    Axes
        The axes drawn on.
    """
    if hasattr(posterior, "labels_"):
        reference = posterior.tree_ if reference is None else reference
        posterior = posterior.posterior_
    if not isinstance(posterior, TreePosterior):
        raise InputTypeError(
            f"posterior must be a TreePosterior or a fitted CoalescentClustering, got {type(posterior).__name__}."
        )
    n = posterior.n_leaves
    if max_trees < 1:
        raise InputError(f"max_trees must be at least 1, got {max_trees}.")
    reference = make_hierarchy(posterior).tree if reference is None else reference
    if reference.n_leaves != n:
        raise InputError(f"reference has {reference.n_leaves} leaves, the posterior {n}; use the same leaves.")

    if len(posterior) > max_trees:
        posterior = posterior.sample(max_trees, random_state=0)
    chosen = np.flatnonzero(posterior.weights > 0.0)
    children = np.concatenate([posterior.children[chosen], reference.children[None]])
    times, leaf_time = drawn_times(np.concatenate([posterior.times[chosen], reference.times[None]]), time_scale)
    canvas = make_canvas(ax, orientation, n)
    order = ladderised_order(reference)
    places = node_places(children, order)
    node_times = np.concatenate([np.full((len(times), n), leaf_time), times], axis=1)

    rows = np.arange(len(children))[:, None, None]
    child = canvas.xy(node_times[rows, children], places[rows, children])
    parent = np.broadcast_to(canvas.xy(times, places[:, n:])[:, :, None], child.shape)
    branches = np.stack([child, parent], axis=3)  # (trees, merges, two children, two ends, xy)

    weights = posterior.weights[chosen] / posterior.weights[chosen].sum()
    colours = np.tile(to_rgba(PALETTE[0]), (len(chosen), 1))
    colours[:, 3] = 1.0 - (1.0 - _FULL_OPACITY) ** weights
    width = float(np.clip(0.12 * canvas.points_per_leaf(n), 0.4, 1.3))
    sampled = branches[:-1].reshape(-1, 2, 2)
    canvas.ax.add_collection(
        LineCollection(list(sampled), colors=np.repeat(colours, 2 * (n - 1), axis=0), linewidths=width),
        autolim=False,
    )
    canvas.ax.add_collection(
        LineCollection(list(branches[-1].reshape(-1, 2, 2)), colors=INK, linewidths=0.8 * width, zorder=3),
        autolim=False,
    )
    finish_axes(canvas, n, (leaf_time, float(times.max()) * 1.04 or 1.0), time_scale)
    label_leaves(canvas, reference.leaf_names, order)
    return canvas.ax
