"""Scores of predictions of a binary outcome: discrimination, accuracy of probabilities, calibration.

Every function takes labels `y` (N,) of 0, 1 or NaN (no label: the row is left out) and returns NaN where the remaining
labels do not include both classes. `sample_weight` (N,) counts rows more than once or in part: labels that stand for
others, whose own are not known, weigh more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import expit, logit

from coaltree._arrays import Bools, Floats, Ints
from coaltree._compile import kernel
from coaltree.errors import InputError
from coaltree.randomness import RandomState, as_generator
from coaltree.regression.penalised import fit_coefficients

_SMALLEST_PROBABILITY = 1e-12
_WIDEST_SHIFT = 60.0


class Ranking(NamedTuple):
    """Labelled rows in the order of their scores: all that the area under the ROC curve depends on."""

    rows: Ints  # (n,) row numbers, sorted by group and then by score
    event: Bools  # (n,)
    last: Bools  # (n,) whether the row ends a run of equal scores
    closing: Bools  # (n,) whether the row ends a group


def rank(y: npt.ArrayLike, score: npt.ArrayLike, groups: npt.ArrayLike | None = None) -> Ranking:
    """Sort the labelled rows; only rows of the same group are ever compared."""
    labels, values = np.asarray(y, dtype=np.float64), np.asarray(score, dtype=np.float64)
    if labels.ndim != 1 or values.shape != labels.shape:
        raise InputError(f"score must have one entry per label, {labels.shape}, got {values.shape}.")
    group = np.zeros(len(labels), dtype=np.int64) if groups is None else np.asarray(groups)
    if group.shape != labels.shape:
        raise InputError(f"groups must have one entry per label, {labels.shape}, got {group.shape}.")
    known = np.flatnonzero(~np.isnan(labels))
    if np.isnan(values[known]).any():
        raise InputError("score must not be NaN where there is a label.")
    rows = known[np.lexsort((values[known], group[known]))]
    closing = np.append(group[rows][1:] != group[rows][:-1], True)[: len(rows)]
    last = closing | np.append(values[rows][1:] != values[rows][:-1], True)[: len(rows)]
    return Ranking(rows, labels[rows] == 1.0, last, closing)


@kernel
def auroc_of_resamples(
    rows: Ints,
    event: Bools,
    last: Bools,
    closing: Bools,
    counts: npt.NDArray[np.uint16],
    weights: Floats,
    out: Floats,
) -> None:
    """Area under the ROC curve of B weighted resamples, `out` (B,), in one pass over the sorted rows for each.

    `counts` (B, N) gives how often a resample contains a row, and `weights` (N,) how much it counts each time. The area
    is the share of pairs (event, non-event) of the same group in which the event has the higher score, ties counting
    one half.
    """
    for b in range(len(counts)):
        concordant, pairs = 0.0, 0.0
        below, events, tied_events, tied_others = 0.0, 0.0, 0.0, 0.0
        for i in range(len(rows)):
            count = counts[b, rows[i]] * weights[rows[i]]
            if event[i]:
                tied_events += count
            else:
                tied_others += count
            if last[i]:
                concordant += tied_events * (below + 0.5 * tied_others)
                below += tied_others
                events += tied_events
                tied_events, tied_others = 0.0, 0.0
            if closing[i]:
                pairs += events * below
                below, events = 0.0, 0.0
        out[b] = concordant / pairs if pairs > 0.0 else np.nan


def auroc(
    y: npt.ArrayLike,
    score: npt.ArrayLike,
    groups: npt.ArrayLike | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Area under the ROC curve: how often an event has a higher score than a non-event, ties counting one half.

    With `groups` (N,), such as the folds of a cross-validation, only rows of the same group are compared. Scores of
    different folds come from different models: held-out events lower the rate of their own training set, which
    biases a comparison across folds against rare outcomes.
    """
    once = np.ones((1, len(np.asarray(y))), dtype=np.uint16)
    return float(bootstrap_auroc(y, score, groups, counts=once, sample_weight=sample_weight)[0])


def resample_counts(n_rows: int, n_resamples: int, random_state: RandomState = 0) -> npt.NDArray[np.uint16]:
    """How often each row is drawn in each bootstrap resample of the rows, (B, N)."""
    rng = as_generator(random_state)
    counts = np.empty((n_resamples, n_rows), dtype=np.uint16)
    for b in range(n_resamples):
        counts[b] = np.bincount(rng.integers(n_rows, size=n_rows), minlength=n_rows)
    return counts


