r"""One tree, merge by merge: the pair with the smallest expected (or likeliest) waiting time goes next.

    mode             mode of the GIG of the pair, untruncated (Teh et al. 2008)
    mean             its mean, untruncated (Henao & Lucas)
    truncated_mean   the mean given that the merge is still to come: exact and always positive
    peak             where the pair's likelihood alone peaks, t* = (ε/d − a_i − a_j)/2

The first two can point before the last merge; the waiting time is then 0. All but the third grow with ε at fixed
variances, and the mode lies below the mean, so most pairs are dismissed by one square root.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from coaltree._compile import inline, kernel
from coaltree.inference.particles import Particles, merge, place, start
from coaltree.model import gig
from coaltree.model.diffusion import leaf_distances
from coaltree.tree import Tree
from coaltree.validation import check_choice

MODE, MEAN, TRUNCATED_MEAN, PEAK = range(4)
RULES = {"mode": MODE, "mean": MEAN, "truncated_mean": TRUNCATED_MEAN, "peak": PEAK}


@inline
def _waiting_time(rule: int, d: float, eps: float, lam: float, r: float, best: float) -> float:
    """Δ of a pair by the rule; any value ≥ `best` may be returned for a pair that cannot beat it."""
    if rule == PEAK:
        return 0.5 * (eps / d - r)
    # (−d/2 + √(d²/4 + λε))/λ without cancellation. It bounds both means from below.
    shortest = 0.5 * (eps / (0.5 * d + math.sqrt(0.25 * d * d + lam * eps)) - r)
    if rule == MODE or shortest >= best:
        return shortest
    if rule == MEAN:
        return 0.5 * (gig.mean_untruncated(d, eps, lam) - r)
    return 0.5 * gig.mean_excess(d, eps, lam, r)


@kernel
def agglomerate(state: Particles, rule: int, d: float) -> None:
    """Merge particle 0 down to one cluster."""
    eps, offset = state.eps[0], state.offset[0]
    n = offset.size
    for stage in range(n - 1):
        live = n - stage
        lam = 0.5 * live * (live - 1)
        now = state.times[0, stage - 1] if stage > 0 else 0.0
        best = math.inf
        best_i = 1
        best_j = 0
        for i in range(1, live):
            for j in range(i):
                r = 2.0 * now + offset[i] + offset[j]
                delta = _waiting_time(rule, d, eps[place(i, j)], lam, r, best)
                if delta < best:
                    best, best_i, best_j = delta, i, j
        merge(state, d, 0, stage, best_i, best_j, max(best, 0.0))


def greedy_tree(
    X: Any,
    covariance: Any = None,
    rule: str = "mean",
    leaf_noise: Any = 0.0,
    names: Iterable[str] | None = None,
) -> Tree:
    """Build one tree by merging, again and again, the pair that is due first.

    Parameters
    ----------
    X : array-like (n, d)
        One row per leaf.
    covariance : array-like (d, d), optional
        Covariance Φ of the diffusion per unit of time. Default: the identity.
    rule : {"mean", "mode", "truncated_mean", "peak"}
        Waiting time that is compared and taken.
    leaf_noise : float or array-like (n,)
        Variance of each leaf around its true value, in units of the covariance.
    names : sequence of str, optional
        Names of the leaves.

    Returns
    -------
    Tree
    """
    code = RULES[check_choice(rule, "rule", tuple(RULES))]
    eps, noise, _ = leaf_distances(X, covariance, leaf_noise)
    state = start(eps, noise, 1, np.random.default_rng(0), with_cache=False)
    agglomerate(state, code, float(np.shape(X)[1]))
    return Tree(state.children[0], state.times[0], names)
