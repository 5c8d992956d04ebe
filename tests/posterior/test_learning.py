"""`learn_posterior` at its boundary."""

from itertools import cycle

import numpy as np
import pytest
from scipy.stats import gamma
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import coaltree as ct
from coaltree.inference import learn
from coaltree.model.diffusion import scatter
from coaltree.posterior import checkpoint
from tests.seeds import seed


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


def test_each_tree_goes_with_its_own_draw():
    """Given a tree, S_jj/2φ_j is Gamma(shape + m/2) a posteriori: at medians it would vary too little."""
    X = ct.sample_data(ct.sample_tree(10, random_state=1), np.diag([1.0, 2.0, 4.0]), 0.1, random_state=2)
    options = {"n_iter": 300, "burn_in": 50, "n_particles": 125, "random_state": seed(3)}
    learned = ct.learn_posterior(X, "diagonal", **options)
    assert learned.covariances.shape == (125, 3)
    assert learned.leaf_noises.shape == (125, 10)

    def levels(learned):
        own = zip(learned.posterior, cycle(learned.covariances), cycle(learned.leaf_noises), strict=False)
        halves = np.array([np.diag(scatter(tree, X, noise)) / (2.0 * phi) for tree, phi, noise in own])
        return gamma.cdf(halves, 0.01 + 0.5 * 9)

    own = levels(learned)
    assert own.mean() == pytest.approx(0.5, abs=0.1)
    assert own.std() == pytest.approx(12**-0.5, abs=0.04)
    assert levels(ct.learn_posterior(X, "diagonal", n_sweeps=0, **options)).std() < 12**-0.5 - 0.04


def test_trees_that_are_not_moved_go_with_the_medians(X):
    learned = ct.learn_posterior(X, n_iter=4, burn_in=1, n_particles=5, n_sweeps=0)
    np.testing.assert_array_equal(learned.covariances, [np.diag(learned.covariance)])
    np.testing.assert_array_equal(learned.leaf_noises, [learned.leaf_noise])
    known = ct.learn_posterior(X, np.eye(6), n_iter=4, burn_in=1, n_particles=5)
    np.testing.assert_array_equal(known.covariances, [np.ones(6)])
    assert known.leaf_noises.shape == (5, 15)


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
        ({"method": "insertion"}, ValueError, "cannot retain a tree"),
        ({"n_particles": 0}, ValueError, "n_particles must be at least 1"),
    ],
)
def test_bad_options(X, options, error, message):
    with pytest.raises(error, match=message):
        ct.learn_posterior(X, **options)


def test_constant_data(X):
    with pytest.raises(ValueError, match="constant"):
        ct.learn_posterior(np.ones((5, 2)))
    partly = X.copy()
    partly[:, 2] = 1.0
    for covariance in ("diagonal", "wishart"):
        with pytest.raises(ValueError, match=r"constant in column\(s\) 2"):
            ct.learn_posterior(partly, covariance)
    assert ct.learn_posterior(partly, n_iter=3, burn_in=1, n_particles=4).covariance[0, 0] > 1


def test_a_full_covariance_of_few_rows_is_warned_of(X):
    with pytest.warns(UserWarning, match="from 6 rows"):
        learned = ct.learn_posterior(X[:6], "wishart", n_iter=3, burn_in=1, n_particles=4)
    assert np.isfinite(learned.covariance).all()


@pytest.fixture(scope="module")
def gaps(X):
    hidden = np.random.default_rng(5).random(X.shape) < 0.2
    table = X.copy()
    table[hidden] = np.nan
    return table


@pytest.mark.parametrize("covariance", ["spherical", "diagonal", "wishart"])
def test_missing_entries_are_learned(X, gaps, covariance):
    learned = ct.learn_posterior(gaps, covariance, n_iter=25, burn_in=5, n_particles=8)
    hidden = np.isnan(gaps)
    np.testing.assert_array_equal(learned.completed[~hidden], X[~hidden])
    assert not learned.completed_sd[~hidden].any()
    error = learned.completed[hidden] - X[hidden]
    columns = np.broadcast_to(np.nanmean(gaps, axis=0), X.shape)[hidden] - X[hidden]
    assert np.median(np.abs(error)) < 0.7 * np.median(np.abs(columns))
    assert (learned.completed_sd[hidden] > 0).all()
    assert len(learned.posterior) == 8
    assert np.isfinite(learned.posterior.log_joint).all()
    assert np.isnan(learned.posterior.log_evidence)


def test_a_row_with_no_entry_and_a_column_with_none(gaps):
    table = gaps.copy()
    table[3] = np.nan
    learned = ct.learn_posterior(table, n_iter=6, burn_in=2, n_particles=4)
    assert np.isfinite(learned.completed).all()
    table[:, 1] = np.nan
    with pytest.raises(ValueError, match=r"no entry at all in column\(s\) 1"):
        ct.learn_posterior(table)


