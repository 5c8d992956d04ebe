"""Results are those that were frozen, on the machines where they were."""

import json

import numpy as np
import pytest

from tests.trust import digests

FROZEN, _ = digests.read()


@pytest.mark.parametrize("entry", json.loads(digests.FILE.read_text(encoding="utf-8")))
def test_all_runs_are_frozen(entry):
    assert set(entry["digests"]) == set(digests.RUNS)
    assert len(set(entry["digests"].values())) == len(digests.RUNS) >= 40


@pytest.mark.skipif(not FROZEN, reason="digests are of other processors or libraries")
@pytest.mark.parametrize("name", digests.RUNS)
def test_the_same_bytes(name):
    assert digests.digest(digests.RUNS[name]) == FROZEN[name]


def test_one_bit_makes_another_digest():
    x = np.linspace(0.0, 1.0, 7)
    assert digests.digest(lambda: [x]) != digests.digest(lambda: [np.nextafter(x, 2.0)])
