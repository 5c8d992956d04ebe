r"""Rows that fit nowhere: those that stay apart until most others have merged.

In a tree of Kingman's coalescent with n leaves, 2n / N(N+1) clades of N < n leaves are expected and one of N = n, and
each is split into two sides of 1 … N−1 leaves with equal probability. So the expected number of merges that make a
clade of N leaves or more of a side of r leaves or fewer and the rest is

    r Σ_{M ≥ N} c_M,   c_M = 2n / M(M+1) · 2/(M−1) for M < n,   c_n = 2/(n−1).

A row is outlying in a tree if it is on the small side of a merge of at least half of all rows of which fewer than RARE
are expected; the small side has at most MOST_TOGETHER rows, for more are a cluster. Its probability to be an outlier is
the posterior probability of that. It depends on the shapes of the trees alone, and not on distances, so no scale has to
be set; below 2/RARE + 2 rows nothing is rare.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coaltree._compile import kernel
from coaltree.posterior.clades import as_merges, as_probability

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RARE = 0.07
MOST_TOGETHER = 4


def outlier_probability(children: Ints, weights: Floats) -> Floats:
    """Posterior probability of each row to be an outlier, (n,), from merges (M, n−1, 2) and weights (M,). O(M n)."""
    return as_probability(_probability(as_merges(children), weights, expected_merges(children.shape[1] + 1)))


def expected_merges(n: int) -> Floats:
    """Expected number of merges with at least N leaves of which one side has one, by N = 0 … n, (n+1,)."""
    size = np.arange(2.0, n + 1.0)
    clades = np.append(2.0 * n / (size[:-1] * (size[:-1] + 1.0)), 1.0)
    lone = clades * np.minimum(2.0 / (size - 1.0), 1.0)  # of two leaves, both are alone
    total = np.cumsum(lone[::-1])[::-1]
    return np.concatenate([[np.inf, np.inf], total])


@kernel
def _probability(children: Ints, weights: Floats, expected: Floats) -> Floats:
    n = children.shape[1] + 1
    size = np.ones(2 * n - 1, dtype=np.int64)
    apart = np.zeros(2 * n - 1, dtype=np.bool_)
    probability = np.zeros(n)
    for m in range(len(children)):
        if weights[m] == 0.0:
            continue
        for k in range(n - 1):
            size[n + k] = size[children[m, k, 0]] + size[children[m, k, 1]]
        for k in range(n - 2, -1, -1):
            whole = size[n + k]
            for side in range(2):
                child = children[m, k, side]
                r = size[child]
                lone = 2 * r < whole and r <= MOST_TOGETHER and 2 * whole >= n and r * expected[whole] < RARE
                apart[child] = apart[n + k] or lone
        for i in range(n):
            if apart[i]:
                probability[i] += weights[m]
    return probability
