"""Where a new point joins a tree, from the definitions: kriging at each place, adaptive quadrature along each edge."""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import quad

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
        for a, b in zip(ends[:-1], ends[1:], strict=True):
            masses[node] += quad(f, a, b, **options)[0]
            means[node] += quad(lambda t, f=f: t * f(t), a, b, **options)[0]
    return masses, means / masses
