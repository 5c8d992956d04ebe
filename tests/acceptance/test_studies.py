"""Whole studies, from files to report.html, over all pairs of settings that change the path through the code."""

import csv
import itertools
import json
import shutil
import zipfile

import numpy as np
import pytest

pytest.importorskip("ibis", reason="the extra `records` is not installed")
pytest.importorskip("meds", reason="the extra `records` is not installed")

import pyarrow as pa
import pyarrow.parquet as pq

from coaltree.records import simulate_cohort
from coaltree.results.records import study
from tests.records.attack import PageTables, attack
from tests.seeds import seed

N_SUBJECTS = 400
TABLE = "events"

THRESHOLDS = {
    "one": '[cohort]\nthresholds = ["2009-01-01"]',
    "index": '[cohort]\n[index]\nicd9 = ["250"]\nwashout_days = 30\nbegin = 2008-06-01',
    "two": '[cohort]\nthresholds = ["2009-01-01", "2010-01-01"]',
    "file": '[cohort]\nthresholds = ["first.csv"]',
    "files": '[cohort]\nthresholds = ["first.csv", "second.csv"]',
    "split": '[cohort]\nhorizon_days = 180\n[index]\nicd9 = ["250"]\nwashout_days = 30\nsplit = 2009-01-01',
}
COSTS = {
    "none": 'source = "none"',
    "prices": 'source = "prices"\nprices = "cohort/prices.csv"\nn_resamples = 10',
    "observed": 'source = "observed"\ncriterion = "gap"\nn_resamples = 10',
}
SPLITS = ("honour", "ignore")
ENGINES = {
    "files": 'path = "cohort"',
    "duckdb": f'events = "{TABLE}"\nconnection = "duckdb://{{folder}}/hospital.duckdb"',
    "spark": f'events = "{TABLE}"\nconnection = "spark"',
}
# Settings of the model, in the order of the studies; what the paper chooses is not given beside it.
MODELS = {
    "all": ("", 'features = "all"'),
    "time": ("", 'outcomes = "time"'),
    "factors": ("", 'features = "factors"'),
    "paper": ('settings = "paper"', ""),
}
TWO_COHORTS = ("two", "files", "split")

CONFIG = """
title = "A study"
seed = 3
{settings}
[data]
{engine}
{threshold}
[outcomes]
keys = {keys}
inclusion = false
min_events = 2
[features]
n_factors = 3
min_subjects = 11
exclude = ["HCPCS//"]
[model]
n_iter = 8
burn_in = 4
n_chains = 1
baselines = ["ridge"]
{model}
[validation]
n_folds = 2
n_resamples = 10
splits = "{splits}"
[cost]
{cost}
"""


# Row by threshold, column by cost.
MODEL_OF = ((3, 0, 2), (2, 3, 1), (0, 3, 1), (1, 2, 3), (2, 1, 0), (1, 2, 3))


def covering():
    """Studies such that any two settings of different kinds meet in one of them."""
    for (i, threshold), (j, cost) in itertools.product(enumerate(THRESHOLDS), enumerate(COSTS)):
        yield threshold, cost, SPLITS[(i + j) % 2], list(ENGINES)[(i + j) % 3], list(MODELS)[MODEL_OF[i][j]]
    for threshold, used in zip(THRESHOLDS, MODEL_OF, strict=True):  # the fourth model of each threshold
        yield threshold, "none", "ignore", "files", list(MODELS)[({0, 1, 2, 3} - set(used)).pop()]


def as_parameters():
    """Those with one cohort are run by default, the others on every change."""
    for case in covering():
        quick = case[0] not in TWO_COHORTS and case[3] != "spark" and case[4] != "time"
        yield pytest.param(*case, id="-".join(case), marks=[] if quick else [pytest.mark.slow, pytest.mark.ci])


def test_all_pairs_are_covered():
    kinds = [list(THRESHOLDS), list(COSTS), list(SPLITS), list(ENGINES), list(MODELS)]
    for a, b in itertools.combinations(range(5), 2):
        assert {(case[a], case[b]) for case in covering()} == set(itertools.product(kinds[a], kinds[b]))


