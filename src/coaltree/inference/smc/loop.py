"""Sequential Monte Carlo over trees: start, step, resample, evidence; and its conditional form.

After every merge each particle's weight is multiplied by its method's increment (see `proposals`). When the effective
sample size falls below a fraction of the particles they are resampled systematically; only particles that are dropped
are overwritten. The average weights accumulate to an unbiased estimate of the evidence p(X).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from joblib import effective_n_jobs
from tqdm import tqdm

from coaltree._arrays import Floats, Ints
from coaltree._compile import kernel
from coaltree.errors import InputError
from coaltree.inference.effort import choose_merging
from coaltree.inference.smc.candidate_pairs import Shortlist, copy_list, start_list
from coaltree.inference.smc.particles import Particles, copy_particle, start
from coaltree.inference.smc.proposals import CACHED, METHODS, MPOST2, SMC1, TPOST, advance_local, retain
from coaltree.inference.smc.race import ROOM as RACE_ROOM
from coaltree.inference.smc.race import Race, advance_race, copy_race, start_race
from coaltree.inference.smc.tpost import ROOM, advance_tpost
from coaltree.memory import check_particles
from coaltree.model import gig
from coaltree.model.gig import tables
from coaltree.tree import Tree

# Below this many leaves a table of normalisers costs more than it saves.
TABLE_FROM = {SMC1: 64, MPOST2: 32}

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
# Runs work(first, stop) over all particles.
OverParticles = Callable[[Callable[[int, int], None]], None]


class SMCResult(NamedTuple):
    """Weighted trees."""

    children: Ints  # (M, n−1, 2)
    times: Floats  # (M, n−1)
    log_weights: Floats  # (M,), normalised
    log_joint: Floats  # (M,), log p(X, t, π)
    log_evidence: float
    ess_per_step: Floats  # (n−1,), before any resampling
    resampled: Bools  # (n−1,)


@contextmanager
def in_threads(n_jobs: int | None, n_particles: int) -> Iterator[OverParticles]:
    """Yield a function that runs `work(first, stop)` over all particles, split among threads."""
    n_threads = min(effective_n_jobs(n_jobs), n_particles)
    edges = np.linspace(0, n_particles, n_threads + 1).astype(int).tolist()
    if n_threads == 1:
        yield lambda work: work(0, n_particles)
        return
    with ThreadPoolExecutor(n_threads - 1) as pool:

        def spread(work: Callable[[int, int], None]) -> None:
            # The caller takes a share too: handing over work costs as much as a small share itself.
            others = [pool.submit(work, *share) for share in pairwise(edges[1:])]
            work(edges[0], edges[1])
            for share in others:
                share.result()

        yield spread


@kernel
def systematic_counts(weights: Floats, u: float) -> Ints:
    """How often each particle is chosen by systematic resampling with the uniform u in [0, 1)."""
    n = weights.size
    counts = np.empty(n, dtype=np.int64)
    total = weights.sum()
    running = 0.0
    before = 0
    for m in range(n):
        running += weights[m]
        edge = n if m == n - 1 else min(math.ceil(running / total * n - u), n)
        counts[m] = edge - before
        before = edge
    return counts


@kernel
def choose_copies(weights: Floats, u: float) -> tuple[Ints, Ints]:
    """Particles that are not chosen, and for each one that is chosen again, to overwrite it with."""
    counts = systematic_counts(weights, u)
    target, source = np.empty(weights.size, np.int64), np.empty(weights.size, np.int64)
    n_dead = of = 0
    for to in range(weights.size):
        if counts[to] == 0:
            while counts[of] < 2:
                of += 1
            counts[of] -= 1
            target[n_dead], source[n_dead] = to, of
            n_dead += 1
    return target[:n_dead], source[:n_dead]


@kernel
def copy_particles(state: Particles, state_list: Shortlist, stage: int, target: Ints, source: Ints) -> None:
    """Overwrite each particle in `target` with the one in `source`, after `stage` merges."""
    for k in range(target.size):
        copy_particle(state, stage, target[k], source[k])
        copy_list(state_list, target[k], source[k])


@kernel
def reweigh(log_weights: Floats, increments: Floats, constant: float, out: Floats) -> tuple[float, float, float]:
    """Add the increments to the log weights and put the weights, relative to the largest, into `out`.

    Returns the largest log weight, the sum of `out`, which is NaN if any weight is infinite or NaN, and its sum of
    squares.
    """
    top = -math.inf
    for m in range(log_weights.size):
        log_weights[m] += increments[m] + constant
        top = max(top, log_weights[m])
    total = 0.0
    squares = 0.0
    for m in range(log_weights.size):
        out[m] = math.exp(log_weights[m] - top)
        total += out[m]
        squares += out[m] * out[m]
    return top, total, squares


def _retained_uniform(weight: float, rng: np.random.Generator) -> float:
    """The systematic uniform given that particle 0, of expected count `weight`, is among the chosen.

    Particle 0 is chosen ⌊w⌋ + 1 times if u < w − ⌊w⌋ and ⌊w⌋ times otherwise; u has density ∝ that count
    (Chopin & Singh 2015).
    """
    whole = math.floor(weight)
    part = weight - whole
    if rng.random() * weight < part * (whole + 1):
        return part * rng.random()
    return part + (1.0 - part) * rng.random()


def resample(
    state: Particles,
    stage: int,
    weights: Floats,
    retain: bool,
    rng: np.random.Generator,
    lookahead: Race | Shortlist,
) -> None:
    """Resample the particles after `stage` merges, in place; with `retain`, particle 0 survives in its slot."""
    n = len(weights)
    if retain:
        # However small its weight, the retained particle stays.
        weights = weights.copy()
        weights[0] = max(weights[0], 1e-300)
    u = _retained_uniform(n * float(weights[0] / weights.sum()), rng) if retain else rng.random()
    target, source = choose_copies(weights, u)
    if isinstance(lookahead, Race):
        copy_particles(state, lookahead.listed, stage, target, source)
        copy_race(lookahead, target, source)
    else:
        copy_particles(state, lookahead, stage, target, source)


class Weighed(NamedTuple):
    """Final weights and how they arose; as in `SMCResult`."""

    log_weights: Floats
    log_evidence: float
    ess_per_step: Floats
    resampled: Bools


def weigh_steps(
    n_steps: int,
    n_particles: int,
    advance: Callable[[int, int, int, Floats], None],
    resample: Callable[[int, Floats, OverParticles], None],
    *,
    constant: float,
    ess_threshold: float,
    n_jobs: int | None,
    unit: str,
    progress: bool = False,
) -> Weighed:
    """Take all particles through a sequence of targets: advance, weigh, and resample where weights are uneven.

    `advance(step, first, stop, out)` makes a step of the particles first … stop−1 and puts log incremental weights,
    less the `constant` that all have, into `out` (M,). `resample(step, weights, over_particles)` chooses particles by
    weight after a step, in place. `unit` is what a step is called.
    """
    log_weights = np.zeros(n_particles)
    weights, increments = np.empty(n_particles), np.empty(n_particles)
    ess_per_step, resampled = np.empty(n_steps), np.zeros(n_steps, dtype=bool)
    log_evidence = 0.0
    with in_threads(n_jobs, n_particles) as over_particles:
        for step in tqdm(range(n_steps), desc=f"{unit}s", disable=not progress):

            def work(first: int, stop: int, step: int = step) -> None:
                advance(step, first, stop, increments)

            over_particles(work)
            top, total, squares = reweigh(log_weights, increments, constant, weights)
            if not math.isfinite(total):
                raise InputError(
                    f"Weights are not finite after {unit} {step + 1} of {n_steps}: the scale of X is too far from that "
                    "of its covariance for doubles. Rescale X, or pass a covariance on the scale of the data."
                )
            ess_per_step[step] = total**2 / squares
            last = step == n_steps - 1
            if last or ess_per_step[step] < ess_threshold * n_particles:
                log_evidence += top + math.log(total / n_particles)
                log_weights = (log_weights - top) - math.log(total)
                if not last:
                    resample(step, weights, over_particles)
                    log_weights[:] = 0.0
                    resampled[step] = True
    return Weighed(log_weights, log_evidence, ess_per_step, resampled)


def run_particles(
    eps: Floats,
    d: int,
    leaf_noise: Floats,
    log_det: float,
    *,
    method: str,
    n_particles: int,
    ess_threshold: float,
    n_jobs: int | None,
    rng: np.random.Generator,
    retained: Tree | None = None,
    progress: bool = False,
) -> SMCResult:
    """Run a sampler on packed squared distances `eps` (P,) in dimension d.

    With `retained`, particle 0 follows that tree (conditional SMC).
    """
    n = len(leaf_noise)
    code = METHODS[choose_merging(method, n, d)]
    path = retain(retained)
    # Distances and what is stored for pairs; lists of 16 bytes per pair, trees, and the rest of a slot.
    listed = 16 * {TPOST: ROOM, SMC1: RACE_ROOM}.get(code, 0)
    check_particles(n, n_particles, per_pair=16 if code in CACHED else 8, per_leaf=listed + 80)
    state = start(eps, leaf_noise, n_particles, rng, with_cache=code in CACHED)
    if code == MPOST2:
        state.cache[:] = gig.log_integral(d, eps, 1.0)  # all particles begin with the same pairs
    lookahead: Race | Shortlist
    if code == SMC1:
        lookahead = start_race(n_particles, n, rng)
    else:
        lookahead = start_list(n_particles, min(len(eps), ROOM * n) if code == TPOST else 0)
    table = tables.empty_table()
    if n >= TABLE_FROM.get(code, n + 1) and eps.max() > 0.0:
        table = tables.make_mass_table(d, float(eps.min()), float(eps.max()))
    # Every merge carries |Φ|^(−½); its (2π)^(−d/2) and the ½ of dΔ = dv/2 are in log_local's Z but not in its value.
    constant = -0.5 * log_det
    constant_local = constant - math.log(2.0) - 0.5 * d * math.log(2.0 * math.pi)

    def advance(stage: int, first: int, stop: int, out: Floats) -> None:
        if isinstance(lookahead, Race):
            advance_race(state, lookahead, float(d), stage, first, stop, path, table, out)
        elif code == TPOST:
            advance_tpost(state, lookahead, float(d), stage, first, stop, path, out)
        else:
            advance_local(state, code, float(d), stage, first, stop, path, table, out)

    weighed = weigh_steps(
        n - 1,
        n_particles,
        advance,
        lambda stage, weights, _: resample(state, stage + 1, weights, retained is not None, rng, lookahead),
        constant=constant_local,
        ess_threshold=ess_threshold,
        n_jobs=n_jobs,
        unit="merge",
        progress=progress,
    )
    return SMCResult(state.children, state.times, log_joint=state.log_joint + (n - 1) * constant, **weighed._asdict())


def conditional_draw(
    tree: Tree,
    eps: Floats,
    d: int,
    leaf_noise: Floats,
    *,
    method: str = "auto",
    n_particles: int = 20,
    ess_threshold: float = 0.5,
    n_jobs: int | None = 1,
    rng: np.random.Generator,
) -> Tree:
    """One step of particle Gibbs: run SMC with `tree` retained and draw a tree by the final weights.

    A Markov kernel on trees that leaves the posterior invariant for any number of particles ≥ 2. The race resamples
    here, unlike in `sample_posterior`: without resampling, a tree with most of the weight would exclude all others.
    """
    result = run_particles(
        eps,
        d,
        leaf_noise,
        0.0,
        method=method,
        n_particles=n_particles,
        ess_threshold=ess_threshold,
        n_jobs=n_jobs,
        rng=rng,
        retained=tree,
    )
    chosen = rng.choice(n_particles, p=np.exp(result.log_weights))
    return Tree(result.children[chosen], result.times[chosen], tree.names)
