"""Figures of a records study: the outcome tree with the node that predicts cost, cost by risk, curves of outcomes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coaltree.errors import InputError
from coaltree.plots.dendrogram import plot_dendrogram
from coaltree.plots.layout import FAINT, INK, PALETTE, drawn_times, ladderised_order, node_places, plain, tidy_axes
from coaltree.records.cost import CostCurves
from coaltree.records.review import Curve, OutcomeCurves
from coaltree.tree import Tree

# From calm to alarming: the order of risk.
_RISK_COLOURS = ("#44AA99", "#88CCEE", "#DDAA33", "#CC6677")


def plot_cost_node(
    tree: Tree, node: int | None = None, ax: Axes | None = None, *, support: npt.ArrayLike | None = None
) -> Axes:
    """Draw the tree of outcomes and circle one of its nodes.

    Parameters
    ----------
    tree : Tree
        Tree of the outcomes.
    node : int, optional
        Node to circle; a leaf is circled on its branch.
    ax : Axes, optional
        Where to draw; by default a new figure.
    support : array-like (n−1,), optional
        Posterior support of the clades.
    """
    if ax is None:
        height = float(np.clip(0.26 * tree.n_leaves + 1.0, 2.5, 12.0))
        _, ax = plt.subplots(figsize=(6.5, height), layout="constrained")
    ax = plot_dendrogram(tree, ax, support=support, max_tips=tree.n_leaves)
    if node is not None:
        times, leaf_time = drawn_times(tree.times, "linear")
        place = node_places(tree.children[None], ladderised_order(tree))[0, node]
        if node < tree.n_leaves:  # on the branch, so that the name beside the tip stays legible
            time = 0.5 * (leaf_time + times[tree.parents()[node] - tree.n_leaves])
        else:
            time = times[node - tree.n_leaves]
        ax.plot([time], [place], "o", ms=15, mfc="none", mec=PALETTE[1], mew=2.4, zorder=6, clip_on=False)
    return ax


def plot_cost_curves(curves: CostCurves, ax: Axes | None = None, *, currency: str = "") -> Axes:
    """Draw mean cumulative cost after the threshold by quarters of risk, with bootstrap bands.

    Parameters
    ----------
    curves : CostCurves
        From `coaltree.records.cost.cost_curves`.
    ax : Axes, optional
        Where to draw; by default a new figure.
    currency : str
        Unit of cost.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    n_groups, n_days = curves.mean.shape
    day = np.arange(n_days + 1)
    for group in range(n_groups):
        colour = _RISK_COLOURS[round(group * (len(_RISK_COLOURS) - 1) / (n_groups - 1))]
        known = np.append(True, ~np.isnan(curves.mean[group]))
        mean, low, high = (np.append(0.0, part[group])[known] for part in (curves.mean, curves.low, curves.high))
        ax.fill_between(day[known], low, high, color=colour, alpha=0.25, linewidth=0)
        ax.plot(day[known], mean, color=colour, linewidth=1.8)
        rank = " (lowest risk)" if group == 0 else " (highest risk)" if group == n_groups - 1 else ""
        text = f"quarter {group + 1}{rank}" if n_groups == 4 else f"group {group + 1}{rank}"
        ax.annotate(text, (n_days, mean[-1]), (5, 0), textcoords="offset points", fontsize=8.5, color=INK, va="center")
    ax.set_xlim(0, n_days * 1.28)
    ax.set_xticks([tick for tick in ax.get_xticks() if tick <= n_days])
    ax.set_ylim(bottom=0.0)
    ax.set_xlabel("days after the threshold", color=INK, fontsize=9)
    ax.set_ylabel(f"mean cumulative cost{f' ({currency})' if currency else ''}", color=INK, fontsize=9)
    tidy_axes(ax, 8.5)
    return ax


def plot_outcome_curves(curves: Sequence[OutcomeCurves], kind: str, level: float = 0.95) -> Figure:
    """Draw one kind of curve for every outcome, one small panel each, with its bootstrap band.

    Parameters
    ----------
    curves : sequence of OutcomeCurves
        From `coaltree.records.review.outcome_curves`.
    kind : {"roc", "precision", "calibration", "benefit"}
        What to draw: the ROC curve, precision against recall, observed against predicted rates, or net benefit against
        the probability at which one would act.
    level : float
        Level of the bands, for the title.

    Returns
    -------
    Figure
    """
    draw = {"roc": _draw_roc, "precision": _draw_precision, "calibration": _draw_rates, "benefit": _draw_benefit}
    if kind not in draw:
        raise InputError(f"kind must be one of {', '.join(draw)}, got {kind!r}.")
    n_columns = min(4, len(curves))
    n_rows = -(-len(curves) // n_columns)
    fig = Figure(figsize=(2.45 * n_columns + 0.3, 2.3 * n_rows + 0.35), layout="constrained")
    panels = fig.subplots(n_rows, n_columns, squeeze=False)
    for ax, found in zip(panels.ravel(), curves, strict=False):
        draw[kind](ax, found)
        ax.set_title(plain(found.outcome, 30), fontsize=9, color=INK)
        ax.locator_params(nbins=4)
        tidy_axes(ax, 7.5)
    for ax in panels.ravel()[len(curves) :]:
        ax.set_visible(False)
    x, y = _AXES[kind]
    fig.supxlabel(x, fontsize=9, color=INK)
    fig.supylabel(y, fontsize=9, color=INK)
    return fig


_AXES = {
    "roc": ("false positive rate", "true positive rate"),
    "precision": ("recall (share of events found)", "precision"),
    "calibration": ("predicted probability", "observed share"),
    "benefit": ("probability at which one would act", "net benefit"),
}


def _draw_band(ax: Axes, curve: Curve, colour: str) -> None:
    ax.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.25, linewidth=0)
    ax.plot(curve.x, curve.y, color=colour, linewidth=1.5, marker=".", markersize=3)


def _draw_roc(ax: Axes, found: OutcomeCurves) -> None:
    ax.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle="--")
    _draw_band(ax, found.roc, PALETTE[0])
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.01)


def _draw_precision(ax: Axes, found: OutcomeCurves) -> None:
    ax.axhline(found.prevalence, color=FAINT, linewidth=1, linestyle="--")
    _draw_band(ax, found.precision, PALETTE[0])
    ax.set_xlim(0, 1)
    ax.set_ylim(bottom=0)


def _draw_rates(ax: Axes, found: OutcomeCurves) -> None:
    rows = [row for row in found.calibration if row["observed"] == row["observed"]]
    top = max([0.01, *(row["high"] for row in rows), *(row["predicted"] for row in rows)])
    ax.plot([0, top], [0, top], color=FAINT, linewidth=1, linestyle="--")
    x = [row["predicted"] for row in rows]
    y = np.array([row["observed"] for row in rows])
    ends = np.array([[row["low"], row["high"]] for row in rows]).reshape(-1, 2)
    ax.errorbar(x, y, np.abs(ends.T - y), fmt="o", ms=3.5, color=PALETTE[0], linewidth=1)
    ax.set_xlim(0, top * 1.05)
    ax.set_ylim(0, top * 1.05)


def _draw_benefit(ax: Axes, found: OutcomeCurves) -> None:
    ax.axhline(0.0, color=FAINT, linewidth=1)
    ax.plot(found.benefit.x, found.treat_all, color=FAINT, linewidth=1, linestyle="--")
    _draw_band(ax, found.benefit, PALETTE[0])
    top = max(float(found.benefit.high.max()), 1e-3)
    ax.set_ylim(-0.25 * top, 1.1 * top)
    ax.set_xlim(left=0)
