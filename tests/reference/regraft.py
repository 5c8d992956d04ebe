"""Where a cut-off subtree may hang and how it is proposed, from the definitions: the plain twin of `survey`.

What the rest of the tree expects at a point is found by kriging: dense linear algebra on the covariance of Brownian
motion, with an unknown constant mean for the flat root. No messages are passed.
"""

from __future__ import annotations

import math

import numpy as np

N_SIDE, DEPTH, NEAR, ROUGHLY = 8, 60.0, 6.0, 0.1


class Pruned:
    """A tree without the subtree under `cut`: `up` maps each node of the rest to its parent (None above the root)."""

    def __init__(self, tree, X, leaf_noise, cut):
        self.tree, self.X, self.noise, self.cut = tree, X, np.broadcast_to(leaf_noise, len(X)), cut
        self.time = tree.node_times()
        parents = [p if p >= 0 else None for p in tree.parents().tolist()]
        gone = parents[cut]
        inside = {node for node in range(len(parents)) if cut in ancestors(node, parents)}
        self.inside = sorted(node for node in inside if node < tree.n_leaves)
        self.up = {
            node: parents[gone] if parents[node] == gone else parents[node]
            for node in range(len(parents))
            if node not in inside and node != gone
        }
        self.others = sorted(t for k, t in enumerate(tree.times) if tree.n_leaves + k != gone)
        self.mean, self.variance = krige(self.inside, parents, self, cut, self.time[cut])

    def edges(self):
        """{lower node: (earliest, latest)} of all edges that reach past the birth of the subtree."""
        ends = {}
        for node, parent in self.up.items():
            low, high = max(self.time[node], self.time[self.cut]), math.inf if parent is None else self.time[parent]
            if low < high:
                ends[node] = (low, high)
        return ends

    def exposure(self, t):
        """Λ(t) and Λ′(t)."""
        total, before, lineages = 0.0, 0.0, self.tree.n_leaves - 1
        for merge in self.others:
            if merge > t:
                break
            total += lineages * (merge - before)
            before, lineages = merge, lineages - 1
        return total + lineages * (t - before), lineages

    def expected(self, node, t):
        """v and ε of hanging the subtree above `node` at t."""
        leaves = [leaf for leaf in self.up if leaf < self.tree.n_leaves]
        mean, variance = krige(leaves, self.up, self, node, t)
        return self.variance + t - self.time[self.cut] + variance, float(((self.mean - mean) ** 2).sum())

    def log_f(self, node, t):
        v, eps = self.expected(node, t)
        return -self.exposure(t)[0] - self.X.shape[1] / 2 * math.log(v) - eps / (2 * v)


def ancestors(node, parents):
    """The node itself and everything above it."""
    chain = []
    while node is not None:
        chain.append(node)
        node = parents[node]
    return chain


def krige(leaves, parents, rest, node, t):
    """Mean and variance at time t on the edge above `node`, given `leaves`, for Brownian motion with unknown level."""

    def meeting(a, b):
        above = set(ancestors(b, parents))
        return rest.time[next(x for x in ancestors(a, parents) if x in above)]

    far = 1.0 + max(t, rest.time.max())
    K = np.array([[far - meeting(a, b) for b in leaves] for a in leaves]) + np.diag(rest.noise[leaves])
    k = np.array([far - max(t, meeting(a, node)) for a in leaves])
    one, values = np.ones(len(leaves)), rest.X[leaves]
    inverse = np.linalg.inv(K)
    level = (one @ inverse @ values) / (one @ inverse @ one)
    mean = level + k @ inverse @ (values - level)
    variance = far - t - k @ inverse @ k + (1 - one @ inverse @ k) ** 2 / (one @ inverse @ one)
    return mean, float(variance)


