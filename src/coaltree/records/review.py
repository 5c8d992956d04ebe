"""What a reviewer wants to know about a prediction model: who was studied, curves, subgroups, and drivers.

Everything here may be shown (`coaltree.records.privacy`): scores are given only for outcomes with enough events, with
few enough digits, and numbers of labels are rounded where needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Bools, Floats, Ints
from coaltree.records.cohort import Cohort
from coaltree.records.labels import Labels
from coaltree.records.outcomes import OutcomeSet
from coaltree.records.privacy import (
    FEWEST,
    WITHHELD,
    LabelNumbers,
    beside_earlier,
    is_small,
    label_numbers,
    nearly_contained,
    outcome_digits,
    rounded,
    rounded_count,
    rounded_row,
    score_digits,
    shown_count,
    shown_events,
    shown_parts,
    without_prior,
)
from coaltree.regression import scores
from coaltree.regression.comparison import LEVEL, Comparison
from coaltree.rows import Rows


class ShownComparison(Comparison):
    """The outcomes of a comparison whose scores may be shown, with areas and rates rounded as they are shown."""

    @cached_property
    def digits(self) -> list[int]:
        """Decimals of each outcome's scores."""
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
        """Rates by groups of increasing prediction, from numbers of labels rounded to tens."""
        return rounded_rates(super().calibration_table(method, outcome, n_bins))


def rounded_rates(found: scores.CalibrationTable) -> scores.CalibrationTable:
    """Return rates from numbers of labels rounded down to tens: exact rates and events would reveal the labels."""
    n = np.maximum(found.n // 10 * 10, np.maximum(found.n_events, 1))
    observed = found.n_events / n
    # What weights change about a rate and its certainty, with three decimals: factors of 1 without them.
    plain = found.n_events / found.n
    factor = np.divide(found.observed, plain, out=np.ones(len(n)), where=plain > 0).round(3)
    observed, effective = np.minimum(observed * factor, 1.0), n * (found.effective / found.n).round(3)
    limits = scores.wilson(observed, effective)
    return scores.CalibrationTable(n, found.n_events, found.predicted.round(4), observed, effective, *limits)


def shown(comparison: Comparison) -> ShownComparison | None:
    """Return the part of a comparison that may be shown, None if that is no outcome."""
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
        None if comparison.weights is None else comparison.weights[:, kept],
    )


def score_rows(comparison: Comparison, labels: Mapping[str, int | str], level: float) -> Rows:
    """Every score of every method and outcome, with its number of labels; withheld if there are few events."""
    place = {name: j for j, name in enumerate(comparison.outcomes)}
    digits, rows = outcome_digits(comparison.Y), Rows()
    for row in comparison.table(level):
        j = place[row["outcome"]]
        numbers = {"n": labels[row["outcome"]], "events": shown_events(comparison.Y[:, j])}
        rows.append({**rounded_row(row, digits[j]), **numbers})
    return rows


def summary_rows(comparison: Comparison, level: float) -> Rows:
    """Means over the outcomes shown: if the others were included, their scores could be deduced by subtraction."""
    found = shown(comparison)
    if found is None:
        return Rows()
    return Rows(rounded_row(row, 4, ("seconds",)) for row in found.summary(level=level))


def difference_rows(comparison: Comparison, reference: str, level: float, mean_only: bool = False) -> Rows:
    """Differences of areas, for the outcomes shown and for their mean."""
    found = shown(comparison)
    if found is None:
        return Rows()
    digits = {**dict(zip(found.outcomes, found.digits, strict=True)), "mean": 4}
    rows = found.differences(reference, level=level, mean_only=mean_only)
    return Rows(rounded_row(row, digits[row["outcome"]]) for row in rows)


