"""How much a chain of dependent draws is worth, and chains in ArviZ's format."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.fft import next_fast_len

from coaltree._arrays import Floats
from coaltree.errors import InputError

# Fewer draws than this say nothing about their autocorrelation.
FEWEST = 8


def _per_column(draws: Floats, measure: Callable[[Floats], Any]) -> Any:
    """Measure draws (C, I), a number, or (C, I, …), an array (…); NaN for uninformative columns."""
    flat = np.asarray(draws, dtype=np.float64).reshape(*draws.shape[:2], -1)
    out = np.full(flat.shape[2], math.nan)
    finite = np.isfinite(flat).all(axis=(0, 1))
    telling = finite & (flat != flat[:1, :1]).any(axis=(0, 1)) & (flat.shape[1] >= FEWEST)
    if telling.any():
        with np.errstate(invalid="ignore", divide="ignore"):
            out[telling] = measure(flat[:, :, telling])
    return float(out[0]) if draws.ndim == 2 else out.reshape(draws.shape[2:])


def effective_size(draws: Floats, method: str = "bulk") -> Any:
    """ArviZ's effective sample size of draws (C, I) or (C, I, …) of C chains, "bulk" or "tail"; one per column.

    NaN for fewer than eight draws per chain, and for draws that are constant or not finite: they say nothing.
    """
    from arviz_stats.base.array import array_stats  # slow to import

    how: dict[str, Any] = {"prob": (0.05, 0.95)} if method == "tail" else {}
    return _per_column(draws, lambda flat: array_stats.ess(flat, chain_axis=0, draw_axis=1, method=method, **how))


def effective_sizes(draws: Floats) -> Floats:
    """Effective sample sizes of the means of K quantities, (K,), from draws (C, I, K): as ArviZ's, all at once.

    Halves of chains are compared, so that drift and chains that disagree count (Vehtari et al. 2021). NaN as for
    `effective_size`.
    """
    n_chains, n_draws, n_quantities = draws.shape
    if n_draws < FEWEST:
        return np.full(n_quantities, math.nan)
    half = n_draws // 2
    parts = np.concatenate([draws[:, :half], draws[:, n_draws - half :]])
    centred = parts - parts.mean(axis=1, keepdims=True)
    length = next_fast_len(2 * half, real=True)
    spectrum = np.fft.rfft(centred, length, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, length, axis=1)[:, :half].mean(axis=0) / half
    within = covariance[0] * half / (half - 1)
    whole = covariance[0] + parts.mean(axis=1).var(axis=0, ddof=1)
    total = float(2 * n_chains * half)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = 1.0 - (within - covariance) / whole
    correlation[0] = 1.0
    # Geyer: sums of neighbours as long as they are positive, and made non-increasing.
    pairs = correlation[: half // 2 * 2].reshape(half // 2, 2, n_quantities).sum(axis=1)
    pairs[np.logical_or.accumulate(~(pairs > 0.0), axis=0)] = 0.0
    time = np.maximum(2.0 * np.minimum.accumulate(pairs, axis=0).sum(axis=0) - 1.0, 1.0 / math.log10(total))
    return np.where(np.ptp(draws, axis=(0, 1)) > 0.0, total / time, math.nan)


def r_hat(draws: Floats) -> Any:
    """ArviZ's split R-hat, rank-normalised, of draws (C, I) or (C, I, …); NaN as for `effective_size`.

    One chain counts as two: its halves.
    """
    from arviz_stats.base.array import array_stats

    def measure(flat: Floats) -> Any:
        if len(flat) == 1:  # ArviZ compares chains
            flat = flat[:, : flat.shape[1] // 2 * 2].reshape(2, -1, flat.shape[2])
        return array_stats.rhat(flat, chain_axis=0, draw_axis=1)

    return _per_column(draws, measure)


def to_arviz(trace: Mapping[str, npt.ArrayLike], burn_in: int = 0) -> Any:
    """Traces of learning as ArviZ's InferenceData, with groups and dimensions named.

    Parameters
    ----------
    trace : mapping of arrays (n_chains, n_iter, …)
        As in `LearnedPosterior.trace` and `CoalescentClustering.trace_`.
    burn_in : int
        Iterations to put in the group `warmup_posterior`.

    Returns
    -------
    arviz.InferenceData
        Groups `posterior` and `warmup_posterior` with dimensions (chain, draw, …); further dimensions of a variable x
        are named x_0, x_1, …, or "column" where one has an entry per column of the table. The log joint density is
        `lp` in `sample_stats`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # ArviZ announces its own next version at import
            import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ: pip install 'coaltree[arviz]'.") from error
    if not isinstance(trace, Mapping) or not trace or any(np.ndim(values) < 2 for values in trace.values()):
        raise InputError(
            "trace must be a mapping of arrays (n_chains, n_iter, …), as in `CoalescentClustering.trace_`."
        )
    draws = {name: np.asarray(values, dtype=np.float64) for name, values in trace.items()}
    n_draws = {values.shape[1] for values in draws.values()}
    if len(n_draws) != 1 or not 0 <= burn_in < min(n_draws):
        raise InputError(f"burn_in must be between 0 and the number of iterations {sorted(n_draws)}, got {burn_in}.")
    stats = {"lp": draws.pop("log_joint")} if "log_joint" in draws else None
    dims = {
        name: ["column"] if values.ndim == 3 else [f"{name}_{axis}" for axis in range(values.ndim - 2)]
        for name, values in draws.items()
        if values.ndim > 2
    }

    def part(arrays: dict[str, Floats] | None, chosen: slice) -> dict[str, Floats] | None:
        return None if arrays is None else {name: values[:, chosen] for name, values in arrays.items()}

    kept, dropped = slice(burn_in, None), slice(0, burn_in)
    options: dict[str, Any] = {"warmup_posterior": part(draws, dropped), "warmup_sample_stats": part(stats, dropped)}
    return arviz.from_dict(
        posterior=part(draws, kept),
        sample_stats=part(stats, kept),
        dims=dims,
        save_warmup=burn_in > 0,
        **(options if burn_in else {}),
    )
