"""The report on a regression of many outcomes: their tree, what predicts them, how well, and whether to believe it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coaltree._arrays import Bools, Floats
from coaltree.posterior.convergence import RULE, RULE_FOR_MANY
from coaltree.regression.comparison import Comparison
from coaltree.regression.deviances import Deviances
from coaltree.regression.fit import RegressionFit
from coaltree.regression.kernel_ridge import MOST_ROWS
from coaltree.regression.stacking import Stack
from coaltree.report.blocks import code, facts, figure, note, reproduce, table, text, traces
from coaltree.report.clustering import CITATIONS
from coaltree.report.page import Block, Page

OURS = "coalescent"
LEVEL = 0.9
METHOD_NAMES = {
    OURS: "coalescent probit",
    "ml_probit": "probit, maximum likelihood",
    "ml_logit": "logit, maximum likelihood",
    "ridge": "ridge",
    "lasso": "lasso",
    "elastic_net": "elastic net",
    "random_forest": "random forest",
    "wide_ridge": "ridge, for many features",
    "multi_forest": "one forest for all",
    "kernel_ridge": "kernel ridge",
    "boosting": "gradient boosting",
    "classifier_chain": "classifier chain",
    "ridge_stack": "stack with ridge",
}

_MOST_COLUMNS = 40  # features in a picture
_MOST_ROWS = 60  # coefficients in the page; all of them are in the file
_MAJORITY = 0.5
_FORMATS = {"AUROC": ".3f", "AUPRC": ".3f", "Brier": ".4f", "log loss": ".4f", "calibration slope": ".2f"}


@dataclass(frozen=True, kw_only=True)
class RegressionResult:
    """What the report of a regression shows.

    Parameters
    ----------
    title : str
        What was predicted.
    fit : RegressionFit
        The fit to all rows.
    scale : array (K,)
        Standard deviation of every feature; coefficients are shown per standard deviation.
    features, outcomes : tuples of str
        Their names.
    n_rows : int
        Rows that were fitted.
    totals : array (P,)
        Sum of the labels of every outcome: its events.
    comparison : Comparison, Deviances or None
        Cross-validated predictions; the method `OURS` is the coalescent probit.
    parameters : mapping
        Everything that determines the result.
    command : str
        The command that reproduces it.
    notes : tuple of str
        Remarks on the data that a reader must know.
    stack : Stack, optional
        What was learned with features="auto".
    needs : tuple of mappings
        What a table of new rows must contain: one row per column.
    """

    title: str
    fit: RegressionFit
    scale: Floats
    features: tuple[str, ...]
    outcomes: tuple[str, ...]
    n_rows: int
    totals: Floats
    comparison: Comparison | Deviances | None
    parameters: Mapping[str, object]
    command: str
    notes: tuple[str, ...] = ()
    stack: Stack | None = None
    needs: tuple[Mapping[str, str], ...] = ()


def regression_page(result: RegressionResult) -> Page:
    """Build the report."""
    n_outcomes, n_features = result.fit.coef.shape
    page = Page(
        result.title,
        subtitle=f"{n_outcomes:,} outcome{'s' * (n_outcomes != 1)} of {result.n_rows:,} rows, predicted from "
        f"{n_features:,} features by coaltree",
    )
    page.section("The outcomes", *_outcome_blocks(result))
    if isinstance(result.comparison, Deviances):
        page.section("How well it predicts", *_deviance_blocks(result.comparison))
    elif result.comparison is not None:
        page.section("How well it predicts", *_prediction_blocks(result.comparison))
    page.section("Coefficients", *_coefficient_blocks(result))
    if result.fit.tree is not None and n_outcomes > 2:
        page.section("Composite outcomes", *_node_blocks(result))
    if result.stack is not None:
        page.section("What is not linear", *stack_blocks(result.stack, result.outcomes))
    page.section("How certain is this", *_diagnostic_blocks(result.fit))
    if result.needs:
        page.section("Predict new rows", *need_blocks(result.needs, result.stack is not None))
    page.section("Parameters", facts(result.parameters))
    page.section("Reproduce and cite", *reproduce(result.command, "coaltree.results.regress", CITATIONS[:1]))
    return page


def coefficient_rows(fit: RegressionFit, features: tuple[str, ...], outcomes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Posterior mean, deviation and interval of every intercept and coefficient, in the units of the features."""
    draws = np.concatenate([fit.intercept_draws[..., None], fit.coef_draws], axis=-1)
    draws = draws.reshape(-1, *draws.shape[2:])
    low, high = np.quantile(draws, [0.5 - 0.5 * LEVEL, 0.5 + 0.5 * LEVEL], axis=0)
    mean, deviation = draws.mean(axis=0), draws.std(axis=0)
    percent = f"{100 * LEVEL:g}"
    return [
        {
            "outcome": outcome,
            "feature": feature,
            "mean": float(mean[j, k]),
            "sd": float(deviation[j, k]),
            f"low_{percent}": float(low[j, k]),
            f"high_{percent}": float(high[j, k]),
        }
        for j, outcome in enumerate(outcomes)
        for k, feature in enumerate(("(intercept)", *features))
    ]


