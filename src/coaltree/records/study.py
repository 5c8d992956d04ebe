"""The study: cross-validation before the first threshold, temporal validation on the second, and future cost.

Everything that identifies a subject stays in a folder for private files; the contents of a StudyResult may be shown:
they include no patient-level data, and no number of patients from 1 to 10.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.records.bundle import TravellingModel
from coaltree.records.config import PROBIT, StudyConfig
from coaltree.records.cost import CostCurves, NodeSeparation, cost_curves, node_separation
from coaltree.records.dataset import StudyData, period_group, prepare_data
from coaltree.records.engine import sweep
from coaltree.records.errors import RecordsError
from coaltree.records.evaluation import cross_validate, feature_names, fit_all, regressors, with_name
from coaltree.records.nodes import node_rows
from coaltree.records.privacy import FEWEST, attrition_tables, shown_count, shown_events, significant
from coaltree.records.review import (
    Review,
    auc_rows,
    calibration_rows,
    difference_rows,
    driver_rows,
    outcome_curves,
    outcome_rows,
    score_rows,
    subgroup_rows,
    summary_rows,
    table_one,
)
from coaltree.records.widths import deviations
from coaltree.regression.comparison import Comparison
from coaltree.rows import Rows
from coaltree.tree import Tree

COST_STEP = 30  # days between points of cost curves


@dataclass(frozen=True, eq=False)
class StudyResult:
    """The results of a study, safe to show.

    Attributes
    ----------
    config : StudyConfig
        The settings.
    attrition : tuple of Rows
        For each threshold: rule, subjects left, subjects removed.
    outcomes : Rows
        Definition, events and undefined labels of every outcome at each threshold.
    factors : Rows
        Heaviest codes of every factor of the whole training cohort.
    cross_validation, temporal : Comparison
        Scores; `temporal` is None with one threshold.
    tree : Tree, optional
        Tree of the outcomes, fitted to the whole training cohort; None for one outcome.
    support : ndarray, optional
        Posterior support of its clades.
    separation, curves : optional
        How well nodes separate training cost; cost by quartiles of the best node's risk in the last cohort.
    facts : dict
        Numbers for the report.
    review : Review, optional
        Table 1, curves, subgroups and drivers, from the validation if there is one, else from cross-validation.
    node_models : Rows
        Supports and regressors of the inner nodes of the tree.
    model : TravellingModel, optional
        What `coaltree records apply` needs; it has no patient-level data.
    """

    config: StudyConfig
    attrition: tuple[Rows, ...]
    outcomes: Rows
    factors: Rows
    cross_validation: Comparison
    temporal: Comparison | None
    tree: Tree | None
    support: Floats | None
    separation: NodeSeparation | None
    curves: CostCurves | None
    facts: dict[str, Any]
    review: Review | None = None
    model: TravellingModel | None = None
    node_models: Rows = field(default_factory=Rows)

    def node_name(self, node: int) -> str:
        """Return an outcome's name, or the outcomes below a node."""
        names = self.cross_validation.outcomes
        if node < len(names) or self.tree is None:
            return names[node]
        return " + ".join(names[leaf] for leaf in self.tree.leaves(node))

    def tables(self) -> dict[str, Rows]:
        """Return every table by the name of its file."""
        found = {f"attrition-{i + 1}": table for i, table in enumerate(self.attrition)}
        found |= {"outcomes": self.outcomes, "factors": self.factors, "auc": self.auc_table()}
        level = self.config.validation.level
        for which, (name, comparison) in enumerate(self.comparisons().items()):
            place = 0 if which == 0 else -1
            labels = {row["outcome"]: row[f"labels {self.facts['thresholds'][place]}"] for row in self.outcomes}
            found[f"scores-{name}"] = score_rows(comparison, labels, level)
            found[f"summary-{name}"] = summary_rows(comparison, level)
            found[f"calibration-{name}"] = calibration_rows(comparison)
            found[f"differences-{name}"] = difference_rows(comparison, PROBIT, level)
        if self.separation is not None:
            found["nodes"] = self.node_table()
        found["node-models"] = self.node_models
        if self.curves is not None:
            found["cost"] = self.cost_table()
        if self.review is not None:
            found |= {"table-one": self.review.table_one, "subgroups": self.review.subgroups}
            found["drivers"] = self.review.drivers
        return {name: table for name, table in found.items() if len(table)}

    def comparisons(self) -> dict[str, Comparison]:
        """Return the comparisons by the name of their files."""
        found = {"cross-validation": self.cross_validation}
        if self.temporal is not None:
            found["temporal"] = self.temporal
        return found

    def auc_table(self) -> Rows:
        """Return areas under the ROC curve laid out as in the paper: one row per outcome, one column per method."""
        return auc_rows(self.comparisons(), self.cross_validation.outcomes)

    def node_table(self) -> Rows:
        """Return how well every node separates training cost, best first."""
        assert self.separation is not None
        order = np.argsort(-self.separation.rank_correlation, kind="stable")
        return Rows(
            {
                "node": int(node),
                "outcomes": self.node_name(int(node)),
                "rank_correlation": round(float(self.separation.rank_correlation[node]), 4),
                "low": round(float(self.separation.low[node]), 4),
                "high": round(float(self.separation.high[node]), 4),
                "gap_highest_lowest_quarter": significant(self.separation.gap[node]),
                "best_in_resamples": float(self.separation.chosen[node]),
                "chosen": int(node) == self.separation.best,
            }
            for node in order
        )

    def cost_table(self) -> Rows:
        """Return mean cumulative cost by quarter of risk at the end of every thirty days."""
        assert self.curves is not None
        n_days = self.curves.mean.shape[1]
        days = [*range(COST_STEP - 1, n_days - 1, COST_STEP), n_days - 1]
        rows = Rows()
        for day in days:
            for quarter in range(len(self.curves.mean)):
                rows.append(
                    {
                        "day": day + 1,
                        "quarter": quarter + 1,
                        "mean_cost": float(self.curves.mean[quarter, day]),
                        "low": float(self.curves.low[quarter, day]),
                        "high": float(self.curves.high[quarter, day]),
                    }
                )
        return rows


