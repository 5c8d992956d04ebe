"""Learn the covariance and the leaf noise together with the tree: Gibbs sampling over blocks.

One iteration draws in turn

    tree         by conditional SMC (the current tree retained), then by sweeps of moves
    Φ            given the scatter of the tree's contrasts, by its family's own kernel
    leaf noise   s₀ ~ Exponential(1), slice-sampled: like the wait of one pair, it is extra branch above each leaf
    scale        (t, s₀, Φ) → (ct, cs₀, Φ/c), slice-sampled in log c: the likelihood does not change along it

Without the last block times and amplitude, which trade off exactly in the likelihood, crawl.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from coaltree.inference import moves, smc
from coaltree.inference.greedy import PEAK, build
from coaltree.model.coalescent import log_prior
from coaltree.model.covariance import CovarianceFamily, State
from coaltree.model.diffusion import log_likelihood, pair_distances, scatter
from coaltree.model.slice import slice_step
from coaltree.tree import Tree

Floats = npt.NDArray[np.float64]

# Where leaf noise starts when it is learned: a twentieth of the expected wait of a pair.
FIRST_NOISE = 0.05


class Unknowns(NamedTuple):
    """One value of everything that is learned."""

    tree: Tree
    covariance: State
    leaf_noise: Floats  # (n,)


class Settings(NamedTuple):
    """How an iteration is made."""

    method: str = "auto"
    n_particles: int = 20
    n_sweeps: int = 1
    n_jobs: int | None = 1
    learn_noise: bool = True
    scale_move: bool = True


class Learned(NamedTuple):
    """Draws of every iteration, burn-in included."""

    draws: list[Unknowns]
    log_joint: Floats  # (n_iter,): log p(X, t, π | Φ, s₀)


def first_guess(X: Floats, family: CovarianceFamily, leaf_noise: Floats | None) -> Unknowns:
    """Begin with the covariance of the data and the greedy tree by peaks."""
    n, d = X.shape
    covariance = family.start(np.atleast_2d(np.cov(X, rowvar=False)))
    noise = np.full(n, FIRST_NOISE) if leaf_noise is None else leaf_noise
    children, times = build(pair_distances(covariance.whiten(X)), d, noise, PEAK)
    return Unknowns(Tree(children, times), covariance, noise)


def draw_tree(now: Unknowns, X: Floats, settings: Settings, rng: np.random.Generator) -> Unknowns:
    """Tree given Φ and s₀."""
    rows = now.covariance.whiten(X)
    tree = now.tree
    if settings.n_particles > 1:
        tree = smc.conditional_draw(
            tree,
            pair_distances(rows),
            X.shape[1],
            now.leaf_noise,
            method=settings.method,
            n_particles=settings.n_particles,
            n_jobs=settings.n_jobs,
            rng=rng,
        )
    if settings.n_sweeps > 0:
        tree, _ = moves.sweep(tree, rows, now.leaf_noise, settings.n_sweeps, rng)
    return now._replace(tree=tree)


def draw_covariance(now: Unknowns, X: Floats, family: CovarianceFamily, rng: np.random.Generator) -> Unknowns:
    """Φ given the tree and s₀: O(d³) at most once S is there."""
    S = scatter(now.tree, X, now.leaf_noise)
    return now._replace(covariance=family.update(now.covariance, S, len(X) - 1, rng))


def draw_noise(now: Unknowns, X: Floats, rng: np.random.Generator) -> Unknowns:
    """One s₀ for all leaves given the tree and Φ, on the log scale."""
    rows = now.covariance.whiten(X)

    def log_density(log_noise: float) -> float:
        noise = math.exp(log_noise)
        return log_likelihood(now.tree, rows, leaf_noise=noise) - noise + log_noise

    current = math.log(now.leaf_noise[0])
    # Below e^−40 noise is nothing beside rounding; the bound keeps a flat tail from wandering off.
    log_noise, _ = slice_step(log_density, current, log_density(current), rng, width=1.0, lower=-40.0, upper=40.0)
    return now._replace(leaf_noise=np.full(len(X), math.exp(log_noise)))


def draw_scale(
    now: Unknowns, X: Floats, family: CovarianceFamily, learn_noise: bool, rng: np.random.Generator
) -> Unknowns:
    """(t, s₀, Φ) → (ct, cs₀, Φ/c). Leaf noise that is given stays, and then the likelihood decides too."""
    tree, noise = now.tree, now.leaf_noise
    if family.rescale(now.covariance, 1.0)[1] == -math.inf:
        return now
    n_merges = len(tree.times)
    base = log_prior(tree)
    moves_likelihood = not learn_noise and bool(np.any(noise > 0))

    def scaled(log_c: float) -> tuple[Unknowns, float]:
        c = math.exp(log_c)
        covariance, log_ratio = family.rescale(now.covariance, c)
        new = Unknowns(Tree(tree.children, c * tree.times, tree.names), covariance, c * noise if learn_noise else noise)
        log_density = c * base + n_merges * log_c + log_ratio
        if learn_noise:
            log_density += log_c - c * float(noise[0])
        if moves_likelihood:
            likelihood = log_likelihood(new.tree, covariance.whiten(X), leaf_noise=noise)
            log_density += likelihood - 0.5 * n_merges * covariance.log_det
        return new, log_density

    width = 2.0 / math.sqrt(n_merges)
    log_c, _ = slice_step(lambda x: scaled(x)[1], 0.0, scaled(0.0)[1], rng, width=width, lower=-40.0, upper=40.0)
    return scaled(log_c)[0]


def iterate(
    now: Unknowns, X: Floats, family: CovarianceFamily, settings: Settings, rng: np.random.Generator
) -> Unknowns:
    """One iteration: a Markov kernel that leaves p(t, π, Φ, s₀ | X) unchanged."""
    now = draw_tree(now, X, settings, rng)
    now = draw_covariance(now, X, family, rng)
    if settings.learn_noise:
        now = draw_noise(now, X, rng)
    if settings.scale_move:
        now = draw_scale(now, X, family, settings.learn_noise, rng)
    return now


def run(
    X: Floats,
    family: CovarianceFamily,
    leaf_noise: Floats | None,
    n_iter: int,
    settings: Settings,
    rng: np.random.Generator,
    progress: bool = False,
) -> Learned:
    """Run `n_iter` iterations from a first guess; `leaf_noise` None means learn it.

    Ctrl-C ends the run early and returns the iterations that are done.
    """
    now = first_guess(X, family, leaf_noise)
    draws: list[Unknowns] = []
    log_joint: list[float] = []
    # Small matrices on many BLAS threads cost far more than they save.
    with threadpool_limits(limits=1, user_api="blas"):
        bar: Any = tqdm(range(n_iter), desc="iterations") if progress else range(n_iter)
        try:
            for _ in bar:
                now = iterate(now, X, family, settings, rng)
                draws.append(now)
                rows = now.covariance.whiten(X)
                likelihood = log_likelihood(now.tree, rows, leaf_noise=now.leaf_noise)
                log_joint.append(log_prior(now.tree) + likelihood - 0.5 * (len(X) - 1) * now.covariance.log_det)
        except KeyboardInterrupt:
            if not draws:
                raise
    return Learned(draws, np.array(log_joint))
