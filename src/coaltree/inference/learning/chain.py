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
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from coaltree._arrays import Floats, Singles
from coaltree.inference.learning.boxes import boxes, unboxed
from coaltree.inference.learning.latent import Augmentation
from coaltree.inference.learning.start import N_NEAR, Near, Unknowns, apart, first_guess, first_guesses, greedy_start
from coaltree.inference.learning.stretch import draw_age
from coaltree.inference.learning.working import Working
from coaltree.inference.moves.row_noise import SMALLEST_NOISE, Tails, draw_shift, draw_tails
from coaltree.inference.moves.walk import WANTED, WANTED_OF_LATENT, Walk
from coaltree.inference.neighbors import nearest
from coaltree.model import missing
from coaltree.model.coalescent import log_prior
from coaltree.model.covariance import CovarianceFamily, Fixed, Spherical
from coaltree.model.diffusion import log_density, pass_up, sample_nodes, scatter
from coaltree.model.factorisations import DenseRoot
from coaltree.model.family import Integrated, State, diagonal_only
from coaltree.model.missing import Imputed
from coaltree.model.slice import slice_step
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
        return lambda tree, noise: missing.log_likelihood(tree, X, variances, noise)
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
__all__ = ["Chain", "Settings", "Unknowns", "first_guess", "first_guesses", "iterate"]
# Alternating draws of missing entries and moves of the tree per iteration; none beyond the first in mixed tables of
# many rows.
N_TURNS, MANY_ROWS = 3, 5000
# Slices of the common scale per iteration, and of the age of trees with latent coordinates.
N_SCALES, N_AGES = 3, 2
# Up to this many rows, near rows are found by sorting all distances when a tree is drawn afresh.
FEW_ROWS = 64


class Settings(NamedTuple):
    """How a chain runs."""

    warmup: int  # iterations in which the chain adapts, and which are not kept
    thin: int = 1  # iterations per kept draw
    learn_noise: bool = True
    greedy: bool = False
    neighbors: int | None = None  # candidates of each cluster of a greedy tree, all if None
    heavy: bool = False  # every row has its own noise
    keep_latent: int = 0  # keep what was drawn of the table with one draw in this many; 0: never
    effective_columns: str | float = "all"  # how many columns count as independent
    checks: tuple[int, ...] = ()  # iterations at which a run may end


def filled(X: Floats, now: Unknowns) -> Floats:
    """X with its missing entries as last drawn."""
    return X if now.missing is None else fill(X, now.missing.drawn)


def fill(X: Floats, values: Floats) -> Floats:
    """Return a copy of X with its NaN entries, in order, replaced by `values`."""
    table = X.copy()
    table[np.isnan(X)] = values
    return table


def _near_rows(rows: Floats) -> Near:
    """The N_NEAR nearest other rows of every row; with few rows by sorting, as preparing a search costs more."""
    if len(rows) > FEW_ROWS:
        return nearest(rows, N_NEAR)[0]
    distance = cdist(rows, rows, "sqeuclidean")
    np.fill_diagonal(distance, math.inf)
    return np.argsort(distance, axis=1, kind="stable")[:, : min(N_NEAR, len(rows) - 1)].astype(np.int32)


def draw_tree(now: Unknowns, X: Floats, rng: np.random.Generator, n_sweeps: int = 1) -> Unknowns:
    """Tree given Φ and s₀, by a few sweeps of a walk built for them."""
    rows = now.covariance.whiten(filled(X, now))
    walk = Walk(now.tree, _near_rows(rows), rows, now.leaf_noise, rng, fresh=True)
    walk.sweep(n_sweeps)
    return _taken_from(walk, now)


def _taken_from(walk: Walk, now: Unknowns) -> Unknowns:
    """The current tree of a walk, and a draw of each row's own noise."""
    noise = now.leaf_noise if now.tails is None else walk.draw_noise(now.tails)
    return now._replace(tree=walk.to_tree(now.tree.names), leaf_noise=noise)


