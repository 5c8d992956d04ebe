r"""Normal variables in intervals: exact draws and probabilities, compiled.

Draws are by rejection (Robert 1995, *Statistics and Computing* 5): from the normal itself where the interval holds much
of it, from an exponential in the tail, uniformly where the interval is short. Each accepts at least one in four or so,
however far out the interval is.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, inline, kernel
from coaltree.randomness import Stream, exponential, uniform

_ROOT_TWO = math.sqrt(2.0)
_HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
# Beyond this a tail is less than rounding of 1; most cells of a large table lie that far from where they end.
_FAR = 8.5
# log Φ between −_END and _END, for `roughly_between`.
_END, _PER_UNIT = 8.0, 16
_LOG_BELOW = log_ndtr(np.linspace(-_END, _END, int(2 * _END) * _PER_UNIT + 1))
# For ∫ e^(−x²) f(x) dx.
_NODES, _WEIGHTS = np.polynomial.hermite.hermgauss(10)


@inline
def _normal(stream: Stream) -> float:
    return math.sqrt(2.0 * exponential(stream)) * math.cos(2.0 * math.pi * uniform(stream))


@inline
def standard_between(low: float, high: float, stream: Stream) -> float:
    """Draw a standard normal between low < high, either of which may be infinite."""
    if high < 0.0 or (low < 0.0 and -low > high):
        return -_mostly_right(-high, -low, stream)
    return _mostly_right(low, high, stream)


@inline
def _mostly_right(low: float, high: float, stream: Stream) -> float:
    """Likewise where low ≥ 0, or low < 0 and |low| ≤ high."""
    if low <= 0.0:
        if high - low > 2.5:
            while True:
                z = _normal(stream)
                if low < z < high:
                    return z
        while True:
            z = low + (high - low) * uniform(stream)
            if math.log(uniform(stream)) < -0.5 * z * z:
                return z
    rate = 0.5 * (low + math.sqrt(low * low + 4.0))
    if (high - low) * rate < 2.0:
        while True:
            z = low + (high - low) * uniform(stream)
            if math.log(uniform(stream)) < 0.5 * (low * low - z * z):
                return z
    while True:
        z = low + exponential(stream) / rate
        if z < high and math.log(uniform(stream)) < -0.5 * (z - rate) * (z - rate):
            return z


@kernel
def draw_between(centre: Floats, spread: Floats, low: Floats, high: Floats, state_stream: Stream, out: Floats) -> None:
    """Draw N(centre, spread²) between low and high, entry by entry, (n,)."""
    for i in range(out.size):
        a, b = (low[i] - centre[i]) / spread[i], (high[i] - centre[i]) / spread[i]
        if not a < b:  # the interval is no wider than rounding
            out[i] = low[i]
            continue
        z = centre[i] + spread[i] * standard_between(a, b, state_stream)
        out[i] = min(max(z, low[i]), high[i])


@inline
def log_upper(z: float) -> float:
    """log P(Z > z); the continued fraction's first terms where the function underflows."""
    if z < -_FAR:
        return 0.0
    if z < 25.0:
        return math.log(0.5 * math.erfc(z / _ROOT_TWO))
    return -0.5 * z * z - math.log(z * math.sqrt(2.0 * math.pi)) - math.log1p(1.0 / (z * z))


@inline
def log_between(low: float, high: float) -> float:
    """log P(low < Z < high) of a standard normal, to relative precision in either tail."""
    if not low < high:
        return -math.inf
    if high == math.inf:
        return log_upper(low)
    if low == -math.inf:
        return log_upper(-high)
    if low < 0.0 < high:
        below = 0.5 * math.erfc(-low / _ROOT_TWO) if low > -_FAR else 0.0
        above = 0.5 * math.erfc(high / _ROOT_TWO) if high < _FAR else 0.0
        return math.log1p(-below - above)
    if high <= 0.0:
        low, high = -high, -low
    first, second = log_upper(low), log_upper(high)
    if first - second < 1e-12:  # so short that the density does not change along it
        return -0.5 * low * low - 0.5 * math.log(2.0 * math.pi) + math.log(high - low)
    return first + math.log1p(-math.exp(second - first))


