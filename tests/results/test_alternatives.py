"""How other numbers of clusters are told of."""

import numpy as np
import pytest

import coaltree as ct
from coaltree.results.how_many import describe_others, evidence, groups


def cut(k, score, overlap, groups=""):
    return {"n_clusters": k, "score": score, "mean_expected_overlap": overlap, "groups": groups}


def test_numbers_about_as_good_are_named_with_their_evidence():
    found = [cut(2, 0.51, 0.93, "0 + 2 + 3 are one"), cut(4, 0.55, 0.8, "chosen")]
    found += [cut(5, 0.5, 0.7), cut(6, 0.52, 0.614), cut(9, 0.48, 0.5)]
    assert describe_others(found, 4) == (
        " About as good: 2 (51%, expected overlap 93%), 5–6 (52%, expected overlap 61–70%), 9 (48%, expected overlap "
        "50%). With 2 clusters, 0 + 2 + 3 are one."
    )
    assert describe_others(found[1:2], 4) == ""


def test_groups_of_groups_are_named():
    chosen = np.array([0, 1, 2, 3, -1, 0])
    assert groups(np.array([0, 1, 0, 0, -1, 0]), chosen) == "0 + 2 + 3 are one"
    assert groups(np.array([0, 1, 2, 3, -1, 4]), chosen) == "0 in 2 parts"


def test_evidence_is_that_of_the_cuts():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(48, 3)) + 40.0 * np.eye(3)[np.arange(48) % 2] + 14.0 * np.eye(3)[np.arange(48) % 4 % 3]
    model = ct.CoalescentClustering(n_draws=20, warmup=20, random_state=0).fit(X)
    found = evidence(model)
    numbers = [each["n_clusters"] for each in found]
    assert numbers == sorted({model.n_clusters_, *model.n_clusters_alternatives_})
    assert len(numbers) > 1
    for each in found:
        labels = model.cut(each["n_clusters"])
        expected = model.posterior_.expected_overlap(labels)
        np.testing.assert_allclose(each["expected_overlap"], expected)
        np.testing.assert_allclose(model.n_clusters_overlap_[each["n_clusters"]], expected)
        mean = np.average(expected, weights=np.bincount(labels[labels >= 0]))
        assert each["mean_expected_overlap"] == pytest.approx(mean)
        assert each["groups"] == "chosen" or " " in each["groups"]
    given = ct.CoalescentClustering(2, n_draws=4, warmup=4, random_state=0).fit(X)
    assert evidence(given) == []
    with pytest.raises(AttributeError, match="chosen the number"):
        given.n_clusters_overlap_  # noqa: B018
