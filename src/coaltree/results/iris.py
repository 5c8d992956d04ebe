"""The demonstration: posterior trees of 30 iris flowers, as figures, files and a table.

The data are every fifth of the 150 flowers that scikit-learn ships, ten of each species. All four measurements are in
centimetres, so one variance φ per unit of time is used for all, Φ = φ I; it is chosen by log evidence. Flowers were
measured to 0.1 cm, and the variance of that rounding, 0.1²/12, is the leaf noise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import linkage

from coaltree import metrics
from coaltree._arrays import Floats, Ints
from coaltree._version import __version__
from coaltree.inference.smc.sampling import sample_posterior
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.hierarchy import make_hierarchy
from coaltree.results.folder import DIGITS, SUMMARY, TREE, Progress, claimed, replaced_folder, write_summary
from coaltree.tree import Tree

COMMAND = "coaltree demo"
DENDROGRAM, DENSITREE, POSTERIOR = "dendrogram.png", "densitree.png", "posterior.npz"
EVERY = 5
SCALES = (0.2, 0.4, 0.8, 1.6, 3.2)
N_WARM_UP = 20  # enough particles for resampling to occur, so that every kernel is called
PILOT_SHARE = 4  # the scale is chosen with one in this many particles
ROUNDING_VARIANCE = 0.1**2 / 12
N_CLUSTERS = 3
LEVEL = 0.9
MAJORITY = 0.5
N_DRAWN = 200
N_ROWS = 8
MEANING = {
    DENDROGRAM: "the tree with expected overlaps and time intervals",
    DENSITREE: f"{N_DRAWN} sampled trees over each other",
    TREE: "the tree with transfer supports, for any tree viewer",
    POSTERIOR: "all weighted trees: coaltree.TreePosterior.load(path)",
    SUMMARY: "version, parameters, seed, evidence, clades",
}


class Flowers(NamedTuple):
    """Measurements in cm (n, 4), species code (n,), name of each flower, names of the species."""

    X: Floats
    species: Ints
    names: tuple[str, ...]
    species_names: tuple[str, ...]


class FlowerFit(NamedTuple):
    """The posterior at the scale with the highest evidence, and the tree that represents it."""

    posterior: TreePosterior
    tree: Tree
    scale: float
    pilot_evidence: dict[float, float]  # log evidence of every scale


def demo(
    out: str | Path = "coaltree-demo", *, n_particles: int = 2000, random_state: int = 0, verbose: int = 0
) -> dict[str, Any]:
    """Write the demonstration into a folder, as ``coaltree demo`` does, and return its summary.

    Parameters
    ----------
    out : path
        Folder to write; replaced if an earlier demonstration made it.
    n_particles : int
        Trees per posterior.
    random_state : int
        The same seed writes the same files.
    verbose : int
        1 shows what is being done.
    """
    progress, seed = Progress(bool(verbose)), random_state
    with claimed(out), replaced_folder(Path(out), COMMAND) as folder:
        flowers = load_flowers()
        progress.say(f"{len(flowers.names)} iris flowers, 10 of each species, measured in cm to 0.1 cm.\n")
        with progress.timed("Preparing compiled kernels"):
            summarise_flowers(flowers, fit_trees(flowers, {SCALES[0]: 0.0}, N_WARM_UP, seed), seed)
        n_pilot = max(n_particles // PILOT_SHARE, 2)
        with progress.timed(f"Choosing the scale by log evidence, {n_pilot:,} trees at each of {len(SCALES)}"):
            log_evidence = {}
            for scale in SCALES:
                log_evidence[scale] = sample_trees(flowers, scale, n_pilot, seed).log_evidence
                progress.say(".", end="")
        with progress.timed(f"Sampling {n_particles:,} trees"):
            fit = fit_trees(flowers, log_evidence, n_particles, seed)
        with progress.timed("Drawing and writing"):
            summary = summarise_flowers(flowers, fit, seed)
            draw_flowers(flowers, fit, seed, folder)
            fit.posterior.save(folder / POSTERIOR)
            support = fit.posterior.transfer_support(fit.tree)
            (folder / TREE).write_text(fit.tree.to_newick(support=support, digits=DIGITS) + "\n", encoding="utf-8")
            write_summary(folder, summary)
    return summary


def load_flowers() -> Flowers:
    """Every fifth iris flower."""
    from sklearn.datasets import load_iris

    iris = load_iris()
    rows = np.arange(0, len(iris.target), EVERY)
    species_names = tuple(str(name) for name in iris.target_names)
    names = tuple(f"{species_names[iris.target[row]]} {row + 1}" for row in rows)
    return Flowers(iris.data[rows], iris.target[rows].astype(np.int64), names, species_names)


def sample_trees(flowers: Flowers, scale: float, n_particles: int, seed: int) -> TreePosterior:
    """Posterior trees at one scale φ."""
    return sample_posterior(
        flowers.X,
        scale * np.eye(flowers.X.shape[1]),
        n_particles=n_particles,
        leaf_noise=ROUNDING_VARIANCE / scale,
        n_jobs=-1,
        random_state=seed,
        names=flowers.names,
    )


def fit_trees(flowers: Flowers, pilot_evidence: dict[float, float], n_particles: int, seed: int) -> FlowerFit:
    """Sample the posterior at the scale with the highest evidence."""
    scale = max(pilot_evidence, key=pilot_evidence.__getitem__)
    posterior = sample_trees(flowers, scale, n_particles, seed)
    return FlowerFit(posterior, make_hierarchy(posterior).tree, scale, pilot_evidence)


def summarise_flowers(flowers: Flowers, fit: FlowerFit, seed: int) -> dict[str, Any]:
    """All results of the demo, as JSON values."""
    post, tree = fit.posterior, fit.tree
    plain = Tree.from_linkage(linkage(flowers.X, "average"), names=flowers.names)
    return {
        "command": COMMAND,
        "version": __version__,
        "seed": seed,
        "parameters": {
            "data": f"scikit-learn iris, every {EVERY}th flower, cm",
            "n_leaves": tree.n_leaves,
            "n_dimensions": flowers.X.shape[1],
            "scale": fit.scale,
            **{key: post.info[key] for key in ("method", "n_particles", "leaf_noise", "ess_threshold")},
        },
        "log_evidence": post.log_evidence,
        "pilot_log_evidence_by_scale": {str(scale): value for scale, value in fit.pilot_evidence.items()},
        "ess": post.ess,
        "lowest_ess_per_step": float(post.ess_per_step.min()),
        "n_resampled": post.info["n_resampled"],
        "clades": _clades(flowers, post, tree, np.flatnonzero(post.expected_overlap(tree) >= MAJORITY)),
        "average_linkage_clusters": _clades(flowers, post, plain, _cluster_merges(plain)),
        "scores": {"tree": _scores(tree, flowers), "average_linkage": _scores(plain, flowers)},
    }


def _clades(flowers: Flowers, post: TreePosterior, tree: Tree, merges: Ints) -> list[dict[str, Any]]:
    """Size, expected overlap, merge time and members of some clades of a tree, the largest first; not the root."""
    overlap, exact = post.expected_overlap(tree), post.clade_support(tree)
    intervals = post.time_intervals(tree, LEVEL)
    clades = []
    for k in sorted(merges.tolist(), key=lambda k: (-tree.sizes()[k], -overlap[k])):
        leaves = tree.leaves(tree.n_leaves + k)
        counts = np.bincount(flowers.species[leaves], minlength=len(flowers.species_names))
        if len(leaves) < tree.n_leaves:
            clades.append(
                {
                    "size": len(leaves),
                    "expected_overlap": float(overlap[k]),
                    "exact_support": float(exact[k]),
                    "time": float(tree.times[k]),
                    "time_interval": [None if np.isnan(end) else float(end) for end in intervals[k]],
                    "species": {name: int(c) for name, c in zip(flowers.species_names, counts, strict=True) if c > 0},
                    "members": [flowers.names[leaf] for leaf in leaves],
                }
            )
    return clades


def _cluster_merges(tree: Tree) -> Ints:
    """The merges that complete a cluster of the cut into N_CLUSTERS."""
    parents = tree.parents()[tree.n_leaves :]
    first_above = 2 * tree.n_leaves - N_CLUSTERS
    below = np.arange(tree.n_leaves - N_CLUSTERS)
    return below[parents[below] >= first_above]


def _scores(tree: Tree, flowers: Flowers) -> dict[str, float]:
    return {
        "ari_at_3_clusters": float(metrics.ari_curve(tree, flowers.species).ari[N_CLUSTERS - 1]),
        "ari_area": metrics.ari_auc(tree, flowers.species),
    }


# ---- figures


def draw_flowers(flowers: Flowers, fit: FlowerFit, seed: int, folder: Path) -> None:
    """Write the dendrogram with expected overlaps and the overlay of sampled trees."""
    from coaltree.plots import plot_dendrogram, plot_densitree

    post, tree = fit.posterior, fit.tree
    figure, axes = _titled(
        "30 iris flowers: which branches to trust",
        "Dots: clades with an expected overlap of at least 50%, shown in % unless it is 100.\n"
        "Bars: 90% intervals of merge times. Colours: three clusters (branches) and species (names).",
    )
    support = post.expected_overlap(tree)
    intervals = np.where(support[:, None] >= MAJORITY, post.time_intervals(tree, LEVEL), np.nan)
    intervals[-1] = np.nan
    plot_dendrogram(tree, axes, support=support, intervals=intervals, n_clusters=N_CLUSTERS, time_scale="sqrt")
    _colour_labels(axes, flowers)
    figure.savefig(folder / DENDROGRAM, dpi=120)

    figure, axes = _titled(
        "30 iris flowers: what the data leave open",
        f"{N_DRAWN} trees drawn from the posterior, over each other.\nBlack: one tree made from all of them.",
    )
    plot_densitree(post.sample(N_DRAWN, random_state=seed), axes, reference=tree, time_scale="sqrt")
    _colour_labels(axes, flowers)
    figure.savefig(folder / DENSITREE, dpi=120)


def _titled(title: str, subtitle: str) -> tuple[Any, Any]:
    from coaltree.plots.layout import FAINT, INK, canvas

    figure, axes = canvas(7.0, 6.4)
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=32)
    axes.text(0, 1.015, subtitle, transform=axes.transAxes, fontsize=8.5, color=FAINT, va="bottom")
    return figure, axes


def _colour_labels(axes: Any, flowers: Flowers) -> None:
    """Write every flower's name in the colour of its species."""
    from coaltree.plots import PALETTE

    colour = {name: PALETTE[code] for name, code in zip(flowers.names, flowers.species, strict=True)}
    for label in axes.get_yticklabels():
        label.set_color(colour[label.get_text()])