@pytest.mark.parametrize("table", ["X", "gaps"])
def test_greedy_loop(table, request):
    data = request.getfixturevalue(table)
    learned = ct.learn_posterior(data, method="greedy", n_iter=15, burn_in=5)
    assert len(learned.posterior) == 1
    assert 20 < learned.covariance[0, 0] < 500
    built = ct.greedy_tree(learned.completed, learned.covariance, rule="peak", leaf_noise=learned.leaf_noise)
    np.testing.assert_array_equal(built.children, learned.posterior[0].children)
    np.testing.assert_allclose(built.times, learned.posterior[0].times)


def kernel_over_columns():
    return {"covariance": RBF(2.0, (0.1, 50.0)) + WhiteKernel(0.1, (1e-3, 1.0)), "coordinates": np.arange(6.0)}


@pytest.mark.parametrize("table", ["X", "gaps"])
@pytest.mark.parametrize(
    "options",
    [{"covariance": "diagonal"}, {"covariance": "wishart"}, kernel_over_columns(), {"method": "greedy"}],
    ids=["diagonal", "wishart", "kernel", "greedy"],
)
def test_an_interrupted_run_resumes_to_the_identical_result(options, table, request, tmp_path, monkeypatch):
    data = request.getfixturevalue(table)
    options = {"n_iter": 6, "burn_in": 2, "n_particles": 4, **options}
    whole = ct.learn_posterior(data, **options)
    path = tmp_path / "run.npz"
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    original, count = learn.iterate, iter(range(100))

    def killed(*arguments):
        if next(count) == 3:
            raise SystemExit
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(learn, "iterate", killed)
        with pytest.raises(SystemExit):
            ct.learn_posterior(data, **options, checkpoint=path)
    resumed = ct.learn_posterior(data, **options, checkpoint=path, n_jobs=2)
    again = ct.learn_posterior(data, **options, checkpoint=path)
    for result in (resumed, again):
        assert result.posterior.times.tobytes() == whole.posterior.times.tobytes()
        assert result.covariance.tobytes() == whole.covariance.tobytes()
        assert result.completed.tobytes() == whole.completed.tobytes()
        assert all(result.trace[name].tobytes() == whole.trace[name].tobytes() for name in whole.trace)


def test_a_finished_run_is_extended(X, tmp_path):
    path = tmp_path / "run.npz"
    ct.learn_posterior(X, n_iter=3, burn_in=1, n_particles=4, checkpoint=path)
    longer = ct.learn_posterior(X, n_iter=5, burn_in=1, n_particles=4, checkpoint=path)
    straight = ct.learn_posterior(X, n_iter=5, burn_in=1, n_particles=4)
    assert longer.posterior.times.tobytes() == straight.posterior.times.tobytes()


def test_checkpoints_that_do_not_fit(X, tmp_path):
    path = tmp_path / "run.npz"
    options = {"n_iter": 2, "burn_in": 1, "n_particles": 3, "checkpoint": path}
    ct.learn_posterior(X, **options)
    for change in ({"random_state": 1}, {"covariance": "diagonal"}, {"n_particles": 4}, {"leaf_noise": 0.1}):
        with pytest.raises(ValueError, match="belongs to a run with other data, settings or seed"):
            ct.learn_posterior(X, **{**options, **change})
    with pytest.raises(ValueError, match="belongs to a run"):
        ct.learn_posterior(2 * X, **options)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"not a readable coaltree\.checkpoint file"):
        ct.learn_posterior(X, **options)
    with pytest.raises(ValueError, match="folder that exists"):
        ct.learn_posterior(X, **{**options, "checkpoint": tmp_path / "none" / "run.npz"})


def test_kernels_that_cannot_be_learned(X):
    with pytest.raises(ValueError, match="coordinates"):
        ct.learn_posterior(X, RBF(), np.arange(5.0))
    with pytest.raises(TypeError, match="coordinates must be given"):
        ct.learn_posterior(X, RBF())
    with pytest.raises(ValueError, match="bounds"):
        ct.learn_posterior(X, RBF(1.0, (1e-3, np.inf)), np.arange(6.0))


def test_the_result_tells_its_seed():
    X = np.random.default_rng(0).normal(size=(5, 2))
    options = {"n_iter": 3, "burn_in": 1, "n_particles": 3}
    for random_state, told in ((7, 7), (np.int64(7), 7), (np.random.default_rng(7), None), (None, None)):
        assert ct.learn_posterior(X, random_state=random_state, **options).posterior.info["random_state"] == told
