"""Spoilt configs and inputs: each stops before any fit, with the file, the key and the fix, without a traceback."""

import gzip
import json
import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from coaltree.cli import app
from coaltree.records import evaluation

DATA = '[data]\npath = "meds"\n'
COHORT = '[cohort]\nthresholds = ["2009-01-01"]\n'
PLAIN = DATA + COHORT

# name: (text of the config, what the message must say)
CONFIGS = {
    "no TOML": ("[data\npath=", "not valid TOML"),
    "an unknown table": (PLAIN + "[modle]\nn_iter = 5", "Did you mean 'model'"),
    "an unknown key": (PLAIN + "[validation]\nlevels = 0.9", "Did you mean 'level'"),
    "no data": (COHORT, r"\[data\] needs path"),
    "path and events": ('[data]\npath = "x"\nevents = "h.e"\nconnection = "spark"\n' + COHORT, "needs path"),
    "events without a connection": ('[data]\nevents = "h.e"\n' + COHORT, "state connection"),
    "a connection without events": (DATA + 'connection = "spark"\n' + COHORT, "connection needs events"),
    "no such path": ('[data]\npath = "nowhere"\n' + COHORT, r"\[data\]: path .*nowhere does not exist"),
    "no such source": (DATA + 'source = "fhir"\n' + COHORT, r"source: 'fhir' is not known"),
    "columns for MEDS": (DATA + 'columns = {subject = "a"}\n' + COHORT, "columns is for source = 'csv'"),
    "an unknown column": (DATA + 'source = "csv"\ncolumns = {subjet = "a"}\n' + COHORT, "Did you mean 'subject'"),
    "a zone on Mars": (DATA + 'timezone = "Mars"\n' + COHORT, "timezone='Mars' is not a known zone"),
    "memory in words": (DATA + 'memory_limit = "much"\n' + COHORT, 'memory_limit must be like "1GB"'),
    "no memory": (DATA + 'memory_limit = "0GB"\n' + COHORT, 'memory_limit must be like "1GB"'),
    "no thresholds": (DATA + "[cohort]\nlookback_days = 30\n", r"\[cohort\] needs thresholds"),
    "three thresholds": (DATA + "[cohort]\nthresholds = [2009-01-01, 2011-01-01, 2013-01-01]\n", "needs thresholds"),
    "a threshold in words": (DATA + '[cohort]\nthresholds = ["soon"]\n', "thresholds must be a date"),
    "thresholds that repeat": (DATA + "[cohort]\nthresholds = [2009-01-01, 2009-01-01]\n", "thresholds repeat"),
    "thresholds backwards": (DATA + "[cohort]\nthresholds = [2010-01-01, 2009-01-01]\n", "run backwards"),
    "horizons that overlap": (DATA + "[cohort]\nthresholds = [2009-01-01, 2009-06-01]\n", "overlap = \"allow\""),
    "a negative lookback": (PLAIN + "lookback_days = -5\n", "lookback_days must be at least 1"),
    "a horizon of ages": (PLAIN + "horizon_days = 400000\n", "horizon_days must be at most"),
    "windows that share day 0": (PLAIN + 'lookback_closed = "both"\n', "leak into features"),
    "an end before the threshold": (PLAIN + "data_end = 2008-01-01\n", "data_end 2008-01-01 is before"),
    "an end in quotes": (PLAIN + 'data_end = "2012-01-01"\n', "data_end must be a date without quotes"),
    "a level in per cent": (PLAIN + "[validation]\nlevel = 95\n", "Write 0.95 for 95 per cent"),
    "a level of one": (PLAIN + "[cost]\nlevel = 1.0\n", r"\[cost\]: level must be between 0 and 1"),
    "a level that is no number": (PLAIN + "[validation]\nlevel = nan\n", "level must be between 0 and 1"),
    "particles of old": (PLAIN + "[model]\nn_particles = 10\n", "n_particles"),
    "no chains": (PLAIN + "[model]\nn_chains = 0\n", "n_chains must be at least 1"),
    "burn-in beyond the end": (PLAIN + "[model]\nn_iter = 50\nburn_in = 50\n", "burn_in must be below n_iter"),
    "one fold": (PLAIN + "[validation]\nn_folds = 1\n", "n_folds must be at least 2"),
    "resamples without end": (PLAIN + "[validation]\nn_resamples = 10000000\n", "n_resamples must be at most"),
    "a baseline twice": (PLAIN + '[model]\nbaselines = ["ridge", "ridge"]\n', "names 'ridge' twice"),
    "a limit that tells small numbers": (PLAIN + "[outcomes]\nmin_events = 10\n", "at least 11 or at most 5"),
    "totals of rare codes": (
        PLAIN + '[features]\nmin_subjects = 5\ntransformer = "none"\n', "min_subjects must be at least 11"
    ),
    "no outcome chosen": (PLAIN + "[outcomes]\nkeys = []\n", "keys is empty"),
    "an unknown outcome": (PLAIN + '[outcomes]\nkeys = ["strok"]\n', "Did you mean 'stroke'"),
    "definitions that are missing": (PLAIN + '[outcomes]\nfile = "no.toml"\n', "no.toml does not exist"),
    "labels that are missing": (PLAIN + '[outcomes]\nlabels = "no"\n', "no folder with label files"),
    "labels and definitions": (PLAIN + '[outcomes]\nlabels = "x"\nkeys = ["stroke"]\n', "stand instead of definitions"),
    "a window of no day": (PLAIN + "[features]\nwindows = [0]\n", "windows must be whole numbers of days"),
    "a window in words": (PLAIN + '[features]\nwindows = ["ever"]\n', 'or "all", got \'ever\''),
    "exclude everything": (PLAIN + '[features]\nexclude = [""]\n', "begins every code"),
    "prices that are missing": (PLAIN + '[cost]\nsource = "prices"\n', "prices must name a table"),
    "an index without codes": (DATA + "[index]\nwashout_days = 5\n", r"\[index\] has no codes"),
    "an index and thresholds": (PLAIN + '[index]\nicd9 = ["250"]\n', "not both"),
    "a split before the beginning": (
        DATA + '[index]\nicd9 = ["250"]\nbegin = 2009-01-01\nsplit = 2008-01-01\n',
        "begin 2009-01-01 must be before split",
    ),
    "a washout backwards": (DATA + '[index]\nicd9 = ["250"]\nwashout_days = -1\n', "washout_days must be from 0"),
    "a title that is a number": ("title = 5\n" + PLAIN, "title must be a text"),
    "a seed below zero": ("seed = -1\n" + PLAIN, "seed must be a whole number"),
}  # fmt: skip


