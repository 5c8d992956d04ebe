r"""Moves on trees that leave the posterior p(t, π | X) ∝ Π_k exp(−λ_k Δ_k) Z_k invariant.

**Regraft.** Cut off a random subtree and reattach it. Given the rest of the tree T and the subtree S, the place (edge,
time) has a density f that costs O(d) per edge (`edge_density`), so all places are weighed against each other in one
traversal (`regraft_proposal`). The proposal q(edge) q(time | edge) is close to f and depends only on T and S, not on
where S was attached before:

    accept with probability min(1, f(new) q(old) / f(old) q(new)).

The subtree is chosen uniformly among the 2n − 2 nodes below the root, whose number does not depend on where S is.

**Slice.** The time of each merge between its children's and its parent's, by slice sampling with shrinkage; the root's
by an exact draw. One traversal of the tree does all merges: messages from above are computed on the way down, messages
from below on the way up.

**Scale.** t → ct for all merges, log c uniform around 0, accepted with the Jacobian c^(n−1).

The state is just a tree with times, so a move may change the order of merges elsewhere at no cost. At inverse
temperature β the target is the posterior density to the power β; at β = ∞ slices go to the best time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, inline, kernel
from coaltree.inference.moves import edge_density
from coaltree.inference.moves.edge_density import Edge, Others, log_edge_density
from coaltree.inference.moves.mutable_tree import (
    MutableTree,
    attach,
    detach,
    edge_around,
    look_above,
    look_below,
    make_chain,
    other_child,
    put_back,
    recompute_tree,
    set_aside,
    to_arrays,
    walk_on,
)
from coaltree.inference.moves.regraft_proposal import (
    ROUGHLY,
    Survey,
    draw_place,
    make_survey,
    visit_edges,
    weigh_place,
    weigh_proposals,
)
from coaltree.model.slice import compiled_slice
from coaltree.randomness import Stream, exponential, make_streams, uniform
from coaltree.tree import Tree

# Peaks at zero temperature are found to this fraction of their width.
EXACTLY = 1e-7
REGRAFTS, ACCEPTED, ELSEWHERE, SCALES, SCALES_ACCEPTED = range(5)


class Schedule(NamedTuple):
    """How often a sweep makes each move; the slice move visits every merge each time."""

    regrafts: int
    slices: int = 1
    scales: int = 1


class MoveInfo(NamedTuple):
    """Counts over a run. Slices have no count: they always move."""

    regrafts: int
    regrafts_accepted: int
    regrafts_elsewhere: int  # accepted on another edge
    scales: int
    scales_accepted: int


class Trace(NamedTuple):
    """Trees along a chain."""

    children: Ints  # (N, n−1, 2)
    times: Floats  # (N, n−1)
    log_joint: Floats  # (N,), up to −½(n−1) log|Φ|
    info: MoveInfo


@inline
def regraft_subtree(state: MutableTree, cut: int, beta: float, survey: Survey, stream: Stream, counts: Ints) -> None:
    """Cut off the subtree under `cut`, not the root, and reattach it."""
    home, home_time = other_child(state, cut), state.time[state.parent[cut]]
    detach(state, cut)
    n_edges = visit_edges(state, cut, ROUGHLY, survey)
    log_total = weigh_proposals(state, cut, beta, n_edges, survey)

    node, time = draw_place(state, cut, beta, n_edges, survey, log_total, stream)
    new_f, new_q = weigh_place(state, cut, node, time, beta, survey, log_total)
    accepted = True
    if survey.log_mass[home] == -math.inf:
        # An edge of zero length has no density: the chain was put there and leaves at once.
        state.log_joint[0] = -math.inf
    else:
        old_f, old_q = weigh_place(state, cut, home, home_time, beta, survey, log_total)
        accepted = -exponential(stream) < (new_f - new_q) - (old_f - old_q)
        state.log_joint[0] += (new_f - old_f) / beta if accepted else 0.0

    counts[REGRAFTS] += 1
    if accepted:
        counts[ACCEPTED] += 1
        counts[ELSEWHERE] += node != home
        attach(state, cut, node, time)
    else:
        attach(state, cut, home, home_time)


@kernel
def regraft(state: MutableTree, n_moves: int, beta: float, stream: Stream, counts: Ints) -> None:
    """Cut off a random subtree and reattach it, `n_moves` times."""
    survey = make_survey(state.variance.size)
    for _ in range(n_moves):
        # Any node but the root, whose number is skipped.
        cut = int(uniform(stream) * (state.variance.size - 1))
        cut += cut >= state.children[-1, 0]
        regraft_subtree(state, cut, beta, survey, stream, counts)


@borrowing
def log_heated(time: float, given: tuple[Edge, Others, float, float]) -> float:
    """Log f^β of a time on an edge."""
    edge, others, d, beta = given
    return beta * log_edge_density(edge, others, d, time)


slice_between, _ = compiled_slice(log_heated)


@inline
def slice_node_time(state: MutableTree, merge: int, beta: float, stream: Stream) -> None:
    """Draw the time of a merge given the rest; the message from above must be up to date."""
    d = float(state.mean.shape[1])
    edge = edge_around(state, merge)
    if edge.low < edge.high:
        now = state.time[merge]
        set_aside(state, now)
        before = log_edge_density(edge, state.others, d, now)
        if beta == math.inf:
            time, _ = edge_density.find_peak(edge, state.others, d, EXACTLY)
            if not log_edge_density(edge, state.others, d, time) > before:
                time = now
        elif edge.high == math.inf:
            time = edge_density.draw_edge_time(edge, d, beta, np.empty((2, 0)), stream)
        else:
            given = (edge, state.others, d, beta)
            time, _ = slice_between(given, now, beta * before, edge.low, edge.high, stream)
        state.log_joint[0] += log_edge_density(edge, state.others, d, time) - before
        state.time[merge] = time
        put_back(state, time)


@kernel
def slice_node_times(state: MutableTree, beta: float, stream: Stream) -> None:
    """Draw the times of all merges in turn, in one traversal down and up."""
    origin = state.parent.size - 1
    node, came_from = state.children[origin, 0], origin
    while node != origin:
        ahead = walk_on(state, node, came_from)
        if state.children[node, 0] >= 0:
            if came_from == state.parent[node]:
                look_above(state, node)
            elif ahead == state.parent[node]:
                slice_node_time(state, node, beta, stream)
                look_below(state, node)
        node, came_from = ahead, node


@kernel
def rescale_tree(state: MutableTree, beta: float, stream: Stream, counts: Ints) -> None:
    """Stretch or shrink all times together."""
    n_merges, d = state.merge_times.size, state.mean.shape[1]
    # The posterior of log c has a standard deviation of about 1/√((n−1)(1 + d/2)) without leaf noise.
    log_c = 3.0 / math.sqrt(beta * n_merges * (1.0 + 0.5 * d)) * (2.0 * uniform(stream) - 1.0)
    before, time, merge_times = state.log_joint[0], state.time.copy(), state.merge_times.copy()
    c = math.exp(log_c)
    for k in range(n_merges):
        state.time[n_merges + 1 + k] *= c
        state.merge_times[k] *= c
    recompute_tree(state)
    counts[SCALES] += 1
    if -exponential(stream) < beta * (state.log_joint[0] - before) + n_merges * log_c:
        counts[SCALES_ACCEPTED] += 1
    else:
        state.time[:] = time
        state.merge_times[:] = merge_times
        recompute_tree(state)


def advance(
    state: MutableTree, n_sweeps: int, stream: Stream, counts: Ints, schedule: Schedule | None = None, beta: float = 1.0
) -> None:
    """Make `n_sweeps` sweeps in place; `counts` (5,) grows."""
    plan = schedule or Schedule(regrafts=len(state.merge_times) + 1)
    for _ in range(n_sweeps):
        # Slices come first: from a start with poor times they quickly reach a region where regrafts are accepted.
        for _ in range(plan.slices):
            slice_node_times(state, beta, stream)
        regraft(state, plan.regrafts, beta, stream, counts)
        if not math.isfinite(state.log_joint[0]):
            recompute_tree(state)
        for _ in range(plan.scales):
            rescale_tree(state, beta, stream, counts)


def trace(
    tree: Tree,
    rows: Floats,
    leaf_noise: Floats,
    n_draws: int,
    rng: np.random.Generator,
    *,
    thin: int = 1,
    schedule: Schedule | None = None,
    temperature: float = 1.0,
) -> Trace:
    """Run a chain from `tree` and keep a tree every `thin` sweeps.

    Parameters
    ----------
    tree : Tree
        Where the chain starts.
    rows : ndarray (n, d)
        Whitened rows; with d = 0 the prior is sampled.
    leaf_noise : ndarray (n,)
        Variance of each leaf.
    n_draws : int
        Number of trees kept.
    rng : Generator
        Source of the chain's own stream.
    thin : int
        Sweeps between trees.
    schedule : Schedule, optional
        Moves per sweep. Default: n regrafts, one slice of every merge, one scaling.
    temperature : float
        The target is the posterior density to the power 1/temperature.

    Returns
    -------
    Trace
    """
    state, stream = make_chain(tree, rows, leaf_noise), make_streams(rng, 1)[0]
    n = len(rows)
    children, times = np.empty((n_draws, n - 1, 2), dtype=np.int64), np.empty((n_draws, n - 1))
    log_joint, counts = np.empty(n_draws), np.zeros(5, dtype=np.int64)
    for draw in range(n_draws):
        advance(state, thin, stream, counts, schedule, 1.0 / temperature)
        children[draw], times[draw] = to_arrays(state)
        log_joint[draw] = state.log_joint[0]
    return Trace(children, times, log_joint, MoveInfo(*counts.tolist()))
