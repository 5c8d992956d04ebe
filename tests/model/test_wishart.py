"""Full covariances: inverse Wishart and Huang–Wand against their known marginals and against quadrature."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma

from coaltree.model.covariance import Diagonal, HuangWand, InverseWishart
from tests.model.invariance import LIMIT, batch_z, stream

PSI = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.7]])


@pytest.fixture
def rng(request):
    return stream(request)


def test_inverse_wishart_posterior_has_the_known_marginals(rng):
    family = InverseWishart(PSI, 4.0)
    u = rng.standard_normal((6, 3)) * [1.0, 2.0, 0.5]
    S, df, a = u.T @ u, 4.0 + 6, np.array([1.0, -0.5, 2.0])
    scale = PSI + S
    states = [family.update(family.start(np.eye(3)), S, 6, rng) for _ in range(2000)]
    matrices = np.array([state.matrix() for state in states])
    marginal = a @ scale @ a / np.einsum("i,sij,j->s", a, matrices, a)
    precision = np.einsum("i,sij,j->s", a, np.linalg.inv(matrices), a) / (a @ np.linalg.inv(scale) @ a)
    assert stats.kstest(marginal, stats.chi2(df - 2).cdf).pvalue > 1e-5
    assert stats.kstest(precision, stats.chi2(df).cdf).pvalue > 1e-5
    z = (matrices.mean(axis=0) - scale / (df - 4)) / stats.sem(matrices, axis=0)
    assert np.abs(z).max() < LIMIT
    log_det = np.linalg.slogdet(scale)[1] - 3 * math.log(2) - sum(digamma((df - k) / 2) for k in range(3))
    assert abs(stats.ttest_1samp([state.log_det for state in states], log_det).statistic) < LIMIT


@pytest.mark.parametrize("shape", [0.5, 0.9])
def test_huang_wand_density_integrates_its_latent_scales(shape, rng):
    nu, scale = 1.7, np.array([0.8, 2.0])
    state = HuangWand(nu, scale, shape).sample_prior(2, rng)

    def integrand(a):
        wishart = stats.invwishart.pdf(state.matrix(), nu + 1, 2 * nu * np.diag(1 / a))
        return wishart * np.prod(stats.invgamma.pdf(a, shape, scale=scale**-2.0) * a)

    # In log a the integrand is smooth and dies at both ends: the trapezoidal rule is exact to many digits.
    step, centre = 0.4, np.log(nu * np.diag(np.linalg.inv(state.matrix())) + scale**-2.0)
    offsets = np.arange(-4.4, 10.0, step)
    truth = sum(integrand(np.exp(centre + np.array([x, y]))) for x in offsets for y in offsets) * step**2
    assert HuangWand(nu, scale, shape).log_prior(state) == pytest.approx(math.log(truth), abs=1e-5)


def test_huang_wand_standard_deviations_are_half_t_and_correlations_uniform(rng):
    family = HuangWand(2.0, [3.0, 1.0, 0.1], 0.5)
    matrices = np.array([family.sample_prior(3, rng).matrix() for _ in range(2000)])
    for k, scale in enumerate([3.0, 1.0, 0.1]):
        deviations = np.sqrt(matrices[:, k, k])
        assert stats.kstest(deviations, lambda x, scale=scale: 2 * stats.t(2).cdf(x / scale) - 1).pvalue > 1e-5
    correlation = matrices[:, 0, 2] / np.sqrt(matrices[:, 0, 0] * matrices[:, 2, 2])
    assert stats.kstest(correlation, stats.uniform(-1, 2).cdf).pvalue > 1e-5
    # In one dimension the density itself is half-t, in φ = σ².
    state = HuangWand(3.0, 2.0, 0.5).sample_prior(1, rng)
    sigma = float(state.factor[0, 0])
    truth = math.log(2 * stats.t(3).pdf(sigma / 2.0) / 2.0 / (2 * sigma))
    assert HuangWand(3.0, 2.0, 0.5).log_prior(state) == pytest.approx(truth)


def test_the_default_is_flat_in_the_log_of_a_standard_deviation():
    """In one dimension, over the four orders of magnitude around one."""
    family = HuangWand()
    states = [family.from_values({"covariance": np.array([[variance]])}, 1) for variance in (1e-4, 1.0, 1e4)]
    # The density of φ times φ is that of log φ.
    flat = [family.log_prior(state) + state.log_det for state in states]
    assert np.ptp(flat) < 0.2
    assert family.log_rescale(states[1], 10.0) == pytest.approx(0.0, abs=0.05)
    theirs = HuangWand(shape=0.5)
    assert theirs.log_rescale(states[1], 10.0) == pytest.approx(-0.5 * math.log(10.0), abs=1e-3)


@pytest.mark.parametrize(("m", "shape"), [(1, 0.5), (6, 0.5), (6, 0.1)])
def test_huang_wand_posterior_equals_quadrature(m, shape, rng):
    """Grid over two log deviations and a correlation, the marginal prior written out by hand; m = 1 < d too."""
    family = HuangWand(2.0, 1.5, shape)
    u = rng.standard_normal((m, 2)) @ [[1.0, 0.5], [0.0, 0.7]]
    S = u.T @ u
    x = np.linspace(-6, 7, 80)
    z = np.linspace(-6, 6, 101)
    s1, s2, z = np.meshgrid(x, x, z, indexing="ij")
    r = np.tanh(z)
    one_minus = 1 / np.cosh(z) ** 2
    v1, v2 = np.exp(2 * s1), np.exp(2 * s2)
    log_det = 2 * s1 + 2 * s2 + np.log(one_minus)
    p11, p22 = 1 / (v1 * one_minus), 1 / (v2 * one_minus)
    trace = S[0, 0] * p11 + S[1, 1] * p22 - 2 * S[0, 1] * r * np.sqrt(p11 * p22)
    log_density = -(2 + 4) / 2 * log_det - (1.5 + shape) * (np.log(2 * p11 + 1.5**-2) + np.log(2 * p22 + 1.5**-2))
    log_density += -m / 2 * log_det - trace / 2
    log_density += 3 * s1 + 3 * s2 + np.log(one_minus)  # Jacobian of (log σ₁, log σ₂, atanh ρ) → Φ
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    truth = [(weight * value).sum() for value in (s1, s2, r, s1**2, r**2)]
    state, draws = family.start(S / m), []
    for _ in range(2500):
        state = family.update(state, S, m, rng)
        (a, b), (_, c) = state.matrix()
        rho = b / math.sqrt(a * c)
        draws.append([math.log(a) / 2, math.log(c) / 2, rho, (math.log(a) / 2) ** 2, rho**2])
    assert np.abs(batch_z(draws, truth)).max() < LIMIT


def test_fewer_points_than_dimensions_are_allowed(rng):
    u = rng.standard_normal((4, 10))
    for family in (HuangWand(), InverseWishart(1.0)):
        state = family.start(u.T @ u / 4)
        for _ in range(200):
            state = family.update(state, u.T @ u, 4, rng)
        assert np.linalg.eigvalsh(state.matrix()).min() > 0


def test_columns_without_a_posterior_are_refused(rng):
    u = rng.standard_normal((20, 3))
    family = HuangWand()
    constant = u * [1.0, 0.0, 1.0]
    with pytest.raises(ValueError, match="column 1"):
        family.update(family.start(constant.T @ constant), constant.T @ constant, 20, rng)
    copied = u[:, [0, 1, 0]]
    with pytest.raises(ValueError, match="copies"):
        family.update(family.start(copied.T @ copied), copied.T @ copied, 20, rng)
    # Their inverse-gamma prior keeps the others proper.
    state = Diagonal().update(Diagonal().start(constant.T @ constant), constant.T @ constant, 20, rng)
    assert 0 < state.values["variances"][1] < 1e-9
