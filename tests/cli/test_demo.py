"""`coaltree demo`: what it writes, what it says, what it refuses."""

import json
import os
import re

import numpy as np
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

import coaltree as ct
from coaltree import formats
from coaltree.cli import app
from coaltree.posterior.hierarchy import make_hierarchy
from coaltree.results.iris import DENDROGRAM, DENSITREE, MEANING, SCALES

N_PARTICLES = 40


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    result.text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.output).split())
    return result


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "result"
    result = invoke("demo", "--out", out, "--particles", N_PARTICLES, "--seed", 3)
    assert result.exit_code == 0, result.output
    return out, result


@pytest.fixture(scope="module")
def summary(run):
    return json.loads((run[0] / "summary.json").read_text(encoding="utf-8"))


def test_writes_its_files_and_nothing_else(run):
    out, result = run
    assert sorted(path.name for path in out.iterdir()) == sorted(MEANING)
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    assert all(name in result.output for name in MEANING)
    assert str(out) in result.output.replace("\n", "")


def test_summary(summary):
    assert summary["command"] == "coaltree demo"
    assert summary["version"] == ct.__version__
    assert summary["seed"] == 3
    assert summary["parameters"]["n_particles"] == N_PARTICLES
    assert summary["parameters"]["scale"] in SCALES
    assert np.isfinite(summary["log_evidence"])
    assert 1 <= summary["ess"] <= N_PARTICLES
    assert all(0.5 <= clade["expected_overlap"] <= 1 for clade in summary["clades"])
    assert all(len(clade["members"]) == clade["size"] < 30 for clade in summary["clades"])
    assert sum(clade["size"] for clade in summary["average_linkage_clusters"]) == 30


def test_posterior_and_tree_agree_with_the_summary(run, summary):
    post = ct.TreePosterior.load(run[0] / "posterior.npz")
    assert post.log_evidence == summary["log_evidence"]
    assert post.info["random_state"] == 3
    tree, support = formats.newick_with_support((run[0] / "tree.nwk").read_text(encoding="utf-8"), names=post.names)
    assert ct.metrics.robinson_foulds(tree, make_hierarchy(post).tree) == 0
    np.testing.assert_allclose(support, post.transfer_support(tree), atol=1e-5)
    assert np.count_nonzero(post.expected_overlap(tree)[:-1] >= 0.5) == len(summary["clades"])
    for clade in summary["clades"]:
        low, high = clade["time_interval"]
        assert low <= clade["time"] <= high


def test_pictures_show_something(run):
    for name in (DENDROGRAM, DENSITREE):
        picture = imread(run[0] / name)
        assert min(picture.shape[:2]) > 500
        assert np.mean(picture[..., :3] < 0.9) > 0.01


def test_table(run):
    output = run[1].output
    assert re.search(r"^ +10 +\d+% .* 10 setosa$", output, flags=re.MULTILINE)
    assert "average linkage" in output
    assert "effective sample size" in output


def test_same_seed_writes_the_same_bytes_over_the_old_ones(run):
    out, _ = run
    before = {name: (out / name).read_bytes() for name in MEANING}
    (out / "tree.nwk").write_text("spoilt")
    again = invoke("demo", "--out", out, "--particles", N_PARTICLES, "--seed", 3, "--quiet")
    assert (again.exit_code, again.output) == (0, "")
    assert {name: (out / name).read_bytes() for name in MEANING} == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("--particles", "0"),
        ("--particles", "-5"),
        ("--particles", "many"),
        ("--particles", "1000000000"),
        ("--seed", "-1"),
        ("--seed", "0.5"),
        ("--colour", "red"),
    ],
)
def test_bad_options(tmp_path, arguments):
    result = invoke("demo", "--out", tmp_path / "out", *arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.text
    assert "Traceback" not in result.output
    assert not list(tmp_path.iterdir())


def test_folder_of_somebody_else(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    result = invoke("demo", "--out", tmp_path)
    assert result.exit_code == 2
    assert "exists and was not made by `coaltree demo`" in result.text
    assert "Traceback" not in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the administrator may write anywhere")
def test_parent_is_read_only(tmp_path):
    tmp_path.chmod(0o500)
    result = invoke("demo", "--out", tmp_path / "out")
    tmp_path.chmod(0o700)
    assert result.exit_code == 2
    assert "Choose a folder that you can write to" in result.text
    assert "Traceback" not in result.output


def test_parent_is_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    result = invoke("demo", "--out", tmp_path / "file" / "out")
    assert result.exit_code == 2
    assert "Choose a folder that you can write to" in result.text


def test_version_and_help():
    assert invoke("--version").output == f"coaltree {ct.__version__}\n"
    assert "demo" in invoke("--help").output
    assert invoke("nonsense").exit_code == 2
