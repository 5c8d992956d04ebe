"""Predictions for a mixed table: its gaps, new rows with their density, cluster and place, and leave-one-out density.

Gaps are filled in, and new rows located, by means over draws of the latent coordinates.

Leave-one-out density is estimated as in `inference.predictive.loo`, but a draw has coordinates and cutpoints too. What
is observed of row i has, given those of the other rows, the density

    f_i = p(x_i | T₋ᵢ, Z₋ᵢ, Φ, κ, s),

with its place in the tree and its own coordinates summed out (`inference.predictive.cells`), so that
p(x_i | X₋ᵢ) = 1 / E[1 / f_i] as for numbers. Gaps are summed out as well, and every row can be held out.

Densities are of numbers in their own units and of levels, so models of the same table can be compared whatever column
types they assume. A model that treats values on a grid as exact could have an unbounded density there. For such a model
the probability g_i of the whole cell is estimated with the same weights, E[g_i / f_i] / E[1 / f_i], and divided by the
cell's width. Where the likelihood was raised to a power (`learning.working`), so is that in f_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from scipy.special import logsumexp, ndtr, ndtri

from coaltree._arrays import Floats, Ints, Words
from coaltree.errors import InputError
from coaltree.inference.predictive.cells import Observation, observe
from coaltree.inference.predictive.locate import Given, Places
from coaltree.inference.predictive.loo import LeaveOneOut, smooth
from coaltree.inference.predictive.mass import Sites, make_sites
from coaltree.inference.predictive.predict import Attachment, pick, share_labels
from coaltree.inference.predictive.row_places import draw_row, locate_row
from coaltree.model import missing
from coaltree.model.columns import CATEGORICAL, COUNT, KINDS, SKEWED, UNIT, ColumnModel, Columns
from coaltree.model.factorisations import DenseRoot
from coaltree.model.tables import MixedTable
from coaltree.model.truncated import largest_probabilities
from coaltree.posterior.draws import Draws
from coaltree.posterior.ensemble import TreePosterior
from coaltree.randomness import Stream, make_streams
from coaltree.tree import Tree

# Simulations of all gaps per draw, if Φ is full.
N_REPEATS = 8
# Quantiles of a standard normal, and their weights: for means of monotone functions of a coordinate.
NORMAL_POINTS: Floats = ndtri((np.arange(100) + 0.5) / 100)
NORMAL_WEIGHTS: Floats = np.full(100, 0.01)


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
            gap = np.isnan(self.values[:, j])
            if self.columns.models[j].kind in UNIT:
                probability[j] = expected
                filled[gap, j] = expected.argmax(axis=1)
            else:
                filled[gap, j] = settled(self.columns, j, expected[:, 0])
        return filled, probability

    def expect(self) -> dict[int, Floats]:
        """For each column with gaps: probabilities of levels there, (gaps, L), or means of numbers, (gaps, 1).

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
        return {j: total / len(self.draws.index) for j, total in sums.items()}


def _given_others(tree: Tree, Z: Floats, leaf_noise: Floats) -> tuple[Floats, Floats]:
    """Mean (n, D) and variance over Φ (n,) of each row given the others."""
    sites, n = make_sites(tree, Z, leaf_noise), tree.n_leaves
    return sites.above_mean[:n], sites.above[:n] + leaf_noise


def _expected(model: ColumnModel, centre: Floats, deviation: Floats, cuts: Floats) -> Floats:
    """Probabilities of levels, (n, L), or the mean of a number, (n, 1), for coordinates N(centre, deviation² I)."""
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
    """Means of cells as cells of their column: whole numbers for counts, on the grid for rounded columns."""
    model = columns.models[j]
    if model.kind == "count":
        return np.rint(means)
    return model.backward((means - model.centre) / model.scale) if model.kind == "rounded" else means


