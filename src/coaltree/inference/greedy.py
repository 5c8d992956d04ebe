r"""One tree, merge by merge: the pair with the smallest expected (or likeliest) waiting time goes next.

    mode             mode of the GIG of the pair, untruncated (Teh et al. 2008)
    mean             its mean, untruncated (Henao & Lucas)
    truncated_mean   the mean given that the merge is still to come: exact and always positive
    peak             where the pair's likelihood alone peaks, t* = (ε/d − a_i − a_j)/2

The first two can point before the last merge; the waiting time is then 0. Of equal pairs the one with the smallest
node ids goes first.

Every cluster remembers the earlier-numbered partner it would merge with first and the distance of the closest one.
The due times of pairs rise as λ falls from merge to merge, and by more the farther apart they are, so what a cluster
remembers stays a certified bound; its partners are looked through again only when that bound comes first. A merge
costs O(n), and a tree O(n²) on all but contrived data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from coaltree._compile import inline, kernel
from coaltree.inference.clusters import CROWDED, Clusters, join, pack, singletons
from coaltree.inference.particles import Floats, Ints
from coaltree.model import gig, tables
from coaltree.model.diffusion import leaf_distances
from coaltree.model.tables import Table
from coaltree.tree import Tree
from coaltree.validation import check_choice

MODE, MEAN, TRUNCATED_MEAN, PEAK = range(4)
RULES = {"mode": MODE, "mean": MEAN, "truncated_mean": TRUNCATED_MEAN, "peak": PEAK}
# Below this many leaves a table of means costs more than it saves.
TABLE_FROM = 64
# Relative slack for what rounding, and the table of means, may do to a bound.
_ROUNDING, _TABLE_ERROR = 4e-16, 1e-8


@inline
def expected(rule: int, d: float, eps: float, lam: float, table: Table) -> float:
    """v at which a pair is expected to merge, whatever has happened before; 2t = v − a_i − a_j is its due time."""
    if rule == PEAK:
        return eps / d
    if rule == MODE:
        # (−d/2 + √(d²/4 + λε))/λ without cancellation.
        return eps / (0.5 * d + math.sqrt(0.25 * d * d + lam * eps))
    return tables.mean(table, d, eps, lam)


@inline
def farthest(rule: int, d: float, lam: float, v: float) -> float:
    """An ε from which on `expected` is at least v: the inverse of a lower bound, for the mean Segura's (2011)."""
    if v <= 0.0:
        return 0.0
    if rule == PEAK:
        return d * v * (1.0 + _TABLE_ERROR)
    # (c + √(c² + λε))/λ with c = −d/2 is the mode; with (3 − d)/2, or (2 − d)/2 if d < 3, a bound of the mean.
    less = 0.0 if rule == MODE else (3.0 if d >= 3.0 else 2.0)
    return v * (lam * v + (d - less)) * (1.0 + _TABLE_ERROR)


@inline
def excess_floor(d: float, eps: float, lam: float, r_low: float, r_high: float, mean: float) -> float:
    """Lower bound on the mean of v − r given v > r, for every r from r_low to r_high.

    Truncation only raises the mean. And a density whose log falls nowhere beyond r faster than β is stochastically
    larger than an exponential of rate β; here β is d/2v − ε/2v² + λ/2 at its largest, v = 2ε/d or r.
    """
    top = d * d / (8.0 * eps) if d * r_low < 2.0 * eps else (d - eps / r_low) / (2.0 * r_low)
    return max(mean * (1.0 - _TABLE_ERROR) - r_high, (1.0 - _TABLE_ERROR) / (0.5 * lam + top))


@inline
def comes_first(due: float, node_i: int, node_j: int, best: float, best_i: int, best_j: int) -> bool:
    """Whether a pair is due before the best so far; of equal times the smaller node ids go first."""
    if due != best:
        return due < best
    low, best_low = min(node_i, node_j), min(best_i, best_j)
    return low < best_low or (low == best_low and max(node_i, node_j) < max(best_i, best_j))


