"""Drawing only: trees, matrices beside them, curves and traces, with matplotlib."""

from coaltree.plots.curves import plot_ari_curve, plot_traces
from coaltree.plots.dendrogram import plot_dendrogram
from coaltree.plots.densitree import plot_densitree
from coaltree.plots.layout import PALETTE
from coaltree.plots.matrices import plot_coclustering, plot_heatmap

__all__ = [
    "PALETTE",
    "plot_ari_curve",
    "plot_coclustering",
    "plot_dendrogram",
    "plot_densitree",
    "plot_heatmap",
    "plot_traces",
]
