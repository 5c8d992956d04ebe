"""`learn_posterior`: trees, covariance and leaf noise from the data alone.

The choice of covariance, and of heavy-tailed noise, can be left to the data: short chains are compared by leave-one-out
density. That density measures which model predicts best, for new rows, missing entries and `score_samples`. It does not
measure which tree agrees best with known labels: see "Which covariance" in the documentation.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree import sizes
from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.inference.effort import Effort, settle, suits_full_covariance
from coaltree.inference.learning.chain import AUTO, GREEDY
from coaltree.inference.learning.learn import Learned, LearningTask, label_of, learn
from coaltree.inference.learning.working import ALL, check_effective_columns
from coaltree.inference.smc.sampling import leaf_names
from coaltree.model.columns import Columns
from coaltree.model.noise import LEARN, ROBUST
from coaltree.model.tables import MixedTable, PlainTable, make_table
from coaltree.places.gaps import Mixed
from coaltree.places.leave_one_out import leave_one_out, leave_one_out_mixed
from coaltree.posterior.draws import Draws
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.left_out import Compared, LeaveOneOut, compare
from coaltree.randomness import RandomState
from coaltree.validation import check_choice, check_count

# A short chain has this share of the iterations of a long one, and at least this many; half of them are warm-up.
PILOT_SHARE, FEWEST_ITERATIONS = 0.25, 100
# One chain is enough if it gives this many draws: what is compared is density, not agreement.
FEWEST_OF_ONE_CHAIN = 50


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
    if len(complete) >= sizes.ROWS_PER_COLUMN * d and not collinear(complete):
        names.append("wishart")
    if 3 <= d <= sizes.COLUMNS_FOR_FACTORS:
        names.append("factors")
    return tuple(names)


def candidates_of(columns: Columns, n: int) -> tuple[str, ...]:
    """Covariances that suit a mixed table of n rows: a scale for each column that has one, and all correlations."""
    n_scaled = int(np.count_nonzero(~columns.unit))
    names = ["spherical", *(["diagonal"] if n_scaled > 1 else [])]
    full = columns.d > 1 and n >= sizes.ROWS_PER_COLUMN * columns.d and columns.d <= sizes.LATENT_FOR_FULL
    if full and not columns.uncorrelated:
        names.append("wishart")
    return tuple(names)


def suited(table: PlainTable | MixedTable) -> tuple[str, ...]:
    """Covariances that suit a table."""
    return candidates_of(table.columns, len(table.X)) if isinstance(table, MixedTable) else candidates(table.X)


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
    fits = {label_of(name): try_out(name, noise) for name in names}
    best = max(names, key=lambda name: fits[label_of(name)].elpd)
    if is_auto(leaf_noise):
        plain = fits[label_of(best)]
        robust = fits[f"{label_of(best)}, {ROBUST}"] = try_out(best, ROBUST)
        if robust.elpd > plain.elpd:
            noise = ROBUST
    return best, noise, compare(fits)


@dataclass(frozen=True, eq=False, kw_only=True)
class LearnedPosterior(Learned):
    """What was learned, and the trees it was learned with."""

    compared: dict[str, Compared] | None = None  # what was compared, the best first; None if nothing was to choose
    # For a mixed table; `completed` and everything else then refer to its latent coordinates.
    mixed: Mixed | None = None

    def leave_one_out(self) -> LeaveOneOut:
        """Log density of rows, complete ones if all are numbers, given the others."""
        seen = np.where(self.completed_sd > 0.0, np.nan, self.completed)
        return left_out(self.mixed, self.posterior, self.draws, self.completed, seen, self.power)


def left_out(
    mixed: Mixed | None, posterior: TreePosterior, draws: Draws, completed: Floats, seen: Floats, power: float
) -> LeaveOneOut:
    """Leave-one-out densities of rows of a table, `completed`; of one of numbers, by what was `seen` of it."""
    if mixed is None:
        return leave_one_out(posterior, seen, draws, power)
    return leave_one_out_mixed(mixed, posterior, completed, power)


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
        judged after 150, 300, 450, 600, 900 and 1 200 iterations, as far as 2 million regrafts go (from 300 on with
        latent coordinates, from 600 on with more than 64 columns);
        the first third is dropped, and about 200 draws are kept. Larger tables have a fixed length.
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
    table = make_table(X, columns)
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
        neighbors = _check_neighbors(neighbors, method, table.X)
    names = leaf_names(X) if names is None else tuple(names)
    effective = check_effective_columns(effective_columns, table.X.shape[1])
    if method == GREEDY or table.is_latent:
        effective = ALL
    if covariance is None:
        covariance = table.usual_covariance
        if (
            covariance == "spherical"
            and effective == AUTO
            and suits_full_covariance(table.X)
            and not collinear(table.X)
        ):
            covariance = "shrunk"
    task = LearningTask(table, coordinates, method, n_jobs, neighbors, effective)
    slow = table.X.shape[1] > sizes.FREE_COLUMNS or table.is_latent
    effort = settle(len(table.X), warmup, n_draws, n_chains, thin, method == GREEDY, slow, table.is_latent)
    compared = None
    if is_auto(covariance) or is_auto(leaf_noise):
        if method == GREEDY:
            raise InputError('"auto" compares sampled trees: name covariance and leaf_noise for method="greedy".')
        pilot = pilot_effort(effort)

        def try_out(covariance: Any, leaf_noise: Any) -> LeaveOneOut:
            short, _ = learn(task, covariance, leaf_noise, pilot, _pilot_seed(random_state), None, progress, None)
            return _with_table(short).leave_one_out()

        covariance, leaf_noise, compared = choose(suited(table), covariance, leaf_noise, try_out)
    learned, told = learn(task, covariance, leaf_noise, effort, random_state, names, progress, checkpoint)
    for message, category in told:
        warnings.warn(message, category, stacklevel=2)
    return _with_table(learned, compared)


def _with_table(learned: Learned, compared: dict[str, Compared] | None = None) -> LearnedPosterior:
    """Add what predictions need of a table with columns of several kinds."""
    table = learned.table
    mixed = Mixed.of(table, learned.draws) if isinstance(table, MixedTable) else None
    return LearnedPosterior(**vars(learned), compared=compared, mixed=mixed)


def _pilot_seed(random_state: RandomState) -> RandomState:
    """Return a seed for short chains that leaves that of the long ones unchanged."""
    return random_state.spawn(1)[0] if isinstance(random_state, np.random.Generator) else random_state


def _check_neighbors(neighbors: Any, method: str, X: Floats) -> int:
    if method != GREEDY:
        raise InputError(f'neighbors is for method="greedy", got method={method!r}: chains look at near edges anyway.')
    if np.isnan(X).any():
        raise InputError("neighbors needs a table without missing entries. Fill them in, or leave neighbors out.")
    return check_count(neighbors, "neighbors", at_least=1)
