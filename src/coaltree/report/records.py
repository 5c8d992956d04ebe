"""The report on a records study: attrition, factors, tree, scores, calibration, cost, methods in words, model card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coaltree._version import __version__
from coaltree.records.bundle import TravellingModel
from coaltree.records.censoring import MOST, MOST_GROUPS
from coaltree.records.cohort import CohortRule
from coaltree.records.config import PROBIT, FeatureConfig, StudyConfig
from coaltree.records.factors import TRANSFORMERS
from coaltree.records.features import ALL_TIME
from coaltree.records.privacy import FEWEST, shown_count
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
from coaltree.regression.baselines import ROW_WEIGHTED
from coaltree.report.blocks import facts, figure, note, table, text
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


NAMES = {
    PROBIT: "coalescent probit",
    "ml_probit": "maximum likelihood (probit)",
    "ml_logit": "maximum likelihood (logit)",
    "ridge": "ridge",
    "lasso": "lasso",
    "elastic_net": "elastic net",
    "random_forest": "random forest",
}


def method_name(method: str) -> str:
    """Return the name by which readers know a method."""
    return NAMES.get(method, method)


def window_text(rule: CohortRule) -> str:
    """Return the two windows in words."""
    first, last = rule.lookback
    begin, end = rule.horizon
    return (
        f"Features are counted from day {first} to day {last}, and outcomes and costs from day {begin} to day {end}, "
        "both ends included, where day 0 is the calendar day of the threshold."
    )


def methods_text(result: StudyResult) -> list[str]:
    """Return the methods in full, as paragraphs."""
    study, rule = result.config, result.config.cohort
    prior = {
        "mask": "If an outcome had happened before the horizon, its label is undefined and not used.",
        "remove": "Subjects who had had any of the outcomes before the horizon are removed.",
        "keep": "Outcomes count whether or not they had happened before.",
    }[rule.prior_outcome]
    inclusion = result.facts["inclusion"] if study.outcomes.inclusion else None
    within = "at any time" if rule.inclusion_days is None else f"within {rule.inclusion_days} days"
    cohort = [
        f"Thresholds: {', '.join(result.facts['thresholds'])}. {window_text(rule)}",
        "Subjects must be born by day 0 and under observation on it: within one period from OBSERVATION_START to "
        "OBSERVATION_END, periods that touch being one. In data without any OBSERVATION_START subjects are taken to be "
        + {"always": "always observed until they leave. ", "first_event": "observed from their first event on. "}[
            rule.without_periods
        ]
        + "Observation ends with that period, with death, or with the data, whichever is first; events after that day "
        "are ignored, events on it count. "
        + (
            "The data end with the last event; dates after the day of the study, and the last events of at most one "
            "subject in a hundred if they come more than a year after everybody else's, do not count as such, unless "
            "most subjects have events after the day of the study alone: such dates have been shifted. "
            if rule.data_end is None
            else f"The data end on {rule.data_end}. "
        )
        + f"Minimum history: {rule.min_history_days} days. Minimum follow-up: {rule.min_follow_up_days} days, or until "
        "death.",
        (
            f"Subjects must have one of these codes {within} before the threshold: {inclusion}."
            if inclusion
            else "No codes were required for inclusion."
        ),
    ]
    labels = (
        "An outcome has happened (1) if one of its codes is dated in the horizon; otherwise the label is undefined if "
        f"observation ended before the horizon did, and else 0. {prior} Outcomes with fewer than "
        f"{study.outcomes.min_events} events among training subjects are left out."
    )
    leaving = (
        "Labels were given; subjects without one are left out, whatever the reason."
        if study.outcomes.labels is not None
        else f"{leaving_text(rule, study.outcomes.censoring)}{_row_weighted(study)}"
    )
    excluded = f", without codes that begin with {', '.join(study.features.exclude)}" if study.features.exclude else ""
    features = (
        f"Codes were counted by subject in one spelling{excluded}{_windows(study.features)}. Columns with at least "
        f"{study.features.min_subjects} training subjects were used ({result.facts['n_codes']} columns); the square "
        f"roots of their counts were {_reduction(study.features)} and standardised.{_beside(study.features)} In every "
        "fold factors were fitted to the training subjects alone and applied to the others."
    )
    model = (
        f"The coalescent probit ran {study.model.n_chains} chain(s) of {study.model.n_iter} iterations, the first "
        f"{study.model.burn_in} dropped (final fit: R-hat {result.facts['r_hat']:.3f}, effective sample size "
        f"{result.facts['bulk_ess']:.0f}). Baselines: {', '.join(map(method_name, study.model.baselines)) or 'none'}."
    )
    validation = (
        f"{study.validation.n_folds}-fold cross-validation on the "
        f"{'training cohort' if result.temporal is None else 'first threshold'}, folds stratified over all outcomes; "
        + (
            "validation by fitting to the whole first cohort and predicting the subjects that the data set holds out. "
            if result.facts.get("held_out")
            else "temporal validation by fitting to the whole first cohort and predicting the second, whose subjects "
            "may overlap with the first and whose horizons begin after the first's have ended. "
            if result.temporal is not None and study.validation.overlap == "refuse"
            else "temporal validation by fitting to the whole first cohort and predicting the second, whose subjects "
            "and horizons may overlap with the first's. "
            if result.temporal is not None
            else "no temporal validation. "
        )
        + "Areas under the ROC curve are of the linear predictor, within folds; outcomes of one class have none. "
        f"Intervals ({study.validation.level:.0%}) and differences are from {study.validation.n_resamples} bootstrap "
        "resamples of subjects, the same for all methods."
    )
    paragraphs = [*cohort, labels, leaving, features, model, validation]
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
        f"Numbers of subjects from 1 to {FEWEST - 1} are not shown, numbers that would give them away are bounded "
        f"(370+) or withheld, rules that remove so few are merged, and scores of outcomes with fewer than {FEWEST} "
        f"events are withheld. Seed {study.seed}; coaltree {__version__}."
    )
    return paragraphs


def leaving_text(rule: CohortRule, censoring: str) -> str:
    """Return how subjects count who died or left before their label was known."""
    death = {
        "censor": "Death before the end of the horizon leaves the labels of other outcomes that had not happened "
        "undefined, as leaving does: risks are those in a world without death.",
        "negative": "Death is a competing risk: who died in the horizon without an outcome did not have it (0), and "
        "risks are those of having it before death.",
    }[rule.death]
    if censoring == "drop":
        return (
            f"{death} Subjects who left before their label was known are left out. Those who had the event before they "
            "left are not, so risks are overstated, and calibration, which has the same labels, cannot show it."
        )
    return (
        f"{death} For subjects who left before their label was known others stand in: every known label counts 1/G, "
        "where G is the Kaplan\N{EN DASH}Meier probability of still being observed on the day of the event, of death "
        f"or of the end of the horizon, among subjects with a similar chance of leaving (up to {MOST_GROUPS} groups, "
        "by a model of leaving given codes, other regressors and earlier outcomes). This assumes that leaving depends "
        "on these alone, not on what would have happened next to subjects alike. No label counts more than "
        f"{MOST:g} times, and the weights of an outcome are scaled to their effective number. Fits, baselines, areas, "
        "losses, calibration and decision curves have the same weights."
    )


def _row_weighted(study: StudyConfig) -> str:
    """Name the baselines that cannot use the weights of single labels."""
    found = [method_name(name) for name in study.model.baselines if name in ROW_WEIGHTED]
    if study.outcomes.censoring == "drop" or not found:
        return ""
    return (
        f" Except: {', '.join(found)}, in which a forest or a kernel for all outcomes together has one weight per "
        "subject, the mean over its labels; their risks are too high where many left."
    )


def _windows(features: FeatureConfig) -> str:
    if features.windows is None:
        return ""
    named = ["all time" if days == ALL_TIME else f"{days} days" for days in features.windows]
    return f", in windows of {', '.join(named)} before the threshold"


def _reduction(features: FeatureConfig) -> str:
    if features.transformer == "none":
        return "used without factorisation"
    return f"reduced to {features.n_factors} factors by {TRANSFORMERS[features.transformer]}"


def _beside(features: FeatureConfig) -> str:
    """The regressors besides the factors."""
    parts = [
        text
        for wanted, text in (
            (features.age, "age on day 0"),
            (features.sex, "sex"),
            (features.measurements, "the last value and the yearly trend of numeric codes"),
        )
        if wanted
    ]
    found = f" Beside them stand {', '.join(parts)}, standardised, missing values at the mean." if parts else ""
    if features.days_since:
        found += " For each code 1 / (1 + days since it was last recorded / 30) is a column, too."
    return found


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
        "model": "Bayesian probit regression with a coalescent prior over outcomes; probabilities are means over "
        f"{len(model.arrays['coef_draws'])} posterior draws",
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

    labels = [method_name(method) for method in result.cross_validation.methods]
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
                f"The coalescent probit by groups of rising prediction, all outcomes pooled, {which}",
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
        if low == low and high == high:
            sentences.append(
                f"In the {_cost_cohort(result)} the quarter with the highest risk costs {high:,.0f} on average over "
                f"the horizon, the quarter with the lowest {low:,.0f}."
            )
    return sentences


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
            rows.append({method_name(key): value for key, value in short.items()})
        formats = {method_name(method): ".3f" for method in comparison.methods}
        caption = f"{title}: area under the ROC curve, scored on the linear predictor"
        blocks.append(table(rows, caption, formats=formats))
    return blocks


def _comparison_blocks(result: StudyResult) -> list[Any]:
    blocks = []
    for name, title in _titles(result).items():
        found = summary_rows(result.comparisons()[name], result.config.validation.level)
        rows = [
            {
                "method": method_name(row["method"]),
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
            "the highest and the lowest quarter of risk, and share of resamples in which a node is the best",
            formats={"best": ".0%"},
        )
    )
    if result.facts["unpriced"]:
        blocks.append(table(result.facts["unpriced"], "Codes without a price, which cost nothing here"))
    return blocks
