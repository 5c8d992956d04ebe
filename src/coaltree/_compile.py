"""How kernels are compiled: the only place that names numba's options.

`error_model="numpy"` gives IEEE results (log 0 = −inf) instead of Python exceptions; `nogil` lets threads run
kernels side by side; `cache` makes the second process start without compiling. fastmath stays off because
−inf is a legal log weight.

Numba's cache notices changes in the file of a kernel, not in the files that it imports functions, constants and
NamedTuples from; it may even fail to read what was stored before one of these was renamed. So the names of its files
contain a digest of all these sources, and an upgrade or an edit starts a new cache beside the old one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])

# Untyped on purpose: numba's own annotations differ between versions.
_njit: Any = numba.njit
# Without an entry from Python a function compiles faster.
_INNER = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_SOURCES = Path(__file__).parents[1]
_IMPORT = re.compile(r"^from (coaltree[.\w]*) import (\([^)]*\)|.*)", re.MULTILINE)


def _file_of(module: str) -> Path:
    """Where a module or package of this package would be."""
    base = _SOURCES.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


@cache
def _read(file: Path) -> tuple[bytes, set[Path]]:
    """Digest of a source file, and the files of this package that it imports from."""
    source = file.read_bytes()
    imported = set()
    for module, names in _IMPORT.findall(source.decode()):
        home = _file_of(module)
        if home.name == "__init__.py":  # the names may be modules
            inside = {_file_of(f"{module}.{name}") for name in re.findall(r"\w+", names)}
            imported |= {path if path.exists() else home for path in inside}
        else:
            imported.add(home)
    return sha256(source).digest(), imported


@cache
def source_stamp(file: Path) -> str:
    """Digest of a source file with all that it imports from this package, directly or not; empty if unreadable."""
    found: dict[Path, bytes] = {}
    waiting = [file]
    try:
        while waiting:
            path = waiting.pop()
            if path not in found:
                found[path], imported = _read(path)
                waiting += imported
    except OSError:  # a notebook's cell, or a package inside a zip file
        return ""
    return sha256(b"".join(sorted(found.values()))).hexdigest()[:12]


def kernel(function: F) -> F:
    """Compile a function lazily: nothing happens until its first call."""
    # Numba names the files of a cache by the qualified name that a function has now.
    name = function.__qualname__
    function.__qualname__ = f"{name}-{source_stamp(Path(function.__code__.co_filename))}"
    try:
        compiled: F = _njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:
        # numba finds no folder it may write a cache to: compile anew in every process rather than fail to import.
        compiled = _njit(nogil=True, error_model="numpy")(function)
    compiled.__qualname__ = function.__qualname__ = name
    return compiled


def inline(function: F) -> F:
    """Compile a small function for use inside kernels only."""
    compiled: F = _njit(**_INNER)(function)
    return compiled


def borrowing(function: F) -> F:
    """Compile as `inline` does, for functions that make no array and return none.

    What they are given is in the hands of their caller, so references to it are not counted: an atomic operation for
    each of the arrays of each NamedTuple and slice would take as long as the work of a small step. A function that does
    make an array is refused by the compiler, with all that it calls.
    """
    compiled: F = _njit(**_INNER, _nrt=False, forceinline=True)(function)
    return compiled


class _Announcer(event.Listener):
    """Say once in a process that kernels are being compiled; what is loaded from the cache makes no such event."""

    done = False

    def on_start(self, event: Any) -> None:
        """Begin to compile."""
        if not _Announcer.done:
            _Announcer.done = True
            print(
                "Compiling numerical kernels, once for this version: half a minute or so. Later runs load them.",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event: Any) -> None:
        """Have compiled: nothing to say."""


@contextmanager
def compiling_aloud(aloud: bool = True) -> Iterator[None]:
    """Announce in the terminal that kernels are compiled, if any have to be within the block."""
    if not aloud:
        yield
        return
    with event.install_listener("numba:compile", _Announcer()):
        yield
