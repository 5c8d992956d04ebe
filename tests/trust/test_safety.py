"""Nothing is unpickled, evaluated or fetched."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "coaltree"
MODULES = {file.relative_to(SOURCE).as_posix(): file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py")}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
FORBIDDEN_MODULES = {
    "pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal",
    "urllib", "http", "requests", "socket", "ftplib", "smtplib", "ssl", "xmlrpc", "aiohttp", "httpx",
}  # fmt: skip
FORBIDDEN_NAMES = {"allow_pickle", "read_pickle", "fetch_openml", "urlopen", "urlretrieve", "loads_pickle"}
FORBIDDEN_METHODS = {("joblib", "load"), ("joblib", "dump"), ("np", "load"), ("np", "fromregex"), ("os", "system")}


def violations(code):
    """Uses of what could run a stranger's code or reach the network."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
            if node.module != "urllib.parse":  # which takes an address apart and reaches nothing
                yield node.module
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
                yield node.func.id
            if isinstance(node.func, ast.Attribute):
                owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
                if (owner, node.func.attr) in FORBIDDEN_METHODS or node.func.attr in FORBIDDEN_NAMES:
                    yield f"{owner}.{node.func.attr}"
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle" and getattr(keyword.value, "value", True) is not False:
                    yield "allow_pickle"
                if keyword.arg == "shell" and getattr(keyword.value, "value", True) is not False:
                    yield "shell"


def test_source_is_safe():
    assert not {path: found for path, code in MODULES.items() if (found := list(violations(code)))}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from urllib.request import urlopen",
        "eval('1')",
        "exec(text)",
        "np.load(path)",
        "numpy.load(path, allow_pickle=True)",
        "joblib.load(path)",
        "subprocess.run(line, shell=True)",
        "pandas.read_pickle(path)",
        "def f():\n    import requests",
    ],
)
def test_violations_are_seen(code):
    assert list(violations(code))


def test_pages_load_nothing():
    """Scripts and style sheets of the reports name no other host."""
    for file in (SOURCE / "report" / "assets").iterdir():
        text = file.read_text(encoding="utf-8")
        for word in ("http://", "https://", "//cdn", "fetch(", "XMLHttpRequest", "eval(", "new Function", "innerHTML"):
            assert word not in text.replace("http://www.w3.org/", ""), (file.name, word)
