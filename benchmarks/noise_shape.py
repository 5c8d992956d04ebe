"""Why the covariance with the best density is not the one with the best classes: noise of its own, and rounding.

    python -m benchmarks.noise_shape --data FOLDER [--out benchmarks/noise_shape.md]

Leaf noise has the shape of Φ, s₀Φ. Here it may have a variance ψ_j of its own in every column: each row's true value z
is drawn given the tree and the row, x = z + noise, the chain moves the tree given z, and ψ_j is drawn from x − z. That
mixes more slowly than the chain itself, and is for this question alone. With a floor, ψ_j is no less than the variance
of rounding, step²/12, step the least difference of two values. Tables of about 100 rows, standardised; the figure is
the adjusted Rand index of Ward's linkage of posterior mean merge times at the true number of classes. A table counts as
tied where most of its columns have fewer than 70 distinct values in 100 rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import adjusted_rand_score

from benchmarks.labelled import load, subsample
from coaltree.inference.learning.chain import ChainSettings, TreeChain, first_guesses
from coaltree.inference.learning.table import Numbers
from coaltree.model.covariance import as_family
from coaltree.model.messages import pass_down, pass_messages_up
from coaltree.model.noise import SHARED

TABLES = (
    *("iris", "wine", "breast_cancer", "digits", "breast.w", "column3C", "diabetes", "ecoli", "glass"),
    *("heart.statlog", "ionosphere", "segment"),
)
VARIANTS = {
    "spherical, noise s₀Φ": ("spherical", False, False),
    "diagonal, noise s₀Φ": ("diagonal", False, False),
    "diagonal, noise of its own in every column": ("diagonal", True, False),
    "the same, no less than rounding": ("diagonal", True, True),
}
N_ITER, WARMUP, THIN = 700, 234, 4


def draw_true_values(now, X, psi, rng):
    """Draw z (n, d) given the rows, the tree, Φ = diag(φ) and ψ; it includes the noise s₀Φ."""
    n, d = X.shape
    phi = now.covariance.variances()
    mean, variance = np.zeros((2 * n - 1, d)), np.empty((2 * n - 1, d))
    own = psi / phi
    noise = now.leaf_noise[:, None]
    mean[:n], variance[:n] = X / np.sqrt(phi), own + noise
    pass_messages_up(now.tree.children, now.tree.times, mean, variance, np.empty((n - 1, d)))
    drawn = rng.standard_normal((1, 2 * n - 1, d))
    pass_down(now.tree.parents(), now.tree.node_times(), mean, variance, np.empty_like(variance), drawn)
    leaf, share = drawn[0, :n], noise / (noise + own)
    z = leaf + share * (X / np.sqrt(phi) - leaf) + np.sqrt(share * own) * rng.standard_normal((n, d))
    return z * np.sqrt(phi)


def merge_times(X, covariance, own, floor, seed):
    """Posterior mean merge times of pairs, (n, n), by two chains."""
    n, d = X.shape
    rng, family = np.random.default_rng(seed), as_family(covariance, None, d)
    starts, near = first_guesses(X, family, SHARED, 2, rng)
    total, count = np.zeros((n, n)), 0
    for start in starts:
        chain, psi = TreeChain(X, family, ChainSettings(WARMUP), start, near, rng), 0.05 * X.var(axis=0)
        for iteration in range(N_ITER):
            if own:
                chain.table = Numbers(draw_true_values(chain.now, X, psi, rng))
                chain.X = chain.table.X
                chain.now = chain.move(chain.now)
                chain.table = Numbers(draw_true_values(chain.now, X, psi, rng))
                chain.X = chain.table.X
                left = ((X - chain.X) ** 2).sum(axis=0)
                psi = np.maximum((5e-4 + 0.5 * left) / rng.gamma(0.5 + 0.5 * n, size=d), floor)
            chain.advance()
            if iteration >= WARMUP and iteration % THIN == 0:
                total, count = total + chain.now.tree.cophenetic(), count + 1
    return total / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the ARFF files")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = ["| table | tied | " + " | ".join(VARIANTS) + " | s |", "|---" * (len(VARIANTS) + 3) + "|"]
    scores, ties = [], []
    for name in TABLES:
        found = load(name, options.data)
        if found is None:
            print(f"{name}: not in {options.data}", flush=True)
            continue
        X, y = subsample(*found, 100, 0)
        began, k = time.process_time(), len(np.unique(y))
        step = np.array([np.diff(np.unique(column)).min() for column in X.T])
        ties.append(np.mean([len(np.unique(column)) < 0.7 * len(X) for column in X.T]) > 0.5)
        row = []
        for covariance, own, floored in VARIANTS.values():
            times = merge_times(X, covariance, own, step**2 / 12.0 if floored else 0.0, 0)
            labels = fcluster(linkage(squareform(times, checks=False), "ward"), k, "maxclust")
            row.append(adjusted_rand_score(y, labels))
        scores.append(row)
        cells = " | ".join(f"{score:.2f}" for score in row)
        lines.append(f"| {name} | {'yes' if ties[-1] else ''} | {cells} | {time.process_time() - began:.0f} |")
        print(lines[-1], flush=True)
    for label, kept in (("**mean**", np.ones(len(ties), bool)), ("**mean of tied tables**", np.array(ties))):
        cells = " | ".join(f"{score:.2f}" for score in np.array(scores)[kept].mean(axis=0))
        lines.append(f"| {label} | {kept.sum()} | {cells} | |")
        print(lines[-1], flush=True)
    if options.out:
        options.out.write_text(f"# The shape of noise\n\n{__doc__}\n" + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
