r"""New points given weighted trees: their density, their cluster, their place, and what they leave out.

Given a tree T a new point joins the edge e at time t with the density f(e, t) of `posterior.places`, so with
f(T) = Σ_e ∫ f(e, t) dt and the posterior's weights w,

    p(x | X) = Σ_T w_T f(T),   p(T, e | X, x) ∝ w_T ∫ f(e, t) dt.

Entries that are NaN are integrated out: the columns that are there follow the same model with their block of Φ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from joblib import effective_n_jobs
from threadpoolctl import threadpool_limits

from coaltree.model.diffusion import whiten
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.places import POLE, Sites, lay_grid, make_sites, weigh_edges
from coaltree.tree import Tree

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Points are taken in batches whose table of places has at most this many entries.
_BATCH = 2_000_000


class Given(NamedTuple):
    """The covariance and the leaf noise that go with a tree."""

    covariance: Floats  # (d, d), or the variances (d,) if it is diagonal
    leaf_noise: Floats  # (n,)

    @property
    def new_noise(self) -> float:
        """Leaf noise of a new point: the median of the others'."""
        return float(np.median(self.leaf_noise))

    def block(self, columns: Bools) -> Floats:
        """Return Φ of these columns, in the form it has."""
        return self.covariance[columns if self.covariance.ndim == 1 else np.ix_(columns, columns)]

    def regression(self, observed: Bools) -> Floats | None:
        """Return Φ_oo⁻¹ Φ_om, (o, m), of observed and missing columns; None, for zero, if Φ is diagonal."""
        if self.covariance.ndim == 1:
            return None
        across = self.covariance[np.ix_(observed, ~observed)]
        return np.asarray(np.linalg.solve(self.block(observed), across), dtype=np.float64)


class Fit(NamedTuple):
    """What prediction needs to know of a fit: weighted trees, the complete table (n, d), what goes with each tree."""

    posterior: TreePosterior
    X: Floats
    given: Callable[[int], Given]


class Attachment(NamedTuple):
    """The likeliest places of each point in one tree, best first, all (B, K)."""

    node: Ints  # the edge above this node; the root's goes on for ever
    probability: Floats
    time: Floats  # mean time at which the point joins the edge, given that it does


class _Places(NamedTuple):
    """One tree and a batch of points."""

    sites: Sites
    log_density: Floats  # (B,)
    probability: Floats  # (B, 2n−1), of each edge
    time: Floats  # (B, 2n−1)


Summary = Callable[[Tree, Given, _Places, Floats], Floats]


def make_fit(posterior: TreePosterior, X: Floats, covariances: Floats, leaf_noises: Floats) -> Fit:
    """Gather what prediction needs: a covariance, (M, d, d) or (M, d), and noises, (M, n), a tree, or 1 for all."""
    n_phi, n_noise = len(covariances), len(leaf_noises)
    return Fit(posterior, X, lambda m: Given(covariances[m % n_phi], leaf_noises[m % n_noise]))


def log_predictive(fit: Fit, X_new: Floats, n_jobs: int | None = 1) -> Floats:
    """log p(x | X) of every row of X_new (B, d), averaged over trees; NaN entries are integrated out.

    A row that equals a training row has an infinite density if neither has leaf noise.
    """
    return _average(fit, X_new, lambda tree, given, places, rows: np.empty((len(rows), 0)), n_jobs)[0]


def label_probabilities(fit: Fit, X_new: Floats, labels: Ints, n_jobs: int | None = 1) -> Floats:
    """Probability of every label 0 … K − 1 for each row of X_new, (B, K), averaged over trees and places.

    A point that joins the edge above a node takes the label of one of the leaves under it, each equally likely.
    """
    n_labels = int(labels.max()) + 1
    one_hot = np.eye(n_labels)[labels]

    def summarise(tree: Tree, given: Given, places: _Places, rows: Floats) -> Floats:
        counts = np.concatenate([one_hot, np.empty((tree.n_leaves - 1, n_labels))])
        for merge, (left, right) in enumerate(tree.children, start=tree.n_leaves):
            counts[merge] = counts[left] + counts[right]
        shares: Floats = places.probability @ (counts / counts.sum(axis=1, keepdims=True))
        return shares

    return _average(fit, X_new, summarise, n_jobs)[1]


def impute(fit: Fit, X_new: Floats, n_jobs: int | None = 1) -> Floats:
    """X_new with each NaN replaced by its conditional mean given the row's other entries, the trees and the data.

    At a place where the tree expects μ the mean is μ_m + Φ_mo Φ_oo⁻¹ (x_o − μ_o) for missing columns m and observed
    o, averaged over edges and times, then over trees.
    """

    def summarise(tree: Tree, given: Given, places: _Places, rows: Floats) -> Floats:
        own = make_sites(tree, fit.X, given.leaf_noise)
        # ω is linear in time, so its mean is ω at the mean time; above the root it is 0.
        share = np.zeros_like(places.time)
        share[:, :-1] = (own.below + places.time)[:, :-1] / (own.below + own.above)[:-1]
        expected: Floats = (places.probability * (1.0 - share)) @ own.mean + (
            places.probability * share
        ) @ own.above_mean
        observed = ~np.isnan(rows[0])
        regression = given.regression(observed)
        if regression is not None:
            expected[:, ~observed] += (rows - expected)[:, observed] @ regression
        return expected

    completed = X_new.copy()
    rows = np.flatnonzero(np.isnan(X_new).any(axis=1))
    if len(rows) == 0:
        return completed
    expected = _average(fit, X_new[rows], summarise, n_jobs)[1]
    completed[rows] = np.where(np.isnan(X_new[rows]), expected, X_new[rows])
    return completed


