"""Gaussian-process covariances: slice sampling against grids, calibration, what is refused."""

import math
import pickle

import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    Hyperparameter,
    Kernel,
    Matern,
    WhiteKernel,
)

from coaltree.model.covariance import as_family
from coaltree.model.family import CovarianceFamily
from coaltree.model.gp import GaussianProcess
from tests.model.invariance import LIMIT, batch_z, drift, simulate, stream

TIMES = np.array([0.0, 0.4, 1.0, 1.3, 2.5])
KERNEL = RBF(1.0, (0.2, 5.0)) + WhiteKernel(0.1, (0.01, 1.0))


class Equicorrelated(Kernel):
    """K = I + ρ(11ᵀ − I): not positive definite for ρ ≥ 1, which the bounds allow."""

    def __init__(self, rho=0.5, rho_bounds=(0.1, 4.0)):
        self.rho = rho
        self.rho_bounds = rho_bounds

    @property
    def hyperparameter_rho(self):
        return Hyperparameter("rho", "numeric", self.rho_bounds)

    def __call__(self, X, Y=None, eval_gradient=False):
        return np.eye(len(X)) + self.rho * (1 - np.eye(len(X)))

    def diag(self, X):
        return np.ones(len(X))

    def is_stationary(self):
        return True


class Unbounded(Equicorrelated):
    bounds = np.empty((0, 2))


@pytest.fixture
def rng(request):
    return stream(request)


def run(family, S, m, n_draws, rng):
    state, draws = family.start(S / m), []
    for _ in range(n_draws):
        state = family.update(state, S, m, rng)
        draws.append([math.log(value) for value in state.values.values()])
    return np.array(draws)


# Invariance and exact posteriors


def test_update_leaves_the_posterior_invariant(rng):
    family = GaussianProcess(KERNEL, TIMES, 3.0, 2.0)
    assert np.abs(drift(family, 5, 6, 200, 2, rng)).max() < LIMIT
    assert np.abs(drift(family, 5, 6, 60, 2, rng, m_claimed=14)).max() > 2 * LIMIT


def test_one_length_and_amplitude_equal_a_grid(rng):
    """The grid knows nothing of the amplitude having been integrated out."""
    family = GaussianProcess(RBF(1.0, (0.1, 10.0)), TIMES, 1.5, 0.7, jitter=1e-6)
    S = simulate(family.from_values({"amplitude": 2.0, "length_scale": 0.8}, 5), 3, rng)
    length, log_amplitude = np.linspace(*np.log([0.1, 10.0]), 300), np.linspace(-7, 12, 400)
    log_density = np.empty((300, 400))
    for i, x in enumerate(length):
        K = np.exp(-0.5 * ((TIMES[:, None] - TIMES) / math.exp(x)) ** 2) + 1e-6 * np.eye(5)
        log_det = np.linalg.slogdet(K)[1] + 5 * log_amplitude
        trace = np.trace(np.linalg.solve(K, S)) * np.exp(-log_amplitude)
        log_density[i] = -1.5 * log_det - 0.5 * trace
    log_density += stats.invgamma(1.5, scale=0.7).logpdf(np.exp(log_amplitude)) + log_amplitude
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    a, x = log_amplitude[None, :], length[:, None]
    truth = [(weight * value).sum() for value in (a, x, a**2, x**2, a * x)]
    draws = run(family, S, 3, 1000, rng)
    a, x = draws.T
    sampled = np.stack([a, x, a**2, x**2, a * x], axis=1)
    assert np.abs(batch_z(sampled, truth)).max() < LIMIT
    # Negative control: the chain is told of two contrasts more.
    assert np.abs(batch_z(run(family, S, 5, 300, rng), truth[:2])).max() > LIMIT


def test_length_and_noise_equal_a_grid(rng):
    family = GaussianProcess(KERNEL, TIMES, amplitude=1.7)  # known amplitude
    S = simulate(family.start(np.eye(5)), 5, rng)
    lengths, noises = np.linspace(*np.log([0.2, 5.0]), 90), np.linspace(*np.log([0.01, 1.0]), 90)
    log_density = np.empty((90, 90))
    for i, x in enumerate(lengths):
        K = np.exp(-0.5 * ((TIMES[:, None] - TIMES) / math.exp(x)) ** 2)
        stack = 1.7 * (K + np.exp(noises)[:, None, None] * np.eye(5))
        log_density[i] = -2.5 * np.linalg.slogdet(stack)[1] - 0.5 * np.trace(
            np.linalg.solve(stack, np.broadcast_to(S, stack.shape)), axis1=1, axis2=2
        )
    weight = np.exp(log_density - log_density.max())
    for axis in (0, 1):  # trapezoidal rule: the density does not vanish at the bounds
        np.moveaxis(weight, axis, 0)[[0, -1]] *= 0.5
    weight /= weight.sum()
    x, y = lengths[:, None], noises[None, :]
    truth = [(weight * value).sum() for value in (x, y, x**2, y**2, x * y)]
    draws = run(family, S, 5, 750, rng)
    assert np.all(draws[:, 0] == math.log(1.7))
    x, y = draws[:, 1], draws[:, 2]
    assert np.abs(batch_z(np.stack([x, y, x**2, y**2, x * y], axis=1), truth)).max() < LIMIT


