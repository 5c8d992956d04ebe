"""The truncated GIG against mpmath, scipy and its own numerical distribution."""

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from scipy.special import kve

from coaltree.model import gig
from coaltree.model.gig import quadrature
from tests.reference.gig import log_bessel_k as true_log_bessel_k
from tests.reference.gig import log_integral as truth
from tests.seeds import seed


def error(d, eps, lam, r):
    """Error of the integral: 1e-10 is the promise, or what the spacing of doubles near log I allows."""
    exact = truth(d, eps, lam, r)
    got = gig.log_integral(d, eps, lam, r)
    return abs(float(mp.mpf(float(got)) - exact)) - 8 * np.spacing(abs(float(got)))


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7, 30, 256, 4096])
@pytest.mark.parametrize("lam", [1.0, pytest.param(1e3, marks=[pytest.mark.slow, pytest.mark.ci]), 1e9])
def test_integral_over_the_whole_range(d, lam):
    for eps in (0.0, 1e-12, 1e-3, 1.0, 1e4, 1e12):
        for r in (0.0, 1e-9, 1e-3, 0.5, 1e6):
            if eps == 0 and r == 0:
                continue
            assert error(d, eps, lam, r) < 1e-10, (eps, r)


def test_integral_at_random_places():
    rng = np.random.default_rng(seed(0))
    for _ in range(150):
        d = int(np.exp(rng.uniform(0, np.log(4097))))
        eps, lam = 10 ** rng.uniform(-12, 12), 10 ** rng.uniform(0, 9)
        # Truncate where it hurts: around the bulk of the distribution.
        r = gig.mode(d, eps, lam) * np.exp(rng.normal() * 3 / np.sqrt(d / 2 + np.sqrt(lam * eps)))
        assert error(d, eps, lam, r) < 1e-10, (d, eps, lam, r)


