"""Learn the covariance and the leaf noise together with the tree: Gibbs sampling over blocks.

One iteration draws in turn

    tree         by conditional SMC (the current tree retained), then by sweeps of moves
    Φ            given the scatter of the tree's contrasts, by its family's own kernel
    leaf noise   s₀ ~ Exponential(1), slice-sampled: like the wait of one pair, it is extra branch above each leaf;
                 Φ, or its amplitude, is integrated out and drawn anew, for the two hold each other;
                 then (t, s₀) → (t − δ, s₀ + δ), along which the likelihood does not change
    scale        (t, s₀, Φ) → (ct, cs₀, Φ/c), slice-sampled in log c: the likelihood does not change along it
    missing      entries of X that are NaN, given all of these

Without the scale block times and amplitude, which trade off exactly in the likelihood, crawl. Only the tree step needs
a complete table: under a diagonal Φ the other blocks integrate the missing entries out, under a full Φ they take the
drawn ones. With `method="greedy"` the tree is not drawn but built, the best guess at the current Φ and s₀: the rest
of the loop is the same, and the result a good point rather than draws from the posterior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from coaltree.inference import moves, smc
from coaltree.inference.due import PEAK
from coaltree.inference.graph import build_by_graph
from coaltree.inference.greedy import build
from coaltree.model import missing
from coaltree.model.coalescent import log_prior
from coaltree.model.covariance import CovarianceFamily, State
from coaltree.model.diffusion import log_density, pair_distances, pass_up, sample_nodes, scatter
from coaltree.model.family import Integrated, diagonal_only
from coaltree.model.roots import DenseRoot
from coaltree.model.slice import slice_step
from coaltree.tree import Tree

Floats = npt.NDArray[np.float64]

# Where leaf noise starts when it is learned: a twentieth of the expected wait of a pair.
FIRST_NOISE = 0.05
# Leaf noise below this is nothing beside rounding; the bound keeps a flat tail from wandering off.
SMALLEST_NOISE = math.exp(-40.0)
# Draws of missing entries and moves of the tree in turn, an iteration.
N_TURNS = 3
# Slices of the common scale, an iteration.
N_SCALES = 3
GREEDY = "greedy"
# A sweep regrafts each subtree once, O(n²) in all; of large trees only this many, lest moves outweigh all other blocks.
MOST_REGRAFTS = 256


class Unknowns(NamedTuple):
    """One value of everything that is learned."""

    tree: Tree
    covariance: State
    leaf_noise: Floats  # (n,)
    missing: missing.Imputed | None = None  # entries of X that are NaN


class Settings(NamedTuple):
    """How an iteration is made."""

    method: str = "auto"
    n_particles: int = 20
    n_sweeps: int = 1
    n_jobs: int | None = 1
    learn_noise: bool = True
    scale_move: bool = True
    neighbors: int | None = None  # candidates of each cluster of a greedy tree, all if None


class Learned(NamedTuple):
    """Draws of every iteration, burn-in included."""

    draws: list[Unknowns]
    log_joint: list[float]


def first_guess(
    X: Floats, family: CovarianceFamily, leaf_noise: Floats | None, neighbors: int | None = None
) -> Unknowns:
    """Begin with the covariance of the data and the greedy tree by peaks."""
    noise = np.full(len(X), FIRST_NOISE) if leaf_noise is None else leaf_noise
    if not np.isnan(X).any():
        guess = X.var(axis=0, ddof=1) if diagonal_only(family) else np.atleast_2d(np.cov(X, rowvar=False))
        covariance = family.start(guess)
        return Unknowns(_greedy_tree(covariance.whiten(X), noise, neighbors), covariance, noise)
    variances = np.nanvar(X, axis=0)
    covariance = family.start(variances if diagonal_only(family) else np.diag(variances))
    variances = np.maximum(covariance.variances(), 1e-6 * variances.mean())
    tree = Tree(*build(_shared_distances(X / np.sqrt(variances)), X.shape[1], noise, PEAK))
    imputed = missing.impute_columns(tree, X, variances, noise, np.random.default_rng(0))
    return Unknowns(tree, covariance, noise, imputed)


def _greedy_tree(rows: Floats, noise: Floats, neighbors: int | None) -> Tree:
    if neighbors is not None:
        return Tree(*build_by_graph(rows, noise, PEAK, neighbors))
    return Tree(*build(pair_distances(rows), rows.shape[1], noise, PEAK))


def _shared_distances(rows: Floats) -> Floats:
    """Packed squared distances over the columns two rows share, scaled up to all columns."""
    from sklearn.metrics.pairwise import nan_euclidean_distances  # slow to import

    eps: Floats = nan_euclidean_distances(rows, squared=True)[np.tril_indices(len(rows), -1)]
    middle = float(np.nanmedian(eps)) if np.any(eps > 0) else 1.0
    # Rows that share nothing are as far as any others; rows that agree on little are not therefore the same.
    return np.maximum(np.where(np.isnan(eps), middle, eps), 1e-3 * middle)


def filled(X: Floats, now: Unknowns) -> Floats:
    """X with its missing entries as last drawn."""
    return X if now.missing is None else fill(X, now.missing.drawn)


def fill(X: Floats, values: Floats) -> Floats:
    """Return a copy of X with its NaN entries, in order, replaced by `values`."""
    table = X.copy()
    table[np.isnan(X)] = values
    return table


def likelihood(covariance: State, X: Floats) -> Callable[[Tree, Floats], float]:
    """log p(X | tree, Φ, s₀) as a function of tree and leaf noise, whitened once; NaN only where Φ is diagonal."""
    if np.isnan(X).any():
        variances = covariance.variances()
        return lambda tree, noise: missing.log_likelihood(tree, X, variances, noise)
    rows, log_volume = covariance.whiten(X), 0.5 * (len(X) - 1) * covariance.log_det
    return lambda tree, noise: log_density(tree, rows, noise) - log_volume


def marginal_likelihood(integrated: Integrated, X: Floats) -> Callable[[Tree, Floats], float]:
    """Likewise with Φ integrated out, up to a constant."""
    rows = integrated.rows(X)

    def log_p(tree: Tree, noise: Floats) -> float:
        up = pass_up(tree, rows, noise)
        log_volume: float = 0.5 * rows.shape[1] * float(np.log(up.messages.merge_variance).sum())
        if integrated.log_marginal_of_sums is None:
            log_marginal: float = integrated.log_marginal(up.messages.contrasts(tree))
        else:
            log_marginal = integrated.log_marginal_of_sums(up.sums, len(rows) - 1)
        return log_marginal - log_volume

    return log_p


def draw_tree(now: Unknowns, X: Floats, settings: Settings, rng: np.random.Generator) -> Unknowns:
    """Tree given Φ and s₀."""
    rows = now.covariance.whiten(X)
    tree = now.tree
    if settings.method == GREEDY:
        return now._replace(tree=_greedy_tree(rows, now.leaf_noise, settings.neighbors))
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
        schedule = moves.Schedule(regrafts=min(len(X), MOST_REGRAFTS))
        tree, _ = moves.sweep(tree, rows, now.leaf_noise, settings.n_sweeps, rng, schedule=schedule)
    return now._replace(tree=tree)


def draw_covariance(now: Unknowns, X: Floats, family: CovarianceFamily, rng: np.random.Generator) -> Unknowns:
    """Φ given the tree and s₀: O(d³) at most once S is there."""
    if np.isnan(X).any():
        S, m = missing.scatter(now.tree, X, now.leaf_noise)
        return now._replace(covariance=family.update(now.covariance, S, m, rng))
    S = scatter(now.tree, X, now.leaf_noise, diagonal=diagonal_only(family))
    return now._replace(covariance=family.update(now.covariance, S, len(X) - 1, rng))


def draw_noise(now: Unknowns, X: Floats, family: CovarianceFamily, rng: np.random.Generator) -> Unknowns:
    """One s₀ for all leaves given the tree, on the log scale, and with it Φ where that can be integrated out.

    Given Φ the nd entries hold s₀ within a factor 1 ± O((nd)^(−½)), and Φ is as close to its value for the last s₀.
    """
    ones = np.ones(len(X))
    integrated = None if np.isnan(X).any() else family.integrated(now.covariance, rng)
    log_p = likelihood(now.covariance, X) if integrated is None else marginal_likelihood(integrated, X)

    def log_density(log_noise: float) -> float:
        noise = math.exp(log_noise)
        return log_p(now.tree, noise * ones) - noise + log_noise

    lower = math.log(SMALLEST_NOISE)
    current = max(math.log(now.leaf_noise[0]), lower)  # equal to the bound up to rounding, at least
    log_noise, _ = slice_step(log_density, current, log_density(current), rng, width=1.0, lower=lower, upper=40.0)
    now = now._replace(leaf_noise=np.full(len(X), math.exp(log_noise)))
    if integrated is None:
        return now
    S = scatter(now.tree, X, now.leaf_noise, diagonal=diagonal_only(family))
    return now._replace(covariance=integrated.draw(S, len(X) - 1, rng))


def draw_offset(now: Unknowns, rng: np.random.Generator) -> Unknowns:
    """Shift all merges by the same time and leaf noise by the opposite: (t, s₀) → (t − δ, s₀ + δ).

    Two leaves that merge at t differ by a variance of 2(t + s₀), so the likelihood stays; the priors leave the first
    merge, rate λ₁ = n(n−1)/2, with density ∝ e^(−(λ₁ − 1) t₁) on 0 < t₁ < t₁ + s₀: an exact draw. Without it first
    merges and leaf noise hold each other.
    """
    tree = now.tree
    total = float(tree.times[0] + now.leaf_noise[0])
    longest = total - 2.0 * SMALLEST_NOISE
    rate = 0.5 * tree.n_leaves * (tree.n_leaves - 1) - 1.0
    u = rng.random()
    first = -math.log1p(u * math.expm1(-rate * longest)) / rate if rate > 0 else u * longest
    if not 0.0 < first < longest:
        return now
    times = tree.times - tree.times[0] + first
    moved = Tree(tree.children, times, tree.names)
    return now._replace(tree=moved, leaf_noise=np.full_like(now.leaf_noise, total - first))


def draw_scale(
    now: Unknowns, X: Floats, family: CovarianceFamily, learn_noise: bool, rng: np.random.Generator
) -> Unknowns:
    """(t, s₀, Φ) → (ct, cs₀, Φ/c). Leaf noise that is given stays, and then the likelihood decides too."""
    tree, noise = now.tree, now.leaf_noise
    if family.log_rescale(now.covariance, 2.0) == -math.inf:
        return now
    n_merges = len(tree.times)
    base = log_prior(tree)
    moves_likelihood = not learn_noise and bool(np.any(noise > 0))
    log_p_data = likelihood(now.covariance, X) if moves_likelihood else None

    def scaled(log_c: float) -> Unknowns:
        c = math.exp(log_c)
        times = Tree(tree.children, c * tree.times, tree.names)
        covariance, _ = family.rescale(now.covariance, c)
        return now._replace(tree=times, covariance=covariance, leaf_noise=c * noise if learn_noise else noise)

    def log_density(log_c: float) -> float:
        c = math.exp(log_c)
        value = c * base + n_merges * log_c + family.log_rescale(now.covariance, c)
        if learn_noise:
            value += log_c - c * float(noise[0]) if c * noise[0] > 0.99 * SMALLEST_NOISE else -math.inf
        if log_p_data is not None:  # at (ct, s₀, Φ/c) what it is at (t, s₀/c, Φ)
            value += log_p_data(tree, noise / c)
        return value

    width = 2.0 / math.sqrt(n_merges)
    log_c, log_p = 0.0, log_density(0.0)
    # From a start far out the first slice is wide and may land as far out on the other side; the next ones come home.
    for _ in range(N_SCALES):
        log_c, log_p = slice_step(log_density, log_c, log_p, rng, width=width, lower=-40.0, upper=40.0)
    return scaled(log_c)


def draw_missing(now: Unknowns, X: Floats, rng: np.random.Generator) -> Unknowns:
    """Missing entries given the rest: jointly and exactly if Φ is diagonal, else given a draw of the internal nodes."""
    if now.covariance.is_diagonal:
        variances = now.covariance.variances()
        return now._replace(missing=missing.impute_columns(now.tree, X, variances, now.leaf_noise, rng))
    n = len(X)
    phi, times, above = now.covariance.matrix(), now.tree.times, now.tree.parents()[:n]
    spread = times[above - n] + now.leaf_noise
    precision = DenseRoot.of(phi).precision
    nodes = sample_nodes(now.tree, filled(X, now), phi, now.leaf_noise, random_state=rng)[0]
    return now._replace(missing=missing.impute_rows(X, nodes[above], spread, precision, rng))


def take_turns(now: Unknowns, X: Floats, settings: Settings, rng: np.random.Generator) -> Unknowns:
    """Missing entries and moves of the tree in turn: each holds the other back, and both are cheap."""
    moves_only = settings._replace(n_particles=1)
    for _ in range(N_TURNS):
        now = draw_missing(now, X, rng)
        if settings.method != GREEDY:
            now = draw_tree(now, filled(X, now), moves_only, rng)
    return draw_missing(now, X, rng)


def iterate(
    now: Unknowns, X: Floats, family: CovarianceFamily, settings: Settings, rng: np.random.Generator
) -> Unknowns:
    """One iteration: a Markov kernel that leaves p(t, π, Φ, s₀, missing | X) unchanged."""
    now = draw_tree(now, filled(X, now), settings, rng)
    seen = what_counts(now, X)
    now = draw_covariance(now, seen, family, rng)
    if settings.learn_noise:
        now = draw_offset(draw_noise(now, seen, family, rng), rng)
    if settings.scale_move:
        now = draw_scale(now, seen, family, settings.learn_noise, rng)
    return now if now.missing is None else take_turns(now, X, settings, rng)


def what_counts(now: Unknowns, X: Floats) -> Floats:
    """Return the table that Φ, s₀ and scale are given: X as it is if NaN can be integrated out, else filled in."""
    return X if now.covariance.is_diagonal else filled(X, now)


def log_joint(now: Unknowns, X: Floats) -> float:
    """log p(X, t, π | Φ, s₀), of the filled table if Φ is full and entries are missing."""
    return log_prior(now.tree) + likelihood(now.covariance, what_counts(now, X))(now.tree, now.leaf_noise)


def run(
    X: Floats,
    family: CovarianceFamily,
    leaf_noise: Floats | None,
    n_iter: int,
    settings: Settings,
    rng: np.random.Generator,
    progress: bool = False,
    done: Learned | None = None,
    after: Callable[[Learned], None] | None = None,
) -> Learned:
    """Run iterations from a first guess, or go on from those `done`, until there are `n_iter`.

    `leaf_noise` None means learn it; `after` is called after every iteration, with `rng` at that point. Ctrl-C ends the
    run early and returns the iterations that are done.
    """
    learned = Learned([], []) if done is None else done
    now = learned.draws[-1] if learned.draws else first_guess(X, family, leaf_noise, settings.neighbors)
    # Small matrices on many BLAS threads cost far more than they save.
    with (
        threadpool_limits(limits=1, user_api="blas"),
        tqdm(total=n_iter, initial=len(learned.draws), desc="iterations", disable=not progress) as bar,
    ):
        try:
            while len(learned.draws) < n_iter:
                now = iterate(now, X, family, settings, rng)
                learned.log_joint.append(log_joint(now, X))
                learned.draws.append(now)
                bar.update()
                if after is not None:
                    after(learned)
        except KeyboardInterrupt:
            if not learned.draws:
                raise
    return learned
