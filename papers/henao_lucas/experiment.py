"""What the experiments share: tasks that resume, a summary, claims that can fail, and a page.

Each folder has a `run.py` with one `Experiment`. Its work is a list of tasks, each named by a key of text and numbers
and seeded by that key alone, so that any subset gives the same numbers in any order. A finished task is a line of
`rows.jsonl` in the output folder; a run that was stopped goes on after the last line.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from matplotlib import rc_context
from matplotlib.figure import Figure
from tqdm import tqdm

import coaltree as ct
from papers.henao_lucas.figures import STYLE

Key = tuple[str | int | float, ...]
Row = dict[str, Any]  # what one task gives: numbers by measure; lists for curves
Summary = dict[str, Any]
Options = argparse.Namespace  # replicates (None: the paper's), quick, data (None or a folder), jobs, report

MARKS = ("<!-- results -->", "<!-- end of results -->")


@dataclass(frozen=True)
class Claim:
    """A statement with a number: `value` is at least (or at most) `bound`, give or take `tolerance`."""

    statement: str
    value: float
    bound: float
    at_least: bool = True
    tolerance: float = 0.0  # a multiple of the standard error of value − bound
    timed: bool = False  # rests on run times: true of a quiet machine

    @property
    def holds(self) -> bool:
        """Whether the number bears the statement out."""
        gap = self.value - self.bound if self.at_least else self.bound - self.value
        return bool(gap >= -self.tolerance)


@dataclass(frozen=True)
class Experiment:
    """One table or figure.

    Attributes
    ----------
    name : str
        The folder's name.
    tasks : callable
        Options → the keys of all tasks.
    run : callable
        (key, options, generator) → a row of plain numbers, lists and text.
    summarise : callable
        {key: row} → a summary that JSON can hold.
    claims : callable
        (summary, expected) → what must hold, also of a quick run (the tolerances grow with the standard errors).
    table : callable
        (summary, expected) → lines of Markdown, ours beside the paper's.
    figures : callable
        {key: row} → figures by file name (no suffix); empty if the experiment has none.
    data : tuple of (str, str)
        The files that are needed, each with a word on what it is and where it comes from.
    """

    name: str
    tasks: Callable[[Options], Sequence[Key]]
    run: Callable[[Key, Options, np.random.Generator], Row]
    summarise: Callable[[dict[Key, Row]], Summary]
    claims: Callable[[Summary, Summary], Sequence[Claim]]
    table: Callable[[Summary, Summary], Iterator[str]]
    figures: Callable[[dict[Key, Row]], dict[str, Figure]] = lambda rows: {}
    data: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of this experiment."""
        return Path(__file__).parent / self.name

    def expected(self) -> Summary:
        """Read the paper's numbers."""
        return dict(json.loads((self.folder / "expected.json").read_text()))


class MissingDataError(Exception):
    """A data file is not where it was looked for."""


def data_file(options: Options, name: str, what: str) -> Path:
    """Return the path of a data file, or say in one line what it is and how to pass it."""
    if options.data is None:
        raise MissingDataError(f"{name} is needed ({what}): pass the folder that holds it with --data FOLDER.")
    path = Path(options.data) / name
    if not path.exists():
        raise MissingDataError(f"{path} does not exist: it should be {what}. Pass its folder with --data FOLDER.")
    return path


def generator(*key: str | int | float) -> np.random.Generator:
    """Return the random generator of a key: the same whatever else is run."""
    return np.random.default_rng([zlib.crc32(repr(part).encode()) for part in key])


