r"""Missing entries (NaN): integrated out exactly where Φ is diagonal, drawn by data augmentation where it is full.

Columns are independent if Φ is diagonal, so each has its own messages, N(m_cj, s_cj φ_j), and a leaf without an
entry says nothing: s = ∞. A merge of two clusters that both have something to say in column j makes a contrast there,

    u_kj = (m_1j − m_2j) / √v_kj ~ N(0, φ_j),

and that is the whole likelihood: missing entries are integrated out. Under a full Φ they are drawn instead, in turn
with the values of the internal nodes: given those, an entry depends only on its parent and on the observed part of its
row.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import kernel
from coaltree.model import messages
from coaltree.tree import Tree


class ColumnMessages(NamedTuple):
    """What the observed leaves below say about each node, column by column, and the variances of the merges."""

    mean: Floats  # (2n−1, d)
    variance: Floats  # (2n−1, d), ∞ where nothing is known
    merge_variance: Floats  # (n−1, d), v; ∞ where a side is not known


class Imputed(NamedTuple):
    """Missing entries of a table, in the order of `np.nonzero(np.isnan(X))`."""

    drawn: Floats  # (n_missing,)
    expected: Floats  # (n_missing,): their mean given the tree (and, for a full Φ, the nodes)


def any_missing(X: Any) -> bool:
    """Whether a numeric table has NaN; anything else is left for other checks to refuse."""
    array = np.asarray(X)
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def column_messages(tree: Tree, X: Floats, leaf_noise: Floats) -> ColumnMessages:
    """Upward pass, (n, d) with NaN and (n,) in."""
    n, d = X.shape
    unknown = np.isnan(X)
    mean, variance = np.zeros((2 * n - 1, d)), np.empty((2 * n - 1, d))
    mean[:n] = np.where(unknown, 0.0, X)
    variance[:n] = np.where(unknown, math.inf, leaf_noise[:, None])
    up = ColumnMessages(mean, variance, np.empty((n - 1, d)))
    messages.pass_messages_up(tree.children, tree.times, *up)
    return up


def _squares(tree: Tree, up: ColumnMessages) -> Floats:
    """u² of all contrasts, (n−1, d): 0 where there is none, ∞ where different values would be at the same point."""
    gap = up.mean[tree.children[:, 0]] - up.mean[tree.children[:, 1]]
    with np.errstate(divide="ignore", over="ignore"):
        u = np.divide(gap, np.sqrt(up.merge_variance), out=np.zeros_like(gap), where=gap != 0.0)
        return u * u


def observed_scatter(tree: Tree, X: Floats, leaf_noise: Floats) -> tuple[Floats, Ints]:
    """Return Σ_k u_kj² and the contrasts in each column, both (d,): what a diagonal Φ is drawn from."""
    up = column_messages(tree, X, leaf_noise)
    return _squares(tree, up).sum(axis=0), np.count_nonzero(np.isfinite(up.merge_variance), axis=0)


def log_observed_likelihood(tree: Tree, X: Floats, variances: Floats, leaf_noise: Floats) -> float:
    """Log density of the observed differences given the tree and Φ = diag(variances): NaN is integrated out."""
    up = column_messages(tree, X, leaf_noise)
    squares, known = _squares(tree, up), np.isfinite(up.merge_variance)
    if np.any(np.isinf(squares)):
        return -math.inf
    with np.errstate(over="ignore", divide="ignore"):
        exponent = float((squares / variances).sum())
        log_variance = float(np.log(up.merge_variance, out=np.zeros_like(squares), where=known).sum())
    constant = float((known * np.log(2.0 * math.pi * variances)).sum())
    return -0.5 * (log_variance + exponent + constant)


def impute_columns(tree: Tree, X: Floats, variances: Floats, leaf_noise: Floats, rng: np.random.Generator) -> Imputed:
    """Draw all missing entries jointly given the tree and Φ = diag(variances), exactly, and give their means."""
    unknown = np.isnan(X)
    _, seen, expected = _draw_columns(tree, X, variances, leaf_noise, rng)
    return Imputed(seen[unknown], expected[: len(X)][unknown])


def sample_columns(
    tree: Tree, X: Floats, variances: Floats, leaf_noise: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw the values of all nodes, (2n−1, d), and the observations at the leaves, (n, d), given X with NaN."""
    return _draw_columns(tree, X, variances, leaf_noise, rng)[:2]


def _draw_columns(
    tree: Tree, X: Floats, variances: Floats, leaf_noise: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    n, d = X.shape
    up = column_messages(tree, X, leaf_noise)
    expected, drawn = nodes = np.zeros((2, 2 * n - 1, d))
    drawn[:] = rng.standard_normal(drawn.shape) * np.sqrt(variances)
    messages.pass_down(tree.parents(), tree.node_times(), up.mean, up.variance, np.empty_like(up.variance), nodes)
    # A node is the true value of its leaf; an entry would have been observed with noise.
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
