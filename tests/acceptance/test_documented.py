"""Every command, configuration and piece of Python in README and the pages runs as it is written, on small data.

What cannot be run here stands in ELSEWHERE, with the reason; a new block that is neither fails.
"""

import re
import shlex
import subprocess
import sys
import tomllib
import zipfile

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import coaltree as ct
from coaltree.cli import app
from tests.acceptance.documented import (
    CODE,
    COMMANDS,
    REPOSITORY,
    SETTINGS,
    SHOWN,
    as_runs,
    find_blocks,
    out_of,
)
from tests.seeds import seed

# Commands that are not run here, by how they begin, and why.
ELSEWHERE = {
    "pip install": "installs from outside; .ci/run begins with it",
    "python3 -m venv": ".ci/run begins with it",
    "source .venv": ".ci/run begins with it",
    "pytest": "the tests themselves",
    "COALTREE_": "the tests themselves, longer",
    "for s in": "the tests themselves, with other seeds",
    "ruff": "run by .ci/run",
    "mypy": "run by .ci/run",
    "sphinx-build": "run by .ci/run",
    "python docs/_ext/walks.py": "two runs under a profiler; compared with a real run by tests/test_inside.py",
    "python docs/_ext/pages.py": "writes pages; compared with the pages by tests/test_docs.py",
    "python docs/check_site.py": "run by .ci/run",
    "bash .ci/run": "runs these tests",
    "PYTHON=python3.11 bash tests/compatibility.sh": "other versions of Python and numpy; run every night",
    "python -m tests.seeds": "the tests themselves, with other seeds; run every night",
    "python -m tests.fuzz": "a million inputs; run every night, and briefly by tests/fuzz",
    "python -m tests.mutation": "hours of broken code; run every night",
    "python -m benchmarks": "tables that take many minutes, written when they are measured",
    "python -m papers": "run by tests/papers",
    "coaltree records study cohort/study.toml --out results --quick": "compared with its record by test_inside.py",
    "coaltree records study synpuf.toml": "its data are not here; run by path in tests/acceptance/test_public.py",
}
# Pages whose text blocks show something else than code.
SHOWING = {"docs/api/public.md": "signatures, compared with the package by tests/test_surface.py"}
# Runs of less than two seconds, and one of minutes: a simulated cohort has 19 000 subjects by default.
QUICK, LONG = r"--version|records (import|apply)|regress predict", r"records simulate --out"

BLOCKS = find_blocks()


def is_elsewhere(command):
    return command.startswith(tuple(ELSEWHERE))


def find_runs():
    """Commands in the order of their block, each different run once."""
    found = {}
    for block in BLOCKS:
        if block.kind == COMMANDS:
            for run in as_runs([command for command in block.commands if not is_elsewhere(command)]):
                found.setdefault(run, block.page)
    return [pytest.param(run, id=" && ".join(run), marks=marks_of(run)) for run in found]


def marks_of(run):
    if all(re.search(QUICK, command) for command in run):
        return ()
    return (
        (pytest.mark.slow,) if any(re.search(LONG, command) for command in run) else (pytest.mark.slow, pytest.mark.ci)
    )


# ---- the files that commands read


def write_table(path, run):
    rng = np.random.default_rng(seed(80))
    group = np.arange(18) % 3
    columns = {
        "name": [f"row {i}" for i in range(18)],
        "species": [f"kind {i}" for i in group],
        "length": rng.normal(size=18) + 2 * group,
        "width": rng.normal(size=18) - group,
        "grade": rng.choice(["low", "middle", "high"], size=18),
        "note": [f"seen {i} times" for i in range(18)],
    }
    pd.DataFrame(columns).to_csv(path, index=False)


