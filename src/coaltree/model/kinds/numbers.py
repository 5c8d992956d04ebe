"""Columns of numbers that are observed exactly: as they are, or through a monotone map onto normal scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtri

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.frame import BOOLEAN, Column
from coaltree.model.kinds.base import CellSays, ColumnKind, Encoded

# Knots of the map onto normal scores.
MOST_KNOTS = 33
# Quantiles of a standard normal, and their weights: for means of monotone functions of a coordinate.
NORMAL_POINTS: Floats = ndtri((np.arange(100) + 0.5) / 100)
NORMAL_WEIGHTS: Floats = np.full(100, 0.01)


class Read(ColumnKind):
    """A column of numbers, or of dates as numbers of days."""

    @classmethod
    def of(cls, column: Column, distinct: Floats) -> tuple[ColumnKind, Floats]:
        """Refuse text."""
        if column.levels and column.type != BOOLEAN:
            raise InputError(
                f"Column {column.name!r} cannot be {cls.kind}: it holds text such as {column.levels[0]!r}."
            )
        return cls(column.name, type=column.type), column.values

    def read(self, column: Column) -> Floats:
        """Numbers as they are."""
        if column.levels:
            if column.type != BOOLEAN:
                raise InputError(
                    f"Column {self.name!r} must be numbers, as in the fit, got text such as {column.levels[0]!r}."
                )
        elif np.isinf(column.values).any():
            raise InputError(f"Column {self.name!r} holds infinite values. Correct them, or leave them empty.")
        return column.values


@dataclass(frozen=True)
class Number(Read):
    """A column with a scale, brought to mean 0 and standard deviation 1."""

    centre: float = 0.0
    scale: float = 1.0
    grid: float = 0.0  # the step of which all values are multiples, if some repeat

    def fitted(self, cells: Floats, standardise: bool = True) -> Self:
        """Set the grid, centre and scale."""
        known = cells[~np.isnan(cells)]
        model = self._shaped(known)
        if not standardise:
            return model
        seen = model._spread(known)
        spread = float(seen.std())
        return replace(model, centre=float(seen.mean()), scale=spread if spread > 0.0 else 1.0)

    def _shaped(self, known: Floats) -> Self:
        return replace(self, grid=shared_step(known))

    def _spread(self, known: Floats) -> Floats:
        """Known values on the scale on which centre and scale are taken."""
        return self.forward(known)

    @property
    def is_drawn(self) -> bool:
        """Whether its coordinates are not observed exactly."""
        return False

    @property
    def cell(self) -> float:
        """Width of the interval that a value represents."""
        return self.grid

    def forward(self, values: Any) -> Floats:
        """Values on the scale of the latent coordinate."""
        out: Floats = (np.asarray(values, dtype=np.float64) - self.centre) / self.scale
        return out

    def backward(self, latent: Floats) -> Floats:
        """Invert `forward`, and round if the column does."""
        return np.asarray(self.centre + self.scale * latent, dtype=np.float64)

    def interval(self, values: Floats) -> tuple[Floats, Floats]:
        """Interval of the latent coordinate for each value on a grid; all of R where NaN."""
        low, high = self.forward(values - 0.5 * self.cell), self.forward(values + 0.5 * self.cell)
        return _open_where(np.isnan(values), low, high)

    def log_slope(self, cells: Floats) -> Floats:
        """log |d coordinate / d value|."""
        return np.full(len(cells), -math.log(self.scale))

    def encode(self, cells: Floats) -> Encoded:
        """Exact values, or intervals and their middles if they are to be drawn."""
        n = len(cells)
        encoded = Encoded.silent(n, 1)
        if self.is_drawn:
            low, high = self.interval(cells)
            encoded.lower[:, 0], encoded.upper[:, 0] = low, high
            with np.errstate(invalid="ignore"):
                middle = np.where(np.isinf(low), high - 0.5 / self.scale, 0.5 * (low + high))
            known = ~np.isnan(cells)
            encoded.start[known, 0] = middle[known]
        else:
            encoded.X[:, 0] = encoded.start[:, 0] = self.forward(cells)
        return encoded

    def decode(self, latent: Floats, cuts: Floats) -> Floats:
        """Back to the column's units."""
        return self.backward(latent[:, 0])

    def seen(self, cell: float, cuts: Floats, recorded: bool, independent: bool) -> CellSays:
        """A value, or an interval."""
        one = np.ones(1)
        if self.is_drawn or (recorded and self.cell):
            low, high = self.interval(np.array([cell]))
            return CellSays(inside=((one, float(low[0]), float(high[0])),))
        return CellSays(exact=((one, float(self.forward(cell))),))

    def expect(self, centre: Floats, deviation: Floats, cuts: Floats) -> Floats:
        """Mean, (n, 1)."""
        return np.asarray(self.centre + self.scale * centre, dtype=np.float64)

    def deviation(self, cells: Floats) -> float | None:
        """Return the standard deviation in the column's units."""
        return float(np.nanstd(cells))