def peak_and_width(rest, node, low, high):
    """Newton's method for v² (log f)′ = 0 inside a bracket; v and ε are quadratic in t, so three points give them."""
    d = rest.X.shape[1]
    at = np.array([low, (low + high) / 2, high])
    v_poly, eps_poly = (np.poly1d(np.polyfit(at - low, y, 2)) for y in zip(*(rest.expected(node, t) for t in at)))

    def slope(t):
        v, eps, rate = v_poly(t - low), eps_poly(t - low), rest.exposure(t)[1]
        dv, de = v_poly.deriv()(t - low), eps_poly.deriv()(t - low)
        if v <= 1e-12 * v_poly(high - low):
            return math.inf, math.inf
        value = -rate - (dv * (d - eps / v) + de) / (2 * v)
        curve, bend = v_poly.deriv(2)(0), eps_poly.deriv(2)(0)
        change = -2 * rate * dv - curve * (d - eps / v) / 2 - bend / 2 - d * dv**2 / (2 * v)
        return value, -value * v / change if change < 0 else math.inf

    left, right, t = low, high, high
    value = slope(high)[0]
    if value < 0:
        t, value = low, slope(low)[0]
        if value > 0:
            t = (low + high) / 2
            for _ in range(60):
                value, step = slope(t)
                left, right = (t, right) if value > 0 else (left, t)
                before, t = t, t + step
                if not left < t < right:
                    t = (left + right) / 2
                if abs(t - before) * v_poly.deriv()(t - low) <= ROUGHLY / math.sqrt(1 + d / 2) * v_poly(t - low):
                    break
            value = 0.0
    v, dv = v_poly(t - low), v_poly.deriv()(t - low)
    curvature = value**2 + d / 2 * (dv / v) ** 2 + eps_poly.deriv(2)(0) / (2 * v)
    return t, min(max(curvature**-0.5, 1e-9 * (high - low)), high - low)


def knots(rest, node, low, high):
    """Times and log f at the knots of an edge."""
    peak, width = peak_and_width(rest, node, low, high)
    top = rest.log_f(node, peak)
    times = [peak]
    for end in (low, high):
        reach = abs(end - peak)
        first = min(width / 2, reach)
        ratio = max(1.5, (reach / first) ** (1 / (N_SIDE - 1))) if first > 0 else 1.5
        offsets = [min(first * ratio**k, reach) for k in range(N_SIDE - 1)]
        times += [peak + math.copysign(offset, end - peak) for offset in offsets] + [end]
    times = np.unique(np.clip(times, low, high))
    with np.errstate(divide="ignore"):
        logs = [rest.log_f(node, t) if rest.expected(node, t)[0] > 1e-14 else -math.inf for t in times]
    return times, np.maximum(logs, top - DEPTH), width


def knot_mass(times, logs):
    """∫ of the exponential of the interpolated logs."""
    fall = np.diff(logs)
    mean = np.where(np.abs(fall) > 1e-9, np.expm1(fall) / np.where(fall == 0, 1, fall), 1.0)
    return float((np.diff(times) * np.exp(logs[:-1]) * mean).sum())


def log_proposal(rest, node, t):
    """Log q(edge, time), with the mass of the edge above the root by quadrature."""
    edges = rest.edges()
    rough, fine, laid = {}, {}, {}
    for edge, (low, high) in edges.items():
        if high == math.inf:
            grid = low + np.geomspace(1e-7, 60.0, 4000) - 1e-7
            heights = np.exp([rest.log_f(edge, x) for x in grid[1:]])
            fine[edge] = math.log(np.trapezoid(heights, grid[1:]))
            rough[edge] = fine[edge]
        else:
            times, logs, width = laid[edge] = knots(rest, edge, low, high)
            rough[edge] = logs.max() + math.log(min(2.5 * width, high - low))
            fine[edge] = logs.max() + math.log(knot_mass(times, logs - logs.max()))
    near = max(rough.values()) - NEAR
    masses = {edge: fine[edge] if rough[edge] > near else rough[edge] for edge in edges}
    shape = np.interp(t, laid[node][0], laid[node][1]) if node in laid else rest.log_f(node, t)
    return masses[node] - np.logaddexp.reduce(list(masses.values())) + shape - fine[node]
