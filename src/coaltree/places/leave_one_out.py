r"""How well a fit predicts each row from the others: leave-one-out density, from the draws of one fit.

For a draw (T, Φ, s) from the posterior let T₋ᵢ be the tree without leaf i. The mass of all places where it may attach,

    f_i = p(x_i | T₋ᵢ, Φ, s₋ᵢ) = Σ_edges ∫ exp(−Λ(t)) N(x_i; μ(t), v(t) Φ) dt,

is that from which a regraft of the leaf is drawn. The place of the leaf is summed out, so the posterior of (T₋ᵢ, Φ, s)
given all rows is proportional to the one given the other rows times f_i, and p(x_i | X₋ᵢ) = 1 / E[1 / f_i] over the
draws (`posterior.left_out`). If rows have their own noise, that is summed out too, on a grid in log w.

In a mixed table a draw has coordinates and cutpoints as well, and what is observed of row i has, given those of the
other rows, the density

    f_i = p(x_i | T₋ᵢ, Z₋ᵢ, Φ, κ, s),

with its own coordinates summed out (`places.cells`), and with its gaps, so that every row can be left out. Densities
are of numbers in their own units and of levels, so models of the same table can be compared whatever column types they
assume. A model that treats values on a grid as exact could have an unbounded density there. For such a model the
probability g_i of the whole cell is estimated with the same weights, E[g_i / f_i] / E[1 / f_i], and divided by the
cell's width. Where the likelihood was raised to a power (`inference.learning.working`), so is that in f_i.
"""

from __future__ import annotations

import math

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputError
from coaltree.model.factorisations import DenseRoot, DiagonalRoot, root_of
from coaltree.places.cells import Observation, no_cells, observe_cells
from coaltree.places.exact import View
from coaltree.places.gaps import Mixed
from coaltree.places.host import Host, make_host
from coaltree.places.rows import see
from coaltree.places.search import KINKS, MARGIN, Task, leave_out
from coaltree.posterior.draws import Draws
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.left_out import LeaveOneOut, smooth
from coaltree.randomness import Stream, make_streams
from coaltree.sizes import DRAWS_LEFT_OUT, MIXED_DRAWS_LEFT_OUT, MIXED_LEFT_OUT, ROWS_LEFT_OUT


