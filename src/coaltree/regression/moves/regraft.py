r"""Regraft one outcome elsewhere in the tree and redraw its coefficients in the same move.

An outcome with few events has coefficients close to its neighbours' because of the tree, and a place in the tree close
to them because of its coefficients: drawn in turn, the two hold each other in place. So they are drawn together. Take
leaf j off the tree. Given the rest, R new places are drawn from the coalescent itself (an extra lineage meets each live
one at rate 1); together with the present place they are weighted by

    Ẑ_r = ∫ N(β_j; m_r, v_r Φ) N(β̄; 0, τ² I) N(μ_j) exp l̂_j(μ_j, β_j) d(μ_j, β_j),

in closed form, where N(m_r, v_r Φ) is the prior of a leaf at that place given the rest of the tree and l̂_j is the
pilot's expansion of outcome j's likelihood. One place is chosen by weight, (μ_j, β_j) drawn from that integrand, and
both accepted with probability min(1, exp[(l_j − l̂_j)(new) − (l_j − l̂_j)(old)]). The first two steps (iterated sampling
importance resampling) are reversible with respect to the same model with l̂_j in place of l_j, so the acceptance step
makes the move exact. `regraft_scaled` is the same for many features, in the coordinates of `preconditioner`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import kernel
from coaltree.model.messages import meet_by_weight
from coaltree.randomness import Stream, exponential, make_streams, uniform
from coaltree.regression.likelihood import Likelihood
from coaltree.regression.moves.coefficients import Pilot, Point
from coaltree.regression.moves.preconditioner import Frame
from coaltree.regression.prior import Hyper, Prior
from coaltree.tree import Tree

# Places to choose from: each costs K³, or K in the coordinates in which all is diagonal.
N_PLACES, N_SCALED_PLACES = 16, 256


class Places(NamedTuple):
    """Places where a leaf may attach, its present one first: on the branch above node `edge`, at `time`."""

    edge: Ints  # (R+1,)
    time: Floats  # (R+1,)
    mean: Floats  # (R+1, K), m
    variance: Floats  # (R+1,), v


def empty_places(n_features: int, n_places: int) -> Places:
    """Room for the present place and `n_places` others."""
    n = n_places + 1
    return Places(np.empty(n, dtype=np.int64), np.empty(n), np.empty((n, n_features)), np.empty(n))


@kernel
def survey(
    children: Ints, node_times: Floats, leaf: int, beta: Floats, noise: Floats, stream: Stream, places: Places
) -> None:
    """Fill `places`: the present one, then draws from the coalescent; node numbers are those of the whole tree."""
    n, n_features = beta.shape
    n_nodes = 2 * n - 1
    parent = np.full(n_nodes, -1)
    other = np.full(n_nodes, -1)
    for k in range(n - 1):
        i, j = children[k]
        parent[i], parent[j], other[i], other[j] = n + k, n + k, j, i
    # Remove the leaf: its sibling takes the place of their parent.
    gone, sibling = parent[leaf], other[leaf]
    above = parent[gone]
    parent[sibling], other[sibling] = above, other[gone]
    if above >= 0:
        other[other[gone]] = sibling
    root = sibling if above < 0 else n_nodes - 1

    # What the leaves below say about each node, merges in order of time.
    mean, variance = np.empty((n_nodes, n_features)), np.empty(n_nodes)
    mean[:n], variance[:n] = beta, noise
    for node in range(n, n_nodes):
        if node == gone:
            continue
        i, j = children[node - n]
        i, j = (sibling if i == gone else i), (sibling if j == gone else j)
        var_i = variance[i] + node_times[node] - node_times[i]
        var_j = variance[j] + node_times[node] - node_times[j]
        _, weight, variance[node] = meet_by_weight(var_i, var_j)
        mean[node] = weight * mean[i] + (1.0 - weight) * mean[j]
    # What all other leaves say about the upper end of the branch above each node.
    mean_above, variance_above = np.empty((n_nodes, n_features)), np.empty(n_nodes)
    for node in range(n_nodes - 1, -1, -1):
        q = parent[node]
        if node in (gone, leaf, root):
            continue
        side = other[node]
        from_side = variance[side] + node_times[q] - node_times[side]
        if q == root:
            mean_above[node], variance_above[node] = mean[side], from_side
        else:
            from_top = variance_above[q] + node_times[parent[q]] - node_times[q]
            _, weight, variance_above[node] = meet_by_weight(from_side, from_top)
            mean_above[node] = weight * mean[side] + (1.0 - weight) * mean_above[q]

    for r in range(places.edge.size):
        edge, time = sibling, node_times[gone]
        if r > 0:
            # The hazard of meeting is the number of live lineages, which falls by one at every merge of the others.
            wait, time, live = exponential(stream), 0.0, n - 1
            for node in range(n, n_nodes):
                if node == gone:
                    continue
                if wait < live * (node_times[node] - time):
                    break
                wait -= live * (node_times[node] - time)
                time = node_times[node]
                live -= 1
            time += wait / live
            chosen = int(uniform(stream) * live)
            for node in range(n_nodes):
                alive = node_times[node] <= time and (node == root or time < node_times[parent[node]])
                if node not in (leaf, gone) and alive:
                    if chosen == 0:
                        edge = node
                        break
                    chosen -= 1
        below = variance[edge] + time - node_times[edge]
        places.edge[r], places.time[r] = edge, time
        if edge == root:
            places.mean[r], places.variance[r] = mean[edge], below
        else:
            top = variance_above[edge] + node_times[parent[edge]] - time
            _, weight, places.variance[r] = meet_by_weight(below, top)
            places.mean[r] = weight * mean[edge] + (1.0 - weight) * mean_above[edge]
        places.variance[r] += time + noise[leaf]


def regrafted(tree: Tree, leaf: int, edge: int, time: float) -> Tree:
    """The tree with `leaf` attached to the branch above node `edge` at `time`."""
    n = tree.n_leaves
    parents, times = tree.parents(), tree.node_times()
    gone = int(parents[leaf])
    first, second = tree.children[gone - n]
    sibling = int(second if first == leaf else first)
    below = {node: list(pair) for node, pair in zip(range(n, 2 * n - 1), tree.children.tolist(), strict=True)}

    def replace(node: int, old: int, new: int) -> None:
        if node >= 0:
            below[node][below[node].index(old)] = new

    # Remove: the sibling moves up. Attach: the freed node is put in the middle of the new branch.
    replace(int(parents[gone]), gone, sibling)
    holder = int(parents[gone]) if edge == sibling else int(parents[edge])
    replace(holder, edge, gone)
    below[gone] = [leaf, edge]
    times[gone] = time
    order = n + np.argsort(times[n:], kind="stable")
    number = np.arange(2 * n - 1)
    number[order] = np.arange(n, 2 * n - 1)
    children = np.sort(number[np.array([below[int(node)] for node in order])], axis=1)
    return Tree(children, times[order], tree.names)


def expansion(pilot: Pilot, j: int, theta: Floats) -> float:
    """l̂_j(θ) − l_j(θ̂), the pilot's second-order expansion of outcome j."""
    gap = theta - pilot.theta[j]
    return float(gap @ (pilot.gradient[j] - 0.5 * pilot.curvature[j] @ gap))


