"""The study: cross-validation before the first threshold, temporal validation on the second, and future cost.

Everything that names a subject stays in a folder for private files; what a StudyResult holds may be shown: no row of
a patient, and no number of patients from 1 to 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree.records.config import StudyConfig
from coaltree.records.cost import CostCurves, NodeSeparation, cost_curves, node_separation
from coaltree.records.errors import RecordsError
from coaltree.records.evaluation import PROBIT, cross_validate, fit_all
from coaltree.records.preparing import StudyData, prepare_data
from coaltree.regression.comparison import Comparison
from coaltree.regression.table import Table
from coaltree.tree import Tree

Floats = npt.NDArray[np.float64]

FEWEST = 11  # the smallest number of patients that is shown


@dataclass(frozen=True, eq=False)
class StudyResult:
    """What a study found, fit to be shown.

    Attributes
    ----------
    config : StudyConfig
        The settings.
    attrition : tuple of Table
        For each threshold: rule, subjects left, subjects removed.
    outcomes : Table
        Definition, events and undefined labels of every outcome at each threshold.
    factors : Table
        Heaviest codes of every factor of the whole training cohort.
    cross_validation, temporal : Comparison
        Scores; `temporal` is None with one threshold.
    tree : Tree, optional
        Tree of the outcomes, fitted to the whole training cohort; None for one outcome.
    support : ndarray, optional
        Posterior support of its clades.
    separation, curves : optional
        Nodes by separation of training cost; cost by quarters of the best node's risk in the last cohort.
    facts : dict
        Numbers for the report.
    """

    config: StudyConfig
    attrition: tuple[Table, ...]
    outcomes: Table
    factors: Table
    cross_validation: Comparison
    temporal: Comparison | None
    tree: Tree | None
    support: Floats | None
    separation: NodeSeparation | None
    curves: CostCurves | None
    facts: dict[str, Any]

    def node_name(self, node: int) -> str:
        """Return an outcome's name, or the outcomes below a node."""
        names = self.cross_validation.outcomes
        if node < len(names) or self.tree is None:
            return names[node]
        return " + ".join(names[leaf] for leaf in self.tree.leaves(node))

    def tables(self) -> dict[str, Table]:
        """Return every table by the name of its file."""
        found = {f"attrition-{i + 1}": table for i, table in enumerate(self.attrition)}
        found |= {"outcomes": self.outcomes, "factors": self.factors, "auc": self.auc_table()}
        for name, comparison in self._comparisons().items():
            level = self.config.validation.level
            found[f"scores-{name}"] = self._suppress(name, comparison.table(level))
            found[f"summary-{name}"] = comparison.summary(level=level)
            found[f"calibration-{name}"] = calibration_rows(comparison)
            found[f"differences-{name}"] = comparison.differences(PROBIT, level=level)
        if self.separation is not None:
            found["nodes"] = self.node_table()
        if self.curves is not None:
            found["cost"] = self.cost_table()
        return found

    def _comparisons(self) -> dict[str, Comparison]:
        found = {"cross-validation": self.cross_validation}
        if self.temporal is not None:
            found["temporal"] = self.temporal
        return found

    def _suppress(self, name: str, table: Table) -> Table:
        """Hide small numbers of events, and numbers of labels that would give away a small number of missing ones."""
        threshold = self.facts["thresholds"][0 if name == "cross-validation" else -1]
        total = self.facts["n_subjects"][0 if name == "cross-validation" else -1]
        hidden = {
            row["outcome"]: any(isinstance(row[f"{why} {threshold}"], str) for why in ("had it before", "censored"))
            for row in self.outcomes
        }
        return Table(
            {**row, "n": shown_labels(row["n"], total, hidden[row["outcome"]]), "events": shown_count(row["events"])}
            for row in table
        )

    def auc_table(self) -> Table:
        """Return areas under the ROC curve as the paper prints them: a row an outcome, a column a method."""
        rows = Table()
        comparisons = self._comparisons()
        for j, outcome in enumerate(self.cross_validation.outcomes):
            row: dict[str, Any] = {"outcome": outcome}
            for name, comparison in comparisons.items():
                row[f"events {name}"] = shown_count(int(comparison.n_events[j]))
                row |= {f"{m} {name}": float(comparison.auroc[i, j]) for i, m in enumerate(comparison.methods)}
            rows.append(row)
        return rows

    def node_table(self) -> Table:
        """Return the separation of training cost by every node, the best first."""
        assert self.separation is not None
        order = np.argsort(-self.separation.rank_correlation, kind="stable")
        return Table(
            {
                "node": int(node),
                "outcomes": self.node_name(int(node)),
                "rank_correlation": float(self.separation.rank_correlation[node]),
                "gap_highest_lowest_quarter": float(self.separation.gap[node]),
                "best_in_resamples": float(self.separation.chosen[node]),
                "chosen": int(node) == self.separation.best,
            }
            for node in order
        )

    def cost_table(self) -> Table:
        """Return mean cumulative cost of the quarters of risk at the end of every thirty days."""
        assert self.curves is not None
        n_days = self.curves.mean.shape[1]
        days = [*range(29, n_days - 1, 30), n_days - 1]
        rows = Table()
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
    """Run a study, or take up one that was interrupted.

    Parameters
    ----------
    config : StudyConfig
        The settings, from `load_config`.
    private : path
        Folder for imported events, labels and finished fits. It names subjects: do not share it.
    n_jobs : int
        Fits that run side by side, as in joblib.
    progress : bool
        Show a bar.
    connection : ibis backend, optional
        Where to run queries instead of an embedded DuckDB.
    """
    folder = Path(private)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it names patients
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
    return StudyResult(
        config,
        tuple(attrition_table(period.cohort.attrition) for period in data.periods),
        _outcome_table(data),
        _factor_table(features),
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
            "left_out": [name for name, _ in data.left_out],
            "r_hat": float(fits[PROBIT]["r_hat"]),
            "bulk_ess": float(fits[PROBIT]["bulk_ess"]),
            "unpriced": _unpriced(data),
            "imported": {
                key: data.imported.get(key)
                for key in ("dataset_name", "n_subjects", "n_events", "rejected", "duplicates", "notes")
            },
            "inclusion": data.outcomes.inclusion.describe() if data.outcomes.inclusion is not None else None,
        },
    )


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
        features["train"] @ coef.T,
        config.cost.criterion,
        random_state=config.seed,
        sizes=sizes,
    )
    if len(last.cohort) < 4 * FEWEST:
        return separation, None
    risk = features["new"] @ coef[separation.best]
    curves = cost_curves(
        last.costs, risk, n_resamples=config.cost.n_resamples, level=config.cost.level, random_state=config.seed
    )
    return separation, curves