def regression_tables(run):
    rng = np.random.default_rng(seed(81))
    X = pd.DataFrame(rng.normal(size=(80, 2)), columns=["age", "dose"])
    risk = X.to_numpy() @ [[1.0, 0.8, -0.5], [0.2, 0.4, 0.7]]
    Y = pd.DataFrame((risk + rng.normal(size=(80, 3)) > 0).astype(int), columns=["death", "stroke", "fall"])
    if any("--id-column patient" in command for command in run):
        for table in (X, Y):
            table.insert(0, "patient", [f"p{i}" for i in range(80)])
    return X, Y


def write_features(path, run):
    regression_tables(run)[0].to_csv(path, index=False)


def write_outcomes(path, run):
    regression_tables(run)[1].to_csv(path, index=False)


def write_new(path, run):
    regression_tables(run)[0].head(4).to_csv(path, index=False)


def write_claims(path, run):
    rows = [
        "patient,day,code",
        *(f"{i},2009-0{1 + i}-05,{code}" for i, code in enumerate(("250.00", "401.9", "428.0"))),
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def write_synpuf(path, run):
    path.mkdir()
    (path / "DE1_0_2008_Beneficiary_Summary_File_Sample_1.csv").write_text(
        "DESYNPUF_ID,BENE_BIRTH_DT,BENE_DEATH_DT,BENE_SEX_IDENT_CD\nAAA,19400101,,1\n", encoding="utf-8"
    )
    (path / "DE1_0_2008_to_2010_Inpatient_Claims_Sample_1.csv").write_text(
        "DESYNPUF_ID,CLM_FROM_DT,CLM_PMT_AMT,ICD9_DGNS_CD_1\nAAA,20080312,4000.00,41001\n", encoding="utf-8"
    )


def omop_tables(n=160):
    """Patients who begin one of two drugs in 2014; half have had ulcers, and some bleed in the year after."""
    rng = np.random.default_rng(seed(82))
    ids = np.arange(1, n + 1)
    begin = np.datetime64("2014-02-01") + rng.integers(0, 200, size=n)
    ulcer = rng.random(n) < 0.5
    bleeds = rng.random(n) < np.where(ulcer, 0.6, 0.15)
    conditions = [
        *((i, day - 20, "K25.9") for i, day in zip(ids[ulcer], begin[ulcer], strict=True)),
        *((i, day - 40, f"J{10 + rng.integers(30)}") for i, day in zip(ids, begin, strict=True) for _ in range(9)),
        *((i, day + 90, "K92.2") for i, day in zip(ids[bleeds], begin[bleeds], strict=True)),
    ]
    return {
        "person": {"person_id": ids, "year_of_birth": rng.integers(1930, 1980, size=n), "gender_source_value": "F"},
        "observation_period": {
            "person_id": ids,
            "observation_period_start_date": "2012-01-01",
            "observation_period_end_date": "2017-12-31",
        },
        "drug_exposure": {
            "drug_exposure_id": ids,
            "person_id": ids,
            "drug_exposure_start_date": begin.astype(str),
            "drug_source_value": np.where(ids % 2, "00025152531", "00781178901"),
        },
        "condition_occurrence": {
            "condition_occurrence_id": np.arange(len(conditions)),
            "person_id": [i for i, _, _ in conditions],
            "condition_start_date": [str(day) for _, day, _ in conditions],
            "condition_source_value": [code for _, _, code in conditions],
        },
    }


def write_omop_zip(path, run):
    with zipfile.ZipFile(path, "w") as archive:
        for name, columns in omop_tables().items():
            archive.writestr(f"{name.upper()}.csv", pd.DataFrame(columns).to_csv(index=False))


def write_omop_database(path, run):
    import duckdb

    with duckdb.connect(str(path)) as connection:
        for name, columns in omop_tables().items():
            connection.register("given", pd.DataFrame(columns))
            connection.execute(f"CREATE TABLE {name} AS FROM given")
            connection.unregister("given")


def write_hospital(path, run):
    """Of records in the form that the command states: MEDS unless it says OMOP."""
    if any("--source omop" in command for command in run if path.name in command):
        path.mkdir()
        for name, columns in omop_tables().items():
            pd.DataFrame(columns).to_csv(path / f"{name}.csv", index=False)
    else:
        simulate(path, hospital=1)


def simulate(folder, hospital=0):
    from coaltree.records import simulate_cohort

    simulate_cohort(folder, 300, seed(1), n_factors=4, events_per_year=30.0, hospital=hospital)


def write_study(path, run):
    simulate(path.parent / "simulated")
    path.write_text(STUDY, encoding="utf-8")


STUDY = """
title = "A small study"
[data]
path = "simulated"
[cohort]
thresholds = ["2009-01-01", "2010-01-01"]
[outcomes]
keys = ["death", "acute_mi", "atrial_fibrillation", "unstable_angina"]
inclusion = false
min_events = 5
[features]
n_factors = 3
[model]
n_iter = 20
burn_in = 10
baselines = ["ridge"]
[validation]
n_folds = 2
n_resamples = 10
"""


def write_results(path, run):
    """What an earlier command has left: a study, or a regression."""
    if any("records apply" in command for command in run):
        write_study(path.parent / "study.toml", run)
        call("coaltree records study study.toml --out results")
    else:
        write_features(path.parent / "x.csv", run)
        write_outcomes(path.parent / "y.csv", run)
        call("coaltree regress --features x.csv --outcomes y.csv --out results --folds 0 --iterations 30 --burn-in 15")


def write_gibleed(path, run):
    """The configuration that the page shows with the command, and the files it names."""
    [text] = [block.text for block in BLOCKS if block.kind == SETTINGS and "bleeding.toml" in block.text]
    path.write_text(text, encoding="utf-8")
    write_omop_database(path.parent / "eunomia.duckdb", run)
    outcome = re.search(r'"bleeding.toml"\s+# (\[.+?\]) (name = .+?), (icd10 = .+)$', text, flags=re.MULTILINE)
    (path.parent / "bleeding.toml").write_text("\n".join(outcome.groups()) + "\n", encoding="utf-8")


FILES = {
    "table.csv": write_table,
    "x.csv": write_features,
    "y.csv": write_outcomes,
    "new.csv": write_new,
    "claims.csv": write_claims,
    "claims": write_synpuf,
    "GiBleed_5.3.zip": write_omop_zip,
    "other-hospital": write_hospital,
    "study.toml": write_study,
    "gibleed.toml": write_gibleed,
    "results": write_results,
}


def call(command):
    program, *words = shlex.split(command)
    if program == "python":  # of the repository
        done = [sys.executable, REPOSITORY / words[0], *words[1:]]
        return subprocess.run(done, check=True, capture_output=True, text=True).stdout
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert result.exit_code == 0, f"{command}\n{result.output}"
    return result.output


# ---- the net


def test_every_block_is_run_or_listed():
    for block in BLOCKS:
        assert block.kind in {COMMANDS, SETTINGS, CODE} or (block.kind == SHOWN and block.page in SHOWING), block.name
        if block.kind == COMMANDS:
            for command in block.commands:
                assert command.startswith(("coaltree ", "python docs/")) or is_elsewhere(command), (
                    f"{block.page}: {command}"
                )
    assert len(RUNS) >= 12
    used = [start for start in ELSEWHERE if any(c.startswith(start) for b in BLOCKS for c in b.commands)]
    assert used == list(ELSEWHERE)  # none without a use


def test_a_new_block_is_noticed():
    page = "```sh\ncoaltree cluster a.csv --out b\nmake all\n```\nIt is `coaltree demo --out c` and `coaltree cluster`."
    commands = [command for block in find_blocks({"page": page}) for command in block.commands]
    assert commands == ["coaltree cluster a.csv --out b", "make all", "coaltree demo --out c"]
    assert not is_elsewhere("make all")
    assert as_runs([*commands[::2], commands[0]]) == [tuple(commands[::2]), (commands[0],)]
    assert [block.kind for block in find_blocks({"page": "```yaml\na: 1\n```"})] == ["yaml"]


RUNS = find_runs()


@pytest.mark.parametrize("run", RUNS)
def test_commands_run(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in run:
        words = shlex.split(command)
        if "records" in words:
            pytest.importorskip("ibis", reason="the extra `records` is not installed")
        for word in words:
            name = word.split("/")[0]
            if name in FILES and name != out_of(command) and not (tmp_path / name).exists():
                FILES[name](tmp_path / name, run)
        call(command)
        out = out_of(command)
        assert out is None or (tmp_path / out).exists()
        if out is not None and not {"import", "simulate", "predict"} & set(words):
            assert (tmp_path / out / "report.html").exists()


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(
            block, id=block.name, marks=() if block.page == "README.md" else (pytest.mark.slow, pytest.mark.ci)
        )
        for block in BLOCKS
        if block.kind == CODE
    ],
)
def test_python_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    exec(compile(block.text, block.page, "exec"), {"__name__": "documented"})