class Curved(Number):
    """A column whose values are no linear function of its coordinate."""

    def expect(self, centre: Floats, deviation: Floats, cuts: Floats) -> Floats:
        """Mean over quantiles, (n, 1)."""
        points = (centre + deviation[:, None] * NORMAL_POINTS).ravel()
        return self.backward(points).reshape(len(centre), -1) @ NORMAL_WEIGHTS[:, None]


@dataclass(frozen=True)
class Continuous(Number):
    """The value itself, standardised."""

    kind: ClassVar[str] = "continuous"


@dataclass(frozen=True)
class Skewed(Curved):
    """The value through a monotone, piecewise linear map onto normal scores."""

    kind: ClassVar[str] = "skewed"
    knots: tuple[tuple[float, float], ...] = ()  # value and normal score

    @classmethod
    def of(cls, column: Column, distinct: Floats) -> tuple[ColumnKind, Floats]:
        """Refuse text, and two values."""
        found = super().of(column, distinct)
        if len(distinct) < 3:
            raise InputError(
                f"Column {column.name!r} cannot be skewed: it has {len(distinct)} different values. Use 'binary'."
            )
        return found

    def fitted(self, cells: Floats, standardise: bool = True) -> Self:
        """Set the knots too; normal scores are standardised whatever the units are."""
        return super().fitted(cells, True)

    def _shaped(self, known: Floats) -> Self:
        return replace(super()._shaped(known), knots=_knots(known))

    def forward(self, values: Any) -> Floats:
        """Values on the scale of the latent coordinate."""
        return super().forward(_piecewise(np.asarray(values, dtype=np.float64), *np.array(self.knots).T))

    def backward(self, latent: Floats) -> Floats:
        """Invert `forward`."""
        return _piecewise(super().backward(latent), *np.array(self.knots).T[::-1])

    def log_slope(self, cells: Floats) -> Floats:
        """log |d coordinate / d value|."""
        x, z = np.array(self.knots).T
        piece = np.clip(np.searchsorted(x, cells, side="right") - 1, 0, len(x) - 2)
        return np.asarray(super().log_slope(cells) + np.log(np.diff(z) / np.diff(x))[piece])

    def says(self) -> str:
        """Describe in words what the column was taken for."""
        return "skewed, through normal scores"


@dataclass(frozen=True)
class Rounded(Number):
    """The nearest multiple of a step."""

    kind: ClassVar[str] = "rounded"
    step: float = field(default=0.0, kw_only=True)  # in the column's units
    origin: float = 0.0  # one of its values
    exact: bool = False  # its grid is so fine that values are taken as they are

    def _shaped(self, known: Floats) -> Self:
        return replace(self, step=self.step or grid_step(known) or 1.0, origin=float(known[0]))

    @property
    def is_drawn(self) -> bool:
        """Whether its coordinates are not observed exactly."""
        return not self.exact

    @property
    def cell(self) -> float:
        """Width of the interval that a value represents."""
        return self.step

    def backward(self, latent: Floats) -> Floats:
        """Invert `forward`, and round."""
        values = super().backward(latent)
        return np.asarray(self.origin + self.step * np.rint((values - self.origin) / self.step), dtype=np.float64)

    def settle(self, means: Floats) -> Floats:
        """Means on the grid."""
        return self.backward((means[:, 0] - self.centre) / self.scale)

    def as_exact(self, cells: Floats, n_steps: float) -> ColumnKind | None:
        """Return the same with values taken as they are, if the grid is fine."""
        return replace(self, exact=True) if np.nanstd(cells) >= n_steps * self.step else None

    def in_cells(self) -> ColumnKind:
        """Return the same with coordinates drawn."""
        return replace(self, exact=False)

    def says(self) -> str:
        """Describe in words what the column was taken for."""
        return f"rounded to {self.step:g}"

    @property
    def heading(self) -> str:
        """Columns of one step are listed together."""
        return self.says()


