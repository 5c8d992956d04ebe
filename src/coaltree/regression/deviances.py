r"""Models of counts and measurements on the same folds: out-of-fold expected outcomes and their deviance.

The deviance of a label is twice the log likelihood that an expected outcome loses against the best possible one (for
measurements in units of the residual variance: the squared error). What a method explains is 1 − D/D₀, D₀ the deviance
of the mean or overall rate of the other folds. Differences between methods are paired: their errors are those of means
over the same rows.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree.regression import scores
from coaltree.regression.baselines import PenalisedRegression
from coaltree.regression.families import Families, grouped
from coaltree.regression.folds import stratified_folds
from coaltree.regression.preparation import observe_labels
from coaltree.rows import Rows

PENALTIES = tuple(10.0 ** np.arange(-5.0, 3.0))


class SeparateRidge:
    """One ridge regression per outcome, with the penalty chosen by rows left out: what a tree has to beat."""

    def __init__(self, families: Families) -> None:
        self.families = families

    def fit(self, X: Floats, Y: Floats, exposure: Floats) -> Self:
        """Fit every outcome to the rows that have a label, in standardised features."""
        self.centre_, self.width_ = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-12)
        rows, self.models_ = (X - self.centre_) / self.width_, []
        for family, y, at_risk in zip(self.families, Y.T, exposure.T, strict=True):
            known = ~np.isnan(y)
            self.models_.append(_ridge(family.binary, family.with_exposure, rows[known], y[known], at_risk[known]))
        return self

    def predict_mean(self, X: Floats, exposure: Floats) -> Floats:
        """Expected outcomes, (N, P)."""
        rows = (X - self.centre_) / self.width_
        found = [
            model.predict_proba(rows) if family.binary else model.predict(rows)
            for family, model in zip(self.families, self.models_, strict=True)
        ]
        return _at_risk(np.column_stack(found), exposure, self.families)


def _ridge(binary: bool, counted: bool, X: Floats, y: Floats, exposure: Floats) -> Any:
    from sklearn.linear_model import PoissonRegressor, RidgeCV
    from sklearn.model_selection import GridSearchCV

    if binary:
        return PenalisedRegression("logit", (0.0,)).fit(X, y)
    if not counted:
        return RidgeCV(tuple(len(X) * np.array(PENALTIES))).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a weak penalty may not have converged when its turn ends
        search = GridSearchCV(PoissonRegressor(max_iter=500), {"alpha": PENALTIES}, cv=min(5, len(X)))
        return search.fit(X, y / exposure, sample_weight=exposure)


def _at_risk(mean: Floats, exposure: Floats, families: Families) -> Floats:
    return mean * np.where([family.with_exposure for family in families], exposure, 1.0)


@dataclass(frozen=True, eq=False)
class Deviances:
    """Out-of-fold expected outcomes of M methods, the first of them ours, for N rows and P outcomes."""

    methods: tuple[str, ...]
    outcomes: tuple[str, ...]
    families: Families
    Y: Floats  # (N, P)
    folds: Ints
    mean: Floats  # (M, N, P)
    plain: Floats  # (N, P), the mean or rate of the other folds

    def _losses(self, mean: Floats) -> Floats:
        """Deviance of every label, (N, P)."""
        found = np.empty_like(self.Y)
        for family, own in grouped(self.families):
            found[:, own] = family.deviance(self.Y[:, own], mean[:, own])
        return found

    def table(self) -> Rows:
        """One row per outcome and method."""
        plain, losses = self._losses(self.plain), [self._losses(mean) for mean in self.mean]
        rows = Rows()
        for j, (outcome, family) in enumerate(zip(self.outcomes, self.families, strict=True)):
            known = ~np.isnan(self.Y[:, j])
            for m, method in enumerate(self.methods):
                gap = losses[m][known, j] - losses[0][known, j]
                own = float(losses[m][known, j].mean())
                area = scores.auroc(self.Y[:, j], self.mean[m, :, j], self.folds) if family.binary else np.nan
                rows.append(
                    {
                        "outcome": outcome,
                        "family": family.name,
                        "method": method,
                        "n": int(known.sum()),
                        "deviance": own,
                        "explained": 1.0 - own / float(plain[known, j].mean()),
                        "behind": float(gap.mean()),
                        "behind_error": float(gap.std(ddof=1) / np.sqrt(known.sum())),
                        "auroc": float(area),
                    }
                )
        return rows


def compare_deviances(
    models: Mapping[str, Any],
    X: Floats,
    Y: Floats,
    families: Families,
    exposure: Floats | None = None,
    n_folds: int = 10,
    random_state: int = 0,
    outcomes: tuple[str, ...] | None = None,
) -> Deviances:
    """Fit every model on the same folds, balanced by events or by halves, and gather what it expects elsewhere.

    Models have `fit(X, Y, exposure=…)` and `predict_mean(X, exposure)`; they are copied, never fitted in place. Labels
    are (N, P), NaN where there is none, and `exposure` (N, P) the time at risk of counts.
    """
    at_risk = np.ones(Y.shape) if exposure is None else exposure
    strata = np.empty_like(Y)
    for family, own in grouped(families):
        strata[:, own] = family.strata(Y[:, own])
    folds = stratified_folds(strata, n_folds, random_state)
    mean, plain = np.empty((len(models), *Y.shape)), np.empty_like(Y)
    for fold in range(n_folds):
        out = folds == fold
        constant = observe_labels(Y[~out], at_risk[~out], np.ones(int((~out).sum())), families)[1].constant
        level = np.array(
            [float(family.mean(np.array(value))) for family, value in zip(families, constant, strict=True)]
        )
        plain[out] = _at_risk(np.broadcast_to(level, (int(out.sum()), len(level))), at_risk[out], families)
        counted = {"exposure": at_risk[~out]} if any(family.with_exposure for family in families) else {}
        for m, model in enumerate(models.values()):
            fitted = copy.deepcopy(model)
            if isinstance(fitted, SeparateRidge):
                mean[m, out] = fitted.fit(X[~out], Y[~out], at_risk[~out]).predict_mean(X[out], at_risk[out])
                continue
            fitted.fit(X[~out], Y[~out], **counted)
            mean[m, out] = fitted.predict_mean(X[out], at_risk[out] if counted else None)
    names = outcomes or tuple(f"outcome {j}" for j in range(Y.shape[1]))
    return Deviances(tuple(models), names, families, Y, folds, mean, plain)
