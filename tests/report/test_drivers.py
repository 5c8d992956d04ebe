"""Drivers and nodes in words: risks by independent formulas, directions only where an interval leaves out 0."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from coaltree.records.nodes import node_rows
from coaltree.records.review import driver_rows
from coaltree.report.drivers import driver_sentences, risk_after
from coaltree.tree import Tree


def test_risks_after_one_more_unit():
    normal = NormalDist()
    assert risk_after(0.4) == pytest.approx(normal.cdf(normal.inv_cdf(0.1) + 0.4), abs=1e-12)
    assert risk_after(0.4, 0.02, "poisson") == pytest.approx(1 - 0.98 ** math.exp(0.4), abs=1e-12)
    assert risk_after(0.0) == pytest.approx(0.1)


def test_directions_only_where_they_are_sure():
    draws = np.tile([0.5, -0.4, 0.2], (200, 1, 1)) + np.random.default_rng(0).normal(size=(200, 1, 3)) * [0.01, 0.01, 1]
    rows = driver_rows(
        ["Stroke"], ["factor 1: a, b, …", "age", "x"], draws.mean(0), draws, 0.9, 1.0, ["sd", "sd", "record"]
    )
    (line,) = driver_sentences(rows)
    assert line["higher with"].startswith("factor 1 (per sd): 21.")
    assert line["lower with"].startswith("age (per sd): 4.")
    assert line["direction not sure"] == "1 of 3"


def test_regressors_are_ordered_by_what_they_weigh():
    draws = np.ones((5, 1, 2)) * [1.0, 0.5]
    order = [row["regressor"] for row in driver_rows(["y"], "ab", draws[0], draws, 0.9, np.array([0.1, 1.0]))]
    assert order == ["b", "a"]


def test_node_models_are_weighted_means_with_their_supports():
    tree = Tree([[0, 1], [2, 3]], [0.5, 1.0], names=["a", "b", "c"])
    rng = np.random.default_rng(1)
    draws, weights = rng.normal(size=(50, 3, 2)), np.vstack([np.eye(3), [[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]])
    fit = {"support": [0.9, 1.0], "support_error": [0.1, 0.0], "exact": [0.8, 1.0], "exact_error": [0.02, 0.0]}
    rows = node_rows(tree, fit | {"node_weights": weights}, draws, ["x", "y"], np.ones(2), 0.9)
    assert [row["outcomes"] for row in rows] == ["a + b + c", "a + b"]
    pair = rows[1]
    assert (pair["overlap low"], pair["overlap high"]) == (0.704, 1.0)
    assert (pair["support low"], pair["support high"]) == (0.761, 0.839)
    mean = 0.5 * (draws[:, 0] + draws[:, 1])
    for place in (1, 2):
        k = ["x", "y"].index(pair[f"regressor {place}"])
        assert pair[f"coefficient {place}"] == pytest.approx(mean[:, k].mean(), abs=1e-4)
        assert pair[f"low {place}"] == pytest.approx(np.quantile(mean[:, k], 0.05), abs=1e-4)