def test_divergent_and_gamma_cases():
    assert gig.log_integral(2, 0.0, 1.0, 0.0) == np.inf
    # d = 1, ε = r = 0 is a gamma integral: √(2π/λ).
    assert gig.log_integral(1, 0.0, 3.0, 0.0) == pytest.approx(0.5 * np.log(2 * np.pi / 3), abs=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
@pytest.mark.parametrize("d", [1, 2, 3, 50])
def test_integral_at_the_ends_of_the_doubles(d, scale):
    assert error(d, scale, 1.0, 0.0) < 1e-10


def test_broadcasting():
    table = gig.log_integral(np.array([2, 5])[:, None], [1.0, 2.0, 3.0], 4.0, 0.1)
    assert table.shape == (2, 3)
    assert table[1, 2] == gig.log_integral(5, 3.0, 4.0, 0.1)
    assert isinstance(gig.log_integral(5, 3.0, 4.0, 0.1), float)


def test_log_bessel_k():
    z = np.logspace(-5, 2.5, 40)
    for nu in (0, 0.5, 1, 2.5, 10, 33.5):
        with np.errstate(over="ignore"):
            expected = np.log(kve(nu, z)) - z
        finite = np.isfinite(expected)
        np.testing.assert_allclose(gig.log_bessel_k(nu, z)[finite], expected[finite], atol=1e-11, rtol=1e-13)
    for nu, z in [(0, 1e-200), (3, 50.0), (100.5, 1.0), (300, 400.0)]:
        assert abs(float(true_log_bessel_k(nu, z) - float(gig.log_bessel_k(nu, z)))) < 1e-10
    assert gig.log_bessel_k(-1.5, 2.0) == gig.log_bessel_k(1.5, 2.0)


@pytest.mark.parametrize("z", [1e-300, 1e-200, 1e-160, 1e-101, 1e-100, 1e-99, 1e-30, 1e-3])
def test_log_bessel_k_at_small_arguments(z):
    """Of any order, on both sides of the switches between formulas; −log z alone is what is left as ν → 0."""
    orders = [0.0, 1e-300, 1e-20, 1e-8, 1e-3, 0.02, 0.0899, 0.0901, 0.1, 0.5, 1 - 1e-9, 1.0, 2.0, 7.3, 1e3, 1e9]
    for nu, found in zip(orders, gig.log_bessel_k(orders, z), strict=True):
        assert abs(float(true_log_bessel_k(nu, z) - float(found))) < 1e-12 + 4 * np.spacing(abs(found)), nu
    values = gig.log_bessel_k(np.linspace(0.0, 0.3, 301), z)
    assert (np.diff(values) > 0).all()  # K_ν rises with the order


def test_expansion_meets_quadrature():
    """On either side of the switch between the two, the same number."""
    for share in np.linspace(0.0, 1.0, 9):
        s = quadrature.EXPANSION_FROM * 1.0001
        a, b = share * s, (1 - share) * s
        with mp.workdps(30):
            total = mp.quad(
                lambda x, a=a, b=b: mp.exp(-a * (mp.exp(-x) - 1 + x) - b * (mp.exp(x) - 1 - x)), mp.linspace(-6, 6, 40)
            )
        # λ, ε and d that give this A and B at v* = 1.
        log_i = gig.log_integral(2 + 2 * (a - b), 2 * a, 2 * b, 0.0) if b > 0 and a >= b else None
        if log_i is not None:
            assert log_i + a + b == pytest.approx(float(mp.log(total)), abs=2e-12)


REGIMES = {
    "first merge": (3, 2.0, 10.0, 0.0),
    "d = 1": (1, 0.7, 1.0, 0.0),
    "d = 1, eps = 0": (1, 0.0, 1.0, 0.0),
    "d = 1 truncated": (1, 0.7, 1.0, 0.4),
    "d = 2": (2, 1e-3, 100.0, 0.0),
    "d = 2 plateau": (2, 1e-9, 1e-3, 1e-8),
    "d = 256": (256, 300.0, 1000.0, 0.0),
    "d = 256, cut at the mode": (256, 300.0, 1000.0, 0.5),
    "deep truncation": (256, 1.0, 1e6, 2.0),
    "deep truncation, flat": (3, 1e-8, 1.0, 50.0),
    "cut just left of the mode": (16, 20.0, 5.0, 0.9),
    "no data": (4, 0.0, 3.0, 0.2),
    "large rate": (8, 1.0, 1e9, 1e-6),
}


@pytest.mark.parametrize("regime", REGIMES)
def test_draws_follow_the_numerical_distribution(regime):
    d, eps, lam, r = REGIMES[regime]
    x = gig.sample(d, eps, lam, r, size=20_000, random_state=seed(1))
    assert x.min() >= r

    def cdf(v):
        return -np.expm1(gig.log_integral(d, eps, lam, v) - gig.log_integral(d, eps, lam, r))

    assert stats.kstest(x, cdf).pvalue > 1e-4
    # Negative control: a distribution with d off by a little in a spread-out regime is told apart.
    if regime == "first merge":
        total = gig.log_integral(3.4, eps, lam, 0.0)
        assert stats.kstest(x, lambda v: -np.expm1(gig.log_integral(3.4, eps, lam, v) - total)).pvalue < 1e-4
    mean, variance = gig.mean(d, eps, lam, r), gig.variance(d, eps, lam, r)
    assert abs(x.mean() - mean) < 5 * np.sqrt(variance / len(x))


@pytest.mark.parametrize(("d", "eps", "lam", "r"), REGIMES.values(), ids=REGIMES)
def test_moments_against_ratios_of_integrals(d, eps, lam, r):
    """E v^k = I(d − 2k)/I(d), in 40 digits."""
    if d == 1 and eps == 0 and r == 0:
        assert gig.mean(d, eps, lam, r) == pytest.approx(1 / lam, rel=1e-10)
        return
    base = truth(d, eps, lam, r)
    with mp.workdps(40):
        first = mp.exp(truth(d - 2, eps, lam, r) - base)
        second = mp.exp(truth(d - 4, eps, lam, r) - base)
    assert gig.mean(d, eps, lam, r) == pytest.approx(float(first), rel=1e-10)
    # The reference loses digits in E v² − (E v)², so compare on the scale of the second moment too.
    assert gig.variance(d, eps, lam, r) == pytest.approx(float(second - first**2), rel=1e-8, abs=1e-12 * float(second))


def test_mode_maximises_the_density():
    for d, eps, lam, r in [(1, 2.0, 3.0, 0.0), (10, 2.0, 3.0, 0.1), (10, 2.0, 3.0, 5.0)]:
        mode = gig.mode(d, eps, lam, r)
        v = np.array([mode * 0.99, mode, mode * 1.01])
        density = np.where(v >= r, -d / 2 * np.log(v) - eps / 2 / v - lam * v / 2, -np.inf)
        assert density[1] == density.max()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0, 1, 1, 0), "d"),
        ((2, -1, 1, 0), "eps"),
        ((2, 1, 0, 0), "lam"),
        ((2, 1, 1, -1), "r"),
        ((2, np.nan, 1, 1), "eps"),
    ],
)
def test_bad_arguments(arguments, name):
    for function in (gig.log_integral, gig.mean, gig.variance, gig.mode, gig.sample):
        with pytest.raises(ValueError, match=f"^{name} must be"):
            function(*arguments)


def test_other_bad_arguments():
    with pytest.raises(ValueError, match="no proper distribution"):
        gig.sample(2, 0.0, 1.0, 0.0)
    with pytest.raises(ValueError, match="z must"):
        gig.log_bessel_k(1, -1.0)
    with pytest.raises(ValueError, match="nu must"):
        gig.log_bessel_k(np.inf, 1.0)
