"""Pairs of leaves across weighted trees: when they merge, and whether they share a cluster.

All pairs take O(M n²) steps and (n, n) numbers. Selected pairs need no more memory than the trees: a tree is cut once
for co-clustering, and the merge that joins two leaves is found by jumping along heavy paths, O(log n) per pair.

With many rows, where the (n, n) matrix of `TreePosterior.coclustering` is too large, co-clustering is computed for
selected rows, and its mean within and between clusters, in O(n) per tree: the cut of a tree is one label per row, and
the cross-table of two labellings counts the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats, Ints, SmallInts
from coaltree._compile import inline, kernel
from coaltree.errors import InputError
from coaltree.posterior.clades import as_merges

if TYPE_CHECKING:
    from coaltree.posterior.ensemble import TreePosterior


def check_pairs(pairs: npt.ArrayLike, n: int) -> Ints:
    """Return pairs of leaves as an array (P, 2), or say what is wrong with them."""
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] != 2 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(
            f"pairs must hold two leaf indices per row, shape (P, 2), got shape {array.shape} of {array.dtype}."
        )
    if array.size and (array.min() < 0 or array.max() >= n):
        raise InputError(f"pairs must hold leaf indices between 0 and {n - 1}, got {array.min()} to {array.max()}.")
    return np.ascontiguousarray(array, dtype=np.int64)


def mean_pair_times(children: Ints, times: Floats, weights: Floats, pairs: Ints) -> Floats:
    """Weighted mean merge time of each pair of leaves, (P,); zero for a leaf with itself."""
    return _mean_pair_times(as_merges(children), times, weights, pairs)


def share_of_pairs(children: Ints, weights: Floats, n_clusters: int, pairs: Ints) -> Floats:
    """Weighted share of the trees whose cut into n_clusters leaves each pair together, (P,)."""
    return _share_of_pairs(as_merges(children), weights, n_clusters, pairs)


def mean_ancestor_times(tree: Ints, children: Ints, times: Floats, weights: Floats) -> Floats:
    """Weighted mean time at which each clade of `tree` (n−1, 2) has one ancestor, in all trees, (n−1,).

    In a tree that does not contain the clade this is the first merge that has all of its leaves, so a clade is never
    later than one that contains it.
    """
    return _mean_ancestor_times(as_merges(tree[None])[0], as_merges(children), times, weights)


def pair_sums(children: Ints, values: npt.ArrayLike) -> Floats:
    """Sum over trees the value of the merge that joins each pair of leaves, (n, n), zero on the diagonal.

    `values` (M, S) is for the first S merges; later ones count as zero. With weight × time this is the mean
    cophenetic matrix, with the weights up to the cut the probability of sharing a cluster. Two leaves meet at
    the latest merge among the gaps between them in a drawing of the tree: O(M n²).
    """
    return _sum_over_trees(*_draw(as_merges(children)), np.array(values, dtype=np.float64, order="C"))


# ---- kernels for selected pairs


@inline
def cut_tree(tree: Ints, n_clusters: int, out: SmallInts) -> None:
    """Write for every node, (2n−1,), the node that is its cluster in the cut into n_clusters; above the cut, itself."""
    n = len(tree) + 1
    n_below = 2 * n - n_clusters  # the nodes that exist when n_clusters are left
    out[2 * n - 2] = 2 * n - 2
    for node in range(2 * n - 2, n - 1, -1):
        for side in range(2):
            child = tree[node - n, side]
            out[child] = out[node] if node < n_below else child


@inline
def _find_heads(tree: Ints, out_size: SmallInts, out_parent: SmallInts, out_head: SmallInts) -> None:
    """Write each node's parent and the top of its heavy path, on which every node but the top is the larger child."""
    n = len(tree) + 1
    out_size[:n] = 1
    for k in range(n - 1):
        out_size[n + k] = out_size[tree[k, 0]] + out_size[tree[k, 1]]
    out_parent[2 * n - 2] = -1
    out_head[2 * n - 2] = 2 * n - 2
    for k in range(n - 2, -1, -1):
        left, right = tree[k]
        if out_size[left] < out_size[right]:
            left, right = right, left
        out_parent[left] = out_parent[right] = n + k
        out_head[left] = out_head[n + k]
        out_head[right] = right


@inline
def _ancestor(a: int, b: int, parent: SmallInts, head: SmallInts) -> int:
    """Lowest node above both: parents have higher numbers than children, so the path with the lower top is left."""
    while head[a] != head[b]:
        if head[a] < head[b]:
            a = parent[head[a]]
        else:
            b = parent[head[b]]
    return max(a, b)


@kernel
def _mean_pair_times(children: Ints, times: Floats, weights: Floats, pairs: Ints) -> Floats:
    n = children.shape[1] + 1
    size, parent, head = np.empty((3, 2 * n - 1), dtype=np.int32)
    total = np.zeros(len(pairs))
    for m in range(len(children)):
        if weights[m] > 0.0:
            _find_heads(children[m], size, parent, head)
            for p in range(len(pairs)):
                node = _ancestor(pairs[p, 0], pairs[p, 1], parent, head)
                if node >= n:
                    total[p] += weights[m] * times[m, node - n]
    return total


