"""The greedy rules by a plain scan of all pairs at every merge: the twin of `coaltree.inference.greedy.build`."""

from __future__ import annotations

import numpy as np

import coaltree as ct
from coaltree.model import gig


def expected(rule, d, eps, lam, r):
    """v at which each pair is expected to merge."""
    if rule == "peak":
        return eps / d
    if rule == "mode":
        return eps / (0.5 * d + np.sqrt(0.25 * d * d + lam * eps))
    if rule == "truncated_mean":
        return gig.mean(d, eps, lam, r)
    # The untruncated mean at ε = 0 is a limit: 0, or 1/λ if d = 1.
    mean = np.full_like(eps, max(2.0 - d, 0.0) / lam)
    mean[eps > 0] = gig.mean(d, eps[eps > 0], lam)
    return mean


def plain_scan(X, rule, leaf_noise=0.0):
    """Tree by a full matrix of distances, Lance–Williams updates, and a look at every pair before every merge."""
    n, d = X.shape
    eps = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    offset, node = np.broadcast_to(leaf_noise, n).astype(float), np.arange(n)
    now, children, times = 0.0, [], []
    for k in range(n - 1):
        live = len(node)
        lam = live * (live - 1) / 2
        # In order of node ids, so that of equal pairs the first comes first.
        order = np.argsort(node)
        i, j = (order[index] for index in np.triu_indices(live, 1))
        r = 2 * now + (offset[i] + offset[j])
        v = expected(rule, d, eps[i, j], lam, r)
        delta = v - r if rule == "truncated_mean" else v - (offset[i] + offset[j])
        best = np.argmin(delta)
        i, j = i[best], j[best]
        now += max((v[best] - r[best]) / 2, 0.0)
        var_i, var_j = now + offset[i], now + offset[j]
        w_i, w_j = var_j / (var_i + var_j), var_i / (var_i + var_j)
        row = np.maximum(w_i * eps[i] + w_j * eps[j] - w_i * w_j * eps[i, j], 0.0)
        children.append(sorted((node[i], node[j])))
        times.append(now)
        eps[i], eps[:, i], eps[i, i] = row, row, 0.0
        offset[i], node[i] = var_i * w_i - now, n + k
        eps, offset, node = np.delete(np.delete(eps, j, 0), j, 1), np.delete(offset, j), np.delete(node, j)
    return ct.Tree(children, times)