def move_leaf(
    hyper: Hyper, point: Point, j: int, outcome: Likelihood, pilot: Pilot, prior: Prior, rng: np.random.Generator
) -> tuple[Hyper, Point, bool]:
    """Redraw outcome j's place and coefficients; `outcome` is its likelihood alone, labels (N, 1)."""
    assert hyper.unknowns is not None
    now = hyper.unknowns
    tree, covariance, noise = now.tree, now.covariance, now.leaf_noise
    theta = point.theta
    beta = np.ascontiguousarray(theta[:, 1:])
    n_outcomes, n_features = beta.shape
    places = empty_places(n_features, N_PLACES)
    survey(tree.children, tree.node_times(), j, beta, noise, make_streams(rng, 1)[0], places)

    # Prior of (μ_j, β_j) at each place times l̂_j: precision M, linear term b.
    half = covariance.whiten(np.eye(n_features))
    phi_inverse = half @ half.T
    level = (n_outcomes * hyper.spread) ** -2.0
    pulled = (places.mean @ phi_inverse) / places.variance[:, None]
    M = np.repeat(pilot.curvature[j][None], N_PLACES + 1, axis=0)
    M[:, 0, 0] += prior.intercept_sd**-2.0
    M[:, 1:, 1:] += phi_inverse / places.variance[:, None, None] + level * np.eye(n_features)
    b = np.tile(pilot.gradient[j] + pilot.curvature[j] @ pilot.theta[j], (N_PLACES + 1, 1))
    b[:, 1:] += pulled - level * (beta.sum(axis=0) - beta[j])
    factor = np.linalg.cholesky(M)
    solved = np.linalg.solve(factor, b[..., None])[..., 0]
    log_z = 0.5 * np.einsum("rk,rk->r", solved, solved) - np.log(np.einsum("rkk->rk", factor)).sum(axis=1)
    log_z -= 0.5 * (n_features * np.log(places.variance) + np.einsum("rk,rk->r", pulled, places.mean))
    weights = np.exp(log_z - log_z.max())
    chosen = int(rng.choice(N_PLACES + 1, p=weights / weights.sum()))
    noise_in = solved[chosen] + rng.standard_normal(n_features + 1)
    new = np.linalg.solve(factor[chosen].T, noise_in)

    values, gradient = outcome.values_and_gradient(new[None])
    gain = float(values[0] - point.values[j]) - expansion(pilot, j, new) + expansion(pilot, j, theta[j])
    if not -rng.exponential() < gain:
        return hyper, point, False
    moved = [part.copy() for part in point]
    moved[0][j], moved[1][j], moved[2][j] = new, values[0], gradient[0]
    if chosen > 0:
        tree = regrafted(tree, j, int(places.edge[chosen]), float(places.time[chosen]))
    return hyper._replace(unknowns=now._replace(tree=tree)), Point(*moved), True


