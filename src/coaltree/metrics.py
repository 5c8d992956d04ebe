"""How good a tree is: against class labels, against a true tree, against another tree.

Against labels (Teh et al. 2008; Henao & Lucas): `subtree_score`, `ari_curve` and its area `ari_auc`.
Against the tree that generated the data: `merge_time_errors`, `distance_errors`, `last_time_difference`.
Against any tree over the same leaves: `robinson_foulds`, `kuhner_felsenstein`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.errors import InputError
from coaltree.tree import Tree
from coaltree.validation import as_floats

MIXED = -1


class AriCurve(NamedTuple):
    """Adjusted Rand index of every cut: `n_clusters` (n,) = 1 … n and `ari` (n,)."""

    n_clusters: Ints
    ari: Floats


class Errors(NamedTuple):
    """Mean squared error, mean absolute error and maximum absolute bias."""

    mse: float
    mae: float
    mab: float


# ---- against class labels


def subtree_score(tree: Tree, labels: npt.ArrayLike) -> float:
    """Share of the internal nodes that could be pure which are.

    N_pure / (n − K), where N_pure counts the internal nodes whose leaves all belong to one class. A tree that
    keeps each of the K classes in a subtree of its own scores 1. O(n).

    Parameters
    ----------
    tree : Tree
        Tree over n observations.
    labels : array-like (n,)
        Class of every observation; anything sortable.

    Returns
    -------
    float
        Score in [0, 1].
    """
    codes, n_classes = _encode(tree, labels)
    if n_classes == tree.n_leaves:
        raise InputError(
            "labels put every observation in a class of its own, so the subtree score is 0/0; "
            "pass labels in which at least one class has two members."
        )
    return int(_count_pure(tree.children, codes)) / (tree.n_leaves - n_classes)


def ari_curve(tree: Tree, labels: npt.ArrayLike) -> AriCurve:
    """Return the adjusted Rand index of each of the n cuts of the tree, after a vote inside every cluster.

    At each cut a cluster takes the class held by most of its members (on a tie the smallest class in sorted
    order), every observation is relabelled to its cluster's class, and that partition is compared with the
    truth (Hubert & Arabie 1985). Hence 0 at one cluster and 1 at n clusters. The table of voted against true
    classes is updated merge by merge: O(n K) time.

    Parameters
    ----------
    tree : Tree
        Tree over n observations.
    labels : array-like (n,)
        Class of every observation; anything sortable.

    Returns
    -------
    AriCurve
        `n_clusters` = 1 … n and the index of each cut.
    """
    codes, n_classes = _encode(tree, labels)
    ari = _ari_by_merge(tree.children, codes, n_classes)
    return AriCurve(np.arange(1, tree.n_leaves + 1), ari[::-1].copy())


def ari_auc(tree: Tree, labels: npt.ArrayLike) -> float:
    """Area under `ari_curve`, linear in the number of clusters, scaled to [0, 1].

    The trapezoidal integral of the index from 1 to n clusters divided by n − 1. Parameters are those of `ari_curve`.
    """
    curve = ari_curve(tree, labels)
    return float((curve.ari[1:] + curve.ari[:-1]).mean() / 2.0)


@kernel
def _count_pure(children: Ints, codes: Ints) -> int:
    """Count the internal nodes whose leaves share one class."""
    n = codes.size
    node_class = np.full(2 * n - 1, MIXED, dtype=np.int64)
    node_class[:n] = codes
    n_pure = 0
    for k in range(n - 1):
        left, right = node_class[children[k, 0]], node_class[children[k, 1]]
        if left == right and left != MIXED:
            node_class[n + k] = left
            n_pure += 1
    return n_pure


@inline
def _pairs(count: int) -> float:
    return 0.5 * count * (count - 1)


@inline
def _move(state_table: Ints, state_sums: Floats, vote: int, counts: Ints, row: int, sign: int) -> None:
    """Add (sign +1) or remove (−1) a cluster's class counts in row `vote` of the table of votes and classes.

    `state_sums` holds Σ pairs over the cells and Σ pairs over the row totals; both are kept current.
    """
    before = after = 0
    for c in range(counts.shape[1]):
        cell = state_table[vote, c]
        moved = cell + sign * counts[row, c]
        state_table[vote, c] = moved
        state_sums[0] += _pairs(moved) - _pairs(cell)
        before += cell
        after += moved
    state_sums[1] += _pairs(after) - _pairs(before)


@kernel
def _ari_by_merge(children: Ints, codes: Ints, n_classes: int) -> Floats:
    """Return the adjusted Rand index after 0, 1 … n − 1 merges, shape (n,)."""
    n = codes.size
    # A merged cluster reuses the row of its first child: n rows are enough for 2n − 1 nodes.
    row_of = np.empty(2 * n - 1, dtype=np.int64)
    vote = np.empty(n, dtype=np.int64)
    counts = np.zeros((n, n_classes), dtype=np.int64)
    table = np.zeros((n_classes, n_classes), dtype=np.int64)
    for i in range(n):
        row_of[i] = i
        vote[i] = codes[i]
        counts[i, codes[i]] = 1
        table[codes[i], codes[i]] += 1
    truth = 0.0
    for c in range(n_classes):
        truth += _pairs(table[c, c])
    sums = np.full(2, truth)
    total = _pairs(n)
    ari = np.ones(n)
    for k in range(n - 1):
        a, b = row_of[children[k, 0]], row_of[children[k, 1]]
        _move(table, sums, vote[a], counts, a, -1)
        _move(table, sums, vote[b], counts, b, -1)
        winner = 0
        for c in range(n_classes):
            counts[a, c] += counts[b, c]
            if counts[a, c] > counts[a, winner]:
                winner = c
        vote[a] = winner
        row_of[n + k] = a
        _move(table, sums, winner, counts, a, 1)
        # Everything over C(n, 2): exactly 0 for one cluster and exactly 1 for a perfect partition.
        chance = sums[1] * truth
        best = 0.5 * (sums[1] + truth) * total
        if best > chance:
            ari[k + 1] = (sums[0] * total - chance) / (best - chance)
    return ari


def _encode(tree: Tree, labels: npt.ArrayLike) -> tuple[Ints, int]:
    """Return integer codes 0 … K − 1 in sorted order of the classes, and K ≥ 2."""
    values = np.asarray(labels)
    if values.shape != (tree.n_leaves,):
        raise InputError(
            f"labels must be one class per leaf, shape ({tree.n_leaves},), got shape {values.shape}; "
            "list them in the order of the tree's leaves."
        )
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise InputError("labels contain NaN; give every observation a class or drop it before building the tree.")
    try:
        classes, codes = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise InputError("labels mix types that cannot be sorted; convert them all to str or int.") from error
    if classes.size < 2:
        raise InputError("labels hold a single class; scores against labels need at least two classes.")
    return codes.astype(np.int64), int(classes.size)


# ---- against the tree that generated the data


def merge_time_errors(truth: Tree, times: npt.ArrayLike, *, weights: npt.ArrayLike | None = None) -> Errors:
    """Errors of the log merge times.

    The estimate of log t_k is its weighted mean over the trees; the errors are over the n − 1 merges,
    compared in time order.

    Parameters
    ----------
    truth : Tree
        The tree that generated the data.
    times : array-like (M, n−1) or (n−1,)
        Merge times of M weighted trees, or of one.
    weights : array-like (M,), optional
        Weights of the trees; equal by default. They need not sum to one.

    Returns
    -------
    Errors
        mse, mae and mab of log t.
    """
    sampled, share = _weighted_times(truth, times, weights)
    for name, values in (("truth.times", truth.times), ("times", sampled)):
        if (values <= 0.0).any():
            raise InputError(f"{name} must be positive for errors of log t; drop duplicated observations first.")
    return _errors(share @ np.log(sampled) - np.log(truth.times))


def distance_errors(truth: Tree, cophenetic: npt.ArrayLike) -> Errors:
    """Errors of the merge times of the n(n−1)/2 pairs of leaves.

    Parameters
    ----------
    truth : Tree
        The tree that generated the data.
    cophenetic : array-like (n, n)
        Estimated matrix of merge times, as `Tree.cophenetic()` or `TreePosterior.cophenetic()` return.

    Returns
    -------
    Errors
        mse, mae and mab over the upper triangle.
    """
    estimate = as_floats(cophenetic, "cophenetic")
    n = truth.n_leaves
    if estimate.shape != (n, n):
        raise InputError(
            f"cophenetic must be the square matrix of merge times, shape ({n}, {n}), got {estimate.shape}; "
            "pass tree.cophenetic() or posterior.cophenetic()."
        )
    if not np.isfinite(estimate).all():
        raise InputError("cophenetic must be finite; it holds NaN or infinite values.")
    upper = np.triu_indices(n, 1)
    return _errors(estimate[upper] - truth.cophenetic()[upper])


def last_time_difference(truth: Tree, times: npt.ArrayLike, *, weights: npt.ArrayLike | None = None) -> float:
    """Return the true last merge time minus its weighted mean: positive means underestimated.

    Parameters are those of `merge_time_errors`.
    """
    sampled, share = _weighted_times(truth, times, weights)
    return float(truth.times[-1] - share @ sampled[:, -1])


def _weighted_times(truth: Tree, times: npt.ArrayLike, weights: npt.ArrayLike | None) -> tuple[Floats, Floats]:
    """Return times as (M, n−1) and weights as (M,) summing to one, or say what is wrong with them."""
    sampled = np.atleast_2d(as_floats(times, "times"))
    if sampled.ndim != 2 or sampled.shape[1] != truth.n_leaves - 1 or len(sampled) == 0:
        raise InputError(
            f"times must have shape (M, {truth.n_leaves - 1}) or ({truth.n_leaves - 1},), "
            f"one column per merge of truth, got {np.shape(times)}."
        )
    if not np.isfinite(sampled).all():
        raise InputError("times must be finite; they hold NaN or infinite values.")
    if weights is None:
        return sampled, np.full(len(sampled), 1.0 / len(sampled))
    share = as_floats(weights, "weights")
    if share.shape != (len(sampled),):
        raise InputError(f"weights must have shape ({len(sampled)},), one per row of times, got {share.shape}.")
    if not (np.isfinite(share).all() and (share >= 0.0).all() and share.any()):
        raise InputError("weights must be finite, non-negative and not all zero.")
    share /= share.max()  # so that no sum of them overflows
    return sampled, share / share.sum()


def _errors(difference: Floats) -> Errors:
    size = np.abs(difference)
    with np.errstate(over="ignore"):  # squares of differences beyond 1e154 are infinite
        return Errors(float((size**2).mean()), float(size.mean()), float(size.max()))


# ---- against another tree


def robinson_foulds(a: Tree, b: Tree) -> int:
    """Rooted Robinson–Foulds distance: the number of clades found in one tree but not in the other.

    Ranges from 0 (same topology) to 2(n − 2). Leaves are matched by name if both trees have names, by number
    otherwise. O(n log n) by the intervals of Day (1985): exact, no hashing.
    """
    match = _matching_clades(a, b)
    return 2 * int(np.count_nonzero(match < 0))


def kuhner_felsenstein(a: Tree, b: Tree) -> float:
    """Rooted branch-score distance, √Σ_c (ℓ_a(c) − ℓ_b(c))².

    The sum is over every clade c found in either tree, leaves included; ℓ(c) is the length of the branch
    above the clade, 0 in a tree that does not contain it. The root has no branch. This is the square root of
    Kuhner & Felsenstein's (1994) score, as in PHYLIP's treedist and DendroPy's `euclidean_distance`. Leaves
    are matched by name if both trees have names, by number otherwise.
    """
    match = _matching_clades(a, b)
    n = a.n_leaves
    leaf_lengths_a, clade_lengths_a = np.split(_branch_lengths(a), [n])
    leaf_lengths_b, clade_lengths_b = np.split(_branch_lengths(b), [n])
    shared = match >= 0
    only_a = np.ones(n - 1, dtype=bool)
    only_a[match[shared]] = False
    differences = (
        leaf_lengths_a - leaf_lengths_b[_leaf_positions(a, b)],
        clade_lengths_a[match[shared]] - clade_lengths_b[shared],
        clade_lengths_a[only_a],
        clade_lengths_b[~shared],
    )
    lengths = np.concatenate(differences)
    largest = np.abs(lengths).max()  # taken out, so that no square overflows or vanishes
    return float(largest * np.sqrt(np.sum((lengths / largest) ** 2))) if largest > 0 else 0.0


def _branch_lengths(tree: Tree) -> Floats:
    """Length of the branch above every node, (2n−1,); zero above the root."""
    times = tree.node_times()
    lengths = np.zeros_like(times)
    lengths[tree.children] = tree.times[:, None] - times[tree.children]
    return lengths


def _leaf_positions(a: Tree, b: Tree) -> Ints:
    """Return where each leaf of `a` is in `b`, matched by name when both trees have names, (n,)."""
    if a.n_leaves != b.n_leaves:
        raise InputError(f"a has {a.n_leaves} leaves and b has {b.n_leaves}; compare trees over the same leaves.")
    if a.names is None or b.names is None:
        return np.arange(a.n_leaves)
    position = {name: i for i, name in enumerate(b.names)}
    if set(a.names) != set(position):
        raise InputError("a and b must have the same leaf names; rename or prune their leaves.")
    return np.array([position[name] for name in a.names])


def _matching_clades(a: Tree, b: Tree) -> Ints:
    """Index in `a` of every clade of `b`, −1 where `a` does not have it, (n−1,).

    Number the leaves along a drawing of `a`: its clades are intervals. A clade of `b` is in `a` exactly when
    its leaves span an interval of its own size that is one of those.
    """
    n = a.n_leaves
    positions = _leaf_positions(a, b)
    rank_a = np.empty(n, dtype=np.int64)
    rank_a[a.leaf_order()] = np.arange(n)
    rank_b = np.empty(n, dtype=np.int64)
    rank_b[positions] = rank_a
    first_a, last_a = _spans(a.children, rank_a)
    first_b, last_b = _spans(b.children, rank_b)
    key_a = first_a * n + last_a
    key_b = np.where(last_b - first_b + 1 == b.sizes(), first_b * n + last_b, -1)
    order = np.argsort(key_a)
    found = order[np.minimum(np.searchsorted(key_a, key_b, sorter=order), n - 2)]
    return np.where(key_a[found] == key_b, found, -1)


@kernel
def _spans(children: Ints, rank: Ints) -> tuple[Ints, Ints]:
    """Lowest and highest leaf rank below every internal node, two arrays (n−1,)."""
    n = rank.size
    low, high = np.empty(2 * n - 1, np.int64), np.empty(2 * n - 1, np.int64)
    low[:n] = rank
    high[:n] = rank
    for k in range(n - 1):
        left, right = children[k, 0], children[k, 1]
        low[n + k] = min(low[left], low[right])
        high[n + k] = max(high[left], high[right])
    return low[n:], high[n:]
