r"""Latent coordinates of binary, ordinal, categorical, rounded and counted columns, drawn with the tree.

Given the tree, Φ and leaf noise s₀, values of all internal nodes are drawn, and then each leaf given its parent,

    z_i ~ N(z_parent, (branch + s₀) Φ)   within what is seen of the row,

coordinate by coordinate. Cutpoints of ordinal columns, and the single one of binary columns, are drawn first, given the
parents, with z integrated out: given z they could hardly move. The first cutpoint and its whole column are then shifted
back so that it is 0, as the root has a flat prior. Under a diagonal Φ, s₀ is drawn in the same way before z, from

    Π P(cell_ij | z_parent, (branch_i + s₀) φ_j),

because s₀ given z, and z given s₀, follow each other in small steps. Utilities of categorical columns are kept for
this, as integrating them out takes a quadrature per cell. Missing entries are drawn like coordinates without bounds.

An iteration takes O(n D), or O(n D²) under a full Φ. The draws are stored where a numeric table has its missing
entries: `Unknowns.missing`, in the order of the NaN in X, and `Unknowns.cuts`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from coaltree import sizes
from coaltree._arrays import Bools, Floats
from coaltree.inference.learning import boxes as cells
from coaltree.inference.learning.levels import CladeShifts
from coaltree.inference.learning.start import Unknowns, apart
from coaltree.inference.learning.table import N_TURNS
from coaltree.inference.moves.lineages import expected_times
from coaltree.inference.moves.walk import WANTED_OF_LATENT
from coaltree.model import missing
from coaltree.model.columns import Columns
from coaltree.model.covariance import CovarianceFamily
from coaltree.model.diffusion import sample_nodes, scatter
from coaltree.model.factorisations import DenseRoot
from coaltree.model.kinds.base import Encoded
from coaltree.model.missing import Imputed
from coaltree.model.noise import SMALLEST_NOISE
from coaltree.model.slice import slice_step
from coaltree.model.truncated import draw_between, log_interval_probability
from coaltree.model.unit import UnitWishart
from coaltree.randomness import Stream, make_streams
from coaltree.tree import Tree

# Draws made at the start before anything else moves.
N_FIRST = 3
# Slices of the age of the tree per iteration.
N_AGES = 2


class _Row(NamedTuple):
    """Leaves given their parents: z ~ N(centre, spread · Q⁻¹), each; Q⁻¹ is diagonal if there are `variances`."""

    centre: Floats  # (n, D)
    spread: Floats  # (n,)
    variances: Floats | None  # (D,)
    precision: Floats | None  # (D, D)


class Augmentation:
    """A table in a chain (`table.ChainTable`), with columns whose coordinates are drawn."""

    may_be_rounded = False
    wanted = WANTED_OF_LATENT
    n_ages = N_AGES

    def __init__(self, columns: Columns, encoded: Encoded) -> None:
        self.columns, self.encoded = columns, encoded
        self.rough = encoded.start
        self.drawn = np.isnan(encoded.X)
        # Nothing is known about these, so a diagonal Φ integrates them out.
        self.unknown: Bools = np.isnan(encoded.start)
        self.unit = columns.unit
        self.n_turns = N_TURNS if len(encoded.X) <= sizes.ROWS_DRAWN_IN_TURNS else 0

    def first_level(self, rng: np.random.Generator) -> float:
        """Leaf noise to begin with: about what separates the nearest rows.

        Rows a pair of which merges at 1 on average have variance 1, and nearest ones differ by 2(t + s₀) with t ≈ 1/n.
        From far less noise, the first merges of many rows take up most of the tree's time, and a chain takes long to
        find its way back.
        """
        Z = self.encoded.start
        rows = np.where(self.unknown, 0.0, (Z - np.nanmean(Z, axis=0)) / np.where(self.unit, 1.0, np.nanstd(Z, axis=0)))
        probed = rng.permutation(len(rows))[: sizes.ROWS_PROBED]
        distance = cdist(rows[probed], rows, "sqeuclidean")
        distance[np.arange(len(probed)), probed] = np.inf
        level: float = 0.5 * float(np.mean(distance.min(axis=1))) / rows.shape[1]
        return max(level, 1.0 / len(rows))

    def begin(self, start: Unknowns, rng: np.random.Generator) -> Unknowns:
        """Return a start, whose missing entries are those of `encoded.start`, with coordinates and cutpoints."""
        if start.noise.learned:
            tree = start.tree
            start = start._replace(tree=apart(Tree(tree.children, expected_times(tree.n_leaves), tree.names)))
        Z = self.encoded.start.copy()
        Z[self.unknown] = start.missing.drawn
        now = start._replace(
            missing=Imputed(Z[self.drawn], Z[self.drawn]), cuts=self.columns.first_cuts(self.encoded.codes)
        )
        for _ in range(N_FIRST):
            now = self.draw(now, rng, learn_noise=start.noise.learned)
        return now

    def table(self, now: Unknowns) -> Floats:
        """Return all coordinates as last drawn, (n, D)."""
        Z = self.encoded.X.copy()
        Z[self.drawn] = now.missing.drawn
        return Z

    def seen(self, now: Unknowns) -> Floats:
        """Return the table used for Φ, s₀ and scale: missing entries stay NaN if they can be integrated out."""
        Z = self.table(now)
        if now.covariance.is_diagonal:
            Z[self.unknown] = np.nan
        return Z

    def boxes(self, now: Unknowns, rng: np.random.Generator) -> cells.Boxes:
        """Return whitened rows and where they can be, for moves of the tree that shift them."""
        return cells.boxes(self, now, rng)

    def unboxed(self, now: Unknowns, boxed: cells.Boxes, rows: Floats) -> Unknowns:
        """Return the state with the coordinates of other whitened rows."""
        return cells.unboxed(self, now, boxed, rows)

    # ---- coordinates

    def draw(
        self, now: Unknowns, rng: np.random.Generator, move_cuts: bool = True, learn_noise: bool = False
    ) -> Unknowns:
        """Draw cutpoints, s₀ if it is learned, coordinates and missing entries given the tree and Φ."""
        cuts, stream = now.cuts.copy(), make_streams(rng, 1)[0]
        Z, row = self._parents(now, rng, stream)
        alone = row.variances is not None  # columns do not depend on each other given the parents
        if alone and move_cuts:
            for j, model in enumerate(self.columns.models):
                model.draw_cuts(cuts[self.columns.cuts_of(j)], _Leaves(self, j, Z, row), rng)
        filled = not (alone and learn_noise)  # missing entries were drawn with the nodes, at the old s₀
        if not filled:
            now, row = self._draw_noise(now, Z, row, cuts, rng)
        # Deviation of row i from its parent, times Q; kept up to date with Z under a full Φ.
        pull = None if row.precision is None else (Z - row.centre) @ row.precision
        expected = Z.copy()
        for j, model in enumerate(self.columns.models):
            k, own = int(self.columns.first[j]), cuts[self.columns.cuts_of(j)]
            if model.is_drawn:
                leaves = _Leaves(self, j, Z, row, pull, expected, stream, filled)
                if not alone and move_cuts:
                    model.draw_cuts(own, leaves, rng)
                model.draw(leaves, own, rng)
                continue
            gap = self.unknown[:, k]
            if gap.any():
                centre, spread = _conditional(Z, k, row, pull)
                expected[gap, k] = centre[gap]
                if not filled:
                    Z[gap, k] = centre[gap] + spread[gap] * rng.standard_normal(np.count_nonzero(gap))
        return now._replace(missing=Imputed(Z[self.drawn], expected[self.drawn]), cuts=cuts)

    def intervals(self, j: int, cuts: Floats) -> tuple[Floats, Floats] | None:
        """Bounds of the coordinate of a drawn column, (n,) each; None if its cells are no intervals."""
        model = self.columns.models[j]
        return model.bounds(self.columns.part(self.encoded, j), cuts[self.columns.cuts_of(j)])

    def _draw_noise(
        self, now: Unknowns, Z: Floats, row: _Row, cuts: Floats, rng: np.random.Generator
    ) -> tuple[Unknowns, _Row]:
        """s₀ given the parents, coordinates integrated out; for a diagonal Φ. Returns the rows' new spread too."""
        assert row.variances is not None
        low, high = Z.T.copy(), Z.T.copy()  # where they are equal, a value is seen exactly
        for j, model in enumerate(self.columns.models):
            found = self.intervals(j, cuts) if model.is_drawn else None
            if found is not None:
                k = int(self.columns.first[j])
                low[k], high[k] = found
        low[self.unknown.T], high[self.unknown.T] = -np.inf, np.inf
        centre, sizes = row.centre.T.copy(), np.sqrt(row.variances)
        branch, shares = row.spread - now.leaf_noise, now.leaf_noise / now.noise_level

        def log_density(log_noise: float) -> float:
            noise = math.exp(log_noise)
            return (
                log_interval_probability(low, high, centre, np.sqrt(branch + noise * shares), sizes) - noise + log_noise
            )

        lower = math.log(SMALLEST_NOISE)
        at = max(math.log(now.noise_level), lower)
        # About the width of the posterior; far from it a slice steps out.
        width = 10.0 / math.sqrt(Z.size)
        level = math.exp(slice_step(log_density, at, log_density(at), rng, width, lower, 40.0)[0])
        return now.with_noise_level(level), row._replace(spread=branch + level * shares)

    def _parents(self, now: Unknowns, rng: np.random.Generator, stream: Stream) -> tuple[Floats, _Row]:
        """Draw the nodes; return the table with its missing entries redrawn, and the leaves given their parents."""
        n, tree = len(self.drawn), now.tree
        above = tree.parents()[:n]
        spread = tree.times[above - n] + now.leaf_noise
        if now.covariance.is_diagonal and self.unknown.any():
            variances, seen = now.covariance.variances(), self.seen(now)
            nodes, entries = missing.sample_columns(tree, seen, variances, now.leaf_noise, rng)
            Z = np.where(self.unknown, entries, seen)
            self._shift(now, nodes, Z, spread, variances, rng, stream)
            return Z, _Row(nodes[above], spread, variances, None)
        Z = self.table(now)
        phi = now.covariance.compact()
        nodes = sample_nodes(tree, Z, phi, now.leaf_noise, random_state=rng)[0]
        if now.covariance.is_diagonal:
            self._shift(now, nodes, Z, spread, phi, rng, stream)
        centre = nodes[above]
        if now.covariance.is_diagonal:
            return Z, _Row(centre, spread, phi, None)
        precision = DenseRoot.of(phi).precision
        if self.unknown.any():
            gaps = np.where(self.unknown, np.nan, Z)
            Z[self.unknown] = missing.impute_rows(gaps, centre, spread, precision, rng).drawn
        return Z, _Row(centre, spread, None, precision)

    def _shift(
        self,
        now: Unknowns,
        nodes: Floats,
        Z: Floats,
        spread: Floats,
        variances: Floats,
        rng: np.random.Generator,
        stream: Stream,
    ) -> None:
        """Shift merges and all that is below them, the leaves' coordinates integrated out; missing entries follow."""
        levels, above = CladeShifts(now.tree, spread), now.tree.parents()[: len(Z)]
        for j, model in enumerate(self.columns.models):
            here, k = self.columns.coordinates(j), int(self.columns.first[j])
            if model.corners is not None:
                codes = self.encoded.codes[:, j]
                nodes[:, here], Z[:, here] = levels.utilities(
                    nodes[:, here], Z[:, here], codes, model.corners, stream, rng
                )
            elif model.unit and (found := self.intervals(j, now.cuts)) is not None:
                column = np.ascontiguousarray(nodes[:, k])
                shifts = levels.shifts(column, math.sqrt(variances[k]), *found, stream)
                nodes[:, k] += shifts
                Z[:, k] += np.where(self.unknown[:, k], shifts[above], 0.0)

    # ---- Φ and scale

    def draw_covariance(
        self, now: Unknowns, Z: Floats, family: CovarianceFamily, rng: np.random.Generator
    ) -> Unknowns | None:
        """Draw a full Φ and rescale the unit columns to variance 1; None where that is not needed.

        With c the standard deviations of Φ in unit columns, (z, κ, Φ) become (z/c, κ/c, Φ with unit variances). The
        flat root and the prior of the gaps leave a factor Π c⁻¹⁻ᵍ exp(−Σ gaps/(mean c)), g gaps, by which a draw is
        accepted.
        """
        if not isinstance(family, UnitWishart):
            return None
        drawn = family.update(now.covariance, scatter(now.tree, Z, now.leaf_noise), len(Z) - 1, rng)
        new, deviations = family.normalised(drawn)
        if math.log(rng.random()) >= self._log_scaled(now.cuts, 1.0 / deviations):
            return now
        return self._scaled(now._replace(covariance=new), 1.0 / deviations)

    def log_scaled(self, now: Unknowns, c: float) -> float:
        """Log of prior ratio and Jacobian when times are multiplied by c, and hence unit coordinates by √c."""
        return self._log_scaled(now.cuts, np.where(self.unit, math.sqrt(c), 1.0))

    def scaled(self, now: Unknowns, c: float) -> Unknowns:
        """Multiply unit coordinates and cutpoints by √c."""
        return self._scaled(now, np.where(self.unit, math.sqrt(c), 1.0))

    def _log_scaled(self, cuts: Floats, factors: Floats) -> float:
        total = float(np.log(factors[self.unit]).sum())
        for j, model in enumerate(self.columns.models):
            total += model.log_scaled(cuts[self.columns.cuts_of(j)], float(factors[self.columns.first[j]]))
        return total

    def _scaled(self, now: Unknowns, factors: Floats) -> Unknowns:
        each = np.broadcast_to(factors, self.drawn.shape)[self.drawn]
        of_cuts = np.repeat(factors[self.columns.first[:-1]], np.diff(self.columns.first_cut))
        return now._replace(
            missing=Imputed(now.missing.drawn * each, now.missing.expected * each), cuts=now.cuts * of_cuts
        )


