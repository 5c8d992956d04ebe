"""Where each of a batch of new points joins one tree; points with the same gaps are located together."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Bools, Floats, Ints
from coaltree._compile import kernel
from coaltree.model.factorisations import root_of
from coaltree.places.cells import no_cells
from coaltree.places.exact import make_view
from coaltree.places.host import Host, exact_clock, make_host
from coaltree.places.search import KINKS, MARGIN, Found, Task, find_places
from coaltree.sizes import POINTS_AT_ONCE
from coaltree.tree import Tree


class Given(NamedTuple):
    """The covariance and the leaf noise that go with a tree."""

    covariance: Floats  # (d, d), or the variances (d,) if it is diagonal
    leaf_noise: Floats  # (n,)
    drawn_noise: float | None = None  # of a new point, where every row has its own

    @property
    def new_noise(self) -> float:
        """Leaf noise of a new point: as drawn, or the median of the others'."""
        return float(np.median(self.leaf_noise)) if self.drawn_noise is None else self.drawn_noise

    def block(self, columns: Bools) -> Floats:
        """Return Φ of these columns, in the form it has."""
        return self.covariance[columns if self.covariance.ndim == 1 else np.ix_(columns, columns)]

    def regression(self, observed: Bools) -> Floats | None:
        """Return Φ_oo⁻¹ Φ_om, (o, m), of observed and missing columns; None, for zero, if Φ is diagonal."""
        if self.covariance.ndim == 1:
            return None
        across = self.covariance[np.ix_(observed, ~observed)]
        return np.asarray(np.linalg.solve(self.block(observed), across), dtype=np.float64)


class Group(NamedTuple):
    """Points that lack the same columns."""

    observed: Bools  # (d,)
    points: Floats  # (B, d)


class Batch(NamedTuple):
    """Points that are located together, group by group."""

    rows: Ints  # (B,): their rows in the table they come from
    groups: list[Group]


class Places(NamedTuple):
    """Where a batch of points joins one tree; the edges of point b are first[b] … first[b + 1] − 1."""

    log_density: Floats  # (B,)
    first: Ints  # (B+1,)
    node: Ints  # (E,): the edge above this node
    probability: Floats  # (E,)
    time: Floats  # (E,): mean time at which the point joins it


def make_batches(X_new: Floats) -> list[Batch]:
    """Split points into batches, and these into groups."""
    patterns, which = np.unique(~np.isnan(X_new), axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    batches = []
    for start in range(0, len(order), POINTS_AT_ONCE):
        index = order[start : start + POINTS_AT_ONCE]
        kinds = which.ravel()[index]
        groups = [Group(patterns[kind], X_new[index[kinds == kind]]) for kind in np.unique(kinds)]
        batches.append(Batch(index, groups))
    return batches


def locate(batch: Batch, tree: Tree, given: Given, X: Floats) -> Places:
    """Find where the points of a batch join a tree over the rows of X."""
    root = root_of(given.covariance)
    host = make_host(tree, root.whiten(X), given.leaf_noise)
    parts = []
    for observed, points in batch.groups:
        d = int(observed.sum())
        if d == 0:
            parts.append(to_places(_prior_places(host, len(points)), 0.0, 0.0))
            continue
        view, log_det = make_view(root, observed)
        # A gap may be filled with anything: its value is not used.
        whitened = root.whiten(np.where(observed, points, 0.0))
        task = Task(host, view, no_cells(len(observed)), float(d), MARGIN, KINKS)
        parts.append(to_places(find_places(task, whitened, given.new_noise), float(d), 0.5 * log_det))
    if len(parts) == 1:
        return parts[0]
    offsets = np.cumsum([0, *(len(part.node) for part in parts)])
    first = [part.first[:-1] + offset for part, offset in zip(parts, offsets[:-1], strict=True)]
    log_density, node, probability, time = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("log_density", "node", "probability", "time")
    )
    return Places(log_density, np.concatenate([*first, offsets[-1:]]), node, probability, time)


@kernel
def gather(first: Ints, node: Ints, weight: Floats, table: Floats, out: Floats) -> None:
    """Σ_e weight_e table[node_e] over the edges of each point, out (B, columns)."""
    out[:] = 0.0
    for b in range(len(out)):
        for e in range(first[b], first[b + 1]):
            for column in range(table.shape[1]):
                out[b, column] += weight[e] * table[node[e], column]


def to_places(found: Found, d: float, log_scale: float) -> Places:
    """Probabilities from masses, which lack (2π)^(−d/2) e^(−log_scale); those of a point sum to 1."""
    share = np.exp(found.log_mass - np.repeat(found.log_sum, np.diff(found.first)))
    share /= np.repeat(np.add.reduceat(share, found.first[:-1]), np.diff(found.first))
    log_density = found.log_sum - 0.5 * d * math.log(2.0 * math.pi) - log_scale
    return Places(log_density, found.first, found.node, share, found.time)


def _prior_places(host: Host, n_points: int) -> Found:
    """Places of points about which nothing is known: ∫ exp(−Λ) dt of every edge, and ∫ t exp(−Λ) dt over it.

    Between merges a < b at rate r the integrals are (1 − e^(−rΔ))/r and a(1 − e^(−rΔ))/r + (1 − (1 + rΔ)e^(−rΔ))/r²,
    times exp(−Λ(a)).
    """
    n = len(host.parent) // 2
    merges = exact_clock(host.time[n:-1])
    start, rate = np.append(0.0, merges.times), merges.rate
    drop = np.append(np.diff(start) * rate[:-1], np.inf)
    fallen = np.exp(-drop)
    scale = np.exp(-merges.exposure) / rate
    mass = -np.expm1(-drop) * scale
    moment = start * mass + (1.0 - fallen - np.where(fallen > 0.0, drop, 0.0) * fallen) * scale / rate
    # From the start of each piece to infinity; an edge begins at one start and ends at another.
    beyond, moment_beyond = (np.append(np.cumsum(each[::-1])[::-1], 0.0) for each in (mass, moment))
    low = np.maximum(np.arange(2 * n - 1) - (n - 1), 0)
    high = host.parent[:-1] - (n - 1)
    of_edge, moment = beyond[low] - beyond[high], moment_beyond[low] - moment_beyond[high]
    time = np.divide(moment, of_edge, out=host.time[:-1].copy(), where=of_edge > 0.0)
    time = np.clip(time, host.time[:-1], host.time[host.parent[:-1]])
    with np.errstate(divide="ignore"):
        log_mass = np.tile(np.log(of_edge), n_points)
    node = np.tile(np.arange(2 * n - 1), n_points)
    first = np.arange(n_points + 1) * (2 * n - 1)
    return Found(first, node, log_mass, np.tile(time, n_points), np.zeros(n_points), np.zeros(n_points, dtype=np.int64))
