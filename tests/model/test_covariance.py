"""Fixed, spherical, diagonal and full covariances against closed forms, quadrature and prior simulation."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from coaltree import Tree, sample_data
from coaltree.model.covariance import (
    Diagonal,
    Fixed,
    HuangWand,
    InverseWishart,
    PooledWishart,
    ShrunkWishart,
    Spherical,
    as_family,
)
from coaltree.model.diffusion import log_likelihood, scatter, whiten
from coaltree.model.family import CovarianceFamily
from tests.model.invariance import LIMIT, drift, rank_p_value, simulate, stream
from tests.seeds import seed

PSI = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.7]])
FAMILIES = {
    "spherical": Spherical(2.0, 1.5),
    "diagonal": Diagonal(2.0, 1.5),
    "inverse wishart": InverseWishart(PSI, 5.0),
    "huang wand": HuangWand(2.0, 1.5, 0.5),
    "pooled wishart": PooledWishart(4.0, 1.5),
    "shrunk": ShrunkWishart(2.0, 1.5),
}
by_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


@pytest.fixture
def rng(request):
    return stream(request)


# Invariance, calibration


@by_family
def test_update_leaves_the_posterior_invariant(family, rng):
    assert np.abs(drift(family, 3, 5, 400, 2, rng)).max() < LIMIT


@by_family
def test_invariance_is_lost_with_the_wrong_number_of_contrasts(family, rng):
    assert np.abs(drift(family, 3, 5, 400, 2, rng, m_claimed=8)).max() > 2 * LIMIT


@pytest.mark.parametrize("name", ["spherical", "diagonal", "inverse wishart"])
def test_ranks_of_the_truth_are_uniform(name, rng):
    def statistic(state):
        return state.matrix()[0, 0]

    assert rank_p_value(FAMILIES[name], 3, 6, statistic, rng) > 1e-5
    assert rank_p_value(FAMILIES[name], 3, 6, statistic, rng, m_claimed=12) < 1e-5


@by_family
def test_a_scale_move_accepted_by_rescale_leaves_the_prior_invariant(family, rng):
    def change(wrong_power):
        changes = []
        for _ in range(800):
            state = family.sample_prior(3, rng)
            c = math.exp(rng.normal())
            moved, log_ratio = family.rescale(state, c)
            log_ratio += wrong_power * math.log(c)
            if math.log(rng.random()) < log_ratio:
                changes.append((moved.log_det - state.log_det) / 3)
            else:
                changes.append(0.0)
        return np.mean(changes) / stats.sem(changes)

    assert abs(change(0)) < LIMIT
    assert abs(change(3)) > LIMIT


# Posteriors against quadrature and closed forms


def test_spherical_posterior_equals_quadrature(rng):
    family, u = Spherical(1.3, 0.4), rng.standard_normal((4, 2)) * 1.7
    log_phi = np.linspace(-6, 8, 2001)
    density = stats.invgamma(1.3, scale=0.4).logpdf(np.exp(log_phi)) + log_phi
    density += stats.norm.logpdf(u[:, :, None], scale=np.exp(log_phi / 2)).sum(axis=(0, 1))
    cdf = np.cumsum(np.exp(density - density.max()))
    state = family.start(np.eye(2))
    draws = [math.log(family.update(state, u.T @ u, 4, rng).values["variance"]) for _ in range(2000)]
    assert stats.kstest(draws, lambda x: np.interp(x, log_phi, cdf / cdf[-1])).pvalue > 1e-5


def test_diagonal_columns_are_one_dimensional_spherical(rng):
    S, m = np.diag([3.0, 0.2, 8.0]), np.array([4, 7, 2])
    state = Diagonal(2.0, 0.5).start(np.eye(3))
    draws = np.array([Diagonal(2.0, 0.5).update(state, S, m, rng).values["variances"] for _ in range(1500)])
    for k in range(3):
        truth = stats.invgamma(2.0 + m[k] / 2, scale=0.5 + S[k, k] / 2)
        assert stats.kstest(draws[:, k], truth.cdf).pvalue > 1e-5
    # Spherical pools the counts.
    draws = [Spherical(2.0, 0.5).update(Spherical().start(S), S, m, rng).values["variance"] for _ in range(1500)]
    assert stats.kstest(draws, stats.invgamma(2.0 + 6.5, scale=0.5 + 5.6).cdf).pvalue > 1e-5


def test_log_priors_equal_scipy(rng):
    for d in (1, 3):
        family = InverseWishart(PSI[:d, :d], d + 1.5)
        state = family.sample_prior(d, rng)
        truth = stats.invwishart(d + 1.5, PSI[:d, :d]).logpdf(state.matrix())
        assert family.log_prior(state) == pytest.approx(truth, rel=1e-9)
    state = Spherical(2.5, 0.3).sample_prior(4, rng)
    truth = stats.invgamma(2.5, scale=0.3).logpdf(state.values["variance"])
    assert Spherical(2.5, 0.3).log_prior(state) == pytest.approx(truth)
    state = Diagonal(2.5, 0.3).sample_prior(4, rng)
    truth = stats.invgamma(2.5, scale=0.3).logpdf(state.values["variances"]).sum()
    assert Diagonal(2.5, 0.3).log_prior(state) == pytest.approx(truth)


@by_family
def test_rescale_equals_numerical_density_and_jacobian(family, rng):
    """Densities by scipy or by hand, the Jacobian by finite differences on the free coordinates."""
    state, c = family.sample_prior(3, rng), 2.7
    moved, log_ratio = family.rescale(state, c)
    np.testing.assert_allclose(moved.matrix(), state.matrix() / c, rtol=1e-12)
    lower = np.tril_indices(3)
    if isinstance(family, Spherical):
        free, density = lambda M: M[[0], [0]], lambda M: stats.invgamma(2.0, scale=1.5).logpdf(M[0, 0])
        build = lambda x: x[0] * np.eye(3)  # noqa: E731
    elif isinstance(family, PooledWishart):
        # Φ and σ together: a density by scipy, and a Jacobian that is diagonal.
        sigma, df = state.values["width"], 4.0 + 3 - 1
        assert moved.values["width"] == pytest.approx(sigma / math.sqrt(c))

        def density_of(phi, sigma):
            wishart = stats.invwishart(df, 4.0 * sigma**2 * np.eye(3)).logpdf(phi)
            return wishart + stats.t(2).logpdf(sigma / 1.5) + math.log(2 / 1.5)

        assert family.log_prior(state) == pytest.approx(density_of(state.matrix(), sigma))
        change = density_of(moved.matrix(), sigma / math.sqrt(c)) - density_of(state.matrix(), sigma)
        assert log_ratio == pytest.approx(change - 6.5 * math.log(c))
        return
    elif isinstance(family, ShrunkWishart):
        # Φ and σ² together, in the same way; ν stays.
        variance, nu = state.values["variance"], state.values["df"]
        assert moved.values["variance"] == pytest.approx(variance / c)
        assert moved.values["df"] == nu

        def density_given(phi, variance):
            wishart = stats.invwishart(nu + 2, nu * variance * np.eye(3)).logpdf(phi)
            return wishart + stats.invgamma(2.0, scale=1.5).logpdf(variance)

        strength = math.log(3 / (nu - 2 + 3) ** 2)  # but for the bounds, beyond which lies a millionth
        assert family.log_prior(state) == pytest.approx(density_given(state.matrix(), variance) + strength, abs=1e-4)
        change = density_given(moved.matrix(), variance / c) - density_given(state.matrix(), variance)
        assert log_ratio == pytest.approx(change - 7 * math.log(c))
        return
    elif isinstance(family, Diagonal):
        free, density = np.diag, lambda M: stats.invgamma(2.0, scale=1.5).logpdf(np.diag(M)).sum()
        build = np.diag
    else:
        free = lambda M: M[lower]  # noqa: E731

        def build(x):
            M = np.zeros((3, 3))
            M[lower] = x
            return M + np.tril(M, -1).T

        def density(M):
            if isinstance(family, InverseWishart):
                return stats.invwishart(5.0, PSI).logpdf(M)
            tails = np.log(2 * np.diag(np.linalg.inv(M)) + 1.5**-2).sum()
            return -4 * np.linalg.slogdet(M)[1] - 2.5 * tails

    x = free(state.matrix())
    jacobian = np.empty((len(x), len(x)))
    for k in range(len(x)):
        step = np.zeros(len(x))
        step[k] = 1e-6 * abs(x).max()
        up, down = (build(x + sign * step) / c for sign in (1, -1))
        jacobian[:, k] = (free(up) - free(down)) / (2 * step[k])
    truth = density(moved.matrix()) - density(state.matrix()) + np.linalg.slogdet(jacobian)[1]
    assert log_ratio == pytest.approx(truth, abs=1e-6)
    assert family.log_rescale(state, c) == pytest.approx(log_ratio)
    # There and back is nothing.
    assert log_ratio + family.rescale(moved, 1 / c)[1] == pytest.approx(0.0, abs=1e-9)


# States and summaries


@by_family
def test_state_agrees_with_its_matrix(family, rng):
    state = family.sample_prior(3, rng)
    phi = state.matrix()
    np.testing.assert_allclose(state.factor @ state.factor.T, phi, rtol=1e-10, atol=1e-14)
    assert np.all(np.triu(state.factor, 1) == 0)
    assert state.log_det == pytest.approx(np.linalg.slogdet(phi)[1])
    X = rng.standard_normal((5, 3))
    np.testing.assert_allclose(state.whiten(X) @ state.whiten(X).T, X @ np.linalg.solve(phi, X.T), rtol=1e-8)
    assert state.trace_solve(X.T @ X) == pytest.approx(np.trace(np.linalg.solve(phi, X.T @ X)))
    assert isinstance(family, CovarianceFamily)


@by_family
def test_values_rebuild_the_state_to_the_last_bit(family, rng):
    S = simulate(family.sample_prior(3, rng), 9, rng)
    state = family.update(family.start(S / 9), S, 9, rng)
    again = family.from_values(state.values, 3)
    one = family.update(state, S, 9, np.random.default_rng(1)).matrix()
    two = family.update(again, S, 9, np.random.default_rng(1)).matrix()
    assert np.array_equal(one, two)


def test_likelihood_of_the_state_is_that_of_the_tree(rng):
    tree = Tree([[0, 1], [2, 3], [4, 5]], [0.2, 0.5, 1.4])
    X = sample_data(tree, PSI, random_state=rng)
    S = scatter(tree, X)
    states = [FAMILIES["huang wand"].sample_prior(3, rng) for _ in range(2)]
    by_tree = [log_likelihood(tree, X, state.matrix()) for state in states]
    by_scatter = [state.log_likelihood(S, 3) for state in states]
    assert by_scatter[0] - by_scatter[1] == pytest.approx(by_tree[0] - by_tree[1])
    np.testing.assert_allclose(states[0].whiten(X), whiten(X, states[0].matrix()).rows, rtol=1e-9)


def test_summaries_are_medians_and_always_positive_definite(rng):
    states = [Diagonal().from_values({"variances": v}, 2) for v in ([1.0, 5.0], [2.0, 3.0], [9.0, 4.0])]
    np.testing.assert_array_equal(Diagonal().summarise(states).matrix(), np.diag([2.0, 4.0]))
    states = [Spherical().from_values({"variance": v}, 2) for v in (1.0, 7.0, 3.0)]
    assert Spherical().summarise(states).values["variance"] == 3.0
    family = InverseWishart(PSI, 3.0)  # tails so heavy that there is no mean
    assert np.linalg.eigvalsh(family.summarise([family.sample_prior(3, rng) for _ in range(400)]).matrix()).min() > 0
    family = FAMILIES["inverse wishart"]
    draws = [family.sample_prior(3, rng) for _ in range(100)]
    summary = family.summarise(draws)
    np.testing.assert_allclose(summary.matrix(), summary.matrix().T)
    precision = np.mean([np.linalg.inv(state.matrix()) for state in draws], axis=0)
    np.testing.assert_allclose(np.linalg.inv(summary.matrix()), precision, rtol=1e-6)
    A = rng.standard_normal((3, 3))  # follows linear maps
    mapped = [family.from_values({"covariance": A @ s.matrix() @ A.T}, 3) for s in draws]
    np.testing.assert_allclose(family.summarise(mapped).matrix(), A @ summary.matrix() @ A.T, rtol=1e-5)
    with pytest.raises(ValueError, match="states"):
        family.summarise([])


def test_fixed_stays(rng):
    family = Fixed(PSI)
    state = family.start(None)
    assert family.update(state, np.eye(3), 4, rng) is state
    np.testing.assert_array_equal(family.sample_prior(3, rng).matrix(), state.matrix())
    assert family.rescale(state, 2.0) == (state, -math.inf)
    assert family.rescale(state, 1.0) == (state, 0.0)
    assert family.log_prior(state) == 0.0
    np.testing.assert_allclose(family.summarise([state]).matrix(), PSI)


@pytest.mark.parametrize("name", ["spherical", "diagonal", "shrunk", "wishart"])
def test_default_priors_do_not_mind_the_units(name, rng):
    """From thousandths to thousands: the same draws, rescaled."""
    u = rng.standard_normal((30, 3))

    def draws(units):
        stream = np.random.default_rng(seed(1))
        family, S = as_family(name), units**2 * u.T @ u
        states = [family.start(S / 30)]
        for _ in range(50):
            states.append(family.update(states[-1], S, 30, stream))
        return np.array([state.matrix() for state in states]) / units**2

    np.testing.assert_allclose(draws(1e-3), draws(1.0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(draws(1e3), draws(1.0), rtol=1e-3, atol=1e-3)


# Bad input, imports


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Spherical(-1.0), ValueError, "shape must be positive"),
        (lambda: Spherical(scale=0.0), ValueError, "scale must be positive"),
        (lambda: Diagonal(scale=math.inf), ValueError, "scale must be finite"),
        (lambda: Diagonal("a"), TypeError, "shape must be"),
        (lambda: HuangWand(-2.0), ValueError, "df must be positive"),
        (lambda: HuangWand(scale=[1.0, -1.0]), ValueError, "scale must be positive"),
        (
            lambda: HuangWand(scale=[1.0, 1.0]).start(np.eye(3)) and HuangWand(scale=[1.0, 1.0]).rates(3),
            ValueError,
            "scale",
        ),
        (lambda: InverseWishart(np.array([[1.0, 2.0], [2.0, 1.0]])), ValueError, "positive definite"),
        (lambda: InverseWishart(1.0, 1.5).sample_prior(3, np.random.default_rng(0)), ValueError, "df must exceed"),
        (
            lambda: InverseWishart(PSI).sample_prior(2, np.random.default_rng(0)),
            ValueError,
            "scale must be a number or",
        ),
        (lambda: Fixed(np.eye(3)).sample_prior(2, np.random.default_rng(0)), ValueError, "d must be 3"),
        (lambda: Fixed([[1.0, 0.0]]), ValueError, "square"),
        (lambda: as_family("wishhart"), ValueError, "covariance must be one of"),
        (lambda: as_family(3.0), TypeError, "covariance must be"),
        (lambda: as_family(Spherical), TypeError, "covariance must be"),
        (lambda: as_family(np.eye(3), d=2), ValueError, r"\(2, 2\)"),
        (lambda: Spherical().start(np.zeros((2, 2))), ValueError, "constant"),
        (lambda: Spherical().start(np.ones((2, 3))), ValueError, "guess must be a square"),
        (lambda: Spherical().from_values({"variance": -1.0}, 2), ValueError, "variance must be positive"),
        (lambda: Diagonal().from_values({"variances": [1.0, 0.0]}, 2), ValueError, "variances must be"),
        (lambda: HuangWand().from_values({"covariance": np.ones((2, 2))}, 2), ValueError, "positive definite"),
        (lambda: HuangWand().from_values({"covariance": np.eye(3)}, 2), ValueError, "covariance must be"),
        (lambda: Spherical().rescale(Spherical().start(np.eye(2)), 0.0), ValueError, "c must be positive"),
    ],
)
def test_bad_parameters_are_named(make, error, match):
    with pytest.raises(error, match=match):
        make()


@by_family
def test_bad_scatter_is_named(family, rng):
    state = family.start(np.eye(3))
    for S, m, error, match in [
        (np.eye(2), 4, ValueError, r"S must be \(3, 3\)"),
        (np.full((3, 3), np.nan), 4, ValueError, "S must be finite"),
        (-np.eye(3), 4, ValueError, "negative"),
        (np.eye(3), -1, ValueError, "m must be at least 0"),
        (np.eye(3), 2.5, TypeError, "m must be an integer"),
        (np.eye(3), [1, 2], (ValueError, TypeError), "m must be"),
    ]:
        with pytest.raises(error, match=match):
            family.update(state, S, m, rng)


def test_scikit_learn_is_not_imported():
    code = "import sys, coaltree, coaltree.model.covariance as c; c.as_family('wishart'); "
    code += "sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
