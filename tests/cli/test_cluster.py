"""`coaltree cluster`: what it writes, that it repeats, what it refuses without leaving anything behind."""

import csv
import json
import os
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from typer.testing import CliRunner

import coaltree as ct
from coaltree import formats
from coaltree.cli import app
from coaltree.inference.learning import running
from coaltree.posterior.hierarchy import make_hierarchy
from coaltree.results.clustering import MEANING

N = 14
NASTY = "</script><img src=x onerror=alert(1)>"
QUICK = ("--draws", 20, "--warmup", 20)


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "400"})
    result.text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.output).split())
    return result


def write_table(path, n=N):
    """Two clouds far apart, in columns of very different units."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)) + 8.0 * (np.arange(n) % 2)[:, None]
    rows = [[f"row {i}" if i else NASTY, x, 1000 * y, "text"] for i, (x, y) in enumerate(X)]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "x", "y", "kind"], *rows])
    return X


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    X = write_table(folder / "my table.csv")
    out = folder / "result"
    before = os.getcwd()
    os.chdir(folder)
    try:
        result = invoke(
            "cluster", "my table.csv", "--out", "result", "--id-column", "id", "--drop", "kind", "--seed", 3, *QUICK
        )
    finally:
        os.chdir(before)
    assert result.exit_code == 0, result.output
    return out, result, X


@pytest.fixture(scope="module")
def summary(run):
    return json.loads((run[0] / "summary.json").read_text(encoding="utf-8"))


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_writes_its_files_and_nothing_else(run):
    out, result, _ = run
    assert sorted(path.name for path in out.iterdir()) == sorted(MEANING)
    assert sorted(path.name for path in out.parent.iterdir()) == ["my table.csv", "result"]
    assert all(name in result.output for name in MEANING)
    assert "Columns are standardised" in result.output


def test_summary(summary):
    assert summary["command"] == "coaltree cluster"
    assert summary["version"] == ct.__version__
    assert summary["seed"] == 3
    assert summary["parameters"]["n_draws"] == 20
    assert summary["parameters"]["n_chains"] == 2
    assert summary["parameters"]["method"] == "chain"
    assert summary["parameters"]["covariance"] == "spherical"  # there are numbers alone
    assert summary["table"]["features"] == ["x", "y"]
    assert summary["table"]["n_rows"] == N
    assert summary["n_clusters"] == 2
    assert summary["cluster_sizes"] == [N // 2, N // 2]
    assert summary["finished"] is True
    assert 0.9 < summary["convergence"]["r_hat"]["log_joint"] < 3.0
    assert summary["variances"] > 0  # one number, for all columns have the same
    assert "covariance" not in summary
    assert summary["learned"]["leaf_noise"]["n_draws"] == 2 * 10 * summary["parameters"]["thin"]


def test_files_agree_with_each_other(run, summary):
    out = run[0]
    post = ct.TreePosterior.load(out / "posterior.npz")
    tree, support = formats.newick_with_support((out / "tree.nwk").read_text(encoding="utf-8"), names=post.names)
    assert post.names[0] == NASTY
    np.testing.assert_allclose(tree.cophenetic(), make_hierarchy(post).tree.cophenetic(), rtol=1e-5)
    np.testing.assert_allclose(support, post.transfer_support(tree), atol=1e-5)
    trees, weights = formats.nexus_with_weights((out / "posterior.nex").read_text(encoding="utf-8"))
    np.testing.assert_allclose(weights, post.weights)
    np.testing.assert_allclose(trees[1].cophenetic(), post[1].cophenetic(), rtol=1e-4)
    annotated = (out / "tree.nex").read_text(encoding="utf-8")
    (same,) = formats.from_nexus(annotated)
    np.testing.assert_allclose(same.cophenetic(), tree.cophenetic(), rtol=1e-4)
    assert annotated.count("height_95%_HPD={") == N - 1
    linkage = read_csv(out / "linkage.csv")
    Z = [[float(row[key]) for key in ("left", "right", "time", "size")] for row in linkage]
    assert ct.Tree.from_linkage(Z, names=post.names) == make_hierarchy(post).tree
    shown = make_hierarchy(post).tree
    for name, values in (
        ("expected_overlap", post.expected_overlap(shown)),
        ("expected_overlap_error", post.overlap_error(shown)),
        ("exact_support", post.clade_support(shown)),
    ):
        np.testing.assert_allclose([float(row[name]) for row in linkage], values, atol=1e-4)
    for row in linkage:
        assert float(row["time_low"]) <= float(row["time"]) <= float(row["time_high"])
    labels = read_csv(out / "labels.csv")
    assert [row["id"] for row in labels] == list(post.names)
    found = np.array([int(row["cluster"]) for row in labels])
    np.testing.assert_array_equal(found, make_hierarchy(post).cut(summary["n_clusters"]))
    np.testing.assert_array_equal(found, np.arange(N) % 2)  # the two clouds
    overlap = [each["expected_overlap"] for each in summary["clusters"]]
    np.testing.assert_allclose(overlap, post.expected_overlap(found))
    shown = [float(row["cluster_expected_overlap"]) for row in labels]
    np.testing.assert_allclose(shown, np.array(overlap)[found], atol=1e-4)
    with np.load(out / "coclustering.npz", allow_pickle=False) as stored:
        np.testing.assert_allclose(stored["probability"], post.coclustering(2), atol=1e-6)
        assert stored["ids"].tolist() == list(post.names)


def test_report_opens_and_its_labels_are_inert(run, open_page):
    window = open_page(run[0] / "report.html")
    assert window.title == "my table.csv"
    assert window.execute_script("return document.querySelectorAll('table.clusters tbody tr').length") == 2
    assert window.execute_script("return document.querySelectorAll('img[src=x]').length") == 0


def test_command_in_the_summary_writes_the_same_bytes(run, summary, monkeypatch):
    out = run[0]
    words = shlex.split(summary["command_line"])
    assert words[:2] == ["coaltree", "cluster"]
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    monkeypatch.chdir(out.parent)
    (out.parent / "first").mkdir()
    for path in out.iterdir():
        path.rename(out.parent / "first" / path.name)
    result = invoke(*words[1:])
    assert result.exit_code == 0, result.output
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    result = invoke(*words[1:], "--overwrite", "--jobs", 1)
    assert result.exit_code == 0, result.output
    changed = {path.name for path in out.iterdir() if path.read_bytes() != before[path.name]}
    assert changed == {"summary.json", "report.html"}  # they hold the command, which has two more words


def test_options_reach_the_fit(tmp_path):
    write_table(tmp_path / "t.csv")
    result = invoke(
        "cluster", tmp_path / "t.csv", "--out", tmp_path / "out", "--features", "x,y", "--n-clusters", 3,
        "--scale", "none", "--covariance", "diagonal", "--leaf-noise", "0.01", "--chains", 3, *QUICK,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["n_clusters"] == 3
    assert summary["n_clusters_chosen_by"] == "3 clusters were asked for."
    assert summary["leaf_noise"] == 0.01
    assert summary["parameters"]["covariance"] == "diagonal"
    first, second = summary["variances"]
    assert second > 1e4 * first  # in the columns' own units
    assert "--scale none" in summary["command_line"]
    assert summary["parameters"]["n_chains"] == 3


def test_a_full_covariance_is_written_as_a_matrix(tmp_path):
    write_table(tmp_path / "t.csv")
    invoke(
        "cluster", tmp_path / "t.csv", "--out", tmp_path / "out", "--features", "x,y", "--covariance", "wishart", *QUICK
    )
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert np.shape(summary["covariance"]) == (2, 2)
    assert "variances" not in summary


def test_bad_input_leaves_nothing(tmp_path):
    write_table(tmp_path / "t.csv")
    good = [tmp_path / "t.csv", "--features", "x,y"]
    (tmp_path / "file").write_text("mine")
    cases = [
        ([*good, "--columns", "x=round"], "columns['x'] must be one of"),
        ([*good, "--columns", "z=count"], "columns names 'z', not in the table"),
        ([*good, "--dates", "months"], 'dates must be "days" or "ignore"'),
        ([tmp_path / "none.csv"], "is not there"),
        ([*good, "--leaf-noise", "-1"], "must be a number that is not negative, or learn"),
        ([*good, "--n-clusters", N + 1], "more than the 14 rows"),
        ([*good, "--covariance", "round"], "spherical"),
        ([*good, "--method", "best"], "greedy"),
        ([*good, "--jobs", 0], "must be -1 or at least 1"),
    ]
    for arguments, message in cases:
        result = invoke("cluster", *arguments, "--out", tmp_path / "out")
        assert result.exit_code == 2, result.output
        assert message in result.text
    result = invoke("cluster", *good, "--out", tmp_path / "file")
    assert result.exit_code == 2
    assert "exists" in result.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "t.csv"]


@pytest.mark.parametrize(
    ("settings", "flags", "in_python", "in_shell"),
    [
        ({"id_column": "z"}, ("--id-column", "z"), "`id_column` 'z' is not", "--id-column 'z' is not"),
        ({"drop": ["z"]}, ("--drop", "z"), "`drop` names 'z'", "--drop names 'z'"),
        ({"n_clusters": 99}, ("--n-clusters", "99"), "`n_clusters` 99 is more", "--n-clusters 99 is more"),
        ({}, (), "with `overwrite=True`", "with --overwrite"),
    ],
)
def test_messages_name_what_the_caller_gave(settings, flags, in_python, in_shell, tmp_path, run):
    write_table(tmp_path / "t.csv")
    out = tmp_path / "out" if settings else run[0]
    with pytest.raises(ct.CoaltreeError) as caught:
        ct.results.cluster(tmp_path / "t.csv", out, **settings)
    assert in_python in str(caught.value)
    result = invoke("cluster", tmp_path / "t.csv", "--out", out, *flags)
    assert result.exit_code == 2
    assert in_shell in result.text


def test_existing_folders(tmp_path, run):
    write_table(tmp_path / "t.csv")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    for flags, message in (((), "exists"), (("--overwrite",), "was not made by `coaltree cluster`")):
        result = invoke("cluster", tmp_path / "t.csv", "--features", "x,y", "--out", mine, *flags)
        assert result.exit_code == 2
        assert message in result.text
    result = invoke("cluster", tmp_path / "t.csv", "--features", "x,y", "--out", run[0])
    assert result.exit_code == 2
    assert "--overwrite" in result.text
    assert [path.name for path in mine.iterdir()] == ["notes.txt"]


def test_folder_that_cannot_be_written(tmp_path, monkeypatch):
    write_table(tmp_path / "t.csv")

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    result = invoke("cluster", tmp_path / "t.csv", "--features", "x,y", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "Permission denied. Choose a folder that you can write to" in result.text
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_duplicates_without_noise_are_refused_with_advice(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,2\n1,2\n3,4\n")
    result = invoke("cluster", tmp_path / "t.csv", "--out", tmp_path / "out", "--leaf-noise", 0)
    assert result.exit_code == 2
    assert "leaf_noise" in result.text
    assert not (tmp_path / "out").exists()


def test_greedy_tree_of_an_incomplete_table(tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 3))
    X[3, 1] = np.nan
    np.save(tmp_path / "t.npy", X)
    result = invoke("cluster", tmp_path / "t.npy", "--out", tmp_path / "out", "--method", "greedy", *QUICK)
    assert result.exit_code == 0, result.output
    assert "Missing values: 1" in result.text
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["parameters"]["method"] == "greedy"
    assert summary["convergence"] is None
    report, newick, annotated = (
        (tmp_path / "out" / name).read_text() for name in ("report.html", "tree.nwk", "tree.nex")
    )
    assert "There is one tree only" in report
    assert "not known: one greedy tree" in report
    assert "Who belongs together" not in report  # one tree has no probabilities
    _, support = formats.newick_with_support(newick)
    assert np.isnan(support).all()
    assert "posterior=" not in annotated
    rows = read_csv(tmp_path / "out" / "linkage.csv")
    assert len(rows) == 19
    assert {row[key] for row in rows for key in ("expected_overlap", "exact_support", "time_low", "time_high")} == {""}


def test_many_rows_have_files_of_a_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr("coaltree.results.clustering.MOST_PAIRED", 30)
    monkeypatch.setattr("coaltree.posterior.coclustering.spread_rows.__defaults__", (20,))
    monkeypatch.setattr("coaltree.results.folder._MOST_NEXUS_LEAVES", 120)
    np.save(tmp_path / "t.npy", np.random.default_rng(0).normal(size=(40, 2)))
    result = invoke("cluster", tmp_path / "t.npy", "--out", tmp_path / "out", "--n-clusters", 3, *QUICK)
    assert result.exit_code == 0, result.output
    post = ct.TreePosterior.load(tmp_path / "out" / "posterior.npz")
    with np.load(tmp_path / "out" / "coclustering.npz") as stored:
        rows = [post.names.index(name) for name in stored["ids"]]
        assert 18 <= len(rows) <= 24
        np.testing.assert_allclose(stored["probability"], post.coclustering(3)[np.ix_(rows, rows)], atol=1e-6)
    text = (tmp_path / "out" / "posterior.nex").read_text()
    trees, weights = formats.nexus_with_weights(text)
    assert len(trees) == 3
    assert f"[3 of {len(post)} trees" in text
    np.testing.assert_allclose(weights.sum(), 1.0)
    np.testing.assert_allclose(trees[-1].cophenetic(), post[len(post) - 1].cophenetic(), rtol=1e-4)


def test_an_interrupt_is_told_everywhere(tmp_path, monkeypatch):
    """Ctrl-C ends with what is done, and terminal, report and summary say so."""
    write_table(tmp_path / "t.csv")
    monkeypatch.setattr(running, "SECONDS_A_BLOCK", 0.0)
    original = running._rounds

    def interrupted(*given):
        for number, _ in enumerate(original(*given)):
            if number == 25:
                raise KeyboardInterrupt
            yield

    monkeypatch.setattr(running, "_rounds", interrupted)
    result = invoke("cluster", tmp_path / "t.csv", "--features", "x,y", "--out", tmp_path / "out", *QUICK)
    assert result.exit_code == 0, result.output
    told = "Stopped early, after 25 of "
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["finished"] is False
    assert summary["warnings"][0].startswith(told)
    assert told in result.text
    assert told in (tmp_path / "out" / "report.html").read_text()


def test_doubts_are_the_same_everywhere(tmp_path):
    """One warning, in Python, in the terminal, in the report and in summary.json."""
    write_table(tmp_path / "t.csv")
    result = invoke(
        "cluster", tmp_path / "t.csv", "--features", "x,y", "--out", tmp_path / "out", "--draws", 2, "--warmup", 0
    )
    assert result.exit_code == 0, result.output
    (told,) = json.loads((tmp_path / "out" / "summary.json").read_text())["warnings"]
    assert told.startswith("Not ")
    assert told in result.text
    assert told in (tmp_path / "out" / "report.html").read_text()


# ---- pieces


def test_the_fit_is_the_estimator_s(tmp_path):
    """A DataFrame in Python gives the folder that the command writes from its file, and the estimator's trees."""
    X = np.random.default_rng(0).normal(size=(30, 2)) + 6.0 * (np.arange(30) % 2)[:, None]
    names = tuple(f"row {i}" for i in range(30))
    frame = pd.DataFrame(X, index=names, columns=["x", "y"])
    found = ct.results.cluster(frame, tmp_path / "python", n_draws=20, warmup=20, scale="none")
    model = ct.CoalescentClustering(n_draws=20, warmup=20, random_state=0).fit(X)
    fitted = found.model
    assert fitted.posterior_.names == fitted.tree_.names == names
    np.testing.assert_array_equal(fitted.posterior_.times, model.posterior_.times)
    np.testing.assert_array_equal(fitted.tree_.children, model.tree_.children)
    assert fitted.n_clusters_ == model.n_clusters_ == 2
    np.testing.assert_array_equal(fitted.compact_covariance_, model.compact_covariance_)
    frame.to_csv(tmp_path / "t.csv")
    assert (
        invoke("cluster", tmp_path / "t.csv", "--out", tmp_path / "command", *QUICK, "--scale", "none").exit_code == 0
    )
    for name in set(MEANING) - {"report.html", "summary.json"}:  # these say where the table was
        assert (tmp_path / "python" / name).read_bytes() == (tmp_path / "command" / name).read_bytes(), name


