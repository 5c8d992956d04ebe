r"""How well a fit predicts each row from the others: leave-one-out density, from the draws of one fit.

For a draw (T, Φ, s) from the posterior let T₋ᵢ be the tree without leaf i. The mass of all places where it may attach,

    f_i = p(x_i | T₋ᵢ, Φ, s₋ᵢ) = Σ_edges ∫ exp(−Λ(t)) N(x_i; μ(t), v(t) Φ) dt,

is that from which a regraft of the leaf is drawn. The place of the leaf is summed out, so the posterior of (T₋ᵢ, Φ, s)
given all rows is proportional to the one given the other rows times f_i, and

    p(x_i | X₋ᵢ) = 1 / E[1 / f_i]   over the draws,

by importance sampling with weights smoothed by ArviZ (PSIS; Vehtari et al. 2024). Its k̂ shows where a row is so
influential that this fails. If rows have their own noise, that is summed out too, on a grid in log w. If the likelihood
was raised to a power (`learning.working`), so is N in the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.errors import InputError
from coaltree.inference.moves.edge_density import exposure, n_until, root_excess
from coaltree.inference.moves.mutable_tree import MutableTree, attach, detach, make_chain, other_child
from coaltree.inference.moves.regraft_proposal import ROUGHLY, Survey, edge_at, make_survey, visit_edges
from coaltree.inference.predictive.cells import Cells, no_cells
from coaltree.inference.predictive.edge_mass import N_SUMS, add_logs, integrate, log_bound
from coaltree.inference.predictive.mass import NEGLIGIBLE
from coaltree.inference.predictive.near import KINKS
from coaltree.model import gig
from coaltree.model.factorisations import root_of
from coaltree.posterior.diagnostics import effective_size
from coaltree.posterior.draws import Draws
from coaltree.posterior.ensemble import TreePosterior

# At most this many rows are held out and this many draws used: enough to tell models apart. A row takes time that grows
# with the tree, so with very many rows fewer are held out: about this many edges are visited in all.
MOST_ROWS, FEWEST_ROWS, MOST_DRAWS = 400, 50, 100
MOST_VISITS = 400_000_000
# If noise is summed out, which takes several times as long, half as many.
MOST_DRAWS_OF_OWN_NOISE = 50
# A sum over noise ends where a term is below e^(−LITTLE) of it.
LITTLE = 5.0
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


def leave_one_out(posterior: TreePosterior, X: Floats, draws: Draws, power: float = 1.0) -> LeaveOneOut:
    """Leave-one-out densities of complete rows under a posterior from chains, as returned by `learn_posterior`.

    Rows with missing entries are not held out. `power` is that to which the likelihood was raised.
    """
    rows = np.flatnonzero(~np.isnan(X).any(axis=1))
    n_rows = min(max(MOST_VISITS // (MOST_DRAWS * len(X)), FEWEST_ROWS), MOST_ROWS)
    if len(rows) > n_rows:
        rows = np.sort(np.random.default_rng(0).choice(rows, n_rows, replace=False))
    if len(rows) < 2:
        raise InputError("leave-one-out needs at least two rows without missing entries.")
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    n_chains = int(posterior.info.get("n_chains", 1))
    per_chain = len(posterior) // n_chains
    most = -(-(MOST_DRAWS_OF_OWN_NOISE if draws.noise.varies else MOST_DRAWS) // n_chains)
    kept = np.unique(np.linspace(0, per_chain - 1, min(per_chain, most)).astype(int))
    covariances, leaf_noises = draws.covariances, draws.leaf_noises
    values, weighed = np.empty((2, len(rows), n_chains, len(kept)))
    log_f = np.empty(len(rows))
    for chain in range(n_chains):
        for k, draw in enumerate(kept):
            m = chain * per_chain + int(draw)
            noise = leaf_noises[m % len(leaf_noises)]
            law = draws.noise_grid(m, X.shape[1])
            root = root_of(covariances[m % len(covariances)])
            whitened = root.whiten(filled)
            hold_out(make_chain(posterior[m], whitened, noise), rows, *law, log_f)
            constant = 0.5 * (X.shape[1] * math.log(2.0 * math.pi) + root.log_det)
            values[:, chain, k] = log_f - constant
            if power != 1.0:
                hold_out(make_chain(posterior[m], math.sqrt(power) * whitened, noise), rows, *law, log_f, power)
                weighed[:, chain, k] = log_f - power * constant
    return smooth(values, rows, len(X)) if power == 1.0 else smooth(weighed, rows, len(X), values)


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


@inline
def _log_mass(
    state: MutableTree, cut: int, noise: float, d: float, survey: Survey, n_edges: int, none: Cells, sums: Floats
) -> float:
    """Log f of a leaf with the given noise, after `visit_edges`."""
    state.variance[cut] = noise
    others, root = state.others, survey.edge[0]
    edge = edge_at(state, survey, cut, root)
    eps, r = root_excess(edge)
    total = gig.log_local(d, eps, 1.0, r) - math.log(2.0) - exposure(others, edge.low)[0]
    margin = NEGLIGIBLE + math.log(2.0 * n_edges)
    best = root
    for k in range(1, n_edges):
        if survey.log_mass[survey.edge[k]] > survey.log_mass[best]:
            best = survey.edge[k]
    for k in range(n_edges):
        # The likeliest edge first: it shows how little the others matter.
        node = best if k == 0 else survey.edge[k]
        if node == root or (k > 0 and node == best):
            continue
        edge = edge_at(state, survey, cut, node)
        last_rate = others.rate[n_until(others.times, np.nextafter(edge.high, 0.0))]
        log_prior = math.log(min(edge.high - edge.low, 1.0 / last_rate)) - exposure(others, edge.low)[0]
        if log_prior + log_bound(edge, none, node, d, edge.low, edge.high) > total - margin:
            mass, _ = integrate(edge, none, node, others, d, total - margin, KINKS, sums)
            total = add_logs(total, mass)
    return total


@inline
def _first_node(survey: Survey, n_edges: int, noise: Floats, d: float) -> int:
    """The noise that would explain how far a leaf is from the nearest place, or the next one on the grid."""
    nearest = math.inf
    for k in range(n_edges):
        nearest = min(nearest, survey.eps_below[survey.edge[k]])
    k = n_until(noise, nearest / max(d, 1.0))
    return min(k, noise.size - 1)


@kernel
def hold_out(
    state: MutableTree, held: Ints, noise: Floats, log_weight: Floats, out: Floats, power: float = 1.0
) -> None:
    """Log f of each held-out leaf, out (H,), summed over its noise (K,), ascending; without −(d/2) log 2π − ½ log|Φ|.

    As a function of log noise, f times its weight has one peak: sums start near it and stop when little is left. For a
    likelihood raised to a power, the rows of the state are multiplied by its root.
    """
    d = power * state.mean.shape[1]
    survey = make_survey(state.variance.size)
    none, sums = no_cells(), np.empty(N_SUMS)
    for h in range(held.size):
        cut = held[h]
        home, home_time, own = other_child(state, cut), state.time[state.parent[cut]], state.variance[cut]
        detach(state, cut)
        n_edges = visit_edges(state, cut, ROUGHLY, survey)
        first = _first_node(survey, n_edges, noise, d)
        middle = log_weight[first] + _log_mass(state, cut, noise[first], d, survey, n_edges, none, sums)
        total = middle
        for side in (-1, 1):
            k = first + side
            before = middle
            while 0 <= k < noise.size:
                term = log_weight[k] + _log_mass(state, cut, noise[k], d, survey, n_edges, none, sums)
                total = add_logs(total, term)
                if term < before and term < total - LITTLE:
                    break
                before = term
                k += side
        out[h] = total
        state.variance[cut] = own
        attach(state, cut, home, home_time)


# ---- comparison


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