@pytest.fixture(scope="module")
def meds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spoilt") / "meds"
    (folder / "data").mkdir(parents=True)
    table = pa.table({"subject_id": [1], "time": pa.array([0], pa.timestamp("us")), "code": ["A"]})
    pq.write_table(table, folder / "data" / "0.parquet")
    return folder


def invoke(*arguments):
    result = CliRunner().invoke(app, ["records", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


@pytest.mark.parametrize("name", CONFIGS)
def test_spoilt_configs(name, meds, tmp_path, monkeypatch):
    assert len(CONFIGS) >= 30
    monkeypatch.setattr(evaluation, "_fit", lambda *_: pytest.fail("a fit was begun"))
    text, message = CONFIGS[name]
    file = tmp_path / "study.toml"
    file.write_text(text)
    os.symlink(meds, tmp_path / "meds")
    said = invoke("study", file, "--out", tmp_path / "out")
    assert re.search(message, said), said
    assert ".toml" in said or "[" in said  # the file, or the table of the key


# ---- inputs


def stamps(*micro):
    return pa.array(micro, pa.timestamp("us"))


def parquet(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def omop(folder, **tables):
    folder.mkdir()
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(text)


def meds_with(folder, **files):
    parquet(folder / "data" / "0.parquet", subject_id=[1], time=stamps(0), code=["A"])
    for name, columns in files.items():
        parquet(folder / "metadata" / f"{name}.parquet", **columns)


PERSON = "person_id,year_of_birth\n1,1950\n"
CONDITION = "person_id,condition_start_date,condition_source_value\n1,2009-01-01,250.00\n"

# name: (source, how the input is made at a path, what the message must say)
INPUTS = {
    "nothing there": ("meds", lambda p: None, "no events at"),
    "an empty folder": ("meds", lambda p: p.mkdir(), "no events at"),
    "no parquet": ("meds", lambda p: (p.mkdir(), (p / "x.parquet").write_text("PAR")), "cannot be read as parquet"),
    "half a parquet": ("meds", lambda p: (meds_with(p), _halve(p / "data" / "0.parquet")), "cannot be read as parquet"),
    "other columns": ("meds", lambda p: parquet(p / "a.parquet", id=[1]), "lacks subject_id, time, code"),
    "times as texts": (
        "meds", lambda p: parquet(p / "a.parquet", subject_id=[1], time=["2009"], code=["A"]), "time must be timestamp"
    ),
    "codes as numbers": (
        "meds", lambda p: parquet(p / "a.parquet", subject_id=[1], time=stamps(0), code=[1]), "code must be string"
    ),
    "costs as texts": (
        "meds",
        lambda p: parquet(p / "a.parquet", subject_id=[1], time=stamps(0), code=["A"], cost=["x"]),
        "cost must be a number",
    ),
    "times with a zone": (
        "meds",
        lambda p: parquet(p / "a.parquet", subject_id=[1], time=pa.array([0], pa.timestamp("us", "UTC")), code=["A"]),
        "--timezone",
    ),
    "no subject at all": (
        "meds",
        lambda p: parquet(p / "a.parquet", subject_id=pa.array([None], pa.int64()), time=stamps(0), code=["A"]),
        "no events in .*1 × no subject",
    ),
    "half a person": (
        "meds", lambda p: parquet(p / "a.parquet", subject_id=[1.5, 2.5], time=stamps(0, 0), code=["A", "B"]),
        "2 × subject is not an integer",
    ),
    "an unknown split": (
        "meds", lambda p: meds_with(p, subject_splits={"subject_id": [1], "split": ["test"]}), "split 'test' is not one"
    ),
    "splits without subjects": (
        "meds", lambda p: meds_with(p, subject_splits={"split": ["train"]}), "lacks the column"
    ),
    "an empty CSV": ("csv", lambda p: p.write_text(""), "is empty"),
    "a CSV of zeros": ("csv", lambda p: p.write_bytes(bytes(64)), "lacks the column"),
    "a CSV in UTF-16": (
        "csv", lambda p: p.write_text("subject,date,code\n", encoding="utf-16"), "cannot be read as text"
    ),
    "a CSV without dates": ("csv", lambda p: p.write_text("subject,code\n1,A\n"), "lacks the column"),
    "only wrong dates": ("csv", lambda p: p.write_text("subject,date,code\n1,31.02.2009,A\n"), "date cannot be read"),
    "two columns of a name": ("csv", lambda p: p.write_text("subject,date,date,code\n"), "two columns named 'date'"),
    "a damaged gzip": ("csv", lambda p: _gzip(p), "cannot be read"),
    "no OMOP table": ("omop", lambda p: omop(p, people=PERSON), "holds none of the OMOP tables"),
    "OMOP without persons' ids": (
        "omop", lambda p: omop(p, condition_occurrence="id,condition_start_date\n1,2009-01-01\n2,2009-01-01\n"),
        "condition_occurrence lacks the column",
    ),
    "OMOP that is no database": ("omop", lambda p: p.write_bytes(b"hello"), "is no folder, .zip, .duckdb or SQLite"),
    "OMOP with a year in words": (
        "omop", lambda p: omop(p, condition_occurrence=CONDITION.replace("2009-01-01", "MMIX")), "date cannot be read"
    ),
    "no claims": (
        "synpuf", lambda p: (p.mkdir(), (p / "a.csv").write_text("x\n1\n")), "no files of the DE-SynPUF layout"
    ),
    "claims without a column": (
        "synpuf",
        lambda p: (p.mkdir(), (p / "DE1_0_2008_Beneficiary_Summary_File.csv").write_text("DESYNPUF_ID\nA\n")),
        "lacks the column",
    ),
}  # fmt: skip


def _halve(file):
    file.write_bytes(file.read_bytes()[:40])


def _gzip(path):
    (path.with_name("data.csv.gz")).write_bytes(gzip.compress(b"subject,date,code\n" * 100)[:30])


@pytest.mark.parametrize("name", INPUTS)
def test_spoilt_inputs(name, tmp_path):
    assert len(INPUTS) >= 20
    source, make, message = INPUTS[name]
    path = tmp_path / ("data.csv" if source == "csv" else "data")
    make(path)
    if not path.exists() and (tmp_path / "data.csv.gz").exists():
        path = tmp_path / "data.csv.gz"
    said = invoke("import", path, "--source", source, "--out", tmp_path / "out")
    assert re.search(message, said), said
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".coaltree*"))


def test_spoilt_models_and_thresholds(meds, tmp_path):
    (tmp_path / "model.npz").write_bytes(b"no archive")
    said = invoke("apply", tmp_path / "model.npz", meds, "--out", tmp_path / "out")
    assert "is not a readable coaltree.RecordsModel" in said
    said = invoke("apply", tmp_path / "no.npz", meds, "--out", tmp_path / "out")
    assert "does not exist" in said
    for name, text, message in (
        ("a.csv", "subject_id,date\n1,soon\n", "row 2: date must be a date"),
        ("b.csv", "subject_id,date\nx,2009-01-01\n", "subject_id 'x' is not an integer"),
        ("c.csv", "subject_id,date\n1,2009-01-01\n1,2009-01-02\n", "subject 1 has two thresholds"),
        ("d.csv", "subject,date\n1,2009-01-01\n", "lacks the column"),
        ("e.csv", "subject_id,date\n", "has no rows"),
    ):
        (tmp_path / name).write_text(text)
        file = tmp_path / "study.toml"
        file.write_text(f'[data]\npath = "{meds}"\n[cohort]\nthresholds = ["{name}"]\n')
        assert re.search(message, invoke("study", file, "--out", tmp_path / f"out-{name}"))
    summary = tmp_path / "taken"
    summary.mkdir()
    (summary / "mine.json").write_text(json.dumps({}))
    assert "was not made by" in invoke("apply", tmp_path / "model.npz", meds, "--out", summary)