@pytest.mark.parametrize("block", [pytest.param(b, id=b.name) for b in BLOCKS if b.kind == SETTINGS])
def test_configurations_are_accepted(block, tmp_path):
    """Whole ones are run with their command; parts are completed by the smallest study. Spark has its own tests."""
    pytest.importorskip("ibis", reason="the extra `records` is not installed")
    from coaltree.records import load_config

    given = tomllib.loads(block.text)
    rest = [part for part in re.split(r"\n(?=\[)", STUDY) if part.split("]")[0].strip("[\n") not in given]
    file = tmp_path / "study.toml"
    write_gibleed(tmp_path / "gibleed.toml", ())
    top, sections = re.match(r"(.*?)(^\[.*|\Z)", block.text, re.S | re.M).groups()
    parts = [top, *(part for part in rest if not part.startswith("\ntitle")), sections]
    file.write_text("\n".join(parts), encoding="utf-8")
    config = load_config(file)
    for section, values in given.items():
        if not isinstance(values, dict):
            assert getattr(config, section) == values
            continue
        assert all(hasattr(getattr(config, section), key) or key in ("codes", "thresholds") for key in values), section


# ---- Python and command agree


def test_python_and_command_agree_on_a_clustering(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "table.csv", ())
    options = "--id-column name --drop species,note --seed 3 --draws 10 --warmup 5"
    call(f"coaltree cluster table.csv --out results {options}")
    table = pd.read_csv("table.csv", index_col="name", float_precision="round_trip")  # else the last digit may differ
    table = table.drop(columns=["species", "note"])
    model = ct.CoalescentClustering(columns="auto", n_draws=10, warmup=5, random_state=3).fit(table)
    labels = pd.read_csv("results/labels.csv")
    np.testing.assert_array_equal(labels["cluster"], model.labels_)
    tree = ct.Tree.from_newick((tmp_path / "results" / "tree.nwk").read_text(encoding="utf-8"), model.tree_.names)
    np.testing.assert_allclose(tree.cophenetic(), model.tree_.cophenetic(), rtol=1e-4)
    trees = ct.TreePosterior.load("results/posterior.npz")
    np.testing.assert_array_equal(trees.children, model.posterior_.children)
    other = ct.CoalescentClustering(columns="auto", n_draws=10, warmup=5, random_state=4).fit(table)
    assert np.any(trees.children != other.posterior_.children)


def test_python_and_command_agree_on_a_regression(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, Y = regression_tables(())
    X.to_csv("x.csv", index=False)
    Y.to_csv("y.csv", index=False)
    options = "--out results --folds 0 --iterations 30 --burn-in 15 --seed 3"
    call(f"coaltree regress --features x.csv --outcomes y.csv {options}")
    call("coaltree regress predict results/model.npz x.csv --out predicted.csv")
    model = ct.CoalescentProbit(n_iter=30, burn_in=15, random_state=3).fit(X, Y)
    np.testing.assert_allclose(pd.read_csv("predicted.csv")[list(Y)], model.predict_proba(X), atol=1e-6)
