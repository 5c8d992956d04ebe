"""The records experiment: its parts by hand, and a quick run on a small simulated cohort."""

from argparse import Namespace

import numpy as np
import pytest

pytest.importorskip("ibis")
pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")
pytest.importorskip("meds")

from papers.henao_lucas.experiment import perform
from papers.henao_lucas.records.run import (
    DAYS,
    EXPERIMENT,
    METHODS,
    QUICK_SEED,
    QUICK_SUBJECTS,
    every_day,
    most_alike,
    overlap,
    planted,
    scores,
    steps,
    tasks,
)

import coaltree as ct
from coaltree.records import load_outcomes, simulate_cohort
from coaltree.regression.comparison import Comparison
from tests.papers.real_data import real_data


def test_the_papers_table_is_whole():
    expected = EXPERIMENT.expected()
    assert len(expected) == 21
    mean = {
        part: np.mean([row[part]["CR"] - row[part]["MLE"] for row in expected.values()])
        for part in ("cross_validation", "temporal")
    }
    assert mean["cross_validation"] == pytest.approx(0.009, abs=0.001)
    assert mean["temporal"] == pytest.approx(0.007, abs=0.001)


def test_curves_are_put_back_to_days():
    curve = every_day([5.0, 5.0, 25.0])
    assert curve[: DAYS + 1].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 5.0]
    assert curve[-1] == 25.0
    assert len(curve) == 3 * DAYS


def test_overlap_by_hand():
    assert overlap(["a", "b"], ["b", "c"]) == pytest.approx(1 / 3)
    assert overlap(["a"], ["a"]) == 1.0


def test_leads_are_those_of_the_areas():
    rng = np.random.default_rng(0)
    Y = (rng.random((400, 3)) < 0.3).astype(float)
    good, bad = Y + rng.normal(size=Y.shape), rng.normal(size=Y.shape)
    methods = tuple(list(METHODS)[:2])
    both = np.stack([good, bad])
    comparison = Comparison(methods, ("a", "b", "c"), Y, np.zeros(400, int), both, both, np.ones((2, 1)), 50)
    found = scores(comparison)
    gain, error = found["lead"]["RF"]["all"]
    assert gain == pytest.approx(np.mean(np.array(found["auroc"]["CR"]) - np.array(found["auroc"]["RF"])))
    assert gain > 5 * error > 0
    assert found["lead"]["RF"]["rare"] == found["lead"]["RF"]["all"]


def test_planted_outcomes_have_names(tmp_path):
    simulate_cohort(tmp_path / "cohort", 30, seed=4, n_factors=3, events_per_year=5.0)
    tree, names = planted(tmp_path / "cohort")
    assert set(names) < set(tree.leaf_names)
    assert len(names) >= 2
    assert len(set(names)) == len(names)
    assert set(names) <= {outcome.name for outcome in load_outcomes().outcomes}


def test_steps_between_nodes():
    tree = ct.Tree([[0, 1], [2, 3], [5, 6], [4, 7]], [1.0, 2.0, 3.0, 4.0], list("abcde"))
    assert [steps(tree, 0, node) for node in (0, 1, 5, 2, 4, 8)] == [0, 2, 1, 4, 4, 3]
    assert steps(tree, 8, 0) == 3
    assert most_alike(tree, ["a", "b", "c"]) == 7
    assert most_alike(tree, ["d"]) == 3


def test_the_sample_is_a_task_only_if_it_is_there(tmp_path):
    options = Namespace(quick=True, replicates=None, data=tmp_path, jobs=1, out=None)
    assert tasks(options) == [("simulated", QUICK_SEED, QUICK_SUBJECTS)]
    (tmp_path / "synpuf").mkdir()
    assert tasks(options) == [("simulated", QUICK_SEED, QUICK_SUBJECTS), ("synpuf", 0)]


@pytest.mark.slow
@pytest.mark.ci
def test_a_quick_run_on_a_simulated_cohort_bears_the_claims_out(tmp_path):
    options = Namespace(quick=True, replicates=None, data=None, jobs=1, out=None)
    results = perform(EXPERIMENT, options, tmp_path)
    assert [claim["statement"] for claim in results["claims"] if not claim["holds"]] == []
    assert len(results["claims"]) == 7
    assert (tmp_path / "cost-simulated.png").stat().st_size > 0
    page = (tmp_path / "README.md").read_text()
    assert "Planted:" in page
    assert "Correlation of cophenetic distances" in page
    assert "the paper, validation" in page


@pytest.mark.slow
@pytest.mark.ci
def test_the_sample_goes_from_raw_files_to_the_table(tmp_path, monkeypatch):
    from papers.henao_lucas.records import run

    options = Namespace(quick=True, replicates=None, data=real_data("synpuf"), jobs=1, out=None)
    monkeypatch.setattr(run, "QUICK_ITER", 30)
    monkeypatch.setattr(run, "QUICK_BURN_IN", 10)
    row = run.run(("synpuf", 0), options, np.random.default_rng(0))
    summary = run.summarise({("synpuf", 0): row})
    assert row["subjects"][0] > 300  # 320 of 500 have all months of coverage
    assert any("synpuf 0, validation" in line for line in run.table(summary, EXPERIMENT.expected()))
    assert set(run.figures({("synpuf", 0): row})) == {"cost-synpuf"}