def run_study(
    config: StudyConfig, private: str | Path, n_jobs: int = 1, progress: bool = False, connection: Any = None
) -> StudyResult:
    """Run a study, or resume one that was interrupted.

    Parameters
    ----------
    config : StudyConfig
        The settings, from `load_config`.
    private : path
        Folder for imported events, labels and finished fits. It identifies subjects: do not share it.
    n_jobs : int
        Fits that run side by side, as in joblib.
    progress : bool
        Show a bar.
    connection : ibis backend, optional
        Where to run queries instead of an embedded DuckDB.
    """
    folder = Path(private)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it identifies patients
    _tidy(folder)
    data = prepare_data(config, folder, connection)
    smallest = min(len(period.cohort) for period in data.periods)
    if smallest < max(FEWEST, 2 * config.validation.n_folds):
        raise RecordsError(
            f"a cohort of {shown_count(smallest)} subjects is too small: {config.validation.n_folds} folds need "
            f"{2 * config.validation.n_folds}, and fewer than {FEWEST} are not shown."
        )
    cross_validation = cross_validate(data, config, folder, n_jobs, progress)
    fits, temporal = fit_all(data, config, folder, n_jobs, progress)
    tree, support = None, None
    if "children" in fits[PROBIT]:
        tree = Tree(fits[PROBIT]["children"], fits[PROBIT]["times"], data.outcomes.names)
        support = fits[PROBIT]["support"]
    separation, curves = _future_cost(data, config, fits, tree)
    features = fits["features"]
    names = feature_names(features, data.names)
    spread = deviations(regressors(features, "train", data.periods[0].counts))
    model = TravellingModel.from_study(config, data.outcomes, fits, data.names, _training_facts(data))
    return StudyResult(
        config,
        attrition_tables([period.cohort.attrition for period in data.periods]),
        outcome_rows(data.outcomes, {period.threshold: period.labels for period in data.periods}),
        _factor_table(features, data.names),
        cross_validation,
        temporal,
        tree,
        support,
        separation,
        curves,
        {
            "n_subjects": [len(period.cohort) for period in data.periods],
            "thresholds": [period.threshold for period in data.periods],
            "n_codes": int(features["n_codes"]),
            "n_regressors": len(names),
            "n_singles": len(features["singles"]),
            "width": float(features["width"]),
            "left_out": [name for name, _ in data.left_out],
            "r_hat": float(fits[PROBIT]["r_hat"]),
            "bulk_ess": float(fits[PROBIT]["bulk_ess"]),
            "converged": bool(fits[PROBIT]["converged"]),
            "verdict": str(fits[PROBIT]["verdict"]),
            "unpriced": _unpriced(data),
            "imported": {
                key: data.imported.get(key)
                for key in ("dataset_name", "n_subjects", "n_events", "rejected", "duplicates", "notes")
            },
            "inclusion": data.outcomes.inclusion.describe() if data.outcomes.inclusion is not None else None,
            "notes": list(data.notes),
            "held_out": data.held_out,
        },
        _review(data, config, model, cross_validation, temporal, spread),
        model,
        Rows()
        if tree is None
        else node_rows(tree, fits[PROBIT], model.arrays["coef_draws"], names, spread, config.validation.level),
    )


