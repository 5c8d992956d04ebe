"""The report on a records study: attrition, factors, tree, scores, calibration, cost, methods in words, model card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coaltree.records.bundle import TravellingModel
from coaltree.records.config import FACTORS_ALONE, PROBIT, RIDGE_ALL
from coaltree.records.privacy import shown_count
from coaltree.records.review import (
    WHY_WITHHELD,
    Review,
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
from coaltree.report.drivers import between, node_blocks
from coaltree.report.methods import method_name, methods_text, window_text
from coaltree.report.page import Page
from coaltree.report.review import (
    CALIBRATION,
    draw_review,
    outcome_blocks,
    review_sections,
    table_one_blocks,
    with_commas,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# ---- the card

CARD_LIMITS = (
    "Not for decisions about single patients without a validation of its own where it is to be used: apply it to local "
    "records with `coaltree records apply` and look at calibration and at the subgroups that matter there.",
    "The model ignores codes that the training data did not have, and knows outcomes by their codes alone: "
    "habits of coding differ between places and change with time.",
)


def model_card(model: TravellingModel, review: Review | None = None) -> dict[str, object]:
    """Return what one must know about a model before using it elsewhere."""
    training, rule = model.info["training"], model.rule
    shown_areas = [] if review is None else [row for row in review.subgroups if str(row["outcome"]).startswith("mean")]
    spread = [row["auroc"] for row in shown_areas]
    card: dict[str, object] = {
        "purpose": f"probabilities of {len(model.outcomes.names)} outcome(s) within {rule.horizon_days} days of a "
        "threshold, from codes recorded before it",
        "outcomes": ", ".join(model.outcomes.names),
        "trained on": f"{training['dataset']}, threshold {training['threshold']}, {training['subjects']:,} subjects",
        "eligible": "everybody under observation"
        if model.outcomes.inclusion is None or not model.info["inclusion_used"]
        else f"codes of {model.outcomes.inclusion.name}: {model.outcomes.inclusion.describe()}",
        "windows": window_text(rule),
        "regressors": f"{len(model.info['regressors'])} from {len(model.codes)} codes",
        "model": f"Bayesian {model.info['family']} regression with a coalescent prior over outcomes; probabilities are "
        f"means over {len(model.arrays['coef_draws'])} posterior draws",
        "mean area in subgroups": f"{min(spread):.3f} to {max(spread):.3f}" if spread else None,
        "versions": ", ".join(f"{name} {version}" for name, version in model.info["versions"].items()),
        "file": "model.npz holds codes, factors, windows, definitions, coefficients and versions, and no row of a "
        "patient",
    }
    return {key: value for key, value in card.items() if value is not None}


_NODE_COLUMNS = {"rank_correlation": "correlation", "gap_highest_lowest_quarter": "gap", "best_in_resamples": "best"}


def draw_figures(result: StudyResult) -> dict[str, Figure]:
    """Return the figures of a study by file name; outcomes whose scores are withheld appear in none."""
    from matplotlib.figure import Figure

    from coaltree.plots.records import plot_cost_curves, plot_cost_node
    from coaltree.plots.regression import plot_auc, plot_calibration

    labels = [method_name(method, result.config) for method in result.cross_validation.methods]
    figures = {}
    for name, whole in result.comparisons().items():
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
        best = None if result.separation is None else result.separation.best
        page.section(
            "The tree of the outcomes",
            figure(figures["tree"], "Dendrogram of the outcomes.", _tree_caption(result)),
            *node_blocks(result.node_models, result.config.validation.level, best),
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
    """Return the title of each comparison by the name of its files."""
    validation = "Held-out subjects" if result.facts.get("held_out") else "Temporal validation"
    titles = {"cross-validation": "Cross-validation", "temporal": validation}
    return {name: titles[name] for name in result.comparisons()}


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
                with_commas(rows),
                f"The {method_name(PROBIT, result.config)} by groups of rising prediction, all outcomes, {which}",
                columns=["group", "labels", "events", "predicted", "observed", "low", "high"],
            )
        )
    return blocks


def _withheld(result: StudyResult) -> list[Any]:
    blocks = []
    for name, title in _titles(result).items():
        hidden = withheld(result.comparisons()[name])
        if hidden:
            blocks.append(note(f"{WHY_WITHHELD}. {title}: {', '.join(hidden)}."))
    return blocks


def _people(result: StudyResult) -> str:
    return " and ".join(f"{n:,}" for n in result.facts["n_subjects"]) + " subjects"


def _summary(result: StudyResult) -> list[str]:
    sentences = []
    level = result.config.validation.level
    for key, comparison in result.comparisons().items():
        name = _titles(result)[key].lower()
        means = {row["method"]: row for row in summary_rows(comparison, level)}
        if not means:
            sentences.append(f"{WHY_WITHHELD}, which in {name} is all of them.")
            continue
        own, n_outcomes = means[PROBIT], len(comparison.outcomes) - len(withheld(comparison))
        line = (
            f"In {name} the {method_name(PROBIT, result.config)} has a mean area under the ROC curve of "
            f"{own['auroc']:.3f} ({own['auroc_low']:.3f} to {own['auroc_high']:.3f}) over {n_outcomes} outcomes"
        )
        others = [
            f"{row['difference']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f}) against "
            f"{method_name(row['method'], result.config)}"
            for row in difference_rows(comparison, PROBIT, level, mean_only=True)
        ]
        sentences.append(line + (f"; its difference is {', '.join(others)}." if others else "."))
    sentences += _factors_alone(result)
    if result.separation is not None:
        found, best = result.separation, result.separation.best
        sentences.append(
            f"The node of the outcome tree chosen to predict cost is {result.node_name(best)}{_cost_support(result)}: "
            f"the rank correlation of its risk and training cost is {found.rank_correlation[best]:.3f} "
            f"({found.low[best]:.3f} to {found.high[best]:.3f}), the highest of any node "
            f"{found.rank_correlation.max():.3f}, and it is the best in {found.chosen[best]:.0%} of resamples."
        )
    if result.curves is not None:
        low, high = result.curves.mean[0, -1], result.curves.mean[-1, -1]
        if low == low and high == high:
            ends = [
                f"{value:,.0f} ({result.curves.low[place, -1]:,.0f} to {result.curves.high[place, -1]:,.0f})"
                for place, value in ((-1, high), (0, low))
            ]
            sentences.append(
                f"In the {_cost_cohort(result)} the quarter with the highest risk costs {ends[0]} on average over "
                f"the horizon, the quarter with the lowest {ends[1]}."
            )
    return sentences


def _factors_alone(result: StudyResult) -> list[str]:
    """Return what factors alone would have lost: the same ridge regression with and without single codes."""
    if not result.config.has_singles:
        return []
    level = result.config.validation.level
    sentences = [
        f"Single codes beside factors change the mean area of a ridge regression by {row['difference']:+.3f} "
        f"({row['low']:+.3f} to {row['high']:+.3f}) in {_titles(result)[key].lower()}: what factors alone would "
        "have lost."
        for key, comparison in result.comparisons().items()
        for row in difference_rows(comparison, RIDGE_ALL, level, mean_only=True)
        if row["method"] == FACTORS_ALONE
    ]
    return sentences or ["No outcome has enough events to show what factors alone would have lost."]


def _cost_support(result: StudyResult) -> str:
    """Return the supports of the node chosen for cost; a single outcome has none."""
    assert result.separation is not None
    for row in result.node_models:
        if row["node"] == result.separation.best:
            return f" (expected overlap {between(row, 'overlap')}, exact support {between(row, 'support')})"
    return ""


def _cost_cohort(result: StudyResult) -> str:
    """Name the subjects whose cost is drawn; without a second cohort they are those the model was fitted to."""
    return "last cohort" if result.temporal is not None else "training cohort (the model was fitted to these subjects)"


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
    blocks.append(note(result.facts["verdict"], kind="good" if result.facts["converged"] else "warning"))
    return blocks


def _imported(result: StudyResult) -> dict[str, object]:
    facts = result.facts["imported"]
    rejected = sum((facts.get("rejected") or {}).values())
    copies = facts.get("duplicates") or {}
    number = shown_count(copies.get("exact_copies", 0))
    n_copies = f"{number:,}" if isinstance(number, int) else number
    return {
        "source": facts["dataset_name"],
        "events": facts.get("n_events"),
        "rows rejected at import": shown_count(rejected),
        "exact copies of events": f"{n_copies}, {'dropped' if copies.get('policy') == 'drop' else 'kept'}",
        "notes": " ".join(facts.get("notes") or []) or "none",
    }


def _auc_tables(result: StudyResult) -> list[Any]:
    """One table per validation, one column per method: narrow enough to fit the page."""
    blocks = []
    for name, title in _titles(result).items():
        comparison = result.comparisons()[name]
        rows = []
        for row in auc_rows({name: comparison}, comparison.outcomes):
            short = {key.removesuffix(f" {name}"): value for key, value in row.items()}
            rows.append({method_name(key, result.config): value for key, value in short.items()})
        formats = {method_name(method, result.config): ".3f" for method in comparison.methods}
        caption = f"{title}: area under the ROC curve, scored on the linear predictor"
        blocks.append(table(rows, caption, formats=formats))
    return blocks


def _comparison_blocks(result: StudyResult) -> list[Any]:
    blocks = []
    for name, title in _titles(result).items():
        found = summary_rows(result.comparisons()[name], result.config.validation.level)
        rows = [
            {
                "method": method_name(row["method"], result.config),
                "area": f"{row['auroc']:.3f} ({row['auroc_low']:.3f} to {row['auroc_high']:.3f})".replace(" ", "\xa0"),
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
    caption = "Outcomes whose risks are alike merge early. Dots: expected overlap of the clade, in per cent."
    if result.separation is not None:
        caption += " Circle: the node chosen to predict cost."
    return caption


def _cost_blocks(result: StudyResult, figures: dict[str, Figure]) -> list[Any]:
    blocks: list[Any] = []
    if "cost" in figures and result.curves is not None:
        node = result.node_name(result.separation.best)  # type: ignore[union-attr]
        caption = (
            f"Subjects of the {_cost_cohort(result)}, by quarters of the risk of {node}. "
            f"Bands: {result.curves.level:.0%} pointwise bootstrap intervals, {result.curves.n_resamples} resamples."
        )
        blocks.append(figure(figures["cost"], "Mean cumulative cost by quarters of risk.", caption))
    blocks.append(
        table(
            [{_NODE_COLUMNS.get(key, key): value for key, value in row.items()} for row in result.node_table()[:15]],
            "The nodes that separate training cost best: rank correlation of risk and cost, difference in cost between "
            "the highest and the lowest quarter of risk, and share of resamples in which a node is the best; low and "
            f"high are the {result.config.cost.level:.0%} bootstrap interval of the correlation",
            formats={"best": ".0%"},
        )
    )
    if result.facts["unpriced"]:
        blocks.append(table(result.facts["unpriced"], "Codes without a price, which cost nothing here"))
    return blocks