def test_moves_to_matrices_that_are_not_positive_definite_are_rejected(rng):
    family = GaussianProcess(Equicorrelated(), TIMES, 2.0, 1.0)
    prior = [family.sample_prior(5, rng).values["rho"] for _ in range(400)]
    assert stats.kstest(np.log(prior), stats.uniform(math.log(0.1), -math.log(0.1)).cdf).pvalue > 1e-5
    assert np.abs(drift(family, 5, 4, 200, 2, rng)).max() < LIMIT
    S = simulate(family.from_values({"amplitude": 1.0, "rho": 0.999}, 5), 5, rng)
    draws = run(family, S, 5, 200, rng)
    assert np.exp(draws[:, 1]).max() < 1.0
    assert np.exp(draws[:, 1]).max() > 0.98


# The protocol


def test_rescale_moves_the_amplitude(rng):
    family = GaussianProcess(KERNEL, TIMES, 1.5, 0.7)
    state = family.sample_prior(5, rng)
    moved, log_ratio = family.rescale(state, 3.0)
    np.testing.assert_allclose(moved.matrix(), state.matrix() / 3)
    prior, a = stats.invgamma(1.5, scale=0.7), state.values["amplitude"]
    assert log_ratio == pytest.approx(prior.logpdf(a / 3) - prior.logpdf(a) - math.log(3.0))
    volume = math.log(math.log(5.0 / 0.2)) + math.log(math.log(1.0 / 0.01))  # of θ, the logarithms
    assert family.log_prior(state) == pytest.approx(prior.logpdf(a) - volume)
    fixed = GaussianProcess(KERNEL, TIMES, amplitude=2.0)
    assert fixed.rescale(fixed.start(np.eye(5)), 2.0)[1] == -math.inf
    assert fixed.log_prior(fixed.start(np.eye(5))) == pytest.approx(-volume)


def test_values_rebuild_the_state_to_the_last_bit(rng):
    family = GaussianProcess(KERNEL, TIMES)
    S = np.diag(TIMES + 1.0)
    state = family.start(S)
    for _ in range(5):
        state = family.update(state, S, 8, rng)
    again = pickle.loads(pickle.dumps(family)).from_values(dict(state.values), 5)
    one = family.update(state, S, 8, np.random.default_rng(1))
    two = family.update(again, S, 8, np.random.default_rng(1))
    assert one.values == two.values
    assert np.array_equal(one.matrix(), two.matrix())
    assert isinstance(family, CovarianceFamily)


def test_summary_takes_medians_where_they_are_possible():
    family = GaussianProcess(KERNEL, TIMES)

    def state(*values):
        names = ("amplitude", "k1__length_scale", "k2__noise_level")
        return family.from_values(dict(zip(names, values, strict=True)), 5)

    summary = family.summarise([state(1.0, 0.5, 0.1), state(9.0, 2.0, 0.3), state(2.0, 1.0, 0.9)])
    assert list(summary.values.values()) == pytest.approx([2.0, 1.0, 0.3])
    # K is only positive definite away from the middle: the nearest state is taken.

    class Split(Equicorrelated):
        def __call__(self, X, Y=None, eval_gradient=False):
            rho = self.rho if not 0.2 < self.rho < 0.8 else 2.0
            return np.eye(len(X)) + rho * (1 - np.eye(len(X)))

    family = GaussianProcess(Split(0.1), TIMES)
    states = [family.from_values({"amplitude": 1.0, "rho": rho}, 5) for rho in (0.1, 0.11, 0.9, 0.95)]
    assert family.summarise(states).values["rho"] in (0.11, 0.9)


def test_start_has_the_variance_of_the_data_and_leaves_the_kernel_alone(rng):
    kernel = 4.0 * RBF(1.0, (0.2, 5.0))
    kernel.k1.constant_value_bounds = "fixed"
    family = GaussianProcess(kernel, TIMES[:, None])
    state = family.start(7.0 * np.eye(5))
    assert np.diag(state.matrix()) == pytest.approx(7.0)
    assert list(state.values) == ["amplitude", "k2__length_scale"]  # what is fixed is not a value
    for _ in range(3):
        state = family.update(state, np.eye(5), 4, rng)
    assert kernel.k2.length_scale == 1.0
    assert family.kernel.k2.length_scale == 1.0
    assert state.values["k2__length_scale"] != 1.0


