"""The folder to be shared: listed files alone, no login, no folder of this machine, no file outside it."""

import datetime
import json
import tomllib
import traceback

import numpy as np
import pytest

from coaltree.records import RecordsError, load_config, load_outcomes
from coaltree.records.cohort import Cohort, CohortRule
from coaltree.records.config import DataConfig
from coaltree.records.dataset import open_source
from coaltree.records.engine import connect_to
from coaltree.records.importer import import_summary
from coaltree.records.labels import Labels
from coaltree.records.outcomes import Definition, OutcomeSet
from coaltree.records.published import PUBLISHED, published_config
from coaltree.records.review import Group, outcome_rows, table_one
from coaltree.records.sources import import_csv
from coaltree.results.folder import replaced_folder
from coaltree.results.records import other_files
from tests.records.attack import attack_nested, attack_thresholds, solved_parts
from tests.seeds import seed

LOGIN, PASSWORD = "alice", "s3cret/pass"
URL = f"postgres://{LOGIN}:s3cret%2Fpass@db.hospital.example:5432/records?sslpassword=hunter2"
CONFIG = f"""
title = 'A "study" = x'   # the password is hunter2
seed = 3
[data]
events = "hosp.events"
connection = "{URL}"
[cohort]
thresholds = [2009-01-01, "/home/alice/dates.csv"]
data_end = 2010-12-31
[outcomes]
file = "C:\\\\Users\\\\alice\\\\mine.toml"
inclusion = false
[cost]
source = "prices"
prices = "tables/prices.csv"
level = 0.9
[features]
windows = [30, "all"]
"""


def is_told(text):
    return [secret for secret in (LOGIN, PASSWORD, "s3cret", "hunter2", "db.hospital") if secret in text]


# ---- the config


