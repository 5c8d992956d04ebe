"""Where one row of a mixed table joins a tree, over all edges, and draws of its coordinates from there."""

from __future__ import annotations

import math

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.inference.moves import edge_density
from coaltree.inference.moves.edge_density import N_KNOTS, Edge, expectation, exposure, find_peak
from coaltree.inference.predictive.cells import Cells, Observation, cells_at, log_cells, place_cells
from coaltree.inference.predictive.edge_mass import (
    N_SUMS,
    ROUGHLY,
    add_logs,
    integrate,
    log_bound,
    share_above,
)
from coaltree.inference.predictive.locate import Places
from coaltree.inference.predictive.mass import FALL, Sites
from coaltree.model import gig
from coaltree.randomness import Stream, uniform

# Edges that bounds show to have together less than e^(−NEGLIGIBLE) of the sum are left out.
NEGLIGIBLE = 9.0
# As `edge_mass.integrate` has it.
KINKS = 0.3
# Coordinates at one place are chosen from this many, by their weights.
N_TRIES = 16


def locate_row(sites: Sites, seen: Observation, noise: float, stream: Stream, power: float = 1.0) -> Places:
    """Places of one row in a tree over coordinates; the density of exact values is raised to `power`."""
    eps = power * _distances(sites, seen)
    d = power * len(seen.value)
    mass, time = np.empty((2, len(sites.parent)))
    weigh_all(sites, eps, cells_at(seen, sites.mean, sites.above_mean, stream), d, noise, mass, time)
    top = mass.max()
    kept = np.flatnonzero(mass > top - 40.0)
    share = np.exp(mass[kept] - top)
    log_density = top + math.log(share.sum()) - 0.5 * d * math.log(2.0 * math.pi) - power * seen.log_scale
    return Places(np.array([log_density]), np.array([0, len(kept)]), kept, share / share.sum(), time[kept])


def draw_row(sites: Sites, places: Places, seen: Observation, noise: float, n_draws: int, stream: Stream) -> Floats:
    """Draws (n_draws, D) of the coordinates of a row, all of which are in `seen`, from its places."""
    mean, above = sites.mean[places.node], sites.above_mean[places.node]
    cells = cells_at(seen, mean, above, stream)
    drawn = np.empty((n_draws, len(seen.low)))
    draw_cells(sites, places.node, places.probability, _distances(sites, seen), cells, len(seen.value), noise, drawn)
    both = np.hstack([np.tile(seen.value, (n_draws, 1)), drawn])
    return np.asarray(np.linalg.solve(np.vstack([seen.exact, seen.rest]), both.T).T, dtype=np.float64)


def _distances(sites: Sites, seen: Observation) -> Floats:
    """Squared distances of the exact values from messages, and between these, (3, 2n−1), as in `edge_density.Edge`."""
    below, above = sites.mean @ seen.exact.T, sites.above_mean @ seen.exact.T
    return np.array([((x - y) ** 2).sum(axis=1) for x, y in ((below, seen.value), (above, seen.value), (below, above))])


@inline
def _edge(sites: Sites, node: int, high: float, noise: float, eps: Floats) -> Edge:
    """Make the edge above a node up to a time."""
    return Edge(
        low=sites.time[node],
        high=high,
        below=sites.below[node],
        above=sites.above[node],
        offset=noise,
        eps_below=eps[0, node],
        eps_above=eps[1, node],
        eps_span=eps[2, node],
    )


@kernel
def weigh_all(
    sites: Sites, eps: Floats, cells: Cells, d: float, noise: float, out_mass: Floats, out_time: Floats
) -> None:
    """Log mass, without the constant of exact values, and mean time of every edge; −inf where negligible."""
    merges, sums = sites.merges, np.empty(N_SUMS)
    root = sites.parent.size - 1
    edge = _edge(sites, root, math.inf, noise, eps)
    if cells.low.size == 0:
        at, r = edge_density.root_excess(edge)
        total = gig.log_local(d, at, 1.0, r) - math.log(2.0) - exposure(merges, edge.low)[0]
        out_time[root] = edge.low + 0.5 * gig.mean_excess(d, at, 1.0, r)
    else:
        # Beyond this nothing is left: neither of the prior, nor where values as far as these are explained best.
        edge = _edge(sites, root, edge.low + FALL + math.sqrt(edge.eps_below), noise, eps)
        total, out_time[root] = integrate(edge, cells, root, merges, d, -math.inf, KINKS, sums)
    out_mass[root] = total
    margin = NEGLIGIBLE + math.log(2.0 * root)
    best = 0
    for node in range(root):
        edge = _edge(sites, node, sites.time[sites.parent[node]], noise, eps)
        out_mass[node], out_time[node] = -math.inf, edge.low
        if edge.low < edge.high:
            out_mass[node] = sites.log_prior[node] + log_bound(edge, cells, node, d, edge.low, edge.high)
        if out_mass[node] > out_mass[best]:
            best = node
    # The likeliest edge first: it shows how little the others matter.
    for step in range(-1, root):
        node = best if step < 0 else step
        if step == best:
            continue
        if out_mass[node] < total - margin or out_mass[node] == -math.inf:
            out_mass[node] = -math.inf
            continue
        edge = _edge(sites, node, sites.time[sites.parent[node]], noise, eps)
        out_mass[node], out_time[node] = integrate(edge, cells, node, merges, d, total - margin, KINKS, sums)
        total = add_logs(total, out_mass[node]) if total > -math.inf else out_mass[node]


@kernel
def draw_cells(
    sites: Sites,
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
        edge = _edge(sites, nodes[e], sites.time[sites.parent[nodes[e]]], noise, eps)
        peak, width = find_peak(edge, sites.merges, d, ROUGHLY)
        edge_density.log_edge_mass(edge, sites.merges, d, 1.0, peak, width, knots)
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
