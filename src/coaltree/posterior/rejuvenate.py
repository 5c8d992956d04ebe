"""Make weighted trees honest: resample them to equal weights, then let each wander through the posterior by itself.

Sequential Monte Carlo agrees with the posterior on average over runs, but within one run resampling leaves particles
that share their early merges, so that supports come out too sure. A Markov chain that leaves the posterior unchanged
(`coaltree.inference.moves`), started from each resampled particle, forgets that kinship sweep by sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from joblib import effective_n_jobs

from coaltree.inference import moves
from coaltree.inference.smc import systematic_counts
from coaltree.model.diffusion import leaf_distances, whiten
from coaltree.posterior.ensemble import TreePosterior
from coaltree.randomness import RandomState, as_generator
from coaltree.tree import Tree
from coaltree.validation import check_count

Floats = npt.NDArray[np.float64]

# Below this effective size the weights leave one tree, and copies of it would agree for long. Chains that start from
# all the trees differ too much at first, which is the safer error.
FEWEST = 2.0


class Start(NamedTuple):
    """Where a chain begins and what it is given."""

    tree: Tree
    rows: Floats  # (n, d), whitened by Φ
    leaf_noise: Floats  # (n,)
    log_det: float  # of Φ


def rejuvenate(
    posterior: TreePosterior,
    X: Any,
    covariance: Any = None,
    leaf_noise: Any = 0.0,
    n_sweeps: int = 20,
    n_jobs: int | None = 1,
    random_state: RandomState = 0,
) -> TreePosterior:
    """Resample the trees to equal weights and move each by `n_sweeps` sweeps of MCMC.

    If hardly more than one tree has weight, all of them are moved instead, each from where it is.

    Parameters
    ----------
    posterior : TreePosterior
        Weighted trees over the rows of X.
    X : array-like (n, d)
        The data they were sampled for, complete.
    covariance, leaf_noise
        As given to `sample_posterior`.
    n_sweeps : int
        Sweeps a tree; one proposes to cut and regraft n subtrees, O(n² d) in all. 0 only resamples.
    n_jobs : int, optional
        Threads over trees; −1 for all cores. The result does not depend on it.
    random_state : int, Generator, …
        Seed.

    Returns
    -------
    TreePosterior
        As many trees, of equal weight. The log evidence and `ess_per_step` remain those of the sampler, and
        `info["n_sweeps"]` counts the sweeps.

    Examples
    --------
    >>> import coaltree as ct
    >>> from coaltree.posterior.rejuvenate import rejuvenate
    >>> X = ct.sample_data(ct.sample_tree(8, random_state=1), 5, random_state=2)
    >>> post = rejuvenate(ct.sample_posterior(X, n_particles=30), X, n_sweeps=5)
    >>> round(post.ess)
    30
    """
    n_sweeps = check_count(n_sweeps, "n_sweeps", at_least=0)
    _, noise, log_det = leaf_distances(X, covariance, leaf_noise)
    rows = whiten(X, covariance).rows
    if len(rows) != posterior.n_leaves:
        raise ValueError(f"X must have one row per leaf of the posterior ({posterior.n_leaves}), got {len(rows)}.")
    rng = as_generator(random_state)
    return move_on(posterior, lambda m, tree: Start(tree, rows, noise, log_det), n_sweeps, n_jobs, rng)


def move_on(
    posterior: TreePosterior,
    start: Callable[[int, Tree], Start],
    n_sweeps: int,
    n_jobs: int | None,
    rng: np.random.Generator,
) -> TreePosterior:
    """Resample to equal weights and move each tree, number m of the result, on from where `start` puts it."""
    n_trees = len(posterior)
    chosen = np.repeat(np.arange(n_trees), systematic_counts(posterior.weights, rng.random()))
    if posterior.ess < FEWEST and n_sweeps > 0:
        chosen = np.arange(n_trees)
    children, times = posterior.children[chosen].copy(), posterior.times[chosen].copy()
    log_joint = posterior.log_joint[chosen].copy()
    # One stream a tree: the result must not depend on which thread moves it.
    streams = rng.spawn(n_trees)

    def move(m: int) -> None:
        tree, rows, noise, log_det = start(m, posterior[int(chosen[m])])
        walk = moves.trace(tree, rows, noise, 1, streams[m], thin=n_sweeps)
        children[m], times[m] = walk.children[0], walk.times[0]
        log_joint[m] = walk.log_joint[0] - 0.5 * (len(rows) - 1) * log_det

    if n_sweeps > 0:
        with ThreadPoolExecutor(min(effective_n_jobs(n_jobs), n_trees)) as pool:
            list(pool.map(move, range(n_trees)))
    return replace(
        posterior,
        children=children,
        times=times,
        log_joint=log_joint,
        weights=np.full(n_trees, 1.0 / n_trees),
        info={**posterior.info, "n_sweeps": posterior.info.get("n_sweeps", 0) + n_sweeps},
    )
