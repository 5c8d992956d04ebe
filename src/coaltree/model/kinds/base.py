"""What a table, the chain, predictions and pages ask of a column: one class per kind answers.

A cell is a number, or the place of a level, NaN where it is missing. A kind says how many latent coordinates its cells
come from, what a cell says of them, how they are drawn, what is expected where a cell is missing, and how to put all
that into words. Nothing outside this folder asks which kind a column is of.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree.frame import Column


class Encoded(NamedTuple):
    """Cells of one column, or of columns side by side, on the scale of the latent coordinates."""

    X: Floats  # (n, D): what is observed exactly, NaN where an entry is to be drawn
    start: Floats  # (n, D): where drawn entries begin, NaN where nothing is known
    lower: Floats  # (n, D): bounds of entries of rounded columns and counts, ∓∞ elsewhere
    upper: Floats
    codes: Ints  # (n, J): level of unit columns, −1 where missing and for other columns

    @classmethod
    def silent(cls, n: int, d: int, n_columns: int = 1) -> Self:
        """Make one of n rows that say nothing."""
        gaps, low, high = np.full((2, n, d), np.nan), np.full((n, d), -np.inf), np.full((n, d), np.inf)
        return cls(gaps[0], gaps[1], low, high, np.full((n, n_columns), -1, dtype=np.int64))


class CellSays(NamedTuple):
    """What one cell says of the coordinates of its column: of their products with rows (width,)."""

    exact: tuple[tuple[Floats, float], ...] = ()  # the product has this value
    inside: tuple[tuple[Floats, float, float], ...] = ()  # the product lies between these
    largest: tuple[Floats, int] | None = None  # of these products, rows (L, width), the one that is the largest
    wedge: tuple[Floats, float] | None = None  # of two products, the second is at most so many times the first


class LeafCoordinates(Protocol):
    """The coordinates of one column at all leaves, given their parents, while they are drawn."""

    @property
    def encoded(self) -> Encoded:
        """The column's cells."""

    @property
    def Z(self) -> Floats:
        """Coordinates as they are now, (n, width)."""

    def conditional(self, k: int) -> tuple[Floats, Floats]:
        """Mean and standard deviation of coordinate k of every row given its others."""

    def between(self, centre: Floats, spread: Floats, low: Floats, high: Floats) -> Floats:
        """Draw a normal variable per row between bounds."""

    def put(self, k: int, new: Floats) -> None:
        """Set coordinate k of every row that is known."""

    def shift(self, k: int, by: float) -> None:
        """Add a number to coordinate k everywhere, parents included, which a flat root does not notice."""


