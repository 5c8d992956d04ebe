"""Run chains side by side: threads or joblib, progress, interruption, checkpoints.

Chains run in worker threads, even a single one: a keyboard interrupt then reaches only the thread that waits, and every
chain stops between two iterations, never within one. Under a joblib backend of other processes or machines
(`joblib.parallel_config`), chains are sent there for a block of iterations and back; an interrupt loses that block.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import SequentialBackend, ThreadingBackend, get_active_backend
from threadpoolctl import threadpool_limits
from tqdm import tqdm

# Chains wait for each other after this many seconds; progress is shown, and a checkpoint may be written.
SECONDS_A_BLOCK = 0.5
# The same for chains that are sent, with their data, to other processes.
SECONDS_AWAY = 5.0
# Time between two checkpoints: at least this, and at least this many times as long as the last one took.
SECONDS_BETWEEN_CHECKPOINTS, CHECKPOINT_SHARE = 10.0, 20.0


class Runnable(Protocol):
    """A chain that can be extended."""

    @property
    def n_done(self) -> int:
        """Iterations so far."""
        ...

    def advance(self) -> None:
        """Run one iteration."""
        ...

    def without_draws(self) -> Any:
        """Return a copy that continues from here without past draws: small enough to send."""
        ...

    def follow(self, other: Any) -> None:
        """Take over the position of a copy without past draws, and what it has drawn since."""
        ...

    def progress(self) -> dict[str, str]:
        """Return what is worth showing beside a progress bar."""
        ...


C = TypeVar("C", bound=Runnable)


def run(
    chains: Sequence[C],
    n_iter: int,
    n_jobs: int | None = None,
    progress: bool = False,
    save: Callable[[], None] | None = None,
    checks: Sequence[int] = (),
    enough: Callable[[], bool] = lambda: False,
) -> bool:
    """Extend every chain to `n_iter` iterations; the result does not depend on `n_jobs` or on where they run.

    When all chains have as many iterations as one of the `checks`, the run ends if that is `enough`. `save` is called
    from time to time, and at the end. Ctrl-C ends the run early, between two iterations. Returns
    whether it was completed.
    """
    backend, _ = get_active_backend(prefer="threads")
    here = isinstance(backend, ThreadingBackend | SequentialBackend)
    finished, stops = True, [*checks, n_iter]

    def ended() -> bool:
        done = {chain.n_done for chain in chains}
        return min(done) >= n_iter or (len(done) == 1 and done <= {*checks} and enough())

    saved, pause = time.monotonic(), SECONDS_BETWEEN_CHECKPOINTS
    with _threads(chains, n_jobs) if here else _elsewhere(chains, n_jobs) as advance:
        try:
            for _ in _rounds(chains, n_iter, progress, ended):
                least = min(chain.n_done for chain in chains)
                advance(min(stop for stop in stops if stop > least))
                if save is not None and time.monotonic() - saved > pause:
                    began = time.monotonic()
                    save()
                    saved = time.monotonic()
                    pause = max(SECONDS_BETWEEN_CHECKPOINTS, CHECKPOINT_SHARE * (saved - began))
        except KeyboardInterrupt:
            finished = False
    if save is not None:
        save()
    return finished


def _block(chain: Runnable, n_iter: int, seconds: float, stop: threading.Event | None = None) -> None:
    """Advance a chain for about the given number of seconds, at least one iteration."""
    began = time.monotonic()
    while chain.n_done < n_iter and not (stop is not None and stop.is_set()):
        chain.advance()
        if time.monotonic() - began > seconds:
            break


@contextmanager
def _threads(chains: Sequence[Runnable], n_jobs: int | None) -> Iterator[Callable[[int], None]]:
    """How to extend all chains by a block, in threads of this process; an interrupt waits for their iterations."""
    stop = threading.Event()
    # Threads are for chains: small matrices on many BLAS threads cost far more than they save.
    n_threads = max(1, min(effective_n_jobs(n_jobs), len(chains)))
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool:

        def advance(n_iter: int) -> None:
            futures: list[Future[None]] = []
            try:
                futures.extend(pool.submit(_block, chain, n_iter, SECONDS_A_BLOCK, stop) for chain in chains)
                for future in futures:
                    future.result()
            except BaseException:
                stop.set()
                wait(futures)
                raise

        yield advance


@contextmanager
def _elsewhere(chains: Sequence[Runnable], n_jobs: int | None) -> Iterator[Callable[[int], None]]:
    """The same through joblib's backend. Chains are sent without their past draws."""

    def advance(n_iter: int) -> None:
        # The data are part of the task. As an argument, Dask would put them on a worker and lose them with it.
        blocks = [functools.partial(_block_away, chain.without_draws(), n_iter, SECONDS_AWAY) for chain in chains]
        tasks = [delayed(block)() for block in blocks]
        for chain, longer in zip(chains, Parallel(n_jobs=n_jobs)(tasks), strict=True):
            chain.follow(longer)

    yield advance


def _block_away(chain: Runnable, n_iter: int, seconds: float) -> Runnable:
    with threadpool_limits(limits=1, user_api="blas"):
        _block(chain, n_iter, seconds)
    return chain


def _rounds(chains: Sequence[Runnable], n_iter: int, progress: bool, ended: Callable[[], bool]) -> Iterator[None]:
    """Continue until chains have `ended`, at most with `n_iter` iterations each; show progress.

    The bar begins after the first block, in which kernels may have to be compiled: the time left is then that of the
    iterations alone.
    """
    over = ended()
    if not over:
        yield
        over = ended()
    done = [chain.n_done for chain in chains]
    with tqdm(total=n_iter * len(chains), initial=sum(done), desc="iterations", disable=not progress) as bar:
        bar.set_postfix(chains[0].progress())
        while not over:
            yield
            over = ended()
            before, done = sum(done), [chain.n_done for chain in chains]
            bar.set_postfix(chains[0].progress(), refresh=False)
            bar.update(sum(done) - before)
        if sum(done) < bar.total:  # converged: nothing is left to do
            bar.total = sum(done)
            bar.refresh()