@dataclass
class _Leaves:
    """The coordinates of column j at all leaves while they are drawn, as `kinds.base.LeafCoordinates` has it."""

    latent: Augmentation
    j: int
    all: Floats  # (n, D), coordinates of all columns
    row: _Row
    pull: Floats | None = None
    expected: Floats | None = None
    stream: Stream | None = None
    filled: bool = True  # whether missing entries have been drawn

    def __post_init__(self) -> None:
        self.encoded = self.latent.columns.part(self.latent.encoded, self.j)
        self.here = self.latent.columns.coordinates(self.j)

    @property
    def Z(self) -> Floats:
        """Coordinates as they are now, (n, width)."""
        return self.all[:, self.here]

    def conditional(self, k: int) -> tuple[Floats, Floats]:
        """Mean and standard deviation of coordinate k of every row given its others."""
        return _conditional(self.all, self.here.start + k, self.row, self.pull)

    def between(self, centre: Floats, spread: Floats, low: Floats, high: Floats) -> Floats:
        """Draw a normal variable per row between bounds."""
        assert self.stream is not None
        new = np.empty(len(centre))
        draw_between(centre, spread, low, high, self.stream, new)
        return new

    def put(self, k: int, new: Floats) -> None:
        """Set coordinate k of every row, where missing only if these are not `filled`, and what is expected there."""
        assert self.expected is not None
        centre, at = self.conditional(k)[0], self.here.start + k
        gap = self.latent.unknown[:, at]
        self.expected[:, at] = np.where(gap, centre, new)
        if self.filled:
            new = np.where(gap, self.all[:, at], new)
        if self.pull is not None and self.row.precision is not None:
            self.pull += np.outer(new - self.all[:, at], self.row.precision[at])
        self.all[:, at] = new

    def shift(self, k: int, by: float) -> None:
        """Add a number to coordinate k everywhere, parents included."""
        assert self.expected is not None
        for values in (self.all, self.expected, self.row.centre):
            values[:, self.here.start + k] += by


def _conditional(Z: Floats, k: int, row: _Row, pull: Floats | None) -> tuple[Floats, Floats]:
    """Mean and standard deviation of coordinate k of every row given its others and its parent."""
    if row.variances is not None:
        return row.centre[:, k], np.sqrt(row.spread * row.variances[k])
    assert row.precision is not None
    assert pull is not None
    own = row.precision[k, k]
    return Z[:, k] - pull[:, k] / own, np.sqrt(row.spread / own)
