r"""Where rows of a mixed table join a tree: the density of what is seen of them at each place, integrated over places.

A row that joins an edge at time t has coordinates N(μ(t), v(t) Φ) there. Of these some are seen exactly and others to
lie in intervals; those of a categorical column, after a change by differences of its corners, to be positive. With all,
y = B z ~ N(B μ, v B Φ Bᵀ), the density is a product along Cholesky's factor: normal densities, then probabilities of
intervals, each given a draw within the ones before (Geweke, Hajivassiliou and Keane). It is exact where Φ is diagonal
and no column has three levels or more without order, and unbiased elsewhere.

Time is integrated over by Gauss–Legendre, on nodes that are close to each other near the lower end of an edge, where
the density changes fast.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.inference.attachment import exposure
from coaltree.model.columns import CATEGORICAL, UNIT, Columns
from coaltree.model.truncated import log_between, standard_between
from coaltree.posterior.locate import Places
from coaltree.posterior.places import Sites
from coaltree.randomness import Stream, uniform

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(12)
# Shares of an edge on (0, 1), squared so that they crowd near its lower end, and their weights.
SHARES: Floats = (0.5 * (_POINTS + 1.0)) ** 2
WEIGHTS: Floats = 0.5 * _WEIGHTS * (_POINTS + 1.0)
# Above the root, where one lineage waits for one: Gauss–Laguerre.
WAITS, WAIT_WEIGHTS = np.polynomial.laguerre.laggauss(12)
# Edges are looked at in two places first, and left out if less than e^(−NEGLIGIBLE) of the best.
NEGLIGIBLE = 12.0


class Seen(NamedTuple):
    """What is seen of one row, in the order in which it is weighed: exact, in intervals, not at all."""

    maps: Floats  # (D, D), B
    value: Floats  # (D,): exact values, NaN elsewhere
    low: Floats  # (D,)
    high: Floats
    n_seen: int  # the rest is not seen


def look(columns: Columns, cells: Floats, cuts: Floats) -> Seen:
    """What the cells (J,) of a row say of its coordinates."""
    encoded = columns.encode(cells[None])
    eye = np.eye(columns.d)
    exact, inside, unseen = list[Floats](), list[tuple[Floats, float, float]](), list[Floats]()
    values = list[float]()
    for j, model in enumerate(columns.models):
        here, code = columns.coordinates(j), int(encoded.codes[0, j])
        if np.isnan(cells[j]):
            unseen += list(eye[here])
        elif model.kind == CATEGORICAL:
            gaps = np.zeros((model.n_levels, columns.d))
            gaps[:, here] = model.corners[code] - model.corners
            inside += [(gap, 0.0, math.inf) for level, gap in enumerate(gaps) if level != code]
        elif model.kind in UNIT:
            edges = [-math.inf, *cuts[columns.cuts_of(j)].tolist(), math.inf]
            inside.append((eye[here.start], edges[code], edges[code + 1]))
        elif model.is_drawn:
            inside.append((eye[here.start], float(encoded.lower[0, here.start]), float(encoded.upper[0, here.start])))
        else:
            exact.append(eye[here.start])
            values.append(float(encoded.X[0, here.start]))
    maps = np.array([*exact, *(gap for gap, _, _ in inside), *unseen])
    value, low, high = np.full(columns.d, np.nan), np.full(columns.d, -np.inf), np.full(columns.d, np.inf)
    value[: len(exact)] = values
    for k, (_, a, b) in enumerate(inside):
        low[len(exact) + k], high[len(exact) + k] = a, b
    return Seen(maps, value, low, high, len(exact) + len(inside))


def weigh_row(
    sites: Sites, seen: Seen, phi: Floats, noise: float, edges: Ints, n_draws: int, stream: Stream
) -> tuple[Places, Floats]:
    """Places of one row among `edges`, and draws of its coordinates (n_draws, D) from all of them."""
    factor: Floats = np.linalg.cholesky(seen.maps @ phi @ seen.maps.T).astype(np.float64)
    below, above = sites.mean @ seen.maps.T, sites.above_mean @ seen.maps.T
    mass, time = np.empty(len(edges)), np.empty(len(edges))
    drawn = np.empty((n_draws, len(phi)))
    _weigh(sites, edges, below, above, factor, seen, noise, stream, mass, time, drawn)
    top = mass.max()
    kept = np.flatnonzero(mass > top - 40.0)
    share = np.exp(mass[kept] - top)
    log_density = np.array([top + math.log(share.sum())])
    places = Places(log_density, np.array([0, len(kept)]), edges[kept], share / share.sum(), time[kept])
    return places, np.asarray(np.linalg.solve(seen.maps, drawn.T).T, dtype=np.float64)


@inline
def _expected(sites: Sites, node: int, t: float, noise: float) -> tuple[float, float]:
    """How much of the message from above a place at time t takes over, and the variance of a row there, over Φ."""
    span = sites.below[node] + sites.above[node]
    share = (sites.below[node] + t) / span if span < math.inf else 0.0
    return share, noise + t + (sites.below[node] + t) * (1.0 - share)


@inline
def _log_seen(
    below: Floats, above: Floats, share: float, v: float, factor: Floats, seen: Seen, stream: Stream, state: Floats
) -> float:
    """Log density of what is seen at a place; `state` (D,) gets standard normals that lead to such coordinates."""
    total, spread = 0.0, math.sqrt(v)
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
    factor: Floats,
    seen: Seen,
    noise: float,
    stream: Stream,
    state: Floats,
) -> float:
    """Log density at time t on the edge above a node."""
    share, v = _expected(sites, node, t, noise)
    if not v > 0.0:
        return -math.inf
    return _log_seen(below[node], above[node], share, v, factor, seen, stream, state)


@kernel
def _weigh(
    sites: Sites,
    edges: Ints,
    below: Floats,
    above: Floats,
    factor: Floats,
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
            value = _at(sites, node, t, below, above, factor, seen, noise, state_stream, state)
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
            value = _at(sites, node, t, below, above, factor, seen, noise, state_stream, state)
            term = weight * math.exp(min(value + log_prior - top, 600.0))
            if not term > 0.0:
                continue
            mass += term
            moment += term * t
            for s in range(out_drawn.shape[0]):
                sums[s] += term
                if uniform(state_stream) * sums[s] < term:
                    _place(sites, node, t, below, above, factor, noise, state, out_drawn[s])
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
    """Coordinates, seen through B, that standard normals lead to at a place."""
    share, v = _expected(sites, node, t, noise)
    spread = math.sqrt(v)
    for i in range(normals.size):
        state[i] = (1.0 - share) * below[node, i] + (share * above[node, i] if share > 0.0 else 0.0)
        for j in range(i + 1):
            state[i] += spread * factor[i, j] * normals[j]