def test_distances_from_a_file(tmp_path):
    """Plain distances give the trees of the table they are of; their squares, taken for plain ones, are noticed."""
    X = np.random.default_rng(0).normal(size=(20, 2)) + 6.0 * (np.arange(20) % 2)[:, None]
    names = [f"row {i}" for i in range(20)]
    one = {"n_draws": 2, "warmup": 0, "n_chains": 1}
    table = ct.CoalescentClustering(**one, random_state=0).fit(X)
    for power, metric in ((1, "precomputed"), (2, "precomputed_squared")):
        path = tmp_path / f"{metric}.csv"
        pd.DataFrame(cdist(X, X) ** power, names, names).to_csv(path)
        how = ("--metric", metric, "--draws", 2, "--warmup", 0, "--chains", 1)
        result = invoke("cluster", path, "--out", tmp_path / metric, *how)
        assert result.exit_code == 0, result.output
        assert "The table holds distances" in result.output
        post = ct.TreePosterior.load(tmp_path / metric / "posterior.npz")
        assert post.names == tuple(names)
        # The first iteration: later, searches for places meet ties that rounding errors break in different ways.
        np.testing.assert_allclose(post.times[0], table.posterior_.times[0], rtol=1e-5)
        again = ct.cluster(path, metric=metric, **one)
        np.testing.assert_array_equal(again.posterior_.times, post.times)
    result = invoke("cluster", path, "--out", tmp_path / "wrong", "--metric", "precomputed", *QUICK)
    assert "violates the triangle inequality" in result.text
    assert "violates the triangle inequality" in (tmp_path / "wrong" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("metric", ["cosine", "correlation"])
def test_directions_from_a_file(tmp_path, metric):
    X = np.random.default_rng(0).normal(size=(20, 3)) + 6.0 * np.eye(3)[np.arange(20) % 3]
    frame = pd.DataFrame(X * np.arange(1, 21)[:, None], columns=list("xyz"))
    frame.to_csv(tmp_path / "t.csv", index=False)
    result = invoke("cluster", tmp_path / "t.csv", "--out", tmp_path / "out", "--metric", metric, *QUICK)
    assert result.exit_code == 0, result.output
    assert "Columns are taken in their own units" in result.output
    model = ct.CoalescentClustering(n_draws=20, warmup=20, random_state=0, metric=metric).fit(frame.to_numpy())
    times = ct.TreePosterior.load(tmp_path / "out" / "posterior.npz").times
    np.testing.assert_allclose(times, model.posterior_.times, rtol=1e-6)


def test_labels_of_files_are_those_of_python(tmp_path):
    """Clusters from 0, outliers −1, whole numbers of an index as names."""
    X = np.random.default_rng(0).normal(size=(60, 3)) + 9.0 * (np.arange(60) % 2)[:, None]
    X[::10] += 60.0 * np.random.default_rng(4).normal(size=(6, 3))
    frame = pd.DataFrame(X, columns=["x", "y", "z"], index=np.arange(60) + 100)
    found = ct.results.cluster(frame, tmp_path / "out", n_draws=20, warmup=60, scale="none", n_clusters=2)
    labels = read_csv(tmp_path / "out" / "labels.csv")
    assert [int(row["cluster"]) for row in labels] == found.model.labels_.tolist()
    assert {row["cluster"] for row in labels} == {"-1", "0", "1"}
    assert [row["id"] for row in labels] == list(map(str, frame.index))


def test_a_folder_by_default_and_quietly(tmp_path, monkeypatch):
    """Nothing is printed but warnings, which go where errors go."""
    write_table(tmp_path / "my table.csv")
    monkeypatch.chdir(tmp_path)
    result = invoke("cluster", "my table.csv", "--quiet", *QUICK)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "Not converged" in result.stderr
    assert sorted(path.name for path in (tmp_path / "my table-coaltree").iterdir()) == sorted(MEANING)
    again = invoke("cluster", "my table.csv", "--quiet", *QUICK)
    assert again.exit_code == 2
    assert "my table-coaltree exists" in " ".join(again.stderr.split())


def test_python_says_nothing_unless_asked(tmp_path, capfd):
    X = np.random.default_rng(0).normal(size=(8, 2))
    ct.results.cluster(X, tmp_path / "out", n_draws=4, warmup=4)
    assert capfd.readouterr() == ("", "")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "The same call of coaltree.results.cluster" in page
    with pytest.raises(ct.CoaltreeError, match="exists"):
        ct.results.cluster(X, tmp_path / "out", n_draws=4, warmup=4)


def test_a_mixed_table_keeps_its_rows(tmp_path):
    """Texts, yes and no, gaps, a line of commas: every row has its label, and the page shows levels by name."""
    rng = np.random.default_rng(0)
    lines = ["size;smoker;grade;note"]
    for i in range(24):
        group = i % 2
        size = f"{rng.normal(10 * group, 1):.2f}".replace(".", ",")
        lines.append(f"{size};{('no', 'yes')[group]};{('low', 'mid', 'high')[group + i % 3 // 2]};same")
    lines[5] = ";;;"
    (tmp_path / "t.csv").write_bytes("\n".join(lines).encode("latin-1"))
    options = ["--draws", 10, "--warmup", 20, "--n-clusters", 2, "--columns", "grade=categorical", "--jobs", 1]
    result = invoke("cluster", tmp_path / "t.csv", "--out", tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    assert "a single value: 'note'" in result.text
    assert "keep their place" in result.text
    with (tmp_path / "out" / "labels.csv").open(encoding="utf-8") as file:
        labels = list(csv.DictReader(file))
    assert [row["id"] for row in labels] == [str(i + 1) for i in range(24)]
    found = {(i % 2, row["cluster"]) for i, row in enumerate(labels) if i != 4}
    assert len(found) == 2
    with (tmp_path / "out" / "splits.csv").open(encoding="utf-8") as file:
        splits = list(csv.DictReader(file))
    assert len(splits) == 23 * 3
    assert {row["column"] for row in splits} == {"size", "smoker", "grade"}
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["table"]["kinds"] == {"size": "continuous", "smoker": "binary", "grade": "categorical"}
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "What sets them apart" in page
    assert '"levels":[null,["no","yes"],["high","low","mid"]]' in page.replace(", ", ",").replace(": ", ":")
