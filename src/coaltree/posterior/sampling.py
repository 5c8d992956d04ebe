"""`sample_posterior`: data in, weighted trees out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from coaltree._version import __version__
from coaltree.inference import smc
from coaltree.inference.proposals import METHODS
from coaltree.model.diffusion import leaf_distances
from coaltree.posterior.ensemble import TreePosterior
from coaltree.randomness import RandomState, as_generator, seed_of
from coaltree.validation import check_choice, check_count, check_fraction


def sample_posterior(
    X: Any,
    covariance: Any = None,
    method: str = "auto",
    n_particles: int = 100,
    leaf_noise: Any = 0.0,
    ess_threshold: float = 0.5,
    n_jobs: int | None = 1,
    random_state: RandomState = 0,
    names: Iterable[str] | None = None,
    progress: bool = False,
) -> TreePosterior:
    """Sample trees from their posterior given data, by sequential Monte Carlo.

    Parameters
    ----------
    X : array-like (n, d)
        One row per leaf.
    covariance : array-like (d, d), optional
        Covariance Φ of the diffusion per unit of time. Default: the identity.
    method : {"auto", "tpost", "smc1", "postpost", "mpost1", "mpost2"}
        How particles choose merges; all target the same posterior. "auto" takes whichever of "tpost" and "smc1" had
        the higher log evidence in `benchmarks/evidence.md`: "smc1" if d ≥ 64, or d ≥ 16 and n·d ≥ 2048.
    n_particles : int
        Number of weighted trees M.
    leaf_noise : float or array-like (n,)
        Variance of each leaf around its true value, in units of the covariance. Needed if rows are duplicates.
    ess_threshold : float
        Resample when the effective sample size falls below this fraction of M.
    n_jobs : int, optional
        Threads over particles; −1 for all cores. The result does not depend on it.
    random_state : int, Generator, …
        Seed. The same seed gives the same bytes.
    names : sequence of str, optional
        Names of the leaves. Default: the index of X if it is a pandas DataFrame with unique string labels.
    progress : bool
        Show a progress bar.

    Returns
    -------
    TreePosterior

    Examples
    --------
    >>> import coaltree as ct
    >>> tree = ct.sample_tree(8, random_state=1)
    >>> X = ct.sample_data(tree, 5, random_state=2)
    >>> post = ct.sample_posterior(X, n_particles=50)
    >>> len(post), post.n_leaves
    (50, 8)
    """
    method, n_particles, ess_threshold = check_sampler(method, n_particles, ess_threshold, n_jobs)
    rng = as_generator(random_state)
    eps, noise, log_det = leaf_distances(X, covariance, leaf_noise)
    d = int(np.shape(X)[1])
    chosen = smc.choose_method(method, len(noise), d)
    result = smc.run(
        eps,
        d,
        noise,
        log_det,
        method=chosen,
        n_particles=n_particles,
        ess_threshold=ess_threshold,
        n_jobs=n_jobs,
        rng=rng,
        progress=progress,
    )
    return TreePosterior(
        children=result.children,
        times=result.times,
        weights=np.exp(result.log_weights),
        log_evidence=result.log_evidence,
        log_joint=result.log_joint,
        ess_per_step=result.ess_per_step,
        names=leaf_names(X) if names is None else tuple(names),
        info={
            "version": __version__,
            "method": chosen,
            "n_particles": n_particles,
            "ess_threshold": ess_threshold,
            "leaf_noise": float(noise[0]) if np.all(noise == noise[0]) else noise.tolist(),
            "random_state": seed_of(random_state),
            "n_resampled": int(result.resampled.sum()),
        },
    )


def check_sampler(method: Any, n_particles: Any, ess_threshold: Any, n_jobs: Any) -> tuple[str, int, float]:
    """Check the settings every sampler takes."""
    if n_jobs is not None and n_jobs != -1:
        check_count(n_jobs, "n_jobs", at_least=1)
    return (
        check_choice(method, "method", ("auto", *METHODS)),
        check_count(n_particles, "n_particles", at_least=1),
        check_fraction(ess_threshold, "ess_threshold"),
    )


def leaf_names(X: Any) -> tuple[str, ...] | None:
    """Row labels of a DataFrame, if they are distinct strings."""
    labels = getattr(X, "index", None)
    if labels is None or callable(labels) or not all(isinstance(label, str) for label in labels):
        return None
    return tuple(labels) if len(set(labels)) == len(labels) else None
