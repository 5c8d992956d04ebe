r"""Subjects who leave: the probability of still being observed, and weights that make up for those who are not.

The label of subject i is known if the event or death came first, on day T_i of the horizon, or if observation reached
its end, T_i. Early events had little time to be missed, so known labels contain too many of them: of subjects with a
risk of 10 %, of whom 60 % leave at random within the horizon, 15 % of the known labels are events. A known label
stands for w_i = 1 / G_i(T_i) subjects, where G_i(t) is the probability that observation had not ended before day t
(inverse probability of censoring weights). G is the Kaplan–Meier estimate, separately for every outcome, in groups of
subjects with a similar chance of leaving given their features: leaving may depend on these, but not, among subjects
alike, on what would have happened. Death is no censoring but a competing risk, unless CohortRule.death is "censor".

No weight exceeds MOST, and those of an outcome are scaled to sum to their effective number, (Σw)²/Σw²: a fit is then no
more certain than its known labels allow, and without censoring every weight is 1.

Or the time at risk enters the model: events y_ij ~ Poisson(e_ij exp(η_ij)), e_ij the share of the horizon in which
subject i was at risk of outcome j, so that nobody is left out who was observed for a day. The risk of the whole horizon
is 1 − exp(−exp(η)). Who died remains at risk in name, for as long as others like them are observed (Fine and Gray
1999): the risk is that of having the outcome before death.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from coaltree._arrays import Bools, Floats, Ints
from coaltree.regression.folds import stratified_folds
from coaltree.regression.penalised import fit_coefficients
from coaltree.regression.preparation import scale_features

if TYPE_CHECKING:
    from coaltree.records.labels import Labels

CENSORING = ("weights", "drop", "absent")
MOST = 50.0
MOST_GROUPS, FEWEST_LEAVING = 10, 50  # groups, and subjects of each who leave, on average
_N_FOLDS = 5
_DEVIATION = 0.3  # of the coefficient of a standardised feature, a priori


def still_observed(seen: Ints, left: Bools, n_days: int, weights: Floats) -> Floats:
    """Kaplan–Meier estimate of G for rows of weights (B, n): (B, D), probability of not having left before each day.

    A subject observed for `seen` days is at risk of leaving on days 0 … seen − 1, and left on the last if `left`.
    """
    some = np.flatnonzero(seen > 0)
    last = sparse.csr_array((np.ones(len(some)), (some, seen[some] - 1)), shape=(len(seen), n_days))
    ended = np.asarray((last.T @ weights.T).T)
    leaving = np.asarray((last.T @ (weights * left).T).T)
    at_risk = np.cumsum(ended[:, ::-1], axis=1)[:, ::-1]
    stay = 1.0 - np.divide(leaving, at_risk, out=np.zeros_like(leaving), where=leaving > 0)
    return np.cumprod(np.concatenate([np.ones((len(stay), 1)), stay[:, :-1]], axis=1), axis=1)


def leaving_groups(features: Floats, left: Bools, seed: int = 0) -> Ints:
    """Group subjects by their chance of leaving, predicted from features (n, K) by a model that has not seen them."""
    n_groups = min(MOST_GROUPS, int(min(left.sum(), (~left).sum())) // FEWEST_LEAVING)
    scaling = scale_features(features, np.ones(len(left))) if features.shape[1] else None
    if n_groups < 2 or scaling is None or not scaling.varying.any():
        return np.zeros(len(left), dtype=np.int64)
    rows, y = scaling.apply(features), left.astype(np.float64)
    folds, chance = stratified_folds(y[:, None], _N_FOLDS, seed), np.empty(len(y))
    for fold in range(_N_FOLDS):
        out = folds == fold
        penalty = 1.0 / (_DEVIATION**2 * int((~out).sum()))
        chance[out] = rows[out] @ fit_coefficients(rows[~out], y[~out], penalty, 0.0)
    edges = np.unique(np.quantile(chance, np.arange(1, n_groups) / n_groups))
    return np.asarray(np.searchsorted(edges, chance, side="right"))


def censoring_weights(labels: Labels, groups: Ints | None = None) -> Floats:
    """Return the weight of every label, (n, P), 0 where it is not known.

    Parameters
    ----------
    labels : Labels
        With `time_at_risk`, from `build_labels`.
    groups : ndarray (n,), optional
        Groups of subjects whose chance of leaving is alike, such as `leaving_groups`; by default all are.
    """
    assert labels.time_at_risk is not None
    out = np.zeros(labels.Y.shape)
    for j, (staying, place) in enumerate(_staying(labels, groups)):
        known, time = ~np.isnan(labels.Y[:, j]), labels.time_at_risk[:, j]
        weight = np.minimum(1.0 / np.maximum(staying[place, time], 1e-12), MOST)[known]
        out[known, j] = weight * weight.sum() / (weight**2).sum() if known.any() else weight
    return out


def exposures(labels: Labels, groups: Ints | None = None) -> Floats:
    """Return the share of the horizon in which each subject was at risk of each outcome, (n, P); 0 where it was not.

    A day of leaving counts whole and that of an event half. Who died without the outcome is at risk until the death
    and then for the expected rest of the observation of subjects in the same of the `groups`.
    """
    assert labels.time_at_risk is not None
    begin, end = labels.cohort.rule.horizon
    out = np.zeros(labels.Y.shape)
    for j, (staying, place) in enumerate(_staying(labels, groups)):
        y, time = labels.Y[:, j], labels.time_at_risk[:, j]
        rest = np.cumsum(staying[:, ::-1], axis=1)[:, ::-1] - staying  # of the days after each
        days = np.maximum(time - begin + 1.0, 0.0) - 0.5 * (y == 1.0)
        died = (y == 0.0) & (time < end)
        days[died] += (rest / np.maximum(staying, 1e-12))[place[died], time[died]]
        out[:, j] = np.where(~np.isnan(y) | labels.lost[:, j], days / (end - begin + 1), 0.0)
    return out


def _staying(labels: Labels, groups: Ints | None) -> Iterator[tuple[Floats, Ints]]:
    """Yield for every outcome G by group and day, and the group of every subject."""
    assert labels.time_at_risk is not None
    n, n_days = len(labels.Y), labels.cohort.rule.horizon[1] + 1
    place = np.zeros(n, dtype=np.int64) if groups is None else np.unique(groups, return_inverse=True)[1]
    for j, (y, time) in enumerate(zip(labels.Y.T, labels.time_at_risk.T, strict=True)):
        left = labels.lost[:, j]
        members = (place == np.arange(place.max() + 1)[:, None]) & (~np.isnan(y) | left)
        # An event or a death on a day comes before leaving on it.
        yield still_observed(time + left, left, n_days, members.astype(np.float64)), place
