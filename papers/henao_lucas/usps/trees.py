"""The trees that are compared on handwritten digits: each function yields names, trees and CPU seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

import coaltree as ct
from coaltree.model.gp import GaussianProcess, OnColumns
from coaltree.posterior.coclustering import pair_sums

Named = Iterator[tuple[str, ct.Tree, float]]

# Iterations of the learner with greedy trees; the second half counts.
N_ITER = 5
# Particles of a sampler, and draws of the race that are averaged.
N_PARTICLES, N_DRAWS = 2, 12


class Clock:
    """CPU seconds since it was made or last read."""

    def __init__(self) -> None:
        self.began = time.process_time()

    def read(self) -> float:
        """Return the seconds and begin again."""
        now = time.process_time()
        seconds, self.began = now - self.began, now
        return seconds


def axis_wise_matern(side: int) -> GaussianProcess:
    """The paper's covariance over the pixels of a square image: Matérn-3/2 along each axis, and noise."""
    pixels = np.indices((side, side)).reshape(2, -1).T.astype(float)
    across, down = (OnColumns(Matern(3.0, (0.3, 30.0), nu=1.5), [axis]) for axis in (0, 1))
    return GaussianProcess(across * down + WhiteKernel(0.1, (1e-4, 100.0)), pixels)


def learn(X: np.ndarray, family: object, leaf_noise: object, rng: np.random.Generator) -> ct.LearnedPosterior:
    """Covariance, and leaf noise if wanted, learned with greedy trees."""
    warmup = N_ITER // 2
    return ct.learn_posterior(
        X, family, leaf_noise=leaf_noise, n_draws=N_ITER - warmup, warmup=warmup, method="greedy", random_state=rng
    )


def plain(X: np.ndarray, rng: np.random.Generator) -> Named:
    """What needs no model: linkages, and trees from the prior."""
    yield from linkages(X)
    clock = Clock()
    yield "prior", ct.sample_tree(len(X), random_state=rng), clock.read()


def linkages(X: np.ndarray, prefix: str = "") -> Named:
    """Average linkage and Ward's."""
    for rule in ("average", "ward"):
        clock = Clock()
        yield prefix + rule, ct.Tree.from_linkage(linkage(X, rule)), clock.read()


def matern(X: np.ndarray, rng: np.random.Generator) -> Named:
    """The paper's own: Matérn covariance learned; greedy trees and MPost2."""
    clock = Clock()
    learned = learn(X, axis_wise_matern(round(X.shape[1] ** 0.5)), 0.0, rng)
    spent = clock.read()
    yield "mgreedy", ct.greedy_tree(X, learned.covariance, rule="mean"), spent + clock.read()
    yield "matern_peak", learned.posterior[0], spent
    clock = Clock()
    post = ct.sample_posterior(X, learned.covariance, method="mpost2", n_particles=N_PARTICLES, random_state=rng)
    yield "mpost2", post.best_tree(), spent + clock.read()


def spherical(X: np.ndarray, rng: np.random.Generator) -> Named:
    """Φ = φI with φ learned: greedy trees and samplers."""
    clock = Clock()
    learned = learn(X, "spherical", 0.0, rng)
    spent, phi = clock.read(), learned.covariance
    yield "peak", learned.posterior[0], spent
    for rule in ("mode", "mean"):
        clock = Clock()
        yield rule, ct.greedy_tree(X, phi, rule=rule), spent + clock.read()
    for name, method in (("ref", "mpost2"), ("smc1", "smc1")):
        clock = Clock()
        post = ct.sample_posterior(X, phi, method=method, n_particles=N_PARTICLES, random_state=rng)
        yield name, post.best_tree(), spent + clock.read()
    clock = Clock()
    noisy = learn(X, "spherical", "learn", rng)
    post = ct.sample_posterior(
        X, noisy.covariance, method="tpost", n_particles=N_PARTICLES, leaf_noise=noisy.leaf_noise, random_state=rng
    )
    yield "tpost", post.best_tree(), clock.read()


def project(X: np.ndarray) -> np.ndarray:
    """Coordinates along the principal axes whose variance is above the average (Kaiser's rule)."""
    centred = X - X.mean(axis=0)
    variances, axes = np.linalg.eigh(np.cov(centred, rowvar=False))
    return np.ascontiguousarray(centred @ axes[:, variances > variances.mean()])


def even(X: np.ndarray) -> np.ndarray:
    """Images of one brightness and contrast: the pixels of each have mean 0 and variance 1."""
    return np.asarray((X - X.mean(axis=1, keepdims=True)) / X.std(axis=1, keepdims=True))


def projected(X: np.ndarray, rng: np.random.Generator) -> Named:
    """Principal axes first, then Φ = φI with φ learned."""
    clock = Clock()
    Z = project(X)
    yield "projected", learn(Z, "spherical", 0.0, rng).posterior[0], clock.read()
    yield from linkages(Z, "projected_")


def evened(X: np.ndarray, rng: np.random.Generator) -> Named:
    """Principal axes of evened images, Φ = φI with φ learned; the last trees average over draws of the race."""
    clock = Clock()
    Z = project(even(X))
    learned = learn(Z, "spherical", 0.0, rng)
    spent = clock.read()
    yield "evened", learned.posterior[0], spent
    yield from linkages(Z, "evened_")
    clock = Clock()
    draws = [
        ct.sample_posterior(Z, learned.covariance, method="smc1", n_particles=1, random_state=rng)
        for _ in range(N_DRAWS)
    ]
    spent += clock.read()
    for name, times, rule in (("mean_order", False, "average"), ("mean_time", True, "ward")):
        yield f"evened_{name}", mean_tree(draws, times, rule), spent + clock.read()


def mean_tree(draws: Sequence[ct.TreePosterior], times: bool, rule: str) -> ct.Tree:
    """One tree from many: a linkage of the mean time, or order, at which pairs meet.

    The draws are independent runs of the race with one particle each, so of the sampler's proposal. Orders 1 … n−1
    instead of times let no level of the tree outweigh the others.
    """
    order = np.arange(1.0, draws[0].n_leaves)[None]
    total = sum(pair_sums(draw.children, draw.times if times else order) for draw in draws)
    return ct.Tree.from_linkage(linkage(squareform(total / len(draws), checks=False), rule))


GROUPS = {"plain": plain, "matern": matern, "spherical": spherical, "projected": projected, "evened": evened}


@cache
def compile_for(side: int) -> None:
    """Compile everything once, so that run times are those of a second call."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(130, side * side))
    for group in GROUPS.values():
        for _ in group(X, rng):
            pass
