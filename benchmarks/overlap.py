"""Is the expected overlap honest: what clades overlap the true tree's best clade by, given what was expected.

    python -m benchmarks.overlap [--replicates 12] [--out benchmarks/overlap.md] [olive.csv ...]

Tables from the model (6 columns, leaf noise 0.05; 30 and 150 rows) and from the eight generators that break its
assumptions (`benchmarks.foreign`, 30 rows), columns standardised; `CoalescentClustering` with its defaults.
All clades of `tree_` but the root, by their number of rows and by their expected overlap: mean of it → mean largest
Jaccard index with a clade of the true tree ± standard error over tables, and the number of clades. Beside them the mean
exact support. Honest is: the same on both sides of the arrow.

Then the merges whose time in `tree_` lies in its 90% interval, on scikit-learn's iris, wine, breast cancer and 300
digits and on the numbers of each file given (here 572 olive oils by eight fatty acids); and for tables from the model
the share of 90% intervals with the time of the true tree's best clade, where that overlaps by one half or more.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

import coaltree as ct
from benchmarks.foreign import GENERATORS, D
from coaltree.posterior.overlap import NEAR, RowSets, best_overlaps

BANDS = ((0.0, 0.5), (0.5, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.01))
SIZES = ((2, 4), (5, 14), (15, 10**9))
MODEL = {"the model, 30 rows": 30, "the model, 150 rows": 150}
FEWEST = 5  # clades of a cell


def table(name, number):
    """A true tree and rows grown on it."""
    rng = np.random.default_rng([len(name), number])
    if name in MODEL:
        truth = ct.sample_tree(MODEL[name], random_state=rng)
        return truth, ct.sample_data(truth, D, leaf_noise=0.05, random_state=rng)
    return GENERATORS[name](rng)


def fit(X, number=0):
    """The tree that is shown and the draws, of standardised columns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ct.CoalescentClustering(n_clusters=1, random_state=number).fit((X - X.mean(axis=0)) / X.std(axis=0))
    return model.tree_, model.posterior_


def judge(name, number):
    """Sizes of clades, expected overlaps, overlaps with the truth, and exact supports, (4, n−2)."""
    truth, X = table(name, number)
    tree, posterior = fit(X, number)
    true = best_overlaps(truth.children[None], RowSets.of(tree, tree.n_leaves)).overlap[0]
    found = tree.sizes(), posterior.expected_overlap(tree), true, posterior.clade_support(tree)
    return np.array([values[:-1] for values in found])


def within(times, intervals):
    return (intervals[:, 0] <= times) & (times <= intervals[:, 1])


def times_in_intervals(files, replicates):
    """Two tables: how many times of the tree, and of true trees, lie in the intervals."""
    lines = ["| table | times in their 90 % intervals |", "|---|---|"]
    given = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
    tables = {name: load(return_X_y=True)[0][:: 6 if name == "digits" else 1] for name, load in given.items()}
    tables |= {file.stem: pd.read_csv(file).select_dtypes("number").to_numpy(float) for file in files}
    for name, X in tables.items():
        tree, posterior = fit(X[:, X.std(axis=0) > 0.0])
        inside = within(tree.times, posterior.time_intervals(tree))
        lines.append(f"| {name} | {inside.sum()} of {len(inside)} |")
        print(lines[-1], flush=True)
    lines += ["", "| tables | 90 % intervals with the true time |", "|---|---|"]
    for name in MODEL:
        shares = []
        for number in range(replicates):
            truth, X = table(name, number)
            tree, posterior = fit(X, number)
            true = best_overlaps(truth.children[None], RowSets.of(tree, tree.n_leaves))
            near = true.overlap[0] >= NEAR
            shares.append(within(truth.times[true.merge[0]], posterior.time_intervals(tree))[near].mean())
        error = np.std(shares, ddof=1) / np.sqrt(replicates)
        lines.append(f"| {name} | {np.mean(shares):.3f} ± {error:.3f} |")
        print(lines[-1], flush=True)
    return lines


def rows_of(name, tables):
    """One row of the table per class of sizes."""
    lines = []
    for least, most in SIZES:
        own = [clades[1:, (clades[0] >= least) & (clades[0] <= most)] for clades in tables]
        together = np.concatenate(own, axis=1)
        cells = []
        for low, high in BANDS:
            chosen = [clades[:, (clades[0] >= low) & (clades[0] < high)] for clades in own]
            count = sum(clades.shape[1] for clades in chosen)
            if count < FEWEST:
                cells.append("–")
                continue
            expected, true, _ = np.concatenate(chosen, axis=1).mean(axis=1)
            off = np.array([np.sum(clades[1] - true) for clades in chosen])
            error = off.std(ddof=1) * np.sqrt(len(off)) / count
            cells.append(f"{expected:.2f} → {true:.2f} ± {error:.2f} of {count}")
        size = f"{least}–{most}" if most < 10**9 else f"{least} and more"
        lines.append(f"| {name} | {size} | " + " | ".join(cells) + f" | {together[2].mean():.2f} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=12, help="tables of each kind")
    parser.add_argument("files", type=Path, nargs="*", help="more tables whose times are compared with their intervals")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    began = time.process_time()
    bands = " | ".join(f"{low:g}–{min(high, 1):g}" for low, high in BANDS)
    lines = [f"| tables | rows in the clade | {bands} | mean exact support |", "|---" * (len(BANDS) + 3) + "|"]
    foreign = []
    for name in (*MODEL, *GENERATORS):
        tables = [judge(name, number) for number in range(options.replicates)]
        foreign += tables if name in GENERATORS else []
        lines += rows_of(name, tables)
        print("\n".join(lines[-len(SIZES) :]), flush=True)
    lines += rows_of("**all eight generators**", foreign)
    print("\n".join(lines[-len(SIZES) :]), flush=True)
    times = times_in_intervals(options.files, options.replicates)
    if options.out:
        cost = f"{options.replicates} tables of each kind, {time.process_time() - began:.0f} CPU s.\n\n"
        text = f"# Expected overlap\n\n{__doc__}\n{cost}## By size\n\n" + "\n".join(lines)
        text += "\n\n## Times\n\n" + "\n".join(times) + "\n"
        options.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
