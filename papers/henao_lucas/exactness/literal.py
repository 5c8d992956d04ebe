"""MPost1 and MPost2 with the weights as the paper states them, Σ q̃, and for comparison with those that are right.

Pairs are chosen by the untruncated integral, times drawn from the truncated distribution. The proper weight is
Σ q̃ · Z_C/q̃(C), with the truncated integral Z_C of the pair that was chosen; the paper leaves the second factor out.
Plain numpy over all particles at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coaltree._compile import kernel
from coaltree.model import gig
from coaltree.model.diffusion import whiten
from coaltree.randomness import Stream, make_streams


class Sampled(NamedTuple):
    """Weighted trees."""

    children: np.ndarray  # (M, n−1, 2)
    times: np.ndarray  # (M, n−1)
    weights: np.ndarray  # (M,)
    log_evidence: float


def sample(
    X: np.ndarray,
    covariance: np.ndarray | None,
    method: str,
    n_particles: int,
    rng: np.random.Generator,
    proper: bool = False,
    ess_threshold: float = 0.5,
) -> Sampled:
    """Sample trees by "mpost1" or "mpost2"; `proper` puts the missing factor back."""
    rows, log_det = whiten(X, covariance)
    n, d = rows.shape
    everyone = np.arange(n_particles)
    eps = np.repeat(((rows[:, None] - rows) ** 2).sum(axis=-1)[None], n_particles, axis=0)
    offset, now = np.zeros((n_particles, n)), np.zeros(n_particles)
    node = np.repeat(np.arange(n)[None], n_particles, axis=0)
    children = np.zeros((n_particles, n - 1, 2), dtype=int)
    times, log_weights, log_evidence = np.zeros((n_particles, n - 1)), np.zeros(n_particles), 0.0
    constant = -np.log(2.0) - 0.5 * d * np.log(2.0 * np.pi) - 0.5 * log_det
    for stage in range(n - 1):
        live = n - stage
        first, second = np.triu_indices(live, 1)
        lam = 0.5 * live * (live - 1)
        r = 2.0 * now[:, None] + offset[:, first] + offset[:, second]
        near = eps[:, first, second]
        log_q = gig.log_integral(d, near, lam if method == "mpost1" else 1.0) + 0.5 * lam * r
        top = log_q.max(axis=1)
        running = np.cumsum(np.exp(log_q - top[:, None]), axis=1)
        u = rng.random(n_particles) * running[:, -1]
        chosen = (running <= u[:, None]).sum(axis=1)
        i, j = first[chosen], second[chosen]
        close, since = near[everyone, chosen], r[everyone, chosen]
        v = np.empty(n_particles)
        _draw(float(d), close, lam, since, make_streams(rng, 1)[0], v)
        log_weights += top + np.log(running[:, -1]) + constant
        if proper:
            log_weights += gig.log_integral(d, close, lam, since) + 0.5 * lam * since - log_q[everyone, chosen]
        now = now + 0.5 * (v - since)
        children[:, stage], times[:, stage] = np.stack([node[everyone, i], node[everyone, j]], axis=1), now
        _merge(eps, offset, node, now, i, j, live, n + stage)

        weights = np.exp(log_weights - log_weights.max())
        last = stage == n - 2
        if last or weights.sum() ** 2 / (weights**2).sum() < ess_threshold * n_particles:
            log_evidence += log_weights.max() + np.log(weights.mean())
            if not last:
                edges = (np.arange(n_particles) + rng.random()) / n_particles
                kept = np.searchsorted(np.cumsum(weights / weights.sum()), edges).clip(max=n_particles - 1)
                eps, offset, node, now = eps[kept], offset[kept], node[kept], now[kept]
                children, times, log_weights = children[kept], times[kept], np.zeros(n_particles)
    return Sampled(children, times, weights / weights.sum(), float(log_evidence))


@kernel
def _draw(d: float, eps: np.ndarray, lam: float, r: np.ndarray, stream: Stream, out: np.ndarray) -> None:
    for m in range(out.size):
        out[m] = gig.draw_time(d, eps[m], lam, r[m], stream)[0]


def _merge(
    eps: np.ndarray,
    offset: np.ndarray,
    node: np.ndarray,
    now: np.ndarray,
    i: np.ndarray,
    j: np.ndarray,
    live: int,
    new: int,
) -> None:
    """Merge slots i < j of every particle: the new cluster takes slot i, the last live one moves to j."""
    m = np.arange(len(now))
    v_i, v_j = now + offset[m, i], now + offset[m, j]
    w_i = v_j / (v_i + v_j)
    w_j = 1.0 - w_i
    row = w_i[:, None] * eps[m, i] + w_j[:, None] * eps[m, j] - (w_i * w_j * eps[m, i, j])[:, None]
    eps[m, i], eps[m, :, i] = row, row
    eps[m, j], eps[m, :, j] = eps[m, live - 1], eps[m, :, live - 1]
    offset[m, i], node[m, i] = v_i * w_i - now, new
    offset[m, j], node[m, j] = offset[m, live - 1], node[m, live - 1]
