"""Do the trees know the classes: subtree score and area under the ARI curve, beside scipy and genieclust.

    python -m benchmarks.quality --data FOLDER [--usps-rows 2500] [--subsets 5] [--out benchmarks/quality.md]

FOLDER holds usps.npz (X, y). Both measures are 1 for a tree that keeps classes together and use no number of clusters.
`greedy` rules and `refined` (the greedy tree by peaks, climbing to the nearest maximum of the joint) see Φ = φI with φ
learned from the tree; `race` is of RACES particles of smc1 at the same φ that never met: the tree of highest joint, of
maximum clade credibility, and `mean_tree` by average linkage and by Ward's; those of the posterior are
CoalescentClustering's. Rows marked `matern` see a Matérn-3/2 kernel over the pixels of an image, learned on 500 rows.
Slow methods are left out above the number of rows they can handle in minutes.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.cluster.hierarchy import linkage
from sklearn import datasets
from sklearn.gaussian_process.kernels import Matern, WhiteKernel
from sklearn.preprocessing import StandardScaler

import coaltree as ct
from coaltree.inference.moves.refine import refine
from coaltree.metrics import ari_auc, subtree_score
from coaltree.model.coalescent import merge_rates
from coaltree.model.covariance import as_family
from coaltree.model.diffusion import scatter
from coaltree.model.gp import OnColumns

POSTERIOR_ROWS, REFINED_ROWS = 300, 1000
RACES = 40


def scaled(tree, X, covariance):
    """Covariance times the amplitude at which tree and data fit together best."""
    S = np.linalg.solve(covariance, scatter(tree, X))
    amplitude = np.trace(S) / S.shape[0] / (tree.n_leaves - 1)
    # (t, Φ) → (ct, Φ/c) leaves the likelihood alone; the coalescent prefers this c.
    c = (tree.n_leaves - 1) / (merge_rates(tree.n_leaves) @ np.diff(tree.times, prepend=0.0))
    return amplitude / c * covariance


def peak_tree(X, covariance):
    """Greedy tree by peaks, whose shape does not depend on the amplitude, and the scaled covariance."""
    rough = ct.greedy_tree(X, covariance, rule="peak")
    covariance = scaled(rough, X, covariance)
    c = (len(X) - 1) / (merge_rates(len(X)) @ np.diff(rough.times, prepend=0.0))
    return ct.Tree(rough.children, c * rough.times), covariance


def matern(X, side, n_rounds=4, n_updates=15):
    """Learn an axis-wise Matérn-3/2 kernel over a square image from greedy trees of at most 500 rows."""
    pixels = np.indices((side, side)).reshape(2, -1).T.astype(float)
    kernel = OnColumns(Matern(3.0, (0.3, 30.0), nu=1.5), [0]) * OnColumns(Matern(3.0, (0.3, 30.0), nu=1.5), [1])
    family = as_family(kernel + WhiteKernel(0.1, (1e-4, 10.0)), pixels)
    rng = np.random.default_rng(0)
    X = X[rng.permutation(len(X))[:500]]
    state = family.start(np.cov(X, rowvar=False))
    for _ in range(n_rounds):
        tree, _ = peak_tree(X, state.matrix())
        S = scatter(tree, X)
        for _ in range(n_updates):
            state = family.update(state, S, len(X) - 1, rng)
    return state.matrix()


def races(X, phi):
    """Trees of runs of one particle each: they share nothing but the data, so their mean is a steady one."""
    runs = [ct.sample_posterior(X, phi, method="smc1", n_particles=1, random_state=seed) for seed in range(RACES)]
    arrays = {name: np.concatenate([getattr(run, name) for run in runs]) for name in ("children", "times", "log_joint")}
    return replace(runs[0], weights=np.full(RACES, 1.0 / RACES), **arrays)


def genie(X):
    from genieclust import Genie

    model = Genie(n_clusters=1).fit(X)
    # Genie's heights may fall; the order of merges is what is scored.
    return ct.Tree(model.children_, np.arange(1.0, len(X)))


def trees(X, side):
    """Yield name and tree of every method that can handle as many rows."""
    yield "scipy average", ct.Tree.from_linkage(linkage(X, "average"))
    yield "scipy Ward", ct.Tree.from_linkage(linkage(X, "ward"))
    yield "genieclust", genie(X)
    tree, phi = peak_tree(X, np.eye(X.shape[1]))
    yield "greedy, peak", tree
    yield "greedy, mean", ct.greedy_tree(X, phi, rule="mean")
    if len(X) <= REFINED_ROWS:
        yield "greedy, refined", refine(tree, X, phi, max_sweeps=10, temperature=0.0)
    apart = races(X, phi)
    yield f"race, best of {RACES}", apart.best_tree()
    yield f"race, MCC of {RACES}", apart.mcc_tree()
    yield f"race, mean of {RACES}", apart.mean_tree()
    yield f"race, mean of {RACES}, Ward", apart.mean_tree("ward")
    if len(X) <= POSTERIOR_ROWS:
        model = ct.CoalescentClustering(random_state=0, n_clusters=2).fit(X)
        yield "posterior, point", model.tree_
        yield "posterior, MCC", model.posterior_.mcc_tree()
        yield "posterior, best", model.posterior_.best_tree()
        yield "posterior, mean", model.posterior_.mean_tree()
        yield "posterior, mean, Ward", model.posterior_.mean_tree("ward")
    if side:
        tree, phi = peak_tree(X, matern(X, side))
        yield "greedy, peak, matern", tree
        yield "greedy, mean, matern", ct.greedy_tree(X, phi, rule="mean")


def balanced(X, y, n_each, seed):
    """So many rows of each class."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:n_each] for c in np.unique(y)])
    rows = rng.permutation(rows)
    # Equal images have no posterior without leaf noise: keep one of each.
    rows = rows[np.sort(np.unique(X[rows], axis=0, return_index=True)[1])]
    return X[rows].astype(float), y[rows]


