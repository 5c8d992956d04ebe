"""Looking only at pairs that can matter changes nothing: the race, tpost, their bounds, and the memory they ask for."""

import math

import numpy as np
import pytest
from scipy.special import erfcx

import coaltree as ct
from coaltree import memory
from coaltree._compile import kernel
from coaltree.inference.smc import loop, race, tpost
from coaltree.model import gig
from coaltree.model.gig import laplace, quadrature, tables
from coaltree.randomness import make_streams
from tests.inference.test_smc import run
from tests.reference.race import plain_race, time_at, uniform_of
from tests.reference.weights import log_increments
from tests.seeds import seed


@kernel
def bounds(d, eps, v, log_level):
    root, _ = gig.mode_in_log(1.0 - 0.5 * d, eps, 1.0)
    _, _, a, b, x = gig.peak(d, eps, 1.0, v)
    tail = math.log(quadrature.lower_tail(x, a, b, 25.0)) if x < 0.0 else math.nan
    return (
        gig.log_cdf_bound(d, eps, 1.0, v),
        gig.farthest_due(d, 1.0, v, log_level),
        tail - quadrature.log_mass(0.0, a, b, -math.inf),
        root,
    )


@kernel
def tabulated(table, d, eps):
    _, _, a, b, _ = gig.peak(d, eps, 1.0, 0.0)
    return (
        tables.tabled_log_mass(table, eps, a, b),
        quadrature.log_mass(0.0, a, b, -math.inf),
        tables.tabled_log_local(table, d, eps),
    )


def test_bounds_of_the_distribution_function():
    """log P(V ≤ v) from integrals is never above its bound, and at most the level beyond the farthest ε."""
    rng = np.random.default_rng(seed(0))
    tight = []
    for _ in range(400):
        d, eps = float(rng.integers(1, 300)), 10 ** rng.uniform(-3, 3)
        v = gig.mode(d, eps, 1.0) * rng.uniform(0.1, 1.2)
        log_bound, far, log_tail, root = bounds(d, eps, v, -8.0)
        log_survival = gig.log_integral(d, eps, 1.0, v) - gig.log_integral(d, eps, 1.0, 0.0)
        cdf = -np.expm1(log_survival)
        assert cdf <= np.exp(log_bound) + 1e-12
        assert -np.expm1(gig.log_integral(d, far, 1.0, v) - gig.log_integral(d, far, 1.0, 0.0)) <= np.exp(-8.0) + 1e-12
        if log_bound < race.LOG_TAIL:
            assert np.exp(log_tail) == pytest.approx(cdf, rel=1e-6, abs=1e-11)
        if root > 5 and 1e-6 < cdf < 0.1:
            tight.append(log_bound - np.log(cdf))
    # A bound that says nothing would pass the rest.
    assert np.median(tight) < 0.5


def test_normaliser_beside_laplaces():
    """∫ exp h ≥ 2/√s for s ≥ 1, and its table."""
    for d in (1, 2, 3, 16, 300):
        table = tables.make_mass_table(d, 1e-4, 1e6)
        for eps in np.logspace(-4, 5.9, 60):
            value, exact, log_local = tabulated(table, float(d), eps)
            assert value == pytest.approx(exact, abs=1e-8)
            assert log_local == pytest.approx(gig.log_integral(d, eps, 1.0), rel=1e-13, abs=1e-8)
            root = np.hypot(1 - d / 2, np.sqrt(eps))
            assert root < 1 or exact >= np.log(2 / np.sqrt(root))


@pytest.mark.parametrize(
    ("d", "eps", "r"), [(1, 0.7, 0.0), (2, 1e-3, 0.1), (3, 2.0, 0.0), (16, 20.0, 0.9), (256, 300.0, 1.5), (4, 0.0, 0.2)]
)
def test_quantiles_invert_the_distribution_function(d, eps, r):
    for w in (1e-9, 1e-4, 0.03, 0.5, 0.9, 1 - 1e-6):
        v = r + 2.0 * time_at(float(d), eps, r, w)
        upper = np.exp(gig.log_integral(d, eps, 1.0, v) - gig.log_integral(d, eps, 1.0, r))
        if w < 0.1:
            assert 1 - upper == pytest.approx(w, rel=1e-8, abs=1e-11)
        else:
            assert upper == pytest.approx(1 - w, rel=1e-8)


@pytest.mark.parametrize(("d", "leaf_noise"), [(2, 0.0), (4, 0.2), (16, 0.0), (100, 0.0)])
def test_the_lazy_race_is_the_race(d, leaf_noise):
    """One particle's tree from the same keys, with every pair drawn at once."""
    n = 60
    X = ct.sample_data(ct.sample_tree(n, random_state=d), d, leaf_noise=leaf_noise, random_state=d)
    lazy = run(X, "smc1", 1, seed=seed(d), leaf_noise=leaf_noise)
    rng = np.random.default_rng(seed(d))
    streams = make_streams(rng, 1)
    keys = race.start_race(1, n, rng).key
    children, times = plain_race(X, leaf_noise, keys[0], streams[0])
    np.testing.assert_array_equal(lazy.children[0], children)
    np.testing.assert_allclose(lazy.times[0], times, rtol=1e-9)


