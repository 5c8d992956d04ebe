"""Incremental weights of every sampler along a given tree, from the definitions: the plain twin of `proposals`."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from scipy.integrate import quad
from scipy.special import erfc, erfcx, kve


def log_local(d, eps, lam, r):
    """log of e^(λr/2) ∫_r^∞ v^(−d/2) exp(−ε/2v − λv/2) dv by adaptive quadrature in u = log v."""
    p = 1 - d / 2
    root = math.sqrt(p * p + lam * eps)
    mode = eps / (root - p) if p < 0 else (p + root) / lam
    peak = math.log(max(mode, r))

    def h(u):
        return p * u - eps / 2 * math.exp(-u) - lam / 2 * (math.exp(u) - r)

    width = 1 / math.sqrt(eps / 2 * math.exp(-peak) + lam / 2 * math.exp(peak))
    low = max(math.log(r), peak - 60 * width) if r > 0 else peak - 60 * width
    points = np.clip(peak + width * np.array([-12.0, -6, -3, 0, 3, 6, 12]), low, peak + 60 * width)
    value = 0.0
    for left, right in zip([low, *points], [*points, peak + 60 * width], strict=True):
        if right > left:
            value += quad(lambda u: math.exp(h(u) - h(peak)), left, right, epsabs=0, epsrel=1e-12)[0]
    return h(peak) + math.log(value)


def log_laplace(d, eps, lam, r):
    p = 1 - d / 2
    root = math.sqrt(p * p + lam * eps)
    mode = eps / (root - p) if p < 0 else (p + root) / lam
    u = math.log(max(mode, r))
    h = p * u - eps / 2 * math.exp(-u) - lam / 2 * (math.exp(u) - r)
    c = eps / 2 * math.exp(-u) + lam / 2 * math.exp(u)
    if mode > r:
        reach = (u - math.log(r)) * math.sqrt(c) if r > 0 else math.inf
        return h + 0.5 * math.log(2 * math.pi / c) + math.log(0.5 * erfc(-reach / math.sqrt(2)))
    g = p + eps / 2 * math.exp(-u) - lam / 2 * math.exp(u)
    return h + 0.5 * math.log(math.pi / (2 * c)) + math.log(erfcx(-g / math.sqrt(2 * c)))


def log_bessel_form(d, eps, lam):
    nu, z = d / 2 - 1, math.sqrt(lam * eps)
    return math.log(2 * kve(nu, z)) - z + nu / 2 * math.log(lam / eps)


def log_increments(tree, X, method, leaf_noise=0.0):
    """Shape (n−1,): log incremental weights of the path that is `tree`, Φ = I, constants of the density included."""
    n, d = X.shape
    constant = -math.log(2) - d / 2 * math.log(2 * math.pi)
    clusters = {i: (X[i], leaf_noise, 0.0) for i in range(n)}  # mean, variance, birth
    now, out = 0.0, []
    for k, (a, b) in enumerate(tree.children.tolist()):
        lam = len(clusters) * (len(clusters) - 1) / 2
        time = tree.times[k]

        def facts(i, j, at, clusters=clusters):
            (m1, s1, t1), (m2, s2, t2) = clusters[i], clusters[j]
            return float(((m1 - m2) ** 2).sum()), 2 * at - t1 - t2 + s1 + s2

        def born(i, j, clusters=clusters):
            return max(clusters[i][2], clusters[j][2])

        if method == "smc1":
            total = log_local(d, facts(a, b, 0)[0], 1.0, facts(a, b, born(a, b))[1])
            for i, j in combinations(clusters, 2):
                if len({i, j} & {a, b}) == 1:
                    eps, r_born = facts(i, j, born(i, j))
                    total += log_local(d, eps, 1.0, r_born) - log_local(d, eps, 1.0, facts(i, j, time)[1])
        else:
            log_q = {}
            for i, j in combinations(clusters, 2):
                eps, r = facts(i, j, now)
                log_q[i, j] = {
                    "postpost": lambda e=eps, r=r, lam=lam: log_local(d, e, lam, r),
                    "tpost": lambda e=eps, r=r, lam=lam: log_laplace(d, e, lam, r),
                    "mpost1": lambda e=eps, r=r, lam=lam: log_bessel_form(d, e, lam) + lam * r / 2,
                    "mpost2": lambda e=eps, r=r, lam=lam: log_bessel_form(d, e, 1.0) + lam * r / 2,
                }[method]()
            eps, r = facts(a, b, now)
            chosen = log_q[a, b] if (a, b) in log_q else log_q[b, a]
            total = np.logaddexp.reduce(list(log_q.values())) - chosen + log_local(d, eps, lam, r)
        out.append(total + constant)

        (m1, s1, t1), (m2, s2, t2) = clusters.pop(a), clusters.pop(b)
        v1, v2 = s1 + time - t1, s2 + time - t2
        clusters[n + k] = ((v2 * m1 + v1 * m2) / (v1 + v2), v1 * v2 / (v1 + v2), time)
        now = time
    return np.array(out)