def sure_of_sign(fit: RegressionFit) -> Bools:
    """Coefficients whose interval excludes zero, (P, K)."""
    draws = fit.coef_draws.reshape(-1, *fit.coef_draws.shape[2:])
    low, high = np.quantile(draws, [0.5 - 0.5 * LEVEL, 0.5 + 0.5 * LEVEL], axis=0)
    return np.asarray((low > 0.0) | (high < 0.0))


# ---- sections


def _outcome_blocks(result: RegressionResult) -> list[Block]:
    from coaltree.plots.layout import canvas
    from coaltree.plots.regression import plot_outcome_tree

    blocks = [_verdict(result.fit)]
    if result.notes:
        blocks.append(note(*result.notes))
    tree, posterior = result.fit.tree, result.fit.posterior
    if tree is not None and posterior is not None:
        support = posterior.expected_overlap(tree)
        n_sure = int(np.count_nonzero(support[:-1] >= _MAJORITY))
        n_outcomes, n_features = result.fit.coef.shape
        shown = _strongest(result)
        fig, ax = canvas(np.clip(5.5 + 0.22 * len(shown), 7.0, 13.0), np.clip(0.21 * n_outcomes + 1.6, 3.2, 12.0))
        plot_outcome_tree(
            tree,
            (result.fit.coef * result.scale)[:, shown],
            ax,
            features=tuple(result.features[k] for k in shown),
            support=support,
            sure=sure_of_sign(result.fit)[:, shown],
        )
        blocks += [
            text(
                "Outcomes that merge early have similar coefficients, and lend each other strength. Dots are groups "
                "with an expected overlap of at least one half, in % where they are not certain. The colours are "
                "the change of the linear predictor when a feature rises by one standard deviation."
            ),
            figure(
                fig,
                alt=f"Tree of {n_outcomes} outcomes and a heat map of their {n_features} coefficients; {n_sure} of "
                f"{max(n_outcomes - 2, 0)} inner groups have an expected overlap of at least one half.",
                caption="Maximum-clade-credibility tree of the outcomes and their coefficients"
                + (f", of the {len(shown)} strongest of {n_features:,} features." if len(shown) < n_features else "."),
            ),
        ]
    binary = all(family.binary for family in result.fit.families)
    share = "share" if binary else "events per row"
    rows = [
        {"outcome": name, "events": int(events), share: events / result.n_rows}
        for name, events, family in sorted(
            zip(result.outcomes, result.totals, result.fit.families, strict=True), key=lambda pair: -pair[1]
        )
        if family.with_events
    ]
    if rows:
        formats = {share: ".2%" if binary else ".3g"}
        blocks.append(table(rows, "Outcomes and their events", formats=formats))
    measured = [
        {"outcome": name, "residual standard deviation": float(sd)}
        for name, sd in zip(result.outcomes, result.fit.residual_sd, strict=True)
        if np.isfinite(sd)
    ]
    if measured:
        blocks.append(table(measured, "Measurements", formats={"residual standard deviation": ".4g"}))
    return blocks


