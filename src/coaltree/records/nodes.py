"""What a study says of the nodes of its outcome tree: supports with intervals, and the regressors of their models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.rows import Rows
from coaltree.tree import Tree

N_SHOWN = 3  # regressors of each node
CERTAIN = 1.96


def node_rows(
    tree: Tree,
    fit: Mapping[str, Any],
    coef_draws: Floats,
    regressors: Sequence[str],
    spread: Floats,
    level: float,
) -> Rows:
    """One row for every inner node, from the largest clade to the smallest.

    `fit` has, of every clade, `support` (expected overlap) and `exact`, with their Monte Carlo errors, and
    `node_weights` (2P−1, P). `coef_draws` (S, P, K) are in the units of the published model; `spread` decides which
    regressors weigh most, and is not shown.
    """
    n, rows = tree.n_leaves, Rows()
    for k in np.argsort(-tree.sizes(), kind="stable"):
        node = n + int(k)
        row: dict[str, Any] = {
            "node": node,
            "outcomes": " + ".join(tree.leaf_names[leaf] for leaf in tree.leaves(node)),
        }
        for name, share, error in (("overlap", "support", "support_error"), ("support", "exact", "exact_error")):
            row |= _share(name, float(fit[share][k]), float(fit[error][k]))
        draws = np.einsum("p,spk->sk", fit["node_weights"][node], coef_draws)
        low, high = np.quantile(draws, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
        mean = draws.mean(axis=0)
        for place, best in enumerate(np.argsort(-np.abs(mean) * spread, kind="stable")[:N_SHOWN], start=1):
            row |= {
                f"regressor {place}": regressors[best],
                f"coefficient {place}": round(float(mean[best]), 4),
                f"low {place}": round(float(low[best]), 4),
                f"high {place}": round(float(high[best]), 4),
            }
        rows.append(row)
    return rows


def _share(name: str, value: float, error: float) -> dict[str, float]:
    """Return a share with an interval of its Monte Carlo error."""
    low, high = max(value - CERTAIN * error, 0.0), min(value + CERTAIN * error, 1.0)
    return {name: round(value, 3), f"{name} low": round(low, 3), f"{name} high": round(high, 3)}
