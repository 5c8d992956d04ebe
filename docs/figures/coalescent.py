"""Three trees drawn from the prior, on one clock."""

from matplotlib import pyplot as plt

import coaltree as ct
from coaltree.plots import plot_dendrogram

figure, axes = plt.subplots(1, 3, figsize=(9.0, 3.0), layout="constrained", sharex=True)
trees = [ct.sample_tree(12, random_state=seed) for seed in (0, 2, 5)]
latest = max(tree.times[-1] for tree in trees)
for ax, tree in zip(axes, trees, strict=True):
    plot_dendrogram(tree, ax, labels=[""] * 12)
    ax.set_xlim(1.05 * latest, 0.0)
    ax.axvline(2 * (1 - 1 / 12), color="0.6", linewidth=0.8, linestyle="--")
axes[1].set_title("Three draws from the prior, 12 leaves; dashed: the expected time of the last merge")
