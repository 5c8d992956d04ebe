"""Learn the covariance and the leaf noise together with the tree: a Markov chain over blocks.

One iteration draws in turn

    tree         by a sweep of local regrafts and slices of merge times (`moves.walk`)
    Φ            given the scatter of the tree's contrasts, by its family's own kernel
    leaf noise   s₀ ~ Exponential(1), slice-sampled: like the wait of one pair, it is extra branch above each leaf;
                 Φ, or its amplitude, is integrated out and then redrawn, because the two are strongly coupled;
                 then (t, s₀) → (t − δ, s₀ + δ), along which the likelihood does not change; if its tails are heavy,
                 the noise of each row is drawn with the tree, and its distribution with s₀ (`moves.row_noise`)
    scale        (t, s₀, Φ) → (ct, cs₀, Φ/c), slice-sampled in log c: the likelihood does not change along it
    missing      entries of X that are NaN, given all of these

Without the scale block, times and amplitude, which trade off exactly in the likelihood, would mix very slowly. Only the
tree step needs a complete table: under a diagonal Φ the other blocks integrate the missing entries out, under a full Φ
they use the drawn ones. Where columns vary together or values are rounded, `learning.working` says how the likelihood
is used. With `greedy` the tree is not drawn but built as the best guess at the current Φ and s₀: the
rest of the loop is the same, and the result is a good point estimate rather than draws from the posterior.

The module also has the running moments of the missing entries, and the likelihood of tree and leaf noise, with Φ given
or integrated out, for the blocks that evaluate it often.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from coaltree import sizes
from coaltree._arrays import Floats
from coaltree.inference.learning.start import Near, Unknowns, apart, first_guess, first_guesses, greedy_start
from coaltree.inference.learning.stretch import draw_age
from coaltree.inference.learning.table import ChainTable, Numbers, fill, filled
from coaltree.inference.learning.working import Working
from coaltree.inference.moves.walk import Walk
from coaltree.inference.neighbors import nearest
from coaltree.model import missing
from coaltree.model.coalescent import log_prior
from coaltree.model.covariance import CovarianceFamily, Fixed, Spherical
from coaltree.model.diffusion import log_density, pass_up, scatter
from coaltree.model.family import Integrated, State, diagonal_only
from coaltree.model.missing import Imputed
from coaltree.model.noise import SMALLEST_NOISE
from coaltree.model.slice import slice_step
from coaltree.posterior.draws import Draw, Latent
from coaltree.tree import Tree

PLAIN = Working()


class Completed:
    """Running means of missing entries, and of their squared deviations (Welford)."""

    def __init__(self) -> None:
        self.n, self.expected, self.mean, self.squares = 0, np.zeros(0), np.zeros(0), np.zeros(0)

    def add(self, imputed: Imputed) -> None:
        """Add one draw; arrays are replaced, never modified."""
        if self.n == 0:
            self.expected = self.mean = self.squares = np.zeros_like(imputed.drawn)
        self.n += 1
        self.expected = self.expected + (imputed.expected - self.expected) / self.n
        step = imputed.drawn - self.mean
        self.mean = self.mean + step / self.n
        self.squares = self.squares + step * (imputed.drawn - self.mean)


def likelihood(covariance: State, X: Floats) -> Callable[[Tree, Floats], float]:
    """log p(X | tree, Φ, s₀) as a function of tree and leaf noise, whitened once; NaN only where Φ is diagonal."""
    if np.isnan(X).any():
        variances = covariance.variances()
        return lambda tree, noise: missing.log_observed_likelihood(tree, X, variances, noise)
    rows, log_volume = covariance.whiten(X), 0.5 * (len(X) - 1) * covariance.log_det
    return lambda tree, noise: log_density(tree, rows, noise) - log_volume


def tempered(log_p: Callable[[Tree, Floats], float], power: float) -> Callable[[Tree, Floats, float], float]:
    """`likelihood` raised to a power, as a function of the noise level besides."""
    return lambda tree, noise, level: power * log_p(tree, noise)


def marginal_likelihood(
    integrated: Integrated, X: Floats, working: Working = PLAIN
) -> Callable[[Tree, Floats, float], float]:
    """Likewise with Φ integrated out, up to a constant, over what the noise level leaves of it."""
    rows = integrated.rows(X)

    def log_p(tree: Tree, noise: Floats, level: float) -> float:
        up = pass_up(tree, rows, noise)
        log_volume: float = 0.5 * working.power * rows.shape[1] * float(np.log(up.messages.merge_variance).sum())
        if integrated.log_marginal_of_sums is None:
            log_marginal: float = integrated.log_marginal(up.messages.contrasts(tree))
        else:
            log_marginal = integrated.log_marginal_of_sums(up.sums, len(rows) - 1, **working.given(level))
        return log_marginal - log_volume

    return log_p


AUTO, GREEDY = "auto", "greedy"
__all__ = ["ChainSettings", "TreeChain", "Unknowns", "first_guess", "first_guesses", "iterate"]
# Slices of the common scale per iteration.
N_SCALES = 3


class ChainSettings(NamedTuple):
    """How a chain runs."""

    warmup: int  # iterations in which the chain adapts, and which are not kept
    thin: int = 1  # iterations per kept draw
    greedy: bool = False
    neighbors: int | None = None  # candidates of each cluster of a greedy tree, all if None
    keep_latent: int = 0  # keep what was drawn of the table with one draw in this many; 0: never
    effective_columns: str | float = "all"  # how many columns count as independent
    checks: tuple[int, ...] = ()  # iterations at which a run may end


def _near_rows(rows: Floats) -> Near:
    """Find the nearest other rows of every row; with few rows by sorting, as preparing a search costs more."""
    if len(rows) > sizes.ROWS_SORTED:
        return nearest(rows, sizes.NEAR_ROWS)[0]
    distance = cdist(rows, rows, "sqeuclidean")
    np.fill_diagonal(distance, math.inf)
    return np.argsort(distance, axis=1, kind="stable")[:, : min(sizes.NEAR_ROWS, len(rows) - 1)].astype(np.int32)


def draw_tree(now: Unknowns, X: Floats, rng: np.random.Generator, n_sweeps: int = 1) -> Unknowns:
    """Tree given Φ and s₀, by a few sweeps of a walk built for them."""
    rows = now.covariance.whiten(filled(X, now))
    walk = Walk(now.tree, _near_rows(rows), rows, now.leaf_noise, rng, fresh=True)
    walk.sweep(n_sweeps)
    return _taken_from(walk, now)


def _taken_from(walk: Walk, now: Unknowns) -> Unknowns:
    """The current tree of a walk, and a draw of each row's own noise."""
    tree = walk.to_tree(now.tree.names)
    return now._replace(tree=tree, leaf_noise=now.noise.draw_rows(now.leaf_noise, walk.draw_noise))


