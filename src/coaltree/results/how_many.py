"""How many clusters: the choice in words, and the evidence for it and for other numbers that are about as good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from coaltree._arrays import Floats, Ints

if TYPE_CHECKING:
    from coaltree.estimators.clustering import CoalescentClustering


def evidence(model: CoalescentClustering) -> list[dict[str, Any]]:
    """One entry per number of clusters, the chosen one and its alternatives; none if the number was given.

    Its score, the share of draws that would choose it, its clusters' sizes and expected overlaps, the mean of these
    over rows, and how its clusters are related to those chosen.
    """
    if not hasattr(model, "n_clusters_alternatives_"):
        return []
    found = []
    for k, overlap in model.n_clusters_overlap_.items():
        labels = model.cut(k)
        sizes = np.bincount(labels[labels >= 0], minlength=k)
        found.append(
            {
                "n_clusters": k,
                "score": model.cluster_scores_[k],
                "share_of_draws": model.n_clusters_probability_.get(k, 0.0),
                "cluster_sizes": sizes.tolist(),
                "expected_overlap": overlap.tolist(),
                "mean_expected_overlap": _mean(overlap, sizes),
                "groups": "chosen" if k == model.n_clusters_ else groups(labels, model.labels_),
            }
        )
    return found


def groups(labels: Ints, chosen: Ints) -> str:
    """How the clusters of one cut are related to those of another, in words: "1 + 2 are one", "0 in 3 parts"."""
    kept = (labels >= 0) & (chosen >= 0)
    before, after = np.unique(np.stack([chosen[kept], labels[kept]]), axis=1)
    joined = [before[after == c] for c in np.unique(after)]
    parts = [(c, int((before == c).sum())) for c in np.unique(before)]
    return "; ".join(
        [
            *(f"{' + '.join(map(str, group))} are one" for group in joined if len(group) > 1),
            *(f"{c} in {count} parts" for c, count in parts if count > 1),
        ]
    )


def describe_choice(model: CoalescentClustering) -> str:
    """How the number of clusters was chosen, and which others are about as good."""
    n_clusters, scores = model.n_clusters_, getattr(model, "cluster_scores_", {})
    if not scores:
        return f"{n_clusters} clusters were asked for."
    if len(model.posterior_) == 1:
        if n_clusters == 1:
            return "Rows are no closer to their own than in a cloud without clusters, so all are one cluster."
        return (
            f"With {n_clusters} clusters rows are closer to their own than in a cloud without clusters, by "
            f"{scores[n_clusters]:.2f} of the distance to others."
        )
    of_draws = f"{model.n_clusters_probability_.get(n_clusters, 0.0):.0%} of the draws on their own agree."
    if n_clusters == 1:
        return f"No cut separates rows that merge early from rows that merge late, so all are one cluster; {of_draws}"
    found = evidence(model)
    (own,) = (each for each in found if each["n_clusters"] == n_clusters)
    return (
        f"{n_clusters} clusters separate rows best: they merge with their own earlier than with others, by "
        f"{scores[n_clusters]:.0%} of the time on average, and the expected overlap of the clusters is "
        f"{own['mean_expected_overlap']:.0%}; {of_draws}{describe_others(found, n_clusters)}"
    )


def describe_others(found: Sequence[Mapping[str, Any]], chosen: int) -> str:
    """Other numbers about as good, with their evidence, and which clusters the nearest smaller one takes together."""
    others = [each for each in found if each["n_clusters"] != chosen]
    if not others:
        return ""
    words = f" About as good: {', '.join(map(_run_words, _runs(others)))}."
    fewer = [each for each in others if each["n_clusters"] < chosen]
    if fewer:
        words += f" With {fewer[-1]['n_clusters']} clusters, {fewer[-1]['groups']}."
    return words


def _mean(overlap: Floats, sizes: Ints) -> float:
    return float(np.average(overlap, weights=sizes))


def _runs(cuts: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Cuts by increasing number of clusters, neighbours together."""
    runs: list[list[Mapping[str, Any]]] = []
    for each in cuts:
        if runs and each["n_clusters"] == runs[-1][-1]["n_clusters"] + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def _run_words(run: list[Mapping[str, Any]]) -> str:
    """A run of numbers, the highest of their scores and their expected overlaps: 5–7 (42%, expected overlap 61–70%)."""
    span = str(run[0]["n_clusters"]) if len(run) == 1 else f"{run[0]['n_clusters']}–{run[-1]['n_clusters']}"
    shares = sorted({f"{each['mean_expected_overlap']:.0%}" for each in run}, key=lambda share: int(share[:-1]))
    overlap = shares[0] if len(shares) == 1 else f"{shares[0][:-1]}–{shares[-1]}"
    return f"{span} ({max(each['score'] for each in run):.0%}, expected overlap {overlap})"
