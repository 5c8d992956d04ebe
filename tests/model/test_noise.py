"""Families of leaf noise: which a user means, and what each block does against its definition."""

import math

import numpy as np
import pytest
from scipy import stats

import coaltree as ct
from coaltree.model.noise import SHARED, SMALLEST_NOISE, GivenNoise, NoiseFamily, RobustNoise, as_noise, noise_of
from tests.seeds import seed

FAMILIES = {"shared": SHARED, "given": GivenNoise(np.array([0.1, 0.2, 0.3])), "robust": RobustNoise(0.4, 3.0)}
ROWS = np.array([0.1, 0.2, 0.3])


def test_what_a_user_means():
    assert as_noise("learn", 3) is SHARED
    assert isinstance(as_noise("robust", 3), RobustNoise)
    assert as_noise(0.5, 3).rows.tolist() == [0.5] * 3
    for bad in ("often", [-1.0, 0.0, 0.0], [0.1]):
        with pytest.raises(ct.CoaltreeError, match="leaf_noise"):
            as_noise(bad, 3)


@pytest.mark.parametrize("name", FAMILIES)
def test_families_by_name(name):
    family: NoiseFamily = FAMILIES[name]
    assert type(noise_of(family.name, ROWS)) is type(family)
    assert family.learned == (name != "given")
    rows, again = family.start(3, 0.7, np.array([1.0, 1.0, 100.0]))
    assert rows.shape == (3,)
    assert (again.level(rows) == 0.7) == family.learned
    stacked = family.stack([family.compact(rows)] * 4)
    assert np.broadcast_to(stacked, (4, 3)).shape == (4, 3)
    np.testing.assert_array_equal(np.broadcast_to(stacked, (4, 3))[2], rows)


def test_rows_that_are_far_start_with_more():
    rows, _ = RobustNoise().start(3, 0.7, np.array([1.0, 1.0, 100.0]))
    np.testing.assert_allclose(rows, [0.7, 0.7, 70.0])


@pytest.mark.parametrize("name", FAMILIES)
def test_levels(name):
    family = FAMILIES[name]
    rows, moved = family.at_level(ROWS, 0.8)
    expected = {"shared": [0.8] * 3, "given": ROWS, "robust": 2.0 * ROWS}[name]
    np.testing.assert_allclose(rows, expected)
    assert moved.level(rows) == pytest.approx(0.1 if name == "given" else 0.8)


def test_prior_of_the_level():
    """Of s₀ → c s₀ it is the ratio of exponential densities times c."""
    for family in (SHARED, FAMILIES["robust"]):
        log_c = math.log(3.0)
        ratio = stats.expon.logpdf(0.6) - stats.expon.logpdf(0.2) + log_c
        difference = family.log_rescale(0.2, log_c) - family.log_rescale(0.2, 0.0)
        assert difference == pytest.approx(ratio)
        assert family.log_rescale(SMALLEST_NOISE, -1.0) == -math.inf
    assert FAMILIES["given"].log_rescale(0.2, 1.0) == 0.0


def test_the_offset_keeps_what_the_likelihood_sees():
    rng = np.random.default_rng(seed(0))
    times = np.array([0.3, 0.9])
    for name, family in FAMILIES.items():
        rows = np.full(3, 0.2) if name == "shared" else ROWS
        moved, noise = family.draw_offset(times, rows, 0.0, rng)
        np.testing.assert_allclose(moved[:, None] + noise, times[:, None] + rows)
        assert (moved[0] == times[0]) == (name == "given")


def test_the_law_of_rows_is_drawn_from_its_conditional():
    """s₀ given the rows' noise and ν is a gamma distribution; with a bound, what is above it."""
    rng = np.random.default_rng(seed(1))
    family, rows = RobustNoise(0.4, 3.0), np.array([0.3, 0.5, 2.0])
    scales = np.array([family.update(rows, 0.0, rng).scale for _ in range(2000)])
    shape, rate = 3 * 1.5 + 1.0, 1.0 + 1.5 * (1.0 / rows).sum()
    assert stats.kstest(scales, stats.gamma(shape, scale=1.0 / rate).cdf).pvalue > 1e-3
    assert stats.kstest(1.1 * scales, stats.gamma(shape, scale=1.0 / rate).cdf).pvalue < 1e-3
    assert min(family.update(rows, 0.6, rng).scale for _ in range(100)) >= 0.6


def test_new_rows_have_the_law_of_rows():
    tails = np.tile([2.0, 5.0], (4000, 1))
    found = RobustNoise().new_rows(np.ones((4000, 1)), tails)
    assert stats.kstest(found / 2.0, stats.invgamma(2.5, scale=2.5).cdf).pvalue > 0.5  # equal shares are nearly exact
    np.testing.assert_array_equal(found, RobustNoise().new_rows(np.ones((4000, 1)), tails))
    assert SHARED.new_rows(np.array([[0.2], [0.4]]), np.ones((2, 2))).tolist() == [0.2, 0.4]
    assert FAMILIES["given"].new_rows(ROWS[None], np.ones((2, 2))).tolist() == [0.2, 0.2]


def test_a_grid_has_the_weight_of_the_distribution():
    noise, log_weight = RobustNoise().grid(np.array([1.0]), (0.5, 4.0), 400)
    below = stats.invgamma(2.0, scale=2.0 * 0.5).cdf
    cumulative = np.cumsum(np.exp(log_weight))
    middle = np.searchsorted(cumulative, 0.5)
    assert below(noise[middle]) == pytest.approx(0.5, abs=0.06)
    assert cumulative[-1] == pytest.approx(1.0, abs=0.01)


def test_a_row_with_much_noise_surprises():
    tails = np.tile([0.5, 4.0], (3, 1))
    found = RobustNoise().surprise(np.tile([0.1, 0.5, 50.0], (3, 1)), tails)
    law = stats.invgamma(2.0, scale=2.0 * 0.5)
    np.testing.assert_allclose(found, law.sf([0.1, 0.5, 50.0]))
