"""A table in, a fitted tree out: the one place where the command chooses how to fit, and with how much effort."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree.inference.learn import GREEDY
from coaltree.posterior.ensemble import TreePosterior
from coaltree.tree import Tree

Floats = npt.NDArray[np.float64]

# Effort unless it is given: a step of a particle takes time n², and particles times iterations times that is kept
# below a bound, a minute on two cores, as long as there are enough of both to be of any use.
_MOST_PARTICLES, _FEWEST_PARTICLES = 50, 10
_MOST_ITERATIONS, _FEWEST_ITERATIONS = 50, 6
_MOST_WORK = 5.0e7
_MOST_SAMPLED = 1500  # rows; of more one greedy tree is made
_BURN_IN_SHARE = 5


class FitOptions(NamedTuple):
    """What decides a fit, besides the table; None is settled by the number of rows."""

    covariance: str = "spherical"
    method: str = "auto"
    n_particles: int | None = None
    n_iter: int | None = None
    burn_in: int | None = None
    leaf_noise: str | float = "learn"
    n_clusters: int | None = None
    standardise: bool = True
    seed: int = 0
    n_jobs: int = -1


class Effort(NamedTuple):
    """A method, particles, iterations and burn-in that suit a number of rows, and what to tell of them."""

    method: str
    n_particles: int
    n_iter: int
    burn_in: int
    note: str


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


def settle(options: FitOptions, n: int) -> Effort:
    """Fill in what was not given."""
    method = GREEDY if options.method == "auto" and n > _MOST_SAMPLED else options.method
    room = _MOST_WORK / float(n) ** 2
    if options.n_particles is not None:
        particles = options.n_particles
    else:
        share = room / options.n_iter if options.n_iter else math.sqrt(room)
        particles = int(np.clip(share, _FEWEST_PARTICLES, _MOST_PARTICLES))
    iterations = options.n_iter or int(np.clip(room / particles - 1, _FEWEST_ITERATIONS, _MOST_ITERATIONS))
    if method == GREEDY and options.n_iter is None:
        iterations = _MOST_ITERATIONS if n <= _MOST_SAMPLED else _FEWEST_ITERATIONS
    burn_in = iterations // _BURN_IN_SHARE if options.burn_in is None else options.burn_in
    note = ""
    if method != options.method:
        note = (
            f"More than {_MOST_SAMPLED:,} rows: one greedy tree, without supports. --method smc1 samples trees, in "
            "time and memory that grow with the square of the rows and more."
        )
    elif method != GREEDY and (particles < _MOST_PARTICLES and options.n_particles is None):
        note = (
            f"{particles} trees and {iterations} iterations, few because {n:,} rows take long; --particles and "
            "--iterations give more."
        )
    return Effort(method, particles, iterations, burn_in, note)


def fit_table(X: Floats, names: tuple[str, ...], options: FitOptions, effort: Effort, progress: bool = False) -> Fitted:
    """Learn the posterior of a table (n, d), choose the tree to show and the number of clusters."""
    from coaltree.estimators.clustering import CoalescentClustering  # scikit-learn is slow to load

    values = (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0) if options.standardise else X
    model = CoalescentClustering(
        covariance=options.covariance,
        method=effort.method,
        n_particles=effort.n_particles,
        n_iter=effort.n_iter,
        burn_in=effort.burn_in,
        leaf_noise=options.leaf_noise,
        n_clusters=options.n_clusters,
        n_jobs=options.n_jobs,
        random_state=options.seed,
        verbose=int(progress),
    ).fit(values)
    # The sampler is handed a generator, whose name tells nothing; the seed does.
    posterior = replace(model.posterior_, names=names, info={**model.posterior_.info, "random_state": options.seed})
    scores = model.cluster_scores_ if options.n_clusters is None else {}
    return Fitted(
        tree=posterior.mcc_tree(),
        posterior=posterior,
        covariance=model.covariance_,
        leaf_noise=model.leaf_noise_,
        trace=model.trace_,
        burn_in=min(effort.burn_in, len(model.trace_["log_joint"]) - 1),  # Ctrl-C may have ended it early
        n_clusters=model.n_clusters_,
        chosen_by=_reason(model.n_clusters_, scores),
        scores=scores,
    )


def _reason(n_clusters: int, scores: dict[int, float]) -> str:
    if not scores:
        return f"{n_clusters} clusters were asked for."
    if n_clusters == 1:
        return "The trees of the posterior agree on no cut, so all rows are one cluster."
    return f"{n_clusters} clusters are what the trees of the posterior agree on, {scores[n_clusters]:.2f} out of 1."
