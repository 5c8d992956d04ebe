"""The majority-rule consensus of weighted trees."""

from __future__ import annotations

import numbers
from dataclasses import dataclass

import numpy as np

from coaltree._arrays import Bools, Floats, Ints, SmallInts
from coaltree._compile import kernel
from coaltree._newick import quote
from coaltree.errors import InputError
from coaltree.memory import check_matrix
from coaltree.posterior.clades import (
    ROUNDING,
    as_merges,
    as_probability,
    clade_ids,
    mean_time_of_clades,
    support_of_clades,
)

_NO_PARENT = -1


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

    parents: Ints
    support: Floats
    times: Floats
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

    def clades(self) -> Bools:
        """Membership matrix (C, n): which leaves each clade contains."""
        n = self.n_leaves
        check_matrix(n + self.n_clades, n, 1, "the leaves of every clade", "Follow `parents` instead.")
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
    children: Ints,
    times: Floats,
    weights: Floats,
    names: tuple[str, ...] | None,
    threshold: float,
) -> ConsensusTree:
    """Tree of the clades that have more than half of the weight, and at least `threshold` of it.

    Clades with support above one half are pairwise compatible, so they always form a tree; 1.0 gives the
    strict consensus.
    """
    if not (isinstance(threshold, numbers.Real) and 0.5 <= float(threshold) <= 1.0):
        raise InputError(f"threshold must be in [0.5, 1], got {threshold}: clades below one half can conflict.")
    n = children.shape[1] + 1
    ids = clade_ids(children)
    support = support_of_clades(ids, weights)
    kept = np.flatnonzero((support > 0.5 + ROUNDING) & (support >= threshold - ROUNDING))
    number = np.full(len(support), _NO_PARENT, dtype=np.int32)
    number[kept] = np.arange(len(kept))
    parent_of, size = _nest(as_merges(children), ids, number, len(kept))

    by_size = np.argsort(size[n:], kind="stable")
    node_of = np.concatenate([np.arange(n), n + np.argsort(by_size)])
    parents = np.full(n + len(kept), _NO_PARENT)
    inside = parent_of != _NO_PARENT
    parents[node_of[inside]] = node_of[parent_of[inside]]
    node_times = np.concatenate([np.zeros(n), mean_time_of_clades(ids, times, weights)[kept[by_size]]])
    _raise_times(parents, node_times)
    return ConsensusTree(parents, as_probability(support[kept[by_size]]), node_times[n:], names)


@kernel
def _nest(children: Ints, ids: SmallInts, number: SmallInts, n_kept: int) -> tuple[SmallInts, SmallInts]:
    """Parent (−1 for the root) and size of every leaf, 0 … n−1, and kept clade, n …; clade c is n + number[c], or −1.

    Two clades with more than half of the weight each are both in some tree, and all kept clades are compatible: so
    the parent of a clade is the smallest of its nearest kept ancestors in the trees that contain it. O(M n).
    """
    n_trees, n_merges, _ = children.shape
    n = n_merges + 1
    parent = np.full(n + n_kept, -1, dtype=np.int32)
    kept_size = np.ones(n + n_kept, dtype=np.int32)
    size = np.ones(2 * n - 1, dtype=np.int32)
    above = np.empty(2 * n - 1, dtype=np.int32)
    for m in range(n_trees):
        for k in range(n_merges):
            size[n + k] = size[children[m, k, 0]] + size[children[m, k, 1]]
            if number[ids[m, k]] >= 0:
                kept_size[n + number[ids[m, k]]] = size[n + k]
        above[2 * n - 2] = -1
        for node in range(2 * n - 2, -1, -1):
            own = node if node < n else number[ids[m, node - n]]
            if node >= n:
                if own >= 0:
                    own += n
                for side in range(2):
                    above[children[m, node - n, side]] = own if own >= 0 else above[node]
            around = above[node]
            if own >= 0 and around >= 0 and (parent[own] < 0 or kept_size[around] < kept_size[parent[own]]):
                parent[own] = around
    return parent, kept_size


@kernel
def _raise_times(parents: Ints, state_times: Floats) -> None:
    for node in range(len(parents) - 1):
        state_times[parents[node]] = max(state_times[parents[node]], state_times[node])
