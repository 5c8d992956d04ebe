"""`sample_posterior` at its boundary: options, bad input, extreme scales."""

import numpy as np
import pytest

import coaltree as ct
from coaltree.inference.effort import choose_sampler
from coaltree.inference.smc.proposals import METHODS
from coaltree.model import diffusion
from coaltree.sizes import INSERTED

GOOD = np.array([[0.0, 0.1], [1.0, 0.2], [2.0, -0.4], [0.3, 0.3]])


def test_result_carries_what_made_it():
    post = ct.sample_posterior(GOOD, n_particles=7, random_state=3)
    assert post.info["version"] == ct.__version__
    assert post.info["method"] == "insertion"
    assert post.info["random_state"] == 3
    assert post.weights.sum() == pytest.approx(1.0)
    assert post.ess_per_step.shape == (3,)
    assert np.all((post.ess_per_step >= 1 - 1e-9) & (post.ess_per_step <= 7 + 1e-9))


def test_names_come_from_a_dataframe():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(GOOD, index=["a", "b", "c", "d"])
    assert ct.sample_posterior(frame, n_particles=2).names == ("a", "b", "c", "d")
    assert ct.sample_posterior(frame, n_particles=2, names=list("wxyz")).names == ("w", "x", "y", "z")
    assert ct.sample_posterior(frame.reset_index(drop=True), n_particles=2).names is None


def test_generator_and_seed():
    one = ct.sample_posterior(GOOD, n_particles=5, random_state=1)
    same = ct.sample_posterior(GOOD, n_particles=5, random_state=np.random.default_rng(1))
    np.testing.assert_array_equal(one.times, same.times)


def test_lists_integers_and_strides():
    expected = ct.sample_posterior([[0, 1], [2, 5], [3, 3]], n_particles=4).times
    for X in (np.array([[0, 1], [2, 5], [3, 3]], dtype=np.int8), np.asfortranarray([[0.0, 1], [2, 5], [3, 3]])):
        np.testing.assert_array_equal(ct.sample_posterior(X, n_particles=4).times, expected)
    read_only = np.array([[0.0, 1], [2, 5], [3, 3]])
    read_only.flags.writeable = False
    np.testing.assert_array_equal(ct.sample_posterior(read_only, n_particles=4).times, expected)


def phi(*eigenvalues):
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    return rotation @ np.diag(eigenvalues) @ rotation.T


BAD = {
    "NaN": ({"X": [[0.0], [np.nan]]}, ValueError, r"X must be finite: 1 entry is NaN .* the first at \[1, 0\]"),
    "infinite": ({"X": [[0.0], [np.inf]]}, ValueError, "X must be finite"),
    "strings": ({"X": [["a"], ["b"]]}, TypeError, "X must be an array of numbers"),
    "complex": ({"X": np.array([[1j], [2.0]])}, TypeError, "X must be"),
    "one-dimensional": ({"X": [1.0, 2.0, 3.0]}, ValueError, "X must have 2 dimension"),
    "ragged": ({"X": [[1.0], [2.0, 3.0]]}, TypeError, "X must be an array of numbers"),
    "one row": ({"X": [[1.0, 2.0]]}, ValueError, "X must have at least 2 rows"),
    "no columns": ({"X": np.empty((3, 0))}, ValueError, "X must have at least 1 column"),
    "covariance shape": ({"covariance": np.eye(3)}, ValueError, r"covariance must be \(2, 2\) to match the 2 column"),
    "covariance NaN": ({"covariance": [[1, np.nan], [np.nan, 1]]}, ValueError, "covariance must be finite"),
    "asymmetric": ({"covariance": [[1.0, 0.5], [0.1, 1.0]]}, ValueError, "covariance must be symmetric"),
    "indefinite": ({"covariance": phi(2.0, -0.25)}, ValueError, "the smallest of its 2 eigenvalues is -0.25"),
    "singular": ({"covariance": np.ones((2, 2))}, ValueError, "covariance must be positive definite"),
    "negative noise": ({"leaf_noise": -0.1}, ValueError, "leaf_noise must not be negative, got -0.1"),
    "noise length": ({"leaf_noise": [0.1, 0.2]}, ValueError, "leaf_noise must be a number or have one entry per row"),
    "noise NaN": ({"leaf_noise": np.nan}, ValueError, "leaf_noise must be finite"),
    "noise text": ({"leaf_noise": "learn"}, TypeError, "leaf_noise must be an array of numbers"),
    "method": ({"method": "gibbs"}, ValueError, "method must be one of 'auto', 'insertion', 'tpost'"),
    "no particles": ({"n_particles": 0}, ValueError, "n_particles must be at least 1, got 0"),
    "half a particle": ({"n_particles": 2.5}, TypeError, "n_particles must be an integer"),
    "threshold": ({"ess_threshold": 1.5}, ValueError, "ess_threshold must be between 0 and 1"),
    "jobs": ({"n_jobs": 0}, ValueError, "n_jobs must be at least 1"),
    "seed": ({"random_state": "x"}, TypeError, "random_state must be"),
    "duplicates": ({"X": [[1.0, 2], [0, 0], [1, 2]]}, ValueError, r"duplicate rows \(0 and 2; 1 .*leaf_noise > 0"),
    "names": ({"names": ["a"]}, ValueError, "names"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    arguments, error, message = BAD[case]
    with pytest.raises(error, match=message):
        ct.sample_posterior(**{"X": GOOD, "n_particles": 3} | arguments)


@pytest.mark.parametrize("method", METHODS)
def test_duplicates_with_leaf_noise(method):
    X = np.repeat(GOOD, 3, axis=0)
    post = ct.sample_posterior(X, method=method, n_particles=20, leaf_noise=0.1)
    assert np.isfinite(post.log_evidence)
    assert np.all(np.isfinite(post.log_joint))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-140, 1e-3, 1e3, 1e140])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_extreme_scales_work(method, scale, d):
    X = scale * ct.sample_data(ct.sample_tree(6, random_state=1), d, random_state=2)
    post = ct.sample_posterior(X, method=method, n_particles=10)
    assert np.isfinite(post.log_evidence)
    assert np.all(np.isfinite(post.times))
    tree = ct.greedy_tree(X)
    assert np.isfinite(ct.log_joint(tree, X))


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_scales_at_the_limit_work_or_say_why(scale):
    assert np.isfinite(ct.sample_posterior(scale * GOOD, n_particles=5).log_evidence)
    assert np.isfinite(ct.sample_posterior(scale * GOOD, scale**2 * np.eye(2), n_particles=5).log_evidence)
    with pytest.raises(ValueError, match="Rescale X"):
        ct.sample_posterior(1e160 * GOOD, n_particles=5)
    with pytest.raises(ValueError, match="Rescale X"):
        ct.sample_posterior(1e-160 * GOOD, n_particles=5)