def draw_covariance(
    now: Unknowns, X: Floats, family: CovarianceFamily, rng: np.random.Generator, working: Working = PLAIN
) -> Unknowns:
    """Φ given the tree and s₀: O(d³) at most once S is computed."""
    told = working.given(now.noise_level)
    if np.isnan(X).any():
        S, m = missing.observed_scatter(now.tree, X, now.leaf_noise)
        return now._replace(covariance=family.update(now.covariance, S, m, rng, **told))
    S = scatter(now.tree, X, now.leaf_noise, diagonal=diagonal_only(family))
    return now._replace(covariance=family.update(now.covariance, S, len(X) - 1, rng, **told))


def draw_noise(
    now: Unknowns, X: Floats, family: CovarianceFamily, rng: np.random.Generator, working: Working = PLAIN
) -> Unknowns:
    """s₀ given the tree and how rows differ from it, on the log scale, jointly with Φ where that can be integrated out.

    Given Φ the nd entries determine s₀ to within a factor 1 ± O((nd)^(−½)), and Φ is tied as closely to the last s₀.
    """
    shares = now.leaf_noise / now.noise_level
    integrated = None if np.isnan(X).any() else family.integrated(now.covariance, rng)
    least = SMALLEST_NOISE
    if integrated is None:
        log_p = tempered(likelihood(now.covariance, X), working.power)
    else:
        log_p = marginal_likelihood(integrated, X, working)
    if integrated is None or integrated.log_marginal_of_sums is None:  # else the bound is part of the integral
        least = max(least, working.least_noise(now.covariance))

    def log_density(log_noise: float) -> float:
        noise = math.exp(log_noise)
        return log_p(now.tree, noise * shares, noise) - noise + log_noise

    lower = math.log(least)
    current = max(math.log(now.noise_level), lower)  # equal to the bound up to rounding, at least
    log_noise, _ = slice_step(log_density, current, log_density(current), rng, width=1.0, lower=lower, upper=40.0)
    now = now.with_noise_level(math.exp(log_noise))
    if integrated is None:
        return now
    S = scatter(now.tree, X, now.leaf_noise, diagonal=diagonal_only(family))
    return now._replace(covariance=integrated.draw(S, len(X) - 1, rng, **working.given(now.noise_level)))


