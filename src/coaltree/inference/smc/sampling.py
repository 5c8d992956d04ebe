"""`sample_posterior`: data in, weighted trees out.

The particles can be split into islands: independent runs of a sampler, on other cores or machines, combined with proper
weights. Island k has M_k of the M particles, its own seed, normalised weights w and an unbiased estimate Ẑ_k of the
evidence. Then Σ_k (M_k/M) Ẑ_k is unbiased too, and a particle's overall weight is w (M_k/M) Ẑ_k over that sum. Islands
never wait for each other, so they can run anywhere; where, and how many at a time, does not affect the result.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from scipy.special import logsumexp
from tqdm import tqdm

from coaltree._version import __version__
from coaltree.errors import InputError
from coaltree.frame import names_of
from coaltree.inference.effort import choose_sampler
from coaltree.inference.smc import insertion, loop
from coaltree.inference.smc.insertion import INSERTION
from coaltree.inference.smc.loop import SMCResult
from coaltree.inference.smc.proposals import METHODS
from coaltree.model.diffusion import Leaves, pair_distances, whiten_leaves
from coaltree.posterior.ensemble import TreePosterior
from coaltree.randomness import RandomState, as_generator, seed_of
from coaltree.validation import check_choice, check_count, check_fraction


def run_sampler(leaves: Leaves, method: str, rng: np.random.Generator, **settings: Any) -> SMCResult:
    """One run of a sampler; `settings` are as in `smc.loop.run`."""
    if method == INSERTION:
        return insertion.run_insertion(*leaves, rng=rng, **settings)
    rows, noise, log_det = leaves
    return loop.run_particles(pair_distances(rows), rows.shape[1], noise, log_det, method=method, rng=rng, **settings)


def run_island(leaves: Leaves, method: str, ess_threshold: float, n_particles: int, seed: list[int]) -> SMCResult:
    """One island, starting from the leaves: distances cost less to recompute than to send."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    return run_sampler(leaves, method, rng, n_particles=n_particles, ess_threshold=ess_threshold, n_jobs=1)


def combine_islands(islands: list[SMCResult]) -> SMCResult:
    """Combine islands. Effective sizes and numbers of resamplings add up."""
    sizes = np.array([len(island.log_weights) for island in islands])
    log_parts = np.array([island.log_evidence for island in islands]) + np.log(sizes / sizes.sum())
    log_evidence = float(logsumexp(log_parts))
    return SMCResult(
        children=np.concatenate([island.children for island in islands]),
        times=np.concatenate([island.times for island in islands]),
        log_weights=np.concatenate(
            [island.log_weights + (part - log_evidence) for island, part in zip(islands, log_parts, strict=True)]
        ),
        log_joint=np.concatenate([island.log_joint for island in islands]),
        log_evidence=log_evidence,
        ess_per_step=np.sum([island.ess_per_step for island in islands], axis=0),
        resampled=np.concatenate([island.resampled for island in islands]),
    )


def run_islands(
    leaves: Leaves,
    *,
    method: str,
    n_particles: int,
    n_islands: int,
    ess_threshold: float,
    n_jobs: int | None,
    rng: np.random.Generator,
    progress: bool = False,
) -> SMCResult:
    """Run `n_islands` through joblib, on whatever backend it is configured for, and combine them."""
    # Words of one seed, so that an island is the same wherever it runs.
    seeds = rng.integers(0, 2**32, size=(n_islands, 8), dtype=np.uint32).tolist()
    sizes = np.diff(np.linspace(0, n_particles, n_islands + 1).astype(int)).tolist()
    # The data are part of the task. As an argument, Dask would put them on a worker and lose them with it.
    island = functools.partial(run_island, leaves, method, ess_threshold)
    tasks = (delayed(island)(size, seed) for size, seed in zip(sizes, seeds, strict=True))
    results = Parallel(n_jobs=n_jobs, return_as="generator")(tasks)
    return combine_islands(list(tqdm(results, total=n_islands, desc="islands", disable=not progress)))


