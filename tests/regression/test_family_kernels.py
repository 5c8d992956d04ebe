"""Kernels of counts and of measurements beside their plain twins."""

import numpy as np
import pytest

from coaltree.regression.families.normal import residuals
from coaltree.regression.families.poisson import count_slopes, count_values_and_slopes
from tests.reference import families as twin
from tests.seeds import seed


@pytest.fixture(params=[1, 3], ids=["shared weights", "weights per outcome"])
def case(request):
    rng = np.random.default_rng(seed(83))
    eta, exposure = rng.normal(size=(20, 3)), rng.uniform(0.1, 2.0, size=(20, 3))
    counts = rng.poisson(exposure * np.exp(eta)).astype(float)
    return eta, counts, exposure, rng.uniform(0.0, 2.0, size=(20, request.param))


def test_values_and_slopes_are_those_of_the_density(case):
    values, slopes = twin.values_and_slopes_of_counts(*case)
    found_values, found = np.zeros(3), np.empty((20, 3))
    count_values_and_slopes(*case, found_values, found)
    np.testing.assert_allclose(found_values, values, rtol=1e-10)
    np.testing.assert_allclose(found, slopes, rtol=1e-12)
    alone = np.empty((20, 3))
    count_slopes(*case, alone)
    np.testing.assert_array_equal(alone, found)


def test_the_twins_slopes_are_derivatives(case):
    eta, counts, exposure, weights = case
    step = 1e-6
    above, below = (twin.log_density(eta + sign * step, counts, exposure) for sign in (1, -1))
    np.testing.assert_allclose(
        twin.values_and_slopes_of_counts(*case)[1], weights * (above - below) / (2 * step), rtol=1e-5, atol=1e-7
    )
    wrong = twin.values_and_slopes_of_counts(eta + 0.1, counts, exposure, weights)[1]
    assert np.abs(wrong - twin.values_and_slopes_of_counts(*case)[1]).max() > 1e-2


def test_residuals_are_the_slopes_of_the_normal_density(case):
    eta, _, labels, weights = case
    labels = labels.copy()
    labels[::4, 1] = np.nan
    values, slopes = twin.values_and_slopes_of_measurements(eta, labels, weights)
    found_values, found = np.zeros(3), np.empty((20, 3))
    residuals(eta, labels, weights, found_values, found)
    np.testing.assert_allclose(found_values, values, rtol=1e-10)
    np.testing.assert_allclose(found, slopes, rtol=1e-12)
