"""Directions: their density and wedges against quadrature, draws of lengths, and cells there and back."""

import math

import numpy as np
import pytest
from scipy.integrate import quad, trapezoid
from scipy.stats import kstest, norm

from coaltree._compile import kernel
from coaltree.errors import InputError
from coaltree.frame import Column
from coaltree.model.columns import Columns
from coaltree.model.kinds import Circular, named
from coaltree.model.kinds.circular import N_TURNS, log_ray, log_wedge, period_of
from coaltree.model.truncated import draw_between
from coaltree.randomness import make_streams
from tests.model.invariance import stream

MEANS = [(0.0, 0.0), (0.4, -0.2), (-2.0, 0.3), (3.0, 4.0), (-9.0, 0.1), (60.0, -5.0)]


@kernel
def ray(x, y):
    return log_ray(x, y)


@kernel
def wedge(x, y, half):
    return log_wedge(x, y, half)


def turned(mean, angle):
    return (
        mean[0] * math.cos(angle) + mean[1] * math.sin(angle),
        mean[1] * math.cos(angle) - mean[0] * math.sin(angle),
    )


@pytest.mark.parametrize("mean", MEANS)
def test_density_of_a_direction(mean):
    """It integrates to 1 over the circle, and is the integral along the ray."""
    about = math.atan2(mean[1], mean[0])
    total = quad(lambda angle: math.exp(ray(*turned(mean, angle))), about - math.pi, about + math.pi, points=[about])[0]
    assert total == pytest.approx(1.0, abs=1e-7)
    for angle in (about, about + 0.5, about - 2.0):
        x, y = turned(mean, angle)
        top = max(x, 0.0)
        along = quad(lambda r, x=x: r * norm.pdf(r - x), max(top - 12.0, 0.0), top + 12.0, epsabs=0.0)[0]
        assert ray(x, y) == pytest.approx(math.log(along) + norm.logpdf(y), abs=1e-6)


@pytest.mark.parametrize("x", [-30.0, -24.9, -25.1, -12.0])
def test_density_far_behind(x):
    """Against the continued fraction of the tail, by its recursion to great depth."""
    fraction = 0.0
    for k in range(400, 0, -1):
        fraction = k / (-x + fraction)
    # φ(x) − |x| Φ(x) = φ(x) (1 − |x| / (|x| + fraction)).
    assert ray(x, 0.0) == pytest.approx(
        norm.logpdf(x) + math.log(fraction / (fraction - x)) + norm.logpdf(0.0), abs=1e-8
    )


@pytest.mark.parametrize("half", [1e-7, 1e-3, math.pi / 24, math.pi / 3])
@pytest.mark.parametrize("mean", MEANS)
def test_probability_of_a_wedge(mean, half):
    limit = math.tan(half)
    low, high = max(mean[0] - 12.0, 0.0), max(mean[0], 0.0) + 12.0

    def across(r):
        a, b = limit * r - mean[1], -limit * r - mean[1]
        return norm.pdf(r - mean[0]) * (norm.sf(b) - norm.sf(a) if a < 0 else norm.cdf(a) - norm.cdf(b))

    found = math.exp(wedge(*mean, half))
    if half > 1e-4:  # a difference of distribution functions has no digits left for narrow ones
        points = [at for at in (abs(mean[1]) / limit,) if low < at < high]
        exact = quad(across, low, high, points=points or None, epsabs=0.0, epsrel=1e-9, limit=400)[0]
        assert found == pytest.approx(exact, rel=1e-6)
    if half > 1e-4:
        exact = quad(lambda angle: math.exp(ray(*turned(mean, angle))), -half, half, epsabs=0.0, epsrel=1e-10)[0]
    else:
        exact = 2.0 * half * math.exp(ray(*mean))
    assert found == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("n_wedges", [3, 8, 24])
def test_wedges_sum_to_one(n_wedges):
    half = math.pi / n_wedges
    for mean in MEANS:
        each = [math.exp(wedge(*turned(mean, 2.0 * half * k), half)) for k in range(n_wedges)]
        assert sum(each) == pytest.approx(1.0, abs=1e-7)


# ---- draws


