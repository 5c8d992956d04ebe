"""Run chains side by side: threads, progress, interruption, checkpoints.

Chains run in worker threads, even a single one: the interrupt of the keyboard then reaches only the thread that waits,
and every chain stops between two iterations, never within one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
from joblib import effective_n_jobs
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from coaltree.regression import checkpoint as files
from coaltree.regression.chain import Chain, Settings
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.prior import Prior

# Chains wait for each other this often; progress is shown, and a checkpoint may be written.
BLOCK = 10
SECONDS_BETWEEN_CHECKPOINTS = 20.0


def run(
    likelihood: Likelihood,
    prior: Prior,
    settings: Settings,
    n_iter: int,
    generators: list[np.random.Generator],
    n_jobs: int | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> list[Chain]:
    """Run one chain a generator, `n_iter` iterations each; the result does not depend on `n_jobs`.

    Ctrl-C ends the run early with the iterations that are done, as long as every chain has one draw to keep.
    """
    chains = [Chain(likelihood, prior, settings, rng) for rng in generators]
    seeds = [rng.bit_generator.state for rng in generators]
    key = files.fingerprint(likelihood, prior, settings, len(chains), seeds) if checkpoint is not None else ""
    if checkpoint is not None and Path(checkpoint).exists():
        files.read(checkpoint, chains, key)
    stop = threading.Event()

    def block(chain: Chain) -> None:
        done = len(chain.trace["n_steps"])
        for _ in range(min(BLOCK, n_iter - done)):
            if stop.is_set():
                return
            chain.advance()

    n_threads = max(1, min(effective_n_jobs(n_jobs), len(chains)))
    saved = time.monotonic()
    # Threads are for chains: small matrices on many BLAS threads cost far more than they save.
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool:
        try:
            for _ in _rounds(chains, n_iter, progress):
                for future in [pool.submit(block, chain) for chain in chains]:
                    future.result()
                if checkpoint is not None and time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                    files.write(checkpoint, chains, key)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            stop.set()
            wait([pool.submit(block, chain) for chain in chains])
            if not all(chain.draws["theta"] for chain in chains):
                _save(checkpoint, chains, key)
                raise
        except BaseException:
            stop.set()
            raise
    _save(checkpoint, chains, key)
    return chains


def _save(checkpoint: str | os.PathLike[str] | None, chains: list[Chain], key: str) -> None:
    if checkpoint is not None:
        files.write(checkpoint, chains, key)


def _rounds(chains: list[Chain], n_iter: int, progress: bool) -> Iterator[None]:
    """Go on until every chain has `n_iter` iterations; show how far they are."""
    done = [len(chain.trace["n_steps"]) for chain in chains]
    with tqdm(total=n_iter * len(chains), initial=sum(done), desc="iterations", disable=not progress) as bar:
        while min(done) < n_iter:
            yield
            before, done = sum(done), [len(chain.trace["n_steps"]) for chain in chains]
            acceptance = np.mean([chain.trace["acceptance"][-1] for chain in chains])
            bar.set_postfix(acceptance=f"{acceptance:.2f}", refresh=False)
            bar.update(sum(done) - before)
