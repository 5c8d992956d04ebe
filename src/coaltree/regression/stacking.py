r"""Nonlinear effects: predictions of other models for rows they have not seen, used as features.

Four models learn every outcome: one forest for all, one ridge regression each, a kernel ridge regression, and the
linear coalescent probit. Each predicts the training rows without having seen them: the forest out of bag, the kernel by
leaving out one row, the others in folds. The log odds z_ijm of model m for outcome j then enter a second regression
over a tree,

    y_ij ~ Bernoulli(logit⁻¹(μ_j + Σ_m γ_jm z_ijm + Σ_s α_js u_is)),

where each outcome has its own columns z, centred, in units common to all outcomes, and shares the principal components
u of all log odds of all models. (γ_j, α_j) are the leaves of a tree with the prior for many features (`prior`): the
weight of a model is learned for all outcomes together, as far as they agree.

The stack is used only if its predictive density of held-out rows is higher than that of the linear model alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logit, logsumexp

from coaltree._arrays import Floats, Ints
from coaltree.randomness import as_generator
from coaltree.regression.families.base import Observed, OutcomeScale
from coaltree.regression.families.binary import LOGIT, as_signs, smoothed_rates
from coaltree.regression.fit import N_PREDICTIVE, Options, RegressionFit, fit_prepared
from coaltree.regression.folds import stratified_folds
from coaltree.regression.forest import Forest, grow_forest, log_odds
from coaltree.regression.kernel_ridge import Kernel, fit_kernel
from coaltree.regression.likelihood import OwnLikelihood, as_columns, row_weights
from coaltree.regression.links import Signs, log_link
from coaltree.regression.penalised import Ridge, crossfit_ridge
from coaltree.regression.preparation import Prepared, Scaling

Fit = Callable[[Any, Floats, Floats], RegressionFit]

MODELS = ("forest", "ridge", "kernel", "linear")
N_FOLDS = 5
# Iterations of the linear model per fold, and how many of them are dropped: a mean prediction needs no more.
FOLD_ITERATIONS, FOLD_BURN_IN = 150, 75
MOST_COMPONENTS = 5
# Log odds are clipped at this value.
FURTHEST = 8.0


@dataclass(frozen=True, eq=False)
class Stack:
    """The models, how their log odds become columns, and the coalescent probit on these."""

    fit: RegressionFit  # K = S + C coefficients: components first, then one per model
    forest: Forest
    ridge: Ridge
    kernel: Kernel
    kept: Ints  # outcomes with both classes
    centre: Floats  # (C, P), of log odds
    scale: Floats  # (C,)
    loadings: Floats  # (C P, S)
    densities: dict[str, Floats]  # log density of held-out rows, each (P,); NaN for outcomes with one class

    @property
    def chosen(self) -> bool:
        """Whether it predicts held-out rows better than the linear model does."""
        return bool(np.nansum(self.densities["stack"]) > np.nansum(self.densities["linear"]))

    @property
    def linear_share(self) -> Floats:
        """The share of the stack's gain over the rates alone that the linear model also achieves, (P,)."""
        rate, linear, stack = (self.densities[name] for name in ("rates", "linear", "stack"))
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(stack > rate, (linear - rate) / (stack - rate), np.nan)
        return np.asarray(np.clip(share, 0.0, 1.0))

    def predict(self, X: Any, linear: RegressionFit, node_weights: Floats | None, return_std: bool) -> Any:
        """Posterior mean probabilities (N, P), or those of nodes with the given weights; with deviations if wanted."""
        probability = linear.predict_proba(X)
        learned = [model.logits(X) for model in (self.forest, self.ridge, self.kernel)]
        models = np.stack([*learned, _odds(probability[:, self.kept])])
        shared, own = stacked_columns(models, self.centre, self.scale, self.loadings)
        coef = self.fit.coef_draws.reshape(-1, *self.fit.coef_draws.shape[2:])
        intercept = self.fit.intercept_draws.reshape(len(coef), -1)
        drawn = np.linspace(0, len(coef) - 1, min(len(coef), N_PREDICTIVE)).round().astype(int)
        rest = LOGIT.predictor(probability)  # outcomes with one class are unchanged
        n_models = probability.shape[1] if node_weights is None else len(node_weights)
        total, squares = np.zeros((len(probability), n_models)), np.zeros((len(probability), n_models))
        for s in drawn:
            eta = rest.copy()
            eta[:, self.kept] = _predictor(shared, own, coef[s], intercept[s])
            if node_weights is not None:
                eta = eta @ node_weights.T
            p = LOGIT.mean(eta)
            total += p
            squares += p**2
        mean = total / len(drawn)
        deviation = np.sqrt(np.maximum(squares / len(drawn) - mean**2, 0.0))
        return (mean, deviation) if return_std else mean


def stacked_columns(models: Floats, centre: Floats, scale: Floats, loadings: Floats) -> tuple[Floats, Floats]:
    """Shared (N, S) and own (C, N, P) columns from log odds (C, N, P)."""
    own = (np.clip(models, -FURTHEST, FURTHEST) - centre[:, None]) / scale[:, None, None]
    return _side_by_side(own) @ loadings, own


def _side_by_side(own: Floats) -> Floats:
    """(C, N, P) → (N, C P)."""
    return np.ascontiguousarray(np.moveaxis(own, 0, 1)).reshape(own.shape[1], -1)


def _odds(probability: Floats) -> Floats:
    return np.asarray(logit(np.clip(probability, 1e-6, 1.0 - 1e-6)))


