"""Clades across weighted trees: identity, support, the majority-rule consensus, sums over pairs of leaves.

A clade is recognised by a 128-bit hash: every leaf has two random 64-bit keys and a clade's hash is the sum
of its leaves' keys modulo 2⁶⁴ (Zobrist hashing). Two different clades collide with probability 2⁻¹²⁸, so
among C distinct clades a wrong match has probability below C² 2⁻¹²⁹: 10⁻²³ for ten thousand trees of ten
thousand leaves. Hashing M trees and numbering their clades takes O(M n).
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coaltree._compile import kernel
from coaltree._newick import quote

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
SmallIntArray = npt.NDArray[np.int32]
KeyArray = npt.NDArray[np.uint64]

# The keys are a hash function, not a sample: they are fixed so that every run numbers clades alike.
_KEY_SEED = 0xC0A1
# Sums of weights are exact to rounding; supports closer than this are the same number.
_ROUNDING = 1e-10
_NO_PARENT = -1


def leaf_keys(n_leaves: int) -> KeyArray:
    """Two random 64-bit keys per leaf, (n, 2), the same in every run."""
    return np.random.default_rng(_KEY_SEED).integers(0, 2**64, size=(n_leaves, 2), dtype=np.uint64)


def clade_ids(children: npt.ArrayLike) -> IntArray:
    """Give the clades of M trees numbers, equal for equal clades.

    Parameters
    ----------
    children : array-like (M, n−1, 2)
        Merges of M trees over the same leaves.

    Returns
    -------
    array (M, n−1)
        Clade number of every merge, 0 … C − 1 in order of first appearance.
    """
    merges = np.array(children, dtype=np.int64, order="C")
    n_trees, n_merges, _ = merges.shape
    hashes = _hash_clades(merges, leaf_keys(n_merges + 1)).reshape(-1, 2)
    return _number(hashes).reshape(n_trees, n_merges)


def support_of_clades(ids: IntArray, weights: FloatArray) -> FloatArray:
    """Weighted share of the trees that contain each clade, (C,)."""
    counts = np.bincount(ids.ravel(), weights=np.repeat(weights, ids.shape[1]))
    return counts.astype(np.float64, copy=False)


def as_probability(share: FloatArray) -> FloatArray:
    """Make sums of all weights exactly one."""
    return np.where(share > 1.0 - _ROUNDING, 1.0, share)


def mean_time_of_clades(ids: IntArray, times: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted mean merge time of each clade among the trees that contain it, (C,); NaN without support."""
    total = np.bincount(ids.ravel(), weights=(weights[:, None] * times).ravel())
    with np.errstate(invalid="ignore"):
        return total / support_of_clades(ids, weights)


def clade_credibility(ids: IntArray, weights: FloatArray) -> FloatArray:
    """log of the product of the clade supports of every tree, (M,); −inf for trees of no weight."""
    with np.errstate(divide="ignore"):
        log_support = np.log(support_of_clades(ids, weights))
    score: FloatArray = log_support[ids].sum(axis=1)
    return np.where(weights > 0.0, score, -np.inf)


def intervals_of_clades(
    ids: IntArray, times: FloatArray, weights: FloatArray, wanted: IntArray, level: float
) -> FloatArray:
    """Equal-tailed interval of the merge times of the `wanted` clades among trees that contain them, (W, 2).

    A quantile q is the earliest time at which the weight of the trees up to it reaches a share q of the
    clade's support. NaN for clades without support.
    """
    clade, time, weight = ids.ravel(), times.ravel(), np.repeat(weights, ids.shape[1])
    order = np.lexsort((time, clade))
    order = order[weight[order] > 0.0]
    clade, time, weight = clade[order], time[order], weight[order]
    starts, ends = np.searchsorted(clade, wanted, side="left"), np.searchsorted(clade, wanted, side="right")
    intervals = np.full((len(wanted), 2), np.nan)
    for row in np.flatnonzero(ends > starts):
        cumulative = np.cumsum(weight[starts[row] : ends[row]])
        targets = np.array([1.0 - level, 1.0 + level]) / 2.0 * cumulative[-1]
        intervals[row] = time[starts[row] + np.searchsorted(cumulative, targets * (1.0 - _ROUNDING))]
    return intervals


@dataclass(frozen=True, eq=False)
class ConsensusTree:
    """A rooted tree that may have polytomies.

    Nodes 0 … n−1 are the leaves, n … n+C−1 the clades, every clade after those it contains, the root last.

    Attributes
    ----------
    parents : array (n+C,)
        Parent of every node, −1 for the root.
    support : array (C,)
        Posterior probability of each clade.
    times : array (C,)
        Mean merge time of each clade among the trees that contain it, raised where needed to the time of the
        clades inside it (the means are over different trees, so they could otherwise be out of order).
    names : tuple of str or None
        Names of the leaves.
    """

    parents: IntArray
    support: FloatArray
    times: FloatArray
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for array in (self.parents, self.support, self.times):
            array.setflags(write=False)

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.parents) - len(self.support)

    @property
    def n_clades(self) -> int:
        """Number of internal nodes, the root included: n − 1 when fully resolved, 1 for a star."""
        return len(self.support)

    def clades(self) -> BoolArray:
        """Membership matrix (C, n): which leaves each clade holds."""
        n = self.n_leaves
        member = np.zeros((n + self.n_clades, n), dtype=np.bool_)
        member[np.arange(n), np.arange(n)] = True
        for node, parent in enumerate(self.parents[:-1]):
            member[parent] |= member[node]
        return member[n:]

    def to_newick(self) -> str:
        """Newick text with branch lengths, and supports as the labels of the internal nodes."""
        n = self.n_leaves
        labels = tuple(map(str, range(n))) if self.names is None else tuple(map(quote, self.names))
        node_times = np.concatenate([np.zeros(n), self.times])
        inside: list[list[str]] = [[] for _ in range(self.n_clades)]
        text = ""
        for node, parent in enumerate(self.parents):
            if node < n:
                text = labels[node]
            else:
                text = f"({','.join(inside[node - n])}){self.support[node - n]:.6g}"
                inside[node - n].clear()
            if parent != _NO_PARENT:
                inside[parent - n].append(f"{text}:{float(node_times[parent] - node_times[node])!r}")
        return text + ";"

    def __repr__(self) -> str:
        return f"ConsensusTree(n_leaves={self.n_leaves}, n_clades={self.n_clades})"


