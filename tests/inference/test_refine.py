"""`refine` raises the joint, never lowers it, and finds the best tree where that can be known."""

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

import coaltree as ct
from coaltree import refine
from tests.seeds import seed

USPS = Path("/work/shared/data/usps.npz")


def histories(n):
    """Children of every ordered history over n leaves."""

    def descend(live, merges):
        if len(live) == 1:
            yield merges
        for pair in combinations(live, 2):
            rest = [node for node in live if node not in pair]
            yield from descend([*rest, n + len(merges)], [*merges, pair])

    return descend(list(range(n)), [])


def best_joint(X, leaf_noise):
    """The highest joint over all histories and times, by a general optimiser in log gaps."""
    best = -math.inf
    for children in histories(len(X)):

        def cost(log_gaps, children=children):
            tree = ct.Tree(children, np.cumsum(np.exp(np.clip(log_gaps, -30, 5))))
            return -ct.log_joint(tree, X, None, leaf_noise=leaf_noise)

        options = {"xatol": 1e-3, "fatol": 1e-5}
        best = max(best, -minimize(cost, np.full(len(X) - 1, -2.0), method="Nelder-Mead", options=options).fun)
    return best


@pytest.mark.parametrize(("d", "leaf_noise"), [(2, 0.0), (3, 0.3)])
def test_finds_the_best_of_all_trees(d, leaf_noise):
    n = 4
    rng = np.random.default_rng(seed(1))
    X = ct.sample_data(ct.sample_tree(n, random_state=rng), d, leaf_noise=leaf_noise, random_state=rng)
    best = best_joint(X, leaf_noise)
    for number in range(3):
        found = refine(ct.sample_tree(n, random_state=number), X, leaf_noise=leaf_noise, random_state=seed(number))
        assert ct.log_joint(found, X, None, leaf_noise=leaf_noise) == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize(("n", "d", "leaf_noise"), [(60, 2, 0.0), (60, 50, 0.0), (40, 5, 0.2)])
def test_raises_every_start_to_the_same_height(n, d, leaf_noise):
    rng = np.random.default_rng(seed(2))
    truth = ct.sample_tree(n, random_state=rng)
    factor = rng.normal(size=(d, d))
    covariance = factor @ factor.T + np.eye(d)
    X = ct.sample_data(truth, covariance, leaf_noise=leaf_noise, random_state=rng)
    starts = [
        ct.greedy_tree(X, covariance, rule=rule, leaf_noise=leaf_noise)
        for rule in ("mode", "mean", "truncated_mean", "peak")
    ]
    starts += [truth, ct.sample_tree(n, random_state=rng)]
    heights = []
    for start in starts:
        found = refine(start, X, covariance, leaf_noise=leaf_noise, max_sweeps=30, random_state=seed(3))
        heights.append(ct.log_joint(found, X, covariance, leaf_noise=leaf_noise))
        assert heights[-1] > ct.log_joint(start, X, covariance, leaf_noise=leaf_noise)
    # Low dimensions have many trees of nearly the same height: a tenth of a nat a merge.
    assert np.ptp(heights) < 0.1 * n


@pytest.mark.parametrize("temperature", [0.0, 3.0])
def test_never_lowers_the_joint(temperature):
    n = 30
    rng = np.random.default_rng(seed(4))
    X = ct.sample_data(ct.sample_tree(n, random_state=rng), 3, random_state=rng)
    tree = ct.greedy_tree(X, rule="peak")
    for number in range(12):
        found = refine(tree, X, max_sweeps=1 + number, random_state=seed(number), temperature=temperature)
        assert ct.log_joint(found, X) >= ct.log_joint(tree, X)
        tree = found


def test_a_climb_ends_where_no_time_can_be_improved():
    n = 12
    rng = np.random.default_rng(seed(5))
    X = ct.sample_data(ct.sample_tree(n, random_state=rng), 6, random_state=rng)
    tree = refine(ct.greedy_tree(X), X, temperature=0.0)
    top = ct.log_joint(tree, X)
    for k in range(n - 1):
        for step in (-1e-3, 1e-3):
            times = tree.times.copy()
            times[k] *= 1 + step
            if np.all(np.diff(times) >= 0):
                assert ct.log_joint(ct.Tree(tree.children, times), X) <= top + 1e-4


def test_same_seed_same_tree():
    n = 25
    X = ct.sample_data(ct.sample_tree(n, random_state=1), 3, random_state=2)
    start = ct.greedy_tree(X, names=[f"x{i}" for i in range(n)])
    first, second = (refine(start, X, max_sweeps=10, random_state=7) for _ in range(2))
    assert first == second
    assert first.names == start.names
    assert first == refine(start, X, max_sweeps=10, random_state=np.random.default_rng(7))


def test_two_leaves_and_tied_starts():
    X = np.array([[0.0, 1.0], [2.0, 0.0]])
    found = refine(ct.Tree([[0, 1]], [0.1]), X)
    eps, d = 5.0, 2
    v = (-d / 2 + math.sqrt(d**2 / 4 + eps)) / 1.0
    assert found.times[0] == pytest.approx(v / 2, rel=1e-6)

    n = 8
    X = ct.sample_data(ct.sample_tree(n, random_state=1), 2, random_state=2)
    caterpillar = [[0, 1], *([k + 1, n + k - 1] for k in range(1, n - 1))]
    heights = [
        ct.log_joint(refine(ct.Tree(caterpillar, np.full(n - 1, time)), X, temperature=temperature), X)
        for time in (0.0, 1.0)
        for temperature in (0.0, 3.0)
    ]
    assert np.all(np.isfinite(heights))
    assert np.ptp(heights) < 2.0


def test_bad_input():
    tree = ct.sample_tree(5, random_state=0)
    X = ct.sample_data(tree, 2, random_state=0)
    with pytest.raises(ValueError, match="one row per leaf"):
        refine(tree, X[:4])
    with pytest.raises(ValueError, match="max_sweeps must be at least 1"):
        refine(tree, X, max_sweeps=0)
    with pytest.raises(ValueError, match="temperature must be a finite number ≥ 0"):
        refine(tree, X, temperature=-1.0)
    with pytest.raises(ValueError, match="duplicate rows"):
        refine(tree, X[[0, 0, 1, 2, 3]])


@pytest.mark.slow
@pytest.mark.skipif(not USPS.exists(), reason="USPS is not at hand")
def test_usps_starts_end_within_one_percent():
    images = np.load(USPS)
    rng = np.random.default_rng(0)
    chosen = [rng.choice(np.flatnonzero(images["y"] == digit), 50, replace=False) for digit in range(10)]
    X, covariance = images["X"][np.concatenate(chosen)].astype(float), 27 * np.eye(256)
    starts = [ct.greedy_tree(X, covariance, rule=rule) for rule in ("mode", "mean", "truncated_mean", "peak")]
    for method in ("smc1", "tpost", "mpost2"):
        starts.append(
            ct.sample_posterior(X, covariance, method=method, n_particles=5, random_state=seed(6)).best_tree()
        )
    before = np.array([ct.log_joint(tree, X, covariance) for tree in starts])
    after = np.array([ct.log_joint(refine(tree, X, covariance), X, covariance) for tree in starts])
    assert np.all(after > before)
    assert np.ptp(after) < 0.01 * abs(after.mean())
