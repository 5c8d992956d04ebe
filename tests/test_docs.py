"""The documentation tells the truth: its pages hang together, its code runs, what it names exists.

What needs no build is checked here; `sphinx-build -W` and `docs/check_site.py` check the rest.
"""

import doctest
import importlib
import importlib.util
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from matplotlib.figure import Figure

import coaltree
from coaltree import plots, records
from coaltree.cli import app
from coaltree.inference.greedy.build import RULES
from coaltree.inference.smc.insertion import INSERTION
from coaltree.inference.smc.proposals import METHODS

REPOSITORY = Path(__file__).parents[1]
DOCS, EXAMPLES = REPOSITORY / "docs", REPOSITORY / "examples"
GENERATED = ("_build", "auto_examples", "auto_pictures")
PAGES = {
    path.relative_to(DOCS).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
    for suffix in ("md", "rst")
    for path in DOCS.rglob(f"*.{suffix}")
    if not path.relative_to(DOCS).as_posix().startswith(GENERATED)
}
GUIDES = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
FENCE = re.compile(r"^```(\{?[\w-]*\}?)([^\n]*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


def load(path):
    """Import a module of the documentation's own."""
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_site = load(DOCS / "check_site.py")
forge = load(DOCS / "_ext" / "pages.py")


def blocks(language, text):
    return [body for kind, _, body in FENCE.findall(text) if kind == language]


def prose(text):
    return FENCE.sub("", text)


# ---- pages


def children(name):
    """Pages that a page lists in its toctrees."""
    text = PAGES[name]
    listed = [body for kind, _, body in FENCE.findall(text) if kind == "{toctree}"]
    listed += re.findall(r"^\.\. toctree::\n((?:   .*\n|\n)*)", text, flags=re.MULTILINE)
    folder = Path(name).parent
    for body in listed:
        for line in (part.strip() for part in body.splitlines()):
            if line and not line.startswith(":"):
                yield (folder / line).as_posix()


def test_every_page_is_in_the_contents():
    seen, waiting = set(), ["index"]
    while waiting:
        page = waiting.pop()
        if page not in seen and not page.startswith(GENERATED):
            assert page in PAGES, page
            seen.add(page)
            waiting += children(page)
    assert seen == set(PAGES)


def test_the_first_page_names_every_extra():
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    listed = re.search(r"The extras are (.+?):\s`pip", PAGES["index"], flags=re.DOTALL)[1]
    assert set(re.findall(r"`(\w+)`", listed)) == set(settings["project"]["optional-dependencies"])


@pytest.mark.parametrize("name", sorted(name for name in PAGES if (DOCS / f"{name}.md").exists()))
def test_links_of_a_page_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(PAGES[name])):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (DOCS / f"{name}.md").parent / path if path else DOCS / f"{name}.md"
        assert file.exists(), target
        if anchor:
            text = file.read_text(encoding="utf-8")
            assert anchor in set(map(slug, re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE))), target


PLAIN = sorted(page.stem for page in forge.pages())


@pytest.mark.parametrize("name", PLAIN)
def test_a_page_reads_well_without_a_build(name):
    """A forge shows neither roles nor directives; the map of the code alone is left to the build."""
    text = forge.CONTENTS.sub("", PAGES[name])
    assert not re.search(r"\{[a-z:]+\}`|\]\((repo:|auto_)|^: |^\(.*\)=$", prose(text), flags=re.MULTILINE)
    directives = {f"{kind} {argument.strip()}" for kind, argument, _ in FENCE.findall(text) if kind.startswith("{")}
    assert directives <= ({"{inside} graph", "{inside} modules"} if name == "inside" else set())


@pytest.mark.parametrize("name", PLAIN)
def test_copies_of_a_page_are_up_to_date(name):
    """`python docs/_ext/pages.py` writes them."""
    assert forge.as_markdown(PAGES[name]) == PAGES[name]


def test_an_old_copy_is_seen():
    said = "benchmark density.md\nrows: iris\ncolumns: table, default"
    page = f"<!-- copy of: {said} -->\n\n| table |\n\n<!-- end of copy -->"
    assert "| iris |" in forge.as_markdown(page)
    assert (
        forge.as_markdown("see {py:func}`coaltree.refine` and [x](repo:README.md)")
        == "see `coaltree.refine` and [x](../README.md)"
    )


