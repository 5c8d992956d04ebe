"""A tree with what the posterior says of its clades, in the comments that FigTree and BEAST's tools read.

Every merge carries `[&posterior=…,height=…,height_mean=…,height_median=…,height_95%_HPD={…,…}]`: the support of its
clade, its own time, and the mean, the median and the shortest interval of the clade's merge time among the trees that
hold it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from coaltree import formats
from coaltree.posterior import consensus
from coaltree.posterior.ensemble import TreePosterior
from coaltree.tree import Tree
from coaltree.validation import check_fraction

Floats = npt.NDArray[np.float64]


def shortest_interval(times: Floats, weights: Floats, level: float) -> tuple[float, float]:
    """Shortest interval between two of the times that holds a share `level` of the weight."""
    order = np.argsort(times, kind="stable")
    sorted_times, share = times[order], np.cumsum(weights[order]) / weights.sum()
    before = np.concatenate([[0.0], share[:-1]])
    # From each start, the first end that has enough; from late starts there is none.
    end = np.searchsorted(share, before + level - 1e-12)
    start = np.flatnonzero(end < len(times))
    widths = sorted_times[end[start]] - sorted_times[start]
    best = start[np.argmin(widths)]
    return float(sorted_times[best]), float(sorted_times[end[best]])


def clade_notes(posterior: TreePosterior, tree: Tree, level: float = 0.95, digits: int = 6) -> list[str]:
    """One comment a merge of `tree`; clades that no tree of the posterior holds have only support and height.

    With a single tree in the posterior there is nothing but the height: it tells neither support nor spread.
    """
    if not 0.0 < check_fraction(level, "level") < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level}.")
    if len(posterior) == 1:
        return [f"&height={height:.{digits}g}" for height in tree.times]
    support = posterior.clade_support(tree)
    ids = consensus.clade_ids(np.concatenate([posterior.children, tree.children[None]]))
    held = ids[:-1].ravel()
    order = np.argsort(held, kind="stable")
    times = posterior.times.ravel()[order]
    weights = np.repeat(posterior.weights, tree.n_leaves - 1)[order]
    first, last = (np.searchsorted(held[order], ids[-1], side=side) for side in ("left", "right"))
    notes = []
    for k, height in enumerate(tree.times):
        note = f"&posterior={support[k]:.{digits}g},height={height:.{digits}g}"
        own, weight = times[first[k] : last[k]], weights[first[k] : last[k]]
        if weight.sum() > 0.0:
            sort = np.argsort(own, kind="stable")
            median = own[sort][np.searchsorted(np.cumsum(weight[sort]), 0.5 * weight.sum() * (1.0 - 1e-12))]
            low, high = shortest_interval(own, weight, level)
            note += f",height_mean={np.average(own, weights=weight):.{digits}g},height_median={median:.{digits}g}"
            note += f",height_{100.0 * level:g}%_HPD={{{low:.{digits}g},{high:.{digits}g}}}"
        notes.append(note)
    return notes


def to_annotated_newick(posterior: TreePosterior, tree: Tree | None = None, level: float = 0.95) -> str:
    """Newick text of `tree` (default: the maximum-clade-credibility tree) with support and intervals as comments."""
    tree = posterior.mcc_tree() if tree is None else tree
    return formats.to_newick(tree, notes=clade_notes(posterior, tree, level))


def to_annotated_nexus(posterior: TreePosterior, tree: Tree | None = None, level: float = 0.95) -> str:
    """Nexus file of `tree` (default: the maximum-clade-credibility tree) with support and intervals as comments."""
    tree = posterior.mcc_tree() if tree is None else tree
    return formats.to_nexus(tree, notes=[clade_notes(posterior, tree, level)])
