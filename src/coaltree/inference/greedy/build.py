r"""One tree, merge by merge: the pair with the smallest expected (or likeliest) waiting time goes next.

    mode             mode of the GIG of the pair, untruncated (Teh et al. 2008)
    mean             its mean, untruncated (Henao & Lucas)
    truncated_mean   the mean given that the merge is still to come: exact and always positive
    peak             where the pair's likelihood alone peaks, t* = (ε/d − a_i − a_j)/2

The first two can point before the last merge; the waiting time is then 0. Of equal pairs the one with the smallest
node ids goes first.

Every cluster stores the earlier-numbered partner it would merge with first and the distance of the closest one.
The due times of pairs rise as λ falls from merge to merge, and by more the farther apart they are, so what a cluster
has stored remains a rigorous bound; its partners are searched again only when that bound comes first. A merge
costs O(n), and a tree O(n²) on all but contrived data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.errors import InputError
from coaltree.inference.greedy.neighbors import build_by_graph
from coaltree.inference.greedy.rules import MEAN, RULES, TRUNCATED_MEAN, comes_first, expected, farthest
from coaltree.inference.greedy.state import CROWDED, Clusters, join, pack, singletons
from coaltree.inference.greedy.truncated import build_truncated
from coaltree.model.diffusion import pair_distances, whiten_leaves
from coaltree.model.gig import tables
from coaltree.model.gig.tables import GigTable
from coaltree.tree import Tree
from coaltree.validation import check_choice, check_count

# Below this many leaves a table of means costs more than it saves.
TABLE_FROM = 64
# Relative slack for rounding in a bound.
_ROUNDING = 4e-16


@inline
def look_through(state: Clusters, rule: int, d: float, lam: float, highest: float, i: int, table: GigTable) -> None:
    """Find the first pair due in row i; `highest` is the largest offset."""
    row = state.eps[i * (i - 1) // 2 : i * (i + 1) // 2]
    offset, node = state.offset, state.node
    best = closest = nearby = within = math.inf
    best_j = -1
    for j in range(i):
        # One comparison rules out most: too far to come first, and not the closest.
        if row[j] <= within and node[j] >= 0:
            closest = min(closest, row[j])
            due = expected(rule, d, row[j], lam, table) - (offset[i] + offset[j])
            if due < best or (due == best and best_j >= 0 and node[j] < node[best_j]):
                best, best_j, nearby = due, j, row[j]
                within = max(farthest(rule, d, lam, best + offset[i] + highest), closest)
    state.partner[i] = best_j
    state.sure[i] = 1 if nearby == closest else 0
    state.closest[i] = closest
    state.value[i] = expected(rule, d, closest, lam, table) if best_j >= 0 else 0.0
    state.bound[i] = best


@inline
def refresh(state: Clusters, rule: int, d: float, lam: float, i: int, table: GigTable) -> None:
    """Raise the bound of row i to the present λ; exact if the row is sure of its partner."""
    if state.closest[i] == math.inf:
        return
    value = expected(rule, d, state.closest[i], lam, table)
    if state.sure[i] == 1:
        state.bound[i] = value - (state.offset[i] + state.offset[state.partner[i]])
    else:
        slack = _ROUNDING * (value + abs(state.bound[i]))
        state.bound[i] = max(state.bound[i], state.bound[i] + (value - state.value[i]) - slack)
    state.value[i] = value


@inline
def first_due(
    state: Clusters, rule: int, d: float, lam: float, size: int, highest: float, table: GigTable
) -> tuple[int, int]:
    """Slots i > j of the pair that is due first by a rule that ignores truncation."""
    bound, node = state.bound, state.node
    top = 1
    for i in range(1, size):
        if bound[i] < bound[top]:
            top = i
    best = math.inf
    best_i = best_j = -1
    for k in range(size):
        i = top if k == 0 else k
        if bound[i] > best or bound[i] == math.inf:
            continue
        refresh(state, rule, d, lam, i, table)
        if bound[i] > best:
            continue
        if state.sure[i] == 0:
            look_through(state, rule, d, lam, highest, i, table)
        j = state.partner[i]
        if j >= 0 and (best_i < 0 or comes_first(bound[i], node[i], node[j], best, node[best_i], node[best_j])):
            best, best_i, best_j = bound[i], i, j
    return best_i, best_j


@inline
def tell(state: Clusters, rule: int, d: float, lam: float, size: int, new: int, gone: int, table: GigTable) -> None:
    """Update the rows above: slot `gone` is dead, and slot `new` holds a new cluster."""
    offset, partner, closest, bound = state.offset, state.partner, state.closest, state.bound
    for q in range(gone + 1, size):
        if partner[q] == gone or partner[q] == new:
            partner[q] = -1
            state.sure[q] = 0
    own = offset[new]
    for q in range(new + 1, size):
        e = state.fresh[q]
        # The common case needs no Bessel function: not the closest, and even if it were it would come too late.
        if state.node[q] < 0 or (e >= closest[q] and state.value[q] - (offset[q] + own) >= bound[q]):
            continue
        refresh(state, rule, d, lam, q, table)
        value = expected(rule, d, e, lam, table)
        due = value - (offset[q] + own)
        if e < closest[q]:
            closest[q] = e
            state.value[q] = value
            state.sure[q] = 0
        if due < bound[q]:
            partner[q] = new
            bound[q] = due
            state.sure[q] = 1 if e == closest[q] else 0


@kernel
def agglomerate(state: Clusters, rule: int, d: float, table: GigTable, out: Ints, out_times: Floats) -> None:
    """Merge down to one cluster; `out` (n−1, 2) gets the children, `out_times` (n−1,) the times."""
    n = state.node.size
    size = n
    lam = 0.5 * n * (n - 1)
    now = 0.0
    highest = state.offset.max()
    kept = np.empty(n, np.int64)
    for i in range(n):
        look_through(state, rule, d, lam, highest, i, table)
    for stage in range(n - 1):
        live = n - stage
        if live < CROWDED * size:
            size = pack(state, size, kept)
            highest = state.offset[:size].max()
        i, j = first_due(state, rule, d, lam, size, highest, table)

        e, r = state.eps[i * (i - 1) // 2 + j], 2.0 * now + state.offset[i] + state.offset[j]
        if rule == MEAN:
            delta = 0.5 * (tables.exact_mean(d, e, lam) - r)
        else:
            delta = 0.5 * (expected(rule, d, e, lam, table) - r)
        now += max(delta, 0.0)
        out[stage, 0] = min(state.node[i], state.node[j])
        out[stage, 1] = max(state.node[i], state.node[j])
        out_times[stage] = now

        join(state, size, i, j, now)
        state.node[i] = n + stage
        lam = 0.5 * (live - 1) * (live - 2)
        if stage == n - 2:
            break
        look_through(state, rule, d, lam, highest, i, table)
        tell(state, rule, d, lam, size, i, j, table)


def build(eps: Floats, d: int, leaf_noise: Floats, rule: int) -> tuple[Ints, Floats]:
    """Children (n−1, 2) and times (n−1,) from packed squared distances `eps` (P,), which are overwritten."""
    if rule == TRUNCATED_MEAN:
        return build_truncated(eps, d, leaf_noise)
    n = len(leaf_noise)
    table = tables.empty_table()
    if n >= TABLE_FROM and rule == MEAN:
        largest = float(eps.max())
        smallest = float(eps.min())
        if largest > 0.0:
            table = tables.make_mean_table(d, smallest or largest * 1e-12, 0.5 * n * (n - 1) * largest)
    state = singletons(eps, leaf_noise)
    children, times = np.empty((n - 1, 2), dtype=np.int64), np.empty(n - 1)
    agglomerate(state, rule, float(d), table, children, times)
    return children, times


def greedy_tree(
    X: npt.ArrayLike,
    covariance: npt.ArrayLike | None = None,
    *,
    rule: str = "mean",
    leaf_noise: npt.ArrayLike = 0.0,
    names: Iterable[str] | None = None,
    neighbors: int | None = None,
) -> Tree:
    """Build one tree by repeatedly merging the pair that is due first.

    Time grows as n², and memory is that of the n(n−1)/2 distances, unless `neighbors` is given.

    Parameters
    ----------
    X : array-like (n, d)
        One row per leaf.
    covariance : array-like (d, d) or (d,), optional
        Covariance Φ of the diffusion per unit of time, or the variances of a diagonal one. Default: the identity.
    rule : {"mean", "mode", "truncated_mean", "peak"}
        When a pair is due: at the mean or the mode of its merge time, at the mean given that it has not merged yet, or
        at the time at which its likelihood alone is highest.
    leaf_noise : float or array-like (n,)
        Variance of each leaf around its true value, in units of the covariance.
    names : sequence of str, optional
        Names of the leaves.
    neighbors : int, optional
        Consider only this many nearest neighbours of every cluster, and those it inherits, so that memory grows as n:
        for tables whose distances do not fit in memory. The tree is then an approximation that improves with the number
        of neighbours; 16 is a good start. Not with ``rule="truncated_mean"``.

    Returns
    -------
    Tree

    Examples
    --------
    >>> import coaltree as ct
    >>> X = ct.sample_data(ct.sample_tree(8, random_state=1), 5, random_state=2)
    >>> ct.greedy_tree(X).cut(n_clusters=2)
    array([0, 0, 1, 1, 1, 1, 1, 0])
    """
    code = RULES[check_choice(rule, "rule", tuple(RULES))]
    if neighbors is not None:
        neighbors = check_count(neighbors, "neighbors", at_least=1)
        if code == TRUNCATED_MEAN:
            raise InputError("rule must be 'mode', 'mean' or 'peak' if neighbors is given, got 'truncated_mean'.")
    leaves = whiten_leaves(X, covariance, leaf_noise)
    if neighbors is not None:
        children, times = build_by_graph(leaves.rows, leaves.noise, code, neighbors)
    else:
        children, times = build(pair_distances(leaves.rows), leaves.rows.shape[1], leaves.noise, code)
    return Tree(children, times, names)
