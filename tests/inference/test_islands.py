"""Islands: combined without bias, the same bytes wherever they run, also when a machine is lost."""

import joblib
import numpy as np
import pytest
from scipy.special import logsumexp

import coaltree as ct
from coaltree.inference.smc import sampling
from coaltree.model.diffusion import whiten_leaves
from tests.cluster import on_a_cluster
from tests.reference.exact import exact_posterior
from tests.seeds import seed

FIELDS = ("children", "times", "weights", "log_joint", "ess_per_step")


def same(one, other):
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.log_evidence == other.log_evidence


def sample(X, n_jobs=1, n_islands=3, n_particles=20, **options):
    return ct.sample_posterior(
        X, n_particles=n_particles, n_islands=n_islands, n_jobs=n_jobs, random_state=5, **options
    )


def test_evidence_is_unbiased_and_weights_are_proper():
    """Four leaves, many runs of four small islands: the mean of the estimates, and the first merge, are exact."""
    X = ct.sample_data(ct.sample_tree(4, random_state=1), 2, random_state=2)
    truth = exact_posterior(X)
    pair = max(truth.first_pair, key=truth.first_pair.get)
    estimates, shares, plain = [], [], []
    for k in range(400):
        post = ct.sample_posterior(X, method="mpost2", n_particles=8, n_islands=4, random_state=seed(1000 + k))
        estimate = np.exp(post.log_evidence - truth.log_evidence)
        first = np.array([tuple(sorted(children[0])) == pair for children in post.children])
        estimates.append(estimate)
        shares.append(estimate * post.weights[first].sum())
        plain.append(first.mean())
    for values, expected in ((estimates, 1.0), (shares, truth.first_pair[pair])):
        error = np.std(values) / np.sqrt(len(values))
        assert abs(np.mean(values) - expected) < 4 * error
    # Islands of equal weight and no weights within would not do.
    assert abs(np.mean(plain) - truth.first_pair[pair]) > 4 * np.std(plain) / np.sqrt(len(plain))


def test_combination():
    """The evidence is the mean of the islands', by their sizes; weights sum to one."""
    X = np.random.default_rng(0).normal(size=(12, 3))
    runs = [sampling.run_island(whiten_leaves(X, None, 0.0), "tpost", 0.5, size, [size, 1]) for size in (6, 3)]
    whole = sampling.combine_islands(runs)
    parts = [runs[0].log_evidence + np.log(6 / 9), runs[1].log_evidence + np.log(3 / 9)]
    assert whole.log_evidence == pytest.approx(logsumexp(parts))
    assert logsumexp(whole.log_weights) == pytest.approx(0.0, abs=1e-12)
    assert np.exp(logsumexp(whole.log_weights[:6])) == pytest.approx(np.exp(parts[0] - whole.log_evidence))
    assert whole.children.shape == (9, 11, 2)


@pytest.mark.slow
@pytest.mark.ci
def test_same_bytes_wherever_they_run():
    X = np.random.default_rng(1).normal(size=(15, 3))
    one = sample(X)
    assert one.info["n_islands"] == 3
    for backend in ("loky", "threading", "sequential"):
        with joblib.parallel_config(backend=backend):
            same(one, sample(X, n_jobs=2))
    covariance = 2.0 * np.eye(3)
    with_covariance = sample(X, covariance=covariance)
    tree = with_covariance[0]
    assert with_covariance.log_joint[0] == pytest.approx(ct.log_joint(tree, X, covariance))


def test_islands_are_checked():
    X = np.eye(4)
    with pytest.raises(ValueError, match="n_islands must be at most n_particles=2, got 3"):
        ct.sample_posterior(X, n_particles=2, n_islands=3)
    with pytest.raises(ValueError, match="n_islands must be"):
        ct.sample_posterior(X, n_islands=0)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.filterwarnings("ignore")
def test_a_lost_machine_changes_nothing():
    X = np.random.default_rng(2).normal(size=(150, 3))
    options = {"n_islands": 8, "n_particles": 400, "method": "tpost"}
    alone = sample(X, **options)
    for spread in on_a_cluster(lambda: sample(X, **options)):
        same(alone, spread)
