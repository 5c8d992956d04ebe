"""Mutants are what they should be, and a process that has one imports it."""

import os
import sys

import pytest

pytest.importorskip("cosmic_ray")
pytest.importorskip("coverage")

from cosmic_ray.mutating import mutate_code

from tests.mutation.__main__ import Mutated
from tests.mutation.mutants import DropKeyword, find_mutants, sample
from tests.mutation.reach import ROOT, choose_tests, fork


@pytest.mark.parametrize(
    ("code", "number", "expected"),
    [
        ("f(1, seed=2)\n", 0, "f(1)\n"),
        ("f(seed=2)\n", 0, "f()\n"),
        ("f(a=1, b=2)\n", 0, "f( b=2)\n"),
        ("f(a=1, b=2)\n", 1, "f(a=1)\n"),
        ("f(a=1, b=2)\n", 2, None),
        ("f(1, *rest, **more)\n", 0, None),
    ],
)
def test_a_keyword_is_left_out(code, number, expected):
    assert mutate_code(code, DropKeyword(), number) == expected


def test_annotations_are_no_arithmetic(tmp_path):
    (tmp_path / "a.py").write_text("def f(x: int | None) -> int | None:\n    return x | 3\n")
    places = {item.mutations[0].start_pos for item in find_mutants(tmp_path / "a.py", "a.py")}
    assert {line for line, _ in places} == {2}


def test_a_longer_sample_begins_with_the_shorter_one():
    files = [[f"{name}{i}" for i in range(size)] for name, size in (("a", 60), ("b", 30), ("c", 10))]
    short, long = sample(files, 20, 0), sample(files, 50, 0)
    assert long[:20] == short
    assert sample(files, 20, 1) != short
    assert [sum(item[0] == name for item in long) for name in "abc"] == pytest.approx([30, 15, 5], abs=2)


def test_another_process_has_the_mutant():
    name, path = "coaltree.records.errors", "src/coaltree/records/errors.py"
    source = (ROOT / path).read_text(encoding="utf-8") + "MUTANT = True\n"

    def work():
        sys.modules.pop(name, None)
        sys.meta_path.insert(0, Mutated(path, source))
        return 0 if __import__(name, fromlist=["MUTANT"]).MUTANT else 1

    assert os.waitpid(fork(work), 0)[1] == 0
    assert not hasattr(__import__(name, fromlist=["MUTANT"]), "MUTANT")


def test_tests_of_a_place():
    """Cheapest first with their fixtures, within the budget, and all tests of the module for what runs at import."""
    module = "src/coaltree/records/errors.py"
    lines = {str(line): ["", "a"] if line < 5 else ["fixture big"] for line in range(1, 80)}
    part = {
        "lines": {module: lines},
        "seconds": {"a": 1.0, "b": 0.5, "c": 0.1, "fixture big": 4.0},
        "users": {"fixture big": ["b", "c"]},
        "failed": [],
    }
    assert choose_tests([part], module, 1, 1, 60) == (["a", "c", "b"], pytest.approx(5.6), False)
    assert choose_tests([part], module, 1, 1, 5.2) == (["a", "c"], pytest.approx(5.1), True)
    assert choose_tests([{**part, "failed": ["b"]}], module, 1, 1, 60)[0] == ["a", "c"]
    assert choose_tests([part], "src/coaltree/records/cost.py", 1, 1, 60) == ([], 0.0, False)
