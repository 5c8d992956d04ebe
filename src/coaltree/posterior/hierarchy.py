"""The tree that is shown, its flat clusters and its outliers: made from all draws, by mean merge times of rows.

Let T_ij be the posterior mean of the time at which rows i and j merge. A partition costs

    loss = Σ_c 1/|c| Σ_{i<j in c} T_ij²,

which is small if clusters hold rows that merge early, whatever their number of rows; averaging over all draws makes two
runs agree. Ward's linkage lowers the number of clusters from n to 1 with the least rise of the loss in every step, and
so gives a nested partition for every k, and a tree. Outliers (see below) are left out of it and join the finished tree
one by one, nearest first; otherwise each would be a separate cluster. The merge time of a clade is the posterior median
of when most of it has merged (`posterior.overlap`).

All pairs of n rows are too many for large n. Beyond MOST_ROWS, the point tree (`posterior.point`) is cut into that many
groups; one row of each represents it in T, with the weight of all, and inside a group the point tree is kept.

For a single tree, built rather than drawn, the mean is the tree itself, which is kept: its clusters are split from the
root down, starting with the split that lowers Σ_c 1/|c| Σ t_ij most.

Outliers are rows that fit nowhere: when few lineages are left, more rows are still alone than the coalescent predicts.

Follow a tree of Kingman's coalescent of n leaves back to where k lineages are left: all ways to divide n leaves among k
ordered lineages, at least one for each, are equally likely (Kingman 1982). So s of the lineages are single leaves with
probability

    C(k, s) C(n−k−1, k−s−1) / C(n−1, k−1),

and k(k−1)/(n−1) are expected. For a few k, up to MOST_LEFT of n, the rows that are alone are counted; at the k where
their number is least probable, if that probability is below RARE, they are outliers in this tree. The outlier
probability of a row is the posterior probability of that. It depends only on the shapes of the trees, so no scale has
to be set and one cell of a million counts no more than any other distant row. With 2/RARE rows or fewer a single row is
never an outlier. Two to MOST_TOGETHER rows that join only that late a clade with at least half of all rows are outliers
too, if such merges are rare: 2n / N(N+1) clades of N < n leaves are expected and one of n, each split into sides of
1 … N−1 leaves with equal probability, so that r Σ_{M ≥ N} c_M merges of N leaves or more have a side of r or fewer,
with c_M = 2n / M(M+1) · 2/(M−1) and c_n = 2/(n−1); fewer than RARE_GROUP must be expected. More rows are a cluster.

Outliers hide others, so the remaining rows are searched again until no more are found.
A single tree has no others to average over and is held to more: the probability at k is multiplied by k²/4.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform
from scipy.special import gammaln

from coaltree._arrays import Bools, Floats, Ints
from coaltree._compile import kernel
from coaltree.errors import InputError
from coaltree.posterior.clades import as_merges, as_probability
from coaltree.posterior.coclustering import pair_sums, restrict
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.point import in_time_order, point_tree
from coaltree.tree import Tree, as_index

RARE, RARE_GROUP = 0.03, 0.1
MOST_TOGETHER = 4
MOST_LEFT = 0.15
# Outliers have at least this outlier probability, and are at most this share of the rows.
LIKELY, MOST_OUTLIERS = 0.5, 0.25
# Ratio of the numbers of lineages at which rows that are alone are counted.
_STEP = 1.2


def outlier_probability(children: Ints, weights: Floats) -> Floats:
    """Posterior probability that each row is an outlier, (n,), from merges (M, n−1, 2) and weights (M,). O(M n)."""
    merges = as_merges(children)
    rows = np.arange(merges.shape[1] + 1)
    probability = np.zeros(len(rows))
    while True:
        found = as_probability(_of_all(merges, weights))
        stay = found < LIKELY
        if len(rows) < len(probability) and stay.sum() < (1.0 - MOST_OUTLIERS) * len(probability):
            return probability  # so many that they make up the table
        probability[rows] = np.maximum(probability[rows], found)
        if stay.all() or stay.sum() < 2:
            return probability
        merges, _ = restrict(merges, np.zeros(merges.shape[:2]), np.flatnonzero(stay))
        rows = rows[stay]


def find_outliers(probability: Floats) -> Bools:
    """Which rows are outliers; none if so many seem to be that they make up the table."""
    apart = probability >= LIKELY
    return apart if apart.mean() <= MOST_OUTLIERS else np.zeros_like(apart)


def _of_all(merges: Ints, weights: Floats) -> Floats:
    n = merges.shape[1] + 1
    left = lineages(n)
    tails = [lone_tail(n, int(k)) for k in left]
    start = np.cumsum([0, *map(len, tails)])
    return _probability(merges, weights, left, np.concatenate([*tails, [1.0]]), start, expected_merges(n))


def lineages(n: int) -> Ints:
    """Numbers of lineages at which rows are counted: 2, 3, … and then by ratio, none for few rows."""
    most = max(int(MOST_LEFT * n), min(2, n - 1))
    steps = 2.0 * _STEP ** np.arange(np.log(max(most, 2) / 2.0) / np.log(_STEP) + 1.0)
    found: Ints = np.unique(np.append(steps[steps <= most].astype(np.int64), most))
    return found[found >= 2]


def expected_merges(n: int) -> Floats:
    """Expected number of merges with at least N leaves of which one side has one, by N = 0 … n, (n+1,)."""
    size = np.arange(2.0, n + 1.0)
    clades = np.append(2.0 * n / (size[:-1] * (size[:-1] + 1.0)), 1.0)
    lone = clades * np.minimum(2.0 / (size - 1.0), 1.0)  # of two leaves, both are alone
    return np.concatenate([[np.inf, np.inf], np.cumsum(lone[::-1])[::-1]])


def lone_tail(n: int, k: int) -> Floats:
    """Probability that s or more of k lineages of n leaves are single leaves, s = 0 … k, (k+1,); k < n."""
    alone = np.arange(k)
    others = k - alone
    fits = n - k >= others  # every lineage that is not alone has two leaves or more
    log_ways = np.full(k, -np.inf)
    s, r = alone[fits], others[fits]
    log_ways[fits] = _log_choose(k, s) + _log_choose(n - k - 1, r - 1) - _log_choose(n - 1, k - 1)
    return np.append(np.cumsum(np.exp(log_ways)[::-1])[::-1], 0.0)


def _log_choose(n: int, k: npt.ArrayLike) -> Floats:
    chosen = np.asarray(k, dtype=np.float64)
    return np.asarray(gammaln(n + 1.0) - gammaln(chosen + 1.0) - gammaln(n - chosen + 1.0))


@kernel
def _probability(children: Ints, weights: Floats, left: Ints, tail: Floats, start: Ints, expected: Floats) -> Floats:
    n = children.shape[1] + 1
    last = np.empty(n, dtype=np.int64)  # lineages that are left after a leaf has merged
    alone = np.empty(n + 1, dtype=np.int64)
    size = np.ones(2 * n - 1, dtype=np.int64)
    apart = np.zeros(2 * n - 1, dtype=np.bool_)
    probability = np.zeros(n)
    for m in range(len(children)):
        if weights[m] == 0.0:
            continue
        alone[:] = 0
        for k in range(n - 1):
            size[n + k] = size[children[m, k, 0]] + size[children[m, k, 1]]
            for side in range(2):
                if children[m, k, side] < n:
                    last[children[m, k, side]] = n - 1 - k
                    alone[n - 1 - k] += 1
        for k in range(1, n + 1):  # how many are alone while k + 1 lineages are left
            alone[k] += alone[k - 1]
        rarest, where = RARE, 0
        for level in range(len(left)):
            value = tail[start[level] + alone[left[level] - 1]]
            if len(children) == 1:
                value *= 0.25 * left[level] ** 2
            if value < rarest:
                rarest, where = value, left[level]
        for k in range(n - 2, -1, -1):
            whole = size[n + k]
            for side in range(2):
                r = size[children[m, k, side]]
                few = 1 < r <= MOST_TOGETHER and 2 * r < whole and 2 * whole >= n
                apart[children[m, k, side]] = apart[n + k] or (few and r * expected[whole] < RARE_GROUP)
        for i in range(n):
            if last[i] < where or apart[i]:
                probability[i] += weights[m]
    return probability


MOST_ROWS = 2000
OUTLIER = -1


class Hierarchy(NamedTuple):
    """A tree and the order in which its merges are undone to make more and more clusters."""

    tree: Tree
    order: Ints  # (m−1,): the merges between the m rows that are no outliers, the first to be undone first
    outlier: Floats  # (n,): probability of being an outlier

    @property
    def is_outlier(self) -> Bools:
        """Which rows belong to no cluster, (n,)."""
        return find_outliers(self.outlier)

    def cut(self, n_clusters: int) -> Ints:
        """Labels of the partition into k clusters, (n,): 0 … k−1 in the order of first rows, −1 for outliers."""
        apart, most = self.is_outlier, len(self.order) + 1
        if not 1 <= as_index(n_clusters, "n_clusters") <= most:
            rows = f"{len(apart)} rows" + f", of which {apart.sum()} are outliers" * bool(apart.any())
            raise InputError(f"n_clusters must be between 1 and {most} for {rows}, got {n_clusters}.")
        undone = np.zeros(len(apart) - 1, dtype=np.bool_)
        undone[self.order[: n_clusters - 1]] = True
        heads = _heads(as_merges(self.tree.children[None])[0], undone)
        labels = np.full(len(apart), OUTLIER, dtype=np.int64)
        _, first, inverse = np.unique(heads[~apart], return_index=True, return_inverse=True)
        labels[~apart] = np.argsort(np.argsort(first))[inverse]
        return labels


def make_hierarchy(posterior: TreePosterior) -> Hierarchy:
    """Make the tree of all draws and the order of its cuts: O(M n log n + M g²), g the smaller of n and MOST_ROWS."""
    used = posterior.weights > 0.0
    children, times, weights = posterior.children, posterior.times, posterior.weights
    if not used.all():
        children, times, weights = children[used], times[used], weights[used]
    merges = as_merges(children)
    if len(merges) == 1:
        return hierarchy_of_one(Tree(children[0], times[0], posterior.names))
    outlier = outlier_probability(merges, weights)
    apart = find_outliers(outlier)
    lower, group_of = _groups(posterior, apart)
    nodes, rise = _link(merges, times, weights, lower, group_of)
    node_times = posterior.median_times(Tree(nodes, np.arange(len(nodes), dtype=np.float64)))
    tree, place = in_time_order(nodes, node_times, posterior.names)
    # The largest rise first; of equal ones the later merge, which may hold the other.
    order = np.lexsort((-np.arange(len(rise)), -rise))
    return Hierarchy(tree, place[order], outlier)


# ---- all draws


def _groups(posterior: TreePosterior, apart: Bools) -> tuple[Ints, Ints]:
    """Merges inside groups of rows, (G, 2), merge k being node n+k, and each row's group, −1 for outliers, (n,)."""
    kept = np.flatnonzero(~apart)
    group_of = np.full(len(apart), OUTLIER, dtype=np.int64)
    if len(kept) <= MOST_ROWS:
        group_of[kept] = np.arange(len(kept))
        return np.empty((0, 2), dtype=np.int64), group_of
    point = point_tree(posterior.children, posterior.times, posterior.weights, posterior.log_joint, None)
    children, times = restrict(as_merges(point.children[None]), point.times[None], kept)
    tree = Tree(children[0], times[0])
    group_of[kept] = tree.cut(n_clusters=MOST_ROWS)
    rename = np.concatenate([kept, len(apart) + np.arange(len(kept) - 1)])
    return rename[tree.children[: len(kept) - MOST_ROWS]], group_of


