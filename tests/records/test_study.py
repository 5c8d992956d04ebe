"""A small study from files to a report, by the commands that users type."""

import csv
import json
import re
from html import escape

import numpy as np
import pytest
from typer.testing import CliRunner

from coaltree.cli import app
from coaltree.records import evaluation, load_config, run_study
from coaltree.records import study as study_module

CONFIG = """
seed = 3
[data]
path = "{path}"
[cohort]
thresholds = ["2009-01-01", "2010-01-01"]
[outcomes]
keys = {keys}
min_events = 5
[features]
n_factors = 4
min_subjects = 11
exclude = ["HCPCS//"]
[model]
n_iter = 40
burn_in = 10
n_chains = 1
baselines = ["ml_probit"]
[validation]
n_folds = 2
n_resamples = 40
[cost]
source = "prices"
prices = "{path}/prices.csv"
n_resamples = 30
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory, cohort_folder, truth):
    """A config for the five commonest outcomes and one rare one."""
    n_events = np.nansum(truth["labels_0"], axis=0)
    order = np.argsort(-n_events)
    rare = next(j for j in order if n_events[j] < 5)
    keys = [str(truth["names"][j]) for j in (*order[:4], rare)]
    file = tmp_path_factory.mktemp("study") / "study.toml"
    file.write_text(CONFIG.format(path=cohort_folder, keys=json.dumps(keys)))
    return file


@pytest.fixture(scope="module")
def finished(config):
    out = config.parent / "out"
    result = CliRunner().invoke(app, ["records", "study", str(config), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert json.loads((out / "summary.json").read_text())["verdict"] in result.output
    return out


def test_one_command_writes_one_folder(finished):
    names = {file.name for file in finished.iterdir()}
    assert {"report.html", "summary.json", "auc.csv", "cost.png", "tree.png", "tree.nwk", "nodes.csv"} <= names
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert set(summary["auroc"]["temporal"]) == {"coalescent_probit", "ml_probit", "ridge_all", "ridge_factors"}
    page = (finished / "report.html").read_text()
    assert summary["verdict"].startswith("Not converged: ")
    for text in (
        escape(summary["verdict"]),
        "day -183 to day -1",
        "day 0 to day 364",
        "Bang and Tsiatis",
        "Left out, with fewer than 5 events",
    ):
        assert text in page


def test_scores_have_the_numbers_of_labels_of_their_own_threshold(finished):
    def rows(name):
        with (finished / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
            return {row["outcome"]: row for row in csv.DictReader(stream)}

    outcomes = rows("outcomes")
    for name, threshold in (("scores-cross-validation", "2009-01-01"), ("scores-temporal", "2010-01-01")):
        found = {outcome: row["n"] for outcome, row in rows(name).items()}
        assert found == {outcome: outcomes[outcome][f"labels {threshold}"] for outcome in found}
    assert any(row["labels 2009-01-01"] != row["labels 2010-01-01"] for row in outcomes.values())


def test_no_patient_leaves(finished, truth):
    """Outside the private folder no file names subjects, and no count from 1 to 10 is printed."""
    for file in finished.glob("*.csv"):
        assert "subject_id" not in file.read_text()
    for name in ("outcomes", "auc", "attrition-1", "attrition-2", "scores-temporal", "calibration-temporal"):
        header, *lines = (finished / f"{name}.csv").read_text().splitlines()
        counted = [
            i for i, column in enumerate(header.split(",")) if re.match("events|had it|censored|removed", column)
        ]
        assert counted or name.startswith("attrition")
        for line in lines:
            cells = re.findall(r'"[^"]*"|[^,]+', line)
            assert not any(cells[i].isdigit() and 0 < int(cells[i]) < 11 for i in counted), line
    assert (finished.parent / "out-private" / "labels" / "2009-01-01").is_dir()


def test_an_interrupted_study_is_taken_up(config, finished, monkeypatch, tmp_path):
    settings = load_config(config)
    real, n_done = evaluation._fit, []

    def fit_two_then_fail(*arguments):
        if len(n_done) == 2:
            raise KeyboardInterrupt
        n_done.append(1)
        return real(*arguments)

    monkeypatch.setattr(evaluation, "_fit", fit_two_then_fail)
    with pytest.raises(KeyboardInterrupt):
        run_study(settings, tmp_path / "private")
    kept = {file.name for file in (tmp_path / "private" / "fits").rglob("*.npz")}
    assert len([name for name in kept if "features" not in name]) == 2

    calls = []

    def count(*arguments):
        calls.append(1)
        return real(*arguments)

    monkeypatch.setattr(evaluation, "_fit", count)
    result = run_study(settings, tmp_path / "private")
    assert len(calls) == 10  # of twelve fits, two were kept
    again = run_study(settings, finished.parent / "out-private")
    assert len(calls) == 10  # nothing is fitted twice
    np.testing.assert_array_equal(result.cross_validation.score, again.cross_validation.score)
    np.testing.assert_array_equal(result.temporal.probability, again.temporal.probability)


def test_the_seed_of_the_config_is_handed_on(config, finished, monkeypatch):
    """To both comparisons and to every bootstrap; other resamples would not tell."""
    given = {}

    def spied(name):
        real = getattr(study_module, name)

        def call(*arguments, **named):
            given[name] = named["random_state"] if "random_state" in named else arguments[-1]
            return real(*arguments, **named)

        monkeypatch.setattr(study_module, name, call)

    for name in ("node_separation", "cost_curves", "outcome_curves"):
        spied(name)
    settings = load_config(config)
    result = run_study(settings, finished.parent / "out-private")
    assert settings.seed == 3
    assert given == dict.fromkeys(("node_separation", "cost_curves", "outcome_curves"), 3)
    assert result.cross_validation.seed == result.temporal.seed == result.model.info["seed"] == 3


def test_a_damaged_file_is_computed_again(tmp_path):
    store = evaluation.Store(tmp_path)

    def get(value, part="a"):
        return store.get("x", lambda: {"a": np.array(value)}, lambda found: found[part].sum())["a"].tolist()

    assert get([0, 1, 2]) == [0, 1, 2]
    assert get([0]) == [0, 1, 2]
    assert get([3], part="not there") == [3]  # a right checksum, but not what is needed
    (tmp_path / "x.npz").write_bytes(b"half a file")
    assert get([1.0]) == [1.0]
    assert [file.name for file in tmp_path.iterdir()] == ["x.npz"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("min_events", "min_event"), "Did you mean 'min_events'"),
        (("min_events = 5", "min_events = 5000"), "no outcome has 5000 events"),
        (("2010-01-01", "2019-01-01"), "the cohort is empty"),
        (("2009-01-01", "2019-01-01"), "thresholds run backwards"),
        (('/prices.csv"', '/no.csv"'), "does not exist"),
        (('path = "', 'path = "nowhere'), "does not exist"),
        (("n_factors = 4", "n_factors = 4\ntransformer = 'nmff'"), "Did you mean 'nmf'"),
        (("n_factors = 4", "n_factors = 4000"), "fewer than 4000 factors"),
    ],
)
def test_mistakes_end_with_code_2(config, tmp_path, change, message):
    file = tmp_path / "study.toml"
    file.write_text(config.read_text().replace(*change))
    result = CliRunner().invoke(app, ["records", "study", str(file), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2, result.output
    assert re.search(message, " ".join(result.output.split()))


def test_other_folders_are_not_touched(config, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    result = CliRunner().invoke(app, ["records", "study", str(config), "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_the_other_commands(tmp_path):
    run = CliRunner().invoke
    raw, out = str(tmp_path / "raw"), str(tmp_path / "out")
    result = run(
        app, ["records", "simulate", "--out", raw, "--subjects", "20", "--factors", "2", "--events-per-year", "5"]
    )
    assert result.exit_code == 0, result.output
    assert load_config(tmp_path / "raw" / "study.toml").cost.source == "prices"
    assert run(app, ["records", "simulate", "--out", raw]).exit_code == 2
    result = run(app, ["records", "import", raw, "--out", out, "--source", "meds"])
    assert result.exit_code == 0, result.output
    assert "20 subjects" in result.output
    result = run(app, ["records", "import", raw, "--out", out, "--source", "meds", "--quiet"])
    assert (result.exit_code, result.stdout) == (0, "")
    quiet = ["--subjects", "20", "--factors", "2", "--events-per-year", "5", "--quiet"]
    result = run(app, ["records", "simulate", "--out", f"{raw}-again", *quiet])
    assert (result.exit_code, result.output) == (0, "")
    assert run(app, ["records", "import", raw, "--out", out, "--source", "omop"]).exit_code == 2
    bad = run(app, ["records", "import", raw, "--out", out, "--source", "csv", "--column", "subject"])
    assert bad.exit_code == 2
