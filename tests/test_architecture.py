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


# ---- medical records use the rest by names that are not private

RECORDS = "records"


def private_names(path, code):
    """Names with an underscore that a module of records takes from the rest, by import or from an imported module."""
    found, modules = [], set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name for alias in node.names if alias.name.split(".")[0] == "coaltree"}
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "coaltree":
            inside = (node.module or "").split(".")[1:2] == [RECORDS]
            modules |= set() if inside else {alias.asname or alias.name for alias in node.names}
            found += [alias.name for alias in node.names if alias.name.startswith("_") and not inside]
    found += [
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if isinstance(node.value, ast.Name) and node.value.id in modules
    ]
    return [f"{path}: {name}" for name in found if name != "__version__"]


def test_records_use_public_names_of_the_rest():
    assert not [
        name for path, code in MODULES.items() if path.startswith(f"{RECORDS}/") for name in private_names(path, code)
    ]


def test_private_names_are_seen():
    assert private_names("records/x.py", "from coaltree.regression.penalised import _path")
    assert private_names("records/x.py", "from coaltree.regression import scores\nscores._area(1)")
    assert not private_names(
        "records/x.py", "from coaltree._version import __version__\nfrom coaltree.rows import Rows"
    )
    assert not private_names("records/x.py", "from coaltree.records.engine import _query")


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


# ---- tests mirror the stages

TESTS = Path(__file__).parent
# Folders of tests that go across the stages, and files here that are about more than a file of the root.
ACROSS = {"acceptance", "data", "fuzz", "mutation", "papers", "properties", "reference", "slow", "trust"}
ABOUT = {"architecture", "compile", "docs", "formats_nexus", "formats_peers", "inside", "mutation", "package", "readme"}
ABOUT |= {"surface", "sweep", "twins"}


def stages_used(code):
    """Stages that a test calls by what it imports, or by a public name (`ct.sample_posterior` is of inference)."""
    import coaltree

    names = [name for name in imports(code) if name.split(".")[0] == "coaltree"]
    names += [f"coaltree.{name}" for name in re.findall(r"\bct\.(\w+)", code)]
    for name in names:
        public = getattr(coaltree, name.split(".")[1], None) if "." in name else None
        yield stage_of((getattr(public, "__module__", None) or name).split(".")[1:] or ("",))


def test_tests_lie_in_the_folder_of_a_stage_that_they_call():
    files = [path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")]
    folders = {path.parts[0] for path in files if len(path.parts) > 1}
    assert folders <= {*STAGES, *ACROSS}
    for path in files:
        if len(path.parts) == 1:
            stem = path.stem.removeprefix("test_")
            assert stem in ABOUT or any((SOURCE / f"{name}.py").exists() for name in (stem, f"_{stem}")), path
        elif path.parts[0] in STAGES:
            assert path.parts[0] in set(stages_used((TESTS / path).read_text(encoding="utf-8"))), path


def test_stages_of_a_test_are_found():
    code = "import coaltree as ct\nfrom coaltree.model.gp import OnColumns\nct.sample_posterior(X)\nct.Tree"
    assert set(stages_used(code)) >= {"model", "inference"}
    assert "report" not in set(stages_used(code))


# ---- one name for one thing

# By protocol: a command, and the function that it calls.
SAME_BY_PROTOCOL = {"cluster"}
NAMED_TWICE = {
    "Cells",
    "Column",
    "Events",
    "Frame",
    "Group",
    "Places",
    "Rows",
    "Task",
    "compare",
    "expansion",
    "fingerprint",
    "log_joint",
    "log_prior",
    "shown",
    "sweep",
    "table",
}


def named(modules):
    """{public class or function: modules that define it at their top}."""
    found = {}
    for path, code in modules.items():
        for node in ast.parse(code).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(path)
    return found


def test_public_names_are_unique():
    twice = {name: paths for name, paths in named(MODULES).items() if len(paths) > 1 and name not in SAME_BY_PROTOCOL}
    assert not {name: paths for name, paths in twice.items() if name not in NAMED_TWICE}
    assert not NAMED_TWICE - {*twice}, "unique by now: take these out"


def test_names_that_are_defined_twice_are_seen():
    assert named({"a.py": "def f(): ...\nclass G: ...", "b.py": "def f(): ...\ndef _g(): ..."}) == {
        "f": ["a.py", "b.py"],
        "G": ["a.py"],
    }
