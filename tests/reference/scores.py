"""Twins of `coaltree.metrics`, written for reading: sets, and scikit-learn at every cut."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import adjusted_rand_score

from tests.reference.trees import leaves_below


def subtree_score(tree, labels):
    labels = np.asarray(labels)
    n = tree.n_leaves
    pure = sum(len(set(labels[list(leaves_below(tree, n + k))])) == 1 for k in range(n - 1))
    return pure / (n - len(set(labels)))


def ari_curve(tree, labels):
    labels = np.asarray(labels)
    curve = []
    for n_clusters in range(1, tree.n_leaves + 1):
        cluster = tree.cut(n_clusters=n_clusters)
        voted = np.empty_like(labels)
        for c in range(n_clusters):
            classes, counts = np.unique(labels[cluster == c], return_counts=True)
            voted[cluster == c] = classes[np.argmax(counts)]  # sorted, so the smallest class wins a tie
        curve.append(adjusted_rand_score(labels, voted))
    return np.array(curve)


def branch_lengths(tree):
    """Return {names below a branch: its length}, leaves included, root excluded."""
    times, parents = tree.node_times(), tree.parents()
    return {
        frozenset(tree.leaf_names[i] for i in leaves_below(tree, node)): times[parents[node]] - times[node]
        for node in range(2 * tree.n_leaves - 2)
    }


def robinson_foulds(a, b):
    return len(branch_lengths(a).keys() ^ branch_lengths(b).keys())


def kuhner_felsenstein(a, b):
    first, second = branch_lengths(a), branch_lengths(b)
    return np.sqrt(sum((first.get(c, 0.0) - second.get(c, 0.0)) ** 2 for c in first.keys() | second.keys()))
