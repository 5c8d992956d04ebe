"""Supports mean what they say: of clades with support p a share p is true."""

from dataclasses import replace

import numpy as np
import pytest

import coaltree as ct
from coaltree.inference import moves
from coaltree.posterior import clades
from coaltree.posterior.rejuvenate import rejuvenate
from tests.reference.exact import exact_posterior
from tests.seeds import seed

BANDS = ((0.1, 0.5), (0.5, 0.8), (0.8, 0.95))


def supports(posterior, truth):
    """Support of every clade of the posterior but the root, and whether the true tree has it."""
    n = truth.n_leaves
    true = {tuple(row) for row in truth.clades()}
    ids = clades.clade_ids(posterior.children)
    support = clades.support_of_clades(ids, posterior.weights)
    _, first = np.unique(ids, return_index=True)
    rows = []
    for share, (m, k) in zip(support, zip(*np.divmod(first, n - 1), strict=True), strict=True):
        if k < n - 2:
            member = np.zeros(n, dtype=bool)
            member[posterior[m].leaves(posterior.n_leaves + k)] = True
            rows.append((share, tuple(member) in true))
    return rows


def overconfidence(n, d, n_replicates, n_sweeps, n_particles=100, method="tpost"):
    """Mean over replicates of Σ (support − truth) and its standard error, one band of supports a row."""
    sums = np.zeros((n_replicates, len(BANDS), 2))
    for replicate in range(n_replicates):
        rng = np.random.default_rng([seed(n), d, replicate])
        truth = ct.sample_tree(n, random_state=rng)
        X = ct.sample_data(truth, d, random_state=rng)
        posterior = ct.sample_posterior(X, method=method, n_particles=n_particles, random_state=rng)
        if n_sweeps:
            posterior = rejuvenate(posterior, X, n_sweeps=n_sweeps, n_jobs=2, random_state=rng)
        for share, true in supports(posterior, truth):
            for band, (low, high) in enumerate(BANDS):
                if low <= share < high:
                    sums[replicate, band] += share - true, 1.0
    # The error is over replicates: clades of one tree stand and fall together.
    excess = sums[..., 0].sum(axis=0) / sums[..., 1].sum(axis=0)
    spread = (sums[..., 0] - excess * sums[..., 1]).std(axis=0, ddof=1)
    return excess, spread * np.sqrt(n_replicates) / sums[..., 1].sum(axis=0)


def test_supports_are_calibrated_after_moves_and_not_before():
    excess, error = overconfidence(16, 32, 40, n_sweeps=5, n_particles=60)
    assert (np.abs(excess) < 4 * error).all(), (excess, error)
    raw, raw_error = overconfidence(16, 32, 200, n_sweeps=0, n_particles=60)
    assert (raw[1:] > 4 * raw_error[1:]).any(), (raw, raw_error)
    # Insertion moves its trees on the way.
    excess, error = overconfidence(16, 32, 40, n_sweeps=0, n_particles=60, method="insertion")
    assert (np.abs(excess) < 4 * error).all(), (excess, error)


@pytest.mark.slow
@pytest.mark.parametrize("n", [16, 32])
@pytest.mark.parametrize("d", [2, 8, 32])
def test_supports_are_calibrated_everywhere(n, d):
    excess, error = overconfidence(n, d, 100, n_sweeps=10)
    assert (np.abs(excess) < 4 * error + 0.01).all(), (excess, error)


def test_the_posterior_is_left_alone():
    """From exact draws the moves lead to exact draws, and from a point mass to the posterior."""
    X = np.random.default_rng(3).normal(size=(3, 2))
    exact = exact_posterior(X, leaf_noise=0.1)
    stuck = ct.sample_posterior(X, leaf_noise=0.1, n_particles=1).sample(1500)
    moved = rejuvenate(stuck, X, leaf_noise=0.1, n_sweeps=8, random_state=seed(5))
    for (i, j), probability in exact.first_pair.items():
        share = (np.sort(moved.children[:, 0], axis=1) == [i, j]).all(axis=1).mean()
        assert abs(share - probability) < 5 * np.sqrt(probability * (1 - probability) / 1500)
    log_times = np.log(moved.times)
    error = log_times.std(axis=0) / np.sqrt(1500)
    assert (np.abs(log_times.mean(axis=0) - exact.mean_log_times) < 5 * error).all()


@pytest.fixture(scope="module")
def sampled():
    X = ct.sample_data(ct.sample_tree(10, random_state=1), 4, random_state=2)
    return X, ct.sample_posterior(X, 2.0 * np.eye(4), leaf_noise=0.1, n_particles=20, names=list("abcdefghij"))


def test_bookkeeping(sampled):
    X, posterior = sampled
    moved = rejuvenate(posterior, X, 2.0 * np.eye(4), 0.1, n_sweeps=3)
    assert moved.names == posterior.names
    assert moved.log_evidence == posterior.log_evidence
    assert moved.info["n_sweeps"] == 3
    np.testing.assert_allclose(moved.weights, 1 / 20)
    expected = [ct.log_joint(tree, X, 2.0 * np.eye(4), 0.1) for tree in moved]
    np.testing.assert_allclose(moved.log_joint, expected, rtol=1e-10)
    assert rejuvenate(moved, X, 2.0 * np.eye(4), 0.1, n_sweeps=2).info["n_sweeps"] == 5


def test_no_sweeps_only_resample(sampled):
    X, posterior = sampled
    same = rejuvenate(posterior, X, n_sweeps=0)
    assert {row.tobytes() for row in same.times} <= {row.tobytes() for row in posterior.times}


def test_chains_start_apart_where_one_tree_has_all_the_weight(sampled, monkeypatch):
    X, posterior = sampled
    started = []

    def remember(tree, *arguments, **options):
        started.append(tree.times.tobytes())
        return trace(tree, *arguments, **options)

    trace = moves.trace
    monkeypatch.setattr(moves, "trace", remember)
    for weights, n_starts in ((np.eye(20)[3], 20), (np.repeat([0.25, 0.0], [4, 16]), 4)):
        started.clear()
        moved = rejuvenate(replace(posterior, weights=weights), X, 2.0 * np.eye(4), 0.1, n_sweeps=1)
        assert len(set(started)) == n_starts
        assert moved.ess == pytest.approx(20)


def test_threads_change_nothing(sampled):
    X, posterior = sampled
    one, two = (rejuvenate(posterior, X, n_sweeps=2, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert one.times.tobytes() == two.times.tobytes()


def test_bad_input(sampled):
    X, posterior = sampled
    with pytest.raises(ValueError, match="one row per leaf"):
        rejuvenate(posterior, X[:-1])
    with pytest.raises(ValueError, match="n_sweeps must be at least 0"):
        rejuvenate(posterior, X, n_sweeps=-1)
