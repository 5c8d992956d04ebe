"""What to run and how long, by the size of the table."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree import sizes
from coaltree._arrays import Floats

# A chain's iterations, warm-up and draws together: as many as MOST_MOVES regrafts make (some 20 s per chain), but
# no fewer and no more than these.
MOST_MOVES = 1_200_000
FEWEST_ITERATIONS, MOST_ITERATIONS = 150, 700
# Share of them for warm-up: more with many rows of many columns, or with latent coordinates, because such chains are
# slow to leave where they start.
WARMUP_SHARE, WARMUP_SHARE_OF_SLOW = 1 / 3, 2 / 3
# Trees kept, over all chains together; fewer, to save memory, of very many rows.
N_DRAWS, FEWER_DRAWS = 200, 100
N_CHAINS = 2
# Chains of no given length are judged at these iterations, end as soon as they have converged, and have the last number
# at most, or MOST_CHECKED_MOVES regrafts; wide ones and those with latent coordinates are judged later. Few checks, far
# apart, and draws worth `posterior.convergence.FEWEST_DRAWS` at the least: ending by what is seen then hardly favours
# lucky draws.
CHECKS, CHECKS_OF_SLOW = (150, 300, 450, 600, 900, 1200), (600, 900, 1200)
CHECKS_OF_LATENT = (300, 450, 600, 900, 1200)
MOST_CHECKED_MOVES = 2_000_000
# Of those iterations so many are dropped: one in this many, however long a chain has become.
DROPPED = 3
GREEDY_ITERATIONS, GREEDY_WARMUP = 30, 6


class Effort(NamedTuple):
    """Warm-up per chain, draws over all chains together, and iterations between two draws of a chain.

    With `checks`, iterations at which chains may end, warm-up is how long they adapt, and draws are about as many.
    """

    warmup: int
    n_draws: int
    n_chains: int
    thin: int
    checks: tuple[int, ...] = ()

    @property
    def n_iter(self) -> int:
        """Iterations per chain, at most."""
        if self.checks:
            return self.checks[-1]
        return self.warmup + self.thin * math.ceil(self.n_draws / self.n_chains)

    def window(self, n_done: int) -> tuple[int, int]:
        """Return how many of the iterations done, more than `warmup`, are dropped, and how far apart draws are."""
        if not self.checks:
            return self.warmup, self.thin
        first = max(self.warmup, n_done // DROPPED)
        return first, self.thin * max(1, (n_done - first) * self.n_chains // (self.n_draws * self.thin))

    @property
    def most_kept(self) -> int:
        """Draws of all chains, before some are dropped."""
        return self.n_chains * ((self.n_iter - self.warmup) // self.thin)


def settle(
    n: int,
    warmup: int | None = None,
    n_draws: int | None = None,
    n_chains: int | None = None,
    thin: int | None = None,
    greedy: bool = False,
    slow: bool = False,
    latent: bool = False,
) -> Effort:
    """Fill in what is not given for a table of n rows; `slow` if it is wide or has `latent` coordinates.

    If nothing is given, chains follow their diagnostics where there is time for more than one check.
    """
    chains = N_CHAINS if n_chains is None else n_chains
    if greedy:
        first = GREEDY_WARMUP if warmup is None else warmup
        return Effort(first, GREEDY_ITERATIONS - GREEDY_WARMUP if n_draws is None else n_draws, 1, thin or 1)
    usual = CHECKS_OF_LATENT if latent else CHECKS_OF_SLOW if slow else CHECKS
    checks = tuple(check for check in usual if check * n <= MOST_CHECKED_MOVES)
    if warmup is None and n_draws is None and thin is None and len(checks) > 1:
        first = checks[0] // DROPPED
        return Effort(first, N_DRAWS, chains, max(1, (checks[0] - first) * N_CHAINS // N_DRAWS), checks)
    total = min(max(MOST_MOVES // n, FEWEST_ITERATIONS), MOST_ITERATIONS)
    share = WARMUP_SHARE_OF_SLOW if slow and total < MOST_ITERATIONS else WARMUP_SHARE
    left = total - math.ceil(share * total)
    kept = min(N_DRAWS if n <= sizes.ROWS_WITH_ALL_DRAWS else FEWER_DRAWS, left * chains)
    return Effort(
        math.ceil(share * total) if warmup is None else warmup,
        kept if n_draws is None else n_draws,
        chains,
        left * chains // kept if thin is None else thin,
    )


def choose_merging(method: str, n: int, d: int) -> str:
    """Resolve "auto" to the sampler that merges forests with the higher log evidence (`benchmarks/evidence.md`).

    With many dimensions it is known early when a pair is due, and the race (smc1) uses that; with few, or few leaves,
    tpost has the smaller variance. The boundary is d = 64, or n d = 2048 for d ≥ 16.
    """
    if method != "auto":
        return method
    return "smc1" if d >= 64 or (d >= 16 and n * d >= 2048) else "tpost"


def choose_sampler(method: str, n: int, d: int, ess_threshold: float) -> tuple[str, float]:
    """Resolve "auto" to the sampler with the higher log evidence at equal time, and to when it resamples.

    The race never resamples (`benchmarks/equal_time.md`); explicitly named methods resample according to
    `ess_threshold`.
    """
    if method != "auto":
        return method, ess_threshold
    if any(n <= rows and d <= columns for rows, columns in sizes.INSERTED):
        return "insertion", ess_threshold
    chosen = choose_merging(method, n, d)
    return chosen, 0.0 if chosen == "smc1" else ess_threshold


def suits_full_covariance(X: Floats) -> bool:
    """Whether a table of numbers, (n, d), has enough rows and values to learn a full Φ by default, and no gaps."""
    n, d = X.shape
    if d < 2 or n < max(sizes.FULL_ROWS, sizes.FULL_ROWS_PER_COLUMN * d) or np.isnan(X).any():
        return False
    return all(len(np.unique(column)) > sizes.FEW_LEVELS for column in X.T)
