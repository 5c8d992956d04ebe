"""The ways that data take through the package, recorded from real runs.

`python docs/_ext/walks.py` runs `coaltree cluster` on a table of eight rows and a quick `coaltree records study` of 400
simulated subjects, each in a process of its own, and writes `walks.json`: the functions of the package in the order of
their first calls. Kernels are not among them, because compiled code calls without Python's knowledge, and neither is
what compiles them. `tests/test_inside.py` records again and compares; `python docs/_ext/pages.py` copies tables to the
page.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import pkgutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_suffix(".json")
PACKAGE = "coaltree"
UNSEEN = ("coaltree._compile",)  # what they do depends on what has been compiled before
TABLE = """
import numpy as np
import coaltree as ct
X = ct.sample_data(ct.sample_tree(8, random_state=1), 3, random_state=2)
np.savetxt("table.csv", X, delimiter=",", header="a,b,c", comments="")
"""
EVENTS = """
from coaltree.cli import app
app("records simulate --subjects 400 --out cohort".split(), standalone_mode=False)
"""
RUNS = {
    "table": (TABLE, "cluster table.csv --out results --draws 8 --warmup 8"),
    "events": (EVENTS, "records study cohort/study.toml --out results --quick"),
}


def follow(words: list[str]) -> list[str]:
    """Return the functions of the package in the order in which a command first calls them, in this process."""
    import coaltree
    from coaltree.cli import app

    for each in pkgutil.walk_packages(coaltree.__path__, "coaltree."):  # what runs on import is no part of the way
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
    seen: dict[str, None] = {}

    def note(frame: Any, event: str, argument: Any) -> None:
        code, module = frame.f_code, frame.f_globals.get("__name__", "")
        ours = module.split(".")[0] == PACKAGE and not module.startswith(UNSEEN)
        # Bodies of modules and classes, lambdas, comprehensions and special methods are not what one would look up.
        named = code.co_flags & inspect.CO_OPTIMIZED and "<" not in code.co_qualname and code.co_name[:2] != "__"
        if event == "call" and ours and named:
            seen.setdefault(f"{module}:{code.co_qualname}")

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        app(words, standalone_mode=False)
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return list(seen)


def record(name: str) -> dict[str, Any]:
    """Return a run's command and functions, from a new process in an empty folder."""
    prepare, command = RUNS[name]
    with tempfile.TemporaryDirectory() as folder:
        for words in (["-c", prepare], [__file__, "follow", *command.split()]):
            done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
        functions = json.loads(Path(folder, "followed.json").read_text(encoding="utf-8"))
    return {"command": f"coaltree {command}", "functions": functions}


def folder_of(function: str) -> str:
    """Return the folder of a function, as in "inference/moves"; the package's own is "coaltree"."""
    module = importlib.import_module(function.partition(":")[0])
    inside = Path(str(module.__file__)).parent.parts
    below = inside[len(inside) - inside[::-1].index(PACKAGE) :]
    return "/".join(below) or PACKAGE


def count_changes(functions: list[str]) -> int:
    """Return how often the stage, the first folder below the package, changes from one function to the next."""
    return len(list(itertools.groupby(folder_of(each).split("/")[0] for each in functions))) - 1


def show(walk: dict[str, Any]) -> list[str]:
    """Return a walk in Markdown: how long it is, and the first function of every folder that it comes to."""
    functions = walk["functions"]
    by_folder: dict[str, list[str]] = {}
    for function in functions:
        by_folder.setdefault(folder_of(function), []).append(function)
    n_files = len({function.partition(":")[0] for function in functions})
    rows = []
    for folder, inside in by_folder.items():
        module, _, name = inside[0].partition(":")
        rows.append(f"| `{folder}` | `{module.rpartition('.')[2]}.{name}` | {len(inside)} |")
    return [
        f"`{walk['command']}` calls {len(functions)} functions in {n_files} files, and comes from one stage to another "
        f"{count_changes(functions)} times between first calls. Its folders, in the order in which it comes to them:",
        "",
        "| folder | called first there | functions called there |",
        "|---|---|---|",
        *rows,
    ]


def main(words: list[str]) -> None:
    """Record all walks, or follow one command."""
    if words[:1] == ["follow"]:
        Path("followed.json").write_text(json.dumps(follow(words[1:])), encoding="utf-8")
        return
    text = json.dumps({name: record(name) for name in RUNS}, indent=1)
    RECORDED.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
