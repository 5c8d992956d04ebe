"""Test the tests: `python -m tests.mutation --mutants 300 --seed 0` (`pip install -e '.[mutation]'`).

Every mutant is one change of one place. It exists in the memory of one process only, which runs the tests that reach
that place, cheapest first, until one fails; no file is changed. What has been found is kept in `--folder`, in an SQLite
file of Cosmic Ray's per state of the changed code, so a run can be stopped and continued, and made longer.

`--survivors` shows the changes that no test noticed, `--again` tries them once more (after tests were written),
`--table` prints the score, and `--page docs/trust.md` writes it there. Tests that start other processes test the
unchanged code there: what only they reach counts as a survivor.
"""

import argparse
import datetime
import difflib
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from cosmic_ray.mutating import mutate_code
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkItem, WorkResult
from scipy import stats

from tests.mutation.mutants import find_mutants, operators, sample
from tests.mutation.reach import ROOT, SOURCE, Reached, choose_tests, digest, fork, measure

# What is changed, and the tests that should notice.
PARTS = {
    "src/coaltree/records": ("tests/records/test_*.py",),
    "src/coaltree/inference/learning": (
        *("tests/inference/test_learn.py", "tests/inference/test_running.py", "tests/inference/test_stretch.py"),
        *("tests/inference/test_working.py", "tests/inference/test_heavy.py", "tests/inference/test_augment.py"),
        *("tests/inference/test_wide.py", "tests/inference/test_usual_covariance.py", "tests/trust/test_frozen.py"),
        *("tests/estimators/test_mixed.py", "tests/estimators/test_rounded.py"),
        "tests/inference/test_learn_posterior.py",
    ),
}
HEAVY = (
    "duckdb",
    "ibis",
    "numba",
    "pandas",
    "pyarrow.parquet",
    "sklearn.ensemble",
    "matplotlib.pyplot",
    "scipy.optimize",
)
MEMORY = 16 << 30  # bytes of address space for the tests of one mutant
MARKS = ("<!-- mutation: begin -->", "<!-- mutation: end -->")


class Mutated(importlib.machinery.SourceFileLoader):
    """Give one module a changed source, and leave every other to the import system."""

    def __init__(self, path: str, source: str) -> None:
        name = Path(path).relative_to("src").with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        super().__init__(name, str(ROOT / path))
        self.source = source

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Answer for the changed module alone."""
        return (
            importlib.util.spec_from_file_location(fullname, self.path, loader=self) if fullname == self.name else None
        )

    def get_code(self, fullname: str) -> Any:
        """Compile the changed source, whatever has been cached."""
        return compile(self.source, self.path, "exec")


def mutate(item: WorkItem) -> tuple[str, str]:
    """Return the source with one change, and the change as a diff."""
    change = item.mutations[0]
    source = (ROOT / change.module_path).read_text(encoding="utf-8")
    changed = mutate_code(source, operators()[change.operator_name], change.occurrence)
    name = change.module_path.as_posix()
    diff = difflib.unified_diff(source.splitlines(), changed.splitlines(), name, name, lineterm="", n=1)
    return changed, "\n".join(diff)


def attempt(path: str, source: str, tests: list[str], limit: float) -> int:
    """Run tests of a changed module until one fails; to be called in a process of its own."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.meta_path.insert(0, Mutated(path, source))
    return pytest.main(["-n", "0", "-qx", "--tb=line", "--no-header", "-p", "no:cacheprovider", *tests])


