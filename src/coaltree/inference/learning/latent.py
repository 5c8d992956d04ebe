r"""Latent coordinates of binary, ordinal, categorical, rounded and counted columns, drawn with the tree.

Given the tree, Φ and leaf noise s₀, values of all internal nodes are drawn, and then each leaf given its parent,

    z_i ~ N(z_parent, (branch + s₀) Φ)   within what is seen of the row,

coordinate by coordinate. Cutpoints of ordinal columns, and the single one of binary columns, are drawn first, given the
parents, with z integrated out: given z they could hardly move. The first cutpoint and its whole column are then shifted
back so that it is 0, as the root has a flat prior. Missing entries are drawn like coordinates without bounds.

An iteration takes O(n D), or O(n D²) under a full Φ. The draws are stored where a numeric table has its missing
entries: `Unknowns.missing`, in the order of the NaN in X, and `Unknowns.cuts`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Bools, Floats, Ints
from coaltree.inference.learning.start import Unknowns
from coaltree.model import missing
from coaltree.model.columns import CATEGORICAL, UNIT, Columns, Encoded, mean_gap
from coaltree.model.covariance import CovarianceFamily
from coaltree.model.diffusion import sample_nodes, scatter
from coaltree.model.factorisations import DenseRoot
from coaltree.model.missing import Imputed
from coaltree.model.slice import slice_step
from coaltree.model.truncated import draw_between, log_levels
from coaltree.model.unit import UnitWishart
from coaltree.randomness import Stream, make_streams

# Draws made at the start before anything else moves.
N_FIRST = 3


class _Row(NamedTuple):
    """Leaves given their parents: z ~ N(centre, spread · Q⁻¹), each; Q⁻¹ is diagonal if there are `variances`."""

    centre: Floats  # (n, D)
    spread: Floats  # (n,)
    variances: Floats | None  # (D,)
    precision: Floats | None  # (D, D)


class Augmentation:
    """What a chain needs to know about a table's columns to draw their coordinates."""

    def __init__(self, columns: Columns, encoded: Encoded) -> None:
        self.columns, self.encoded = columns, encoded
        self.drawn = np.isnan(encoded.X)
        # Nothing is known about these, so a diagonal Φ integrates them out.
        self.unknown: Bools = np.isnan(encoded.start)
        self.unit = columns.unit

    def begin(self, start: Unknowns, rng: np.random.Generator) -> Unknowns:
        """Return a start, whose missing entries are those of `encoded.start`, with coordinates and cutpoints."""
        Z = self.encoded.start.copy()
        if start.missing is not None:
            Z[self.unknown] = start.missing.drawn
        now = start._replace(
            missing=Imputed(Z[self.drawn], Z[self.drawn]), cuts=self.columns.first_cuts(self.encoded.codes)
        )
        for _ in range(N_FIRST):
            now = self.draw(now, rng)
        return now

    def table(self, now: Unknowns) -> Floats:
        """Return all coordinates as last drawn, (n, D)."""
        assert now.missing is not None
        Z = self.encoded.X.copy()
        Z[self.drawn] = now.missing.drawn
        return Z

    def seen(self, now: Unknowns) -> Floats:
        """Return the table used for Φ, s₀ and scale: missing entries stay NaN if they can be integrated out."""
        Z = self.table(now)
        if now.covariance.is_diagonal:
            Z[self.unknown] = np.nan
        return Z

    # ---- coordinates

    def draw(self, now: Unknowns, rng: np.random.Generator, move_cuts: bool = True) -> Unknowns:
        """Draw cutpoints, which take most of the time, coordinates and missing entries given the tree, Φ and s₀."""
        assert now.missing is not None
        assert now.cuts is not None
        Z, row = self._parents(now, rng)
        cuts, stream = now.cuts.copy(), make_streams(rng, 1)[0]
        # Deviation of row i from its parent, times Q; kept up to date with Z under a full Φ.
        pull = None if row.precision is None else (Z - row.centre) @ row.precision
        expected = Z.copy()
        for j, model in enumerate(self.columns.models):
            here = self.columns.coordinates(j)
            if not model.is_drawn:
                gap = self.unknown[:, here.start]
                expected[gap, here.start] = _conditional(Z, here.start, row, pull)[0][gap]
            elif model.kind == CATEGORICAL:
                for k in range(here.start, here.stop):
                    low, high = self._cone(j, Z, k)
                    self._redraw(Z, k, row, pull, low, high, stream, expected)
            elif model.kind in UNIT:
                k = here.start
                centre, spread = _conditional(Z, k, row, pull)
                own, codes = cuts[self.columns.cuts_of(j)], self.encoded.codes[:, j]
                if move_cuts:
                    _draw_cuts(own, centre, spread, codes, rng)
                edges = np.concatenate([[-np.inf], own, [np.inf]])
                known = codes >= 0
                low = np.where(known, edges[codes], -np.inf)
                high = np.where(known, edges[codes + 1], np.inf)
                self._redraw(Z, k, row, pull, low, high, stream, expected)
                Z[:, k] -= own[0]
                expected[:, k] -= own[0]
                row.centre[:, k] -= own[0]
                own -= own[0]
            else:
                k = here.start
                self._redraw(Z, k, row, pull, self.encoded.lower[:, k], self.encoded.upper[:, k], stream, expected)
        return now._replace(missing=Imputed(Z[self.drawn], expected[self.drawn]), cuts=cuts)

    def _parents(self, now: Unknowns, rng: np.random.Generator) -> tuple[Floats, _Row]:
        """Draw the nodes; return the table with its missing entries redrawn, and the leaves given their parents."""
        n, tree = len(self.drawn), now.tree
        above = tree.parents()[:n]
        spread = tree.times[above - n] + now.leaf_noise
        if now.covariance.is_diagonal:
            variances, seen = now.covariance.variances(), self.seen(now)
            nodes, entries = missing.sample_columns(tree, seen, variances, now.leaf_noise, rng)
            Z = np.where(self.unknown, entries, seen)
            return Z, _Row(nodes[above], spread, variances, None)
        Z = self.table(now)
        phi = now.covariance.matrix()
        precision = DenseRoot.of(phi).precision
        centre = sample_nodes(tree, Z, phi, now.leaf_noise, random_state=rng)[0][above]
        if self.unknown.any():
            gaps = np.where(self.unknown, np.nan, Z)
            Z[self.unknown] = missing.impute_rows(gaps, centre, spread, precision, rng).drawn
        return Z, _Row(centre, spread, None, precision)

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
    ) -> None:
        """Draw coordinate k of the rows in which it is observed, between bounds; missing entries are already drawn."""
        centre, spread = _conditional(Z, k, row, pull)
        new = np.empty(len(Z))
        draw_between(centre, spread, low, high, stream, new)
        gap = self.unknown[:, k]
        expected[gap, k] = centre[gap]
        new[gap] = Z[gap, k]
        if pull is not None and row.precision is not None:
            pull += np.outer(new - Z[:, k], row.precision[k])
        Z[:, k] = new
        expected[~gap, k] = new[~gap]

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
        assert now.missing is not None
        assert now.cuts is not None
        drawn = family.update(now.covariance, scatter(now.tree, Z, now.leaf_noise), len(Z) - 1, rng)
        new, deviations = family.normalised(drawn)
        if math.log(rng.random()) >= self._log_scaled(now.cuts, 1.0 / deviations):
            return now
        return self._scaled(now._replace(covariance=new), 1.0 / deviations)

    def log_scaled(self, now: Unknowns, c: float) -> float:
        """Log of prior ratio and Jacobian when times are multiplied by c, and hence unit coordinates by √c."""
        assert now.cuts is not None
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
        assert now.missing is not None
        assert now.cuts is not None
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
