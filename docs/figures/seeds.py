"""Supports of the same clades from two seeds: of particles that choose merges in turn, and of the chain."""

import numpy as np
from matplotlib import pyplot as plt

import coaltree as ct
from coaltree.plots import PALETTE

X = ct.sample_data(ct.sample_tree(24, random_state=6), np.eye(4), random_state=7)
figure, axes = plt.subplots(1, 2, figsize=(9.0, 4.0), layout="constrained", sharey=True)
runs = [ct.sample_posterior(X, method="tpost", n_particles=50, random_state=seed) for seed in (0, 1)]
chains = [ct.learn_posterior(X, np.eye(4), leaf_noise=0.0, random_state=seed).posterior for seed in (0, 1)]
for ax, (one, two), title in zip(
    axes, (runs, chains), ("50 particles of tpost", "200 draws of the chain"), strict=True
):
    points = np.concatenate(
        [[one.clade_support(tree)[:-1], two.clade_support(tree)[:-1]] for tree in (one.mcc_tree(), two.mcc_tree())],
        axis=1,
    )
    ax.plot(*points, "o", color=PALETTE[0], alpha=0.6, markersize=6)
    ax.axline((0, 0), slope=1, color="0.6", linewidth=0.8)
    ax.set_title(f"{title}: mean difference {np.abs(points[0] - points[1]).mean():.2f}")
    ax.set_xlabel("support, seed 0")
    ax.set_xlim(-0.03, 1.03)
    ax.set_ylim(-0.03, 1.03)
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("support, seed 1")