def draw_covariance(
    now: Unknowns, X: Floats, family: CovarianceFamily, rng: np.random.Generator, working: Working = PLAIN
) -> Unknowns:
    """Φ given the tree and s₀: O(d³) at most once S is computed."""
    told = working.given(now.noise_level)
    if np.isnan(X).any():
        S, m = missing.scatter(now.tree, X, now.leaf_noise)
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
    """Shift all merges by the same time and leaf noise by the opposite: (t, s₀) → (t − δ, s₀ + δ).

    Two leaves that merge at t differ by a variance of 2(t + s₀), so the likelihood is unchanged; the priors leave the
    first merge, rate λ₁ = n(n−1)/2, with density ∝ e^(−(λ₁ − 1) t₁) on 0 < t₁ < t₁ + s₀: an exact draw. Without it
    first merges and leaf noise would hold each other in place.
    """
    tree = now.tree
    if now.tails is not None:
        shift = draw_shift(float(tree.times[0]), now.leaf_noise, now.tails, rng)
        moved = Tree(tree.children, tree.times - shift, tree.names)
        return now._replace(tree=moved, leaf_noise=now.leaf_noise + shift)
    total = float(tree.times[0] + now.leaf_noise[0])
    longest = total - max(2.0 * SMALLEST_NOISE, working.least_noise(now.covariance))
    rate = 0.5 * tree.n_leaves * (tree.n_leaves - 1) - 1.0
    u = rng.random()
    first = -math.log1p(u * math.expm1(-rate * longest)) / rate if rate > 0 else u * longest
    if not 0.0 < first < longest:
        return now
    times = tree.times - tree.times[0] + first
    moved = Tree(tree.children, times, tree.names)
    return now._replace(tree=moved, leaf_noise=np.full_like(now.leaf_noise, total - first))


def draw_scale(
    now: Unknowns,
    X: Floats,
    family: CovarianceFamily,
    learn_noise: bool,
    rng: np.random.Generator,
    latent: Augmentation | None = None,
    power: float = 1.0,
) -> Unknowns:
    """(t, s₀, Φ) → (ct, cs₀, Φ/c). A given leaf noise is not scaled, and then the likelihood matters too.

    Latent coordinates whose variance is 1 are multiplied by √c instead.
    """
    tree, noise, level = now.tree, now.leaf_noise, now.noise_level
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
        moved = (now.with_noise_level(c * level) if learn_noise else now)._replace(tree=times, covariance=covariance)
        return moved if latent is None else latent.scaled(moved, c)

    def log_density(log_c: float) -> float:
        c = math.exp(log_c)
        value = c * base + n_merges * log_c + family.log_rescale(now.covariance, c)
        if learn_noise:
            value += log_c - c * level if c * level > 0.99 * SMALLEST_NOISE else -math.inf
        if latent is not None:
            value += latent.log_scaled(now, c)
        if log_p_data is not None:  # at (ct, s₀, Φ/c) what it is at (t, s₀/c, Φ)
            value += power * log_p_data(tree, noise / c)
        return value

    width = 2.0 / math.sqrt(n_merges)
    log_c, log_p = 0.0, log_density(0.0)
    # From a remote start the first slice is wide and may land as far out on the other side; the next ones recover.
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


