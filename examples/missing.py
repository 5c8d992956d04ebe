"""
Tables with gaps
================

Missing entries are part of the model: they are integrated out, or drawn together with the tree, and filled in with
their uncertainty. Put NaN where nothing was measured.
"""

# %%
# A table with known gaps
# -----------------------
# Fifty rows and six columns simulated from the model; every fifth entry is hidden.

import numpy as np
from matplotlib import pyplot as plt

import coaltree as ct
from coaltree.plots import PALETTE

rng = np.random.default_rng(0)
tree = ct.sample_tree(50, random_state=1)
complete = ct.sample_data(
    tree, np.diag([1.0, 1.0, 2.0, 2.0, 4.0, 4.0]), leaf_noise=0.02, random_state=2
)
hidden = rng.random(complete.shape) < 0.2
X = np.where(hidden, np.nan, complete)
print(f"{hidden.sum()} of {hidden.size} entries are missing")

# %%
# Fit as usual
# ------------
# Missing entries are drawn in every iteration, so each tree of the posterior goes with a table of its own.

learned = ct.learn_posterior(X, "diagonal", random_state=0)
print(learned.posterior)

# %%
# What was filled in
# ------------------
# ``completed`` holds posterior means and ``completed_sd`` their standard deviations. Nearby rows in the tree carry the
# information, so an entry of a row with close relatives is known well and one of a loner is not.

means, deviations = learned.completed[hidden], learned.completed_sd[hidden]
true = complete[hidden]
_, ax = plt.subplots(figsize=(5.2, 4.4), layout="constrained")
ax.errorbar(
    true,
    means,
    yerr=1.645 * deviations,
    fmt="o",
    markersize=3,
    linewidth=0.8,
    color=PALETTE[0],
)
ax.axline((0, 0), slope=1, color="0.5", linewidth=0.8)
ax.set_xlabel("hidden value")
ax.set_ylabel("posterior mean and 90 % interval")
ax.set_title("Missing entries, filled in")

covered = np.mean(np.abs(true - means) <= 1.645 * deviations)
print(f"90 % intervals cover {covered:.0%} of {len(true)} entries")

# %%
# Beside nearest neighbours
# -------------------------
# The error is relative to filling in the mean of each column. benchmarks/learning.md has this comparison for more
# tables, with the number of neighbours chosen in the neighbours' favour.

from sklearn.impute import KNNImputer

baseline = np.sqrt(
    np.mean((np.broadcast_to(np.nanmean(X, axis=0), X.shape)[hidden] - true) ** 2)
)
for name, filled in {
    "coaltree": means,
    "5 nearest neighbours": KNNImputer(n_neighbors=5).fit_transform(X)[hidden],
}.items():
    print(f"{name:<22}{np.sqrt(np.mean((filled - true) ** 2)) / baseline:.2f}")

# %%
# In the estimator
# ----------------
# :class:`~coaltree.CoalescentClustering` takes NaN in the same way. ``impute()`` returns the completed table of the
# fit; ``impute(X)`` fills new rows, and ``predict`` and ``score_samples`` take rows with gaps.

model = ct.CoalescentClustering(n_clusters=3, random_state=0).fit(X)
new = X[:2].copy()
new[0, 3] = np.nan
print(model.impute(new).round(2))
