"""Peers that see all outcomes, or effects that are not linear: what a user would try instead.

All have the face of `baselines.PerOutcome`: `fit(X, Y)` with Y (N, P) of 0, 1 or NaN, `decision_function` and
`predict_proba`, both (N, P). An outcome with one class is predicted by its rate.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit
from sklearn.base import BaseEstimator

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.randomness import RandomState, as_generator
from coaltree.regression.folds import check_outcomes, stratified_folds
from coaltree.regression.forest import grow_forest, log_odds
from coaltree.regression.ridge import Ridge, crossfit_ridge
from coaltree.validation import check_array

N_FOLDS = 5


class AllOutcomes(BaseEstimator):  # type: ignore[misc]
    """A model of all outcomes at once; those with one class are set aside."""

    def __init__(self, random_state: RandomState = 0) -> None:
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, Y: npt.ArrayLike) -> Self:
        """Fit all outcomes that have both classes."""
        features = check_array(X, "X", 2)
        outcomes = check_outcomes(Y, len(features))
        known = ~np.isnan(outcomes)
        events = np.where(known, outcomes, 0.0).sum(axis=0)
        self.rates_ = (events + 0.5) / (known.sum(axis=0) + 1.0)
        self.kept_ = np.flatnonzero((events > 0) & (events < known.sum(axis=0)))
        self.n_features_in_ = features.shape[1]
        if len(self.kept_):
            rng = as_generator(self.random_state)
            rows = known[:, self.kept_].any(axis=1)
            labels = np.ascontiguousarray(outcomes[np.ix_(rows, self.kept_)])
            self._learn(features[rows], labels, self.rates_[self.kept_], rng)
        return self

    def _learn(self, X: Floats, Y: Floats, rates: Floats, rng: np.random.Generator) -> None:
        raise NotImplementedError

    def _logits(self, X: Floats) -> Floats:
        """Log odds of the outcomes that were kept."""
        raise NotImplementedError

    def decision_function(self, X: npt.ArrayLike) -> Floats:
        """Log odds, (N, P)."""
        features = check_array(X, "X", 2)
        if features.shape[1] != self.n_features_in_:
            raise InputError(f"X must have the {self.n_features_in_} columns of fit, got {features.shape[1]}.")
        out = np.tile(logit(self.rates_), (len(features), 1))
        if len(self.kept_):
            out[:, self.kept_] = self._logits(features)
        return out

    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """Probabilities, (N, P)."""
        return np.asarray(expit(self.decision_function(X)))


class MultiForest(AllOutcomes):
    """One random forest for all outcomes, leaf size and features a split chosen out of bag."""

    def _learn(self, X: Floats, Y: Floats, rates: Floats, rng: np.random.Generator) -> None:
        self.forest_, _ = grow_forest(X, Y, np.ones(len(X)), rates, int(rng.integers(2**31)))

    def _logits(self, X: Floats) -> Floats:
        return self.forest_.logits(X)


class WideRidge(AllOutcomes):
    """Ridge regression of every outcome along one path (`ridge`), for hundreds to thousands of features."""

    def _learn(self, X: Floats, Y: Floats, rates: Floats, rng: np.random.Generator) -> None:
        folds = stratified_folds(Y, min(N_FOLDS, len(X)), rng)
        self.ridge_, _ = crossfit_ridge(X, Y, np.ones(len(X)), rates, folds)

    def _logits(self, X: Floats) -> Floats:
        return self.ridge_.logits(X)


class ClassifierChain(AllOutcomes):
    """Ridge regressions in a random order, each with the outcomes before it as features (Read et al. 2011).

    Labels in training, predicted probabilities afterwards.
    """

    def _learn(self, X: Floats, Y: Floats, rates: Floats, rng: np.random.Generator) -> None:
        self.order_ = rng.permutation(Y.shape[1])
        labels = np.where(np.isnan(Y), rates, Y)
        weights = np.ones(len(X))
        self.models_: list[Ridge] = []
        for number, j in enumerate(self.order_):
            rows = np.hstack([X, labels[:, self.order_[:number]]])
            folds = stratified_folds(Y[:, [j]], min(N_FOLDS, len(X)), rng)
            self.models_.append(crossfit_ridge(rows, Y[:, [j]], weights, rates[[j]], folds)[0])

    def _logits(self, X: Floats) -> Floats:
        out, rows = np.empty((len(X), len(self.order_))), X
        for j, model in zip(self.order_, self.models_, strict=True):
            out[:, [j]] = model.logits(rows)
            rows = np.hstack([rows, expit(out[:, [j]])])
        return out


class RidgeStack(AllOutcomes):
    """Ridge regression on the log odds, out of sample, that a forest and a ridge regression give all outcomes."""

    def _learn(self, X: Floats, Y: Floats, rates: Floats, rng: np.random.Generator) -> None:
        weights, self._rates = np.ones(len(X)), rates
        folds = stratified_folds(Y, min(N_FOLDS, len(X)), rng)
        self.forest_, votes = grow_forest(X, Y, weights, rates, int(rng.integers(2**31)))
        self.ridge_, logits = crossfit_ridge(X, Y, weights, rates, folds)
        columns = np.hstack([log_odds(votes, rates), logits])
        again = stratified_folds(Y, min(N_FOLDS, len(X)), rng)
        self.top_, _ = crossfit_ridge(columns, Y, weights, rates, again)

    def _logits(self, X: Floats) -> Floats:
        return self.top_.logits(np.hstack([self.forest_.logits(X), self.ridge_.logits(X)]))


class Boosting(BaseEstimator):  # type: ignore[misc]
    """Gradient boosting of one outcome (scikit-learn's, by histograms), its length chosen by rows left out."""

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Floats, y: Floats) -> Self:
        """Fit to rows with labels."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        enough = min(y.sum(), len(y) - y.sum()) >= 10  # else nothing can be left out
        self.model_: Any = HistGradientBoostingClassifier(
            learning_rate=0.06,
            max_leaf_nodes=15,
            max_iter=300 if enough else 40,
            early_stopping=bool(enough),
            validation_fraction=0.15,
            random_state=self.random_state,
        ).fit(X, y)
        return self

    def decision_function(self, X: Floats) -> Floats:
        """Log odds, (N,)."""
        return np.asarray(self.model_.decision_function(X))

    def predict_proba(self, X: Floats) -> Floats:
        """Probability of the event, (N,)."""
        return np.asarray(self.model_.predict_proba(X)[:, 1])
