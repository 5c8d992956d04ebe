r"""Penalised regression of binary outcomes.

**One outcome, few features** (`fit_coefficients`), by Newton's method: maximum likelihood, ridge, lasso and elastic net
in one solver. The objective is the mean loss plus the penalty,

    f(θ) = Σ_i −w_i log F(s_i η_i) / Σ_i w_i + λ Σ_{k ≥ 1} [ α |θ_k| + ½ (1 − α) θ_k² ],   η = X θ,  s = 2y − 1,

with F the logistic or the normal distribution function and θ_0 the intercept, which is unpenalised. Features are few
and rows many, so every Newton step reduces the rows to one (K+1, K+1) matrix, and the step itself, with or without the
absolute values, costs next to nothing in comparison.

**All outcomes at once, many features** (`crossfit_ridge`): ridge logistic regression along a path of penalties. After
rotation to the principal axes of the scaled features the curvature is close to w_j d_k + penalty, w_j the mean of
p(1 − p): a few steps with that inverse, all outcomes in one matrix product, come close enough. Fits under weak
penalties do not fully converge, which itself acts as a penalty; the path is the same in every fold, and its best point
is chosen by held-out loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import expit, log_expit, log_ndtr, logit, ndtri

from coaltree._arrays import Floats, Ints
from coaltree._compile import kernel
from coaltree.regression.likelihood import as_columns, row_weights
from coaltree.regression.preparation import scale_features

Link = Literal["logit", "probit"]

LINKS: tuple[Link, ...] = ("logit", "probit")

_MAX_STEPS = 100
_MAX_SWEEPS = 1000
_MAX_HALVINGS = 40
_PRECISE = 1e-12  # suboptimality of the mean loss, in nats
_ROUGH = 1e-6  # enough to rank penalties by held-out loss: each Newton step squares the error
_ROUNDING = 1e-14
_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)

_N_PENALTIES = 25
_SMALLEST_RATIO = 1e-4  # of the penalties tried, the smallest over the largest
_RIDGE_L1_RATIO = 1e-2  # stands for 0 when the largest penalty is set: ridge has none that zeroes every coefficient
_N_WORSE = 5  # the path ends after this many penalties in a row without an improvement


def mean_loss(y: Floats, eta: Floats, link: Link, weights: Floats | None = None) -> float:
    """Weighted mean of −log F(s η), the log loss in nats."""
    margin = (2.0 * y - 1.0) * eta
    return -float(np.average(log_expit(margin) if link == "logit" else log_ndtr(margin), weights=weights))


def _derivatives(y: Floats, eta: Floats, link: Link) -> tuple[Floats, Floats]:
    """First and second derivative of every row's loss in η."""
    if link == "logit":
        rate = expit(eta)
        return rate - y, rate * (1.0 - rate)
    sign = 2.0 * y - 1.0
    margin = sign * eta
    ratio = np.exp(-0.5 * margin**2 - _LOG_SQRT_2PI - log_ndtr(margin))
    return -sign * ratio, ratio * (ratio + margin)


def fit_coefficients(
    X: Floats,
    y: Floats,
    penalty: float,
    l1_ratio: float,
    link: Link = "logit",
    start: Floats | None = None,
    tolerance: float = _PRECISE,
    weights: Floats | None = None,
) -> Floats:
    """Minimise f by (proximal) Newton steps with halving; return θ (K+1,).

    `X` (N, K+1) has a first column of ones, as from `Scaling.apply`; `y` (N,) holds zeros and ones, both present.
    """
    share = np.full(len(y), 1.0 / len(y)) if weights is None else weights / weights.sum()
    l1, l2 = penalty * l1_ratio, penalty * (1.0 - l1_ratio)
    theta = np.zeros(X.shape[1]) if start is None else start.copy()
    if start is None:
        theta[0] = base_rate_predictor(float(share @ y), link)
    ridge = np.full(len(theta), l2)
    ridge[0] = 0.0

    def objective(theta: Floats, eta: Floats) -> float:
        return mean_loss(y, eta, link, share) + 0.5 * float(ridge @ theta**2) + l1 * float(np.abs(theta[1:]).sum())

    eta = X @ theta
    value = objective(theta, eta)
    for _ in range(_MAX_STEPS):
        first, second = _derivatives(y, eta, link)
        gradient = X.T @ (share * first)
        hessian = (X * (share * second)[:, None]).T @ X
        if l1 == 0.0:
            step = -np.linalg.solve(hessian + np.diag(ridge) + _ROUNDING * np.eye(len(theta)), gradient + ridge * theta)
        else:
            target = theta.copy()
            descend(hessian, hessian @ theta - gradient, l1, l2, np.sqrt(1e-4 * tolerance), _MAX_SWEEPS, target)
            step = target - theta
        along = X @ step
        size, halvings = 1.0, 0
        while (moved := objective(theta + size * step, eta + size * along)) > value and halvings < _MAX_HALVINGS:
            size, halvings = 0.5 * size, halvings + 1
        if moved > value:  # rounding: no further step improves
            break
        theta, eta, value = theta + size * step, eta + size * along, moved
        if 0.5 * size * float(step @ hessian @ step) < tolerance:
            break
    return theta


