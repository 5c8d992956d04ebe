"""What to run and how long, by the size of the table: the one place where defaults by size are decided."""

from __future__ import annotations

import math
from typing import NamedTuple

# A chain's iterations, warm-up and draws together: as many as MOST_MOVES regrafts make (some 20 s per chain), but
# no fewer and no more than these.
MOST_MOVES = 1_200_000
FEWEST_ITERATIONS, MOST_ITERATIONS = 150, 700
# Share of them for warm-up: more with many rows of many columns, or with latent coordinates, because such chains are
# slow to leave where they start.
WARMUP_SHARE, WARMUP_SHARE_OF_SLOW = 1 / 3, 2 / 3
# Trees kept, over all chains together; fewer, to save memory, of more rows than this.
N_DRAWS, FEWER_DRAWS, MANY_ROWS = 200, 100, 50_000
N_CHAINS = 2
GREEDY_ITERATIONS, GREEDY_WARMUP = 30, 6
# Up to this many rows with this many columns "auto" uses insertion. With more columns, on real data, later rows are too
# improbable under trees over earlier ones, and the race has the higher evidence at equal time.
INSERTED = ((150, 64), (500, 16))


class Effort(NamedTuple):
    """Warm-up per chain, draws over all chains together, and iterations between two draws of a chain."""

    warmup: int
    n_draws: int
    n_chains: int
    thin: int

    @property
    def n_iter(self) -> int:
        """Iterations per chain."""
        return self.warmup + self.thin * math.ceil(self.n_draws / self.n_chains)


def settle(
    n: int,
    warmup: int | None = None,
    n_draws: int | None = None,
    n_chains: int | None = None,
    thin: int | None = None,
    greedy: bool = False,
    slow: bool = False,
) -> Effort:
    """Fill in what is not given for a table of n rows; `slow` if it is wide or has latent coordinates."""
    chains = N_CHAINS if n_chains is None else n_chains
    if greedy:
        first = GREEDY_WARMUP if warmup is None else warmup
        return Effort(first, GREEDY_ITERATIONS - GREEDY_WARMUP if n_draws is None else n_draws, 1, thin or 1)
    total = min(max(MOST_MOVES // n, FEWEST_ITERATIONS), MOST_ITERATIONS)
    share = WARMUP_SHARE_OF_SLOW if slow and total < MOST_ITERATIONS else WARMUP_SHARE
    left = total - math.ceil(share * total)
    usual = min(N_DRAWS if n <= MANY_ROWS else FEWER_DRAWS, left * chains)
    return Effort(
        math.ceil(share * total) if warmup is None else warmup,
        usual if n_draws is None else n_draws,
        chains,
        left * chains // usual if thin is None else thin,
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
    if any(n <= rows and d <= columns for rows, columns in INSERTED):
        return "insertion", ess_threshold
    chosen = choose_merging(method, n, d)
    return chosen, 0.0 if chosen == "smc1" else ess_threshold
