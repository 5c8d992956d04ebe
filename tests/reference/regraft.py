"""Where a cut-off subtree may hang and how a place is proposed, from the definitions: the plain twin of `survey`.

What the rest of the tree expects at a point is found by kriging: dense linear algebra on the covariance of Brownian
motion, with an unknown constant level for the flat root. No messages are passed.
"""

from __future__ import annotations

import math

import numpy as np

from tests.reference.weights import log_local

N_SIDE, DEPTH, NEAR, ROUGHLY = 3, 60.0, 6.0, 0.1


def ancestors(node, parents):
    """The node itself and everything above it."""
    chain = []
    while node is not None:
        chain.append(node)
        node = parents[node]
    return chain


def krige(leaves, parents, times, X, noise, node, t):
    """Mean and variance at time t on the edge above `node`, given `leaves`, for Brownian motion of unknown level."""

    def meeting(a, b):
        above = set(ancestors(b, parents))
        return times[next(x for x in ancestors(a, parents) if x in above)]

    far = 1.0 + max(t, times.max())
    K = np.array([[far - meeting(a, b) for b in leaves] for a in leaves]) + np.diag(noise[leaves])
    k = np.array([far - max(t, meeting(a, node)) for a in leaves])
    inverse, one = np.linalg.inv(K), np.ones(len(leaves))
    level = (one @ inverse @ X[leaves]) / (one @ inverse @ one)
    mean = level + k @ inverse @ (X[leaves] - level)
    variance = far - t - k @ inverse @ k + (1 - one @ inverse @ k) ** 2 / (one @ inverse @ one)
    return mean, float(variance)


class Edge:
    """One edge of the rest of the tree: v and ε are quadratic along it, so three points give them everywhere."""

    def __init__(self, low, high, d, others, expected):
        self.low, self.high, self.d, self.others = low, high, d, others
        self.length = 1.0 if high == math.inf else high - low
        y0, y1, y2 = (np.array(expected(low + x * self.length)) for x in (0.0, 0.5, 1.0))
        self.coefficients = np.array([y0, -3 * y0 + 4 * y1 - y2, 2 * (y0 - 2 * y1 + y2)]).T.tolist()

    def along(self, which, t):
        """Value, first and second derivative of v (0) or ε (1)."""
        c0, c1, c2 = self.coefficients[which]
        x = (t - self.low) / self.length
        return c0 + x * (c1 + x * c2), (c1 + 2 * x * c2) / self.length, 2 * c2 / self.length**2

    def exposure(self, t):
        """Λ(t) and Λ′(t)."""
        total, before, lineages = 0.0, 0.0, len(self.others) + 1
        for merge in self.others:
            if merge > t:
                break
            total += lineages * (merge - before)
            before, lineages = merge, lineages - 1
        return total + lineages * (t - before), lineages

    def log_f(self, t):
        v, eps = self.along(0, t)[0], self.along(1, t)[0]
        return -self.exposure(t)[0] - self.d / 2 * math.log(v) - eps / (2 * v) if v > 1e-14 else -math.inf

    def slope(self, t):
        """(log f)′ and Newton's step to a zero of v² (log f)′."""
        (v, dv, ddv), (eps, deps, ddeps), rate = self.along(0, t), self.along(1, t), self.exposure(t)[1]
        if v <= 1e-14:
            return math.inf, math.inf
        value = -rate - (dv * (self.d - eps / v) + deps) / (2 * v)
        change = -2 * rate * dv - ddv * (self.d - eps / v) / 2 - ddeps / 2 - self.d * dv**2 / (2 * v)
        return value, -value * v / change if change < 0 else math.inf

    def peak_and_width(self):
        low, high, t = self.low, self.high, self.high
        value = self.slope(high)[0]
        if value < 0:
            t, value = low, self.slope(low)[0]
            if value > 0:
                t = (low + high) / 2
                for _ in range(60):
                    value, step = self.slope(t)
                    low, high = (t, high) if value > 0 else (low, t)
                    before, t = t, t + step
                    if not low < t < high:
                        t = (low + high) / 2
                    v, dv, _ = self.along(0, t)
                    if abs(t - before) * dv <= ROUGHLY / math.sqrt(1 + self.d / 2) * v:
                        break
                value = 0.0
        v, dv, _ = self.along(0, t)
        width = (value**2 + self.d / 2 * (dv / v) ** 2 + self.along(1, t)[2] / (2 * v)) ** -0.5
        return t, min(max(width, 1e-9 * self.length), self.length)

    def lay_knots(self):
        """Knots, and the rough mass of the edge."""
        peak, width = self.peak_and_width()
        times = [peak]
        for end in (self.low, self.high):
            reach = abs(end - peak)
            first = min(width / 2, reach)
            ratio = max(1.5, (reach / first) ** (1 / (N_SIDE - 1))) if first > 0 else 1.5
            offsets = [min(first * ratio**k, reach) for k in range(N_SIDE - 1)]
            times += [peak + math.copysign(offset, end - peak) for offset in offsets] + [end]
        self.times = np.unique(np.clip(times, self.low, self.high))
        top = self.log_f(peak)
        self.logs = np.maximum([self.log_f(t) for t in self.times], top - DEPTH)
        return top + math.log(min(2.5 * width, self.length))

    def masses(self):
        """Masses between the knots, in units of the highest knot."""
        fall = np.diff(self.logs)
        relative = np.expm1(-np.abs(fall)) / np.where(fall == 0, 1.0, -np.abs(fall))
        higher = np.maximum(self.logs[1:], self.logs[:-1]) - self.logs.max()
        return np.diff(self.times) * np.exp(higher) * np.where(fall == 0, 1.0, relative)