def _link(merges: Ints, times: Floats, weights: Floats, lower: Ints, group_of: Ints) -> tuple[Ints, Floats]:
    """All merges (n−1, 2), children first, and by how much those between rows that are not outliers raise the loss.

    First those inside groups, then Ward's merges of groups, then those of outliers, which have no rise.
    """
    n, outliers, kept = len(group_of), np.flatnonzero(group_of < 0), np.flatnonzero(group_of >= 0)
    _, first, sizes = np.unique(group_of[kept], return_index=True, return_counts=True)
    asked = np.concatenate([kept[first], outliers])  # the first row of each group stands for it
    mean = pair_sums(*_weighted(merges, times, weights, asked))
    g, n_lower = len(first), len(lower)
    upper, rise = ward(mean[:g, :g] ** 2, sizes.astype(np.float64))
    rename = np.concatenate([_tops(lower, n)[asked[:g]], n + n_lower + np.arange(g - 1)])
    parts = [lower, rename[upper]]
    if len(outliers):
        body = mean[g:, :g] @ sizes / sizes.sum()
        between = np.block([[np.zeros((1, 1)), body[None]], [body[:, None], mean[g:, g:]]])
        grafts = linkage(squareform(between, checks=False), "average")[:, :2].astype(np.int64)
        own = np.concatenate([rename[-1:], outliers, n + n_lower + g - 1 + np.arange(len(outliers) - 1)])
        parts.append(own[grafts])
    # What is inside a group is split last.
    return np.concatenate(parts), np.concatenate([np.full(n_lower, -1.0), rise])


