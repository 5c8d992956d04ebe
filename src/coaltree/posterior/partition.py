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

from coaltree._compile import kernel
from coaltree.posterior.ensemble import TreePosterior
from coaltree.tree import Tree

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_CLUSTERS = 30
# Agreement below which a cut is no better than none, and differences in agreement that do not count.
EVEN = 0.5
TIED = 0.05


class ClusterScores(NamedTuple):
    """How well each number of clusters is supported."""

    n_clusters: Ints  # (K,): 2, 3, …
    agreement: Floats  # (K,)
    gap: Floats  # (K,), in nats
    chosen: int

    def as_dict(self) -> dict[int, float]:
        """Agreement by number of clusters; one cluster has the agreement that the others must reach."""
        return {1: EVEN, **dict(zip(self.n_clusters.tolist(), self.agreement.tolist(), strict=True))}


@kernel
def best_agreement(children: Ints, codes: Ints, n_classes: int) -> Floats:
    """For each of M trees the adjusted Rand index of its cut closest to the partition `codes`, (M,)."""
    n_trees, n_merges, _ = children.shape
    n = n_merges + 1
    sizes = np.zeros(n_classes)
    for code in codes:
        sizes[code] += 1.0
    truth = 0.0
    for c in range(n_classes):
        truth += 0.5 * sizes[c] * (sizes[c] - 1.0)
    total = 0.5 * n * (n - 1.0)
    best = np.zeros(n_trees)
    for m in range(n_trees):
        counts = np.zeros((2 * n - 1, n_classes))
        for i in range(n):
            counts[i, codes[i]] = 1.0
        together = 0.0
        clustered = 0.0
        for k in range(n_merges):
            left, right = children[m, k]
            n_left = n_right = 0.0
            # Pairs that the merge puts together, all and those of one class.
            for c in range(n_classes):
                n_left += counts[left, c]
                n_right += counts[right, c]
                together += counts[left, c] * counts[right, c]
                counts[n + k, c] = counts[left, c] + counts[right, c]
            clustered += n_left * n_right
            chance = clustered * truth / total
            most = 0.5 * (clustered + truth)
            if most > chance:
                best[m] = max(best[m], (together - chance) / (most - chance))
    return best


def gaps(times: Floats, n_clusters: Ints) -> Floats:
    """−log P(ratio of the times at which k clusters end and begin) under the coalescent, (M, K), k < n."""
    n = times.shape[1] + 1
    rates = np.arange(n + 1) * np.arange(-1.0, n) / 2.0
    result = np.empty((len(times), len(n_clusters)))
    for column, k in enumerate(n_clusters):
        end, begin = times[:, n - k], times[:, n - k - 1]
        excess = np.divide(end - begin, begin, out=np.full(len(times), np.inf), where=begin > 0)
        # A tree that starts with tied leaves has no ratio there: any finite number will do, it is not their gap.
        excess = np.minimum(excess, 1e12)
        result[:, column] = np.log1p(excess[:, None] * rates[k] / rates[k + 1 :]).sum(axis=1)
    return result


def score_clusters(posterior: TreePosterior, tree: Tree, most_clusters: int = MOST_CLUSTERS) -> ClusterScores:
    """Score the cuts of `tree` into 2 … clusters by the posterior's trees, and choose a number, 1 included."""
    n = tree.n_leaves
    numbers = np.arange(2, min(most_clusters, n - 1) + 1)
    used = posterior.weights > 0.0
    children, times = posterior.children[used], posterior.times[used]
    weights = posterior.weights[used] / posterior.weights[used].sum()
    agreement = np.array([weights @ best_agreement(children, tree.cut(n_clusters=k), int(k)) for k in numbers])
    gap = weights @ gaps(times, numbers) if len(numbers) else np.empty(0)
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