# ---- the terminal


def describe_flowers(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what was found as headings and tables of text."""
    parameters, scores = summary["parameters"], summary["scores"]
    by_scale = "  ".join(f"{scale}: {value:.1f}" for scale, value in summary["pilot_log_evidence_by_scale"].items())
    by_tree = [
        f"{name:<30} {scores[key]['ari_at_3_clusters']:17.2f}   {scores[key]['ari_area']:22.2f}"
        for key, name in (("tree", "tree of the posterior"), ("average_linkage", "average linkage"))
    ]
    return [
        (
            f"Log evidence by scale (cm2 per unit of time)   {by_scale}",
            f"Scale {parameters['scale']}, method {parameters['method']}: log evidence {summary['log_evidence']:.1f}; "
            f"effective sample size {summary['ess']:,.0f} of {parameters['n_particles']:,}, "
            f"at its lowest {summary['lowest_ess_per_step']:,.0f}.",
        ),
        (
            "The largest branches with an expected overlap of at least 50%",
            "\n".join(
                ["flowers  overlap  merge time  90% interval   species", *map(_clade_row, summary["clades"][:N_ROWS])]
            ),
        ),
        (
            "The three clusters of scipy's average linkage, judged by the same posterior",
            "\n".join(
                [
                    "flowers  overlap  species",
                    *(_clade_row(clade, with_times=False) for clade in summary["average_linkage_clusters"]),
                ]
            ),
        ),
        (
            "Agreement with the species",
            "\n".join(["                               ARI at 3 clusters   ARI area over all cuts", *by_tree]),
        ),
    ]


def _clade_row(clade: dict[str, Any], with_times: bool = True) -> str:
    who = ", ".join(f"{count} {name}" for name, count in clade["species"].items())
    times = ""
    if with_times:
        low, high = clade["time_interval"]
        times = f"{clade['time']:10.3f}  {low:6.3f}-{high:6.3f}   "
    return f"{clade['size']:7d}  {100 * clade['expected_overlap']:6.0f}%  {times}{who}"