@dataclass(frozen=True)
class ColumnKind(ABC):
    """One column, and how its cells come from its latent coordinates."""

    name: str
    levels: tuple[str, ...] = ()  # in words; none for numbers
    type: str = field(default="number", kw_only=True)

    kind: ClassVar[str]
    # Whether what is seen stays the same if the coordinates, and cutpoints, are multiplied by a number.
    unit: ClassVar[bool] = False
    # Whether a full Φ, which scales every coordinate for itself, may have its coordinates.
    correlates: ClassVar[bool] = True

    # ---- from a table

    @classmethod
    @abstractmethod
    def of(cls, column: Column, distinct: Floats) -> tuple[ColumnKind, Floats]:
        """Take a column of a table, with these distinct values, for this kind; return its cells too, or refuse."""

    @abstractmethod
    def fitted(self, cells: Floats, standardise: bool = True) -> Self:
        """Return the same with what it needs from the table's cells: centre, scale, step, knots."""

    @abstractmethod
    def read(self, column: Column) -> Floats:
        """Return the cells of a column of another table; what was not in the fit is refused."""

    def content(self, cells: Floats) -> Floats:
        """Return the known cells such that columns that say the same of every row are equal, up to unit and sign."""
        unit = (cells - cells.mean()) / (cells.max() - cells.min())
        signed = np.sign(unit[np.argmax(np.abs(unit) > 1e-6)]) * unit
        return np.asarray(np.round(signed, 8) + 0.0)

    # ---- coordinates and cells

    @property
    def n_levels(self) -> int:
        """Number of levels; 0 for a column of numbers."""
        return len(self.levels)

    @property
    def width(self) -> int:
        """Number of latent coordinates."""
        return 1

    @property
    def n_cuts(self) -> int:
        """Number of cutpoints, including the first, 0."""
        return 0

    @property
    def corners(self) -> Floats | None:
        """Return V if the column has the level with the largest of the utilities V z, (L, width); else None."""
        return None

    @property
    def is_drawn(self) -> bool:
        """Whether its coordinates are not observed exactly."""
        return True

    @property
    def cell(self) -> float:
        """Width of the interval that a value represents, in the column's units; 0 for values on no grid."""
        return 0.0

    @abstractmethod
    def encode(self, cells: Floats) -> Encoded:
        """Map cells (n,) to the latent scale."""

    @abstractmethod
    def decode(self, latent: Floats, cuts: Floats) -> Floats:
        """Return the cells (n,) of coordinates (n, width), given the column's cutpoints."""

    def log_units(self, cells: Floats, recorded: bool = True) -> Floats:
        """What to add to log densities (n,) of cells so that they are in the column's units.

        For values observed exactly log |dz/dx|, and minus the log of the width for cells. With `recorded`, values on a
        grid are treated as cells whatever the kind is, so that kinds can be compared.
        """
        if self.cell and (self.is_drawn or recorded):
            return np.full(len(cells), -math.log(self.cell))
        return np.zeros(len(cells)) if self.is_drawn else self.log_slope(cells)

    def log_slope(self, cells: Floats) -> Floats:
        """log |d coordinate / d value| of values that are observed exactly."""
        return np.zeros(len(cells))

    def as_exact(self, cells: Floats, n_steps: float) -> ColumnKind | None:
        """Return the same with values taken as they are; None if a grid is too coarse: fewer steps a deviation."""
        return None if self.is_drawn else self

    def in_cells(self) -> ColumnKind:
        """Return the same with coordinates drawn within the cells of a grid, if it has one."""
        return self

    # ---- the chain

    def first_cuts(self, codes: Ints) -> Floats:
        """Cutpoints to begin with, (n_cuts,)."""
        return np.zeros(0)

    def bounds(self, encoded: Encoded, cuts: Floats) -> tuple[Floats, Floats] | None:
        """Interval of the coordinate of every row, all of R where nothing is known; None if cells are no intervals."""
        return encoded.lower[:, 0], encoded.upper[:, 0]

    def draw_cuts(self, state_cuts: Floats, leaves: LeafCoordinates, rng: np.random.Generator) -> None:  # noqa: B027
        """Draw the cutpoints, if there are any, with the coordinates integrated out."""

    def draw(self, leaves: LeafCoordinates, state_cuts: Floats, rng: np.random.Generator) -> None:
        """Draw the coordinates of all leaves within their cells."""
        found = self.bounds(leaves.encoded, state_cuts)
        assert found is not None
        leaves.put(0, leaves.between(*leaves.conditional(0), *found))

    def log_scaled(self, cuts: Floats, factor: float) -> float:
        """Log of the prior ratio and Jacobian of cutpoints that are multiplied by a factor."""
        return 0.0

    # ---- predictions

    @abstractmethod
    def seen(self, cell: float, cuts: Floats, recorded: bool, independent: bool) -> CellSays:
        """What a known cell says; with `independent` coordinates a level may be the largest of utilities."""

    @abstractmethod
    def expect(self, centre: Floats, deviation: Floats, cuts: Floats) -> Floats:
        """Means of `summary` for coordinates N(centre, deviation² I), (n, width) and (n,)."""

    def summary(self, cells: Floats) -> Floats:
        """What to average over draws of cells, (n, S): the cells themselves."""
        return cells[:, None]

    @property
    def n_summaries(self) -> int:
        """S."""
        return max(self.n_levels, 1)

    def settle(self, means: Floats) -> Floats:
        """Return the cells (n,) that means of `summary` stand for."""
        return means[:, 0]

    # ---- words and tables

    def apart(self, gap: Floats, known: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """By how much, and how surely, coordinates (m, width) of two sides differ in several respects, (m, R) each.

        `gap` is the difference, and its variances those of the column times `known`², (m, 1).
        """
        return np.abs(gap), known * np.sqrt(variances)

    def tally(self, cells: Floats) -> Floats:
        """What is summed over the rows of a clade, (n, T)."""
        known = ~np.isnan(cells)
        return np.column_stack([np.where(known, cells, 0.0), known])

    def share(self, total: Floats) -> Floats:
        """What a sum of tallies says of a clade; NaN if nothing is known."""
        return np.asarray(total[:1] / total[1])

    def differ(self, left: Floats, right: Floats) -> str:
        """Describe in words how two such shares differ."""
        return f"{left[0]:.4g} against {right[0]:.4g}"

    def in_table(self, cells: Floats) -> Any:
        """Return cells as a column of a DataFrame."""
        return cells

    def deviation(self, cells: Floats) -> float | None:
        """Return the standard deviation of a column that has a scale."""
        return None

    def rare(self, cells: Floats) -> list[str]:
        """Name levels of a single row that set it apart from all others."""
        return []

    def says(self) -> str:
        """Describe in words what the column was taken for."""
        return self.kind

    @property
    def heading(self) -> str:
        """Under which columns are listed together."""
        return self.kind

    # ---- files

    def written(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {"kind": self.kind, **asdict(self)}

    @classmethod
    def restored(cls, content: dict[str, Any]) -> Self:
        """Rebuild from `written`; lists were tuples. Older files have the fields of all kinds."""
        names = {each.name for each in fields(cls)}
        return cls(**{name: _as_tuple(value) for name, value in content.items() if name in names})


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