def iterate(
    now: Unknowns,
    X: Floats,
    family: CovarianceFamily,
    rng: np.random.Generator,
    move: Callable[[Unknowns], Unknowns],
    learn_noise: bool = True,
    latent: Augmentation | None = None,
    working: Working = PLAIN,
) -> Unknowns:
    """One iteration: leaves p(t, π, Φ, s₀, missing | X) unchanged, if `move` leaves p(t, π | the rest) unchanged."""
    now = move(now)
    seen = what_counts(now, X, latent)
    drawn = None if latent is None else latent.draw_covariance(now, seen, family, rng)
    now = draw_covariance(now, seen, family, rng, working) if drawn is None else drawn
    seen = seen if drawn is None else what_counts(now, X, latent)
    if learn_noise:
        now = draw_offset(draw_noise(now, seen, family, rng, working), rng, working)
        if now.tails is not None:
            least = max(SMALLEST_NOISE, working.least_noise(now.covariance))
            now = now._replace(tails=draw_tails(now.leaf_noise, now.tails, rng, least))
    now = draw_scale(now, seen, family, learn_noise, rng, latent, working.power)
    if latent is not None and learn_noise:
        for _ in range(N_AGES):
            now = draw_age(now, likelihood(now.covariance, latent.seen(now)), family, latent, rng)
    if now.missing is not None:
        # Missing entries and the tree slow each other down, and both are cheap: they alternate.
        draw = partial(draw_missing, X=X, rng=rng) if latent is None else partial(latent.draw, rng=rng, move_cuts=False)
        for _ in range(N_TURNS if latent is None or len(X) <= MANY_ROWS else 0):
            now = move(draw(now))
        # Given the parents, s₀ has the likelihood that is not raised to a power.
        again = learn_noise and working.power == 1.0
        now = draw(now) if latent is None else latent.draw(now, rng, learn_noise=again)
    return now


def what_counts(now: Unknowns, X: Floats, latent: Augmentation | None = None) -> Floats:
    """Return the table used for Φ, s₀ and scale: X unchanged if NaN can be integrated out, else filled in."""
    if latent is not None:
        return latent.seen(now)
    return X if now.covariance.is_diagonal else filled(X, now)


def log_joint(now: Unknowns, X: Floats, latent: Augmentation | None = None) -> float:
    """log p(X, t, π | Φ, s₀); of the filled table with latent coordinates, or if Φ is full and entries are missing."""
    return log_prior(now.tree) + likelihood(now.covariance, what_counts(now, X, latent))(now.tree, now.leaf_noise)


TRACES = ("leaf_noise", "last_time", "log_scale", "log_joint")


class Draw(NamedTuple):
    """What is kept from an iteration."""

    children: npt.NDArray[Any]  # (n−1, 2)
    times: Floats  # (n−1,)
    values: dict[str, Any]  # of Φ
    leaf_noise: float  # of the first leaf: of all, if it is learned
    log_joint: float
    latent: Singles | None = None  # entries that were drawn, of some draws of a table with `columns`
    cuts: Floats | None = None
    own_noise: Floats | None = None  # (n,) of every row, if they differ
    df: float = math.inf  # of its tails

    @property
    def tails(self) -> Tails:
        """The distribution of the rows' noise."""
        return Tails(self.leaf_noise, self.df)


