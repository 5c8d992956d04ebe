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
| `circular` | 2 | the direction of z |

Observations of the last four do not change if z and its cutpoints are multiplied by a number, so their coordinates
have variance 1 per unit of time: `unit` columns. The others have a scale, and their variance is learned. The root of a
tree has a flat prior, so locations are free and the first cutpoint is 0; gaps between cutpoints are exponential
with mean 4/L. Latent coordinates have leaf noise like all others. Each kind is a class of `coaltree.model.kinds`; here
they stand side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from coaltree._arrays import Bools, Floats, Ints
from coaltree.errors import InputError
from coaltree.frame import Frame
from coaltree.model.kinds import ColumnKind
from coaltree.model.kinds.base import Encoded


@dataclass(frozen=True, eq=False)
class Columns:
    """The models of all columns of a table, side by side."""

    models: tuple[ColumnKind, ...]

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
        return np.repeat([model.unit for model in self.models], np.diff(self.first))

    @property
    def uncorrelated(self) -> list[str]:
        """Names of columns that no full covariance may have."""
        return [model.name for model in self.models if not model.correlates]

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
        encoded = Encoded.silent(len(values), self.d, len(self.models))
        for j, model in enumerate(self.models):
            for whole, own in zip(self.part(encoded, j), model.encode(values[:, j]), strict=True):
                whole[:] = own
        return encoded

    def part(self, encoded: Encoded, j: int) -> Encoded:
        """View of the jth column alone."""
        here = self.coordinates(j)
        X, start, lower, upper = (each[:, here] for each in encoded[:4])
        return Encoded(X, start, lower, upper, encoded.codes[:, j : j + 1])

    def first_cuts(self, codes: Ints) -> Floats:
        """Initial cutpoints: normal scores of the shares of the levels, shifted to start at 0, (C,)."""
        return np.concatenate([np.zeros(0), *(model.first_cuts(codes[:, j]) for j, model in enumerate(self.models))])

    def decode(self, latent: Floats, cuts: Floats) -> Floats:
        """From coordinates (n, D) to cells (n, J): numbers, and levels by their indices."""
        out = np.empty((len(latent), len(self.models)))
        for j, model in enumerate(self.models):
            out[:, j] = model.decode(latent[:, self.coordinates(j)], cuts[self.cuts_of(j)])
        return out

    def log_units(self, values: Floats, recorded: bool = True) -> Floats:
        """What to add to the log density of observed rows, (n,), so that all numbers are in their own units.

        With `recorded`, values on a grid are treated as cells whatever their model, so that models of a column can be
        compared.
        """
        total = np.zeros(len(values))
        for j, model in enumerate(self.models):
            own = model.log_units(values[:, j], recorded)
            total += np.where(np.isnan(values[:, j]), 0.0, own)
        return total

    def matrix_of(self, frame: Frame) -> Floats:
        """Return the cells of a table that has these columns, (n, J); levels by their indices in the models."""
        named = {column.name: column for column in frame.columns}
        lacking = [name for name in self.names if name not in named]
        if lacking:
            raise InputError(f"X lacks the column(s) {', '.join(map(repr, lacking[:6]))} of the fit. Add them, empty.")
        return np.array([model.read(named[model.name]) for model in self.models]).T.reshape(-1, len(self.models))