@kernel
def log_evidences(
    places: Places, variance: float, likelihood_precision: Floats, linear: Floats, level: float, out: Floats
) -> None:
    """log Ẑ of every place into `out` (R+1,)."""
    n_features = len(linear)
    for r in range(len(out)):
        wide = places.variance[r] * variance
        inverse, fit, volume = 1.0 / wide, 0.0, 1.0
        for k in range(n_features):
            mean = places.mean[r, k]
            precision = likelihood_precision[k] + inverse + level
            pull = linear[k] + inverse * mean
            fit += pull * pull / precision - inverse * mean * mean
            volume *= precision * wide
            if volume > 1e200:  # logarithms are slow: one for many features
                fit, volume = fit - math.log(volume), 1.0
        out[r] = 0.5 * (fit - math.log(volume))


def regraft_scaled(
    hyper: Hyper, point: Point, j: int, outcome: Likelihood, frame: Frame, rng: np.random.Generator
) -> tuple[Hyper, Point, bool]:
    """Regraft outcome j elsewhere, its coefficients following.

    In the coordinates γ = (β_j/λ) U everything about outcome j is diagonal under l̂: its likelihood has precision w_j d,
    a place with prior N(m, vσ² I) adds 1/vσ², and the common level 1/(Pτ)². So the weights of R places cost O(RK), and
    γ = mean + precision^(−½) q keeps q. Hundreds of places are cheap, and an outcome that has a near relative needs
    them: few draws from the coalescent meet the relative's branch.
    """
    now, pilot, theta = hyper.unknowns, frame.pilot, point.theta
    assert now is not None
    assert hyper.widths is not None
    turned = frame.basis.rotate(np.vstack([theta[:, 1:] / hyper.widths, pilot.linear[j, 1:] * hyper.widths]))
    here, linear, n_outcomes = turned[j], turned[-1], len(theta)
    places = empty_places(len(here), N_SCALED_PLACES)
    survey(now.tree.children, now.tree.node_times(), j, turned[:-1], now.leaf_noise, make_streams(rng, 1)[0], places)
    level, likelihood_precision = (n_outcomes * hyper.spread) ** -2.0, pilot.weights[j] * frame.basis.spectrum
    variance = float(now.covariance.values["variance"])
    pull = linear - level * (turned[:-1].sum(axis=0) - here)
    log_z = np.empty(N_SCALED_PLACES + 1)
    log_evidences(places, variance, likelihood_precision, pull, level, log_z)
    cumulated = np.cumsum(np.exp(log_z - log_z.max()))
    chosen = int(np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right"))
    log_u = -rng.exponential()
    if chosen == 0:
        return hyper, point, False
    inverse = 1.0 / (places.variance[[0, chosen], None] * variance)
    precision = likelihood_precision + inverse + level
    centre = (pull + inverse * places.mean[[0, chosen]]) / precision
    there = centre[1] + (here - centre[0]) * np.sqrt(precision[0] / precision[1])
    new = np.empty((1, len(here) + 1))
    new[0, 1:] = frame.basis.rotate_back(there[None])[0] * hyper.widths
    new[0, 0] = pilot.sheared(theta)[j] - pilot.shear[j] @ new[0, 1:]
    values, gradient = outcome.values_and_gradient(new)
    gain = float(values[0] - point.values[j]) + 0.5 * frame.intercept * float(theta[j, 0] ** 2 - new[0, 0] ** 2)
    for sign, gamma in ((1.0, here), (-1.0, there)):
        gain += sign * float(gamma @ (linear - 0.5 * likelihood_precision * gamma))
    if not log_u < gain:
        return hyper, point, False
    moved = [part.copy() for part in point]
    moved[0][j], moved[1][j], moved[2][j] = new[0], values[0], gradient[0]
    tree = regrafted(now.tree, j, int(places.edge[chosen]), float(places.time[chosen]))
    return hyper._replace(unknowns=now._replace(tree=tree)), Point(*moved), True
