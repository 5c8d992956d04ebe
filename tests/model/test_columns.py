"""Models of columns: maps there and back, truncated normals against scipy, families with ones on the diagonal."""

import numpy as np
import pytest
from scipy.stats import kstest, norm, truncnorm

from coaltree.model.columns import ColumnModel, Columns, fitted
from coaltree.model.covariance import Diagonal, HuangWand, Spherical
from coaltree.model.truncated import draw_between, log_interval_probability, log_levels
from coaltree.model.unit import UnitDiagonal, UnitWishart, unit_family
from coaltree.randomness import make_streams
from tests.model.invariance import stream

INTERVALS = [(-np.inf, np.inf), (-1.0, 2.0), (0.5, np.inf), (-np.inf, -8.0), (5.0, 5.1), (-0.1, 0.2), (8.0, 30.0)]


@pytest.mark.parametrize(("low", "high"), INTERVALS)
def test_draws_in_intervals(low, high, request):
    rng = stream(request)
    size, centre, spread = 4000, 0.3, 1.7
    drawn = np.empty(size)
    ends = [np.full(size, centre + spread * end) for end in (low, high)]
    draw_between(np.full(size, centre), np.full(size, spread), *ends, make_streams(rng, 1)[0], drawn)
    assert kstest((drawn - centre) / spread, truncnorm(low, high).cdf).pvalue > 1e-5
    # Of a normal that is not cut off where it should be, this is seen.
    if np.isfinite(low):
        assert kstest((drawn - centre) / spread + 0.2, truncnorm(low, high).cdf).pvalue < 1e-5


def test_probabilities_of_levels():
    cuts = np.array([-1.0, 0.0, 2.5])
    centre = np.array([0.0, 0.3, -30.0, 40.0, 5.0, 0.0])
    spread = np.array([1.0, 2.0, 1.0, 1.0, 0.5, 1.0])
    edges = np.array([-np.inf, *cuts, np.inf])
    for level in range(4):
        codes = np.full(6, level)
        a, b = (edges[level] - centre) / spread, (edges[level + 1] - centre) / spread
        # In the upper tail, from the other side, where digits are left.
        with np.errstate(divide="ignore", invalid="ignore"):
            upper = norm.logsf(a) + np.log1p(-np.exp(norm.logsf(b) - norm.logsf(a)))
            lower = norm.logcdf(b) + np.log1p(-np.exp(norm.logcdf(a) - norm.logcdf(b)))
        exact = np.where(a > 0, upper, lower)
        for i in range(6):
            one = slice(i, i + 1)
            assert log_levels(centre[one], spread[one], codes[one], cuts, 0, 3) == pytest.approx(exact[i], rel=1e-6)
        assert log_levels(centre, spread, codes, cuts, level + 1, 9) == 0.0


def test_values_go_there_and_back():
    rng = np.random.default_rng(0)
    values = {
        "continuous": rng.normal(5.0, 3.0, 60),
        "skewed": np.exp(2.0 * rng.normal(size=60)),
        "rounded": rng.integers(0, 40, 60) * 0.1,
        "count": rng.poisson(9.0, 60).astype(float),
    }
    for kind, x in values.items():
        model = fitted(ColumnModel("x", kind), x)
        columns = Columns((model,))
        encoded = columns.encode(x[:, None])
        middle = encoded.start if model.is_drawn else encoded.X
        np.testing.assert_allclose(columns.decode(middle, np.empty(0))[:, 0], x, rtol=1e-9, atol=1e-9)
        if model.is_drawn:
            assert (encoded.lower < middle).all()
            assert (middle < encoded.upper).all()
        else:
            step = 1e-6 * x.std()
            slope = np.log((model.forward(x + step) - model.forward(x - step)) / (2.0 * step))
            inside = np.abs(slope - model.log_slope(x)) < 1e-3
            assert inside.mean() > 0.4  # at knots the slope jumps
            assert kind == "skewed" or inside.all()
        wide = np.linspace(x.min() - 5.0, x.max() + 5.0, 200)
        if kind in ("continuous", "skewed"):
            assert (np.diff(model.forward(wide)) > 0).all()
            np.testing.assert_allclose(model.backward(model.forward(wide)), wide, rtol=1e-7, atol=1e-7)


