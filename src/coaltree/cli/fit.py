"""A table in, a fitted tree out: what the command makes of its options."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree.frame import Frame
from coaltree.model.guess import Guessed
from coaltree.posterior.apart import Apart
from coaltree.posterior.convergence import Convergence
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.loo import Compared
from coaltree.tree import Tree

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class FitOptions(NamedTuple):
    """What decides a fit, besides the table; None is settled by the number of rows."""

    covariance: str = "spherical"
    method: str = "auto"
    n_draws: int | None = None
    warmup: int | None = None
    n_chains: int | None = None
    leaf_noise: str | float = "learn"
    n_clusters: int | None = None
    standardise: bool = True
    seed: int = 0
    n_jobs: int = -1
    columns: str | dict[str, str] = "auto"  # or the path of a TOML file
    dates: str = "days"


class Fitted(NamedTuple):
    """What the command tells of."""

    tree: Tree
    posterior: TreePosterior
    covariance: Floats  # (d, d), or (d,) variances, of the columns as fitted
    leaf_noise: Floats  # (n,)
    trace: dict[str, Floats]  # (n_chains, iterations, …)
    warmup: int
    convergence: Convergence | None
    warnings: tuple[str, ...]
    labels: Ints  # (n,): 0 …, and −1 for outliers
    probabilities: Floats  # (n,): to belong to the cluster
    cut_order: Ints
    n_clusters: int
    chosen_by: str
    scores: dict[int, float]
    compared: dict[str, Compared] | None
    surprise: Floats | None
    apart: Apart


def fit_table(
    frame: Frame, guessed: Guessed, names: tuple[str, ...], options: FitOptions, progress: bool = False
) -> Fitted:
    """Learn the posterior of a table, choose the tree to show and the number of clusters."""
    # scikit-learn is slow to load, and the command must answer --help at once.
    from coaltree.estimators.clustering import CoalescentClustering

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model = CoalescentClustering(
            covariance=options.covariance,
            method=options.method,
            n_draws=options.n_draws,
            warmup=options.warmup,
            n_chains=options.n_chains,
            leaf_noise=options.leaf_noise,
            n_clusters=options.n_clusters,
            n_jobs=options.n_jobs,
            random_state=options.seed,
            verbose=int(progress),
            columns=guessed,
        ).fit(frame)
    told = [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]
    info = model.posterior_.info
    if not model.finished_:
        told.insert(
            0,
            f"Stopped early, after {info['iterations']} of {info['iterations_wanted']} iterations of each chain: "
            "results are of what was done by then.",
        )
    posterior = replace(model.posterior_, names=names)
    scores = getattr(model, "cluster_scores_", {})
    return Fitted(
        tree=Tree(model.tree_.children, model.tree_.times, names),
        posterior=posterior,
        covariance=model.compact_covariance_,
        leaf_noise=model.leaf_noise_,
        trace=model.trace_,
        warmup=model.warmup_,
        convergence=model.convergence_,
        warnings=tuple(told),
        labels=model.labels_,
        probabilities=model.probabilities_,
        cut_order=model.cut_order_,
        n_clusters=model.n_clusters_,
        chosen_by=_reason(model.n_clusters_, scores, getattr(model, "n_clusters_probability_", {}), len(posterior)),
        scores=scores,
        compared=model.compare_,
        surprise=model.surprise_,
        apart=model.splits(),
    )


def _reason(n_clusters: int, scores: dict[int, float], shares: dict[int, float], n_trees: int) -> str:
    if not scores:
        return f"{n_clusters} clusters were asked for."
    if n_trees == 1:
        if n_clusters == 1:
            return "Rows are no closer to their own than in a cloud without clusters, so all are one cluster."
        return (
            f"With {n_clusters} clusters rows are closer to their own than in a cloud without clusters, by "
            f"{scores[n_clusters]:.2f} of the distance to others."
        )
    of_draws = f"{shares.get(n_clusters, 0.0):.0%} of the draws alone would say so."
    if n_clusters == 1:
        return f"No cut parts rows that merge early from rows that merge late, so all are one cluster; {of_draws}"
    return (
        f"{n_clusters} clusters are the fewest that part rows well: they merge with their own earlier than with "
        f"others, by {scores[n_clusters]:.0%} of the time on average; {of_draws}"
    )
