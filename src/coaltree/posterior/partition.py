r"""How many clusters: the cut of a tree that the other trees of the posterior agree with.

Cut the reported tree into k clusters. In each tree of the posterior look for that partition at whatever level it may be
found there, so that one stray row does not hide it, and average over trees:

    agreement(k) = Σ_m w_m max_j ARI(cut of the reported tree into k, cut of tree m into j).

It is 1 if the clusters are certain and falls to the agreement of chance, 0, where trees differ: in data without
clusters already at k = 2. One cluster is the answer unless some k ≥ 2 reaches EVEN. Several k may be as certain, as
when clusters lie in groups; among those within TIED of the best, the widest gap decides. Let t_k be the time at which k
clusters become k − 1. Kingman's coalescent, whatever its scale, has

    P(t_k / t_{k+1} > x) = Π_{j>k} 1 / (1 + (x − 1) λ_k/λ_j),   λ_j = j(j − 1)/2,

and the gap is −log of that at the ratio of each tree, averaged: Exponential(1) where there are no clusters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, loggamma

from coaltree._compile import kernel
from coaltree.posterior.agreement import best_agreement
from coaltree.posterior.clades import as_merges, as_probability
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.pairs import cut_tree
from coaltree.tree import Tree

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_CLUSTERS = 30
# Agreement below which a cut is no better than none, and differences in agreement that do not count.
EVEN = 0.5
TIED = 0.05
# Trees beyond this many merges in all do not sharpen the scores: some, evenly spread over the weight, stand for all.
MOST_MERGES = 20_000_000


class ClusterScores(NamedTuple):
    """How well each number of clusters is supported."""

    n_clusters: Ints  # (K,): 2, 3, …
    agreement: Floats  # (K,)
    gap: Floats  # (K,), in nats
    chosen: int

    def as_dict(self) -> dict[int, float]:
        """Agreement by number of clusters; one cluster has the agreement that the others must reach."""
        return {1: EVEN, **dict(zip(self.n_clusters.tolist(), self.agreement.tolist(), strict=True))}


def gaps(times: Floats, n_clusters: Ints) -> Floats:
    """−log P(ratio of the times at which k clusters end and begin) under the coalescent, (M, K), k < n.

    With a = λ_k (t_k / t_{k+1} − 1) and r (1 − r) = 2a a factor 1 + a / λ_j is (j − r)(j − 1 + r) / j (j − 1): the
    product is one of gamma functions, whose arguments are complex where a > 1/8.
    """
    n, k = times.shape[1] + 1, np.asarray(n_clusters)
    end, begin = times[:, n - k], times[:, n - k - 1]
    excess = np.divide(end - begin, begin, out=np.full(end.shape, np.inf), where=begin > 0)
    # A tree that starts with tied leaves has no ratio there: any finite number will do, it is not their gap.
    a = np.minimum(excess, 1e12) * k * (k - 1) / 2.0
    r = (1.0 + np.sqrt(1.0 - 8.0 * a + 0.0j)) / 2.0
    above = loggamma(n + 1 - r) - loggamma(k + 1 - r) + loggamma(n + r) - loggamma(k + r)
    below = gammaln(n + 1) - gammaln(k + 1) + gammaln(n) - gammaln(k)
    return np.asarray(np.maximum(above.real - below, 0.0), dtype=np.float64)


def score_clusters(posterior: TreePosterior, tree: Tree, most_clusters: int = MOST_CLUSTERS) -> ClusterScores:
    """Score the cuts of `tree` into 2 … clusters by the posterior's trees, and choose a number, 1 included.

    O(M n) for the numbers of clusters together; of trees with more than MOST_MERGES merges in all, some are taken that
    are spread evenly over the weight.
    """
    n = tree.n_leaves
    numbers = np.arange(2, min(most_clusters, n - 1) + 1)
    used, weights = _spread(posterior.weights, max(1, MOST_MERGES // n))
    everything = len(used) == len(posterior)
    children = posterior.children if everything else posterior.children[used]
    times = posterior.times if everything else posterior.times[used]
    agreement = gap = np.empty(0)
    if len(numbers):
        agreement, gap = weights @ best_agreement(children, tree, int(numbers[-1])), weights @ gaps(times, numbers)
    chosen = 1
    if len(numbers):
        tied = np.flatnonzero(agreement >= agreement.max() - TIED)
        best = tied[np.argmax(gap[tied])]
        # A single tree agrees with itself. There a gap must be wider than the widest of as many Exponential(1) draws is
        # expected to be, about the log of their number.
        certain = len(weights) > 1 or gap[best] > np.log(len(numbers))
        if agreement.max() >= EVEN and certain:
            chosen = int(numbers[best])
    return ClusterScores(numbers, agreement, gap, chosen)


def _spread(weights: Floats, most: int) -> tuple[Ints, Floats]:
    """Indices and weights of the trees that have weight, or of at most `most` at even steps of the summed weight."""
    used = np.flatnonzero(weights > 0.0)
    if len(used) <= most:
        return used, weights[used] / weights[used].sum()
    reached = np.cumsum(weights[used])
    steps = (np.arange(most) + 0.5) / most * reached[-1]
    chosen, counts = np.unique(np.searchsorted(reached, steps), return_counts=True)
    return used[chosen], counts / most


def cluster_membership(posterior: TreePosterior, labels: npt.ArrayLike) -> Floats:
    """How sure each row's cluster is: the mean probability that it shares one with the others of its cluster, (n,).

    Every tree is cut into as many clusters as there are labels, and for each row the share of the other rows with its
    label that are in its cluster there is averaged over trees. For a row that is alone with its label: one minus the
    highest probability that it shares a cluster with any other row. O(M n), and for rows that are alone as many steps
    as their clusters have rows; memory for a few numbers a row and tree.

    Parameters
    ----------
    posterior : TreePosterior
        The trees.
    labels : array-like (n,)
        A label for each row, as `Tree.cut` gives.
    """
    given = np.asarray(labels)
    if given.shape != (posterior.n_leaves,):
        raise ValueError(f"labels must hold one label a row, shape ({posterior.n_leaves},), got {given.shape}.")
    values, codes, sizes = np.unique(given, return_inverse=True, return_counts=True)
    merges = as_merges(posterior.children)
    order = np.argsort(codes, kind="stable")
    start = np.concatenate([[0], np.cumsum(sizes)])
    share = _share_of_own(merges, posterior.weights, order, start)
    alone = np.flatnonzero(sizes[codes] == 1)
    if len(alone):
        share[alone] = 1.0 - as_probability(_most_together(merges, posterior.weights, len(values), alone))
    return np.clip(as_probability(share), 0.0, 1.0)


@kernel
def _share_of_own(children: Ints, weights: Floats, order: Ints, start: Ints) -> Floats:
    """Mean share of the others with the same label, rows order[start[c]:start[c+1]], that a row has with it, (n,)."""
    n, n_labels = len(order), len(start) - 1
    cluster = np.empty(2 * n - 1, dtype=np.int32)
    count = np.zeros(2 * n - 1, dtype=np.int32)
    share = np.zeros(n)
    for m in range(len(children)):
        if weights[m] == 0.0:
            continue
        cut_tree(children[m], n_labels, cluster)
        for c in range(n_labels):
            own = order[start[c] : start[c + 1]]
            for i in own:
                count[cluster[i]] += 1
            for i in own:
                share[i] += weights[m] * (count[cluster[i]] - 1) / max(len(own) - 1, 1)
            for i in own:
                count[cluster[i]] = 0
    return share


@kernel
def _most_together(children: Ints, weights: Floats, n_clusters: int, rows: Ints) -> Floats:
    """Highest probability that each of some rows shares a cluster with any other row, (len(rows),)."""
    n_trees, n = len(children), children.shape[1] + 1
    cluster = np.empty(2 * n - 1, dtype=np.int32)
    last = np.empty(2 * n - 1, dtype=np.int32)
    following = np.empty((n_trees, n), dtype=np.int32)  # the rows of a cluster, in a ring
    for m in range(n_trees):
        cut_tree(children[m], n_clusters, cluster)
        last[:] = -1
        for i in range(n):
            before = last[cluster[i]]
            following[m, i] = i if before < 0 else following[m, before]
            if before >= 0:
                following[m, before] = i
            last[cluster[i]] = i
    together = np.zeros(n)
    most = np.zeros(len(rows))
    for r in range(len(rows)):
        for clearing in range(2):
            for m in range(n_trees):
                j = following[m, rows[r]]
                while j != rows[r]:
                    together[j] = 0.0 if clearing else together[j] + weights[m]
                    most[r] = max(most[r], together[j])
                    j = following[m, j]
    return most