def perform(experiment: Experiment, options: Options, out: Path) -> Summary:
    """Run what is not done yet, then write results.json, the figures and the README's table into `out`."""
    for name, what in experiment.data:
        data_file(options, name, what)
    out.mkdir(parents=True, exist_ok=True)
    rows = _run_tasks(experiment, options, out / "rows.jsonl")
    expected = experiment.expected()
    summary = experiment.summarise(rows)
    claims = experiment.claims(summary, expected)
    results = {
        "version": ct.__version__,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}",
        "quick": options.quick,
        "replicates": options.replicates,  # None: as many as in the paper
        "tasks": len(rows),
        "all_tasks": len(experiment.tasks(options)),
        "seconds": round(sum(row["seconds"] for row in rows.values()), 1),
        "summary": summary,
        "claims": [
            {
                "statement": c.statement,
                "value": c.value,
                "bound": c.bound,
                "at_least": c.at_least,
                "tolerance": c.tolerance,
                "timed": c.timed,
                "holds": c.holds,
            }
            for c in claims
        ],
    }
    (out / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    with rc_context(dict(STYLE)):
        for name, figure in experiment.figures(rows).items():
            for suffix in ("png", "svg"):
                metadata = {"Date": None} if suffix == "svg" else None  # else the file differs at every run
                figure.savefig(out / f"{name}.{suffix}", dpi=150, bbox_inches="tight", metadata=metadata)
    _write_page(experiment, out, [*experiment.table(summary, expected), "", *_claim_lines(claims)], results)
    return results


def _run_tasks(experiment: Experiment, options: Options, path: Path) -> dict[Key, Row]:
    """Return the rows of all tasks; those in the file are not run again."""
    done: dict[Key, Row] = {}
    header = {"version": ct.__version__, "quick": options.quick}
    if path.exists():
        # A run that was killed may leave half a line.
        whole_lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if whole_lines and json.loads(whole_lines[0]) != header:
            raise ValueError(f"{path} is of another run ({whole_lines[0].strip()}): remove it, or give another --out.")
        done = {tuple(key): row for key, row in map(json.loads, whole_lines[1:])}
    keys = [tuple(key) for key in experiment.tasks(options)]
    if getattr(options, "report", False):  # reads only: another process may be writing
        return {key: done[key] for key in keys if key in done}
    lines = [json.dumps(header)] + [json.dumps([list(key), row]) for key, row in done.items()]
    whole = path.with_suffix(".new")
    whole.write_text("".join(line + "\n" for line in lines))
    whole.replace(path)  # in one step: a kill leaves the old file or the new
    left = [key for key in keys if key not in done]
    results = Parallel(n_jobs=options.jobs, return_as="generator_unordered")(
        delayed(_run_task)(experiment.run, key, options) for key in left
    )
    with path.open("a") as file, tqdm(total=len(keys), initial=len(keys) - len(left), desc=experiment.name) as bar:
        for key, row in results:
            line = json.dumps([list(key), row])
            file.write(line + "\n")
            file.flush()
            done[key] = json.loads(line)[1]  # what a later run would read
            bar.update()
    return {key: done[key] for key in keys}


def _run_task(run: Callable[[Key, Options, np.random.Generator], Row], key: Key, options: Options) -> tuple[Key, Row]:
    """Run one task; its CPU time is part of the row unless it gave its own."""
    began = time.process_time()
    row = run(key, options, generator(*key))
    return key, {"seconds": time.process_time() - began, **row}


def _claim_lines(claims: Sequence[Claim]) -> Iterator[str]:
    yield "| claim | measured | bound | holds |"
    yield "|---|---|---|---|"
    for c in claims:
        give = f" ∓ {c.tolerance:.2g}" if c.tolerance else ""
        sign = "≥" if c.at_least else "≤"
        yield f"| {c.statement} | {c.value:.3g} | {sign} {c.bound:.3g}{give} | {'yes' if c.holds else '**no**'} |"


def _write_page(experiment: Experiment, out: Path, lines: Sequence[str], results: Summary) -> None:
    """Put the table between the marks of the README; the words around it are written by hand."""
    source = experiment.folder / "README.md"
    text = source.read_text() if source.exists() else f"# {experiment.name}\n\n{MARKS[0]}\n{MARKS[1]}\n"
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    flags = " --quick" if results["quick"] else ""
    flags += f" --replicates {results['replicates']}" if results["replicates"] else ""
    done, total = results["tasks"], results["all_tasks"]
    stamp = (
        f"coaltree {results['version']}, {results['date']}, {results['seconds']:.0f} s of CPU, "
        f"{done if done == total else f'so far {done} of {total}'} tasks: "
        f"`python -m papers.henao_lucas {experiment.name}{flags}`"
    )
    body = "\n".join([*lines, "", stamp])
    (out / "README.md").write_text(f"{before}{MARKS[0]}\n{body}\n{MARKS[1]}{after}")


def mean_and_error(values: Sequence[float]) -> list[float]:
    """Return mean, standard deviation and standard error, as JSON holds them."""
    array = np.asarray(values, dtype=float)
    spread = float(array.std(ddof=1)) if len(array) > 1 else 0.0
    return [float(array.mean()), spread, spread / float(np.sqrt(len(array)))]
