r"""One tree made from all trees of a posterior: the most probable tree of its conditional clade distribution.

Among all binary trees whose clades were seen in the posterior, whether or not in one tree, take the one with the
highest product of clade supports (CCD0-MAP of Berling et al. 2025; after Höhna & Drummond 2012 and Larget 2013). With
best(A) the highest log product over trees of the clade A,

    best(A) = log support(A) + max over splits A = B ∪ C of best(B) + best(C),   best(leaf) = 0,

over clades by increasing size. A split counts if B and C were seen, together or not. All splits made by some tree are
tried. So are all others if there are at most FEW distinct clades; beyond that, those into a near descendant and the
rest, in SEARCHES trees that contain A: a clade c two or three merges below A, where A without c was seen elsewhere. The
rest is looked up by the difference of the words of A and c. No sampled tree has a higher product. O(M n) steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints, SmallInts, Words
from coaltree._compile import borrowing, inline, kernel
from coaltree.posterior.clades import as_merges, find, leaf_keys, number_clades, support_of_clades
from coaltree.posterior.coclustering import mean_ancestor_times
from coaltree.tree import Tree

FEW = 5000
SEARCHES = 2
# Differences of log products below this are ignored.
_ROUNDING = 1e-11


def point_tree(
    children: Ints, times: Floats, weights: Floats, log_joint: Floats, names: tuple[str, ...] | None
) -> Tree:
    """Tree with the highest product of clade supports: see `TreePosterior.point_tree`.

    Merge times here are means over trees of the time at which a clade's leaves have one ancestor (Heled & Bouckaert
    2013, BMC Evolutionary Biology 13:221), in O(M n).
    """
    used = np.flatnonzero(weights > 0.0)
    if len(used) < len(weights):
        children, times, weights, log_joint = children[used], times[used], weights[used], log_joint[used]
    merges = as_merges(children)
    n = merges.shape[1] + 1
    clades = number_clades(merges)
    # Of splits that tie, the first is kept: that of the tree with the highest joint density.
    start, by_size = _sort_merges(merges, np.argsort(-log_joint, kind="stable"))
    log_support = np.log(np.minimum(support_of_clades(clades.ids, weights), 1.0))
    n_clades = len(log_support)
    best, parts = np.full(n_clades, -np.inf), np.empty((n_clades, 2), dtype=np.int32)
    splits = Splits(clades.words, clades.table, leaf_keys(n), log_support, best, parts)
    _choose_splits(splits, merges, clades.ids, start, by_size, n_clades <= FEW)
    nodes = _assemble(parts, n, int(clades.ids[0, -1]))
    node_times = mean_ancestor_times(nodes, merges, times, weights)
    return in_time_order(nodes, node_times, names)[0]


def in_time_order(nodes: Ints, times: Floats, names: tuple[str, ...] | None) -> tuple[Tree, Ints]:
    """Make a tree of merges (n−1, 2), children first, at times that do not fall from child to parent, (n−1,).

    Return it and the place of each merge in it, (n−1,).
    """
    n = len(times) + 1
    order = np.lexsort((_sizes(nodes), times))
    place = np.argsort(order)
    number = np.concatenate([np.arange(n), n + place])
    return Tree(np.sort(number[nodes[order]], axis=1), times[order], names), place


@kernel
def _sort_merges(children: Ints, order: Ints) -> tuple[Ints, SmallInts]:
    """Merges m (n−1) + k of all trees by the size of their clades, equal ones by `order` of trees; (n+2,), (M (n−1),).

    Those of size s are at start[s] … start[s+1].
    """
    n_trees, n_merges, _ = children.shape
    n = n_merges + 1
    start = np.zeros(n + 2, dtype=np.int64)
    size = np.ones(2 * n - 1, dtype=np.int32)
    by_size = np.empty(n_trees * n_merges, dtype=np.int32)
    for filling in range(2):
        for m in order:
            for k in range(n_merges):
                s = size[children[m, k, 0]] + size[children[m, k, 1]]
                size[n + k] = s
                if filling:
                    by_size[start[s]] = m * n_merges + k
                    start[s] += 1
                else:
                    start[s + 1] += 1
        if filling:
            start[1:] = start[:-1].copy()
            start[0] = 0
        else:
            start[:] = np.cumsum(start)
    return start, by_size


class Splits(NamedTuple):
    """The clades of all trees, and the best split of each so far into leaves, 0 … n−1, and clades, n + number."""

    words: Words  # (C, 2)
    table: SmallInts
    keys: Words  # (n, 2)
    log_support: Floats  # (C,)
    best: Floats  # (C,)
    parts: SmallInts  # (C, 2)


@borrowing
def _weigh(state: Splits, clade: int, left: int, right: int) -> None:
    """Take the split of a clade into two nodes if it is better than the best so far."""
    n = len(state.keys)
    value = 0.0
    if left >= n:
        value += state.best[left - n] + state.log_support[left - n]
    if right >= n:
        value += state.best[right - n] + state.log_support[right - n]
    if value > state.best[clade] + _ROUNDING * (1.0 + abs(value)):
        state.best[clade] = value
        state.parts[clade, 0], state.parts[clade, 1] = left, right


@borrowing
def _weigh_rest(state: Splits, clade: int, node: int) -> None:
    """Take the split into a node and the rest of the clade if the rest was seen."""
    words, n = state.words, len(state.keys)
    own, place = (state.keys, node) if node < n else (words, node - n)
    rest = state.table[find(state.table, words, words[clade, 0] - own[place, 0], words[clade, 1] - own[place, 1])]
    if rest >= 0:
        _weigh(state, clade, node, n + rest)


@inline
def _weigh_near(state: Splits, children: Ints, ids: SmallInts, m: int, k: int) -> None:
    """Try the splits of a clade into a descendant two or three merges below it and the rest."""
    n = children.shape[1] + 1
    for child in children[m, k]:
        if child >= n:
            for second in children[m, child - n]:
                _weigh_rest(state, ids[m, k], second if second < n else n + ids[m, second - n])
                if second >= n:
                    for third in children[m, second - n]:
                        _weigh_rest(state, ids[m, k], third if third < n else n + ids[m, third - n])


@kernel
def _choose_splits(
    state: Splits, children: Ints, ids: SmallInts, start: Ints, by_size: SmallInts, exhaustive: bool
) -> None:
    """Find the best split of every clade."""
    n_merges = children.shape[1]
    n, n_clades = n_merges + 1, len(state.words)
    smaller = np.empty(n_clades if exhaustive else 0, dtype=np.int32)
    n_smaller = 0
    seen = np.zeros(n_clades, dtype=np.int8)
    for s in range(2, n + 1):
        own = by_size[start[s] : start[s + 1]]
        for merge in own:
            m, k = divmod(merge, n_merges)
            left, right = children[m, k]
            left = left if left < n else n + ids[m, left - n]
            right = right if right < n else n + ids[m, right - n]
            clade = ids[m, k]
            _weigh(state, clade, left, right)
            seen[clade] = min(seen[clade] + 1, 2)
        for merge in own:
            m, k = divmod(merge, n_merges)
            clade = ids[m, k]
            # Only then, so that splits made by some tree win ties.
            if exhaustive and seen[clade] > 0:
                seen[clade] = 0
                for node in range(n):
                    _weigh_rest(state, clade, node)
                for i in range(n_smaller):
                    _weigh_rest(state, clade, n + smaller[i])
            elif 2 <= seen[clade] < 2 + SEARCHES:  # a clade seen in only one tree is not worth a search
                seen[clade] += 1
                _weigh_near(state, children, ids, m, k)
        if exhaustive:
            for merge in own:
                clade = ids[merge // n_merges, merge % n_merges]
                if seen[clade] == 0:
                    seen[clade] = 1
                    smaller[n_smaller] = clade
                    n_smaller += 1


@kernel
def _assemble(split: SmallInts, n: int, root: int) -> Ints:
    """Merges (n−1, 2) of the tree that the splits make of the clade `root`, children first."""
    clade = np.empty(n - 1, dtype=np.int64)
    nodes = np.empty((n - 1, 2), dtype=np.int64)
    # The root is the last merge; whatever a merge splits into takes the next place before those already taken.
    clade[n - 2] = root
    free = n - 2
    for k in range(n - 2, -1, -1):
        for side in range(2):
            node = split[clade[k], side]
            if node >= n:
                free -= 1
                clade[free] = node - n
                node = n + free
            nodes[k, side] = node
    return nodes


@kernel
def _sizes(nodes: Ints) -> Ints:
    """How many leaves each merge holds, (n−1,)."""
    sizes = np.zeros(len(nodes), dtype=np.int64)
    for k in range(len(nodes)):
        for side in range(2):
            node = nodes[k, side]
            sizes[k] += 1 if node <= len(nodes) else sizes[node - len(nodes) - 1]
    return sizes
