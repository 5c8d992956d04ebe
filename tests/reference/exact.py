"""The exact posterior of a tiny data set: enumeration of histories, tensor quadrature over times.

Written for reading and independent of the library: means are kept, Φ is inverted, integrals are done by
Gauss–Legendre in u = log v on the interval where the integrand matters.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)


class Exact(NamedTuple):
    log_evidence: float
    first_pair: dict[tuple[int, int], float]  # probability that leaves i < j merge first
    mean_log_times: np.ndarray  # (n−1,)
    history: dict[tuple, float]  # probability of each ordered history


class Cluster(NamedTuple):
    members: tuple[int, ...]
    mean: np.ndarray  # (..., d), one for each combination of earlier times
    variance: np.ndarray  # (...)
    born: np.ndarray  # (...)


def interval(eps, d, lam, r):
    """Ends in u of the region where h(u) = (1 − d/2)u − ε/2 e^−u − λ/2 e^u is within 40 of its maximum, u > log r."""

    def h(u):
        return (1 - d / 2) * u - eps / 2 * np.exp(-u) - lam / 2 * np.exp(u)

    p = 1 - d / 2
    root = np.sqrt(p**2 + lam * eps)
    mode = eps / (root - p) if p < 0 else (p + root) / lam
    with np.errstate(divide="ignore"):
        floor = np.log(r)
    peak = np.maximum(np.log(mode), floor)

    def edge(sign):
        near, far = np.zeros_like(peak), np.full_like(peak, 1e-6)
        while np.any(h(peak + sign * far) > h(peak) - 40):
            far = np.where(h(peak + sign * far) > h(peak) - 40, 2 * far, far)
        for _ in range(40):
            middle = (near + far) / 2
            inside = h(peak + sign * middle) > h(peak) - 40
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        return peak + sign * far

    return np.maximum(edge(-1.0), floor), edge(1.0)


def exact_posterior(X, covariance=None, leaf_noise=0.0) -> Exact:
    X = np.asarray(X, dtype=float)
    n, d = X.shape
    phi = np.eye(d) if covariance is None else np.asarray(covariance)
    inverse, log_det = np.linalg.inv(phi), np.linalg.slogdet(phi)[1]
    noise = np.broadcast_to(leaf_noise, n)
    pieces = []  # (history, log measure, log times) of every branch of the enumeration

    def descend(clusters, now, log_measure, log_times, history):
        if len(clusters) == 1:
            pieces.append((tuple(history), log_measure, log_times))
            return
        lam = len(clusters) * (len(clusters) - 1) / 2
        for a, b in combinations(range(len(clusters)), 2):
            first, second = clusters[a], clusters[b]
            gap = first.mean - second.mean
            eps = np.einsum("...i,ij,...j->...", gap, inverse, gap)
            r = 2 * now - first.born - second.born + first.variance + second.variance
            low, high = interval(eps, d, lam, r)
            u = low[..., None] + (high - low)[..., None] * (NODES + 1) / 2
            v = np.exp(u)
            delta = (v - r[..., None]) / 2
            time = now[..., None] + delta
            log_z = -d / 2 * np.log(2 * np.pi * v) - log_det / 2 - eps[..., None] / (2 * v)
            # dΔ = v du / 2, and du = (high − low)/2 dx on the nodes' interval [−1, 1].
            measure = log_z - lam * delta + u - np.log(2) + np.log(WEIGHTS) + np.log((high - low) / 2)[..., None]
            s1 = first.variance[..., None] + time - first.born[..., None]
            s2 = second.variance[..., None] + time - second.born[..., None]
            mean = (s2[..., None] * first.mean[..., None, :] + s1[..., None] * second.mean[..., None, :]) / (s1 + s2)[
                ..., None
            ]
            merged = Cluster(first.members + second.members, mean, s1 * s2 / (s1 + s2), time)
            others = [
                Cluster(
                    c.members,
                    np.broadcast_to(c.mean[..., None, :], mean.shape),
                    np.broadcast_to(c.variance[..., None], time.shape),
                    np.broadcast_to(c.born[..., None], time.shape),
                )
                for index, c in enumerate(clusters)
                if index not in (a, b)
            ]
            descend(
                [*others, merged],
                time,
                log_measure[..., None] + measure,
                [np.broadcast_to(t[..., None], time.shape) for t in log_times] + [np.log(time)],
                [*history, tuple(sorted((tuple(sorted(first.members)), tuple(sorted(second.members)))))],
            )

    zero = np.zeros(())
    leaves = [Cluster((i,), X[i], np.asarray(noise[i]), zero) for i in range(n)]
    descend(leaves, zero, zero, [], [])

    top = max(float(measure.max()) for _, measure, _ in pieces)
    total = sum(float(np.exp(measure - top).sum()) for _, measure, _ in pieces)
    probability, mean_log_times = {}, np.zeros(n - 1)
    for history, measure, log_times in pieces:
        mass = np.exp(measure - top) / total
        probability[history] = float(mass.sum())
        mean_log_times += [float((mass * t).sum()) for t in log_times]
    first = dict.fromkeys(combinations(range(n), 2), 0.0)
    for history, p in probability.items():
        (i,), (j,) = history[0]
        first[i, j] += p
    return Exact(top + np.log(total), first, mean_log_times, probability)
