"""Results are those that were frozen, on the machine where they were."""

import json

import numpy as np
import pytest

from tests.trust import digests

FROZEN = json.loads(digests.FILE.read_text(encoding="utf-8"))


def test_all_runs_are_frozen():
    assert set(FROZEN["digests"]) == set(digests.RUNS)
    assert len(set(FROZEN["digests"].values())) == len(digests.RUNS) >= 40


@pytest.mark.skipif(digests.platform() != FROZEN["platform"], reason="digests are of another processor or libraries")
@pytest.mark.parametrize("name", digests.RUNS)
def test_the_same_bytes(name):
    assert digests.digest(digests.RUNS[name]) == FROZEN["digests"][name]


def test_one_bit_makes_another_digest():
    x = np.linspace(0.0, 1.0, 7)
    assert digests.digest(lambda: [x]) != digests.digest(lambda: [np.nextafter(x, 2.0)])
