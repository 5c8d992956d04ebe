"""Curves: agreement of every cut with known classes, and the course of a chain."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.metrics import ari_curve
from coaltree.plots.layout import FAINT, INK, PALETTE, plain, tidy_axes
from coaltree.posterior.diagnostics import effective_size
from coaltree.tree import Tree

_STYLES = ("-", "--", ":", "-.")
_MOST_LINES = 12  # lines of one quantity that can be told apart


def plot_ari_curve(
    trees: Tree | Mapping[str, Tree], labels: npt.ArrayLike, ax: Axes | None = None, *, log: bool = False
) -> Axes:
    """Draw the adjusted Rand index of every cut against the number of clusters, with the area below it in the legend.

    Parameters
    ----------
    trees : Tree or mapping from name to Tree
        Trees over the same n observations, one curve each.
    labels : array-like (n,)
        Class of every observation.
    ax : Axes, optional
        Where to draw; a new figure by default.
    log : bool
        Logarithmic number of clusters, to show the coarse cuts; the area refers to the linear axis.

    Returns
    -------
    Axes
        The axes drawn on.
    """
    named = {"tree": trees} if isinstance(trees, Tree) else dict(trees)
    if not named:
        raise InputError("trees must hold at least one tree.")
    if ax is None:
        _, ax = plt.subplots(figsize=(6.0, 4.0), layout="constrained")
    for i, (name, tree) in enumerate(named.items()):
        curve = ari_curve(tree, labels)
        area = float((curve.ari[1:] + curve.ari[:-1]).mean() / 2.0)
        style = _STYLES[i // len(PALETTE) % len(_STYLES)]
        text = f"{plain(name, 40)} ({area:.3f})"
        ax.plot(curve.n_clusters, curve.ari, style, color=PALETTE[i % len(PALETTE)], linewidth=1.6, label=text)
    if log:
        ax.set_xscale("log")
    ax.set_ylim(min(0.0, ax.get_ylim()[0]), 1.02)
    ax.set_xlabel("number of clusters", color=INK, fontsize=9)
    ax.set_ylabel("adjusted Rand index", color=INK, fontsize=9)
    legend = ax.legend(title="area under the curve", frameon=False, fontsize=8.5, loc="lower right")
    legend.get_title().set_fontsize(8.5)
    legend.set_alignment("left")
    tidy_axes(ax)
    return ax


def plot_traces(
    trace: Mapping[str, npt.ArrayLike], burn_in: int = 0, figure: Figure | None = None
) -> npt.NDArray[np.object_]:
    """Draw the trace of every chain, one panel per quantity.

    Parameters
    ----------
    trace : mapping from name to array-like (n_chains, m), (n_chains, m, …), or (m,) of a single chain
        Draws of every quantity. Of a quantity with many entries the first twelve lines are drawn.
    burn_in : int
        How many iterations were dropped; they are shaded and excluded from the effective sample size.
    figure : Figure, optional
        Where to draw; a new figure by default.

    Returns
    -------
    array of Axes (number of quantities,)
        The axes drawn on; each title gives the effective sample size, the lowest for a quantity with many entries.
    """
    if not trace:
        raise InputError("trace must hold at least one quantity.")
    draws = {name: np.asarray(values, dtype=np.float64) for name, values in trace.items()}
    draws = {name: values[None] if values.ndim == 1 else values for name, values in draws.items()}
    for name, values in draws.items():
        if values.ndim == 0 or not 0 <= burn_in < values.shape[1]:
            raise InputError(
                f"burn_in must be between 0 and the number of draws of {name!r} minus one, got {burn_in} "
                f"for shape {values.shape}."
            )
    n_columns = 1 if len(draws) == 1 else 2
    n_rows = -(-len(draws) // n_columns)
    if figure is None:
        figure = plt.figure(figsize=(4.2 * n_columns, 1.9 * n_rows), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax, (name, values) in zip(panels, draws.items(), strict=False):
        _draw_trace(ax, name, values.reshape(*values.shape[:2], -1), burn_in)
    for ax in panels[len(draws) :]:
        ax.remove()
    for ax in panels[max(len(draws) - n_columns, 0) : len(draws)]:
        ax.set_xlabel("iteration", color=INK, fontsize=8.5)
    return np.asarray(panels[: len(draws)])


def _draw_trace(ax: Axes, name: str, chains: Floats, burn_in: int) -> None:
    """Draw chains (C, m, entries): one line per chain and entry."""
    values = np.moveaxis(chains, 0, 1).reshape(chains.shape[1], -1)
    iteration = np.arange(1, len(values) + 1)
    drawn = values[:, :_MOST_LINES]
    for j in range(drawn.shape[1]):
        colour = PALETTE[0] if drawn.shape[1] == 1 else PALETTE[j % len(PALETTE)]
        ax.plot(iteration, drawn[:, j], color=colour, linewidth=1.1, marker="." if len(values) == 1 else None)
    if burn_in:
        ax.axvspan(0.5, burn_in + 0.5, color=FAINT, alpha=0.25, linewidth=0, label="dropped")
    ax.set_xlim(0.5, len(values) + 0.5)
    sizes = np.array([effective_size(chains[:, burn_in:, k]) for k in range(min(chains.shape[2], _MOST_LINES))])
    known = sizes[np.isfinite(sizes)]
    n_kept = chains.shape[0] * (chains.shape[1] - burn_in)
    if not known.size:
        worth = "ESS unknown"
    elif chains.shape[2] == 1:
        worth = f"ESS {known[0]:,.0f} of {n_kept:,}"
    else:
        worth = f"lowest ESS {known.min():,.0f} of {n_kept:,}"
    ax.set_title(plain(name, 30), loc="left", fontsize=9.5, fontweight="bold", color=INK)
    ax.set_title(worth, loc="right", fontsize=8.5, color=INK)
    tidy_axes(ax)
