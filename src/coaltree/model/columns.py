r"""Models of columns: how the contents of a cell follow from latent coordinates that diffuse on the tree.

| kind | latent coordinates | what is observed |
|---|---|---|
| `continuous` | 1 | the value itself, standardised |
| `skewed` | 1 | the value through a monotone, piecewise linear map onto normal scores |
| `rounded` | 1 | the nearest multiple of a step |
| `count` | 1 | ⌊e^z⌋ |
| `binary` | 1 | whether z > 0 |
| `ordinal` | 1 | the interval between cutpoints 0 = κ₁ < κ₂ < … that z lies in; L levels |
| `categorical` | L − 1 | the largest of the L utilities V z, V the corners of a simplex |

Observations of the last three do not change if z and its cutpoints are multiplied by a number, so their coordinates
have variance 1 per unit of time: `unit` columns. The others have a scale, and their variance is learned. The root of a
tree has a flat prior, so locations are free and the first cutpoint is 0; gaps between cutpoints are exponential
with mean 4/L. Latent coordinates have leaf noise like all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import helmert
from scipy.special import ndtri

from coaltree._arrays import Bools, Floats, Ints
from coaltree.errors import InputError
from coaltree.frame import Column, Frame

CONTINUOUS, SKEWED, ROUNDED, COUNT = "continuous", "skewed", "rounded", "count"
BINARY, ORDINAL, CATEGORICAL = "binary", "ordinal", "categorical"
KINDS = (CONTINUOUS, SKEWED, ROUNDED, COUNT, BINARY, ORDINAL, CATEGORICAL)
UNIT = (BINARY, ORDINAL, CATEGORICAL)
# Knots of the map onto normal scores.
MOST_KNOTS = 33
# How far out a category starts along its corner.
_START = 1.5


def mean_gap(n_levels: int) -> float:
    """Prior mean of the distance between two cutpoints: all levels together span about the range of the rows."""
    return 4.0 / n_levels


@dataclass(frozen=True)
class ColumnModel:
    """One column and how its cells come from its latent coordinates."""

    name: str
    kind: str
    levels: tuple[str, ...] = ()  # of unit columns; numbers as strings
    numbers: tuple[float, ...] = ()  # the levels, where they are numbers
    centre: float = 0.0  # of standardised columns
    scale: float = 1.0
    step: float = 0.0  # of a rounded column, in its own units
    origin: float = 0.0  # one of its values
    exact: bool = False  # of a rounded column: its grid is so fine that values are taken as they are
    grid: float = 0.0  # of a number with any other model: the step of which all values are multiples, if some repeat
    knots: tuple[tuple[float, float], ...] = ()  # of a skewed column: value and normal score
    type: str = field(default="number")

    @property
    def n_levels(self) -> int:
        """Number of levels; 0 for a column with a scale."""
        return len(self.levels) if self.kind in UNIT else 0

    @property
    def width(self) -> int:
        """Number of latent coordinates."""
        return self.n_levels - 1 if self.kind == CATEGORICAL else 1

    @property
    def n_cuts(self) -> int:
        """Number of cutpoints, including the first, 0."""
        return self.n_levels - 1 if self.kind in (BINARY, ORDINAL) else 0

    @property
    def is_drawn(self) -> bool:
        """Whether its coordinates are not observed exactly."""
        return self.kind not in (CONTINUOUS, SKEWED) and not self.exact

    @property
    def cell(self) -> float:
        """Width of the interval one value represents, in the column's units; 0 for levels and values on no grid."""
        return 1.0 if self.kind == COUNT else self.step or self.grid

    @cached_property
    def corners(self) -> Floats:
        """Corners of the simplex, (L, L − 1): utilities of levels are its product with the coordinates."""
        return np.ascontiguousarray(helmert(self.n_levels).T)

    def forward(self, values: Any) -> Floats:
        """Values on the scale of the latent coordinate, of a column with a scale."""
        values = np.asarray(values, dtype=np.float64)
        if self.kind == COUNT:
            with np.errstate(divide="ignore", invalid="ignore"):
                values = np.log(values)
        elif self.kind == SKEWED:
            values = _piecewise(values, *np.array(self.knots).T)
        out: Floats = (values - self.centre) / self.scale
        return out

    def log_slope(self, values: Floats) -> Floats:
        """log |d forward / d value|, for densities in the units of the column."""
        slope = np.full(len(values), -math.log(self.scale))
        if self.kind == SKEWED:
            x, z = np.array(self.knots).T
            piece = np.clip(np.searchsorted(x, values, side="right") - 1, 0, len(x) - 2)
            slope += np.log(np.diff(z) / np.diff(x))[piece]
        return slope

    def backward(self, latent: Floats) -> Floats:
        """Invert `forward`, and round if the column does."""
        values = self.centre + self.scale * latent
        if self.kind == COUNT:
            return np.asarray(np.floor(np.exp(np.minimum(values, 700.0))), dtype=np.float64)
        if self.kind == ROUNDED:
            return np.asarray(self.origin + self.step * np.rint((values - self.origin) / self.step), dtype=np.float64)
        if self.kind == SKEWED:
            values = _piecewise(values, *np.array(self.knots).T[::-1])
        return np.asarray(values, dtype=np.float64)

    def bounds(self, values: Floats) -> tuple[Floats, Floats]:
        """Interval of the latent coordinate for each value of a column with a scale and a grid; all of R where NaN."""
        if self.kind == COUNT:
            low, high = self.forward(values), self.forward(values + 1.0)
        else:
            low, high = self.forward(values - 0.5 * self.cell), self.forward(values + 0.5 * self.cell)
        gap = np.isnan(values)
        return np.where(gap, -np.inf, low), np.where(gap, np.inf, high)

    def level_of(self, latent: Floats, cuts: Floats) -> Ints:
        """Level of each row, from its coordinates (n, width) and the column's cutpoints."""
        if self.kind == CATEGORICAL:
            return np.asarray(np.argmax(latent @ self.corners.T, axis=1), dtype=np.int64)
        return np.asarray(np.searchsorted(cuts, latent[:, 0], side="right"), dtype=np.int64)

    def says(self) -> str:
        """Describe in words what it was taken for."""
        told = {
            CONTINUOUS: "continuous",
            SKEWED: "skewed, through normal scores",
            ROUNDED: f"rounded to {self.step:g}",
            COUNT: "a count",
            BINARY: f"binary ({' or '.join(self.levels)})",
            ORDINAL: f"ordinal ({', '.join(self.levels[:4])}{', …' if self.n_levels > 4 else ''})",
            CATEGORICAL: f"categorical, {self.n_levels} levels",
        }
        return told[self.kind]


