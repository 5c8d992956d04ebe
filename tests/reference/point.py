"""Twin of `coaltree.posterior.point`: every tree that the clades of a posterior can make, one by one."""

from __future__ import annotations

import math
from itertools import combinations

from tests.reference.posteriors import support


def composable(clade, seen):
    """All binary trees over a set of leaves whose clades are all in `seen`, each as the list of its clades."""
    if len(clade) == 1:
        return [[]]
    if clade not in seen:
        return []
    first, *others = sorted(clade)
    found = []
    for size in range(len(others)):
        for chosen in combinations(others, size):
            left = frozenset((first, *chosen))
            for a in composable(left, seen):
                found += [[clade, *a, *b] for b in composable(clade - left, seen)]
    return found


def log_product(clades, shares):
    return sum(math.log(shares[clade]) for clade in clades)


def best_trees(posterior):
    """Highest log product of supports that a tree of seen clades has, and the sets of clades that reach it."""
    shares = {clade: share for clade, share in support(posterior).items() if share > 0.0}
    trees = composable(frozenset(range(posterior.n_leaves)), shares)
    products = [log_product(tree, shares) for tree in trees]
    best = max(products)
    return (
        best,
        [frozenset(tree) for tree, product in zip(trees, products, strict=True) if product > best - 1e-9],
        len(trees),
    )
