"""Handwritten digits: do the trees of 2 500 images know the ten classes, which no method sees.

25 subsets of the USPS database, 250 images a digit (the paper's "50 from each digit" would be 500). Measures: the
subtree score (internal nodes of one class, over n − K) and the area under the curve of the adjusted Rand index against
the number of clusters, after a vote in every cluster; both are 1 for a tree that keeps classes together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure

import coaltree as ct
from papers.henao_lucas.experiment import (
    Claim,
    Experiment,
    Key,
    Options,
    Row,
    Summary,
    data_file,
    generator,
    mean_and_error,
)
from papers.henao_lucas.figures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, panels
from papers.henao_lucas.usps.trees import GROUPS, compile_for

DATA = ("usps.npz", "X (9298, 256), 16×16 pixels in [−1, 1], and y: the USPS digits, zip.train and zip.test of ESL")
SIDE, N_CLASSES = 16, 10
PER_CLASS, QUICK_PER_CLASS = 250, 30
N_SUBSETS, QUICK_SUBSETS = 25, 3
TARGET = {"subtree": 0.86, "area": 0.92}
FASTER = 500.0
MATERN_HELPS = "greedy by means: area with the Matérn covariance above that with Φ = φI"

LABELS = {
    "mpost2": "MPost2, Matérn",
    "mgreedy": "MGreedy, Matérn",
    "matern_peak": "greedy by peaks, Matérn",
    "ref": "MPost2, Φ = φI (Ref)",
    "tpost": "tpost, Φ = φI, leaf noise learned",
    "smc1": "smc1, Φ = φI",
    "peak": "greedy by peaks, Φ = φI",
    "mode": "greedy by modes, Φ = φI",
    "mean": "greedy by means, Φ = φI",
    "projected": "principal axes, greedy by peaks, Φ = φI",
    "evened": "evened, principal axes, greedy by peaks, Φ = φI",
    "evened_mean_order": "evened, principal axes, mean order of race draws",
    "evened_mean_time": "evened, principal axes, mean times of race draws, Ward",
    "average": "average linkage (HC)",
    "projected_average": "principal axes, average linkage",
    "evened_average": "evened, principal axes, average linkage",
    "ward": "Ward",
    "projected_ward": "principal axes, Ward",
    "evened_ward": "evened, principal axes, Ward",
    "prior": "prior",
}
LEARNED = ("mgreedy", "matern_peak", "mpost2", "ref", "tpost", "smc1", "peak", "mode", "mean", "projected")
LEARNED = (*LEARNED, "evened", "evened_mean_order", "evened_mean_time")
CURVES = {
    "evened_mean_order": {"color": BLUE, "linestyle": "-"},
    "evened": {"color": GREEN, "linestyle": (0, (5, 1))},
    "peak": {"color": PURPLE, "linestyle": (0, (3, 1, 1, 1))},
    "mpost2": {"color": VERMILION, "linestyle": "--"},
    "mgreedy": {"color": ORANGE, "linestyle": (0, (1, 1))},
    "average": {"color": BLACK, "linestyle": "-."},
    "ward": {"color": SKY, "linestyle": (0, (8, 2))},
    "prior": {"color": GREY, "linestyle": ":"},
}
# Cuts at which the curve is kept, as shares of n.
CUTS = np.concatenate([np.linspace(0, 0.1, 41), np.linspace(0.11, 1, 45)])


def subset(options: Options, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images and classes of a subset; of equal images, which have no posterior without leaf noise, one."""
    with np.load(data_file(options, *DATA)) as file:
        X, y = file["X"].astype(np.float64), file["y"]
    rng = generator("usps subset", number)
    n_each = QUICK_PER_CLASS if options.quick else PER_CLASS
    rows = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:n_each] for c in np.unique(y)])
    rows = rng.permutation(rows)
    rows = rows[np.sort(np.unique(X[rows], axis=0, return_index=True)[1])]
    return X[rows], y[rows]


def tasks(options: Options) -> Sequence[Key]:
    """One task a subset and group of methods."""
    n_subsets = options.replicates or (QUICK_SUBSETS if options.quick else N_SUBSETS)
    return [(group, k) for k in range(n_subsets) for group in GROUPS]


def run(key: Key, options: Options, rng: np.random.Generator) -> Row:
    """Build and score the trees of a group."""
    group, number = str(key[0]), int(key[1])
    compile_for(SIDE)
    X, y = subset(options, number)
    found = {name: {**scores(tree, y), "cpu": seconds} for name, tree, seconds in GROUPS[group](X, rng)}
    return {"trees": found, "seconds": sum(row["cpu"] for row in found.values())}


def scores(tree: ct.Tree, y: np.ndarray) -> Row:
    """Subtree score, area and the curve at `CUTS`."""
    ari = ct.metrics.ari_curve(tree, y).ari
    where = np.round(CUTS * (len(ari) - 1)).astype(int)
    return {
        "subtree": ct.metrics.subtree_score(tree, y),
        "area": ct.metrics.ari_auc(tree, y),
        "curve": [round(float(value), 4) for value in ari[where]],
    }