class Proposal:
    """All places for the subtree under `cut`, and q over them."""

    def __init__(self, tree, X, leaf_noise, cut):
        n, times, noise = tree.n_leaves, tree.node_times(), np.broadcast_to(leaf_noise, len(X))
        parents = dict(enumerate(p if p >= 0 else None for p in tree.parents().tolist()))
        gone = parents[cut]
        subtree = {node for node in parents if cut in ancestors(node, parents)}
        up = {
            node: parents[gone] if parent == gone else parent
            for node, parent in parents.items()
            if node not in subtree and node != gone
        }
        mean, variance = krige([i for i in subtree if i < n], parents, times, X, noise, cut, times[cut])
        others = [t for k, t in enumerate(tree.times) if n + k != gone]
        leaves = [i for i in up if i < n]
        self.edges, fine, rough = {}, {}, {}
        for node, parent in up.items():
            low, high = max(times[node], times[cut]), math.inf if parent is None else times[parent]
            if low < high:

                def expected(t, node=node):
                    m, s = krige(leaves, up, times, X, noise, node, t)
                    return variance + t - times[cut] + s, float(((mean - m) ** 2).sum())

                edge = self.edges[node] = Edge(low, high, X.shape[1], others, expected)
                if high == math.inf:
                    (r, _, _), (eps, _, _) = edge.along(0, low), edge.along(1, low)
                    fine[node] = -edge.exposure(low)[0] + log_local(edge.d, eps, 1.0, r) - math.log(2)
                    rough[node] = fine[node]
                else:
                    rough[node] = edge.lay_knots()
                    fine[node] = edge.logs.max() + math.log(edge.masses().sum())
        near = max(rough.values()) - NEAR
        self.fine = fine
        self.log_mass = {node: fine[node] if rough[node] > near else rough[node] for node in fine}
        self.log_total = np.logaddexp.reduce(list(self.log_mass.values()))

    def log_f(self, node, t):
        return self.edges[node].log_f(t)

    def log_q(self, node, t):
        edge = self.edges[node]
        shape = edge.log_f(t) if edge.high == math.inf else np.interp(t, edge.times, edge.logs)
        return self.log_mass[node] - self.log_total + shape - self.fine[node]

    def draw(self, rng, root_time):
        """A place; `root_time(eps, r)` draws the waiting time above the root."""
        nodes = list(self.log_mass)
        node = nodes[rng.choice(len(nodes), p=np.exp([self.log_mass[k] - self.log_total for k in nodes]))]
        edge = self.edges[node]
        if edge.high == math.inf:
            return node, edge.low + root_time(edge.along(1, edge.low)[0], edge.along(0, edge.low)[0])
        masses = edge.masses()
        k = rng.choice(len(masses), p=masses / masses.sum())
        rise = edge.logs[k + 1] - edge.logs[k]
        u = rng.random()
        x = u if abs(rise) < 1e-9 else math.log1p(u * math.expm1(rise)) / rise
        return node, edge.times[k] + x * (edge.times[k + 1] - edge.times[k])


def hang(tree, cut, node, t):
    """The tree with the subtree under `cut` moved to the edge above `node` at time t, from parent pointers.

    Returns (children, times) in time order.
    """
    n, parents, times = tree.n_leaves, tree.parents().tolist(), tree.node_times()
    gone = parents[cut]
    parents = [parents[gone] if p == gone else p for p in parents]
    above = parents[node]
    parents[node], parents[cut], parents[gone] = gone, gone, above
    times[gone] = t
    order = np.argsort(times[n:], kind="stable")
    number = np.concatenate([np.arange(n), n + np.argsort(order)])
    children = [sorted(number[c] for c, p in enumerate(parents) if p == n + k) for k in order]
    return np.array(children), times[n:][order]
