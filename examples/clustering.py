"""
Clustering a table
==================

From a table of measurements to clusters whose uncertainty is known: units, covariance, number of clusters, the data
beside the tree, new rows, and a file to keep.

The table is the wine data that scikit-learn ships: thirteen chemical measurements of wines from three growers. Every
fourth wine is fitted, which leaves the others for checking.
"""

# %%
# Units first
# -----------
# Alcohol is in per cent, proline in the hundreds. The default covariance is, or is shrunk towards, one variance for all
# columns, so bring them to a common scale unless they have a common unit. Put the scaling into a pipeline
# and it will be applied to new rows as well.

import numpy as np
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import coaltree as ct
from coaltree.plots import plot_ari_curve, plot_coclustering, plot_heatmap

wine = load_wine()
train, grower = wine.data[::4], wine.target[::4]
held_out = np.delete(wine.data, slice(None, None, 4), axis=0)

pipeline = make_pipeline(
    StandardScaler(),
    ct.CoalescentClustering(random_state=0),
).fit(train)
model = pipeline[-1]
print(model.posterior_)

# %%
# Which covariance?
# -----------------
# The covariance describes the steps of the diffusion along the branches: one variance for all columns, one for each, or
# a full matrix. Ask the rows that were left out: the mean log density of held-out rows is ``score``, so the choice is
# ordinary model selection, and ``cross_val_score`` works too.

for covariance in ("spherical", "diagonal", "wishart"):
    candidate = pipeline.set_params(coalescentclustering__covariance=covariance).fit(
        train
    )
    print(f"{covariance:<10} {candidate.score(held_out):8.2f} nats per row")

# %%
# The last one fitted, the full matrix, is the one we go on with. One split of one table settles nothing in general: see
# :doc:`/choosing`.

model = pipeline[-1]
scaled = pipeline[:-1].transform(train)

# %%
# The data beside the tree
# ------------------------
# Rows are in the order of the leaves, columns are standardised. Dots on the tree are clades with an expected overlap of
# at least one half, darker for more.

support = model.posterior_.expected_overlap(model.tree_)
ax = plot_heatmap(
    model.tree_,
    scaled,
    features=wine.feature_names,
    support=support,
    n_clusters=model.n_clusters_,
)
ax.figure.suptitle("Wine: the posterior's tree and the measurements")

# %%
# How many clusters?
# ------------------
# None was asked for, so the trees of the posterior choose: the score is how much earlier rows merge with their own
# cluster than with others, at most one, and the score of one cluster is the bar to pass. The fewest clusters that score
# about as well as the best are taken; the label of an outlier is −1.

print(
    "chosen:",
    model.n_clusters_,
    "sizes",
    np.bincount(model.labels_[model.labels_ >= 0]),
)
print(
    "of the draws alone:",
    {k: round(share, 2) for k, share in model.n_clusters_probability_.items()},
)
print({k: round(score, 2) for k, score in list(model.cluster_scores_.items())[:6]})

# %%
# If you prefer another number, cut the tree yourself; nothing has to be fitted again.

three = model.cut(3)
ax = plot_coclustering(model.posterior_.coclustering(3), model.tree_, n_clusters=3)
ax.set_title("Wine: probability of sharing a cluster, of three")

# %%
# Against the growers
# -------------------
# The growers were not used. The curve shows how well each cut of the tree agrees with them, beside average and Ward
# linkage of the same rows. This is one small subset of one data set: benchmarks/quality.md in the repository has more.

from scipy.cluster.hierarchy import linkage

trees = {
    "posterior's tree": model.tree_,
    "average linkage": ct.Tree.from_linkage(linkage(scaled, "average")),
    "Ward": ct.Tree.from_linkage(linkage(scaled, "ward")),
}
ax = plot_ari_curve(trees, grower, log=True)
ax.set_title("Wine: agreement of every cut with the growers")

# %%
# New rows
# --------
# ``predict_proba`` averages over trees and over the places where a row may join each tree. ``attach`` names the likely
# places in ``tree_``: the branch, by the node below it, its probability, and the mean time of joining.

print(pipeline.predict_proba(held_out[:4]).round(2))
places = model.attach(pipeline[:-1].transform(held_out[:1]), n_places=3)
print(places)

# %%
# Keep it
# -------
# ``save`` writes one file without pickle, so reading one from someone else runs no code.

import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "wine.npz"
    model.save(file)
    again = ct.CoalescentClustering.load(file)
    print(
        file.stat().st_size // 1024, "kB;", np.array_equal(again.labels_, model.labels_)
    )
