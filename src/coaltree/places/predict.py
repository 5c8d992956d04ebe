r"""New points given weighted trees: their density, cluster, place, and missing entries.

Given a tree T a new point joins the edge e at time t with the density f(e, t) of `places.search`, so with
f(T) = Σ_e ∫ f(e, t) dt and the posterior's weights w,

    p(x | X) = Σ_T w_T f(T),   p(T, e | X, x) ∝ w_T ∫ f(e, t) dt.

NaN entries are integrated out: the observed columns follow the same model with their block of Φ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from joblib import effective_n_jobs
from threadpoolctl import threadpool_limits

from coaltree._arrays import Floats, Ints
from coaltree._compile import kernel
from coaltree.errors import InputError
from coaltree.places.host import make_host
from coaltree.places.locate import Batch, Given, Places, gather, locate, make_batches
from coaltree.places.search import POLE
from coaltree.posterior.ensemble import TreePosterior
from coaltree.sizes import LABEL_ENTRIES
from coaltree.tree import Tree


class Fit(NamedTuple):
    """What prediction needs from a fit: weighted trees, the complete table (n, d), what goes with each tree."""

    posterior: TreePosterior
    X: Floats
    given: Callable[[int], Given]


class Attachment(NamedTuple):
    """The likeliest places of each point in one tree, best first, all (B, K)."""

    node: Ints  # the edge above this node; the root's is infinite
    probability: Floats
    time: Floats  # mean time at which the point joins the edge, given that it does


Summary = Callable[[Tree, Given, Places, Batch], Floats]


def make_fit(
    posterior: TreePosterior, X: Floats, covariances: Floats, leaf_noises: Floats, new_noises: Floats | None = None
) -> Fit:
    """Gather what prediction needs: a covariance, (M, d, d) or (M, d), and noises, (M, n), per tree, or 1 for all.

    If rows have their own noise, `new_noises` (M,) are draws for a new row: trees and noises are averaged together.
    """
    n_phi, n_noise = len(covariances), len(leaf_noises)

    def given(m: int) -> Given:
        new = None if new_noises is None else float(new_noises[m])
        return Given(covariances[m % n_phi], leaf_noises[m % n_noise], new)

    return Fit(posterior, X, given)


def log_predictive(fit: Fit, X_new: Floats, n_jobs: int | None = 1) -> Floats:
    """log p(x | X) of every row of X_new (B, d), averaged over trees; NaN entries are integrated out.

    A row that equals a training row has an infinite density if neither has leaf noise.
    """
    return _average(fit, X_new, lambda tree, given, places, batch: np.empty((len(batch.rows), 0)), n_jobs)[0]


def label_probabilities(fit: Fit, X_new: Floats, labels: Ints, n_jobs: int | None = 1) -> Floats:
    """Probability of every label 0 … K − 1 for each row of X_new, (B, K), averaged over trees and places.

    A point that joins the edge above a node takes the label of one of the leaves under it, each equally likely. Leaves
    without a label, −1, do not count; if there are no others, the leaves under the parent are used.
    """
    n_labels = int(labels.max()) + 1

    def summarise(tree: Tree, given: Given, places: Places, batch: Batch) -> Floats:
        shares = np.empty((len(batch.rows), n_labels))
        step = max(LABEL_ENTRIES // (2 * tree.n_leaves), 1)
        for start in range(0, n_labels, step):
            stop = min(start + step, n_labels)
            table = np.zeros((2 * tree.n_leaves - 1, stop - start))
            share_labels(tree.children, labels, start, table)
            block = np.empty((len(batch.rows), stop - start))
            gather(places.first, places.node, places.probability, table, block)
            shares[:, start:stop] = block
        return shares

    return _average(fit, X_new, summarise, n_jobs)[1]


@kernel
def share_labels(children: Ints, labels: Ints, start: int, out: Floats) -> None:
    """Share of each label from `start` on among the labelled leaves under each node, out (2n−1, columns)."""
    n = labels.size
    size = np.ones(2 * n - 1)
    for leaf in range(n):
        size[leaf] = 1.0 if labels[leaf] >= 0 else 0.0
        if start <= labels[leaf] < start + out.shape[1]:
            out[leaf, labels[leaf] - start] = 1.0
    for node in range(n, 2 * n - 1):
        left, right = children[node - n]
        size[node] = size[left] + size[right]
        for column in range(out.shape[1]):
            out[node, column] = out[left, column] + out[right, column]
    for node in range(2 * n - 2, n - 1, -1):
        for column in range(out.shape[1]):
            if node == 2 * n - 2:  # the others were handled by their parents
                out[node, column] /= size[node]
            for child in children[node - n]:
                if size[child] > 0.0:
                    out[child, column] /= size[child]
                else:
                    out[child, column] = out[node, column]


def impute(fit: Fit, X_new: Floats, n_jobs: int | None = 1) -> Floats:
    """X_new with each NaN replaced by its conditional mean given the row's other entries, the trees and the data.

    At a place with expected value μ the mean is μ_m + Φ_mo Φ_oo⁻¹ (x_o − μ_o) for missing columns m and observed
    columns o, averaged over edges and times, then over trees.
    """

    def summarise(tree: Tree, given: Given, places: Places, batch: Batch) -> Floats:
        own, node = make_host(tree, fit.X, given.leaf_noise), places.node
        # ω is linear in time, so its mean is ω at the mean time; above the root it is 0.
        low, high = own.time[node], own.time[own.parent[node]]
        span = own.variance[node] + own.above_variance[node] + high - low
        share = np.where(np.isinf(span), 0.0, (own.variance[node] + places.time - low) / span)
        expected, above = np.empty((2, len(batch.rows), fit.X.shape[1]))
        gather(places.first, places.node, places.probability * (1.0 - share), own.mean, expected)
        gather(places.first, places.node, places.probability * share, own.above_mean, above)
        expected += above
        start = 0
        for group in batch.groups:
            rows = expected[start : start + len(group.points)]
            start += len(rows)
            observed = group.observed
            regression = given.regression(observed)
            if regression is not None:
                rows[:, ~observed] += (group.points - rows)[:, observed] @ regression
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
    kept, blank = _one_blank(X_new)
    node_times = tree.node_times()
    for batch in make_batches(X_new[kept]):
        places = locate(batch, tree, given, X)
        for b, row in enumerate(kept[batch.rows]):
            pick(node_times, places, b, found.node[row], found.probability[row], found.time[row])
    for part in found:
        part[blank] = part[blank[:1]]
    return found


def _one_blank(X_new: Floats) -> tuple[Ints, Ints]:
    """Points to locate, and points with no observed entry: these are alike, so the first represents all."""
    blank = np.flatnonzero(np.isnan(X_new).all(axis=1))
    return np.delete(np.arange(len(X_new)), blank[1:]), blank


def pick(node_times: Floats, places: Places, b: int, node: Ints, probability: Floats, time: Floats) -> None:
    """Fill in the likeliest edges of one point; after those found come others, with probability 0."""
    here = slice(places.first[b], places.first[b + 1])
    found = places.node[here]
    best = np.lexsort((found, -places.probability[here]))[: len(node)]
    n_best = len(best)
    # Among the first few nodes, at least as many as are still needed were not found.
    rest = np.setdiff1d(np.arange(min(len(node) + len(found), len(node_times))), found)[: len(node) - n_best]
    node[:n_best], node[n_best:] = found[best], rest
    probability[:n_best], probability[n_best:] = places.probability[here][best], 0.0
    time[:n_best], time[n_best:] = places.time[here][best], node_times[rest]


def _average(fit: Fit, X_new: Floats, summarise: Summary, n_jobs: int | None) -> tuple[Floats, Floats]:
    """log p(x | X), (B,), and the mean of a summary over trees given x, (B, K)."""
    used = np.flatnonzero(fit.posterior.weights > 0.0)
    if len(used) == 0:
        raise InputError("posterior has no tree of positive weight.")
    kept, blank = _one_blank(X_new)
    log_density = np.empty(len(X_new))
    values: Floats | None = None
    # Trees run in parallel; each calls BLAS on small matrices, for which more threads cost more than they save.
    with (
        threadpool_limits(limits=1, user_api="blas"),
        ThreadPoolExecutor(min(effective_n_jobs(n_jobs), len(used))) as pool,
    ):
        for batch in make_batches(X_new[kept]):

            def work(m: int, batch: Batch = batch) -> tuple[Floats, Floats]:
                tree, given = fit.posterior[m], fit.given(m)
                places = locate(batch, tree, given, fit.X)
                log_weight = places.log_density + math.log(fit.posterior.weights[m])
                return log_weight, summarise(tree, given, places, batch)

            total: Floats = np.full(len(batch.rows), -np.inf)
            mean: Floats = np.zeros((len(batch.rows), 1))
            # In the order of the trees, whichever thread finishes first, so that sums do not depend on it.
            for log_weight, value in pool.map(work, used.tolist()):
                after = np.logaddexp(total, log_weight)
                mean = mean * np.exp(total - after)[:, None] + value * np.exp(log_weight - after)[:, None]
                total = after
            values = np.empty((len(X_new), mean.shape[1])) if values is None else values
            values[kept[batch.rows]] = mean
            log_density[kept[batch.rows]] = total
    log_density[log_density > 0.5 * POLE] = np.inf
    if values is None:
        return log_density, np.empty((0, 0))
    log_density[blank], values[blank] = log_density[blank[:1]], values[blank[:1]]
    return log_density, values
