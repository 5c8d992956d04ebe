"""Slice sampling of one bounded variable."""

import math

import numpy as np
import pytest

from coaltree.model.slice import slice_step
from tests.model.invariance import LIMIT, batch_z, stream


@pytest.fixture
def rng(request):
    return stream(request)


@pytest.mark.parametrize("width", [0.8, 2.6])  # within a mode, and across both
def test_slice_sampling_of_a_bounded_bimodal_density(width, rng):
    def log_density(x):
        assert -2.0 <= x <= 3.0
        return np.logaddexp(-0.5 * ((x + 0.8) / 0.3) ** 2, -0.5 * ((x - 0.8) / 0.4) ** 2)

    grid = np.linspace(-2, 3, 5001)
    weight = np.exp([log_density(x) for x in grid])
    truth = [(weight * value).sum() / weight.sum() for value in (grid, grid**2, grid > 0)]
    x, draws = 0.0, []
    for _ in range(6_000):
        x, value = slice_step(log_density, x, log_density(x), rng, width, -2.0, 3.0)
        draws.append([x, x**2, x > 0])
    assert value == log_density(x)
    assert np.abs(batch_z(draws, truth)).max() < LIMIT


def test_slice_sampling_refuses_an_impossible_start(rng):
    with pytest.raises(ValueError, match="log_density_x"):
        slice_step(lambda x: 0.0, 0.0, -math.inf, rng)
    with pytest.raises(ValueError, match="bounds"):
        slice_step(lambda x: 0.0, 2.0, 0.0, rng, 1.0, 0.0, 1.0)
    # A density that is a spike at x comes back to x instead of looping for ever.
    assert slice_step(lambda x: -math.inf, 1.0, 0.0, rng) == (1.0, 0.0)
