r"""Draw all intercepts and coefficients at once, given tree, Φ, s₀ and τ.

**Hamiltonian, collapsed** (`hamiltonian`): no latent variables. At a pilot point θ̂ the likelihood is replaced by its
second-order expansion l̂; with the Gaussian prior that gives a Gaussian N(m, M⁻¹), M = H + prior precision, which
captures all of the prior and most of the likelihood. In q = Lᵀ(θ − m), M = L Lᵀ, the energy is

    ½|q|² + ½|p|² + R(θ),   R = l̂ − l,

and a step is a kick by −∇R, an exact rotation of (q, p), a kick. Were R zero, a quarter turn would be an independent
draw. Pilot and M do not depend on the current θ, so the step is reversible and the usual acceptance makes it exact.

**Albert and Chib** (`albert_chib`): the reference. Latent y* = xθ + e given the labels, then θ given y*, jointly.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas

from coaltree._arrays import Floats
from coaltree._compile import inline, kernel
from coaltree.errors import InputError
from coaltree.randomness import Stream, exponential, make_streams, uniform
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.links import Signs

JITTER = 1e-12


class Point(NamedTuple):
    """A value of (μ, β) with the log likelihood of each outcome and its gradient."""

    theta: Floats  # (P, K+1)
    values: Floats  # (P,)
    gradient: Floats  # (P, K+1)

    @property
    def log_likelihood(self) -> float:
        """Sum over outcomes."""
        return float(self.values.sum())


def evaluate(likelihood: Likelihood, theta: Floats) -> Point:
    """Return θ with its log likelihood and gradient."""
    return Point(theta, *likelihood.values_and_gradient(theta))


class Pilot(NamedTuple):
    """The likelihood to second order around a point."""

    theta: Floats  # (P, K+1)
    value: float
    gradient: Floats  # (P, K+1)
    curvature: Floats  # (P, K+1, K+1)


class Gaussian(NamedTuple):
    """N(mean, (L Lᵀ)⁻¹) over flattened θ."""

    mean: Floats  # (P (K+1),)
    factor: Floats  # L, lower

    def whiten(self, theta: Floats) -> Floats:
        """q = Lᵀ(θ − m)."""
        return np.asarray(self.factor.T @ (theta.ravel() - self.mean))

    def colour(self, q: Floats) -> Floats:
        """θ = m + L⁻ᵀ q."""
        return self.mean + solve_upper(self.factor, q)


def solve_lower(factor: Floats, x: Floats) -> Floats:
    """L⁻¹ x. BLAS reads the C-ordered L as the upper Lᵀ, without a copy."""
    return np.asarray(blas.dtrsv(factor.T, x, lower=0, trans=1))


def solve_upper(factor: Floats, x: Floats) -> Floats:
    """L⁻ᵀ x."""
    return np.asarray(blas.dtrsv(factor.T, x, lower=0, trans=0))


def make_pilot(likelihood: Likelihood, theta: Floats) -> Pilot:
    """Expand the likelihood around θ, with a trillionth more curvature in case columns are collinear."""
    values, gradient = likelihood.values_and_gradient(theta)
    curvature = likelihood.curvature(theta)
    diagonal = np.einsum("jkk->jk", curvature)
    diagonal += JITTER * (1.0 + diagonal.mean(axis=1, keepdims=True))
    return Pilot(theta, float(values.sum()), gradient, curvature)


def expansion(pilot: Pilot, theta: Floats) -> tuple[float, Floats]:
    """l̂(θ) − l(θ̂), and its gradient (P, K+1)."""
    gap = theta - pilot.theta
    bend = np.einsum("jkl,jl->jk", pilot.curvature, gap)
    return float(np.sum(gap * (pilot.gradient - 0.5 * bend))), np.ascontiguousarray(pilot.gradient - bend)


def correction(pilot: Pilot, point: Point) -> float:
    """l − l̂, up to a constant: the correction that makes a move based on l̂ exact."""
    return point.log_likelihood - expansion(pilot, point.theta)[0]


def combine(precision: Floats, curvature: Floats, linear: Floats) -> Gaussian:
    """Gaussian with density ∝ exp(linear·θ − ½ θᵀ(prior precision + curvature)θ)."""
    total = precision.copy()
    np.einsum("jkjl->jkl", total)[:] += curvature
    try:
        factor: Floats = np.linalg.cholesky(total.reshape(linear.size, linear.size)).astype(np.float64, copy=False)
    except np.linalg.LinAlgError as error:
        raise InputError(
            f"The covariance of {len(linear)} × {linear.shape[1]} coefficients cannot be distinguished from a "
            'singular one: covariance="full" is for a few dozen features. Use covariance="diagonal", or fewer features.'
        ) from error
    return Gaussian(solve_upper(factor, solve_lower(factor, linear.ravel())), factor)


def approximate(precision: Floats, pilot: Pilot) -> Gaussian:
    """Prior times l̂: precision M = H + prior precision, mean M⁻¹(H θ̂ + ∇l(θ̂))."""
    linear = pilot.gradient + np.einsum("jkl,jl->jk", pilot.curvature, pilot.theta)
    return combine(precision, pilot.curvature, linear)


def hamiltonian(
    start: Point, likelihood: Likelihood, pilot: Pilot, gaussian: Gaussian, n_steps: int, rng: np.random.Generator
) -> tuple[Point, float]:
    """One trajectory of about a quarter turn, at `n_steps` gradients; return a draw and the acceptance probability."""

    def force(gradient: Floats, theta: Floats) -> Floats:
        """−∇R in the coordinates of q."""
        return solve_lower(gaussian.factor, (gradient - expansion(pilot, theta)[1]).ravel())

    def energy(q: Floats, p: Floats, point: Point) -> float:
        return 0.5 * float(q @ q + p @ p) - correction(pilot, point)

    shape = start.theta.shape
    # A turn of random size, so that no direction is rotated by the same angle every time.
    angle = 0.5 * math.pi * (0.8 + 0.4 * rng.random()) / n_steps
    cosine, sine = math.cos(angle), math.sin(angle)
    q, p = gaussian.whiten(start.theta), rng.standard_normal(start.theta.size)
    log_u = -rng.exponential()
    before = energy(q, p, start)
    p = p + 0.5 * angle * force(start.gradient, start.theta)
    for _ in range(n_steps - 1):
        q, p = cosine * q + sine * p, cosine * p - sine * q
        theta = gaussian.colour(q).reshape(shape)
        p = p + angle * force(likelihood.gradient(theta), theta)
    q, p = cosine * q + sine * p, cosine * p - sine * q
    end = evaluate(likelihood, gaussian.colour(q).reshape(shape))
    p = p + 0.5 * angle * force(end.gradient, end.theta)
    gain = before - energy(q, p, end)
    if not math.isfinite(gain):
        return start, 0.0
    return end if log_u < gain else start, math.exp(min(gain, 0.0))


@inline
def _normal_above(bound: float, stream: Stream) -> float:
    """A standard normal draw given that it exceeds `bound` (Robert 1995)."""
    if bound <= 0.0:
        while True:
            radius = math.sqrt(2.0 * exponential(stream))
            draw = radius * math.cos(2.0 * math.pi * uniform(stream))
            if draw > bound:
                return draw
    rate = 0.5 * (bound + math.sqrt(bound * bound + 4.0))
    while True:
        draw = bound + exponential(stream) / rate
        if exponential(stream) > 0.5 * (draw - rate) ** 2:
            return draw


@kernel
def draw_latent(eta: Floats, signs: Signs, stream: Stream, out: Floats) -> None:
    """y* ~ N(η, 1) given its sign, into `out` (N, P); 0 where the label is missing."""
    for i in range(eta.shape[0]):
        for j in range(eta.shape[1]):
            sign = float(signs[i, j])
            if sign == 0.0:
                out[i, j] = 0.0
            else:
                out[i, j] = eta[i, j] + sign * _normal_above(-sign * eta[i, j], stream)


def normal_curvature(likelihood: Likelihood) -> Floats:
    """Σ_i x_i x_iᵀ over the rows with a label, (P, K+1, K+1): the curvature once y* is known."""
    ((signs,),) = (part.data for part in likelihood.observed)
    present = np.abs(signs).astype(np.float64)
    return np.stack([(likelihood.rows * present[:, [j]]).T @ likelihood.rows for j in range(likelihood.n_outcomes)])


def albert_chib(
    start: Point, likelihood: Likelihood, curvature: Floats, precision: Floats, rng: np.random.Generator
) -> Point:
    """One Gibbs step through the latent variables; `curvature` from `normal_curvature`."""
    latent = likelihood.rows @ start.theta.T
    ((signs,),) = (part.data for part in likelihood.observed)  # the probit's alone
    draw_latent(latent, signs, make_streams(rng, 1)[0], latent)
    gaussian = combine(precision, curvature, latent.T @ likelihood.rows)
    theta = gaussian.colour(rng.standard_normal(start.theta.size)).reshape(start.theta.shape)
    return evaluate(likelihood, theta)
