r"""Angles, hours of the day, months, compass directions: the direction of two latent coordinates (projected normal).

A cell is the direction of z = r (cos θ, sin θ), its length r is latent. What is seen does not change if z is multiplied
by a number, so both coordinates have variance 1, and as they are alike, no direction is special: turning the origin
turns everything. For z ~ N(m, v I) the density of the direction is, with u and w the coordinates of m/√v along θ and
across it, e^(−w²/2) (φ(u) + u Φ_N(u)) / √(2π).

Values that rows share lie on a grid, and say only that z lies in the wedge of directions that are rounded to them. A
value on no grid is a very narrow wedge, EXACT of the period wide, so that z is all but on the ray. Within a wedge the
coordinate along it is drawn given the one across, and then that one. On a ray this is a slice step for the length,
whose density is ∝ r N(r; u, 1): the distance across, over the width, is uniform below r.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ive

from coaltree._arrays import Floats
from coaltree._compile import inline
from coaltree.errors import InputError
from coaltree.frame import Column
from coaltree.model.kinds.base import CellSays, ColumnKind, Encoded, LeafCoordinates
from coaltree.model.kinds.numbers import Read, shared_step
from coaltree.model.slice import slice_step

# Width of the wedge of a value on no grid, as a share of the period.
EXACT = 1e-7
# Draws of a pair of coordinates, each along and across, in an iteration.
N_TURNS = 2
# How far out coordinates start.
_START = 1.5
# Periods of columns by their names, and whether these are counted from 1.
_NAMED: tuple[tuple[str, float], ...] = (
    (r"hours?|time[ _.-]?of[ _.-]?day", 24.0),
    (r"months?", 12.0),
    (r"week[ _.-]?days?|day[ _.-]?of[ _.-]?(the[ _.-]?)?week|dow", 7.0),
    (r"day[ _.-]?of[ _.-]?(the[ _.-]?)?year|doy", 365.25),
    (r"minutes?|seconds?", 60.0),
    (r"angle|direction|bearing|heading|azimuth|aspect|orientation|degrees?|longitude", 360.0),
)
_COUNTED_FROM_ONE = (7.0, 12.0)
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True)
class Circular(Read):
    """The direction of two coordinates."""

    kind: ClassVar[str] = "circular"
    unit: ClassVar[bool] = True
    correlates: ClassVar[bool] = False

    period: float = field(default=2.0 * math.pi, kw_only=True)
    low: float = 0.0  # values are given from here to one period above
    grid: float = 0.0  # the step of which all values are multiples, if some repeat

    # ---- from a table

    @classmethod
    def of(cls, column: Column, distinct: Floats, period: float | None = None) -> tuple[ColumnKind, Floats]:
        """Refuse text, and numbers whose period is not told."""
        cells = super().of(column, distinct)[1]
        if len(distinct) < 3:
            raise InputError(
                f"Column {column.name!r} cannot be circular: it has {len(distinct)} different values. Use 'binary'."
            )
        found = period_of(column.name, distinct) if period is None else period
        if found is None:
            raise InputError(
                f"Column {column.name!r} is circular, but what is its period? Name it as in 'circular:24' for hours, "
                "'circular:360' for degrees."
            )
        return cls(column.name, type=column.type, period=found), cells

    def fitted(self, cells: Floats, standardise: bool = True) -> Self:
        """Set the grid and where values begin."""
        known = cells[~np.isnan(cells)]
        grid = _step(known, self.period)
        low = 0.0
        if known.min() < 0.0:
            low = -0.5 * self.period
        elif grid and known.min() >= grid and (self.period in _COUNTED_FROM_ONE or known.max() == self.period):
            low = grid
        return replace(self, grid=grid, low=low)

    def content(self, cells: Floats) -> Floats:
        """Return turns from the first cell on, to the side to which the first that moves goes less far."""
        turns = np.round(np.mod(cells - cells[0], self.period) / self.period, 8) % 1.0
        moved = turns[np.argmax(turns > 0.0)]
        return np.asarray(np.round(np.mod(-turns, 1.0) if moved > 0.5 else turns, 8) + 0.0)

    # ---- coordinates and cells

    @property
    def width(self) -> int:
        """Number of latent coordinates."""
        return 2

    @property
    def cell(self) -> float:
        """Width of the wedge that a value represents, in the column's units."""
        return self.grid or EXACT * self.period

    @property
    def slope(self) -> float:
        """Tangent of half the wedge."""
        return math.tan(math.pi * self.cell / self.period)

    def directions(self, cells: Floats) -> Floats:
        """Cosine and sine of cells, (n, 2)."""
        angle = 2.0 * math.pi * cells / self.period
        return np.column_stack([np.cos(angle), np.sin(angle)])

    def encode(self, cells: Floats) -> Encoded:
        """Coordinates begin in the direction that is seen."""
        encoded = Encoded.silent(len(cells), 2)
        encoded.start[:] = _START * self.directions(cells)
        return encoded

    def decode(self, latent: Floats, cuts: Floats) -> Floats:
        """Directions, on the grid if there is one."""
        values = np.arctan2(latent[:, 1], latent[:, 0]) * (self.period / (2.0 * math.pi))
        values = self.low + np.mod(values - self.low, self.period)
        if self.grid:
            values = self.low + np.mod(self.grid * np.rint(values / self.grid) - self.low, self.period)
        # What is below by rounding alone has been taken to the upper end.
        return np.where(values < self.low + self.period, values, self.low)

    # ---- the chain

    def bounds(self, encoded: Encoded, cuts: Floats) -> None:
        """Cells are wedges."""

    def draw(self, leaves: LeafCoordinates, state_cuts: Floats, rng: np.random.Generator) -> None:
        """Draw each row along its direction and across, and all lengths together."""
        known = ~np.isnan(leaves.encoded.start[:, 0])
        cos, sin = np.where(known, leaves.encoded.start.T / _START, [[1.0], [0.0]])
        (first, spread), (second, _) = leaves.conditional(0), leaves.conditional(1)
        along, across = _turned(leaves.Z[:, 0], leaves.Z[:, 1], cos, sin)
        to_along, to_across = _turned(first, second, cos, sin)
        for _ in range(N_TURNS):
            low = np.where(known, np.abs(across) / self.slope, -np.inf)
            along = leaves.between(to_along, spread, low, np.full(len(low), np.inf))
            reach = np.where(known, self.slope * along, np.inf)
            across = leaves.between(to_across, spread, -reach, reach)
        for k, new in enumerate(_turned(along, across, cos, -sin)):
            leaves.put(k, new)
        _draw_lengths(leaves, known, rng)

    # ---- predictions

    def seen(self, cell: float, cuts: Floats, recorded: bool, independent: bool) -> CellSays:
        """A wedge."""
        cos, sin = self.directions(np.array([cell]))[0]
        return CellSays(wedge=(np.array([[cos, sin], [-sin, cos]]), self.slope))

    def expect(self, centre: Floats, deviation: Floats, cuts: Floats) -> Floats:
        """Means of cosine and sine, (n, 2)."""
        x = 0.25 * (centre * centre).sum(axis=1) / deviation**2
        return np.asarray(centre * (math.sqrt(math.pi / 8.0) * (ive(0, x) + ive(1, x)) / deviation)[:, None])

    def summary(self, cells: Floats) -> Floats:
        """Cosine and sine."""
        return self.directions(cells)

    @property
    def n_summaries(self) -> int:
        """Two."""
        return 2

    def settle(self, means: Floats) -> Floats:
        """The direction of means: the circular mean."""
        return self.decode(means, np.zeros(0))

    # ---- words and tables

    def apart(self, gap: Floats, known: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """The length of the difference, whatever its direction."""
        return np.hypot(gap[:, :1], gap[:, 1:]), known * np.sqrt(variances[:1])

    def tally(self, cells: Floats) -> Floats:
        """Cosine and sine, and whether they are known."""
        return np.column_stack([np.nan_to_num(self.directions(cells)), ~np.isnan(cells)])

    def share(self, total: Floats) -> Floats:
        """Mean cosine and sine."""
        return np.asarray(total[:2] / total[2])

    def differ(self, left: Floats, right: Floats) -> str:
        """Circular means, and how much rows agree on them if that is little."""
        plain = replace(self, grid=0.0)
        return " against ".join(
            "all around" if math.hypot(*mean) < _SCATTERED else f"about {plain.settle(mean[None])[0]:.3g}"
            for mean in (left, right)
        )

    def says(self) -> str:
        """Describe in words what the column was taken for."""
        return f"circular, with period {self.period:.6g}"

    @property
    def heading(self) -> str:
        """Columns of one period are listed together."""
        return self.says()

    @classmethod
    def restored(cls, content: dict[str, Any]) -> Self:
        """Rebuild; a period is positive."""
        found = super().restored(content)
        if not (math.isfinite(found.period) and found.period > 0.0 and 0.0 <= found.grid <= found.period / 3.0):
            raise InputError(f"column {found.name!r} must have a positive period and at least three steps in it.")
        return found


# Rows whose mean direction is shorter than this have none worth naming.
_SCATTERED = 0.1


def period_of(name: str, values: Floats) -> float | None:
    """Return the period that a column's name and its values tell, or None."""
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
    for pattern, period in _NAMED:
        if re.search(rf"(?:^|[^a-z])(?:{pattern})(?:[^a-z]|$)", words):
            if period == 360.0 and _within(values, 2.0 * math.pi) and np.any(values != np.rint(values)):
                return 2.0 * math.pi
            return period if _within(values, period) else None
    return None


def _within(values: Floats, period: float) -> bool:
    """Whether values lie in one period, from 0 on or around 0."""
    low, high = float(values.min()), float(values.max())
    return (low >= 0.0 and high <= period) or (-0.5 * period <= low and high <= 0.5 * period)


def _step(known: Floats, period: float) -> float:
    """Return the step of the grid on which values lie, if some of them are equal; 0 if there is none.

    That is the least distance of two values if it divides the period and half of the points of that grid occur, as for
    eight directions in degrees; else the power of ten of which all are multiples.
    """
    distinct = np.unique(known)
    if len(distinct) == len(known):
        return 0.0
    least = float(np.diff(distinct).min())
    n_points = period / least
    multiples = np.abs(known / least - np.rint(known / least)) < 1e-6
    if abs(n_points - round(n_points)) < 1e-6 and multiples.all() and len(distinct) >= 0.5 * n_points:
        step = least
    else:
        step = shared_step(known)
    return step if step <= period / 3.0 else 0.0


def _turned(x: Floats, y: Floats, cos: Floats, sin: Floats) -> tuple[Floats, Floats]:
    """Coordinates along a direction and across it."""
    return x * cos + y * sin, y * cos - x * sin


def _draw_lengths(leaves: LeafCoordinates, known: Floats, rng: np.random.Generator) -> None:
    r"""Add a number to all lengths, and shift the whole tree with them along the mean direction d, by a slice step.

    With parents c and directions e fixed the density of a is ∝ Π (r_i + a) exp(−|z_i − c_i + a (e_i − d)|² / 2 σ_i²).
    Where directions differ little, lengths are large, and one row at a time could hardly change them.
    """
    Z, (first, spread), (second, _) = leaves.Z[known].copy(), leaves.conditional(0), leaves.conditional(1)
    length = np.hypot(*Z.T)
    e = Z / length[:, None]
    mean = e.mean(axis=0)
    size = float(np.hypot(*mean))
    if not size > 1e-9:
        return
    gap, tilt = Z - np.column_stack([first, second])[known], e - mean / size
    weight = 1.0 / spread[known] ** 2
    square, slope = float(weight @ (tilt * tilt).sum(axis=1)), float(weight @ (gap * tilt).sum(axis=1))
    lower = -float(length.min())

    def log_density(a: float) -> float:
        return float(np.log(length + a).sum()) - a * (slope + 0.5 * a * square) if a > lower else -math.inf

    width = 3.0 / math.sqrt(square + float((length**-2.0).sum()))
    a = slice_step(log_density, 0.0, log_density(0.0), rng, width, lower)[0]
    for k in range(2):
        leaves.shift(k, a * mean[k] / size)
        new = leaves.Z[:, k].copy()
        new[known] = Z[:, k] + a * e[:, k]
        leaves.put(k, new)


# ---- the probability of a wedge


@inline
def log_ray(x: float, y: float) -> float:
    """Log density at angle 0 of the direction of N((x, y), I)."""
    if x > -25.0:
        inside = math.log(math.exp(-0.5 * x * x - _HALF_LOG_TAU) + 0.5 * x * math.erfc(-x / math.sqrt(2.0)))
    else:
        far = x * x
        inside = -0.5 * far - _HALF_LOG_TAU - math.log(far) + math.log1p((-3.0 + (15.0 - 105.0 / far) / far) / far)
    return inside - 0.5 * y * y - _HALF_LOG_TAU


@inline
def log_wedge(x: float, y: float, half: float) -> float:
    """Log probability that the direction of N((x, y), I) is between −half and half, below π/2, by quadrature.

    The density has one peak on the circle. Gauss–Legendre is used on intervals that double away from its highest point
    within the wedge, the first as long as it changes little.
    """
    length = math.sqrt(x * x + y * y)
    if half * (1.0 + length) < 1e-3:
        return math.log(2.0 * half) + log_ray(x, y)
    peak = min(max(math.atan2(y, x), -half), half)
    along, across = x * math.cos(peak) + y * math.sin(peak), y * math.cos(peak) - x * math.sin(peak)
    top = log_ray(along, across)
    first, total = 1.0 / (1.0 + length + abs(along * across)), 0.0
    for side in (-1.0, 1.0):
        end = half - side * peak
        inner, step = 0.0, first
        while inner < end:
            outer = inner + step
            if outer > end or end - outer < 0.1 * step:
                outer = end
            middle, reach, value = 0.5 * (inner + outer), 0.5 * (outer - inner), 0.0
            for k in range(_NODES.size):
                angle = peak + side * (middle + reach * _NODES[k])
                cos, sin = math.cos(angle), math.sin(angle)
                value += _WEIGHTS[k] * math.exp(log_ray(x * cos + y * sin, y * cos - x * sin) - top)
            total += reach * value
            if reach * value < 1e-14 * total:
                break
            inner = outer
            step *= 2.0
    return top + math.log(total)