def _weighted(merges: Ints, times: Floats, weights: Floats, rows: Ints) -> tuple[Ints, Floats]:
    if len(rows) < merges.shape[1] + 1 or (np.diff(rows) < 0).any():
        merges, times = restrict(merges, times, rows)
    return merges, weights[:, None] * times


def _tops(lower: Ints, n: int) -> Ints:
    """The last of `lower` that holds each row, as a node, or the row itself, (n,)."""
    top = np.arange(n + len(lower))
    for k in range(len(lower) - 1, -1, -1):
        top[lower[k]] = top[n + k]
    return top[:n]


@kernel
def _heads(children: Ints, undone: Bools) -> Ints:
    """The highest node above each leaf without an undone merge between them, (n,)."""
    n = len(children) + 1
    head = np.empty(2 * n - 1, np.int64)
    head[2 * n - 2] = 2 * n - 2
    for k in range(n - 2, -1, -1):
        for side in range(2):
            child = children[k, side]
            head[child] = child if undone[k] else head[n + k]
    return head[:n]


@kernel
def ward(state_squared: Floats, state_size: Floats) -> tuple[Ints, Floats]:
    """Ward's linkage of weighted points: merges (g−1, 2) by increasing cost, and their costs, (g−1,).

    From squared distances (g, g) and weights (g,), both overwritten. A merge of A and B costs
    |A||B| / (|A| + |B|) times the squared distance of their centres. Nearest neighbours are followed until two are each
    other's: O(g²).
    """
    g = len(state_size)
    left, right, cost = np.empty(g - 1, np.int64), np.empty(g - 1, np.int64), np.empty(g - 1)
    alive = np.ones(g, np.bool_)
    highest = np.zeros(g)
    chain = np.empty(g, np.int64)
    length = 0
    for step in range(g - 1):
        if length == 0:
            for i in range(g):
                if alive[i]:
                    chain[0] = i
                    length = 1
                    break
        while True:
            a = chain[length - 1]
            b = chain[length - 2] if length > 1 else -1
            best = np.inf
            if b >= 0:
                best = state_squared[a, b] * state_size[a] * state_size[b] / (state_size[a] + state_size[b])
            for j in range(g):
                if alive[j] and j != a:
                    value = state_squared[a, j] * state_size[a] * state_size[j] / (state_size[a] + state_size[j])
                    if value < best:
                        best, b = value, j
            if length > 1 and b == chain[length - 2]:
                break
            chain[length] = b
            length += 1
        length -= 2
        left[step], right[step] = min(a, b), max(a, b)
        cost[step] = highest[left[step]] = max(best, highest[a], highest[b])  # whatever rounding does
        keep, gone = min(a, b), max(a, b)
        both = state_size[a] + state_size[b]
        for j in range(g):
            if alive[j] and j != a and j != b:
                total = state_size[a] * state_squared[a, j] + state_size[b] * state_squared[b, j]
                new = total / both - state_size[a] * state_size[b] / both**2 * state_squared[a, b]
                state_squared[keep, j] = state_squared[j, keep] = new
        state_size[keep] = both
        alive[gone] = False
    order = np.argsort(cost, kind="mergesort")
    # A slot holds what was merged into it so far.
    holder = np.arange(g)
    merges = np.empty((g - 1, 2), np.int64)
    for k in range(g - 1):
        a, b = left[order[k]], right[order[k]]
        merges[k, 0], merges[k, 1] = holder[a], holder[b]
        holder[a] = holder[b] = g + k
    return merges, cost[order]


