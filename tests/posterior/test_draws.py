"""Draws: what is indexed, thinned, joined, saved and loaded is what was kept."""

from dataclasses import replace

import numpy as np
import pytest

import coaltree as ct
from coaltree.model.covariance import Spherical
from coaltree.model.noise import SHARED, GivenNoise, RobustNoise
from coaltree.posterior.draws import MATRIX, Draw, Draws, Latent
from tests.seeds import seed

N, M = 7, 6


def single(k, noise):
    """The kth draw; every other one with latent coordinates."""
    rng = np.random.default_rng([seed(0), k])
    tree = ct.sample_tree(N, random_state=rng)
    rows = np.full(N, 0.1 + k) if noise is SHARED else np.arange(1.0, N + 1)
    own = noise.draw_rows(rows, lambda scale, df: rng.exponential(size=N))
    latent = Latent(rng.normal(size=4).astype(np.float32), rng.normal(size=2)) if k % 2 == 0 else None
    tails = noise.with_tails(0.5 + k, 3.0 + k).tails
    return Draw(tree.children, tree.times, -float(k), {"variance": 1.0 + k}, noise.compact(own), tails, latent)


def same(a, b):
    return all(np.array_equal(x, b.to_arrays()[name], equal_nan=True) for name, x in a.to_arrays().items())


NOISES = {"shared": SHARED, "given": GivenNoise(np.arange(1.0, N + 1)), "robust": RobustNoise()}


@pytest.fixture(params=NOISES)
def draws(request):
    noise = NOISES[request.param]
    return Draws.of([single(k, noise) for k in range(M)], noise)


def test_a_draw_is_what_was_put_in(draws):
    for k in (0, 1, M - 1, -1):
        put, found = single(k % M, draws.noise), draws[k]
        np.testing.assert_array_equal(found.children, put.children)
        np.testing.assert_array_equal(found.times, put.times)
        np.testing.assert_array_equal(found.noise, put.noise)
        assert (found.log_joint, found.phi) == (put.log_joint, put.phi)
        np.testing.assert_array_equal(found.tails, put.tails)
        assert (found.latent is None) == (put.latent is None)
        if put.latent is not None:
            np.testing.assert_array_equal(found.latent.entries, put.latent.entries)
            np.testing.assert_array_equal(found.latent.cuts, put.latent.cuts)
    with pytest.raises(IndexError):
        draws[M]
    assert len(list(draws)) == len(draws) == M


def test_thinned_and_taken_draws_keep_what_goes_with_them(draws):
    thin = draws.thin(3)
    assert thin.log_joint.tolist() == [0.0, -3.0]
    assert thin.index.tolist() == [0]
    turned = draws.take([4, 1, 2])
    assert turned.index.tolist() == [0, 2]
    for k, m in enumerate((4, 1, 2)):
        assert same(turned[k : k + 1], draws[m : m + 1])
    assert not same(turned[:1], draws[:1])
    with pytest.raises(ValueError, match="at least"):
        draws[:0]


def test_parts_are_joined(draws):
    assert same(Draws.concatenate([draws[:2], draws[2:5], draws[5:]]), draws)
    assert same(Draws.concatenate([draws]), draws)
    twice = Draws.concatenate([draws, draws])
    assert same(twice[M:], draws)
    assert twice.index.tolist() == [0, 2, 4, 6, 8, 10]


def test_files(draws, tmp_path):
    draws.save(tmp_path / "draws.npz")
    again = Draws.load(tmp_path / "draws.npz")
    assert same(again, draws)
    assert again.noise.name == draws.noise.name
    np.testing.assert_array_equal(again.leaf_noises, draws.leaf_noises)
    bad = replace(draws, times=draws.times[:, 1:])
    bad.save(tmp_path / "bad.npz")
    with pytest.raises(ct.CoaltreeError, match=r"bad\.npz does not hold valid draws|bad\.npz does not hold a valid"):
        Draws.load(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    "change",
    [
        {"noises": np.full((M, N), -1.0)},
        {"index": np.array([0, 2, M])},
        {"tails": np.zeros((M, 3))},
        {"phi": {MATRIX: -np.ones((M, 2))}},
        {"log_joint": np.full(M, np.nan)},
    ],
)
def test_parts_that_do_not_belong_together_are_refused(draws, change):
    with pytest.raises(ValueError, match=r"\w"):
        replace(draws, **change).check()
    draws.check()


def test_what_goes_with_each_tree(draws):
    states = draws.states(Spherical(), 3)
    assert [state.amplitude for state in states] == [1.0 + k for k in range(M)]
    whole = draws.with_matrices(states)
    assert whole.covariances.shape == (M, 3)
    assert whole.leaf_noises.shape == (M, N)
    known = draws.with_matrices(states[:1])
    assert known.leaf_noises.shape == ((1, N) if draws.noise.name == "given" else (M, N))
    np.testing.assert_allclose(draws.middle_noise, np.median(draws.leaf_noises, axis=0))
    assert draws.new_noises.shape == (M,)
    assert draws[2].tree == draws.posterior(None, {})[2]


def test_noise_of_a_new_row(draws):
    """Its grid is a law: with weights it has the mean of the draws' own distribution."""
    noise, log_weight = draws.noise_grid(1, 2)
    if draws.noise.name == "robust":
        scale, df = draws.tails[1]
        assert np.exp(log_weight).sum() == pytest.approx(1.0, abs=0.02)
        expected = np.exp(np.log(scale) + np.log(df / 2))  # geometric mean of IG(ν/2, ν/2), but for digamma
        assert noise[0] < expected < noise[-1]
        assert (draws.surprise() > 0.0).all()
    else:
        np.testing.assert_array_equal(noise, np.median(draws.leaf_noises[1]))
        assert log_weight.tolist() == [0.0]
        assert draws.surprise() is None
