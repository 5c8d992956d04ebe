"""Where new points join one tree: the exact mass of every edge, for many points at once.

A new lineage meets each live lineage at rate 1, so given the tree it joins the edge above node a at time t with density

    f(a, t) = exp(−Λ(t)) N(x; μ(a, t), v(a, t) Φ),   Λ′(t) = number of live lineages,

where μ is the tree's expected value at that place and v includes the new point's own branch to it
(`inference.moves.edge_density`). The sum over edges of ∫ f dt is p(x | X, tree), since the coalescent of n + 1 leaves
restricted to n is that of n.

Messages are convex combinations of rows, so all distances between the new point and messages follow from its distances
to the rows by |z − (1 − ω)x − ωy|² = (1 − ω)|z − x|² + ω|z − y|² − ω(1 − ω)|x − y|²: the cost of the dimension is paid
once, not once per tree, and a new point enters only through its distances to the rows.

Above the root the integral is that of a truncated GIG. Elsewhere it is a sum over a grid of times, one per tree for all
points that may join it. Where f changes too fast for the grid, as for a point very close to a row, Gauss–Legendre is
used on intervals that double away from the peak. Edges that a bound on f shows to be negligible are left out.

For the grid, the mass of a place along an edge is exp(−Λ(t)) g(t), g = v^(−d/2) exp(−ε/2v). The first factor belongs to
the tree: it has a kink at each merge, and is the same for every point. The second is smooth, on the scale of v. So each
edge is cut into intervals short compared with v, and g is interpolated between p Gauss–Legendre nodes of each, weighted
by

    W_j = ∫ exp(−Λ) ℓ_j dt,   ℓ_j = w_j Σ_m (m + ½) P_m(x_j) P_m   (Lagrange's polynomials by Legendre's),

exact for the kinks. A point then costs one exponential per node.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline, kernel
from coaltree.inference.moves.edge_density import (
    Edge,
    Others,
    blend_distance,
    expectation,
    exposure,
    fill_exposure,
    n_until,
)
from coaltree.inference.moves.mutable_tree import MutableTree, look_above, make_chain, other_child
from coaltree.inference.predictive.cells import no_cells
from coaltree.inference.predictive.edge_mass import N_SUMS, add_logs, integrate, log_bound
from coaltree.model import gig
from coaltree.model.messages import meet, squared_distance
from coaltree.tree import Tree

ORDER = 6
GRID_NODES, GRID_WEIGHTS = np.polynomial.legendre.leggauss(ORDER)
FINE_NODES, FINE_WEIGHTS = np.polynomial.legendre.leggauss(ORDER + 2)
_LEGENDRE = np.polynomial.legendre.legvander(GRID_NODES, ORDER - 1)  # (node, degree)
# Rows: nodes; columns: degrees. Times the moments ∫ exp(−Λ) P_m it gives the weights.
FROM_MOMENTS = np.ascontiguousarray(GRID_WEIGHTS[:, None] * _LEGENDRE * (np.arange(ORDER) + 0.5))
# Length of an interval relative to v/2, or less in many dimensions, where g is narrower.
LONGEST, PER_ROOT_D = 1.0, 2.0
# Where v starts at 0 the grid starts at this fraction of its end; closer points are integrated separately.
SMALLEST = 1e-6
# exp(−Λ) is integrated in steps of Λ no longer than this, and not at all when it has fallen by e^(−FALL).
SHORT, FALL = 3.0, 46.0


class Grid(NamedTuple):
    """Nodes of all edges; those of one edge are first[edge] … first[edge + 1] − 1."""

    first: Ints  # (number of edges + 1,), in intervals
    weight: Floats  # (intervals, ORDER), in units of exp(log_scale)
    log_scale: Floats  # (intervals,): −Λ at the start
    time: Floats  # (intervals, ORDER)
    share: Floats  # (intervals, ORDER): ω
    log_v: Floats  # (intervals, ORDER)
    half_precision: Floats  # (intervals, ORDER): 1/2v


@inline
def _variance(below: float, above: float, noise: float, time: float) -> float:
    alpha = below + time
    return noise + time + alpha * (1.0 - alpha / (below + above))


@inline
def _next_time(below: float, above: float, noise: float, time: float, high: float, step: float) -> float:
    """End of the interval that starts at `time`."""
    v = max(_variance(below, above, noise, time), SMALLEST * _variance(below, above, noise, high))
    after = time + 0.5 * step * v
    # No sliver at the end.
    return high if after > high - 0.2 * (after - time) else after


@kernel
def count_intervals(low: Floats, high: Floats, below: Floats, above: Floats, noise: float, step: float) -> Ints:
    """First interval of every edge, and their number, (edges + 1,)."""
    first = np.zeros(low.size + 1, dtype=np.int64)
    for edge in range(low.size):
        count = 0
        time = low[edge]
        while time < high[edge]:
            time = _next_time(below[edge], above[edge], noise, time, high[edge], step)
            count += 1
        first[edge + 1] = first[edge] + count
    return first


@inline
def _fill_moments(merges: Others, low: float, high: float, out: Floats) -> None:
    """∫ exp(Λ(low) − Λ(t)) P_m(x) dt over the interval, x from −1 to 1."""
    half, middle = 0.5 * (high - low), 0.5 * (high + low)
    out[:] = 0.0
    fallen = 0.0
    start = low
    done = n_until(merges.times, low)
    while start < high and fallen < FALL:
        rate = merges.times.size + 1.0 - done
        end = min(high, merges.times[done]) if done < merges.times.size else high
        done += 1
        if end <= start:
            continue
        n_steps = int(rate * (end - start) / SHORT) + 1
        length = (end - start) / n_steps
        for step in range(n_steps):
            if fallen > FALL:
                break
            left = start + step * length
            for k in range(FINE_NODES.size):
                along = 0.5 * length * (1.0 + FINE_NODES[k])
                mass = 0.5 * length * FINE_WEIGHTS[k] * math.exp(-fallen - rate * along)
                x = (left + along - middle) / half
                before, now = 0.0, 1.0
                for m in range(ORDER):
                    out[m] += mass * now
                    before, now = now, ((2 * m + 1) * x * now - m * before) / (m + 1)
            fallen += rate * length
        start = end


@kernel
def fill_grid(
    merges: Others, low: Floats, high: Floats, below: Floats, above: Floats, noise: float, step: float, out: Grid
) -> None:
    """Fill the grid on every edge."""
    moments = np.empty(ORDER)
    for edge in range(low.size):
        time = low[edge]
        for i in range(out.first[edge], out.first[edge + 1]):
            end = _next_time(below[edge], above[edge], noise, time, high[edge], step)
            done = n_until(merges.times, time)
            before = merges.times[done - 1] if done > 0 else 0.0
            out.log_scale[i] = -(merges.exposure[done] + (merges.times.size + 1.0 - done) * (time - before))
            _fill_moments(merges, time, end, moments)
            for j in range(ORDER):
                weight = 0.0
                for m in range(ORDER):
                    weight += FROM_MOMENTS[j, m] * moments[m]
                at = time + 0.5 * (end - time) * (1.0 + GRID_NODES[j])
                v = _variance(below[edge], above[edge], noise, at)
                out.weight[i, j] = weight
                out.time[i, j] = at
                out.share[i, j] = (below[edge] + at) / (below[edge] + above[edge])
                out.log_v[i, j] = math.log(v)
                out.half_precision[i, j] = 0.5 / v
            time = end


def make_grid(merges: Others, low: Floats, high: Floats, below: Floats, above: Floats, noise: float, d: int) -> Grid:
    """Make a grid on edges from `low` to `high`, with α = below + t and β = above − t, for points with this noise."""
    step = min(LONGEST, PER_ROOT_D / math.sqrt(d))
    first = count_intervals(low, high, below, above, noise, step)
    shape = (int(first[-1]), ORDER)
    grid = Grid(
        first, np.empty(shape), np.empty(shape[0]), np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape)
    )
    fill_grid(merges, low, high, below, above, noise, step, grid)
    return grid


# Edges whose share is shown to be below e^(−NEGLIGIBLE) of the sum, over the number of edges, are left out.
NEGLIGIBLE = 16.0
# As `edge_mass.integrate` has it.
SMOOTH = 1e-4
# The grid is trusted where log g changes by less than this from one end of an interval to the other,
# or where the edge has less than e^(−MATTERS) of the sum so far.
STEEP = 8.0
MATTERS = 13.0
# Stands for an infinite log mass, and unlike infinity can be subtracted from itself.
POLE = 1e300


class Sites(NamedTuple):
    """A tree over n leaves as a new point sees it; an edge has its lower node's number, merge k is node n + k."""

    children: Ints  # (n−1, 2)
    parent: Ints  # (2n−1,)
    time: Floats  # (2n,), the last infinite
    below: Floats  # (2n−1,), as in `edge_density.Edge`
    above: Floats  # (2n−1,)
    share_below: Floats  # (2n−1,): a merge's mean is (1 − share) of its first child's and share of its second's
    gap_below: Floats  # (2n−1,): squared distance between these two
    share_above: Floats  # (2n−1,): likewise the message from above, of the sibling's mean and the parent's from above
    gap_above: Floats  # (2n−1,)
    span: Floats  # (2n−1,): squared distance between a node's own mean and its message from above
    mean: Floats  # (2n−1, d): messages from below
    above_mean: Floats  # (2n−1, d): messages from above, at the parent
    log_prior: Floats  # (2n−1,): bound on log ∫ exp(−Λ) along the edge
    merges: Others  # all merge times and Λ there


