r"""Rows that fit nowhere: more of them are still alone, when few lineages are left, than the coalescent would have.

Follow a tree of Kingman's coalescent of n leaves back to where k lineages are left: all ways to share n leaves among k
ordered lineages, one at least for each, are equally likely (Kingman 1982). So s of the lineages are single leaves with
probability

    C(k, s) C(n−k−1, k−s−1) / C(n−1, k−1),

and k(k−1)/(n−1) are expected. For a few k, up to MOST_LEFT of n, the rows that are alone are counted; where so many are
least probable, and that probability is below RARE, they are outlying in this tree. The probability of a row to be an
outlier is the posterior probability of that. It depends on the shapes of the trees alone, so no scale has to be set and
one cell of a million counts no more than any other far row. Of 2/RARE rows or fewer a single row is never an outlier.
Two to MOST_TOGETHER rows that join a clade with at least half of all rows only then are outlying, too, if such merges
are rare: 2n / N(N+1) clades of N < n leaves are expected and one of n, each split into sides of 1 … N−1 leaves with
equal probability, so that r Σ_{M ≥ N} c_M merges of N leaves or more have a side of r or fewer, with
c_M = 2n / M(M+1) · 2/(M−1) and c_n = 2/(n−1); fewer than RARE_GROUP must be expected. More rows are a cluster.

Outliers hide others, so rows that are left are looked at again until no more are found.
A single tree has no others to average over and is held to more: the probability at k is multiplied by k²/4.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from coaltree._arrays import Bools, Floats, Ints
from coaltree._compile import kernel
from coaltree.posterior.clades import as_merges, as_probability
from coaltree.posterior.pairs import restrict

RARE, RARE_GROUP = 0.03, 0.1
MOST_TOGETHER = 4
MOST_LEFT = 0.15
# Outliers have this probability to be one, or more, and are no more than this share of the rows.
LIKELY, MOST_OUTLIERS = 0.5, 0.25
# Ratio of the numbers of lineages at which rows that are alone are counted.
_STEP = 1.2


def outlier_probability(children: Ints, weights: Floats) -> Floats:
    """Posterior probability of each row to be an outlier, (n,), from merges (M, n−1, 2) and weights (M,). O(M n)."""
    merges = as_merges(children)
    rows = np.arange(merges.shape[1] + 1)
    probability = np.zeros(len(rows))
    while True:
        found = as_probability(_of_all(merges, weights))
        stay = found < LIKELY
        if len(rows) < len(probability) and stay.sum() < (1.0 - MOST_OUTLIERS) * len(probability):
            return probability  # of so many that they are what the table is made of
        probability[rows] = np.maximum(probability[rows], found)
        if stay.all() or stay.sum() < 2:
            return probability
        merges, _ = restrict(merges, np.zeros(merges.shape[:2]), np.flatnonzero(stay))
        rows = rows[stay]


def find_outliers(probability: Floats) -> Bools:
    """Which rows are outliers; none if so many seem to be that they are what the table is made of."""
    apart = probability >= LIKELY
    return apart if apart.mean() <= MOST_OUTLIERS else np.zeros_like(apart)


def _of_all(merges: Ints, weights: Floats) -> Floats:
    n = merges.shape[1] + 1
    left = lineages(n)
    tails = [lone_tail(n, int(k)) for k in left]
    start = np.cumsum([0, *map(len, tails)])
    return _probability(merges, weights, left, np.concatenate([*tails, [1.0]]), start, expected_merges(n))


def lineages(n: int) -> Ints:
    """Numbers of lineages at which rows are counted: 2, 3, … and then by ratio, none for few rows."""
    most = max(int(MOST_LEFT * n), min(2, n - 1))
    steps = 2.0 * _STEP ** np.arange(np.log(max(most, 2) / 2.0) / np.log(_STEP) + 1.0)
    found: Ints = np.unique(np.append(steps[steps <= most].astype(np.int64), most))
    return found[found >= 2]


def expected_merges(n: int) -> Floats:
    """Expected number of merges with at least N leaves of which one side has one, by N = 0 … n, (n+1,)."""
    size = np.arange(2.0, n + 1.0)
    clades = np.append(2.0 * n / (size[:-1] * (size[:-1] + 1.0)), 1.0)
    lone = clades * np.minimum(2.0 / (size - 1.0), 1.0)  # of two leaves, both are alone
    return np.concatenate([[np.inf, np.inf], np.cumsum(lone[::-1])[::-1]])


def lone_tail(n: int, k: int) -> Floats:
    """Probability that s or more of k lineages of n leaves are single leaves, s = 0 … k, (k+1,); k < n."""
    alone = np.arange(k)
    others = k - alone
    fits = n - k >= others  # every lineage that is not alone has two leaves or more
    log_ways = np.full(k, -np.inf)
    s, r = alone[fits], others[fits]
    log_ways[fits] = _log_choose(k, s) + _log_choose(n - k - 1, r - 1) - _log_choose(n - 1, k - 1)
    return np.append(np.cumsum(np.exp(log_ways)[::-1])[::-1], 0.0)


def _log_choose(n: int, k: npt.ArrayLike) -> Floats:
    chosen = np.asarray(k, dtype=np.float64)
    return np.asarray(gammaln(n + 1.0) - gammaln(chosen + 1.0) - gammaln(n - chosen + 1.0))


@kernel
def _probability(children: Ints, weights: Floats, left: Ints, tail: Floats, start: Ints, expected: Floats) -> Floats:
    n = children.shape[1] + 1
    last = np.empty(n, dtype=np.int64)  # lineages that are left after a leaf has merged
    alone = np.empty(n + 1, dtype=np.int64)
    size = np.ones(2 * n - 1, dtype=np.int64)
    apart = np.zeros(2 * n - 1, dtype=np.bool_)
    probability = np.zeros(n)
    for m in range(len(children)):
        if weights[m] == 0.0:
            continue
        alone[:] = 0
        for k in range(n - 1):
            size[n + k] = size[children[m, k, 0]] + size[children[m, k, 1]]
            for side in range(2):
                if children[m, k, side] < n:
                    last[children[m, k, side]] = n - 1 - k
                    alone[n - 1 - k] += 1
        for k in range(1, n + 1):  # how many are alone while k + 1 lineages are left
            alone[k] += alone[k - 1]
        rarest, where = RARE, 0
        for level in range(len(left)):
            value = tail[start[level] + alone[left[level] - 1]]
            if len(children) == 1:
                value *= 0.25 * left[level] ** 2
            if value < rarest:
                rarest, where = value, left[level]
        for k in range(n - 2, -1, -1):
            whole = size[n + k]
            for side in range(2):
                r = size[children[m, k, side]]
                few = 1 < r <= MOST_TOGETHER and 2 * r < whole and 2 * whole >= n
                apart[children[m, k, side]] = apart[n + k] or (few and r * expected[whole] < RARE_GROUP)
        for i in range(n):
            if last[i] < where or apart[i]:
                probability[i] += weights[m]
    return probability
