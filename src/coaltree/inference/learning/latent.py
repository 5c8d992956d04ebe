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
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from coaltree import sizes
from coaltree._arrays import Bools, Floats, Ints
from coaltree.inference.learning import boxes as cells
from coaltree.inference.learning.levels import Levels
from coaltree.inference.learning.start import Unknowns, apart
from coaltree.inference.learning.table import N_TURNS
from coaltree.inference.moves.lineages import expected_times
from coaltree.inference.moves.walk import WANTED_OF_LATENT
from coaltree.model import missing
from coaltree.model.columns import CATEGORICAL, UNIT, Columns, Encoded, mean_gap
from coaltree.model.covariance import CovarianceFamily
from coaltree.model.diffusion import sample_nodes, scatter
from coaltree.model.factorisations import DenseRoot
from coaltree.model.missing import Imputed
from coaltree.model.noise import SMALLEST_NOISE
from coaltree.model.slice import slice_step
from coaltree.model.truncated import draw_between, log_interval_probability, log_levels
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
            for j in range(len(self.columns.models)):
                self._move_cuts(j, Z, row, None, cuts, rng)
        filled = not (alone and learn_noise)  # missing entries were drawn with the nodes, at the old s₀
        if not filled:
            now, row = self._draw_noise(now, Z, row, cuts, rng)
        # Deviation of row i from its parent, times Q; kept up to date with Z under a full Φ.
        pull = None if row.precision is None else (Z - row.centre) @ row.precision
        expected = Z.copy()
        for j, model in enumerate(self.columns.models):
            here, k = self.columns.coordinates(j), int(self.columns.first[j])
            if not model.is_drawn:
                gap = self.unknown[:, k]
                if gap.any():
                    centre, spread = _conditional(Z, k, row, pull)
                    expected[gap, k] = centre[gap]
                    if not filled:
                        Z[gap, k] = centre[gap] + spread[gap] * rng.standard_normal(np.count_nonzero(gap))
            elif model.kind == CATEGORICAL:
                for k in range(here.start, here.stop):
                    self._redraw(Z, k, row, pull, *self._cone(j, Z, k), stream, expected, filled)
            else:
                if not alone and move_cuts:
                    self._move_cuts(j, Z, row, pull, cuts, rng)
                self._redraw(Z, k, row, pull, *self._cells(j, cuts), stream, expected, filled)
                if model.kind in UNIT:
                    own = cuts[self.columns.cuts_of(j)]
                    for values in (Z, expected, row.centre):
                        values[:, k] -= own[0]
                    own -= own[0]
        return now._replace(missing=Imputed(Z[self.drawn], expected[self.drawn]), cuts=cuts)

    def _move_cuts(
        self, j: int, Z: Floats, row: _Row, pull: Floats | None, state_cuts: Floats, rng: np.random.Generator
    ) -> None:
        """Draw the cutpoints of column j, if it has any."""
        if self.columns.models[j].n_cuts:
            centre, spread = _conditional(Z, int(self.columns.first[j]), row, pull)
            _draw_cuts(state_cuts[self.columns.cuts_of(j)], centre, spread, self.encoded.codes[:, j], rng)

    def _cells(self, j: int, cuts: Floats) -> tuple[Floats, Floats]:
        """Bounds of the coordinate of a column with cutpoints or a grid, (n,) each; infinite where nothing is known."""
        k = int(self.columns.first[j])
        if self.columns.models[j].kind not in UNIT:
            return self.encoded.lower[:, k], self.encoded.upper[:, k]
        # Code −1, of what is missing, is the last of the lower bounds and of the upper ones.
        own, codes = cuts[self.columns.cuts_of(j)], self.encoded.codes[:, j]
        low, high = np.concatenate([[-np.inf], own, [-np.inf]]), np.concatenate([own, [np.inf, np.inf]])
        return low[codes], high[codes]

    def _draw_noise(
        self, now: Unknowns, Z: Floats, row: _Row, cuts: Floats, rng: np.random.Generator
    ) -> tuple[Unknowns, _Row]:
        """s₀ given the parents, coordinates integrated out; for a diagonal Φ. Returns the rows' new spread too."""
        assert row.variances is not None
        low, high = Z.T.copy(), Z.T.copy()  # where they are equal, a value is seen exactly
        for j, model in enumerate(self.columns.models):
            if model.is_drawn and model.kind != CATEGORICAL:
                k = int(self.columns.first[j])
                low[k], high[k] = self._cells(j, cuts)
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
        levels, above = Levels(now.tree, spread), now.tree.parents()[: len(Z)]
        for j, model in enumerate(self.columns.models):
            here, k = self.columns.coordinates(j), int(self.columns.first[j])
            if model.kind == CATEGORICAL:
                codes = self.encoded.codes[:, j]
                nodes[:, here], Z[:, here] = levels.utilities(
                    nodes[:, here], Z[:, here], codes, model.corners, stream, rng
                )
            elif model.kind in UNIT:
                column = np.ascontiguousarray(nodes[:, k])
                shifts = levels.shifts(column, math.sqrt(variances[k]), *self._cells(j, now.cuts), stream)
                nodes[:, k] += shifts
                Z[:, k] += np.where(self.unknown[:, k], shifts[above], 0.0)

    def _redraw(
        self,
        Z: Floats,
        k: int,
        row: _Row,
        pull: Floats | None,
        low: Floats,
        high: Floats,
        stream: Stream,
        expected: Floats,
        filled: bool,
    ) -> None:
        """Draw coordinate k of all rows between bounds, or where it is observed if missing entries are `filled`."""
        centre, spread = _conditional(Z, k, row, pull)
        new = np.empty(len(Z))
        draw_between(centre, spread, low, high, stream, new)
        gap = self.unknown[:, k]
        expected[:, k] = np.where(gap, centre, new)
        if filled:
            new[gap] = Z[gap, k]
        if pull is not None and row.precision is not None:
            pull += np.outer(new - Z[:, k], row.precision[k])
        Z[:, k] = new

    def _cone(self, j: int, Z: Floats, k: int) -> tuple[Floats, Floats]:
        """Bounds of coordinate k of a categorical column given its others: the observed level has the most utility."""
        model, here = self.columns.models[j], self.columns.coordinates(j)
        codes = self.encoded.codes[:, j]
        own, corner = k - here.start, model.corners
        # (v_level − v_other) · z ≥ 0 for all others: linear in z_k, with slope and rest.
        slope = corner[codes][:, None, own] - corner[None, :, own]
        utility = Z[:, here] @ corner.T
        rest = utility[np.arange(len(Z)), codes][:, None] - utility - slope * Z[:, k, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            limit = -rest / slope
        low = np.where(slope > 1e-12, limit, -np.inf).max(axis=1)
        high = np.where(slope < -1e-12, limit, np.inf).min(axis=1)
        known = codes >= 0
        return np.where(known, low, -np.inf), np.where(known, high, np.inf)

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
            own = cuts[self.columns.cuts_of(j)]
            if len(own) > 1:
                factor = float(factors[self.columns.first[j]])
                total += (len(own) - 1) * math.log(factor) - own[-1] * (factor - 1.0) / mean_gap(model.n_levels)
        return total

    def _scaled(self, now: Unknowns, factors: Floats) -> Unknowns:
        each = np.broadcast_to(factors, self.drawn.shape)[self.drawn]
        of_cuts = np.repeat(factors[self.columns.first[:-1]], np.diff(self.columns.first_cut))
        return now._replace(
            missing=Imputed(now.missing.drawn * each, now.missing.expected * each), cuts=now.cuts * of_cuts
        )


def _conditional(Z: Floats, k: int, row: _Row, pull: Floats | None) -> tuple[Floats, Floats]:
    """Mean and standard deviation of coordinate k of every row given its others and its parent."""
    if row.variances is not None:
        return row.centre[:, k], np.sqrt(row.spread * row.variances[k])
    assert row.precision is not None
    assert pull is not None
    own = row.precision[k, k]
    return Z[:, k] - pull[:, k] / own, np.sqrt(row.spread / own)


def _draw_cuts(state_cuts: Floats, centre: Floats, spread: Floats, codes: Ints, rng: np.random.Generator) -> None:
    """Slice each cutpoint between its neighbours, z integrated out; the first is free, as the column's location is.

    Independent exponential gaps have the density ∝ exp(−(κ_last − κ_first)/mean).
    """
    n_levels = len(state_cuts) + 1
    counts = np.bincount(codes[codes >= 0], minlength=n_levels)
    typical = float(np.median(spread))
    for k in range(len(state_cuts)):
        lower = state_cuts[k - 1] if k > 0 else -math.inf
        upper = state_cuts[k + 1] if k + 1 < len(state_cuts) else math.inf
        sign = float(k == 0) - float(k + 1 == len(state_cuts)) if n_levels > 2 else 0.0

        def log_density(at: float, k: int = k, sign: float = sign) -> float:
            state_cuts[k] = at
            return log_levels(centre, spread, codes, state_cuts, k, k + 1) + sign * at / mean_gap(n_levels)

        width = 4.0 * typical / math.sqrt(1.0 + min(counts[k], counts[k + 1]))
        now = float(state_cuts[k])
        at = log_density(now)
        state_cuts[k] = slice_step(log_density, now, at, rng, width, lower, upper)[0]