def make_sites(tree: Tree, rows: Floats, leaf_noise: Floats) -> Sites:
    """Describe a tree over whitened rows (n, d)."""
    n = tree.n_leaves
    state = make_chain(tree, rows, leaf_noise)
    zeros = np.zeros((8, 2 * n - 1))
    sites = Sites(
        children=tree.children,
        parent=np.append(tree.parents()[:-1], 2 * n - 1),
        time=state.time,
        below=zeros[0],
        above=zeros[1],
        share_below=zeros[2],
        gap_below=zeros[3],
        share_above=zeros[4],
        gap_above=zeros[5],
        span=zeros[6],
        mean=state.mean,
        above_mean=state.above_mean,
        log_prior=zeros[7],
        merges=Others(tree.times, np.zeros(n), np.ones(n)),
    )
    _describe(state, sites)
    return sites


@kernel
def _describe(state: MutableTree, out: Sites) -> None:
    n = len(out.children) + 1
    fill_exposure(out.merges)
    for node in range(2 * n - 2, -1, -1):
        look_above(state, node)
        parent = out.parent[node]
        high = out.time[parent]
        out.below[node] = state.variance[node] - out.time[node]
        out.above[node] = state.above_variance[node] + high
        if node >= n:
            left, right = out.children[node - n]
            var_left = state.variance[left] + out.time[node] - out.time[left]
            var_right = state.variance[right] + out.time[node] - out.time[right]
            _, out.share_below[node], _ = meet(var_left, var_right)
            out.gap_below[node] = squared_distance(state.mean, left, state.mean, right)
        if parent < 2 * n - 1:
            sibling = other_child(state, node)
            var_sibling = state.variance[sibling] + high - out.time[sibling]
            var_above = state.above_variance[parent] + out.time[out.parent[parent]] - high
            _, out.share_above[node], _ = meet(var_sibling, var_above)
            if parent < 2 * n - 2:
                out.gap_above[node] = squared_distance(state.mean, sibling, state.above_mean, parent)
            out.span[node] = squared_distance(state.mean, node, state.above_mean, node)
        # Λ′ falls along the edge, so exp(−Λ) is at most what the last rate would give from the start.
        start = exposure(out.merges, out.time[node])[0]
        last_rate = 1.0 + n - 1 - n_until(out.merges.times, np.nextafter(high, 0.0)) if high < math.inf else 1.0
        out.log_prior[node] = -start + math.log(min(high - out.time[node], 1.0 / last_rate))


