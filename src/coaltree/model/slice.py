"""Slice sampling of one variable: stepping out and shrinkage (Neal 2003, *Annals of Statistics* 31).

There is a Python version, with a generator, and one for kernels, with a stream. In the latter the log density is
compiled too, and takes its parameters in one tuple: `log_density(x, given)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from coaltree._compile import borrowing
from coaltree.errors import InputError
from coaltree.randomness import Stream, exponential, uniform


def slice_step(
    log_density: Callable[[float], float],
    x: float,
    log_density_x: float,
    rng: np.random.Generator,
    width: float = 1.0,
    lower: float = -math.inf,
    upper: float = math.inf,
) -> tuple[float, float]:
    """Move x once, leaving exp(log_density) on [lower, upper] invariant; return the new x and its log density.

    `log_density` may be −inf anywhere but at x (NaN counts as −inf) and is never called outside the bounds. `width` is
    the first guess of the slice's length: any value is correct, a good one is fast.
    """
    if not lower <= x <= upper:
        raise InputError(f"x must lie within its bounds [{lower:.6g}, {upper:.6g}], got {x:.6g}.")
    if not math.isfinite(log_density_x):
        raise InputError(
            f"log_density_x must be finite at the current point {x:.6g}, got {log_density_x}: start from a point the "
            "model allows."
        )
    level = log_density_x - rng.exponential()
    left = x - width * rng.random()
    right = left + width
    while left > lower and log_density(left) > level:
        left -= width
    while right < upper and log_density(right) > level:
        right += width
    left, right = max(left, lower), min(right, upper)
    while True:
        proposal = min(left + (right - left) * rng.random(), right)
        value = log_density(proposal)
        if value >= level:
            return proposal, value
        if proposal < x:
            left = proposal
        elif proposal > x:
            right = proposal
        else:  # The slice has shrunk to one floating-point number.
            return x, log_density_x


def compiled_slice(log_density: Any) -> tuple[Any, Any]:
    """Make two functions for kernels, each of which moves x once, from a compiled `log_density(x, given)`.

    The first, (given, x, log density there, low, high, stream), tries all of [low, high] at first, and returns the new
    x and its log density. The second, (given, x, lower, upper, stream), begins with an interval of length 1 that steps
    out, within bounds, and returns the new x.
    """

    @borrowing
    def shrink(
        given: Any, x: float, log_density_x: float, low: float, high: float, level: float, stream: Stream
    ) -> tuple[float, float]:
        while low < high:
            proposal = low + (high - low) * uniform(stream)
            value = log_density(proposal, given)
            if value >= level:
                return proposal, value
            if proposal < x:
                low = proposal
            elif proposal > x:
                high = proposal
            else:
                break
        return x, log_density_x

    @borrowing
    def between(
        given: Any, x: float, log_density_x: float, low: float, high: float, stream: Stream
    ) -> tuple[float, float]:
        return shrink(given, x, log_density_x, low, high, log_density_x - exponential(stream), stream)

    @borrowing
    def around(given: Any, x: float, lower: float, upper: float, stream: Stream) -> float:
        log_density_x = log_density(x, given)
        level = log_density_x - exponential(stream)
        low = x - uniform(stream)
        high = low + 1.0
        while low > lower and log_density(low, given) > level:
            low -= 1.0
        while high < upper and log_density(high, given) > level:
            high += 1.0
        return shrink(given, x, log_density_x, max(low, lower), min(high, upper), level, stream)[0]

    return between, around
