"""A mixed table with the types of its columns, and draws of what is latent or missing in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coaltree._arrays import Floats, Ints, Singles
from coaltree.errors import InputError
from coaltree.frame import as_frame
from coaltree.model.columns import KINDS, UNIT, ColumnModel, Columns, Encoded
from coaltree.model.guess import Guessed, guess_columns

# Bytes for latent coordinates of all draws; with large tables not every draw has them.
MOST_BYTES = 300_000_000


@dataclass(frozen=True, eq=False)
class Mixed:
    """Columns, the table on the latent scale, and draws of what is latent or missing."""

    columns: Columns
    values: Floats  # (n, J): cells, levels by their places, NaN where missing
    notes: tuple[str, ...]
    encoded: Encoded
    index: Ints = field(
        default_factory=lambda: np.empty(0, dtype=np.int64)
    )  # (K,): trees of the posterior whose draws are here
    # (K, entries): the NaN of encoded.X
    latent: Singles = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))
    cuts: Floats = field(default_factory=lambda: np.empty((0, 0)))  # (K, C)

    def in_cells(self) -> Mixed:
        """Return the same with coordinates of rounded values drawn, whatever their grid."""
        if not any(model.exact for model in self.columns.models):
            return self
        columns = Columns(tuple(replace(model, exact=False) for model in self.columns.models))
        return Mixed(columns, self.values, self.notes, columns.encode(self.values))

    def with_draws(self, latent: Sequence[Singles | None], cuts: Sequence[Floats | None]) -> Mixed:
        """Return the same with what is latent in the posterior's trees; None where it was not kept."""
        kept = [k for k, drawn in enumerate(latent) if drawn is not None and cuts[k] is not None]
        return replace(
            self,
            index=np.array(kept),
            latent=np.array([latent[k] for k in kept]),
            cuts=np.array([cuts[k] for k in kept]),
        )

    def table(self, k: int) -> Floats:
        """Return all coordinates of the kth draw, (n, D)."""
        Z = self.encoded.X.copy()
        Z[np.isnan(Z)] = self.latent[k]
        return Z

    def draw(self, k: int, completed: Floats) -> tuple[int, Floats, Floats]:
        """Return for the kth draw the tree's index in the posterior, coordinates (n, D), and cutpoints.

        If nothing is drawn, every tree has the coordinates of the table, `completed`.
        """
        return (int(self.index[k]), self.table(k), self.cuts[k]) if len(self.index) else (k, completed, np.zeros(0))


def as_mixed(X: Any, columns: Any) -> Mixed:
    """Return a table with the types of its columns."""
    guessed = columns if isinstance(columns, Guessed) else guess_columns(as_frame(X), columns)
    if len(guessed.values) < 2:
        raise InputError(f"X must have at least 2 rows to build a tree, got {len(guessed.values)}.")
    return Mixed(guessed.columns, guessed.values, guessed.notes, guessed.columns.encode(guessed.values))


def sparing(n_entries: int, n_draws: int) -> int:
    """Return k such that keeping latent coordinates of one draw in k fits into MOST_BYTES."""
    return max(1, -(-4 * n_entries * n_draws // MOST_BYTES))


def restore_mixed(models: Any, notes: Any, arrays: dict[str, Any]) -> Mixed | None:
    """Return the mixed table stored in a file; None if there is none."""
    if models is None:
        return None
    columns = Columns(tuple(map(_restored, models)))
    values = np.ascontiguousarray(arrays["values"], dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(columns.models):
        raise InputError(f"mixed/values must have {len(columns.models)} columns, got shape {values.shape}.")
    encoded = columns.encode(values)
    index, latent, cuts = arrays["index"].astype(np.int64), arrays["latent"], arrays["cuts"]
    n_drawn, n_cuts = int(np.isnan(encoded.X).sum()), int(columns.first_cut[-1])
    if len(index) and (latent.shape != (len(index), n_drawn) or cuts.shape != (len(index), n_cuts)):
        raise InputError(f"mixed/latent must be ({len(index)}, {n_drawn}), got {latent.shape}.")
    return Mixed(columns, values, tuple(map(str, notes)), encoded, index, latent.astype(np.float32), cuts)


def _restored(content: Any) -> ColumnModel:
    """A column's model from its JSON; lists were tuples."""
    kept: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
    kept["knots"] = tuple(tuple(knot) for knot in kept.get("knots", ()))
    model = ColumnModel(**kept)
    if model.kind not in KINDS or (model.kind in UNIT and model.n_levels < 2):
        raise InputError(f"column {model.name!r} must be of a known kind, got {model.kind!r}.")
    return model