def leave_one_out(posterior: TreePosterior, X: Floats, draws: Draws, power: float = 1.0) -> LeaveOneOut:
    """Leave-one-out densities of complete rows under a posterior from chains, as returned by `learn_posterior`.

    Rows with missing entries are not left out. `power` is that to which the likelihood was raised.
    """
    rows = _choose_rows(np.flatnonzero(~np.isnan(X).any(axis=1)), ROWS_LEFT_OUT)
    if len(rows) < 2:
        raise InputError("leave-one-out needs at least two rows without missing entries.")
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    chosen = _choose_draws(posterior, len(posterior), DRAWS_LEFT_OUT // 2 if draws.noise.varies else DRAWS_LEFT_OUT)
    covariances, leaf_noises = draws.covariances, draws.leaf_noises
    log_f, log_g = np.empty((2, len(rows), *chosen.shape))
    for place in np.ndindex(chosen.shape):
        m = int(chosen[place])
        noise = np.asarray(leaf_noises[m % len(leaf_noises)], dtype=np.float64)
        law = draws.noise_grid(m, X.shape[1])
        root = root_of(covariances[m % len(covariances)])
        whitened = root.whiten(filled)
        constant = 0.5 * (X.shape[1] * math.log(2.0 * math.pi) + root.log_det)
        for density, raised in ((log_f, power), *([(log_g, 1.0)] if power != 1.0 else [])):
            host = make_host(posterior[m], math.sqrt(raised) * whitened, noise)
            density[(slice(None), *place)] = log_densities(host, rows, law, raised) - raised * constant
    return smooth(log_f, rows, len(X), None if power == 1.0 else log_g)


def leave_one_out_mixed(mixed: Mixed, posterior: TreePosterior, completed: Floats, power: float = 1.0) -> LeaveOneOut:
    """Leave-one-out densities of rows of a mixed table under a posterior from chains.

    `power` is that to which the likelihood was raised, of a table of numbers.
    """
    columns, cells, draws = mixed.columns, mixed.values, mixed.draws
    covariances, leaf_noises = draws.covariances, draws.leaf_noises
    rows = _choose_rows(np.flatnonzero(~np.isnan(cells).all(axis=1)), MIXED_LEFT_OUT)
    if len(rows) < 2 or len(cells) < 3:
        raise InputError("leave-one-out needs at least three rows, two of which have a value.")
    most = MIXED_DRAWS_LEFT_OUT // 2 if draws.noise.varies else MIXED_DRAWS_LEFT_OUT
    chosen = _choose_draws(posterior, len(draws.index) or len(posterior), most)
    log_f = np.empty((len(rows), *chosen.shape))
    coarse = any(model.cell and not model.is_drawn for model in columns.models)
    log_g = np.empty_like(log_f) if coarse or power != 1.0 else None
    for place in np.ndindex(chosen.shape):
        m, table, cuts = mixed.draw(int(chosen[place]), completed)
        phi = covariances[m % len(covariances)]
        noise = np.asarray(leaf_noises[m % len(leaf_noises)], dtype=np.float64)
        # Half the dimension: steps between noises as wide as d partly observed coordinates can resolve.
        law = draws.noise_grid(m, max(columns.d // 2, 1))
        root = root_of(phi)
        whitened = root.whiten(table)
        host = make_host(posterior[m], whitened, noise)
        raised = host if power == 1.0 else make_host(posterior[m], math.sqrt(power) * whitened, noise)
        streams = make_streams(np.random.default_rng([m]), len(rows))
        for h, row in enumerate(rows.tolist()):
            seen = observe_cells(columns, cells[row], cuts, phi, recorded=False)
            log_f[(h, *place)] = log_row_density(raised, row, seen, root, law, streams[h], power)
            if log_g is not None:
                seen = observe_cells(columns, cells[row], cuts, phi)
                log_g[(h, *place)] = log_row_density(host, row, seen, root, law, streams[h])
    log_f += columns.log_units(cells[rows], recorded=False)[:, None, None]
    if log_g is not None:
        log_g += columns.log_units(cells[rows])[:, None, None]
    return smooth(log_f, rows, len(cells), log_g)


def log_densities(host: Host, rows: Ints, law: tuple[Floats, Floats], power: float = 1.0) -> Floats:
    """Log f of complete rows, (H,), of a tree over rows multiplied by √power, without −(d/2) log 2π − ½ log|Φ|."""
    d, out = host.mean.shape[1], np.empty(len(rows))
    task = Task(host, View(np.arange(d), np.empty((0, d))), no_cells(d), power * d, MARGIN, KINKS)
    leave_out(task, host.mean[rows], rows, *law, out)
    return out


def log_row_density(
    host: Host,
    leaf: int,
    seen: Observation,
    root: DiagonalRoot | DenseRoot,
    law: tuple[Floats, Floats],
    stream: Stream,
    power: float = 1.0,
) -> float:
    """Log f of what is observed of one row."""
    row, out = see(seen, root, stream), np.empty(1)
    leave_out(row.task(host, power), math.sqrt(power) * row.point, np.array([leaf]), *law, out)
    return float(out[0]) - power * (0.5 * len(row.lens) * math.log(2.0 * math.pi) + row.log_scale)


def _choose_rows(rows: Ints, most: int) -> Ints:
    """Return all rows, or some of them in order."""
    return rows if len(rows) <= most else np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


def _choose_draws(posterior: TreePosterior, n_kept: int, most: int) -> Ints:
    """Return about `most` of the draws that were kept, as many of each chain, (chains, draws)."""
    n_chains = int(posterior.info.get("n_chains", 1))
    n_chains = n_chains if n_kept % n_chains == 0 else 1
    per_chain = n_kept // n_chains
    kept = np.unique(np.linspace(0, per_chain - 1, min(per_chain, -(-most // n_chains))).astype(int))
    return np.asarray(np.arange(n_chains)[:, None] * per_chain + kept, dtype=np.int64)