def draw_offset(now: Unknowns, rng: np.random.Generator, working: Working = PLAIN) -> Unknowns:
    """Shift all merges by the same time and leaf noise by the opposite: (t, s₀) → (t − δ, s₀ + δ)."""
    least = working.least_noise(now.covariance)
    times, rows = now.noise.draw_offset(now.tree.times, now.leaf_noise, least, rng)
    return now._replace(tree=Tree(now.tree.children, times, now.tree.names), leaf_noise=rows)


def draw_scale(
    now: Unknowns,
    X: Floats,
    family: CovarianceFamily,
    rng: np.random.Generator,
    table: ChainTable | None = None,
    power: float = 1.0,
) -> Unknowns:
    """(t, s₀, Φ) → (ct, cs₀, Φ/c). A given leaf noise is not scaled, and then the likelihood matters too.

    Latent coordinates whose variance is 1 are multiplied by √c instead.
    """
    tree, noise, level = now.tree, now.leaf_noise, now.noise_level
    if family.log_rescale(now.covariance, 2.0) == -math.inf:
        return now
    table = table or Numbers(X)
    n_merges = len(tree.times)
    base = log_prior(tree)
    moves_likelihood = not now.noise.learned and bool(np.any(noise > 0))
    log_p_data = likelihood(now.covariance, X) if moves_likelihood else None

    def scaled(log_c: float) -> Unknowns:
        c = math.exp(log_c)
        times = Tree(tree.children, c * tree.times, tree.names)
        covariance, _ = family.rescale(now.covariance, c)
        moved = now.with_noise_level(c * level)._replace(tree=times, covariance=covariance)
        return table.scaled(moved, c)

    def log_density(log_c: float) -> float:
        c = math.exp(log_c)
        value = c * base + n_merges * log_c + family.log_rescale(now.covariance, c)
        value += now.noise.log_rescale(level, log_c)
        value += table.log_scaled(now, c)
        if log_p_data is not None:  # at (ct, s₀, Φ/c) what it is at (t, s₀/c, Φ)
            value += power * log_p_data(tree, noise / c)
        return value

    width = 2.0 / math.sqrt(n_merges)
    log_c, log_p = 0.0, log_density(0.0)
    # From a remote start the first slice is wide and may land as far out on the other side; the next ones recover.
    for _ in range(N_SCALES):
        log_c, log_p = slice_step(log_density, log_c, log_p, rng, width=width, lower=-40.0, upper=40.0)
    return scaled(log_c)


