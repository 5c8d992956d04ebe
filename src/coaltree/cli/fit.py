"""A table in, a fitted tree out: the one place where the command chooses how to fit."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.learning import learn_posterior
from coaltree.tree import Tree

Floats = npt.NDArray[np.float64]

_MOST_CLUSTERS = 20


class FitOptions(NamedTuple):
    """What decides a fit, besides the table."""

    covariance: str = "spherical"
    method: str = "auto"
    n_particles: int = 50
    n_iter: int = 50
    burn_in: int = 10
    leaf_noise: str | float = "learn"
    n_clusters: int | None = None
    standardise: bool = True
    seed: int = 0
    n_jobs: int = -1


class Fitted(NamedTuple):
    """What the command tells of."""

    tree: Tree
    posterior: TreePosterior
    covariance: Floats  # (d, d), of the columns as fitted
    leaf_noise: Floats  # (n,)
    trace: dict[str, Floats]
    burn_in: int
    n_clusters: int
    chosen_by: str
    scores: dict[int, float]


def fit_table(X: Floats, names: tuple[str, ...], options: FitOptions, progress: bool = False) -> Fitted:
    """Learn the posterior of a complete table (n, d), choose the tree to show and the number of clusters."""
    values = (X - X.mean(axis=0)) / X.std(axis=0) if options.standardise else X
    learned = learn_posterior(
        values,
        options.covariance,
        leaf_noise=options.leaf_noise,
        n_iter=options.n_iter,
        burn_in=options.burn_in,
        n_particles=options.n_particles,
        method=options.method,
        n_jobs=options.n_jobs,
        random_state=options.seed,
        names=names,
        progress=progress,
    )
    # The learner hands its generator on, whose name tells nothing; the seed does.
    posterior = replace(learned.posterior, info={**learned.posterior.info, "random_state": options.seed})
    n_clusters, chosen_by, scores = _number_of_clusters(posterior, options.n_clusters)
    return Fitted(
        posterior.mcc_tree(),
        posterior,
        learned.covariance,
        learned.leaf_noise,
        learned.trace,
        learned.burn_in,
        n_clusters,
        chosen_by,
        scores,
    )


def _number_of_clusters(posterior: TreePosterior, wanted: int | None) -> tuple[int, str, dict[int, float]]:
    if wanted is not None:
        return wanted, f"{wanted} clusters were asked for.", {}
    scores = gaps(posterior)
    best = max(scores, key=scores.__getitem__)
    return (
        best,
        f"{best} clusters have the widest gap of merge times around them, on average over the posterior.",
        scores,
    )


def gaps(posterior: TreePosterior) -> dict[int, float]:
    """Posterior mean of the gap in log time between the merges that make and that end each number of clusters."""
    n = posterior.n_leaves
    numbers = np.arange(2, max(min(_MOST_CLUSTERS, n - 1), 2) + 1)
    ends = posterior.times[:, n - numbers]
    starts = posterior.times[:, np.maximum(n - numbers - 1, 0)] if n > 2 else 0.5 * ends
    smallest = np.finfo(np.float64).tiny
    lasted = posterior.weights @ (np.log(np.maximum(ends, smallest)) - np.log(np.maximum(starts, smallest)))
    return {int(k): float(gap) for k, gap in zip(numbers, lasted, strict=True)}
