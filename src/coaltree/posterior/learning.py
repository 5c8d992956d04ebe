"""`learn_posterior`: trees, covariance and leaf noise from the data alone."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._version import __version__
from coaltree.inference import learn
from coaltree.inference.insertion import INSERTION
from coaltree.model.covariance import CovarianceFamily, Diagonal, Fixed, HuangWand, as_family
from coaltree.model.diffusion import leaf_distances
from coaltree.model.family import State
from coaltree.model.roots import DiagonalRoot
from coaltree.posterior.checkpoint import Checkpoint
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.rejuvenate import Start, move_on
from coaltree.posterior.sampling import check_sampler, leaf_names, sample_posterior
from coaltree.randomness import RandomState, as_generator, seed_of
from coaltree.tree import Tree
from coaltree.validation import check_count, check_data, check_leaf_noise

Floats = npt.NDArray[np.float64]

# Sweeps of moves that each reported tree gets by default, and how many times n² they may cost together.
N_SWEEPS, AFFORDABLE = 5, 50_000_000


class LearnedPosterior(NamedTuple):
    """What was learned, and the trees that follow from it."""

    posterior: TreePosterior  # each tree given its own draw of covariance and noise
    covariance: Floats  # (d, d), medians
    leaf_noise: Floats  # (n,), medians
    # The draw that goes with each tree; a single one if all have the same. (M, d), the variances, if Φ is diagonal.
    covariances: Floats  # (M, d, d)
    leaf_noises: Floats  # (M, n)
    trace: dict[str, Floats]  # one row an iteration, burn-in included
    burn_in: int
    completed: Floats  # (n, d): X, missing entries replaced by their posterior means
    completed_sd: Floats  # (n, d): posterior standard deviation of those, 0 elsewhere


def learn_posterior(
    X: Any,
    covariance: Any = "spherical",
    coordinates: Any = None,
    leaf_noise: Any = "learn",
    n_iter: int = 50,
    burn_in: int = 10,
    n_particles: int = 50,
    method: str = "auto",
    n_jobs: int | None = 1,
    random_state: RandomState = 0,
    names: Iterable[str] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    n_sweeps: int | None = None,
    neighbors: int | None = None,
) -> LearnedPosterior:
    """Learn the covariance and the leaf noise together with the tree.

    The final sampler knows their posterior medians, and its log evidence is given these. Then every tree gets a draw of
    covariance and noise of its own from the iterations and is moved on given that draw, so that supports do not take
    for known what was learned; `log_joint` of a tree is given its draw.

    Parameters
    ----------
    X : array-like (n, d)
        One row per leaf. Missing entries are NaN: they are integrated out under a diagonal covariance, drawn with the
        rest under a full one, and returned as `completed`. The trees then come from the iterations, moved on, and
        have no log evidence (NaN).
    covariance : {"spherical", "diagonal", "wishart"}, array (d, d), scikit-learn kernel or family
        What is known of Φ. A kernel is a Gaussian process over `coordinates` of the d columns. "wishart" learns a full
        matrix; with n ≤ d rows its prior decides what the data cannot, and a warning says so.
    coordinates : array-like (d, p), optional
        Where the columns lie, for a kernel.
    leaf_noise : "learn", float or array-like (n,)
        Variance of each leaf in units of Φ; learned under an Exponential(1) prior by default.
    n_iter, burn_in : int
        Iterations of Gibbs sampling, and how many of them to drop.
    n_particles : int
        Particles of each tree step and of the final sampler.
    method : str
        As in `sample_posterior`; or "greedy" for large n: every tree step builds the greedy tree (rule "peak") at the
        current covariance and noise instead of sampling, and that tree is the only one returned, without log evidence.
    n_jobs, random_state, names
        As in `sample_posterior`.
    progress : bool
        Show a progress bar. Ctrl-C ends the learning early and uses the iterations that are done.
    checkpoint : path, optional
        File (.npz) that follows the learning. A run that was stopped goes on from it to the identical result, and a
        finished one can be extended by a larger n_iter.
    n_sweeps : int, optional
        Sweeps of tree moves for each reported tree after the final sampler, without which supports are too sure (see
        `coaltree.posterior.rejuvenate`) and every tree has the medians for its draw. Default: 5; fewer for more than
        about 450 rows of 50 trees, none beyond 1 000.
    neighbors : int, optional
        With ``method="greedy"`` and a table without missing entries: consider only this many nearest neighbours of
        every cluster, as in `greedy_tree`, so that memory grows as n.

    Returns
    -------
    LearnedPosterior

    Examples
    --------
    >>> import coaltree as ct
    >>> X = ct.sample_data(ct.sample_tree(8, random_state=1), 3, random_state=2)
    >>> learned = ct.learn_posterior(100 * X, n_iter=15, burn_in=5)
    >>> bool(learned.covariance[0, 0] > 100)
    True
    """
    X_array = check_data(X, missing=True)
    n, d = X_array.shape
    n_iter = check_count(n_iter, "n_iter", at_least=1)
    burn_in = check_count(burn_in, "burn_in", at_least=0)
    if burn_in >= n_iter:
        raise ValueError(f"burn_in must be below n_iter = {n_iter}, got {burn_in}.")
    if n_sweeps is not None:
        n_sweeps = check_count(n_sweeps, "n_sweeps", at_least=0)
    if method != learn.GREEDY:
        check_sampler(method, n_particles, 0.5, n_jobs)
    if method == INSERTION:
        raise ValueError(
            'method="insertion" cannot retain a tree, as learning needs. Use "auto": it learns by merging forests and '
            "samples the final trees by insertion where that is better."
        )
    if neighbors is not None:
        neighbors = _check_neighbors(neighbors, method, X_array)
    family = as_family(covariance, coordinates, d)
    learn_noise = isinstance(leaf_noise, str) and leaf_noise == "learn"
    noise = None if learn_noise else check_leaf_noise(leaf_noise, n)
    _check_learnable(X_array, family, noise, distances=neighbors is None)
    names = leaf_names(X) if names is None else tuple(names)
    rng = as_generator(random_state)

    settings = learn.Settings(
        method=method, n_particles=n_particles, n_jobs=n_jobs, learn_noise=learn_noise, neighbors=neighbors
    )
    file = None if checkpoint is None else Checkpoint(checkpoint, X_array, family, noise, settings, rng)
    done = None if file is None else file.load()
    learned = learn.run(X_array, family, noise, n_iter, settings, rng, progress, done, file.follow if file else None)
    if file is not None:
        file.write(learned)
    kept = learned.draws[min(burn_in, len(learned.draws) - 1) :]
    middle = family.summarise([draw.covariance for draw in kept])
    middle_noise = np.median([draw.leaf_noise for draw in kept], axis=0)
    at_middle = kept[-1]._replace(covariance=middle, leaf_noise=middle_noise)
    own = [kept[k] for k in np.linspace(0, len(kept) - 1, n_particles).round().astype(int)]
    if method == learn.GREEDY:
        own = [learn.draw_tree(at_middle, _completed(X_array, kept)[0], settings, rng)]
        posterior = _gather(own, X_array, settings, names)
    elif kept[0].missing is not None:
        own = [learn.take_turns(draw, X_array, settings, rng) for draw in own]
        posterior = _gather(own, X_array, settings, names)
    else:
        if n_sweeps is None:
            n_sweeps = min(N_SWEEPS, AFFORDABLE // (n_particles * n**2))
        if n_sweeps == 0:
            own = [at_middle]
        posterior = sample_posterior(
            X_array,
            middle.matrix(),
            method=method,
            n_particles=n_particles,
            leaf_noise=middle_noise,
            n_jobs=n_jobs,
            random_state=rng,
            names=names,
        )
        posterior = move_on(posterior, lambda m, tree: _start(tree, middle, own[m], X_array), n_sweeps, n_jobs, rng)
    posterior = replace(posterior, info={**posterior.info, "random_state": seed_of(random_state)})
    trace = {name: np.array([draw.covariance.values[name] for draw in learned.draws]) for name in middle.values}
    trace["leaf_noise"] = np.array([draw.leaf_noise[0] for draw in learned.draws])
    trace["last_time"] = np.array([draw.tree.times[-1] for draw in learned.draws])
    trace["log_joint"] = np.array(learned.log_joint)
    return LearnedPosterior(
        posterior,
        middle.matrix(),
        middle_noise,
        np.array([_values(draw.covariance) for draw in (own[:1] if isinstance(family, Fixed) else own)]),
        np.array([draw.leaf_noise for draw in own]),
        trace,
        len(learned.draws) - len(kept),
        *_completed(X_array, kept),
    )


def _check_neighbors(neighbors: Any, method: str, X: Floats) -> int:
    if method != learn.GREEDY:
        raise ValueError(f'neighbors is for method="greedy", got method={method!r}: samplers look at all pairs.')
    if np.isnan(X).any():
        raise ValueError("neighbors needs a table without missing entries. Fill them in, or leave neighbors out.")
    return check_count(neighbors, "neighbors", at_least=1)


def _check_learnable(X: Floats, family: CovarianceFamily, noise: Floats | None, distances: bool = True) -> None:
    """Refuse what has no posterior before hours are spent on it."""
    n, d = X.shape
    complete = X[~np.isnan(X).any(axis=1)]
    if distances and len(complete) > 1:
        rows = ~np.isnan(X).any(axis=1)
        leaf_distances(complete, None, learn.FIRST_NOISE if noise is None else noise[rows])
    lowest, highest = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
    constant = np.flatnonzero(lowest == highest)
    if len(constant) == d:
        raise ValueError("X is constant in every column: there is nothing to learn from.")
    if len(constant) and isinstance(family, Diagonal | HuangWand):
        raise ValueError(
            f"X is constant in column(s) {', '.join(map(str, constant))}, whose variance cannot be learned. Drop them, "
            'or use covariance="spherical".'
        )
    if isinstance(family, HuangWand) and n <= d:
        warnings.warn(
            f'covariance="wishart" learns a full ({d}, {d}) matrix from {n} rows: its prior decides much of it. '
            'Consider "diagonal", "spherical", a kernel, or fewer columns.',
            stacklevel=3,
        )


def _start(tree: Tree, sampled_at: State, draw: learn.Unknowns, X: Floats) -> Start:
    """Begin with a tree that was sampled at one covariance, given a draw of another."""
    # Times and amplitude trade off in the likelihood: the tree begins as it was, in the draw's units.
    scale = math.exp((sampled_at.log_det - draw.covariance.log_det) / sampled_at.d)
    tree = Tree(tree.children, scale * tree.times)
    return Start(tree, draw.covariance.whiten(X), draw.leaf_noise, draw.covariance.log_det)


def _values(covariance: State) -> Floats:
    """Φ, or its variances if that is all there is to it."""
    if isinstance(covariance.root, DiagonalRoot):
        return covariance.amplitude * covariance.root.variances
    return covariance.matrix()


def _gather(
    draws: Sequence[learn.Unknowns], X: Floats, settings: learn.Settings, names: tuple[str, ...] | None
) -> TreePosterior:
    """Trees without a final sampler, of equal weight."""
    size = len(draws)
    return TreePosterior(
        children=np.array([draw.tree.children for draw in draws]),
        times=np.array([draw.tree.times for draw in draws]),
        weights=np.full(size, 1.0 / size),
        log_evidence=math.nan,
        log_joint=np.array([learn.log_joint(draw, X) for draw in draws]),
        ess_per_step=np.full(len(X) - 1, float(size)),
        names=names,
        info={"version": __version__, "method": settings.method, "n_particles": size},
    )


def _completed(X: Floats, kept: Sequence[learn.Unknowns]) -> tuple[Floats, Floats]:
    """X with posterior means in place of missing entries, and their standard deviations."""
    imputed = [draw.missing for draw in kept if draw.missing is not None]
    spread = np.zeros_like(X)
    if not imputed:
        return X, spread
    spread[np.isnan(X)] = np.std([each.drawn for each in imputed], axis=0)
    return learn.fill(X, np.mean([each.expected for each in imputed], axis=0)), spread