def _deviance_blocks(deviances: Deviances) -> list[Block]:
    n_folds = int(deviances.folds.max()) + 1
    rows = [
        {
            "outcome": row["outcome"],
            "family": row["family"],
            "method": "coalescent regression" if row["method"] == OURS else METHOD_NAMES[row["method"]],
            "deviance": row["deviance"],
            "explained": row["explained"],
            "behind": row["behind"],
            "± error": row["behind_error"],
            "AUROC": row["auroc"],
        }
        for row in deviances.table()
    ]
    return [
        text(
            f"Every row was predicted by models that had not seen it, in {n_folds} folds. The deviance is twice the "
            "log likelihood lost by what a method expects, for measurements the squared error; explained is the share "
            "of it that the mean or overall rate leaves and the method does not. Behind is the deviance above that of "
            "the coalescent regression, with its standard error. AUROC is the area under the ROC curve of binary "
            "outcomes."
        ),
        table(
            rows,
            "Out of fold",
            formats={
                "deviance": ".4g",
                "explained": ".1%",
                "behind": "+.3g",
                "± error": ".2g",
                "AUROC": ".3f",
            },
        ),
    ]


def _prediction_blocks(comparison: Comparison) -> list[Block]:
    from coaltree.plots.layout import canvas
    from coaltree.plots.regression import plot_auc, plot_calibration

    names = [METHOD_NAMES.get(method, method) for method in comparison.methods]
    shown = dict(zip(comparison.methods, names, strict=True))
    n_folds = int(comparison.folds.max()) + 1
    n_outcomes = len(comparison.outcomes)
    fig, ax = canvas(8.0, np.clip((0.16 + 0.045 * len(names)) * n_outcomes + 1.3, 3.0, 16.0))
    plot_auc(comparison, ax, labels=names)
    calibration, calibration_ax = canvas(5.0, 4.8)
    plot_calibration(comparison, calibration_ax, labels=names)
    summary = [_shown_scores(row, shown) for row in comparison.summary()]
    blocks = [
        text(
            f"Every row was predicted by models that had not seen it, in {n_folds} folds that share out the events of "
            "every outcome evenly. Areas under the ROC curve compare rows of the same fold. Intervals are 95% and "
            "from a bootstrap of the rows; differences between methods are paired."
        ),
        table(
            summary,
            "Means over the outcomes; the calibration slope is the median",
            formats=_FORMATS,
        ),
    ]
    if len(names) > 1 and OURS in comparison.methods:
        gaps = [
            {
                "against": shown[row["method"]],
                "difference of mean areas": row["difference"],
                "low": row["low"],
                "high": row["high"],
                "share of resamples ahead": row["probability_above"],
            }
            for row in comparison.differences(OURS, mean_only=True)
        ]
        formats = {"difference of mean areas": "+.4f", "low": "+.4f", "high": "+.4f", "share of resamples ahead": ".0%"}
        blocks.append(table(gaps, "The coalescent probit against each of the others", formats=formats))
    best = _best_words(comparison, shown)
    counts = ("outcome", "n", "events")
    detailed = [{name: row[name] for name in counts} | _shown_scores(row, shown) for row in comparison.table()]
    return [
        *blocks,
        figure(fig, alt=f"Area under the ROC curve of every outcome and method. {best}", caption=best),
        figure(
            calibration,
            alt="Observed share of events against predicted probability, in ten groups, for every method.",
            caption="Calibration of all outcomes together. On the dashed line predictions mean what they say.",
        ),
        table(detailed, "Every outcome and method", formats=_FORMATS),
    ]


def _shown_scores(row: Mapping[str, Any], shown: Mapping[str, str]) -> dict[str, Any]:
    """Scores as a reader sees them."""
    known = row["auroc_low"] == row["auroc_low"]
    return {
        "method": shown[row["method"]],
        "AUROC": row["auroc"],
        "95% interval": f"{row['auroc_low']:.3f} to {row['auroc_high']:.3f}" if known else None,
        "AUPRC": row["auprc"],
        "Brier": row["brier"],
        "log loss": row["log_loss"],
        "calibration slope": row["calibration_slope"],
    }


