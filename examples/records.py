"""
Medical records: from dated codes to future cost
================================================

Dated codes of patients in; a cohort, features, outcomes, a tree of outcomes and a forecast of cost out. The guide uses
a small simulated cohort in which the truth is known, and the Python functions one by one. A whole study, with
cross-validation, temporal validation and a report, is one command, ``coaltree records study``: see :doc:`/records`.

This guide needs the extra ``records``: ``pip install 'coaltree[records]'``.
"""

# %%
# A cohort to try things on
# -------------------------
# ``simulate_cohort`` writes events in the MEDS layout with a tree of 21 outcomes that is known, and with traps that
# real data have: mixed spellings of codes, events without a date, duplicates, patients who leave.

import tempfile
from pathlib import Path

import numpy as np

import coaltree as ct
from coaltree import records
from coaltree.plots import plot_outcome_tree
from coaltree.plots.records import plot_cost_curves

scratch = tempfile.TemporaryDirectory()
folder = records.simulate_cohort(
    Path(scratch.name) / "cohort", n_subjects=1500, n_factors=6, seed=1
)
events = records.open_events(folder)
print(f"{len(events.codes):,} spellings of {len(set(events.codes.values())):,} codes")

# %%
# Who is studied
# --------------
# Features come from the window before a threshold date, outcomes from the one after it, and no day may be in both. The
# shipped definitions include patients with diabetes. ``attrition`` shows how many each rule leaves.

outcomes = records.load_outcomes()
rule = records.CohortRule(lookback_days=183, horizon_days=365)
cohort = records.build_cohort(events, "2009-01-01", rule, outcomes.inclusion)
for text, left in cohort.attrition:
    print(f"{left:6,}  {text}")

# %%
# What happened to them
# ---------------------
# A label is 1, 0 or undefined (NaN): undefined where observation ended before the answer, or where the outcome had
# happened before. The regression takes NaN as it is. We keep outcomes with at least thirty events.

labels = records.build_labels(events, cohort, outcomes)
n_events = np.nansum(labels.Y, axis=0)
kept = np.flatnonzero(n_events >= 30)
Y, names = labels.Y[:, kept], [outcomes.names[j] for j in kept]
print(
    f"{len(kept)} of {len(n_events)} outcomes; undefined labels: {np.isnan(Y).mean():.0%}"
)

# %%
# Features
# --------
# Counts of codes are factorised, by default with non-negative matrix factorisation. Bills are left out: they are for
# the costs.

counts = records.count_codes(events, cohort, exclude=["HCPCS//"])
factors = records.CodeFactors(n_factors=6)
X = factors.fit_transform(counts)
for k, codes in enumerate(factors.top_codes(3)):
    print(
        f"factor {k + 1}:", ", ".join(f"{code} ({share:.0%})" for code, share in codes)
    )

# %%
# Outcomes over a learned tree
# ----------------------------
# A short run, to keep this page quick. For a result use the defaults at least, and read :doc:`/diagnostics`.

import pandas as pd

model = ct.CoalescentProbit(n_iter=250, burn_in=100, n_chains=1, random_state=0)
model.fit(X, pd.DataFrame(Y, columns=names))
support = model.posterior_.expected_overlap(model.tree_)
ax = plot_outcome_tree(
    model.tree_,
    model.coef_,
    features=[f"factor {k + 1}" for k in range(6)],
    support=support,
)
ax.figure.suptitle("Outcomes of the simulated cohort")

# %%
# Which node predicts cost?
# -------------------------
# Every node of the tree is a model of risk. Cost after the threshold comes from a price table (or from payments in the
# data), and each day is weighted by the probability of still being observed. The node whose risk has the highest rank
# correlation with cost is the outcome, single or composite, that matters for planning.

costs = records.future_costs(events, cohort, records.load_prices(folder / "prices.csv"))
risk = np.column_stack(
    [model.predict_node(X, node) for node in range(2 * len(names) - 1)]
)
separation = records.node_separation(costs, risk, n_resamples=100, random_state=0)
members = [names[leaf] for leaf in model.tree_.leaves(separation.best)]
print("best node:", " + ".join(members))

# %%
# Cost by quarters of that risk, with pointwise bootstrap bands. The node was chosen on these same patients, so the
# separation flatters itself; ``coaltree records study`` draws this picture for a later threshold.

curves = records.cost_curves(
    costs, risk[:, separation.best], n_resamples=100, random_state=0
)
ax = plot_cost_curves(curves)
ax.set_title("Mean cumulative cost by quarters of risk")

# %%
# Everything at once
# ------------------
# The same steps, validated and reported, from the shell:
#
# .. code-block:: sh
#
#    coaltree records simulate --subjects 2000 --out cohort
#    coaltree records study cohort/study.toml --out study --quick

scratch.cleanup()
