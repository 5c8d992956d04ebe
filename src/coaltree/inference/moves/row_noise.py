r"""Draw the noise of each row given the tree, where rows have their own (`model.noise.RobustNoise`).

Row i sees the rest of the tree through one message N(u, βΦ) at its parent, at time t, so

    log p(x_i | s_i, rest) = −(d/2) log v − ε/2v,   v = β + t + s_i,   ε = |x_i − u|²,

and s_i is slice-sampled, leaf by leaf, in one traversal of the tree: O(nd).
"""

from __future__ import annotations

import math

from coaltree._compile import borrowing, kernel
from coaltree.inference.moves.local import Local
from coaltree.inference.moves.mutable_tree import look_above, look_below, walk_on
from coaltree.model.messages import squared_distance
from coaltree.model.noise import LOG_SMALLEST
from coaltree.model.slice import compiled_slice
from coaltree.randomness import Stream


@borrowing
def _log_posterior(log_noise: float, given: tuple[float, float, float, float, float]) -> float:
    """Log density of log s_i up to a constant, given β + t, ε, d and the shape and scale of its distribution."""
    rest, eps, d, shape, scale = given
    noise = math.exp(log_noise)
    v = rest + noise
    return -0.5 * (d * math.log(v) + eps / v) - shape * log_noise - shape * scale / noise


_, _slice_around = compiled_slice(_log_posterior)


@borrowing
def _slice_leaf(state: Local, leaf: int, shape: float, scale: float, stream: Stream) -> None:
    """Draw the noise of a leaf; its message from above must be up to date."""
    rest = state.above_variance[leaf] + state.time[state.parent[leaf]]
    d, beta = state.heat[0], state.heat[1]
    eps = beta * squared_distance(state.mean, leaf, state.above_mean, leaf)
    now = max(math.log(state.variance[leaf]), LOG_SMALLEST)
    given = (rest, eps, d, shape, scale)
    new = _slice_around(given, now, LOG_SMALLEST, math.inf, stream)
    if new != now:
        state.variance[leaf] = math.exp(new)


@kernel
def slice_noise(state: Local, shape: float, scale: float, stream: Stream) -> None:
    """Draw the noise of all leaves in turn, s ~ IG(shape, shape · scale) a priori, in one traversal down and up."""
    origin = state.parent.size - 1
    node, came_from = state.children[origin, 0], origin
    while node != origin:
        ahead = walk_on(state, node, came_from)
        if came_from == state.parent[node]:
            look_above(state, node)
        if state.children[node, 0] < 0:
            _slice_leaf(state, node, shape, scale, stream)
        elif ahead == state.parent[node]:
            look_below(state, node)
        node, came_from = ahead, node