def _best_words(comparison: Comparison, shown: Mapping[str, str]) -> str:
    known = ~np.isnan(comparison.auroc).any(axis=0)
    if not known.any():
        return "No outcome has both classes."
    means = comparison.auroc[:, known].mean(axis=1)
    order = np.argsort(-means, kind="stable")
    return "Mean areas: " + ", ".join(f"{shown[comparison.methods[m]]} {means[m]:.3f}" for m in order) + "."


def _strongest(result: RegressionResult, most: int = _MOST_COLUMNS) -> list[int]:
    """Features that fit in a figure: those with the largest effects, in the order of the table."""
    size = np.sqrt(np.mean((result.fit.coef * result.scale) ** 2, axis=0))
    return sorted(np.argsort(-size, kind="stable")[:most].tolist())


def _coefficient_blocks(result: RegressionResult) -> list[Block]:
    fit = result.fit
    draws = fit.coef_draws.reshape(-1, *fit.coef_draws.shape[2:]) * result.scale
    low, high = np.quantile(draws, [0.5 - 0.5 * LEVEL, 0.5 + 0.5 * LEVEL], axis=0)
    mean, sure = draws.mean(axis=0), sure_of_sign(fit)
    strongest = np.argsort(-np.where(sure, np.abs(mean), -1.0), axis=None, kind="stable")[:_MOST_ROWS]
    rows = [
        {
            "outcome": result.outcomes[j],
            "feature": result.features[k],
            "coefficient": float(mean[j, k]),
            "low": float(low[j, k]),
            "high": float(high[j, k]),
        }
        for j, k in zip(*np.unravel_index(strongest, mean.shape), strict=True)
        if sure[j, k]
    ]
    counted = (
        f"{int(sure.sum()):,} of {sure.size:,} coefficients have a {LEVEL:.0%} interval that leaves out zero. "
        "All of them, in the units of the features, are in coefficients.csv."
    )
    sizes = table(
        feature_rows(draws, sure, result.features, LEVEL),
        f"Which features matter: root mean square of their effects over the outcomes, with {LEVEL:.0%} intervals",
        formats=dict.fromkeys(("size of its effects", "low", "high"), ".3f"),
    )
    if not rows:
        return [text(counted), sizes]
    caption = f"The {len(rows)} strongest, per standard deviation of the feature, with {LEVEL:.0%} intervals"
    return [text(counted), sizes, table(rows, caption, formats=dict.fromkeys(("coefficient", "low", "high"), "+.3f"))]


def _node_blocks(result: RegressionResult) -> list[Block]:
    from coaltree.plots.layout import canvas
    from coaltree.plots.regression import plot_node_models

    fit = result.fit
    assert fit.tree is not None
    assert fit.posterior is not None
    n_features = min(len(result.features), 30)
    fig, ax = canvas(np.clip(5.0 + 0.24 * n_features, 6.5, 12.5), np.clip(0.24 * len(result.outcomes) + 1.4, 2.6, 12.0))
    plot_node_models(
        fit.tree,
        fit.node_coef * result.scale,
        ax,
        features=result.features,
        support=fit.posterior.expected_overlap(fit.tree),
    )
    return [
        text(
            "Every inner node of the tree is a model of its own: what the outcomes under it have in common. Rings mark "
            "what sets a node apart from the larger group that holds it."
        ),
        figure(
            fig,
            alt=f"Heat map of the coefficients of the {len(result.outcomes) - 1} inner nodes of the outcome tree.",
            caption="Coefficients of the inner nodes, per standard deviation of the feature.",
        ),
    ]


def _verdict(fit: RegressionFit) -> Block:
    return note(fit.convergence.verdict, kind="good" if fit.convergence.converged else "warning")


