r"""Two functions of the untruncated generalised inverse Gaussian, fast enough to be evaluated for every pair.

Its mean. λ E[v] depends on y = λε alone: F(y) = √y K_{2−d/2}(√y) / K_{1−d/2}(√y), and Bessel's recurrences give its
slope, F′ = ½ ((F² − 2pF)/y − 1) with p = 1 − d/2.

Its normaliser at λ = 1, relative to the mode: ∫ exp h of `gig.quadrature`. The slope of its log in ε is
½ (1/v* − E[1/v]).

Cubics on 32 cells per octave make both accurate to 1e-8. The cell is read off the bits of the argument, so a look-up
needs no logarithm.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats
from coaltree._compile import inline, kernel
from coaltree.model import gig
from coaltree.model.gig import quadrature

# A double has 52 bits of mantissa; the first 5 choose one of 32 cells in its octave, the rest the place in the cell.
_CELL_BITS = 5
_SHIFT = 52 - _CELL_BITS
_WITHIN = (1 << _SHIFT) - 1
_MOST_OCTAVES = 60


class GigTable(NamedTuple):
    """Cubics of a function of y, cell by cell; an empty table sends every call to the function itself."""

    first: int  # the leading bits of the smallest y covered
    cubics: Floats  # (n_cells, 4): coefficients in the place in the cell, from 0 to 1


@kernel
def _means(d: float, y: Floats, out: Floats) -> None:
    for k in range(y.size):
        out[k] = gig.mean_untruncated(d, y[k], 1.0)


def _leading_bits(y: float) -> int:
    return int(np.float64(y).view(np.int64)) >> _SHIFT


def empty_table() -> GigTable:
    """Return a table that covers nothing."""
    return GigTable(0, np.empty((0, 4)))


def _grid(smallest: float, largest: float) -> tuple[int, Floats]:
    largest = min(largest, 1e280)
    smallest = min(max(smallest, largest * 2.0**-_MOST_OCTAVES, 1e-280), largest)
    first, stop = _leading_bits(smallest), _leading_bits(largest) + 1
    return first, (np.arange(first, stop + 1, dtype=np.int64) << _SHIFT).view(np.float64)


def _cubics(y: Floats, value: Floats, slope: Floats) -> Floats:
    """Hermite's cubics on each cell."""
    width, rise = np.diff(y), np.diff(value)
    left, right = slope[:-1] * width, slope[1:] * width
    return np.stack([value[:-1], left, 3.0 * rise - 2.0 * left - right, left + right - 2.0 * rise], axis=1)


def make_mass_table(d: float, smallest: float, largest: float) -> GigTable:
    """Tabulate log ∫ exp h at λ = 1 for ε from `smallest` (or 60 octaves below the largest) to `largest`."""
    first, eps = _grid(smallest, largest)
    p = 1.0 - 0.5 * d
    root = np.sqrt(p * p + eps)
    mode = eps / (root - p) if p < 0.0 else p + root
    log_i = gig.log_integral(d, eps, 1.0)
    log_mass = log_i - (p * np.log(mode) - 0.5 * eps / mode - 0.5 * mode)
    slope = 0.5 * (1.0 / mode - np.exp(gig.log_integral(d + 2.0, eps, 1.0) - log_i))
    return GigTable(first, _cubics(eps, log_mass, slope))


def make_mean_table(d: float, smallest: float, largest: float) -> GigTable:
    """Tabulate F for y from `smallest` (or 60 octaves below the largest) to `largest`, both positive and finite."""
    first, y = _grid(smallest, largest)
    mean = np.empty(len(y))
    _means(float(d), y, mean)
    p = 1.0 - 0.5 * d
    return GigTable(first, _cubics(y, mean, 0.5 * ((mean * mean - 2.0 * p * mean) / y - 1.0)))


@inline
def _at(table: GigTable, y: float) -> float:
    """Value at y, NaN outside of the table."""
    bits = np.float64(y).view(np.int64)
    cell = (bits >> _SHIFT) - table.first
    if 0 <= cell < table.cubics.shape[0]:
        x = float(bits & _WITHIN) * (1.0 / (_WITHIN + 1.0))
        c = table.cubics[cell]
        return float(c[0] + x * (c[1] + x * (c[2] + x * c[3])))
    return math.nan


@inline
def tabled_mean(table: GigTable, d: float, eps: float, lam: float) -> float:
    """Mean of v without truncation at rate λ: from the table if λε is in it, else exactly."""
    value = _at(table, lam * eps)
    return value / lam if value == value else exact_mean(d, eps, lam)


@inline
def tabled_log_mass(table: GigTable, eps: float, a: float, b: float) -> float:
    """log ∫ exp h over the whole line at λ = 1, where A and B are those of ε."""
    value = _at(table, eps)
    return value if value == value else quadrature.log_mass(0.0, a, b, -math.inf)


@inline
def tabled_log_local(table: GigTable, d: float, eps: float) -> float:
    """`gig.log_local` at λ = 1 and r = 0."""
    value = _at(table, eps)
    if value != value:
        return gig.log_local(d, eps, 1.0, 0.0)
    p = 1.0 - 0.5 * d
    _, mode = gig.mode_in_log(p, eps, 1.0)
    return p * math.log(mode) - 0.5 * eps / mode - 0.5 * mode + value


@inline
def exact_mean(d: float, eps: float, lam: float) -> float:
    """Mean of v without truncation; at ε = 0 its limit, which is 0 unless d = 1."""
    if eps > 0.0:
        return gig.mean_untruncated(d, eps, lam)
    return max(2.0 - d, 0.0) / lam if math.isfinite(lam) else 0.0
