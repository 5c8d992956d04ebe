"""What a reviewer asks of a prediction model: who was studied, curves with intervals, subgroups, and what drives it.

Everything here may be shown: it is made of the outcomes whose scores are (`coaltree.records.publishing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Bools, Floats
from coaltree.records.cohort import Cohort
from coaltree.records.labels import Labels
from coaltree.records.privacy import FEWEST, outcome_digits, rounded, score_digits, shown_count, shown_parts
from coaltree.records.publishing import calibration_rows, chosen_outcomes, shown
from coaltree.regression import scores
from coaltree.regression.comparison import Comparison
from coaltree.regression.table import Table

AGE_BANDS = ((0, 18), (18, 40), (40, 55), (55, 65), (65, 75), (75, 200))
N_RESAMPLES = 100
N_POINTS = 41  # of a curve
N_DRIVERS = 6  # regressors shown for each outcome
CURVE_DIGITS = 3


class Curve(NamedTuple):
    """A curve with a pointwise bootstrap band, all (N_POINTS,)."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats


class OutcomeCurves(NamedTuple):
    """The curves of one outcome: ROC, precision by recall, net benefit by the probability at which one would act."""

    outcome: str
    prevalence: float
    roc: Curve
    precision: Curve
    benefit: Curve
    treat_all: Floats
    calibration: Table


@dataclass(frozen=True)
class Review:
    """Tables and curves of one method on one set of labels."""

    table_one: Table
    curves: tuple[OutcomeCurves, ...] = ()
    subgroups: Table = field(default_factory=Table)
    drivers: Table = field(default_factory=Table)
    what: str = "cross-validation"


class Group(NamedTuple):
    """One cohort of Table 1."""

    name: str
    labels: Labels
    female: Floats
    n_codes: Floats  # recorded before the threshold, by subject

    @property
    def cohort(self) -> Cohort:
        """The subjects."""
        return self.labels.cohort


# ---- Table 1


def table_one(groups: Sequence[Group], outcomes: Sequence[str]) -> Table:
    """Return the characteristics of cohorts on day 0, a column each; small numbers are hidden."""
    columns = [_characteristics(group, outcomes) for group in groups]
    return Table(
        {"characteristic": name, **{group.name: column[name] for group, column in zip(groups, columns, strict=True)}}
        for name in columns[0]
    )


def _characteristics(group: Group, outcomes: Sequence[str]) -> dict[str, str]:
    cohort, n = group.cohort, len(group.cohort)
    age = cohort.age
    found = {"subjects": f"{n:,}", "age in years, mean (SD)": _moments(age)}
    parts = [int(((age >= low) & (age < high)).sum()) for low, high in AGE_BANDS]
    names = [f"age {_band(low, high)}" for low, high in AGE_BANDS]
    found |= _shares([*names, "age not known"], [*parts, n - sum(parts)], n)
    women, men = int((group.female == 1.0).sum()), int((group.female == 0.0).sum())
    found |= _shares(["women", "men", "sex not known"], [women, men, n - women - men], n)
    follow = np.minimum(cohort.last_day - cohort.threshold, cohort.rule.horizon[1])
    low, middle, high = np.quantile(follow, [0.25, 0.5, 0.75])
    found["days followed, median (quartiles)"] = f"{middle:.0f} ({low:.0f} to {high:.0f})"
    low, middle, high = np.quantile(group.n_codes, [0.25, 0.5, 0.75])
    found["codes recorded before, median (quartiles)"] = f"{middle:.0f} ({low:.0f} to {high:.0f})"
    for j, name in enumerate(outcomes):
        had = int(group.labels.prior[:, j].sum())
        found |= {f"{name} before": _share(had, n)}
    return found


def _shares(names: Sequence[str], parts: Sequence[int], n: int) -> dict[str, str]:
    """Numbers that add up to n: if one is hidden the others are rounded."""
    shown_numbers = shown_parts(parts)
    return {
        name: _share(part, n) if isinstance(text, int) else str(text)
        for name, part, text in zip(names, parts, shown_numbers, strict=True)
    }


def _share(part: int, n: int) -> str:
    text = shown_count(part)
    return f"{part:,} ({part / n:.1%})" if isinstance(text, int) else text


def _moments(values: Floats) -> str:
    known = values[~np.isnan(values)]
    return f"{known.mean():.1f} ({known.std():.1f})" if len(known) >= FEWEST else "not known"


def _band(low: int, high: int) -> str:
    return f"under {high}" if low == 0 else f"{low} and over" if high >= 200 else f"{low} to {high - 1}"


# ---- curves


def outcome_curves(comparison: Comparison, method: str, level: float, seed: int) -> tuple[OutcomeCurves, ...]:
    """Return the curves of every outcome that may be shown."""
    found = shown(comparison)
    if found is None:
        return ()
    probability = found.probability[found.methods.index(method)]
    counts = scores.resample_counts(len(found.Y), N_RESAMPLES, seed)
    weights = np.concatenate([np.ones((1, len(found.Y))), counts.astype(np.float64)])
    curves = []
    for j, outcome in enumerate(found.outcomes):
        rows = [row for row in calibration_rows(chosen_outcomes(found, [j])) if row["method"] == method]
        curves.append(_curves(outcome, found.Y[:, j], probability[:, j], weights, level, Table(rows)))
    return tuple(curves)


