"""The paper's sampler as one would first write it: numpy, means kept, every pair computed anew at every merge.

One particle after another, distances between cluster means by broadcasting, log K by scipy's scaled Bessel function
where that is finite and by its uniform asymptotic form where it overflows, times by a slice sampler. The weight is the
sum of the unnormalised choice probabilities, as the paper has it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import kve, logsumexp

Floats = npt.NDArray[np.float64]


def log_bessel_k(nu: float, z: Floats) -> Floats:
    """log K_ν(z)."""
    with np.errstate(over="ignore", divide="ignore"):
        value = np.log(kve(nu, z)) - z
    large = ~np.isfinite(value)
    root = np.hypot(nu, z[large])
    value[large] = 0.5 * np.log(np.pi / (2 * root)) - root + nu * np.log((nu + root) / z[large])
    return value


def slice_time(d: int, eps: float, lam: float, r: float, rng: np.random.Generator, n_steps: int = 10) -> float:
    """v > r by slice sampling with stepping out, from max(mode, r)."""

    def log_density(v: float) -> float:
        return -0.5 * d * np.log(v) - 0.5 * eps / v - 0.5 * lam * v if v > r else -np.inf

    v = max((-0.5 * d + np.sqrt(0.25 * d * d + lam * eps)) / lam, r * (1 + 1e-9))
    for _ in range(n_steps):
        level = log_density(v) - rng.exponential()
        width = 0.5 * v
        low = max(v - width * rng.random(), r)
        high = low + width
        while low > r and log_density(low) > level:
            low = max(low - width, r)
        while log_density(high) > level:
            high += width
        while True:
            new = rng.uniform(low, high)
            if log_density(new) > level:
                v = new
                break
            low, high = (new, high) if new < v else (low, new)
    return float(v)


def sample_trees(X: Floats, n_particles: int, seed: int) -> tuple[Floats, Floats]:
    """Merge times (M, n−1) and log weights (M,) of the paper's MPost2."""
    rng = np.random.default_rng(seed)
    n, d = X.shape
    nu = abs(0.5 * d - 1)
    particles = [(X.copy(), np.zeros(n), np.zeros(n)) for _ in range(n_particles)]  # means, variances, births
    log_weights, times = np.zeros(n_particles), np.zeros((n_particles, n - 1))
    for stage in range(n - 1):
        lam = 0.5 * (n - stage) * (n - stage - 1)
        for m in range(n_particles):
            mean, variance, born = particles[m]
            now = times[m, stage - 1] if stage else 0.0
            i, j = np.triu_indices(len(mean), 1)
            eps = ((mean[i] - mean[j]) ** 2).sum(axis=1)
            r = 2 * now + (variance - born)[i] + (variance - born)[j]
            z = np.sqrt(eps)
            log_q = log_bessel_k(nu, z) - nu * np.log(z) + 0.5 * lam * r
            total = logsumexp(log_q)
            pick = rng.choice(len(i), p=np.exp(log_q - total))
            a, b = i[pick], j[pick]
            v = slice_time(d, eps[pick], lam, r[pick], rng)
            now += 0.5 * (v - r[pick])
            var_a, var_b = variance[a] + now - born[a], variance[b] + now - born[b]
            new = (var_b * mean[a] + var_a * mean[b]) / v
            keep = np.delete(np.arange(len(mean)), [a, b])
            particles[m] = (
                np.vstack([mean[keep], new]),
                np.append(variance[keep], var_a * var_b / v),
                np.append(born[keep], now),
            )
            log_weights[m] += total
            times[m, stage] = now
        weights = np.exp(log_weights - logsumexp(log_weights))
        if 1.0 / (weights**2).sum() < 0.5 * n_particles and stage < n - 2:
            chosen = rng.choice(n_particles, size=n_particles, p=weights)
            particles = [tuple(array.copy() for array in particles[k]) for k in chosen]
            times, log_weights = times[chosen], np.zeros(n_particles)
    return times, log_weights
