"""log Ψ and its slope against mpmath, over the table, its edges and far beyond."""

import mpmath
import numpy as np
import pytest

from coaltree.regression import links

POINTS = np.concatenate(
    [
        np.linspace(-7.999, 7.999, 257),
        np.arange(-8, 8.1, 1 / 32)[::7],
        [-1e4, -300.0, -38.0, -20.0, -8.0, -7.9999999, 7.9999999, 8.0, 8.3, 12.0, 36.0],
    ]
)


def truth(z, link):
    with mpmath.workdps(60):
        z = mpmath.mpf(float(z))
        if link == links.PROBIT:
            above = mpmath.erfc(z / mpmath.sqrt(2)) / 2
            below = mpmath.erfc(-z / mpmath.sqrt(2)) / 2
            value = mpmath.log1p(-above) if z > 0 else mpmath.log(below)
            return float(value), float(mpmath.npdf(z) / below)
        return float(-mpmath.log1p(mpmath.exp(-z))), float(1 / (1 + mpmath.exp(z)))


def both(z, link):
    eta = np.asarray(z, dtype=float)[None, :]
    values, slopes = np.zeros(eta.size), np.empty_like(eta)
    signs = np.ones(eta.shape, dtype=np.int8)
    links.values_and_slopes(eta, signs, np.ones((1, 1)), links.table(link), link, values, slopes)
    alone = np.empty_like(eta)
    links.slopes(eta, signs, np.ones((1, 1)), links.table(link), link, alone)
    np.testing.assert_array_equal(alone, slopes)
    return values, slopes[0]


@pytest.mark.parametrize("link", [links.PROBIT, links.LOGIT])
def test_value_and_slope_have_twelve_digits(link):
    expected = np.array([truth(z, link) for z in POINTS])
    values, slopes = both(POINTS, link)
    np.testing.assert_allclose(values, expected[:, 0], rtol=1e-12, atol=1e-290)
    np.testing.assert_allclose(slopes, expected[:, 1], rtol=1e-12, atol=1e-290)


def test_the_tolerance_is_not_empty():
    """Neighbouring cells differ by far more than the tolerance."""
    values, slopes = both(POINTS + 1e-10, links.PROBIT)
    expected = np.array([truth(z, links.PROBIT) for z in POINTS])
    assert np.max(np.abs(slopes / expected[:, 1] - 1)[:257]) > 1e-11
    assert np.max(np.abs(values / expected[:, 0] - 1)[:257]) > 1e-11


@pytest.mark.parametrize("link", [links.PROBIT, links.LOGIT])
def test_not_a_number_stays(link):
    values, slopes = both(np.array([np.nan]), link)
    assert np.isnan(values[0])
    assert np.isnan(slopes[0])


@pytest.mark.parametrize("link", [links.PROBIT, links.LOGIT])
def test_plain_forms_agree(link):
    z = np.linspace(-9, 9, 41)
    values, slopes = both(z, link)
    np.testing.assert_allclose(links.log_link(z, link), values, rtol=1e-12)
    np.testing.assert_allclose(links.link_slope(z, link), slopes, rtol=1e-12)
    np.testing.assert_allclose(links.quantile(links.probability(z[:30], link), link), z[:30], rtol=1e-9)
