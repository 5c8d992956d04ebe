"""The nearest other rows of every row, by whichever of three methods suits the data.

    tree      a kd-tree, exact: rows in nested clusters, as a coalescent generates them, or with few columns
    brute     all pairs, exact: a matrix product per block of rows
    descent   neighbours of neighbours, approximate: many rows without such clusters

A kd-tree is first queried for the neighbours of a few rows, and the distances it computes are counted, so that the
choice depends only on the data and never on timing. Copies of a row are found beforehand and searched for once: any
number of them would otherwise be equally near.

The descent (Dong, Moses & Li 2011) starts from rows that several random trees put into the same leaf and then tries,
round by round, the neighbours of neighbours in both directions.
"""

from __future__ import annotations

import math

import numpy as np
from threadpoolctl import threadpool_limits

from coaltree._arrays import Floats, Ints, SmallInts
from coaltree._compile import inline, kernel
from coaltree.errors import InputError
from coaltree.model.messages import squared_distance

Nodes = SmallInts

# Up to the first number, comparing all pairs is fast; up to the second, it takes less time than the descent.
BRUTE_AT_ONCE, BRUTE_MOST = 2000, 20_000
# Rows on which a kd-tree is tried, and the distances it may compute for each: this share of all, and at most this many.
PROBES, TREE_SHARE, TREE_MOST = 32, 1 / 16, 4096
# Products of a block of rows with all others, in bytes.
BLOCK_BYTES = 1 << 24
# A squared distance below this share of the squared lengths has lost too many digits in the product.
CANCELLED = 1e-9
# The descent: trees to start from, spare neighbours to search with, and the share of changes at which it stops.
TREES, SPARE = 8, 4
ROUNDS, ENOUGH = 12, 0.01


@inline
def insert_neighbor(ids: Nodes, eps: Floats, j: int, e: float) -> bool:
    """Insert j into a list sorted by ε and then by id, unless it is full of nearer ones; whether it was inserted."""
    k = eps.size - 1
    if e > eps[k] or (e == eps[k] and j >= ids[k]):
        return False
    while k > 0 and (eps[k - 1] > e or (eps[k - 1] == e and ids[k - 1] > j)):
        eps[k], ids[k] = eps[k - 1], ids[k - 1]
        k -= 1
    eps[k], ids[k] = e, j
    return True


@kernel
def measure_neighbors(rows: Floats, found: Ints, out: Nodes, out_eps: Floats) -> None:
    """Sort what was found for each row, without the row itself, by exact distances."""
    for i in range(len(rows)):
        for k in range(found.shape[1]):
            if found[i, k] != i:
                insert_neighbor(out[i], out_eps[i], found[i, k], squared_distance(rows, i, rows, int(found[i, k])))


@kernel
def select(product: Floats, norm: Floats, first: int, out: Nodes, out_eps: Floats) -> None:
    """From the products of rows from `first` on with all, the nearest of each; ε ≈ |x|² + |y|² − 2xy."""
    for i in range(len(product)):
        worst = math.inf
        for j in range(norm.size):
            # |x|² is common to the row, and left out.
            e = norm[j] - 2.0 * product[i, j]
            if e < worst and j != first + i:
                insert_neighbor(out[i], out_eps[i], j, e)
                worst = out_eps[i, -1]


@kernel
def scan(rows: Floats, which: Ints, out: Nodes, out_eps: Floats) -> None:
    """Compare some rows with all, exactly."""
    for i in which:
        out_eps[i] = math.inf
        for j in range(len(rows)):
            if j != i:
                insert_neighbor(out[i], out_eps[i], j, squared_distance(rows, i, rows, j))


