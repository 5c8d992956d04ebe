"""Latent coordinates: every iteration leaves the joint law of table, tree, Φ, noise and cutpoints as it is.

A table is drawn from the model, everything in it being known. Iterations from there must leave the law of all that was
drawn unchanged, so means over many tables before and after agree to Monte Carlo error: an exact test of the whole
iteration, however slowly it mixes (Geweke 2004).

The root is flat. For a column with levels only roots near the cutpoints give more than one level, so it is drawn from
a wide window until all levels occur.
"""

import math

import numpy as np
import pytest
from scipy.stats import norm

import coaltree as ct
from coaltree.inference.learning.chain import draw_tree, iterate
from coaltree.inference.learning.latent import Augmentation
from coaltree.inference.learning.start import Unknowns, first_guesses
from coaltree.model.coalescent import log_prior
from coaltree.model.columns import Columns
from coaltree.model.covariance import Diagonal, HuangWand, Spherical
from coaltree.model.kinds import BinaryLevels, Categorical, Circular, Continuous, Ordinal, Rounded, circular
from coaltree.model.kinds.levels import mean_gap
from coaltree.model.missing import Imputed
from coaltree.model.noise import SHARED, GivenNoise
from coaltree.model.unit import UnitWishart, unit_family
from coaltree.randomness import make_streams
from tests.model.invariance import LIMIT, stream

N = 6
WINDOW = 9.0
CONTINUOUS = Continuous("x")
BINARY = BinaryLevels("b", ("no", "yes"))
ORDERED = Ordinal("o", ("low", "mid", "high"))
CHOICE = Categorical("c", ("r", "g", "b"))
GRID = Rounded("g", step=1.0)
HOUR, ANGLE = Circular("h", period=24.0, grid=4.0), Circular("a")
# Directions of rows must not all be alike: about a far root a wedge is as likely as about one farther away.
MOST_ALIKE = 0.5


def family_of(columns, kind):
    """A family with a proper prior of ordinary size."""
    if kind == "wishart":
        return UnitWishart(HuangWand(), columns.unit)
    return unit_family({"spherical": Spherical(3.0, 3.0), "diagonal": Diagonal(3.0, 3.0)}[kind], columns.unit)


def draw_all(columns, kind, share_missing, rng):
    """Everything from the prior, and the table that goes with it."""
    family = family_of(columns, kind)
    while True:
        tree = ct.sample_tree(N, random_state=rng)
        noise = np.full(N, rng.exponential())
        if kind == "wishart":  # correlations have the same law for any prior of the scales
            state = UnitWishart(HuangWand(shape=2.0, scale=1.0), columns.unit).sample_prior(columns.d, rng)
        else:
            state = family.sample_prior(columns.d, rng)
        Z = ct.sample_data(tree, state.matrix(), leaf_noise=noise, random_state=rng)
        cuts = np.zeros(int(columns.first_cut[-1]))
        for j, model in enumerate(columns.models):
            here = columns.coordinates(j)
            Z[:, here] += rng.uniform(-WINDOW, WINDOW, here.stop - here.start)
            if model.n_cuts > 1:
                gaps = rng.exponential(mean_gap(model.n_levels), model.n_cuts - 1)
                cuts[columns.cuts_of(j)] = np.append(0.0, np.cumsum(gaps))
        cells = columns.decode(Z, cuts)
        cells[rng.random(cells.shape) < share_missing] = np.nan
        levels = [len(np.unique(each[~np.isnan(each)])) for each in cells.T]
        apart = all(
            np.hypot(*np.nanmean(model.summary(cells[:, j]), axis=0)) < MOST_ALIKE
            for j, model in enumerate(columns.models)
            if model in (HOUR, ANGLE)
        )
        if apart and all(seen >= max(model.n_levels, 1) for seen, model in zip(levels, columns.models, strict=True)):
            break
    latent = Augmentation(columns, columns.encode(cells))
    if not latent.drawn.all():
        latent.encoded.X[~latent.drawn] = Z[~latent.drawn]
    now = Unknowns(tree, state, noise, Imputed(Z[latent.drawn], Z[latent.drawn]), cuts)
    return family, latent, now


