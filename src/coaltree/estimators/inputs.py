"""What a user gave to `CoalescentClustering`: its table, checked, and how long to run, former names translated."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.inference.effort import N_CHAINS
from coaltree.posterior.embedding import embed
from coaltree.validation import check_choice, check_count


def check_table(model: Any, X: Any) -> Floats:
    """Return the table of numbers that a model is fitted to, (n, d); rows that stand for distances if given those."""
    check_choice(model.metric, "metric", ("euclidean", "precomputed"))
    if model.metric == "precomputed":
        if not (isinstance(model.covariance, str) and model.covariance == "spherical"):
            raise InputError("metric='precomputed' needs covariance='spherical': distances do not tell directions.")
        return embed(validate_data(model, X, dtype=np.float64, ensure_min_samples=2), model.n_dimensions)
    table: Floats = validate_data(
        model, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2, order="C"
    )
    empty = np.flatnonzero(np.isnan(table).all(axis=0))
    if len(empty):
        shown = getattr(model, "feature_names_in_", np.arange(table.shape[1]))[empty].tolist()
        raise InputError(f"X must have a value in every column, but these are all NaN: {shown}. Drop them.")
    return table


def effort(model: Any) -> dict[str, int | None]:
    """Return draws, warm-up, chains and thinning."""
    draws = model.n_particles if model.n_draws is None else model.n_draws
    warmup = model.burn_in if model.warmup is None else model.warmup
    found = {"n_draws": draws, "warmup": warmup, "n_chains": model.n_chains, "thin": None}
    if model.n_iter is not None:
        n_iter = check_count(model.n_iter, "n_iter", at_least=1)
        warmup = n_iter // 5 if warmup is None else check_count(warmup, "burn_in", at_least=0)
        if warmup >= n_iter:
            raise InputError(f"burn_in must be below n_iter = {n_iter}, got {warmup}.")
        n_chains = N_CHAINS if model.n_chains is None else model.n_chains
        kept = n_chains * (n_iter - warmup)
        draws = kept if draws is None else min(check_count(draws, "n_particles", at_least=1), kept)
        found |= {"n_draws": draws, "warmup": warmup, "thin": max(1, kept // draws)}
    return found
