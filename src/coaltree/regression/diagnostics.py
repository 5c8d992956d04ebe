r"""Has a set of chains converged? Split R̂ and bulk effective sample size of rank-normalised draws.

The definitions of Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021, *Bayesian Analysis* 16): every chain is split in
two, draws are replaced by normal scores of their ranks over all chains; R̂ compares variance between and within, and is
taken over the draws and over their distances from the median, whichever is larger; the effective sample size sums
autocorrelations in pairs until they turn negative (Geyer 1992).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from coaltree._arrays import Floats

# Chains are called unconverged if R̂ exceeds HIGH in more than a TOLERATED share of coefficients, or HIGHEST in any.
# Of thousands of coefficients a few always look bad by chance, and R̂ of few draws says nothing.
HIGH, TOLERATED, HIGHEST = 1.1, 0.05, 1.4
FEWEST_DRAWS = 200


def _split(draws: Floats) -> Floats:
    """(chains, draws, …) → (2 chains, draws/2, columns)."""
    n_chains, n_draws = draws.shape[:2]
    half = n_draws // 2
    flat = draws.reshape(n_chains, n_draws, -1)
    return np.concatenate([flat[:, :half], flat[:, n_draws - half :]])


def _normal_scores(split: Floats) -> Floats:
    shape = split.shape
    ranks = rankdata(split.reshape(-1, shape[2]), axis=0)
    return np.asarray(ndtri((ranks - 0.375) / (shape[0] * shape[1] + 0.25))).reshape(shape)


def _ratio(z: Floats) -> Floats:
    """√(total variance estimate / variance within), per column."""
    n = z.shape[1]
    within = z.var(axis=1, ddof=1).mean(axis=0)
    between = z.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.sqrt((n - 1) / n + between / within))


def r_hat(draws: Floats) -> Floats:
    """R̂ of every column of `draws` (chains, draws, …); NaN with fewer than four draws a chain, 1 if constant."""
    draws = np.asarray(draws, dtype=np.float64)
    shape = draws.shape[2:]
    if draws.shape[1] < 4:
        return np.full(shape, np.nan)
    split = _split(draws)
    folded = np.abs(split - np.median(split.reshape(-1, split.shape[2]), axis=0))
    value = np.fmax(_ratio(_normal_scores(split)), _ratio(_normal_scores(folded)))
    constant = np.ptp(split, axis=(0, 1)) == 0
    return np.where(constant, 1.0, value).reshape(shape)


def bulk_ess(draws: Floats) -> Floats:
    """Bulk effective sample size of every column of `draws` (chains, draws, …); NaN with fewer than four draws."""
    draws = np.asarray(draws, dtype=np.float64)
    shape = draws.shape[2:]
    if draws.shape[1] < 4:
        return np.full(shape, np.nan)
    z = _normal_scores(_split(draws))
    n_chains, n, _ = z.shape
    spectrum = np.fft.rfft(z - z.mean(axis=1, keepdims=True), n=2 * n, axis=1)
    autocovariance = np.fft.irfft(np.abs(spectrum) ** 2, n=2 * n, axis=1)[:, :n].mean(axis=0) / n
    within = autocovariance[0] * n / (n - 1)
    total = within * (n - 1) / n + z.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = 1.0 - (within - autocovariance * n / (n - 1)) / total
    rho[0] = 1.0
    pairs = rho[: n - n % 2].reshape(-1, 2, rho.shape[1]).sum(axis=1)
    # Sum pairs up to the first that is negative, and never let them grow again.
    alive = np.logical_and.accumulate(pairs > 0, axis=0)
    pairs = np.where(alive, np.minimum.accumulate(pairs, axis=0), 0.0)
    time = np.maximum(2.0 * pairs.sum(axis=0) - 1.0, 1.0 / np.log10(n_chains * n))
    size = n_chains * n
    return np.where(np.ptp(z, axis=(0, 1)) == 0, float(size), size / time).reshape(shape)


def convergence_message(ratio: Floats, size: Floats, names: Sequence[str], n_draws: int) -> str | None:
    """Say what has not converged and what to do, or None: R̂ and bulk size (P, …) of outcomes with these names.

    `n_draws` is the number of kept draws of a chain; fewer than FEWEST_DRAWS are not judged.
    """
    seen = np.isfinite(ratio)
    if n_draws < FEWEST_DRAWS or not seen.any():
        return None
    bad = np.where(seen, ratio, 1.0)
    n_bad, n_seen = int((bad > HIGH).sum()), int(seen.sum())
    if n_bad <= TOLERATED * n_seen and bad.max() <= HIGHEST:
        return None
    worst = int(np.unravel_index(int(bad.argmax()), bad.shape)[0])
    return (
        f"Warning: The chains have not converged: {n_bad} of {n_seen} intercepts and coefficients have R-hat above "
        f"{HIGH}; the largest is {bad.max():.2f}, of outcome {names[worst]}, and the smallest effective number of "
        f"draws {np.nanmin(size):.0f}. Intervals and the support of clades are not to be trusted yet; predictions "
        "suffer less. Raise n_iter and burn_in, with thin to keep as many draws."
    )


def verdict(ratio: Floats, size: Floats, names: Sequence[str], n_draws: int) -> tuple[bool, str]:
    """Whether chains may be relied on, and the sentence that says so: the same in Python, terminal and report."""
    message = convergence_message(ratio, size, names, n_draws)
    if message is not None:
        return False, message
    if n_draws < FEWEST_DRAWS or not np.isfinite(ratio).any():
        return False, (
            f"Warning: chains of {n_draws} kept draws are too short to be judged: {FEWEST_DRAWS} are the least. Raise "
            "n_iter (--iterations)."
        )
    return True, (
        f"The chains agree: largest R-hat {np.nanmax(ratio):.3f}, and every coefficient is worth at least "
        f"{np.nanmin(size):,.0f} independent draws."
    )