@dataclass(frozen=True)
class Count(Curved):
    """⌊e^z⌋."""

    kind: ClassVar[str] = "count"

    @classmethod
    def of(cls, column: Column, distinct: Floats) -> tuple[ColumnKind, Floats]:
        """Refuse text, and anything but whole numbers from 0 on."""
        found = super().of(column, distinct)
        wrong = distinct[(distinct < 0) | (distinct != np.rint(distinct))]
        if len(wrong):
            raise InputError(
                f"Column {column.name!r} cannot be a count: it holds {wrong[0]:g}. Use 'continuous' or 'skewed'."
            )
        return found

    def read(self, column: Column) -> Floats:
        """Numbers from 0 on."""
        values = super().read(column)
        if np.any(column.known < 0):
            raise InputError(f"Column {self.name!r} is a count, but has negative values. Name another kind for it.")
        return values

    def _spread(self, known: Floats) -> Floats:
        return np.asarray(np.log(known + 0.5))

    @property
    def is_drawn(self) -> bool:
        """Whether its coordinates are not observed exactly."""
        return True

    @property
    def cell(self) -> float:
        """Width of the interval that a value represents."""
        return 1.0

    def forward(self, values: Any) -> Floats:
        """Values on the scale of the latent coordinate."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return super().forward(np.log(np.asarray(values, dtype=np.float64)))

    def backward(self, latent: Floats) -> Floats:
        """Invert `forward`, and round down."""
        return np.asarray(np.floor(np.exp(np.minimum(super().backward(latent), 700.0))), dtype=np.float64)

    def interval(self, values: Floats) -> tuple[Floats, Floats]:
        """From the value to the next."""
        return _open_where(np.isnan(values), self.forward(values), self.forward(values + 1.0))

    def settle(self, means: Floats) -> Floats:
        """Means as whole numbers."""
        return np.asarray(np.rint(means[:, 0]))

    def says(self) -> str:
        """Describe in words what the column was taken for."""
        return "a count"


def _open_where(gap: Any, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    return np.where(gap, -np.inf, low), np.where(gap, np.inf, high)


def _piecewise(values: Floats, x: Floats, z: Floats) -> Floats:
    """Linear between knots (x, z), extrapolated beyond them from the first and the last piece."""
    inside = np.interp(values, x, z)
    below, above = (z[1] - z[0]) / (x[1] - x[0]), (z[-1] - z[-2]) / (x[-1] - x[-2])
    inside = np.where(values < x[0], z[0] + below * (values - x[0]), inside)
    return np.where(values > x[-1], z[-1] + above * (values - x[-1]), inside)


def _knots(known: Floats) -> tuple[tuple[float, float], ...]:
    """Values and normal scores at evenly spread ranks, ties at their middle rank."""
    values, counts = np.unique(known, return_counts=True)
    scores = np.asarray(ndtri((np.cumsum(counts) - 0.5 * counts) / len(known)))
    wanted = np.unique(np.searchsorted(scores, np.linspace(scores[0], scores[-1], MOST_KNOTS)).clip(0, len(values) - 1))
    return tuple((float(x), float(z)) for x, z in zip(values[wanted], scores[wanted], strict=True))


def shared_step(known: Floats) -> float:
    """Return the step of the grid on which all values lie, if some of them are equal; 0 if there is none."""
    return (grid_step(known) or 0.0) if len(np.unique(known)) < len(known) else 0.0


def grid_step(known: Floats) -> float | None:
    """Return the power of ten of which all values are multiples, or None."""
    for power in range(3, -7, -1):
        step = 10.0**power
        if np.all(np.abs(known / step - np.rint(known / step)) < 1e-6 * np.maximum(1.0, np.abs(known / step))):
            return step
    return None
