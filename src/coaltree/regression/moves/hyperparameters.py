r"""Draw tree, Φ, leaf noise, scale and τ given the coefficients; and leaf noise with the coefficients following.

Given β (`draw_hyper`), all but τ are drawn by the steps that learn them for a table
(`coaltree.inference.learning.chain`), with β as the table.

**Leaf noise, coefficients integrated out** (`move_noise`). Given β, leaf noise is pinned by hundreds of differences,
and given leaf noise those hardly move: drawn in turn, both mix slowly. With the pilot's expansion l̂ in place of l the
coefficients integrate out,

    Ẑ(h) = ∫ p(θ | h) e^l̂(θ) dθ = |prior precision|^½ |M|^(−½) exp(½ bᵀM⁻¹b),   M = H + prior precision(h),

and θ = m(h) + M(h)^(−½) q with a standard normal q. So keep q, propose a new h, let θ follow, and accept with

    min(1, [p(h′) Ẑ(h′) e^(R′)] / [p(h) Ẑ(h) e^R]),   R = l − l̂ at θ.

This is exact, because (h, q) has density p(h) Ẑ(h) N(q; 0, I) e^R, and close to a draw with θ integrated out, because R
hardly changes. A proposal costs one Cholesky factorisation of M.
"""

from __future__ import annotations

import math

import numpy as np

from coaltree._arrays import Floats
from coaltree.inference.learning import chain
from coaltree.model.diffusion import log_likelihood
from coaltree.model.noise import SMALLEST_NOISE
from coaltree.model.slice import slice_step
from coaltree.model.wishart import log_half_t
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.moves.coefficients import Gaussian, Pilot, Point, approximate, correction, evaluate
from coaltree.regression.prior import Hyper, Prior, precision

# Standard deviations of a proposal in log s₀, small or large with equal probability.
STEPS = (0.3, 1.0)


def log_evidence(hyper: Hyper, gaussian: Gaussian) -> float:
    """log Ẑ(h) + log p(s₀), up to terms that do not depend on leaf noise."""
    now = hyper.unknowns
    assert now is not None
    d = now.covariance.d
    prior = log_likelihood(now.tree, np.zeros((now.tree.n_leaves, d)), leaf_noise=now.leaf_noise)
    pulled = gaussian.factor.T @ gaussian.mean
    fit = 0.5 * float(pulled @ pulled) - float(np.log(np.diag(gaussian.factor)).sum())
    return prior + fit - float(now.leaf_noise[0])


def move_noise(
    hyper: Hyper,
    point: Point,
    gaussian: Gaussian,
    likelihood: Likelihood,
    pilot: Pilot,
    prior: Prior,
    rng: np.random.Generator,
) -> tuple[Hyper, Point, Gaussian, bool]:
    """Propose s₀ once; `gaussian` is the approximation at `hyper`, and the one at its successor is returned."""
    now = hyper.unknowns
    assert now is not None
    log_factor = STEPS[int(rng.integers(len(STEPS)))] * rng.standard_normal()
    log_u, noise = -rng.exponential(), math.exp(log_factor) * now.leaf_noise
    if not noise[0] > SMALLEST_NOISE:
        return hyper, point, gaussian, False
    new_hyper = hyper._replace(unknowns=now._replace(leaf_noise=noise))
    new_gaussian = approximate(precision(new_hyper, prior, likelihood.n_outcomes, likelihood.n_features), pilot)
    new = evaluate(likelihood, new_gaussian.colour(gaussian.whiten(point.theta)).reshape(point.theta.shape))
    gain = log_evidence(new_hyper, new_gaussian) - log_evidence(hyper, gaussian) + log_factor
    gain += correction(pilot, new) - correction(pilot, point)
    if not log_u < gain:
        return hyper, point, gaussian, False
    return new_hyper, new, new_gaussian, True


# ---- given the coefficients


def draw_spread(spread: float, level: Floats, scale: float, rng: np.random.Generator) -> float:
    """τ given β̄ (K,), by slice sampling of log τ."""
    n, square = len(level), float(level @ level)

    def log_density(log_spread: float) -> float:
        tau = math.exp(log_spread)
        return log_half_t(tau, scale) - (n - 1) * log_spread - 0.5 * square / tau**2

    now = math.log(spread)
    new, _ = slice_step(log_density, now, log_density(now), rng, width=1.0, lower=-40.0, upper=40.0)
    return math.exp(new)


def draw_hyper(hyper: Hyper, theta: Floats, prior: Prior, n_sweeps: int, rng: np.random.Generator) -> Hyper:
    """Draw everything but the coefficients, given them."""
    beta = np.ascontiguousarray(theta[:, 1:])
    now = hyper.unknowns
    if now is not None:
        now = chain.iterate(now, beta, prior.family, rng, lambda now: chain.draw_tree(now, beta, rng, n_sweeps))
    spread = draw_spread(hyper.spread, beta.mean(axis=0), prior.spread_scale, rng)
    return hyper._replace(unknowns=now, spread=spread)


def log_joint(hyper: Hyper, theta: Floats) -> float:
    """log p(β, t, π | Φ, s₀), the density by which trees are compared; 0 for a single outcome."""
    return 0.0 if hyper.unknowns is None else chain.log_joint_of(hyper.unknowns, np.ascontiguousarray(theta[:, 1:]))
