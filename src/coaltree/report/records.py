"""The report of a records study: attrition, factors, tree, scores, calibration, cost, and every rule in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coaltree._version import __version__
from coaltree.records.cohort import CohortRule
from coaltree.records.evaluation import PROBIT
from coaltree.records.features import TRANSFORMERS
from coaltree.records.study import FEWEST, StudyResult, calibration_bins, calibration_rows, shown_count
from coaltree.report.blocks import facts, figure, note, table, text
from coaltree.report.page import Page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = {
    PROBIT: "coalescent probit",
    "ml_probit": "maximum likelihood (probit)",
    "ml_logit": "maximum likelihood (logit)",
    "ridge": "ridge",
    "lasso": "lasso",
    "elastic_net": "elastic net",
    "random_forest": "random forest",
}
_LOW_ESS = 100


def method_name(method: str) -> str:
    """Return a method as readers know it."""
    return _NAMES.get(method, method)


def draw_figures(result: StudyResult) -> dict[str, Figure]:
    """Return the figures of a study by the name of their file."""
    from matplotlib.figure import Figure

    from coaltree.plots.records import plot_cost_curves, plot_cost_node
    from coaltree.plots.regression import plot_auc, plot_calibration

    labels = [method_name(method) for method in result.cross_validation.methods]
    figures = {}
    comparisons = {"cross-validation": result.cross_validation}
    if result.temporal is not None:
        comparisons["temporal"] = result.temporal
    for name, comparison in comparisons.items():
        fig = Figure(figsize=(7.5, 1.6 + 0.34 * len(comparison.outcomes)), layout="constrained")
        plot_auc(
            comparison,
            fig.add_subplot(),
            labels=labels,
            events=[str(shown_count(int(n))) for n in comparison.n_events],
            level=result.config.validation.level,
        )
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
    return figures


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
        facts(_imported(result)),
    )
    page.section("Outcomes", table(result.outcomes, "Events in the horizon, and labels that are undefined"))
    page.section(
        "Areas under the ROC curve",
        table(
            _auc_rows(result), "Area under the ROC curve, scored on the linear predictor", formats=_auc_formats(result)
        ),
        *(
            figure(figures[f"auc-{name}"], f"Dot plot of areas under the ROC curve, {name}.", f"{name.capitalize()}.")
            for name in ("cross-validation", "temporal")
            if f"auc-{name}" in figures
        ),
        *_comparison_blocks(result),
    )
    page.section(
        "Calibration",
        *(
            figure(
                figures[f"calibration-{name}"],
                f"Observed against predicted rates, {name}.",
                f"All outcomes together, {name}.",
            )
            for name in ("cross-validation", "temporal")
            if f"calibration-{name}" in figures
        ),
        table(
            [row for row in calibration_rows(result.temporal or result.cross_validation) if row["method"] == PROBIT],
            "The coalescent probit by groups of rising prediction, all outcomes pooled"
            + (", temporal validation" if result.temporal is not None else ", cross-validation"),
            columns=["group", "labels", "events", "predicted", "observed", "low", "high"],
        ),
    )
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
    page.section("Methods", text(*methods_text(result)))
    page.write(path)


def _people(result: StudyResult) -> str:
    return " and ".join(f"{n:,}" for n in result.facts["n_subjects"]) + " subjects"


def _summary(result: StudyResult) -> list[str]:
    sentences = []
    named = {"cross-validation": result.cross_validation, "temporal validation": result.temporal}
    for name, comparison in named.items():
        if comparison is None:
            continue
        means = {row["method"]: row for row in comparison.summary(level=result.config.validation.level)}
        own = means[PROBIT]
        line = (
            f"In {name} the coalescent probit has a mean area under the ROC curve of {own['auroc']:.3f} "
            f"({own['auroc_low']:.3f} to {own['auroc_high']:.3f}) over {len(comparison.outcomes)} outcomes"
        )
        others = [
            f"{row['difference']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f}) against {method_name(row['method'])}"
            for row in comparison.differences(PROBIT, level=result.config.validation.level, mean_only=True)
        ]
        sentences.append(line + (f"; its difference is {', '.join(others)}." if others else "."))
    if result.separation is not None:
        best = result.separation.best
        sentences.append(
            f"The node of the outcome tree chosen to foretell cost is {result.node_name(best)}: the rank correlation "
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
    blocks = []
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


def _auc_rows(result: StudyResult) -> list[dict[str, Any]]:
    rows = []
    for row in result.auc_table():
        renamed = {}
        for key, value in row.items():
            method, _, rest = key.partition(" ")
            renamed[f"{method_name(method)}, {rest}" if method in _NAMES else key] = value
        rows.append(renamed)
    return rows


def _auc_formats(result: StudyResult) -> dict[str, str]:
    return {key: ".3f" for row in _auc_rows(result)[:1] for key, value in row.items() if isinstance(value, float)}


def _comparison_blocks(result: StudyResult) -> list[Any]:
    blocks = []
    for name, comparison in (("cross-validation", result.cross_validation), ("temporal validation", result.temporal)):
        if comparison is None:
            continue
        level = result.config.validation.level
        rows = [{**row, "method": method_name(row["method"])} for row in comparison.summary(level=level)]
        blocks.append(table(rows, f"Means over outcomes, {name}", formats={"seconds": ".0f"}))
    return blocks


def _tree_caption(result: StudyResult) -> str:
    caption = "Outcomes whose risks are alike merge early. Dots: posterior support of the clade, in per cent."
    if result.separation is not None:
        caption += " Circle: the node chosen to foretell cost."
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
            result.node_table()[:15], "The nodes that separate training cost best", formats={"best_in_resamples": ".0%"}
        )
    )
    if result.facts["unpriced"]:
        blocks.append(table(result.facts["unpriced"], "Codes without a price, which cost nothing here"))
    return blocks


def window_text(rule: CohortRule) -> str:
    """Return the two windows in words."""
    first, last = rule.lookback
    begin, end = rule.horizon
    return (
        f"Features are counted from day {first} to day {last}, and outcomes and costs from day {begin} to day {end}, "
        "both ends included, where day 0 is the calendar day of the threshold."
    )


def methods_text(result: StudyResult) -> list[str]:
    """Return the methods in full, a paragraph each."""
    study, rule = result.config, result.config.cohort
    prior = {
        "mask": "If an outcome had happened before the horizon, its label is undefined and not used.",
        "remove": "Subjects who had had any of the outcomes before the horizon are removed.",
        "keep": "Outcomes count whether or not they had happened before.",
    }[rule.prior_outcome]
    death = {
        "censor": "Death before the end of the horizon leaves the labels of other outcomes that had not happened "
        "undefined.",
        "negative": "Outcomes that had not happened by a death in the horizon are labelled as not happened.",
    }[rule.death]
    inclusion = result.facts["inclusion"] if study.outcomes.inclusion else None
    within = "at any time" if rule.inclusion_days is None else f"within {rule.inclusion_days} days"
    cohort = [
        f"Thresholds: {', '.join(result.facts['thresholds'])}. {window_text(rule)}",
        "Observation of a subject ends with death, with the event OBSERVATION_END, or with the data, whichever is "
        "first; events after that day are ignored, events on it count. Subjects must be under observation on the first "
        f"day of the horizon. Minimum history: {rule.min_history_days} days. Minimum follow-up: "
        f"{rule.min_follow_up_days} days, or until death.",
        (
            f"Subjects must have one of these codes {within} before the threshold: {inclusion}."
            if inclusion
            else "No codes were required for inclusion."
        ),
    ]
    labels = (
        "An outcome has happened (1) if one of its codes is dated in the horizon; otherwise the label is undefined if "
        f"observation ended before the horizon did, and else 0. {prior} {death} Outcomes with fewer than "
        f"{study.outcomes.min_events} events among training subjects are left out."
    )
    excluded = f", without codes that begin with {', '.join(study.features.exclude)}" if study.features.exclude else ""
    features = (
        f"Codes were counted by subject in one spelling{excluded}. Codes of at least {study.features.min_subjects} "
        f"training subjects were used ({result.facts['n_codes']} codes); the square roots of their counts were reduced "
        f"to {study.features.n_factors} factors by {TRANSFORMERS[study.features.transformer]} and standardised. In "
        "every fold factors were fitted to the training subjects alone and applied to the others."
    )
    model = (
        f"The coalescent probit ran {study.model.n_chains} chain(s) of {study.model.n_iter} iterations, the first "
        f"{study.model.burn_in} dropped (final fit: R-hat {result.facts['r_hat']:.3f}, effective sample size "
        f"{result.facts['bulk_ess']:.0f}). Baselines: {', '.join(map(method_name, study.model.baselines)) or 'none'}."
    )
    validation = (
        f"{study.validation.n_folds}-fold cross-validation on the first threshold, folds stratified over all outcomes; "
        + (
            "temporal validation by fitting to the whole first cohort and predicting the second, whose subjects may "
            "overlap with the first. "
            if result.temporal is not None
            else "no temporal validation. "
        )
        + "Areas under the ROC curve are of the linear predictor, within folds; outcomes of one class have none. "
        f"Intervals ({study.validation.level:.0%}) and differences are from {study.validation.n_resamples} bootstrap "
        "resamples of subjects, the same for all methods."
    )
    paragraphs = [*cohort, labels, features, model, validation]
    if result.separation is not None:
        source = {
            "prices": "the price of each billed code; codes without a price cost nothing",
            "observed": "the payments that events carry",
        }[study.cost.source]
        criterion = {
            "rank": "Spearman's correlation of risk with cost over the horizon, subjects who left weighted out by the "
            "inverse probability of staying; of the nodes within one standard error of the highest, the one with most "
            "outcomes",
            "gap": "the difference in mean cost between the quarters with the highest and the lowest risk",
        }[study.cost.criterion]
        paragraphs.append(
            f"Cost is {source}. The node of the tree was chosen in the training cohort by {criterion}. Mean cumulative "
            "cost of quarters of risk weights each day's cost by the inverse of the Kaplan–Meier probability, within "
            "the quarter, of still being observed (Bang and Tsiatis, with partitions of one day); death ends cost "
            f"without censoring. Bands are {study.cost.level:.0%} pointwise intervals of {study.cost.n_resamples} "
            "bootstrap resamples."
        )
    paragraphs.append(
        f"Numbers of subjects from 1 to {FEWEST - 1} are not shown, and rules that remove so few are merged. Seed "
        f"{study.seed}; coaltree {__version__}."
    )
    return paragraphs
