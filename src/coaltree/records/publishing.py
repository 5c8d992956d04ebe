"""Scores as they may be shown: of outcomes with enough events, with few enough digits, labels rounded where needed."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.records.privacy import (
    FEWEST,
    is_small,
    outcome_digits,
    rounded_count,
    rounded_row,
    score_digits,
    shown_count,
)
from coaltree.regression import scores
from coaltree.regression.comparison import LEVEL, Comparison
from coaltree.regression.table import Table


class ShownComparison(Comparison):
    """The outcomes of a comparison whose scores may be shown, with areas and rates rounded as they are shown."""

    @cached_property
    def digits(self) -> list[int]:
        """Digits after the point of each outcome's scores."""
        return [digits or 0 for digits in outcome_digits(self.Y)]

    @cached_property
    def auroc(self) -> Floats:
        """Area under the ROC curve, (M, P), rounded."""
        exact = super().auroc
        return np.column_stack([exact[:, j].round(digits) for j, digits in enumerate(self.digits)])

    def intervals(self, level: float = LEVEL) -> Floats:
        """Bootstrap interval of every area, (M, P, 2), rounded."""
        exact = super().intervals(level)
        return np.stack([exact[:, j].round(digits) for j, digits in enumerate(self.digits)], axis=1)

    def calibration_table(self, method: str, outcome: int | None = None, n_bins: int = 10) -> scores.CalibrationTable:
        """Rates by groups of rising prediction, from numbers of labels that are rounded to tens."""
        return rounded_rates(super().calibration_table(method, outcome, n_bins))


def rounded_rates(found: scores.CalibrationTable) -> scores.CalibrationTable:
    """Return rates from numbers of labels down to a ten: an exact rate and the events would tell the labels."""
    n = np.maximum(found.n // 10 * 10, np.maximum(found.n_events, 1))
    observed = found.n_events / n
    # Wilson's interval, at 95 per cent as in the exact table.
    z = 1.959963984540054
    middle = (observed + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(observed * (1 - observed) / n + z**2 / (4 * n**2))
    return scores.CalibrationTable(n, found.n_events, found.predicted.round(4), observed, middle - half, middle + half)


def shown(comparison: Comparison) -> ShownComparison | None:
    """Return what may be shown of a comparison, None if that is no outcome."""
    kept = [j for j, digits in enumerate(outcome_digits(comparison.Y)) if digits is not None]
    return None if not kept else chosen_outcomes(comparison, kept)


def chosen_outcomes(comparison: Comparison, kept: list[int]) -> ShownComparison:
    """Return some outcomes of a comparison, by position."""
    return ShownComparison(
        comparison.methods,
        tuple(comparison.outcomes[j] for j in kept),
        comparison.Y[:, kept],
        comparison.folds,
        comparison.probability[:, :, kept],
        comparison.score[:, :, kept],
        comparison.seconds,
        comparison.n_resamples,
        comparison.seed,
    )


def score_rows(comparison: Comparison, hidden: dict[str, bool], total: int, level: float) -> Table:
    """Every score of every method and outcome; those of outcomes with few events are withheld."""
    rows = Table()
    for row in comparison.table(level):
        n, events = row["n"], row["events"]
        few = hidden.get(row["outcome"], False) or is_small(n) or is_small(total - n)
        labels = rounded_count(n) if few else n
        digits = score_digits(events, n - events)
        rows.append({**rounded_row(row, digits), "n": labels, "events": shown_count(events)})
    return rows


def summary_rows(comparison: Comparison, level: float) -> Table:
    """Means over the outcomes that are shown: with the others, theirs could be subtracted."""
    found = shown(comparison)
    if found is None:
        return Table()
    return Table(rounded_row(row, 4, ("seconds",)) for row in found.summary(level=level))


def difference_rows(comparison: Comparison, reference: str, level: float, mean_only: bool = False) -> Table:
    """Differences of areas, for the outcomes that are shown and for their mean."""
    found = shown(comparison)
    if found is None:
        return Table()
    digits = {**dict(zip(found.outcomes, found.digits, strict=True)), "mean": 4}
    rows = found.differences(reference, level=level, mean_only=mean_only)
    return Table(rounded_row(row, digits[row["outcome"]]) for row in rows)


def calibration_bins(comparison: Comparison, outcome: int | None = None) -> int:
    """Return the largest number of groups, ten at most, of which none of any method has 1 to 10 events."""
    for n_bins in range(10, 1, -1):
        tables = [comparison.calibration_table(method, outcome, n_bins) for method in comparison.methods]
        if not any(is_small(int(n)) for found in tables for n in found.n_events):
            return n_bins
    return 1


def calibration_rows(comparison: Comparison, outcome: int | None = None) -> Table:
    """Return predicted and observed rates by groups of rising prediction, for every method.

    All outcomes that are shown are pooled, or one is taken by its position among those.
    """
    found, rows = shown(comparison), Table()
    if found is None:
        return rows
    n_bins = calibration_bins(found, outcome)
    for method in found.methods:
        groups = found.calibration_table(method, outcome, n_bins)
        for k in range(len(groups.n)):
            few = is_small(int(groups.n_events[k]))  # their share would tell their number
            rate, low, high = (
                math.nan if few else float(part[k]) for part in (groups.observed, groups.low, groups.high)
            )
            rows.append(
                {
                    "method": method,
                    "group": k + 1,
                    "labels": rounded_count(int(groups.n[k])),
                    "events": shown_count(int(groups.n_events[k])),
                    "predicted": float(groups.predicted[k]),
                    "observed": rate,
                    "low": low,
                    "high": high,
                }
            )
    return rows


def auc_rows(comparisons: dict[str, Comparison], outcomes: tuple[str, ...]) -> Table:
    """Areas under the ROC curve as the paper prints them: a row an outcome, a column a method."""
    rows = Table()
    for j, outcome in enumerate(outcomes):
        row: dict[str, Any] = {"outcome": outcome}
        for name, comparison in comparisons.items():
            events = int(comparison.n_events[j])
            digits = outcome_digits(comparison.Y[:, [j]])[0]
            row[f"events {name}"] = shown_count(events)
            row |= rounded_row(
                {f"{m} {name}": float(comparison.auroc[i, j]) for i, m in enumerate(comparison.methods)}, digits
            )
        rows.append(row)
    return rows


def withheld(comparison: Comparison) -> list[str]:
    """Names of the outcomes whose scores are not shown."""
    pairs = zip(comparison.outcomes, outcome_digits(comparison.Y), strict=True)
    return [name for name, digits in pairs if digits is None]


WITHHELD = (
    f"Scores of outcomes with fewer than {FEWEST} events, or fewer than {FEWEST} labels without one, are withheld"
)
