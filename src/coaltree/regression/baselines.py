"""Alternative models for many binary outcomes: one model per outcome, or one for all.

`BASELINES` maps names to functions that make a model. All share one interface: `fit(X, Y, sample_weight)` with Y (N, P)
of 0, 1 or NaN (no label) and, optionally, weights of rows (N,) or of labels (N, P), `decision_function(X)` and
`predict_proba(X)`, both (N, P). An outcome with one class is predicted by its rate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, ndtr
from sklearn.base import BaseEstimator

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.randomness import RandomState, as_generator
from coaltree.regression.encoding import as_outcomes
from coaltree.regression.families.binary import smoothed_rates
from coaltree.regression.folds import stratified_folds
from coaltree.regression.forest import grow_forest, log_odds
from coaltree.regression.kernel_ridge import fit_kernel
from coaltree.regression.likelihood import as_columns, row_weights
from coaltree.regression.penalised import (
    LINKS,
    Link,
    Ridge,
    choose_penalty,
    crossfit_ridge,
    fit_coefficients,
    penalties,
)
from coaltree.regression.preparation import as_weights, scale_features
from coaltree.validation import check_array, check_choice

_N_INNER_FOLDS = 5
# Numerical only: a normal prior of standard deviation 100 for the coefficient of a standardised feature. Where an
# estimate exists, its first four digits do not change; where the classes are separated, it becomes finite.
_JITTER = 1e-4
_LEAF_SIZES = (5, 30, 200)
_N_TREES = 100


class BinaryModel(Protocol):
    """A model of one outcome: y (N,) has both classes."""

    def fit(self, X: Floats, y: Floats, sample_weight: Floats) -> Self:
        """Fit to rows with labels."""

    def decision_function(self, X: Floats) -> Floats:
        """Score (N,): higher is likelier."""

    def predict_proba(self, X: Floats) -> Floats:
        """Probability of the event, (N,)."""


class PenalisedRegression(BaseEstimator):  # type: ignore[misc]
    """Logistic or probit regression of one outcome, with a penalty chosen by cross-validated log loss.

    Parameters
    ----------
    link : {"logit", "probit"}
        Distribution function of the response; a chosen penalty needs "logit".
    l1_ratios : tuple of float, or None
        Shares of the absolute-value penalty to choose from: (0,) ridge, (1,) lasso. None: maximum likelihood.
    random_state : int, Generator, …
        Seed of the inner folds.

    Attributes
    ----------
    coef_ : ndarray (K,)
        Coefficients of the features as given.
    intercept_ : float
        Intercept.
    penalty_, l1_ratio_ : float
        The penalty λ and the share of absolute values; for maximum likelihood, the jitter and 0.
    """

    def __init__(
        self, link: Link = "logit", l1_ratios: tuple[float, ...] | None = None, random_state: RandomState = 0
    ) -> None:
        self.link = link
        self.l1_ratios = l1_ratios
        self.random_state = random_state

    def fit(self, X: Floats, y: Floats, sample_weight: Floats | None = None) -> Self:
        """Choose the penalty and fit all rows with it."""
        check_choice(self.link, "link", LINKS)
        weights = np.ones(len(y)) if sample_weight is None else sample_weight
        scaling = scale_features(X, weights)
        standard = scaling.apply(X)
        self.penalty_, self.l1_ratio_ = _JITTER / len(y), 0.0
        if self.l1_ratios is not None:
            if self.link != "logit":
                raise InputError('link must be "logit" when a penalty is chosen: leave out l1_ratios for a probit.')
            self.penalty_, self.l1_ratio_ = self._choose(standard, y, weights, self.l1_ratios)
        theta = fit_coefficients(standard, y, self.penalty_, self.l1_ratio_, self.link, weights=weights)
        intercept, self.coef_ = scaling.undo(theta)
        self.intercept_ = float(intercept)
        return self

    def _choose(self, X: Floats, y: Floats, weights: Floats, l1_ratios: tuple[float, ...]) -> tuple[float, float]:
        # Every training part needs both classes: with a single event or non-event nothing can be held out, and the
        # strongest penalty is used.
        rarest = int(min(y.sum(), len(y) - y.sum()))
        n_folds = min(_N_INNER_FOLDS, rarest)
        if n_folds < 2:
            return float(penalties(X, y, weights, l1_ratios[0])[0]), l1_ratios[0]
        rare = y if 2 * y.sum() <= len(y) else 1.0 - y
        folds = stratified_folds(rare, n_folds, self.random_state)
        penalty, l1_ratio, _ = choose_penalty(X, y, weights, l1_ratios, folds)
        return penalty, l1_ratio

    def decision_function(self, X: Floats) -> Floats:
        """Linear predictor (N,)."""
        return np.asarray(X @ self.coef_ + self.intercept_)

    def predict_proba(self, X: Floats) -> Floats:
        """Probability of the event, (N,)."""
        eta = self.decision_function(X)
        return np.asarray(expit(eta) if self.link == "logit" else ndtr(eta))


class TunedForest(BaseEstimator):  # type: ignore[misc]
    """Random forest for one outcome, with the leaf size of lowest out-of-bag log loss.

    Parameters
    ----------
    leaf_sizes : tuple of int
        Smallest leaves to choose from.
    n_trees : int
        Trees of the final forest; a quarter of them are grown to compare leaf sizes.
    random_state : int
        Seed of the forest.

    Attributes
    ----------
    leaf_size_ : int
        The chosen smallest leaf.
    forest_ : sklearn.ensemble.RandomForestClassifier
        The forest.
    """

    def __init__(
        self, leaf_sizes: tuple[int, ...] = _LEAF_SIZES, n_trees: int = _N_TREES, random_state: int = 0
    ) -> None:
        self.leaf_sizes = leaf_sizes
        self.n_trees = n_trees
        self.random_state = random_state

    def fit(self, X: Floats, y: Floats, sample_weight: Floats | None = None) -> Self:
        """Compare leaf sizes by out-of-bag loss, then grow the best forest to its full size."""
        from sklearn.ensemble import RandomForestClassifier

        lowest = np.inf
        n_tuning = max(self.n_trees // 4, 1)
        for size in self.leaf_sizes:
            if size > self.leaf_sizes[0] and 2 * size > len(y):
                break
            forest = RandomForestClassifier(
                n_tuning, min_samples_leaf=size, bootstrap=True, warm_start=True, random_state=self.random_state
            ).fit(X, y, sample_weight)
            loss = _out_of_bag_loss(forest, X, y, sample_weight)
            if loss < lowest:
                lowest, self.leaf_size_, self.forest_ = loss, size, forest
        if self.n_trees > n_tuning:
            self.forest_.set_params(n_estimators=self.n_trees).fit(X, y, sample_weight)
        return self

    def predict_proba(self, X: Floats) -> Floats:
        """Share of the trees' votes for the event, (N,)."""
        return np.asarray(self.forest_.predict_proba(X)[:, 1])

    def decision_function(self, X: Floats) -> Floats:
        """The same as `predict_proba`: a forest has no linear predictor."""
        return self.predict_proba(X)


