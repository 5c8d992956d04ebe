"""A tree that changes in place: pointers, times and Gaussian messages in both directions.

Nodes keep their numbers while they move, so merges are not in time order here. Leaves are 0 … n−1, merges n … 2n−2, and
row 2n−1 is an origin at infinite time whose first child is the root, so that the root rarely needs special treatment.
Messages from below are always up to date. Messages from above are filled in, on the way down, by the code that uses
them.

A cut removes a subtree and its parent merge; the parent's number is reused when the subtree is attached again.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, inline, kernel
from coaltree.errors import InputError
from coaltree.inference.moves.edge_density import Edge, Others, fill_exposure, make_others, n_until
from coaltree.model.messages import blend, meet, squared_distance
from coaltree.tree import Tree


class Pointers(Protocol):
    """Attributes common to trees that change in place; see `Chain` for shapes."""

    @property
    def children(self) -> Ints: ...  # noqa: D102
    @property
    def parent(self) -> Ints: ...  # noqa: D102
    @property
    def time(self) -> Floats: ...  # noqa: D102
    @property
    def mean(self) -> Floats: ...  # noqa: D102
    @property
    def variance(self) -> Floats: ...  # noqa: D102
    @property
    def above_mean(self) -> Floats: ...  # noqa: D102
    @property
    def above_variance(self) -> Floats: ...  # noqa: D102


class MutableTree(NamedTuple):
    """The state of a Markov chain on trees over n whitened rows."""

    children: Ints  # (2n, 2), −1 for none
    parent: Ints  # (2n,)
    time: Floats  # (2n,), 0 at leaves, infinite at the origin
    mean: Floats  # (2n−1, d), from below
    variance: Floats  # (2n−1,)
    above_mean: Floats  # (2n−1, d), from above, at the parent
    above_variance: Floats  # (2n−1,)
    merge_times: Floats  # (n−1,), sorted
    others: Others  # all merges but one
    log_joint: Floats  # (1,), up to −½(n−1) log|Φ|


def make_chain(tree: Tree, rows: Floats, leaf_noise: Floats) -> MutableTree:
    """Start a chain at a tree over whitened rows (n, d); with d = 0 it samples the prior."""
    n, d = rows.shape
    if tree.n_leaves != n:
        raise InputError(f"X must have one row per leaf of the tree ({tree.n_leaves}), got {n}.")
    origin = 2 * n - 1
    children = np.full((2 * n, 2), -1, dtype=np.int64)
    children[n:origin] = tree.children
    children[origin, 0] = origin - 1
    parent = np.append(tree.parents(), -1)
    parent[origin - 1] = origin
    mean = np.zeros((origin, d))
    mean[:n] = rows
    variance = np.zeros(origin)
    variance[:n] = leaf_noise
    state = MutableTree(
        children=children,
        parent=parent,
        time=np.append(tree.node_times(), math.inf),
        mean=mean,
        variance=variance,
        above_mean=np.zeros((origin, d)),
        above_variance=np.zeros(origin),
        merge_times=tree.times.copy(),
        others=make_others(n - 2),
        log_joint=np.zeros(1),
    )
    recompute_tree(state)
    return state


def arrange(children: Ints, time: Floats) -> tuple[Ints, Floats]:
    """Children (n−1, 2) and times (n−1,) with merges in time order; where times are tied, children come first.

    Takes pointers (2n, 2) and times (2n,) as in `Chain`.
    """
    n_merges = len(time) // 2 - 1
    order = np.empty(n_merges, dtype=np.int64)
    upwards(children, order)
    order = order[np.argsort(time[order], kind="stable")]
    number = np.arange(2 * n_merges + 1)
    number[order] = np.arange(n_merges + 1, 2 * n_merges + 1)
    return np.sort(number[children[order]], axis=1), time[order]


def to_arrays(state: Pointers) -> tuple[Ints, Floats]:
    """Children and times of a chain's current tree, by `arrange`."""
    return arrange(state.children, state.time)


def to_tree(state: MutableTree, names: tuple[str, ...] | None = None) -> Tree:
    """Return a chain's current tree."""
    return Tree(*to_arrays(state), names)


@borrowing
def other_child(state: Pointers, node: int) -> int:
    """The sibling of a node."""
    parent = state.parent[node]
    sibling: int = state.children[parent, 0]
    if sibling == node:
        sibling = state.children[parent, 1]
    return sibling


@borrowing
def replace_child(state: Pointers, parent: int, old: int, new: int) -> None:
    """Let `new` take the place of `old` under `parent`."""
    state.children[parent, 0 if state.children[parent, 0] == old else 1] = new
    state.parent[new] = parent


@borrowing
def walk_on(state: Pointers, node: int, came_from: int) -> int:
    """Where a walk around the tree goes from a node: down to its first child, then to its second, then up."""
    left, right = state.children[node, 0], state.children[node, 1]
    if left < 0 or came_from == right:
        return int(state.parent[node])
    return int(right if came_from == left else left)


@borrowing
def look_below(state: Pointers, node: int) -> float:
    """Message of a merge from its two children; returns v."""
    left, right = state.children[node, 0], state.children[node, 1]
    var_left = state.variance[left] + state.time[node] - state.time[left]
    var_right = state.variance[right] + state.time[node] - state.time[right]
    v, share, state.variance[node] = meet(var_left, var_right)
    blend(state.mean, left, state.mean, right, share, state.mean, node)
    return v