def restore_mixed(models: Any, notes: Any, values: Any, draws: Draws) -> Mixed | None:
    """Return the mixed table stored in a file; None if there is none."""
    if models is None:
        return None
    columns = Columns(tuple(map(_restored, models)))
    values = np.ascontiguousarray(values, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(columns.models):
        raise InputError(f"values must have {len(columns.models)} columns, got shape {values.shape}.")
    encoded = columns.encode(values)
    n_kept, n_drawn, n_cuts = len(draws.index), int(np.isnan(encoded.X).sum()), int(columns.first_cut[-1])
    if n_kept and (draws.entries.shape != (n_kept, n_drawn) or draws.cuts.shape != (n_kept, n_cuts)):
        raise InputError(f"entries must be ({n_kept}, {n_drawn}), got {draws.entries.shape}.")
    return Mixed(columns, values, tuple(map(str, notes)), encoded, draws)


def _restored(content: Any) -> ColumnModel:
    """A column's model from its JSON; lists were tuples."""
    kept: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
    kept["knots"] = tuple(tuple(knot) for knot in kept.get("knots", ()))
    model = ColumnModel(**kept)
    if model.kind not in KINDS or (model.kind in UNIT and model.n_levels < 2):
        raise InputError(f"column {model.name!r} must be of a known kind, got {model.kind!r}.")
    return model


# Trees in which new rows are placed: for small tables, and for those with more than MANY rows.
MOST_TREES, FEW_TREES, MANY = 50, 10, 2000
# Draws of a row's coordinates, over all trees together.
N_DRAWS = 200


class _Draw(NamedTuple):
    """A tree and all that goes with it."""

    tree: Tree
    table: Floats  # (n, D)
    cuts: Floats
    phi: Floats  # (D, D), or the variances (D,)
    noise: float  # of a new row
    sites: Sites


class NewRows:
    """Cells of new rows (B, J) under the draws of a fit."""

    def __init__(
        self,
        mixed: Mixed,
        posterior: TreePosterior,
        completed: Floats,
        cells: Floats,
        n_jobs: int | None,
    ) -> None:
        self.mixed, self.posterior, self.cells, self.n_jobs, self.completed = mixed, posterior, cells, n_jobs, completed
        self.covariances, self.leaf_noises = mixed.draws.covariances, mixed.draws.leaf_noises
        self.new_noises = mixed.draws.new_noises
        n_kept = len(mixed.draws.index) or len(posterior)
        most = min(n_kept, FEW_TREES if posterior.n_leaves > MANY else MOST_TREES)
        self.used = np.unique(np.linspace(0, n_kept - 1, most).round().astype(int))

    def log_density(self) -> Floats:
        """log p(row | table), (B,): density of numbers in their own units, probability of levels."""
        log_p, _ = self._average(lambda draw, places, drawn: np.empty(0))
        return np.asarray(log_p + self.mixed.columns.log_units(self.cells), dtype=np.float64)

    def label_probabilities(self, labels: Ints) -> Floats:
        """Probability of every label for each row, (B, K)."""
        n_labels = int(labels.max()) + 1

        def summarise(draw: _Draw, places: Places, drawn: Floats) -> Floats:
            table = np.zeros((2 * draw.tree.n_leaves - 1, n_labels))
            share_labels(draw.tree.children, labels, 0, table)
            return places.probability @ table[places.node]

        return np.asarray(self._average(summarise)[1], dtype=np.float64)

    def impute(self) -> tuple[Floats, dict[int, Floats]]:
        """Cells with gaps filled in, (B, J), and for each column with levels and gaps the probabilities (gaps, L)."""
        columns = self.mixed.columns
        first = np.cumsum([0, *(max(model.n_levels, 1) for model in columns.models)])

        def summarise(draw: _Draw, places: Places, drawn: Floats) -> Floats:
            cells = columns.decode(drawn, draw.cuts)
            out = np.zeros(first[-1])
            for j, model in enumerate(columns.models):
                if model.n_levels:
                    out[first[j] : first[j + 1]] = np.bincount(cells[:, j].astype(int), minlength=model.n_levels)
                else:
                    out[first[j]] = cells[:, j].sum()
            return out / len(cells)

        means = self._average(summarise, max(N_DRAWS // len(self.used), 1))[1]
        filled, probability = self.cells.copy(), {}
        for j, model in enumerate(columns.models):
            gap = np.isnan(self.cells[:, j])
            own = means[gap, first[j] : first[j + 1]]
            if model.n_levels and gap.any():
                probability[j] = own
                filled[gap, j] = own.argmax(axis=1)
            else:
                filled[gap, j] = settled(columns, j, own[:, 0])
        return filled, probability

    def attach(self, tree: Tree, given: Given, n_places: int) -> Attachment:
        """Find the likeliest edges of one tree over the mean coordinates for each row."""
        n_places = min(n_places, 2 * tree.n_leaves - 1)
        shape = (len(self.cells), n_places)
        found = Attachment(np.empty(shape, dtype=np.int64), np.empty(shape), np.empty(shape))
        own = self.mixed.draws.cuts
        cuts = own.mean(axis=0) if len(own) else np.zeros(0)
        noise = float(np.median(given.leaf_noise))
        sites = make_sites(tree, self.completed, np.asarray(given.leaf_noise, dtype=float))
        draw = _Draw(tree, self.completed, cuts, given.covariance, noise, sites)
        streams = make_streams(np.random.default_rng(0), len(self.cells))
        for b, places in enumerate(self._places(draw, streams, 0)):
            pick(tree.node_times(), places[0], 0, found.node[b], found.probability[b], found.time[b])
        return found

    def _places(self, draw: _Draw, streams: Words, n_draws: int) -> list[tuple[Places, Floats]]:
        columns, out = self.mixed.columns, []
        for cells, stream in zip(self.cells, streams, strict=True):
            places = locate_row(draw.sites, observe(columns, cells, draw.cuts, draw.phi), draw.noise, stream)
            drawn = np.empty((0, columns.d))
            if n_draws:
                seen = observe(columns, cells, draw.cuts, draw.phi, draws=True)
                drawn = draw_row(draw.sites, places, seen, draw.noise, n_draws, stream)
            out.append((places, drawn))
        return out

    def _average(self, summarise: Callable[[_Draw, Places, Floats], Floats], n_draws: int = 0) -> tuple[Floats, Any]:
        """log p(x | X), (B,), and the mean of a summary over trees given x, (B, K)."""

        def work(step: int) -> tuple[Floats, Floats]:
            k = int(self.used[step])
            draw = self._draw(k)
            # One stream per row and tree, whichever thread runs it.
            streams = make_streams(np.random.default_rng([k]), len(self.cells))
            found = self._places(draw, streams, n_draws)
            values = np.array([summarise(draw, places, drawn) for places, drawn in found])
            return np.array([places.log_density[0] for places, _ in found]), values

        total: Floats = np.full(len(self.cells), -np.inf)
        mean: Any = 0.0
        with ThreadPoolExecutor(min(effective_n_jobs(self.n_jobs), len(self.used))) as pool:
            for log_weight, value in pool.map(work, range(len(self.used))):
                after = np.logaddexp(total, log_weight)
                mean = mean * np.exp(total - after)[:, None] + value * np.exp(log_weight - after)[:, None]
                total = after
        return total - math.log(len(self.used)), mean

    def _draw(self, k: int) -> _Draw:
        m, table, cuts = self.mixed.draw(k, self.completed)
        leaf_noise = np.asarray(self.leaf_noises[m % len(self.leaf_noises)], dtype=float)
        noise = float(self.new_noises[m])
        sites = make_sites(self.posterior[m], table, leaf_noise)
        return _Draw(self.posterior[m], table, cuts, self.covariances[m % len(self.covariances)], noise, sites)


# Rows held out (fewer with very many rows) and draws used; half as many if rows have their own noise.
MOST_ROWS, FEWEST_ROWS, MOST_LEAVES = 100, 30, 300_000
MOST_DRAWS = 60


def leave_one_out(mixed: Mixed, posterior: TreePosterior, completed: Floats, power: float = 1.0) -> LeaveOneOut:
    """Leave-one-out densities of rows of a mixed table under a posterior from chains.

    `power` is that to which the likelihood was raised, of a table of numbers.
    """
    columns, cells, draws = mixed.columns, mixed.values, mixed.draws
    covariances, leaf_noises = draws.covariances, draws.leaf_noises
    rows = np.flatnonzero(~np.isnan(cells).all(axis=1))
    n_rows = min(max(MOST_LEAVES // len(cells), FEWEST_ROWS), MOST_ROWS)
    if len(rows) > n_rows:
        rows = np.sort(np.random.default_rng(0).choice(rows, n_rows, replace=False))
    if len(rows) < 2 or len(cells) < 3:
        raise InputError("leave-one-out needs at least three rows, two of which have a value.")
    n_kept = len(draws.index) or len(posterior)
    n_chains = int(posterior.info.get("n_chains", 1))
    n_chains = n_chains if n_kept % n_chains == 0 else 1
    most = MOST_DRAWS // 2 if draws.noise.varies else MOST_DRAWS
    per_chain = n_kept // n_chains
    kept = np.unique(np.linspace(0, per_chain - 1, min(per_chain, -(-most // n_chains))).astype(int))
    log_f = np.empty((len(rows), n_chains, len(kept)))
    coarse = any(model.cell and not model.is_drawn for model in columns.models)
    log_g = np.empty_like(log_f) if coarse or power != 1.0 else None
    for place in np.ndindex(log_f.shape[1:]):
        k = place[0] * per_chain + int(kept[place[1]])
        m, table, cuts = mixed.draw(k, completed)
        tree, phi = posterior[m], covariances[m % len(covariances)]
        noise = np.asarray(leaf_noises[m % len(leaf_noises)], dtype=np.float64)
        # Half the dimension: steps between noises as wide as d partly observed coordinates can resolve.
        law = draws.noise_grid(m, max(columns.d // 2, 1))
        streams = make_streams(np.random.default_rng([m]), len(rows))
        for h, row in enumerate(rows.tolist()):
            others = np.delete(np.arange(len(cells)), row)
            sites = make_sites(without(tree, row), table[others], noise[others])
            seen = observe(columns, cells[row], cuts, phi, recorded=False)
            log_f[(h, *place)] = _log_mass(sites, seen, law, streams[h], power)
            if log_g is not None:
                log_g[(h, *place)] = _log_mass(sites, observe(columns, cells[row], cuts, phi), law, streams[h])
    log_f += columns.log_units(cells[rows], recorded=False)[:, None, None]
    if log_g is not None:
        log_g += columns.log_units(cells[rows])[:, None, None]
    return smooth(log_f, rows, len(cells), log_g)


def _log_mass(sites: Sites, seen: Observation, law: tuple[Floats, Floats], stream: Stream, power: float = 1.0) -> float:
    """Log density of a row over all places, and over the distribution of its noise."""
    terms = [
        weight + float(locate_row(sites, seen, float(noise), stream, power).log_density[0])
        for noise, weight in zip(*law, strict=True)
    ]
    return terms[0] if len(terms) == 1 else float(logsumexp(terms))


def without(tree: Tree, leaf: int) -> Tree:
    """Return the tree without one leaf; later leaves and merges move up by one."""
    n, parents = tree.n_leaves, tree.parents()
    merge = int(parents[leaf])
    pair = tree.children[merge - n]
    sibling = int(pair[0] + pair[1]) - leaf
    children = np.delete(np.where(tree.children == merge, sibling, tree.children), merge - n, axis=0)
    children = children - (children > leaf) - (children > merge)
    return Tree(children, np.delete(tree.times, merge - n))
