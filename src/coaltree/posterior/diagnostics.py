"""How much a chain of dependent draws is worth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.fft import irfft, next_fast_len, rfft

Floats = npt.NDArray[np.float64]


def effective_sample_size(x: npt.ArrayLike) -> Any:
    """Number of independent draws whose mean is as precise as the mean of this chain.

    m / τ with τ = 1 + 2 Σ ρ_k. The sum of autocorrelations ends by Geyer's rule for reversible chains: sums of two
    neighbours, ρ_2k + ρ_2k+1, are positive and decreasing, so it stops before the first that is not positive, and
    none counts more than the one before it.

    Parameters
    ----------
    x : array-like (m,) or (m, …)
        Draws in order, along the first axis; each further entry is a chain of its own.

    Returns
    -------
    float or array (…)
        Between 1 and m log₁₀ m (a chain that alternates about its mean can be worth more than m draws). NaN for
        fewer than four draws, and for chains that are constant or not finite: they do not tell.

    Examples
    --------
    >>> import numpy as np
    >>> bool(900 < effective_sample_size(np.random.default_rng(0).normal(size=1000)) < 1100)
    True
    """
    draws = np.asarray(x, dtype=np.float64)
    if draws.ndim == 0:
        raise ValueError("x must have one row per draw, got a single number.")
    flat = draws.reshape(len(draws), -1)
    sizes = np.array([_chain(flat[:, j]) for j in range(flat.shape[1])])
    return float(sizes[0]) if draws.ndim == 1 else sizes.reshape(draws.shape[1:])


def _chain(x: Floats) -> float:
    m = len(x)
    if m < 4 or not np.isfinite(x).all() or np.ptp(x) == 0.0:
        return math.nan
    rho = autocorrelation(x)
    pairs = rho[: m - m % 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0.0)
    positive = pairs[: negative[0]] if negative.size else pairs
    tau = 2.0 * float(np.minimum.accumulate(positive).sum()) - 1.0
    return m / min(max(tau, 1.0 / math.log10(m)), float(m))


def autocorrelation(x: Floats) -> Floats:
    """Autocorrelations ρ_0 … ρ_(m−1) of a chain that is not constant, (m,)."""
    m = len(x)
    # Padded with as many zeros, so that the end of the chain does not meet its beginning.
    spectrum = rfft((x - x.mean()) / np.ptp(x), next_fast_len(2 * m, real=True))
    covariance = irfft(np.abs(spectrum) ** 2, next_fast_len(2 * m, real=True))[:m]
    return np.asarray(covariance / covariance[0], dtype=np.float64)
