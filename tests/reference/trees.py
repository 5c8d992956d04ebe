"""Trees the slow, plain way: recursion and sets. Twins for `coaltree.tree`, and makers of test trees."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from coaltree import Tree


def leaves_below(tree, node):
    n = tree.n_leaves
    if node < n:
        return {node}
    left, right = tree.children[node - n]
    return leaves_below(tree, left) | leaves_below(tree, right)


def clades(tree):
    n = tree.n_leaves
    below = [leaves_below(tree, n + k) for k in range(n - 1)]
    return np.array([[leaf in members for leaf in range(n)] for members in below])


def cophenetic(tree):
    n = tree.n_leaves
    distance = np.zeros((n, n))
    for (left, right), time in zip(tree.children, tree.times, strict=True):
        for i in leaves_below(tree, left):
            for j in leaves_below(tree, right):
                distance[i, j] = distance[j, i] = time
    return distance


def cut(tree, n_merged):
    """Do the first n_merged merges on a list of sets, then number the sets by their first leaf."""
    n = tree.n_leaves
    clusters = {leaf: {leaf} for leaf in range(n)}
    for k in range(n_merged):
        left, right = (int(child) for child in tree.children[k])
        clusters[n + k] = clusters.pop(left) | clusters.pop(right)
    labels = np.empty(n, dtype=np.int64)
    for label, members in enumerate(sorted(clusters.values(), key=min)):
        labels[list(members)] = label
    return labels


def newick(tree, labels, node=None):
    """Write a subtree by recursion, without quoting."""
    n = tree.n_leaves
    if node is None:
        return newick(tree, labels, 2 * n - 2) + ";"
    if node < n:
        return labels[node]
    times = tree.node_times()
    parts = [
        f"{newick(tree, labels, int(child))}:{float(times[node] - times[child])!r}" for child in tree.children[node - n]
    ]
    return f"({','.join(parts)})"


def clade_times(tree):
    """Return {names of the leaves under a merge: its time}, which does not depend on numbering."""
    n = tree.n_leaves
    return {
        frozenset(tree.leaf_names[i] for i in leaves_below(tree, n + k)): float(tree.times[k]) for k in range(n - 1)
    }


def assert_same_merges(tree, other):
    """Compare numbering and names exactly, times up to rounding."""
    assert tree.names == other.names
    np.testing.assert_array_equal(tree.children, other.children)
    np.testing.assert_allclose(tree.times, other.times, rtol=1e-12)


def random_tree(rng, n, names=None):
    """Join random pairs after exponential waiting times, as the coalescent does."""
    active, children = list(range(n)), []
    for k in range(n - 1):
        i = int(rng.integers(len(active)))
        active[i], active[-1] = active[-1], active[i]
        left = active.pop()
        j = int(rng.integers(len(active)))
        children.append((left, active[j]))
        active[j] = n + k
    waits = rng.exponential(size=n - 1) / (np.arange(n, 1, -1) * np.arange(n - 1, 0, -1) / 2)
    return Tree(children, np.cumsum(waits), names=names)


def caterpillar(n):
    """Add one leaf at a time: the deepest tree there is."""
    chain = np.concatenate([[0], np.arange(n, 2 * n - 2)])
    return Tree(np.column_stack([chain, np.arange(1, n)]), np.arange(1, n) * 0.1)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@st.composite
def trees(draw, max_leaves=10, names=None, tied=True):
    """Draw any tree: any shape, tied times and zeros included, with or without names."""
    n = draw(st.integers(2, max_leaves))
    active, children = list(range(n)), []
    for k in range(n - 1):
        left = active.pop(draw(st.integers(0, len(active) - 1)))
        right = active.pop(draw(st.integers(0, len(active) - 1)))
        children.append((left, right))
        active.append(n + k)
    if tied:
        time = st.floats(0, 1e9) | st.sampled_from([0.0, 0.1, 1 / 3])
        times = sorted(draw(st.lists(time, min_size=n - 1, max_size=n - 1)))
    else:
        steps = st.lists(st.floats(1e-3, 1e3), min_size=n - 1, max_size=n - 1)
        times = np.cumsum(draw(steps))
    if names is not None:
        names = draw(st.lists(names, min_size=n, max_size=n, unique=True))
    return Tree(children, times, names=names)
