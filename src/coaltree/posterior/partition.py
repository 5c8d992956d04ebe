r"""How many clusters, and how certain each assignment is: how much earlier rows merge within than between clusters.

In one draw let a_i be the mean time at which row i merges with the other rows of its cluster and b_i the mean time at
which it merges with the rows of the nearest other cluster. Its silhouette is (b_i − a_i) / max(a_i, b_i), in [−1, 1]; 0
for a row alone. The score of k clusters (`posterior.hierarchy`) is the mean over rows that are not outliers and over
draws. The answer is one cluster if no score reaches LEAST: rows of one normal cloud score about 0.1, because their
trees differ from draw to draw. Otherwise it is the number with the highest score, s, or the fewest clusters of those
that reach LEAST and are within TIED (1 − s) of it. Groups of clusters and their parts often score alike: other numbers
that reach LEAST and NEARLY s are the alternatives. The choices that each draw alone would make are the posterior of the
number of clusters.

A single tree, built rather than drawn, agrees with itself and expresses no uncertainty: even one cloud has high
silhouettes by its times. There distances between the rows of the table replace times, and the score is how much the
silhouette exceeds that of N_CLOUDS trees, built and cut in the same way, over as many rows of one normal cloud.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.errors import InputError
from coaltree.posterior.clades import as_merges, as_probability
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.hierarchy import OUTLIER, Hierarchy, hierarchy_of_one
from coaltree.tree import Tree

MOST_CLUSTERS = 30
# Score that two or more clusters must reach, for draws and for a single tree.
LEAST, LEAST_OF_ONE = 0.25, 0.1
# Differences from the highest score that do not count, as a share of one minus that score, likewise.
TIED, TIED_OF_ONE = 0.03, 0.15
# Share of the highest score that makes another number an alternative.
NEARLY = 0.85
LEVEL = 0.9
# Rows over all draws together beyond which some draws, spread evenly over the weight, represent all.
MOST_LEAVES = 2_000_000
# For a single tree: rows whose distances are used, rows of a cloud, clouds.
MOST_COMPARED, MOST_IN_CLOUD, N_CLOUDS = 1000, 500, 5
# Clusters whose rows are counted at once.
_BLOCK = 32
# Mean times of clusters closer than this are the same up to rounding.
_ROUNDING = 1e-9


class ClusterScores(NamedTuple):
    """How well each number of clusters is supported."""

    n_clusters: Ints  # (K,): 2, 3, …
    score: Floats  # (K,): mean over draws
    low: Floats  # (K,), with `high` the central 90% of draws
    high: Floats
    probability: Floats  # (K+1,): share of draws that alone would choose 1, 2, …
    least: float  # score that two clusters or more must reach
    chosen: int
    alternatives: tuple[int, ...] = ()  # other numbers that score about as high

    def as_dict(self) -> dict[int, float]:
        """Score by number of clusters; one cluster has the score that the others must reach."""
        return {1: self.least, **dict(zip(self.n_clusters.tolist(), self.score.tolist(), strict=True))}

    def posterior(self) -> dict[int, float]:
        """Probability by number of clusters, where it is positive."""
        return {k: share for k, share in enumerate(self.probability.tolist(), start=1) if share > 0.0}


def score_clusters(
    posterior: TreePosterior,
    hierarchy: Hierarchy,
    table: Floats | None = None,
    grow: Callable[[Floats], Tree] | None = None,
    most_clusters: int = MOST_CLUSTERS,
) -> ClusterScores:
    """Score the cuts of the hierarchy into 2 … clusters, and choose a number, 1 included. O(M n) for all together.

    Parameters
    ----------
    posterior : TreePosterior
        The draws; one tree if it was built.
    hierarchy : Hierarchy
        Made from them by `make_hierarchy`.
    table : array (n, d), optional
        The whitened rows, for a single tree; without them it is treated as one cluster.
    grow : callable, optional
        With `table`: what built its tree, to build those of clouds without clusters, (rows, d) → Tree.
    most_clusters : int
        The largest number to score.
    """
    numbers = np.arange(2, min(most_clusters, len(hierarchy.order)) + 1)
    used, weights = _spread(posterior.weights, max(1, MOST_LEAVES // posterior.n_leaves))
    alone = int((posterior.weights > 0.0).sum()) == 1
    least = LEAST_OF_ONE if alone else LEAST
    if not len(numbers) or (alone and (table is None or grow is None)):
        none = np.empty(0)
        return ClusterScores(numbers[:0], none, none, none, np.ones(1), least, 1)
    if alone and table is not None and grow is not None:
        draws = _excess(hierarchy, table, numbers, grow)[None]
    else:
        codes, owner = _nested(hierarchy, numbers)
        draws = _silhouettes(as_merges(posterior.children[used]), posterior.times[used], codes, owner)
    score = weights @ draws
    order = np.argsort(draws, axis=0)
    reached = np.cumsum(weights[order], axis=0)
    low, high = (
        np.take_along_axis(draws, np.take_along_axis(order, (reached < share).sum(axis=0)[None], axis=0), axis=0)[0]
        for share in ((1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0)
    )
    tied = TIED_OF_ONE if alone else TIED
    votes = [_choose(row, least, tied) for row in draws]
    probability: Floats = np.bincount(votes, weights, minlength=len(numbers) + 2)[1:].astype(np.float64)
    chosen = _choose(score, least, tied)
    near = score >= max(least, NEARLY * float(score.max()))
    others = tuple(int(k) for k in numbers[near] if k != chosen) if chosen > 1 else ()
    return ClusterScores(numbers, score, low, high, as_probability(probability), least, chosen, others)


def _choose(score: Floats, least: float, tied: float) -> int:
    best = float(score.max())
    return int(np.argmax(score >= max(least, best - tied * (1.0 - best)))) + 2 if best >= least else 1


def _nested(hierarchy: Hierarchy, numbers: Ints) -> tuple[Ints, Ints]:
    """Clusters of the finest cut, (n,), and which cluster of the cut into k each is part of, by k, (K, F)."""
    codes = hierarchy.cut(int(numbers[-1]))
    first = np.unique(codes, return_index=True)[1][-int(numbers[-1]) :]
    return codes, np.array([hierarchy.cut(int(k))[first] for k in numbers])


def _spread(weights: Floats, most: int) -> tuple[Ints, Floats]:
    """Indices and weights of the trees that have weight, or of at most `most` at even steps of the summed weight."""
    used = np.flatnonzero(weights > 0.0)
    if len(used) <= most:
        return used, weights[used] / weights[used].sum()
    reached = np.cumsum(weights[used])
    steps = (np.arange(most) + 0.5) / most * reached[-1]
    chosen, counts = np.unique(np.searchsorted(reached, steps), return_counts=True)
    return used[chosen], counts / most


# ---- a single tree


def _excess(hierarchy: Hierarchy, table: Floats, numbers: Ints, grow: Callable[[Floats], Tree]) -> Floats:
    """Silhouettes by the distances of rows, less the mean of those of clouds, (K,)."""
    rng = np.random.default_rng(0)
    found = _by_distance(hierarchy, table, numbers)
    rows, d = min(len(table), MOST_IN_CLOUD), table.shape[1]
    clouds = np.zeros((N_CLOUDS, len(numbers)))
    for cloud in clouds:
        X = rng.normal(size=(rows, d))
        own = hierarchy_of_one(grow(X))
        fewer = numbers[numbers <= len(own.order)]
        cloud[: len(fewer)] = _by_distance(own, X, fewer)
    return np.asarray(found - clouds.mean(axis=0))


def _by_distance(hierarchy: Hierarchy, table: Floats, numbers: Ints) -> Floats:
    """Mean silhouette of each cut by Euclidean distances; with many rows, for some evenly spaced ones, (K,)."""
    codes, owner = _nested(hierarchy, numbers)
    rows = hierarchy.tree.leaf_order()
    rows = rows[codes[rows] != OUTLIER]
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST_COMPARED)).round().astype(np.int64)]
    member = np.eye(owner.shape[1])[codes[rows]]
    return _mean_silhouette(cdist(table[rows], table[rows]) @ member, codes[rows], owner)


# ---- how certain


def cluster_probability(posterior: TreePosterior, labels: npt.ArrayLike, outlier: Floats | None = None) -> Floats:
    """Probability that each row belongs to its cluster, (n,).

    The share of the posterior in which the row merges, on average, earlier with the other rows of its cluster than with
    those of any other cluster; tied clusters share it. One for a row alone in its cluster. For a row without one,
    label −1, the probability of being an outlier. O(M n k) steps.

    Parameters
    ----------
    posterior : TreePosterior
        The trees.
    labels : array-like of int (n,)
        Cluster of each row, 0 …, or −1.
    outlier : array (n,), optional
        Probability that each row is an outlier; one if not given.
    """
    given = np.asarray(labels)
    if given.shape != (posterior.n_leaves,) or given.dtype.kind not in "iu":
        raise InputError(f"labels must be one whole number per row, shape ({posterior.n_leaves},), got {given.shape}.")
    values, codes = np.unique(given, return_inverse=True)
    codes = codes - int(values[0] < 0)
    used, weights = _spread(posterior.weights, max(1, MOST_LEAVES // posterior.n_leaves))
    sure = _share_nearest(as_merges(posterior.children[used]), posterior.times[used], weights, codes)
    if outlier is not None:
        sure = np.where(codes == OUTLIER, outlier, sure)
    return np.clip(as_probability(sure), 0.0, 1.0)


# ---- kernels


@inline
def _sum_times(tree: Ints, times: Floats, codes: Ints, first: int, state_count: Floats, state_sum: Floats) -> None:
    """Count the rows of clusters first, first + 1, … under each node, and sum the times at which it merges with others.

    Both (2n−1, clusters); for a leaf the latter is over all other leaves of the cluster.
    """
    n, width = len(tree) + 1, state_count.shape[1]
    state_count[:n] = 0.0
    for i in range(n):
        if first <= codes[i] < first + width:
            state_count[i, codes[i] - first] = 1.0
    for k in range(n - 1):
        for c in range(width):
            state_count[n + k, c] = state_count[tree[k, 0], c] + state_count[tree[k, 1], c]
    state_sum[2 * n - 2] = 0.0
    for k in range(n - 2, -1, -1):
        left, right = tree[k]
        for c in range(width):
            above = state_sum[n + k, c]
            state_sum[left, c] = above + times[k] * state_count[right, c]
            state_sum[right, c] = above + times[k] * state_count[left, c]


@kernel
def _mean_silhouette(sums: Floats, codes: Ints, owner: Ints) -> Floats:
    """Mean silhouette of rows that are in a cluster, by cut, (K,), from sums over finest clusters, (n, F)."""
    n_cuts, n_finest = owner.shape
    finest = np.zeros(n_finest)
    for code in codes:
        if code >= 0:
            finest[code] += 1.0
    total, size = np.empty(n_finest), np.empty(n_finest)
    score = np.zeros(n_cuts)
    for i in range(len(codes)):
        if codes[i] < 0:
            continue
        for cut in range(n_cuts):
            total[:] = 0.0
            size[:] = 0.0
            for c in range(n_finest):
                total[owner[cut, c]] += sums[i, c]
                size[owner[cut, c]] += finest[c]
            own = owner[cut, codes[i]]
            if size[own] < 2.0:
                continue
            inside, nearest = total[own] / (size[own] - 1.0), np.inf
            for c in range(n_finest):
                if c != own and size[c] > 0.0:
                    nearest = min(nearest, total[c] / size[c])
            if nearest < np.inf and max(inside, nearest) > 0.0:
                score[cut] += (nearest - inside) / max(inside, nearest)
    score /= finest.sum()
    return score


@kernel
def _silhouettes(children: Ints, times: Floats, codes: Ints, owner: Ints) -> Floats:
    """Mean silhouette of each cut by the times of each tree, (M, K)."""
    n = len(codes)
    count, total = np.empty((2, 2 * n - 1, owner.shape[1]))
    score = np.empty((len(children), len(owner)))
    for m in range(len(children)):
        _sum_times(children[m], times[m], codes, 0, count, total)
        score[m] = _mean_silhouette(total[:n], codes, owner)
    return score


@kernel
def _share_nearest(children: Ints, times: Floats, weights: Floats, codes: Ints) -> Floats:
    """Share of the weight in which no cluster is nearer to a row than its own, (n,); one for rows without or alone."""
    n, n_clusters = len(codes), codes.max() + 1
    sizes = np.zeros(n_clusters)
    for code in codes:
        if code >= 0:
            sizes[code] += 1.0
    width = min(n_clusters, _BLOCK)
    count, total = np.empty((2, 2 * n - 1, width))
    share, inside, nearest, n_tied = np.zeros(n), np.empty(n), np.empty(n), np.empty(n)
    for m in range(len(children)):
        nearest[:] = np.inf
        n_tied[:] = 0.0
        for first in range(0, n_clusters, width):
            _sum_times(children[m], times[m], codes, first, count, total)
            for i in range(n):
                for c in range(first, min(first + width, n_clusters)):
                    if c == codes[i]:
                        inside[i] = total[i, c - first] / max(sizes[c] - 1.0, 1.0)
                        continue
                    mean = total[i, c - first] / sizes[c]
                    if mean < nearest[i] * (1.0 - _ROUNDING):
                        nearest[i], n_tied[i] = mean, 1.0
                    elif mean <= nearest[i] * (1.0 + _ROUNDING):
                        n_tied[i] += 1.0
        for i in range(n):
            if codes[i] < 0 or sizes[codes[i]] < 2.0 or inside[i] < nearest[i] * (1.0 - _ROUNDING):
                share[i] += weights[m]
            elif inside[i] <= nearest[i] * (1.0 + _ROUNDING):
                share[i] += weights[m] / (1.0 + n_tied[i])
    return share
