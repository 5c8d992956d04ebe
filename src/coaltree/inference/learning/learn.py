"""Run the chains of one model on one table, and gather what they keep."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from coaltree import sizes
from coaltree._arrays import Floats
from coaltree._version import __version__
from coaltree.errors import InputError
from coaltree.inference.effort import Effort, settle
from coaltree.inference.learning import chain as blocks
from coaltree.inference.learning import running
from coaltree.inference.learning.chain import GREEDY, TreeChain
from coaltree.inference.learning.checkpoint import Checkpoint
from coaltree.inference.learning.latent import Augmentation
from coaltree.inference.learning.table import ChainTable, Numbers, filled
from coaltree.inference.learning.working import ALL, with_room, work_with
from coaltree.model.covariance import CovarianceFamily, Diagonal, Fixed, HuangWand, ShrunkWishart, as_family
from coaltree.model.family import State
from coaltree.model.noise import NoiseFamily, as_noise
from coaltree.model.tables import MixedTable, PlainTable
from coaltree.model.unit import unit_family
from coaltree.posterior.convergence import MIXED, NUMBERS, Convergence, diagnose
from coaltree.posterior.draws import Draw, Draws
from coaltree.posterior.ensemble import TreePosterior
from coaltree.randomness import RandomState, as_generator, seed_of


def label_of(covariance: Any) -> str:
    """Name a covariance in results."""
    return covariance if isinstance(covariance, str) else "as given"


@dataclass(frozen=True, eq=False, kw_only=True)
class Learned:
    """What the chains of one model give."""

    posterior: TreePosterior  # draws of the first chain, of the second, …
    draws: Draws  # the same trees with Φ, leaf noise and all else that goes with each
    middle: State  # a central value of the draws of Φ
    leaf_noise: Floats  # (n,), medians
    trace: dict[str, Floats]  # (n_chains, iterations, …), warm-up included
    warmup: int
    completed: Floats  # (n, d): X, missing entries replaced by their posterior means
    completed_sd: Floats  # (n, d): posterior standard deviation of those, 0 elsewhere
    convergence: Convergence | None  # None for a greedy tree
    finished: bool  # False if Ctrl-C ended it early
    effective_columns: float  # how many independent columns the table counted for
    table: PlainTable | MixedTable

    @property
    def power(self) -> float:
        """To which the likelihood was raised."""
        return float(self.effective_columns / self.completed.shape[1])

    @property
    def covariance(self) -> Floats:
        """A central value of the draws of Φ, (d, d)."""
        return self.middle.matrix()

    @property
    def covariances(self) -> Floats:
        """Φ of each draw, (M, d, d), or its variances (M, d) if it is diagonal; (1, …) if all have the same."""
        return self.draws.covariances

    @property
    def leaf_noises(self) -> Floats:
        """Leaf noise of each draw, (M, n); (1, n) if it is known and Φ is."""
        return self.draws.leaf_noises

    @property
    def surprise(self) -> Floats | None:
        """Probability of a row that fits as badly, (n,); None if all rows share one noise."""
        return self.draws.surprise()


class LearningTask(NamedTuple):
    """What the chains of a comparison have in common."""

    table: PlainTable | MixedTable
    coordinates: Any
    method: str
    n_jobs: int | None
    neighbors: int | None
    effective_columns: str | float

    def given(self, covariance: Any) -> LearningTask:
        """Return how to run with a covariance: only with these is noise bounded by rounding."""
        if isinstance(covariance, str) and covariance in ("spherical", "shrunk"):
            return self
        table = self.table.in_cells()
        return self._replace(table=table, effective_columns=ALL if table.is_latent else self.effective_columns)


def learn(
    task: LearningTask,
    covariance: Any,
    leaf_noise: Any,
    effort: Effort,
    random_state: RandomState,
    names: tuple[str, ...] | None,
    progress: bool,
    checkpoint: str | os.PathLike[str] | None,
) -> tuple[Learned, list[tuple[str, type[Warning]]]]:
    """Run the chains of one model; the second part is what to warn about."""
    task = task.given(covariance)
    table, method = task.table, task.method
    n, d = table.X.shape
    rows: ChainTable = Numbers(table.X)
    told: list[tuple[str, type[Warning]]] = []
    if isinstance(table, MixedTable) and table.is_latent:
        rows = Augmentation(table.columns, table.encoded)
        family = unit_family(covariance, table.columns.unit)
    else:
        family = as_family(covariance, task.coordinates, d)
        told = _check_learnable(table.X, family)
    noise = as_noise(leaf_noise, n)
    if noise.varies and method == GREEDY:
        raise InputError('leaf_noise="robust" is for sampled trees, got method="greedy". Use leaf_noise="learn".')
    if effort.checks and sparing(table.n_kept, effort.most_kept) > 1:  # too large to keep draws that may be dropped
        effort = settle(n, n_draws=effort.n_draws, n_chains=effort.n_chains, slow=True)
    settings = blocks.ChainSettings(
        effort.warmup,
        effort.thin,
        method == GREEDY,
        task.neighbors,
        keep_latent=sparing(table.n_kept, effort.most_kept) if table.n_kept else 0,
        effective_columns=task.effective_columns,
        checks=effort.checks,
    )

    rng = as_generator(random_state)
    chains = _chains(rows, table.X, family, noise, settings, effort, rng)
    file = None
    if checkpoint is not None:
        coded = (
            (*table.encoded, repr(table.columns.models)) if isinstance(table, MixedTable) and table.is_latent else ()
        )
        file = Checkpoint(checkpoint, table.X, family, noise, settings, effort.n_chains, rng, coded)
        file.load(chains)
    about = MIXED if table.is_latent else NUMBERS
    finished = running.run(
        chains,
        effort.n_iter,
        task.n_jobs,
        progress,
        None if file is None else lambda: file.write(chains),
        effort.checks[:-1],
        lambda: _judge(_keep(chains, effort), chains, about).converged,
    )
    if min(chain.n_done for chain in chains) == 0:
        raise KeyboardInterrupt
    kept = _keep(chains, effort)
    convergence = None if method == GREEDY else _judge(kept, chains, about)
    if convergence is not None and convergence.warnings:
        from sklearn.exceptions import ConvergenceWarning  # slow to import

        told += [(message, ConvergenceWarning) for message in convergence.warnings]
    info = {
        "version": __version__,
        "method": GREEDY if method == GREEDY else "chain",
        "n_chains": len(chains),
        "warmup": kept.warmup,
        "thin": kept.thin,
        "iterations": kept.n_done,
        "iterations_wanted": kept.n_done if finished else effort.n_iter,
        "random_state": seed_of(random_state),
        "covariance": label_of(covariance),
    }
    return _gather(table, chains, kept, names, info, convergence), told


def sparing(n_entries: int, n_draws: int) -> int:
    """Return k such that keeping latent coordinates of one draw in k fits into sizes.LATENT_BYTES."""
    return max(1, -(-4 * n_entries * n_draws // sizes.LATENT_BYTES))


def _chains(
    table: ChainTable,
    X: Floats,
    family: CovarianceFamily,
    noise: NoiseFamily,
    settings: blocks.ChainSettings,
    effort: Effort,
    rng: np.random.Generator,
) -> list[TreeChain]:
    starting, *seeds = rng.spawn(effort.n_chains + 1)
    level = table.first_level(starting) if noise.learned else None
    starts, near = blocks.first_guesses(table.rough, family, noise, effort.n_chains, starting, level)
    starts = [table.begin(start, starting) for start in starts]
    bounded = noise.learned and table.may_be_rounded
    working = work_with(starts[0], X, filled(X, starts[0]), family, settings.effective_columns, bounded)
    starts = [with_room(start, working) for start in starts]
    return [
        TreeChain(X, family, settings, start, near, seed, table, working)
        for start, seed in zip(starts, seeds, strict=True)
    ]


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
    draws: list[Draw]  # of the first chain, of the second, …


def _keep(chains: Sequence[TreeChain], effort: Effort) -> _Kept:
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


def _judge(kept: _Kept, chains: Sequence[TreeChain], about: str) -> Convergence:
    """Whether the chains agree, by all iterations after those that are dropped, and by the trees that are kept."""
    recent = slice(kept.warmup, kept.n_done)
    trace = {name: np.array([chain.trace[name][recent] for chain in chains]) for name in chains[0].trace}
    return diagnose(trace, np.array([draw.children for draw in kept.draws]), len(chains), about=about)


def _gather(
    table: PlainTable | MixedTable,
    chains: Sequence[TreeChain],
    kept: _Kept,
    names: tuple[str, ...] | None,
    info: dict[str, Any],
    convergence: Convergence | None,
) -> Learned:
    """Combine the draws of all chains."""
    first, d = chains[0], table.X.shape[1]
    draws = Draws.of(kept.draws, first.now.noise)
    states = draws.states(first.family, d)
    middle, leaf_noise = first.family.summarise(states), draws.middle_noise
    if first.settings.greedy:
        last = kept.draws[-1]
        if table.n_kept and last.latent is None:
            last = chains[-1].draw(whole=True)
        draws, states = Draws.of([last], first.now.noise), states[-1:]
    draws = draws.with_matrices(states[:1] if isinstance(first.family, Fixed) else states)
    counted = first.working.power * d
    posterior = draws.posterior(names, {**info, "effective_columns": counted})
    completed, completed_sd = blocks.completed(table.X, chains)
    return Learned(
        posterior=posterior,
        draws=replace(draws, children=posterior.children, times=posterior.times),
        middle=middle,
        leaf_noise=leaf_noise,
        trace={name: np.array([chain.trace[name][: kept.n_done] for chain in chains]) for name in first.trace},
        warmup=kept.warmup,
        completed=completed,
        completed_sd=completed_sd,
        convergence=convergence,
        finished=info["iterations"] == info["iterations_wanted"],
        effective_columns=counted,
        table=table,
    )
