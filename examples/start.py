"""
Ten minutes to a tree you can trust
===================================

This guide takes a small table from raw numbers to clusters with probabilities. You need to have used
``scipy.cluster.hierarchy.linkage`` or scikit-learn before, and nothing else.

The first fit on a machine compiles the numerical kernels, which may take a minute; they are cached on disk, and later
runs start at once.
"""

# %%
# A table
# -------
# Thirty iris flowers, ten of each species, four measurements in centimetres. Rows are named by the species and a
# number. The species are not shown to the model: we keep them to look at the answer.

import numpy as np
from sklearn.datasets import load_iris

import coaltree as ct
from coaltree.plots import plot_coclustering, plot_dendrogram, plot_densitree

iris = load_iris(as_frame=True)
X = iris.data[::5]
X.index = [f"{iris.target_names[iris.target[i]]} {i}" for i in X.index]
print(X.shape)

# %%
# A fit
# -----
# :class:`~coaltree.CoalescentClustering` is a scikit-learn estimator. It learns three things together: the tree, how
# far values wander along its branches, and how noisy each measurement is. How long to run is decided by the number of
# rows. ``random_state`` makes the result reproducible, whatever the number of threads.

model = ct.CoalescentClustering(random_state=0).fit(X)
print(model.posterior_)

# %%
# The result is not one tree but a posterior: two hundred trees, drawn by two Markov chains. One tree made of
# all of them stands for the rest, as ``tree_``.
#
# The dots below are clades. The number beside a dot is the expected overlap, in per cent, of these flowers with the
# most similar branch of the true tree; clades below one half have no dot. Bars are 90 % intervals of merge times.

tree, posterior = model.tree_, model.posterior_
overlap = posterior.expected_overlap(tree)
ax = plot_dendrogram(
    tree,
    support=overlap,
    intervals=posterior.time_intervals(tree),
    n_clusters=model.n_clusters_,
)
ax.set_title("Iris: a tree that says how certain each clade is")

# %%
# Many trees at once
# ------------------
# Drawing all the trees over each other shows the same thing without numbers: where they agree the lines are dark,
# where the data do not decide they are a haze.

ax = plot_densitree(posterior)
ax.set_title("Iris: all sampled trees")

# %%
# Clusters
# --------
# We did not say how many clusters we want. ``cluster_scores_`` holds, for each number, how much earlier rows merge with
# their own cluster than with the nearest other one, over all draws; the entry for one cluster is the score that the
# others must reach. The highest score decides; ``n_clusters_alternatives_`` are other numbers that are about as good.
# Outliers have the label −1.

print(
    model.n_clusters_,
    "clusters of sizes",
    np.bincount(model.labels_[model.labels_ >= 0]),
)
print({k: round(score, 2) for k, score in list(model.cluster_scores_.items())[:5]})

# %%
# Whether two rows belong together is a probability too. Here we ask about three clusters, because there are three
# species. *Setosa* is a block of its own; the other two run into each other, and the matrix says how much.

ax = plot_coclustering(posterior.coclustering(3), tree, n_clusters=3)
ax.set_title("Iris: probability of sharing a cluster, of three")

# %%
# New rows
# --------
# New flowers get a probability of each cluster, and a log density that shows how unusual they are. The last row below
# is no iris.

new = iris.data.iloc[[1, 77, 120, 0]].reset_index(drop=True)
new.loc[3] = [20.0, 1.0, 1.0, 9.0]
print(model.predict_proba(new).round(2))
print(model.score_samples(new).round(1))

# %%
# Take it elsewhere
# -----------------
# A tree converts to a scipy linkage matrix, to Newick and to Nexus, and comes back from them. A fitted model saves
# without pickle.

print(tree.to_linkage().shape)
print(tree.to_newick(support=overlap, digits=3)[:90], "…")

# %%
# Is it enough?
# -------------
# Two habits make the difference between a picture and a result.
#
# *Look at the chains.* They start from different trees, and should agree: a warning says if they do not, and
# ``convergence_`` has the numbers. After the shaded warm-up all traces should wander about the same level. The
# effective sample size in each title is the number of independent draws that the kept part is worth.

from coaltree.plots import plot_traces

told = model.convergence_
print(f"largest R-hat {max(told.r_hat.values()):.3f}; it should be close to 1")
print(f"supports of a clade differ by {told.support_difference:.2f} between the chains")
axes = plot_traces(model.trace_, burn_in=model.warmup_)
axes[0].figure.suptitle("Traces of the learned quantities")

# %%
# *Fit again with another seed*, and compare the overlaps of the same tree. If they differ by more than you can accept,
# ask for more draws (``n_draws``).

again = ct.CoalescentClustering(random_state=1).fit(X)
difference = np.abs(again.posterior_.expected_overlap(tree) - overlap)
print(f"largest difference of an overlap between two seeds: {difference.max():.2f}")

# %%
# Where next
# ----------
# - :doc:`/model` explains the model with pictures, for readers who know PCA and linkage.
# - :doc:`/choosing` shows how to choose a covariance, and how long to run.
# - :doc:`/diagnostics` says what to do about each number that looks wrong.
# - :doc:`/auto_examples/regression` is about many binary outcomes, and :doc:`/auto_examples/records` about medical
#   records.