@pytest.mark.parametrize(
    ("kernel", "n_free"),
    [
        (RBF(1.0, "fixed") + WhiteKernel(1e-9, "fixed"), 0),
        (RBF([1.0, 2.0], (0.1, 10.0)), 2),
        (RBF([1.0, 2.0], (0.1, 10.0)) ** 2 * ConstantKernel(1.0) + WhiteKernel(), 4),
        (DotProduct() + Matern(nu=2.5) + WhiteKernel(), 3),
        (Matern(nu=0.7), 1),
    ],
)
def test_any_kernel_will_do(kernel, n_free, rng):
    family = GaussianProcess(kernel, rng.standard_normal((6, 2)))
    S = simulate(family.start(np.eye(6)), 20, rng)
    state = family.start(S / 20)
    for _ in range(4):
        state = family.update(state, S, 20, rng)
        assert np.all(np.isfinite(state.matrix()))
    assert sum(np.size(value) for value in state.values.values()) == n_free + 1
    state = family.sample_prior(6, rng)
    assert state.log_likelihood(S, 20) == pytest.approx(
        -10 * np.linalg.slogdet(state.matrix())[1] - 0.5 * np.trace(np.linalg.solve(state.matrix(), S)), rel=1e-3
    )


def test_the_papers_squared_exponential():
    """exp(−d²/2ℓ) + σ²δ with ℓ a squared length."""
    ell, sigma2 = 0.6, 0.01
    family = GaussianProcess(RBF(math.sqrt(ell)) + WhiteKernel(sigma2), TIMES, amplitude=1.0, jitter=0.0)
    gaps = TIMES[:, None] - TIMES
    truth = np.exp(-(gaps**2) / (2 * ell)) + sigma2 * np.eye(5)
    np.testing.assert_allclose(family.start(np.eye(5)).matrix(), truth, rtol=1e-12, atol=1e-15)


# Bad input


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: GaussianProcess(np.eye(3), TIMES), TypeError, "kernel must be an instance"),
        (lambda: GaussianProcess(RBF, TIMES), TypeError, "kernel must be an instance"),
        (lambda: GaussianProcess(KERNEL, None), TypeError, "coordinates must be given"),
        (lambda: as_family(KERNEL), TypeError, "coordinates must be given"),
        (lambda: as_family(KERNEL, TIMES, d=4), ValueError, "coordinates must have one row per feature"),
        (lambda: GaussianProcess(KERNEL, TIMES).start(np.eye(4)), ValueError, "4 features, 5 coordinates"),
        (lambda: GaussianProcess(KERNEL, []), ValueError, "coordinates must not be empty"),
        (lambda: GaussianProcess(KERNEL, [0.0, np.nan]), ValueError, "coordinates must be finite"),
        (lambda: GaussianProcess(KERNEL, ["a", "b"]), TypeError, "coordinates"),
        (lambda: GaussianProcess(RBF(1.0, (0.0, 2.0)), TIMES), ValueError, "finite, positive bounds for length_scale"),
        (lambda: GaussianProcess(RBF(1.0, (0.1, np.inf)), TIMES), ValueError, "length_scale_bounds"),
        (lambda: GaussianProcess(RBF(1.0, (1.0, 1.0)), TIMES), ValueError, "lower below upper"),
        (lambda: GaussianProcess(RBF(1.0, (2.0, 3.0)), TIMES), ValueError, "outside its bounds"),
        (lambda: GaussianProcess(RBF([1.0, 2.0, 3.0]), TIMES), ValueError, "cannot be evaluated on coordinates"),
        (lambda: GaussianProcess(CompoundKernel([RBF(), RBF()]), TIMES), ValueError, "must give a"),
        (lambda: GaussianProcess(Unbounded(), TIMES), ValueError, "as many bounds"),
        (lambda: GaussianProcess(KERNEL, TIMES, shape=-1.0), ValueError, "shape must be positive"),
        (lambda: GaussianProcess(KERNEL, TIMES, scale=0.0), ValueError, "scale must be positive"),
        (lambda: GaussianProcess(KERNEL, TIMES, amplitude=0.0), ValueError, "amplitude must be positive"),
        (lambda: GaussianProcess(KERNEL, TIMES, jitter=-1.0), ValueError, "jitter must not be negative"),
        (lambda: GaussianProcess(KERNEL, TIMES, width=0.0), ValueError, "width must be positive"),
        (lambda: GaussianProcess(Equicorrelated(2.0), TIMES).start(np.eye(5)), ValueError, "Add a WhiteKernel"),
        (
            lambda: GaussianProcess(Equicorrelated(2.0, (1.5, 4.0)), TIMES).sample_prior(5, np.random.default_rng(0)),
            ValueError,
            "Narrow the bounds",
        ),
        (
            lambda: GaussianProcess(Equicorrelated(), TIMES).from_values({"amplitude": 1.0, "rho": 3.0}, 5),
            ValueError,
            "not positive definite",
        ),
        (
            lambda: GaussianProcess(RBF(), TIMES).from_values({"amplitude": 1.0, "length_scale": [1.0, 2.0]}, 5),
            ValueError,
            "length_scale must have 1",
        ),
    ],
)
def test_bad_input_is_named(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_bad_scatter_is_named(rng):
    family = GaussianProcess(KERNEL, TIMES)
    for S, m, match in [(np.eye(4), 3, r"S must be \(5, 5\)"), (np.eye(5), -1, "m must be at least 0")]:
        with pytest.raises(ValueError, match=match):
            family.update(family.start(np.eye(5)), S, m, rng)