def test_levels_go_there_and_back():
    columns = Columns(
        (
            ColumnModel("b", "binary", ("no", "yes")),
            ColumnModel("o", "ordinal", ("a", "b", "c", "d")),
            ColumnModel("c", "categorical", ("x", "y", "z", "w", "v")),
        )
    )
    cells = np.random.default_rng(0).integers(0, 2, (50, 3)) * np.array([1, 3, 4]) * 1.0
    cells[:4, 1] = [0, 1, 2, 3]
    cells[:5, 2] = np.arange(5)
    encoded = columns.encode(cells)
    assert columns.d == 1 + 1 + 4
    assert columns.unit.all()
    assert np.isnan(encoded.X).all()
    np.testing.assert_array_equal(columns.decode(encoded.start, columns.first_cuts(encoded.codes)), cells)
    corners = columns.models[2].corners
    np.testing.assert_allclose(corners.T @ corners, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(corners.sum(axis=0), 0.0, atol=1e-12)


def test_families_with_ones():
    unit = np.array([True, False, True, False])
    rng = np.random.default_rng(0)
    S = np.cov(rng.normal(size=(30, 4)), rowvar=False) * 29
    for inner in (Spherical(2.0, 2.0), Diagonal(2.0, 2.0)):
        family = unit_family(inner, unit)
        assert isinstance(family, UnitDiagonal)
        state = family.update(family.start(np.array([9.0, 2.0, 9.0, 3.0])), np.diag(S), 29, rng)
        np.testing.assert_allclose(state.variances()[unit], 1.0, rtol=1e-12)
        scaled, log_ratio = family.rescale(state, 2.0)
        np.testing.assert_allclose(scaled.variances()[~unit], state.variances()[~unit] / 2.0)
        np.testing.assert_allclose(scaled.variances()[unit], 1.0, rtol=1e-12)
        assert log_ratio == pytest.approx(family.log_rescale(state, 2.0))
        again = family.from_values(state.values, 4)
        np.testing.assert_array_equal(again.variances(), state.variances())
    family = unit_family("wishart", unit)
    assert isinstance(family, UnitWishart)
    state, deviations = family.normalised(HuangWand().update(family.start(S), S, 29, rng))
    np.testing.assert_allclose(state.variances()[unit], 1.0, rtol=1e-12)
    assert (deviations[~unit] == 1.0).all()
    scaled, _ = family.rescale(state, 4.0)
    np.testing.assert_allclose(scaled.matrix()[0, 1], state.matrix()[0, 1] / 2.0)
    np.testing.assert_allclose(scaled.matrix()[1, 3], state.matrix()[1, 3] / 4.0)
    with pytest.raises(ValueError, match='covariance must be "spherical"'):
        unit_family(np.eye(4), unit)


def test_probabilities_of_cells(request):
    """Bounds of all kinds: near, far out, infinite on one side or on both, and equal, where there is a density."""
    rng = stream(request)
    centre, spread, sizes = rng.normal(size=(3, 40)), rng.uniform(0.1, 3.0, 40), np.array([0.5, 1.0, 4.0])
    low = centre + rng.normal(0.0, 20.0, (3, 40)) * rng.choice([0.1, 1.0], (3, 40))
    high = low + rng.exponential(2.0, (3, 40))
    kind = rng.integers(5, size=(3, 40))
    low[(kind == 1) | (kind == 3)] = -np.inf
    high[(kind == 2) | (kind == 3)] = np.inf
    high[kind == 4] = low[kind == 4]
    deviation = sizes[:, None] * spread
    a, b = (low - centre) / deviation, (high - centre) / deviation
    with np.errstate(divide="ignore", invalid="ignore"):
        right = a + b > 0.0
        a, b = np.where(right, -b, a), np.where(right, -a, b)  # the lower tail, where cdf is precise
        inside = norm.logcdf(b) + np.log1p(-np.exp(norm.logcdf(a) - norm.logcdf(b)))
    inside = np.where(kind == 4, -0.5 * a * a - np.log(deviation), np.where(kind == 3, 0.0, inside))
    assert log_interval_probability(low, high, centre, spread, sizes) == pytest.approx(inside.sum(), rel=1e-9)