def bootstrap_auroc(
    y: npt.ArrayLike,
    score: npt.ArrayLike,
    groups: npt.ArrayLike | None = None,
    n_resamples: int = 1000,
    random_state: RandomState = 0,
    counts: npt.NDArray[np.uint16] | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> Floats:
    """Area under the ROC curve of bootstrap resamples of the rows, (B,); NaN for resamples with one class.

    With the same `counts` (from `resample_counts`) for two scores, their differences are paired.
    """
    ranking = rank(y, score, groups)
    if counts is None:
        counts = resample_counts(len(np.asarray(y)), n_resamples, random_state)
    out = np.empty(len(counts))
    auroc_of_resamples(*ranking, counts, _weights(sample_weight, len(np.asarray(y))), out)
    return out


def interval(resamples: Floats, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of bootstrap values, ignoring NaN; NaN if nothing is left."""
    known = resamples[~np.isnan(resamples)]
    if len(known) == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(known, [0.5 - 0.5 * level, 0.5 + 0.5 * level])
    return float(low), float(high)


# ---- probabilities


def _weights(sample_weight: npt.ArrayLike | None, n: int) -> Floats:
    weights = np.ones(n) if sample_weight is None else np.ascontiguousarray(sample_weight, dtype=np.float64)
    if weights.shape != (n,):
        raise InputError(f"sample_weight must have one entry per label, ({n},), got {weights.shape}.")
    return weights


def _labelled(
    y: npt.ArrayLike, probability: npt.ArrayLike, sample_weight: npt.ArrayLike | None
) -> tuple[Floats, Floats, Floats]:
    """Labels, probabilities and weights of the rows that have a label and a positive weight."""
    labels, p = np.asarray(y, dtype=np.float64), np.asarray(probability, dtype=np.float64)
    weights = _weights(sample_weight, len(labels))
    known = ~np.isnan(labels) & (weights > 0.0)
    return labels[known], p[known], weights[known]


def _one_class(labels: Floats) -> bool:
    return len(labels) == 0 or bool(labels.min() == labels.max())


def auprc(y: npt.ArrayLike, score: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
    """Average precision: Σ precision × increase of recall, over the distinct scores from the highest down."""
    labels, values, weights = _labelled(y, score, sample_weight)
    if _one_class(labels):
        return float("nan")
    order = np.argsort(-values, kind="stable")
    hits, taken = np.cumsum((weights * labels)[order]), np.cumsum(weights[order])
    ends = np.flatnonzero(np.append(np.diff(values[order]) != 0.0, True))
    precision, recall = hits[ends] / taken[ends], hits[ends] / hits[-1]
    return float(np.sum(precision * np.diff(recall, prepend=0.0)))


def brier(y: npt.ArrayLike, probability: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
    """Mean squared difference between probability and label."""
    labels, p, weights = _labelled(y, probability, sample_weight)
    return float("nan") if _one_class(labels) else float(np.average((p - labels) ** 2, weights=weights))


def log_loss(y: npt.ArrayLike, probability: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
    """Mean negative log probability of the labels, in nats; probabilities are kept 1e-12 away from 0 and 1."""
    labels, p, weights = _labelled(y, probability, sample_weight)
    if _one_class(labels):
        return float("nan")
    p = np.clip(p, _SMALLEST_PROBABILITY, 1.0 - _SMALLEST_PROBABILITY)
    return -float(np.average(np.log(np.where(labels == 1.0, p, 1.0 - p)), weights=weights))


class Calibration(NamedTuple):
    """Logistic recalibration: perfect predictions have intercept 0 and slope 1."""

    intercept: float  # shift of the log odds that makes the mean probability right, with slope 1
    slope: float  # coefficient of the log odds in the best fit; below 1: predictions are too extreme


def calibration(
    y: npt.ArrayLike, probability: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
) -> Calibration:
    """Calibration intercept (in the large) and slope; the slope is NaN if all predictions are equal."""
    labels, p, weights = _labelled(y, probability, sample_weight)
    if _one_class(labels):
        return Calibration(float("nan"), float("nan"))
    odds = logit(np.clip(p, _SMALLEST_PROBABILITY, 1.0 - _SMALLEST_PROBABILITY))
    shift = brentq(lambda a: float(weights @ (expit(a + odds) - labels)), -_WIDEST_SHIFT, _WIDEST_SHIFT)
    spread = float(odds.std())
    if spread < 1e-9:
        return Calibration(float(shift), float("nan"))
    standard = np.column_stack([np.ones(len(odds)), (odds - odds.mean()) / spread])
    # A vanishing ridge keeps the slope finite when the predictions separate the classes.
    theta = fit_coefficients(standard, labels, 1e-6 / len(labels), 0.0, weights=weights)
    return Calibration(float(shift), float(theta[1] / spread))


class CalibrationTable(NamedTuple):
    """Predicted against observed in groups of about equal size, from the lowest prediction to the highest."""

    n: Ints
    n_events: Ints
    predicted: Floats  # mean probability
    observed: Floats  # share of events
    effective: Floats  # labels that would say as much if all had one weight, (Σw)²/Σw²
    low: Floats  # Wilson interval of the share of events
    high: Floats


def calibration_table(
    y: npt.ArrayLike,
    probability: npt.ArrayLike,
    n_bins: int = 10,
    level: float = 0.95,
    sample_weight: npt.ArrayLike | None = None,
) -> CalibrationTable:
    """Group rows by predicted probability (deciles by default); equal predictions stay together."""
    labels, p, weights = _labelled(y, probability, sample_weight)
    edges = np.unique(np.quantile(p, np.linspace(0.0, 1.0, n_bins + 1)[1:-1])) if len(p) else np.empty(0)
    bins = np.searchsorted(edges, p, side="left")
    _, place = np.unique(bins, return_inverse=True)
    total = np.bincount(place, weights=weights)
    observed = np.bincount(place, weights=weights * labels) / total
    effective = total**2 / np.bincount(place, weights=weights**2)
    return CalibrationTable(
        np.bincount(place).astype(np.int64),
        np.bincount(place, weights=labels).astype(np.int64),
        np.bincount(place, weights=weights * p) / total,
        observed,
        effective,
        *wilson(observed, effective, level),
    )


def wilson(share: Floats, n: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Wilson's interval of shares of n."""
    from scipy.special import ndtri

    z = float(ndtri(0.5 + 0.5 * level))
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return middle - half, middle + half
