r"""Draw tree, Φ, leaf noise, scale and τ given the coefficients.

Tree, Φ and s₀ come from the blocks that learn them for a table (`coaltree.inference.learn`, the table being β). So
does the scale move (t, s₀, Φ) → (ct, cs₀, Φ/c), but for the default prior of Φ it is written out here: there are
thousands of iterations, and it then costs microseconds.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from coaltree.inference import learn
from coaltree.inference.learn import Unknowns
from coaltree.model.coalescent import log_prior
from coaltree.model.covariance import CovarianceFamily, HuangWand
from coaltree.model.slice import slice_step
from coaltree.regression.prior import Hyper, Prior, draw_spread
from coaltree.tree import Tree

Floats = npt.NDArray[np.float64]


def draw_scale(now: Unknowns, beta: Floats, family: CovarianceFamily, rng: np.random.Generator) -> Unknowns:
    """Slice the common scale.

    Huang and Wand's density along it needs only the diagonal of Φ⁻¹: with d features,
    log p(Φ/c) = const + ½ d (df + 2d) log c − ½ (df + d) Σ_k log(df c (Φ⁻¹)_kk + 1/scale_k²).
    """
    if not isinstance(family, HuangWand):
        return learn.draw_scale(now, beta, family, True, rng)
    tree, noise, d = now.tree, now.leaf_noise, now.covariance.d
    half = now.covariance.whiten(np.eye(d))
    diagonal, rates = family.df * np.einsum("ij,ij->i", half, half), family.rates(d)
    slope = float(noise[0]) - log_prior(tree)
    # Powers of c: the Jacobians of times, noise and the lower triangle of Φ, and the determinant.
    power = len(tree.times) + 1.0 - 0.5 * d * (d + 1) + 0.5 * d * (family.df + 2 * d)

    def log_density(log_c: float) -> float:
        c = math.exp(log_c)
        return power * log_c - c * slope - 0.5 * (family.df + d) * float(np.log(c * diagonal + rates).sum())

    width = 2.0 / math.sqrt(len(tree.times))
    log_c, _ = slice_step(log_density, 0.0, log_density(0.0), rng, width=width, lower=-40.0, upper=40.0)
    c = math.exp(log_c)
    return now._replace(
        tree=Tree(tree.children, c * tree.times, tree.names),
        covariance=family.from_values({"covariance": now.covariance.matrix() / c}, d),
        leaf_noise=c * noise,
    )


def draw_hyper(hyper: Hyper, theta: Floats, prior: Prior, settings: learn.Settings, rng: np.random.Generator) -> Hyper:
    """Everything but the coefficients, given them."""
    beta = np.ascontiguousarray(theta[:, 1:])
    now = hyper.unknowns
    if now is not None:
        now = learn.iterate(now, beta, prior.family, settings._replace(scale_move=False), rng)
        now = draw_scale(now, beta, prior.family, rng)
    return Hyper(now, draw_spread(hyper.spread, beta.mean(axis=0), prior.spread_scale, rng))


def log_joint(hyper: Hyper, theta: Floats) -> float:
    """log p(β, t, π | Φ, s₀), the density by which trees are compared; 0 for a single outcome."""
    return 0.0 if hyper.unknowns is None else learn.log_joint(hyper.unknowns, np.ascontiguousarray(theta[:, 1:]))
