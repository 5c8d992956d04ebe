r"""Move leaf noise with the coefficients following, as if these were integrated out.

Given β, leaf noise is pinned by hundreds of differences, and given leaf noise those hardly move: in turn they crawl.
With the pilot's expansion l̂ in place of l coefficients integrate out,

    Ẑ(h) = ∫ p(θ | h) e^l̂(θ) dθ = |prior precision|^½ |M|^(−½) exp(½ bᵀM⁻¹b),   M = H + prior precision(h),

and θ = m(h) + M(h)^(−½) q with a standard normal q. So keep q, propose another h, let θ follow, and accept with

    min(1, [p(h′) Ẑ(h′) e^(R′)] / [p(h) Ẑ(h) e^R]),   R = l − l̂ at θ:

exact, because (h, q) has density p(h) Ẑ(h) N(q; 0, I) e^R, and close to a draw with θ integrated out, because R hardly
changes. A proposal costs one Cholesky factor of M.
"""

from __future__ import annotations

import math

import numpy as np

from coaltree.inference.heavy import SMALLEST_NOISE
from coaltree.model.diffusion import log_likelihood
from coaltree.regression.coefficients import Gaussian, Pilot, Point, approximate, evaluate, expansion
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.prior import Hyper, Prior, precision

# Standard deviation of a proposal in log s₀: as often timid as bold.
STEPS = (0.3, 1.0)


def log_evidence(hyper: Hyper, gaussian: Gaussian) -> float:
    """log Ẑ(h) + log p(s₀), up to what does not depend on leaf noise."""
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
    gain += new.log_likelihood - expansion(pilot, new.theta)[0]
    gain -= point.log_likelihood - expansion(pilot, point.theta)[0]
    if not log_u < gain:
        return hyper, point, gaussian, False
    return new_hyper, new, new_gaussian, True