def base_rate_predictor(rate: float, link: Link) -> float:
    """Linear predictor of a rate."""
    return float(logit(rate) if link == "logit" else ndtri(rate))


@kernel
def descend(
    hessian: Floats, linear: Floats, l1: float, l2: float, tolerance: float, max_sweeps: int, out: Floats
) -> None:
    """Minimise ½ θᵀHθ − bᵀθ + Σ_{k ≥ 1} (l1 |θ_k| + ½ l2 θ_k²) by coordinate descent from `out` (K+1,), in place.

    Stops when no coordinate moves by more than `tolerance` in units of its curvature, √(H_kk + l2) |δ_k|.
    """
    n = len(out)
    residual = linear - hessian @ out
    for _ in range(max_sweeps):
        largest = 0.0
        for k in range(n):
            curvature = hessian[k, k]
            pull = residual[k] + curvature * out[k]
            if k > 0:
                curvature += l2
                pull = max(pull - l1, 0.0) if pull > 0.0 else min(pull + l1, 0.0)
            if curvature <= 0.0:
                continue
            moved = pull / curvature - out[k]
            if moved != 0.0:
                out[k] += moved
                residual -= moved * hessian[k]
                largest = max(largest, curvature * moved * moved)
        if largest <= tolerance * tolerance:
            break


def penalties(X: Floats, y: Floats, weights: Floats, l1_ratio: float) -> Floats:
    """Grid of λ from the smallest that zeroes every coefficient, downwards."""
    share = weights / weights.sum()
    largest = float(np.abs(X[:, 1:].T @ (share * (y - share @ y))).max()) if X.shape[1] > 1 else 0.0
    top = max(largest, 1e-8) / max(l1_ratio, _RIDGE_L1_RATIO)
    span = _SMALLEST_RATIO * (_RIDGE_L1_RATIO if l1_ratio < _RIDGE_L1_RATIO else 1.0)
    return np.geomspace(top, span * top, _N_PENALTIES)


def choose_penalty(
    X: Floats, y: Floats, weights: Floats, l1_ratios: tuple[float, ...], folds: Ints
) -> tuple[float, float, float]:
    """Penalty λ and l1_ratio with the lowest held-out log loss of the logistic regression, and that loss.

    `X` (N, K+1) as in `fit_coefficients`; `folds` (N,) numbers the held-out parts. Every part is fitted down the same
    path of penalties, each fit starting from the last; the path ends when the loss no longer falls.
    """
    held = [folds == f for f in np.unique(folds)]
    parts = [(X[~out], y[~out], weights[~out], X[out], y[out], weights[out]) for out in held]
    best = (np.inf, 0.0, 0.0)
    for l1_ratio in l1_ratios:
        thetas: list[Floats | None] = [None] * len(parts)
        lowest, n_worse = np.inf, 0
        for penalty in penalties(X, y, weights, l1_ratio):
            total = 0.0
            for i, (X_in, y_in, w_in, X_out, y_out, w_out) in enumerate(parts):
                theta = fit_coefficients(X_in, y_in, penalty, l1_ratio, "logit", thetas[i], _ROUGH, w_in)
                thetas[i] = theta
                total += w_out.sum() * mean_loss(y_out, X_out @ theta, "logit", w_out)
            loss = total / weights.sum()
            best = min(best, (loss, float(penalty), l1_ratio))
            # Equal losses do not count: at the top of the path absolute values still zero every coefficient.
            n_worse = n_worse + 1 if loss > lowest + 1e-9 else 0
            lowest = min(lowest, loss)
            if n_worse >= _N_WORSE:
                break
    return best[1], best[2], best[0]


# ---- ridge regression of all outcomes at once, for many features

# Prior variance of the linear predictor at each penalty.
VARIANCES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
# Features are divided by their deviation to these powers: the first gives rare words too much weight.
POWERS = (1.0, 0.5)
N_STEPS = 12


@dataclass(frozen=True, eq=False)
class Ridge:
    """A linear predictor of every outcome."""

    intercept: Floats  # (P,)
    coef: Floats  # (P, K)

    def logits(self, X: Any) -> Floats:
        """(N, P)."""
        return np.asarray(X @ self.coef.T + self.intercept)


