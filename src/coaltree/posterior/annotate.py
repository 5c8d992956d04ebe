"""A tree with what the posterior says about its clades, in comments that FigTree and BEAST's tools read.

Every merge has ``[&expected_overlap=…,expected_overlap_error=…,posterior=…,posterior_error=…,transfer_support=…,
height=…,height_median=…,height_95%_HPD={…,…}]``: its expected overlap and exact support (`posterior`, as tree viewers
name it), both with Monte Carlo errors; its transfer support (Lemoine et al. 2018); its own time, and the median and the
shortest interval of the clade's merge time (`coaltree.posterior.overlap`).
"""

from __future__ import annotations

from coaltree import formats
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.hierarchy import make_hierarchy
from coaltree.tree import Tree


def clade_notes(posterior: TreePosterior, tree: Tree, level: float = 0.95, digits: int = 6) -> list[str]:
    """One comment per merge of `tree`.

    With a single tree in the posterior there is only the height: one tree has neither support nor spread.
    """
    intervals = posterior.shortest_time_intervals(tree, level)
    if len(posterior) == 1:
        return [f"&height={height:.{digits}g}" for height in tree.times]
    known = {
        "expected_overlap": posterior.expected_overlap(tree),
        "expected_overlap_error": posterior.overlap_error(tree),
        "posterior": posterior.clade_support(tree),
        "posterior_error": posterior.support_error(tree),
        "transfer_support": posterior.transfer_support(tree),
        "height": tree.times,
        "height_median": posterior.median_times(tree),
    }
    notes = []
    for k, (low, high) in enumerate(intervals.tolist()):
        numbers = ",".join(
            f"{name}={values[k]:.{2 if name.endswith('error') else digits}g}" for name, values in known.items()
        )
        notes.append(f"&{numbers},height_{100.0 * level:g}%_HPD={{{low:.{digits}g},{high:.{digits}g}}}")
    return notes


def to_annotated_newick(posterior: TreePosterior, tree: Tree | None = None, level: float = 0.95) -> str:
    """Newick text of `tree` (default: that of `make_hierarchy`) with supports and intervals as comments."""
    tree = make_hierarchy(posterior).tree if tree is None else tree
    return formats.to_newick(tree, notes=clade_notes(posterior, tree, level))


def to_annotated_nexus(posterior: TreePosterior, tree: Tree | None = None, level: float = 0.95) -> str:
    """Nexus file of `tree` (default: that of `make_hierarchy`) with supports and intervals as comments."""
    tree = make_hierarchy(posterior).tree if tree is None else tree
    return formats.to_nexus(tree, notes=[clade_notes(posterior, tree, level)])
