"""One value wandering along the branches of a tree: time runs from the root, right to left in the other pictures."""

import numpy as np
from matplotlib import pyplot as plt

import coaltree as ct
from coaltree.plots import PALETTE, plot_dendrogram

STEP = 0.004
rng = np.random.default_rng(11)
tree = ct.sample_tree(8, random_state=3)
n, times, parents = tree.n_leaves, tree.node_times(), tree.parents()
cluster = tree.cut(n_clusters=3)

figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4), layout="constrained", sharex=True)
value = np.zeros(2 * n - 1)
for node in range(2 * n - 3, -1, -1):
    above = parents[node]
    steps = max(int((times[above] - times[node]) / STEP), 1)
    increments = rng.normal(scale=np.sqrt((times[above] - times[node]) / steps), size=steps)
    path = value[above] + np.concatenate([[0.0], np.cumsum(increments)])
    value[node] = path[-1]
    inside = node < 2 * n - 3  # below the cut into three
    colour = PALETTE[cluster[tree.leaves(node)[0]]] if inside else "0.55"
    right.plot(np.linspace(times[above], times[node], steps + 1), path, color=colour, linewidth=0.9)
right.plot(np.zeros(n), value[:n], "k.", markersize=5)
right.set_title("A value that wanders along the branches")
right.set_xlabel("time before the data")
right.yaxis.set_label_position("right")
right.yaxis.tick_right()
right.set_ylabel("value; dots are the data")
right.spines[["top", "left"]].set_visible(False)
plot_dendrogram(tree, left, n_clusters=3)
left.set_title("A tree")
left.set_xlabel("time before the data")
left.set_xlim(1.03 * times[-1], -0.03 * times[-1])
