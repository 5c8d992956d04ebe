"""One row of a mixed table as a search sees it, and draws of its coordinates from where it joins a tree."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.inference.moves import edge_density
from coaltree.inference.moves.edge_density import N_KNOTS, Edge, expectation, find_peak
from coaltree.model.factorisations import DenseRoot, DiagonalRoot
from coaltree.places.cells import Cells, Observation, log_cells, place_cells, row_cells
from coaltree.places.edge_mass import ROUGHLY, add_logs, share_above
from coaltree.places.exact import View
from coaltree.places.host import Host
from coaltree.places.locate import Places, to_places
from coaltree.places.search import MARGIN, Task, find_places
from coaltree.randomness import Stream, uniform

# Accuracy of an edge's mass, as `edge_mass.integrate` has it; probabilities of cells take long to evaluate.
KINKS = 0.3
# Coordinates at one place are chosen from this many, by their weights.
N_TRIES = 16


class Row(NamedTuple):
    """What is observed of a row, in the whitened columns of a host."""

    sight: View
    lens: Floats  # (q, D): maps whitened coordinates to whitened exact ones
    point: Floats  # (1, D): one that has the exact values
    cells: Cells
    log_scale: float

    def task(self, host: Host, power: float = 1.0) -> Task:
        """Return what to search for in a tree over rows that were multiplied by √power."""
        return Task(host, self.sight, self.cells, power * len(self.lens), MARGIN, KINKS)


def see(seen: Observation, root: DiagonalRoot | DenseRoot, stream: Stream) -> Row:
    """Return a row as it is seen among rows whitened by this root of Φ."""
    d = root.d
    if isinstance(root, DiagonalRoot):
        lens, maps = seen.exact * np.sqrt(root.variances), seen.rest * np.sqrt(root.variances)
        view = View(np.flatnonzero(seen.exact.any(axis=0)), np.empty((0, d)))
    else:
        lens, maps = np.ascontiguousarray(seen.exact @ root.factor), seen.rest @ root.factor
        view = View(np.arange(0), lens)
    none = np.empty((0, d))
    cells = row_cells(seen._replace(rest=maps), none, none, stream)
    return Row(view, lens, (seen.value @ lens)[None], cells, seen.log_scale)


def locate_row(host: Host, row: Row, noise: float) -> Places:
    """Places of one row in a tree over whitened coordinates."""
    found = find_places(row.task(host), row.point, noise)
    return to_places(found, float(len(row.lens)), row.log_scale)


def draw_row(
    host: Host,
    places: Places,
    seen: Observation,
    root: DiagonalRoot | DenseRoot,
    noise: float,
    n_draws: int,
    stream: Stream,
) -> Floats:
    """Draws (n_draws, D) of the coordinates of a row, all of which are in `seen`, from its places."""
    row, node = see(seen, root, stream), places.node
    mean, above = host.mean[node], host.above_mean[node]
    ends = [(mean, row.point), (above, row.point), (mean, above)]
    eps = np.array([(((x - y) @ row.lens.T) ** 2).sum(axis=1) for x, y in ends])
    cells = row_cells(seen._replace(rest=row.cells.maps), mean, above, stream)
    drawn = np.empty((n_draws, len(seen.low)))
    draw_cells(host, node, places.probability, eps, cells, float(len(row.lens)), noise, drawn)
    both = np.hstack([np.tile(seen.value, (n_draws, 1)), drawn])
    return np.asarray(np.linalg.solve(np.vstack([seen.exact, seen.rest]), both.T).T, dtype=np.float64)


@inline
def _edge(host: Host, node: int, high: float, noise: float, eps: Floats, e: int) -> Edge:
    """Make the edge above a node of a whole tree; distances are those in column e."""
    return Edge(
        low=host.time[node],
        high=high,
        below=host.variance[node] - host.time[node],
        above=host.above_variance[node] + high,
        offset=noise,
        eps_below=eps[0, e],
        eps_above=eps[1, e],
        eps_span=eps[2, e],
    )


@kernel
def draw_cells(
    host: Host,
    nodes: Ints,
    probability: Floats,
    eps: Floats,
    cells: Cells,
    d: float,
    noise: float,
    out: Floats,
) -> None:
    """Draws (S, K) of y from edges with these probabilities, (E,), whose messages the cells have, row by row.

    A time is drawn as if there were no cells, y by `log_cells`; one of N_TRIES is chosen, by its probability there.
    """
    knots, tried = np.empty((2, N_KNOTS)), np.empty(out.shape[1])
    for s in range(len(out)):
        left, e = uniform(cells.stream), 0
        while e < nodes.size - 1 and left >= probability[e]:
            left -= probability[e]
            e += 1
        edge = _edge(host, nodes[e], host.time[host.parent[nodes[e]]], noise, eps, e)
        peak, width = find_peak(edge, host.clock, d, ROUGHLY)
        edge_density.log_edge_mass(edge, host.clock, d, 1.0, peak, width, knots)
        total = -math.inf
        for _ in range(N_TRIES):
            time = edge_density.draw_edge_time(edge, d, 1.0, knots, cells.stream)
            share, v = share_above(edge, time), expectation(edge, time)[0]
            log_weight = log_cells(cells, e, share, v)
            if log_weight == -math.inf:
                continue
            total = add_logs(log_weight, total)
            if uniform(cells.stream) < math.exp(log_weight - total):
                place_cells(cells, e, share, v, tried)
        out[s] = tried
