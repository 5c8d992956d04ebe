r"""A Markov chain on trees over many rows: local regrafts, a slice of every merge time, a common scale.

A sweep slices each merge time between its children's and its parent's (the root's is drawn exactly), then reattaches
every other node (`moves.local`), odd and even ones in alternate sweeps: leaves and merges alike, n in all. Nothing is
O(n²): apart from sorting merge times, a sweep is O(n) moves of O(log n + d · near edges).

Rows and merges are numbered in the order in which the first tree is drawn, so that what is near in the tree is near in
memory. How many edges a search finds, and the clock of its proposal, adapt to the chain in warm-up and are then fixed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree import sizes
from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, inline, kernel
from coaltree.errors import InputError
from coaltree.inference.moves import edge_density, local, pairs, search, shifted
from coaltree.inference.moves.edge_density import Edge, log_edge_likelihood
from coaltree.inference.moves.lineages import (
    expected_times,
    exposure_without,
    insert,
    make_coarse_clock,
    make_lineages,
    put_in_order,
    remove,
)
from coaltree.inference.moves.local import (
    ANCHORED,
    ELSEWHERE,
    FOUND,
    N_COUNTS,
    SCALES,
    SCALES_ACCEPTED,
    SURROUNDED,
    Local,
)
from coaltree.inference.moves.mutable_tree import (
    edge_around,
    log_prior_of_times,
    look_above,
    look_below,
    pass_messages,
    upwards,
    walk_on,
)
from coaltree.inference.moves.row_noise import slice_noise
from coaltree.model.slice import compiled_slice
from coaltree.randomness import Stream, exponential, make_streams, uniform
from coaltree.tree import Tree

# Edges that an anchored search finds: initially, at least and at most.
FIRST_EDGES, FEWEST_EDGES, MOST_EDGES = 48, 16, 512
# In warm-up, searches grow until they find the old edge this often; less often where rows could be in many places, as
# twice as many edges then find it only a little more often.
WANTED, WANTED_OF_LATENT = 0.95, 0.7
# If fewer of the regrafts than this change the tree, pairs are regrafted too, this many per row in each sweep.
RARELY, PAIRS_A_ROW = 0.2, 0.5
# A warm-up of this length or more, with more than `sizes.FREE_COLUMNS`, begins with the likelihood raised to a power,
# and reaches the full likelihood after this share of its sweeps.
FEWEST_HEATED, HEATED = 50, 0.6
# Searches to be counted before their outcomes decide anything.
ENOUGH = 100
# Weight of the last tree in the clock's merge times, in warm-up.
FRESH = 0.2


@kernel
def recompute(state: Local) -> None:
    """All messages from below, lineages and the log joint, from pointers and times."""
    n = state.parent.size // 2
    put_in_order(state.lineages, state.time)
    state.log_joint[0] = log_prior_of_times(np.sort(state.time[n : 2 * n - 1])) + state.heat[1] * pass_messages(state)


@borrowing
def log_merge_density(time: float, given: tuple[Edge, Local]) -> float:
    """Log f of a merge at a time on an edge; the merge itself is removed from the lineages."""
    edge, state = given
    return log_edge_likelihood(edge, state.heat[0], time) - exposure_without(state.lineages, state.time, time)


slice_between, _ = compiled_slice(log_merge_density)


@inline
def slice_time(state: Local, merge: int, stream: Stream) -> None:
    """Draw the time of a merge given the rest; the message from above must be up to date."""
    edge = edge_around(state, merge, state.heat[1])
    if not edge.low < edge.high:
        return
    given, now = (edge, state), state.time[merge]
    remove(state.lineages, merge, now)
    before = log_merge_density(now, given)
    if edge.high == math.inf:
        time = edge_density.draw_edge_time(edge, state.heat[0], 1.0, state.search.survey.knots, stream)
        value = log_merge_density(time, given)
    else:
        time, value = slice_between(given, now, before, edge.low, edge.high, stream)
    state.log_joint[0] += value - before
    state.time[merge] = time
    insert(state.lineages, merge, time)


@kernel
def slice_times(state: Local, stream: Stream) -> None:
    """Draw the times of all merges in turn, in one traversal down and up."""
    origin = state.parent.size - 1
    node, came_from = state.children[origin, 0], origin
    while node != origin:
        ahead = walk_on(state, node, came_from)
        if state.children[node, 0] >= 0:
            if came_from == state.parent[node]:
                look_above(state, node)
            elif ahead == state.parent[node]:
                slice_time(state, node, stream)
                look_below(state, node)
        node, came_from = ahead, node


@kernel
def rescale(state: Local, stream: Stream, counts: Ints) -> None:
    """Stretch or shrink all merge times together: accepted with the Jacobian c^(n−1)."""
    n, d = state.parent.size // 2, state.heat[0]
    # The posterior of log c has a standard deviation of about 1/√((n−1)(1 + d/2)) without leaf noise.
    log_c = 3.0 / math.sqrt((n - 1) * (1.0 + 0.5 * d)) * (2.0 * uniform(stream) - 1.0)
    recompute(state)
    before, times = state.log_joint[0], state.time[n : 2 * n - 1].copy()
    state.time[n : 2 * n - 1] *= math.exp(log_c)
    recompute(state)
    counts[SCALES] += 1
    if -exponential(stream) < state.log_joint[0] - before + (n - 1) * log_c:
        counts[SCALES_ACCEPTED] += 1
    else:
        state.time[n : 2 * n - 1] = times
        recompute(state)


@kernel
def draw_order(children: Ints, out: Ints) -> None:
    """Number all nodes by where they are in a drawing of the tree: leaves 0 … n−1, merges from n, out (2n−1,)."""
    n = children.shape[0] // 2
    origin = 2 * n - 1
    node, leaves, merges = children[origin, 0], 0, n
    stack = np.empty(n, dtype=np.int64)
    depth = 0
    while True:
        if node < n:
            out[node] = leaves
            leaves += 1
            if depth == 0:
                break
            depth -= 1
            node = stack[depth]
        else:
            out[node] = merges
            merges += 1
            stack[depth] = children[node, 1]
            depth += 1
            node = children[node, 0]


class Walk:
    """A chain on trees over the same n rows, which may be whitened again between sweeps.

    Attributes
    ----------
    state : Local
        The tree, with its own node numbers.
    place : ndarray (2n−1,)
        The number in `state` of each leaf 0 … n−1 and of the merges of the first tree.
    counts : ndarray (N_COUNTS,)
        Outcomes of the moves, by the names in `moves.local`.
    power : float
        To which the likelihood is raised, once warm-up is over.
    """

    def __init__(
        self, tree: Tree, near: npt.NDArray[Any], rows: Floats, leaf_noise: Floats, rng: np.random.Generator, **how: Any
    ) -> None:
        """Begin at a tree over whitened rows (n, d), with near rows of each (n, k).

        A long chain numbers its nodes in the order in which the tree is drawn. With `fresh=True`, for a sweep or two
        from a tree that is itself a draw, numbers do not depend on the tree, which must not determine which node is cut
        when. `wanted` is how often searches are to find the old edge.
        """
        n, d = rows.shape
        if tree.n_leaves != n:
            raise InputError(f"X must have one row per leaf of the tree ({tree.n_leaves}), got {n}.")
        origin = 2 * n - 1
        children, parent = np.full((2 * n, 2), -1, dtype=np.int64), np.full(2 * n, -1, dtype=np.int64)
        children[n:origin] = tree.children
        children[origin, 0] = origin - 1
        self.place = np.arange(origin)
        self.n_sweeps = 0
        if how.get("fresh"):
            self.place[n:] = rng.permutation(self.place[n:])
            self.n_sweeps = int(rng.integers(2))
        else:
            draw_order(children, self.place)
        numbers = np.append(self.place, origin)
        children[numbers[n:]] = np.where(children[n:] < 0, -1, numbers[children[n:]])
        children[:n] = -1
        parent[children[n:].ravel()[children[n:].ravel() >= 0]] = 0
        for side in (0, 1):
            below = children[n:, side]
            parent[below[below >= 0]] = np.arange(n, 2 * n)[below >= 0]
        time = np.zeros(2 * n)
        time[self.place[n:]] = tree.times
        time[origin] = math.inf
        self.order = self.place[n:].copy()
        self.stream = make_streams(rng, 1)[0]
        self.counts = np.zeros(N_COUNTS, dtype=np.int64)
        self.most = FIRST_EDGES
        self.wanted = how.get("wanted", WANTED)
        self.n_pairs = 0
        self.power = float(how.get("power", 1.0))
        self.expected = expected_times(n)
        self.state = Local(
            children=children,
            parent=parent,
            time=time,
            mean=np.zeros((origin, d)),
            variance=np.zeros(origin),
            above_mean=np.zeros((origin, d)),
            above_variance=np.zeros(origin),
            others=make_coarse_clock(self.expected),
            lineages=make_lineages(time),
            near=np.empty(near.shape, dtype=np.int32),
            search=search.make_search(n),
            heat=np.array([self.power * d, self.power]),
            log_joint=np.zeros(1),
        )
        self.shifted: shifted.Shifted | None = None
        self.set_near(near)
        self.given(rows, leaf_noise)

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return len(self.state.near)

    def given(self, rows: Floats, leaf_noise: Floats, times: Floats | None = None) -> None:
        """Take other whitened rows (n, d), leaf noise (n,) and merge times (n−1,).

        Times are in the order of the last `to_arrays`, which must not change.
        """
        n = self.n_leaves
        if times is not None:
            self.state.time[self.order] = times
        self.state.mean[self.place[:n]] = rows
        self.state.variance[self.place[:n]] = leaf_noise

    def confine(self, least: Floats, most: Floats) -> None:
        """Take the bounds of all coordinates, (n, d): from now on regrafts shift subtrees' coordinates between them."""
        if self.shifted is None:
            self.shifted = shifted.make_shifted(self.state)
        own = self.place[: self.n_leaves]
        self.shifted.least[own], self.shifted.most[own] = least, most

    @property
    def rows(self) -> Floats:
        """Whitened rows (n, d), as they are now."""
        return self.state.mean[self.place[: self.n_leaves]]

    @property
    def log_joint(self) -> float:
        """Log joint density of the tree and the rows, up to −½(n−1) log|Φ|, with the likelihood to the power β."""
        recompute(self.state)
        return float(self.state.log_joint[0])

    def sweep(self, n_sweeps: int = 1, rescaled: bool = False) -> None:
        """Make sweeps, each with a move of the common scale if requested."""
        state, stream = self.state, self.stream
        for _ in range(n_sweeps):
            # A sweep keeps what it changes up to date, apart from rounding, but not what was set since the last one.
            recompute(state)
            # Slices come first: from a start with poor times they quickly reach a region where regrafts are accepted.
            slice_times(state, stream)
            how = (self.n_sweeps % 2, 2, self.most, stream, self.counts)
            if self.shifted is None or state.heat[1] < 1.0:
                local.regraft_nodes(state, *how)
            else:
                shifted.regraft_with_rows(self.shifted, *how)
            if self.n_pairs:  # most tables need none, and then this is not compiled
                pairs.regraft_pairs(state, self.n_pairs, self.most, stream, self.counts)
            self.n_sweeps += 1
            if rescaled:
                rescale(state, stream, self.counts)

    def draw_noise(self, scale: float, df: float) -> Floats:
        """Draw the noise of every row, (n,), given the tree and that s / scale ~ IG(df/2, df/2)."""
        slice_noise(self.state, 0.5 * df, scale, self.stream)
        return self.state.variance[self.place[: self.n_leaves]]

    def set_near(self, near: npt.NDArray[Any]) -> None:
        """Take other near rows (n, k)."""
        n = self.n_leaves
        self.state.near[self.place[:n]] = self.place[near]

    def adapt(self, done: int = 0, warmup: int = 0) -> None:
        """Set the clock by the tree, and the rest by the outcomes of moves since last time.

        The number of edges depends on how often searches found the old one; pairs are regrafted if single subtrees
        hardly move. The likelihood is annealed as warm-up progresses. For warm-up only: a chain that keeps adapting to
        itself does not have the posterior as its stationary distribution.
        """
        self.cool(done / (HEATED * warmup) if warmup >= FEWEST_HEATED else 1.0)
        n = self.n_leaves
        self.expected = (1.0 - FRESH) * self.expected + FRESH * np.sort(self.state.time[n:-1])
        self.set_clock()
        if self.counts[ANCHORED] >= ENOUGH:  # small tables reach it in several sweeps
            missed = 1.0 - self.counts[FOUND] / self.counts[ANCHORED]
            factor = float(np.clip(math.sqrt(missed / (1.0 - self.wanted)), 0.8, 1.5))
            self.most = int(np.clip(round(self.most * factor), FEWEST_EDGES, MOST_EDGES))
            moved = self.counts[ELSEWHERE] / (self.counts[ANCHORED] + self.counts[SURROUNDED])
            self.n_pairs = round(PAIRS_A_ROW * n) if moved < RARELY else 0
            self.counts[:] = 0

    def cool(self, progress: float) -> None:
        """Raise the likelihood to a power that grows from FREE_COLUMNS / d to the final one as progress goes to 1."""
        d = self.state.mean.shape[1]
        beta = self.power * min(1.0, sizes.FREE_COLUMNS / max(self.power * d, 1.0)) ** max(0.0, 1.0 - progress)
        if beta != self.state.heat[1]:
            self.state.heat[:] = beta * d, beta

    def to_arrays(self) -> tuple[Ints, Floats]:
        """Children (n−1, 2) and times (n−1,) of the tree, merges in time order."""
        n = self.n_leaves
        number = np.empty(2 * n, dtype=np.int64)
        number[self.place[:n]] = np.arange(n)
        order = np.empty(n - 1, dtype=np.int64)
        upwards(self.state.children, order)
        self.order = order[np.argsort(self.state.time[order], kind="stable")]
        number[self.order] = np.arange(n, 2 * n - 1)
        return np.sort(number[self.state.children[self.order]], axis=1), self.state.time[self.order]

    def to_tree(self, names: tuple[str, ...] | None = None) -> Tree:
        """Return the tree."""
        return Tree(*self.to_arrays(), names)

    def to_file(self) -> dict[str, npt.NDArray[Any]]:
        """Return everything that determines how the walk continues, except the tree, rows and leaf noise."""
        children, _ = self.to_arrays()
        number = np.empty(2 * self.n_leaves, dtype=np.int64)
        number[self.place[: self.n_leaves]] = np.arange(self.n_leaves)
        number[self.order] = np.arange(self.n_leaves, 2 * self.n_leaves - 1)
        own = {name: getattr(self, name) for name in ("place", "order", "stream", "counts", "expected")}
        swapped = number[self.state.children[self.order, 0]] != children[:, 0]
        numbers = np.array([self.n_sweeps, self.most, self.n_pairs])
        return {**own, "near": self.state.near, "swapped": swapped, "numbers": numbers, "heat": self.state.heat}

    def from_file(self, parts: dict[str, npt.NDArray[Any]], tree: Tree) -> None:
        """Continue where another walk over the same rows called `to_file`, at a tree with these children."""
        n, state = self.n_leaves, self.state
        for name, like in {**self.to_file(), "near": state.near}.items():
            if parts[name].shape != like.shape or parts[name].dtype.kind != like.dtype.kind:
                raise InputError(f"{name} must be like {like.dtype} {like.shape}, got {parts[name].shape}.")
        place, order, near = parts["place"], parts["order"], parts["near"]
        leaves, merges = np.arange(n), np.arange(n, 2 * n - 1)
        if not np.array_equal(np.sort(place[:n]), leaves) or not np.array_equal(np.sort(order), merges):
            raise InputError("place and order must number every node once.")
        if near.min() < 0 or near.max() >= n or not np.isfinite(parts["expected"]).all():
            raise InputError("near must hold rows, and expected finite times.")
        if not 0.0 < parts["heat"][1] <= 1.0:
            raise InputError("heat must be a power between 0 and 1.")
        rows, noise = state.mean[self.place[:n]], state.variance[self.place[:n]]
        for name in ("place", "order", "stream", "counts", "expected"):
            setattr(self, name, parts[name].copy())
        label = np.concatenate([place[:n], order])
        below = label[tree.children]
        below[parts["swapped"]] = below[parts["swapped"]][:, ::-1]
        state.children[order] = below
        state.children[-1, 0] = order[-1]
        state.parent[below.ravel()] = np.repeat(order, 2)
        state.parent[order[-1]] = 2 * n - 1
        state.near[:] = near
        self.n_sweeps = int(parts["numbers"][0])
        self.most = int(np.clip(parts["numbers"][1], 1, MOST_EDGES))
        self.n_pairs = int(np.clip(parts["numbers"][2], 0, n))
        state.heat[:] = parts["heat"][1] * rows.shape[1], parts["heat"][1]
        self.set_clock()
        self.given(rows, noise, tree.times)

    def set_clock(self) -> None:
        """Set the clock by the expected merge times."""
        for array, values in zip(self.state.others, make_coarse_clock(self.expected), strict=True):
            array[:] = values