def majority_consensus(
    children: IntArray,
    times: FloatArray,
    weights: FloatArray,
    names: tuple[str, ...] | None,
    threshold: float,
) -> ConsensusTree:
    """Tree of the clades held by more than half of the weight, and by at least `threshold` of it.

    Clades with support above one half are pairwise compatible, so they always form a tree; 1.0 gives the
    strict consensus.
    """
    if not (isinstance(threshold, numbers.Real) and 0.5 <= float(threshold) <= 1.0):
        raise ValueError(f"threshold must be in [0.5, 1], got {threshold}: clades below one half can conflict.")
    n = children.shape[1] + 1
    ids = clade_ids(children)
    support = support_of_clades(ids, weights)
    kept = np.flatnonzero((support > 0.5 + _ROUNDING) & (support >= threshold - _ROUNDING))
    # Any tree that holds a clade can tell its leaves: take the first occurrence.
    _, occurrence = np.unique(ids, return_index=True)
    tree_of, merge_of = np.divmod(occurrence[kept], n - 1)
    members = [clade_members(children[m], k) for m, k in zip(tree_of, merge_of, strict=True)]
    by_size = np.argsort([len(leaves) for leaves in members], kind="stable")

    parents = np.full(n + len(kept), _NO_PARENT)
    node_times = np.concatenate([np.zeros(n), mean_time_of_clades(ids, times, weights)[kept[by_size]]])
    top = np.arange(n)
    for node, clade in enumerate(by_size, start=n):
        inside = np.unique(top[members[clade]])
        parents[inside] = node
        node_times[node] = max(node_times[node], node_times[inside].max())
        top[members[clade]] = node
    return ConsensusTree(parents, as_probability(support[kept[by_size]]), node_times[n:], names)


@kernel
def _hash_clades(children: IntArray, keys: KeyArray) -> KeyArray:
    """Sum the leaf keys below every merge, modulo 2⁶⁴, (M, n−1, 2)."""
    n_trees, n_merges, _ = children.shape
    n = n_merges + 1
    hashes = np.empty((n_trees, n_merges, 2), dtype=np.uint64)
    for m in range(n_trees):
        for k in range(n_merges):
            for word in range(2):
                total = np.uint64(0)
                for side in range(2):
                    child = children[m, k, side]
                    total += keys[child, word] if child < n else hashes[m, child - n, word]
                hashes[m, k, word] = total
    return hashes


@kernel
def _number(hashes: KeyArray) -> IntArray:
    """Give equal rows equal numbers, in order of first appearance, by a table with linear probing, (N,)."""
    n_rows = len(hashes)
    size = 4
    while size < 2 * n_rows:
        size *= 2
    first_row = np.full(size, -1, dtype=np.int64)
    numbers = np.empty(n_rows, dtype=np.int64)
    count = 0
    for i in range(n_rows):
        slot = np.int64(hashes[i, 0] & np.uint64(size - 1))
        while True:
            j = first_row[slot]
            if j < 0:
                first_row[slot] = i
                numbers[i] = count
                count += 1
                break
            if hashes[j, 0] == hashes[i, 0] and hashes[j, 1] == hashes[i, 1]:
                numbers[i] = numbers[j]
                break
            slot = (slot + 1) & (size - 1)
    return numbers


@kernel
def clade_members(children: IntArray, merge: int) -> IntArray:
    """Leaves below one merge of one tree, found with a stack."""
    n = len(children) + 1
    stack = np.empty(n, dtype=np.int64)
    stack[0] = n + merge
    depth = 1
    leaves = np.empty(n, dtype=np.int64)
    count = 0
    while depth > 0:
        depth -= 1
        node = stack[depth]
        if node < n:
            leaves[count] = node
            count += 1
        else:
            stack[depth] = children[node - n, 0]
            stack[depth + 1] = children[node - n, 1]
            depth += 2
    return leaves[:count].copy()


@kernel
def _draw(children: IntArray) -> tuple[SmallIntArray, SmallIntArray, SmallIntArray]:
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
def _sum_over_trees(place: SmallIntArray, leaf: SmallIntArray, gap: SmallIntArray, values: FloatArray) -> FloatArray:
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


def pair_sums(children: IntArray, values: npt.ArrayLike) -> FloatArray:
    """Sum over trees the value of the merge that joins each pair of leaves, (n, n), zero on the diagonal.

    `values` (M, S) is for the first S merges; later ones count nothing. With weight × time this is the mean
    cophenetic matrix, with the weights up to the cut the probability of sharing a cluster. Two leaves meet at
    the latest merge among the gaps between them in a drawing of the tree: O(M n²).
    """
    return _sum_over_trees(*_draw(children), np.array(values, dtype=np.float64, order="C"))