def test_pages_are_built_with_links():
    text = "`coaltree.refine` [`coaltree.plots`](api/plots.rst) [x](../README.md) [g](../examples/start.py)"
    built = (
        "{py:obj}`coaltree.refine` [`coaltree.plots`](api/plots.rst) [x](repo:README.md) [g](auto_examples/start.rst)"
    )
    assert forge.as_sphinx(text) == built
    assert forge.as_sphinx("![a](images/scale.png) ![b](images/demo.png)") == (
        "![a](auto_pictures/scale.png) ![b](images/demo.png)"
    )
    assert forge.as_sphinx("```python\n`coaltree.refine`\n```") == "```python\n`coaltree.refine`\n```"


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def test_files_and_tests_that_pages_name_exist():
    named = [
        (page, each) for page, text in PAGES.items() for each in re.findall(r"`([\w/.-]+/[\w.:/-]+)`", prose(text))
    ]
    roots = {path.name for path in REPOSITORY.iterdir()} - {"papers"}  # which may be written later
    checked = 0
    for page, target in named:
        path, _, function = target.partition("::")
        inside = [
            base for base in (REPOSITORY, REPOSITORY / "src" / "coaltree") if (base / path.split("/")[0]).exists()
        ]
        if path.split("/")[0] not in roots and not inside:
            continue
        found = [base / path for base in inside if (base / path).exists()]
        assert found, f"{page}: {target}"
        if function:
            assert f"def {function}(" in found[0].read_text(encoding="utf-8"), f"{page}: {target}"
        checked += 1
    assert checked > 30


def test_python_names_that_pages_refer_to_exist():
    named = {each for text in PAGES.values() for each in re.findall(r"`(coaltree(?:\.\w+)+)`", prose(text))}
    assert len(named) > 30
    for name in sorted(named):
        assert resolve(name) is not None, name


