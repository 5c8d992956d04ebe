"""The sweep over seeds counts what it should."""

import json

import pytest

from tests import sweep

TEST = """
from tests.seeds import seed

def test_right():
    assert seed(3) % 100_003 == 3

def test_wrong_for_one_seed():
    assert seed(0) != 2 * 100_003
"""


@pytest.mark.slow
@pytest.mark.ci
def test_alarms_are_counted(tmp_path, monkeypatch):
    file = tmp_path / "test_example.py"
    file.write_text(TEST)
    log = tmp_path / "log.jsonl"
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -n 2\n")  # as the project's configuration asks for
    monkeypatch.setenv("COALTREE_SEED", "0")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-n 2")
    modules = dict(sweep.sys.modules)
    try:
        sweep.sweep(range(3), log, [str(file)], None, 0.0)
        n_lines = len(log.read_text().splitlines())
        sweep.sweep(range(3), log, [str(file)], None, 0.0)  # nothing is run twice
    finally:
        sweep.sys.modules.update(modules)
    assert n_lines == len(log.read_text().splitlines()) == 6
    lines, bad = sweep.report(sweep.read_log(log))
    assert len(lines) == 2
    assert "test_wrong_for_one_seed: 1 of 3 seeds ([2])" in lines[0]
    assert "SUSPICIOUS" in lines[0]
    assert bad
    assert "2 tests, 6 runs (2 tests on 3 seeds): 1 alarms" in lines[1]


def test_rare_alarms_are_expected(tmp_path):
    log = tmp_path / "log.jsonl"
    test = "tests/inference/test_learn.py::x"
    outcomes = ["failed" if number == 7 else "passed" for number in range(100)]
    lines = [{"seed": k, "test": test, "outcome": each, "seconds": 1} for k, each in enumerate(outcomes)]
    log.write_text("\n".join(map(json.dumps, lines)))
    assert not sweep.report(sweep.read_log(log))[1]


def test_the_statistical_files_are_found():
    assert {"tests/inference/test_exactness.py", "tests/model/test_covariance.py"} <= set(sweep.statistical_files())
    assert "tests/test_architecture.py" not in sweep.statistical_files()
