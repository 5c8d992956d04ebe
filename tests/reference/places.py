"""Where a new point joins a tree, from the definitions: kriging at each place, adaptive quadrature along each edge."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.integrate import quad
from scipy.spatial.distance import squareform

from coaltree.tree import Tree
from tests.reference.regraft import krige


def exposure(tree, t):
    """Λ(t): the integral of the number of live lineages."""
    total, before, lineages = 0.0, 0.0, tree.n_leaves
    for merge in tree.times:
        if merge > t:
            break
        total += lineages * (merge - before)
        before, lineages = merge, lineages - 1
    return total + lineages * (t - before)


def place_density(tree, X, noise, x, new_noise, node):
    """f(t) on the edge above `node`; X whitened."""
    parents = dict(enumerate(p if p >= 0 else None for p in tree.parents().tolist()))
    times, leaves, d = tree.node_times(), list(range(tree.n_leaves)), X.shape[1]

    def f(t):
        mean, variance = krige(leaves, parents, times, X, noise, node, t)
        v = variance + t + new_noise
        if v <= 1e-14:
            return 0.0
        return math.exp(-exposure(tree, t) - d / 2 * math.log(2 * math.pi * v) - ((x - mean) ** 2).sum() / (2 * v))

    return f


def edge_masses(tree, X, noise, x, new_noise):
    """∫ f and ∫ f t / ∫ f of every edge, two arrays (2n−1,)."""
    times, parents = tree.node_times(), tree.parents()
    masses, means = np.zeros(len(times)), np.zeros(len(times))
    options = {"epsabs": 1e-14, "epsrel": 1e-8, "limit": 400}
    for node, parent in enumerate(parents):
        f = place_density(tree, X, noise, x, new_noise, node)
        low = times[node]
        ends = [low, *(t for t in tree.times if low < t < times[parent]), times[parent]]
        if parent < 0:
            ends = [low, low + 1.0, low + 100.0]
        for a, b in pairwise(ends):
            masses[node] += quad(f, a, b, **options)[0]
            means[node] += quad(lambda t, f=f: t * f(t), a, b, **options)[0]
    return masses, means / masses


def messages(tree, X, noise):
    """Means and variances from below and, at the parent, from above: (2n−1, d), (2n−1,) each."""
    n, times, parents = tree.n_leaves, tree.node_times(), tree.parents()
    mean, variance = np.zeros((2, 2 * n - 1, X.shape[1])), np.zeros((2, 2 * n - 1))
    mean[0, :n], variance[0, :n], variance[1, -1] = X, noise, np.inf

    def join(one, two):
        """Two messages as one, each (mean, variance)."""
        if np.isinf(two[1]):
            return one
        share = one[1] / (one[1] + two[1])
        return (1 - share) * one[0] + share * two[0], one[1] * (1 - share)

    def from_below(node, time):
        return mean[0, node], variance[0, node] + time - times[node]

    for k, (left, right) in enumerate(tree.children):
        mean[0, n + k], variance[0, n + k] = join(from_below(left, tree.times[k]), from_below(right, tree.times[k]))
    for node in range(2 * n - 3, -1, -1):
        parent = parents[node]
        left, right = tree.children[parent - n]
        beyond = times[parents[parent]] - times[parent] if parents[parent] >= 0 else 0.0
        sibling = from_below(left + right - node, times[parent])
        mean[1, node], variance[1, node] = join(sibling, (mean[1, parent], variance[1, parent] + beyond))
    return mean, variance


def log_densities(tree, X, noise, points, new_noise, size=3000):
    """log ∫ f over all edges, (B,), by the midpoint rule in the cube root of the time since an edge begins."""
    n, d, times, parents = tree.n_leaves, X.shape[1], tree.node_times(), tree.parents()
    mean, variance = messages(tree, X, noise)
    knots = np.append(0.0, tree.times)
    exposure_at = np.append(0.0, np.cumsum(np.diff(knots) * np.arange(n, 1, -1)))
    u = (np.arange(size) + 0.5) / size
    terms = []
    for node in range(2 * n - 1):
        low, rooted = times[node], parents[node] < 0
        length = 60.0 if rooted else times[parents[node]] - low
        if length <= 0.0:
            continue
        t = low + length * u**3
        rate = np.interp(t, knots, exposure_at) + np.maximum(t - knots[-1], 0.0)
        alpha = variance[0, node] + t - low
        share = np.zeros(size) if rooted else alpha / (variance[0, node] + variance[1, node] + length)
        v = new_noise + t + alpha * (1 - share)
        expected = mean[0, node] + share[:, None] * (mean[1, node] - mean[0, node])
        eps = ((points[:, None] - expected) ** 2).sum(axis=2)
        log_f = -rate - d / 2 * np.log(2 * math.pi * v) - eps / (2 * v) + np.log(3 * length * u**2 / size)
        terms.append(np.logaddexp.reduce(log_f, axis=1))
    return np.logaddexp.reduce(terms, axis=0)


def without(tree, leaf):
    """The tree without one leaf, by its cophenetic distances: exact, for they are ultrametric."""
    kept = np.delete(np.arange(tree.n_leaves), leaf)
    return Tree.from_linkage(linkage(squareform(tree.cophenetic()[np.ix_(kept, kept)]), "average"))
