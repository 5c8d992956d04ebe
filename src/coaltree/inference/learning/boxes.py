r"""Cells as intervals of whitened coordinates, for regrafts that take coordinates along (`moves.shifted`).

Such a move shifts a subtree in each column by itself, between bounds. So columns must not depend on each other, neither
by Φ nor by their cells:

- Under a diagonal Φ a coordinate is divided by its standard deviation, and so are its bounds.
- The utilities of a category are V z, with V the corners of a simplex, and lack one direction. With a further
  coordinate a, which diffuses as z does and of which nothing is seen, U = V z + a/√L are independent. It is drawn given
  the tree. Given the utility of its own level, any other utility of a leaf has an upper bound.
- Under a full Φ one column, drawn anew for every sweep, is last in a Cholesky factor; only it is shifted, and only by
  its own whitened coordinate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coaltree._arrays import Floats
from coaltree.inference.learning.start import Unknowns
from coaltree.model.diffusion import sample_data
from coaltree.model.kinds import Categorical
from coaltree.model.missing import Imputed

if TYPE_CHECKING:
    from coaltree.inference.learning.latent import Augmentation


class Boxes(NamedTuple):
    """Whitened rows (n, d) and between which bounds each coordinate can be; equal where it is seen exactly."""

    rows: Floats
    least: Floats
    most: Floats
    back: Floats  # (d, D): a change of rows, times this, is a change of the coordinates


def boxes(latent: Augmentation, now: Unknowns, rng: np.random.Generator) -> Boxes:
    """Return the current coordinates, whitened, with their bounds."""
    Z, low, high = latent.table(now), *bounds(latent, now)
    return (
        _independent(latent, now, Z, low, high, rng)
        if now.covariance.is_diagonal
        else _last(latent, now, Z, low, high, rng)
    )


def bounds(latent: Augmentation, now: Unknowns) -> tuple[Floats, Floats]:
    """Bounds of all coordinates, (n, D) each; those of cells that are no intervals stay as they are."""
    low = latent.table(now)
    high = low.copy()
    for j, model in enumerate(latent.columns.models):
        found = latent.intervals(j, now.cuts) if model.is_drawn else None
        if found is not None:
            k = int(latent.columns.first[j])
            low[:, k], high[:, k] = found
    low[latent.unknown], high[latent.unknown] = -np.inf, np.inf
    return low, high


def _independent(
    latent: Augmentation, now: Unknowns, Z: Floats, low: Floats, high: Floats, rng: np.random.Generator
) -> Boxes:
    deviations = np.sqrt(now.covariance.variances())
    parts = []
    for j, model in enumerate(latent.columns.models):
        here = latent.columns.coordinates(j)
        own = deviations[here]
        if model.corners is None:
            parts.append((Z[:, here] / own, low[:, here] / own, high[:, here] / own, np.diag(own)))
            continue
        free = sample_data(now.tree, 1, leaf_noise=now.leaf_noise, random_state=rng)
        utility = Z[:, here] @ model.corners.T + free / np.sqrt(model.n_levels)
        codes = latent.encoded.codes[:, j]
        least = np.full_like(utility, -np.inf)
        most = np.repeat(np.take_along_axis(utility, np.maximum(codes, 0)[:, None], axis=1), model.n_levels, axis=1)
        level = np.eye(model.n_levels, dtype=bool)[codes]
        least[level] = utility[level]
        most[codes < 0], least[codes < 0] = np.inf, -np.inf
        parts.append((utility, least, most, model.corners))
    rows, least, most = (np.ascontiguousarray(np.hstack([part[i] for part in parts])) for i in range(3))
    back = np.zeros((rows.shape[1], Z.shape[1]))
    first = 0
    for j, part in enumerate(parts):
        back[first : first + len(part[3]), latent.columns.coordinates(j)] = part[3]
        first += len(part[3])
    return Boxes(rows, least, most, back)


def _last(latent: Augmentation, now: Unknowns, Z: Floats, low: Floats, high: Floats, rng: np.random.Generator) -> Boxes:
    d = Z.shape[1]
    k = int(rng.choice(np.flatnonzero(latent.drawn.any(axis=0))))
    j = int(np.searchsorted(latent.columns.first, k, side="right")) - 1
    model, here = latent.columns.models[j], latent.columns.coordinates(j)
    if isinstance(model, Categorical):
        low[:, k], high[:, k] = model.cone(latent.encoded.codes[:, j], Z[:, here], k - here.start)
    order = np.append(np.delete(np.arange(d), k), k)
    root = np.linalg.cholesky(now.covariance.matrix()[np.ix_(order, order)])
    rows: Floats = np.ascontiguousarray(np.linalg.solve(root, Z[:, order].T).T, dtype=np.float64)
    least, most = rows.copy(), rows.copy()
    least[:, -1] += (low[:, k] - Z[:, k]) / root[-1, -1]
    most[:, -1] += (high[:, k] - Z[:, k]) / root[-1, -1]
    back = np.zeros((d, d))
    back[-1, k] = root[-1, -1]
    return Boxes(rows, least, most, back)


def unboxed(latent: Augmentation, now: Unknowns, boxed: Boxes, rows: Floats) -> Unknowns:
    """Return the state with the coordinates of other whitened rows."""
    Z = latent.table(now) + (rows - boxed.rows) @ boxed.back
    drawn = Z[latent.drawn]
    return now._replace(missing=Imputed(drawn, drawn))
