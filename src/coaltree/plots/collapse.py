"""A large tree drawn as a small one: its largest clades opened, the others closed and drawn as triangles."""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree.tree import Tree


class Collapsed(NamedTuple):
    """A tree whose leaves, the tips, stand for clades of a larger one."""

    tree: Tree  # over T tips, numbered by their first leaf
    tips: Ints  # (T,): the node of the larger tree that each tip stands for
    merges: Ints  # (T−1,): the merge of the larger tree that corresponds to each merge
    rows: Ints  # (T,): how many leaves each tip has
    times: Floats  # (T,): when the clade of each tip merged, zero for leaves


def open_clades(tree: Tree, max_tips: int, support: Floats | None = None, n_clusters: int | None = None) -> Ints:
    """Choose the merges to show so that at most `max_tips` tips are left, sorted.

    The merges above the cut into `n_clusters` come first, if there is room for them. Then the clade with the largest
    weight is opened repeatedly: the weight is its number of leaves, or half of that if its two parts have no support.
    """
    n = tree.n_leaves
    top = 2 * n - n_clusters if n_clusters is not None and n_clusters <= max_tips else 2 * n - 1
    share = np.ones(n - 1)
    if support is not None:
        parts = tree.children - n
        share = np.where(parts >= 0, support[np.maximum(parts, 0)], 0.0).max(axis=1)
    counts = tree.sizes() * (1.0 + share) / 2.0
    opened: list[int] = []
    closed = [(-math.inf, -(2 * n - 2))]
    while closed and len(opened) < max_tips - 1:
        node = -heapq.heappop(closed)[1]
        opened.append(node - n)
        for part in tree.children[node - n].tolist():
            if part >= n:
                heapq.heappush(closed, (-math.inf if part >= top else -float(counts[part - n]), -part))
    return np.sort(np.array(opened, dtype=np.int64))


def collapse(tree: Tree, max_tips: int, support: Floats | None = None, n_clusters: int | None = None) -> Collapsed:
    """Close all clades except those chosen by `open_clades`."""
    n = tree.n_leaves
    merges = open_clades(tree, max_tips, support, n_clusters)
    parts = tree.children[merges]
    tips = np.setdiff1d(parts, n + merges)
    # Clusters are numbered by their first leaf, and must keep their numbers.
    first = np.arange(2 * n - 1)
    for k, (left, right) in enumerate(tree.children.tolist()):
        first[n + k] = min(first[left], first[right])
    tips = tips[np.argsort(first[tips])]
    number = np.full(2 * n - 1, -1)
    number[tips] = np.arange(len(tips))
    number[n + merges] = len(tips) + np.arange(len(merges))
    rows = np.concatenate([np.ones(n, dtype=np.int64), tree.sizes()])[tips]
    return Collapsed(Tree(number[parts], tree.times[merges]), tips, merges, rows, tree.node_times()[tips])
