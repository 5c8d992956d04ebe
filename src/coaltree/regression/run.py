"""Run chains side by side: threads or joblib, progress, interruption, checkpoints.

Chains run in worker threads, even a single one: the interrupt of the keyboard then reaches only the thread that waits,
and every chain stops between two iterations, never within one. Under a joblib backend of other processes or machines
(`joblib.parallel_config`), chains travel there for a block of iterations and come back; an interrupt loses that block.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import SequentialBackend, ThreadingBackend, get_active_backend
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from coaltree.regression import checkpoint as files
from coaltree.regression.chain import Chain, Settings
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.prior import Prior

# Chains wait for each other this often; progress is shown, and a checkpoint may be written.
BLOCK = 10
# The same for chains that travel, with their data, to other processes.
BLOCK_AWAY = 50
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
    """Run one chain a generator, `n_iter` iterations each; the result does not depend on `n_jobs` or on where.

    Ctrl-C ends the run early with the iterations that are done, as long as every chain has one draw to keep.
    """
    chains = [Chain(likelihood, prior, settings, rng) for rng in generators]
    seeds = [rng.bit_generator.state for rng in generators]
    key = files.fingerprint(likelihood, prior, settings, len(chains), seeds) if checkpoint is not None else ""
    if checkpoint is not None and Path(checkpoint).exists():
        files.read(checkpoint, chains, key)
    backend, _ = get_active_backend(prefer="threads")
    here = isinstance(backend, ThreadingBackend | SequentialBackend)
    saved = time.monotonic()
    with _threads(chains, n_jobs) if here else _elsewhere(chains, n_jobs) as advance:
        try:
            for _ in _rounds(chains, n_iter, progress):
                advance(n_iter)
                if checkpoint is not None and time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                    files.write(checkpoint, chains, key)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if not all(chain.draws["theta"] for chain in chains):
                _save(checkpoint, chains, key)
                raise
    _save(checkpoint, chains, key)
    return chains


@contextmanager
def _threads(chains: list[Chain], n_jobs: int | None) -> Iterator[Callable[[int], None]]:
    """How to make all chains a block longer, in threads of this process; an interrupt waits for their iterations."""
    stop = threading.Event()

    def block(chain: Chain, n_iter: int) -> None:
        for _ in range(min(BLOCK, n_iter - chain.n_done)):
            if stop.is_set():
                return
            chain.advance()

    # Threads are for chains: small matrices on many BLAS threads cost far more than they save.
    n_threads = max(1, min(effective_n_jobs(n_jobs), len(chains)))
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool:

        def advance(n_iter: int) -> None:
            futures: list[Future[None]] = []
            try:
                futures.extend(pool.submit(block, chain, n_iter) for chain in chains)
                for future in futures:
                    future.result()
            except BaseException:
                stop.set()
                wait(futures)
                raise

        yield advance


@contextmanager
def _elsewhere(chains: list[Chain], n_jobs: int | None) -> Iterator[Callable[[int], None]]:
    """The same through joblib's backend. Chains travel without what they have drawn before."""

    def advance(n_iter: int) -> None:
        # The data travel inside the task. As an argument Dask would put them on a worker, and lose them with it.
        tasks = [delayed(functools.partial(_block_away, chain.without_draws(), n_iter))() for chain in chains]
        for chain, longer in zip(chains, Parallel(n_jobs=n_jobs)(tasks), strict=True):
            chain.follow(longer)

    yield advance


def _block_away(chain: Chain, n_iter: int) -> Chain:
    with threadpool_limits(limits=1, user_api="blas"):
        for _ in range(min(BLOCK_AWAY, n_iter - chain.n_done)):
            chain.advance()
    return chain


def _save(checkpoint: str | os.PathLike[str] | None, chains: list[Chain], key: str) -> None:
    if checkpoint is not None:
        files.write(checkpoint, chains, key)


def _rounds(chains: list[Chain], n_iter: int, progress: bool) -> Iterator[None]:
    """Go on until every chain has `n_iter` iterations; show how far they are."""
    done = [chain.n_done for chain in chains]
    with tqdm(total=n_iter * len(chains), initial=sum(done), desc="iterations", disable=not progress) as bar:
        while min(done) < n_iter:
            yield
            before, done = sum(done), [chain.n_done for chain in chains]
            acceptance = np.mean([chain.trace["acceptance"][-1] for chain in chains])
            bar.set_postfix(acceptance=f"{acceptance:.2f}", refresh=False)
            bar.update(sum(done) - before)
