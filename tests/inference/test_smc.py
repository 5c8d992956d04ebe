"""Mechanics of the samplers: weights along a path, resampling, threads, conditional SMC."""

import numpy as np
import pytest

import coaltree as ct
from coaltree.inference.effort import choose_merging
from coaltree.inference.smc import loop, particles
from coaltree.inference.smc.candidate_pairs import start_list
from coaltree.inference.smc.proposals import METHODS
from coaltree.model.diffusion import pair_distances, whiten_leaves
from tests.reference.weights import log_increments


def run(X, method, n_particles, seed=0, leaf_noise=0.0, **options):
    rows, noise, log_det = whiten_leaves(X, options.pop("covariance", None), leaf_noise)
    eps = pair_distances(rows)
    settings = {"ess_threshold": 0.5, "n_jobs": 1} | options
    rng = np.random.default_rng(seed)
    return loop.run_particles(
        eps, X.shape[1], noise, log_det, method=method, n_particles=n_particles, rng=rng, **settings
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("d", "leaf_noise"), [(1, 0.0), (2, 0.3), (3, 0.0), (20, 0.1)])
def test_weights_along_a_path_equal_the_plain_twin(method, d, leaf_noise):
    tree = ct.sample_tree(9, random_state=d)
    X = ct.sample_data(tree, d, leaf_noise=leaf_noise, random_state=d + 1)
    other = ct.sample_tree(9, random_state=d + 2)
    for path in (tree, other):
        result = run(X, method, 1, leaf_noise=leaf_noise, retained=path, ess_threshold=0.0)
        expected = log_increments(path, X, method, leaf_noise)
        assert result.log_evidence == pytest.approx(expected.sum(), rel=1e-9, abs=1e-8)
        assert result.log_joint[0] == pytest.approx(ct.log_joint(path, X, leaf_noise=leaf_noise), rel=1e-10)
        np.testing.assert_array_equal(result.children[0], np.sort(path.children, axis=1))
        np.testing.assert_allclose(result.times[0], path.times, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_weights_along_an_absurd_path_are_finite(method):
    """A retained tree whose pairs the sampler would never choose: far too late, at the wrong scale."""
    X = 100.0 * ct.sample_data(ct.sample_tree(9, random_state=1), 30, random_state=2)
    path = ct.sample_tree(9, random_state=3)
    result = run(X, method, 1, retained=path, ess_threshold=0.0)
    assert result.log_evidence == pytest.approx(log_increments(path, X, method).sum(), rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_log_joint_of_every_particle(method):
    X = ct.sample_data(ct.sample_tree(12, random_state=1), 4, random_state=2)
    phi = np.diag([1.0, 2.0, 0.5, 3.0])
    phi[0, 1] = phi[1, 0] = 0.7
    post = ct.sample_posterior(X, phi, method=method, n_particles=20, leaf_noise=0.05)
    for tree, value in zip(post, post.log_joint, strict=True):
        assert value == pytest.approx(ct.log_joint(tree, X, phi, leaf_noise=0.05), rel=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_threads_do_not_change_a_byte(method):
    X = ct.sample_data(ct.sample_tree(20, random_state=3), 5, random_state=4)
    one = ct.sample_posterior(X, method=method, n_particles=33, n_jobs=1, random_state=7)
    two = ct.sample_posterior(X, method=method, n_particles=33, n_jobs=2, random_state=7)
    for field in ("children", "times", "weights", "log_joint", "ess_per_step"):
        assert getattr(one, field).tobytes() == getattr(two, field).tobytes()
    assert one.log_evidence == two.log_evidence
    other = ct.sample_posterior(X, method=method, n_particles=33, random_state=8)
    assert other.times.tobytes() != one.times.tobytes()


def test_systematic_resampling_counts():
    rng = np.random.default_rng(0)
    weights = rng.random(17)
    weights /= weights.sum()
    counts = np.array([loop.systematic_counts(weights, u) for u in (np.arange(2000) + 0.5) / 2000])
    assert np.all(counts.sum(axis=1) == 17)
    assert np.all(np.abs(counts - 17 * weights) < 1)
    np.testing.assert_allclose(counts.mean(axis=0), 17 * weights, atol=2e-3)


@pytest.mark.parametrize("weight", [0.3, 1.0, 1.7, 4.2])
def test_conditional_resampling_always_keeps_the_retained_particle(weight):
    """Given survival, the count of particle 0 is size-biased: P(c | kept) ∝ c P(c)."""
    rng = np.random.default_rng(1)
    weights = np.full(10, (10 - weight) / 90)
    weights[0] = weight / 10
    kept = [loop.systematic_counts(weights, loop._retained_uniform(weight, rng))[0] for _ in range(4000)]
    assert min(kept) >= 1
    whole, part = divmod(weight, 1.0)
    expected = (whole**2 * (1 - part) + (whole + 1) ** 2 * part) / weight
    assert abs(np.mean(kept) - expected) < 4 * 0.5 / np.sqrt(4000) + 1e-9


def test_a_retained_particle_of_no_weight_survives():
    X = ct.sample_data(ct.sample_tree(6, random_state=0), 2, random_state=0)
    eps, noise = pair_distances(X), np.zeros(len(X))
    for weights in ([0.0, 0.0, 1.0], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]):
        state = particles.start(eps, noise, 3, np.random.default_rng(0), with_cache=False)
        state.log_joint[:] = [7.0, 8.0, 9.0]
        loop.resample(state, 0, np.array(weights), True, np.random.default_rng(0), start_list(3, 0))
        assert state.log_joint[0] == 7.0


def test_resampling_overwrites_only_the_dead():
    X = ct.sample_data(ct.sample_tree(6, random_state=0), 2, random_state=0)
    eps, noise = pair_distances(X), np.zeros(len(X))
    state = particles.start(eps, noise, 5, np.random.default_rng(0), with_cache=True)
    state.cache[:] = np.arange(5)[:, None]
    state.log_joint[:] = np.arange(5)
    before = state.streams.copy()
    loop.resample(state, 0, np.array([0.4, 0.2, 0.0, 0.4, 0.0]), False, np.random.default_rng(0), start_list(5, 0))
    np.testing.assert_array_equal(state.log_joint[[0, 1, 3]], [0, 1, 3])
    assert sorted(state.log_joint[[2, 4]]) == [0, 3]
    np.testing.assert_array_equal(state.cache[:, 0], state.log_joint)
    np.testing.assert_array_equal(state.streams, before)


@pytest.mark.parametrize("method", METHODS)
def test_the_distances_of_the_leaves_are_shared_and_stay(method):
    X = ct.sample_data(ct.sample_tree(12, random_state=1), 4, random_state=2)
    eps, noise = pair_distances(X), np.zeros(len(X))
    state = particles.start(eps, noise, 5, np.random.default_rng(0), with_cache=False)
    assert np.shares_memory(state.leaves, eps)
    before = eps.copy()
    settings = {"ess_threshold": 1.0, "n_jobs": 1}
    results = [
        loop.run_particles(eps, 4, noise, 0.0, method=method, n_particles=5, rng=np.random.default_rng(0), **settings)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(eps, before)
    assert results[0].times.tobytes() == results[1].times.tobytes()


def test_merge_keeps_distances_of_the_means():
    """Lance–Williams against the means themselves, through every slot move."""
    n, d = 11, 3
    X = ct.sample_data(ct.sample_tree(n, random_state=5), d, random_state=6)
    result = run(X, "tpost", 4, seed=1, leaf_noise=0.2)
    for k in range(4):
        tree = ct.Tree(result.children[k], result.times[k])
        assert result.log_joint[k] == pytest.approx(ct.log_joint(tree, X, leaf_noise=0.2), rel=1e-11)


def test_auto_is_one_of_the_methods_for_every_shape():
    for n in (2, 50, 5000):
        for d in (1, 2, 16, 1000):
            assert choose_merging("auto", n, d) in METHODS
    assert choose_merging("auto", 32, 32) == choose_merging("auto", 5000, 4) == "tpost"
    assert choose_merging("auto", 64, 64) == choose_merging("auto", 128, 16) == "smc1"
    assert choose_merging("mpost2", 10, 10) == "mpost2"


def test_two_leaves():
    post = ct.sample_posterior([[0.0], [1.0]], n_particles=500, random_state=1)
    log_z = ct.model.gig.log_integral(1, 1.0, 1.0, 0.0) - np.log(2) - 0.5 * np.log(2 * np.pi)
    assert post.log_evidence == pytest.approx(log_z, abs=1e-10)
    assert post.ess == pytest.approx(500)