def _curves(
    outcome: str, y: Floats, probability: Floats, weights: Floats, level: float, calibration: Table
) -> OutcomeCurves:
    known = ~np.isnan(y) & ~np.isnan(probability)
    y, probability, weights = y[known], probability[known], weights[:, known]
    order = np.argsort(-probability, kind="stable")
    y, probability, weights = y[order], probability[order], weights[:, order]
    ends = np.append(np.flatnonzero(np.diff(probability)), len(y) - 1)  # ties are one step
    prevalence = float(y.mean())
    share = np.linspace(0.0, 1.0, N_POINTS)
    act = np.linspace(0.002, min(0.9, max(4.0 * prevalence, 0.02)), N_POINTS)
    cut = len(y) - np.searchsorted(probability[::-1], act, side="left")  # subjects with at least that probability
    roc, precision, benefit = np.empty((3, len(weights), N_POINTS))
    for b, weight in enumerate(weights):
        true, false = np.cumsum(weight * y), np.cumsum(weight * (1.0 - y))
        n_true, n_false = max(true[-1], 1e-9), max(false[-1], 1e-9)
        roc[b] = np.interp(share, np.append(0.0, false[ends] / n_false), np.append(0.0, true[ends] / n_true))
        place = ends[np.minimum(np.searchsorted(true[ends], share * n_true - 1e-9), len(ends) - 1)]
        precision[b] = true[place] / np.maximum(true[place] + false[place], 1e-9)
        true_cut, false_cut = (np.append(0.0, part)[cut] for part in (true, false))
        benefit[b] = (true_cut - false_cut * act / (1.0 - act)) / (n_true + n_false)
    treat_all = prevalence - (1.0 - prevalence) * act / (1.0 - act)
    return OutcomeCurves(
        outcome,
        round(prevalence, CURVE_DIGITS),
        _banded(share, roc, level),
        _banded(share[1:], precision[:, 1:], level),
        _banded(act, benefit, level, digits=4),
        treat_all.round(4),
        calibration,
    )


def _banded(x: Floats, values: Floats, level: float, digits: int = CURVE_DIGITS) -> Curve:
    low, high = np.quantile(values[1:], [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
    return Curve(x, values[0].round(digits), low.round(digits), high.round(digits))


# ---- subgroups


def subgroup_rows(comparison: Comparison, method: str, cohort: Cohort, female: Floats, level: float) -> Table:
    """Areas under the ROC curve within ages and sexes, outcome by outcome and their mean; few events are withheld."""
    age = cohort.age
    partitions: list[list[tuple[str, Bools]]] = [
        [("women", female == 1.0), ("men", female == 0.0)],
        [(f"age {_band(low, high)}", (age >= low) & (age < high)) for low, high in AGE_BANDS],
    ]
    score = comparison.score[comparison.methods.index(method)]
    counts = scores.resample_counts(len(comparison.Y), N_RESAMPLES, comparison.seed)
    rows = Table()
    total = np.nansum(comparison.Y, axis=0).astype(int)
    digits_of = outcome_digits(comparison.Y)
    for parts in partitions:
        inside = np.stack([mask for _, mask in parts])
        n_subjects = shown_parts([*inside.sum(axis=1).tolist(), int((~inside.any(axis=0)).sum())])
        areas: dict[str, list[Floats]] = {name: [] for name, _ in parts}
        for j, outcome in enumerate(comparison.outcomes):
            y = comparison.Y[:, j]
            events = [int(np.nansum(y[mask])) for _, mask in parts]
            numbers = shown_parts([*events, int(total[j]) - sum(events)])
            for k, (name, mask) in enumerate(parts):
                others = int((y[mask] == 0.0).sum())
                digits = None if digits_of[j] is None else score_digits(events[k], others)
                row: dict[str, Any] = {"group": name, "subjects": n_subjects[k], "outcome": outcome}
                row["events"] = numbers[k]
                if digits is None:
                    row |= {"auroc": np.nan, "low": np.nan, "high": np.nan}
                else:
                    label, values, folds = y[mask], score[mask, j], comparison.folds[mask]
                    resampled = scores.bootstrap_auroc(label, values, folds, counts=counts[:, mask])
                    area = scores.auroc(label, values, folds)
                    low, high = scores.interval(resampled, level)
                    areas[name].append(np.append(area, resampled))
                    row |= {
                        key: rounded(value, digits)
                        for key, value in zip(("auroc", "low", "high"), (area, low, high), strict=True)
                    }
                rows.append(row)
        for k, (name, _) in enumerate(parts):
            if len(areas[name]) > 1:
                mean = np.nanmean(np.stack(areas[name]), axis=0)
                low, high = scores.interval(mean[1:], level)
                found = {"auroc": round(float(mean[0]), 3), "low": round(low, 3), "high": round(high, 3)}
                what = f"mean of {len(areas[name])}"
                rows.append({"group": name, "subjects": n_subjects[k], "outcome": what, "events": None, **found})
    return rows


# ---- drivers


def driver_rows(outcomes: Sequence[str], features: Sequence[str], coef: Floats, draws: Floats, level: float) -> Table:
    """The regressors with the largest coefficients of every outcome, in standard deviations, with intervals.

    `coef` is (P, K) and `draws` (S, P, K), of the posterior.
    """
    low, high = np.quantile(draws, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
    sure = (draws > 0).mean(axis=0)
    rows = Table()
    for j, outcome in enumerate(outcomes):
        for k in np.argsort(-np.abs(coef[j]), kind="stable")[:N_DRIVERS]:
            rows.append(
                {
                    "outcome": outcome,
                    "regressor": features[k],
                    "coefficient": round(float(coef[j, k]), 4),
                    "low": round(float(low[j, k]), 4),
                    "high": round(float(high[j, k]), 4),
                    "probability above 0": round(float(sure[j, k]), 3),
                }
            )
    return rows
