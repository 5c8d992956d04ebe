"""New rows of a mixed table: their density, cluster, place and missing cells, by means over draws of what is latent."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs

from coaltree._arrays import Floats, Ints, Words
from coaltree.model.factorisations import DenseRoot, DiagonalRoot, root_of
from coaltree.places.cells import observe_cells
from coaltree.places.gaps import Mixed
from coaltree.places.host import Host, make_host
from coaltree.places.locate import Given, Places
from coaltree.places.predict import Attachment, pick, share_labels
from coaltree.places.rows import draw_row, locate_row, see
from coaltree.posterior.ensemble import TreePosterior
from coaltree.randomness import make_streams
from coaltree.sizes import COORDINATES_DRAWN, DRAWS_OF_MIXED
from coaltree.tree import Tree


class _Draw(NamedTuple):
    """A tree and all that goes with it."""

    tree: Tree
    table: Floats  # (n, D)
    cuts: Floats
    phi: Floats  # (D, D), or the variances (D,)
    noise: float  # of a new row
    root: DiagonalRoot | DenseRoot
    host: Host


def _make_draw(tree: Tree, table: Floats, cuts: Floats, phi: Floats, leaf_noise: Floats, noise: float) -> _Draw:
    root = root_of(phi)
    return _Draw(tree, table, cuts, phi, noise, root, make_host(tree, root.whiten(table), leaf_noise))


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
        self.used = np.unique(np.linspace(0, n_kept - 1, min(n_kept, DRAWS_OF_MIXED)).round().astype(int))

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
        first = np.cumsum([0, *(model.n_summaries for model in columns.models)])

        def summarise(draw: _Draw, places: Places, drawn: Floats) -> Floats:
            cells = columns.decode(drawn, draw.cuts)
            found = [model.summary(cells[:, j]).sum(axis=0) for j, model in enumerate(columns.models)]
            return np.concatenate(found) / len(cells)

        means = self._average(summarise, max(COORDINATES_DRAWN // len(self.used), 1))[1]
        filled, probability = self.cells.copy(), {}
        for j, model in enumerate(columns.models):
            gap = np.isnan(self.cells[:, j])
            own = means[gap, first[j] : first[j + 1]]
            filled[gap, j] = model.settle(own)
            if model.n_levels and gap.any():
                probability[j] = own
        return filled, probability

    def attach(self, tree: Tree, given: Given, n_places: int) -> Attachment:
        """Find the likeliest edges of one tree over the mean coordinates for each row."""
        n_places = min(n_places, 2 * tree.n_leaves - 1)
        shape = (len(self.cells), n_places)
        found = Attachment(np.empty(shape, dtype=np.int64), np.empty(shape), np.empty(shape))
        own = self.mixed.draws.cuts
        cuts = own.mean(axis=0) if len(own) else np.zeros(0)
        noise = float(np.median(given.leaf_noise))
        draw = _make_draw(
            tree, self.completed, cuts, given.covariance, np.asarray(given.leaf_noise, dtype=float), noise
        )
        streams = make_streams(np.random.default_rng(0), len(self.cells))
        for b, places in enumerate(self._places(draw, streams, 0)):
            pick(tree.node_times(), places[0], 0, found.node[b], found.probability[b], found.time[b])
        return found

    def _places(self, draw: _Draw, streams: Words, n_draws: int) -> list[tuple[Places, Floats]]:
        columns, out = self.mixed.columns, []
        for cells, stream in zip(self.cells, streams, strict=True):
            row = see(observe_cells(columns, cells, draw.cuts, draw.phi), draw.root, stream)
            places = locate_row(draw.host, row, draw.noise)
            drawn = np.empty((0, columns.d))
            if n_draws:
                seen = observe_cells(columns, cells, draw.cuts, draw.phi, draws=True)
                drawn = draw_row(draw.host, places, seen, draw.root, draw.noise, n_draws, stream)
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
        phi = self.covariances[m % len(self.covariances)]
        return _make_draw(self.posterior[m], table, cuts, phi, leaf_noise, noise)
