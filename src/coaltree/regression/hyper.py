"""Draw tree, Φ, leaf noise, scale and τ given the coefficients.

All but τ come from the blocks that learn them for a table (`coaltree.inference.learn`), the table being β.
"""

from __future__ import annotations

import math

import numpy as np

from coaltree._arrays import Floats
from coaltree.inference import learn
from coaltree.model.pooled import log_half_t
from coaltree.model.slice import slice_step
from coaltree.regression.prior import Hyper, Prior


def draw_spread(spread: float, level: Floats, scale: float, rng: np.random.Generator) -> float:
    """τ given β̄ (K,), by a slice in log τ."""
    n, square = len(level), float(level @ level)

    def log_density(log_spread: float) -> float:
        tau = math.exp(log_spread)
        return log_half_t(tau, scale) - (n - 1) * log_spread - 0.5 * square / tau**2

    now = math.log(spread)
    new, _ = slice_step(log_density, now, log_density(now), rng, width=1.0, lower=-40.0, upper=40.0)
    return math.exp(new)


def draw_hyper(hyper: Hyper, theta: Floats, prior: Prior, n_sweeps: int, rng: np.random.Generator) -> Hyper:
    """Everything but the coefficients, given them."""
    beta = np.ascontiguousarray(theta[:, 1:])
    now = hyper.unknowns
    if now is not None:
        now = learn.iterate(now, beta, prior.family, rng, lambda now: learn.draw_tree(now, beta, rng, n_sweeps))
    spread = draw_spread(hyper.spread, beta.mean(axis=0), prior.spread_scale, rng)
    return hyper._replace(unknowns=now, spread=spread)


def log_joint(hyper: Hyper, theta: Floats) -> float:
    """log p(β, t, π | Φ, s₀), the density by which trees are compared; 0 for a single outcome."""
    return 0.0 if hyper.unknowns is None else learn.log_joint(hyper.unknowns, np.ascontiguousarray(theta[:, 1:]))
