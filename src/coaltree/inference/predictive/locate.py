r"""Where each of a batch of new points joins one tree: over all edges of a small tree, near edges of a large one.

Points may have gaps: the observed columns follow the same model with their block of Φ. Messages of the tree are
convex combinations of rows with weights that do not depend on Φ, so one description of a tree serves all patterns of
gaps: in whitened columns z = L⁻¹(x − y) the distance under the block of Φ is |L_oo⁻¹ L_o· z|².
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from coaltree._arrays import Bools, Floats, Ints
from coaltree._compile import kernel
from coaltree.inference.moves.edge_density import Others
from coaltree.inference.neighbors import nearest_to
from coaltree.inference.predictive.mass import Sites, lay_grid, make_sites, weigh_edges
from coaltree.inference.predictive.near import (
    MARGIN,
    MOST_IN_VAIN,
    Clades,
    Found,
    Task,
    View,
    find_places,
    make_clades,
    make_clock,
)
from coaltree.model.diffusion import whiten
from coaltree.model.factorisations import DenseRoot, DiagonalRoot, root_of
from coaltree.tree import Tree

# Trees of up to this many leaves are summed over all their edges.
EXACT = 500
# Then points are taken in batches whose table of places has at most this many entries; otherwise this many at a time.
_ENTRIES, _POINTS = 2_000_000, 4096
# Near rows of each point, from which its search begins.
N_NEAR = 16


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
    near: Ints  # (B, k): rows from which a search begins; k = 0 in a small tree


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


def make_batches(X_new: Floats, n_leaves: int) -> list[Batch]:
    """Split points into batches, and these into groups; near rows are found later."""
    observed = ~np.isnan(X_new)
    patterns, which = np.unique(observed, axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    size = max(_ENTRIES // (2 * n_leaves), 1) if n_leaves <= EXACT else _POINTS
    batches = []
    for start in range(0, len(order), size):
        index = order[start : start + size]
        kinds = which.ravel()[index]
        groups = [
            Group(patterns[kind], X_new[index[kinds == kind]], np.empty((0, 0), dtype=np.int64))
            for kind in np.unique(kinds)
        ]
        batches.append(Batch(index, groups))
    return batches


def with_near(batch: Batch, given: Given, X: Floats) -> Batch:
    """Find rows near each point of a batch, under Φ, if the tree over the rows of X is large."""
    if len(X) <= EXACT:
        return batch
    root = root_of(given.covariance)
    return batch._replace(groups=[group._replace(near=_near_rows(root, X, group)) for group in batch.groups])


def locate(batch: Batch, tree: Tree, given: Given, X: Floats) -> Places:
    """Find where the points of a batch join a tree over the rows of X."""
    if tree.n_leaves <= EXACT:
        parts = [_weigh_all(tree, given, X, group) for group in batch.groups]
    else:
        seen = _look(tree, given, X)
        parts = [_weigh_near(seen, group) for group in batch.groups]
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


# ---- small trees


def _weigh_all(tree: Tree, given: Given, X: Floats, group: Group) -> Places:
    """Places over all edges."""
    from scipy.spatial.distance import cdist  # here, because it is slow to import

    observed = group.observed
    d = int(observed.sum())
    n, n_new = tree.n_leaves, len(group.points)
    both = np.concatenate([X, group.points])[:, observed]
    rows, log_det = whiten(both, given.block(observed)) if d else (both, 0.0)
    eps = cdist(rows[n:], rows[:n], "sqeuclidean") if d else np.zeros((n_new, n))
    sites, new_noise = make_sites(tree, rows[:n], given.leaf_noise), given.new_noise
    table = np.empty((2, n_new, 2 * n - 1))
    weigh_edges(sites, lay_grid(sites, new_noise, max(d, 1)), eps, float(d), new_noise, table)
    point, node = np.nonzero(table[0] > -np.inf)
    first = np.searchsorted(point, np.arange(n_new + 1))
    top = table[0].max(axis=1)
    log_sum = top + np.log(np.exp(table[0] - top[:, None]).sum(axis=1))
    found = Found(first, node, table[0][point, node], table[1][point, node], log_sum, np.ones(n_new, dtype=np.bool_))
    return _places(found, d, log_det)


def _places(found: Found, d: int, log_det: float) -> Places:
    """Probabilities from masses; those of a point sum to 1."""
    share = np.exp(found.log_mass - np.repeat(found.log_sum, np.diff(found.first)))
    share /= np.repeat(np.add.reduceat(share, found.first[:-1]), np.diff(found.first))
    log_density = found.log_sum - 0.5 * (d * math.log(2.0 * math.pi) + log_det)
    return Places(log_density, found.first, found.node, share, found.time)


# ---- large trees


class _Seen(NamedTuple):
    """A tree and its Φ, ready for any point."""

    root: DiagonalRoot | DenseRoot
    sites: Sites
    clades: Clades
    clock: Others
    new_noise: float


def _look(tree: Tree, given: Given, X: Floats) -> _Seen:
    root = root_of(given.covariance)
    sites = make_sites(tree, root.whiten(X), given.leaf_noise)
    return _Seen(root, sites, make_clades(sites), make_clock(sites.merges), given.new_noise)


def _view(root: DiagonalRoot | DenseRoot, observed: Bools) -> tuple[View, float]:
    """How distances from points with these columns to whitened rows are measured, and log|Φ| of their block."""
    columns, no_lens = np.flatnonzero(observed), np.empty((0, len(observed)))
    if isinstance(root, DiagonalRoot):
        return View(columns, no_lens), float(np.log(root.variances[observed]).sum())
    if observed.all():
        return View(columns, no_lens), root.log_det
    factor = root.factor[observed]
    inner = np.linalg.cholesky(factor @ factor.T)
    lens = np.ascontiguousarray(solve_triangular(inner, factor, lower=True))
    return View(columns, lens), 2.0 * float(np.log(np.diag(inner)).sum())


def _near_rows(root: DiagonalRoot | DenseRoot, X: Floats, group: Group) -> Ints:
    """Rows near the points of a group."""
    if not group.observed.any():
        return np.empty((len(group.points), 0), dtype=np.int64)
    view, _ = _view(root, group.observed)
    whitened = [root.whiten(np.where(group.observed, each, 0.0)) for each in (X, group.points)]
    rows, points = (each @ view.lens.T if len(view.lens) else each[:, view.columns] for each in whitened)
    return nearest_to(rows, points, N_NEAR)[0].astype(np.int64)


def _weigh_near(seen: _Seen, group: Group) -> Places:
    """Places over near edges."""
    d = int(group.observed.sum())
    if d == 0:
        return _places(_prior_places(seen.sites, len(group.points)), 0, 0.0)
    view, log_det = _view(seen.root, group.observed)
    # A gap may be filled with anything: its value is not used.
    points = seen.root.whiten(np.where(group.observed, group.points, 0.0))
    margin = MARGIN + math.log(len(seen.sites.parent))
    task = Task(seen.sites, seen.clades, seen.clock, points, seen.new_noise, view, float(d), margin)
    found = find_places(task, group.near, MOST_IN_VAIN)
    return _places(found, d, log_det)


def _prior_places(sites: Sites, n_points: int) -> Found:
    """Places of points about which nothing is known: ∫ exp(−Λ) dt of every edge, and ∫ t exp(−Λ) dt over it.

    Between merges a < b at rate r the integrals are (1 − e^(−rΔ))/r and a(1 − e^(−rΔ))/r + (1 − (1 + rΔ)e^(−rΔ))/r²,
    times exp(−Λ(a)).
    """
    n = len(sites.children) + 1
    start, rate = np.append(0.0, sites.merges.times), sites.merges.rate
    drop = np.append(np.diff(start) * rate[:-1], np.inf)
    fallen = np.exp(-drop)
    scale = np.exp(-sites.merges.exposure) / rate
    mass = -np.expm1(-drop) * scale
    moment = start * mass + (1.0 - fallen - np.where(fallen > 0.0, drop, 0.0) * fallen) * scale / rate
    # From the start of each piece to infinity; an edge begins at one start and ends at another.
    beyond, moment_beyond = (np.append(np.cumsum(each[::-1])[::-1], 0.0) for each in (mass, moment))
    low = np.maximum(np.arange(2 * n - 1) - (n - 1), 0)
    high = sites.parent - (n - 1)
    of_edge, moment = beyond[low] - beyond[high], moment_beyond[low] - moment_beyond[high]
    time = np.divide(moment, of_edge, out=sites.time[:-1].copy(), where=of_edge > 0.0)
    time = np.clip(time, sites.time[:-1], sites.time[sites.parent])
    with np.errstate(divide="ignore"):
        log_mass = np.tile(np.log(of_edge), n_points)
    node = np.tile(np.arange(2 * n - 1), n_points)
    first = np.arange(n_points + 1) * (2 * n - 1)
    return Found(first, node, log_mass, np.tile(time, n_points), np.zeros(n_points), np.ones(n_points, dtype=np.bool_))
