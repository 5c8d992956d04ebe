"""Learning with the paper's samplers: conditional SMC in place of the chain's sweeps, the other blocks the same.

The paper alternates a tree sampler with updates of Φ. Started anew each time, a sampler of few particles has another
law than the posterior; with the last tree retained (particle Gibbs) the alternation is a Markov chain on trees, Φ and
noise. A few moves of the tree come after it, for particles alone seldom change the first merges. At the end trees are
sampled at the medians, as in the paper. `by_chain` is `coaltree.learn_posterior`, told in the same words.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

import coaltree as ct
from coaltree.inference.learning import chain as learn
from coaltree.inference.learning.chain import Unknowns
from coaltree.inference.moves import whole_tree
from coaltree.inference.smc import loop
from coaltree.model.covariance import CovarianceFamily
from coaltree.model.diffusion import pair_distances
from coaltree.model.noise import SHARED, GivenNoise

Floats = npt.NDArray[np.float64]

CHAIN = "chain"
# A sweep regrafts each subtree once, O(n²) in all; of large trees only this many, lest moves outweigh all other blocks.
MOST_REGRAFTS = 256


class Learned(NamedTuple):
    """What was learned, and trees."""

    posterior: ct.TreePosterior
    covariance: Floats  # (d, d), medians
    leaf_noise: Floats  # (n,), medians
    trace: dict[str, Floats]  # of Φ, of all iterations that count


def draw_tree(now: Unknowns, X: Floats, method: str, n_particles: int, rng: np.random.Generator) -> Unknowns:
    """Tree given Φ and s₀: a conditional draw by one of the samplers, then a sweep of moves."""
    rows = now.covariance.whiten(X)
    n, d = rows.shape
    distances = pair_distances(rows)
    tree = loop.conditional_draw(
        now.tree, distances, d, now.leaf_noise, method=method, n_particles=n_particles, rng=rng
    )
    schedule = whole_tree.Schedule(regrafts=min(n, MOST_REGRAFTS))
    moved = whole_tree.trace(tree, rows, now.leaf_noise, 1, rng, schedule=schedule)
    return now._replace(tree=ct.Tree(moved.children[0], moved.times[0], tree.names))


def iterations(
    X: Floats,
    family: CovarianceFamily,
    leaf_noise: Floats | None,
    method: str,
    n_particles: int,
    rng: np.random.Generator,
) -> Iterator[Unknowns]:
    """Yield one draw an iteration, without end; leaf noise None means learn it."""
    now = learn.first_guess(X, family, SHARED if leaf_noise is None else GivenNoise(leaf_noise))

    def move(now: Unknowns) -> Unknowns:
        return draw_tree(now, X, method, n_particles, rng)

    while True:
        # Small matrices on many BLAS threads cost far more than they save.
        with threadpool_limits(limits=1, user_api="blas"):
            now = learn.iterate(now, X, family, rng, move)
        yield now


def by_particles(
    X: Floats,
    family: CovarianceFamily,
    learn_noise: bool,
    method: str,
    n_particles: int,
    n_iter: int,
    burn_in: int,
    rng: np.random.Generator,
    names: Sequence[str] | None = None,
) -> Learned:
    """Learn by one of the samplers; leaf noise is nothing if it is not learned."""
    chain = iterations(X, family, None if learn_noise else np.zeros(len(X)), method, n_particles, rng)
    kept = [draw for _, draw in zip(range(n_iter), chain, strict=False)][burn_in:]
    phi = family.summarise([draw.covariance for draw in kept]).matrix()
    noise = np.median([draw.leaf_noise for draw in kept], axis=0)
    posterior = ct.sample_posterior(
        X, phi, method=method, n_particles=n_particles, leaf_noise=noise, random_state=rng, names=names
    )
    trace = {name: np.array([draw.covariance.values[name] for draw in kept]) for name in kept[0].covariance.values}
    return Learned(posterior, phi, noise, trace)


def by_chain(
    X: Floats,
    family: CovarianceFamily,
    learn_noise: bool,
    n_draws: int,
    warmup: int,
    rng: np.random.Generator,
    names: Sequence[str] | None = None,
    method: str = "auto",
) -> Learned:
    """Learn by coaltree's own chains, or by greedy trees."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a quick run is short on purpose
        noise = "learn" if learn_noise else 0.0
        found = ct.learn_posterior(
            X,
            family,
            coordinates=None,
            leaf_noise=noise,
            n_draws=n_draws,
            warmup=warmup,
            thin=1,
            method=method,
            random_state=rng,
            names=names,
        )
    trace = {
        name: values[:, found.warmup :].reshape(-1, *values.shape[2:])
        for name, values in found.trace.items()
        if name not in learn.TRACES
    }
    return Learned(found.posterior, found.covariance, found.leaf_noise, trace)
