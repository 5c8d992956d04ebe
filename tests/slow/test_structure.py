"""The paper's structure experiment: errors of the default sampler with the true covariance.

`COALTREE_DATA=/path/to/data pytest -m slow` also runs the USPS comparison.
"""

import os
from pathlib import Path

import numpy as np
import pytest

import coaltree as ct
from tests.seeds import seed

pytestmark = pytest.mark.slow


def squared_exponential(d, length=4.0, noise=1e-3):
    gaps = np.subtract.outer(np.arange(d), np.arange(d))
    return np.exp(-(gaps**2) / (2 * length)) + noise * np.eye(d)


@pytest.mark.parametrize(("size", "merge_time_limit", "distance_limit"), [(32, 0.036, 0.065), (64, 0.020, 0.055)])
def test_errors_of_the_default_sampler(size, merge_time_limit, distance_limit):
    phi = squared_exponential(size)
    merge_time, distance = [], []
    for replicate in range(50):
        rng = np.random.default_rng(seed(10_000 + replicate))
        tree = ct.sample_tree(size, random_state=rng)
        X = ct.sample_data(tree, phi, random_state=rng)
        post = ct.sample_posterior(X, phi, n_particles=100, random_state=rng)
        merge_time.append(ct.metrics.merge_time_errors(tree, post.times, weights=post.weights).mse)
        distance.append(ct.metrics.distance_errors(tree, post.cophenetic()).mse)
    print(f"n = d = {size}: merge-time MSE {np.mean(merge_time):.4f} ± {np.std(merge_time):.4f}, ", end="")
    print(f"distance MSE {np.mean(distance):.4f} ± {np.std(distance):.4f}")
    assert np.mean(merge_time) <= merge_time_limit
    assert np.mean(distance) <= distance_limit


@pytest.mark.parametrize("subset", range(3))
def test_the_race_wins_on_digits(subset):
    folder = os.environ.get("COALTREE_DATA")
    if not folder:
        pytest.skip("set COALTREE_DATA to a folder with usps.npz (X (n, 256) in [−1, 1], y)")
    with np.load(Path(folder) / "usps.npz") as file:
        X, y = file["X"], file["y"]
    rng = np.random.default_rng(seed(subset))
    rows = np.concatenate([rng.choice(np.flatnonzero(y == digit), 50, replace=False) for digit in range(10)])
    evidence = {
        method: ct.sample_posterior(X[rows], 27 * np.eye(256), method=method, n_particles=20, n_jobs=2).log_evidence
        for method in ("tpost", "smc1")
    }
    print(f"subset {subset}: {evidence}")
    assert evidence["smc1"] > evidence["tpost"] + 8000