def iterate(
    now: Unknowns,
    X: Floats,
    family: CovarianceFamily,
    rng: np.random.Generator,
    move: Callable[[Unknowns], Unknowns],
    table: ChainTable | None = None,
    working: Working = PLAIN,
) -> Unknowns:
    """One iteration: leaves p(t, π, Φ, s₀, missing | X) unchanged, if `move` leaves p(t, π | the rest) unchanged."""
    table = table or Numbers(X)
    now = move(now)
    seen = table.seen(now)
    drawn = table.draw_covariance(now, seen, family, rng)
    now = drawn or draw_covariance(now, seen, family, rng, working)
    seen = table.seen(now) if drawn else seen
    if now.noise.learned:
        now = draw_offset(draw_noise(now, seen, family, rng, working), rng, working)
        least = max(SMALLEST_NOISE, working.least_noise(now.covariance))
        now = now._replace(noise=now.noise.update(now.leaf_noise, least, rng))
    now = draw_scale(now, seen, family, rng, table, working.power)
    for _ in range(table.n_ages if now.noise.learned else 0):
        now = draw_age(now, likelihood(now.covariance, table.seen(now)), family, table, rng)
    # Missing entries and the tree slow each other down, and both are cheap: they alternate.
    for _ in range(table.n_turns):
        now = move(table.draw(now, rng, move_cuts=False))
    # Given the parents, s₀ has the likelihood that is not raised to a power.
    return table.draw(now, rng, learn_noise=now.noise.learned and working.power == 1.0)


def log_joint_of(now: Unknowns, X: Floats, table: ChainTable | None = None) -> float:
    """log p(X, t, π | Φ, s₀); of the filled table with latent coordinates, or if Φ is full and entries are missing."""
    seen = (table or Numbers(X)).seen(now)
    return log_prior(now.tree) + likelihood(now.covariance, seen)(now.tree, now.leaf_noise)


TRACES = ("leaf_noise", "last_time", "log_scale", "log_joint")


