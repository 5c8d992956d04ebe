"""The map of the code tells the truth: the picture matches the imports, and the walks are those of real runs."""

import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "_ext"


def load(name):
    """Import a module of the documentation's own."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # named tuples look their module up
    spec.loader.exec_module(module)
    return module


inside, walks = load("inside"), load("walks")


def write_package(folder, **files):
    """A small package named as ours; `model__gig` is the file model/gig.py."""
    source = folder / "coaltree"
    for name, code in files.items():
        path = source / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
        (path.parent / "__init__.py").write_text('"""A folder."""\n', encoding="utf-8")
    return source


def test_imports_are_counted(tmp_path):
    source = write_package(
        tmp_path,
        tree='"""A tree. It has leaves."""\n',
        model__gig="from coaltree.tree import Tree\nimport numpy\n",
        inference__greedy__rules="from coaltree.model import gig\nfrom coaltree import tree\n",
        inference__smc="def f():\n    import coaltree.model.gig\nfrom coaltree.inference.greedy.build import rules\n",
    )
    modules = inside.read_modules(source)
    assert inside.count_edges(modules) == {
        ("model", "coaltree"): 1,
        ("inference", "model"): 2,
        ("inference", "coaltree"): 1,
    }
    assert inside.order_folders(inside.count_edges(modules)) == ["coaltree", "model", "inference"]
    assert next(module for module in modules if module.name == "tree").sentence == "A tree."
    assert {"inference.greedy", "inference.greedy.rules"} <= {module.name for module in modules}


def test_folders_that_import_each_other_have_no_order(tmp_path):
    source = write_package(
        tmp_path, model__a="from coaltree.inference import b\n", inference__b="from coaltree.model import a\n"
    )
    with pytest.raises(ValueError, match="inference, model"):
        inside.order_folders(inside.count_edges(inside.read_modules(source)))


def test_the_picture_has_every_folder_and_every_import():
    modules = inside.read_modules()
    edges = inside.count_edges(modules)
    drawn = re.findall(r"<title>(\w+) imports from (\w+): (\d+)</title>", inside.draw(modules))
    assert {(a, b): int(count) for a, b, count in drawn} == edges
    place = {folder: i for i, folder in enumerate(inside.order_folders(edges))}
    assert all(place[imported] < place[importer] for importer, imported in edges)
    assert {module.folder for module in modules} == set(place)


def test_every_module_says_what_it_is():
    assert not [module.name for module in inside.read_modules() if len(module.sentence) < 10]


# ---- walks

RECORDED = json.loads(walks.RECORDED.read_text(encoding="utf-8"))


def resolve(function):
    """The function of a recorded name; AttributeError or ImportError if there is none."""
    module, _, name = function.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def test_recorded_functions_exist():
    assert set(RECORDED) == set(walks.RUNS)
    for walk in RECORDED.values():
        assert len(walk["functions"]) > 100
        for function in walk["functions"]:
            resolve(function)
    with pytest.raises(AttributeError):
        resolve("coaltree.tree:no_such_function")


def test_changes_of_stage_are_counted():
    names = [
        "coaltree.cli:a",
        "coaltree.tree:b",
        "coaltree.model.gp:c",
        "coaltree.model.gig.tables:d",
        "coaltree.cli:e",
    ]
    assert [walks.folder_of(name) for name in names] == ["cli", "coaltree", "model", "model/gig", "cli"]
    assert walks.count_changes(names) == 3
    shown = walks.show({"command": "coaltree x", "functions": names})
    assert "5 functions in 4 files" in shown[0]
    assert "| `cli` | `cli.a` | 2 |" in shown


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", walks.RUNS)
def test_a_real_run_takes_the_recorded_walk(name):
    """`python docs/_ext/walks.py` records anew, and `python docs/_ext/pages.py` copies it to the page."""
    if name == "events":
        pytest.importorskip("duckdb", reason="needs the extra records")
    assert walks.record(name) == RECORDED[name]


def test_the_script_writes_files(tmp_path):
    inside.main(tmp_path / "map")
    assert (tmp_path / "map" / "imports.svg").read_text(encoding="utf-8").startswith("<svg xmlns=")
    assert "**model**" in (tmp_path / "map" / "modules.md").read_text(encoding="utf-8")