def _predictor(shared: Floats, own: Floats, coef: Floats, intercept: Floats) -> Floats:
    """η (N, P) of one draw: coefficients (P, S + C)."""
    n_shared = shared.shape[1]
    eta = shared @ coef[:, :n_shared].T + intercept
    for c, column in enumerate(own):
        eta += column * coef[:, n_shared + c]
    return np.asarray(eta)


def learn_stack(
    X: Floats, Y: Floats, weights: Floats, fit_linear: Fit, options: Options, random_state: Any, n_jobs: int | None
) -> Stack:
    """Learn everything but the linear model itself from features (N, K), labels (N, P) of 0, 1, NaN and weights.

    `fit_linear(X, Y, weights)` fits the linear model to a part of the rows.
    """
    rng = as_generator(random_state)
    ones, zeros = (Y == 1).sum(axis=0), (Y == 0).sum(axis=0)
    kept = np.flatnonzero((ones > 0) & (zeros > 0))
    n_outcomes, Y = Y.shape[1], np.ascontiguousarray(Y[:, kept])
    weights = weights if weights.ndim == 1 else np.ascontiguousarray(weights[:, kept])
    cases, rates = row_weights(weights), smoothed_rates(Y, weights)
    folds = stratified_folds(Y, min(N_FOLDS, len(Y)), rng)
    forest, votes = grow_forest(X, Y, cases, rates, int(rng.integers(2**31)))
    ridge, logits = crossfit_ridge(X, Y, weights, rates, folds)
    kernel, expected = fit_kernel(X, Y, cases, rates, rng)
    linear = np.empty_like(Y)
    for fold in range(int(folds.max()) + 1):
        out = folds == fold
        linear[out] = fit_linear(X[~out], Y[~out], weights[~out]).predict_proba(X[out])
    models = np.stack([log_odds(votes, rates), logits, log_odds(expected, rates), _odds(linear)])
    clipped = np.clip(models, -FURTHEST, FURTHEST)
    share = cases / cases.sum()
    centre = np.einsum("i,cij->cj", share, clipped)
    own = clipped - centre[:, None]
    scale = np.maximum(np.sqrt(np.einsum("i,cij->c", share, own**2) / len(kept)), 1e-6)
    loadings = _principal(_side_by_side(own / scale[:, None, None]), min(MOST_COMPONENTS, len(kept) - 1))
    shared, own = stacked_columns(models, centre, scale, loadings)

    signs, every = as_signs(Y), np.arange(len(kept))
    rows = np.hstack([np.ones((len(Y), 1)), shared])
    likelihood = OwnLikelihood(rows, (Observed(LOGIT, every, (signs,)),), weights, own)
    n_columns = likelihood.n_features
    plain = Scaling(np.zeros(n_columns), np.ones(n_columns), n_columns)
    zeros = np.zeros(len(kept))
    units = OutcomeScale(fitted=every >= 0, constant=zeros, centre=zeros, width=np.ones(len(kept)))
    prepared = Prepared(likelihood, plain, (LOGIT,) * len(kept), units, wide=True)
    fit = fit_prepared(prepared, options, None, None, n_jobs, rng)
    found = {"rates": np.broadcast_to(logit(rates), Y.shape), **dict(zip(MODELS, models, strict=True))}
    inside = {name: _density(Y, odds, weights) for name, odds in found.items()}
    inside["stack"] = _left_out(fit, shared, own, signs, weights)
    densities = {name: np.full(n_outcomes, np.nan) for name in inside}
    for name, values in inside.items():
        densities[name][kept] = values
    return Stack(fit, forest, ridge, kernel, kept, centre, scale, loadings, densities)


def _principal(table: Floats, n_components: int) -> Floats:
    """Loadings (columns, S) of the leading principal components, each of unit variance."""
    if n_components < 1:
        return np.zeros((table.shape[1], 0))
    values, vectors = np.linalg.eigh(table.T @ table / len(table))
    leading = np.argsort(-values)[:n_components]
    leading = leading[values[leading] > 1e-9 * values.max()]
    # Fix the sign of every axis, so that it does not depend on the library.
    axes = vectors[:, leading] * np.sign(vectors[np.abs(vectors[:, leading]).argmax(axis=0), leading])
    return np.asarray(axes / np.sqrt(values[leading]))


def _density(Y: Floats, odds: Floats, weights: Floats) -> Floats:
    """Log density of labels given log odds, summed over rows, (P,)."""
    signs = np.where(np.isnan(Y), 0.0, 2.0 * Y - 1.0)
    return np.asarray(-(np.logaddexp(0.0, -signs * odds) * np.abs(signs) * as_columns(weights)).sum(axis=0))


def _left_out(fit: RegressionFit, shared: Floats, own: Floats, signs: Signs, weights: Floats) -> Floats:
    """Leave-one-out log density of each outcome, (P,), by importance sampling over draws (Gelfand 1996).

    The features of a row come from models that have not seen it, so they carry no information on its labels.
    """
    coef = fit.coef_draws.reshape(-1, *fit.coef_draws.shape[2:])
    intercept = fit.intercept_draws.reshape(len(coef), -1)
    drawn = np.linspace(0, len(coef) - 1, min(len(coef), N_PREDICTIVE)).round().astype(int)
    values = np.stack([log_link(signs * _predictor(shared, own, coef[s], intercept[s]), LOGIT.link) for s in drawn])
    # Weights 1/p, truncated at the root of their number times their mean (Ionides 2008).
    log_w = -values
    log_w = np.minimum(log_w, logsumexp(log_w, axis=0) - 0.5 * np.log(len(drawn)))
    left_out = logsumexp(log_w + values, axis=0) - logsumexp(log_w, axis=0)
    return np.asarray((left_out * np.abs(signs) * as_columns(weights)).sum(axis=0))