class Encoded(NamedTuple):
    """A table on the scale of the latent coordinates."""

    X: Floats  # (n, D): what is observed exactly, NaN where an entry is to be drawn
    start: Floats  # (n, D): where drawn entries begin, NaN where nothing is known
    lower: Floats  # (n, D): bounds of entries of rounded columns and counts, ∓∞ elsewhere
    upper: Floats
    codes: Ints  # (n, J): level of unit columns, −1 where missing and for other columns


@dataclass(frozen=True, eq=False)
class Columns:
    """The models of all columns of a table, side by side."""

    models: tuple[ColumnModel, ...]

    @cached_property
    def first(self) -> Ints:
        """Where the coordinates of each column begin, (J + 1,)."""
        return np.cumsum([0, *(model.width for model in self.models)])

    @cached_property
    def first_cut(self) -> Ints:
        """Where the cutpoints of each column begin, (J + 1,)."""
        return np.cumsum([0, *(model.n_cuts for model in self.models)])

    @property
    def d(self) -> int:
        """Number of latent coordinates, D."""
        return int(self.first[-1])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(model.name for model in self.models)

    @cached_property
    def unit(self) -> Bools:
        """Which coordinates have variance 1, (D,)."""
        return np.repeat([model.kind in UNIT for model in self.models], np.diff(self.first))

    @property
    def usual_covariance(self) -> str:
        """The form of Φ unless another is asked for: columns of levels have a scale each, so numbers beside them do."""
        return "diagonal" if self.unit.any() else "spherical"

    @property
    def is_latent(self) -> bool:
        """Whether any coordinate has to be drawn where its cell is known."""
        return any(model.is_drawn for model in self.models)

    def coordinates(self, j: int) -> slice:
        """Coordinates of column j."""
        return slice(int(self.first[j]), int(self.first[j + 1]))

    def cuts_of(self, j: int) -> slice:
        """Cutpoints of column j among all."""
        return slice(int(self.first_cut[j]), int(self.first_cut[j + 1]))

    def encode(self, values: Floats) -> Encoded:
        """Map a table (n, J), of numbers and of levels by their indices, to the latent scale."""
        n = len(values)
        X, start = np.full((n, self.d), np.nan), np.full((n, self.d), np.nan)
        lower, upper = np.full((n, self.d), -np.inf), np.full((n, self.d), np.inf)
        codes = np.full((n, len(self.models)), -1, dtype=np.int64)
        for j, model in enumerate(self.models):
            here, column = self.coordinates(j), values[:, j]
            known = ~np.isnan(column)
            if model.kind in UNIT:
                codes[known, j] = column[known].astype(np.int64)
                corners = _starts(model, codes[known, j])
                start[known, here] = corners
            elif model.is_drawn:
                low, high = model.bounds(column)
                lower[:, here.start], upper[:, here.start] = low, high
                with np.errstate(invalid="ignore"):
                    middle = np.where(np.isinf(low), high - 0.5 / model.scale, 0.5 * (low + high))
                start[known, here.start] = middle[known]
            else:
                X[:, here.start] = start[:, here.start] = model.forward(column)
        return Encoded(X, start, lower, upper, codes)

    def first_cuts(self, codes: Ints) -> Floats:
        """Initial cutpoints: normal scores of the shares of the levels, shifted to start at 0, (C,)."""
        cuts = np.zeros(int(self.first_cut[-1]))
        for j, model in enumerate(self.models):
            if model.n_cuts:
                scores = _scores(codes[codes[:, j] >= 0, j], model.n_levels)
                cuts[self.cuts_of(j)] = scores - scores[0]
        return cuts

    def decode(self, latent: Floats, cuts: Floats) -> Floats:
        """From coordinates (n, D) to cells (n, J): numbers, and levels by their indices."""
        out = np.empty((len(latent), len(self.models)))
        for j, model in enumerate(self.models):
            here = latent[:, self.coordinates(j)]
            out[:, j] = model.level_of(here, cuts[self.cuts_of(j)]) if model.n_levels else model.backward(here[:, 0])
        return out

    def log_units(self, values: Floats, recorded: bool = True) -> Floats:
        """What to add to the log density of observed rows, (n,), so that all numbers are in their own units.

        For values observed exactly log |dz/dx|, and minus the log of the width for cells. With `recorded`, values on a
        grid are treated as cells whatever their model, so that models of a column can be compared.
        """
        total = np.zeros(len(values))
        for j, model in enumerate(self.models):
            if model.cell and (model.is_drawn or recorded):
                own = np.full(len(values), -math.log(model.cell))
            elif model.is_drawn:
                continue
            else:
                own = model.log_slope(values[:, j])
            total += np.where(np.isnan(values[:, j]), 0.0, own)
        return total

    def matrix_of(self, frame: Frame) -> Floats:
        """Return the cells of a table that has these columns, (n, J); levels by their indices in the models."""
        named = {column.name: column for column in frame.columns}
        lacking = [name for name in self.names if name not in named]
        if lacking:
            raise InputError(f"X lacks the column(s) {', '.join(map(repr, lacking[:6]))} of the fit. Add them, empty.")
        return np.array([cells_of(model, named[model.name]) for model in self.models]).T.reshape(-1, len(self.models))


