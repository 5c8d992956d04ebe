r"""The two links, as functions of the signed linear predictor z = ±η: log Ψ(z) and its slope.

    probit   Ψ = Φ, the normal distribution function;   slope φ(z)/Φ(z), Mills' ratio mirrored
    logit    Ψ(z) = 1/(1 + e^−z);                       slope 1 − Ψ(z)

Both are needed for every row and outcome at every step of a chain, where computing an exponential and a logarithm each
time would dominate the cost. Within |z| < 8 they are read from a table of polynomials instead, one per cell of width
1/32: eight coefficients, which is one cache line, relative error below 1e-13. Beyond that, asymptotic forms are used.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from coaltree._arrays import Floats
from coaltree._compile import inline, kernel
from coaltree.model.gig import scaled_erfc

Signs = npt.NDArray[np.int8]

PROBIT, LOGIT = range(2)
LINKS = {"probit": PROBIT, "logit": LOGIT}

EDGE = 8.0
CELLS_PER_UNIT = 32
N_COEFFICIENTS = 8


class Lookup(NamedTuple):
    """Polynomials in u ∈ [−1, 1] over each cell, lowest power first."""

    value: Floats  # (cells, 8), log Ψ
    slope: Floats  # (cells, 8), its derivative


def log_link(z: Floats, link: int) -> Floats:
    """log Ψ(z), to full precision in both tails."""
    if link == LOGIT:
        return np.asarray(special.log_expit(z))
    x = z / math.sqrt(2.0)
    below = np.log(0.5 * special.erfcx(np.maximum(-x, 0.0))) - x * x
    return np.where(z > 0.0, np.log1p(-0.5 * special.erfc(np.maximum(x, 0.0))), below)


def link_slope(z: Floats, link: int) -> Floats:
    """Derivative of log Ψ(z)."""
    if link == PROBIT:
        return np.asarray(math.sqrt(2.0 / math.pi) / special.erfcx(-z / math.sqrt(2.0)))
    return np.asarray(special.expit(-z))


def probability(eta: Floats, link: int) -> Floats:
    """Ψ(η)."""
    return np.asarray(special.ndtr(eta) if link == PROBIT else special.expit(eta))


def quantile(p: Floats, link: int) -> Floats:
    """η with Ψ(η) = p."""
    return np.asarray(special.ndtri(p) if link == PROBIT else special.logit(p))


@cache
def table(link: int) -> Lookup:
    """Interpolate at the Chebyshev points of every cell."""
    u = np.cos(np.pi * (np.arange(N_COEFFICIENTS) + 0.5) / N_COEFFICIENTS)
    half = 0.5 / CELLS_PER_UNIT
    centres = -EDGE + half * (2 * np.arange(int(2 * EDGE * CELLS_PER_UNIT)) + 1)
    z = centres[:, None] + half * u
    to_powers = np.linalg.inv(np.vander(u, increasing=True))
    return Lookup(*(np.ascontiguousarray(f(z, link) @ to_powers.T) for f in (log_link, link_slope)))


@inline
def _polynomial(c: Floats, cell: int, u: float) -> float:
    """Estrin's scheme: short chains of dependent operations, so that neighbouring elements overlap."""
    u2 = u * u
    low = (c[cell, 0] + c[cell, 1] * u) + (c[cell, 2] + c[cell, 3] * u) * u2
    high = (c[cell, 4] + c[cell, 5] * u) + (c[cell, 6] + c[cell, 7] * u) * u2
    result: float = low + high * (u2 * u2)
    return result


@inline
def _value_outside(z: float, link: int) -> float:
    """log Ψ for |z| ≥ 8."""
    if link == LOGIT:
        return -math.log1p(math.exp(-z)) if z > 0.0 else z - math.log1p(math.exp(z))
    if z > 0.0:
        return math.log1p(-0.5 * math.erfc(z * math.sqrt(0.5)))
    return math.log(0.5 * scaled_erfc(-z * math.sqrt(0.5))) - 0.5 * z * z


@inline
def _slope_outside(z: float, link: int) -> float:
    """Its derivative."""
    if link == LOGIT:
        return math.exp(-z) / (1.0 + math.exp(-z)) if z > 0.0 else 1.0 / (1.0 + math.exp(z))
    if z > 0.0:
        # Φ(8) is 1 to the last bit but one.
        return math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return math.sqrt(2.0 / math.pi) / scaled_erfc(-z * math.sqrt(0.5))


@kernel
def slopes(eta: Floats, signs: Signs, weights: Floats, tables: Lookup, link: int, out: Floats) -> None:
    """∂/∂η of Σ w log Ψ(±η) into `out` (n, P), which may be `eta`; a sign of 0 is a missing label.

    Weights are (n, P), or (n, 1) if all outcomes share them.
    """
    n, n_outcomes = eta.shape
    own = min(weights.shape[1] - 1, 1)
    per_unit = float(CELLS_PER_UNIT)
    for i in range(n):
        for j in range(n_outcomes):
            sign = float(signs[i, j])
            z = sign * eta[i, j]
            if abs(z) < EDGE:
                place = (z + EDGE) * per_unit
                cell = int(place)
                slope = _polynomial(tables.slope, cell, 2.0 * (place - cell) - 1.0)
            else:
                slope = _slope_outside(z, link)
            out[i, j] = weights[i, own * j] * sign * slope


@kernel
def values_and_slopes(
    eta: Floats, signs: Signs, weights: Floats, tables: Lookup, link: int, out_values: Floats, out: Floats
) -> None:
    """Add Σ_i w log Ψ(±η) of each outcome to `out_values` (P,), and compute slopes as `slopes` does."""
    n, n_outcomes = eta.shape
    own = min(weights.shape[1] - 1, 1)
    per_unit = float(CELLS_PER_UNIT)
    for i in range(n):
        for j in range(n_outcomes):
            sign = float(signs[i, j])
            z = sign * eta[i, j]
            if abs(z) < EDGE:
                place = (z + EDGE) * per_unit
                cell = int(place)
                u = 2.0 * (place - cell) - 1.0
                value = _polynomial(tables.value, cell, u)
                slope = _polynomial(tables.slope, cell, u)
            else:
                value = _value_outside(z, link)
                slope = _slope_outside(z, link)
            # NaN stays NaN (it fails the test above and both forms below), so a diverged step can be detected.
            out_values[j] += weights[i, own * j] * sign * sign * value
            out[i, j] = weights[i, own * j] * sign * slope
