r"""Rows that fit nowhere: more of them are still alone, when few lineages are left, than the coalescent would have.

Follow a tree of Kingman's coalescent of n leaves back to where k lineages are left: all ways to share n leaves among k
ordered lineages, one at least for each, are equally likely (Kingman 1982). So s of the lineages are single leaves with
probability

    C(k, s) C(n−k−1, k−s−1) / C(n−1, k−1),

and k(k−1)/(n−1) are expected. For a few k, up to MOST_LEFT of n, the rows that are alone are counted; where so many are
least probable, and that probability is below RARE, they are outlying in this tree. The probability of a row to be an
outlier is the posterior probability of that. It depends on the shapes of the trees alone, so no scale has to be set and
one cell of a million counts no more than any other far row. Of 2/RARE rows or fewer a single row is never an outlier.
A single tree has no others to average over and is held to more: the probability at k is multiplied by k²/4.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from coaltree._compile import kernel
from coaltree.posterior.clades import as_merges, as_probability

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RARE = 0.03
MOST_LEFT = 0.15
# Ratio of the numbers of lineages at which rows that are alone are counted.
_STEP = 1.2


def outlier_probability(children: Ints, weights: Floats) -> Floats:
    """Posterior probability of each row to be an outlier, (n,), from merges (M, n−1, 2) and weights (M,). O(M n)."""
    n = children.shape[1] + 1
    left = lineages(n)
    tails = [lone_tail(n, int(k)) for k in left]
    start = np.cumsum([0, *map(len, tails)])
    return as_probability(_probability(as_merges(children), weights, left, np.concatenate([*tails, [1.0]]), start))


def lineages(n: int) -> Ints:
    """Numbers of lineages at which rows are counted: 2, 3, … and then by ratio, none for few rows."""
    most = max(int(MOST_LEFT * n), min(2, n - 1))
    steps = 2.0 * _STEP ** np.arange(np.log(max(most, 2) / 2.0) / np.log(_STEP) + 1.0)
    found: Ints = np.unique(np.append(steps[steps <= most].astype(np.int64), most))
    return found[found >= 2]


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
def _probability(children: Ints, weights: Floats, left: Ints, tail: Floats, start: Ints) -> Floats:
    n = children.shape[1] + 1
    last = np.empty(n, dtype=np.int64)  # lineages that are left after a leaf has merged
    alone = np.empty(n + 1, dtype=np.int64)
    probability = np.zeros(n)
    for m in range(len(children)):
        if weights[m] == 0.0:
            continue
        alone[:] = 0
        for k in range(n - 1):
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
        if where > 0:
            for i in range(n):
                if last[i] < where:
                    probability[i] += weights[m]
    return probability
