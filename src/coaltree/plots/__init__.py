"""Drawing only: dendrograms and densitrees with matplotlib."""

from coaltree.plots.dendrogram import plot_dendrogram
from coaltree.plots.densitree import plot_densitree
from coaltree.plots.layout import PALETTE

__all__ = ["PALETTE", "plot_dendrogram", "plot_densitree"]
