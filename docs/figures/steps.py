"""Effective sample size at every merge, with few and with many particles."""

import numpy as np
from matplotlib import pyplot as plt

import coaltree as ct
from coaltree.plots import PALETTE

X = ct.sample_data(ct.sample_tree(40, random_state=6), np.eye(6), random_state=7)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.2), layout="constrained")
for k, n_particles in enumerate((20, 200, 1000)):
    post = ct.sample_posterior(X, method="tpost", n_particles=n_particles)
    share = post.ess_per_step / n_particles
    left.plot(np.arange(1, 40), share, ("-", "--", "-.")[k], color=PALETTE[k], linewidth=1.2, label=f"{n_particles:,}")
left.axhline(0.5, color="0.6", linewidth=0.8)
left.set_ylim(0, 1)
left.set_xlabel("merge")
left.set_ylabel("effective share of the particles")
left.set_title("Below the line, particles are resampled")
left.legend(title="particles", frameon=False, fontsize=8)
for k, n_particles in enumerate((20, 200, 1000)):
    estimates = [
        ct.sample_posterior(X, method="tpost", n_particles=n_particles, random_state=seed).log_evidence
        for seed in range(6)
    ]
    right.plot(np.full(6, n_particles), estimates, "o", color=PALETTE[k], markersize=5, alpha=0.7)
right.set_xscale("log")
right.set_xlabel("particles")
right.set_ylabel("log evidence, six seeds")
right.set_title("The estimate rises towards the truth")
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
