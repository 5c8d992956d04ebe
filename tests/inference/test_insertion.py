"""Insertion: against the exact posterior, its plain twin, and what is promised of its order, moves and threads."""

import numpy as np
import pytest

import coaltree as ct
from coaltree.inference.smc import insertion
from coaltree.model.diffusion import whiten_leaves
from tests.inference.test_exactness import CASES, data, disagreement, pooled, statistics, truth
from tests.reference.regraft import Proposal
from tests.reference.trees import leaves_below
from tests.seeds import seed

N_BATCHES, BATCH = 20, 1000


def run(X, n_particles, random_state=0, covariance=None, leaf_noise=0.0, **settings):
    rng = np.random.default_rng(random_state)
    return insertion.run_insertion(
        *whiten_leaves(X, covariance, leaf_noise), n_particles=n_particles, rng=rng, **settings
    )


def batches(n, d, leaf_noise, number, n_batches=N_BATCHES, n_particles=BATCH, weighted=True, **settings):
    """Log evidence and averages of independent runs."""
    out = []
    for b in range(n_batches):
        result = run(data(n, d, leaf_noise), n_particles, seed(number + b), leaf_noise=leaf_noise, **settings)
        weights = np.exp(result.log_weights) if weighted else np.full(n_particles, 1 / n_particles)
        out.append((result.log_evidence, statistics(result.children, result.times, weights, n)))
    return out


# ---- against the exact posterior


@pytest.mark.parametrize(("n", "d", "leaf_noise"), CASES)
@pytest.mark.parametrize(
    "settings", [{"ess_threshold": 0.0}, {"ess_threshold": 1.0, "n_regrafts": 2}], ids=["still", "moved"]
)
def test_agrees_with_quadrature(settings, n, d, leaf_noise):
    exact = truth(n, d, leaf_noise)
    runs = batches(n, d, leaf_noise, 1000 * n + 50 * d, **settings)
    estimate, error, log_evidence, log_evidence_error = pooled(runs)
    assert log_evidence == pytest.approx(exact.log_evidence, abs=4.5 * (log_evidence_error + 1e-4))
    assert log_evidence_error < 0.05
    assert disagreement(estimate, error, exact) < 4.5


def test_without_its_weights_it_fails():
    """Negative control: places drawn from their conditionals, rows taken at face value in the order they come."""
    n, d, leaf_noise = 4, 3, 0.0
    runs = batches(n, d, leaf_noise, 77, weighted=False, ess_threshold=0.0, n_batches=40)
    estimate, error, _, _ = pooled([(0.0, values) for _, values in runs])
    assert disagreement(estimate, error, truth(n, d, leaf_noise)) > 6


def test_evidence_is_unbiased_with_two_particles():
    n, d, leaf_noise = 4, 16, 0.0
    exact = truth(n, d, leaf_noise)
    settings = {"n_batches": 2500, "n_particles": 2, "ess_threshold": 1.0, "n_regrafts": 3}
    log_z = np.array([z for z, _ in batches(n, d, leaf_noise, 300, **settings)])
    ratio = np.exp(log_z - exact.log_evidence)
    error = ratio.std(ddof=1) / np.sqrt(len(ratio))
    assert abs(ratio.mean() - 1) < 4 * error
    # Negative control: the mean of log Z is a bound below, and the test can tell the two apart.
    assert abs(np.exp(log_z.mean() - exact.log_evidence) - 1) > 4 * error


# ---- against the plain twin


def first_rows(tree, order, k):
    """The tree over rows order[:k+1], leaves numbered in that order."""
    place = {int(row): number for number, row in enumerate(order[: k + 1])}
    known = {frozenset([number]): number for number in range(k + 1)}
    children, times = [], []
    for merge in range(tree.n_leaves - 1):
        parts = [
            frozenset(place[x] for x in leaves_below(tree, c) if x in place) for c in tree.children[merge].tolist()
        ]
        if all(parts):
            known[parts[0] | parts[1]] = k + 1 + len(children)
            children.append(sorted(known[part] for part in parts))
            times.append(tree.times[merge])
    return ct.Tree(children, times)


