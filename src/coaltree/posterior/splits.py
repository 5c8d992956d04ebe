r"""Which columns set the two sides of a split apart, and how certain that is.

Given a tree and coordinates, each side of a merge has a message about the value of its own top node, N(m, s Φ). In
coordinate j the sides differ by δ = m₁ − m₂, known within √((s₁ + s₂) Φ_jj), so the sign is right with probability
Φ_N(|δ| / √((s₁ + s₂) Φ_jj)). Numbers are standardised and latent coordinates have the size of a standard deviation, so
columns can be compared by |δ|. For a categorical column, the utility of the level that differs most is used. Everything
is averaged over draws of the latent coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from coaltree._arrays import Floats, Ints
from coaltree.model.columns import Columns
from coaltree.model.diffusion import pass_up
from coaltree.tree import Tree

# Draws of latent coordinates that are used.
MOST_DRAWS = 20


class Apart(NamedTuple):
    """For every merge of a tree, the columns in which its sides differ most, in descending order, all (n−1, top)."""

    column: Ints
    size: Floats  # |δ|, about in standard deviations of the column
    sure: Floats  # probability that the direction is right


def set_apart(
    tree: Tree, columns: Columns, tables: Sequence[Floats], phi: Floats, leaf_noise: Floats, top: int = 3
) -> Apart:
    """Rank the columns for every merge of a tree, given draws (n, D) of all coordinates, Φ and leaf noise."""
    variances = phi if phi.ndim == 1 else np.diag(phi)
    n, left, right = tree.n_leaves, tree.children[:, 0], tree.children[:, 1]
    size, sure = np.zeros((2, n - 1, len(columns.models)))
    for table in tables:
        up = pass_up(tree, np.ascontiguousarray(table), np.asarray(leaf_noise, dtype=np.float64)).messages
        gap = up.mean[left] - up.mean[right]
        known = np.sqrt(up.variance[left] + up.variance[right])[:, None]
        for j, model in enumerate(columns.models):
            here = columns.coordinates(j)
            own, spread = model.apart(gap[:, here], known, variances[here])
            which = own.argmax(axis=1)
            size[:, j] += own[np.arange(n - 1), which]
            sure[:, j] += ndtr(own / np.maximum(spread, 1e-300))[np.arange(n - 1), which]
    top = min(top, len(columns.models))
    order = np.argsort(-size, axis=1, kind="stable")[:, :top]
    rows = np.arange(n - 1)[:, None]
    return Apart(order, size[rows, order] / len(tables), sure[rows, order] / len(tables))


class Shares:
    """Means and shares of levels over the rows of any clade, in time that does not depend on its size."""

    def __init__(self, tree: Tree, columns: Columns, values: Floats) -> None:
        self.columns = columns
        order = tree.leaf_order()
        self.first, self.size = tree.spans()
        self.sums = []
        for j, model in enumerate(columns.models):
            table = model.tally(values[order, j])
            self.sums.append(np.concatenate([np.zeros((1, table.shape[1])), np.cumsum(table, axis=0)]))

    def of(self, node: int, j: int) -> Floats:
        """Shares of the levels of column j under a node, or its mean as an array of one; NaN if nothing is known."""
        start = self.first[node]
        found = self.sums[j][start + self.size[node]] - self.sums[j][start]
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.columns.models[j].share(found)

    def says(self, left: int, right: int, j: int) -> str:
        """Describe in words how two clades differ in column j."""
        model, a, b = self.columns.models[j], self.of(left, j), self.of(right, j)
        if np.isnan(a).any() or np.isnan(b).any():
            return "missing on one side"
        return model.differ(a, b)
