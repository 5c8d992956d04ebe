"""Draw tree, Φ, leaf noise, scale and τ given the coefficients.

All but τ come from the blocks that learn them for a table (`coaltree.inference.learn`), the table being β.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coaltree.inference import learn
from coaltree.regression.prior import Hyper, Prior, draw_spread

Floats = npt.NDArray[np.float64]


def draw_hyper(hyper: Hyper, theta: Floats, prior: Prior, settings: learn.Settings, rng: np.random.Generator) -> Hyper:
    """Everything but the coefficients, given them."""
    beta = np.ascontiguousarray(theta[:, 1:])
    now = hyper.unknowns
    if now is not None:
        now = learn.iterate(now, beta, prior.family, settings, rng)
    return Hyper(now, draw_spread(hyper.spread, beta.mean(axis=0), prior.spread_scale, rng))


def log_joint(hyper: Hyper, theta: Floats) -> float:
    """log p(β, t, π | Φ, s₀), the density by which trees are compared; 0 for a single outcome."""
    return 0.0 if hyper.unknowns is None else learn.log_joint(hyper.unknowns, np.ascontiguousarray(theta[:, 1:]))
