"""`learn_posterior`: trees, covariance and leaf noise from the data alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree.inference import learn
from coaltree.model.covariance import as_family
from coaltree.model.diffusion import leaf_distances
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.sampling import check_sampler, sample_posterior
from coaltree.randomness import RandomState, as_generator
from coaltree.validation import check_count, check_data, check_leaf_noise

Floats = npt.NDArray[np.float64]


class LearnedPosterior(NamedTuple):
    """What was learned, and the trees that follow from it."""

    posterior: TreePosterior  # trees given the medians below
    covariance: Floats  # (d, d)
    leaf_noise: Floats  # (n,)
    trace: dict[str, Floats]  # one row an iteration, burn-in included
    burn_in: int


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
) -> LearnedPosterior:
    """Learn the covariance and the leaf noise together with the tree, then sample trees at their posterior medians.

    Parameters
    ----------
    X : array-like (n, d)
        One row per leaf.
    covariance : {"spherical", "diagonal", "wishart"}, array (d, d), scikit-learn kernel or family
        What is known of Φ. A kernel is a Gaussian process over `coordinates` of the d columns.
    coordinates : array-like (d, p), optional
        Where the columns lie, for a kernel.
    leaf_noise : "learn", float or array-like (n,)
        Variance of each leaf in units of Φ; learned under an Exponential(1) prior by default.
    n_iter, burn_in : int
        Iterations of Gibbs sampling, and how many of them to drop.
    n_particles : int
        Particles of each tree step and of the final sampler.
    method, n_jobs, random_state, names
        As in `sample_posterior`.
    progress : bool
        Show a progress bar. Ctrl-C ends the learning early and uses the iterations that are done.

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
    X_array = check_data(X)
    n, d = X_array.shape
    n_iter = check_count(n_iter, "n_iter", at_least=1)
    burn_in = check_count(burn_in, "burn_in", at_least=0)
    if burn_in >= n_iter:
        raise ValueError(f"burn_in must be below n_iter = {n_iter}, got {burn_in}.")
    method, n_particles, _ = check_sampler(method, n_particles, 0.5, n_jobs)
    family = as_family(covariance, coordinates, d)
    learn_noise = isinstance(leaf_noise, str) and leaf_noise == "learn"
    noise = None if learn_noise else check_leaf_noise(leaf_noise, n)
    # Constant data and, without noise, duplicates have no posterior: say so before hours are spent.
    leaf_distances(X_array, None, learn.FIRST_NOISE if noise is None else noise)
    rng = as_generator(random_state)

    settings = learn.Settings(method=method, n_particles=n_particles, n_jobs=n_jobs, learn_noise=learn_noise)
    learned = learn.run(X_array, family, noise, n_iter, settings, rng, progress)
    kept = learned.draws[min(burn_in, len(learned.draws) - 1) :]
    middle = family.summarise([draw.covariance for draw in kept])
    middle_noise = np.median([draw.leaf_noise for draw in kept], axis=0)
    posterior = sample_posterior(
        X,
        middle.matrix(),
        method=method,
        n_particles=n_particles,
        leaf_noise=middle_noise,
        n_jobs=n_jobs,
        random_state=rng,
        names=names,
    )
    trace = {name: np.array([draw.covariance.values[name] for draw in learned.draws]) for name in middle.values}
    trace["leaf_noise"] = np.array([draw.leaf_noise[0] for draw in learned.draws])
    trace["last_time"] = np.array([draw.tree.times[-1] for draw in learned.draws])
    trace["log_joint"] = learned.log_joint
    return LearnedPosterior(posterior, middle.matrix(), middle_noise, trace, len(learned.draws) - len(kept))