def resolve(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        return found
    return None


def test_no_page_asks_for_the_network():
    sources = [*PAGES.items(), *((path.name, path.read_text(encoding="utf-8")) for path in DOCS.glob("_[es]*/*.*"))]
    sources.append(("conf.py", (DOCS / "conf.py").read_text(encoding="utf-8")))
    for name, text in sources:
        assert not re.search(r"""(src|href)=["']?https?:|@import|url\(["']?https?:|intersphinx|cdn\.""", text), name


# ---- code


EXAMPLES_IN_SOURCE = sorted(
    path.relative_to(REPOSITORY / "src").with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
    for path in (REPOSITORY / "src").rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", EXAMPLES_IN_SOURCE)
def test_examples_in_docstrings_run(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


def test_example_of_a_page_runs(tmp_path, monkeypatch):
    """The reference shows it as it stands in the docstring."""
    monkeypatch.chdir(tmp_path)
    text = importlib.import_module("coaltree.report.page").__doc__
    code = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    ") or not line.strip())
    exec(compile(code, "page.py", "exec"), {"fig": Figure()})
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_code_is_in_blocks_that_are_checked():
    known = {
        "python",
        "sh",
        "toml",
        "text",
        "{toctree}",
        "{inside}",
    }
    for page, text in PAGES.items():
        assert {kind for kind, _, _ in FENCE.findall(text)} <= known, page
        assert ">>>" not in text, page


def command_lines():
    for page, text in PAGES.items():
        for body in blocks("sh", text):
            yield from ((page, line) for line in body.splitlines() if line.startswith("coaltree "))


def find_command(words):
    """Return the click command of some words, and the words that are left."""
    command, rest = typer.main.get_command(app), list(words)
    while rest and rest[0] in getattr(command, "commands", ()):  # a group may be a command too
        command = command.commands[rest.pop(0)]
    return command, rest


@pytest.mark.parametrize(("page", "line"), sorted(set(command_lines())))
def test_command_lines_are_accepted(page, line):
    command, words = find_command(shlex.split(line)[1:])
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("-")} <= known
    required = {parameter.opts[0] for parameter in command.params if parameter.required and parameter.opts[0][0] == "-"}
    assert required <= set(words)


def test_an_unknown_option_is_seen():
    with pytest.raises(AssertionError):
        test_command_lines_are_accepted("", "coaltree cluster table.csv --out results --no-such-option")


def test_every_command_is_described():
    described = set(re.findall(r"^<!-- copy of: command (.+) -->$", PAGES["cli"], flags=re.MULTILINE))
    root = typer.main.get_command(app)
    names = {f"{group} {each}".strip() for group, each in leaves(root)}
    assert described == names


def leaves(command, prefix=""):
    for name, each in command.commands.items():
        if getattr(each, "invoke_without_command", False):
            yield prefix, name
        if hasattr(each, "commands"):
            yield from leaves(each, f"{prefix} {name}".strip())
        else:
            yield prefix, name


# ---- the contract


def test_public_names_are_in_the_reference():
    reference = "\n".join(text for page, text in PAGES.items() if page.startswith("api/"))
    documented = set(re.findall(r"^\.\. auto(?:function|class|data):: (\S+)$", reference, flags=re.MULTILINE))
    short = {name.rpartition(".")[2] for name in documented}
    modules = {"metrics", "model", "results", "__version__"}
    for name in (*(set(coaltree.__all__) - modules), *plots.__all__, *records.__all__):
        assert name in short, name
    assert "automodule:: coaltree.metrics" in reference
    assert "automodule:: coaltree.results" in reference
    assert "automodule:: coaltree.model.gig" in reference


def test_what_the_reference_names_exists():
    for page, text in PAGES.items():
        module = re.search(r"^\.\. currentmodule:: (\S+)$", text, flags=re.MULTILINE)
        for name in re.findall(r"^\.\. auto(?:function|class|data|module):: (\S+)$", text, flags=re.MULTILINE):
            found = resolve(name if name.startswith("coaltree") else f"{module[1]}.{name}")
            assert found is not None, f"{page}: {name}"


@pytest.mark.parametrize("name", [*METHODS, INSERTION, "auto", *RULES])
def test_every_method_and_rule_is_described(name):
    assert f"| `{name}` |" in PAGES["samplers"]


def test_the_citation_has_the_version():
    text = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", text, flags=re.MULTILINE)[1] == coaltree.__version__


# ---- guides and pictures


def test_guides_are_in_order():
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        order = load(DOCS / "_ext" / "guides.py")
    finally:
        sys.path.pop(0)
    assert set(order.GUIDES) == set(GUIDES)


@pytest.mark.parametrize("name", sorted(GUIDES))
def test_pages_that_guides_refer_to_exist(name):
    for target in re.findall(r":doc:`/([^`]+)`", GUIDES[name]):
        assert target in PAGES or target.removeprefix("auto_examples/") in GUIDES, target


def test_every_picture_is_shown_and_has_a_text():
    drawn = {path.stem for path in DOCS.glob("figures/*.py")}
    shown = {
        name: text for page in PAGES.values() for text, name in re.findall(r"!\[([^\]]*)\]\(images/(\w+)\.png\)", page)
    }
    assert set(shown) == drawn
    for name, text in shown.items():
        assert text.strip(), name
        assert (DOCS / "images" / f"{name}.png").exists(), "python docs/_ext/pages.py pictures"


# ---- tables of results


def test_parts_of_tables_are_chosen():
    text = "# one\n| a | b |\n|---|---|\n| x | 1 |\n| y | 2 |\n\n## two\n| c |\n|---|\n| z |\n"
    tables = forge.read_tables(text)
    assert forge.select(tables) == (["a", "b"], [["x", "1"], ["y", "2"]])
    assert forge.select(tables, section="two") == (["c"], [["z"]])
    assert forge.select(tables, rows="y", columns="b") == (["b"], [["2"]])
    assert forge.select(tables, where="b = 1") == (["a", "b"], [["x", "1"]])
    for wrong in ({"rows": "no such row"}, {"where": "b = 3"}, {"section": "three"}):
        with pytest.raises(ValueError, match=r"no (row|table)"):
            forge.select(tables, **wrong)


# ---- the checker of built pages


def write_site(folder, body):
    (folder / "index.html").write_text(f"<html><body>{body}</body></html>", encoding="utf-8")
    (folder / "other.html").write_text("<html><body><h1 id='here'>Other</h1></body></html>", encoding="utf-8")
    (folder / "a.png").write_bytes(b"")


@pytest.mark.parametrize(
    "body",
    [
        "<a href='other.html#here'>x</a><img src='a.png' alt='a'>",
        "<a href='https://example.org'>x</a>",
        "<script src='other.html'></script><img src='data:image/png;base64,AA' alt='b'>",
    ],
)
def test_good_pages_pass(body, tmp_path):
    write_site(tmp_path, body)
    assert check_site.find_problems(tmp_path) == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("<a href='nowhere.html'>x</a>", "leads nowhere"),
        ("<a href='other.html#there'>x</a>", "no such anchor"),
        ("<a href='#there'>x</a>", "no such anchor"),
        ("<script src='https://cdn.example.org/x.js'></script>", "from elsewhere"),
        ("<link rel='stylesheet' href='//example.org/x.css'>", "from elsewhere"),
        ("<img src='a.png'>", "has no text"),
        ("<img srcset='a.png 1x, b.png 2x' alt='c'>", "not there"),
        ("<style>@import 'https://example.org/font.css';</style>", "from elsewhere"),
        ("<p style=\"background: url('https://example.org/x.png')\">", "from elsewhere"),
    ],
)
def test_bad_pages_are_seen(body, problem, tmp_path):
    write_site(tmp_path, body)
    assert any(problem in line for line in check_site.find_problems(tmp_path))