def measure_all(folder: Path, modules: list[str], part: str) -> list[Reached]:
    """Return what the tests of a part reach, from the folder where they have not changed since."""
    reached = []
    sources = sorted([*(SOURCE / "coaltree").rglob("*.py"), *(ROOT / "tests").rglob("conftest.py")])
    for file in sorted(path for pattern in PARTS[part] for path in ROOT.glob(pattern)):
        out = folder / f"{digest(*sources, file)[:16]}.json"
        if not out.exists():
            name = file.relative_to(ROOT).as_posix()
            print(f"what {name} reaches …", flush=True)
            half, log = out.with_suffix(".part"), folder / "reach.log"
            pid = fork(lambda name=name, half=half: measure(name, modules, half), log)
            if os.waitpid(pid, 0)[1]:
                raise SystemExit(f"{name} cannot be run:\n{log.read_text(encoding='utf-8')[-3000:]}")
            half.replace(out)
        reached.append(json.loads(out.read_text(encoding="utf-8")))
        for test in reached[-1]["failed"]:
            print(f"left out, because it fails without any mutant: {test}", flush=True)
    return reached


class Running:
    """The tests of one mutant in a process of their own."""

    def __init__(self, item: WorkItem, reached: list[Reached], budget: float, log: Path) -> None:
        self.item, self.log = item, log
        change = item.mutations[0]
        self.path = change.module_path.as_posix()
        tests, cost, cut = choose_tests(reached, self.path, change.start_pos[0], change.end_pos[0], budget)
        source, self.diff = mutate(item)
        self.about = f"{len(tests)} tests of {cost:.1f} s" + (", dearer ones left out" if cut else "")
        limit = 20 + 4 * cost
        self.deadline = time.monotonic() + 10 * limit
        self.pid = fork(lambda: attempt(self.path, source, tests, limit), log) if tests else None

    def result(self) -> WorkResult | None:
        """Return the outcome, or None while the tests run."""
        if self.pid is None:
            return WorkResult(WorkerOutcome.NO_TEST, "no test", TestOutcome.SURVIVED, self.diff)
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        late = time.monotonic() > self.deadline
        if not pid and not late:
            return None
        if not pid:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        tail = self.log.read_text(encoding="utf-8", errors="replace")[-1500:]
        code = os.waitstatus_to_exitcode(status)
        if late or code in (-signal.SIGXCPU, -signal.SIGKILL):
            return WorkResult(WorkerOutcome.ABNORMAL, f"time\n{tail}", TestOutcome.KILLED, self.diff)
        survived = code == pytest.ExitCode.OK
        outcome = TestOutcome.SURVIVED if survived else TestOutcome.KILLED
        return WorkResult(WorkerOutcome.NORMAL, f"{self.about}\n{tail}", outcome, self.diff)


def begin(db: WorkDB, number: int, seed: int, modules: list[str]) -> None:
    """Put the sample into the session, or what it lacks of a longer one."""
    known = {_key(item) for item in db.work_items}
    drawn = sample([find_mutants(ROOT / name, name) for name in modules], number, seed)
    db.add_work_items(item for item in drawn if _key(item) not in known)


def _key(item: WorkItem) -> tuple[str, str, int]:
    change = item.mutations[0]
    return change.module_path.as_posix(), change.operator_name, change.occurrence


def work(db: WorkDB, items: list[WorkItem], folder: Path, options: argparse.Namespace) -> None:
    """Try mutants, several at a time, and record each outcome at once."""
    for name in HEAVY:  # once, and not in every copy of this process; nothing of coaltree
        importlib.import_module(name)
    reached: dict[str, list[Reached]] = {}
    for item in items:
        part = _part(item)
        if part not in reached:
            reached[part] = measure_all(folder, _modules(part), part)
    running: list[Running] = []
    todo, done, end = list(items), 0, time.monotonic() + 60 * options.minutes
    while running or (todo and time.monotonic() < end):
        while todo and len(running) < options.processes and time.monotonic() < end:
            item = todo.pop(0)
            running.append(Running(item, reached[_part(item)], options.budget, folder / f"{item.job_id}.log"))
        time.sleep(0.02)
        for run in list(running):
            result = run.result()
            if result is not None:
                running.remove(run)
                run.log.unlink(missing_ok=True)
                db.set_result(run.item.job_id, result)
                done += 1
                where = f"{run.path}:{run.item.mutations[0].start_pos[0]}"
                print(f"{done}/{len(items)} {result.test_outcome.value} {where}", flush=True)


