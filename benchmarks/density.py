"""Held-out log predictive density: `CoalescentClustering` beside a Gaussian mixture and a kernel density.

    python -m benchmarks.density [--splits 5] [--rows 300] [--only NAME] [--out benchmarks/density.md]

Tables are standardised, and reduced by PCA where they are wide; a fifth of the rows is held out. The mixture's number
of components and covariance type and the kernel's bandwidth are chosen by five-fold cross-validation on the training
rows; ours has no choice to make but the covariance, and both are shown. Mean log density a held-out row, in nats.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn import datasets
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.neighbors import KernelDensity
from sklearn.preprocessing import StandardScaler

from coaltree import CoalescentClustering

MODELS = ("coaltree, wishart", "coaltree, spherical", "Gaussian mixture", "kernel density")


def tables():
    """Yield name and table."""
    yield "iris", datasets.load_iris().data
    yield "wine", datasets.load_wine().data
    yield "breast cancer, 8 components", reduce(datasets.load_breast_cancer().data, 8)
    yield "digits, 10 components", reduce(datasets.load_digits().data, 10)


def reduce(X, n_components):
    return PCA(n_components, random_state=0).fit_transform(StandardScaler().fit_transform(X))


def choose(model, grid, X):
    # Equal rows and empty components warn; such settings lose in the search.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folds = KFold(5, shuffle=True, random_state=0)
        return GridSearchCV(model, grid, cv=folds).fit(X).best_estimator_


def fit(name, X, seed):
    if name == "Gaussian mixture":
        grid = {"n_components": [1, 2, 3, 4, 5, 6, 8, 10], "covariance_type": ["full", "tied", "diag", "spherical"]}
        return choose(GaussianMixture(n_init=3, random_state=seed), grid, X)
    if name == "kernel density":
        return choose(KernelDensity(), {"bandwidth": np.geomspace(0.03, 3.0, 40)}, X)
    return CoalescentClustering(name.split(", ")[1], random_state=seed).fit(X)


def measure(X, seed, n_rows):
    rows = np.random.default_rng(seed).permutation(len(X))[:n_rows]
    train, test = train_test_split(X[rows], test_size=0.2, random_state=seed)
    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)
    result = {}
    for name in MODELS:
        start = time.process_time()
        result[name] = float(fit(name, train, seed).score_samples(test).mean()), time.process_time() - start
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rows", type=int, default=300, help="at most so many rows a table")
    parser.add_argument("--only", help="tables whose name holds this")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = [f"| data, {options.splits} splits | " + " | ".join(MODELS) + " |", "|---" * (len(MODELS) + 1) + "|"]
    for name, X in tables():
        if options.only and options.only not in name:
            continue
        found = [measure(X, seed, options.rows) for seed in range(options.splits)]
        cells = []
        for model in MODELS:
            scores = np.array([one[model][0] for one in found])
            # Splits share their difficulty: the spread that counts is that of differences from the first model.
            differences = scores - np.array([one[MODELS[0]][0] for one in found])
            error = differences.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0.0
            seconds = np.mean([one[model][1] for one in found])
            cells.append(f"{scores.mean():.3f} (± {error:.3f}, {seconds:.0f} s)")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    if options.out:
        options.out.write_text(f"# Held-out log predictive density\n\n{__doc__}\n" + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
