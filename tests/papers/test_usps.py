"""Handwritten digits: the trees that are compared, and a quick run on a stand-in and on the images themselves."""

from argparse import Namespace

import numpy as np
import pytest
from papers.henao_lucas.experiment import MissingDataError, perform
from papers.henao_lucas.usps import run as experiment
from papers.henao_lucas.usps.run import EXPERIMENT, LABELS, MATERN_HELPS, N_CLASSES, scores, subset
from papers.henao_lucas.usps.trees import axis_wise_matern, even, mean_tree, project

import coaltree as ct
from tests.papers.real_data import real_data


def options_for(folder, replicates=None):
    return Namespace(quick=True, replicates=replicates, data=folder, jobs=1)


def stand_in(folder, n_each=34):
    """Ten classes of smooth 16 × 16 images: a tree between classes, one within each, and a copy of an image."""
    pixels = np.arange(16.0)
    smooth = np.exp(-0.5 * np.subtract.outer(pixels, pixels) ** 2 / 4.0) + 0.01 * np.eye(16)
    phi = np.kron(smooth, smooth)
    means = ct.sample_data(ct.sample_tree(N_CLASSES, random_state=1), phi, random_state=2)
    within = [ct.sample_tree(n_each, random_state=10 + c) for c in range(N_CLASSES)]
    parts = [0.6 * ct.sample_data(tree, phi, random_state=30 + c) for c, tree in enumerate(within)]
    X = np.concatenate([mean + part - part.mean(axis=0) for mean, part in zip(means, parts, strict=True)])
    X[1] = X[0]
    np.savez(folder / "usps.npz", X=X, y=np.repeat(np.arange(N_CLASSES), n_each))


def test_subsets_are_balanced_distinct_and_the_same_again(tmp_path):
    stand_in(tmp_path)
    options = options_for(tmp_path)
    X, y = subset(options, 0)
    assert len(np.unique(X, axis=0)) == len(X)
    counts = np.bincount(y)
    assert counts.max() == 30
    assert counts.sum() >= 10 * 30 - 1
    again, other = subset(options, 0)[0], subset(options, 1)[0]
    assert np.array_equal(X, again)
    assert not np.array_equal(X[:50], other[:50])


def test_projection_keeps_the_axes_above_average():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6)) * np.array([5.0, 4.0, 3.0, 0.1, 0.1, 0.1])
    Z = project(X)
    assert Z.shape == (400, 3)
    centred = X[:, :3] - X[:, :3].mean(axis=0)
    assert np.linalg.norm(Z, axis=1) == pytest.approx(np.linalg.norm(centred, axis=1), abs=0.5)


def test_evened_images_do_not_know_brightness_and_contrast():
    X = np.random.default_rng(0).normal(size=(5, 256))
    other = X * np.array([[0.5], [1.0], [2.0], [3.0], [0.1]]) + np.arange(5.0)[:, None]
    assert even(other) == pytest.approx(even(X))
    assert np.einsum("ij,ij->i", even(X), even(X)) == pytest.approx(np.full(5, 256.0))


def test_the_mean_of_one_draw_is_that_draw():
    X = ct.sample_data(ct.sample_tree(15, random_state=1), 8, random_state=2)
    draw = ct.sample_posterior(X, n_particles=1, random_state=3)
    for times in (True, False):
        assert ct.metrics.robinson_foulds(mean_tree([draw, draw], times, "average"), draw[0]) == 0
    alone = mean_tree([draw], True, "average")
    assert np.allclose(alone.times, draw.times[0])


@pytest.mark.slow
@pytest.mark.ci
def test_the_mean_of_draws_is_nearer_the_truth_than_a_draw():
    tree = ct.sample_tree(60, random_state=1)
    X = ct.sample_data(tree, 12, random_state=2)
    draws = [ct.sample_posterior(X, None, method="smc1", n_particles=1, random_state=k) for k in range(16)]
    each = [ct.metrics.robinson_foulds(draw[0], tree) for draw in draws]
    error = np.std(each, ddof=1)
    assert ct.metrics.robinson_foulds(mean_tree(draws, False, "average"), tree) < np.mean(each) - 2 * error / 4


def test_the_kernel_is_the_papers_with_both_signs_minus():
    family = axis_wise_matern(4)
    state = family.start(np.eye(16))
    gap = np.sqrt(3.0) / 3.0 * np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    one = (1.0 + gap) * np.exp(-gap)
    phi = state.matrix() / state.values["amplitude"]
    assert phi == pytest.approx(np.kron(one, one) + 0.1 * np.eye(16), rel=1e-6)


def test_scores_of_a_perfect_and_of_a_random_tree():
    labels = np.repeat(np.arange(4), 8)
    X = 100.0 * labels[:, None] + np.random.default_rng(0).normal(size=(32, 3))
    perfect = scores(ct.greedy_tree(X, 100.0 * np.eye(3), rule="peak"), labels)
    assert perfect["subtree"] == 1.0
    assert perfect["curve"][-1] == 1.0
    assert scores(ct.sample_tree(32, random_state=0), labels)["subtree"] < 0.5


@pytest.mark.slow
@pytest.mark.ci
def test_a_quick_run_on_a_stand_in(tmp_path):
    stand_in(tmp_path)
    results = perform(EXPERIMENT, options_for(tmp_path, replicates=2), tmp_path / "out")
    assert set(results["summary"]) == set(LABELS)
    for name, row in results["summary"].items():
        assert row["subsets"] == 2
        assert name == "prior" or row["area"][0] > results["summary"]["prior"]["area"][0]
    page = (tmp_path / "out" / "README.md").read_text()
    assert all(label in page for label in LABELS.values())
    assert (tmp_path / "out" / "ari-curves.svg").exists()


@pytest.mark.slow
@pytest.mark.ci
def test_a_quick_run_on_the_images_bears_the_claims_out(tmp_path):
    """All but the paper's own: its covariance does not help (the page says why)."""
    results = perform(EXPERIMENT, options_for(real_data("usps.npz")), tmp_path)
    assert [claim["statement"] for claim in results["claims"] if not claim["holds"]] == [MATERN_HELPS]
    assert len(results["claims"]) >= 6


@pytest.mark.slow
@pytest.mark.ci
def test_blind_trees_would_fail_the_claims(tmp_path, monkeypatch):
    """Negative control: labels dealt out at random leave nothing above the prior."""
    stand_in(tmp_path)
    whole = experiment.subset

    def shuffled(options, number):
        X, y = whole(options, number)
        return X, np.random.default_rng(number).permutation(y)

    monkeypatch.setattr(experiment, "subset", shuffled)
    results = perform(EXPERIMENT, options_for(tmp_path, replicates=2), tmp_path / "out")
    failed = [claim["statement"] for claim in results["claims"] if not claim["holds"]]
    assert "greedy trees above a tree from the prior, area" in failed


def test_missing_images_are_one_line(tmp_path):
    with pytest.raises(MissingDataError, match=r"usps.npz does not exist.*USPS digits.*--data FOLDER"):
        perform(EXPERIMENT, options_for(tmp_path), tmp_path)
