"""Islands of particles: independent runs of a sampler, on other cores or machines, put together with proper weights.

Each island k has M_k of the M particles, its own seed, normalised weights w and an unbiased estimate Ẑ_k of the
evidence. Then Σ_k (M_k/M) Ẑ_k is unbiased too, and a particle's weight in the whole is w (M_k/M) Ẑ_k over that sum.
Islands never wait for each other, so they can be anywhere; where they ran, and how many at a time, does not show in the
result.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.special import logsumexp
from tqdm import tqdm

from coaltree.inference import insertion, smc
from coaltree.inference.insertion import INSERTION
from coaltree.inference.smc import SMCResult
from coaltree.model.diffusion import Leaves, pair_distances


def run(leaves: Leaves, method: str, rng: np.random.Generator, **settings: Any) -> SMCResult:
    """One run of a sampler; `settings` are as in `smc.run`."""
    if method == INSERTION:
        return insertion.run(*leaves, rng=rng, **settings)
    rows, noise, log_det = leaves
    return smc.run(pair_distances(rows), rows.shape[1], noise, log_det, method=method, rng=rng, **settings)


def run_island(leaves: Leaves, method: str, ess_threshold: float, n_particles: int, seed: list[int]) -> SMCResult:
    """One island, from the leaves on: distances cost less to compute again than to send."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    return run(leaves, method, rng, n_particles=n_particles, ess_threshold=ess_threshold, n_jobs=1)


def combine(islands: list[SMCResult]) -> SMCResult:
    """Put islands together. Effective sizes and numbers of resamplings add up."""
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
    # The data travel inside the task. As an argument Dask would put them on a worker, and lose them with it.
    island = functools.partial(run_island, leaves, method, ess_threshold)
    tasks = (delayed(island)(size, seed) for size, seed in zip(sizes, seeds, strict=True))
    results = Parallel(n_jobs=n_jobs, return_as="generator")(tasks)
    return combine(list(tqdm(results, total=n_islands, desc="islands", disable=not progress)))
