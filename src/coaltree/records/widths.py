"""How much single codes may say beside factors: one width for all of them, learned from held-out subjects.

Factors sum up what many codes have in common; single codes add what is special to one. How large the coefficients of
codes are beside those of factors differs between hospitals: where counts come from a few factors, hundreds of codes at
the same width as the factors cost more than they tell. So codes have a width w relative to factors (all standardised),
the w of WIDTHS with the lowest log loss of a ridge regression of all outcomes on subjects it has not seen, or a
smaller one that is within a thousandth of it. At 0 codes are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from coaltree._arrays import Bools, Floats
from coaltree.randomness import RandomState, as_generator
from coaltree.regression import scores
from coaltree.regression.baselines import AllOutcomes
from coaltree.regression.families.binary import smoothed_rates
from coaltree.regression.folds import stratified_folds
from coaltree.regression.penalised import crossfit_ridge, ridge_path
from coaltree.regression.preparation import as_weights, dense, scale_features

WIDTHS = (0.0, 0.03, 0.1, 0.3, 1.0)
N_PARTS = 3  # one of which is held out, or, of small tables, each in turn
SMALL = 1_000_000  # numbers
NEGLIGIBLE = 0.001  # of the loss: so little is not worth hundreds of regressors
MOST_NUMBERS = 30_000_000  # of subjects × regressors by which the width is chosen
_N_FOLDS = 5


def relative_widths(n_factors: int, n_codes: int, width: float) -> Floats:
    """One for factors, and the width of codes for codes, (K,)."""
    return np.concatenate([np.ones(n_factors), np.full(n_codes, width)])


def deviations(X: Any) -> Floats:
    """Standard deviation of every regressor, (K,); X may be sparse."""
    return scale_features(X, np.ones(X.shape[0])).width


def choose_width(X: Any, n_factors: int, labels: Floats, weights: Floats | None, random_state: RandomState) -> float:
    """Return the width of the columns after the first `n_factors` with the lowest held-out loss.

    X (n, K) may be sparse; `labels` (n, P) are 0, 1 or NaN; `weights` (n, P).
    """
    rng = as_generator(random_state)
    most = max(MOST_NUMBERS // X.shape[1], 1)
    rows = np.arange(X.shape[0]) if X.shape[0] <= most else np.sort(rng.choice(X.shape[0], most, replace=False))
    Y = labels[rows]
    known = np.where(np.isnan(Y), 0.0, 1.0 if weights is None else weights[rows])
    Y = np.where(known > 0.0, Y, np.nan)
    table, rates = dense(X[rows]), smoothed_rates(Y, known)
    table = (table - table.mean(axis=0)) / _safe(deviations(table))
    folds = stratified_folds(Y, N_PARTS, rng)
    parts = [folds == part for part in range(N_PARTS if table.size <= SMALL else 1)]
    losses = []
    for width in WIDTHS:
        units = relative_widths(n_factors, table.shape[1] - n_factors, width)
        scaled = table[:, units > 0] * units[units > 0]
        losses.append(sum(_held_out_loss(scaled, Y, known, rates, out) for out in parts))
    return WIDTHS[int(np.flatnonzero(np.array(losses) <= min(losses) * (1.0 + NEGLIGIBLE))[0])]


def _held_out_loss(X: Floats, Y: Floats, weights: Floats, rates: Floats, out: Bools) -> float:
    """Log loss of the held-out labels, each outcome with its best penalty."""
    path = ridge_path(X[~out], Y[~out], weights[~out], rates, (0.0,))
    loss = np.full((len(path), Y.shape[1]), np.nan)
    for k, model in enumerate(path):
        p = expit(model.logits(X[out]))
        loss[k] = [scores.log_loss(*each) for each in zip(Y[out].T, p.T, weights[out].T, strict=True)]
    return float(np.nansum(loss.min(axis=0) * weights[out].sum(axis=0)))


def _safe(width: Floats) -> Floats:
    return np.where(width > 0, width, np.inf)


class GroupRidge(AllOutcomes):
    """Ridge regression of all outcomes in which regressors have given relative widths."""

    def __init__(self, widths: Floats, random_state: RandomState = 0) -> None:
        super().__init__(random_state)
        self.widths = widths

    def _learn(self, X: Floats, Y: Floats, weights: Floats, rates: Floats, rng: np.random.Generator) -> None:
        self.units_ = self.widths / _safe(deviations(X))
        folds = stratified_folds(Y, min(_N_FOLDS, len(X)), rng)
        cases = as_weights(weights, Y.shape)
        self.ridge_, _ = crossfit_ridge(X * self.units_, Y, cases, rates, folds, (0.0,))

    def _logits(self, X: Floats) -> Floats:
        return self.ridge_.logits(X * self.units_)
