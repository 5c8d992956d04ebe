"""What columns say about clusters and splits: shares of levels as bars, and the columns that set branches apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree.model.columns import Columns
from coaltree.posterior.splits import Apart, Shares
from coaltree.report.blocks import figure, table, text
from coaltree.report.page import Block
from coaltree.tree import Tree

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_MOST_BARS = 12  # columns that are drawn
_MOST_CLUSTERS = 12
_MOST_SPLITS = 40


class ColumnsResult(NamedTuple):
    """What the report shows about columns."""

    columns: Columns
    values: Floats  # (n, J)
    apart: Apart


def column_blocks(told: ColumnsResult, tree: Tree, overlap: Floats | None, labels: Ints) -> list[Block]:
    """Bars of the clusters' levels, and a table of splits."""
    blocks = []
    drawn = _drawn(told, labels)
    if drawn:
        names = ", ".join(told.columns.models[j].name for j in drawn)
        blocks.append(
            figure(
                _bars(told, labels, drawn),
                alt=f"Shares of levels in each cluster, as bars, for {names}; splits.csv and the table show the same.",
                caption="Shares of levels in each cluster; the columns in which clusters differ most.",
            )
        )
    blocks.append(
        text(
            "Each row below is a split of the tree, the last merges first: the columns in which its two sides differ "
            "most, and the probability, given this tree, that the direction is right. splits.csv has all splits.",
        )
    )
    shares = Shares(tree, told.columns, told.values)
    blocks.append(
        table(
            _split_rows(told, tree, overlap, shares),
            caption="What sets the sides of a split apart",
            formats={"time": ".3g", "expected overlap": ".0%"},
            stacked=True,
        )
    )
    return blocks


def split_words(told: ColumnsResult, tree: Tree, shares: Shares, k: int, place: int) -> tuple[str, str]:
    """Name of the column at a given place in merge k's ranking, and how the sides differ in it."""
    j = int(told.apart.column[k, place])
    left, right = tree.children[k].tolist()
    return told.columns.models[j].name, shares.says(left, right, j)


def _split_rows(told: ColumnsResult, tree: Tree, overlap: Floats | None, shares: Shares) -> list[dict[str, Any]]:
    rows = []
    n = tree.n_leaves
    for k in range(n - 2, max(n - 2 - _MOST_SPLITS, -1), -1):
        left, right = tree.children[k].tolist()
        row: dict[str, Any] = {
            "rows": f"{shares.size[left]:,} and {shares.size[right]:,}",
            "time": float(tree.times[k]),
            "expected overlap": float("nan") if overlap is None else float(overlap[k]),
        }
        for place in range(told.apart.column.shape[1]):
            name, words = split_words(told, tree, shares, k, place)
            title = ("differs most in", "then in", "and in")[min(place, 2)]
            sure = told.apart.sure[k, place]
            row[title] = f"{name}: {words} ({'over 99%' if sure > 0.99 else f'{sure:.0%}'} sure)"
        rows.append(row)
    return rows


def _drawn(told: ColumnsResult, labels: Ints) -> list[int]:
    """Columns with levels in which clusters differ most, by the distance of their shares from the overall shares."""
    gaps = {}
    for j, model in enumerate(told.columns.models):
        if model.n_levels:
            shares = _shares(told.values[:, j], labels, model.n_levels)
            gaps[j] = float(np.nanmean(np.abs(shares[1:] - shares[0]).sum(axis=1)))
    return sorted(gaps, key=lambda j: -gaps[j])[:_MOST_BARS]


def _shares(values: Floats, labels: Ints, n_levels: int) -> Floats:
    """Shares of levels over all rows and in each cluster, (1 + K, L); NaN where nothing is known."""
    groups = [np.ones(len(labels), dtype=bool), *(labels == k for k in range(int(labels.max()) + 1))]
    counts = np.array(
        [np.bincount(values[own & ~np.isnan(values)].astype(int), minlength=n_levels) for own in groups], dtype=float
    )
    with np.errstate(invalid="ignore"):
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _bars(told: ColumnsResult, labels: Ints, drawn: list[int]) -> Figure:
    from matplotlib.figure import Figure

    from coaltree.plots.layout import INK, PALETTE

    order = np.argsort(-np.bincount(labels[labels >= 0]), kind="stable")[:_MOST_CLUSTERS]
    names = ["all rows", *(f"cluster {k}" for k in order)]
    wide = min(3, len(drawn))
    tall = -(-len(drawn) // wide)
    height = tall * (0.9 + 0.2 * len(names))
    fig = Figure(figsize=(min(2.8 * wide + 0.8, 8.4), height), layout="constrained")
    axes = fig.subplots(tall, wide, squeeze=False)
    for ax in axes.ravel()[len(drawn) :]:
        ax.set_axis_off()
    for ax, j in zip(axes.ravel(), drawn, strict=False):
        model = told.columns.models[j]
        shares = np.nan_to_num(_shares(told.values[:, j], labels, model.n_levels)[[0, *(order + 1)]])
        start = np.zeros(len(names))
        for level in range(model.n_levels):
            ax.barh(
                names,
                shares[:, level],
                left=start,
                color=PALETTE[level % len(PALETTE)],
                height=0.8,
                label=model.levels[level] if len(model.levels[level]) < 16 else f"{model.levels[level][:14]}…",
            )
            start += shares[:, level]
        ax.invert_yaxis()
        ax.set_xlim(0.0, 1.0)
        ax.set_xticks([])
        ax.set_title(model.name, fontsize=9, color=INK, loc="left")
        ax.tick_params(labelsize=8, length=0, labelcolor=INK)
        ax.spines[:].set_visible(False)
        if model.n_levels <= 6:
            ax.legend(
                fontsize=8,
                ncols=3,
                handlelength=1.0,
                columnspacing=1.0,
                frameon=False,
                loc="upper center",
                bbox_to_anchor=(0.5, 0.0),
            )
        else:
            ax.set_xlabel(f"{model.n_levels} levels", fontsize=7, color=INK)
    return fig