def calibration_bins(comparison: Comparison, outcome: int | None = None) -> int:
    """Return the largest number of groups, at most ten, none with 1 to 10 labels with or without the event."""
    for n_bins in range(10, 1, -1):
        # The exact table, even for a comparison that rounds.
        tables = [Comparison.calibration_table(comparison, m, outcome, n_bins) for m in comparison.methods]
        parts = [n for found in tables for n in (*found.n_events, *(found.n - found.n_events))]
        if not any(is_small(int(n)) for n in parts):
            return n_bins
    return 1


def calibration_rows(comparison: Comparison, outcome: int | None = None) -> Rows:
    """Return predicted and observed rates by groups of increasing prediction, for every method.

    The outcomes shown are pooled, or one is selected by its position among them.
    """
    found, rows = shown(comparison), Rows()
    if found is None:
        return rows
    n_bins = calibration_bins(found, outcome)
    for method in found.methods:
        groups = found.calibration_table(method, outcome, n_bins)
        for k in range(len(groups.n)):
            few = is_small(int(groups.n_events[k]))  # their share would reveal their number
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


def auc_rows(comparisons: dict[str, Comparison], outcomes: tuple[str, ...]) -> Rows:
    """Areas under the ROC curve laid out as in the paper: one row per outcome, one column per method."""
    rows = Rows()
    for j, outcome in enumerate(outcomes):
        row: dict[str, Any] = {"outcome": outcome}
        for name, comparison in comparisons.items():
            digits = outcome_digits(comparison.Y[:, [j]])[0]
            row[f"events {name}"] = shown_events(comparison.Y[:, j])
            row |= rounded_row(
                {f"{m} {name}": float(comparison.auroc[i, j]) for i, m in enumerate(comparison.methods)}, digits
            )
        rows.append(row)
    return rows


def withheld(comparison: Comparison) -> list[str]:
    """Names of the outcomes whose scores are not shown."""
    pairs = zip(comparison.outcomes, outcome_digits(comparison.Y), strict=True)
    return [name for name, digits in pairs if digits is None]


WHY_WITHHELD = (
    f"Scores of outcomes with fewer than {FEWEST} events, or fewer than {FEWEST} labels without one, are withheld"
)


AGE_BANDS = ((0, 18), (18, 40), (40, 55), (55, 65), (65, 75), (75, 200))
N_RESAMPLES = 100
MOST_GROUPS, FEWEST_GROUPS = 40, 3  # of subjects; the points of a curve lie between their predictions
N_DRIVERS = 6  # regressors shown for each outcome
CURVE_DIGITS = 3


