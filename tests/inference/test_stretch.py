"""The age of a tree with latent coordinates: the move leaves the joint law of everything as it is.

As in `test_augment`, tables are drawn from the model with all that is in them; moves from there must leave every mean
as it was.
"""

import math

import numpy as np
import pytest

from coaltree.inference.learning import stretch
from coaltree.inference.learning.chain import likelihood
from coaltree.model.columns import Columns
from coaltree.model.covariance import Fixed
from coaltree.model.diffusion import contrasts as contrasts_of
from tests.inference.test_augment import BINARY, CHOICE, CONTINUOUS, GRID, ORDERED, draw_all, statistics
from tests.model.invariance import LIMIT, stream

CASES = {
    "spherical": ((CONTINUOUS, ORDERED), "spherical", 0.0),
    "diagonal, missing": ((CONTINUOUS, BINARY), "diagonal", 0.15),
    "levels alone": ((ORDERED,), "spherical", 0.0),
    "categorical": ((CONTINUOUS, CHOICE), "spherical", 0.0),
    "full": ((CONTINUOUS, BINARY), "wishart", 0.0),
}


def all_statistics(latent, now):
    """Those of `test_augment`, and how well coordinates, times, noise and Φ go together."""
    Z = latent.table(now)
    contrasts = contrasts_of(now.tree, Z, now.leaf_noise)
    sizes = np.log((contrasts**2).mean(axis=0) / now.covariance.variances())
    return np.array([*statistics(latent, now), *sizes, *sizes**2])


def discrepancy(case, rng, n_tables=300, n_moves=4):
    """Largest difference of means before and after, in standard errors, and how far log ages moved."""
    models, kind, share_missing = CASES[case]
    changes = []
    for _ in range(n_tables):
        family, latent, now = draw_all(Columns(models), kind, share_missing, rng)
        before = all_statistics(latent, now)
        for _ in range(n_moves):
            now = stretch.draw_age(now, likelihood(now.covariance, latent.seen(now)), family, latent, rng)
        changes.append(all_statistics(latent, now) - before)
    changes = np.array(changes)
    spread = changes.std(axis=0) / math.sqrt(len(changes))
    moved = spread > 1e-12
    return float(np.abs(changes.mean(axis=0)[moved] / spread[moved]).max()), float(changes[:, 2].std())


SLOW = ("categorical", "full")


@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.slow if case in SLOW else ()) for case in CASES])
def test_the_law_stays_as_it_is(case, request):
    off, moved = discrepancy(case, stream(request))
    assert off < LIMIT
    assert moved > 0.3


@pytest.mark.parametrize(
    "broken",
    [pytest.param("jacobian"), *(pytest.param(each, marks=pytest.mark.slow) for each in ("likelihood", "scale"))],
)
def test_a_wrong_move_is_seen(broken, request, monkeypatch):
    """Without the Jacobian of the times; with the likelihood upside down; with Φ that does not shrink as time grows."""
    if broken == "jacobian":
        right = stretch.stretch
        monkeypatch.setattr(stretch, "stretch", lambda *given: (right(*given)[0], 0.0))
    elif broken == "likelihood":
        likelihood_of = likelihood
        monkeypatch.setattr(
            "tests.inference.test_stretch.likelihood", lambda *given: lambda *at: -likelihood_of(*given)(*at)
        )
    else:
        monkeypatch.setattr("coaltree.model.unit.UnitDiagonal.rescale", lambda self, state, c: (state, 0.0))
    assert discrepancy("spherical", stream(request), 300 if broken == "jacobian" else 900)[0] > LIMIT


@pytest.mark.parametrize("turn", [1e-4, 0.3, 50.0])
def test_stretching(turn):
    """A group in c, with the Jacobian of finite differences; old merges move by c, recent ones stay."""
    times = np.array([1e-9, 1e-3, 0.2, 0.7, 5.0])
    there, log_jacobian = stretch.stretch(times, turn, 0.4)
    halfway, half = stretch.stretch(times, turn, 0.1)
    onwards, rest = stretch.stretch(halfway, turn, 0.3)
    np.testing.assert_allclose(onwards, there, rtol=1e-12)
    assert half + rest == pytest.approx(log_jacobian)
    step = 1e-5
    beside = stretch.stretch(times * (1.0 + step), turn, 0.4)[0] - stretch.stretch(times * (1.0 - step), turn, 0.4)[0]
    assert np.log(beside / (2.0 * step * times)).sum() == pytest.approx(log_jacobian, abs=1e-5)
    assert there[0] == pytest.approx(times[0], rel=1e-4)
    assert np.all(np.diff(there) > 0.0)
    assert np.all(there <= times * math.exp(0.4) * (1.0 + 1e-12))
    if turn < 1e-3:
        np.testing.assert_allclose(there[2:], times[2:] * math.exp(0.4), rtol=1e-2)


def test_a_known_covariance_stays(request):
    rng = stream(request)
    _, latent, now = draw_all(Columns((CONTINUOUS, GRID)), "spherical", 0.0, rng)
    family = Fixed(np.ones(2))
    now = now._replace(covariance=family.start())
    assert stretch.draw_age(now, likelihood(now.covariance, latent.seen(now)), family, latent, rng) is now