class Rows:
    """Leaves of one column, with parents that are given: what a kind needs to draw them."""

    def __init__(self, model, cells, centre, spread, rng, careless=False):
        self.careless = careless
        self.encoded = model.encode(cells)
        self.Z = self.encoded.start.copy()
        self.centre, self.spread, self.stream = centre, spread, make_streams(rng, 1)[0]

    def conditional(self, k):
        return self.centre[:, k], self.spread

    def between(self, centre, spread, low, high):
        if self.careless and np.isinf(high).all():
            low = np.zeros(len(low))
        new = np.empty(len(centre))
        draw_between(centre, spread, low, high, self.stream, new)
        return new

    def put(self, k, new):
        self.Z[:, k] = new

    def shift(self, k, by):
        self.Z[:, k] += by
        self.centre[:, k] += by


def drawn_lengths(model, rng, monkeypatch, careless=False, n=4000):
    """Lengths that were drawn from the law, and then moved: how they differ from it (Kolmogorov and Smirnov)."""
    monkeypatch.setattr("coaltree.model.kinds.circular._draw_lengths", lambda *given: None)
    # Everything from the model: rows around one centre; then the cell is what is seen.
    centre, spread = np.array([1.2, -0.5]), 0.9
    z = centre + spread * rng.standard_normal((n, 2))
    cells = model.decode(z, np.zeros(0))
    rows = Rows(model, cells, np.tile(centre, (n, 1)), np.full(n, spread), rng, careless)
    rows.Z = z.copy()
    before = np.hypot(*rows.Z.T)
    for _ in range(2):
        model.draw(rows, np.zeros(0), rng)
    assert np.corrcoef(before, np.hypot(*rows.Z.T))[0, 1] < 0.9
    np.testing.assert_allclose(model.decode(rows.Z, np.zeros(0)), cells, atol=0.0 if model.grid else 24e-7)
    lengths = np.hypot(*rows.Z.T)
    return kstest(lengths**2 / spread**2, "ncx2", args=(2, (centre @ centre) / spread**2)).pvalue


@pytest.mark.parametrize("grid", [0.0, 3.0])
def test_lengths_keep_their_law(grid, request, monkeypatch):
    model = Circular("h", period=24.0, grid=grid)
    assert drawn_lengths(model, stream(request), monkeypatch) > 1e-4
    # Negative control: with N(r; u, 1) instead of r N(r; u, 1) rows are too near the middle.
    assert drawn_lengths(model, stream(request), monkeypatch, careless=True) < 1e-4


def test_a_ray_is_kept():
    model, rng = Circular("h", period=24.0), np.random.default_rng(0)
    cells = rng.uniform(0.0, 24.0, 60)
    cells[7] = np.nan
    rows = Rows(model, cells, rng.normal(size=(60, 2)), np.full(60, 0.7), rng)
    rows.Z[7] = 0.0
    for _ in range(20):
        model.draw(rows, np.zeros(0), rng)
    known = ~np.isnan(cells)
    np.testing.assert_allclose(model.decode(rows.Z, np.zeros(0))[known], cells[known], atol=24.0 * 1e-7)
    assert N_TURNS > 0
    assert (np.hypot(*rows.Z[known].T) > 0.0).all()


# ---- cells


