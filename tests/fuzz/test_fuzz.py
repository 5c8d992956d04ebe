"""A fifth of some thousand mutated inputs of every reader, all of them with `pytest -m ci`.

`python -m tests.fuzz READER --inputs 1000000` tries more.
"""

import sys

import pytest

if sys.platform == "win32":
    pytest.skip("limits on memory and time need a Unix system", allow_module_level=True)

from tests.fuzz.__main__ import attempt, fuzz, limits
from tests.fuzz.readers import READERS, Reader

N_INPUTS = {"newick": 3000, "nexus": 3000, "csv": 3000, "npy": 2000, "parquet": 1000, "config": 500}
NEEDS = {"parquet": "pyarrow", "config": "ibis"}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("share", [0.2, pytest.param(1.0, marks=[pytest.mark.slow, pytest.mark.ci])])
def test_only_results_and_our_own_errors(name, share):
    pytest.importorskip(NEEDS.get(name, "numpy"))
    result = fuzz(name, 0, round(share * N_INPUTS.get(name, 600)), seed=1)
    assert not result["failures"], next(iter(result["failures"].values()))
    assert result["accepted"] > 0  # the mutants are near enough to valid files to get inside
    assert result["refused"] > 0


def raises(error):
    def read(data):
        raise error

    return Reader(lambda: [b"x"], lambda rng, corpus: b"x", read, (ValueError,))


def test_other_failures_are_seen():
    assert attempt(raises(ValueError("X must be …")), b"") == "refused"
    assert "without a message" in attempt(raises(ValueError()), b"")
    assert "KeyError" in attempt(raises(KeyError("header")), b"")
    assert "MemoryError" in attempt(raises(MemoryError()), b"")
    assert "RecursionError" in attempt(raises(RecursionError()), b"")


def test_what_takes_too_long_is_seen(monkeypatch):
    monkeypatch.setattr("tests.fuzz.__main__.SECONDS", 0.2)

    def spin(data):
        while True:
            pass

    with limits(memory=None):
        assert "TooLong" in attempt(Reader(list, lambda rng, corpus: b"", spin, (ValueError,)), b"")
