"""`learn_posterior`: trees, covariance and leaf noise from the data alone.

The choice of covariance, and of heavy-tailed noise, can be left to the data: short chains are compared by leave-one-out
density. That density measures which model predicts best, for new rows, missing entries and `score_samples`. It does not
measure which tree agrees best with known labels: see "Which covariance" in the documentation.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats
from coaltree._version import __version__
from coaltree.errors import InputError
from coaltree.inference.effort import Effort, settle, suits_full_covariance
from coaltree.inference.learning import chain as learn
from coaltree.inference.learning import running
from coaltree.inference.learning.chain import AUTO, GREEDY, Chain
from coaltree.inference.learning.checkpoint import Checkpoint
from coaltree.inference.learning.latent import Augmentation
from coaltree.inference.learning.working import ALL, check_effective_columns, with_room, work_with
from coaltree.inference.moves import row_noise
from coaltree.inference.moves.walk import FREE_COLUMNS
from coaltree.inference.predictive import loo
from coaltree.inference.predictive import mixed as mixed_loo
from coaltree.inference.predictive.loo import Compared, LeaveOneOut, compare
from coaltree.inference.predictive.mixed import Mixed, as_mixed, sparing
from coaltree.inference.smc.sampling import leaf_names
from coaltree.model.columns import Columns
from coaltree.model.covariance import CovarianceFamily, Diagonal, Fixed, HuangWand, ShrunkWishart, as_family
from coaltree.model.family import State
from coaltree.model.unit import unit_family
from coaltree.posterior.convergence import MIXED, NUMBERS, Convergence, diagnose
from coaltree.posterior.ensemble import TreePosterior
from coaltree.randomness import RandomState, as_generator, seed_of
from coaltree.validation import check_choice, check_count, check_data, check_leaf_noise

LEARN, ROBUST = "learn", "robust"
# A short chain has this share of the iterations of a long one, and at least this many; half of them are warm-up.
PILOT_SHARE, FEWEST_ITERATIONS = 0.25, 100
# One chain is enough if it gives this many draws: what is compared is density, not agreement.
FEWEST_OF_ONE_CHAIN = 50
# A full matrix needs this many rows per column to be worth trying; more columns than this are too many for factors.
ROWS_PER_COLUMN, MOST_COLUMNS = 1.5, 400
# An iteration takes time n D² where coordinates are latent and the matrix is full.
MOST_LATENT = 60


def is_auto(value: Any) -> bool:
    """Whether a choice is left to the data."""
    return isinstance(value, str) and value == AUTO


def pilot_effort(effort: Effort) -> Effort:
    """How long to run for a comparison."""
    n_iter = min(max(math.ceil(PILOT_SHARE * effort.n_iter), FEWEST_ITERATIONS), effort.n_iter)
    warmup = n_iter // 2
    n_chains = 1 if n_iter - warmup >= FEWEST_OF_ONE_CHAIN else effort.n_chains
    return Effort(warmup, (n_iter - warmup) * n_chains, n_chains, 1)


def candidates(X: Floats) -> tuple[str, ...]:
    """Covariances that suit a table: those that its columns and rows can distinguish."""
    d = X.shape[1]
    if d == 1 or np.any(np.nanmin(X, axis=0) == np.nanmax(X, axis=0)):
        return ("spherical",)
    names = ["spherical", "diagonal"]
    complete = X[~np.isnan(X).any(axis=1)]
    if len(complete) >= ROWS_PER_COLUMN * d and not collinear(complete):
        names.append("wishart")
    if 3 <= d <= MOST_COLUMNS:
        names.append("factors")
    return tuple(names)


def candidates_of(columns: Columns, n: int) -> tuple[str, ...]:
    """Covariances that suit a mixed table of n rows: a scale for each column that has one, and all correlations."""
    n_scaled = int(np.count_nonzero(~columns.unit))
    names = ["spherical", *(["diagonal"] if n_scaled > 1 else [])]
    if columns.d > 1 and n >= ROWS_PER_COLUMN * columns.d and columns.d <= MOST_LATENT:
        names.append("wishart")
    return tuple(names)


def collinear(X: Floats) -> bool:
    """Whether some column is a linear combination of the others, up to rounding."""
    standard = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), np.finfo(np.float64).tiny)
    singular = np.linalg.svd(standard, compute_uv=False)
    return bool(len(singular) < X.shape[1] or singular[-1] < 1e-7 * singular[0])


def choose(
    suited: tuple[str, ...], covariance: Any, leaf_noise: Any, try_out: Callable[[Any, Any], LeaveOneOut]
) -> tuple[Any, Any, dict[str, Compared]]:
    """Return the covariance and leaf noise to run with, and the table of what was compared.

    Covariances come first, with the requested noise or one for all rows; then heavy tails, with the best covariance.
    """
    names = suited if is_auto(covariance) else (covariance,)
    noise = LEARN if is_auto(leaf_noise) else leaf_noise
    fits = {_label(name): try_out(name, noise) for name in names}
    best = max(names, key=lambda name: fits[_label(name)].elpd)
    if is_auto(leaf_noise):
        plain = fits[_label(best)]
        robust = fits[f"{_label(best)}, {ROBUST}"] = try_out(best, ROBUST)
        if robust.elpd > plain.elpd:
            noise = ROBUST
    return best, noise, compare(fits)


def _label(covariance: Any) -> str:
    return covariance if isinstance(covariance, str) else "as given"


class LearnedPosterior(NamedTuple):
    """What was learned, and the trees it was learned with."""

    posterior: TreePosterior  # draws of the first chain, of the second, …
    middle: State  # a central value of the draws of Φ
    leaf_noise: Floats  # (n,), medians
    # The draw that goes with each tree; a single one if all have the same. (M, d), the variances, if Φ is diagonal.
    covariances: Floats  # (M, d, d)
    leaf_noises: Floats  # (M, n)
    trace: dict[str, Floats]  # (n_chains, iterations, …), warm-up included
    warmup: int
    completed: Floats  # (n, d): X, missing entries replaced by their posterior means
    completed_sd: Floats  # (n, d): posterior standard deviation of those, 0 elsewhere
    convergence: Convergence | None  # None for a greedy tree
    finished: bool  # False if Ctrl-C ended it early
    # (M,): the noise of a new row that goes with each tree, drawn from its distribution; None if all rows share one
    new_noises: Floats | None = None
    surprise: Floats | None = None  # (n,): probability of a row that fits as badly; None likewise
    tails: Floats | None = None  # (M, 2): s₀ and ν of each draw; None likewise
    compared: dict[str, Compared] | None = None  # what was compared, the best first; None if nothing was to choose
    # For a mixed table; `completed` and everything above then refer to its latent coordinates.
    mixed: Mixed | None = None
    effective_columns: float = math.nan  # how many independent columns the table counted for

    @property
    def power(self) -> float:
        """To which the likelihood was raised."""
        return float(self.effective_columns / self.completed.shape[1])

    @property
    def covariance(self) -> Floats:
        """A central value of the draws of Φ, (d, d)."""
        return self.middle.matrix()

    def leave_one_out(self) -> LeaveOneOut:
        """Log density of rows, complete ones if all are numbers, given the others."""
        if self.mixed is not None:
            draws = (self.posterior, self.completed, self.covariances, self.leaf_noises, self.tails)
            return mixed_loo.leave_one_out(self.mixed, *draws, self.power)
        seen = np.where(self.completed_sd > 0.0, np.nan, self.completed)
        return loo.leave_one_out(self.posterior, seen, self.covariances, self.leaf_noises, self.tails, self.power)


def learn_posterior(
    X: npt.ArrayLike,
    covariance: Any = None,
    *,
    coordinates: npt.ArrayLike | None = None,
    leaf_noise: npt.ArrayLike | str = "learn",
    n_draws: int | None = None,
    warmup: int | None = None,
    n_chains: int | None = None,
    thin: int | None = None,
    method: str = AUTO,
    n_jobs: int | None = 1,
    random_state: RandomState = 0,
    names: Iterable[str] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    neighbors: int | None = None,
    columns: Any = None,
    effective_columns: str | float = AUTO,
) -> LearnedPosterior:
    """Learn the covariance and the leaf noise together with the tree, for any number of rows.

    Markov chains on trees, covariance and noise together, from different starts. Each kept draw is a tree with the
    covariance and the noise it was drawn with, so supports account for the uncertainty of both. An iteration
    takes time that grows as n log n. A warning says if the chains have not converged.

    Parameters
    ----------
    X : array-like (n, d)
        One row per leaf. Missing entries are NaN: they are integrated out under a diagonal covariance, drawn with the
        rest under a full one, and returned as `completed`.
    covariance : {"spherical", "diagonal", "shrunk", "wishart", "factors", "auto"}, array (d, d) or (d,), kernel, family
        The form of Φ. A scikit-learn kernel is a Gaussian process over `coordinates` of the d columns. "shrunk" learns
        a full matrix, shrunk towards one variance for all columns by as much as the data ask for. "wishart" learns a
        full one that is not; with n ≤ d rows its prior decides what the data cannot, and a warning says so. "factors"
        learns a few common factors and a variance for each column. "auto" runs short chains with each that suits the
        table and takes the one with the highest leave-one-out density (`compared`). Default: "shrunk" where rows are
        enough to learn it (`coaltree.inference.effort`: 50 or more, 4 per column, no missing entries, more than 10
        distinct values in every column), else "spherical"; "diagonal" if there are binary, ordinal or categorical
        `columns`.
    coordinates : array-like (d, p), optional
        Positions of the columns, for a kernel.
    leaf_noise : "learn", "robust", "auto", float or array-like (n,)
        Variance of each leaf in units of Φ; learned under an Exponential(1) prior by default, and if Φ is spherical no
        less than the variance of rounding. "robust" gives every row
        its own noise around it, with heavy tails that are learned too, so that rows that fit badly do not distort the
        tree; `surprise` says how badly. "auto" compares the two.
    n_draws : int, optional
        Trees kept, over all chains together.
    warmup : int, optional
        Iterations of each chain during which it adapts, and which are dropped.
    n_chains : int, optional
        Number of chains, each from its own start. Default: 2.
    thin : int, optional
        Iterations of a chain between two kept draws. The defaults of all four depend on the number of rows, see
        `coaltree.inference.effort`. If neither `n_draws`, `warmup` nor `thin` is given, chains of up to 6 666 rows
        (2 222 of more than 64 columns, 4 444 with latent coordinates) end as soon as they have converged. They are
        judged after 150 (latent coordinates: 300), 300, 450, 600, 900 and 1 200 iterations, or from 600 on if there are
        more than 64 columns, as far as 2 million regrafts go; the first third
        is dropped, and about 200 draws are kept. Larger tables have a fixed length.
    method : {"auto", "greedy"}
        "auto" samples. "greedy" builds the greedy tree (rule "peak") at the current covariance and noise instead, in
        every iteration, and the last one is the only tree returned.
    n_jobs, random_state, names
        As in `sample_posterior`; chains run side by side in threads, or through joblib's configured backend.
    progress : bool
        Show a progress bar. Ctrl-C ends the run early and returns what has been drawn.
    checkpoint : path, optional
        File (.npz) that is updated during learning. A stopped run continues from it to the identical result, and a
        finished one can be extended by a larger n_draws.
    neighbors : int, optional
        With ``method="greedy"``: consider only this many nearest neighbours of every cluster, as in `greedy_tree`.
    columns : "auto", dict, path of a TOML file, or Guessed, optional
        The types of the columns: see `coaltree.model.columns`. By default all are numbers in their own units. With it X
        may be a DataFrame of any columns; numbers are standardised, and the results refer to latent coordinates.
    effective_columns : "auto", "all" or float
        How many independent columns the table counts for. A spherical or diagonal covariance takes columns that vary
        together for independent evidence, which makes supports overconfident; "auto" estimates how many they are worth
        (`coaltree.inference.learning.working`). "all" takes the covariance at its word. Other covariances, given ones,
        and tables with latent coordinates always count all.

    Returns
    -------
    LearnedPosterior

    Examples
    --------
    >>> import coaltree as ct
    >>> X = ct.sample_data(ct.sample_tree(8, random_state=1), 3, random_state=2)
    >>> learned = ct.learn_posterior(100 * X, n_draws=40, warmup=50)
    >>> bool(learned.covariance[0, 0] > 100), len(learned.posterior)
    (True, 40)
    """
    mixed = None if columns is None else as_mixed(X, columns)
    X_array = check_data(X, missing=True) if mixed is None else mixed.encoded.X
    check_choice(method, "method", (AUTO, GREEDY))
    for name, value, least in (
        ("n_draws", n_draws, 1),
        ("warmup", warmup, 0),
        ("n_chains", n_chains, 1),
        ("thin", thin, 1),
    ):
        if value is not None:
            check_count(value, name, at_least=least)
    if neighbors is not None:
        neighbors = _check_neighbors(neighbors, method, X_array)
    names = leaf_names(X) if names is None else tuple(names)
    effective = check_effective_columns(effective_columns, X_array.shape[1])
    if method == GREEDY or (mixed is not None and mixed.columns.is_latent):
        effective = ALL
    if covariance is None:
        covariance = "spherical" if mixed is None else mixed.columns.usual_covariance
        if (
            covariance == "spherical"
            and effective == AUTO
            and suits_full_covariance(X_array)
            and not collinear(X_array)
        ):
            covariance = "shrunk"
    how = _How(X_array, coordinates, method, n_jobs, neighbors, mixed, effective)
    latent = mixed is not None and mixed.columns.is_latent
    slow = X_array.shape[1] > FREE_COLUMNS or latent
    effort = settle(len(X_array), warmup, n_draws, n_chains, thin, method == GREEDY, slow, latent)
    compared = None
    if is_auto(covariance) or is_auto(leaf_noise):
        if method == GREEDY:
            raise InputError('"auto" compares sampled trees: name covariance and leaf_noise for method="greedy".')
        pilot = pilot_effort(effort)

        def try_out(covariance: Any, leaf_noise: Any) -> LeaveOneOut:
            short, _ = _learn(how, covariance, leaf_noise, pilot, _pilot_seed(random_state), None, progress, None)
            return short.leave_one_out()

        suited = candidates(X_array) if mixed is None else candidates_of(mixed.columns, len(X_array))
        covariance, leaf_noise, compared = choose(suited, covariance, leaf_noise, try_out)
    learned, told = _learn(how, covariance, leaf_noise, effort, random_state, names, progress, checkpoint)
    for message, category in told:
        warnings.warn(message, category, stacklevel=2)
    return learned._replace(compared=compared)


class _How(NamedTuple):
    """What the chains of a comparison have in common."""

    X: Floats
    coordinates: Any
    method: str
    n_jobs: int | None
    neighbors: int | None
    mixed: Mixed | None
    effective_columns: str | float

    def given(self, covariance: Any) -> _How:
        """Return how to run with a covariance: only with these is noise bounded by rounding."""
        if self.mixed is None or (isinstance(covariance, str) and covariance in ("spherical", "shrunk")):
            return self
        mixed = self.mixed.in_cells()
        counted = ALL if mixed.columns.is_latent else self.effective_columns
        return self._replace(X=mixed.encoded.X, mixed=mixed, effective_columns=counted)


def _learn(
    how: _How,
    covariance: Any,
    leaf_noise: Any,
    effort: Effort,
    random_state: RandomState,
    names: tuple[str, ...] | None,
    progress: bool,
    checkpoint: str | os.PathLike[str] | None,
) -> tuple[LearnedPosterior, list[tuple[str, type[Warning]]]]:
    """Run the chains of one model; the second part is what to warn about."""
    how = how.given(covariance)
    X_array, method, neighbors = how.X, how.method, how.neighbors
    n, d = X_array.shape
    latent = None if how.mixed is None else how.mixed.augmentation()
    family = as_family(covariance, how.coordinates, d) if latent is None else unit_family(covariance, latent.unit)
    learn_noise = isinstance(leaf_noise, str) and leaf_noise in (LEARN, ROBUST)
    own_noise = learn_noise and leaf_noise == ROBUST
    if own_noise and method == GREEDY:
        raise InputError('leaf_noise="robust" is for sampled trees, got method="greedy". Use leaf_noise="learn".')
    noise = None if learn_noise else check_leaf_noise(leaf_noise, n)
    told = _check_learnable(X_array, family) if latent is None else []
    n_drawn = 0 if how.mixed is None else int(np.isnan(X_array).sum())
    if effort.checks and sparing(n_drawn, effort.most_kept) > 1:  # too large to keep draws that may be dropped later
        effort = settle(n, n_draws=effort.n_draws, n_chains=effort.n_chains, slow=True)
    settings = learn.Settings(
        effort.warmup,
        effort.thin,
        learn_noise,
        method == GREEDY,
        neighbors,
        own_noise,
        keep_latent=0 if how.mixed is None else sparing(n_drawn, effort.most_kept),
        effective_columns=how.effective_columns,
        checks=effort.checks,
    )

    rng = as_generator(random_state)
    file = (
        None
        if checkpoint is None
        else Checkpoint(checkpoint, X_array, family, noise, settings, effort.n_chains, rng, latent)
    )
    chains = _chains(X_array, family, noise, settings, effort, rng, latent)
    if file is not None:
        file.load(chains)
    about = NUMBERS if how.mixed is None or not how.mixed.columns.is_latent else MIXED
    finished = running.run(
        chains,
        effort.n_iter,
        how.n_jobs,
        progress,
        None if file is None else lambda: file.write(chains),
        effort.checks[:-1],
        lambda: _judge(_keep(chains, effort), chains, about).converged,
    )
    if min(chain.n_done for chain in chains) == 0:
        raise KeyboardInterrupt
    kept = _keep(chains, effort)
    wanted = kept.n_done if finished else effort.n_iter
    learned = _gather(X_array, chains, kept, names, method, wanted, seed_of(random_state), about, _label(covariance))
    if learned.convergence is not None and learned.convergence.warnings:
        from sklearn.exceptions import ConvergenceWarning  # slow to import

        told += [(message, ConvergenceWarning) for message in learned.convergence.warnings]
    if how.mixed is not None:
        learned = learned._replace(mixed=how.mixed.with_draws(kept.draws[-len(learned.posterior) :], chains[-1]))
    return learned, told


def _pilot_seed(random_state: RandomState) -> RandomState:
    """Return a seed for short chains that leaves that of the long ones unchanged."""
    return random_state.spawn(1)[0] if isinstance(random_state, np.random.Generator) else random_state


def _chains(
    X: Floats,
    family: CovarianceFamily,
    noise: Floats | None,
    settings: learn.Settings,
    effort: Effort,
    rng: np.random.Generator,
    latent: Augmentation | None,
) -> list[Chain]:
    starting, *seeds = rng.spawn(effort.n_chains + 1)
    table = X if latent is None else latent.encoded.start
    first = latent.first_noise(starting) if noise is None and latent is not None else noise
    starts, near = learn.first_guesses(table, family, first, effort.n_chains, starting, settings.heavy)
    if latent is not None:
        starts = [latent.begin(start, starting, learn_noise=noise is None) for start in starts]
    bounded = settings.learn_noise and latent is None
    working = work_with(starts[0], X, learn.filled(X, starts[0]), family, settings.effective_columns, bounded)
    starts = [with_room(start, working) for start in starts]
    return [
        Chain(X, family, settings, start, near, seed, latent, working)
        for start, seed in zip(starts, seeds, strict=True)
    ]


def _check_neighbors(neighbors: Any, method: str, X: Floats) -> int:
    if method != GREEDY:
        raise InputError(f'neighbors is for method="greedy", got method={method!r}: chains look at near edges anyway.')
    if np.isnan(X).any():
        raise InputError("neighbors needs a table without missing entries. Fill them in, or leave neighbors out.")
    return check_count(neighbors, "neighbors", at_least=1)


def _check_learnable(X: Floats, family: CovarianceFamily) -> list[tuple[str, type[Warning]]]:
    """Refuse inputs without a proper posterior before hours are spent on them; return what to warn about."""
    n, d = X.shape
    lowest, highest = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
    constant = np.flatnonzero(lowest == highest)
    if len(constant) == d:
        raise InputError("X is constant in every column: there is nothing to learn from.")
    if len(constant) and isinstance(family, Diagonal | HuangWand | ShrunkWishart):
        raise InputError(
            f"X is constant in column(s) {', '.join(map(str, constant))}, whose variance cannot be learned. Drop them, "
            'or use covariance="spherical".'
        )
    if isinstance(family, HuangWand) and n <= d:
        told = (
            f'covariance="wishart" learns a full ({d}, {d}) matrix from {n} rows: its prior decides much of it. '
            'Consider "diagonal", "spherical", "factors", a kernel, or fewer columns.'
        )
        return [(told, UserWarning)]
    return []


class _Kept(NamedTuple):
    """What is kept of the iterations that all chains have done."""

    n_done: int
    warmup: int  # iterations that are dropped
    thin: int
    draws: list[learn.Draw]  # of the first chain, of the second, …


def _keep(chains: Sequence[Chain], effort: Effort) -> _Kept:
    """Choose what to keep; of chains that are still in warm-up, their current state."""
    n_done = min(chain.n_done for chain in chains)
    n_drawn = min(len(chain.draws) for chain in chains)
    if n_drawn == 0:
        return _Kept(n_done, n_done - 1, effort.thin, [chain.draw() for chain in chains])
    warmup, thin = effort.window(n_done)
    step = thin // effort.thin
    # Draw k, from 0, is of iteration effort.warmup + (k + 1) · effort.thin.
    chosen = range((warmup - effort.warmup) // effort.thin + step - 1, n_drawn, step)
    return _Kept(n_done, warmup, thin, [chain.draws[k] for chain in chains for k in chosen])


def _judge(kept: _Kept, chains: Sequence[Chain], about: str) -> Convergence:
    """Whether the chains agree, by all iterations after those that are dropped, and by the trees that are kept."""
    recent = slice(kept.warmup, kept.n_done)
    trace = {name: np.array([chain.trace[name][recent] for chain in chains]) for name in chains[0].trace}
    return diagnose(trace, np.array([draw.children for draw in kept.draws]), len(chains), about=about)


def _gather(
    X: Floats,
    chains: Sequence[Chain],
    kept: _Kept,
    names: tuple[str, ...] | None,
    method: str,
    wanted: int,
    seed: int | None,
    about: str,
    covariance: str,
) -> LearnedPosterior:
    """Combine the draws of all chains."""
    n_done, warmup, thin, flat = kept
    family, d = chains[0].family, X.shape[1]
    trace = {name: np.array([chain.trace[name][:n_done] for chain in chains]) for name in chains[0].trace}
    states = [family.from_values(draw.values, d) for draw in flat]
    middle, noise = family.summarise(states), chains[0].now.leaf_noise
    noises = np.array([[draw.leaf_noise] for draw in flat])
    new = surprise = tails = None
    if chains[0].settings.heavy:
        laws = [draw.tails for draw in flat]
        tails = np.array(laws)
        leaf_noises = np.array([draw.own_noise for draw in flat])
        noise = np.median(leaf_noises, axis=0)
        new, surprise = row_noise.new_noises(laws, np.random.default_rng(0)), row_noise.surprise(leaf_noises, laws)
    elif chains[0].settings.learn_noise:
        noise = np.full(len(X), np.median(noises))
        leaf_noises = np.broadcast_to(noises, (len(flat), len(X)))
    else:
        leaf_noises = np.broadcast_to(noise, (1 if isinstance(family, Fixed) else len(flat), len(X)))
    if method == GREEDY:
        flat, states, leaf_noises = flat[-1:], states[-1:], leaf_noises[-1:]
    info = {
        "version": __version__,
        "method": GREEDY if method == GREEDY else "chain",
        "n_chains": len(chains),
        "warmup": warmup,
        "thin": thin,
        "iterations": n_done,
        "iterations_wanted": wanted,
        "random_state": seed,
        "covariance": covariance,
        "effective_columns": chains[0].working.power * d,
    }
    size = len(flat)
    posterior = TreePosterior(
        children=np.array([draw.children for draw in flat]),
        times=np.array([draw.times for draw in flat]),
        weights=np.full(size, 1.0 / size),
        log_evidence=math.nan,
        log_joint=np.array([draw.log_joint for draw in flat]),
        ess_per_step=np.full(len(X) - 1, float(size)),
        names=names,
        info=info,
    )
    convergence = None if method == GREEDY else _judge(kept, chains, about)
    return LearnedPosterior(
        posterior,
        middle,
        noise,
        np.array([state.compact() for state in (states[:1] if isinstance(family, Fixed) else states)]),
        leaf_noises,
        trace,
        warmup,
        *learn.completed(X, chains),
        convergence,
        n_done == wanted,
        new,
        surprise,
        tails,
        effective_columns=chains[0].working.power * d,
    )