def test_there_and_back():
    rng = np.random.default_rng(0)
    tables = {
        "hours": (np.arange(24.0).repeat(2), 24.0),
        "months": (np.tile(np.arange(1.0, 13.0), 2), 12.0),
        "compass": (np.tile(np.arange(0.0, 360.0, 45.0), 3), 360.0),
        "around zero": (rng.uniform(-180.0, 180.0, 40), 360.0),
        "radians": (rng.uniform(0.0, 2.0 * math.pi, 40), 2.0 * math.pi),
    }
    for name, (cells, period) in tables.items():
        model = Circular(name, period=period).fitted(cells)
        columns = Columns((model,))
        encoded = columns.encode(cells[:, None])
        assert columns.d == 2
        assert columns.unit.all()
        assert np.isnan(encoded.X).all()
        np.testing.assert_allclose(columns.decode(3.0 * encoded.start, np.zeros(0))[:, 0], cells, atol=1e-9)
        assert (model.grid > 0.0) == (name in ("hours", "months", "compass"))
        assert Circular.restored(model.written()) == model
        # What is expected is averaged as directions, so 23 h and 1 h are midnight.
        middle = model.settle(model.summary(model.low + np.array([0.3, 0.35]) * period).mean(axis=0)[None])
        assert middle[0] == pytest.approx(model.low + 0.325 * period, abs=max(0.5 * model.grid, 1e-9))
        around = model.settle(model.summary(np.array([0.06, 0.96]) * period).mean(axis=0)[None])
        assert around[0] == pytest.approx(0.01 * period, abs=max(model.grid, 1e-9)) or around[0] == 12.0
    assert Circular("compass", period=360.0).fitted(tables["compass"][0]).grid == 45.0
    assert Circular("minutes", period=60.0).fitted(np.array([1.0, 2.0, 1.0, 30.0])).grid == 1.0


def test_turning_the_origin_turns_everything():
    """Probabilities and expectations depend on angles between rows and cells alone."""
    model, rng = Circular("h", period=24.0, grid=1.0), np.random.default_rng(1)
    centre, deviation = rng.normal(size=(5, 2)), rng.uniform(0.2, 2.0, 5)
    angle = 2.0 * math.pi * 5.0 / 24.0
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    cells = np.arange(24.0)
    found = [wedge(*(model.seen(cell, None, True, True).wedge[0] @ centre[0]), math.pi / 24.0) for cell in cells]
    moved = [
        wedge(*(model.seen(cell + 5.0, None, True, True).wedge[0] @ (centre[0] @ turn)), math.pi / 24.0)
        for cell in cells
    ]
    np.testing.assert_allclose(moved, found, rtol=1e-9)
    there = model.expect(centre, deviation, None) @ turn
    np.testing.assert_allclose(model.expect(centre @ turn, deviation, None), there, rtol=1e-9)
    assert np.abs(model.expect(centre, deviation, None) - there).max() > 0.1


def test_expected_directions():
    """Against quadrature in two dimensions."""
    model, mean, deviation = Circular("h"), np.array([0.7, -0.4]), 0.8
    grid = np.linspace(-6.0, 6.0, 2000)
    x, y = np.meshgrid(grid, grid, indexing="ij")
    weight = norm.pdf(x, mean[0], deviation) * norm.pdf(y, mean[1], deviation)
    expected = model.expect(mean[None], np.array([deviation]), None)[0]
    for k, part in enumerate((np.cos, np.sin)):
        exact = trapezoid(trapezoid(part(np.arctan2(y, x)) * weight, grid), grid)
        assert expected[k] == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "values", "period"),
    [
        ("hour", [0, 13, 23], 24.0),
        ("Hour of day", [0, 13, 23], 24.0),
        ("startHour", [0.5, 13.0, 23.9], 24.0),
        ("month", [1, 7, 12], 12.0),
        ("wind_direction", [0, 90, 350], 360.0),
        ("wind direction", [-179, 0, 170], 360.0),
        ("angle", [0.1, 3.0, 6.2], 2.0 * math.pi),
        ("hours", [0, 13, 30], None),
        ("monthly cost", [1, 7, 12], None),
        ("x", [0, 90, 350], None),
    ],
)
def test_period_by_name_and_values(name, values, period):
    assert period_of(name, np.array(values, dtype=float)) == period


def test_what_cannot_be_circular():
    column = Column("x", "number", np.array([1.0, 2.0, 3.0]))
    assert named("circular:24")(column, column.values)[0].period == 24.0
    with pytest.raises(InputError, match="'x' is circular, but what is its period"):
        named("circular")(column, column.values)
    for period in ("0", "day", "-3", "inf"):
        with pytest.raises(InputError, match="needs a positive period"):
            named(f"circular:{period}")
    assert named("count:3") is None
    two = Column("x", "number", np.array([1.0, 2.0, 2.0]))
    with pytest.raises(InputError, match="'x' cannot be circular: it has 2 different values"):
        named("circular:24")(two, np.array([1.0, 2.0]))
