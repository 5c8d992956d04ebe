"""The map of the code tells the truth: the picture matches the imports, and the walks are the ways that data take."""

import importlib.util
import itertools
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import coaltree as ct
from coaltree.cli import app

FILE = Path(__file__).parents[1] / "docs" / "_ext" / "inside.py"
spec = importlib.util.spec_from_file_location("docs_inside", FILE)
inside = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = inside  # named tuples look their module up
spec.loader.exec_module(inside)


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


@pytest.mark.parametrize("name", inside.WALKS)
def test_no_folder_is_entered_twice(name):
    entered = [folder for folder, _ in itertools.groupby(inside.WALKS[name], key=inside.folder_of)]
    assert len(entered) == len(set(entered)) > 3


@pytest.mark.parametrize("name", inside.WALKS)
def test_functions_of_a_walk_exist_and_say_what_they_do(name):
    lines = inside.list_walk(name)
    assert len(lines) == len(inside.WALKS[name])
    assert not [line for line in lines if line.endswith("`: ")]


def test_a_function_that_does_not_exist_is_seen():
    with pytest.raises(AttributeError):
        inside.find("coaltree.tree.no_such_function")
    with pytest.raises(ModuleNotFoundError):
        inside.find("no_such_package.no_such_module.function")


def called(words):
    """Functions of the package in the order in which a command first calls them."""
    seen = {}

    def note(frame, event, argument):
        if event == "call":
            seen.setdefault(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}")

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        app(words, standalone_mode=False)
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return list(seen)


def check_order(name, order):
    wanted = inside.WALKS[name]
    assert not set(wanted) - set(order)
    assert sorted(wanted, key=order.index) == list(wanted)


@pytest.mark.slow
@pytest.mark.ci
def test_a_table_takes_its_walk(tmp_path):
    X = ct.sample_data(ct.sample_tree(8, random_state=1), 3, random_state=2)
    np.savetxt(tmp_path / "table.csv", X, delimiter=",", header="a,b,c", comments="")
    words = ["cluster", str(tmp_path / "table.csv"), "--out", str(tmp_path / "out"), "--draws", "8", "--warmup", "8"]
    order = called(words)
    check_order("table", order)
    with pytest.raises(AssertionError):
        check_order("table", order[::-1])


@pytest.mark.slow
@pytest.mark.ci
def test_events_take_their_walk(tmp_path):
    pytest.importorskip("duckdb", reason="needs the extra records")
    app(["records", "simulate", "--subjects", "400", "--out", str(tmp_path / "cohort")], standalone_mode=False)
    words = ["records", "study", str(tmp_path / "cohort" / "study.toml"), "--out", str(tmp_path / "out"), "--quick"]
    check_order("events", called(words))


def test_the_script_writes_files(tmp_path):
    inside.main(tmp_path / "map")
    assert (tmp_path / "map" / "imports.svg").read_text(encoding="utf-8").startswith("<svg xmlns=")
    assert "## events" in (tmp_path / "map" / "walks.md").read_text(encoding="utf-8")
