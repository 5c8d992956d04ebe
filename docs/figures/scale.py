"""Log evidence against the scale of the covariance, for data simulated at 2."""

import numpy as np
from matplotlib import pyplot as plt

import coaltree as ct
from coaltree.plots import PALETTE, plot_dendrogram

X = ct.sample_data(ct.sample_tree(20, random_state=6), 2.0 * np.eye(4), random_state=7)
scales = np.geomspace(0.02, 200.0, 13)
evidence = [ct.sample_posterior(X, scale * np.eye(4), n_particles=100).log_evidence for scale in scales]
figure, axes = plt.subplots(1, 3, figsize=(9.0, 3.0), layout="constrained")
axes[0].semilogx(scales, evidence, "o-", color=PALETTE[0], markersize=4, linewidth=1.0)
axes[0].axvline(2.0, color="0.6", linestyle="--", linewidth=0.8)
axes[0].set_xlabel("variance a unit of time, φ")
axes[0].set_ylabel("log evidence")
axes[0].set_title("The data know the scale (dashed: truth)")
axes[0].spines[["top", "right"]].set_visible(False)
for ax, scale in zip(axes[1:], (2.0, 0.02), strict=True):
    post = ct.sample_posterior(X, scale * np.eye(4), n_particles=100)
    tree = post.mcc_tree()
    plot_dendrogram(tree, ax, labels=[""] * 20, support=post.clade_support(tree))
    ax.set_title(f"φ = {scale:g}")
