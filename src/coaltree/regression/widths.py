r"""Widen or narrow the differences between outcomes together with Φ: all at once, and in each feature.

Where labels say little, Φ is as small as the differences drawn with it, and those as small as Φ lets them be: drawn in
turn they crawl. So move both: with D = diag(e^u) and deviations δ_j = β_j − β̄,

    (δ, Φ) → (δ D, D Φ D).

Prior density of the deviations and their Jacobian cancel. With Φ ~ IW(df + d − 1, df σ² I) there is left along u_k

    (1 − df − d) u_k − ½ df σ² (Φ⁻¹)_kk e^(−2u_k) + l(μ, β̄ + δ D),

and along a common u, with σ → e^u σ as well, log p(e^u σ) + u + l(μ, β̄ + e^u δ). Every u is sliced in turn, the common
one first, the others in random order, with the pilot's expansion l̂ in place of l: quadratic in e^u, so it never touches
the rows. The common slice and the sweep are each accepted with probability min(1, exp[(l − l̂)(new) − (l − l̂)(old)]),
which makes them exact: with l̂ in place of l both would be reversible.
"""

from __future__ import annotations

import math

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.model.covariance import PooledWishart
from coaltree.model.pooled import log_half_t
from coaltree.model.slice import slice_step
from coaltree.randomness import Stream, exponential, make_streams, uniform
from coaltree.regression.coefficients import Pilot, Point, evaluate, expansion
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.prior import Hyper

FURTHEST = 20.0


@inline
def _log_density(u: float, power: float, inverse: float, slope: float, bend: float) -> float:
    """Along one u_k, up to a constant; `slope` and `bend` are the derivatives of l̂ in e^u at u = 0."""
    step = math.expm1(u)
    return power * u - 0.5 * inverse * math.exp(-2.0 * u) + slope * step - 0.5 * bend * step * step


@inline
def slice_width(power: float, inverse: float, slope: float, bend: float, stream: Stream) -> float:
    """A slice step from u = 0."""
    level = _log_density(0.0, power, inverse, slope, bend) - exponential(stream)
    left = -uniform(stream)
    right = left + 1.0
    while left > -FURTHEST and _log_density(left, power, inverse, slope, bend) > level:
        left -= 1.0
    while right < FURTHEST and _log_density(right, power, inverse, slope, bend) > level:
        right += 1.0
    u = left + (right - left) * uniform(stream)
    while not _log_density(u, power, inverse, slope, bend) >= level:
        if u < 0.0:
            left = u
        else:
            right = u
        u = left + (right - left) * uniform(stream)
        if right - left < 1e-12:
            return 0.0
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
    """Return the point with these deviations, if it is accepted."""
    log_u = -rng.exponential()
    new = evaluate(likelihood, np.column_stack([point.theta[:, 0], centre + deviation]))
    gain = new.log_likelihood - point.log_likelihood
    gain += expansion(pilot, point.theta)[0] - expansion(pilot, new.theta)[0]
    return new if log_u < gain else None


def move_common(
    hyper: Hyper, point: Point, likelihood: Likelihood, pilot: Pilot, family: PooledWishart, rng: np.random.Generator
) -> tuple[Hyper, Point, bool]:
    """Draw the common width anew: (δ, Φ, σ) → (e^u δ, e^2u Φ, e^u σ)."""
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
    """Draw the width of every feature anew, once."""
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
