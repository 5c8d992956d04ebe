"""One tree in every file and picture of a clustering, the same by the command and in Python."""

import base64
import csv
import json
import re
import subprocess
import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import LineCollection

import coaltree as ct
from coaltree.plots.dendrogram import plot_dendrogram
from coaltree.plots.densitree import plot_densitree

N, DRAWS = 36, 30
pytestmark = [pytest.mark.slow, pytest.mark.ci]


def clades(tree):
    """Time of every clade, by the names of its rows."""
    names, held = tree.leaf_names, {i: frozenset([i]) for i in range(tree.n_leaves)}
    for k, (left, right) in enumerate(tree.children.tolist()):
        held[tree.n_leaves + k] = held[left] | held[right]
    return {frozenset(names[i] for i in held[tree.n_leaves + k]): time for k, time in enumerate(tree.times.tolist())}


def drawn(ax, segments):
    """The same of a drawing: lines from a node, (time, place), to its parent, rows named by the ticks."""
    names = {float(at): tick.get_text() for at, tick in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True)}
    point = {"from": lambda line: tuple(map(float, line[0])), "to": lambda line: tuple(map(float, line[-1]))}
    up = {point["from"](line): point["to"](line) for line in segments}
    found = {}
    for time, place in up:
        if time == 0.0:
            node = time, place
            while node in up:
                node = up[node]
                found.setdefault(node, set()).add(names[place])
    return {frozenset(rows): time for (time, _), rows in found.items()}


def segments(ax, points):
    lines = [line for each in ax.collections if isinstance(each, LineCollection) for line in each.get_segments()]
    return [line for line in lines if len(line) == points]


def on_page(path, names):
    """Tree and intervals that the page draws."""
    markup = path.read_text(encoding="utf-8")
    found = re.search(r'data-widget="clustering"><script type="application/json">(.*?)</script>', markup, re.DOTALL)
    data = json.loads(found[1])

    def unpacked(key):
        value = data[key]
        return np.frombuffer(base64.b64decode(value["data"]), dtype=f"<{value['dtype']}").reshape(value["shape"])

    times, low, high = (data["unit"] * unpacked(key).astype(float) for key in ("times", "low", "high"))
    return ct.Tree(unpacked("children").astype(int), times, names), low, high


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for rows, time in expected.items():
        assert found[rows] == pytest.approx(time, rel=1e-4, abs=1e-9)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    rng = np.random.default_rng(11)
    X = rng.normal(size=(N, 3)) + 4.0 * rng.normal(size=(3, 3))[np.arange(N) % 3]
    lines = [f"r{i:02}," + ",".join(f"{value:.4f}" for value in row) for i, row in enumerate(X)]
    (folder / "t.csv").write_text("\n".join(["name,a,b,c", *lines]) + "\n", encoding="utf-8")
    chosen = ["--draws", str(DRAWS), "--warmup", "20", "--out", "out", "--quiet"]
    command = [sys.executable, "-m", "coaltree", "cluster", "t.csv", *chosen]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so short a chain
        model = ct.cluster(folder / "t.csv", n_draws=DRAWS, warmup=20)
    return folder / "out", model


def test_one_tree_everywhere(results):
    folder, model = results
    expected, tree = clades(model.tree_), model.tree_
    assert_same(clades(ct.Tree.from_newick((folder / "tree.nwk").read_text())), expected)
    assert_same(clades(ct.Tree.from_nexus((folder / "tree.nex").read_text())), expected)
    with open(folder / "linkage.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    linkage = np.array([[float(row[key]) for key in ("left", "right", "time", "size")] for row in rows])
    assert_same(clades(ct.Tree.from_linkage(linkage, tree.leaf_names)), expected)
    page, low, high = on_page(folder / "report.html", tree.leaf_names)
    assert_same(clades(page), expected)
    ax = plot_dendrogram(model)
    assert_same(drawn(ax, segments(ax, 3)), expected)
    order = [tick.get_text() for tick in ax.get_yticklabels()]
    ax = plot_densitree(model.posterior_)
    assert_same(drawn(ax, segments(ax, 2)[-2 * (N - 1) :]), expected)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == order
    plt.close("all")
    # Every time in its own interval, and children before parents.
    intervals = np.array([[float(row["time_low"]), float(row["time_high"])] for row in rows])
    np.testing.assert_allclose(np.stack([low, high], axis=1), intervals, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(model.posterior_.time_intervals(tree, 0.9), intervals, rtol=1e-5, atol=1e-9)
    slack = 1e-9 * tree.times[-1]
    assert (intervals[:, 0] <= tree.times + slack).all()
    assert (tree.times <= intervals[:, 1] + slack).all()
    for rows_of, time in expected.items():
        assert all(other <= time + slack for inner, other in expected.items() if inner < rows_of)
    # The control: a draw is another tree.
    with pytest.raises(AssertionError):
        assert_same(clades(model.posterior_[0]), expected)


def test_labels_are_branches_and_the_same_in_python(results):
    folder, model = results
    with open(folder / "labels.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == list(model.tree_.leaf_names)
    assert [int(row["cluster"]) for row in rows] == model.labels_.tolist()
    outliers = {row["id"] for row in rows if row["cluster"] == "-1"}
    branches = [rows - outliers for rows in clades(model.tree_)] + [{row["id"]} for row in rows]
    for c in range(model.n_clusters_):
        assert {row["id"] for row in rows if int(row["cluster"]) == c} in branches
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["n_clusters"] == model.n_clusters_
    numbers = [each["n_clusters"] for each in summary["n_clusters_evidence"]]
    assert numbers == sorted((model.n_clusters_, *model.n_clusters_alternatives_))