def statistics(latent, now):
    """Functions of everything that is drawn, of light tails."""
    Z, codes = latent.table(now), latent.encoded.codes
    off = Z - Z.mean(axis=0)
    values = [
        math.log(now.leaf_noise[0]),
        math.log(now.tree.times[0]),
        math.log(now.tree.times[-1]),
        now.covariance.log_det,
        *np.log(np.abs(off).mean(axis=0)),
        *np.arctan(Z.mean(axis=0)),
        *np.arctan(Z[0]),
        *np.log1p(now.cuts),
        *np.arctan((off * codes.sum(axis=1, keepdims=True)).mean(axis=0)),
    ]
    if not now.covariance.is_diagonal:
        values.append(now.covariance.matrix()[0, -1])
    return np.array(values)


def discrepancy(columns, kind, share_missing, rng, n_tables=150, n_iter=3):
    """Largest difference of means before and after, in standard errors."""
    changes = []
    for _ in range(n_tables):
        family, latent, now = draw_all(columns, kind, share_missing, rng)
        before = statistics(latent, now)

        def move(state, latent=latent):
            return draw_tree(state, latent.encoded.X, rng)

        for _ in range(n_iter):
            now = iterate(now, latent.encoded.X, family, rng, move, latent)
        changes.append(statistics(latent, now) - before)
    changes = np.array(changes)
    spread = changes.std(axis=0) / math.sqrt(len(changes))
    moved = spread > 0.0
    return float(np.abs(changes.mean(axis=0)[moved] / spread[moved]).max())


CASES = {
    "binary": ((CONTINUOUS, BINARY), "spherical", 0.0),
    "ordinal": ((CONTINUOUS, ORDERED), "diagonal", 0.0),
    "categorical": ((CONTINUOUS, CHOICE), "spherical", 0.0),
    "rounded": ((GRID, CONTINUOUS), "diagonal", 0.1),
    "missing": ((CONTINUOUS, ORDERED), "spherical", 0.15),
    "levels alone": ((ORDERED,), "spherical", 0.0),
    "full": ((BINARY, ORDERED), "wishart", 0.0),
    "circular": ((CONTINUOUS, HOUR), "spherical", 0.1),
    "rays": ((ANGLE,), "spherical", 0.0),
}


LONG = [pytest.mark.slow, pytest.mark.ci]


@pytest.mark.parametrize("case", [pytest.param(case, marks=[] if case == "ordinal" else LONG) for case in CASES])
def test_an_iteration_leaves_the_law_unchanged(case, request):
    models, kind, share = CASES[case]
    n_tables = 8 if kind == "wishart" else 30
    assert discrepancy(Columns(models), kind, share, stream(request), n_tables) < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_iteration_leaves_the_law_unchanged_with_many_tables(case, request):
    models, kind, share = CASES[case]
    assert discrepancy(Columns(models), kind, share, stream(request), n_tables=1500, n_iter=4) < LIMIT


def shorten(leaves, known, rng):
    """Lengths of directions all a tenth shorter."""
    for k in range(2):
        leaves.put(k, 0.9 * leaves.Z[:, k])


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["scale", "cuts", "bounds", "lengths"])
def test_a_wrong_iteration_is_seen(broken, request, monkeypatch):
    """The Jacobian of the latent scale upside down, a wrong prior of the gaps, bounds that are not looked at."""
    if broken == "scale":
        right = Augmentation.log_scaled
        monkeypatch.setattr(Augmentation, "log_scaled", lambda self, now, c: -right(self, now, c))
    elif broken == "cuts":
        monkeypatch.setattr("coaltree.model.kinds.levels.mean_gap", lambda n_levels: 4.0)
    elif broken == "lengths":
        monkeypatch.setattr(circular, "_draw_lengths", shorten)
    else:
        monkeypatch.setattr(Categorical, "cone", lambda self, codes, Z, k: (np.full(N, -np.inf), np.full(N, np.inf)))
    models = {"bounds": (CONTINUOUS, CHOICE), "cuts": (CONTINUOUS, ORDERED), "scale": (ORDERED, BINARY)}
    models = models.get(broken, (CONTINUOUS, ANGLE))
    assert discrepancy(Columns(models), "spherical", 0.0, stream(request), n_tables=600, n_iter=8) > LIMIT


