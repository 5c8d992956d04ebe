"""How long to run, by the number of rows: the one place where defaults by size are decided."""

from __future__ import annotations

import math
from typing import NamedTuple

# A chain's iterations, warm-up and draws together: as many as MOST_MOVES regrafts make (some 20 s per chain), but
# no fewer and no more than these.
MOST_MOVES = 1_200_000
FEWEST_ITERATIONS, MOST_ITERATIONS = 150, 700
# Share of them for warm-up: of many rows more, for their chains are short.
WARMUP_SHARE, WARMUP_SHARE_OF_FEW = 2 / 3, 1 / 3
# Trees kept, of all chains together.
N_DRAWS = 200
N_CHAINS = 2
GREEDY_ITERATIONS, GREEDY_WARMUP = 30, 6


class Effort(NamedTuple):
    """Warm-up of a chain, draws of all chains together, and iterations between two draws of a chain."""

    warmup: int
    n_draws: int
    n_chains: int
    thin: int

    @property
    def n_iter(self) -> int:
        """Iterations a chain."""
        return self.warmup + self.thin * math.ceil(self.n_draws / self.n_chains)


def settle(
    n: int,
    warmup: int | None = None,
    n_draws: int | None = None,
    n_chains: int | None = None,
    thin: int | None = None,
    greedy: bool = False,
) -> Effort:
    """Fill in what is not given for a table of n rows."""
    chains = N_CHAINS if n_chains is None else n_chains
    if greedy:
        first = GREEDY_WARMUP if warmup is None else warmup
        return Effort(first, GREEDY_ITERATIONS - GREEDY_WARMUP if n_draws is None else n_draws, 1, thin or 1)
    total = min(max(MOST_MOVES // n, FEWEST_ITERATIONS), MOST_ITERATIONS)
    share = WARMUP_SHARE_OF_FEW if total == MOST_ITERATIONS else WARMUP_SHARE
    left = total - math.ceil(share * total)
    usual = min(N_DRAWS, left * chains)
    return Effort(
        math.ceil(share * total) if warmup is None else warmup,
        usual if n_draws is None else n_draws,
        chains,
        left * chains // usual if thin is None else thin,
    )
