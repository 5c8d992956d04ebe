"""A model that travels: what a study saved gives the same numbers elsewhere, and holds no row of a patient."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from coaltree.cli import app
from coaltree.records import CodeFactors, RecordsError, TravellingModel, apply_model, load_config, simulate_cohort
from coaltree.records.config import PROBIT
from coaltree.records.dataset import prepare_data
from coaltree.records.evaluation import fit_all
from tests.records.test_cohort import planted
from tests.records.test_study import CONFIG
from tests.seeds import seed


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A study of one hospital, and the records of another."""
    folder = tmp_path_factory.mktemp("apply")
    for name, hospital in (("a", 0), ("b", 1)):
        simulate_cohort(folder / name, 400, seed(7), n_factors=4, events_per_year=20.0, hospital=hospital)
    with (
        np.load(folder / "a" / "truth" / "shard-0000.npz") as shard,
        np.load(folder / "a" / "truth" / "model.npz") as truth,
    ):
        order = np.argsort(-np.nansum(shard["labels_0"], axis=0))
        keys = [str(truth["names"][j]) for j in order[:3]]
    text = CONFIG.format(path=folder / "a", keys=json.dumps(keys)).replace("n_iter = 40", "n_iter = 20")
    text = text.replace(
        'exclude = ["HCPCS//"]', 'exclude = ["HCPCS//"]\nwindows = [183, "all"]\nage = true\nsex = true'
    )
    (folder / "study.toml").write_text(text)
    done = CliRunner().invoke(app, ["records", "study", str(folder / "study.toml"), "--out", str(folder / "out")])
    assert done.exit_code == 0, done.output
    return folder


def test_the_same_numbers_as_in_the_study(trained):
    """Applied to its own second cohort, the model repeats the temporal validation to the last digits."""
    config = load_config(trained / "study.toml")
    private = trained / "out-private"
    data = prepare_data(config, private)
    fits, temporal = fit_all(data, config, private)
    model = TravellingModel.load(trained / "out")
    probability, score = model.predict(data.periods[1].counts)
    np.testing.assert_allclose(probability, temporal.probability[0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(score, temporal.score[0], rtol=0, atol=1e-9)
    again = apply_model(trained / "out" / "model.npz", trained / "a", trained / "again", "2010-01-01", n_resamples=20)
    np.testing.assert_array_equal(again.comparison.Y, temporal.Y)
    np.testing.assert_allclose(again.comparison.auroc, temporal.auroc[:1], atol=1e-9)
    scores = pq.read_table(again.scores)
    assert scores["subject_id"].to_pylist() == data.periods[1].cohort.subject.tolist()
    assert again.scores.stat().st_mode & 0o077 == 0
    del fits


def test_no_patient_is_in_the_file(trained):
    model = TravellingModel.load(trained / "out")
    n_train = int(json.loads((trained / "a" / "metadata" / "dataset.json").read_text())["n_subjects"])
    with np.load(trained / "out" / "model.npz") as arrays:
        sizes = {name: arrays[name].shape for name in arrays.files}
    assert not [name for name, shape in sizes.items() if n_train - 60 < max(shape, default=0) <= n_train]
    assert model.rule == load_config(trained / "study.toml").cohort
    assert model.outcomes.inclusion.matches("ICD9//250.00")
    assert {"coaltree", "numpy", "python"} <= set(model.info["versions"])
    assert model.tree.n_leaves == 3


def test_another_hospital_by_the_command(trained):
    out = trained / "external"
    done = CliRunner().invoke(
        app,
        ["records", "apply", str(trained / "out"), str(trained / "b"), "--out", str(out), "--threshold", "2009-01-01"],
    )
    assert done.exit_code == 0, done.output
    page = (out / "report.html").read_text()
    for text in ("Model card", "Table 1", "External validation", "no row of a patient"):
        assert text in page
    summary = json.loads((out / "summary.json").read_text())
    assert 0.4 < summary["auroc"][PROBIT] < 1.0
    assert summary["known_codes"][0] > 0.5 * summary["known_codes"][1]
    assert not [file for file in out.rglob("*") if file.suffix == ".parquet"]
    # Patients can be scored on a day whose future is not there yet; nothing is validated then.
    done = CliRunner().invoke(
        app,
        [
            "records",
            "apply",
            str(trained / "out"),
            str(trained / "b"),
            "--out",
            str(out),
            "--threshold",
            "2011-01-02",
            "--quiet",
        ],
    )
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    assert "No outcome has enough events" in (out / "report.html").read_text()
    with pytest.raises(RecordsError, match="state the threshold"):
        apply_model(trained / "out", trained / "b", trained / "x")


@pytest.mark.parametrize("transformer", ["nmf", "svd", "lda", "none"])
def test_factors_from_their_state(transformer):
    train, _ = planted(np.random.default_rng(3), 200)
    new, _ = planted(np.random.default_rng(4), 50)
    model = CodeFactors(2, 5, transformer)
    model.fit_transform(train)
    again = CodeFactors.from_state(model.state())
    np.testing.assert_allclose(again.transform(new), model.transform(new), rtol=0, atol=1e-12)


def test_the_report_has_what_reviewers_ask_for(trained):
    page = (trained / "out" / "report.html").read_text()
    for heading in (
        "Table 1", "precision–recall", "Calibration", "ecision curves", "Subgroups", "What drives each outcome",
        "Model card", "subjects left after each rule",
    ):  # fmt: skip
        assert heading in page, heading
    names = {file.stem for file in (trained / "out").glob("*.csv")}
    assert {"table-one", "subgroups", "drivers"} <= names
