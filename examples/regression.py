"""
Many rare outcomes, one model
=============================

You have a few hundred or thousand cases, some features, and a dozen yes-or-no outcomes, some of them rare. One model
an outcome wastes what related outcomes have in common. :class:`~coaltree.CoalescentProbit` gives each outcome a
coefficient vector of its own and lets the vectors be the leaves of a tree, which it learns: outcomes that are close in
the tree have similar coefficients, and an outcome that is like no other stands alone.
"""

# %%
# Data with a known tree
# ----------------------
# Nine outcomes in three groups, ten features, four hundred cases. Within a group coefficients are alike; prevalences
# run from a few per cent to a third.

import numpy as np
from sklearn.metrics import roc_auc_score

import coaltree as ct
from coaltree.plots import (
    plot_auc,
    plot_calibration,
    plot_node_models,
    plot_outcome_tree,
)

rng = np.random.default_rng(7)
features = [f"marker {k}" for k in range(1, 11)]
groups = 0.45 * rng.normal(size=(3, 10))
beta = np.repeat(groups, 3, axis=0) + 0.1 * rng.normal(size=(9, 10))
mu = np.tile([-0.6, -1.5, -2.3], 3)
names = [f"{letter}{number}" for letter in "ABC" for number in (1, 2, 3)]


def simulate(n):
    """Draw features and outcomes of n cases."""
    X = rng.normal(size=(n, 10))
    return X, (X @ beta.T + mu + rng.normal(size=(n, 9)) > 0).astype(float)


X, Y = simulate(400)
X_new, Y_new = simulate(5000)
print(dict(zip(names, Y.sum(axis=0).astype(int).tolist(), strict=True)))

# %%
# The fit
# -------
# Nothing has to be tuned: the size of coefficients, how far outcomes differ and which are related are learned. Labels
# may be missing (NaN). Give a DataFrame for names, or name the leaves as here.

import pandas as pd

model = ct.CoalescentProbit(n_iter=400, burn_in=150, n_chains=2, random_state=0)
model.fit(X, pd.DataFrame(Y, columns=names))

# %%
# Has it converged?
# -----------------
# Look before you interpret. ``r_hat`` is the largest over all coefficients of a ratio that compares the chains with
# each other, and is one when they agree; ``bulk_ess`` is the number of independent draws that the worst coefficient is
# worth. :doc:`/diagnostics` explains the values.

for name in ("r_hat", "bulk_ess", "acceptance"):
    print(f"{name:<11}{np.max(model.diagnostics_[name]):8.3f}")

# %%
# The tree of outcomes
# --------------------
# The heat map has one row per outcome, in the order of the tree. Coefficients whose 95 % interval leaves out zero are
# marked.

draws = model.fit_.coef_draws.reshape(-1, 9, 10)
low, high = np.quantile(draws, [0.025, 0.975], axis=0)
support = model.posterior_.expected_overlap(model.tree_)
ax = plot_outcome_tree(
    model.tree_,
    model.coef_,
    features=features,
    support=support,
    sure=(low > 0) | (high < 0),
)
ax.figure.suptitle("Nine outcomes: their tree and their coefficients")

# %%
# Every node is a model
# ---------------------
# An internal node is the common ancestor of its outcomes: its coefficients are a weighted mean of theirs, and it
# predicts a composite of them. Nodes 0 to 8 are the outcomes, 9 to 16 the merges, 16 the root.

ax = plot_node_models(model.tree_, model.node_coef_, features=features, support=support)
ax.figure.suptitle("What the nodes predict by")
last_but_root = 15
members = [names[i] for i in model.tree_.leaves(last_but_root)]
risk = model.predict_node(X_new, last_but_root)
any_of_them = Y_new[:, model.tree_.leaves(last_but_root)].max(axis=1)
print(
    f"node {last_but_root} ({', '.join(members)}): AUC for any of them {roc_auc_score(any_of_them, risk):.3f}"
)

# %%
# Is it better than one model per outcome?
# ----------------------------------------
# ``compare`` fits every method on the same folds and gives paired bootstrap intervals. Three folds of four hundred
# cases keep this page quick and settle little; benchmarks/regression.md in the repository has ten folds on real tables.

from coaltree.regression.baselines import BASELINES
from coaltree.regression.comparison import compare

ours = ct.CoalescentProbit(n_iter=200, burn_in=80, n_chains=1, random_state=0)
comparison = compare(
    {
        "coalescent": ours,
        "ml_probit": BASELINES["ml_probit"](),
        "ridge": BASELINES["ridge"](),
    },
    X,
    Y,
    n_folds=3,
    outcomes=names,
    n_resamples=200,
)
print(comparison.summary().to_markdown())
print(comparison.differences("coalescent", mean_only=True).to_markdown())

# %%
# Rarest outcome on top. Intervals of one outcome overlap; the paired differences above decide.

ax = plot_auc(comparison)
ax.set_title("Area under the ROC curve, out of fold")

# %%
# Calibration asks whether a predicted ten per cent means one in ten.

ax = plot_calibration(comparison)
ax.set_title("Predicted and observed rates")

# %%
# On new cases
# ------------
# With the truth at hand we can also ask how far the predictions are from the best possible ones.

truth = X_new @ beta.T + mu
ours_new = model.predict_proba(X_new)
alone = BASELINES["ml_probit"]().fit(X, Y).predict_proba(X_new)
for label, p in {
    "true coefficients": truth,
    "coalescent": ours_new,
    "one probit an outcome": alone,
}.items():
    area = np.mean([roc_auc_score(Y_new[:, j], p[:, j]) for j in range(9)])
    print(f"{label:<24}{area:.4f}")
