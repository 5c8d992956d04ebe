"""The report on a clustering: interactive tree with the data beside it, co-clustering, fit, diagnostics, provenance.

The fit of the model is shown by left-out densities of the models compared, and by the rows that fit badly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree.posterior.coclustering import MOST_PAIRED, mean_sharing, separated, sharing_of_rows, spread_rows
from coaltree.posterior.convergence import RULE, Convergence
from coaltree.posterior.diagnostics import effective_size
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.left_out import Compared, describe
from coaltree.report.blocks import facts, figure, note, reproduce, table, text, traces, widget
from coaltree.report.columns import ColumnsResult, column_blocks
from coaltree.report.page import Block, Page, asset, packed
from coaltree.report.tree_data import heat_data, tree_data
from coaltree.tree import Tree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from coaltree.plots.layout import TimeScale


LEVEL = 0.9
# A row is listed as not fitting if a row drawn like the others would be as far off with less than this probability.
UNLIKELY = 0.01
CITATIONS = (
    "R. Henao and J. E. Lucas. Efficient model-based clustering with coalescents: Application to multiple outcomes "
    "using medical records data.",
    "Y. W. Teh, H. Daumé III and D. Roy. Bayesian agglomerative clustering with coalescents. Advances in Neural "
    "Information Processing Systems 20, 2008.",
    "D. Görür and Y. W. Teh. An efficient sequential Monte Carlo algorithm for coalescent clustering. Advances in "
    "Neural Information Processing Systems 21, 2008.",
)

_OUTLIERS = "Rows in grey are outliers: they stay apart until most others have merged, and belong to no cluster."
_MOST_CELLS = 400  # rows of the co-clustering matrix in the page
_MOST_OVERLAID = 250  # leaves up to which an overlay of trees can still be read
_N_OVERLAID = 100
# Entries of a vector or matrix whose draws are examined.
_MOST_ENTRIES = 100
_SCRIPTS = ("clustering_model.js", "clustering_view.js", "clustering_tree.js", "clustering_matrix.js")
_TOGETHER = (
    '<canvas class="matrix" tabindex="0" role="img"></canvas><div class="legend" aria-hidden="true"></div>'
    '<div class="detail" aria-live="polite"><p>Point at the matrix, or move over it with the arrow keys.</p></div>'
)


@dataclass(frozen=True, kw_only=True)
class ClusteringResult:
    """What the report of a clustering shows.

    Parameters
    ----------
    title : str
        What was clustered.
    tree : Tree
        The tree that represents the posterior; its names are the rows' names.
    posterior : TreePosterior
        The weighted trees.
    X : array (n, d)
        The data as measured; NaN where missing.
    features : tuple of str
        Names of the d columns.
    levels : tuple of tuples of str
        For each column with levels, their names, X holding their positions; () for numbers.
    told : ColumnsResult, optional
        What the columns say about splits.
    n_clusters : int
        The number of clusters chosen.
    chosen_by : str
        How that number was chosen, as a sentence.
    trace : mapping from name to array (n_chains, m, …)
        Draws of the learned quantities, warm-up included.
    warmup : int
        Draws of each chain that were dropped.
    parameters : mapping
        Everything that determines the result.
    command : str
        The exact command or program that reproduces it.
    scores : mapping from number of clusters to score
        Higher is better; may be empty.
    evidence : tuple of mappings
        What speaks for the chosen number of clusters and for others about as good (`coaltree.results.how_many`).
    notes : tuple of str
        Remarks on the data that a reader must know.
    warnings : tuple of str
        Why the result should not be taken at face value: shown first on the page.
    convergence : Convergence, optional
        Convergence diagnostics of the chains.
    compared : mapping from model to Compared, optional
        Leave-one-out densities of the models compared, the best first.
    surprise : array (n,), optional
        Probability of a row that fits as badly as this one, if each row has its own noise.
    labels : array (n,), optional
        Cluster of every row, −1 for outliers. Default: the cut of the tree.
    cut_order : array, optional
        Merges between rows that are not outliers, in the order in which they are undone as clusters are added. Default:
        the last merge first.
    """

    title: str
    tree: Tree
    posterior: TreePosterior
    X: Floats
    features: tuple[str, ...]
    n_clusters: int
    chosen_by: str
    trace: Mapping[str, Floats]
    warmup: int
    parameters: Mapping[str, object]
    command: str
    scores: Mapping[int, float] = field(default_factory=dict)
    evidence: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    convergence: Convergence | None = None
    compared: Mapping[str, Compared] | None = None
    surprise: Floats | None = None
    labels: Ints | None = None
    cut_order: Ints | None = None
    levels: tuple[tuple[str, ...], ...] = ()
    told: ColumnsResult | None = None

    @cached_property
    def clusters(self) -> Ints:
        """Cluster of every row, (n,)."""
        return self.tree.cut(n_clusters=self.n_clusters) if self.labels is None else self.labels

    @cached_property
    def overlap(self) -> Floats | None:
        """Expected overlap of every clade of the tree, (n−1,); None if there is only one tree."""
        return self.posterior.expected_overlap(self.tree) if len(self.posterior) > 1 else None

    @cached_property
    def exact(self) -> Floats | None:
        """Exact support of every clade of the tree, (n−1,); None if there is only one tree."""
        return self.posterior.clade_support(self.tree) if len(self.posterior) > 1 else None

    @cached_property
    def intervals(self) -> Floats | None:
        """Intervals of the merge times, (n−1, 2); None if there is only one tree."""
        return self.posterior.time_intervals(self.tree, LEVEL) if len(self.posterior) > 1 else None


def clustering_page(result: ClusteringResult) -> Page:
    """Build the report."""
    n, d = result.X.shape
    page = Page(result.title, subtitle=f"{n:,} rows, {d:,} columns, clustered into a tree by coaltree")
    if result.warnings:
        page.section("Read this first", note(*result.warnings, kind="warning"))
    page.section("The tree", *_tree_blocks(result))
    if result.told is not None:
        blocks = column_blocks(result.told, result.tree, result.overlap, result.clusters)
        page.section("What sets them apart", *blocks)
    if len(result.posterior) > 1:
        page.section("Who belongs together", *_together_blocks(result))
    page.section("How certain is this", *_diagnostic_blocks(result))
    if result.compared is not None or result.surprise is not None:
        page.section("Does the model fit", *fit_blocks(result.compared, result.surprise, result.tree))
    page.section("Parameters", facts(result.parameters))
    page.section("Reproduce and cite", *reproduce(result.command, "coaltree.results.cluster", CITATIONS))
    return page


# ---- the tree


def _tree_blocks(result: ClusteringResult) -> list[Block]:
    blocks = [
        text(
            "Time runs from the rows, on the right, back to the root. Rows that merge early are alike. The cut decides "
            f"the clusters: {result.chosen_by} Move the slider to see other cuts. "
            + _OUTLIERS
            * bool((result.clusters < 0).any()),
        )
    ]
    if result.notes:
        blocks.append(note(*result.notes))
    data = _widget_data(result)
    shown = len(data["heat"]["columns"])
    if shown < len(result.features):
        blocks.append(note(f"The page shows {shown:,} of the {len(result.features):,} columns, evenly spread."))
    if data["shortened"]:
        blocks.append(note("The names of the rows are shortened here; labels.csv has them in full, in the same order."))
    script = "".join(asset(name) for name in _SCRIPTS)
    blocks.append(widget(asset("clustering.html"), data, script, asset("clustering.css"), name="clustering"))
    if len(result.evidence) > 1:
        blocks.append(_evidence_table(result))
    if result.scores:
        blocks.append(figure(_score_figure(result), alt=_score_text(result), caption=_score_text(result)))
    return blocks


def _widget_data(result: ClusteringResult) -> dict[str, Any]:
    # Matplotlib is heavy, and this package must import without it.
    from coaltree.plots.layout import PALETTE

    return {
        **tree_data(result.tree, result.overlap, result.exact, result.intervals),
        "level": LEVEL,
        "palette": list(PALETTE),
        "n_clusters": result.n_clusters,
        "order": None if result.cut_order is None else packed(np.asarray(result.cut_order, dtype=np.int32)),
        "outliers": np.flatnonzero(result.clusters < 0).tolist(),
        "heat": heat_data(result.X, result.features, result.levels),
    }


def _evidence_table(result: ClusteringResult) -> Block:
    rows = [
        {
            "clusters": each["n_clusters"],
            "separation": each["score"],
            "draws that choose it": each["share_of_draws"],
            "expected overlap": each["mean_expected_overlap"],
            "of the least certain": min(each["expected_overlap"]),
            "rows of each": ", ".join(f"{size:,}" for size in each["cluster_sizes"]),
            "compared with those chosen": each["groups"],
        }
        for each in result.evidence
    ]
    percentages = ("separation", "draws that choose it", "expected overlap", "of the least certain")
    return table(
        rows,
        "Numbers of clusters about as good, one inside the other: by how much earlier rows merge with their own "
        "(separation), the share of draws that would choose the number, and how far its clusters are certain",
        formats=dict.fromkeys(percentages, ".0%"),
        sortable=False,
        stacked=True,
    )


def _score_figure(result: ClusteringResult) -> Figure:
    from coaltree.plots.layout import INK, PALETTE, canvas, tidy_axes

    numbers = sorted(result.scores)
    fig, ax = canvas(6.0, 2.2)
    ax.plot(numbers, [result.scores[k] for k in numbers], color=PALETTE[0], marker=".", linewidth=1.2)
    if result.n_clusters in result.scores:
        ax.plot([result.n_clusters], [result.scores[result.n_clusters]], "o", color=PALETTE[1], markersize=8)
    ax.set_xlabel("number of clusters", color=INK, fontsize=9)
    ax.set_ylabel("score", color=INK, fontsize=9)
    tidy_axes(ax)
    return fig


def _score_text(result: ClusteringResult) -> str:
    best = sorted(result.scores, key=lambda k: -result.scores[k])[:3]
    listed = ", ".join(f"{k} ({result.scores[k]:.3g})" for k in best)
    return f"Score of each number of clusters, the mean silhouette by merge times. Highest: {listed}."


# ---- pairs


def _together_blocks(result: ClusteringResult) -> list[Block]:
    from coaltree.plots.layout import ladderised_order
    from coaltree.plots.matrices import block_means

    n, posterior = result.tree.n_leaves, result.posterior
    order = ladderised_order(result.tree)[::-1]
    labels = separated(result.clusters)
    n_cut = int(labels.max()) + 1
    within, between = mean_sharing(posterior, labels)
    if n <= MOST_PAIRED:
        rows = order
        small = block_means(posterior.coclustering(n_cut)[np.ix_(order, order)], _MOST_CELLS)
        reduced = f" Each cell is a mean over about {n / len(small):.1f} rows." if len(small) < n else ""
    else:
        rows = spread_rows(order, labels, _MOST_CELLS)
        small = sharing_of_rows(posterior, rows, n_cut)
        reduced = (
            f" The matrix has {len(rows)} of the {n:,} rows: of every cluster its share, evenly spread along the tree, "
            "and two at least. The means above are over all rows."
        )
    n_apart = n_cut - result.n_clusters
    outliers = f" and {n_apart} outlier{'s' * (n_apart > 1)}" * (n_apart > 0)
    summary = (
        f"Two rows of the same cluster are together in {within:.0%} of the posterior on average, two rows of "
        f"different clusters in {between:.0%}."
    )
    data = {
        "values": packed(np.rint(255.0 * np.clip(small, 0.0, 1.0)).astype(np.uint8)),
        "rows": packed(rows.astype(np.int32)),
        "label": f"Matrix of the probability that two rows share a cluster, rows in the order of the tree. {summary}",
    }
    return [
        text(
            f"Every tree of the posterior, cut into {result.n_clusters} clusters{outliers}: how probable is it that "
            f"two rows share one? {summary} The bars along the edges are the clusters of the tree at the cut shown "
            "above." + reduced,
        ),
        widget(_TOGETHER, data, "".join(asset(name) for name in _SCRIPTS), asset("clustering.css"), name="together"),
    ]


# ---- does the model fit


def fit_blocks(compared: Mapping[str, Compared] | None, surprise: Floats | None, tree: Tree) -> list[Block]:
    """The models compared, the best first, and rows that do not fit."""
    blocks = []
    if compared is not None:
        rows = [
            {
                "model": name,
                "log density of left-out rows": each.elpd,
                "difference to the best": each.difference,
                "± (standard error)": each.difference_se,
                "weight": each.weight,
                "share of rows with high k̂": each.share_high_k,
            }
            for name, each in compared.items()
        ]
        blocks += [
            text(describe(compared)),
            table(rows, caption="Leave-one-out comparison, by short chains", stacked=True),
        ]
    if surprise is not None:
        order = np.argsort(surprise)
        odd = order[surprise[order] < UNLIKELY]
        names = tree.names or tuple(map(str, range(tree.n_leaves)))
        if len(odd):
            blocks.append(
                text(
                    f"{len(odd):,} of {tree.n_leaves:,} rows fit badly: a row drawn like the others is as far "
                    f"off with a probability below {UNLIKELY:g}. Each has been given the noise that it needs, so that "
                    "it does not bend the tree, and its place in the tree means little."
                )
            )
            rows = [{"row": names[i], "probability of fitting as badly": float(surprise[i])} for i in odd[:20]]
            blocks.append(table(rows, caption="Rows that do not fit" + (", the first 20" if len(odd) > 20 else "")))
        else:
            blocks.append(text("Every row fits: none is farther off than its noise explains."))
    return blocks


# ---- how certain


def _diagnostic_blocks(result: ClusteringResult) -> list[Block]:
    posterior, told = result.posterior, result.convergence
    kept = {name: np.asarray(values)[:, result.warmup :] for name, values in result.trace.items()}
    rows = [row for name, values in kept.items() for row in _trace_rows(name, values)]
    numbers: dict[str, object] = {"trees in the posterior": len(posterior)}
    if told is not None:
        numbers |= {
            "chains": told.n_chains,
            "highest R-hat": max(told.r_hat.values()),
            "least effective draws, bulk": min(told.bulk_ess.values()),
            "least effective draws, tail": min(told.tail_ess.values()),
            "effective draws of a clade, median": told.clade_ess,
            "difference of exact supports between chains": told.support_difference,
            "their correlation": told.support_correlation,
        }
    if result.overlap is not None:
        error = result.posterior.overlap_error(result.tree)
        numbers["Monte Carlo error of an expected overlap, median"] = (
            float(np.median(error[:-1])) if error[:-1].size else 0.0
        )
    numbers |= {
        "highest log joint": float(posterior.log_joint.max()),
        "branches with an expected overlap of 50% or more": _n_clear(result),
    }
    blocks = [_verdict(result), facts(numbers)]
    if told is not None:
        blocks.append(
            text(
                f"{RULE} Judged are {', '.join(each.replace('_', ' ') for each in told.r_hat)} and the tree; single "
                "entries of a covariance may move more slowly. Expected overlaps are means over draws: another seed "
                "moves them by about their Monte Carlo error, which linkage.csv and tree.nex give for every branch.",
            )
        )
    if rows:
        blocks.append(table(rows, caption="What was learned besides the tree: draws after warm-up", stacked=True))
        blocks.append(traces(result.trace, result.warmup))
    if result.tree.n_leaves <= _MOST_OVERLAID:
        blocks.append(_overlay(result))
    return blocks


def _n_clear(result: ClusteringResult) -> int | str:
    if result.overlap is None:
        return f"not known: one {'greedy ' * (result.posterior.info.get('method') == 'greedy')}tree"
    return int((result.overlap[:-1] >= 0.5).sum())


def _verdict(result: ClusteringResult) -> Block:
    if len(result.posterior) == 1:
        return note(
            "There is one tree only, so there are no overlaps and nothing here shows uncertainty. Sample trees to "
            "learn what to believe.",
            kind="warning",
        )
    if result.convergence is None:  # trees that no chain drew
        return note("There are no chains to be compared.")
    return note(result.convergence.verdict, kind="good" if result.convergence.converged else "warning")


def _trace_rows(name: str, values: Floats) -> list[dict[str, Any]]:
    """One row per entry of a quantity (C, m, …); for a large one, only the entry that mixes worst."""
    flat = values.reshape(*values.shape[:2], -1)
    sizes = [effective_size(flat[..., j]) for j in range(min(flat.shape[2], _MOST_ENTRIES))]
    if flat.shape[2] > 12:
        worst = int(np.argmin([size if np.isfinite(size) else np.inf for size in sizes]))
        return [_trace_row(f"{name}: slowest of {len(sizes)} entries", flat[..., worst], sizes[worst])]
    return [
        _trace_row(name if flat.shape[2] == 1 else f"{name} {j + 1}", flat[..., j], size)
        for j, size in enumerate(sizes)
    ]


def _trace_row(name: str, draws: Floats, size: float) -> dict[str, Any]:
    low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95])
    return {
        "quantity": name.replace("_", " "),
        "median": float(middle),
        "5%": float(low),
        "95%": float(high),
        "draws": draws.size,
        "effective draws": size,
    }


def _overlay(result: ClusteringResult) -> Block:
    from coaltree.plots.densitree import plot_densitree
    from coaltree.plots.layout import canvas

    fig, ax = canvas(8.4, np.clip(0.16 * result.tree.n_leaves + 1.0, 3.0, 10.0))
    scale: TimeScale = "linear" if result.tree.n_leaves <= 40 else "sqrt"
    trees = min(_N_OVERLAID, len(result.posterior))
    plot_densitree(result.posterior, ax, max_trees=trees, reference=result.tree, time_scale=scale)
    return figure(
        fig,
        alt="Trees of the posterior drawn over each other: where they agree the lines are dark.",
        caption=f"{trees} trees of the posterior over each other; black: the tree of this page. Haze is uncertainty.",
        pixels=True,
    )