def test_the_published_config_has_no_login_and_no_folder(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(CONFIG)
    assert is_told(CONFIG)
    text = published_config(file)
    assert is_told(text) == []
    before, after = tomllib.loads(CONFIG), tomllib.loads(text)
    before["data"]["connection"] = "postgres://***"
    before["cohort"]["thresholds"][1] = "dates.csv"
    before["outcomes"]["file"] = "mine.toml"
    assert after == before
    assert after["cohort"]["data_end"] == datetime.date(2010, 12, 31)


@pytest.mark.parametrize(
    "path", ["../../alice/x.csv", "a/../../alice/x.csv", "~alice/x.csv", "\\\\\\\\host\\\\alice\\\\x.csv"]
)
def test_paths_that_lead_elsewhere_are_published_as_names(tmp_path, path):
    file = tmp_path / "study.toml"
    file.write_text(f'[cost]\nprices = "{path}"\n')
    assert tomllib.loads(published_config(file)) == {"cost": {"prices": "x.csv"}}


def test_other_settings_are_published_as_they_are(tmp_path):
    """Nested tables, odd letters and numbers survive."""
    file = tmp_path / "study.toml"
    file.write_text(
        'title = "caf\u00e9 \\u007f \\n \\"q\\""\n[data]\npath = "a/b"\nsource = "csv"\n'
        '[data.columns]\nsubject = "patient id"\n[index]\nicd9 = ["250"]\nexcept.icd9 = ["250.x1"]\n"odd key" = 1e-3\n'
    )
    assert tomllib.loads(published_config(file)) == tomllib.loads(file.read_text())


# ---- errors


def test_errors_do_not_repeat_a_login(tmp_path, monkeypatch):
    import ibis

    def refuse(url):
        raise OSError(f"connection to {url} failed for {LOGIN} with {PASSWORD}")

    monkeypatch.setattr(ibis, "connect", refuse)
    with pytest.raises(RecordsError, match="cannot connect to 'postgres://") as caught:
        connect_to(URL)
    printed = "".join(traceback.format_exception(caught.value))
    assert [secret for secret in is_told(printed) if secret != "db.hospital"] == []
    for wrong in (f'["{URL}"]', f'"{URL}"\npath = "x"'):
        (tmp_path / "study.toml").write_text(f'[data]\nevents = "e"\nconnection = {wrong}\n[cohort]\nthresholds = []')
        with pytest.raises(RecordsError) as caught:
            load_config(tmp_path / "study.toml")
        assert [secret for secret in is_told(str(caught.value)) if secret != "db.hospital"] == []


def test_errors_hide_what_looks_like_a_secret():
    told = str(RecordsError("no route: host=db user=x password='a b' token=abc; try spark://u:p@h:1 or duckdb:///x.db"))
    assert told == "no route: host=db user=x password=*** token=***; try spark://***@h:1 or duckdb:///x.db"


def test_datasets_are_named_without_folders(tmp_path):
    """Also those imported before, whose names have the whole path."""
    (tmp_path / "hospital.csv").write_text("subject,date,code\n1,2009-01-01,A\n")
    out = import_csv(tmp_path / "hospital.csv", tmp_path / "events")
    assert import_summary(out)["dataset_name"] == "CSV hospital.csv"
    file = out / "metadata" / "dataset.json"
    for name, shown in ((f"MEDS {tmp_path}/a b/", "a b"), ("DE-SynPUF C:\\x\\claims", "claims"), ("SynPUF", "SynPUF")):
        file.write_text(json.dumps({**json.loads(file.read_text()), "dataset_name": name}))
        found = open_source(DataConfig(path=str(out)), tmp_path / "private")[1]
        assert found["dataset_name"] == shown


# ---- keys of outcomes


@pytest.mark.parametrize(
    "key", ["/tmp/x", "../x", "a/b", "a\\\\b", "", ".hidden", "nul", "CON.x", "x" * 101, "a\u0000b"]
)
def test_keys_that_are_no_names_of_files_are_refused(tmp_path, key):
    file = tmp_path / "mine.toml"
    file.write_text(f'[outcomes."{key}"]\nname = "X"\nicd9 = ["410"]\n'.replace("\0", "\\u0000"))
    with pytest.raises(RecordsError, match=r"\[outcomes\..*a key names the file"):
        load_outcomes(file)


def test_keys_of_one_file_are_refused(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[outcomes.AMI]\nicd9 = ["410"]\n[outcomes.ami]\nicd9 = ["411"]\n')
    with pytest.raises(RecordsError, match="'AMI' and 'ami' differ by capitals"):
        load_outcomes(file)
    file.write_text('[outcomes."E11.9"]\nicd10 = ["E11.9"]\n[outcomes."h\u00e9mophilie"]\nicd9 = ["286"]\n')
    assert [outcome.key for outcome in load_outcomes(file).outcomes] == ["E11.9", "h\u00e9mophilie"]


# ---- files


def test_only_listed_files_are_published(tmp_path):
    out = tmp_path / "out"
    with (
        pytest.raises(AssertionError, match=r"patients\.csv may not be published"),
        replaced_folder(out, "x", PUBLISHED) as folder,
    ):
        (folder / "patients.csv").write_text("1")
    assert not out.exists()
    for names in (("auc.csv", "scores-temporal.csv"), ("auc.csv", "cost.csv")):
        with replaced_folder(out, "x", PUBLISHED) as folder:
            (folder / "summary.json").write_text('{"command": "x"}')
            for name in names:
                (folder / name).write_text("1")
        (out / "mine.txt").write_text("precious")
    # Nothing of an earlier study stays among the files of the last; what is not ours stays, and is named.
    assert {file.name for file in out.iterdir()} == {"summary.json", "auc.csv", "cost.csv", "mine.txt"}
    assert other_files(out) == ["mine.txt"]


# ---- two thresholds


def labelled(rng, n, rates):
    """Labels of the same subjects at two thresholds: had before, since, and censored at random."""
    had, since, gone = (rng.random((n, len(rates))) < rates * share for share in (0.5, 1.0, 2.0))
    found = []
    for prior, events in ((had, since), (had | since, rng.random(had.shape) < rates)):
        Y = np.where(gone, np.nan, events.astype(float))
        Y[prior] = np.nan
        cohort = Cohort(np.arange(n), np.zeros(n, int), np.full(n, 364), np.zeros(n, bool), CohortRule())
        found.append(Labels(cohort, Y, prior, gone & ~prior))
    return found


def tables_of(labels, n_outcomes):
    outcomes = OutcomeSet(tuple(Definition(f"o{j}", f"o{j}", (), (), "x") for j in range(n_outcomes)))
    groups = [Group(f"T{k}", found, np.zeros(len(found.Y)), np.zeros(len(found.Y))) for k, found in enumerate(labels)]
    rows = outcome_rows(outcomes, {f"T{k}": found for k, found in enumerate(labels)})
    return {
        "outcomes": [{key: str(value) for key, value in row.items()} for row in rows],
        "table-one": table_one(groups, outcomes.names),
    }


def test_two_thresholds_do_not_tell_each_other(monkeypatch):
    """Subtracting one threshold's events from those who had it before the next leaves no hidden number."""
    rng, found, solved = np.random.default_rng(seed(31)), 0, []
    rates = np.geomspace(0.004, 0.9, 12)
    for n in (60, 150, 400, 2000) * 5:
        labels = labelled(rng, n, rates)
        tables = tables_of(labels, len(rates))
        found += sum("withheld" in row.values() for row in tables["outcomes"])
        solved += attack_thresholds(tables, " T0", " T1", n)
    assert solved == []
    assert found > 20
    # Negative control: with the numbers of each threshold as they may be shown alone, many are solved for.
    monkeypatch.setattr("coaltree.records.review.beside_earlier", lambda first, second: second)
    assert len(attack_thresholds(tables_of(labelled(rng, 400, rates), len(rates)), " T0", " T1", 400)) > 0


# ---- outcomes of which one is a part of another


def test_parts_of_outcomes_do_not_tell_the_rest(monkeypatch):
    """Unstable angina is coronary disease: one number minus the other is one of patients."""
    rng, found, solved, n = np.random.default_rng(seed(32)), 0, [], 300
    nested = [("o0", "o1"), ("o1", "o2")]

    def tables():
        had = np.logical_or.accumulate(rng.random((n, 3)) < [0.15, 0.02, 0.02], axis=1)  # who has one has the next
        happens = np.logical_or.accumulate(rng.random((n, 3)) < [0.1, 0.01, 0.02], axis=1) & ~had
        Y = np.where(had, np.nan, happens.astype(float))
        gone = (rng.random(n) < 0.1)[:, None] & ~had & ~happens
        Y[gone] = np.nan
        cohort = Cohort(np.arange(n), np.zeros(n, int), np.full(n, 364), np.zeros(n, bool), CohortRule())
        return tables_of([Labels(cohort, Y, had, gone)], 3)

    for _ in range(30):
        shown = tables()
        found += sum("withheld" in row.values() for row in shown["outcomes"])
        solved += attack_nested(shown, " T0", nested)
        for row in shown["outcomes"]:
            cells = [row[f"{name} T0"] for name in ("labels", "had it before", "censored")]
            solved += solved_parts(cells, n, row["outcome"])
    assert solved == []
    assert found > 20
    # Negative control: what may be shown of each outcome alone.
    monkeypatch.setattr("coaltree.records.review.nearly_contained", lambda had: set())
    assert sum(len(attack_nested(tables(), " T0", nested)) for _ in range(10)) > 5
