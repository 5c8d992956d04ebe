"""Gaps of a mixed table filled in: expectations of each row given all others, over draws of what is latent."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from coaltree._arrays import Floats
from coaltree.model import missing
from coaltree.model.columns import CATEGORICAL, COUNT, SKEWED, UNIT, ColumnModel, Columns
from coaltree.model.factorisations import DenseRoot
from coaltree.model.truncated import largest_probabilities
from coaltree.places.host import make_host
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.mixed import Mixed
from coaltree.tree import Tree

# Simulations of all gaps per draw, if Φ is full.
N_REPEATS = 8
# Quantiles of a standard normal, and their weights: for means of monotone functions of a coordinate.
NORMAL_POINTS: Floats = ndtri((np.arange(100) + 0.5) / 100)
NORMAL_WEIGHTS: Floats = np.full(100, 0.01)


def fill_gaps(
    mixed: Mixed, posterior: TreePosterior, covariances: Floats, leaf_noises: Floats
) -> tuple[Floats, dict[int, Floats]]:
    """Cells with gaps filled in, (n, J), and for each unit column with gaps the probability of levels, (gaps, L).

    A number is filled in by its mean, rounded if its column is; a level by the likeliest.
    """
    filled, probability = mixed.values.copy(), {}
    for j, expected in expect(mixed, posterior, covariances, leaf_noises).items():
        gap = np.isnan(mixed.values[:, j])
        if mixed.columns.models[j].kind in UNIT:
            probability[j] = expected
            filled[gap, j] = expected.argmax(axis=1)
        else:
            filled[gap, j] = settled(mixed.columns, j, expected[:, 0])
    return filled, probability


def expect(mixed: Mixed, posterior: TreePosterior, covariances: Floats, leaf_noises: Floats) -> dict[int, Floats]:
    """For each column with gaps: probabilities of levels there, (gaps, L), or means of numbers, (gaps, 1).

    Means over draws of a row's expectation given all coordinates of the others, and its own observed ones.
    """
    gaps, models = np.isnan(mixed.values), mixed.columns.models
    unknown, unseen = np.isnan(mixed.encoded.start), gaps.any(axis=1)
    sums: dict[int, Any] = {j: 0.0 for j in range(len(models)) if gaps[:, j].any()}
    rng = np.random.default_rng(0)
    for k in range(len(mixed.latent)) if sums else ():
        m, Z, cuts = mixed.draw(k, mixed.encoded.X)
        phi, noise = covariances[m % len(covariances)], leaf_noises[m % len(leaf_noises)]
        centre, spread = _given_others(posterior[m], Z, np.asarray(noise, dtype=np.float64))
        if phi.ndim == 1:
            for j in sums:
                here, own = mixed.columns.coordinates(j), gaps[:, j]
                deviation = np.sqrt(spread[own] * phi[here.start])
                sums[j] = sums[j] + _expected(models[j], centre[own, here], deviation, cuts[mixed.columns.cuts_of(j)])
            continue
        # Under a full Φ by simulation.
        rows = np.where(unknown, np.nan, Z)[unseen]
        for _ in range(N_REPEATS):
            full = rows.copy()
            precision = DenseRoot.of(phi).precision
            full[np.isnan(rows)] = missing.impute_rows(rows, centre[unseen], spread[unseen], precision, rng).drawn
            cells = mixed.columns.decode(full, cuts)
            for j in sums:
                own = cells[gaps[unseen, j], j]
                levels = np.arange(max(models[j].n_levels, 1))
                found = own[:, None] == levels if models[j].n_levels else own[:, None]
                sums[j] = sums[j] + found / N_REPEATS
    return {j: total / len(mixed.latent) for j, total in sums.items()}


def _given_others(tree: Tree, Z: Floats, leaf_noise: Floats) -> tuple[Floats, Floats]:
    """Mean (n, D) and variance over Φ (n,) of each row given the others."""
    host, n = make_host(tree, Z, leaf_noise), tree.n_leaves
    beyond = host.time[host.parent[:n]]
    return host.above_mean[:n], host.above_variance[:n] + beyond + leaf_noise


def _expected(model: ColumnModel, centre: Floats, deviation: Floats, cuts: Floats) -> Floats:
    """Probabilities of levels, (n, L), or the mean of a number, (n, 1), for coordinates N(centre, deviation² I)."""
    if model.kind == CATEGORICAL:
        found = np.empty((len(centre), model.n_levels))
        largest_probabilities(centre @ model.corners.T, deviation, found)
        return np.asarray(found / found.sum(axis=1, keepdims=True))
    if model.n_levels:
        below = ndtr((cuts - centre) / deviation[:, None])
        return np.asarray(np.diff(below, axis=1, prepend=0.0, append=1.0), dtype=np.float64)
    if model.kind in (COUNT, SKEWED):
        points = (centre + deviation[:, None] * NORMAL_POINTS).ravel()
        return model.backward(points).reshape(len(centre), -1) @ NORMAL_WEIGHTS[:, None]
    return np.asarray(model.centre + model.scale * centre, dtype=np.float64)


def settled(columns: Columns, j: int, means: Floats) -> Floats:
    """Means of cells as cells of their column: whole numbers for counts, on the grid for rounded columns."""
    model = columns.models[j]
    if model.kind == "count":
        return np.rint(means)
    return model.backward((means - model.centre) / model.scale) if model.kind == "rounded" else means