@inline
def _fill_distances(sites: Sites, eps: Floats, eps_below: Floats, eps_above: Floats) -> None:
    """Squared distances from one point to all messages, given those to the rows, eps (n,)."""
    n = eps.size
    for i in range(n):
        eps_below[i] = eps[i]
    for node in range(n, 2 * n - 1):
        left, right = sites.children[node - n]
        eps_below[node] = blend_distance(
            sites.share_below[node], eps_below[left], eps_below[right], sites.gap_below[node]
        )
    eps_above[2 * n - 2] = 0.0
    for node in range(2 * n - 2, n - 1, -1):
        left, right = sites.children[node - n]
        for child, sibling in ((left, right), (right, left)):
            eps_above[child] = blend_distance(
                sites.share_above[child], eps_below[sibling], eps_above[node], sites.gap_above[child]
            )


@inline
def _sum_over_grid(
    edge: Edge, grid: Grid, first: int, stop: int, d: float, state_logs: Floats
) -> tuple[float, float, bool]:
    """Log ∫ f over a bounded edge, the mean time, and whether f is smooth enough for the grid."""
    top = -math.inf
    smooth = True
    for i in range(first, stop):
        for j in range(ORDER):
            eps = blend_distance(grid.share[i, j], edge.eps_below, edge.eps_above, edge.eps_span)
            value = grid.log_scale[i] - 0.5 * d * grid.log_v[i, j] - eps * grid.half_precision[i, j]
            state_logs[i - first, j] = value
            top = max(top, value)
    mass = 0.0
    moment = 0.0
    for i in range(first, stop):
        low_end, high_end = state_logs[i - first, 0], state_logs[i - first, ORDER - 1]
        smooth = smooth and (abs(high_end - low_end) < STEEP or max(low_end, high_end) < top - MATTERS)
        for j in range(ORDER):
            if state_logs[i - first, j] > top - 40.0:
                term = grid.weight[i, j] * math.exp(state_logs[i - first, j] - top)
                mass += term
                moment += term * grid.time[i, j]
    if not mass > 0.0:
        return -math.inf, edge.low, smooth
    return top + math.log(mass), min(max(moment / mass, edge.low), edge.high), smooth