# ---- one tree


def hierarchy_of_one(tree: Tree) -> Hierarchy:
    """Order the merges of a single tree by splits from the root down that lower Σ_c 1/|c| Σ t_ij most."""
    n, merges = tree.n_leaves, tree.children.tolist()
    outlier = outlier_probability(tree.children[None], np.ones(1))
    size, within = np.zeros((2, 2 * n - 1))
    size[:n] = ~find_outliers(outlier)
    for node, (left, right) in enumerate(merges, start=n):
        size[node] = size[left] + size[right]
        within[node] = within[left] + within[right] + size[left] * size[right] * tree.times[node - n]
    loss = np.divide(within, size, out=np.zeros(2 * n - 1), where=size > 0)
    queue: list[tuple[float, int]] = []

    def enter(node: int) -> None:
        while node >= n:
            left, right = merges[node - n]
            if size[left] and size[right]:
                heapq.heappush(queue, (loss[left] + loss[right] - loss[node], node))
                return
            node = left if size[left] else right  # past an outlier

    order = []
    enter(2 * n - 2)
    while queue:
        node = heapq.heappop(queue)[1]
        order.append(node - n)
        for child in merges[node - n]:
            enter(child)
    return Hierarchy(tree, np.array(order, dtype=np.int64), outlier)