def noise_errors(models, rng, n_steps=1500, bend=0.0):
    """How far draws of log s₀ given the parents are from quadrature with scipy's normal, in standard errors."""
    _, latent, now = draw_all(Columns(models), "spherical", 0.2, rng)
    Z, row = latent._parents(now, rng, make_streams(rng, 1)[0])
    branch = row.spread - now.leaf_noise

    def log_density(log_noise):
        total = log_noise - math.exp(log_noise) + bend * log_noise
        deviation = np.sqrt(np.outer(branch + math.exp(log_noise), row.variances))
        for j, model in enumerate(models):
            k = int(latent.columns.first[j])
            known = ~latent.unknown[:, k]
            if model.is_drawn:
                low, high = latent.intervals(j, now.cuts)
                inside = norm.cdf(high, row.centre[:, k], deviation[:, k]) - norm.cdf(
                    low, row.centre[:, k], deviation[:, k]
                )
                with np.errstate(divide="ignore"):
                    total += np.log(inside)[known].sum()
            else:
                total += norm.logpdf(Z[:, k], row.centre[:, k], deviation[:, k])[known].sum()
        return total

    grid = np.linspace(-12.0, 4.0, 1200)
    weight = np.array([log_density(at) for at in grid])
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    mean = weight @ grid
    drawn = []
    for _ in range(n_steps):
        now, row = latent._draw_noise(now, Z, row, now.cuts, rng)
        drawn.append(math.log(now.noise_level))
    spread = math.sqrt(weight @ (grid - mean) ** 2)
    # Steps of the slice are short where there are few rows: count them as one in ten.
    return abs(np.mean(drawn) - mean) / (spread * math.sqrt(10.0 / n_steps))


@pytest.mark.parametrize("models", [(CONTINUOUS, ORDERED), (GRID, BINARY)])
def test_noise_given_the_parents(models, request):
    assert noise_errors(models, stream(request)) < LIMIT


def test_noise_with_another_prior_is_seen(request):
    assert noise_errors((CONTINUOUS, ORDERED), stream(request), bend=1.0) > LIMIT


def test_the_start_has_times_as_the_coalescent_expects(request):
    """From the times of a greedy tree of codes, a chain of many rows takes long to find its scale."""
    rng = stream(request)
    tree = ct.sample_tree(400, random_state=rng)
    Z = ct.sample_data(tree, 6, leaf_noise=0.1, random_state=rng)
    columns = Columns((CONTINUOUS, CONTINUOUS, CONTINUOUS, BINARY, BINARY, BINARY))
    cells = np.where(np.arange(6) > 2, np.median(Z, axis=0) < Z, Z)
    latent = Augmentation(columns, columns.encode(cells))
    family = unit_family("spherical", columns.unit)
    level = latent.first_level(rng)
    start = first_guesses(latent.encoded.start, family, SHARED, 1, rng, level)[0][0]
    begun = latent.begin(start, rng)
    assert -1.5 * 400 < log_prior(begun.tree) < -0.5 * 400
    given = latent.begin(start._replace(noise=GivenNoise(start.leaf_noise)), rng)
    assert given.noise_level == level
    np.testing.assert_array_equal(given.tree.times, start.tree.times)
