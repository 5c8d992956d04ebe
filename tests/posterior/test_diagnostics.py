"""Effective sample size against chains whose autocorrelation is known."""

import numpy as np
import pytest
from scipy.signal import lfilter

from coaltree.posterior.diagnostics import effective_size, effective_sizes, r_hat
from tests.seeds import seed

N_CHAINS = 60


def ar1(rho, m, n_chains, number):
    """Stationary chains x_t = ρ x_(t−1) + e, (m, n_chains); the effective size is m (1 − ρ) / (1 + ρ)."""
    noise = np.random.default_rng(seed(number)).normal(size=(m, n_chains))
    noise[0] /= np.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], noise, axis=0)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, -0.4])
def test_ar1(rho):
    m = 4000
    sizes = effective_sizes(ar1(rho, m, N_CHAINS, 1)[None])
    truth = m * (1 - rho) / (1 + rho)
    error = 4 * sizes.std(ddof=1) / np.sqrt(N_CHAINS)
    # Stopping at a random lag biases a finite chain by a few percent; a wrong formula is off by a factor.
    assert abs(sizes.mean() - truth) < error + 0.08 * truth
    assert abs(sizes.mean() - truth / 2) > error + 0.08 * truth  # τ without its factor two, or twice, would show


def test_predicts_the_error_of_the_mean():
    """The definition: the mean of a chain of m draws varies like the mean of ESS independent ones."""
    rho, m = 0.8, 1000
    chains = ar1(rho, m, 400, 2)
    predicted = np.mean(chains.var(axis=0) / effective_sizes(chains[None]))
    found = chains.mean(axis=0).var()
    assert 0.7 < predicted / found < 1.45  # ranks, split chains: a tenth more careful than the mean alone
    assert found / np.mean(chains.var(axis=0) / m) > 5  # counting every draw is far too sure


def test_scale_and_shape():
    x = ar1(0.5, 300, 6, 4)
    sizes = effective_size(x.reshape(1, 300, 2, 3))
    assert sizes.shape == (2, 3)
    np.testing.assert_allclose(effective_size(1e-12 * x[None] + 5e-9), sizes.ravel(), rtol=1e-3)
    assert isinstance(effective_size(x.T[:1]), float)


def test_bounds():
    m = 100
    alternating = np.tile([1.0, -1.0], m // 2) + 1e-3 * np.random.default_rng(0).normal(size=m)
    assert m < effective_size(alternating[None]) <= m * np.log10(m)
    assert 1.0 <= effective_size(np.linspace(0, 1, m)[None]) < 10.0


def test_r_hat_of_one_chain_and_of_two():
    x = np.random.default_rng(seed(5)).normal(size=(2, 200))
    assert r_hat(x) < 1.05
    assert r_hat(x[:1]) < 1.05
    assert r_hat(x + np.array([[0.0], [3.0]])) > 1.5
    assert r_hat(x[:1] + np.linspace(0, 5, 200)) > 1.5  # a trend
    assert np.isnan(r_hat(x[:, :5]))


@pytest.mark.parametrize("x", [[1.0, 2.0, 1.0], np.ones(50), [1.0, np.nan, 2.0, 3.0, 1.0]])
def test_chains_that_do_not_tell(x):
    assert np.isnan(effective_size(np.array([x])))


def test_sizes_of_many_are_those_of_arviz():
    x = np.stack([ar1(rho, 400, 2, k).T for k, rho in enumerate([0.0, 0.5, 0.9, -0.4])], axis=2)
    there = np.stack([x[..., 1] > 0.0, x[..., 2] > 1.0], axis=2).astype(float)  # a clade that comes and goes
    apart = np.broadcast_to(np.array([[1.0], [0.0]]), (2, 400)) + 1e-6 * x[..., 0]
    draws = np.concatenate([x, there, apart[..., None], np.ones((2, 400, 1))], axis=2)
    found = effective_sizes(draws)
    wanted = [effective_size(draws[..., k], "mean") for k in range(draws.shape[2])]
    np.testing.assert_allclose(found, wanted, rtol=0.1)  # ArviZ adds half a pair more
    assert found[2] < 0.2 * found[0]
    assert found[-2] < 5.0  # chains that disagree are worth little, however long
    assert np.isnan(found[-1])
    assert np.isnan(effective_sizes(draws[:, :7])).all()
