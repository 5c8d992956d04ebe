"""Points in a plane, their tree, and the model's guess of every ancestor."""

import numpy as np
from matplotlib import pyplot as plt

import coaltree as ct
from coaltree.model.diffusion import node_posterior
from coaltree.plots import PALETTE, plot_dendrogram

tree = ct.sample_tree(24, random_state=8)
X = ct.sample_data(tree, np.eye(2), random_state=9)
nodes = node_posterior(tree, X).mean
labels = tree.cut(n_clusters=3)
n, parents, times = tree.n_leaves, tree.parents(), tree.node_times()

figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 4.0), layout="constrained")
for node in range(2 * n - 2):
    inside = node < 2 * n - 3
    colour = PALETTE[labels[tree.leaves(node)[0]]] if inside else "0.6"
    left.plot(*nodes[[node, parents[node]]].T, color=colour, linewidth=0.8, zorder=1)
left.scatter(
    *nodes[n:].T, s=12, facecolor="white", edgecolor="0.3", linewidth=0.8, zorder=2, label="ancestors, estimated"
)
for k in range(3):
    left.scatter(*X[labels == k].T, s=28, color=PALETTE[k], zorder=3, marker="os^"[k], label=f"cluster {k + 1}")
left.legend(frameon=False, fontsize=8)
left.set_aspect("equal", adjustable="datalim")
left.set_title("Points and the means of their ancestors")
left.set_xlabel("first column")
left.set_ylabel("second column")
plot_dendrogram(tree, right, n_clusters=3)
right.set_title("The same tree")
