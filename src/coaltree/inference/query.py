"""The nearest rows of points that are not rows themselves: where a search for their place in a tree begins."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from coaltree._arrays import Floats, Ints
from coaltree._compile import kernel
from coaltree.inference.neighbors import (
    BLOCK_BYTES,
    BRUTE_AT_ONCE,
    CANCELLED,
    PROBES,
    TREE_MOST,
    TREE_SHARE,
    Nodes,
    empty_lists,
    group_copies,
    insert,
    select,
)


@kernel
def measure_to(points: Floats, rows: Floats, which: Ints, found: Ints, out: Nodes, out_eps: Floats) -> None:
    """Sort what was found for some points, (B, m), by exact distances; where m = 0, look at all rows."""
    m = found.shape[1]
    for b in which:
        out_eps[b] = np.inf
        for k in range(m if m > 0 else len(rows)):
            j = int(found[b, k]) if m > 0 else k
            eps = 0.0
            for c in range(rows.shape[1]):
                eps += (points[b, c] - rows[j, c]) ** 2
            insert(out[b], out_eps[b], j, eps)


def nearest_to(rows: Floats, points: Floats, k: int) -> tuple[Nodes, Floats]:
    """Find the nearest rows of points, exactly: by a kd-tree where that suits, or else by comparing all.

    Parameters
    ----------
    rows : array (n, d)
        Of copies of a row the first stands for all.
    points : array (B, d)
        Where to search from.
    k : int
        How many; all different rows if there are no more.

    Returns
    -------
    index : int32 array (B, k)
        Nearest first.
    distance : float64 array (B, k)
        Squared.
    """
    rows, points = (np.ascontiguousarray(each, dtype=np.float64) for each in (rows, points))
    first = np.empty(len(rows), dtype=np.int64)
    group_copies(rows, first)
    kept = np.unique(first)
    rows = rows[kept]
    k = min(k, len(rows))
    near, eps = empty_lists(len(points), k)
    everyone = np.arange(len(points))
    by_tree = _ask_tree(rows, points, k)
    if by_tree is not None:
        measure_to(points, rows, everyone, by_tree, near, eps)
        return kept[near].astype(np.int32), eps
    centre = np.median(rows, axis=0)
    centred, moved = rows - centre, points - centre
    norm, norm_of_point = (np.einsum("ij,ij->i", each, each) for each in (centred, moved))
    step = max(1, BLOCK_BYTES // (8 * len(rows)))
    # On more threads the product is rounded differently, and ties would be broken in another way.
    with threadpool_limits(limits=1, user_api="blas"):
        for start in range(0, len(points), step):
            block = slice(start, start + step)
            select(moved[block] @ centred.T, norm, len(rows), near[block], eps[block])
    measure_to(points, rows, everyone, near.astype(np.int64), near, eps)
    lost = np.flatnonzero(eps[:, -1] < CANCELLED * (norm_of_point + norm[near[:, -1]]))
    measure_to(points, rows, lost, np.empty((len(points), 0), dtype=np.int64), near, eps)
    return kept[near].astype(np.int32), eps


def _ask_tree(rows: Floats, points: Floats, k: int) -> Ints | None:
    """Ask a kd-tree, if there is enough to ask and it comes near few rows only when it is tried on a few points."""
    if len(rows) <= BRUTE_AT_ONCE or len(points) <= PROBES:
        return None
    from sklearn.neighbors import KDTree

    tree = KDTree(rows)
    tree.query(points[np.linspace(0, len(points) - 1, PROBES).astype(int)], k)
    if tree.get_n_calls() > PROBES * min(TREE_SHARE * len(rows), TREE_MOST + k):
        return None
    return np.asarray(tree.query(points, k)[1], dtype=np.int64)