def lay_grid(sites: Sites, leaf_noise: float, d: int) -> Grid:
    """Make the grid for new points with this noise on all edges except the one above the root."""
    low, high = sites.time[:-2], sites.time[sites.parent[:-1]]
    return make_grid(sites.merges, low, high, sites.below[:-1], sites.above[:-1], leaf_noise, d)


@kernel
def weigh_edges(sites: Sites, grid: Grid, eps: Floats, d: float, leaf_noise: float, out: Floats) -> None:
    """Log mass and mean time of every edge for every point, out (2, B, 2n−1); −inf where negligible.

    `eps` (B, n) are whitened squared distances to the rows, `leaf_noise` is the new points' own variance, for which
    the grid was made. The masses lack the constant −(d/2) log 2π − ½ log|Φ|.
    """
    longest = 0
    for node in range(grid.first.size - 1):
        longest = max(longest, grid.first[node + 1] - grid.first[node])
    logs = np.empty((longest, ORDER))
    n = eps.shape[1]
    root = 2 * n - 2
    eps_below, eps_above = np.empty(2 * n - 1), np.empty(2 * n - 1)
    bound, sums, none = np.empty(2 * n - 1), np.empty(N_SUMS), no_cells()
    margin = NEGLIGIBLE + math.log(2.0 * n)
    for b in range(len(eps)):
        _fill_distances(sites, eps[b], eps_below, eps_above)
        r = 2.0 * sites.time[root] + leaf_noise + sites.below[root]
        log_mass = -exposure(sites.merges, sites.time[root])[0] - math.log(2.0)
        log_mass += gig.log_local(d, eps_below[root], 1.0, r)
        out[0, b, root] = log_mass
        out[1, b, root] = sites.time[root] + 0.5 * gig.mean_excess(d, eps_below[root], 1.0, r)
        total = log_mass
        best = 0
        for node in range(root):
            edge = _edge(sites, node, leaf_noise, eps_below, eps_above)
            bound[node] = sites.log_prior[node] + log_bound(edge, none, node, d, edge.low, edge.high)
            if bound[node] > bound[best]:
                best = node
        # The likeliest edge first: it shows how little the others matter.
        for step in range(-1, root):
            node = best if step < 0 else step
            if step == best:
                continue
            out[0, b, node] = -math.inf
            out[1, b, node] = sites.time[node]
            edge = _edge(sites, node, leaf_noise, eps_below, eps_above)
            if bound[node] < total - margin or not edge.low < edge.high:
                continue
            if d > 1.0 and edge.eps_below <= 0.0 and expectation(edge, edge.low)[0] <= 0.0:
                # The point equals a noiseless row: the density has a pole there.
                out[0, b, node] = POLE
                total = POLE
                continue
            first, stop = grid.first[node], grid.first[node + 1]
            floor = total - margin
            mass, time, smooth = _sum_over_grid(edge, grid, first, stop, d, logs)
            too_close = edge.eps_below < 20.0 * d * SMALLEST * edge.high
            too_close = too_close and expectation(edge, edge.low)[0] < SMALLEST * edge.high
            if too_close or (not smooth and mass > total - MATTERS):
                mass, time = integrate(edge, none, node, sites.merges, d, floor, SMOOTH, sums)
            out[0, b, node], out[1, b, node] = mass, time
            total = add_logs(total, mass)


@inline
def _edge(sites: Sites, node: int, leaf_noise: float, eps_below: Floats, eps_above: Floats) -> Edge:
    return Edge(
        low=sites.time[node],
        high=sites.time[sites.parent[node]],
        below=sites.below[node],
        above=sites.above[node],
        offset=leaf_noise,
        eps_below=eps_below[node],
        eps_above=eps_above[node],
        eps_span=sites.span[node],
    )
