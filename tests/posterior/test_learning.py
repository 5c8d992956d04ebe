"""`learn_posterior` at its boundary."""

import numpy as np
import pytest

import coaltree as ct


@pytest.fixture(scope="module")
def X():
    return 10.0 * ct.sample_data(ct.sample_tree(15, random_state=1), 6, random_state=2)


@pytest.mark.parametrize("covariance", ["spherical", "diagonal", "wishart"])
def test_scale_is_learned(X, covariance):
    learned = ct.learn_posterior(X, covariance, n_iter=30, burn_in=10, n_particles=10)
    assert 20 < np.exp(np.mean(np.log(np.diag(learned.covariance)))) < 500
    assert learned.posterior.n_leaves == 15
    assert learned.leaf_noise.shape == (15,)
    assert all(len(values) == 30 for values in learned.trace.values())
    np.testing.assert_allclose(learned.covariance, learned.covariance.T)


def test_gaussian_process_length_scale():
    from sklearn.gaussian_process.kernels import RBF, WhiteKernel

    coordinates = np.arange(12.0)[:, None]
    phi = 5.0 * RBF(3.0)(coordinates) + 1e-4 * np.eye(12)
    X = ct.sample_data(ct.sample_tree(40, random_state=3), phi, random_state=4)
    kernel = RBF(1.0, (0.1, 100.0)) + WhiteKernel(1e-3, (1e-7, 1.0))
    learned = ct.learn_posterior(X, kernel, coordinates, leaf_noise=0.0, n_iter=30, n_particles=10)
    length = [values for name, values in learned.trace.items() if "length_scale" in name]
    assert len(length) == 1
    assert 2.0 < np.median(length[0][10:]) < 4.5


def test_same_seed_same_result(X):
    one, two = (ct.learn_posterior(X, n_iter=5, burn_in=1, n_particles=6, n_jobs=k) for k in (1, 2))
    assert one.covariance.tobytes() == two.covariance.tobytes()
    assert one.posterior.times.tobytes() == two.posterior.times.tobytes()


def test_given_leaf_noise_stays(X):
    noise = np.linspace(0.0, 0.3, 15)
    learned = ct.learn_posterior(X, leaf_noise=noise, n_iter=4, burn_in=1, n_particles=5)
    np.testing.assert_array_equal(learned.leaf_noise, noise)


def test_duplicates_need_noise(X):
    twice = np.repeat(X, 2, axis=0)
    assert np.isfinite(ct.learn_posterior(twice, n_iter=4, burn_in=1, n_particles=5).posterior.log_evidence)
    with pytest.raises(ValueError, match="duplicate rows"):
        ct.learn_posterior(twice, leaf_noise=0.0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_iter": 0}, ValueError, "n_iter must be at least 1"),
        ({"burn_in": 50}, ValueError, "burn_in must be below n_iter = 50"),
        ({"covariance": "full"}, ValueError, "covariance"),
        ({"leaf_noise": -1.0}, ValueError, "leaf_noise must not be negative"),
        ({"leaf_noise": "guess"}, TypeError, "leaf_noise must be an array of numbers"),
        ({"method": "gibbs"}, ValueError, "method must be one of"),
        ({"n_particles": 0}, ValueError, "n_particles must be at least 1"),
    ],
)
def test_bad_options(X, options, error, message):
    with pytest.raises(error, match=message):
        ct.learn_posterior(X, **options)


def test_constant_data():
    with pytest.raises(ValueError, match="constant"):
        ct.learn_posterior(np.ones((5, 2)))
