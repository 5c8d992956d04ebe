"""
Judging a dendrogram you already have
=====================================

Someone hands you a dendrogram from scipy, or you have used average linkage for years. Which of its branches does the
data support, and is there a better tree close by?
"""

# %%
# A tree from elsewhere
# ---------------------
# Any linkage with sorted heights becomes a :class:`~coaltree.Tree`, and so does Newick or Nexus text. Here the data
# are simulated from the model, forty leaves in twelve dimensions, so that there is a truth to compare with.

import numpy as np
from scipy.cluster.hierarchy import linkage

import coaltree as ct
from coaltree.metrics import robinson_foulds
from coaltree.plots import plot_dendrogram, plot_densitree

truth = ct.sample_tree(40, random_state=3)
X = ct.sample_data(truth, 2.0 * np.eye(12), leaf_noise=0.01, random_state=4)
average = ct.Tree.from_linkage(linkage(X, "average"))
print(average)

# %%
# The scale comes first
# ---------------------
# The prior has a clock: it expects the last merge of :math:`n` leaves at time :math:`2(1 - 1/n)`. How far values wander
# in a unit of time is the covariance, and it has to be learned or known before any density means something.

learned = ct.learn_posterior(X, "spherical", random_state=0)
posterior = learned.posterior
print(f"variance a unit of time: {learned.covariance[0, 0]:.2f} (2.0 was simulated)")
print(f"leaf noise: {learned.leaf_noise[0]:.3f} (0.010 was simulated)")

# %%
# How certain is each branch
# --------------------------
# ``expected_overlap`` takes any tree over the same leaves. Merge heights of average linkage are distances and not times
# of our clock, but clades are clades.

support = posterior.expected_overlap(average)
print(
    f"clades of average linkage with an expected overlap under one half: {np.sum(support < 0.5)} of {len(support)}"
)
ax = plot_dendrogram(average, support=support, min_support_shown=0.0, orientation="top")
ax.set_title("Average linkage, with the posterior probability of each clade")
ax.set_ylabel("linkage distance")

# %%
# A better tree nearby
# --------------------
# :func:`~coaltree.refine` moves subtrees and times as long as that raises the joint density of data and tree, and never
# returns a worse tree. :func:`~coaltree.greedy_tree` builds one from nothing, at about the speed of average linkage.

phi, noise = learned.covariance, learned.leaf_noise
candidates = {
    "average linkage": average,
    "greedy": ct.greedy_tree(X, phi, leaf_noise=noise),
    "refined from average": ct.refine(average, X, phi, leaf_noise=noise),
    "one tree of all draws": posterior.point_tree(),
}
print(f"{'':<34}log joint  clades missed")
for name, tree in candidates.items():
    missed = robinson_foulds(tree, truth) // 2
    print(
        f"{name:<34}{ct.log_joint(tree, X, phi, leaf_noise=noise):9.1f}  {missed:5.0f} of 38"
    )

# %%
# The tree of the highest joint density need not have the most true clades: it is a peak, and the posterior is a
# landscape. That is the reason to look at many trees.

ax = plot_densitree(posterior, max_trees=100, orientation="top")
ax.set_title("A hundred trees of the posterior")

# %%
# Only what is certain
# --------------------
# The majority-rule consensus keeps the clades with a support above one half and leaves the rest unresolved.

sure = posterior.consensus(0.5)
print(f"{sure.n_clades} of {sure.n_leaves - 1} merges are resolved")