def _out_of_bag_loss(forest: Any, X: Floats, y: Floats, weights: Floats | None) -> float:
    """Log loss of every row's mean vote over the trees that did not see it.

    Votes are shrunk towards the event rate as if by one more tree, since a vote of exactly 0 has infinite loss.
    """
    total, seen = np.full(len(y), np.average(y, weights=weights)), np.ones(len(y))
    for tree, rows in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        out = np.ones(len(y), dtype=bool)
        out[rows] = False
        total[out] += tree.predict_proba(X[out])[:, 1]
        seen[out] += 1.0
    p = np.clip(total / seen, 1e-12, 1.0 - 1e-12)
    return -float(np.average(np.log(np.where(y == 1.0, p, 1.0 - p)), weights=weights))


class PerOutcome(BaseEstimator):  # type: ignore[misc]
    """One independent model for each outcome.

    Parameters
    ----------
    model : BinaryModel
        Model of one outcome; copied for each.

    Attributes
    ----------
    models_ : list of length P
        The fitted models; a number, the rate of events, for an outcome with one class.
    """

    def __init__(self, model: BinaryModel) -> None:
        self.model = model

    def fit(self, X: npt.ArrayLike, Y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Fit every outcome on the rows that have a label for it, and a weight if weights are given."""
        from sklearn.base import clone

        features = check_array(X, "X", 2)
        outcomes = as_outcomes(Y, n_rows=len(features))[0]
        self.n_features_in_ = features.shape[1]
        self.models_: list[BinaryModel | float] = []
        weights = np.broadcast_to(as_columns(as_weights(sample_weight, outcomes.shape)), outcomes.shape)
        for y, own in zip(outcomes.T, weights.T, strict=True):
            known = ~np.isnan(y) & (own > 0)
            labels, weight = y[known], None if sample_weight is None else own[known]
            if len(labels) == 0 or labels.min() == labels.max():
                # Add half an event and half a non-event: a rate of exactly 0 or 1 would have infinite log loss.
                self.models_.append(float((labels.sum() + 0.5) / (len(labels) + 1.0)))
            else:
                self.models_.append(clone(self.model).fit(features[known], labels, weight))
        return self

    def decision_function(self, X: npt.ArrayLike) -> Floats:
        """Score of every outcome, (N, P): the linear predictor where the model has one."""
        return self._predict(X, "decision_function")

    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """Probability of every outcome, (N, P)."""
        return self._predict(X, "predict_proba")

    def _predict(self, X: npt.ArrayLike, what: str) -> Floats:
        features = check_array(X, "X", 2)
        if features.shape[1] != self.n_features_in_:
            raise InputError(f"X must have the {self.n_features_in_} columns of fit, got {features.shape[1]}.")
        out = np.empty((len(features), len(self.models_)))
        for j, model in enumerate(self.models_):
            if isinstance(model, float):
                out[:, j] = model if what == "predict_proba" else logit(model)
            else:
                out[:, j] = getattr(model, what)(features)
        return out


# ---- one model for all outcomes


class AllOutcomes(BaseEstimator):  # type: ignore[misc]
    """A model of all outcomes at once; those with one class are set aside.

    Of weights of labels, forests and kernels, which cannot use them, take the mean of every row.
    """

    def __init__(self, random_state: RandomState = 0) -> None:
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, Y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Fit all outcomes that have both classes."""
        features = check_array(X, "X", 2)
        outcomes = as_outcomes(Y, n_rows=len(features))[0]
        weights = as_weights(sample_weight, outcomes.shape)
        outcomes = np.where(as_columns(weights) > 0, outcomes, np.nan)
        known = ~np.isnan(outcomes)
        events = np.where(known, outcomes, 0.0).sum(axis=0)
        self.rates_ = smoothed_rates(outcomes, weights)
        self.kept_ = np.flatnonzero((events > 0) & (events < known.sum(axis=0)))
        self.n_features_in_ = features.shape[1]
        if len(self.kept_):
            rng = as_generator(self.random_state)
            rows = known[:, self.kept_].any(axis=1)
            labels = np.ascontiguousarray(outcomes[np.ix_(rows, self.kept_)])
            weights = weights if weights.ndim == 1 else weights[:, self.kept_]
            self._learn(features[rows], labels, weights[rows], self.rates_[self.kept_], rng)
        return self

    def _learn(self, X: Floats, Y: Floats, weights: Floats, rates: Floats, rng: np.random.Generator) -> None:
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
    """One random forest for all outcomes, with leaf size and features per split chosen out of bag."""

    def _learn(self, X: Floats, Y: Floats, weights: Floats, rates: Floats, rng: np.random.Generator) -> None:
        self.forest_, _ = grow_forest(X, Y, row_weights(weights), rates, int(rng.integers(2**31)))

    def _logits(self, X: Floats) -> Floats:
        return self.forest_.logits(X)


class KernelRidge(AllOutcomes):
    """Kernel ridge regression of all outcomes (`fit_kernel`), with the kernel and penalties chosen by rows left out."""

    def _learn(self, X: Floats, Y: Floats, weights: Floats, rates: Floats, rng: np.random.Generator) -> None:
        self.kernel_, _ = fit_kernel(X, Y, row_weights(weights), rates, rng)

    def _logits(self, X: Floats) -> Floats:
        return self.kernel_.logits(X)


class WideRidge(AllOutcomes):
    """Ridge regression of every outcome along one path (`crossfit_ridge`), for hundreds to thousands of features."""

    def _learn(self, X: Floats, Y: Floats, weights: Floats, rates: Floats, rng: np.random.Generator) -> None:
        folds = stratified_folds(Y, min(_N_INNER_FOLDS, len(X)), rng)
        self.ridge_, _ = crossfit_ridge(X, Y, weights, rates, folds)

    def _logits(self, X: Floats) -> Floats:
        return self.ridge_.logits(X)


class ClassifierChain(AllOutcomes):
    """Ridge regressions in a random order, each with the outcomes before it as features (Read et al. 2011).

    These are labels in training and predicted probabilities afterwards.
    """

    def _learn(self, X: Floats, Y: Floats, weights: Floats, rates: Floats, rng: np.random.Generator) -> None:
        self.order_ = rng.permutation(Y.shape[1])
        labels = np.where(np.isnan(Y), rates, Y)
        self.models_: list[Ridge] = []
        for number, j in enumerate(self.order_):
            rows = np.hstack([X, labels[:, self.order_[:number]]])
            folds = stratified_folds(Y[:, [j]], min(_N_INNER_FOLDS, len(X)), rng)
            own = weights if weights.ndim == 1 else weights[:, j]
            self.models_.append(crossfit_ridge(rows, Y[:, [j]], own, rates[[j]], folds)[0])

    def _logits(self, X: Floats) -> Floats:
        out, rows = np.empty((len(X), len(self.order_))), X
        for j, model in zip(self.order_, self.models_, strict=True):
            out[:, [j]] = model.logits(rows)
            rows = np.hstack([rows, expit(out[:, [j]])])
        return out


class RidgeStack(AllOutcomes):
    """Ridge regression on the out-of-sample log odds that a forest and a ridge regression give all outcomes."""

    def _learn(self, X: Floats, Y: Floats, weights: Floats, rates: Floats, rng: np.random.Generator) -> None:
        folds = stratified_folds(Y, min(_N_INNER_FOLDS, len(X)), rng)
        self.forest_, votes = grow_forest(X, Y, row_weights(weights), rates, int(rng.integers(2**31)))
        self.ridge_, logits = crossfit_ridge(X, Y, weights, rates, folds)
        columns = np.hstack([log_odds(votes, rates), logits])
        again = stratified_folds(Y, min(_N_INNER_FOLDS, len(X)), rng)
        self.top_, _ = crossfit_ridge(columns, Y, weights, rates, again)

    def _logits(self, X: Floats) -> Floats:
        return self.top_.logits(np.hstack([self.forest_.logits(X), self.ridge_.logits(X)]))


class Boosting(BaseEstimator):  # type: ignore[misc]
    """Gradient boosting of one outcome (scikit-learn's, by histograms), stopped early by held-out rows."""

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Floats, y: Floats, sample_weight: Floats | None = None) -> Self:
        """Fit to rows with labels."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        enough = min(y.sum(), len(y) - y.sum()) >= 10  # else nothing can be held out
        self.model_: Any = HistGradientBoostingClassifier(
            learning_rate=0.06,
            max_leaf_nodes=15,
            max_iter=300 if enough else 40,
            early_stopping=bool(enough),
            validation_fraction=0.15,
            random_state=self.random_state,
        ).fit(X, y, sample_weight)
        return self

    def decision_function(self, X: Floats) -> Floats:
        """Log odds, (N,)."""
        return np.asarray(self.model_.decision_function(X))

    def predict_proba(self, X: Floats) -> Floats:
        """Probability of the event, (N,)."""
        return np.asarray(self.model_.predict_proba(X)[:, 1])


# Of weights of labels these take the mean of every row.
ROW_WEIGHTED = ("multi_forest", "kernel_ridge", "ridge_stack")
BASELINES: dict[str, Callable[[], PerOutcome | AllOutcomes]] = {
    "ml_probit": lambda: PerOutcome(PenalisedRegression("probit")),
    "ml_logit": lambda: PerOutcome(PenalisedRegression("logit")),
    "ridge": lambda: PerOutcome(PenalisedRegression("logit", (0.0,))),
    "lasso": lambda: PerOutcome(PenalisedRegression("logit", (1.0,))),
    "elastic_net": lambda: PerOutcome(PenalisedRegression("logit", (0.1, 0.5, 0.9))),
    "random_forest": lambda: PerOutcome(TunedForest()),
    "wide_ridge": WideRidge,
    "multi_forest": MultiForest,
    "kernel_ridge": KernelRidge,
    "boosting": lambda: PerOutcome(Boosting()),
    "classifier_chain": ClassifierChain,
    "ridge_stack": RidgeStack,
}
