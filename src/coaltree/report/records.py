"""The report of a records study: attrition, factors, tree, scores, calibration, cost, and every rule in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coaltree.records.evaluation import PROBIT
from coaltree.records.privacy import shown_count
from coaltree.records.review import (
    WHY_WITHHELD,
    auc_rows,
    calibration_bins,
    calibration_rows,
    difference_rows,
    shown,
    summary_rows,
    withheld,
)
from coaltree.records.study import StudyResult
from coaltree.report.blocks import facts, figure, note, table, text
from coaltree.report.page import Page
from coaltree.report.records_text import CARD_LIMITS, method_name, methods_text, model_card
from coaltree.report.review import CALIBRATION, draw_review, outcome_blocks, review_sections, table_one_blocks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOW_ESS = 100
_NODE_COLUMNS = {"rank_correlation": "correlation", "gap_highest_lowest_quarter": "gap", "best_in_resamples": "best"}


def draw_figures(result: StudyResult) -> dict[str, Figure]:
    """Return the figures of a study by the name of their file; outcomes whose scores are withheld are in none."""
    from matplotlib.figure import Figure

    from coaltree.plots.records import plot_cost_curves, plot_cost_node
    from coaltree.plots.regression import plot_auc, plot_calibration

    labels = [method_name(method) for method in result.cross_validation.methods]
    figures = {}
    comparisons = {"cross-validation": result.cross_validation}
    if result.temporal is not None:
        comparisons["temporal"] = result.temporal
    for name, whole in comparisons.items():
        comparison = shown(whole)
        if comparison is None:
            continue
        fig = Figure(figsize=(7.5, 1.6 + 0.34 * len(comparison.outcomes)), layout="constrained")
        level = result.config.validation.level
        plot_auc(comparison, fig.add_subplot(), labels=labels, level=level)
        figures[f"auc-{name}"] = fig
        fig = Figure(figsize=(5.0, 4.6), layout="constrained")
        plot_calibration(comparison, fig.add_subplot(), labels=labels, n_bins=calibration_bins(comparison))
        figures[f"calibration-{name}"] = fig
    if result.tree is not None:
        fig = Figure(figsize=(6.8, 1.2 + 0.27 * result.tree.n_leaves), layout="constrained")
        best = None if result.separation is None else result.separation.best
        plot_cost_node(result.tree, best, fig.add_subplot(), support=result.support)
        figures["tree"] = fig
    if result.curves is not None:
        fig = Figure(figsize=(6.8, 4.3), layout="constrained")
        plot_cost_curves(result.curves, fig.add_subplot())
        figures["cost"] = fig
    return figures | draw_review(result.review)


def write_report(result: StudyResult, figures: dict[str, Figure], path: str | Path) -> None:
    """Write the page."""
    study, thresholds = result.config, result.facts["thresholds"]
    page = Page(study.title, subtitle=f"Threshold {' and '.join(thresholds)}; {_people(result)}")
    page.section("Summary", text(*_summary(result)), *_warnings(result))
    page.section(
        "Who was studied",
        *(
            table(rows, f"Threshold {threshold}: subjects left after each rule", sortable=False)
            for threshold, rows in zip(thresholds, result.attrition, strict=True)
        ),
        *table_one_blocks(result.review),
        facts(_imported(result)),
    )
    page.section("Outcomes", *outcome_blocks(result.outcomes, thresholds))
    page.section(
        "Areas under the ROC curve",
        *_auc_tables(result),
        *_withheld(result),
        *(
            figure(figures[f"auc-{name}"], f"Dot plot of areas under the ROC curve, {name}.", f"{title}.")
            for name, title in _titles(result).items()
            if f"auc-{name}" in figures
        ),
        *_comparison_blocks(result),
    )
    for heading, blocks in review_sections(result.review, figures, result.config.validation.level):
        page.section(heading, *(_pooled_calibration(result, figures) if heading == CALIBRATION else ()), *blocks)
    if "tree" in figures:
        page.section(
            "The tree of the outcomes", figure(figures["tree"], "Dendrogram of the outcomes.", _tree_caption(result))
        )
    if result.separation is not None:
        page.section("Future cost", *_cost_blocks(result, figures))
    page.section(
        "Factors",
        table(result.factors, "Heaviest codes of each factor, with their share of its weight", sortable=False),
    )
    if result.model is not None:
        page.section("Model card", facts(model_card(result.model, result.review)), text(*CARD_LIMITS))
    page.section("Methods", text(*methods_text(result)))
    page.write(path)


def _titles(result: StudyResult) -> dict[str, str]:
    validation = "Held-out subjects" if result.facts.get("held_out") else "Temporal validation"
    return {"cross-validation": "Cross-validation", "temporal": validation}


def _pooled_calibration(result: StudyResult, figures: dict[str, Figure]) -> list[Any]:
    blocks = [
        figure(
            figures[f"calibration-{name}"],
            f"Observed against predicted rates, {name}.",
            f"All outcomes together, {title.lower()}.",
        )
        for name, title in _titles(result).items()
        if f"calibration-{name}" in figures
    ]
    rows = [row for row in calibration_rows(result.temporal or result.cross_validation) if row["method"] == PROBIT]
    if rows:
        which = _titles(result)["temporal" if result.temporal is not None else "cross-validation"].lower()
        blocks.append(
            table(
                rows,
                f"The coalescent probit by groups of rising prediction, all outcomes pooled, {which}",
                columns=["group", "labels", "events", "predicted", "observed", "low", "high"],
            )
        )
    return blocks


def _withheld(result: StudyResult) -> list[Any]:
    blocks = []
    for name, title in _titles(result).items():
        comparison = result.comparisons().get(name)
        hidden = withheld(comparison) if comparison is not None else []
        if hidden:
            blocks.append(note(f"{WHY_WITHHELD}. {title}: {', '.join(hidden)}."))
    return blocks


def _people(result: StudyResult) -> str:
    return " and ".join(f"{n:,}" for n in result.facts["n_subjects"]) + " subjects"


def _summary(result: StudyResult) -> list[str]:
    sentences = []
    validation = _titles(result)["temporal"].lower()
    named = {"cross-validation": result.cross_validation, validation: result.temporal}
    for name, comparison in named.items():
        if comparison is None:
            continue
        level = result.config.validation.level
        means = {row["method"]: row for row in summary_rows(comparison, level)}
        if not means:
            sentences.append(f"{WHY_WITHHELD}, which in {name} is all of them.")
            continue
        own, n_outcomes = means[PROBIT], len(comparison.outcomes) - len(withheld(comparison))
        line = (
            f"In {name} the coalescent probit has a mean area under the ROC curve of {own['auroc']:.3f} "
            f"({own['auroc_low']:.3f} to {own['auroc_high']:.3f}) over {n_outcomes} outcomes"
        )
        others = [
            f"{row['difference']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f}) against {method_name(row['method'])}"
            for row in difference_rows(comparison, PROBIT, level, mean_only=True)
        ]
        sentences.append(line + (f"; its difference is {', '.join(others)}." if others else "."))
    if result.separation is not None:
        best = result.separation.best
        sentences.append(
            f"The node of the outcome tree chosen to predict cost is {result.node_name(best)}: the rank correlation "
            f"of its risk and training cost is {result.separation.rank_correlation[best]:.3f}, the highest "
            f"of any node {result.separation.rank_correlation.max():.3f}."
        )
    if result.curves is not None:
        low, high = result.curves.mean[0, -1], result.curves.mean[-1, -1]
        sentences.append(
            f"In the last cohort the quarter with the highest risk costs {high:,.0f} on average over the horizon, the "
            f"quarter with the lowest {low:,.0f}."
        )
    return sentences


def _warnings(result: StudyResult) -> list[Any]:
    blocks = [note(text, kind="warning") for text in result.facts.get("notes") or []]
    if result.facts["left_out"]:
        blocks.append(
            note(
                f"Left out, with fewer than {result.config.outcomes.min_events} events among training subjects: "
                f"{', '.join(result.facts['left_out'])}.",
                kind="warning",
            )
        )
    if not result.facts["r_hat"] < 1.05 or result.facts["bulk_ess"] < _LOW_ESS:
        blocks.append(
            note(
                f"The chains have not converged well (R-hat {result.facts['r_hat']:.2f}, effective sample size "
                f"{result.facts['bulk_ess']:.0f}): use a larger n_iter before trusting the tree.",
                kind="warning",
            )
        )
    return blocks


def _imported(result: StudyResult) -> dict[str, object]:
    facts = result.facts["imported"]
    rejected = sum((facts.get("rejected") or {}).values())
    copies = facts.get("duplicates") or {}
    return {
        "source": facts.get("dataset_name") or result.config.data.path,
        "events": facts.get("n_events"),
        "rows rejected at import": shown_count(rejected),
        "exact copies of events": f"{shown_count(copies.get('exact_copies', 0))}, {copies.get('policy', 'keep')}",
        "notes": " ".join(facts.get("notes") or []) or "none",
    }


def _auc_tables(result: StudyResult) -> list[Any]:
    """A table for each validation, a column a method: narrow enough to be read whole."""
    blocks = []
    for name, title in _titles(result).items():
        comparison = result.comparisons().get(name)
        if comparison is None:
            continue
        rows = []
        for row in auc_rows({name: comparison}, comparison.outcomes):
            short = {key.removesuffix(f" {name}"): value for key, value in row.items()}
            rows.append({method_name(key): value for key, value in short.items()})
        formats = {method_name(method): ".3f" for method in comparison.methods}
        caption = f"{title}: area under the ROC curve, scored on the linear predictor"
        blocks.append(table(rows, caption, formats=formats))
    return blocks


def _comparison_blocks(result: StudyResult) -> list[Any]:
    blocks = []
    for name, title in _titles(result).items():
        comparison = result.comparisons().get(name)
        if comparison is None:
            continue
        found = summary_rows(comparison, result.config.validation.level)
        rows = [
            {
                "method": method_name(row["method"]),
                "area": f"{row['auroc']:.3f} ({row['auroc_low']:.3f} to {row['auroc_high']:.3f})",
                "AUPRC": row["auprc"],
                "Brier": row["brier"],
                "log loss": row["log_loss"],
                "slope": row["calibration_slope"],
                "seconds": row["seconds"],
            }
            for row in found
        ]
        if rows:
            caption = f"Means over outcomes (of the calibration slope, the median), {title.lower()}"
            blocks.append(table(rows, caption, formats={"seconds": ".0f"}))
    return blocks


def _tree_caption(result: StudyResult) -> str:
    caption = "Outcomes whose risks are alike merge early. Dots: posterior support of the clade, in per cent."
    if result.separation is not None:
        caption += " Circle: the node chosen to predict cost."
    return caption


def _cost_blocks(result: StudyResult, figures: dict[str, Figure]) -> list[Any]:
    blocks: list[Any] = []
    if "cost" in figures and result.curves is not None:
        caption = (
            f"Subjects of the last cohort by quarters of the risk of {result.node_name(result.separation.best)}. "  # type: ignore[union-attr]
            f"Bands: {result.curves.level:.0%} pointwise bootstrap intervals, {result.curves.n_resamples} resamples."
        )
        blocks.append(figure(figures["cost"], "Mean cumulative cost by quarters of risk.", caption))
    blocks.append(
        table(
            [{_NODE_COLUMNS.get(key, key): value for key, value in row.items()} for row in result.node_table()[:15]],
            "The nodes that separate training cost best: rank correlation of risk and cost, difference in cost between "
            "the highest and the lowest quarter of risk, and share of resamples in which a node is the best",
            formats={"best": ".0%"},
        )
    )
    if result.facts["unpriced"]:
        blocks.append(table(result.facts["unpriced"], "Codes without a price, which cost nothing here"))
    return blocks