def by_method(rows: dict[Key, Row]) -> dict[str, dict[int, Row]]:
    """Rows of every method by subset, methods in the order of `LABELS`."""
    found: dict[str, dict[int, Row]] = {name: {} for name in LABELS}
    for (_, number), row in rows.items():
        for name, scored in row["trees"].items():
            found[name][int(number)] = scored
    return {name: each for name, each in found.items() if each}


def summarise(rows: dict[Key, Row]) -> Summary:
    """Mean, standard deviation and standard error of every measure, and of the gain over average linkage."""
    methods = by_method(rows)
    plain = methods["average"]
    summary: Summary = {}
    for name, each in methods.items():
        summary[name] = {
            "subsets": len(each),
            **{m: mean_and_error([row[m] for row in each.values()]) for m in ("subtree", "area", "cpu")},
            **{
                f"{m}_gain": mean_and_error([row[m] - plain[k][m] for k, row in each.items()])
                for m in ("subtree", "area")
            },
        }
    return summary


def claims(summary: Summary, expected: Summary) -> Sequence[Claim]:
    """What the paper says of coalescent trees and linkage, in direction; with all images also the targets."""
    found = []
    for name in ("projected", "evened", "evened_mean_order", "evened_mean_time"):
        for measure in ("subtree", "area"):
            mean, _, error = summary[name][f"{measure}_gain"]
            found.append(Claim(f"{LABELS[name]}: {measure} above average linkage", mean, 0.0, tolerance=2 * error))
    mean, _, error = summary["peak"]["area_gain"]
    found.append(Claim(f"{LABELS['peak']}: area above average linkage", mean, 0.0, tolerance=2 * error))
    worst = min(summary[name]["area"][0] for name in ("peak", "mean", "evened", "mgreedy"))
    found.append(Claim("greedy trees above a tree from the prior, area", worst - summary["prior"]["area"][0], 0.3))
    gain = summary["mgreedy"]["area"][0] - summary["mean"]["area"][0]
    error = np.hypot(summary["mgreedy"]["area"][2], summary["mean"]["area"][2])
    found.append(Claim(MATERN_HELPS, gain, 0.0, tolerance=2 * float(error)))
    if summary["average"]["subsets"] < N_SUBSETS:
        return found
    for measure, target in TARGET.items():
        name = max(LEARNED, key=lambda m: summary[m][measure][0])
        value, _, error = summary[name][measure]
        words = f"best {measure} with learned covariance, all subsets ({LABELS[name]})"
        found.append(Claim(words, value, target, tolerance=error))
    theirs = 60 * sum(row["minutes"][0] for row in expected.values())
    ours = sum(summary[name]["cpu"][0] for name in ("mpost2", "mgreedy", "average", "ref"))
    found.append(Claim("the paper's four methods, their time over ours, per subset", theirs / ours, FASTER, timed=True))
    everything = sum(row["cpu"][0] for row in summary.values())
    found.append(Claim("their four, time over that of all our rows", theirs / everything, FASTER, timed=True))
    return found


def table(summary: Summary, expected: Summary) -> Iterator[str]:
    """Yield one row a method, ours beside the paper's."""
    yield "| tree | subsets | subtree score | the paper's | ARI area | the paper's | CPU s | the paper's |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, row in summary.items():
        theirs = expected.get(name)
        paper = {m: f"{theirs[m][0]:.2f} ± {theirs[m][1]:.3f}" if theirs else "–" for m in ("subtree", "area")}
        minutes = f"{theirs['minutes'][0]:.0f} min" if theirs else "–"
        yield (
            f"| {LABELS[name]} | {row['subsets']} | {row['subtree'][0]:.3f} ± {row['subtree'][1]:.3f} "
            f"| {paper['subtree']} | {row['area'][0]:.3f} ± {row['area'][1]:.3f} | {paper['area']} "
            f"| {row['cpu'][0]:.1f} | {minutes} |"
        )


def figures(rows: dict[Key, Row]) -> dict[str, Figure]:
    """Draw the ARI curves of the first subset: all cuts, and the first tenth of them."""
    methods = by_method(rows)
    figure, axes = panels(2, width=7.2, height=3.6)
    for ax, most, title in zip(axes, (1.0, 0.1), ("all cuts", "up to n/10 clusters"), strict=True):
        for name, style in CURVES.items():
            if 0 not in methods.get(name, {}):
                continue
            row = methods[name][0]
            kept = most >= CUTS
            ax.plot(CUTS[kept], np.array(row["curve"])[kept], label=f"{LABELS[name]} ({row['area']:.3f})", **style)
        ax.set_title(title)
        ax.set_xlabel("clusters / images")
        ax.set_ylim(0.0, 1.02)
    axes[0].set_ylabel("adjusted Rand index after the vote")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
    return {"ari-curves": figure}


EXPERIMENT = Experiment("usps", tasks, run, summarise, claims, table, figures, (DATA,))