def test_uniforms_of_pairs_look_uniform():
    keys = race.start_race(1, 300, np.random.default_rng(seed(1))).key[0]
    i, j = np.triu_indices(300, 1)
    w = np.array([uniform_of(keys[a], keys[b]) for a, b in zip(i, j, strict=True)])
    counts = np.histogram(w, bins=50, range=(0, 1))[0]
    assert ((counts - len(w) / 50) ** 2 / (len(w) / 50)).sum() < 49 + 5 * np.sqrt(98)
    # Pairs that share a cluster are no more alike than others.
    table = np.zeros((300, 300))
    table[i, j] = table[j, i] = w - 0.5
    assert abs(np.mean(table.sum(axis=1) ** 2) - 299 / 12) < 5 * 299 / 12 * np.sqrt(2 / 300)


@pytest.mark.parametrize("d", [1, 4, 30])
def test_tpost_neglects_nothing_that_shows(d, monkeypatch):
    """The weight of a path by all pairs, from the definitions; and with a list too short for the pairs that matter."""
    n = 40
    tree = ct.sample_tree(n, random_state=d)
    X = ct.sample_data(tree, d, random_state=d + 1)
    expected = log_increments(tree, X, "tpost").sum()
    assert run(X, "tpost", 1, retained=tree, ess_threshold=0.0).log_evidence == pytest.approx(expected, abs=1e-6)
    monkeypatch.setattr(loop, "ROOM", 1)
    assert run(X, "tpost", 1, retained=tree, ess_threshold=0.0).log_evidence == pytest.approx(expected, abs=1e-6)


@kernel
def laplace_bound(d, eps, lam, r, r_high):
    return gig.log_local_laplace(d, eps, lam, r), tpost.log_local_bound(d, eps, lam, r_high)


def test_bound_of_the_evidence_that_is_not_looked_at():
    """Over all r up to r_high, and for every farther pair; near the peak, far beyond it, and before it."""
    rng = np.random.default_rng(seed(2))
    slack = []
    for _ in range(3000):
        d, eps, lam = float(rng.choice([1, 2, 3, 4, 16, 256, 1000])), 10 ** rng.uniform(-6, 3), 10 ** rng.uniform(0, 7)
        r_high = eps / d * 10 ** rng.choice([rng.uniform(-0.3, 0.3), rng.uniform(-3, 5)])
        r = r_high * rng.choice([1.0, rng.random()])
        log_z, _ = laplace_bound(d, eps * rng.choice([1.0, 1.01, 1.5]), lam, r, r_high)
        _, log_bound = laplace_bound(d, eps, lam, r, r_high)
        assert log_z <= log_bound
        slack.append(log_bound - log_z)
    # A bound that says nothing would pass the rest.
    assert np.quantile(slack, 0.1) < 3.0


@kernel
def laplace_twice(d, lam, eps, r, out):
    laplace.log_local_laplace_all(d, lam, eps, r, out[0])
    for k in range(eps.size):
        out[1, k] = gig.log_local_laplace(d, eps[k], lam, r[k])
        out[2, k] = laplace.fast_exp(-math.sqrt(eps[k]))
        out[3, k] = laplace.fast_log(eps[k])
        out[4, k] = laplace.fast_erfcx(r[k])
    laplace.log_local_laplace_many(d, lam, eps, r, out[5])


@pytest.mark.parametrize("d", [1, 2, 3, 16, 256, 1000])
def test_laplace_for_many_pairs_at_once(d):
    rng = np.random.default_rng(seed(d))
    eps, r = d * 10 ** rng.uniform(-8, 5, 2000), 10 ** rng.uniform(-9, 4, 2000)
    r[:100] = 0.0
    eps[100:200] = 0.0
    eps[300:400] = 1e-200
    eps[1000:1400] = 1e-3 * r[1000:1400]  # all cut off at once
    for lam in (1.0, 1e3, 1e9):
        out = np.empty((6, 2000))
        laplace_twice(float(d), lam, eps, r, out)
        np.testing.assert_allclose(out[0], out[1], rtol=2e-14, atol=1e-10)
        np.testing.assert_allclose(out[5], out[0], rtol=2e-14, atol=1e-12)
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(out[2], np.exp(-np.sqrt(eps)), rtol=1e-13, atol=1e-300)
            np.testing.assert_allclose(out[3][eps > 0], np.log(eps[eps > 0]), rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(out[4], erfcx(r), rtol=1e-11)


def test_memory_is_asked_for_first(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 10**6)
    X = np.random.default_rng(0).normal(size=(200, 3))
    with pytest.raises(MemoryError, match=r"n_particles=50 with n = 200 .* to at most 2, .* largest n that"):
        ct.sample_posterior(X, method="tpost", n_particles=50)
    with pytest.raises(MemoryError, match="largest n that fits is 500"):
        ct.greedy_tree(np.random.default_rng(0).normal(size=(1000, 3)))
    sizes = [memory.largest_that_fits(lambda n: n * n, 100, most) for most in (5, 10, 50)]
    assert sizes == [5, 10, 10]
