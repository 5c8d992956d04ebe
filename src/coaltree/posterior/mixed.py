"""A mixed table with draws of its latent coordinates: what fills in its gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coaltree._arrays import Floats, Ints, Singles
from coaltree.errors import InputError
from coaltree.frame import as_frame
from coaltree.inference.augment import Augmentation
from coaltree.inference.learn import Chain
from coaltree.model.columns import KINDS, UNIT, ColumnModel, Columns, Encoded
from coaltree.model.guess import Guessed, guess_columns

# Bytes for latent coordinates of all draws; of large tables not every draw has them.
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

    def augmentation(self) -> Augmentation | None:
        """Return what a chain needs; None if every entry is seen exactly."""
        return Augmentation(self.columns, self.encoded) if np.isnan(self.encoded.X).any() else None

    def with_draws(self, chains: Sequence[Chain], n_trees: int) -> Mixed:
        """Return the same with the draws of chains, in the order of the posterior's trees."""
        if not np.isnan(self.encoded.X).any():
            return self
        draws = [draw for chain in chains for draw in (chain.draws or [chain.draw()])][-n_trees:]
        kept = [k for k, draw in enumerate(draws) if draw.latent is not None and draw.cuts is not None]
        if not kept:  # a single greedy tree, whose own draw was not kept
            draws[-1] = chains[-1].draw()
            kept = [len(draws) - 1]
        latent = np.array([draws[k].latent for k in kept])
        return replace(self, index=np.array(kept), latent=latent, cuts=np.array([draws[k].cuts for k in kept]))

    def table(self, k: int) -> Floats:
        """Return all coordinates of the kth draw, (n, D)."""
        Z = self.encoded.X.copy()
        Z[np.isnan(Z)] = self.latent[k]
        return Z

    def impute(self) -> tuple[Floats, dict[int, Floats]]:
        """Cells with gaps filled in, (n, J), and by unit column with gaps the probability of each level, (gaps, L).

        A number is filled in by its mean over draws, rounded where its column is; a level by the likeliest.
        """
        filled, probability = self.values.copy(), {}
        gaps = np.isnan(self.values)
        wanted = [j for j in range(len(self.columns.models)) if gaps[:, j].any()]
        sums = {j: np.zeros((int(gaps[:, j].sum()), max(self.columns.models[j].n_levels, 1))) for j in wanted}
        for k in range(len(self.latent)) if wanted else ():
            cells = self.columns.decode(self.table(k), self.cuts[k])
            for j in wanted:
                own = cells[gaps[:, j], j]
                if self.columns.models[j].kind in UNIT:
                    sums[j][np.arange(len(own)), own.astype(np.int64)] += 1.0 / len(self.latent)
                else:
                    sums[j][:, 0] += own / len(self.latent)
        for j in wanted:
            model = self.columns.models[j]
            if model.kind in UNIT:
                probability[j] = sums[j]
                filled[gaps[:, j], j] = sums[j].argmax(axis=1)
            else:
                filled[gaps[:, j], j] = settled(self.columns, j, sums[j][:, 0])
        return filled, probability


def settled(columns: Columns, j: int, means: Floats) -> Floats:
    """Means of cells as cells of their column: whole where it counts, on its grid where it is rounded."""
    model = columns.models[j]
    if model.kind == "count":
        return np.rint(means)
    return model.backward((means - model.centre) / model.scale) if model.kind == "rounded" else means


def as_mixed(X: Any, columns: Any) -> Mixed:
    """Return a table with what its columns are taken for."""
    guessed = columns if isinstance(columns, Guessed) else guess_columns(as_frame(X), columns)
    if len(guessed.values) < 2:
        raise InputError(f"X must have at least 2 rows to build a tree, got {len(guessed.values)}.")
    return Mixed(guessed.columns, guessed.values, guessed.notes, guessed.columns.encode(guessed.values))


def sparing(n_entries: int, n_draws: int) -> int:
    """Return of how many draws one keeps its latent coordinates, so that all of them fit into MOST_BYTES."""
    return max(1, -(-4 * n_entries * n_draws // MOST_BYTES))


def restore_mixed(models: Any, notes: Any, arrays: dict[str, Any]) -> Mixed | None:
    """Return what a file holds of a mixed table; None if it holds none."""
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
