"""Which tests reach which lines, and what each test costs: measured once per file of tests."""

import ast
import hashlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
Reached = dict[str, Any]


class Recorder:
    """A pytest plugin: lines are recorded under the test, or the shared fixture, that runs them."""

    def __init__(self, coverage: Any) -> None:
        self.coverage, self.stack, self.seconds, self.failed = coverage, [""], {}, []
        self.fixtures: dict[str, list[str]] = {}

    def _within(self, context: str) -> Iterator[None]:
        self.stack.append(context)
        self.coverage.switch_context(context)
        start = time.process_time()
        yield
        self.seconds[context] = self.seconds.get(context, 0.0) + time.process_time() - start
        self.stack.pop()
        self.coverage.switch_context(self.stack[-1])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.fixtures[item.nodeid] = list(getattr(item, "fixturenames", ()))
        yield from self._within(item.nodeid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            yield
        else:
            yield from self._within(f"fixture {fixturedef.argname}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def measure(file: str, modules: list[str], out: Path) -> int:
    """Run one file of tests and write what reaches what; to be called in a process of its own."""
    import coverage

    watch = coverage.Coverage(data_file=None, include=[str(ROOT / name) for name in modules], config_file=False)
    watch.start()
    recorder = Recorder(watch)
    code = pytest.main(["-n", "0", "-q", "-p", "no:cacheprovider", file], plugins=[recorder])
    watch.stop()
    lines: dict[str, dict[str, list[str]]] = {}
    data = watch.get_data()
    for path in data.measured_files():
        of_file = data.contexts_by_lineno(path)
        lines[Path(path).relative_to(ROOT).as_posix()] = {str(line): sorted(of_file[line]) for line in of_file}
    users = defaultdict(list)
    for test, names in recorder.fixtures.items():
        for name in names:
            if f"fixture {name}" in recorder.seconds:
                users[f"fixture {name}"].append(test)
    found = {"seconds": recorder.seconds, "users": users, "lines": lines, "failed": recorder.failed}
    out.write_text(json.dumps(found), encoding="utf-8")
    ran = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    return 0 if code in ran else 1


def digest(*paths: Path) -> str:
    """Return a digest of files, in order."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def _statement(source: str, first: int, last: int) -> tuple[range, bool]:
    """Return the lines of the innermost statement around a place, and whether it is in the head of a definition."""
    best = None
    for node in ast.walk(ast.parse(source)):
        around = isinstance(node, ast.stmt) and node.lineno <= first and last <= (node.end_lineno or 0)
        if around and (best is None or node.lineno >= best.lineno):
            best = node
    if best is None:
        return range(first, last + 1), False
    body = getattr(best, "body", None)
    if isinstance(best, ast.FunctionDef):  # its defaults: whatever runs the body
        return range(best.lineno, (best.end_lineno or 0) + 1), True
    if body:  # the head of a loop, a condition or a class
        return range(best.lineno, max(body[0].lineno, best.lineno + 1)), False
    return range(best.lineno, (best.end_lineno or 0) + 1), False


def choose_tests(
    reached: list[Reached], module: str, first: int, last: int, budget: float
) -> tuple[list[str], float, bool]:
    """Return the tests that run the lines of a module, cheapest first, and what they cost (seconds of processor time).

    Tests beyond a cost of `budget` in total are left out, and the last value says whether any were. What runs at import
    is tested by whatever runs any line of the module.
    """
    lines, head = _statement((ROOT / module).read_text(encoding="utf-8"), first, last)
    costs: dict[str, float] = {}
    shared: dict[str, set[str]] = defaultdict(set)
    seconds: dict[str, float] = {}
    for part in reached:
        of_module = part["lines"].get(module, {})
        contexts = {context for line in lines for context in of_module.get(str(line), ())}
        if "" in contexts and not head:
            contexts = {context for names in of_module.values() for context in names}
        for context in contexts - {""}:
            for test in part["users"].get(context, [context]):
                if test not in part["failed"]:
                    costs[test] = part["seconds"][test]
        for fixture, users in part["users"].items():
            seconds[fixture] = part["seconds"][fixture]
            for test in users:
                shared[test].add(fixture)
    chosen, paid, spent = [], set(), 0.0
    for test in sorted(costs, key=lambda name: costs[name] + sum(seconds[fixture] for fixture in shared[name])):
        cost = costs[test] + sum(seconds[fixture] for fixture in shared[test] - paid)
        if spent + cost > budget and chosen:
            return chosen, spent, True
        chosen.append(test)
        paid |= shared[test]
        spent += cost
    return chosen, spent, False


def fork(work: Any, out: Path | None = None) -> int:
    """Begin `work()` in a copy of this process whose output goes to a file, and return the id of that process."""
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        with open(out or os.devnull, "wb", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.setsid()
        code = int(work())
    finally:
        os._exit(code)
