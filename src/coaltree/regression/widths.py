r"""Widen or narrow the differences between outcomes in each feature together with Φ, coefficients included.

Where labels say little about a feature, Φ_kk is as small as the differences drawn with it, and those as small as Φ_kk
lets them be: drawn in turn they crawl. So move both: with D = diag(e^u) and deviations δ_j = β_j − β̄,

    (δ, Φ) → (δ D, D Φ D).

Prior density of the deviations and their Jacobian cancel; along u_k is left, for Huang and Wand's prior in d features,

    (1 − df − d) u_k − ½ (df + d) log(df (Φ⁻¹)_kk e^(−2u_k) + 1/scale_k²) + l(μ, β̄ + δ D).

Each u_k is sliced in turn, in random order, with the pilot's expansion l̂ in place of l: quadratic in e^(u_k), so it
never touches the rows. That sweep is reversible under the model with l̂, and accepting its end with probability
min(1, exp[(l − l̂)(new) − (l − l̂)(old)]) makes it exact.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from coaltree._compile import inline, kernel
from coaltree.model.covariance import HuangWand
from coaltree.randomness import Stream, exponential, make_streams, uniform
from coaltree.regression.coefficients import Pilot, Point, evaluate
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.prior import Hyper

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FURTHEST = 20.0


@inline
def _log_density(u: float, d: int, df: float, inverse: float, rate: float, slope: float, bend: float) -> float:
    """Along one u_k, up to a constant; `slope` and `bend` are the derivatives of l̂ in e^u at u = 0."""
    step = math.expm1(u)
    prior = (1.0 - df - d) * u - 0.5 * (df + d) * math.log(df * inverse * math.exp(-2.0 * u) + rate)
    return prior + slope * step - 0.5 * bend * step * step


@kernel
def sweep(
    order: Ints,
    df: float,
    inverse: Floats,
    rates: Floats,
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
        level = _log_density(0.0, d, df, inverse[k], rates[k], slope, bend) - exponential(stream)
        left = -uniform(stream)
        right = left + 1.0
        while left > -FURTHEST and _log_density(left, d, df, inverse[k], rates[k], slope, bend) > level:
            left -= 1.0
        while right < FURTHEST and _log_density(right, d, df, inverse[k], rates[k], slope, bend) > level:
            right += 1.0
        u = left + (right - left) * uniform(stream)
        while not _log_density(u, d, df, inverse[k], rates[k], slope, bend) >= level:
            if u < 0.0:
                left = u
            else:
                right = u
            u = left + (right - left) * uniform(stream)
            if right - left < 1e-12:
                u = 0.0
                break
        out[k] = u
        for j in range(n_outcomes):
            change = state_deviation[j, k] * math.expm1(u)
            state_deviation[j, k] += change
            for m in range(d + 1):
                state_gradient[j, m] -= curvature[j, m, k + 1] * change


def _expansion(pilot: Pilot, theta: Floats) -> tuple[float, Floats]:
    """l̂ up to a constant, and its gradient."""
    gap = theta - pilot.theta
    bend = np.einsum("jkl,jl->jk", pilot.curvature, gap)
    return float(np.sum(gap * (pilot.gradient - 0.5 * bend))), np.ascontiguousarray(pilot.gradient - bend)


def move_widths(
    hyper: Hyper, point: Point, likelihood: Likelihood, pilot: Pilot, family: HuangWand, rng: np.random.Generator
) -> tuple[Hyper, Point, bool]:
    """Draw the width of every feature anew, once."""
    now = hyper.unknowns
    assert now is not None
    theta, d = point.theta, now.covariance.d
    centre = theta[:, 1:].mean(axis=0)
    deviation = np.ascontiguousarray(theta[:, 1:] - centre)
    before, gradient = _expansion(pilot, theta)
    half = now.covariance.whiten(np.eye(d))
    inverse, u = np.einsum("ij,ij->i", half, half), np.zeros(d)
    order, stream = rng.permutation(d), make_streams(rng, 1)[0]
    rates = np.ascontiguousarray(family.rates(d))
    sweep(order, family.df, inverse, rates, pilot.curvature, stream, deviation, gradient, u)
    log_u = -rng.exponential()
    new = evaluate(likelihood, np.column_stack([theta[:, 0], centre + deviation]))
    gain = new.log_likelihood - point.log_likelihood - _expansion(pilot, new.theta)[0] + before
    if not log_u < gain:
        return hyper, point, False
    widths = np.exp(u)
    covariance = family.from_values({"covariance": now.covariance.matrix() * np.outer(widths, widths)}, d)
    return hyper._replace(unknowns=now._replace(covariance=covariance)), new, True