def test_rescaling_data_and_covariance_together_changes_nothing_but_the_unit():
    X = ct.sample_data(ct.sample_tree(10, random_state=1), 3, random_state=2)
    one = ct.sample_posterior(X, n_particles=10)
    other = ct.sample_posterior(1000 * X, 1e6 * np.eye(3), n_particles=10)
    np.testing.assert_allclose(one.times, other.times, rtol=1e-8)
    assert other.log_evidence == pytest.approx(one.log_evidence - 9 * 3 * np.log(1000), rel=1e-8)


def test_auto_inserts_up_to_a_number_of_rows_and_columns():
    inserted = ("insertion", 0.3)
    for rows, columns in INSERTED:
        assert choose_sampler("auto", rows, columns, 0.3) == inserted
        assert choose_sampler("auto", rows + 1, columns, 0.3) == ("smc1", 0.0)
    assert choose_sampler("auto", 501, 4, 0.3) == ("tpost", 0.3)
    assert choose_sampler("auto", 10, 65, 0.3) == ("smc1", 0.0)
    assert choose_sampler("smc1", 10, 65, 0.3) == ("smc1", 0.3)
    assert choose_sampler("mpost2", 10, 10, 0.3) == ("mpost2", 0.3)


def test_auto_runs_the_race_without_resampling():
    X = ct.sample_data(ct.sample_tree(12, random_state=1), 65, random_state=2)
    post = ct.sample_posterior(X, n_particles=10)
    assert (post.info["method"], post.info["ess_threshold"], post.info["n_resampled"]) == ("smc1", 0.0, 0)
    same = ct.sample_posterior(X, method="smc1", ess_threshold=0.0, n_particles=10)
    np.testing.assert_array_equal(post.times, same.times)
    assert ct.sample_posterior(X, method="smc1", n_particles=10).info["ess_threshold"] == 0.5


@pytest.mark.parametrize("method", ["insertion", "tpost"])
def test_the_table_is_whitened_once(method, monkeypatch):
    calls = []
    monkeypatch.setattr(diffusion, "whiten", lambda *given, whiten=diffusion.whiten: calls.append(0) or whiten(*given))
    ct.sample_posterior(GOOD, method=method, n_particles=3, n_islands=2)
    assert len(calls) == 1


def test_insertion_makes_no_distances_of_all_pairs(monkeypatch):
    monkeypatch.setattr("coaltree.inference.smc.sampling.pair_distances", None)
    ct.sample_posterior(GOOD, method="insertion", n_particles=3)
    with pytest.raises(TypeError):
        ct.sample_posterior(GOOD, method="tpost", n_particles=3)


def test_rows_that_are_closer_than_doubles_can_square_are_named():
    X = np.zeros((5, 3))
    X[:, 0] = [1.0, 2.0, 1.0, 3.0, 2.0]
    X[:, 1] = [0.0, 1e-160, 1e-140, 0.0, 0.0]
    for method in ("insertion", "tpost"):
        with pytest.raises(ValueError, match=r"rows 1 and 4 underflows"):
            ct.sample_posterior(X, method=method, n_particles=3)
    X[1, 1] = 1e-130  # rows 0 and 2, and 1 and 4, are close but can be told apart
    assert ct.sample_posterior(X, method="insertion", n_particles=3).n_leaves == 5


def test_equal_rows_are_counted():
    X = np.array([[2.0], [1.0], [2.0], [1.0], [2.0]])
    with pytest.raises(ValueError, match=r"duplicate rows \(0 and 2; 4 such"):
        ct.sample_posterior(X, n_particles=3)
    assert ct.sample_posterior(X, leaf_noise=[0.0, 0.0, 0.1, 0.1, 0.2], n_particles=3).n_leaves == 5