@pytest.fixture(scope="session")
def hospital(tmp_path_factory):
    """A tiny cohort as files with splits and as a table of a database, files of thresholds, and three outcomes."""
    import duckdb

    folder = tmp_path_factory.mktemp("hospital")
    cohort = simulate_cohort(folder / "cohort", N_SUBJECTS, seed(5), n_factors=3, events_per_year=30.0)
    with np.load(cohort / "truth" / "shard-0000.npz") as truth, np.load(cohort / "truth" / "model.npz") as model:
        order = np.argsort(-np.nansum(truth["labels_0"], axis=0))
        keys, subjects = [str(model["names"][j]) for j in order[:3]], truth["subject_id"]
    held_out = np.where(subjects % 3 == 0, "held_out", "train")
    pq.write_table(
        pa.table({"subject_id": subjects, "split": held_out}), cohort / "metadata" / "subject_splits.parquet"
    )
    for name, start in (("first", "2009-01-0"), ("second", "2010-01-1")):
        with (folder / f"{name}.csv").open("w", newline="") as stream:
            rows = csv.writer(stream)
            rows.writerow(["subject_id", "date"])
            rows.writerows([subject, f"{start}{1 + subject % 5}"] for subject in subjects.tolist())
    with duckdb.connect(str(folder / "hospital.duckdb")) as database:
        database.execute(f"CREATE TABLE {TABLE} AS SELECT * FROM read_parquet('{cohort}/data/*.parquet')")
    return folder, json.dumps(keys)


@pytest.fixture(scope="session")
def spark_table(hospital):
    """The same table in the session of Spark that this process has."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None:
        pytest.skip("there is no Java")
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in (settings | {"spark.sql.session.timeZone": "UTC"}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.read.parquet(str(hospital[0] / "cohort" / "data")).createOrReplaceTempView(TABLE)
    yield session
    session.stop()


def contents(file):
    """The bytes of a file, those of an archive unpacked."""
    if file.suffix != ".npz":
        return file.read_bytes()
    with zipfile.ZipFile(file) as archive:
        return b"".join(map(archive.read, archive.namelist())).replace(b"\0", b"")  # texts have four bytes a letter


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("threshold", "cost", "splits", "engine", "model"), list(as_parameters()))
def test_a_study_ends_with_its_report(hospital, request, tmp_path, threshold, cost, splits, engine, model):
    folder, keys = hospital
    if engine == "spark":
        request.getfixturevalue("spark_table")
    config = folder / f"{'-'.join((threshold, cost, splits, engine, model))}.toml"
    source = ENGINES[engine].format(folder=folder) + ("" if engine != "spark" else '\ntimezone = "UTC"')
    config.write_text(
        CONFIG.format(
            engine=source,
            threshold=THRESHOLDS[threshold],
            keys=keys,
            splits=splits,
            cost=COSTS[cost],
            settings=MODELS[model][0],
            model=MODELS[model][1],
        )
    )
    out = tmp_path / "results"
    summary = study(config, out)

    held_out = engine == "files" and splits == "honour"
    validated = held_out or threshold in TWO_COHORTS
    assert json.loads((out / "summary.json").read_text())["status"] == "finished"
    assert list(summary["auroc"]) == ["cross_validation", "temporal"][: 1 + validated]
    assert (summary["cost_node"] is None) == (cost == "none")
    files = {file.name for file in out.iterdir()}
    assert {"report.html", "auc.csv", "outcomes.csv", "model.npz", "config.toml"} <= files
    assert ("scores-temporal.csv" in files) == ("attrition-2.csv" in files) == validated
    assert ("nodes.csv" in files) == (cost != "none")
    assert attack(out) == []
    for file in out.iterdir():  # no folder of this machine is named in what is shared
        assert str(folder).encode() not in contents(file), file

    page = (out / "report.html").read_text()
    for text, expected in (
        ("Held-out subjects", held_out),
        ("Temporal validation: area", validated and not held_out),
        ("no temporal validation", not validated),
        ("Future cost", cost != "none"),
        ("what factors alone would have lost", model in ("all", "time")),
        ("days at risk of each outcome", model == "time"),
        ("taken as absent", model == "paper"),
    ):
        assert (text in page) == expected, text
    summary_of_folds = ("In cross-validation the coalescent ", "withheld, which in cross-validation is all")
    assert sum(text in page for text in summary_of_folds) == 1
    headers = [table[0] for table in PageTables(page).tables]
    assert sum("rule" in header for header in headers) == 1 + validated  # one table of attrition for each cohort
