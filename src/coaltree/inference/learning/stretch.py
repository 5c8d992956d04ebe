r"""Stretch the old part of a tree, and what goes with it: for chains with latent coordinates.

With many rows nearly all merges are recent and follow the prior, which fixes the unit of time; the few old ones are
tied to the coordinates of columns whose variance is 1, and these to them, so that the age of a tree relative to its
recent merges changes in small steps only. One move changes all of it together, for a time τ that is drawn anew,

    t → h(t),   ψ(h(t)) = ψ(t) + log c,   ψ(t) = log t − τ/t,
    s₀ → c s₀,   Φ → Φ/c,   unit coordinates and cutpoints → √c of them.

Times far above τ are multiplied by c, far below it they stay. h is a group in c, so that log c can be slice-sampled
from 0, with the Jacobian Π h'(t) = Π ψ'(t)/ψ'(h(t)).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import wrightomega

from coaltree._arrays import Floats
from coaltree.inference.learning.start import Unknowns
from coaltree.inference.learning.table import ChainTable
from coaltree.model.coalescent import log_prior
from coaltree.model.covariance import CovarianceFamily
from coaltree.model.noise import SMALLEST_NOISE
from coaltree.model.slice import slice_step
from coaltree.tree import Tree


def stretch(times: Floats, turn: float, log_c: float) -> tuple[Floats, float]:
    """Return h(t) of ascending times, and the log of its Jacobian."""
    # ψ(t) = b is solved by τ/t = ω(log τ − b), ω Wright's function: ω + log ω is its argument.
    ratio = turn / times
    moved = turn / wrightomega(ratio + np.log(ratio) - log_c)
    log_slopes = np.log(moved / times) + np.log1p(ratio) - np.log1p(turn / moved)
    return np.maximum.accumulate(moved), float(log_slopes.sum())


def draw_age(
    now: Unknowns,
    log_likelihood: Callable[[Tree, Floats], float],
    family: CovarianceFamily,
    table: ChainTable,
    rng: np.random.Generator,
) -> Unknowns:
    """Draw how old the tree is above a random time, with learned noise, Φ and unit coordinates in proportion.

    `log_likelihood` is that of tree and noise for the coordinates and Φ as they are now. A known Φ has no scale:
    then nothing moves.
    """
    if family.log_rescale(now.covariance, 2.0) == -math.inf:
        return now
    tree, level = now.tree, now.noise_level
    turn = math.exp(-rng.random() * math.log(tree.n_leaves))

    def log_density(log_c: float) -> float:
        c = math.exp(log_c)
        if not c * level > 0.99 * SMALLEST_NOISE:
            return -math.inf
        times, log_jacobian = stretch(tree.times, turn, log_c)
        value = log_prior(Tree(tree.children, times)) + log_jacobian + log_c - c * level
        value += family.log_rescale(now.covariance, c) + table.log_scaled(now, c)
        # At (h(t), c s₀, Φ/c) and √c z what it is at (h(t)/c, s₀, Φ) and z, up to a factor that log_scaled has.
        return value + log_likelihood(Tree(tree.children, times / c), now.leaf_noise)

    # About 2/τ lineages are left at τ.
    width = 2.0 / math.sqrt(1.0 + 2.0 / turn)
    log_c, _ = slice_step(log_density, 0.0, log_density(0.0), rng, width, -10.0, 10.0)
    c = math.exp(log_c)
    times, _ = stretch(tree.times, turn, log_c)
    covariance, _ = family.rescale(now.covariance, c)
    moved = now.with_noise_level(c * level)._replace(tree=Tree(tree.children, times, tree.names), covariance=covariance)
    return table.scaled(moved, c)
