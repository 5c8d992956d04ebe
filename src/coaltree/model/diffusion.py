r"""Brownian motion along a tree: messages, likelihood, contrasts, posteriors of the nodes, simulation.

A node's message is N(m, s Φ), everything its leaves say about it. Leaves have m = x and s = leaf noise. Merging c₁ and
c₂ at time t, with s̃_c = s_c + t − t_c and v = s̃₁ + s̃₂,

    s = s̃₁ s̃₂ / v,   m = (s̃₂ m₁ + s̃₁ m₂) / v,
    log Z = −(d/2) log 2πv − ½ log|Φ| − ε/2v,   ε = (m₁ − m₂) Φ⁻¹ (m₁ − m₂)ᵀ.

The root has a flat prior, so Σ log Z is the density of the differences between leaves.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats, Ints
from coaltree._compile import kernel
from coaltree.errors import InputError
from coaltree.memory import check_leaves
from coaltree.model import messages as passes
from coaltree.model import missing
from coaltree.model.coalescent import log_prior
from coaltree.model.factorisations import DiagonalRoot, root_of
from coaltree.randomness import RandomState, as_generator
from coaltree.tree import Tree
from coaltree.validation import check_array, check_count, check_covariance, check_data, check_leaf_noise


class Whitened(NamedTuple):
    """A table seen through Φ = L Lᵀ: rows are x L⁻ᵀ, so that Φ becomes the identity."""

    rows: Floats  # (n, d)
    log_det: float  # log|Φ|


class Leaves(NamedTuple):
    """The input of inference: a whitened table that has been validated."""

    rows: Floats  # (n, d)
    noise: Floats  # (n,), in units of Φ
    log_det: float  # log|Φ|


class Messages(NamedTuple):
    """What the leaves below say about each node, and the variance of each merge."""

    mean: Floats  # (2n−1, d)
    variance: Floats  # (2n−1,), in units of Φ
    merge_variance: Floats  # (n−1,), v

    def contrasts(self, tree: Tree) -> Floats:
        """Return u_k = (m_i − m_j)/√v_k, (n−1, d), of the tree they were passed on."""
        difference = self.mean[tree.children[:, 0]] - self.mean[tree.children[:, 1]]
        u: Floats = difference / np.sqrt(self.merge_variance)[:, None]
        return u


class Passed(NamedTuple):
    """An upward pass: the messages, and what the merges say about Φ, without an array of contrasts u."""

    messages: Messages
    distance: Floats  # (n−1,), ‖m_i − m_j‖²
    sums: Floats  # (d,), Σ_k u_kj²; not finite if a merge has v = 0


class NodePosterior(NamedTuple):
    """Posterior of every node given all leaves: N(mean, variance · Φ)."""

    mean: Floats  # (2n−1, d)
    variance: Floats  # (2n−1,)


def whiten(X: Any, covariance: Any = None) -> Whitened:
    """Whiten the rows of X by the covariance: (d, d), (d,) variances of a diagonal one, or None for the identity."""
    X = check_data(X)
    if covariance is None:
        return Whitened(X, 0.0)
    root = root_of(check_covariance(covariance, X.shape[1]))
    with np.errstate(over="ignore"):  # overflow gives infinity, which callers refuse
        return Whitened(root.whiten(X), root.log_det)


# Rows whose inner products are formed at once: the block stays in cache while it is packed.
_BLOCK = 256
# A squared distance below this share of the squared norms is taken from the differences instead: the inner product
# would cancel its digits. Up to this many columns differences are cheaper anyway.
_CANCELS = 0.01
_FEW_COLUMNS = 16


@kernel
def _pack_differences(columns: Floats, out: Floats) -> None:
    """Put Σ_c (x_ic − x_jc)², j < i, into `out` (P,), from columns (d, n)."""
    for i in range(1, columns.shape[1]):
        row = out[i * (i - 1) // 2 : i * (i + 1) // 2]
        row[:] = 0.0
        for column in range(columns.shape[0]):
            own = columns[column, i]
            for j in range(i):
                row[j] += (own - columns[column, j]) ** 2


@kernel
def _pack_products(rows: Floats, norms: Floats, products: Floats, first: int, out: Floats) -> None:
    """Put ‖x_i‖² + ‖x_j‖² − 2 x_i·x_j for rows i = first, first + 1, … and all j < i into `out` (P,)."""
    for k in range(products.shape[0]):
        i = first + k
        start = i * (i - 1) // 2
        own = norms[i]
        for j in range(i):
            out[start + j] = own + norms[j] - 2.0 * products[k, j]
        for j in range(i):
            # Written so that NaN, from norms that overflow, is caught too.
            if not out[start + j] >= _CANCELS * (own + norms[j]):
                total = 0.0
                for column in range(rows.shape[1]):
                    total += (rows[i, column] - rows[j, column]) ** 2
                out[start + j] = total


def pair_distances(rows: Floats) -> Floats:
    """Squared distances ε of all pairs, packed by rows of the lower triangle: (1,0), (2,0), (2,1), (3,0), and so on.

    Inner products come from matrix products of centred rows; where they would cancel, differences are taken before
    squaring, so that close points keep their digits.
    """
    n, d = rows.shape
    check_leaves(n)
    out = np.empty(n * (n - 1) // 2)
    with np.errstate(over="ignore", invalid="ignore"):
        centred = np.ascontiguousarray(rows - rows.mean(axis=0))
        if d <= _FEW_COLUMNS:
            _pack_differences(np.ascontiguousarray(centred.T), out)
            return out
        norms = np.einsum("ij,ij->i", centred, centred)
        for first in range(0, n, _BLOCK):
            stop = min(first + _BLOCK, n)
            _pack_products(centred, norms, centred[first:stop] @ centred[:stop].T, first, out)
    return out


def whiten_leaves(X: Any, covariance: Any, leaf_noise: Any) -> Leaves:
    """Whiten once, for all that follows; refuse data without a proper posterior."""
    rows, log_det = whiten(X, covariance)
    noise = check_leaf_noise(leaf_noise, len(rows))
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.square(rows - rows.mean(axis=0)).sum(axis=1)
        if not np.isfinite(4.0 * norms.max()):
            raise InputError(
                "X is too large for its covariance: squared whitened distances overflow. Rescale X, or pass a "
                "covariance on the scale of the data."
            )
    refuse_copies(rows, noise)
    return Leaves(rows, noise, log_det)


# Squared distances below this, for each column, are subnormal and have lost their digits. Numbers whose difference is
# as small are equal, unless both are smaller than TINY.
_SMALLEST, _TINY = 1e-306, 1e-137


def refuse_copies(rows: Floats, leaf_noise: Floats) -> None:
    """Raise an error if two rows without noise are equal, or so close that their squared distance underflows."""
    bare = np.flatnonzero(leaf_noise == 0.0)
    for column in rows.T:  # copies are tied in every column; most tables have no ties in the first
        _, value, counts = np.unique(_without_tiny(column[bare]), return_inverse=True, return_counts=True)
        bare = bare[counts[value] > 1]
        if len(bare) < 2:
            return
    alike = _without_tiny(rows[bare])
    order = np.lexsort(alike.T)
    tied = np.all(alike[order[1:]] == alike[order[:-1]], axis=1)
    n_pairs, first = 0, (len(rows), 0)
    for group in np.split(order, np.flatnonzero(~tied) + 1):
        if len(group) > 1:
            group = bare[np.sort(group)]
            higher, lower = np.tril_indices(len(group), -1)
            close = np.flatnonzero(pair_distances(rows[group]) < _SMALLEST * rows.shape[1])
            n_pairs += len(close)
            if len(close):
                first = min(first, (int(group[higher[close[0]]]), int(group[lower[close[0]]])))
    if not n_pairs:
        return
    j, i = first
    if np.array_equal(rows[i], rows[j]):
        raise InputError(
            f"X has duplicate rows ({i} and {j}; {n_pairs} such pair(s)), which would merge at time 0 with infinite "
            "density. Set leaf_noise > 0 or drop the duplicates."
        )
    raise InputError(
        f"X is too small for its covariance: the squared whitened distance of rows {i} and {j} underflows. Rescale X, "
        "set leaf_noise > 0, or pass a covariance on the scale of the data."
    )


def _without_tiny(values: Floats) -> Floats:
    return np.where(np.abs(values) < _TINY, 0.0, values)


@kernel
def _sum_contrasts(children: Ints, mean: Floats, merge_variance: Floats, distance: Floats, sums: Floats) -> None:
    sums[:] = 0.0
    for k in range(distance.size):
        i, j = children[k]
        v = merge_variance[k]
        for column in range(mean.shape[1]):
            sums[column] += (mean[i, column] - mean[j, column]) ** 2 / v
        distance[k] = 0.0
        for column in range(mean.shape[1]):  # separate, because a sequential sum keeps a loop from being vectorised
            distance[k] += (mean[i, column] - mean[j, column]) ** 2


def _check_rows(tree: Tree, X: Floats) -> None:
    if len(X) != tree.n_leaves:
        raise InputError(f"X must have one row per leaf of the tree ({tree.n_leaves}), got {len(X)}.")


def messages(tree: Tree, X: Any, leaf_noise: Any = 0.0) -> Messages:
    """Upward pass. Independent of Φ, which only scales the messages."""
    return _check_and_pass(tree, X, leaf_noise).messages


def _check_and_pass(tree: Tree, X: Any, leaf_noise: Any) -> Passed:
    X = check_data(X)
    _check_rows(tree, X)
    return pass_up(tree, X, check_leaf_noise(leaf_noise, len(X)))


def pass_up(tree: Tree, X: Floats, leaf_noise: Floats) -> Passed:
    """Upward pass of a validated table and noise, (n,): loops call it often."""
    n, d = X.shape
    mean = np.empty((2 * n - 1, d))
    mean[:n] = X
    variance, merge_variance = np.empty((2 * n - 1, 1)), np.empty((n - 1, 1))
    variance[:n, 0] = leaf_noise
    passes.pass_messages_up(tree.children, tree.times, mean, variance, merge_variance)
    up = Passed(Messages(mean, variance[:, 0], merge_variance[:, 0]), np.empty(n - 1), np.empty(d))
    _sum_contrasts(tree.children, mean, merge_variance[:, 0], up.distance, up.sums)
    return up


def contrasts(tree: Tree, X: Any, leaf_noise: Any = 0.0) -> Floats:
    """Return u_k = (m_i − m_j)/√v_k, shape (n−1, d): independent N(0, Φ) given the tree."""
    return messages(tree, X, leaf_noise).contrasts(tree)


def scatter(tree: Tree, X: Any, leaf_noise: Any = 0.0, diagonal: bool = False) -> Floats:
    """Return S = Σ_k u_k u_kᵀ, (d, d): all that the data and the tree say about Φ; or only its `diagonal`, (d,).

    The diagonal costs O(nd), and is all that a diagonal Φ needs.
    """
    up = _check_and_pass(tree, X, leaf_noise)
    if diagonal:
        return up.sums
    u = up.messages.contrasts(tree)
    return u.T @ u


def log_likelihood(tree: Tree, X: Any, covariance: Any = None, leaf_noise: Any = 0.0) -> float:
    """log p(X | t, π, Φ) = Σ_k log Z_k, the density of the leaf differences.

    Missing entries (NaN) are integrated out, which requires a diagonal covariance.
    """
    if missing.any_missing(X):
        X = check_data(X, missing=True)
        root = root_of(check_covariance(covariance, X.shape[1]))
        if not isinstance(root, DiagonalRoot):
            raise InputError("covariance must be diagonal where X has missing entries. Impute them first.")
        _check_rows(tree, X)
        return missing.log_observed_likelihood(tree, X, root.variances, check_leaf_noise(leaf_noise, len(X)))
    rows, log_det = whiten(X, covariance)
    _check_rows(tree, rows)
    return log_density(tree, rows, check_leaf_noise(leaf_noise, len(rows))) - 0.5 * (len(rows) - 1) * log_det


def log_density(tree: Tree, rows: Floats, leaf_noise: Floats) -> float:
    """`log_likelihood` under Φ = I of a complete, validated table and noise, (n,)."""
    up = pass_up(tree, rows, leaf_noise)
    v, eps = up.messages.merge_variance, up.distance
    n_merges, d = len(v), rows.shape[1]
    if not np.all(np.isfinite(eps)):
        raise InputError("X is too large for its covariance: squared whitened distances overflow. Rescale X.")
    if np.any((v == 0.0) & (eps > 0.0)):  # different values at the same point of the tree
        return -math.inf
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        exponent = np.where(eps > 0, eps / v, 0.0).sum()
        constant = n_merges * d * math.log(2.0 * math.pi)
        return -0.5 * float(d * np.log(v).sum() + exponent + constant)


def log_joint(
    tree: Tree, X: npt.ArrayLike, covariance: npt.ArrayLike | None = None, *, leaf_noise: npt.ArrayLike = 0.0
) -> float:
    """log p(X, t, π) = Σ_k (−λ_k Δ_k + log Z_k).

    Parameters
    ----------
    tree : Tree
        A tree over the rows of X.
    X : array-like (n, d)
        One row per leaf. NaN entries are integrated out, which requires a diagonal covariance.
    covariance : array-like (d, d) or (d,), optional
        Covariance Φ of the diffusion per unit of time, or the variances of a diagonal one. Default: the identity.
    leaf_noise : float or array-like (n,)
        Variance of each leaf around its true value, in units of the covariance.

    Returns
    -------
    float
    """
    return log_prior(tree) + log_likelihood(tree, X, covariance, leaf_noise)


def _descend(tree: Tree, up: Messages, nodes: Floats) -> Floats:
    """Turn noise (size, 2n−1, d) into draws of the nodes, or zeros into their means; returns their variances."""
    variance = np.empty((len(up.mean), 1))
    passes.pass_down(tree.parents(), tree.node_times(), up.mean, up.variance[:, None], variance, nodes)
    return variance[:, 0]


def node_posterior(tree: Tree, X: Any, leaf_noise: Any = 0.0) -> NodePosterior:
    """Posterior mean and variance (in units of Φ) of all 2n − 1 nodes given all leaves: the downward pass."""
    up = messages(tree, X, leaf_noise)
    nodes = np.zeros((1, *up.mean.shape))
    variance = _descend(tree, up, nodes)
    return NodePosterior(nodes[0], variance)


def sample_nodes(
    tree: Tree, X: Any, covariance: Any = None, leaf_noise: Any = 0.0, size: int = 1, random_state: RandomState = None
) -> Floats:
    """Draw the values of all nodes jointly given the leaves, shape (size, 2n−1, d)."""
    X = check_data(X)
    size = check_count(size, "size", at_least=1)
    up = messages(tree, X, leaf_noise)
    d = X.shape[1]
    phi = root_of(check_covariance(covariance, d))
    nodes = phi.colour(as_generator(random_state).standard_normal((size, 2 * tree.n_leaves - 1, d)))
    _descend(tree, up, nodes)
    return nodes


def sample_data(
    tree: Tree,
    covariance: npt.ArrayLike,
    *,
    leaf_noise: npt.ArrayLike = 0.0,
    random_state: RandomState = None,
    root: npt.ArrayLike | None = None,
) -> Floats:
    """Simulate one row per leaf: Brownian motion along the branches, from the root.

    Parameters
    ----------
    tree : Tree
        The tree.
    covariance : array-like (d, d) or (d,), or int
        Covariance Φ of the diffusion per unit of time, or the variances of a diagonal one; an int d stands for the
        identity.
    leaf_noise : float or array-like (n,)
        In units of the covariance; it lengthens the branches to the leaves.
    random_state : int, Generator, …
        Seed.
    root : array-like (d,), optional
        Value at the root. Default: the origin.

    Returns
    -------
    ndarray (n, d)
    """
    if np.ndim(covariance) == 0:
        phi = root_of(np.ones(check_count(covariance, "covariance (as a dimension d)", at_least=1)))
    else:
        phi = root_of(check_covariance(covariance))
    n, d = tree.n_leaves, phi.d
    noise = check_leaf_noise(leaf_noise, n)
    times, parents = tree.node_times(), tree.parents()
    branch = np.append(np.maximum(times[parents[:-1]] - times[:-1], 0.0), 0.0)
    values = phi.colour(as_generator(random_state).standard_normal((2 * n - 1, d)))
    with np.errstate(over="ignore", invalid="ignore"):
        branch[:n] += noise
        values *= np.sqrt(branch)[:, None]
        if root is not None:
            start = check_array(root, "root", 1)
            if start.shape != (d,):
                raise InputError(
                    f"root must have one entry per dimension of covariance ({d}), got shape {start.shape}."
                )
            values[-1] = start
        for node in range(2 * n - 3, -1, -1):
            values[node] += values[parents[node]]
    if not np.all(np.isfinite(values)):
        raise InputError("covariance, leaf_noise or the times of tree are so large that values overflow. Rescale them.")
    return values[:n]