class Chain:
    """A chain and its draws so far. `advance` extends it; nothing else changes it."""

    def __init__(
        self,
        X: Floats,
        family: CovarianceFamily,
        settings: Settings,
        start: Unknowns,
        near: Near,
        rng: np.random.Generator,
        latent: Augmentation | None = None,
        working: Working = PLAIN,
    ) -> None:
        self.X, self.family, self.settings, self.latent, self.working = X, family, settings, latent, working
        self.rng = rng
        self.now, self.n_done = start, 0
        rows = start.covariance.whiten(filled(X, start)) if latent is None else boxes(latent, start, rng).rows
        wanted = WANTED if latent is None else WANTED_OF_LATENT
        self.walk = Walk(start.tree, near, rows, start.leaf_noise, self.rng, power=working.power, wanted=wanted)
        self.draws: list[Draw] = []
        cuts = ("cuts",) if start.cuts is not None and start.cuts.any() else ()
        tails = () if start.tails is None else ("noise_df",)
        self.trace: dict[str, list[Any]] = {name: [] for name in (*start.covariance.values, *TRACES, *cuts, *tails)}
        self.completed = Completed()

    def advance(self) -> None:
        """Run one iteration and keep its draw."""
        settings = self.settings
        move = self.build if settings.greedy else self.move
        how = (move, settings.learn_noise, self.latent, self.working)
        self.now = iterate(self.now, self.X, self.family, self.rng, *how)
        self.n_done += 1
        if self.n_done <= self.settings.warmup and not self.settings.greedy:
            self.adapt()
        self.keep()

    def move(self, now: Unknowns) -> Unknowns:
        """Make a sweep of the tree, given the rest, and draw each row's own noise."""
        walk, boxed = self.walk, None if self.latent is None else boxes(self.latent, now, self.rng)
        rows = now.covariance.whiten(filled(self.X, now)) if boxed is None else boxed.rows
        walk.given(rows, now.leaf_noise, now.tree.times)
        if boxed is not None:
            walk.confine(boxed.least, boxed.most)
        # A fixed Φ does not adapt to the times, so their scale must be found separately.
        walk.sweep(rescaled=self.family.log_rescale(now.covariance, 2.0) == -math.inf)
        now = _taken_from(walk, now)
        return now if self.latent is None or boxed is None else unboxed(self.latent, now, boxed, walk.rows)

    def build(self, now: Unknowns) -> Unknowns:
        """Build the greedy tree, given the rest."""
        rows = now.covariance.whiten(filled(self.X, now))
        return now._replace(tree=apart(greedy_start(rows, now.leaf_noise, None, self.settings.neighbors)))

    def adapt(self) -> None:
        """Adapt searches to the chain, and find near rows again where Φ may have changed."""
        self.walk.adapt(self.n_done, self.settings.warmup)
        if self.n_done == self.settings.warmup // 2 and not isinstance(self.family, Spherical | Fixed):
            self.walk.set_near(nearest(self.now.covariance.whiten(filled(self.X, self.now)), N_NEAR)[0])

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
            "log_joint": log_joint(now, self.X, self.latent),
        }
        if now.tails is not None:
            row["noise_df"] = now.tails.df
        if "cuts" in self.trace and now.cuts is not None:
            row["cuts"] = now.cuts
        for name, value in row.items():
            self.trace[name].append(value)
        after = self.n_done - self.settings.warmup
        if after > 0 and after % self.settings.thin == 0:
            self.draws.append(self.draw())
            if now.missing is not None:
                self.completed.add(now.missing)

    def draw(self) -> Draw:
        """Return the chain's current position in the form that is stored."""
        now = self.now
        smaller = np.int32 if len(self.X) < 2**30 else np.int64
        every = self.settings.keep_latent
        kept = every > 0 and len(self.draws) % every == 0
        return Draw(
            now.tree.children.astype(smaller),
            now.tree.times,
            dict(now.covariance.values),
            now.noise_level,
            self.trace["log_joint"][-1],
            now.missing.drawn.astype(np.float32) if kept and now.missing is not None else None,
            (np.zeros(0) if now.cuts is None else now.cuts) if kept else None,
            *(() if now.tails is None else (now.leaf_noise, now.tails.df)),
        )

    def without_draws(self) -> Chain:
        """Return a copy that continues from here without past draws: small enough to send."""
        light = copy.copy(self)
        light.rng, light.walk = copy.deepcopy(self.rng), copy.deepcopy(self.walk)
        light.draws, light.completed = [], copy.copy(self.completed)
        light.trace = {name: [] for name in self.trace}
        return light

    def follow(self, other: Chain) -> None:
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


def completed(X: Floats, chains: Sequence[Chain]) -> tuple[Floats, Floats]:
    """X with posterior means in place of missing entries, and their standard deviations."""
    spread = np.zeros_like(X)
    if chains[0].now.missing is None:
        return X, spread
    parts = [chain.completed for chain in chains if chain.completed.n]
    if not parts:
        current = [chain.now.missing.expected for chain in chains if chain.now.missing]
        return fill(X, np.mean(current, axis=0)), spread
    weights = np.array([part.n for part in parts]) / sum(part.n for part in parts)
    expected = np.tensordot(weights, np.array([part.expected for part in parts]), axes=1)
    mean = np.tensordot(weights, np.array([part.mean for part in parts]), axes=1)
    within = np.array([part.squares / part.n + (part.mean - mean) ** 2 for part in parts])
    spread[np.isnan(X)] = np.sqrt(np.tensordot(weights, within, axes=1))
    return fill(X, expected), spread
