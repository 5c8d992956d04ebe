"""A mixed table with draws of what is latent, and its gaps filled in: each row given all others, over draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.model import missing
from coaltree.model.columns import Columns
from coaltree.model.factorisations import DenseRoot
from coaltree.model.kinds import from_written
from coaltree.model.tables import MixedTable
from coaltree.places.host import make_host
from coaltree.posterior.draws import Draws
from coaltree.tree import Tree

# Simulations of all gaps per draw, if Φ is full.
N_REPEATS = 8


@dataclass(frozen=True, eq=False)
class Mixed(MixedTable):
    """A table with columns of several kinds, and draws of what is latent or missing."""

    draws: Draws

    @classmethod
    def of(cls, table: MixedTable, draws: Draws) -> Mixed:
        """Join both."""
        return cls(table.columns, table.values, table.notes, table.encoded, draws)

    def table(self, k: int) -> Floats:
        """Return all coordinates of the kth draw, (n, D)."""
        Z = self.encoded.X.copy()
        Z[np.isnan(Z)] = self.draws.entries[k]
        return Z

    def draw(self, k: int, completed: Floats) -> tuple[int, Floats, Floats]:
        """Return for the kth draw the tree's index in the posterior, coordinates (n, D), and cutpoints.

        If nothing is drawn, every tree has the coordinates of the table, `completed`.
        """
        if not len(self.draws.index):
            return k, completed, np.zeros(0)
        return int(self.draws.index[k]), self.table(k), self.draws.cuts[k]

    def impute(self) -> tuple[Floats, dict[int, Floats]]:
        """Cells with gaps filled in, (n, J), and for each unit column with gaps the probability of levels, (gaps, L).

        A number is filled in by its mean, rounded if its column is; a level by the likeliest.
        """
        filled, probability = self.values.copy(), {}
        for j, expected in self.expect().items():
            model = self.columns.models[j]
            filled[np.isnan(self.values[:, j]), j] = model.settle(expected)
            if model.n_levels:
                probability[j] = expected
        return filled, probability

    def expect(self) -> dict[int, Floats]:
        """For each column with gaps the means of its `summary` there: probabilities of levels, (gaps, L), or a number.

        Means over draws of a row's expectation given all coordinates of the others, and its own observed ones.
        """
        gaps, models = np.isnan(self.values), self.columns.models
        unknown, unseen = np.isnan(self.encoded.start), gaps.any(axis=1)
        sums: dict[int, Any] = {j: 0.0 for j in range(len(models)) if gaps[:, j].any()}
        rng = np.random.default_rng(0)
        covariances, leaf_noises = self.draws.covariances, self.draws.leaf_noises
        for k in range(len(self.draws.index)) if sums else ():
            m, Z, cuts = self.draw(k, self.encoded.X)
            phi, noise = covariances[m % len(covariances)], leaf_noises[m % len(leaf_noises)]
            centre, spread = _given_others(self.draws[m].tree, Z, np.asarray(noise, dtype=np.float64))
            if phi.ndim == 1:
                for j in sums:
                    here, own = self.columns.coordinates(j), gaps[:, j]
                    deviation = np.sqrt(spread[own] * phi[here.start])
                    sums[j] = sums[j] + models[j].expect(centre[own, here], deviation, cuts[self.columns.cuts_of(j)])
                continue
            # Under a full Φ by simulation.
            rows = np.where(unknown, np.nan, Z)[unseen]
            for _ in range(N_REPEATS):
                full = rows.copy()
                precision = DenseRoot.of(phi).precision
                full[np.isnan(rows)] = missing.impute_rows(rows, centre[unseen], spread[unseen], precision, rng).drawn
                cells = self.columns.decode(full, cuts)
                for j in sums:
                    sums[j] = sums[j] + models[j].summary(cells[gaps[unseen, j], j]) / N_REPEATS
        return {j: total / len(self.draws.index) for j, total in sums.items()}


def _given_others(tree: Tree, Z: Floats, leaf_noise: Floats) -> tuple[Floats, Floats]:
    """Mean (n, D) and variance over Φ (n,) of each row given the others."""
    host, n = make_host(tree, Z, leaf_noise), tree.n_leaves
    beyond = host.time[host.parent[:n]]
    return host.above_mean[:n], host.above_variance[:n] + beyond + leaf_noise


def restore_mixed(models: Any, notes: Any, values: Any, draws: Draws) -> Mixed | None:
    """Return the mixed table stored in a file; None if there is none."""
    if models is None:
        return None
    columns = Columns(tuple(map(from_written, models)))
    values = np.ascontiguousarray(values, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(columns.models):
        raise InputError(f"values must have {len(columns.models)} columns, got shape {values.shape}.")
    encoded = columns.encode(values)
    n_kept, n_drawn, n_cuts = len(draws.index), int(np.isnan(encoded.X).sum()), int(columns.first_cut[-1])
    if n_kept and (draws.entries.shape != (n_kept, n_drawn) or draws.cuts.shape != (n_kept, n_cuts)):
        raise InputError(f"entries must be ({n_kept}, {n_drawn}), got {draws.entries.shape}.")
    return Mixed(columns, values, tuple(map(str, notes)), encoded, draws)
