"""Many features: CPU time, memory and effective draws of CoalescentProbit.

python -m benchmarks.wide defaults [1]  # N 1 500, P 25, K 25; with the seed of other data
python -m benchmarks.wide columns       # N 1 500, P 25, K 324: rare 0/1 columns, collinear ones, noise
python -m benchmarks.wide sparse        # N 20 000, P 10, K 2 000, one entry in a hundred; 45 iterations
"""

from __future__ import annotations

import resource
import sys
import time
import warnings

import numpy as np
from scipy import sparse

import coaltree as ct


def outcomes(X, beta, rng):
    return (X @ beta.T + rng.uniform(-2.0, -0.8, len(beta)) + rng.standard_normal((X.shape[0], len(beta))) > 0) * 1.0


def report(name: str, model: ct.CoalescentProbit, seconds: float, beta: np.ndarray) -> None:
    found = model.diagnostics_
    draws = model.fit_.coef_draws.reshape(-1, *beta.shape)
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name}: {seconds:.0f} s CPU, {memory:.0f} MB, R-hat {found['r_hat']:.3f}, effective draws at least "
        f"{found['bulk_ess']:.0f}, median {np.median(found['theta_bulk_ess']):.0f}; 90 % intervals cover "
        f"{np.mean((low <= beta) & (beta <= high)):.3f}"
    )


def main(case: str, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    options = {"random_state": 0}
    if case == "sparse":
        X = sparse.random_array((20_000, 2_000), density=0.01, rng=rng, format="csr")
        X.data[:] = 1.0
        beta = np.zeros((10, 2_000))
        strong = rng.choice(2_000, 60, replace=False)
        beta[:, strong] = 0.8 * rng.standard_normal(60) + 0.3 * rng.standard_normal((10, 60))
        Y, unit, options = outcomes(X, beta, rng), 1.0, options | {"n_iter": 45, "burn_in": 20, "n_chains": 1}
    else:
        n_features = 25 if case == "defaults" else 324
        X, phi = rng.standard_normal((1_500, n_features)), np.full(n_features, 0.02)
        if case == "columns":
            X[:, :200] = rng.random((1_500, 200)) < rng.uniform(0.01, 0.3, 200)
            X[:, 200:260] += X[:, 260:320]
            phi = np.where(rng.random(n_features) < 0.1, 0.08, 0.0002)
        tree = ct.sample_tree(25, random_state=rng)
        beta, unit = ct.sample_data(tree, phi, leaf_noise=0.05, random_state=rng), X.std(axis=0)
        Y = outcomes((X - X.mean(axis=0)) / unit, beta, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ct.CoalescentProbit(n_iter=4, burn_in=2, n_chains=1, random_state=0).fit(X[:100], Y[:100])  # compile
        began = time.process_time()
        model = ct.CoalescentProbit(**options).fit(X, Y)
    report(case, model, time.process_time() - began, beta / unit)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
