"""Twins of `coaltree.posterior`, by sets and dictionaries, and makers of test posteriors."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from scipy.cluster.hierarchy import linkage

import coaltree as ct
from coaltree import TreePosterior
from coaltree.model.noise import GivenNoise
from coaltree.posterior.draws import MATRIX, Draws
from tests.reference.trees import leaves_below, random_tree


def make_posterior(trees, weights, **changes):
    arguments = {
        "children": np.array([tree.children for tree in trees]),
        "times": np.array([tree.times for tree in trees]),
        "weights": weights,
        "log_evidence": -12.5,
        "log_joint": np.linspace(-3.0, -2.0, len(trees)),
        "ess_per_step": np.full(trees[0].n_leaves - 1, 2.5),
        "names": trees[0].names,
        "info": {"method": "tpost", "seed": 7},
    }
    return TreePosterior(**(arguments | changes))


def make_draws(trees, covariances, noise, **changes):
    """Draws with these trees; one covariance for all or one for each, and the same noise, (n,), for all."""
    size = len(trees)
    arguments = {
        "children": np.array([tree.children for tree in trees]),
        "times": np.array([tree.times for tree in trees]),
        "log_joint": np.linspace(-3.0, -2.0, size),
        "phi": {MATRIX: np.asarray(covariances, dtype=float)},
        "noise": GivenNoise(np.asarray(noise, dtype=float)),
        "noises": np.asarray(noise, dtype=float)[None],
        "tails": np.tile([np.nan, np.inf], (size, 1)),
    }
    return Draws(**(arguments | changes))


def noisy_posterior(rng, n_leaves=10, n_trees=40, noise=0.2, names=None, **changes):
    """Trees that agree in part: average linkage of one set of points, each time with other noise."""
    points = 1.5 * rng.normal(size=(n_leaves, 3)) ** 3
    children, times = [], []
    for _ in range(n_trees):
        merges = linkage(points + noise * rng.normal(size=points.shape), "average")
        children.append(merges[:, :2].astype(int))
        times.append(merges[:, 2])
    arguments = {
        "children": children,
        "times": times,
        "weights": rng.dirichlet(np.ones(n_trees)),
        "log_evidence": -12.5,
        "log_joint": rng.normal(size=n_trees),
        "ess_per_step": rng.uniform(1, n_trees, size=n_leaves - 1),
        "names": names,
        "info": {"method": "tpost", "seed": 7},
    }
    return TreePosterior(**(arguments | changes))


def unrelated_posterior(rng, n_leaves=6, n_trees=15):
    """Trees that agree on nothing but the root."""
    return make_posterior([random_tree(rng, n_leaves) for _ in range(n_trees)], rng.dirichlet(np.ones(n_trees)))


def clades_of(tree):
    n = tree.n_leaves
    return [frozenset(map(int, leaves_below(tree, n + k))) for k in range(n - 1)]


def clade_table(posterior):
    """Return {clade: [(merge time, weight), …]} over the trees of the posterior."""
    table = defaultdict(list)
    for tree, weight in zip(posterior, posterior.weights, strict=True):
        for clade, time in zip(clades_of(tree), tree.times, strict=True):
            table[clade].append((float(time), float(weight)))
    return table


def support(posterior):
    return {clade: sum(weight for _, weight in found) for clade, found in clade_table(posterior).items()}


def quantile(found, q):
    """Return the earliest time at which the weight up to it reaches a share q."""
    found = sorted(found)
    total, reached = sum(weight for _, weight in found), 0.0
    for time, weight in found:
        reached += weight
        if reached >= q * total * (1 - 1e-10):
            return time
    return found[-1][0]


def log_credibility(posterior):
    shares = support(posterior)
    return np.array([sum(np.log(shares[clade]) for clade in clades_of(tree)) for tree in posterior])


def shaken_posterior(rng, tree, n_trees, share=0.02, **changes):
    """Many leaves, quickly: one tree, in which some neighbouring leaves have changed places, and times a little."""
    n, order = tree.n_leaves, tree.leaf_order()
    children, times = [], []
    for _ in range(n_trees):
        moved = np.arange(2 * n - 1)
        left = 2 * np.flatnonzero(rng.random(n // 2) < share)
        moved[order[left]], moved[order[left + 1]] = order[left + 1], order[left]
        children.append(moved[tree.children])
        times.append(np.sort(tree.times * rng.uniform(0.95, 1.05, size=n - 1)))
    arguments = {
        "children": np.array(children),
        "times": np.array(times),
        "weights": np.full(n_trees, 1.0 / n_trees),
        "log_evidence": np.nan,
        "log_joint": rng.normal(size=n_trees),
        "ess_per_step": np.full(n - 1, float(n_trees)),
        "names": tree.names,
    }
    return TreePosterior(**(arguments | changes))


def jittered_posterior(X, noise, n_trees=20, random_state=0):
    """Trees of rows to each of which some noise was added: they differ where rows are closer than the noise."""
    rng = np.random.default_rng(random_state)
    trees = [ct.greedy_tree(X + noise * rng.normal(size=X.shape), rule="peak") for _ in range(n_trees)]
    return make_posterior(trees, np.full(n_trees, 1.0 / n_trees))
