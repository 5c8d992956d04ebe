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


def write_trees(folder: Path, tree: Tree, posterior: TreePosterior) -> npt.NDArray[np.float64]:
    """Write the tree with its supports, again with intervals for FigTree, and all trees; return the supports."""
    support = posterior.clade_support(tree)
    (folder / TREE).write_text(tree.to_newick(support=support, digits=DIGITS) + "\n", encoding="utf-8")
    (folder / ANNOTATED).write_text(to_annotated_nexus(posterior, tree), encoding="utf-8")
    nexus = formats.to_nexus(list(posterior), weights=posterior.weights, digits=DIGITS)
    (folder / POSTERIOR_NEXUS).write_text(nexus, encoding="utf-8")
    return support


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what is being done, and how long it took."""
    typer.echo(f"{what} ..", nl=False)
    started = time.perf_counter()
    yield
    typer.echo(f" {time.perf_counter() - started:.1f} s")