@inline
def look_through(state: Clusters, rule: int, d: float, lam: float, highest: float, i: int, table: Table) -> None:
    """Find the first pair due in row i; `highest` is the largest offset."""
    row = state.eps[i * (i - 1) // 2 : i * (i + 1) // 2]
    offset, node = state.offset, state.node
    best = closest = nearby = within = math.inf
    best_j = -1
    for j in range(i):
        # One comparison dismisses most: too far to come first, and not the closest.
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
def refresh(state: Clusters, rule: int, d: float, lam: float, i: int, table: Table) -> None:
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
    state: Clusters, rule: int, d: float, lam: float, size: int, highest: float, table: Table
) -> tuple[int, int]:
    """Slots i > j of the pair that is due first by a rule that looks at no truncation."""
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
def first_truncated(
    state: Clusters, d: float, lam: float, now: float, size: int, highest: float, table: Table
) -> tuple[int, int]:
    """Slots i > j of the pair with the smallest mean wait given that it is still to come.

    A row's due time 2t = 2 now + E[v − r | v > r] only rises, and is also bounded by its closest pair.
    """
    offset, node, bound = state.offset, state.node, state.bound
    lowest = math.inf
    for i in range(size):
        if node[i] >= 0:
            lowest = min(lowest, offset[i])
    top = 1
    for i in range(1, size):
        if bound[i] < math.inf:
            base = 2.0 * now + offset[i]
            closest = state.closest[i]
            mean = expected(MEAN, d, closest, lam, table)
            floor = excess_floor(d, closest, lam, base + lowest, base + highest, mean)
            bound[i] = max(bound[i], 2.0 * now + floor)
        if bound[i] < bound[top]:
            top = i
    best = math.inf
    best_i = best_j = -1
    for k in range(size):
        i = top if k == 0 else k
        if bound[i] > best or bound[i] == math.inf:
            continue
        row = state.eps[i * (i - 1) // 2 : i * (i + 1) // 2]
        closest = least = math.inf
        for j in range(i):
            if node[j] < 0:
                continue
            closest = min(closest, row[j])
            r = 2.0 * now + (offset[i] + offset[j])
            mean = expected(MEAN, d, row[j], lam, table)
            due = 2.0 * now + excess_floor(d, row[j], lam, r, r, mean)
            if due <= best:
                due = 2.0 * now + gig.mean_excess(d, row[j], lam, r)
                if best_i < 0 or comes_first(due, node[i], node[j], best, node[best_i], node[best_j]):
                    best, best_i, best_j = due, i, j
            least = min(least, due)
        state.closest[i] = closest
        # Its own pairs may turn up a second time, equal but for rounding.
        bound[i] = least * (1.0 - _ROUNDING)
    return best_i, best_j


@inline
def tell(state: Clusters, rule: int, d: float, lam: float, size: int, new: int, gone: int, table: Table) -> None:
    """Let the rows above know that `gone` has gone and of the new cluster in slot `new`."""
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


@inline
def tell_truncated(state: Clusters, size: int, new: int) -> None:
    """Let the rows above know how close the new cluster in slot `new` is: when it is due is not known yet."""
    for q in range(new + 1, size):
        if state.node[q] >= 0:
            state.closest[q] = min(state.closest[q], state.fresh[q])
            state.bound[q] = 0.0


@kernel
def agglomerate(state: Clusters, rule: int, d: float, table: Table, out: Ints, out_times: Floats) -> None:
    """Merge down to one cluster; `out` (n−1, 2) gets the children, `out_times` (n−1,) the times."""
    n = state.node.size
    size = n
    bare = MEAN if rule == TRUNCATED_MEAN else rule
    lam = 0.5 * n * (n - 1)
    now = 0.0
    highest = state.offset.max()
    kept = np.empty(n, np.int64)
    for i in range(n):
        look_through(state, bare, d, lam, highest, i, table)
    for stage in range(n - 1):
        live = n - stage
        if live < CROWDED * size:
            size = pack(state, size, kept)
            highest = state.offset[:size].max()
        if rule == TRUNCATED_MEAN:
            i, j = first_truncated(state, d, lam, now, size, highest, table)
        else:
            i, j = first_due(state, rule, d, lam, size, highest, table)

        e, r = state.eps[i * (i - 1) // 2 + j], 2.0 * now + state.offset[i] + state.offset[j]
        if rule == MEAN:
            delta = 0.5 * (tables.exact_mean(d, e, lam) - r)
        elif rule == TRUNCATED_MEAN:
            delta = 0.5 * gig.mean_excess(d, e, lam, r)
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
        look_through(state, bare, d, lam, highest, i, table)
        if rule == TRUNCATED_MEAN:
            tell_truncated(state, size, i)
        else:
            tell(state, rule, d, lam, size, i, j, table)


def build(eps: Floats, d: int, leaf_noise: Floats, rule: int) -> tuple[Ints, Floats]:
    """Children (n−1, 2) and times (n−1,) from packed squared distances `eps` (P,), which are overwritten."""
    n = len(leaf_noise)
    table = tables.empty_table()
    if n >= TABLE_FROM and rule in (MEAN, TRUNCATED_MEAN):
        largest = float(eps.max())
        smallest = float(eps.min())
        if largest > 0.0:
            table = tables.make_mean_table(d, smallest or largest * 1e-12, 0.5 * n * (n - 1) * largest)
    state = singletons(eps, leaf_noise)
    children, times = np.empty((n - 1, 2), dtype=np.int64), np.empty(n - 1)
    agglomerate(state, rule, float(d), table, children, times)
    return children, times


def greedy_tree(
    X: Any,
    covariance: Any = None,
    rule: str = "mean",
    leaf_noise: Any = 0.0,
    names: Iterable[str] | None = None,
) -> Tree:
    """Build one tree by merging, again and again, the pair that is due first.

    Time grows as n², and memory is that of the n(n−1)/2 distances.

    Parameters
    ----------
    X : array-like (n, d)
        One row per leaf.
    covariance : array-like (d, d), optional
        Covariance Φ of the diffusion per unit of time. Default: the identity.
    rule : {"mean", "mode", "truncated_mean", "peak"}
        Waiting time that is compared and taken.
    leaf_noise : float or array-like (n,)
        Variance of each leaf around its true value, in units of the covariance.
    names : sequence of str, optional
        Names of the leaves.

    Returns
    -------
    Tree
    """
    code = RULES[check_choice(rule, "rule", tuple(RULES))]
    eps, noise, _ = leaf_distances(X, covariance, leaf_noise)
    children, times = build(eps, int(np.shape(X)[1]), noise, code)
    return Tree(children, times, names)