def tables(options):
    """Yield name, side of the image (0 if none) and subsets (X, y)."""
    if options.data:
        with np.load(options.data / "usps.npz") as file:
            X, y = file["X"], file["y"]
        subsets = [balanced(X, y, options.usps_rows // 10, seed) for seed in range(options.subsets)]
        yield f"USPS, {options.usps_rows} rows", 16, subsets
    X, y = datasets.load_digits(return_X_y=True)
    yield "digits, 500 rows", 8, [balanced(X, y, 50, seed) for seed in range(options.subsets)]
    for name, load in (("wine", datasets.load_wine), ("breast cancer, 300 rows", datasets.load_breast_cancer)):
        X, y = load(return_X_y=True)
        X = StandardScaler().fit_transform(X)
        yield name, 0, [balanced(X, y, 150, seed) for seed in range(options.subsets if len(X) > 300 else 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--usps-rows", type=int, default=2500)
    parser.add_argument("--subsets", type=int, default=5)
    parser.add_argument("--only", help="tables whose name holds this")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = []
    for name, side, subsets in tables(options):
        if options.only and options.only not in name:
            continue
        scores: dict[str, list[tuple[float, float, float]]] = {}
        for X, y in subsets:
            start = time.process_time()
            for method, tree in trees(X, side):
                seconds = time.process_time() - start
                scores.setdefault(method, []).append((subtree_score(tree, y), ari_auc(tree, y), seconds))
                print(name, method, *np.round(scores[method][-1], 3), flush=True)
                start = time.process_time()
        lines += ["", f"## {name}, {len(subsets)} subset(s)", "", "| tree | subtree score | ARI area | CPU s |"]
        lines += ["|---|---|---|---|"]
        for method, rows in scores.items():
            mean, spread = np.mean(rows, axis=0), np.std(rows, axis=0)
            lines.append(
                f"| {method} | {mean[0]:.3f} ± {spread[0]:.3f} | {mean[1]:.3f} ± {spread[1]:.3f} | {mean[2]:.1f} |"
            )
    text = f"# Classes in the tree\n\n{__doc__}\n" + "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
