"""Are clade supports honest on tables that are not from the model, beside a bootstrap of average linkage.

    python -m benchmarks.foreign [--replicates 25] [--only NAME] [--by METHOD …] [--out benchmarks/foreign.md]

Tables of 30 rows and 6 columns grow on a hierarchy that is known, each generator against another assumption: steps of
heavy tails, a rate of its own on every branch, correlated columns, noise of another size in every column, one row in
ten an outlier, columns squeezed through a curve, a Yule tree with rows added at the end, columns rounded to few values.
Columns are standardised. The chain runs with its defaults ("default"), with a noise for each row ("robust"), with
covariance and noise chosen by leave-one-out density ("auto"), and with kinds of columns guessed ("columns"). The
bootstrap draws columns with replacement a hundred times, as pvclust does. The figure is the share of clades that are
true, by the support they were given; errors are over tables, whose clades stand and fall together.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from scipy.cluster.hierarchy import linkage

import coaltree as ct

N, D, N_RESAMPLES = 30, 6, 100
BANDS = ((0.5, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.01))
METHODS = {
    "default": {},
    "robust": {"leaf_noise": "robust"},
    "auto": {"covariance": "auto", "leaf_noise": "auto"},
    "columns": {"columns": "auto"},
    "bootstrap": None,
}


def grow(tree, step, rng, stretch=None):
    """Values of the leaves: `step(rng)` (d,) per node, times the root of its branch's length."""
    n = tree.n_leaves
    times, parents = tree.node_times(), tree.parents()
    value = np.zeros((2 * n - 1, D))
    for node in range(2 * n - 3, -1, -1):
        length = times[parents[node]] - times[node]
        rate = 1.0 if stretch is None else stretch(rng)
        value[node] = value[parents[node]] + np.sqrt(rate * length) * step(rng)
    return value[:n]


def normal(rng):
    return rng.normal(size=D)


def yule(rng):
    """A tree of a pure birth process: merges at rates 2, 3, … up to n, and half a wait before the rows are taken."""
    waits = rng.exponential(size=N - 1) / np.arange(N, 1, -1)
    live, children = list(range(N)), []
    for k in range(N - 1):
        pair = rng.choice(len(live), 2, replace=False)
        children.append(sorted(live[i] for i in pair))
        live = [node for i, node in enumerate(live) if i not in pair] + [N + k]
    return ct.Tree(np.array(children), 0.1 + np.cumsum(waits))


def heavy_steps(rng):
    tree = ct.sample_tree(N, random_state=rng)
    return tree, grow(tree, lambda rng: rng.standard_t(3, size=D), rng)


def own_rates(rng):
    tree = ct.sample_tree(N, random_state=rng)
    return tree, grow(tree, normal, rng, lambda rng: rng.lognormal(0.0, 1.0))


def correlated(rng):
    root = rng.normal(size=(D, D)) * np.geomspace(1.0, 0.2, D)
    tree = ct.sample_tree(N, random_state=rng)
    return tree, grow(tree, lambda rng: root @ normal(rng), rng)


def unequal_noise(rng):
    tree = ct.sample_tree(N, random_state=rng)
    return tree, grow(tree, normal, rng) + rng.normal(size=(N, D)) * rng.uniform(0.0, 0.6, size=D)


def outliers(rng):
    tree = ct.sample_tree(N, random_state=rng)
    spread = np.where(rng.random(N) < 0.1, 3.0, 0.1)
    return tree, grow(tree, normal, rng) + spread[:, None] * rng.normal(size=(N, D))


def curved(rng):
    tree = ct.sample_tree(N, random_state=rng)
    return tree, np.exp(grow(tree, normal, rng))


def another_tree(rng):
    tree = yule(rng)
    return tree, grow(tree, normal, rng)


def rounded(rng):
    tree = ct.sample_tree(N, random_state=rng)
    return tree, np.round(2.0 * grow(tree, normal, rng))


GENERATORS = {
    "heavy-tailed steps": heavy_steps,
    "a rate for every branch": own_rates,
    "correlated columns": correlated,
    "noise by column": unequal_noise,
    "outliers": outliers,
    "curved columns": curved,
    "Yule tree": another_tree,
    "rounded columns": rounded,
}


def bootstrap(X, rng):
    """How often each clade of average linkage comes up when columns are drawn with replacement."""
    counts = Counter()
    for _ in range(N_RESAMPLES):
        tree = ct.Tree.from_linkage(linkage(X[:, rng.integers(X.shape[1], size=X.shape[1])], "average"))
        counts.update(clade.tobytes() for clade in tree.clades()[:-1])
    return {clade: count / N_RESAMPLES for clade, count in counts.items()}


def supports(method, X, number):
    """Support of every clade that was ever seen."""
    if method == "bootstrap":
        return bootstrap(X, np.random.default_rng(number))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = ct.learn_posterior(X, **METHODS[method], random_state=number).posterior
    weights = Counter()
    for tree, weight in zip(posterior, posterior.weights, strict=True):
        weights.update({clade.tobytes(): weight for clade in tree.clades()[:-1]})
    return weights


def judge(given, truth):
    """Sums of truth and count by band, (bands, 2), and the mean support of true clades."""
    true = {clade.tobytes() for clade in truth.clades()[:-1]}
    sums = np.zeros((len(BANDS), 2))
    for clade, weight in given.items():
        for band, (low, high) in enumerate(BANDS):
            if low <= weight + 1e-9 < high:
                sums[band] += clade in true, 1.0
    return sums, sum(given.get(clade, 0.0) for clade in true) / len(true)


def row(name, method, sums, recall, seconds):
    total = sums.sum(axis=0)
    cells = []
    for band in range(len(BANDS)):
        true, count = total[band]
        if count < 10:
            cells.append(f"({true:.0f} of {count:.0f})")
            continue
        share = true / count
        error = (sums[:, band, 0] - share * sums[:, band, 1]).std(ddof=1) * np.sqrt(len(sums)) / count
        cells.append(f"{100 * share:.0f} ± {100 * error:.0f} % of {count:.0f}")
    return f"| {name} | {method} | " + " | ".join(cells) + f" | {np.mean(recall):.2f} | {seconds:.1f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=25)
    parser.add_argument("--only", choices=sorted(GENERATORS))
    parser.add_argument("--by", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    bands = " | ".join(f"{low:g}–{min(high, 1):g}" for low, high in BANDS)
    head = f"| tables | supports by | {bands} | mean support of true clades | s a table |"
    lines = [head, "|---" * (len(BANDS) + 4) + "|"]
    everything = {method: ([], [], []) for method in options.by}
    for name in [options.only] if options.only else GENERATORS:
        for method in options.by:
            began = time.process_time()
            sums, recall = [], []
            for number in range(options.replicates):
                truth, X = GENERATORS[name](np.random.default_rng([len(name), number]))
                if method != "columns":  # which standardises, once it has seen what values are multiples of
                    X = (X - X.mean(axis=0)) / X.std(axis=0)
                found = judge(supports(method, X, number), truth)
                sums.append(found[0])
                recall.append(found[1])
            seconds = (time.process_time() - began) / options.replicates
            for kept, new in zip(everything[method], (sums, recall, [seconds]), strict=True):
                kept.extend(new)
            lines.append(row(name, method, np.array(sums), recall, seconds))
            print(lines[-1], flush=True)
    for method, (sums, recall, seconds) in everything.items():
        lines.append(row("**all**", method, np.array(sums), recall, float(np.mean(seconds))))
        print(lines[-1], flush=True)
    if options.out:
        options.out.write_text(f"# Supports beyond the model\n\n{__doc__}\n" + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
