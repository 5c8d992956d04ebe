"""Twin of `coaltree.posterior.overlap`, by sets."""

from __future__ import annotations

from fractions import Fraction

from tests.reference.posteriors import clades_of


def best_overlap(rows, tree):
    """Return the largest Jaccard index of a set of rows with a clade of the tree, and the first merge with it."""
    if len(rows) == 1:
        return Fraction(1), 0
    found = [Fraction(len(rows & clade), len(rows | clade)) for clade in clades_of(tree)]
    return max(found), found.index(max(found))


def fewest_moved(rows, tree):
    """Return how many rows to add or remove at least to make the set a clade of the tree, or one row."""
    return min([len(rows) - 1, *(len(rows ^ clade) for clade in clades_of(tree))])


def summary(rows, posterior):
    """Return expected overlap, exact support, transfer support, and the merge times as (time, weight)."""
    rows, least = frozenset(rows), max(len(rows) - 1, 1)
    overlap = exact = transfer = 0.0
    times = []
    for tree, weight in zip(posterior, posterior.weights, strict=True):
        best, merge = best_overlap(rows, tree)
        overlap += weight * best
        exact += weight * (best == 1)
        transfer += weight * (1 - fewest_moved(rows, tree) / least)
        times.append((best, float(tree.times[merge]), float(weight)))
    near = [(time, weight) for best, time, weight in times if 2 * best >= 1 and weight > 0]
    return overlap, exact, transfer, near or [(time, weight) for _, time, weight in times if weight > 0]
