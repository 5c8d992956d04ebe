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

from coaltree._arrays import Floats, Ints
from coaltree._compile import kernel
from coaltree.tree import Tree


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


@kernel
def _descend_columns(parents: Ints, times: Floats, variance: Floats, out_mean: Floats, out_drawn: Floats) -> None:
    """From messages to means given all entries, and from N(0, Φ) noise to joint draws, both (2n−1, d)."""
    root, d = parents.size - 1, out_mean.shape[1]
    for j in range(d):
        out_drawn[root, j] = out_mean[root, j] + math.sqrt(variance[root, j]) * out_drawn[root, j]
    for node in range(root - 1, -1, -1):
        parent = parents[node]
        branch = max(times[parent] - times[node], 0.0)
        for j in range(d):
            own, mean = variance[node, j], out_mean[node, j]
            # How much of its parent a node takes over: all of it where nothing is known below.
            share = own / (own + branch) if branch > 0.0 and own < math.inf else 1.0
            out_mean[node, j] = mean + share * (out_mean[parent, j] - mean)
            centre = mean + share * (out_drawn[parent, j] - mean)
            out_drawn[node, j] = centre + math.sqrt(share * branch) * out_drawn[node, j]


def impute_columns(tree: Tree, X: Floats, variances: Floats, leaf_noise: Floats, rng: np.random.Generator) -> Imputed:
    """Draw all missing entries jointly given the tree and Φ = diag(variances), exactly, and give their means."""
    unknown = np.isnan(X)
    _, seen, expected = _draw_columns(tree, X, variances, leaf_noise, rng)
    return Imputed(seen[unknown], expected[: len(X)][unknown])


def sample_columns(
    tree: Tree, X: Floats, variances: Floats, leaf_noise: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw the values of all nodes, (2n−1, d), and what would be seen at the leaves, (n, d), given X with NaN."""
    return _draw_columns(tree, X, variances, leaf_noise, rng)[:2]


def _draw_columns(
    tree: Tree, X: Floats, variances: Floats, leaf_noise: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    n, d = X.shape
    up = column_messages(tree, X, leaf_noise)
    expected, drawn = up.mean, rng.standard_normal((2 * n - 1, d)) * np.sqrt(variances)
    _descend_columns(tree.parents(), tree.node_times(), up.variance, expected, drawn)
    # A node is the true value of its leaf; an entry would have been seen with noise.
    seen = drawn[:n] + np.sqrt(leaf_noise)[:, None] * rng.standard_normal((n, d)) * np.sqrt(variances)
    return drawn, seen, expected


@kernel
def _solve_rows(
    X: Floats, centres: Floats, spread: Floats, precision: Floats, out_expected: Floats, out_drawn: Floats
) -> None:
    """Means of missing entries, and from N(0, 1) noise to their draws, in the order of the entries, row by row."""
    d = X.shape[1]
    gaps, factor = np.empty(d, dtype=np.int64), np.empty((d, d))
    done = 0
    for i in range(len(X)):
        q = 0
        for j in range(d):
            if math.isnan(X[i, j]):
                gaps[q] = j
                q += 1
        expected, noise = out_expected[done : done + q], out_drawn[done : done + q]
        # Q_MM = F Fᵀ, and its pull on the gaps, both row by row.
        for a in range(q):
            pull = 0.0
            for j in range(d):
                if not math.isnan(X[i, j]):
                    pull += precision[gaps[a], j] * (X[i, j] - centres[i, j])
            for b in range(a + 1):
                rest = precision[gaps[a], gaps[b]]
                for c in range(b):
                    rest -= factor[a, c] * factor[b, c]
                factor[a, b] = math.sqrt(rest) if a == b else rest / factor[b, b]
            for c in range(a):
                pull -= factor[a, c] * expected[c]
            expected[a] = pull / factor[a, a]
        for a in range(q - 1, -1, -1):
            for c in range(a + 1, q):
                expected[a] -= factor[c, a] * expected[c]
                noise[a] -= factor[c, a] * noise[c]
            expected[a] /= factor[a, a]
            noise[a] /= factor[a, a]
        for a in range(q):
            expected[a] = centres[i, gaps[a]] - expected[a]
            noise[a] = expected[a] + math.sqrt(spread[i]) * noise[a]
        done += q


def impute_rows(X: Floats, centres: Floats, spread: Floats, precision: Floats, rng: np.random.Generator) -> Imputed:
    """Draw the missing part of each row of N(centre, spread · Φ) given its observed part.

    `centres` (n, d) are the values of the leaves' parents, `spread` (n,) branch plus leaf noise, `precision` Q = Φ⁻¹.
    With M missing and O observed the draw is N(c_M − Q_MM⁻¹ Q_MO (x_O − c_O), spread · Q_MM⁻¹).
    """
    drawn = rng.standard_normal(np.count_nonzero(np.isnan(X)))
    expected = np.empty_like(drawn)
    _solve_rows(X, centres, spread, precision, expected, drawn)
    return Imputed(drawn, expected)