def ridge_path(X: Floats, Y: Floats, weights: Floats, rates: Floats, powers: Sequence[float] = POWERS) -> list[Ridge]:
    """One model per scaling and penalty, the strongest penalty first."""
    return [model for power in powers for model in _path(X, Y, weights, rates, power)]


def _path(X: Floats, Y: Floats, weights: Floats, rates: Floats, power: float) -> list[Ridge]:
    cases = row_weights(weights)
    share = cases / cases.sum()
    scaling = scale_features(X, cases)
    centre, width = scaling.centre, np.where(scaling.varying, scaling.width, np.inf) ** power
    rows = (X - centre) / width
    root = np.sqrt(cases)[:, None]
    if rows.shape[1] <= len(rows):
        d, axes = np.linalg.eigh((rows * root).T @ (rows * root))
        keep = d > 1e-9 * max(d[-1], 1e-300)
        d, axes = d[keep], axes[:, keep]
    else:
        d, left = np.linalg.eigh((rows * root) @ (rows * root).T)
        keep = d > 1e-9 * max(d[-1], 1e-300)
        d = d[keep]
        axes = (rows * root).T @ left[:, keep] / np.sqrt(d)
    turned = rows @ axes
    known = np.where(np.isnan(Y), 0.0, as_columns(weights))
    labels = np.where(np.isnan(Y), 0.0, Y)
    theta, mu = np.zeros((Y.shape[1], len(d))), logit(rates)
    total, path = np.maximum(known.sum(axis=0), 1e-12), []
    spread = max(float(np.sum(share @ rows**2)), 1e-300)
    signs = known * (2.0 * labels - 1.0)

    def height(mu: Floats, theta: Floats, penalty: float) -> tuple[Floats, Floats]:
        """η, and the penalised log likelihood of each outcome."""
        eta = turned @ theta.T + mu
        fit = -np.einsum("ij,ij->j", known, np.logaddexp(0.0, -np.sign(signs) * eta))
        return eta, fit - 0.5 * penalty * (theta**2).sum(axis=1)

    for variance in VARIANCES:
        penalty, caution = spread / variance, np.ones(Y.shape[1])
        eta, now = height(mu, theta, penalty)
        for _ in range(N_STEPS):
            p = expit(eta)
            residual = known * (labels - p)
            bend = caution * np.maximum((known * p * (1.0 - p)).sum(axis=0) / total, 1e-6)
            new_mu = mu + residual.sum(axis=0) / (bend * total)
            new_theta = theta + (residual.T @ turned - penalty * theta) / (bend[:, None] * d + penalty)
            new_eta, new = height(new_mu, new_theta, penalty)
            # Rows that matter have more curvature than the mean: a step that overshoots is undone and shortened.
            better = new >= now - 1e-9 * np.abs(now)  # at the maximum all steps are level
            mu, now, eta = np.where(better, new_mu, mu), np.where(better, new, now), np.where(better, new_eta, eta)
            theta = np.where(better[:, None], new_theta, theta)
            caution = np.where(better, np.maximum(0.8 * caution, 1.0), 3.0 * caution)
        coef = (theta @ axes.T) / width
        path.append(Ridge(mu - coef @ centre, coef))
    return path


def crossfit_ridge(
    X: Floats, Y: Floats, weights: Floats, rates: Floats, folds: Ints, powers: Sequence[float] = POWERS
) -> tuple[Ridge, Floats]:
    """Choose every outcome's penalty by held-out loss; return the model and the held-out logits.

    Weights are of rows (N,) or of labels (N, P). Features are divided by their deviation to each of the `powers`: with
    0 alone they keep their units.
    """
    held = np.empty((len(powers) * len(VARIANCES), *Y.shape))
    for fold in range(int(folds.max()) + 1):
        out = folds == fold
        for k, model in enumerate(ridge_path(X[~out], Y[~out], weights[~out], rates, powers)):
            held[k, out] = model.logits(X[out])
    labels = np.where(np.isnan(Y), 0.0, 2.0 * Y - 1.0)
    loss = (np.logaddexp(0.0, -labels * held) * np.abs(labels) * as_columns(weights)).sum(axis=1)
    best = np.argmin(loss, axis=0)
    path, outcomes = ridge_path(X, Y, weights, rates, powers), np.arange(Y.shape[1])
    intercept = np.array([path[k].intercept[j] for j, k in enumerate(best)])
    coef = np.array([path[k].coef[j] for j, k in enumerate(best)])
    return Ridge(intercept, coef), np.moveaxis(held, 0, 2)[:, outcomes, best]