@borrowing
def roughly_below(z: float) -> float:
    """log P(Z < z) to about .001, in a fifth of the time: for proposals."""
    if z >= _END:
        return 0.0
    if z < -_END:
        return -0.5 * z * z - math.log(-z) - _HALF_LOG_TAU
    at = (z + _END) * _PER_UNIT
    k = int(at)
    below: float = _LOG_BELOW[k]
    value: float = below + (at - k) * (_LOG_BELOW[k + 1] - below)
    return value


@borrowing
def roughly_between(low: float, high: float) -> float:
    """log P(low < Z < high) likewise."""
    if high == math.inf:
        return roughly_below(-low)
    if low == -math.inf:
        return roughly_below(high)
    if low > -high:
        low, high = -high, -low
    above, below = roughly_below(high), roughly_below(low)
    drop = above - below
    return above + math.log(-math.expm1(-drop)) if drop > 1e-3 else above + math.log(max(drop, 1e-12))


@inline
def log_largest(mean: Floats, level: int, spread: float) -> float:
    """log P(the utility of a level is the largest), for independent normals with these means and a common deviation.

    Given its own, the others are independent: a one-dimensional integral of a log-concave function, by Gauss–Hermite
    around its mode. Newton's steps towards the mode cannot overshoot, as the slope is convex.
    """
    at, curvature = 0.0, 1.0
    for _ in range(8):
        slope, curvature = -at, 1.0
        for other in range(mean.size):
            if other != level:
                x = at + (mean[level] - mean[other]) / spread
                ratio = math.exp(-0.5 * x * x - _HALF_LOG_TAU - log_upper(-x))
                slope += ratio
                curvature += ratio * (x + ratio)
        at += slope / curvature
        if slope < 0.05 * math.sqrt(curvature):
            break
    width = math.sqrt(2.0 / curvature)
    total, top = 0.0, -math.inf
    for k in range(_NODES.size):
        t = at + width * _NODES[k]
        value = _NODES[k] * _NODES[k] - 0.5 * t * t
        for other in range(mean.size):
            if other != level:
                value += log_upper(-t - (mean[level] - mean[other]) / spread)
        if value > top:
            total, top = total * math.exp(top - value) + _WEIGHTS[k], value
        else:
            total += _WEIGHTS[k] * math.exp(value - top)
    return top + math.log(total * width) - _HALF_LOG_TAU


@kernel
def largest_probabilities(mean: Floats, spread: Floats, out: Floats) -> None:
    """Probability that each level has the largest utility, (n, L); utilities have these means (n, L)."""
    for i in range(len(mean)):
        for level in range(mean.shape[1]):
            out[i, level] = math.exp(log_largest(mean[i], level, spread[i]))


@kernel
def log_levels(centre: Floats, spread: Floats, codes: Ints, cuts: Floats, first: int, last: int) -> float:
    """Sum of log P(level) over rows whose level is between `first` and `last`; cuts (L − 1,) separate the levels."""
    total = 0.0
    for i in range(codes.size):
        level = codes[i]
        if first <= level <= last:
            low = (cuts[level - 1] - centre[i]) / spread[i] if level > 0 else -math.inf
            high = (cuts[level] - centre[i]) / spread[i] if level < cuts.size else math.inf
            total += log_between(low, high)
    return total


@kernel
def log_interval_probability(low: Floats, high: Floats, centre: Floats, spread: Floats, sizes: Floats) -> float:
    """Sum of log P(low < z < high) over all entries (d, n), z ~ N(centre, (size × spread)²), up to a constant.

    Where the bounds are equal it is the log density there, and where both are infinite, 0.
    """
    total = 0.0
    for k in range(sizes.size):
        for i in range(spread.size):
            a, b, deviation = low[k, i], high[k, i], sizes[k] * spread[i]
            if a == b:
                gap = (a - centre[k, i]) / deviation
                total -= 0.5 * gap * gap + math.log(deviation)
            elif b < math.inf or a > -math.inf:
                total += log_between((a - centre[k, i]) / deviation, (b - centre[k, i]) / deviation)
    return total
