r"""Shift all that lies below a merge in one latent coordinate, the coordinates of the leaves integrated out.

Given its leaves' coordinates the level of a large clade is known to a small fraction of what their cells allow, and
each coordinate stays near the level: both move in small steps. With z integrated out the value x of a merge, and with
it those of all merges below, can be shifted together, by δ with density

    N(x + δ; x_parent, branch) Π_leaves P(cell_i | x_parent(i) + δ, branch_i + s₀),

by a step of elliptical slice sampling (Murray, Adams and MacKay 2010) in x + δ − x_parent. One pass down the tree does
this for every merge but the root, whose level is that of the cutpoints: O(n · depth) for each column.

The utilities of a category are independent given a further coordinate of which nothing is seen (`learning.boxes`). That
of one level is shifted, with its values at the leaves integrated out between bounds from the others, and these values
are then drawn; each level has its turn.
"""

from __future__ import annotations

import math

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import kernel
from coaltree.model.truncated import draw_between, log_between
from coaltree.randomness import Stream, exponential, uniform
from coaltree.tree import Tree

# Shrinking an interval of angles ends after this many steps at the latest, where it began.
MOST_STEPS = 60


def ranges(tree: Tree) -> tuple[Ints, Ints]:
    """Number the leaves so that each clade's are consecutive; return their order, and first and last for each node."""
    n = tree.n_leaves
    size = np.ones(2 * n - 1, dtype=np.int64)
    first = np.zeros(2 * n - 1, dtype=np.int64)
    _number(tree.children, size, first)
    order = np.empty(n, dtype=np.int64)
    order[first[:n]] = np.arange(n)
    return order, np.column_stack([first, first + size])


@kernel
def _number(children: Ints, size: Ints, out: Ints) -> None:
    """Sizes of all clades, and where each begins in a drawing of the tree."""
    n = len(children) + 1
    for k in range(n - 1):
        size[n + k] = size[children[k, 0]] + size[children[k, 1]]
    for k in range(n - 2, -1, -1):
        out[children[k, 0]] = out[n + k]
        out[children[k, 1]] = out[n + k] + size[children[k, 0]]


@kernel
def shift_merges(
    parents: Ints,
    ends: Ints,
    values: Floats,
    deviations: Floats,
    centre: Floats,
    spread: Floats,
    low: Floats,
    high: Floats,
    stream: Stream,
    out: Floats,
) -> None:
    """Draw by how much each node is shifted, out (2n−1,); a leaf as its parent is.

    Values are those of the nodes, and deviations those of each given its parent, (2n−1,). Leaves are in the order of
    the clades: their parents' values, deviations around these, and bounds, (n,) each.
    """
    root, n = parents.size - 1, centre.size
    out[root] = 0.0
    for node in range(root - 1, -1, -1):
        base = out[parents[node]]
        out[node] = base
        deviation = deviations[node]
        if node < n or not deviation > 0.0:
            continue
        first, last = ends[node]
        off = values[node] - values[parents[node]]
        other = deviation * math.sqrt(2.0 * exponential(stream)) * math.cos(2.0 * math.pi * uniform(stream))
        threshold = -exponential(stream)
        for i in range(first, last):
            if low[i] > -math.inf or high[i] < math.inf:
                at = centre[i] + base
                threshold += log_between((low[i] - at) / spread[i], (high[i] - at) / spread[i])
        angle = 2.0 * math.pi * uniform(stream)
        lower, upper = angle - 2.0 * math.pi, angle
        for _ in range(MOST_STEPS):
            shift = off * (math.cos(angle) - 1.0) + other * math.sin(angle)
            total = 0.0
            for i in range(first, last):
                if low[i] > -math.inf or high[i] < math.inf:
                    at = centre[i] + base + shift
                    total += log_between((low[i] - at) / spread[i], (high[i] - at) / spread[i])
                    if total < threshold:
                        break
            if total >= threshold:
                out[node] = base + shift
                break
            if angle < 0.0:
                lower = angle
            else:
                upper = angle
            angle = lower + (upper - lower) * uniform(stream)


class CladeShifts:
    """The nodes of a tree and its leaves given them, to shift one coordinate at a time."""

    def __init__(self, tree: Tree, spread: Floats) -> None:
        """Take the variances of leaves given their parents, in units of Φ, (n,)."""
        self.parents, times = tree.parents(), tree.node_times()
        self.order, self.ends = ranges(tree)
        self.above = self.parents[: tree.n_leaves]
        self.branches = np.append(np.sqrt(np.maximum(times[self.parents[:-1]] - times[:-1], 0.0)), 0.0)
        self.spread = np.sqrt(spread)

    def shifts(self, values: Floats, size: float, low: Floats, high: Floats, stream: Stream) -> Floats:
        """Draw by how much each node is shifted, (2n−1,), in a coordinate of which Φ has the standard deviation."""
        out, own = np.zeros(len(values)), self.order
        centre, spread = values[self.above][own], (size * self.spread)[own]
        shift_merges(
            self.parents, self.ends, values, size * self.branches, centre, spread, low[own], high[own], stream, out
        )
        return out

    def utilities(
        self, nodes: Floats, Z: Floats, codes: Ints, corners: Floats, stream: Stream, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Return the coordinates of a category at nodes (2n−1, L−1) and leaves (n, L−1), shifted level by level."""
        n, n_levels = len(Z), len(corners)
        free = self._brownian(rng) / math.sqrt(n_levels)
        leaf = free[self.above] + self.spread * rng.standard_normal(n) / math.sqrt(n_levels)
        values, utility = nodes @ corners.T + free[:, None], Z @ corners.T + leaf[:, None]
        known = codes >= 0
        for level in range(n_levels):
            others = np.delete(utility, level, axis=1).max(axis=1)
            mine = codes == level
            own = utility[np.arange(n), codes]
            low = np.where(mine, others, -np.inf)
            high = np.where(known & ~mine, own, np.inf)
            column = np.ascontiguousarray(values[:, level])
            values[:, level] = column = column + self.shifts(column, 1.0, low, high, stream)
            drawn = np.empty(n)
            draw_between(column[self.above], self.spread, low, high, stream, drawn)
            utility[:, level] = drawn
        return values @ corners, utility @ corners

    def _brownian(self, rng: np.random.Generator) -> Floats:
        """Brownian motion at all nodes, from 0 at the root."""
        out = np.empty(len(self.parents))
        _add_down(self.parents, self.branches * rng.standard_normal(len(self.parents)), out)
        return out


@kernel
def _add_down(parents: Ints, steps: Floats, out: Floats) -> None:
    """Sums of the steps from the root to each node."""
    out[parents.size - 1] = steps[parents.size - 1]
    for node in range(parents.size - 2, -1, -1):
        out[node] = out[parents[node]] + steps[node]