# ---- what may be shown


def shown_count(n: int) -> int | str:
    """Return a number of patients, or "<11" for 1 to 10."""
    return f"<{FEWEST}" if 0 < n < FEWEST else n


def shown_labels(n: int, total: int, hidden: bool) -> int | str:
    """Return a number of labels among `total` subjects, down to the ten below if it would tell 1 to 10 others.

    `hidden` says that a part of those without a label is a number that is not shown: the exact n and the other part
    would give it away.
    """
    if 0 < n < FEWEST:
        return shown_count(n)
    return f"{n // 10 * 10}+" if hidden or 0 < total - n < FEWEST else n


def attrition_table(steps: Sequence[tuple[str, int]]) -> Table:
    """Return rule, subjects left and subjects removed; rules that remove 1 to 10 subjects are merged with others."""
    shown, pending = [steps[0]], []
    for text, n in steps[1:]:
        pending.append(text)
        if not 0 < shown[-1][1] - n < FEWEST:
            shown.append(("; ".join(pending), n))
            pending = []
    if pending:  # the last rules removed few and join the step before
        shown[-1] = ("; ".join([shown[-1][0], *pending]), steps[-1][1])
    while len(shown) > 1 and 0 < shown[-2][1] - shown[-1][1] < FEWEST:
        text, n = shown.pop()
        shown[-1] = (f"{shown[-1][0]}; {text}", n)
    before = [shown[0][1], *(n for _, n in shown[:-1])]
    return Table(
        {"rule": text, "left": n, "removed": previous - n} for (text, n), previous in zip(shown, before, strict=True)
    )


def calibration_bins(comparison: Comparison) -> int:
    """Return the largest number of groups, ten at most, of which none of any method has 1 to 10 events."""
    for n_bins in range(10, 1, -1):
        tables = [comparison.calibration_table(method, n_bins=n_bins) for method in comparison.methods]
        if not any(((found.n_events > 0) & (found.n_events < FEWEST)).any() for found in tables):
            return n_bins
    return 1


def calibration_rows(comparison: Comparison) -> Table:
    """Return predicted and observed rates by groups of rising prediction, all outcomes pooled, for every method."""
    rows, n_bins = Table(), calibration_bins(comparison)
    for method in comparison.methods:
        found = comparison.calibration_table(method, n_bins=n_bins)
        few = (found.n_events > 0) & (found.n_events < FEWEST)  # their share would tell their number
        observed, low, high = (np.where(few, np.nan, part) for part in (found.observed, found.low, found.high))
        for k in range(len(found.n)):
            rows.append(
                {
                    "method": method,
                    "group": k + 1,
                    "labels": shown_count(int(found.n[k])),
                    "events": shown_count(int(found.n_events[k])),
                    "predicted": float(found.predicted[k]),
                    "observed": float(observed[k]),
                    "low": float(low[k]),
                    "high": float(high[k]),
                }
            )
    return rows


def _outcome_table(data: StudyData) -> Table:
    rows = Table()
    for j, outcome in enumerate(data.outcomes.outcomes):
        row: dict[str, Any] = {"outcome": outcome.name, "codes": outcome.describe()}
        for period in data.periods:
            Y = period.labels.Y[:, j]
            row |= {
                f"events {period.threshold}": shown_count(int(np.nansum(Y))),
                f"had it before {period.threshold}": shown_count(int(period.labels.prior[:, j].sum())),
                f"censored {period.threshold}": shown_count(int(period.labels.censored[:, j].sum())),
            }
        rows.append(row)
    return rows


def _factor_table(features: dict[str, Any]) -> Table:
    return Table(
        {
            "factor": k + 1,
            "codes": ", ".join(f"{code} ({share:.0%})" for code, share in zip(codes, shares, strict=True)),
        }
        for k, (codes, shares) in enumerate(zip(features["top_code"], features["top_share"], strict=True))
    )


def _unpriced(data: StudyData) -> list[dict[str, Any]]:
    costs = data.periods[0].costs
    return [] if costs is None else [{"code": code, "events": shown_count(n)} for code, n in costs.unpriced.items()]
