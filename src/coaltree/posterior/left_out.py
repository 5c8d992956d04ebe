"""Densities of rows that were left out, from draws of one fit; and models compared by them.

If f_i is the density of row i given all other rows and a draw, then

    p(x_i | X₋ᵢ) = 1 / E[1 / f_i]   over the draws,

by importance sampling with weights smoothed by ArviZ (PSIS; Vehtari et al. 2024). Its k̂ shows where a row is so
influential that this fails.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputError
from coaltree.posterior.diagnostics import effective_size

# With fewer draws there is no tail to smooth.
FEWEST_DRAWS = 25
# Beyond this k̂ the estimate for a row cannot be trusted (Vehtari et al. 2024).
HIGH_K = 0.7


class LeaveOneOut(NamedTuple):
    """Leave-one-out densities of rows."""

    rows: Ints  # (H,): the rows that were held out
    log_density: Floats  # (H,): log p(x_i | X₋ᵢ)
    pareto_k: Floats  # (H,): above HIGH_K the estimate is unreliable
    p_loo: float  # effective number of parameters, for all rows
    n: int  # rows of the table

    @property
    def elpd(self) -> float:
        """Expected log predictive density of all n rows."""
        return self.n * float(self.log_density.mean())

    @property
    def se(self) -> float:
        """Its standard error."""
        return spread(self.log_density, self.n)


def spread(values: Floats, n: int) -> float:
    """Standard error of n times the mean of values (H,) for some of n rows."""
    return n * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def smooth(log_f: Floats, rows: Ints, n: int, log_g: Floats | None = None) -> LeaveOneOut:
    """From log f_i, (H, chains, draws), by ArviZ's Pareto-smoothed importance sampling.

    With `log_g`, the expectation of g_i without row i instead of that of f_i.
    """
    from arviz_stats.base.array import array_stats  # slow to import

    size = log_f.shape[1] * log_f.shape[2]
    if size < FEWEST_DRAWS:
        raise InputError(f"leave-one-out needs at least {FEWEST_DRAWS} draws, got {size}. Raise n_draws.")
    worth = effective_size(log_f.sum(axis=0)) / size
    efficiency = worth if 0.0 < worth < 1.0 else 1.0
    if log_g is None:
        elpd, k, p = array_stats.loo(log_f, chain_axis=1, draw_axis=2, r_eff=efficiency)
        return LeaveOneOut(rows, np.asarray(elpd), np.asarray(k), n * float(np.mean(p)), n)
    log_g = log_g.reshape(len(rows), size)
    log_weight, k = array_stats.psislw(log_f.reshape(len(rows), size), r_eff=efficiency)  # of 1 / f
    elpd = logsumexp(log_weight + log_g, axis=1) - logsumexp(log_weight, axis=1)
    p = logsumexp(log_g, axis=1) - math.log(size) - elpd
    return LeaveOneOut(rows, np.asarray(elpd), np.asarray(k), n * float(np.mean(p)), n)


class Compared(NamedTuple):
    """One row of a comparison."""

    elpd: float  # expected log predictive density of all rows
    se: float
    difference: float  # to the best
    difference_se: float
    p_loo: float
    weight: float  # in the mixture of all that predicts best
    share_high_k: float  # of rows whose k̂ is too high to trust


def compare(fits: Mapping[str, LeaveOneOut]) -> dict[str, Compared]:
    """Compare fits of the same table, best first, as ArviZ's `compare` does."""
    if not fits:
        raise InputError("fits must name at least one leave-one-out result, got none.")
    names = sorted(fits, key=lambda name: -fits[name].elpd)
    best = fits[names[0]]
    if any(not np.array_equal(fit.rows, best.rows) for fit in fits.values()):
        raise InputError("fits must have held out the same rows of the same table.")
    weights = stack(np.array([fits[name].log_density for name in names]))
    table = {}
    for name, weight in zip(names, weights, strict=True):
        fit = fits[name]
        gap = fit.log_density - best.log_density
        difference, error = fit.n * float(gap.mean()), 0.0 if fit is best else spread(gap, fit.n)
        high = float(np.mean(fit.pareto_k > HIGH_K))
        table[name] = Compared(fit.elpd, fit.se, difference, error, fit.p_loo, float(weight), high)
    return table


def stack(log_density: Floats) -> Floats:
    """Weights (K,) of the mixture of K predictions with the highest Σ log density, from (K, H), by EM."""
    relative = np.exp(log_density - log_density.max(axis=0))
    weights = np.full(len(relative), 1.0 / len(relative))
    for _ in range(500):
        share = weights[:, None] * relative
        weights = (share / share.sum(axis=0)).mean(axis=1)
    return np.asarray(weights)


def describe(table: Mapping[str, Compared]) -> str:
    """Describe in words what a comparison found."""
    names = list(table)
    best, *others = names
    if not others:
        return f"{best} was the only one compared."
    told = []
    for name in others:
        row: Any = table[name]
        clear = -row.difference > 2.0 * row.difference_se
        verdict = "clearly worse" if clear else "not clearly worse"
        told.append(f"{name} is {verdict} ({row.difference:+.1f} ± {row.difference_se:.1f})")
    doubtful = [name for name in names if table[name].share_high_k > 0.1]
    note = (
        f" Estimates of {', '.join(doubtful)} are unreliable: k̂ is high for more than a tenth of the rows."
        if (doubtful)
        else ""
    )
    return f"{best} predicts rows that are left out best, in nats over the whole table: {'; '.join(told)}.{note}"
