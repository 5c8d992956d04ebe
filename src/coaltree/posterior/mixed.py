"""A mixed table with draws of its latent coordinates: what fills in its gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from coaltree._arrays import Floats, Ints, Singles
from coaltree.errors import InputError
from coaltree.frame import as_frame
from coaltree.inference.augment import Augmentation
from coaltree.inference.learn import Chain
from coaltree.model import missing
from coaltree.model.columns import CATEGORICAL, COUNT, KINDS, SKEWED, UNIT, ColumnModel, Columns, Encoded
from coaltree.model.guess import Guessed, guess_columns
from coaltree.model.roots import DenseRoot
from coaltree.model.truncated import largest_probabilities
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.places import make_sites
from coaltree.tree import Tree

# Bytes for latent coordinates of all draws; of large tables not every draw has them.
MOST_BYTES = 300_000_000
# Simulations of all gaps, a draw, where Φ is full.
N_REPEATS = 8
# Quantiles of a standard normal, and their weights: means of what is monotone in a coordinate.
NORMAL_POINTS: Floats = ndtri((np.arange(100) + 0.5) / 100)
NORMAL_WEIGHTS: Floats = np.full(100, 0.01)


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

    def draw(self, k: int, completed: Floats) -> tuple[int, Floats, Floats]:
        """Return of the kth draw the tree's place in the posterior, coordinates (n, D), and cutpoints.

        Where nothing is drawn every tree has the coordinates of the table, `completed`.
        """
        return (int(self.index[k]), self.table(k), self.cuts[k]) if len(self.index) else (k, completed, np.zeros(0))

    def impute(
        self, posterior: TreePosterior, covariances: Floats, leaf_noises: Floats
    ) -> tuple[Floats, dict[int, Floats]]:
        """Cells with gaps filled in, (n, J), and by unit column with gaps the probability of each level, (gaps, L).

        A number is filled in by its mean, rounded where its column is; a level by the likeliest.
        """
        filled, probability = self.values.copy(), {}
        for j, expected in self.expect(posterior, covariances, leaf_noises).items():
            gap = np.isnan(self.values[:, j])
            if self.columns.models[j].kind in UNIT:
                probability[j] = expected
                filled[gap, j] = expected.argmax(axis=1)
            else:
                filled[gap, j] = settled(self.columns, j, expected[:, 0])
        return filled, probability

    def expect(self, posterior: TreePosterior, covariances: Floats, leaf_noises: Floats) -> dict[int, Floats]:
        """By column with gaps: probabilities of levels at them, (gaps, L), or means of numbers, (gaps, 1).

        Means over draws of what is expected of a row given all coordinates of the others, and its own that are seen.
        """
        gaps, models = np.isnan(self.values), self.columns.models
        unknown, unseen = np.isnan(self.encoded.start), gaps.any(axis=1)
        sums: dict[int, Any] = {j: 0.0 for j in range(len(models)) if gaps[:, j].any()}
        rng = np.random.default_rng(0)
        for k in range(len(self.latent)) if sums else ():
            m, Z, cuts = self.draw(k, self.encoded.X)
            phi, noise = covariances[m % len(covariances)], leaf_noises[m % len(leaf_noises)]
            centre, spread = _given_others(posterior[m], Z, np.asarray(noise, dtype=np.float64))
            if phi.ndim == 1:
                for j in sums:
                    here, own = self.columns.coordinates(j), gaps[:, j]
                    deviation = np.sqrt(spread[own] * phi[here.start])
                    sums[j] = sums[j] + _expected(
                        models[j], centre[own, here], deviation, cuts[self.columns.cuts_of(j)]
                    )
                continue
            # Under a full Φ by simulation.
            rows = np.where(unknown, np.nan, Z)[unseen]
            for _ in range(N_REPEATS):
                full = rows.copy()
                precision = DenseRoot.of(phi).precision
                full[np.isnan(rows)] = missing.impute_rows(rows, centre[unseen], spread[unseen], precision, rng).drawn
                cells = self.columns.decode(full, cuts)
                for j in sums:
                    own = cells[gaps[unseen, j], j]
                    levels = np.arange(max(models[j].n_levels, 1))
                    found = own[:, None] == levels if models[j].n_levels else own[:, None]
                    sums[j] = sums[j] + found / N_REPEATS
        return {j: total / len(self.latent) for j, total in sums.items()}


def _given_others(tree: Tree, Z: Floats, leaf_noise: Floats) -> tuple[Floats, Floats]:
    """Mean (n, D) and variance over Φ (n,) of each row given the others."""
    sites, n = make_sites(tree, Z, leaf_noise), tree.n_leaves
    return sites.above_mean[:n], sites.above[:n] + leaf_noise


def _expected(model: ColumnModel, centre: Floats, deviation: Floats, cuts: Floats) -> Floats:
    """Probabilities of levels, (n, L), or the mean of a number, (n, 1), of coordinates N(centre, deviation² I)."""
    if model.kind == CATEGORICAL:
        found = np.empty((len(centre), model.n_levels))
        largest_probabilities(centre @ model.corners.T, deviation, found)
        return np.asarray(found / found.sum(axis=1, keepdims=True))
    if model.n_levels:
        below = ndtr((cuts - centre) / deviation[:, None])
        return np.asarray(np.diff(below, axis=1, prepend=0.0, append=1.0), dtype=np.float64)
    if model.kind in (COUNT, SKEWED):
        points = (centre + deviation[:, None] * NORMAL_POINTS).ravel()
        return model.backward(points).reshape(len(centre), -1) @ NORMAL_WEIGHTS[:, None]
    return np.asarray(model.centre + model.scale * centre, dtype=np.float64)


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
