"""Every sampler against the exact posterior at n = 3 and 4; the paper's literal weight must fail the same test."""

from functools import cache

import numpy as np
import pytest

import coaltree as ct
from coaltree.inference.smc import loop
from coaltree.inference.smc.proposals import METHODS
from coaltree.model import gig
from coaltree.model.diffusion import pair_distances, whiten_leaves
from tests.reference.exact import exact_posterior
from tests.seeds import seed

CASES = [(3, 1, 0.0), (3, 2, 0.0), (3, 8, 0.2), (4, 2, 0.3), (4, 3, 0.0), (4, 16, 0.0)]
N_BATCHES, BATCH = 40, 500  # with fewer batches, errors of their mean have the long tails of Student's t


def data(n, d, leaf_noise):
    return ct.sample_data(ct.sample_tree(n, random_state=n + d), d, leaf_noise=leaf_noise, random_state=10 * n + d)


@cache
def truth(n, d, leaf_noise):
    return exact_posterior(data(n, d, leaf_noise), leaf_noise=leaf_noise)


def statistics(children, times, weights, n):
    """First-pair indicators and log times, averaged over weighted trees."""
    pairs = np.sort(children[:, 0], axis=1)
    i, j = np.triu_indices(n, 1)
    first = (pairs[:, :1] == i) & (pairs[:, 1:] == j)
    return np.concatenate([weights @ first, weights @ np.log(times)])


def pooled(batches):
    """Evidence-weighted mean of batches, and the pooled log evidence, each with its standard error (delta method)."""
    log_z = np.array([b[0] for b in batches])
    values = np.array([b[1] for b in batches])
    w = np.exp(log_z - log_z.max())
    w /= w.sum()
    mean = w @ values
    error = np.sqrt(np.einsum("b,bs->s", w**2, (values - mean) ** 2) * len(w) / (len(w) - 1))
    return mean, error, np.logaddexp.reduce(log_z) - np.log(len(w)), w.std(ddof=1) * np.sqrt(len(w))


def disagreement(estimate, error, exact, rarest=0.02):
    """Largest distance from the truth in standard errors, over first pairs of probability > `rarest` and log times.

    Rarer pairs have no usable standard error: they may not have been proposed at all.
    """
    expected = np.concatenate([list(exact.first_pair.values()), exact.mean_log_times])
    common = np.append(np.array(list(exact.first_pair.values())) > rarest, np.ones(len(exact.mean_log_times), bool))
    return np.max(np.abs(estimate - expected)[common] / (error[common] + 1e-4))


@pytest.mark.parametrize(("n", "d", "leaf_noise"), CASES)
@pytest.mark.parametrize("method", METHODS)
def test_sampler_agrees_with_quadrature(method, n, d, leaf_noise):
    exact = truth(n, d, leaf_noise)
    X = data(n, d, leaf_noise)
    batches = []
    for b in range(N_BATCHES):
        post = ct.sample_posterior(
            X,
            method=method,
            n_particles=BATCH,
            leaf_noise=leaf_noise,
            random_state=seed(1000 * n + 50 * d + b),
        )
        batches.append((post.log_evidence, statistics(post.children, post.times, post.weights, n)))
    estimate, error, log_evidence, log_evidence_error = pooled(batches)
    assert log_evidence == pytest.approx(exact.log_evidence, abs=4.5 * (log_evidence_error + 1e-4))
    assert log_evidence_error < 0.05  # 0.002 to 0.02 as a rule; with more the agreement would say little
    assert disagreement(estimate, error, exact) < 4.5


@pytest.mark.parametrize("method", ["tpost", "smc1"])
def test_one_large_run(method):
    exact = truth(4, 3, 0.0)
    post = ct.sample_posterior(data(4, 3, 0.0), method=method, n_particles=20_000, random_state=seed(5))
    assert post.log_evidence == pytest.approx(exact.log_evidence, abs=0.03)


def test_the_papers_literal_weight_fails():
    """Negative control: mpost1 weighted by Σ q̃ alone, the literal reading, at n = 3."""
    n, d, leaf_noise = 3, 2, 0.0
    X, exact = data(n, d, leaf_noise), truth(n, d, leaf_noise)
    rng = np.random.default_rng(seed(3))
    batches, size = [], 250  # at this size the error is far beyond the standard error already
    for _ in range(20):
        children = np.zeros((size, 2, 2), dtype=int)
        times, log_w = np.zeros((size, 2)), np.zeros(size)
        for m in range(size):
            clusters = {i: (X[i], leaf_noise, 0.0) for i in range(n)}
            now = 0.0
            for k in range(2):
                lam = len(clusters) * (len(clusters) - 1) / 2
                pairs = [(i, j) for i in clusters for j in clusters if i < j]
                eps = np.array([((clusters[i][0] - clusters[j][0]) ** 2).sum() for i, j in pairs])
                r = np.array([2 * now + sum(clusters[q][1] - clusters[q][2] for q in p) for p in pairs])
                log_q = gig.log_integral(d, eps, lam, 0.0) + lam * r / 2
                total = np.logaddexp.reduce(log_q)
                chosen = rng.choice(len(pairs), p=np.exp(log_q - total))
                v = gig.sample(d, eps[chosen], lam, r[chosen], random_state=rng)[0]
                log_w[m] += total
                now += (v - r[chosen]) / 2
                i, j = pairs[chosen]
                (m1, s1, t1), (m2, s2, t2) = clusters.pop(i), clusters.pop(j)
                v1, v2 = s1 + now - t1, s2 + now - t2
                clusters[n + k] = ((v2 * m1 + v1 * m2) / (v1 + v2), v1 * v2 / (v1 + v2), now)
                children[m, k], times[m, k] = (i, j), now
        w = np.exp(log_w - log_w.max())
        batches.append((np.log(w.mean()) + log_w.max(), statistics(children, times, w / w.sum(), n)))
    estimate, error, _, _ = pooled(batches)
    assert disagreement(estimate, error, exact) > 6


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("method", METHODS)
def test_conditional_smc_leaves_the_posterior_alone(method):
    """Particle Gibbs with few particles, often resampled: its long-run averages are the exact posterior's.

    Pairs so rare that a chain of this length may miss them have no usable standard error and are left out.
    """
    n, d, leaf_noise = 4, 3, 0.1
    exact = truth(n, d, leaf_noise)
    rows, noise, _ = whiten_leaves(data(n, d, leaf_noise), None, leaf_noise)
    eps = pair_distances(rows)
    rng = np.random.default_rng(seed(11))
    tree, rows = ct.sample_tree(n, random_state=rng), []
    for step in range(6500):
        tree = loop.conditional_draw(tree, eps, d, noise, method=method, n_particles=5, ess_threshold=0.9, rng=rng)
        if step >= 500:
            rows.append(statistics(tree.children[None], tree.times[None], np.ones(1), n))
    blocks = np.array(rows).reshape(30, 200, -1).mean(axis=1)
    error = blocks.std(axis=0, ddof=1) / np.sqrt(30)
    assert disagreement(blocks.mean(axis=0), error, exact, rarest=0.05) < 4.5
