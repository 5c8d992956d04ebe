r"""Missing entries (NaN): what the observed ones say, exactly where Φ is diagonal and by augmentation where it is full.

Columns are independent if Φ is diagonal, so each has messages of its own, N(m_cj, s_cj φ_j), and a leaf without an
entry says nothing: s = ∞. A merge of two clusters that both have something to say in column j makes a contrast there,

    u_kj = (m_1j − m_2j) / √v_kj ~ N(0, φ_j),

and that is the whole likelihood: missing entries are integrated out. Under a full Φ they are drawn instead, in turn
with the values of the internal nodes: given those, an entry depends on its parent and on the observed part of its row
alone.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._compile import kernel
from coaltree.tree import Tree

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class ColumnMessages(NamedTuple):
    """What the observed leaves below say about each node, column by column, and the contrasts of the merges."""

    mean: Floats  # (2n−1, d)
    variance: Floats  # (2n−1, d), ∞ where nothing is known
    contrast: Floats  # (n−1, d), u; NaN where only one side is known
    log_variance: Floats  # (n−1, d), log v; 0 there


class Imputed(NamedTuple):
    """Missing entries of a table, in the order of `np.nonzero(np.isnan(X))`."""

    drawn: Floats  # (n_missing,)
    expected: Floats  # (n_missing,): their mean given the tree (and, for a full Φ, the nodes)


@kernel
def _column_messages(
    children: Ints,
    times: Floats,
    mean: Floats,
    variance: Floats,
    out_contrast: Floats,
    out_log_variance: Floats,
) -> None:
    n = times.size + 1
    for k in range(times.size):
        i, j = children[k]
        wait_i = times[k] - (times[i - n] if i >= n else 0.0)
        wait_j = times[k] - (times[j - n] if j >= n else 0.0)
        for column in range(mean.shape[1]):
            var_i, var_j = variance[i, column] + wait_i, variance[j, column] + wait_j
            if var_j == math.inf:
                mean[n + k, column], variance[n + k, column] = mean[i, column], var_i
            elif var_i == math.inf:
                mean[n + k, column], variance[n + k, column] = mean[j, column], var_j
            else:
                v = var_i + var_j
                weight = var_j / v if v > 0.0 else 0.5
                mean[n + k, column] = weight * mean[i, column] + (1.0 - weight) * mean[j, column]
                variance[n + k, column] = var_i * weight
                gap = mean[i, column] - mean[j, column]
                # At v = 0 equal values agree and different ones cannot be.
                out_contrast[k, column] = gap / math.sqrt(v) if v > 0.0 else (0.0 if gap == 0.0 else math.inf)
                out_log_variance[k, column] = math.log(v) if v > 0.0 else -math.inf


def any_missing(X: Any) -> bool:
    """Whether a table of numbers has NaN; what is no such table is left for other checks to refuse."""
    array = np.asarray(X)
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def column_messages(tree: Tree, X: Floats, leaf_noise: Floats) -> ColumnMessages:
    """Upward pass, (n, d) with NaN and (n,) in."""
    n, d = X.shape
    unknown = np.isnan(X)
    mean, variance = np.zeros((2 * n - 1, d)), np.empty((2 * n - 1, d))
    mean[:n] = np.where(unknown, 0.0, X)
    variance[:n] = np.where(unknown, math.inf, leaf_noise[:, None])
    contrast, log_variance = np.full((n - 1, d), math.nan), np.zeros((n - 1, d))
    _column_messages(tree.children, tree.times, mean, variance, contrast, log_variance)
    return ColumnMessages(mean, variance, contrast, log_variance)


def scatter(tree: Tree, X: Floats, leaf_noise: Floats) -> tuple[Floats, Ints]:
    """Return Σ_k u_kj² and the contrasts in each column, both (d,): what a diagonal Φ is drawn from."""
    u = column_messages(tree, X, leaf_noise).contrast
    return np.nansum(u * u, axis=0), np.count_nonzero(~np.isnan(u), axis=0)


def log_likelihood(tree: Tree, X: Floats, variances: Floats, leaf_noise: Floats) -> float:
    """Log density of the observed differences given the tree and Φ = diag(variances): NaN is integrated out."""
    up = column_messages(tree, X, leaf_noise)
    known = ~np.isnan(up.contrast)
    if np.any(np.isinf(up.contrast)):
        return -math.inf
    with np.errstate(over="ignore"):
        exponent = np.nansum(up.contrast * up.contrast / variances)
    constant = float((known * np.log(2.0 * math.pi * variances)).sum())
    return -0.5 * float(up.log_variance.sum() + exponent + constant)


def impute_columns(tree: Tree, X: Floats, variances: Floats, leaf_noise: Floats, rng: np.random.Generator) -> Imputed:
    """Draw all missing entries jointly given the tree and Φ = diag(variances), exactly, and give their means."""
    n, d = X.shape
    up = column_messages(tree, X, leaf_noise)
    parents, times = tree.parents(), tree.node_times()
    noise = rng.standard_normal((2 * n - 1, d)) * np.sqrt(variances)
    root = 2 * n - 2
    drawn, expected = np.empty((2 * n - 1, d)), np.empty((2 * n - 1, d))
    expected[root] = up.mean[root]
    drawn[root] = up.mean[root] + np.sqrt(up.variance[root]) * noise[root]
    for node in range(root - 1, -1, -1):
        parent = parents[node]
        branch = max(times[parent] - times[node], 0.0)
        own = up.variance[node]
        # How much of its parent a node takes over: all of it where nothing is known below.
        with np.errstate(invalid="ignore"):
            share = np.where(np.isinf(own), 1.0, own / (own + branch)) if branch > 0 else np.ones(d)
        expected[node] = up.mean[node] + share * (expected[parent] - up.mean[node])
        drawn[node] = up.mean[node] + share * (drawn[parent] - up.mean[node]) + np.sqrt(share * branch) * noise[node]
    # A node is the true value of its leaf; an entry would have been seen with noise.
    seen = drawn[:n] + np.sqrt(leaf_noise)[:, None] * rng.standard_normal((n, d)) * np.sqrt(variances)
    unknown = np.isnan(X)
    return Imputed(seen[unknown], expected[:n][unknown])


def impute_rows(X: Floats, centres: Floats, spread: Floats, precision: Floats, rng: np.random.Generator) -> Imputed:
    """Draw the missing part of each row of N(centre, spread · Φ) given its observed part.

    `centres` (n, d) are the values of the leaves' parents, `spread` (n,) branch plus leaf noise, `precision` Q = Φ⁻¹.
    With M missing and O observed the draw is N(c_M − Q_MM⁻¹ Q_MO (x_O − c_O), spread · Q_MM⁻¹).
    """
    drawn, expected = X.copy(), X.copy()
    unknown = np.isnan(X)
    for i in np.flatnonzero(unknown.any(axis=1)):
        gaps, known = unknown[i], ~unknown[i]
        factor = np.linalg.cholesky(precision[np.ix_(gaps, gaps)])
        pull = precision[np.ix_(gaps, known)] @ (X[i, known] - centres[i, known])
        expected[i, gaps] = centres[i, gaps] - np.linalg.solve(factor.T, np.linalg.solve(factor, pull))
        noise = np.linalg.solve(factor.T, rng.standard_normal(int(gaps.sum())))
        drawn[i, gaps] = expected[i, gaps] + math.sqrt(spread[i]) * noise
    return Imputed(drawn[unknown], expected[unknown])
