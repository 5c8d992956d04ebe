"""One random forest for all outcomes, stored as plain arrays: grown by scikit-learn, tuned and evaluated out of bag.

A split is chosen for all outcomes at once, each in units of its standard deviation, so that rare ones count. Missing
labels are set to their outcome's rate while trees grow, and are ignored when the forest is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logit

from coaltree._arrays import Floats, Singles, SmallInts
from coaltree._compile import kernel

LEAF_SIZES, SHARES = (1, 3, 8), ("sqrt", 1.0 / 3.0)
N_TUNING, N_TREES = 40, 250
# Leaves are made large enough that all leaves together hold about this many numbers at most.
MOST_NUMBERS = 25_000_000
# With more features than this, a third of them is too many to try at each split.
MANY_FEATURES = 500
# Votes are shrunk towards the event rate, which counts as one more tree beside this many.
PULL = 20.0


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees one after another: `left` and `right` are nodes, −1 for leaves."""

    feature: SmallInts  # (nodes,)
    threshold: Floats  # (nodes,)
    left: SmallInts  # (nodes,)
    right: SmallInts  # (nodes,)
    value: SmallInts  # (nodes,), the leaf's row of `votes`
    votes: Singles  # (leaves, P), rates in leaves
    roots: SmallInts  # (trees,)
    rates: Floats  # (P,)

    def predict(self, X: Any) -> Floats:
        """Mean votes, (N, P)."""
        rows = np.ascontiguousarray(X, dtype=np.float32)
        out = np.zeros((len(rows), self.votes.shape[1]))
        _vote(rows, self.feature, self.threshold, self.left, self.right, self.value, self.votes, self.roots, out)
        return out

    def logits(self, X: Any) -> Floats:
        """Log odds of the votes, (N, P)."""
        return log_odds(self.predict(X), self.rates)


@kernel
def _vote(
    rows: Singles,
    feature: SmallInts,
    threshold: Floats,
    left: SmallInts,
    right: SmallInts,
    value: SmallInts,
    votes: Singles,
    roots: SmallInts,
    out: Floats,
) -> None:
    for i in range(rows.shape[0]):
        for root in roots:
            node = root
            while left[node] >= 0:
                node = left[node] if rows[i, feature[node]] <= threshold[node] else right[node]
            leaf = value[node]
            for j in range(out.shape[1]):
                out[i, j] += votes[leaf, j] / roots.size


def log_odds(votes: Floats, rates: Floats) -> Floats:
    """Log odds of votes, shrunk a little towards the rates: those of exactly 0 or 1 would be infinite."""
    return np.asarray(logit((PULL * np.clip(votes, 0.0, 1.0) + rates) / (PULL + 1.0)))


def grow_forest(X: Floats, Y: Floats, weights: Floats, rates: Floats, seed: int) -> tuple[Forest, Floats]:
    """Choose leaf size and features per split by out-of-bag log loss; return the forest and out-of-bag votes (N, P)."""
    from sklearn.ensemble import RandomForestRegressor

    n, n_outcomes = Y.shape
    known = ~np.isnan(Y)
    deviation = np.sqrt(rates * (1.0 - rates))
    targets = np.where(known, Y, rates) / deviation
    targets = targets[:, 0] if n_outcomes == 1 else targets  # scikit-learn wants one outcome as a vector
    rows = np.ascontiguousarray(X, dtype=np.float32)
    smallest = 1 + n * n_outcomes * N_TREES // MOST_NUMBERS
    sizes = sorted({max(size, smallest) for size in LEAF_SIZES if size <= max(n // 20, 1)})
    best, lowest, least = None, np.inf, np.zeros(0)
    for size in sizes:
        for share in SHARES if X.shape[1] <= MANY_FEATURES else SHARES[:1]:
            forest = RandomForestRegressor(
                N_TUNING, min_samples_leaf=size, max_features=share, bootstrap=True, warm_start=True, random_state=seed
            ).fit(rows, targets, weights)
            votes = _out_of_bag(forest, rows, deviation, rates)
            p = (PULL * votes + rates) / (PULL + 1.0)
            losses = -np.log(np.where(Y == 1.0, p, 1.0 - p)) * weights[:, None]
            loss = float(losses[known].sum())
            if loss < lowest:
                best, lowest, least = forest, loss, votes
    assert best is not None
    if n > 1:
        best.set_params(n_estimators=N_TREES).fit(rows, targets, weights)
        least = _out_of_bag(best, rows, deviation, rates)
    return _plain(best, deviation, rates), least


def _out_of_bag(forest: Any, rows: Singles, deviation: Floats, rates: Floats) -> Floats:
    """Mean vote of the trees that did not see a row; a row that every tree has seen gets the rates."""
    total, seen = np.zeros((len(rows), len(rates))), np.zeros((len(rows), 1))
    for tree, chosen in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        out = np.ones(len(rows), dtype=bool)
        out[chosen] = False
        total[out] += tree.predict(rows[out]).reshape(int(out.sum()), -1)
        seen[out] += 1.0
    return np.clip(np.where(seen > 0, total * deviation / np.maximum(seen, 1.0), rates), 0.0, 1.0)


def _plain(forest: Any, deviation: Floats, rates: Floats) -> Forest:
    parts: dict[str, list[npt.NDArray[Any]]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "value", "votes")
    }
    roots, first, n_leaves = [], 0, 0
    for estimator in forest.estimators_:
        tree = estimator.tree_
        leaf = tree.children_left < 0
        roots.append(first)
        parts["feature"].append(np.where(leaf, 0, tree.feature))
        parts["threshold"].append(tree.threshold)
        parts["left"].append(np.where(leaf, -1, tree.children_left + first))
        parts["right"].append(np.where(leaf, -1, tree.children_right + first))
        parts["value"].append(np.where(leaf, n_leaves + np.cumsum(leaf) - 1, 0))
        parts["votes"].append((tree.value[leaf, :, 0] * deviation).astype(np.float32))
        first += tree.node_count
        n_leaves += int(leaf.sum())
    whole = {name: np.concatenate(values) for name, values in parts.items()}
    integers = {name: whole[name].astype(np.int32) for name in ("feature", "left", "right", "value")}
    return Forest(
        threshold=whole["threshold"].astype(np.float64),
        votes=whole["votes"],
        roots=np.array(roots, dtype=np.int32),
        rates=rates,
        **integers,
    )
