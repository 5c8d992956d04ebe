"""Held-out log predictive density on public tables: `CoalescentClustering` beside a Gaussian mixture and a kernel.

    python -m benchmarks.density --data FOLDER [--rows 60] [--draws 100] [--only NAME] [--out benchmarks/density.md]

The tables are those of `benchmarks.labelled`; without --data, scikit-learn's alone. A model learns from --rows rows
(two thirds of a small table) and is judged by up to 100 others, in nats a row, higher is better. Where a column has
ties, the density of its values is infinite, so all models see each of them moved at random within half a step, as is
usual for densities of rounded values. Columns are then standardised by the training rows; those constant there are left
out.

Ours: all defaults, and `covariance="auto", leaf_noise="auto"`, which is meant for density; --draws trees after as many
iterations of warm-up. Gaussian mixture: 1 … 8 components, full, tied, diagonal or spherical, by BIC. Kernel density:
Gaussian, the bandwidth by five-fold cross-validation. The last columns are the difference of "auto" to the better of
the two, its standard error over held-out rows, and CPU seconds of ours.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KernelDensity

from benchmarks.labelled import NAMES, load
from coaltree import CoalescentClustering

OURS = {"default": {}, "auto": {"covariance": "auto", "leaf_noise": "auto"}}
MODELS = ("default", "auto", "mixture", "kernel")
MOST_TESTED = 100


def untie(X, rng):
    """Move the values of columns with ties at random within half a step, the least distance of two values."""
    X = X.copy()
    for column in X.T:
        distinct = np.unique(column)
        if 1 < len(distinct) < 0.9 * len(column):
            column += np.diff(distinct).min() * rng.uniform(-0.5, 0.5, len(column))
    return X


def split(X, n_rows, seed):
    """Training rows and up to MOST_TESTED others, columns standardised by the first."""
    rng = np.random.default_rng(seed)
    X = untie(X, rng)[rng.permutation(len(X))]
    n_rows = min(n_rows, 2 * len(X) // 3)
    train, test = X[:n_rows], X[n_rows : n_rows + MOST_TESTED]
    kept = train.std(axis=0) > 1e-12
    mean, sd = train[:, kept].mean(axis=0), train[:, kept].std(axis=0)
    return (train[:, kept] - mean) / sd, (test[:, kept] - mean) / sd


def mixture(X):
    fits = [
        GaussianMixture(k, covariance_type=kind, n_init=2, random_state=0, reg_covar=1e-3).fit(X)
        for k in range(1, 9)
        for kind in ("full", "tied", "diag", "spherical")
    ]
    return min(fits, key=lambda fit: fit.bic(X))


def kernel(X):
    folds = KFold(5, shuffle=True, random_state=0)
    return GridSearchCV(KernelDensity(), {"bandwidth": np.geomspace(0.03, 3.0, 40)}, cv=folds).fit(X).best_estimator_


def measure(X, options):
    """Log density of every held-out row by model, and CPU seconds of ours."""
    train, test = split(X, options.rows, 0)
    found, seconds = {"mixture": mixture(train).score_samples(test), "kernel": kernel(train).score_samples(test)}, {}
    for name, settings in OURS.items():
        start = time.process_time()
        model = CoalescentClustering(**settings, n_draws=options.draws, warmup=options.draws, random_state=0).fit(train)
        seconds[name] = time.process_time() - start
        found[name] = model.score_samples(test)
    return found, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--only", help="tables whose name holds this")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # chains that are not done, mixtures that do not converge
    lines = ["| table | " + " | ".join(MODELS) + " | auto − best peer | s |", "|---" * (len(MODELS) + 3) + "|"]
    print("\n".join(lines), flush=True)
    ahead = {name: [] for name in OURS}
    for name in NAMES:
        table = None if options.only and options.only not in name else load(name, options.data)
        if table is None:
            continue
        found, seconds = measure(table[0], options)
        best = max(("mixture", "kernel"), key=lambda peer: found[peer].mean())
        for ours, kept in ahead.items():
            kept.append(found[ours].mean() > found[best].mean())
        gap = found["auto"] - found[best]
        cells = [f"{found[model].mean():.2f}" for model in MODELS]
        cells += [f"{gap.mean():+.2f} ± {gap.std(ddof=1) / np.sqrt(len(gap)):.2f}"]
        cells += [" + ".join(f"{each:.0f}" for each in seconds.values())]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    told = "; ".join(f"{name} on {sum(kept)} of {len(kept)} tables" for name, kept in ahead.items())
    lines += ["", f"Ahead of both peers: {told}."]
    print(lines[-1])
    if options.out:
        options.out.write_text(f"# Held-out log predictive density\n\n{__doc__}\n" + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