def attachments(tree: Tree, given: Given, X: Floats, X_new: Floats, n_places: int = 5) -> Attachment:
    """Find the `n_places` likeliest edges of one tree for each row of X_new, with probabilities and mean times."""
    n_places = min(n_places, 2 * tree.n_leaves - 1)
    found = Attachment(
        np.empty((len(X_new), n_places), dtype=np.int64),
        np.empty((len(X_new), n_places)),
        np.empty((len(X_new), n_places)),
    )
    for observed, group in _patterns(X_new):
        for batch in _batches(group, tree.n_leaves):
            places = _locate(tree, given, X, X_new[batch], observed)
            node = np.argsort(-places.probability, axis=1, kind="stable")[:, :n_places]
            found.node[batch] = node
            found.probability[batch] = np.take_along_axis(places.probability, node, axis=1)
            found.time[batch] = np.take_along_axis(places.time, node, axis=1)
    return found


def _patterns(X_new: Floats) -> Iterator[tuple[Bools, Ints]]:
    """Rows that lack the same columns together: which columns are there, and which rows these are."""
    observed = ~np.isnan(X_new)
    patterns, which = np.unique(observed, axis=0, return_inverse=True)
    for k, pattern in enumerate(patterns):
        yield pattern, np.flatnonzero(which.ravel() == k)


def _batches(rows: Ints, n_leaves: int) -> list[Ints]:
    return np.array_split(rows, math.ceil(len(rows) * 2 * n_leaves / _BATCH))


def _locate(tree: Tree, given: Given, X: Floats, X_new: Floats, observed: Bools) -> _Places:
    """Places of a batch of points in one tree, from the observed columns."""
    from scipy.spatial.distance import cdist  # here, because it is slow to import

    d = int(observed.sum())
    n, n_new = tree.n_leaves, len(X_new)
    both = np.concatenate([X, X_new])[:, observed]
    rows, log_det = whiten(both, given.block(observed)) if d else (both, 0.0)
    eps = cdist(rows[n:], rows[:n], "sqeuclidean") if d else np.zeros((n_new, n))
    sites, new_noise = make_sites(tree, rows[:n], given.leaf_noise), given.new_noise
    table = np.empty((2, n_new, 2 * n - 1))
    weigh_edges(sites, lay_grid(sites, new_noise, max(d, 1)), eps, float(d), new_noise, table)
    log_mass, time = table
    top = log_mass.max(axis=1)
    mass = np.exp(log_mass - top[:, None])
    total = mass.sum(axis=1)
    log_density = top + np.log(total) - 0.5 * (d * math.log(2.0 * math.pi) + log_det)
    return _Places(sites, log_density, mass / total[:, None], time)


def _average(fit: Fit, X_new: Floats, summarise: Summary, n_jobs: int | None) -> tuple[Floats, Floats]:
    """log p(x | X), (B,), and the mean of a summary over trees given x, (B, K)."""
    used = np.flatnonzero(fit.posterior.weights > 0.0)
    log_density = np.empty(len(X_new))
    values: Floats | None = None
    # Trees go in parallel; each calls BLAS on little matrices, for which further threads cost more than they save.
    with (
        threadpool_limits(limits=1, user_api="blas"),
        ThreadPoolExecutor(min(effective_n_jobs(n_jobs), len(used))) as pool,
    ):
        for observed, group in _patterns(X_new):
            for batch in _batches(group, fit.posterior.n_leaves):

                def work(m: int, batch: Ints = batch, observed: Bools = observed) -> tuple[Floats, Floats]:
                    tree, given, rows = fit.posterior[m], fit.given(m), X_new[batch]
                    places = _locate(tree, given, fit.X, rows, observed)
                    log_weight = places.log_density + math.log(fit.posterior.weights[m])
                    return log_weight, summarise(tree, given, places, rows)

                total: Floats = np.full(len(batch), -np.inf)
                mean: Floats | None = None
                # In the order of the trees, whichever thread is first: sums must not depend on it.
                for log_weight, value in pool.map(work, used.tolist()):
                    mean = np.zeros_like(value) if mean is None else mean
                    after = np.logaddexp(total, log_weight)
                    mean = mean * np.exp(total - after)[:, None] + value * np.exp(log_weight - after)[:, None]
                    total = after
                if mean is None:
                    raise ValueError("posterior has no tree of positive weight.")
                values = np.empty((len(X_new), mean.shape[1])) if values is None else values
                values[batch] = mean
                log_density[batch] = total
    log_density[log_density > 0.5 * POLE] = np.inf
    return log_density, np.empty((0, 0)) if values is None else values