def cells_of(model: ColumnModel, column: Column) -> Floats:
    """Values of a column in the form the model uses; a level that was not in the fit is refused."""
    if model.kind not in UNIT:
        if column.levels:
            if column.type != "boolean":
                raise InputError(
                    f"Column {model.name!r} must be numbers, as in the fit, got text such as {column.levels[0]!r}."
                )
        elif np.isinf(column.values).any():
            raise InputError(f"Column {model.name!r} holds infinite values. Correct them, or leave them empty.")
        if model.kind == COUNT and np.any(column.known < 0):
            raise InputError(f"Column {model.name!r} is a count, but has negative values. Name another kind for it.")
        return column.values
    if model.numbers and not column.levels:
        index: dict[Any, float] = {number: float(code) for code, number in enumerate(model.numbers)}
        texts: list[Any] = column.values.tolist()
    else:
        index = {level: float(code) for code, level in enumerate(model.levels)}
        texts = [column.cell(i) for i in range(len(column.values))]
    codes = np.array([index.get(text, np.nan) for text in texts], dtype=np.float64)
    new = np.flatnonzero(np.isnan(codes) & ~np.isnan(column.values))
    if len(new):
        raise InputError(
            f"Column {model.name!r} has the level {column.cell(int(new[0]))!r} (row {new[0] + 1}), which the fit has "
            f"not seen; its levels are {', '.join(map(repr, model.levels[:8]))}{', …' if model.n_levels > 8 else ''}. "
            "Leave such cells empty, or fit again with them."
        )
    return codes


