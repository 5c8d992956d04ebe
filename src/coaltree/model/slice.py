"""Slice sampling of one variable: stepping out and shrinkage (Neal 2003, *Annals of Statistics* 31)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from coaltree.errors import InputError


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
