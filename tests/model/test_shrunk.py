"""A full Φ shrunk by a learned strength: its marginal against Bayes' rule, its posterior against quadrature, bounds."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp

import coaltree as ct
from coaltree.inference.learning import chain
from coaltree.inference.learning.working import Working
from coaltree.model.covariance import ShrunkWishart, Spherical, as_family
from coaltree.model.shrunk import LEAST_DF, log_marginal
from tests.model.invariance import LIMIT, batch_z, simulate, stream
from tests.reference.shrunk import log_evidence, log_posterior
from tests.seeds import seed


@pytest.fixture
def rng(request):
    return stream(request)


@pytest.mark.parametrize("m", [2, 9])
def test_marginal_is_that_of_bayes_rule(m, rng):
    """Differences over σ² and ν, of the plain twin: prior times likelihood over posterior, at any Φ."""
    u = rng.standard_normal((m, 3)) * [1.0, 2.0, 0.5]
    spectrum = np.linalg.eigvalsh(u.T @ u)
    places = [(0.3, 2.5), (2.0, 2.5), (0.3, 40.0), (1.0, 1e5)]
    ours = np.array([log_marginal(np.maximum(spectrum, 0.0), m, *place) for place in places])
    plain = np.array([log_evidence(u, *place) for place in places])
    np.testing.assert_allclose(ours - ours[0], plain - plain[0], rtol=1e-6, atol=1e-6)
    wrong = np.array([log_marginal(np.maximum(spectrum, 0.0), m + 1, *place) for place in places])
    assert np.abs((wrong - wrong[0]) - (plain - plain[0])).max() > 0.1


def test_posterior_of_scale_and_strength_equals_quadrature(rng):
    family, u = ShrunkWishart(1.3, 0.4), rng.standard_normal((8, 2)) @ np.array([[2.0, 1.5], [0.0, 0.5]])
    log_variance, log_excess = np.linspace(-9, 9, 181), np.linspace(-13.8, 13.8, 251)
    grid = log_posterior(u, log_variance, log_excess, 1.3, 0.4)
    mass = np.exp(grid - logsumexp(grid))
    state, S, draws = family.start(np.eye(2)), u.T @ u, []
    for _ in range(2500):
        state = family.update(state, S, 8, rng)
        excess = state.values["df"] - LEAST_DF
        draws.append((math.log(state.values["variance"]), math.log1p(excess), math.log(state.values["variance"]) ** 2))
    truth = mass.sum(axis=1) @ log_variance, mass.sum(axis=0) @ np.log1p(np.exp(log_excess))
    truth = np.array([*truth, mass.sum(axis=1) @ log_variance**2])
    z = batch_z(draws, truth)
    assert np.abs(z).max() < LIMIT
    assert np.abs(batch_z(draws, truth + np.array([0.5, 0.5, 1.0]))).max() > LIMIT


def test_a_strong_prior_is_spherical(rng):
    S = simulate(Spherical().from_values({"variance": 2.0}, 4), 60, rng)
    places = np.array([0.5, 1.0, 2.0, 4.0])
    spectrum = np.linalg.eigvalsh(S)
    ours = np.array([log_marginal(spectrum, 60, place, 1e6) for place in places])
    theirs = [Spherical().from_values({"variance": place}, 4).log_likelihood(S, 60) for place in places]
    np.testing.assert_allclose(ours - ours[0], np.array(theirs) - theirs[0], rtol=1e-2)


def test_the_strength_follows_the_data(rng):
    """Independent columns of one variance are shrunk hard, correlated ones of different variances hardly."""

    def strength(S):
        state, found = as_family("shrunk").start(S / 400), []
        for _ in range(60):
            state = as_family("shrunk").update(state, S, 400, rng)
            found.append(state.values["df"])
        return np.median(found[20:])

    independent = rng.standard_normal((400, 6))
    correlated = independent @ rng.standard_normal((6, 6)) * [1, 1, 2, 2, 4, 4]
    assert strength(independent.T @ independent) > 100
    assert strength(correlated.T @ correlated) < 12


def test_a_bound_restricts_the_variance_it_is_shrunk_to(rng):
    S = simulate(Spherical().from_values({"variance": 0.1}, 3), 20, rng)
    state = ShrunkWishart().start(np.eye(3))
    for _ in range(20):
        state = ShrunkWishart().update(state, S, 20, rng, least=0.5)
        assert state.amplitude >= 0.5 * (1 - 1e-12)
    assert ShrunkWishart().update(state, S, 20, rng).amplitude < 0.5


def test_noise_respects_the_bound_of_rounding(rng):
    """s₀σ² ≥ h²/12 through updates of Φ, of the noise and of the offset, for a table with equal rows."""
    X = np.round(ct.sample_data(ct.sample_tree(25, random_state=seed(1)), 3, random_state=seed(2)), 0)
    family, working = as_family("shrunk"), Working(rounding=1 / 12)
    now = chain.first_guess(X, family)
    now = now.with_noise_level(2 * working.least_noise(now.covariance))
    for _ in range(30):
        now = chain.draw_covariance(now, X, family, rng, working)
        now = chain.draw_offset(chain.draw_noise(now, X, family, rng, working), rng, working)
        assert now.noise_level * now.covariance.amplitude >= 1 / 12 * (1 - 1e-9)
    now = chain.draw_noise(now, X, family, rng)
    for _ in range(5):
        now = chain.draw_noise(chain.draw_covariance(now, X, family, rng), X, family, rng)
    assert now.noise_level * now.covariance.amplitude < 1 / 12  # without it, equal rows want none


def test_summary_and_bad_values(rng):
    states = [ShrunkWishart(2.0, 1.0).sample_prior(3, rng) for _ in range(9)]
    middle = ShrunkWishart().summarise(states)
    assert middle.values["df"] == np.median([state.values["df"] for state in states])
    precision = np.mean([np.linalg.inv(state.matrix()) for state in states], axis=0)
    np.testing.assert_allclose(np.linalg.inv(middle.matrix()), precision, rtol=1e-6)
    u = rng.standard_normal((20, 2))
    u = np.column_stack([u, u.sum(axis=1)])
    with pytest.raises(ValueError, match="copies or linear combinations"):
        ShrunkWishart().update(ShrunkWishart().start(np.eye(3)), u.T @ u, 20, rng)
    with pytest.raises(ValueError, match="constant in column"):
        ct.learn_posterior(np.column_stack([rng.standard_normal(9), np.ones(9)]), "shrunk", n_draws=4, warmup=4)
    with pytest.raises(ValueError, match="df must be positive"):
        ShrunkWishart().from_values({"covariance": np.eye(2), "variance": 1.0, "df": -1.0}, 2)
