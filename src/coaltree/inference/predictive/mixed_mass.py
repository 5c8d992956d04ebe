r"""Where rows of a mixed table join a tree: the density of what is observed at each place, integrated over places.

A row that joins an edge at time t has coordinates N(μ(t), v(t) Φ) there. Some of these are observed exactly, others are
known to lie in intervals, and those of a categorical column to give its level the largest utility. Under a diagonal Φ
the density is a product over columns. Utilities have the covariance v (I − 1/L); adding a common normal of variance
v/L, which changes no order, makes them independent, so the probability of a level is a one-dimensional integral.

Under a full Φ, and where coordinates are to be drawn, the observation is that differences of utilities are positive.
With everything observed written as y = B z ~ N(B μ, v B Φ Bᵀ), the density is a product along the Cholesky factor:
normal densities, then probabilities of intervals, each given a draw within the ones before (Geweke, Hajivassiliou and
Keane): unbiased.

Time is integrated over by Gauss–Legendre, with nodes that are densest near the lower end of an edge, where the density
changes fast.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.inference.moves.edge_density import exposure
from coaltree.inference.predictive.locate import Places
from coaltree.inference.predictive.mass import Sites
from coaltree.model.columns import CATEGORICAL, UNIT, Columns
from coaltree.model.truncated import log_between, log_largest, standard_between
from coaltree.randomness import Stream, uniform

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(12)
# Shares of an edge on (0, 1), squared so that they crowd near its lower end, and their weights.
SHARES: Floats = (0.5 * (_POINTS + 1.0)) ** 2
WEIGHTS: Floats = 0.5 * _WEIGHTS * (_POINTS + 1.0)
# Above the root, where one other lineage is left: Gauss–Laguerre.
WAITS, WAIT_WEIGHTS = np.polynomial.laguerre.laggauss(12)
# Edges are first evaluated at two places, and left out if less than e^(−NEGLIGIBLE) of the best.
NEGLIGIBLE = 12.0


class Seen(NamedTuple):
    """What is observed of one row, y = B z, in the order of evaluation: exact, in intervals, the rest."""

    maps: Floats  # (K, D), B
    value: Floats  # (K,): exact values, NaN elsewhere
    low: Floats  # (K,)
    high: Floats
    n_seen: int  # exact or in intervals; after them come utilities, or what is unobserved and only drawn
    scale: Floats  # (K,): standard deviations over √v if columns are independent, empty otherwise
    blocks: Ints  # (C, 3): where utilities of a column begin and end, and the observed level
    factor: Floats  # (K, K): Cholesky factor of the covariance over v if they are not, empty otherwise
    power: float  # to which the density of the row given its place is raised


def look(
    columns: Columns,
    cells: Floats,
    cuts: Floats,
    phi: Floats,
    recorded: bool = True,
    draws: bool = False,
    power: float = 1.0,
) -> Seen:
    """What the cells (J,) of a row say about its coordinates.

    With `recorded`, exact values on a grid are treated as cells. If coordinates are to be drawn, all are included.
    """
    eye, apart = np.eye(columns.d), phi.ndim == 1 and not draws
    exact, inside, rest = list[Floats](), list[tuple[Floats, float, float]](), list[Floats]()
    values, blocks = list[float](), list[tuple[int, int, int]]()
    for j, model in enumerate(columns.models):
        here = columns.coordinates(j)
        if math.isnan(cells[j]):
            if draws:
                rest += list(eye[here])
            continue
        code = int(cells[j])
        if model.kind == CATEGORICAL:
            utilities = model.corners @ eye[here]
            if apart:
                blocks.append((len(rest), len(rest) + model.n_levels, code))
                rest += list(utilities)
            else:
                gaps = utilities[code] - utilities
                inside += [(gap, 0.0, math.inf) for level, gap in enumerate(gaps) if level != code]
        elif model.kind in UNIT:
            edges = [-math.inf, *cuts[columns.cuts_of(j)].tolist(), math.inf]
            inside.append((eye[here.start], edges[code], edges[code + 1]))
        elif model.is_drawn or (recorded and model.cell):
            low, high = model.bounds(cells[j : j + 1])
            inside.append((eye[here.start], float(low[0]), float(high[0])))
        else:
            exact.append(eye[here.start])
            values.append(float(model.forward(cells[j])))
    n_exact, n_seen = len(exact), len(exact) + len(inside)
    maps = np.array([*exact, *(gap for gap, _, _ in inside), *rest]).reshape(-1, columns.d)
    value, low, high = np.full(len(maps), np.nan), np.full(len(maps), -np.inf), np.full(len(maps), np.inf)
    value[:n_exact] = values
    low[n_exact:n_seen], high[n_exact:n_seen] = [a for _, a, _ in inside], [b for _, _, b in inside]
    where = np.array(blocks, dtype=np.int64).reshape(-1, 3) + np.array([n_seen, n_seen, 0])
    if apart:
        return Seen(maps, value, low, high, n_seen, np.sqrt((maps * maps) @ phi), where, np.empty((0, 0)), power)
    matrix = np.diag(phi) if phi.ndim == 1 else phi
    factor: Floats = np.linalg.cholesky(maps @ matrix @ maps.T).astype(np.float64)
    return Seen(maps, value, low, high, n_seen, np.empty(0), where, factor, power)


def weigh_row(
    sites: Sites, seen: Seen, noise: float, edges: Ints, n_draws: int, stream: Stream
) -> tuple[Places, Floats]:
    """Places of one row among `edges`, and draws of its coordinates (n_draws, D) from all of them."""
    below, above = sites.mean[edges] @ seen.maps.T, sites.above_mean[edges] @ seen.maps.T
    mass, time = np.empty(len(edges)), np.empty(len(edges))
    drawn = np.empty((n_draws, len(seen.maps)))
    _weigh(sites, edges, below, above, seen, noise, stream, mass, time, drawn)
    top = mass.max()
    kept = np.flatnonzero(mass > top - 40.0)
    share = np.exp(mass[kept] - top)
    log_density = np.array([top + math.log(share.sum())])
    places = Places(log_density, np.array([0, len(kept)]), edges[kept], share / share.sum(), time[kept])
    return places, np.linalg.solve(seen.maps, drawn.T).T.astype(np.float64) if n_draws else drawn


@inline
def _log_apart(below: Floats, above: Floats, share: float, v: float, seen: Seen, mean: Floats) -> float:
    """Log density of what is observed at a place if columns are independent; `mean` (K,) is scratch."""
    total, spread = 0.0, math.sqrt(v)
    for i in range(below.size):
        mean[i] = (1.0 - share) * below[i] + (share * above[i] if share > 0.0 else 0.0)
    for i in range(seen.n_seen):
        own = spread * seen.scale[i]
        if not math.isnan(seen.value[i]):
            z = (seen.value[i] - mean[i]) / own
            total -= 0.5 * (z * z + math.log(2.0 * math.pi)) + math.log(own)
        else:
            total += log_between((seen.low[i] - mean[i]) / own, (seen.high[i] - mean[i]) / own)
    for b in range(len(seen.blocks)):
        first, last, level = seen.blocks[b]
        total += log_largest(mean[first:last], level, spread)
    return total


@inline
def _expected(sites: Sites, node: int, t: float, noise: float) -> tuple[float, float]:
    """The weight of the message from above at time t, and the variance of a row there, over Φ."""
    span = sites.below[node] + sites.above[node]
    share = (sites.below[node] + t) / span if span < math.inf else 0.0
    return share, noise + t + (sites.below[node] + t) * (1.0 - share)


@inline
def _log_together(
    below: Floats, above: Floats, share: float, v: float, seen: Seen, stream: Stream, state: Floats
) -> float:
    """Log density of what is observed at a place; `state` (D,) gets standard normals that give such coordinates."""
    total, spread, factor = 0.0, math.sqrt(v), seen.factor
    n_seen, d = seen.n_seen, below.size
    for i in range(d):
        centre = 0.0
        for j in range(i):
            centre += factor[i, j] * state[j]
        mean = (1.0 - share) * below[i] + (share * above[i] if share > 0.0 else 0.0) + spread * centre
        own = spread * factor[i, i]
        if i < n_seen and not math.isnan(seen.value[i]):
            state[i] = (seen.value[i] - mean) / own
            total -= 0.5 * (state[i] * state[i] + math.log(2.0 * math.pi)) + math.log(own)
        else:
            low, high = (seen.low[i] - mean) / own, (seen.high[i] - mean) / own
            if i < n_seen:
                total += log_between(low, high)
                if total == -math.inf:
                    return total
            state[i] = standard_between(low, high, stream)
    return total


@inline
def _at(
    sites: Sites,
    node: int,
    t: float,
    below: Floats,
    above: Floats,
    seen: Seen,
    noise: float,
    stream: Stream,
    state: Floats,
) -> float:
    """Log density at time t on the edge above a node, whose messages, mapped by B, are `below` and `above`."""
    share, v = _expected(sites, node, t, noise)
    if not v > 0.0:
        return -math.inf
    if seen.factor.size == 0:
        return seen.power * _log_apart(below, above, share, v, seen, state)
    return seen.power * _log_together(below, above, share, v, seen, stream, state)


@kernel
def _weigh(
    sites: Sites,
    edges: Ints,
    below: Floats,
    above: Floats,
    seen: Seen,
    noise: float,
    state_stream: Stream,
    out_mass: Floats,
    out_time: Floats,
    out_drawn: Floats,
) -> None:
    """Log mass and mean time of edges; draws are kept by weighing each place against all before (a reservoir)."""
    root = sites.parent.size - 1
    state = np.empty(below.shape[1])
    first = np.empty(edges.size)
    best = -math.inf
    for e in range(edges.size):
        node = edges[e]
        low = sites.time[node]
        length = sites.time[sites.parent[node]] - low if node < root else 1.0
        first[e] = -math.inf
        for share in (0.1, 0.6):
            t = low + share * length
            value = _at(sites, node, t, below[e], above[e], seen, noise, state_stream, state)
            first[e] = max(first[e], value - exposure(sites.merges, t)[0] + math.log(max(length, 1e-300)))
        best = max(best, first[e])
    sums = np.zeros(out_drawn.shape[0])
    top = best
    for e in range(edges.size):
        out_mass[e], out_time[e] = -math.inf, sites.time[edges[e]]
        if first[e] < best - NEGLIGIBLE:
            continue
        node = edges[e]
        low = sites.time[node]
        mass, moment = 0.0, 0.0
        for k in range(SHARES.size):
            if node < root:
                length = sites.time[sites.parent[node]] - low
                t, weight = low + SHARES[k] * length, WEIGHTS[k] * length
                log_prior = -exposure(sites.merges, t)[0]
            else:
                t, weight = low + WAITS[k], WAIT_WEIGHTS[k]
                log_prior = -exposure(sites.merges, low)[0]
            value = _at(sites, node, t, below[e], above[e], seen, noise, state_stream, state)
            term = weight * math.exp(min(value + log_prior - top, 600.0))
            if not term > 0.0:
                continue
            mass += term
            moment += term * t
            for s in range(out_drawn.shape[0]):
                sums[s] += term
                if uniform(state_stream) * sums[s] < term:
                    _place(sites, node, t, below[e], above[e], seen.factor, noise, state, out_drawn[s])
        if mass > 0.0:
            out_mass[e], out_time[e] = top + math.log(mass), moment / mass


@inline
def _place(
    sites: Sites,
    node: int,
    t: float,
    below: Floats,
    above: Floats,
    factor: Floats,
    noise: float,
    normals: Floats,
    state: Floats,
) -> None:
    """Coordinates, mapped by B, that standard normals give at a place."""
    share, v = _expected(sites, node, t, noise)
    spread = math.sqrt(v)
    for i in range(normals.size):
        state[i] = (1.0 - share) * below[i] + (share * above[i] if share > 0.0 else 0.0)
        for j in range(i + 1):
            state[i] += spread * factor[i, j] * normals[j]
