r"""Heavy-tailed leaf noise: every row has its own noise, so that rows that fit badly cannot distort the tree.

The noise of row i is s_i = s₀ w_i with

    w_i ~ IG(ν/2, ν/2),   s₀ ~ Exponential(1),   ν ~ Gamma(2, 1/10) on [½, 200],

so that measurements are distributed around the true value as a multivariate t with ν degrees of freedom: the same shape
Φ, with a different size for every row. Given the tree, row i sees the rest of it through one message N(u, βΦ) at its
parent, at time t, so

    log p(x_i | s_i, rest) = −(d/2) log v − ε/2v,   v = β + t + s_i,   ε = |x_i − u|²,

and s_i is slice-sampled, leaf by leaf, in one traversal of the tree: O(nd). The prior of ν is that of Juárez and
Steel (2010): it allows anything between outliers in every tenth row and none.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaincc, gammainccinv, gammaln

from coaltree._arrays import Floats
from coaltree._compile import borrowing, kernel
from coaltree.inference.moves.local import Local
from coaltree.inference.moves.mutable_tree import look_above, look_below, walk_on
from coaltree.model.messages import squared_distance
from coaltree.model.slice import compiled_slice, slice_step
from coaltree.randomness import Stream

DF_SHAPE, DF_RATE = 2.0, 0.1
LEAST_DF, MOST_DF = 0.5, 200.0
FIRST_DF = 4.0
# Leaf noise below this is negligible beside rounding; the bound keeps a flat tail from drifting away.
LOG_SMALLEST = -40.0
SMALLEST_NOISE = math.exp(LOG_SMALLEST)
# Rows start with extra noise if their squared distance to the next row exceeds the median by more than this factor.
FAR = 30.0


class Tails(NamedTuple):
    """The distribution of the rows' noise: s_i / scale ~ IG(df/2, df/2)."""

    scale: float  # s₀
    df: float  # ν


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


def log_multipliers(w: Floats, df: float) -> float:
    """Σ log density of w_i ~ IG(ν/2, ν/2)."""
    shape = 0.5 * df
    each = shape * math.log(shape) - float(gammaln(shape))
    return len(w) * each - float((shape + 1.0) * np.log(w).sum() + shape * (1.0 / w).sum())


def draw_tails(noise: Floats, tails: Tails, rng: np.random.Generator, least: float = SMALLEST_NOISE) -> Tails:
    """s₀, no less than `least`, and ν given the noise of every row: a gamma draw, and a slice in log ν."""
    n, shape = len(noise), 0.5 * tails.df
    rate = 1.0 + shape * float((1.0 / noise).sum())
    scale = rng.gamma(n * shape + 1.0) / rate
    if scale < least:
        above = float(gammaincc(n * shape + 1.0, rate * least)) * (1.0 - rng.random())
        scale = max(float(gammainccinv(n * shape + 1.0, above)) / rate, least)
    w = noise / scale

    def log_density(log_df: float) -> float:
        df = math.exp(log_df)
        return DF_SHAPE * log_df - DF_RATE * df + log_multipliers(w, df)

    now = math.log(tails.df)
    bounds: dict[str, Any] = {"lower": math.log(LEAST_DF), "upper": math.log(MOST_DF)}
    log_df, _ = slice_step(log_density, now, log_density(now), rng, width=1.0, **bounds)
    return Tails(scale, math.exp(log_df))


def draw_shift(first: float, noise: Floats, tails: Tails, rng: np.random.Generator) -> float:
    """δ of (t, s) → (t − δ, s + δ), which does not change the likelihood: a slice. `first` is the first merge time."""
    n, shape = len(noise), 0.5 * tails.df
    rate = 0.5 * n * (n - 1)
    lower, upper = min(SMALLEST_NOISE - float(noise.min()), 0.0), first
    reach = upper - lower

    def log_density(shift: float) -> float:
        moved = noise + shift
        if not (moved.min() > 0.0 and shift < first):
            return -math.inf
        prior: float = -(shape + 1.0) * np.log(moved).sum() - shape * tails.scale * (1.0 / moved).sum()
        return rate * shift + float(prior)

    shift, _ = slice_step(log_density, 0.0, log_density(0.0), rng, width=0.25 * reach, lower=lower, upper=upper)
    return shift


def first_noise(distance: Floats, noise: float) -> Floats:
    """Initial noise of every row, from squared distances to the next row: more where that is very far."""
    typical = float(np.median(distance))
    ratio = distance / typical if typical > 0.0 else np.where(distance > 0.0, 1.0, 0.0)
    return np.asarray(noise * np.where(ratio > FAR, ratio, 1.0), dtype=np.float64)


def new_noises(tails: list[Tails], rng: np.random.Generator) -> Floats:
    """Noise of a new row for each draw (M,): one from each of M equal shares of the distribution of w, shuffled."""
    from scipy.stats import gamma  # slow to import

    size = len(tails)
    share = rng.permutation((np.arange(size) + rng.random(size)) / size)
    shape = np.array([0.5 * each.df for each in tails])
    w = shape / np.maximum(gamma.ppf(share, shape), np.finfo(np.float64).tiny)
    return np.array([each.scale for each in tails]) * w


def surprise(leaf_noises: Floats, tails: list[Tails]) -> Floats:
    """Probability that a new row has a noise multiplier as large as each row's, mean over draws, (n,)."""
    from scipy.stats import gamma

    shape, scale = np.array([(0.5 * each.df, each.scale) for each in tails]).T[:, :, None]
    return np.asarray(gamma.cdf(shape * scale / leaf_noises, shape).mean(axis=0))
