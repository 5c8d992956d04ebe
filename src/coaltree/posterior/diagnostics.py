"""How much a chain of dependent draws is worth, and chains as ArviZ takes them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats
from coaltree.errors import InputError

# Fewer draws than this tell nothing about how they depend on each other.
FEWEST = 8


def effective_size(draws: Floats, method: str = "bulk") -> float:
    """ArviZ's effective sample size of draws (C, I) of C chains, "bulk" or "tail".

    NaN for fewer than eight draws a chain, and where they are constant or not finite: they do not tell.
    """
    if draws.shape[1] < FEWEST or not np.isfinite(draws).all() or np.ptp(draws) == 0.0:
        return math.nan
    from arviz_stats.base.array import array_stats  # slow to import

    how: dict[str, Any] = {"prob": (0.05, 0.95)} if method == "tail" else {}
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(array_stats.ess(draws, chain_axis=0, draw_axis=1, method=method, **how))


def r_hat(draws: Floats) -> float:
    """ArviZ's split R-hat, rank-normalised, of draws (C, I); NaN as for `effective_size`. One chain counts as two."""
    if draws.shape[1] < FEWEST or not np.isfinite(draws).all() or np.ptp(draws) == 0.0:
        return math.nan
    from arviz_stats.base.array import array_stats

    if len(draws) == 1:  # ArviZ compares chains: the halves of one
        draws = draws[:, : draws.size // 2 * 2].reshape(2, -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(array_stats.rhat(draws, chain_axis=0, draw_axis=1))


def effective_sample_size(x: npt.ArrayLike) -> Any:
    """Number of independent draws whose mean is as precise as the mean of this chain, by ArviZ (bulk).

    Parameters
    ----------
    x : array-like (m,) or (m, …)
        Draws in order, along the first axis; each further entry is a chain of its own.

    Returns
    -------
    float or array (…)
        NaN for fewer than eight draws, and for chains that are constant or not finite: they do not tell.

    Examples
    --------
    >>> import numpy as np
    >>> bool(800 < effective_sample_size(np.random.default_rng(0).normal(size=1000)) < 1200)
    True
    """
    draws = np.asarray(x, dtype=np.float64)
    if draws.ndim == 0:
        raise InputError("x must have one row per draw, got a single number.")
    flat = draws.reshape(len(draws), -1)
    sizes = np.array([effective_size(flat[None, :, j]) for j in range(flat.shape[1])])
    return float(sizes[0]) if draws.ndim == 1 else sizes.reshape(draws.shape[1:])


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
