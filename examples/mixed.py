"""
A mixed table from start to end
===============================

Tables that people keep have numbers, grades, yes and no, names, gaps and errors. This guide takes one from a file to a
tree with expected overlaps, says what was made of each column, and fills the gaps.
"""

# %%
# A public table, as a spreadsheet would hold it
# ----------------------------------------------
# 442 diabetic patients come with scikit-learn: age, sex, body mass index, blood pressure, six measurements of blood
# serum. Here are the first 120, with a name each, sex in words, blood pressure as a grade, and some cells unknown.

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes

import coaltree as ct
from coaltree.plots import plot_dendrogram

patients = load_diabetes(as_frame=True, scaled=False).data.iloc[:120].copy()
patients["sex"] = patients["sex"].map({1.0: "f", 2.0: "m"})
patients["bp"] = pd.cut(
    patients["bp"], [0, 85, 95, 105, 200], labels=["low", "normal", "raised", "high"]
)
hidden = np.random.default_rng(0).random(patients.shape) < 0.05
truth = patients.copy()
patients = patients.mask(hidden)
patients.insert(0, "patient", [f"P{i:03d}" for i in range(120)])

path = Path(tempfile.mkdtemp()) / "patients.csv"
patients.to_csv(path, index=False, na_rep="-")
print(path.read_text()[:260])

# %%
# What columns are taken for
# --------------------------
# One call reads the file as ``coaltree cluster patients.csv --out results`` does and gives the same tree. It says what
# it made of every column. In a file the grades are plain words, whose order is not known: they are taken as a
# categorical column. The names of the patients differ in every row, so they name the leaves.

model = ct.cluster(path, n_draws=100, warmup=150)
print(*model.column_notes_, sep="\n")

# %%
# The tree
# --------
# Dark dots are clades that most draws have, up to a few rows.

support = model.posterior_.expected_overlap(model.tree_)
ax = plot_dendrogram(model.tree_, support=support, max_tips=40)
ax.set_title("120 patients, by columns of every kind")

# %%
# Overrule what is wrong
# ----------------------
# A DataFrame can say that its grades have an order. For anything else use ``columns``: a dict here, a small TOML
# file or ``--columns bmi=continuous`` on the command line. The score of left-out rows shows which of two choices is
# better: the log density of what is continuous, in its own units, and the log probability of the rest.

kept, new = (
    patients.iloc[:100].set_index("patient"),
    patients.iloc[100:].set_index("patient"),
)
kept["bp"] = pd.Categorical(
    kept["bp"], ["low", "normal", "raised", "high"], ordered=True
)
for kinds in ({}, {"bp": "categorical"}):
    fitted = ct.cluster(kept, columns=kinds, n_draws=60, warmup=100)
    print(kinds or "as guessed", round(fitted.score(new), 2), "nats per row")

# %%
# What sets branches apart
# ------------------------
# For every merge of the tree, the columns in which its two sides differ most, by about how many standard deviations,
# and how certain the direction is. In the report of the command this is a table, and levels are shown as bars.

apart = model.splits(2)
for merge in range(-1, -4, -1):
    names = [model.columns_.names[j] for j in apart.column[merge]]
    sides = [
        len(model.tree_.clades()[k - model.n_leaves_].nonzero()[0])
        if k >= model.n_leaves_
        else 1
        for k in model.children_[merge]
    ]
    told = ", ".join(
        f"{name} ({size:.1f}, {sure:.0%} sure)"
        for name, size, sure in zip(
            names, apart.size[merge], apart.sure[merge], strict=True
        )
    )
    print(f"{sides[0]} against {sides[1]} rows: {told}")

# %%
# Fill the gaps
# -------------
# ``impute`` gives numbers as numbers and levels as levels; with ``probabilities`` it also gives the probability of each
# level.

filled, shares = model.impute(probabilities=True)
gaps = hidden[:, list(truth.columns).index("sex")]
guess = filled["sex"].astype(str).to_numpy()[gaps]
print(shares["sex"].round(2))
print("right:", (guess == truth["sex"].to_numpy()[gaps]).sum(), "of", gaps.sum())

# %%
# New patients
# ------------
# Rows that were not in the fit get a cluster, a place in the tree, and their gaps filled. A level that the fit has not
# seen is refused with its name: leave such a cell empty, or fit again.

print(fitted.predict_proba(new.iloc[:3]).round(2))
print(fitted.impute(new.iloc[:3])[["age", "sex", "bmi", "bp"]])
