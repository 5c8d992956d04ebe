"""Missing entries and values of the nodes drawn row by row and node by node, with numpy alone."""

from __future__ import annotations

import math

import numpy as np

from coaltree.model.missing import Imputed, column_messages


def impute_columns(tree, X, variances, leaf_noise, rng):
    """Down the tree, one node after another."""
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
        with np.errstate(invalid="ignore"):
            share = np.where(np.isinf(own), 1.0, own / (own + branch)) if branch > 0 else np.ones(d)
        expected[node] = up.mean[node] + share * (expected[parent] - up.mean[node])
        drawn[node] = up.mean[node] + share * (drawn[parent] - up.mean[node]) + np.sqrt(share * branch) * noise[node]
    seen = drawn[:n] + np.sqrt(leaf_noise)[:, None] * rng.standard_normal((n, d)) * np.sqrt(variances)
    unknown = np.isnan(X)
    return Imputed(seen[unknown], expected[:n][unknown])


def impute_rows(X, centres, spread, precision, rng):
    """One row after another, by solving with the block of the precision that its gaps have."""
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


def nodes_given_leaves(tree, up, noise):
    """Posterior mean (2n−1, d) and variance (2n−1,) of every node, and draws from noise (size, 2n−1, d)."""
    parents, times = tree.parents(), tree.node_times()
    mean, variance, nodes = up.mean.copy(), up.variance.copy(), noise.copy()
    root = len(mean) - 1
    nodes[:, root] = mean[root] + math.sqrt(variance[root]) * noise[:, root]
    for node in range(root - 1, -1, -1):
        parent = parents[node]
        branch, own = times[parent] - times[node], up.variance[node]
        share = own / (own + branch) if own + branch > 0 else 0.0
        mean[node] = up.mean[node] + share * (mean[parent] - up.mean[node])
        variance[node] = share * branch + share**2 * variance[parent]
        centre = up.mean[node] + share * (nodes[:, parent] - up.mean[node])
        nodes[:, node] = centre + math.sqrt(share * branch) * noise[:, node]
    return mean, variance, nodes
