"""What a user notices first: imports are light, kernels compile once, the promised names are there."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import coaltree as ct

REPOSITORY = Path(__file__).parents[1]

# Every function of the package that numba compiles, by name.
KERNELS = """
def kernels():
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "coaltree":
            for value in vars(module).values():
                if hasattr(value, "nopython_signatures"):
                    found[f"{value.py_func.__module__}.{value.py_func.__name__}"] = value
    return found
"""


def run_python(code, cwd, **environment):
    """Run code in a new process and return what it printed as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("module", ["coaltree", "coaltree.cli"])
def test_import_is_light(module, tmp_path):
    code = f"import json, sys, time; import {module}; print(json.dumps([sorted(sys.modules), time.process_time()]))"
    modules, seconds = run_python(code, tmp_path)
    heavy = {"matplotlib", "sklearn", "pandas", "rich.traceback"}
    assert not heavy & set(modules)
    assert seconds < 5.0  # of processor time, interpreter and numpy included; a kernel compiled here would exceed it


def test_import_compiles_nothing(tmp_path):
    code = f"""
import json, sys
import coaltree, coaltree.cli
{KERNELS}
print(json.dumps({{name: len(kernel.signatures) for name, kernel in kernels().items()}}))
"""
    compiled = run_python(code, tmp_path)
    assert len(compiled) > 10
    assert set(compiled.values()) == {0}


DEMO = """
from coaltree.results import iris as demo
flowers = demo.load_flowers()
demo.summarise_flowers(flowers, demo.fit_trees(flowers, {0.8: 0.0}, demo.N_WARM_UP, 0), 0)
"""


@pytest.mark.slow
@pytest.mark.ci
def test_second_process_reads_kernels_from_the_cache(tmp_path):
    """The demo in two processes that share an empty cache."""
    code = f"""
import json, sys
{DEMO}
{KERNELS}
used = [kernel.stats for kernel in kernels().values() if kernel.signatures]
print()
print(json.dumps([sum(1 for s in used if s.cache_hits), sum(1 for s in used if s.cache_misses), len(used)]))
"""
    cache = str(tmp_path / "cache")
    hits, misses, used = run_python(code, tmp_path, NUMBA_CACHE_DIR=cache)
    assert hits == 0
    assert misses == used >= 4
    hits, misses, used = run_python(code, tmp_path, NUMBA_CACHE_DIR=cache)
    assert hits == used >= 4
    assert misses == 0


@pytest.mark.slow
@pytest.mark.ci
def test_kernels_follow_edits_of_what_they_import(tmp_path):
    """Of a function in another file, and of the name of a NamedTuple that an old cache has stored."""
    package = Path(ct.__file__).parent
    copy = shutil.copytree(package, tmp_path / "coaltree", ignore=shutil.ignore_patterns("__pycache__"))
    code = """
import json
import numpy as np
import coaltree as ct
from coaltree.inference.moves.mutable_tree import make_chain, recompute_tree
state = make_chain(ct.Tree([[0, 1]], [1.0]), np.array([[0.0], [2.0]]), np.zeros(2))
print(json.dumps([state.log_joint[0], bool(recompute_tree.stats.cache_hits)]))
"""

    def edit(old, new):
        for file in copy.rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            if old in text:
                file.write_text(text.replace(old, new), encoding="utf-8")

    def log_joint():
        return run_python(code, tmp_path, PYTHONPATH=str(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "cache"))

    value, cached = log_joint()
    assert not cached
    assert log_joint() == [value, True]
    edit("return (sum_0 + sum_1)", "return 2.0 * (sum_0 + sum_1)")  # the squared distance, in model/messages.py
    assert log_joint() == [pytest.approx(value - 1.0), False]  # ε/2v is 8/4 instead of 4/4
    edit("Others", "Remaining")
    assert log_joint() == [pytest.approx(value - 1.0), False]


def test_public_names():
    for name in ("sample_tree", "sample_data", "log_prior", "log_joint", "sample_posterior", "greedy_tree"):
        assert callable(getattr(ct, name))
    for name in ("n_leaves", "cophenetic", "cut", "to_linkage", "from_linkage", "to_newick", "from_newick"):
        assert hasattr(ct.Tree, name)
    for name in ("best_tree", "mcc_tree", "consensus", "clade_support", "coclustering", "cophenetic", "save", "load"):
        assert callable(getattr(ct.TreePosterior, name))
    for name in ("subtree_score", "ari_curve", "ari_auc"):
        assert callable(getattr(ct.metrics, name))
    for name in ("log_integral", "sample"):
        assert callable(getattr(ct.model.gig, name))
    assert set(ct.__all__) <= set(dir(ct))
    assert ct.__version__.count(".") == 2


# ---- what is released


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder with the wheel and the sdist of this copy of the repository."""
    for name in ("hatchling", "hatch_fancy_pypi_readme"):
        pytest.importorskip(name, reason="needs the extra test")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_wheel_holds_the_package_alone(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    source = REPOSITORY / "src"
    wanted = {path.relative_to(source).as_posix() for path in (source / "coaltree").rglob("*.py")}
    wanted |= {"coaltree/py.typed", "coaltree/records/outcomes.toml", "coaltree/report/assets/page.css"}
    assert wanted <= names
    assert {name.split("/")[0] for name in names} == {"coaltree", f"coaltree-{ct.__version__}.dist-info"}


def test_links_of_the_released_readme_are_absolute(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        metadata = wheel.read(f"coaltree-{ct.__version__}.dist-info/METADATA").decode()
    text = metadata.partition("\n\n")[2]
    links = re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)\"", text)
    targets = [link or picture for link, picture in links]
    home = re.search(r"^Project-URL: Homepage, (.+)$", metadata, flags=re.MULTILINE)[1]
    assert len(targets) > 10
    for target in targets:
        assert target.startswith(("https://raw.githubusercontent.com/", f"{home}/blob/main/")), target
        assert (REPOSITORY / target.partition("/main/")[2]).exists(), target
    assert any(target.endswith(".png") and "/blob/" not in target for target in targets)


def test_the_sdist_holds_what_a_packager_needs_and_no_junk(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        sizes = {each.name.partition("/")[2]: each.size for each in archive.getmembers()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md"}
    needed |= {"src/coaltree/__init__.py", "tests/conftest.py", "docs/conf.py", "examples/start.py", ".ci/run"}
    assert needed <= set(sizes)
    made = re.compile(r"__pycache__|\.nb[ic]$|docs/(_build|auto_)|\.egg-info|\.venv|coaltree-demo")
    assert not [name for name in sizes if made.search(name)]
    assert not [name for name in sizes if name.startswith("papers/") and name.endswith((".png", ".svg"))]
    assert max(sizes.values()) < 500_000
    assert sum(sizes.values()) < 12_000_000
