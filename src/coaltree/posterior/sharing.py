"""Who shares a cluster, for any number of rows: of chosen rows, and on average within clusters and between.

`TreePosterior.coclustering` is an (n, n) matrix. What is asked of it where rows are many takes O(n) for each tree: the
cut of a tree is one label per row, and the table of labels against labels counts the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import kernel
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.pairs import cut_tree

MOST_PAIRED = 2_000  # rows of which all pairs are looked at; of more, a sample stands for them
N_SAMPLED = 400


@kernel
def cut_labels(children: Ints, n_clusters: int) -> Ints:
    """Label of every leaf at the cut of one tree (n−1, 2) into `n_clusters`, (n,): equal where a cluster is shared."""
    n = len(children) + 1
    label = np.empty(2 * n - 1, dtype=np.int32)
    cut_tree(children, n_clusters, label)
    return label[:n].astype(np.int64)


def separated(labels: Ints) -> Ints:
    """Labels in which every outlier, −1, is a cluster of its own, numbered after the others."""
    apart = labels < 0
    return np.where(apart, labels.max() + np.cumsum(apart), labels)


def spread_rows(order: Ints, labels: Ints, most: int = N_SAMPLED) -> Ints:
    """About `most` of the leaves, in the order given: of each cluster its share, evenly spread, and two at least.

    Parameters
    ----------
    order : array (n,)
        The leaves as a tree lists them.
    labels : array (n,)
        Cluster of every leaf, 0, 1, …
    most : int
        How many to choose; where there are more than half as many clusters, every k-th leaf whatever its cluster.
    """
    n = len(order)
    if n <= most:
        return order
    sizes = np.bincount(labels)
    if 2 * len(sizes) > most:
        return order[np.linspace(0, n - 1, most).round().astype(np.int64)]
    wanted = np.minimum(np.maximum(np.rint(most * sizes / n), 2.0), sizes).astype(np.int64)
    positions = np.arange(n)[np.argsort(labels[order], kind="stable")]
    starts = np.cumsum(sizes) - sizes
    chosen = [
        positions[start + ((np.arange(count) + 0.5) * size / count).astype(np.int64)]
        for start, size, count in zip(starts, sizes, wanted, strict=True)
    ]
    rows: Ints = order[np.sort(np.concatenate(chosen))]
    return rows


def sharing_of_rows(posterior: TreePosterior, rows: Ints, n_clusters: int) -> Floats:
    """Probability that two of some rows share a cluster of the cut into `n_clusters`, (len(rows), len(rows))."""
    together = np.zeros((len(rows), len(rows)))
    for labels, weight in _cuts(posterior, n_clusters):
        own = labels[rows]
        together += weight * (own[:, None] == own)
    return together


def mean_sharing(posterior: TreePosterior, labels: Ints) -> tuple[float, float]:
    """Mean probability of sharing a cluster over pairs of the same cluster of `labels`, and over other pairs."""
    sizes = np.bincount(labels)
    own = _pairs(sizes)
    other = _pairs(np.array([len(labels)])) - own
    within = between = 0.0
    for found, weight in _cuts(posterior, len(sizes)):
        same = _pairs(_cells(labels, found)[1])
        within += weight * same
        between += weight * (_pairs(np.bincount(found)) - same)
    return (within / own if own else 1.0), (between / other if other else 0.0)


def _cells(labels: Ints, found: Ints) -> tuple[Ints, Ints]:
    """Size of the cell of each row in the table of two labels, (n,), and of the cells that are not empty."""
    _, cell, counts = np.unique(labels * (int(found.max()) + 1) + found, return_inverse=True, return_counts=True)
    return counts[cell], counts


def _pairs(counts: Ints) -> float:
    return float((counts * (counts - 1.0)).sum() / 2.0)


def _cuts(posterior: TreePosterior, n_clusters: int) -> Iterator[tuple[Ints, float]]:
    for children, weight in zip(posterior.children, posterior.weights.tolist(), strict=True):
        if weight > 0.0:
            yield cut_labels(children, n_clusters), weight
