"""Where the learner's chains start: the covariance of the data, and different greedy trees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coaltree import sizes
from coaltree._arrays import Floats, SmallInts
from coaltree.inference.greedy.build import build
from coaltree.inference.greedy.neighbors import build_by_graph
from coaltree.inference.greedy.rules import PEAK
from coaltree.inference.neighbors import nearest
from coaltree.model import missing
from coaltree.model.covariance import CovarianceFamily, State
from coaltree.model.diffusion import pair_distances, refuse_copies
from coaltree.model.family import diagonal_only
from coaltree.model.noise import SHARED, NoiseFamily
from coaltree.tree import Tree

Near = SmallInts

# Further chains start from rows moved by this fraction of the distance to the next.
JITTER = 0.5

NOTHING, NO_CUTS = missing.Imputed(np.zeros(0), np.zeros(0)), np.zeros(0)


class Unknowns(NamedTuple):
    """One value of everything that is learned."""

    tree: Tree
    covariance: State
    leaf_noise: Floats  # (n,)
    missing: missing.Imputed = NOTHING  # entries of X that are NaN
    cuts: Floats = NO_CUTS  # cutpoints of binary and ordinal columns, (C,)
    noise: NoiseFamily = SHARED  # how the rows' noise is distributed

    @property
    def noise_level(self) -> float:
        """s₀: the noise that all rows share, or around which theirs varies."""
        return self.noise.level(self.leaf_noise)

    def with_noise_level(self, level: float) -> Unknowns:
        """Return the same with all noise rescaled to another s₀."""
        rows, noise = self.noise.at_level(self.leaf_noise, level)
        return self._replace(leaf_noise=rows, noise=noise)


def first_guess(X: Floats, family: CovarianceFamily, noise: NoiseFamily = SHARED) -> Unknowns:
    """Begin with the covariance of the data and the greedy tree by peaks."""
    return first_guesses(X, family, noise, 1, np.random.default_rng(0))[0][0]


def first_guesses(
    X: Floats,
    family: CovarianceFamily,
    noise: NoiseFamily,
    n_chains: int,
    rng: np.random.Generator,
    level: float | None = None,
) -> tuple[list[Unknowns], Near]:
    """Where each chain starts, and the near rows of every row, (n, k).

    All begin with the covariance of the data. The first has the greedy tree by peaks, the others the same for rows
    moved at random by about half the distance to the next row, so that their clades differ at every level. If noise
    `varies`, variances are those of the middle half of each column. Learned noise starts at `level`; by default at half
    the time by which half of the lineages are expected to have merged, 2/n.
    """
    complete = not np.isnan(X).any()
    variances = _middle_variances(X) if noise.varies else np.nanvar(X, axis=0)
    if diagonal_only(family):
        covariance = family.start(variances)
    else:
        whole = complete and not noise.varies
        covariance = family.start(np.atleast_2d(np.cov(X, rowvar=False)) if whole else np.diag(variances))
    rows = covariance.whiten(X if complete else _crudely_filled(X))
    index, distance = nearest(rows, sizes.NEAR_ROWS)
    leaf_noise, noise = noise.start(len(X), level or 1.0 / len(X), distance[:, 0])
    refuse_copies(rows, leaf_noise)
    step = JITTER * np.sqrt(distance[:, :1] / rows.shape[1])
    starts = []
    for k in range(n_chains):
        moved = rows if k == 0 else rows + step * rng.standard_normal(rows.shape)
        near = (index, distance) if k == 0 else None
        starts.append(Unknowns(apart(greedy_start(moved, leaf_noise, near)), covariance, leaf_noise, noise=noise))
    if not complete:
        variances = covariance.variances()
        drawn = [missing.impute_columns(start.tree, X, variances, leaf_noise, rng) for start in starts]
        starts = [start._replace(missing=each) for start, each in zip(starts, drawn, strict=True)]
    return starts, index


def _middle_variances(X: Floats) -> Floats:
    """Variances (d,) of normal columns with the same quartiles; plain variances where these are equal."""
    low, high = np.nanquantile(X, [0.25, 0.75], axis=0)
    plain: Floats = np.nanvar(X, axis=0)
    return np.where(high > low, np.minimum(((high - low) / 1.349) ** 2, plain), plain)


def greedy_start(rows: Floats, noise: Floats, near: tuple[Near, Floats] | None, neighbors: int | None = None) -> Tree:
    """The greedy tree by peaks: over all pairs if rows are few, else over near ones."""
    if neighbors is None and len(rows) <= sizes.ROWS_FOR_ALL_PAIRS:
        return Tree(*build(pair_distances(rows), rows.shape[1], noise, PEAK))
    return Tree(*build_by_graph(rows, noise, PEAK, neighbors or sizes.NEAR_ROWS, near))


def apart(tree: Tree) -> Tree:
    """Separate tied merges, such as those of equal rows: slices cannot move a merge that has no room."""
    steps = np.arange(1.0, tree.n_leaves)
    return Tree(tree.children, tree.times + steps * (1e-9 * (tree.times[-1] + 1e-9) / tree.n_leaves), tree.names)


def _crudely_filled(X: Floats) -> Floats:
    """X with missing entries from near rows, compared on shared columns; with many rows, means of columns."""
    from sklearn.impute import KNNImputer  # slow to import

    if len(X) <= sizes.ROWS_FOR_ALL_PAIRS:
        scale = np.maximum(np.nanstd(X, axis=0), 1e-300)
        return np.asarray(KNNImputer(n_neighbors=3).fit_transform(X / scale) * scale)
    return np.where(np.isnan(X), np.nanmean(X, axis=0), X)
