"""Figures of a regression of many outcomes: tree and coefficients, node models, areas under the curve, calibration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputError
from coaltree.plots.layout import FAINT, INK, PALETTE, TimeScale, ladderised_order, plain, tidy_axes
from coaltree.plots.matrices import DIVERGING, plot_heatmap
from coaltree.regression.comparison import Comparison
from coaltree.tree import Tree

_COLOUR_QUANTILE = 0.98  # of absolute coefficients: end of the colour scale, lest one outlier bleach the rest
_LONGEST_NAME = 34
_MOST_FEATURES = 30
_N_MARKED = 3
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">")


def plot_outcome_tree(
    tree: Tree,
    coef: npt.ArrayLike,
    ax: Axes | None = None,
    *,
    features: Sequence[object] | None = None,
    support: npt.ArrayLike | None = None,
    sure: npt.ArrayLike | None = None,
    time_scale: TimeScale = "sqrt",
) -> Axes:
    """Draw the tree of outcomes with clade supports, and their coefficients as a heat map beside it.

    Parameters
    ----------
    tree : Tree
        Tree over the P outcomes.
    coef : array-like (P, K)
        Coefficients of every outcome, preferably for standardised features so that colours can be compared.
    ax : Axes, optional
        Space for tree and matrix; a new figure by default.
    features : sequence (K,), optional
        Names of the features.
    support : array-like (P−1,), optional
        Certainty of every clade, as from `TreePosterior.expected_overlap(tree)`.
    sure : array-like of bool (P, K), optional
        Coefficients to mark with a dot, those whose interval excludes zero.
    time_scale : {"linear", "sqrt", "log"}
        Scale of the time axis.

    Returns
    -------
    Axes
        The axes of the heat map.
    """
    values = np.asarray(coef, dtype=np.float64)
    matrix_ax = plot_heatmap(
        tree, values, ax, features=features, support=support, standardise=False, time_scale=time_scale
    )
    image = matrix_ax.images[0]
    limit = _colour_limit(values)
    image.set_clim(-limit, limit)
    if features is not None and max(len(str(name)) for name in features) > 3:
        matrix_ax.tick_params(axis="x", rotation=90)
    bar = image.colorbar
    assert bar is not None
    bar.ax.set_xlabel("coefficient" if sure is None else "coefficient (dot: its interval leaves out 0)", loc="left")
    bar.ax.xaxis.set_ticks_position("top")  # new limits put ticks and label back below
    bar.ax.xaxis.set_label_position("top")
    if sure is not None:
        marked = np.asarray(sure, dtype=bool)
        if marked.shape != values.shape:
            raise InputError(f"sure must have the shape of coef, {values.shape}, got {marked.shape}.")
        rows, columns = np.nonzero(marked[ladderised_order(tree)])
        room = matrix_ax.bbox.height / matrix_ax.figure.dpi * 72.0 / len(values)
        matrix_ax.scatter(columns, rows, s=float(np.clip(0.16 * room, 1.2, 3.0)) ** 2, color=INK, linewidths=0)
    return matrix_ax


def plot_node_models(
    tree: Tree,
    node_coef: npt.ArrayLike,
    ax: Axes | None = None,
    *,
    features: Sequence[object] | None = None,
    support: npt.ArrayLike | None = None,
    n_features: int = _MOST_FEATURES,
) -> Axes:
    """Draw the coefficients of every internal node, and what sets each node apart from its parent.

    Rows are the merges of the tree, the root on top and every branch followed by the branches within it, named by the
    outcomes under them. Rings mark the three coefficients of a node that differ most from its parent's; for the root,
    the largest.

    Parameters
    ----------
    tree : Tree
        Tree over the P outcomes.
    node_coef : array-like (2P−1, K)
        Coefficients of all nodes, as in `CoalescentProbit.node_coef_`.
    ax : Axes, optional
        Where to draw; a new figure by default.
    features : sequence (K,), optional
        Names of the features.
    support : array-like (P−1,), optional
        Probability of every clade, written after its name.
    n_features : int
        At most this many features are shown, those with the largest coefficients.

    Returns
    -------
    Axes
        The axes drawn on.
    """
    values = np.asarray(node_coef, dtype=np.float64)
    n = tree.n_leaves
    if values.ndim != 2 or len(values) != 2 * n - 1:
        raise InputError(f"node_coef must have shape ({2 * n - 1}, K), one row per node, got {values.shape}.")
    names = [str(k + 1) for k in range(values.shape[1])] if features is None else [str(name) for name in features]
    if len(names) != values.shape[1]:
        raise InputError(f"features must have one name per column of node_coef, {values.shape[1]}, got {len(names)}.")
    shares = None if support is None else np.asarray(support, dtype=np.float64)

    inner = values[n:]
    kept = np.sort(np.argsort(-np.abs(inner).max(axis=0), kind="stable")[:n_features])
    order = _from_the_root(tree)
    parents = tree.parents()[n:]
    apart = inner - np.where((parents >= 0)[:, None], values[parents], 0.0)

    if ax is None:
        size = (float(np.clip(5.0 + 0.24 * len(kept), 6.5, 12.5)), float(np.clip(0.24 * n + 1.4, 2.6, 10.0)))
        _, ax = plt.subplots(figsize=size, layout="constrained")
    limit = _colour_limit(inner)
    image = ax.imshow(
        inner[order][:, kept],
        cmap=DIVERGING,
        vmin=-limit,
        vmax=limit,
        aspect="auto",
        interpolation="nearest",
    )
    top = np.argsort(-np.abs(apart[order][:, kept]), axis=1, kind="stable")[:, :_N_MARKED]
    room = ax.bbox.height / ax.figure.dpi * 72.0 / max(n - 1, 1)
    ax.scatter(
        top.ravel(),
        np.repeat(np.arange(len(order)), top.shape[1]),
        s=float(np.clip(0.4 * room, 3.0, 6.0)) ** 2,
        facecolors="none",
        edgecolors=INK,
        linewidths=0.9,
    )
    labels = [_node_name(tree, int(k), None if shares is None else float(shares[k])) for k in order]
    ax.set_yticks(range(len(order)), labels, fontsize=float(np.clip(0.7 * room, 5.5, 8.5)), color=INK)
    ax.set_xticks(range(len(kept)), [plain(names[k], 24) for k in kept], fontsize=8, color=INK)
    if max(len(names[k]) for k in kept) > 3:
        ax.tick_params(axis="x", rotation=90)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(image, ax=ax, fraction=0.03, pad=0.02)
    bar.set_label("coefficient", color=INK, fontsize=8)
    bar.ax.tick_params(labelsize=7, color=FAINT, labelcolor=INK, length=2)
    bar.outline.set_visible(False)
    return ax


def _from_the_root(tree: Tree) -> Ints:
    """Merges in the order: root, larger branch and all within it, smaller branch and all within it."""
    n, order, waiting = tree.n_leaves, [], [2 * tree.n_leaves - 2]
    sizes = np.concatenate([np.ones(n, dtype=np.int64), tree.sizes()])
    while waiting:
        node = waiting.pop()
        if node >= n:
            order.append(node - n)
            waiting += sorted(tree.children[node - n].tolist(), key=lambda child: sizes[child])
    return np.array(order, dtype=np.int64)


def _node_name(tree: Tree, merge: int, share: float | None) -> str:
    """As many of the outcomes under a merge as there is room for, the number of the others, and the support."""
    members = [tree.leaf_names[leaf] for leaf in tree.leaves(tree.n_leaves + merge)]
    if len(members) == tree.n_leaves:
        return f"all {len(members)} outcomes"
    shown = [plain(members[0], _LONGEST_NAME // 2 if len(members) == 2 else _LONGEST_NAME - 10)]
    for name in members[1:]:
        if len(members) > 2 and len(", ".join([*shown, name])) > _LONGEST_NAME:
            break
        shown.append(plain(name, _LONGEST_NAME // 2 if len(members) == 2 else _LONGEST_NAME))
    rest = len(members) - len(shown)
    text = ", ".join(shown) + (f" and {rest} more" if rest else "")
    return text if share is None else f"{text} ({100 * share:.0f}%)"


def plot_auc(
    comparison: Comparison,
    ax: Axes | None = None,
    *,
    methods: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    events: Sequence[str] | None = None,
    level: float = 0.95,
) -> Axes:
    """Draw the area under the ROC curve of every outcome and method with intervals, the rarest outcome on top.

    Parameters
    ----------
    comparison : Comparison
        From `coaltree.regression.comparison.compare`.
    ax : Axes, optional
        Where to draw; a new figure by default.
    methods : sequence of str, optional
        Methods to draw; all by default. The first is drawn large and in front.
    labels : sequence of str, optional
        Names of the methods in the legend.
    events : sequence of str, optional
        Text shown for every outcome's events; their number by default.
    level : float
        Level of the intervals.

    Returns
    -------
    Axes
        The axes drawn on. Outcomes without both classes are listed without a dot.
    """
    chosen, texts = _choose_methods(comparison, methods, labels)
    n_outcomes, n_methods = len(comparison.outcomes), len(chosen)
    counts = [f"{n:,}" for n in comparison.n_events] if events is None else events
    if len(counts) != n_outcomes:
        raise InputError(f"events must have one entry for each of {n_outcomes} outcomes, got {len(counts)}.")
    order = np.argsort(-comparison.n_events, kind="stable")  # the axis runs upwards: the rarest outcome comes last
    if ax is None:
        per_outcome = 0.16 + 0.045 * n_methods
        height = float(np.clip(per_outcome * n_outcomes + 1.3, 3.0, 14.0))
        _, ax = plt.subplots(figsize=(7.2, height), layout="constrained")
    intervals = comparison.intervals(level)
    spread = np.linspace(0.3, -0.3, n_methods) if n_methods > 1 else np.zeros(1)
    room = ax.bbox.height / ax.figure.dpi * 72.0 / n_outcomes
    for k in reversed(range(n_methods)):
        m = comparison.methods.index(chosen[k])
        places = np.arange(n_outcomes) + spread[k]
        known = ~np.isnan(comparison.auroc[m, order])
        colour, first = PALETTE[k % len(PALETTE)], k == 0
        ends = intervals[m, order][known]
        bars = [[(low, place), (high, place)] for (low, high), place in zip(ends, places[known], strict=True)]
        ax.add_collection(
            LineCollection(bars, colors=colour, linewidths=1.8 if first else 0.8, alpha=1.0 if first else 0.45)
        )
        ax.scatter(
            comparison.auroc[m, order][known],
            places[known],
            s=float(np.clip(0.32 * room, 3.4, 6.0) if first else np.clip(0.2 * room, 2.4, 4.2)) ** 2,
            color=colour,
            marker=_MARKERS[k % len(_MARKERS)],
            label=texts[k],
            zorder=4 if first else 3,
            linewidths=0,
        )
    ax.set_yticks(
        range(n_outcomes),
        [f"{plain(comparison.outcomes[j], _LONGEST_NAME)}  ({counts[j]})" for j in order],
        fontsize=float(np.clip(0.6 * room, 5.5, 9.0)),
        color=INK,
    )
    ax.set_ylim(-0.6, n_outcomes - 0.4)
    for place in np.arange(n_outcomes - 1) + 0.5:
        ax.axhline(place, color="#EDEFF2", linewidth=0.8, zorder=0)
    ax.autoscale_view(scaley=False)
    low, high = ax.get_xlim()
    ax.set_xlim(low, min(high, 1.0))
    if low < 0.5:
        ax.axvline(0.5, color=FAINT, linewidth=0.8, linestyle=(0, (3, 3)), zorder=0)
    ax.set_xlabel(f"area under the ROC curve, {100 * level:g}% bootstrap interval", color=INK, fontsize=9)
    ax.set_ylabel("outcome (events)", color=INK, fontsize=9)
    tidy_axes(ax)
    handles, names = ax.get_legend_handles_labels()
    ax.legend(
        handles[::-1],
        names[::-1],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=3,
        fontsize=8,
        frameon=False,
        handletextpad=0.2,
        columnspacing=1.2,
        borderaxespad=0.2,
    )
    return ax


def _choose_methods(
    comparison: Comparison, methods: Sequence[str] | None, labels: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """Methods to draw and their names in the legend."""
    chosen = list(comparison.methods) if methods is None else list(methods)
    missing = [name for name in chosen if name not in comparison.methods]
    if missing:
        raise InputError(f"methods must be among {', '.join(comparison.methods)}, got {missing[0]!r}.")
    texts = chosen if labels is None else [str(label) for label in labels]
    if len(texts) != len(chosen):
        raise InputError(f"labels must have one name for each of {len(chosen)} methods, got {len(texts)}.")
    return chosen, texts


def plot_calibration(
    comparison: Comparison,
    ax: Axes | None = None,
    *,
    methods: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    outcome: int | None = None,
    n_bins: int = 10,
) -> Axes:
    """Draw observed against predicted rates in groups of equal size; on the diagonal, predictions mean what they say.

    Parameters
    ----------
    comparison : Comparison
        From `coaltree.regression.comparison.compare`.
    ax : Axes, optional
        Where to draw; a new figure by default.
    methods : sequence of str, optional
        Methods to draw; the first has intervals. By default all.
    labels : sequence of str, optional
        Names of the methods in the legend.
    outcome : int, optional
        Position of one outcome; by default all outcomes are pooled.
    n_bins : int
        Number of groups.

    Returns
    -------
    Axes
        The axes drawn on, with square-root scales that open up the low rates.
    """
    chosen, texts = _choose_methods(comparison, methods, labels)
    if ax is None:
        _, ax = plt.subplots(figsize=(4.8, 4.6), layout="constrained")
    top = 0.0
    for k, (method, text) in enumerate(zip(chosen, texts, strict=True)):
        table = comparison.calibration_table(method, outcome, n_bins)
        colour, first = PALETTE[k % len(PALETTE)], k == 0
        if first:
            bars = [[(x, low), (x, high)] for x, low, high in zip(table.predicted, table.low, table.high, strict=True)]
            ax.add_collection(LineCollection(bars, colors=colour, linewidths=1.4, zorder=3), autolim=False)
            top = float(table.high.max())
        ax.plot(
            table.predicted,
            table.observed,
            color=colour,
            marker=_MARKERS[k % len(_MARKERS)],
            markersize=5.0 if first else 3.4,
            linewidth=1.3 if first else 0.8,
            alpha=1.0 if first else 0.75,
            label=text,
            zorder=4 if first else 2,
        )
        top = max(top, float(table.predicted.max()), float(table.observed.max()))
    top = min(1.0, 1.08 * top) if top > 0.0 else 1.0
    ax.plot([0.0, top], [0.0, top], color=FAINT, linewidth=0.9, linestyle=(0, (3, 3)), zorder=1)
    for set_scale in (ax.set_xscale, ax.set_yscale):
        set_scale("function", functions=(lambda p: np.sqrt(np.maximum(p, 0.0)), np.square))
    ticks = [tick for tick in (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0) if tick <= top]
    ticks = [0.0, *(tick for tick in ticks if tick >= 0.004 * top)]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.set_xlim(0.0, top)
    ax.set_ylim(0.0, top)
    ax.set_xlabel("predicted probability", color=INK, fontsize=9)
    ax.set_ylabel("observed share of events", color=INK, fontsize=9)
    tidy_axes(ax)
    ax.tick_params(axis="y", labelsize=8)
    ax.legend(loc="upper left", fontsize=8, frameon=False)
    return ax


def _colour_limit(values: Floats) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(np.quantile(finite, _COLOUR_QUANTILE)) or 1.0 if finite.size else 1.0