def _part(item: WorkItem) -> str:
    return next(part for part in PARTS if item.mutations[0].module_path.as_posix().startswith(part + "/"))


def _modules(part: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / part).rglob("*.py"))


def table(db: WorkDB) -> str:
    """Return the score per module as Markdown: what was tried, noticed and not."""
    from coaltree import __version__

    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for item, result in _results(db):
        of_module = counts[item.mutations[0].module_path.relative_to("src/coaltree").as_posix()]
        kind = "time" if result.worker_outcome == WorkerOutcome.ABNORMAL else result.test_outcome.value
        of_module["no test" if result.worker_outcome == WorkerOutcome.NO_TEST else kind] += 1
    lines = ["| module | mutants | killed | out of time | survived | reached by no test |", "|---|---|---|---|---|---|"]
    for name in sorted(counts):
        lines.append(_row(f"`{name}`", counts[name]))
    whole = sum(counts.values(), Counter())
    lines.append(_row("**all**", whole))
    killed, tried = whole["killed"] + whole["time"], whole.total()
    if not tried:
        return "No mutant has been tried."
    low, high = stats.binomtest(killed, tried).proportion_ci(method="wilson")
    head = (
        f"Version {__version__}, {datetime.date.today():%Y-%m-%d}: {killed} of {tried} mutants noticed, "
        f"{killed / tried:.0%} (95 % interval of the sample {low:.0%} to {high:.0%})."
    )
    return "\n".join([head, "", *lines])


def _row(name: str, count: Counter[str]) -> str:
    values = (count.total(), count["killed"], count["time"], count["survived"], count["no test"])
    return f"| {name} | " + " | ".join(str(value) for value in values) + " |"


def _results(db: WorkDB) -> list[tuple[WorkItem, WorkResult]]:
    results = dict(db.results)
    return [(item, results[item.job_id]) for item in db.work_items if item.job_id in results]


def main(arguments: list[str] | None = None) -> int:
    """Run, show or write."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.split("\n")[0])
    parser.add_argument("--mutants", type=int, default=300, help="how many, over all modules")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--budget", type=float, default=60, help="seconds of tests per mutant (processor time)")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no mutant after this time")
    parser.add_argument("--processes", type=int, default=1, help="mutants at a time")
    parser.add_argument("--folder", type=Path, default=ROOT / "mutation", help="where results are kept")
    parser.add_argument("--again", action="store_true", help="try the survivors once more")
    parser.add_argument("--survivors", action="store_true", help="show the survivors and end")
    parser.add_argument("--table", action="store_true", help="print the score and end")
    parser.add_argument("--page", type=Path, help="write the score into this page and end")
    options = parser.parse_args(arguments)
    os.chdir(ROOT)
    sys.path[:0] = [str(SOURCE)]
    options.folder.mkdir(parents=True, exist_ok=True)
    modules = [name for part in PARTS for name in _modules(part)]
    session = options.folder / f"{digest(*(ROOT / name for name in modules))[:16]}.sqlite"
    with use_db(session, WorkDB.Mode.create) as db:
        if options.survivors:
            for _, result in _results(db):
                if not result.is_killed:
                    print(f"{result.diff}\n# {result.output.splitlines()[0]}\n")
        elif options.page:
            page = options.page.read_text(encoding="utf-8")
            before, rest = page.split(MARKS[0])
            after = rest.split(MARKS[1])[1]
            options.page.write_text(f"{before}{MARKS[0]}\n{table(db)}\n{MARKS[1]}{after}", encoding="utf-8")
        elif not options.table:
            if not options.again:
                begin(db, options.mutants, options.seed, modules)
            items = list(db.pending_work_items)
            if options.again:
                items = [item for item, result in _results(db) if not result.is_killed]
            work(db, items, options.folder, options)
        print(table(db) if not options.survivors else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
