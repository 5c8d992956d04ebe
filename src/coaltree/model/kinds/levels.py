"""Columns of levels: binary and ordinal ones by cutpoints of one coordinate, categorical ones by utilities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import helmert
from scipy.special import ndtr, ndtri

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputError
from coaltree.frame import Column
from coaltree.model.kinds.base import CellSays, ColumnKind, Encoded, LeafCoordinates
from coaltree.model.kinds.numbers import grid_step
from coaltree.model.slice import slice_step
from coaltree.model.truncated import largest_probabilities, log_levels

# No column may have more levels than this, even if the user asks for it.
MOST_CATEGORIES = 200
# How many levels an error names.
MOST_SHOWN = 8
# How far out a category starts along its corner.
_START = 1.5


def mean_gap(n_levels: int) -> float:
    """Prior mean of the distance between two cutpoints: all levels together span about the range of the rows."""
    return 4.0 / n_levels


@dataclass(frozen=True)
class Levels(ColumnKind):
    """A column of levels."""

    unit: ClassVar[bool] = True
    ordered: ClassVar[bool] = True

    numbers: tuple[float, ...] = ()  # the levels, where they are numbers
    grid: float = 0.0  # the step of which these are multiples

    @classmethod
    def of(cls, column: Column, distinct: Floats) -> tuple[ColumnKind, Floats]:
        """Take the levels that occur, and return cells as indices into them."""
        if len(distinct) > MOST_CATEGORIES:
            raise InputError(
                f"Column {column.name!r} cannot be {cls.kind}: it has {len(distinct):,} levels, and {MOST_CATEGORIES} "
                "are the most. Group them, or leave the column out."
            )
        codes = np.searchsorted(distinct, column.values).astype(np.float64)
        codes[np.isnan(column.values)] = np.nan
        numbers: tuple[float, ...] = ()
        if column.levels:
            levels = tuple(column.levels[int(code)] for code in distinct)
        else:
            levels, numbers = tuple(f"{value:.15g}" for value in distinct), tuple(distinct.tolist())
        grid = (grid_step(distinct) or 0.0) if numbers else 0.0
        return cls(column.name, levels, numbers, grid, type=column.type), codes

    def read(self, column: Column) -> Floats:
        """Indices of levels."""
        if self.numbers and not column.levels:
            index: dict[Any, float] = {number: float(code) for code, number in enumerate(self.numbers)}
            texts: list[Any] = column.values.tolist()
        else:
            index = {level: float(code) for code, level in enumerate(self.levels)}
            texts = [column.cell(i) for i in range(len(column.values))]
        codes = np.array([index.get(text, np.nan) for text in texts], dtype=np.float64)
        new = np.flatnonzero(np.isnan(codes) & ~np.isnan(column.values))
        if len(new):
            row, more = int(new[0]), ", …" if self.n_levels > MOST_SHOWN else ""
            raise InputError(
                f"Column {self.name!r} has the level {column.cell(row)!r} (row {row + 1}), which the fit has "
                f"not seen; its levels are {', '.join(map(repr, self.levels[:MOST_SHOWN]))}{more}. "
                "Leave such cells empty, or fit again with them."
            )
        return codes

    def fitted(self, cells: Floats, standardise: bool = True) -> Self:
        """Return the same: nothing is left to set."""
        return self

    @property
    def cell(self) -> float:
        """Width of the interval that a number represents; 0 for texts."""
        return self.grid

    def encode(self, cells: Floats) -> Encoded:
        """Codes, and where coordinates begin."""
        encoded, known = Encoded.silent(len(cells), self.width), ~np.isnan(cells)
        codes = encoded.codes[:, 0]
        codes[known] = cells[known].astype(np.int64)
        encoded.start[known] = self._starts(codes[known])
        return encoded

    def _starts(self, codes: Ints) -> Floats:
        raise NotImplementedError

    def summary(self, cells: Floats) -> Floats:
        """Which level it is, (n, L)."""
        return np.asarray(cells[:, None] == np.arange(self.n_levels), dtype=np.float64)

    def settle(self, means: Floats) -> Floats:
        """The likeliest level."""
        return np.asarray(means.argmax(axis=1), dtype=np.float64)

    def tally(self, cells: Floats) -> Floats:
        """Which level it is."""
        return self.summary(cells)

    def share(self, total: Floats) -> Floats:
        """Shares of levels."""
        return np.asarray(total / total.sum())

    def differ(self, left: Floats, right: Floats) -> str:
        """Name the level whose shares differ most."""
        level = int(np.abs(left - right).argmax())
        return f"{self.levels[level]} {left[level]:.0%} against {right[level]:.0%}"

    def in_table(self, cells: Floats) -> Any:
        """Return numbers, or categories of pandas."""
        codes = np.where(np.isnan(cells), -1, cells).astype(np.int64)
        if self.numbers:
            return np.where(codes < 0, np.nan, np.array(self.numbers)[codes])
        import pandas as pd

        return pd.Categorical.from_codes(codes, list(self.levels), ordered=self.ordered)

    @classmethod
    def restored(cls, content: dict[str, Any]) -> Self:
        """Rebuild; a level alone is none."""
        found = super().restored(content)
        if found.n_levels < 2:
            raise InputError(f"column {found.name!r} must have two levels or more, got {found.levels!r}.")
        return found


@dataclass(frozen=True)
class Ordinal(Levels):
    """The interval between cutpoints 0 = κ₁ < κ₂ < … that the coordinate lies in.

    Gaps between cutpoints are exponential; the first is 0, as the root of a tree has a flat prior.
    """

    kind: ClassVar[str] = "ordinal"

    @property
    def n_cuts(self) -> int:
        """Number of cutpoints, including the first, 0."""
        return self.n_levels - 1

    def _starts(self, codes: Ints) -> Floats:
        """Midpoints of levels on the normal scale, with the first cutpoint at 0."""
        scores = self._scores(codes)
        edges = np.concatenate([[-np.inf], scores, [np.inf]])
        density = np.exp(-0.5 * edges**2) / math.sqrt(2.0 * math.pi)
        counts = np.bincount(codes, minlength=self.n_levels) + 0.5
        middles = (density[:-1] - density[1:]) / (counts / counts.sum()) - scores[0]
        return np.asarray(middles[codes][:, None], dtype=np.float64)

    def _scores(self, codes: Ints) -> Floats:
        """Normal scores of the boundaries between levels."""
        counts = np.bincount(codes, minlength=self.n_levels) + 0.5
        return np.asarray(ndtri(np.cumsum(counts)[:-1] / counts.sum()))

    def first_cuts(self, codes: Ints) -> Floats:
        """Normal scores of the shares of the levels, shifted to start at 0."""
        scores = self._scores(codes[codes >= 0])
        return np.asarray(scores - scores[0])

    def decode(self, latent: Floats, cuts: Floats) -> Floats:
        """Levels between cutpoints."""
        return np.searchsorted(cuts, latent[:, 0], side="right").astype(np.float64)

    def bounds(self, encoded: Encoded, cuts: Floats) -> tuple[Floats, Floats] | None:
        """Cutpoints on either side."""
        # Code −1, of what is missing, is the last of the lower bounds and of the upper ones.
        codes = encoded.codes[:, 0]
        low, high = np.concatenate([[-np.inf], cuts, [-np.inf]]), np.concatenate([cuts, [np.inf, np.inf]])
        return low[codes], high[codes]

    def draw_cuts(self, state_cuts: Floats, leaves: LeafCoordinates, rng: np.random.Generator) -> None:
        """Slice each cutpoint between its neighbours, z integrated out; the first is free, as the location is.

        Independent exponential gaps have the density ∝ exp(−(κ_last − κ_first)/mean).
        """
        centre, spread = leaves.conditional(0)
        codes, n_levels = leaves.encoded.codes[:, 0], self.n_levels
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

    def draw(self, leaves: LeafCoordinates, state_cuts: Floats, rng: np.random.Generator) -> None:
        """Draw the coordinates, and shift all back so that the first cutpoint is 0."""
        super().draw(leaves, state_cuts, rng)
        first = float(state_cuts[0])
        leaves.shift(0, -first)
        state_cuts -= first

    def log_scaled(self, cuts: Floats, factor: float) -> float:
        """Log of the prior ratio and Jacobian of gaps that are multiplied by a factor."""
        if len(cuts) < 2:
            return 0.0
        return float((len(cuts) - 1) * math.log(factor) - cuts[-1] * (factor - 1.0) / mean_gap(self.n_levels))

    def seen(self, cell: float, cuts: Floats, recorded: bool, independent: bool) -> CellSays:
        """An interval."""
        edges = [-math.inf, *cuts.tolist(), math.inf]
        return CellSays(inside=((np.ones(1), edges[int(cell)], edges[int(cell) + 1]),))

    def expect(self, centre: Floats, deviation: Floats, cuts: Floats) -> Floats:
        """Probabilities of levels, (n, L)."""
        below = ndtr((cuts - centre) / deviation[:, None])
        return np.asarray(np.diff(below, axis=1, prepend=0.0, append=1.0), dtype=np.float64)

    def says(self) -> str:
        """Describe in words what the column was taken for."""
        return f"ordinal ({', '.join(self.levels[:4])}{', …' if self.n_levels > 4 else ''})"


@dataclass(frozen=True)
class BinaryLevels(Ordinal):
    """Whether the coordinate is above 0."""

    kind: ClassVar[str] = "binary"

    @classmethod
    def of(cls, column: Column, distinct: Floats) -> tuple[ColumnKind, Floats]:
        """Refuse all but two levels."""
        found = super().of(column, distinct)
        if len(distinct) != 2:
            raise InputError(
                f"Column {column.name!r} cannot be binary: it has {len(distinct)} different values. Use 'ordinal'."
            )
        return found

    def says(self) -> str:
        """Describe in words what the column was taken for."""
        return f"binary ({' or '.join(self.levels)})"


@dataclass(frozen=True)
class Categorical(Levels):
    """The largest of the L utilities V z, V the corners of a simplex: no level is special."""

    kind: ClassVar[str] = "categorical"
    ordered: ClassVar[bool] = False

    @classmethod
    def of(cls, column: Column, distinct: Floats) -> tuple[ColumnKind, Floats]:
        """Two levels are binary."""
        return BinaryLevels.of(column, distinct) if len(distinct) == 2 else super().of(column, distinct)

    def content(self, cells: Floats) -> Floats:
        """Levels by where they first occur."""
        _, first, codes = np.unique(cells, return_index=True, return_inverse=True)
        return np.asarray(np.argsort(np.argsort(first))[codes], dtype=np.float64)

    @property
    def width(self) -> int:
        """Number of latent coordinates."""
        return self.n_levels - 1

    @cached_property
    def corners(self) -> Floats:
        """Corners of the simplex, (L, L − 1): utilities of levels are its product with the coordinates."""
        return np.ascontiguousarray(helmert(self.n_levels).T)

    def _starts(self, codes: Ints) -> Floats:
        return np.asarray(_START * self.corners[codes])

    def decode(self, latent: Floats, cuts: Floats) -> Floats:
        """Levels of the largest utility."""
        return np.asarray(np.argmax(latent @ self.corners.T, axis=1), dtype=np.float64)

    def bounds(self, encoded: Encoded, cuts: Floats) -> None:
        """Cells are cones."""

    def draw(self, leaves: LeafCoordinates, state_cuts: Floats, rng: np.random.Generator) -> None:
        """Draw coordinates in turn, each given the others."""
        for k in range(self.width):
            bounds = self.cone(leaves.encoded.codes[:, 0], leaves.Z, k)
            leaves.put(k, leaves.between(*leaves.conditional(k), *bounds))

    def cone(self, codes: Ints, Z: Floats, k: int) -> tuple[Floats, Floats]:
        """Bounds of coordinate k given the others, (n,) each: the observed level has the largest utility."""
        corner = self.corners
        # (v_level − v_other) · z ≥ 0 for all others: linear in z_k, with slope and rest.
        slope = corner[codes][:, None, k] - corner[None, :, k]
        utility = Z @ corner.T
        rest = utility[np.arange(len(Z)), codes][:, None] - utility - slope * Z[:, k, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            limit = -rest / slope
        low = np.where(slope > 1e-12, limit, -np.inf).max(axis=1)
        high = np.where(slope < -1e-12, limit, np.inf).min(axis=1)
        known = codes >= 0
        return np.where(known, low, -np.inf), np.where(known, high, np.inf)

    def seen(self, cell: float, cuts: Floats, recorded: bool, independent: bool) -> CellSays:
        """Utilities, or that their differences are positive."""
        level = int(cell)
        if independent:
            return CellSays(largest=(self.corners, level))
        gaps = self.corners[level] - self.corners
        return CellSays(inside=tuple((gap, 0.0, math.inf) for other, gap in enumerate(gaps) if other != level))

    def expect(self, centre: Floats, deviation: Floats, cuts: Floats) -> Floats:
        """Probabilities of levels, (n, L)."""
        found = np.empty((len(centre), self.n_levels))
        largest_probabilities(centre @ self.corners.T, deviation, found)
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def apart(self, gap: Floats, known: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Differences of utilities."""
        spread = np.sqrt(np.diag(self.corners @ np.diag(variances) @ self.corners.T))
        return np.abs(gap @ self.corners.T), known * spread

    def rare(self, cells: Floats) -> list[str]:
        """Name levels of a single row."""
        counts = np.bincount(cells[~np.isnan(cells)].astype(np.int64), minlength=self.n_levels)
        return [f"{self.levels[k]!r} in {self.name!r}" for k in np.flatnonzero(counts == 1)]

    def says(self) -> str:
        """Describe in words what the column was taken for."""
        return f"categorical, {self.n_levels} levels"