def _piecewise(values: Floats, x: Floats, z: Floats) -> Floats:
    """Linear between knots (x, z), extrapolated beyond them from the first and the last piece."""
    inside = np.interp(values, x, z)
    below, above = (z[1] - z[0]) / (x[1] - x[0]), (z[-1] - z[-2]) / (x[-1] - x[-2])
    inside = np.where(values < x[0], z[0] + below * (values - x[0]), inside)
    return np.where(values > x[-1], z[-1] + above * (values - x[-1]), inside)


def _scores(codes: Ints, n_levels: int) -> Floats:
    """Normal scores of the boundaries between levels."""
    counts = np.bincount(codes, minlength=n_levels) + 0.5
    return np.asarray(ndtri(np.cumsum(counts)[:-1] / counts.sum()))


def _starts(model: ColumnModel, codes: Ints) -> Floats:
    """Initial coordinates: midpoints of levels on the normal scale, with the first cutpoint at 0; or corners."""
    if model.kind == CATEGORICAL:
        return _START * model.corners[codes]
    scores = _scores(codes, model.n_levels)
    edges = np.concatenate([[-np.inf], scores, [np.inf]])
    density = np.exp(-0.5 * edges**2) / math.sqrt(2.0 * math.pi)
    counts = np.bincount(codes, minlength=model.n_levels) + 0.5
    middles = (density[:-1] - density[1:]) / (counts / counts.sum()) - scores[0]
    return np.asarray(middles[codes][:, None], dtype=np.float64)


def fitted(model: ColumnModel, values: Floats, standardise: bool = True) -> ColumnModel:
    """Return the model of a column with what it needs from the table's values: centre, scale, step, knots."""
    known = values[~np.isnan(values)]
    if model.kind == ROUNDED:
        model = replace(model, step=model.step or grid_step(known) or 1.0, origin=float(known[0]))
    elif model.kind not in UNIT:
        model = replace(model, grid=shared_step(known))
    if model.kind == SKEWED:
        model = replace(model, knots=_knots(known))
    if model.kind in UNIT or (not standardise and model.kind != SKEWED):
        return model
    seen = np.log(known + 0.5) if model.kind == COUNT else model.forward(known)
    spread = float(seen.std())
    return replace(model, centre=float(seen.mean()), scale=spread if spread > 0.0 else 1.0)


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
