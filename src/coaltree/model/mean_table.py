r"""The mean of the untruncated generalised inverse Gaussian, fast enough to be asked for every pair.

λ E[v] depends on λε alone: F(y) = √y K_{2−d/2}(√y) / K_{1−d/2}(√y) at y = λε. Its values at 32 points an octave, and
its slopes, which Bessel's recurrences give as F′ = ½ ((F² − 2pF)/y − 1) with p = 1 − d/2, make cubics that are right to
1e-8. The place in the table is read off the bits of y, so that a look-up costs no logarithm.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._compile import inline, kernel
from coaltree.model import gig

Floats = npt.NDArray[np.float64]

# A double has 52 bits of mantissa; the first 5 choose one of 32 cells in its octave, the rest the place in the cell.
_CELL_BITS = 5
_SHIFT = 52 - _CELL_BITS
_WITHIN = (1 << _SHIFT) - 1
_MOST_OCTAVES = 60


class MeanTable(NamedTuple):
    """Cubics of F, cell by cell; an empty table sends every call to the Bessel functions themselves."""

    first: int  # the leading bits of the smallest y covered
    cubics: Floats  # (n_cells, 4): coefficients in the place in the cell, from 0 to 1


@kernel
def _means(d: float, y: Floats, out: Floats) -> None:
    for k in range(y.size):
        out[k] = gig.mean_untruncated(d, y[k], 1.0)


def _leading_bits(y: float) -> int:
    return int(np.float64(y).view(np.int64)) >> _SHIFT


def empty_table() -> MeanTable:
    """Return a table that covers nothing."""
    return MeanTable(0, np.empty((0, 4)))


def make_table(d: float, smallest: float, largest: float) -> MeanTable:
    """Tabulate F for y from `smallest` (or 60 octaves below the largest) to `largest`, both positive and finite."""
    largest = min(largest, 1e280)
    smallest = min(max(smallest, largest * 2.0**-_MOST_OCTAVES, 1e-280), largest)
    first, stop = _leading_bits(smallest), _leading_bits(largest) + 1
    y = (np.arange(first, stop + 1, dtype=np.int64) << _SHIFT).view(np.float64)
    mean = np.empty(len(y))
    _means(float(d), y, mean)
    p = 1.0 - 0.5 * d
    slope = 0.5 * ((mean * mean - 2.0 * p * mean) / y - 1.0)
    width = np.diff(y)
    rise = np.diff(mean)
    left, right = slope[:-1] * width, slope[1:] * width
    cubics = np.stack([mean[:-1], left, 3.0 * rise - 2.0 * left - right, left + right - 2.0 * rise], axis=1)
    return MeanTable(first, cubics)


@inline
def mean(table: MeanTable, d: float, eps: float, lam: float) -> float:
    """Mean of v without truncation at rate λ: from the table if λε is in it, else exactly."""
    bits = np.float64(lam * eps).view(np.int64)
    cell = (bits >> _SHIFT) - table.first
    if 0 <= cell < table.cubics.shape[0]:
        x = float(bits & _WITHIN) * (1.0 / (_WITHIN + 1.0))
        c = table.cubics[cell]
        return float(c[0] + x * (c[1] + x * (c[2] + x * c[3]))) / lam
    return exact_mean(d, eps, lam)


@inline
def exact_mean(d: float, eps: float, lam: float) -> float:
    """Mean of v without truncation; at ε = 0 its limit, which is 0 unless d = 1."""
    if eps > 0.0:
        return gig.mean_untruncated(d, eps, lam)
    return max(2.0 - d, 0.0) / lam if math.isfinite(lam) else 0.0
