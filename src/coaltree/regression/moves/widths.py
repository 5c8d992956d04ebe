r"""Widen or narrow the differences between outcomes together with Φ: all at once, and in each feature.

Where labels say little, Φ is as small as the differences drawn with it, and those are as small as Φ lets them be: drawn
in turn, both mix slowly. So move both: with D = diag(e^u) and deviations δ_j = β_j − β̄,

    (δ, Φ) → (δ D, D Φ D).

The prior density of the deviations and their Jacobian cancel. With Φ ~ IW(df + d − 1, df σ² I), along u_k this leaves

    (1 − df − d) u_k − ½ df σ² (Φ⁻¹)_kk e^(−2u_k) + l(μ, β̄ + δ D),

and along a common u, with σ → e^u σ as well, log p(e^u σ) + u + l(μ, β̄ + e^u δ). Every u is slice sampled in turn, the
common one first, the others in random order, with the pilot's expansion l̂ in place of l: it is quadratic in e^u, so the
rows are not needed. The common slice and the sweep are each accepted with probability
min(1, exp[(l − l̂)(new) − (l − l̂)(old)]), which makes them exact: with l̂ in place of l both would be reversible.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, kernel
from coaltree.model.covariance import PooledWishart
from coaltree.model.family import log_inverse_gamma, sample_inverse_gamma
from coaltree.model.slice import compiled_slice, slice_step
from coaltree.model.wishart import log_half_t
from coaltree.randomness import Stream, make_streams
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.moves.coefficients import Pilot, Point, correction, evaluate, expansion
from coaltree.regression.moves.preconditioner import WidePilot
from coaltree.regression.prior import DFS, Hyper, Prior, outcome_precision

FURTHEST = 20.0
# With many features, how many widths are drawn in one move: the errors of l̂ add up.
N_TOGETHER = 16


@borrowing
def _log_density(u: float, given: tuple[float, float, float, float]) -> float:
    """Along one u_k, up to a constant; `slope` and `bend` are the derivatives of l̂ in e^u at u = 0."""
    power, inverse, slope, bend = given
    step = math.expm1(u)
    return power * u - 0.5 * inverse * math.exp(-2.0 * u) + slope * step - 0.5 * bend * step * step


_, _slice_around = compiled_slice(_log_density)


@borrowing
def slice_width(power: float, inverse: float, slope: float, bend: float, stream: Stream) -> float:
    """A slice step from u = 0."""
    u: float = _slice_around((power, inverse, slope, bend), 0.0, -FURTHEST, FURTHEST, stream)
    return u


@kernel
def sweep(
    order: Ints,
    power: float,
    inverse: Floats,
    curvature: Floats,
    stream: Stream,
    state_deviation: Floats,
    state_gradient: Floats,
    out: Floats,
) -> None:
    """Slice u_k for k in `order`; `state_deviation` δ (P, K) and `state_gradient` ∇l̂ (P, K+1) follow, `out` is u."""
    n_outcomes, d = state_deviation.shape
    for k in order:
        slope = bend = 0.0
        for j in range(n_outcomes):
            slope += state_deviation[j, k] * state_gradient[j, k + 1]
            bend += state_deviation[j, k] ** 2 * curvature[j, k + 1, k + 1]
        u = slice_width(power, inverse[k], slope, bend, stream)
        out[k] = u
        for j in range(n_outcomes):
            change = state_deviation[j, k] * math.expm1(u)
            state_deviation[j, k] += change
            for m in range(d + 1):
                state_gradient[j, m] -= curvature[j, m, k + 1] * change


def _accept(
    point: Point, centre: Floats, deviation: Floats, likelihood: Likelihood, pilot: Pilot, rng: np.random.Generator
) -> Point | None:
    """Return the point with these deviations if it is accepted."""
    log_u = -rng.exponential()
    new = evaluate(likelihood, np.column_stack([point.theta[:, 0], centre + deviation]))
    return new if log_u < correction(pilot, new) - correction(pilot, point) else None


def move_common(
    hyper: Hyper, point: Point, likelihood: Likelihood, pilot: Pilot, family: PooledWishart, rng: np.random.Generator
) -> tuple[Hyper, Point, bool]:
    """Redraw the common width: (δ, Φ, σ) → (e^u δ, e^2u Φ, e^u σ)."""
    now = hyper.unknowns
    assert now is not None
    centre = point.theta[:, 1:].mean(axis=0)
    deviation = point.theta[:, 1:] - centre
    slope = float(np.sum(deviation * expansion(pilot, point.theta)[1][:, 1:]))
    bend = float(np.einsum("jk,jkl,jl->", deviation, pilot.curvature[:, 1:, 1:], deviation))
    width = float(now.covariance.values["width"])

    def log_density(u: float) -> float:
        step = math.expm1(u)
        return log_half_t(width * math.exp(u), family.scale) + u + slope * step - 0.5 * bend * step * step

    u, _ = slice_step(log_density, 0.0, log_density(0.0), rng, width=0.5, lower=-FURTHEST, upper=FURTHEST)
    new = _accept(point, centre, math.exp(u) * deviation, likelihood, pilot, rng)
    if new is None:
        return hyper, point, False
    covariance, _ = family.rescale(now.covariance, math.exp(-2.0 * u))
    return hyper._replace(unknowns=now._replace(covariance=covariance)), new, True


def move_widths(
    hyper: Hyper, point: Point, likelihood: Likelihood, pilot: Pilot, family: PooledWishart, rng: np.random.Generator
) -> tuple[Hyper, Point, bool]:
    """Redraw the width of every feature once."""
    now = hyper.unknowns
    assert now is not None
    d, width = now.covariance.d, float(now.covariance.values["width"])
    centre = point.theta[:, 1:].mean(axis=0)
    deviation = np.ascontiguousarray(point.theta[:, 1:] - centre)
    gradient = expansion(pilot, point.theta)[1]
    half = now.covariance.whiten(np.eye(d))
    inverse, u = family.df * width**2 * np.einsum("ij,ij->i", half, half), np.zeros(d)
    order, stream = rng.permutation(d), make_streams(rng, 1)[0]
    sweep(order, 1.0 - family.df - d, inverse, pilot.curvature, stream, deviation, gradient, u)
    new = _accept(point, centre, deviation, likelihood, pilot, rng)
    if new is None:
        return hyper, point, False
    widths = np.exp(u)
    values = {"covariance": now.covariance.matrix() * np.outer(widths, widths), "width": width}
    return hyper._replace(unknowns=now._replace(covariance=family.from_values(values, d))), new, True


# ---- many features, each with its own width


@kernel
def sweep_widths(
    order: Ints,
    df: float,
    inverse: Floats,
    weights: Floats,
    gram: Floats,
    stream: Stream,
    state_beta: Floats,
    state_gradient: Floats,
    out: Floats,
) -> None:
    """Slice u_k for k in `order`, (β_·k, λ_k) → e^u (β_·k, λ_k); β (P, K) and ∇l̂ (P, K) follow, `out` is u."""
    n_outcomes, d = state_beta.shape
    for k in order:
        slope = bend = 0.0
        for j in range(n_outcomes):
            slope += state_beta[j, k] * state_gradient[j, k]
            bend += state_beta[j, k] ** 2 * weights[j] * gram[k, k]
        u = slice_width(-df, df * inverse[k], slope, bend, stream)
        out[k] = u
        for j in range(n_outcomes):
            change = state_beta[j, k] * math.expm1(u)
            state_beta[j, k] += change
            for m in range(d):
                state_gradient[j, m] -= weights[j] * gram[m, k] * change


def move_effects(
    hyper: Hyper,
    point: Point,
    likelihood: Likelihood,
    pilot: WidePilot,
    intercept: float,
    rng: np.random.Generator,
) -> tuple[Hyper, Point, bool]:
    r"""Draw the widths of a few features with all their effects: (β_·k, λ_k) → e^u (β_·k, λ_k), μ′ held fixed.

    The prior of the effects and their Jacobian cancel; what remains along u is −νu − ½νe^(−2u)/λ_k² + l̂.
    """
    assert hyper.widths is not None
    part, gram = pilot.grams[int(rng.integers(len(pilot.grams)))]
    theta, widths = point.theta, hyper.widths
    beta = np.ascontiguousarray(theta[:, 1:][:, part])
    order = rng.permutation(beta.shape[1])[:N_TOGETHER]
    gradient = np.ascontiguousarray(pilot.linear[:, 1:][:, part] - pilot.weights[:, None] * (beta @ gram))
    before, u = gradient.copy(), np.zeros(beta.shape[1])
    moved = beta.copy()
    stream, log_u = make_streams(rng, 1)[0], -rng.exponential()
    sweep_widths(order, hyper.df, widths[part] ** -2.0, pilot.weights, gram, stream, moved, gradient, u)
    new = theta.copy()
    new[:, 1:][:, part] = moved
    new[:, 0] = pilot.sheared(theta) - np.einsum("jk,jk->j", pilot.shear, new[:, 1:])
    ahead = evaluate(likelihood, new)
    # l̂ is quadratic, so its gain is the step times the mean of the gradients at both ends.
    gain = ahead.log_likelihood - point.log_likelihood - 0.5 * float(np.sum((moved - beta) * (before + gradient)))
    gain += 0.5 * intercept * float(theta[:, 0] @ theta[:, 0] - new[:, 0] @ new[:, 0])
    if not log_u < gain:
        return hyper, point, False
    widths = widths.copy()
    widths[part] *= np.exp(u)
    return hyper._replace(widths=widths), ahead, True


def draw_widths(hyper: Hyper, beta: Floats, rng: np.random.Generator) -> Hyper:
    r"""ν given β with λ integrated out, then λ given both: the effects of a feature are a multivariate t.

    With r_k = β_·kᵀ A β_·k:  p(β | ν) ∝ Π_k Γ((ν+P)/2)/Γ(ν/2) ν^(ν/2) (ν + r_k)^(−(ν+P)/2),
    λ_k² | ν, β ~ IG((ν + P)/2, (ν + r_k)/2).
    """
    n_outcomes, n_features = beta.shape
    square = np.einsum("jk,jk->k", outcome_precision(hyper, n_outcomes) @ beta, beta)
    square = np.maximum(square, 0.0)
    half = 0.5 * (DFS + n_outcomes)
    log_p = n_features * (gammaln(half) - gammaln(0.5 * DFS) + 0.5 * DFS * np.log(DFS))
    log_p -= half * np.log(DFS[:, None] + square).sum(axis=1)
    p = np.exp(log_p - log_p.max())
    df = float(rng.choice(DFS, p=p / p.sum()))
    variances = sample_inverse_gamma(np.full(n_features, 0.5 * (df + n_outcomes)), 0.5 * (df + square), rng)
    return hyper._replace(widths=np.sqrt(variances), df=df)


def rescale_widths(hyper: Hyper, prior: Prior, rng: np.random.Generator) -> Hyper:
    """(λ, σ, τ) → (cλ, σ/c, τ/c), which leaves the prior of β unchanged: a slice step in log c."""
    assert hyper.widths is not None
    widths, now = hyper.widths, hyper.unknowns

    def log_density(log_c: float) -> float:
        c = math.exp(log_c)
        value = log_inverse_gamma((c * widths) ** 2, 0.5 * hyper.df, 0.5 * hyper.df) + 2.0 * len(widths) * log_c
        value += log_half_t(hyper.spread / c, prior.spread_scale) - log_c
        return value if now is None else value + prior.family.log_rescale(now.covariance, c * c)

    log_c, _ = slice_step(log_density, 0.0, log_density(0.0), rng, width=0.5, lower=-40.0, upper=40.0)
    c = math.exp(log_c)
    if now is not None:
        now = now._replace(covariance=prior.family.rescale(now.covariance, c * c)[0])
    return Hyper(now, hyper.spread / c, c * widths, hyper.df)