class Curve(NamedTuple):
    """A curve with a pointwise bootstrap band, one entry per point."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats


class OutcomeCurves(NamedTuple):
    """The curves of one outcome: ROC, precision by recall, net benefit by threshold probability."""

    outcome: str
    prevalence: float
    roc: Curve
    precision: Curve
    benefit: Curve
    treat_all: Floats
    calibration: Rows


@dataclass(frozen=True)
class Review:
    """Tables and curves of one method on one set of labels."""

    table_one: Rows
    curves: tuple[OutcomeCurves, ...] = ()
    subgroups: Rows = field(default_factory=Rows)
    drivers: Rows = field(default_factory=Rows)
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


# ---- who was studied


def shown_numbers(thresholds: Sequence[Labels]) -> list[list[LabelNumbers]]:
    """Numbers of labels of every outcome at each threshold, as they may be shown beside each other."""
    found = [
        [label_numbers(y, prior) for y, prior in zip(labels.Y.T, labels.prior.T, strict=True)] for labels in thresholds
    ]
    had = [ever for labels in thresholds for ever in (labels.prior, labels.prior | (labels.Y == 1.0))]
    for j in set().union(*map(nearly_contained, had)):
        for numbers in found:
            numbers[j] = without_prior(numbers[j]) if isinstance(numbers[j].prior, int) else numbers[j]
    for labels, numbers in zip(thresholds[1:], found[1:], strict=True):
        if np.isin(labels.cohort.subject, thresholds[0].cohort.subject).any():
            numbers[:] = map(beside_earlier, found[0], numbers)
    return found


def outcome_rows(outcomes: OutcomeSet, thresholds: Mapping[str, Labels]) -> Rows:
    """Definition of every outcome, and for each threshold its labels, its events and why labels are missing."""
    rows, found = Rows(), shown_numbers(list(thresholds.values()))
    for j, outcome in enumerate(outcomes.outcomes):
        row: dict[str, Any] = {"outcome": outcome.name, "codes": outcome.describe()}
        for threshold, of_outcomes in zip(thresholds, found, strict=True):
            numbers = of_outcomes[j]._asdict()
            numbers["had it before"] = numbers.pop("prior")
            numbers["lost"] = _lost(of_outcomes[j])
            row |= {f"{name} {threshold}".strip(): number for name, number in numbers.items()}
        rows.append(row)
    return rows


def _lost(numbers: LabelNumbers) -> str:
    """Return the share of subjects at risk who left before their label was known, from numbers as they are shown."""
    parts = [str(number).removesuffix("+") for number in (numbers.labels, numbers.censored)]
    if not all(part.isdigit() for part in parts):
        return WITHHELD
    labels, censored = map(int, parts)
    return f"{censored / max(labels + censored, 1):.1%}"


def table_one(groups: Sequence[Group], outcomes: Sequence[str]) -> Rows:
    """Return the characteristics of cohorts on day 0, one column per cohort; small numbers are hidden."""
    found = shown_numbers([group.labels for group in groups])
    columns = [
        _characteristics(group, dict(zip(outcomes, numbers, strict=True)))
        for group, numbers in zip(groups, found, strict=True)
    ]
    return Rows(
        {"characteristic": name, **{group.name: column[name] for group, column in zip(groups, columns, strict=True)}}
        for name in columns[0]
    )


def _characteristics(group: Group, outcomes: Mapping[str, LabelNumbers]) -> dict[str, str]:
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
    return found | {f"{name} before": _share(numbers.prior, n) for name, numbers in outcomes.items()}


def _shares(names: Sequence[str], parts: Sequence[int], n: int) -> dict[str, str]:
    """Numbers that add up to n."""
    return {name: _share(number, n) for name, number in zip(names, shown_parts(parts), strict=True)}


def _share(number: int | str, n: int) -> str:
    return f"{number:,} ({number / n:.1%})" if isinstance(number, int) else number


def _moments(values: Floats) -> str:
    known = values[~np.isnan(values)]
    return f"{known.mean():.1f} ({known.std():.1f})" if len(known) >= FEWEST else "not known"


def _band(low: int, high: int) -> str:
    return f"under {high}" if low == 0 else f"{low} and over" if high >= 200 else f"{low} to {high - 1}"


# ---- curves


def outcome_curves(comparison: Comparison, method: str, level: float, seed: int) -> tuple[OutcomeCurves, ...]:
    """Return the curves of every outcome that may be shown and has enough events for a few points."""
    found = shown(comparison)
    if found is None:
        return ()
    probability = found.probability[found.methods.index(method)]
    counts = scores.resample_counts(len(found.Y), N_RESAMPLES, seed)
    weights = np.concatenate([np.ones((1, len(found.Y))), counts.astype(np.float64)])
    curves = []
    for j, outcome in enumerate(found.outcomes):
        y, p = found.Y[:, j], probability[:, j]
        known = np.flatnonzero(~np.isnan(y) & ~np.isnan(p))
        order = known[np.argsort(-p[known], kind="stable")]
        cuts = _cuts(y[order], p[order])
        if len(cuts) + 1 >= FEWEST_GROUPS:
            rows = Rows(r for r in calibration_rows(chosen_outcomes(found, [j])) if r["method"] == method)
            own = found.weights_of(j)
            count = weights[:, order] if own is None else weights[:, order] * own[order]
            curves.append(_curves(outcome, y[order], p[order], count, cuts, level, rows))
    return tuple(curves)


def _cuts(y: Floats, probability: Floats) -> Ints:
    """Where groups of decreasing probability end, except the last: each has 11 or more labels of either kind.

    The points of a curve reveal how many labels lie between them, to a precision at which rounding hides no small
    number.
    """
    least = max(FEWEST, -(-int(y.sum()) // MOST_GROUPS))
    ends = np.append(np.flatnonzero(np.diff(probability)), len(y) - 1) + 1  # equal predictions stay together
    true = np.append(0, np.cumsum(y))
    cuts = [0]
    for end in ends:
        events = true[end] - true[cuts[-1]]
        if events >= least and end - cuts[-1] - events >= FEWEST:
            cuts.append(int(end))
    events = true[-1] - true[cuts[-1]]
    if cuts[-1] and (events < FEWEST or len(y) - cuts[-1] - events < FEWEST):
        cuts.pop()  # too few remain for a group
    return np.array(cuts[1:], dtype=np.int64)


def _curves(
    outcome: str, y: Floats, probability: Floats, weights: Floats, cuts: Ints, level: float, calibration: Rows
) -> OutcomeCurves:
    """Curves through the points at `cuts`; rows are in decreasing probability, weights of resamples come last."""
    places = np.concatenate([[0], cuts, [len(y)]])
    true = np.column_stack([np.zeros(len(weights)), np.cumsum(weights * y, axis=1)])[:, places]
    false = np.column_stack([np.zeros(len(weights)), np.cumsum(weights * (1.0 - y), axis=1)])[:, places]
    # Numbers of labels are rounded down to tens, as in tables; those dropped are from the group with the lowest risk.
    false[0, -1] -= len(y) % 10 * weights[0, y == 0.0].mean()
    n_true, n_false = np.maximum(true[:, -1:], 1e-9), np.maximum(false[:, -1:], 1e-9)
    recall, alarms = true / n_true, false / n_false
    precision = true[:, 1:] / np.maximum(true[:, 1:] + false[:, 1:], 1e-9)
    # Decisions: treat only those above a cut and, at a probability of 0, everybody.
    act = np.append(probability[cuts - 1].round(4), 0.0)
    odds = act / np.maximum(1.0 - act, 1e-9)
    benefit = (true[:, 1:] - false[:, 1:] * odds) / (n_true + n_false)
    prevalence = float(n_true[0, 0] / (n_true[0, 0] + n_false[0, 0]))
    return OutcomeCurves(
        outcome,
        round(prevalence, CURVE_DIGITS),
        _banded(alarms[0], _at(alarms[0], alarms, recall), level),
        _banded(recall[0, 1:], _at(recall[0, 1:], recall[:, 1:], precision), level),
        _banded(act[::-1], benefit[:, ::-1], level, digits=4),
        (prevalence - (1.0 - prevalence) * odds[::-1]).round(4),
        calibration,
    )


def _at(x: Floats, places: Floats, values: Floats) -> Floats:
    """Interpolate every row of (B, n) values at x."""
    return np.array([np.interp(x, place, value) for place, value in zip(places, values, strict=True)])


def _banded(x: Floats, values: Floats, level: float, digits: int = CURVE_DIGITS) -> Curve:
    low, high = np.quantile(values[1:], [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
    return Curve(x, values[0].round(digits), low.round(digits), high.round(digits))


# ---- subgroups


def subgroup_rows(comparison: Comparison, method: str, cohort: Cohort, female: Floats, level: float) -> Rows:
    """Areas under the ROC curve by age and sex, for each outcome and their mean; withheld if there are few events."""
    age = cohort.age
    partitions: list[list[tuple[str, Bools]]] = [
        [("women", female == 1.0), ("men", female == 0.0)],
        [(f"age {_band(low, high)}", (age >= low) & (age < high)) for low, high in AGE_BANDS],
    ]
    score = comparison.score[comparison.methods.index(method)]
    counts = scores.resample_counts(len(comparison.Y), N_RESAMPLES, comparison.seed)
    digits_of = outcome_digits(comparison.Y)
    rows = Rows()
    for parts in partitions:
        inside = np.stack([mask for _, mask in parts])
        sizes = [*inside.sum(axis=1).tolist(), int((~inside.any(axis=0)).sum())]
        n_subjects = shown_parts(sizes)
        areas: dict[str, list[Floats]] = {name: [] for name, _ in parts}
        for j, outcome in enumerate(comparison.outcomes):
            y = comparison.Y[:, j]
            numbers = _group_events(y, inside, sizes)
            for k, (name, mask) in enumerate(parts):
                told = digits_of[j] is not None and numbers[k] != WITHHELD
                digits = score_digits(int(np.nansum(y[mask])), int((y[mask] == 0.0).sum())) if told else None
                area, low, high = (np.nan,) * 3
                if digits is not None:
                    own = comparison.weights_of(j)
                    parts_of = y[mask], score[mask, j], comparison.folds[mask]
                    weight = None if own is None else own[mask]
                    resampled = scores.bootstrap_auroc(*parts_of, counts=counts[:, mask], sample_weight=weight)
                    exact = scores.auroc(*parts_of, weight), *scores.interval(resampled, level)
                    area, low, high = (rounded(value, digits) for value in exact)
                    areas[name].append(np.append(area, resampled))
                rows.append(
                    {
                        "group": name,
                        "subjects": n_subjects[k],
                        "outcome": outcome,
                        "events": numbers[k],
                        "auroc": area,
                        "low": low,
                        "high": high,
                    }
                )
        for k, (name, _) in enumerate(parts):
            if len(areas[name]) > 1:
                mean = np.nanmean(np.stack(areas[name]), axis=0)  # of areas as they are shown
                low, high = scores.interval(mean[1:], level)
                found = {"auroc": round(float(mean[0]), 3), "low": round(low, 3), "high": round(high, 3)}
                what = f"mean of {len(areas[name])}"
                rows.append({"group": name, "subjects": n_subjects[k], "outcome": what, "events": None, **found})
    return rows


def _group_events(y: Floats, inside: Bools, sizes: Sequence[int]) -> list[int | str]:
    """Events in every group and outside all groups, which add up to the total."""
    events = [int(np.nansum(y[mask])) for mask in inside]
    events.append(int(np.nansum(y)) - sum(events))
    if any(is_small(size - n) for size, n in zip(sizes, events, strict=True)):  # too few in a group have no event
        return [0 if n == 0 else WITHHELD for n in events]
    return shown_parts(events)


# ---- drivers


def driver_rows(
    outcomes: Sequence[str],
    features: Sequence[str],
    coef: Floats,
    draws: Floats,
    level: float,
    spread: Floats | float = 1.0,
    units: Sequence[str] | None = None,
    family: str = "probit",
) -> Rows:
    """The regressors that weigh most for every outcome, with intervals of their coefficients.

    `coef` is (P, K) and `draws` (S, P, K), of the posterior. Weight is |coefficient| times the regressor's standard
    deviation `spread`, which decides the order and is not shown: of a single code it tells how many subjects have it.
    """
    rows = Rows()
    for j, outcome in enumerate(outcomes):
        for k in np.argsort(-np.abs(coef[j]) * spread, kind="stable")[:N_DRIVERS]:
            low, high = np.quantile(draws[:, j, k], [0.5 - 0.5 * level, 0.5 + 0.5 * level])
            rows.append(
                {
                    "outcome": outcome,
                    "regressor": features[k],
                    "per": "unit" if units is None else units[k],
                    "coefficient": round(float(coef[j, k]), 4),
                    "low": round(float(low), 4),
                    "high": round(float(high), 4),
                    "probability above 0": round(float((draws[:, j, k] > 0).mean()), 3),
                    "family": family,
                }
            )
    return rows
