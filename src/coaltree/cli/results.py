"""What every command that writes a folder of results has in common: the tree's files, and a line about each step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import typer

from coaltree import formats
from coaltree.posterior.annotate import to_annotated_nexus
from coaltree.posterior.ensemble import TreePosterior
from coaltree.tree import Tree

TREE, ANNOTATED, POSTERIOR_NEXUS, REPORT = "tree.nwk", "tree.nex", "posterior.nex", "report.html"
DIGITS = 6
_MOST_NEXUS_LEAVES = 2_000_000  # in all trees of posterior.nex, about 60 MB


def write_trees(folder: Path, tree: Tree, posterior: TreePosterior) -> npt.NDArray[np.float64] | None:
    """Write the tree with its supports, again with intervals for FigTree, and all trees; return the supports.

    One tree alone has none: its clades are in all trees there are, which tells nothing.
    """
    support = posterior.clade_support(tree) if len(posterior) > 1 else None
    (folder / TREE).write_text(tree.to_newick(support=support, digits=DIGITS) + "\n", encoding="utf-8")
    (folder / ANNOTATED).write_text(to_annotated_nexus(posterior, tree), encoding="utf-8")
    (folder / POSTERIOR_NEXUS).write_text(_posterior_nexus(posterior), encoding="utf-8")
    return support


def _posterior_nexus(posterior: TreePosterior) -> str:
    """All trees, or of many large ones as many as a viewer can open, evenly spaced."""
    most = max(_MOST_NEXUS_LEAVES // posterior.n_leaves, 1)
    if len(posterior) <= most:
        return formats.to_nexus(list(posterior), weights=posterior.weights, digits=DIGITS)
    chosen = np.linspace(0, len(posterior) - 1, most).round().astype(int)
    weights = posterior.weights[chosen]
    text = formats.to_nexus(
        [posterior[i] for i in chosen.tolist()], weights=weights / (weights.sum() or 1.0), digits=DIGITS
    )
    told = f"[{most} of {len(posterior)} trees, evenly spaced, their weights scaled to sum to one]"
    return text.replace("\n", f"\n{told}\n", 1)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what is being done, and how long it took."""
    typer.echo(f"{what} ..", nl=False)
    started = time.perf_counter()
    yield
    typer.echo(f" {time.perf_counter() - started:.1f} s")