class TreeChain:
    """A chain and its draws so far. `advance` extends it; nothing else changes it."""

    def __init__(
        self,
        X: Floats,
        family: CovarianceFamily,
        settings: ChainSettings,
        start: Unknowns,
        near: Near,
        rng: np.random.Generator,
        table: ChainTable | None = None,
        working: Working = PLAIN,
    ) -> None:
        self.X, self.family, self.settings, self.working = X, family, settings, working
        self.table = table or Numbers(X)
        self.rng = rng
        self.now, self.n_done = start, 0
        boxed = self.table.boxes(start, rng)
        rows = start.covariance.whiten(filled(X, start)) if boxed is None else boxed.rows
        how = {"power": working.power, "wanted": self.table.wanted}
        self.walk = Walk(start.tree, near, rows, start.leaf_noise, self.rng, **how)
        self.draws: list[Draw] = []
        cuts = ("cuts",) if start.cuts.any() else ()
        names = (*start.covariance.values, *TRACES, *cuts, *start.noise.trace())
        self.trace: dict[str, list[Any]] = {name: [] for name in names}
        self.completed = Completed()

    def advance(self) -> None:
        """Run one iteration and keep its draw."""
        settings = self.settings
        move = self.build if settings.greedy else self.move
        self.now = iterate(self.now, self.X, self.family, self.rng, move, self.table, self.working)
        self.n_done += 1
        if self.n_done <= self.settings.warmup and not self.settings.greedy:
            self.adapt()
        self.keep()

    def move(self, now: Unknowns) -> Unknowns:
        """Make a sweep of the tree, given the rest, and draw each row's own noise."""
        walk, boxed = self.walk, self.table.boxes(now, self.rng)
        rows = now.covariance.whiten(filled(self.X, now)) if boxed is None else boxed.rows
        walk.given(rows, now.leaf_noise, now.tree.times)
        if boxed is not None:
            walk.confine(boxed.least, boxed.most)
        # A fixed Φ does not adapt to the times, so their scale must be found separately.
        walk.sweep(rescaled=self.family.log_rescale(now.covariance, 2.0) == -math.inf)
        now = _taken_from(walk, now)
        return now if boxed is None else self.table.unboxed(now, boxed, walk.rows)

    def build(self, now: Unknowns) -> Unknowns:
        """Build the greedy tree, given the rest."""
        rows = now.covariance.whiten(filled(self.X, now))
        return now._replace(tree=apart(greedy_start(rows, now.leaf_noise, None, self.settings.neighbors)))

    def adapt(self) -> None:
        """Adapt searches to the chain, and find near rows again where Φ may have changed."""
        self.walk.adapt(self.n_done, self.settings.warmup)
        if self.n_done == self.settings.warmup // 2 and not isinstance(self.family, Spherical | Fixed):
            self.walk.set_near(nearest(self.now.covariance.whiten(filled(self.X, self.now)), sizes.NEAR_ROWS)[0])

    def keep(self) -> None:
        """Append to the trace and, after warm-up, to the draws; missing entries count since the last check."""
        now = self.now
        if self.n_done - 1 in self.settings.checks:
            self.completed = Completed()
        row = {
            **now.covariance.values,
            "leaf_noise": now.noise_level,
            "last_time": float(now.tree.times[-1]),
            "log_scale": float(np.log(now.tree.times).mean()) + now.covariance.log_det / now.covariance.d,
            "log_joint": log_joint_of(now, self.X, self.table),
            **now.noise.trace(),
        }
        if "cuts" in self.trace:
            row["cuts"] = now.cuts
        for name, value in row.items():
            self.trace[name].append(value)
        after = self.n_done - self.settings.warmup
        if after > 0 and after % self.settings.thin == 0:
            self.draws.append(self.draw())
            self.completed.add(now.missing)

    def draw(self, whole: bool = False) -> Draw:
        """Return the chain's current position in the form that is stored; `whole` with what is drawn of the table."""
        now = self.now
        smaller = np.int32 if len(self.X) < 2**30 else np.int64
        every = self.settings.keep_latent
        kept = whole or (every > 0 and len(self.draws) % every == 0)
        return Draw(
            now.tree.children.astype(smaller),
            now.tree.times,
            self.trace["log_joint"][-1],
            dict(now.covariance.values),
            now.noise.compact(now.leaf_noise),
            now.noise.tails,
            Latent(now.missing.drawn.astype(np.float32), now.cuts) if kept else None,
        )

    def without_draws(self) -> TreeChain:
        """Return a copy that continues from here without past draws: small enough to send."""
        light = copy.copy(self)
        light.rng, light.walk = copy.deepcopy(self.rng), copy.deepcopy(self.walk)
        light.draws, light.completed = [], copy.copy(self.completed)
        light.trace = {name: [] for name in self.trace}
        return light

    def follow(self, other: TreeChain) -> None:
        """Take over the position of a copy without past draws, and what it has drawn since."""
        self.rng, self.walk = other.rng, other.walk
        self.now, self.n_done, self.completed = other.now, other.n_done, other.completed
        self.draws.extend(other.draws)
        for name, values in other.trace.items():
            self.trace[name].extend(values)

    def progress(self) -> dict[str, str]:
        """Report how good the tree is."""
        if not self.n_done:
            return {}
        phase = " (warm-up)" if self.n_done <= self.settings.warmup else ""
        return {"log joint": f"{self.trace['log_joint'][-1]:,.0f}{phase}"}


def completed(X: Floats, chains: Sequence[TreeChain]) -> tuple[Floats, Floats]:
    """X with posterior means in place of missing entries, and their standard deviations."""
    spread = np.zeros_like(X)
    if not len(chains[0].now.missing.expected):
        return X, spread
    parts = [chain.completed for chain in chains if chain.completed.n]
    if not parts:
        current = [chain.now.missing.expected for chain in chains]
        return fill(X, np.mean(current, axis=0)), spread
    weights = np.array([part.n for part in parts]) / sum(part.n for part in parts)
    expected = np.tensordot(weights, np.array([part.expected for part in parts]), axes=1)
    mean = np.tensordot(weights, np.array([part.mean for part in parts]), axes=1)
    within = np.array([part.squares / part.n + (part.mean - mean) ** 2 for part in parts])
    spread[np.isnan(X)] = np.sqrt(np.tensordot(weights, within, axes=1))
    return fill(X, expected), spread
