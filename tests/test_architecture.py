"""The rule of the layout: data flows in one direction, so a stage imports only from itself and from earlier ones."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "coaltree"
ROOT = "the root files"
STAGES = (
    ROOT,
    "model",
    "posterior",
    "inference",
    "places",
    "regression",
    "records",
    "estimators",
    "plots",
    "report",
    "results",
    "cli",
)
MODULES = {file.relative_to(SOURCE).as_posix(): file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py")}
LONGEST_FILE = 600


def stage_of(parts):
    """Stage of a module given by the names below the package: ("model", "gig") is in "model", ("tree",) in ROOT."""
    return parts[0] if parts[0] in STAGES else ROOT


def imports(code):
    """Absolute dotted names that a module imports, anywhere in it; a relative import as its dots."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "." * node.level
            elif node.module == "coaltree":
                yield from (f"coaltree.{alias.name}" for alias in node.names)
            else:
                yield node.module


def violations(path, code):
    """What a module at `path` below the package must not do."""
    if path in ("__init__.py", "__main__.py"):  # public names are gathered from every stage, and the command is called
        return []
    parts = Path(path).with_suffix("").parts
    own = STAGES.index(stage_of(parts))
    found = []
    for name in imports(code):
        package, *below = name.split(".")
        if name.startswith("."):
            found.append(f"{path}: relative import")
        elif package == "coaltree" and (not below or STAGES.index(stage_of(below)) > own):
            found.append(f"{path}: imports {name} from a later stage")
        elif package == "numba" and path != "_compile.py":
            found.append(f"{path}: imports numba; use coaltree._compile")
    return found


def test_imports_go_one_way():
    assert not [line for path, code in MODULES.items() for line in violations(path, code)]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("tree.py", "from coaltree.model import gig"),
        ("model/gig.py", "def f():\n    import coaltree.inference.smc.loop"),
        ("posterior/ensemble.py", "from coaltree import plots"),
        ("plots/layout.py", "import coaltree"),
        ("inference/smc/loop.py", "from numba import njit"),
        ("inference/smc/loop.py", "from . import greedy"),
    ],
)
def test_violations_are_seen(path, code):
    assert violations(path, code)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("tree.py", "from coaltree import formats"),
        ("inference/smc/loop.py", "from coaltree.inference import greedy\nfrom coaltree.model import gig"),
        ("cli/demo.py", "from coaltree import metrics, plots\nfrom coaltree.tree import Tree"),
        ("_compile.py", "import numba"),
    ],
)
def test_allowed_imports_are_allowed(path, code):
    assert not violations(path, code)


def test_every_folder_is_a_stage():
    assert {path.split("/")[0] for path in MODULES if "/" in path} <= set(STAGES)


def between(one, two):
    """Modules of one part of the source that import from another, either way."""
    for here, there in ((one, two), (two, one)):
        for path, code in MODULES.items():
            module = path.removesuffix(".py").replace("/", ".")
            if is_in(module, here):
                yield from (f"{module}: {name}" for name in imports(code) if is_in(name, f"coaltree.{there}"))


def is_in(module, part):
    return f"{module}.".startswith(f"{part}.")


def test_learning_and_predicting_do_not_import_each_other():
    """What both need is below both: mutable trees and densities along edges, draws and what is said of them."""
    assert not list(between("inference.learning", "places"))
    # The learner is below what is imported by it, and what puts the two together imports both.
    assert list(between("inference.learning", "inference.moves"))
    assert list(between("estimators", "places"))
    assert list(between("estimators", "inference.learning"))


def test_files_are_short():
    lengths = {path: code.count("\n") for path, code in MODULES.items()}
    assert not {path: length for path, length in lengths.items() if length > LONGEST_FILE}


# ---- one of each

ALIASED = re.compile(r"npt\.NDArray\[np\.(float64|int64|bool_|int32|uint64|float32)\]")


def plain_errors(code):
    """Lines that raise a ValueError or a TypeError which is no CoaltreeError."""
    raised = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Raise) and node.exc is not None]
    return [node.lineno for node in raised if ast.unparse(node.exc).startswith(("ValueError(", "TypeError("))]


def test_array_types_have_one_name():
    assert not [path for path, code in MODULES.items() if path != "_arrays.py" and ALIASED.search(code)]
    assert ALIASED.search("Floats = npt.NDArray[np.float64]")


def test_errors_have_one_base_class():
    assert not {path: found for path, code in MODULES.items() if (found := plain_errors(code))}
    assert plain_errors("def f():\n    raise ValueError('no')") == [2]
