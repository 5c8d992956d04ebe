"""How well many trees can be cut like one: the adjusted Rand index of their closest cuts.

The cuts of a tree into 2 … K clusters are nested, so one walk over another tree compares its cuts with all of them. A
merge puts Σ_c L_c R_c pairs of one class together, from the counts L and R of each class on its two sides. Classes that
a coarser cut joins, a and b, add L_a R_b + L_b R_a to that. Counts are kept for nodes with several classes only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coaltree._compile import inline, kernel
from coaltree.posterior.clades import as_merges
from coaltree.posterior.pairs import cut_tree
from coaltree.tree import Tree

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def best_agreement(children: Ints, tree: Tree, most_clusters: int) -> Floats:
    """Adjusted Rand index of each of M trees' closest cut to the cuts of `tree` into k = 2 … K clusters, (M, K−1).

    O(M n) steps for mostly pure clusters and O(M n K) at most, K = `most_clusters`; O(n K) numbers at most.
    """
    return _best_agreement(as_merges(children), as_merges(tree.children[None])[0], most_clusters)


@inline
def _nested_classes(tree: Ints, n_classes: int) -> tuple[Ints, Ints]:
    """Class of every leaf in the finest cut, (n,), and the two classes that each later merge joins, (n_classes − 1, 2).

    Classes of the finest cut are 0 … n_classes − 1, and join j makes class n_classes + j.
    """
    n = len(tree) + 1
    first_join = 2 * n - n_classes
    cluster = np.empty(2 * n - 1, dtype=np.int32)
    cut_tree(tree, n_classes, cluster)
    code = np.empty(2 * n - 1, dtype=np.int64)
    joins = np.empty((n_classes - 1, 2), dtype=np.int64)
    n_coded = 0
    for j in range(n_classes - 1):
        for side in range(2):
            node = tree[first_join - n + j, side]
            if node < first_join:
                code[node] = n_coded
                n_coded += 1
            else:
                code[node] = n_classes + node - first_join
            joins[j, side] = code[node]
    return code[cluster[:n]], joins


@inline
def _add_pairs(state_left: Floats, state_right: Floats, joins: Ints, state_pairs: Floats) -> None:
    """Add the pairs of one class across a merge, by cut: state_pairs[k − 2] for that into k.

    `state_left` and `state_right` are counts by class; those of joined classes are filled in.
    """
    n_classes = len(joins) + 1
    pairs = 0.0
    for c in range(n_classes):
        pairs += state_left[c] * state_right[c]
    state_pairs[n_classes - 2] += pairs
    for j in range(n_classes - 2):
        a, b = joins[j]
        pairs += state_left[a] * state_right[b] + state_left[b] * state_right[a]
        state_pairs[n_classes - 3 - j] += pairs
        state_left[n_classes + j] = state_left[a] + state_left[b]
        state_right[n_classes + j] = state_right[a] + state_right[b]


@inline
def _write_counts(node: int, kind: Ints, size: Floats, mixed: Floats, out: Floats) -> None:
    """Write how many leaves of each finest class a node has."""
    if kind[node] < 0:
        out[: mixed.shape[1]] = mixed[-1 - kind[node]]
    else:
        out[: mixed.shape[1]] = 0.0
        out[kind[node]] = size[node]


@kernel
def _best_agreement(children: Ints, tree: Ints, n_classes: int) -> Floats:
    n_trees, n_merges, _ = children.shape
    n, n_cuts = n_merges + 1, n_classes - 1
    codes, joins = _nested_classes(tree, n_classes)
    size = np.ones(2 * n - 1)
    # The class of a node whose leaves are of one finest class; else −1 − its row in `mixed`. A row is begun where two
    # classes meet and passed on to the nodes above, so n/2 are enough.
    kind = np.empty(2 * n - 1, dtype=np.int64)
    kind[:n] = codes
    mixed = np.empty((n // 2, n_classes))
    left_counts, right_counts = np.zeros((2, 2 * n_classes - 1))

    # Pairs of leaves of one class in each cut: Σ size², less n, halved.
    for code in codes:
        left_counts[code] += 1.0
    right_counts[:] = left_counts
    truth = np.zeros(n_cuts)
    _add_pairs(left_counts, right_counts, joins, truth)
    truth[:] = 0.5 * (truth - n)
    total = 0.5 * n * (n - 1.0)

    best = np.zeros((n_trees, n_cuts))
    for m in range(n_trees):
        n_mixed = 0
        together, clustered = np.zeros(n_cuts), 0.0
        for k in range(n_merges):
            left, right = children[m, k]
            size[n + k] = size[left] + size[right]
            clustered += size[left] * size[right]
            if kind[left] == kind[right]:  # one class, for no two live nodes have one row
                kind[n + k] = kind[left]
                together += size[left] * size[right]
            else:
                _write_counts(left, kind, size, mixed, left_counts)
                _write_counts(right, kind, size, mixed, right_counts)
                kind[n + k] = min(kind[left], kind[right])
                if kind[n + k] >= 0:
                    n_mixed += 1
                    kind[n + k] = -n_mixed
                row = -1 - kind[n + k]
                for c in range(n_classes):
                    mixed[row, c] = left_counts[c] + right_counts[c]
                _add_pairs(left_counts, right_counts, joins, together)
            for cut in range(n_cuts):
                chance = clustered * truth[cut] / total
                most = 0.5 * (clustered + truth[cut])
                if most > chance:
                    best[m, cut] = max(best[m, cut], (together[cut] - chance) / (most - chance))
    return best
