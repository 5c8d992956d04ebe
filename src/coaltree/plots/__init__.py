"""Drawing only: trees, matrices beside them, curves and traces, with matplotlib."""

from coaltree.plots.curves import plot_ari_curve, plot_traces
from coaltree.plots.dendrogram import plot_dendrogram
from coaltree.plots.densitree import plot_densitree
from coaltree.plots.layout import PALETTE
from coaltree.plots.matrices import plot_coclustering, plot_heatmap
from coaltree.plots.regression import plot_auc, plot_calibration, plot_node_models, plot_outcome_tree

__all__ = [
    "PALETTE",
    "plot_ari_curve",
    "plot_auc",
    "plot_calibration",
    "plot_coclustering",
    "plot_dendrogram",
    "plot_densitree",
    "plot_heatmap",
    "plot_node_models",
    "plot_outcome_tree",
    "plot_traces",
]
