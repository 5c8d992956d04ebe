r"""Sequential Monte Carlo leaf by leaf: a tree over the first k rows takes in row k + 1, and may move.

Kingman's coalescent is consistent: a tree over k + 1 leaves without its last leaf is a tree over k leaves, and that
leaf's lineage meets each of the others at rate 1. So the joint densities γ_k = p(x_1 … x_k, t, π) of growing data are a
sequence of targets with

    γ_{k+1}(tree with the new leaf at a place) = γ_k(tree) f(place),

where f is the density of `moves.edge_density`, whose mass over all places is p(x_{k+1} | tree, x_1 … x_k). The place is
drawn from the proposal q of `moves.regraft_proposal`, close to f, and the incremental weight f/q is nearly that
predictive density. Each target is the posterior given the rows so far: a particle cannot foresee one row, rather than
the rest of the tree, as when merging forests.

When the effective sample size falls, particles are resampled and every tree is moved by the invariant moves of
`moves.whole_tree` (regrafts of random subtrees, one slice of every time), which make copies differ again. Rows come in
a random order, the same for all particles; the evidence is unbiased for any order. A particle costs O(n² d).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.inference.moves.edge_density import Others, fill_exposure
from coaltree.inference.moves.mutable_tree import MutableTree, arrange, attach, recompute_tree
from coaltree.inference.moves.regraft_proposal import (
    ROUGHLY,
    draw_place,
    make_survey,
    visit_edges,
    weigh_place,
    weigh_proposals,
)
from coaltree.inference.moves.whole_tree import regraft_subtree, slice_node_times
from coaltree.inference.smc.loop import OverParticles, SMCResult, choose_copies, weigh_steps
from coaltree.memory import check_particles
from coaltree.randomness import Stream, make_streams, uniform

INSERTION = "insertion"
# Regrafts per tree after each resampling; beyond a handful, more particles are the better investment.
REGRAFTS = 4


class Growing(NamedTuple):
    """M growing trees over n rows, as in `mutable_tree.Chain`: row k comes with merge n + k − 1."""

    children: Ints  # (M, 2n, 2), −1 for none
    parent: Ints  # (M, 2n)
    time: Floats  # (M, 2n)
    mean: Floats  # (M, 2n−1, d)
    variance: Floats  # (M, 2n−1)
    merge_times: Floats  # (M, n−1), of which the first k are filled, sorted
    log_joint: Floats  # (M, 1), up to −½(n−1) log|Φ|
    streams: Stream  # (M, 4)


def start_growing(rows: Floats, leaf_noise: Floats, n_particles: int, rng: np.random.Generator) -> Growing:
    """Trees of the first row alone."""
    n, d = rows.shape
    origin = 2 * n - 1
    children = np.full((n_particles, 2 * n, 2), -1)
    children[:, origin, 0] = 0
    parent = np.full((n_particles, 2 * n), -1)
    parent[:, 0] = origin
    parent[:, 1:n] = np.arange(n, origin)
    time = np.zeros((n_particles, 2 * n))
    time[:, origin] = math.inf
    mean = np.zeros((n_particles, origin, d))
    mean[:, :n] = rows
    variance = np.zeros((n_particles, origin))
    variance[:, :n] = leaf_noise
    return Growing(
        children=children,
        parent=parent,
        time=time,
        mean=mean,
        variance=variance,
        merge_times=np.zeros((n_particles, n - 1)),
        log_joint=np.zeros((n_particles, 1)),
        streams=make_streams(rng, n_particles),
    )


@inline
def tree_of(
    state: Growing, m: int, n_merges: int, above_mean: Floats, above_variance: Floats, others: Others
) -> MutableTree:
    """Particle m as a chain over its first `n_merges` merges; what need not be kept is shared."""
    return MutableTree(
        state.children[m],
        state.parent[m],
        state.time[m],
        state.mean[m],
        state.variance[m],
        above_mean,
        above_variance,
        state.merge_times[m, :n_merges],
        Others(others.times[: n_merges - 1], others.exposure[:n_merges], others.rate[:n_merges]),
        state.log_joint[m],
    )


@kernel
def insert_row(state: Growing, leaf: int, first: int, stop: int, out: Floats) -> None:
    """Attach row `leaf` ≥ 1 in each of the particles first … stop−1; `out` gets log incremental weights."""
    n_nodes, d = state.mean.shape[1], state.mean.shape[2]
    above_mean, above_variance = np.zeros((n_nodes, d)), np.zeros(n_nodes)
    others, survey = Others(np.zeros(n_nodes), np.zeros(n_nodes), np.ones(n_nodes)), make_survey(n_nodes)
    constant = -0.5 * d * math.log(2.0 * math.pi)
    for m in range(first, stop):
        tree, stream = tree_of(state, m, leaf, above_mean, above_variance, others), state.streams[m]
        tree.others.times[:] = state.merge_times[m, : leaf - 1]
        fill_exposure(tree.others)
        n_edges = visit_edges(tree, leaf, ROUGHLY, survey)
        log_total = weigh_proposals(tree, leaf, 1.0, n_edges, survey)
        node, time = draw_place(tree, leaf, 1.0, n_edges, survey, log_total, stream)
        log_f, log_q = weigh_place(tree, leaf, node, time, 1.0, survey, log_total)
        attach(tree, leaf, node, time)
        tree.log_joint[0] += log_f + constant
        out[m] = log_f - log_q + constant


@kernel
def move(state: Growing, leaf: int, n_regrafts: int, first: int, stop: int) -> None:
    """Regraft random subtrees and slice all times, in trees over rows 0 … leaf."""
    n_nodes, d = state.mean.shape[1], state.mean.shape[2]
    above_mean, above_variance = np.zeros((n_nodes, d)), np.zeros(n_nodes)
    others, survey = Others(np.zeros(n_nodes), np.zeros(n_nodes), np.ones(n_nodes)), make_survey(n_nodes)
    counts = np.zeros(5, dtype=np.int64)
    first_merge = (n_nodes + 1) // 2
    for m in range(first, stop):
        tree, stream = tree_of(state, m, leaf, above_mean, above_variance, others), state.streams[m]
        for _ in range(n_regrafts):
            # Any node but the root, among rows 0 … leaf and then the merges they brought.
            cut = int(uniform(stream) * 2 * leaf)
            cut += cut >= tree.children[-1, 0] - first_merge + leaf + 1
            if cut > leaf:
                cut += first_merge - leaf - 1
            regraft_subtree(tree, cut, 1.0, survey, stream, counts)
        if not math.isfinite(tree.log_joint[0]):
            recompute_tree(tree)
        slice_node_times(tree, 1.0, stream)


@kernel
def copy_growing(state: Growing, leaf: int, target: Ints, source: Ints) -> None:
    """Overwrite the trees over rows 0 … leaf in `target` with those in `source`; streams stay in place."""
    first_merge = state.merge_times.shape[1] + 1
    for index in range(target.size):
        to, of = target[index], source[index]
        state.children[to] = state.children[of]
        state.parent[to] = state.parent[of]
        state.time[to] = state.time[of]
        state.mean[to, first_merge : first_merge + leaf] = state.mean[of, first_merge : first_merge + leaf]
        state.variance[to] = state.variance[of]
        state.merge_times[to] = state.merge_times[of]
        state.log_joint[to] = state.log_joint[of]


def finished(state: Growing, order: Ints) -> tuple[Ints, Floats]:
    """Children (M, n−1, 2) and times (M, n−1) of whole trees, leaves numbered as before `order` was applied."""
    n_particles, n_merges = state.merge_times.shape
    children, times = np.empty((n_particles, n_merges, 2), dtype=np.int64), np.empty((n_particles, n_merges))
    number = np.append(order, np.arange(n_merges + 1, 2 * n_merges + 1))
    for m in range(n_particles):
        in_order, times[m] = arrange(state.children[m], state.time[m])
        children[m] = np.sort(number[in_order], axis=1)
    return children, times


def run_insertion(
    rows: Floats,
    leaf_noise: Floats,
    log_det: float,
    *,
    n_particles: int,
    ess_threshold: float = 0.5,
    n_jobs: int | None = 1,
    rng: np.random.Generator,
    n_regrafts: int = REGRAFTS,
    order: Ints | None = None,
    progress: bool = False,
) -> SMCResult:
    """Sample trees over whitened rows (n, d).

    Parameters
    ----------
    rows, leaf_noise, log_det
        Whitened rows (n, d), the variance of each (n,), and log|Φ|.
    n_particles, ess_threshold, n_jobs, progress
        As in `sample_posterior`.
    rng : Generator
        Source of the order and of the particles' streams.
    n_regrafts : int
        Regrafts per tree after each resampling; 0 moves nothing.
    order : ndarray (n,), optional
        The order in which rows are inserted. Default: drawn at random.

    Returns
    -------
    SMCResult
        `ess_per_step` and `resampled` have one entry per inserted row, from the second on.
    """
    n, d = rows.shape
    check_particles(n, n_particles, per_pair=0, per_leaf=16 * d + 168)
    if order is None:
        order = rng.permutation(n)
    state = start_growing(rows[order], leaf_noise[order], n_particles, rng)

    def advance(step: int, first: int, stop: int, out: Floats) -> None:
        insert_row(state, step + 1, first, stop, out)

    def resample(step: int, weights: Floats, over_particles: OverParticles) -> None:
        copy_growing(state, step + 1, *choose_copies(weights, rng.random()))
        if n_regrafts > 0:
            over_particles(lambda first, stop: move(state, step + 1, n_regrafts, first, stop))

    weighed = weigh_steps(
        n - 1,
        n_particles,
        advance,
        resample,
        constant=-0.5 * log_det,
        ess_threshold=ess_threshold,
        n_jobs=n_jobs,
        unit="row",
        progress=progress,
    )
    log_joint = state.log_joint[:, 0] - 0.5 * (n - 1) * log_det
    return SMCResult(*finished(state, order), log_joint=log_joint, **weighed._asdict())
