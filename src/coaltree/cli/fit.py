"""A table in, a fitted tree out: the one place where the command chooses how to fit, and with how much effort."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree.inference.learn import GREEDY
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.partition import score_clusters
from coaltree.posterior.rejuvenate import rejuvenate
from coaltree.posterior.sampling import sample_posterior
from coaltree.tree import Tree

Floats = npt.NDArray[np.float64]

# Effort unless it is given. A particle takes time n² for each tree, so particles times iterations times n² stays below
# a bound, about a minute on two cores. Where that leaves too few iterations, scale and noise are learned from greedy
# trees, which are quick, and the posterior is sampled given them.
_MOST_PARTICLES, _FEWEST_PARTICLES = 50, 10
_MOST_ITERATIONS, _FEWEST_ITERATIONS = 50, 20
_MOST_WORK = 5.0e7
_SWEEPS = 2  # of moves after sampling, where greedy trees were learned from
_SHARE_OF_SAMPLING = 0.6  # of that work, for the particles that follow greedy learning
_GREEDY_ITERATIONS = 30
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
    learn_by: str  # the method whose trees scale and noise are learned with
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
    quick = options.n_iter is None and room < _FEWEST_PARTICLES * _FEWEST_ITERATIONS
    learn_by = GREEDY if quick else method
    affordable = _SHARE_OF_SAMPLING * room if quick else room / (options.n_iter or max(math.sqrt(room), 1.0))
    particles = options.n_particles or int(np.clip(affordable, _FEWEST_PARTICLES, _MOST_PARTICLES))
    if learn_by == GREEDY:
        iterations = options.n_iter or _GREEDY_ITERATIONS
    else:
        iterations = options.n_iter or int(np.clip(room / particles - 1, _FEWEST_ITERATIONS, _MOST_ITERATIONS))
    burn_in = iterations // _BURN_IN_SHARE if options.burn_in is None else options.burn_in
    note = ""
    if method != options.method:
        note = (
            f"More than {_MOST_SAMPLED:,} rows: one greedy tree, without supports. --method smc1 samples trees, in "
            "time and memory that grow with the square of the rows and more."
        )
    elif learn_by != method:
        note = (
            f"{n:,} rows take long: {particles} trees, and scale and noise learned from greedy trees. --particles "
            "gives more trees, --iterations learns with sampled ones."
        )
    elif method != GREEDY and particles < _MOST_PARTICLES and options.n_particles is None:
        note = (
            f"{n:,} rows take long: {particles} trees and {iterations} iterations; --particles, --iterations give more."
        )
    return Effort(method, particles, iterations, burn_in, learn_by, note)


def fit_table(X: Floats, names: tuple[str, ...], options: FitOptions, effort: Effort, progress: bool = False) -> Fitted:
    """Learn the posterior of a table (n, d), choose the tree to show and the number of clusters."""
    # scikit-learn is slow to load, and the command must answer --help at once.
    from coaltree.estimators.clustering import CoalescentClustering

    values = (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0) if options.standardise else X
    learning = CoalescentClustering(
        covariance=options.covariance,
        method=effort.learn_by,
        n_particles=effort.n_particles,
        n_iter=effort.n_iter,
        burn_in=effort.burn_in,
        leaf_noise=options.leaf_noise,
        n_clusters=options.n_clusters,
        n_jobs=options.n_jobs,
        random_state=options.seed,
        verbose=int(progress),
    ).fit(values)
    posterior = learning.posterior_
    if effort.learn_by != effort.method:
        posterior = _sample(learning.completed_, learning.covariance_, learning.leaf_noise_, options, effort)
    # The last sampler may have been handed a generator, whose name tells nothing; the seed does.
    posterior = replace(posterior, names=names, info={**posterior.info, "random_state": options.seed})
    tree = posterior.mcc_tree()
    scores = None if options.n_clusters else score_clusters(posterior, tree)
    n_clusters = scores.chosen if scores else int(options.n_clusters or 1)
    by_number = scores.as_dict() if scores else {}
    return Fitted(
        tree=tree,
        posterior=posterior,
        covariance=learning.covariance_,
        leaf_noise=learning.leaf_noise_,
        trace=learning.trace_,
        burn_in=min(effort.burn_in, len(learning.trace_["log_joint"]) - 1),  # Ctrl-C may have ended it early
        n_clusters=n_clusters,
        chosen_by=_reason(n_clusters, by_number),
        scores=by_number,
    )


def _sample(X: Floats, covariance: Floats, noise: Floats, options: FitOptions, effort: Effort) -> TreePosterior:
    """Sample trees at a covariance and noise that are known by now, and move them on."""
    sampling, moving = np.random.default_rng(options.seed).spawn(2)
    posterior = sample_posterior(
        X,
        covariance,
        method=effort.method,
        n_particles=effort.n_particles,
        leaf_noise=noise,
        n_jobs=options.n_jobs,
        random_state=sampling,
    )
    return rejuvenate(posterior, X, covariance, noise, _SWEEPS, options.n_jobs, moving)


def _reason(n_clusters: int, scores: dict[int, float]) -> str:
    if not scores:
        return f"{n_clusters} clusters were asked for."
    if n_clusters == 1:
        return "The trees of the posterior agree on no cut, so all rows are one cluster."
    return f"{n_clusters} clusters are what the trees of the posterior agree on, {scores[n_clusters]:.2f} out of 1."