def _tidy(folder: Path) -> None:
    """Remove patient-level data left behind by a run that was killed."""
    sweep(folder)
    for draft in (folder / "fits").glob("*/.*.tmp"):
        draft.unlink(missing_ok=True)


def _review(
    data: StudyData,
    config: StudyConfig,
    model: TravellingModel,
    cross_validation: Comparison,
    temporal: Comparison | None,
    spread: Floats,
) -> Review:
    """Table 1 of all cohorts; curves and subgroups of the last; drivers from the model as it is published.

    Drivers in other units than the model's would reveal the units, and these how many subjects have a code.
    """
    groups = [period_group(period) for period in data.periods]
    last, comparison = (data.periods[-1], temporal) if temporal is not None else (data.periods[0], cross_validation)
    level = config.validation.level
    return Review(
        table_one(groups, data.outcomes.names),
        outcome_curves(comparison, PROBIT, level, config.seed),
        subgroup_rows(comparison, PROBIT, last.cohort, last.female, level),
        driver_rows(
            data.outcomes.names,
            model.info["regressors"],
            model.arrays["coef"],
            model.arrays["coef_draws"],
            level,
            spread,
            model.factors.units,
            model.info["family"],
        ),
        "cross-validation" if temporal is None else "held-out" if data.held_out else "temporal validation",
    )


def _training_facts(data: StudyData) -> dict[str, Any]:
    """What a model card says about the training data."""
    first = data.periods[0]
    return {
        "dataset": data.imported.get("dataset_name"),
        "threshold": first.threshold,
        "subjects": len(first.cohort),
        "events": {name: shown_events(y) for name, y in zip(data.outcomes.names, first.labels.Y.T, strict=True)},
    }


def _future_cost(
    data: StudyData, config: StudyConfig, fits: dict[str, Any], tree: Tree | None
) -> tuple[NodeSeparation | None, CostCurves | None]:
    first, last = data.periods[0], data.periods[-1]
    if first.costs is None or last.costs is None:
        return None, None
    features, coef = fits["features"], fits[PROBIT]["node_coef"]
    sizes = None if tree is None else np.concatenate([np.ones(tree.n_leaves), tree.sizes()])
    separation = node_separation(
        first.costs,
        regressors(features, "train", first.counts) @ coef.T,
        config.cost.criterion,
        random_state=config.seed,
        sizes=sizes,
        level=config.cost.level,
    )
    if len(last.cohort) < 4 * FEWEST:
        return separation, None
    risk = regressors(features, "new", last.counts) @ coef[separation.best]
    curves = cost_curves(
        last.costs,
        risk,
        n_resamples=config.cost.n_resamples,
        level=config.cost.level,
        random_state=config.seed,
        step=COST_STEP,
    )
    return separation, curves


# ---- tables


def _factor_table(features: dict[str, Any], names: dict[str, str]) -> Rows:
    rows = Rows()
    for k, (codes, shares) in enumerate(zip(features["top_code"], features["top_share"], strict=True)):
        texts = [f"{with_name(str(code), names)} ({share:.0%})" for code, share in zip(codes, shares, strict=True)]
        rows.append({"factor": k + 1, "codes": ", ".join(texts)})
    return rows


def _unpriced(data: StudyData) -> list[dict[str, Any]]:
    costs = data.periods[0].costs
    found = [] if costs is None else costs.unpriced.items()
    return [{"code": with_name(code, data.names), "events": shown_count(n)} for code, n in found]
