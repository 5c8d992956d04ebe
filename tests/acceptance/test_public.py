"""Public records, studied by the commands that the documentation gives; the data are by path, and skipped if absent.

COALTREE_SYNPUF is a folder with the files of the DE-SynPUF sample, COALTREE_GIBLEED and COALTREE_MIMIC_OMOP folders or
files in OMOP's layout, COALTREE_MIMIC_MEDS a MEDS dataset.
"""

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("ibis", reason="the extra `records` is not installed")
pytest.importorskip("meds", reason="the extra `records` is not installed")

from coaltree.cli import app
from tests.records.attack import attack

PAGE = (Path(__file__).parents[2] / "docs" / "records.md").read_text(encoding="utf-8")
SHORT = "\n[model]\nn_iter = 40\nburn_in = 20\n"


def data(name, default=None):
    """The path of a data set, or a skipped test."""
    path = os.environ.get(name, default)
    if path is None or not Path(path).exists():
        pytest.skip(f"{name} names no data")
    return Path(path).resolve()


def documented(first_line):
    """The TOML block of the page that begins with a comment."""
    (block,) = re.findall(rf"```toml\n({re.escape(first_line)}.*?)```", PAGE, flags=re.DOTALL)
    return block


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_sample_of_claims(tmp_path):
    """Import, then a study of the import and one of the files themselves: the same subjects."""
    claims, run = data("COALTREE_SYNPUF", "/work/shared/data/synpuf"), CliRunner().invoke
    result = run(app, ["records", "import", str(claims), "--source", "synpuf", "--out", str(tmp_path / "events")])
    assert result.exit_code == 0, result.output
    text = documented("# synpuf.toml").replace('"claims"', json.dumps(str(claims)))
    (tmp_path / "synpuf.toml").write_text(text + SHORT)
    result = run(app, ["records", "study", str(tmp_path / "synpuf.toml"), "--out", str(tmp_path / "out"), "--quick"])
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert attack(tmp_path / "out") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "source"), [("COALTREE_GIBLEED", "omop"), ("COALTREE_MIMIC_OMOP", "omop"), ("COALTREE_MIMIC_MEDS", "meds")]
)
def test_other_public_records_are_imported(tmp_path, name, source):
    path = data(name)
    out = str(tmp_path / "events")
    result = CliRunner().invoke(app, ["records", "import", str(path), "--source", source, "--out", out])
    assert result.exit_code == 0, result.output
    assert re.search(r"[\d,]+ events of [\d,]+ subjects", result.output)
