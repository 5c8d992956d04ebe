"""What is compiled is announced once, and what is loaded from the cache is not."""

import subprocess
import sys

from coaltree import _compile


def fresh(name):
    """A kernel that no cache can hold, for it is in no file."""
    names = {}
    exec(compile(f"def {name}(x):\n    return x + 1.0", "<nowhere>", "exec"), names)
    return _compile.kernel(names[name])


def test_compilation_is_announced_once(capsys, monkeypatch):
    monkeypatch.setattr(_compile._Announcer, "done", False)
    one, two, three = map(fresh, ("one", "two", "three"))
    with _compile.compiling_aloud(False):
        assert one(1.0) == 2.0
    three(1.0)
    assert capsys.readouterr() == ("", "")
    with _compile.compiling_aloud():
        one(1.0)  # is compiled
        assert capsys.readouterr() == ("", "")
        two(1.0)
        assert capsys.readouterr().err.startswith("Compiling numerical kernels, once")
        two(1)
    assert capsys.readouterr() == ("", "")


def test_the_package_is_a_command():
    found = subprocess.run([sys.executable, "-m", "coaltree", "--version"], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("coaltree 0.")