def sample_posterior(
    X: npt.ArrayLike,
    covariance: npt.ArrayLike | None = None,
    *,
    method: str = "auto",
    n_particles: int = 100,
    leaf_noise: npt.ArrayLike = 0.0,
    ess_threshold: float = 0.5,
    n_jobs: int | None = 1,
    random_state: RandomState = 0,
    names: Iterable[str] | None = None,
    progress: bool = False,
    n_islands: int = 1,
) -> TreePosterior:
    """Sample trees from their posterior given data, by sequential Monte Carlo.

    Every particle holds the squared distances of its clusters: M particles over n leaves take 4 n² M bytes and up to
    1 kB more per leaf and particle, which is checked before anything is allocated. With islands, each needs this only
    for its own share of the particles.

    Parameters
    ----------
    X : array-like (n, d)
        One row per leaf.
    covariance : array-like (d, d) or (d,), optional
        Covariance Φ of the diffusion per unit of time, or the variances of a diagonal one. Default: the identity.
    method : {"auto", "insertion", "tpost", "smc1", "postpost", "mpost1", "mpost2"}
        How trees are built; all target the same posterior. "insertion" adds row by row and moves whole trees, the
        others merge forests. "auto" uses the one with the higher log evidence at equal time in the benchmarks:
        "insertion" if n ≤ 150 and d ≤ 64, or n ≤ 500 and d ≤ 16; else "smc1" without resampling if d ≥ 64, or d ≥ 16
        and n·d ≥ 2048; else "tpost".
    n_particles : int
        Number of weighted trees M.
    leaf_noise : float or array-like (n,)
        Variance of each leaf around its true value, in units of the covariance. Needed if rows are duplicates.
    ess_threshold : float
        Resample when the effective sample size falls below this fraction of M. Consider 0 for "smc1": the weight of
        a pair that waits is not known before it merges, so intermediate weights say little about the final ones.
    n_jobs : int, optional
        Threads over particles, or islands at a time; −1 for all cores. The result does not depend on it.
    random_state : int, Generator, …
        Seed. The same seed gives the same bytes.
    names : sequence of str, optional
        Names of the leaves. Default: the index of X if it is a pandas DataFrame with unique string labels.
    progress : bool
        Show a progress bar.
    n_islands : int
        Split the particles into this many independent runs, which are combined with proper weights. They go through
        joblib: within ``joblib.parallel_config(backend="dask")`` they spread over a cluster. The result depends on
        their number, but not on where or how many at a time they run.

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
    n_islands = check_count(n_islands, "n_islands", at_least=1)
    if n_islands > n_particles:
        raise InputError(f"n_islands must be at most n_particles={n_particles}, got {n_islands}.")
    rng = as_generator(random_state)
    leaves = whiten_leaves(X, covariance, leaf_noise)
    n, d = leaves.rows.shape
    chosen, ess_threshold = choose_sampler(method, n, d, ess_threshold)
    settings: Any = {"n_particles": n_particles, "ess_threshold": ess_threshold, "n_jobs": n_jobs, "progress": progress}
    if n_islands > 1:
        result = run_islands(leaves, method=chosen, n_islands=n_islands, rng=rng, **settings)
    else:
        result = run_sampler(leaves, chosen, rng, **settings)
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
            "n_islands": n_islands,
            "ess_threshold": ess_threshold,
            "leaf_noise": float(leaves.noise[0]) if np.all(leaves.noise == leaves.noise[0]) else leaves.noise.tolist(),
            "random_state": seed_of(random_state),
            "n_resampled": int(result.resampled.sum()),
        },
    )


def check_sampler(method: Any, n_particles: Any, ess_threshold: Any, n_jobs: Any) -> tuple[str, int, float]:
    """Check the settings every sampler takes."""
    if n_jobs is not None and n_jobs != -1:
        check_count(n_jobs, "n_jobs", at_least=1)
    return (
        check_choice(method, "method", ("auto", INSERTION, *METHODS)),
        check_count(n_particles, "n_particles", at_least=1),
        check_fraction(ess_threshold, "ess_threshold"),
    )


def leaf_names(X: Any) -> tuple[str, ...] | None:
    """Names of the rows of a DataFrame, if its index has any."""
    labels = getattr(X, "index", None)
    return None if labels is None or callable(labels) else names_of(labels)
