"""How much of a clade the trees of a posterior agree on: expected overlap, transfer support, and its merge time.

One row that wanders makes a clade of sixty another clade, so exact supports fall to zero as clades grow, however clear
the grouping is. The overlap of a set of rows C with a tree is the largest Jaccard index with one of its clades,

    J(C, tree) = max over clades C' of |C ∩ C'| / |C ∪ C'|,

and the mean over draws is the expected overlap. It estimates J(C, true tree) and, like a support, is calibrated if the
posterior is. Clades have two rows or more. The transfer support (Lemoine et al. 2018) is the mean of 1 − (fewest rows
to move) / (|C| − 1), with |C ∪ C'| − |C ∩ C'| rows to move, or |C| − 1 to leave one.

The merge time of C in a draw is that of the clade with the largest overlap (the earliest of several), where that is at
least NEAR; if no draw has such a clade, all of them count. So times and intervals are of one thing: a clade that is
mostly these rows. Quantiles of a clade of a tree are raised to those of the clades inside it, so that times and the
ends of intervals do not fall from child to parent, and the median stays within the interval.

Cost: |C ∩ C'| is counted along the ancestors of the rows of C. A clade of more than r |C| rows overlaps by less than
1/r, so walks end at 2 |C| rows, or farther up if the best overlap found could still be exceeded there. All clades of a
tree take a draw O(n × depth) to O(n × depth²) steps, and the memory is that of CELLS values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats, Ints, SmallInts
from coaltree._compile import borrowing, kernel
from coaltree.errors import InputError
from coaltree.posterior import clades
from coaltree.tree import Tree

# Overlap from which a clade is called near.
NEAR = 0.5
# Overlaps, (draws, clades), that are held at a time.
CELLS = 5_000_000
# Sets of at least one row in this many are counted in one pass over the whole draw.
_LARGE = 8


class RowSets(NamedTuple):
    """Sets of rows: set b is rows[start[b] : start[b] + size[b]]."""

    rows: Ints
    start: Ints
    size: Ints

    @classmethod
    def of(cls, which: Tree | npt.ArrayLike, n_leaves: int) -> RowSets:
        """The clades of a tree, in the order of its merges; or the clusters 0, 1, … of labels (n,), without −1."""
        if isinstance(which, Tree):
            first, size = which.spans()
            return cls(which.leaf_order(), first[n_leaves:], size[n_leaves:])
        labels = np.asarray(which)
        if labels.shape != (n_leaves,) or labels.dtype.kind not in "iu" or labels.max() < 0:
            raise InputError(
                f"tree must be a Tree, or labels: one whole number per row, shape ({n_leaves},), −1 for rows in no "
                f"cluster; got shape {labels.shape} of {labels.dtype}."
            )
        order = np.argsort(labels, kind="stable")
        size = np.bincount(labels[labels >= 0])
        if not size.all():
            raise InputError(f"labels must number the clusters 0, 1, …, but no row has label {int(np.argmin(size))}.")
        start = np.cumsum(size) - size + int((labels < 0).sum())
        return cls(order, start, size)


class Overlaps(NamedTuple):
    """The best clade of every draw for each of B sets of rows."""

    overlap: Floats  # (M, B): its Jaccard index
    merge: SmallInts  # (M, B): the merge that makes it
    moved: SmallInts  # (M, B): fewest rows to move


class SetSummary(NamedTuple):
    """What the draws say about B sets of rows, all (B,)."""

    overlap: Floats  # expected overlap
    overlap_error: Floats  # its Monte Carlo error
    exact: Floats  # share of draws with exactly this clade
    transfer: Floats  # transfer support
    held: clades.HeldTimes  # the merge times, by set

    def take(self, order: Ints) -> SetSummary:
        """Summary of the sets order[0], order[1], … in this order."""
        length = np.diff(self.held.start)[order]
        start = np.concatenate([[0], np.cumsum(length)])
        place = np.arange(start[-1]) + np.repeat(self.held.start[order] - start[:-1], length)
        held = clades.HeldTimes(start, self.held.time[place], self.held.weight[place])
        shares = self.overlap, self.overlap_error, self.exact, self.transfer
        first, error, exact, transfer = (each[order] for each in shares)
        return SetSummary(first, error, exact, transfer, held)


def best_overlaps(children: Ints, sets: RowSets) -> Overlaps:
    """Compare B sets of rows with every clade of M trees (M, n−1, 2); exact."""
    shape = len(children), len(sets.size)
    found = Overlaps(np.empty(shape), np.empty(shape, dtype=np.int32), np.empty(shape, dtype=np.int32))
    rows, start, size = map(np.ascontiguousarray, sets)
    _compare(clades.as_merges(children), rows, start, size, found.overlap, found.merge, found.moved)
    return found


def summarise(children: Ints, times: Floats, weights: Floats, n_chains: int, sets: RowSets) -> SetSummary:
    """Average over weighted draws, of `n_chains` chains one after the other or (0) of none."""
    used = np.flatnonzero(weights > 0.0)
    if len(used) < len(weights):
        children, times, weights, n_chains = children[used], times[used], weights[used], 0
    parts = [_summarise(children, times, weights, n_chains, block) for block in _blocks(sets, len(used))]
    mean, square, exact, transfer, worth = (np.concatenate([part[i] for part in parts]) for i in range(5))
    held = [part[5] for part in parts]
    start = np.cumsum(np.concatenate([[0], *(np.diff(each.start) for each in held)]))
    error = clades.monte_carlo_error(mean, square, clades.effective_draws(worth, weights))
    error[sets.size == children.shape[1] + 1] = 0.0  # the set of all rows is in every tree
    return SetSummary(
        clades.as_probability(mean),
        error,
        clades.as_probability(exact),
        clades.as_probability(transfer),
        clades.HeldTimes(start, *(np.concatenate([each[i] for each in held]) for i in (1, 2))),
    )


def _blocks(sets: RowSets, n_trees: int) -> Iterator[RowSets]:
    step = max(CELLS // n_trees, 1)
    for first in range(0, len(sets.size), step):
        yield RowSets(sets.rows, sets.start[first : first + step], sets.size[first : first + step])


def _summarise(
    children: Ints, times: Floats, weights: Floats, n_chains: int, sets: RowSets
) -> tuple[Floats, Floats, Floats, Floats, Floats, clades.HeldTimes]:
    overlap, merge, moved = best_overlaps(children, sets)
    least = np.maximum(sets.size - 1, 1)
    near = overlap >= NEAR
    near |= ~near.any(axis=0)
    when = np.where(sets.size > 1, np.take_along_axis(times, merge.astype(np.int64), axis=1), 0.0)
    return (
        weights @ overlap,
        weights @ overlap**2,
        weights @ (overlap == 1.0),
        1.0 - weights @ (moved / least),
        clades.worth_of_draws(overlap, weights, n_chains),
        clades.sort_times(when, near * weights[:, None]),
    )


# ---- kernels


@borrowing
def _improves(shared: int, union: int, merge: int, best_shared: int, best_union: int, best: int) -> bool:
    """Whether one Jaccard index is larger than another, or equal and of an earlier merge."""
    gain = shared * best_union - best_shared * union
    return gain > 0 or (gain == 0 and merge < best)


@kernel
def _compare(
    children: Ints,
    rows: Ints,
    start: Ints,
    size: Ints,
    out_overlap: Floats,
    out_merge: SmallInts,
    out_moved: SmallInts,
) -> None:
    """Find the clade of every tree that overlaps most with each set, and the fewest rows to move."""
    n = children.shape[1] + 1
    parent = np.empty(2 * n - 1, dtype=np.int32)
    leaves = np.ones(2 * n - 1, dtype=np.int32)
    count = np.zeros(2 * n - 1, dtype=np.int32)
    visited = np.empty(n, dtype=np.int32)
    for m in range(len(children)):
        for k in range(n - 1):
            left, right = children[m, k]
            parent[left] = parent[right] = n + k
            leaves[n + k] = leaves[left] + leaves[right]
        parent[2 * n - 2] = -1
        for b in range(len(size)):
            s = size[b]
            if s == 1:
                out_overlap[m, b], out_merge[m, b], out_moved[m, b] = 1.0, 0, 0
                continue
            members = rows[start[b] : start[b] + s]
            shared, union, best, moved, reach = 0, 1, n, s - 1, 0
            if _LARGE * s >= n:
                for i in members:
                    count[i] = 1
                for k in range(n - 1):
                    both = count[children[m, k, 0]] + count[children[m, k, 1]]
                    count[n + k] = both
                    moved = min(moved, s + leaves[n + k] - 2 * both)
                    if _improves(both, s + leaves[n + k] - both, k, shared, union, best):
                        shared, union, best = both, s + leaves[n + k] - both, k
                count[:] = 0
                reach = n
            # Clades of more than `reach` rows overlap by less than s / reach.
            while reach < n and shared * reach < s * union:
                reach = max(2 * s, 4 * reach)
                n_visited = 0
                for i in members:
                    node = parent[i]
                    while node >= 0 and leaves[node] <= reach:
                        if count[node] == 0:
                            visited[n_visited] = node
                            n_visited += 1
                        count[node] += 1
                        node = parent[node]
                for v in range(n_visited):
                    node = visited[v]
                    both = count[node]
                    count[node] = 0
                    moved = min(moved, s + leaves[node] - 2 * both)
                    if _improves(both, s + leaves[node] - both, node - n, shared, union, best):
                        shared, union, best = both, s + leaves[node] - both, node - n
            out_overlap[m, b], out_merge[m, b], out_moved[m, b] = shared / union, best, moved