@kernel
def _mean_ancestor_times(tree: Ints, children: Ints, times: Floats, weights: Floats) -> Floats:
    n = len(tree) + 1
    size, parent, head, found = np.empty((4, 2 * n - 1), dtype=np.int32)
    total = np.zeros(n - 1)
    for i in range(n):
        found[i] = i
    for m in range(len(children)):
        if weights[m] > 0.0:
            _find_heads(children[m], size, parent, head)
            for k in range(n - 1):
                found[n + k] = _ancestor(found[tree[k, 0]], found[tree[k, 1]], parent, head)
                total[k] += weights[m] * times[m, found[n + k] - n]
    return total


@kernel
def _share_of_pairs(children: Ints, weights: Floats, n_clusters: int, pairs: Ints) -> Floats:
    cluster = np.empty(2 * children.shape[1] + 1, dtype=np.int32)
    total = np.zeros(len(pairs))
    for m in range(len(children)):
        if weights[m] > 0.0:
            cut_tree(children[m], n_clusters, cluster)
            for p in range(len(pairs)):
                if cluster[pairs[p, 0]] == cluster[pairs[p, 1]]:
                    total[p] += weights[m]
    return total


# ---- kernels for all pairs


@kernel
def _draw(children: Ints) -> tuple[SmallInts, SmallInts, SmallInts]:
    """Lay every tree out so that a clade is a run of leaves, three arrays (M, n).

    Return the place of each leaf, the leaf at each place, and the merge that joins across the gap to the left
    of each place; every merge has one gap.
    """
    n_trees, n_merges, _ = children.shape
    n = n_merges + 1
    place = np.empty((n_trees, n), dtype=np.int32)
    leaf = np.empty((n_trees, n), dtype=np.int32)
    gap = np.zeros((n_trees, n), dtype=np.int32)
    size = np.ones(2 * n - 1, dtype=np.int64)
    start = np.zeros(2 * n - 1, dtype=np.int64)
    for m in range(n_trees):
        for k in range(n_merges):
            size[n + k] = size[children[m, k, 0]] + size[children[m, k, 1]]
        for k in range(n_merges - 1, -1, -1):
            left, right = children[m, k, 0], children[m, k, 1]
            start[left] = start[n + k]
            start[right] = start[n + k] + size[left]
            gap[m, start[right]] = k
        for i in range(n):
            place[m, i] = start[i]
            leaf[m, start[i]] = i
    return place, leaf, gap


@kernel
def _sum_over_trees(place: SmallInts, leaf: SmallInts, gap: SmallInts, values: Floats) -> Floats:
    n_trees, n = place.shape
    n_counted = values.shape[1]
    one_way = np.zeros((n, n))
    for i in range(n):  # leaves outside, trees inside: the row being summed stays in the processor's cache
        row = one_way[i]
        for m in range(n_trees):
            latest = 0
            for q in range(place[m, i] + 1, n):
                latest = max(latest, gap[m, q])
                if latest >= n_counted:
                    break
                row[leaf[m, q]] += values[m, latest]
    return one_way + one_way.T


@kernel
def restrict(children: Ints, times: Floats, rows: Ints) -> tuple[Ints, Floats]:
    """Merges (M, r−1, 2) and times (M, r−1) of the trees that are left if only the r rows are kept, in their order."""
    n_trees, n, r = len(children), children.shape[1] + 1, len(rows)
    kept = np.empty((n_trees, r - 1, 2), np.int64)
    kept_times = np.empty((n_trees, r - 1))
    node = np.empty(2 * n - 1, np.int64)
    for m in range(n_trees):
        node[:] = -1
        for i in range(r):
            node[rows[i]] = i
        done = 0
        for k in range(n - 1):
            left, right = node[children[m, k, 0]], node[children[m, k, 1]]
            if left >= 0 and right >= 0:
                kept[m, done, 0], kept[m, done, 1] = left, right
                kept_times[m, done] = times[m, k]
                node[n + k] = r + done
                done += 1
            else:
                node[n + k] = max(left, right)
    return kept, kept_times


MOST_PAIRED = 2_000  # rows for which all pairs are used; beyond that, a sample represents them
N_SAMPLED = 400


@kernel
def cut_labels(children: Ints, n_clusters: int) -> Ints:
    """Label of every leaf at the cut of one tree (n−1, 2) into `n_clusters`, (n,): equal where a cluster is shared."""
    n = len(children) + 1
    label = np.empty(2 * n - 1, dtype=np.int32)
    cut_tree(children, n_clusters, label)
    return label[:n].astype(np.int64)


def separated(labels: Ints) -> Ints:
    """Labels in which every outlier, −1, is a separate cluster, numbered after the others."""
    apart = labels < 0
    return np.where(apart, labels.max() + np.cumsum(apart), labels)


def spread_rows(order: Ints, labels: Ints, most: int = N_SAMPLED) -> Ints:
    """About `most` of the leaves, in the order given: a share of each cluster, evenly spread, and at least two.

    Parameters
    ----------
    order : array (n,)
        The leaves as a tree lists them.
    labels : array (n,)
        Cluster of every leaf, 0, 1, …
    most : int
        How many to choose; if there are more than half as many clusters, every k-th leaf whatever its cluster.
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
