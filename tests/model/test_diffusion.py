"""Brownian motion on a tree against the multivariate normal it defines."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import coaltree as ct
from coaltree.model import diffusion
from tests.reference.missing import nodes_given_leaves
from tests.seeds import seed

N, D = 7, 3
PHI = np.array([[2.0, 0.6, 0.1], [0.6, 1.0, -0.3], [0.1, -0.3, 0.5]])
NOISE = np.array([0.3, 0.0, 0.1, 0.2, 0.0, 0.5, 0.1])


@pytest.fixture
def tree():
    return ct.sample_tree(N, random_state=3)


@pytest.fixture
def X(tree):
    return ct.sample_data(tree, PHI, leaf_noise=NOISE, random_state=4) + 10.0


def node_covariance(tree):
    """Covariance in units of Φ of all 2n − 1 nodes, root fixed: time shared on the way down from the root."""
    times, parents = tree.node_times(), tree.parents()
    size = 2 * tree.n_leaves - 1
    cov = np.zeros((size, size))
    for node in range(size - 2, -1, -1):
        parent = parents[node]
        cov[node] = cov[parent]
        cov[:, node] = cov[:, parent]
        cov[node, node] = cov[parent, parent] + times[parent] - times[node]
    return cov


@pytest.mark.parametrize("noise", [0.0, 0.4, NOISE], ids=["none", "equal", "per leaf"])
def test_log_joint_is_the_normal_density_of_differences(tree, X, noise):
    leaves = node_covariance(tree)[:N, :N] + np.diag(np.broadcast_to(noise, N))
    # Differences to the last leaf: a linear map of determinant 1 away from the contrasts.
    to_last = np.hstack([np.eye(N - 1), -np.ones((N - 1, 1))])
    differences = (to_last @ X).ravel()
    expected = multivariate_normal.logpdf(differences, cov=np.kron(to_last @ leaves @ to_last.T, PHI))
    assert ct.log_joint(tree, X, PHI, leaf_noise=noise) == pytest.approx(expected + ct.log_prior(tree), rel=1e-10)


def test_identity_is_the_default(tree, X):
    assert ct.log_joint(tree, X) == pytest.approx(ct.log_joint(tree, X, np.eye(D)), rel=1e-12)


def test_contrasts_and_scatter_give_the_likelihood(tree, X):
    u = diffusion.contrasts(tree, X, NOISE)
    S = diffusion.scatter(tree, X, NOISE)
    np.testing.assert_allclose(S, sum(np.outer(row, row) for row in u))
    v = diffusion.messages(tree, X, NOISE).merge_variance
    expected = (
        -0.5 * (N - 1) * (D * np.log(2 * np.pi) + np.linalg.slogdet(PHI)[1])
        - 0.5 * np.trace(np.linalg.solve(PHI, S))
        - 0.5 * D * np.log(v).sum()
    )
    assert diffusion.log_likelihood(tree, X, PHI, NOISE) == pytest.approx(expected, rel=1e-12)


def test_contrasts_are_standard_normal():
    rng = np.random.default_rng(seed(0))
    tree = ct.sample_tree(6, random_state=rng)
    data = [ct.sample_data(tree, PHI, leaf_noise=0.3, random_state=rng) for _ in range(3000)]
    u = np.array([diffusion.contrasts(tree, X, 0.3) for X in data])
    covariances = np.einsum("rki,rkj->kij", u, u) / 3000
    np.testing.assert_allclose(covariances, np.broadcast_to(PHI, (5, 3, 3)), atol=5 * 2 * np.sqrt(2 / 3000))
    between = np.einsum("ri,rj->ij", u[:, :, 0], u[:, :, 0]) / 3000
    assert np.abs(between - np.diag(np.diag(between))).max() < 5 * 2 / np.sqrt(3000)


def exact_nodes(tree, X, noise):
    """Posterior of all nodes with a flat root, by conditioning a normal with an enormous root variance."""
    cov = node_covariance(tree) + 1e8
    observed = cov[:N, :N] + np.diag(np.broadcast_to(noise, N))
    gain = np.linalg.solve(observed, cov[:N]).T
    return gain @ X, np.diag(cov - gain @ cov[:N])


@pytest.mark.parametrize("noise", [0.0, 0.4, NOISE], ids=["none", "equal", "per leaf"])
def test_node_posterior(tree, X, noise):
    mean, variance = exact_nodes(tree, X, noise)
    posterior = diffusion.node_posterior(tree, X, noise)
    np.testing.assert_allclose(posterior.mean, mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(posterior.variance, variance, atol=1e-5)


def test_node_draws_have_the_posterior_moments(tree, X):
    posterior = diffusion.node_posterior(tree, X, NOISE)
    draws = diffusion.sample_nodes(tree, X, PHI, NOISE, size=20_000, random_state=seed(5))
    error = np.sqrt(posterior.variance[:, None] * np.diag(PHI) / len(draws))
    assert np.max(np.abs(draws.mean(axis=0) - posterior.mean) / (error + 1e-9)) < 5
    spread = np.einsum("sni,snj->nij", draws - posterior.mean, draws - posterior.mean) / len(draws)
    np.testing.assert_allclose(spread, posterior.variance[:, None, None] * PHI, atol=0.1)
    # Noiseless leaves are their data.
    np.testing.assert_array_equal(draws[:, 1], np.broadcast_to(X[1], draws[:, 1].shape))


def test_node_draws_are_jointly_right(tree, X):
    """Covariance between a parent and its child, not only the margins."""
    draws = diffusion.sample_nodes(tree, X, np.eye(D), NOISE, size=20_000, random_state=seed(6))
    cov = node_covariance(tree) + 1e8
    gain = np.linalg.solve(cov[:N, :N] + np.diag(NOISE), cov[:N]).T
    expected = cov - gain @ cov[:N]
    centred = draws - draws.mean(axis=0)
    got = np.einsum("sni,smi->nm", centred, centred) / (len(draws) * D)
    np.testing.assert_allclose(got, expected, atol=0.03)


def test_simulated_data_have_the_right_covariance(tree):
    rng = np.random.default_rng(seed(7))
    X = np.array([ct.sample_data(tree, PHI, leaf_noise=NOISE, random_state=rng) for _ in range(8000)])
    leaves = node_covariance(tree)[:N, :N] + np.diag(NOISE)
    got = np.einsum("rni,rmj->nmij", X, X) / len(X)
    expected = leaves[:, :, None, None] * PHI
    np.testing.assert_allclose(got, expected, atol=6 * 3 * np.abs(expected).max() / np.sqrt(len(X)))


def test_simulation_options(tree):
    assert ct.sample_data(tree, 5, random_state=0).shape == (N, 5)
    shifted = ct.sample_data(tree, 2, random_state=0, root=[100.0, -100.0])
    np.testing.assert_allclose(shifted - ct.sample_data(tree, 2, random_state=0), [[100.0, -100.0]] * N)


def test_distances_are_packed_by_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(6, 4))
    packed = diffusion.pair_distances(rows)
    expected = [((rows[i] - rows[j]) ** 2).sum() for i in range(6) for j in range(i)]
    np.testing.assert_allclose(packed, expected)


def test_distances_keep_their_digits_far_from_the_origin():
    rows = np.array([[1e6, 1e6], [1e6 + 1e-3, 1e6], [0.0, 0.0]])
    assert diffusion.pair_distances(rows)[0] == pytest.approx((rows[1, 0] - rows[0, 0]) ** 2, rel=1e-12)


def test_whitening(X):
    whitened = diffusion.whiten(X, PHI)
    gap = X[0] - X[3]
    assert ((whitened.rows[0] - whitened.rows[3]) ** 2).sum() == pytest.approx(gap @ np.linalg.solve(PHI, gap))
    assert whitened.log_det == pytest.approx(np.linalg.slogdet(PHI)[1])


def test_rows_must_match_leaves(tree):
    with pytest.raises(ValueError, match="one row per leaf"):
        ct.log_joint(tree, np.zeros((3, 2)))


def test_zero_length_merges_are_finite_in_messages():
    """Equal noiseless rows merged at time 0 have an infinite density, but no NaN anywhere."""
    tree = ct.Tree([[0, 1], [2, 3]], [0.0, 1.0])
    X = np.array([[1.0], [1.0], [3.0]])
    assert np.all(np.isfinite(diffusion.node_posterior(tree, X).mean))
    assert ct.log_joint(tree, X) == np.inf


def test_nodes_are_what_the_plain_twin_says(tree, X):
    up = diffusion.messages(tree, X, NOISE)
    noise = np.random.default_rng(2).standard_normal((3, 2 * N - 1, D)) @ np.linalg.cholesky(PHI).T
    mean, variance, nodes = nodes_given_leaves(tree, up, noise)
    posterior = diffusion.node_posterior(tree, X, NOISE)
    np.testing.assert_allclose(posterior.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(posterior.variance, variance, rtol=1e-12)
    drawn = diffusion.sample_nodes(tree, X, PHI, NOISE, size=3, random_state=2)
    np.testing.assert_allclose(drawn, nodes, rtol=1e-12)
