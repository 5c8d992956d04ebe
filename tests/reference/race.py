"""The race with every pair drawn at once: the plain twin of the lazy one. Same keys, same times, no list, no bounds."""

from __future__ import annotations

import numpy as np

from coaltree._compile import kernel
from coaltree.model import gig
from coaltree.randomness import uniform

MASK = (1 << 64) - 1


@kernel
def next_uniform(state):
    return uniform(state)


@kernel
def time_at(d, eps, r, w):
    return gig.time_at(d, eps, 1.0, r, w)


def uniform_of(key, other):
    """SplitMix64's finaliser of the sum, in Python's integers."""
    word = (int(key) + int(other)) & MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    word ^= word >> 31
    return ((word >> 12) + 0.5) * 2.0**-52


def plain_race(X, leaf_noise, keys, stream):
    """Children and times of one particle from the keys of its leaves and its stream."""
    n, d = X.shape
    clusters = {i: (X[i], leaf_noise, 0.0, int(keys[i])) for i in range(n)}  # mean, variance, birth, key
    due, now, children, times = {}, 0.0, [], []
    for k in range(n - 1):
        if k:
            key = (int(next_uniform(stream) * 2.0**52) * 0x9E3779B97F4A7C15) & MASK
            clusters[n + k - 1] = (*clusters[n + k - 1][:3], key)
        for i in clusters:
            for j in clusters:
                if i < j and (i, j) not in due:
                    (m1, s1, t1, k1), (m2, s2, t2, k2) = clusters[i], clusters[j]
                    r = 2 * now + s1 - t1 + s2 - t2
                    due[i, j] = now + time_at(float(d), float(((m1 - m2) ** 2).sum()), r, uniform_of(k1, k2))
        i, j = min(due, key=due.get)
        now = due[i, j]
        (m1, s1, t1, _), (m2, s2, t2, _) = clusters.pop(i), clusters.pop(j)
        v1, v2 = s1 + now - t1, s2 + now - t2
        clusters[n + k] = ((v2 * m1 + v1 * m2) / (v1 + v2), v1 * v2 / (v1 + v2), now, 0)
        due = {pair: time for pair, time in due.items() if not {i, j} & set(pair)}
        children.append((i, j))
        times.append(now)
    return np.array(children), np.array(times)