def _diagnostic_blocks(fit: RegressionFit) -> list[Block]:
    diagnostics, convergence = fit.diagnostics, fit.convergence
    values = {
        "chains": fit.coef_draws.shape[0],
        "kept draws of each": fit.coef_draws.shape[1],
        "largest R-hat of a coefficient": diagnostics["r_hat"],
        "fewest effective draws of a coefficient": diagnostics["bulk_ess"],
        "difference of exact supports between chains": convergence.support_difference,
        "acceptance rate": diagnostics["acceptance"],
    }
    rows = [
        {
            "quantity": name.replace("_", " "),
            "R-hat": ratio,
            "effective draws, bulk": convergence.bulk_ess[name],
            "tail": convergence.tail_ess[name],
        }
        for name, ratio in convergence.r_hat.items()
    ]
    return [
        _verdict(fit),
        facts(values),
        text(f"{RULE} {RULE_FOR_MANY}"),
        table(
            rows,
            "Quantities along the chains",
            formats={"R-hat": ".3f", "effective draws, bulk": ",.0f", "tail": ",.0f"},
        ),
        traces({name: fit.trace[name] for name in convergence.r_hat}, fit.info["burn_in"]),
    ]


# ---- features that matter, nonlinear effects, what new rows must contain

MOST_FEATURES = 25  # in the table of those that matter


def feature_rows(draws: Floats, sure: Bools, features: Sequence[str], level: float) -> list[dict[str, Any]]:
    """The features that matter most, by effects over all outcomes, largest first; draws (S, P, K) per deviation."""
    size = np.sqrt(np.mean(draws**2, axis=1))  # of every draw, over outcomes
    low, high = np.quantile(size, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
    mean, n_sure = size.mean(axis=0), sure.sum(axis=0)
    return [
        {
            "feature": features[k],
            "size of its effects": float(mean[k]),
            "low": float(low[k]),
            "high": float(high[k]),
            "outcomes with a sure sign": int(n_sure[k]),
        }
        for k in np.argsort(-mean, kind="stable")[:MOST_FEATURES]
    ]


def stack_blocks(stack: Stack, outcomes: tuple[str, ...]) -> list[Block]:
    """How much of the risk is linear, and how well each model predicts it."""
    total = {name: float(np.nansum(values)) for name, values in stack.densities.items()}
    gain = total["stack"] - total["rates"]
    linear = (total["linear"] - total["rates"]) / gain if gain > 0 else float("nan")
    used = (
        "Predictions are the stack's: rows left out are predicted better by it than by the linear model."
        if stack.chosen
        else "Predictions are the linear model's: rows left out are predicted no better by the stack."
    )
    names = {
        "linear": "coalescent probit, linear",
        "ridge": "ridge",
        "kernel": "kernel ridge",
        "forest": "one forest for all",
        "stack": "the stack over these",
    }
    rows = [
        {"model": names[name], "gain of log density, all outcomes": total[name] - total["rates"]}
        for name in ("linear", "ridge", "kernel", "forest", "stack")
    ]
    shares = [
        {"outcome": outcome, "linear": float(share), "gain": float(top - rate)}
        for outcome, share, top, rate in zip(
            outcomes, stack.linear_share, stack.densities["stack"], stack.densities["rates"], strict=True
        )
        if share == share
    ]
    known = f"{min(max(linear, 0.0), 1.0):.0%} of what can be predicted is linear. " if linear == linear else ""
    return [
        text(
            f"{known}A forest, ridge regressions, a kernel regression and the linear model predicted rows that they "
            f"had not seen; a second coalescent regression learned how much each is worth. {used} Coefficients, tree "
            "and composite outcomes on this page are those of the linear model."
        ),
        table(
            rows,
            "Log density of rows left out, above that of the rates alone",
            formats={"gain of log density, all outcomes": "+,.1f"},
        ),
        table(
            shares,
            "The part of each outcome's gain that is linear",
            formats={"linear": ".0%", "gain": "+,.1f"},
        ),
    ]


def need_blocks(needs: Sequence[Mapping[str, str]], with_rows: bool) -> list[Block]:
    """What a table of new rows must contain, and whether the model holds rows of the old one."""
    held = f" The file holds up to {MOST_ROWS:,} rows of the features, for the kernel regression." if with_rows else ""
    return [
        text(f"The model is in model.npz.{held} It predicts the rows of a table with these columns, in any order:"),
        code("coaltree regress predict model.npz new.csv --out predicted.csv"),
        table(list(needs), "What the model needs"),
    ]
