"""Do users get the classes: trees, flat clusters and their number, all defaults, beside what else they would use.

    python -m benchmarks.labels --data FOLDER [--rows 100] [--subsamples 2] [--only NAME] [--half development]
        [--setting robust] [--cache FOLDER] [--out FILE]

The tables are those of `benchmarks.labelled`; without --data, scikit-learn's alone. Columns are standardised, rows are
sampled with classes in proportion. Every other table, by name, was looked at while rules were chosen (development); the
rest were looked at once they were fixed (held out).

purity: dendrogram purity (Heller & Ghahramani 2005), the mean over pairs of rows of one class of the share of that
class in the smallest clade that holds both. ARI: adjusted Rand index of labels and classes, at the true number of
clusters and at the chosen one. Peers that choose: a Gaussian mixture of 1 … 15 components by BIC, HDBSCAN; for linkages
and genieclust the silhouette chooses, as is usual. Outliers are a group of their own in the ARI. Differences are means
over tables with standard errors. CPU seconds are of one fit, or of all that the choice takes. --cache keeps fitted
models between runs. --setting tries another setting of ours in place of the defaults; that is for the development half.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.cluster import HDBSCAN, SpectralClustering
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.mixture import GaussianMixture

from benchmarks.labelled import DEVELOPMENT, HELD_OUT, NAMES, load, subsample
from coaltree import CoalescentClustering

HALVES = {"development": DEVELOPMENT, "held-out": HELD_OUT}
OURS = ("coaltree", "coaltree, greedy")
SETTINGS = {
    "default": {},
    "spherical": {"covariance": "spherical"},
    "shrunk": {"covariance": "shrunk"},
    "robust": {"leaf_noise": "robust"},
    "columns": {"columns": "auto"},
    "auto": {"covariance": "auto", "leaf_noise": "auto"},
}


def dendrogram_purity(children, y):
    """Mean over pairs of one class of the class's share in the smallest clade with both."""
    n = len(y)
    counts = np.zeros((2 * n - 1, y.max() + 1))
    counts[np.arange(n), y] = 1.0
    total = pairs = 0.0
    for node, (left, right) in enumerate(np.asarray(children, dtype=int), start=n):
        counts[node] = counts[left] + counts[right]
        together = counts[left] * counts[right]
        total += together @ counts[node] / counts[node].sum()
        pairs += together.sum()
    return total / pairs


def ours(X, y, k, seed, cache, method, setting="default"):
    """Fit, or read what was fitted: (purity, ARI at k, chosen k, ARI there, CPU seconds), and the model."""
    path = cache and cache.with_name(f"{cache.name}-{method}-{seed}{'-' + setting if setting != 'default' else ''}.npz")
    if path and path.exists():
        model = CoalescentClustering.load(path)
        seconds = float(path.with_suffix(".txt").read_text("utf-8"))
    else:
        start = time.process_time()
        model = CoalescentClustering(method=method, random_state=seed, **SETTINGS[setting]).fit(X)
        seconds = time.process_time() - start
        if path:
            model.save(path)
            path.with_suffix(".txt").write_text(str(seconds), "utf-8")
    found = (adjusted_rand_score(y, model.cut(k)), model.n_clusters_, adjusted_rand_score(y, model.labels_))
    return (dendrogram_purity(model.children_, y), *found, seconds), model


def linked(X, y, k, Z):
    """Score a linkage by scipy's rules, its number chosen by the silhouette."""
    cuts = {j: fcluster(Z, j, "maxclust") for j in range(2, 16)}
    # Tied heights may leave fewer clusters than were asked for.
    chosen = max(cuts, key=lambda j: silhouette_score(X, cuts[j]) if len(set(cuts[j])) > 1 else -1.0)
    at_k = adjusted_rand_score(y, fcluster(Z, k, "maxclust"))
    return dendrogram_purity(Z[:, :2], y), at_k, chosen, adjusted_rand_score(y, cuts[chosen])


def genie(X, y, k):
    from genieclust import Genie

    trees = {j: Genie(n_clusters=j).fit(X) for j in range(2, 16)}
    chosen = max(trees, key=lambda j: silhouette_score(X, trees[j].labels_) if len(set(trees[j].labels_)) > 1 else -1.0)
    at_k = adjusted_rand_score(y, Genie(n_clusters=k).fit_predict(X))
    return dendrogram_purity(trees[2].children_, y), at_k, chosen, adjusted_rand_score(y, trees[chosen].labels_)


def mixture(X, y, k):
    fits = {j: GaussianMixture(j, covariance_type="full", random_state=0, reg_covar=1e-3).fit(X) for j in range(1, 16)}
    chosen = min(fits, key=lambda j: fits[j].bic(X))
    given = fits[k] if k in fits else GaussianMixture(k, random_state=0, reg_covar=1e-3).fit(X)
    return np.nan, adjusted_rand_score(y, given.predict(X)), chosen, adjusted_rand_score(y, fits[chosen].predict(X))


def hdbscan(X, y, k):
    labels = HDBSCAN(copy=True).fit_predict(X)
    return np.nan, np.nan, max(int(labels.max()) + 1, 1), adjusted_rand_score(y, labels)


def spectral(X, y, k):
    labels = SpectralClustering(k, affinity="nearest_neighbors", random_state=0).fit_predict(X)
    return np.nan, adjusted_rand_score(y, labels), np.nan, np.nan