@pytest.mark.parametrize(("d", "leaf_noise"), [(1, 0.0), (3, 0.2), (12, 0.0)])
def test_weights_equal_the_plain_twin(d, leaf_noise):
    """Without resampling a weight is Π f/q over the insertions, each by kriging on the smaller tree."""
    n, order = 6, np.array([3, 0, 5, 1, 4, 2])
    X = ct.sample_data(ct.sample_tree(n, random_state=d), d, leaf_noise=leaf_noise, random_state=d + 1)
    result = run(X, 8, leaf_noise=leaf_noise, ess_threshold=0.0, order=order)
    expected = np.zeros(8)
    for m in range(8):
        tree = ct.Tree(result.children[m], result.times[m])
        for k in range(1, n):
            smaller = first_rows(tree, order, k)
            (merge,) = (j for j, pair in enumerate(smaller.children.tolist()) if k in pair)
            sibling = next(c for c in smaller.children[merge].tolist() if c != k)
            time = smaller.times[merge]
            proposal = Proposal(smaller, X[order[: k + 1]], leaf_noise, k)
            expected[m] += proposal.log_f(sibling, time) - proposal.log_q(sibling, time) - d / 2 * np.log(2 * np.pi)
        assert result.log_joint[m] == pytest.approx(ct.log_joint(tree, X, leaf_noise=leaf_noise), rel=1e-10)
    log_mean = np.logaddexp.reduce(expected) - np.log(8)
    assert result.log_evidence == pytest.approx(log_mean, rel=1e-6, abs=1e-6)
    np.testing.assert_allclose(result.log_weights, expected - np.logaddexp.reduce(expected), atol=1e-6)


# ---- mechanics


def test_log_joint_after_moves_with_a_full_covariance():
    X = ct.sample_data(ct.sample_tree(12, random_state=1), 4, random_state=2)
    phi = np.diag([1.0, 2.0, 0.5, 3.0])
    phi[0, 1] = phi[1, 0] = 0.7
    noise = np.linspace(0.01, 0.1, 12)
    result = run(X, 20, covariance=phi, leaf_noise=noise, ess_threshold=1.0)
    assert result.resampled[1:-1].all()
    for children, times, value in zip(result.children, result.times, result.log_joint, strict=True):
        assert value == pytest.approx(ct.log_joint(ct.Tree(children, times), X, phi, leaf_noise=noise), rel=1e-10)


def test_moves_part_copies():
    """Resampling without moves leaves few different first merges, moves mend that."""
    X = ct.sample_data(ct.sample_tree(24, random_state=3), 3, random_state=4)
    still, moved = (run(X, 50, ess_threshold=1.0, n_regrafts=r) for r in (0, insertion.REGRAFTS))
    assert len(np.unique(still.times[:, 0])) < 35
    assert len(np.unique(moved.times[:, 0])) == 50


def test_threads_do_not_change_a_byte():
    X = ct.sample_data(ct.sample_tree(20, random_state=3), 5, random_state=4)
    settings = {"method": "insertion", "n_particles": 33, "ess_threshold": 0.9, "random_state": 7}
    one, two = (ct.sample_posterior(X, n_jobs=n_jobs, **settings) for n_jobs in (1, 2))
    for field in ("children", "times", "weights", "log_joint", "ess_per_step"):
        assert getattr(one, field).tobytes() == getattr(two, field).tobytes()
    assert one.info["method"] == "insertion"
    assert one.info["n_resampled"] > 0


def test_any_order_gives_the_same_evidence():
    X = ct.sample_data(ct.sample_tree(10, random_state=5), 4, random_state=6)
    log_z = np.array([run(X, 400, random_state=seed(k)).log_evidence for k in range(12)])
    others = [
        ct.sample_posterior(X, method="tpost", n_particles=1000, random_state=seed(k)).log_evidence for k in range(12)
    ]
    error = np.sqrt((log_z.var(ddof=1) + np.var(others, ddof=1)) / 12)
    assert log_z.mean() == pytest.approx(np.mean(others), abs=0.02 + 4 * error)  # both are a little low
    assert log_z.std() < 0.2


def test_two_rows_and_duplicates_with_noise():
    post = ct.sample_posterior([[0.0, 1.0], [2.0, 3.0]], method="insertion", n_particles=5)
    assert post.log_evidence == pytest.approx(
        ct.sample_posterior([[0.0, 1.0], [2.0, 3.0]], method="tpost").log_evidence
    )
    X = np.repeat([[0.0, 0.1], [1.0, 0.2], [2.0, -0.4]], 4, axis=0)
    post = ct.sample_posterior(X, method="insertion", n_particles=20, leaf_noise=0.1)
    assert np.isfinite(post.log_evidence)
    assert np.all(np.isfinite(post.log_joint))


@pytest.mark.parametrize("scale", [1e-140, 1e-3, 1e3, 1e140])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_extreme_scales_work(scale, d):
    X = scale * ct.sample_data(ct.sample_tree(6, random_state=1), d, random_state=2)
    post = ct.sample_posterior(X, method="insertion", n_particles=10)
    assert np.isfinite(post.log_evidence)
    assert np.all(np.isfinite(post.times))


def test_progress_is_shown(capsys):
    X = ct.sample_data(ct.sample_tree(6, random_state=1), 2, random_state=2)
    ct.sample_posterior(X, method="insertion", n_particles=3, progress=True)
    assert "rows" in capsys.readouterr().err
