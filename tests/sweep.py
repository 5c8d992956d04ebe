"""Run the statistical tests over many seeds and count false alarms: `python -m tests.seeds --seeds 100`.

Every test that draws its seeds from `tests.seeds` is run with COALTREE_SEED = first, first + 1, …; a test that is right
fails as often as its tolerance says, and its negative control as rarely. The outcome of every run is appended to a log
at once, so a sweep can be stopped and continued, and made in pieces: tests shorter than `--longest` seconds first, say.
"""

import argparse
import json
import os
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from scipy import stats

ROOT = Path(__file__).parents[1]
# How often a right test may fail: the number of its comparisons times the chance that one leaves its tolerance. Most
# compare a few dozen numbers at 4.5 or 5 standard errors (7e-6, 6e-7 each) or p-values at 1e-4; those below are looser.
NOMINAL = 2e-4
LOOSER = {
    "tests/inference/test_learn.py": 1e-3,  # p > 1e-3 over all statistics together
    "tests/inference/test_calibration.py": 1e-3,
    "tests/inference/test_exactness.py": 1e-3,  # about ten comparisons at 4 standard errors
    "tests/regression/test_scores.py": 1e-3,
    "tests/records/test_cost.py": 1e-3,
}
SUSPICIOUS = 1e-3  # chance of so many alarms in a right test below which it is reported


class Recorder:
    """A pytest plugin that runs only chosen tests and appends every outcome to a log."""

    def __init__(self, log, number, known, done, longest, shortest):
        self.log, self.number, self.known, self.done = log, number, known, done
        self.longest, self.shortest = longest, shortest

    def pytest_collection_modifyitems(self, config, items):
        kept = [item for item in items if self.wanted(item.nodeid)]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    def wanted(self, test):
        seconds = self.known.get(test)
        fits = self.longest is None if seconds is None else self.shortest <= seconds <= (self.longest or 1e9)
        return fits and (self.number, test) not in self.done

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.failed:
            line = {
                "seed": self.number,
                "test": report.nodeid,
                "outcome": report.outcome,
                "seconds": round(report.duration, 3),
            }
            if report.failed:
                line["why"] = report.longreprtext[-400:]
            with self.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def statistical_files():
    """Test files that take their seeds from `tests.seeds`, directly or by a harness that does."""
    uses = re.compile(r"from tests\.seeds import|from tests\.\w+\.invariance import")
    return [
        file.relative_to(ROOT).as_posix()
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        if uses.search(file.read_text(encoding="utf-8")) and not {"slow", "trust"} & set(file.parts)
    ]


def read_log(log):
    """Outcomes by test, {test: {seed: line}}; a later line of the same test and seed counts."""
    found = defaultdict(dict)
    if log.exists():
        for text in log.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            found[line["test"]][line["seed"]] = line
    return found


def sweep(numbers, log, files, longest, shortest):
    """Run the files once a seed, in this process: kernels stay loaded, modules of tests are loaded anew."""
    os.environ.pop("PYTEST_ADDOPTS", None)
    how = ("-n", "0", "-m", "not slow or ci")  # in this process, because no recorder is in another
    for number in numbers:
        outcomes = read_log(log)
        known = {test: max(line["seconds"] for line in lines.values()) for test, lines in outcomes.items()}
        done = {(seed, test) for test, lines in outcomes.items() for seed in lines}
        os.environ["COALTREE_SEED"] = str(number)
        for name in [name for name in sys.modules if name.startswith(("tests.", "test_")) and name != __name__]:
            del sys.modules[name]
        recorder = Recorder(log, number, known, done, longest, shortest)
        pytest.main([*how, "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", *files], plugins=[recorder])


def report(outcomes):
    """Lines of the table, and whether any test alarms more often than its tolerance allows."""
    lines, bad = [], False
    counts, runs, alarms = defaultdict(int), 0, 0
    for test, by_seed in sorted(outcomes.items()):
        failed = [seed for seed, line in by_seed.items() if line["outcome"] == "failed"]
        rate = LOOSER.get(test.split("::")[0], NOMINAL)
        chance = float(stats.binom.sf(len(failed) - 1, len(by_seed), rate))
        counts[len(by_seed)] += 1
        runs, alarms = runs + len(by_seed), alarms + len(failed)
        if failed:
            mark = "  SUSPICIOUS" if chance < SUSPICIOUS else ""
            bad = bad or bool(mark)
            lines.append(
                f"{test}: {len(failed)} of {len(by_seed)} seeds ({sorted(failed)[:8]}), expected at most "
                f"{rate:g} each, chance {chance:.2g}{mark}"
            )
    spread = ", ".join(f"{n} tests on {seeds} seeds" for seeds, n in sorted(counts.items(), reverse=True))
    lines.append(f"{len(outcomes)} tests, {runs} runs ({spread}): {alarms} alarms, {alarms / max(runs, 1):.2g} a run.")
    return lines, bad


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.seeds", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--longest", type=float, help="only tests known from the log to be at most so long, in seconds")
    parser.add_argument("--shortest", type=float, default=0.0, help="only tests at least so long, or not known yet")
    parser.add_argument("--log", type=Path, default=Path("seeds.jsonl"), help="where outcomes are kept")
    parser.add_argument("--report", action="store_true", help="run nothing, tell what the log says")
    parser.add_argument("files", nargs="*", help="test files; by default all that use tests.seeds")
    given = parser.parse_args()
    if not given.report:
        files = given.files or statistical_files()
        sweep(range(given.first, given.first + given.seeds), given.log.resolve(), files, given.longest, given.shortest)
    lines, bad = report(read_log(given.log))
    print("\n".join(lines))
    return int(bad)
