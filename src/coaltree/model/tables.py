"""A table as a chain takes it: plain numbers, or columns of any kind on the scale of their coordinates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.frame import as_frame
from coaltree.model.columns import Columns, Encoded
from coaltree.model.guess import Guessed, guess_columns
from coaltree.validation import check_data


@dataclass(frozen=True, eq=False)
class PlainTable:
    """Numbers in their own units, (n, d), NaN where missing."""

    X: Floats
    is_latent = False
    n_kept = 0
    usual_covariance = "spherical"

    def in_cells(self) -> PlainTable:
        """Return the same: values are exact."""
        return self


@dataclass(frozen=True, eq=False)
class MixedTable:
    """Columns of several kinds, cells, and these on the scale of the latent coordinates."""

    columns: Columns
    values: Floats  # (n, J): cells, levels by their places, NaN where missing
    notes: tuple[str, ...]
    encoded: Encoded

    @property
    def X(self) -> Floats:
        """What is observed exactly, (n, D); NaN where an entry is to be drawn."""
        return self.encoded.X

    @property
    def is_latent(self) -> bool:
        """Whether some coordinates are drawn though they are observed."""
        return self.columns.is_latent

    @property
    def n_kept(self) -> int:
        """Number of entries that are drawn, and kept with a draw."""
        return int(np.isnan(self.X).sum())

    @property
    def usual_covariance(self) -> str:
        """The covariance by default."""
        return self.columns.usual_covariance

    def in_cells(self) -> MixedTable:
        """Return the same with coordinates of rounded values drawn, whatever their grid."""
        if not any(model.exact for model in self.columns.models):
            return self
        columns = Columns(tuple(replace(model, exact=False) for model in self.columns.models))
        return MixedTable(columns, self.values, self.notes, columns.encode(self.values))


def make_table(X: Any, columns: Any = None) -> PlainTable | MixedTable:
    """Return a table with the types of its columns; without any, X is numbers."""
    if columns is None:
        return PlainTable(check_data(X, missing=True))
    guessed = columns if isinstance(columns, Guessed) else guess_columns(as_frame(X), columns)
    if len(guessed.values) < 2:
        raise InputError(f"X must have at least 2 rows to build a tree, got {len(guessed.values)}.")
    return MixedTable(guessed.columns, guessed.values, guessed.notes, guessed.columns.encode(guessed.values))