@borrowing
def look_below_to_root(state: Pointers, node: int) -> None:
    """Bring the messages of a merge and all its ancestors up to date."""
    while node < state.parent.size - 1:
        look_below(state, node)
        node = state.parent[node]


@borrowing
def look_above(state: Pointers, node: int) -> None:
    """Message to the upper end of a node's edge from the rest of the tree."""
    parent = state.parent[node]
    origin = state.parent.size - 1
    if parent == origin:
        state.above_variance[node] = math.inf
        for i in range(state.mean.shape[1]):
            state.above_mean[node, i] = 0.0
        return
    sibling = other_child(state, node)
    var_sibling = state.variance[sibling] + state.time[parent] - state.time[sibling]
    var_above = state.above_variance[parent] + state.time[state.parent[parent]] - state.time[parent]
    _, share, state.above_variance[node] = meet(var_sibling, var_above)
    blend(state.mean, sibling, state.above_mean, parent, share, state.above_mean, node)


@borrowing
def edge_around(state: Pointers, merge: int, beta: float = 1.0) -> Edge:
    """The edge left if a merge's first child were cut off, as that child sees it; distances times β."""
    cut, sibling = state.children[merge, 0], state.children[merge, 1]
    mean, above_mean, high = state.mean, state.above_mean, state.time[state.parent[merge]]
    rooted = high == math.inf
    return Edge(
        low=max(state.time[sibling], state.time[cut]),
        high=high,
        below=state.variance[sibling] - state.time[sibling],
        above=state.above_variance[merge] + high,
        offset=state.variance[cut] - state.time[cut],
        eps_below=beta * squared_distance(mean, cut, mean, sibling),
        eps_above=0.0 if rooted else beta * squared_distance(mean, cut, above_mean, merge),
        eps_span=0.0 if rooted else beta * squared_distance(mean, sibling, above_mean, merge),
    )


@inline
def set_aside(state: MutableTree, time: float) -> None:
    """Put all merge times but one, which is `time`, into `others`."""
    others = state.others.times
    skipped = n_until(state.merge_times, time) - 1
    for k in range(others.size):
        others[k] = state.merge_times[k if k < skipped else k + 1]
    fill_exposure(state.others)


@inline
def put_back(state: MutableTree, time: float) -> None:
    """Set the merge times to `others` and `time`."""
    others = state.others.times
    place = n_until(others, time)
    for k in range(others.size):
        state.merge_times[k if k < place else k + 1] = others[k]
    state.merge_times[place] = time


@borrowing
def take_out(state: Pointers, cut: int) -> None:
    """Join the two ends that a subtree and its parent merge leave behind."""
    merge = state.parent[cut]
    upper = state.parent[merge]
    replace_child(state, upper, merge, other_child(state, cut))
    look_below_to_root(state, upper)


@borrowing
def hang(state: Pointers, cut: int, node: int, time: float) -> None:
    """Put a removed subtree, with its parent merge, on the edge above `node`."""
    merge = state.parent[cut]
    replace_child(state, state.parent[node], node, merge)
    state.children[merge, 0] = node
    state.children[merge, 1] = cut
    state.parent[node] = merge
    state.time[merge] = time
    look_below_to_root(state, merge)


@inline
def detach(state: MutableTree, cut: int) -> None:
    """Remove the subtree under `cut` and its parent merge; messages from below stay correct for the rest."""
    set_aside(state, state.time[state.parent[cut]])
    take_out(state, cut)


@inline
def attach(state: MutableTree, cut: int, node: int, time: float) -> None:
    """Attach a detached subtree to the edge above `node`."""
    put_back(state, time)
    hang(state, cut, node, time)


@kernel
def upwards(children: Ints, out: Ints) -> None:
    """All merges, children before parents, out (n−1,)."""
    n_merges = out.size
    filled = n_merges
    # Read backwards, a walk from the root that puts each parent before its children.
    out[filled - 1] = children[-1, 0]
    filled -= 1
    reader = n_merges - 1
    while reader >= 0:
        for child in children[out[reader]]:
            if child > n_merges:
                filled -= 1
                out[filled] = child
        reader -= 1


@inline
def log_prior_of_times(merge_times: Floats) -> float:
    """−Σ λ_k Δ_k."""
    total = 0.0
    before = 0.0
    for k in range(merge_times.size):
        live = merge_times.size + 1 - k
        total -= 0.5 * live * (live - 1) * (merge_times[k] - before)
        before = merge_times[k]
    return total


@inline
def pass_messages(state: Pointers) -> float:
    """All messages from below, from pointers and times; returns the log likelihood."""
    n_merges, d = state.parent.size // 2 - 1, state.mean.shape[1]
    order = np.empty(n_merges, dtype=np.int64)
    upwards(state.children, order)
    log_likelihood = 0.0
    for k in range(n_merges):
        node = order[k]
        left, right = state.children[node, 0], state.children[node, 1]
        eps = squared_distance(state.mean, left, state.mean, right)
        v = look_below(state, node)
        if d > 0:
            log_likelihood -= 0.5 * (d * math.log(2.0 * math.pi * v) + (eps / v if eps > 0.0 else 0.0))
    return log_likelihood


@kernel
def recompute_tree(state: MutableTree) -> None:
    """All messages from below and the log joint, from pointers and times."""
    state.log_joint[0] = log_prior_of_times(state.merge_times) + pass_messages(state)