PEERS = {
    "average": lambda X, y, k: linked(X, y, k, linkage(X, "average")),
    "Ward": lambda X, y, k: linked(X, y, k, linkage(X, "ward")),
    "complete": lambda X, y, k: linked(X, y, k, linkage(X, "complete")),
    "genieclust": genie,
    "HDBSCAN": hdbscan,
    "Gaussian mixture, BIC": mixture,
    "spectral": spectral,
}
METHODS = (*OURS, *PEERS)


def measure(name, options):
    """Scores of every method, by method, a list over subsamples, and the ARI between the labels of two seeds at k."""
    scores, seeds = {}, []
    X_all, y_all = load(name, options.data)
    for number in range(options.subsamples):
        X, y = subsample(X_all, y_all, options.rows, number)
        k = int(y.max()) + 1
        cache = options.cache and options.cache / f"{name}-{options.rows}-{number}"
        # Kinds of columns are told by what their values are multiples of.
        own = subsample(X_all, y_all, options.rows, number, standardise=options.setting != "columns")[0]
        row, model = ours(own, y, k, 0, cache, "auto", options.setting)
        scores.setdefault("coaltree", []).append((*row, k))
        scores.setdefault("coaltree, greedy", []).append((*ours(X, y, k, 0, cache, "greedy")[0], k))
        if number == 0:
            again = ours(own, y, k, 1, cache, "auto", options.setting)[1]
            seeds.append(adjusted_rand_score(model.cut(k), again.cut(k)))
        for method, fit in PEERS.items():
            start = time.process_time()
            row = fit(X, y, k)
            scores.setdefault(method, []).append((*row, time.process_time() - start, k))
    return scores, seeds


def means(scores, names, column):
    """Mean over subsamples of each table by method, NaN where it has none."""
    return {
        method: np.array([np.mean([row[column] for row in scores[t][method]]) for t in names]) for method in METHODS
    }


def tell(scores, seeds, names, title):
    """Lines of a section: means of methods, differences to the best peer, how close chosen numbers are."""
    lines = ["", f"## {title}, {len(names)} tables", ""]
    lines += ["| method | purity | ARI at k | k within one | largest chosen / true k | ARI at chosen k | CPU s |"]
    lines += ["|---|---|---|---|---|---|---|"]
    columns = [means(scores, names, c) for c in range(5)]
    for method in METHODS:
        rows = [row for t in names for row in scores[t][method]]
        close = np.mean([abs(row[2] - row[5]) <= 1 for row in rows]) if np.isfinite(rows[0][2]) else np.nan
        most = max(row[2] / row[5] for row in rows)
        shown = [columns[0][method].mean(), columns[1][method].mean(), close, most]
        shown += [columns[3][method].mean(), columns[4][method].mean()]
        cells = ["–" if np.isnan(v) else f"{v:.3f}" if i in (0, 1, 4) else f"{v:.2f}" for i, v in enumerate(shown)]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    lines += ["", "Differences of coaltree, mean ± standard error over tables:", ""]
    for column, label in ((0, "purity"), (1, "ARI at k"), (3, "ARI at chosen k")):
        told = []
        for peer in METHODS[1:]:
            difference = columns[column]["coaltree"] - columns[column][peer]
            if np.isfinite(difference).all():
                error = difference.std(ddof=1) / np.sqrt(len(names)) if len(names) > 1 else np.nan
                told.append(f"{peer} {difference.mean():+.3f} ± {error:.3f}")
        lines.append(f"- {label}: {'; '.join(told)}.")
    within = [value for t in names for value in seeds[t]]
    lines += [
        "",
        f"ARI between the labels of two seeds at the true k: {np.mean(within):.3f} (lowest {min(within):.2f}).",
    ]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--subsamples", type=int, default=2)
    parser.add_argument("--only", help="tables whose name holds this")
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--setting", choices=SETTINGS, default="default")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.cache:
        options.cache.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")  # chains that are not done, mixtures that do not converge, few neighbours
    scores, seeds = {}, {}
    for name in HALVES.get(options.half, NAMES):
        if (options.only and options.only not in name) or load(name, options.data) is None:
            continue
        scores[name], seeds[name] = measure(name, options)
        told = {method: np.round(np.mean(rows, axis=0), 2).tolist() for method, rows in scores[name].items()}
        print(name, told, seeds[name], flush=True)
    lines = []
    for title, group in (("Development", DEVELOPMENT), ("Held out", HELD_OUT), ("All", NAMES)):
        names = [name for name in group if name in scores]
        if names:
            lines += tell(scores, seeds, names, title)
    lines += [
        "",
        "## Each table",
        "",
        "| table | k | " + " | ".join(METHODS) + " |",
        "|---" * (len(METHODS) + 2) + "|",
    ]
    for name, found in scores.items():
        k = found["coaltree"][0][5]
        cells = [
            f"{np.mean([r[1] for r in found[m]]):.2f}, {'/'.join(f'{r[2]:.0f}' for r in found[m])}" for m in METHODS
        ]
        lines.append(f"| {name} | {k} | {' | '.join(cells).replace('nan', '–')} |")
    lines += ["", "ARI at the true k, and the chosen k of each subsample."]
    text = "# Classes by default\n\n" + (__doc__ or "") + "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