def by_brute_force(rows: Floats, k: int) -> tuple[Nodes, Floats]:
    """Compare all pairs."""
    n = len(rows)
    near, eps = empty_lists(n, k)
    # The median rather than the mean, which one distant row can pull away from all others.
    centred = rows - np.median(rows, axis=0)
    norm = np.einsum("ij,ij->i", centred, centred)
    step = max(1, BLOCK_BYTES // (8 * n))
    rough = np.full((step, k), np.inf)
    # On more threads the product is rounded differently, and ties would be broken in another way.
    with threadpool_limits(limits=1, user_api="blas"):
        for first in range(0, n, step):
            block = slice(first, min(first + step, n))
            rough[:] = np.inf
            select(centred[block] @ centred.T, norm, first, near[block], rough)
    measure_neighbors(rows, near.astype(np.int64), near, eps)
    lost = np.flatnonzero(eps[:, -1] < CANCELLED * (norm + norm[near[:, -1]]))
    scan(rows, lost, near, eps)
    return near, eps


def by_tree(rows: Floats, k: int) -> tuple[Nodes, Floats]:
    """Query a kd-tree."""
    from scipy.spatial import KDTree

    near, eps = empty_lists(len(rows), k)
    measure_neighbors(rows, np.asarray(KDTree(rows).query(rows, k + 1)[1], dtype=np.int64), near, eps)
    return near, eps


def suits_tree(rows: Floats, k: int) -> bool:
    """Whether a kd-tree visits only few rows when it searches."""
    from sklearn.neighbors import KDTree

    n = len(rows)
    tree = KDTree(rows)
    tree.query(rows[np.linspace(0, n - 1, PROBES).astype(int)], k + 1)
    return bool(tree.get_n_calls() <= PROBES * min(TREE_SHARE * n, TREE_MOST))


def empty_lists(n: int, k: int) -> tuple[Nodes, Floats]:
    """Return empty lists: any row comes before the id that no row has."""
    return np.full((n, k), np.iinfo(np.int32).max, dtype=np.int32), np.full((n, k), np.inf)


def halve(rows: Floats, levels: int, random: np.random.Generator) -> Ints:
    """Order the rows as a random tree does: level by level, every part is halved along the line through two rows."""
    n = len(rows)
    order = np.arange(n)
    for level in range(levels):
        a, b = random.choice(n, 2, replace=False)
        along = np.einsum("ij,j->i", rows, rows[a] - rows[b])
        order = order[np.lexsort((along[order], np.arange(n) * 2**level // n))]
    return order


@inline
def has(ids: Nodes, j: int) -> bool:
    """Whether a list has j."""
    found = False
    for k in range(ids.size):
        found = found or ids[k] == j
    return found


@inline
def offer(rows: Floats, near: Nodes, eps: Floats, fresh: Nodes, i: int, j: int) -> int:
    """Try two rows as neighbours of each other; how many lists have changed."""
    e = squared_distance(rows, i, rows, j)
    changed = 0
    for one, other in ((i, j), (j, i)):
        if e < eps[one, -1] and not has(near[one], other):
            k = eps.shape[1] - 1
            while k > 0 and eps[one, k - 1] > e:
                eps[one, k], near[one, k], fresh[one, k] = eps[one, k - 1], near[one, k - 1], fresh[one, k - 1]
                k -= 1
            eps[one, k], near[one, k], fresh[one, k] = e, other, 1
            changed += 1
    return changed


@kernel
def pair_leaves(rows: Floats, order: Ints, n_leaves: int, near: Nodes, eps: Floats, fresh: Nodes) -> None:
    """Try all pairs within the leaves of a random tree."""
    n = order.size
    for leaf in range(n_leaves):
        first = leaf * n // n_leaves
        for i in range(first, (leaf + 1) * n // n_leaves):
            for j in range(first, i):
                offer(rows, near, eps, fresh, int(order[i]), int(order[j]))


@kernel
def improve_neighbors(rows: Floats, near: Nodes, eps: Floats, fresh: Nodes) -> int:
    """One round: try the pairs that are neighbours of one row, in either direction, and one of them newly so."""
    n, k = near.shape
    # Lists as they are now, and who has whom in them; no more than k, or a row that is near many would take all time.
    new, old = np.empty((n, 2 * k), np.int32), np.empty((n, 2 * k), np.int32)
    n_new, n_old = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for i in range(n):
        for c in range(k):
            j = near[i, c]
            if fresh[i, c] == 1:
                new[i, n_new[i]] = j
                n_new[i] += 1
            else:
                old[i, n_old[i]] = j
                n_old[i] += 1
    forward_new, forward_old = n_new.copy(), n_old.copy()
    for c in range(k):
        for i in range(n):
            j = near[i, c]
            if has(near[j], i):
                continue
            if fresh[i, c] == 1:
                if n_new[j] < forward_new[j] + k // 2 and n_new[j] < 2 * k:
                    new[j, n_new[j]] = i
                    n_new[j] += 1
            elif n_old[j] < forward_old[j] + k // 2 and n_old[j] < 2 * k:
                old[j, n_old[j]] = i
                n_old[j] += 1
    fresh[:] = 0
    changed = 0
    for i in range(n):
        for a in range(n_new[i]):
            for b in range(a):
                changed += offer(rows, near, eps, fresh, int(new[i, a]), int(new[i, b]))
            for b in range(n_old[i]):
                changed += offer(rows, near, eps, fresh, int(new[i, a]), int(old[i, b]))
    return changed


def by_descent(rows: Floats, k: int) -> tuple[Nodes, Floats]:
    """Find most of the nearest rows through neighbours of neighbours."""
    n = len(rows)
    width = min(k + SPARE, n - 1)
    # A leaf has more than `width` rows, so that every list is full from the start, and about twice that at most.
    levels = max(0, math.floor(math.log2(n / (width + 1))))
    random = np.random.default_rng(0)
    # Rows that are close together are put close together in memory.
    place = halve(rows, levels, random)
    rows = rows[place]
    near, eps = empty_lists(n, width)
    fresh = np.zeros((n, width), dtype=np.int32)
    for tree in range(TREES):
        order = halve(rows, levels, random) if tree else np.arange(n)
        # Rows on a line are put in the same order by every tree: the leaves begin elsewhere each time.
        pair_leaves(rows, np.roll(order, tree * n // (TREES * 2**levels)), 2**levels, near, eps, fresh)
    for _ in range(ROUNDS):
        if improve_neighbors(rows, near, eps, fresh) <= ENOUGH * n * width:
            break
    found, distance = np.empty((n, k), dtype=np.int32), np.empty((n, k))
    found[place], distance[place] = place[near[:, :k]], eps[:, :k]
    return found, distance


@kernel
def group_copies(rows: Floats, out: Ints) -> None:
    """Give every row the number of the first row that is equal to it."""
    n = len(rows)
    key = np.empty(n, np.uint64)
    for i in range(n):
        h = np.uint64(0)
        for c in range(rows.shape[1]):
            # Adding 0 turns −0 into +0.
            h = (h ^ np.float64(rows[i, c] + 0.0).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(29)
        key[i] = h
    order = np.argsort(key, kind="mergesort")
    out[order[0]] = order[0]
    for k in range(1, n):
        i, before = order[k], out[order[k - 1]]
        same = key[i] == key[before]
        for c in range(rows.shape[1]):
            same = same and rows[i, c] == rows[before, c]
        out[i] = before if same else i


@kernel
def spread_to_copies(start: Ints, member: Ints, near: Nodes, eps: Floats, out: Nodes, out_eps: Floats) -> None:
    """From the nearest groups of copies to the nearest rows: the other copies first, then those of the next group.

    Every copy begins at another member; otherwise a few of many copies would be the neighbours of all.
    """
    k = out.shape[1]
    for g in range(start.size - 1):
        for place in range(start[g + 1] - start[g]):
            i = member[start[g] + place]
            n = 0
            for other in range(near.shape[1] + 1):
                h = g if other == 0 else near[g, other - 1]
                size = start[h + 1] - start[h]
                for step in range(1 if other == 0 else 0, size):
                    if n < k:
                        out[i, n] = member[start[h] + (place + step) % size]
                        out_eps[i, n] = 0.0 if other == 0 else eps[g, other - 1]
                        n += 1


def search_neighbors(rows: Floats, k: int) -> tuple[Nodes, Floats]:
    """Find the k nearest rows of distinct rows."""
    n = len(rows)
    if k == 0:
        return empty_lists(n, 0)
    if n > BRUTE_AT_ONCE and suits_tree(rows, k):
        return by_tree(rows, k)
    return by_brute_force(rows, k) if n <= BRUTE_MOST else by_descent(rows, k)


def nearest(rows: Floats, k: int) -> tuple[Nodes, Floats]:
    """Find the nearest other rows of every row.

    Exact up to 20 000 rows, and beyond if a kd-tree suits the rows; otherwise most are found, about 98 in 100 for 16
    neighbours of normal rows with 16 columns. The same rows give the same answer, on any number of threads.

    Parameters
    ----------
    rows : array (n, d)
        At least two.
    k : int
        How many; at most n − 1.

    Returns
    -------
    index : int32 array (n, min(k, n − 1))
        Nearest first; never the row itself, and none twice. Of many copies of a row, each lists different copies first.
    distance : float64 array of that shape
        Squared.
    """
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    with np.errstate(over="ignore"):
        widest = 4.0 * np.square(np.ptp(rows, axis=0)).sum()
    if not np.isfinite(widest):
        raise InputError("X has rows too far apart for their squared distance to be a number. Scale X down.")
    k = min(k, len(rows) - 1)
    first = np.empty(len(rows), dtype=np.int64)
    group_copies(rows, first)
    kept, group = np.unique(first, return_inverse=True)
    if len(kept) == len(rows):
        return search_neighbors(rows, k)
    near, eps = search_neighbors(rows[kept], min(k, len(kept) - 1))
    start = np.concatenate([[0], np.cumsum(np.bincount(group))])
    out, out_eps = empty_lists(len(rows), k)
    spread_to_copies(start, np.argsort(group, kind="stable"), near, eps, out, out_eps)
    return out, out_eps
