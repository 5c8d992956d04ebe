"""A tree with what the posterior says about its clades, in comments that FigTree and BEAST's tools read.

Every merge has `[&posterior=…,posterior_error=…,height=…,height_mean=…,height_median=…,height_95%_HPD={…,…}]`: the
support of its clade with its Monte Carlo error, its own time, and the mean, the median and the shortest interval of the
clade's merge time among the trees that contain it.
"""

from __future__ import annotations

from coaltree import formats
from coaltree.errors import InputError
from coaltree.posterior import clades
from coaltree.posterior.ensemble import TreePosterior
from coaltree.tree import Tree
from coaltree.validation import check_fraction


def clade_notes(posterior: TreePosterior, tree: Tree, level: float = 0.95, digits: int = 6) -> list[str]:
    """One comment per merge of `tree`; clades in no tree of the posterior have only support and height.

    With a single tree in the posterior there is only the height: one tree has neither support nor spread.
    """
    if not 0.0 < check_fraction(level, "level") < 1.0:
        raise InputError(f"level must be between 0 and 1, got {level}.")
    if len(posterior) == 1:
        return [f"&height={height:.{digits}g}" for height in tree.times]
    support, error = posterior.clade_support(tree), posterior.support_error(tree)
    found = clades.clades_in(posterior.children, tree.children)
    held = clades.held_times(found, posterior.times, posterior.weights)
    del found
    low, high = clades.shortest_intervals(*held, level).T
    numbers = (support, error, tree.times, clades.means(held), clades.quantiles(held, [0.5])[:, 0], low, high)
    interval = f"height_{100.0 * level:g}%_HPD"
    notes = []
    for share, its_error, height, mean, median, first, last in zip(
        *(values.tolist() for values in numbers), strict=True
    ):
        note = f"&posterior={share:.{digits}g},posterior_error={its_error:.2g},height={height:.{digits}g}"
        if share > 0.0:
            note += f",height_mean={mean:.{digits}g},height_median={median:.{digits}g}"
            note += f",{interval}={{{first:.{digits}g},{last:.{digits}g}}}"
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
