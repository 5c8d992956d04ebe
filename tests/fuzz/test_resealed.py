"""Files with a right checksum and wrong contents end in our error, or give an object that works.

A few damages of every part by default; all of them with `pytest -m ci`.
"""

import sys
import warnings

import pytest

if sys.platform == "win32":
    pytest.skip("limits on memory and time need a Unix system", allow_module_level=True)

from tests.fuzz.__main__ import attempt, limits
from tests.fuzz.damage import damaged
from tests.fuzz.readers import STORED


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("many", [False, pytest.param(True, marks=[pytest.mark.slow, pytest.mark.ci])])
def test_resealed_files(name, many):
    reader = STORED[name]
    refused, failures = 0, {}
    with limits(memory=None), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data in reader.corpus():
            assert attempt(reader, data) == "accepted"
            changes = list(damaged(data))
            for what, content in changes if many else changes[:: max(1, len(changes) // 40)]:
                outcome = attempt(reader, content)
                refused += outcome == "refused"
                if outcome not in ("accepted", "refused"):
                    failures[what] = outcome
    assert not failures, (list(failures), next(iter(failures.values())))
    assert refused > 0
