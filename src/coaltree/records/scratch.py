"""Temporary folders for rows of patients: readable by their owner alone, and gone after the run, killed or not.

A folder is named after the process that made it. A run that is killed cannot clean up; the next one removes the
folders of processes of this machine that are no more.
"""

from __future__ import annotations

import atexit
import os
import platform
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = re.compile(r"\.?coaltree-(?P<host>[0-9a-zA-Z_.-]+)-(?P<process>\d+)-[0-9a-f]{16}\.tmp")


def make_scratch(parent: Path | None = None) -> Path:
    """Return a new folder (mode 0700) in `parent`, by default the system's folder for temporary files."""
    where = Path(tempfile.gettempdir()) if parent is None else parent
    sweep(where)
    hidden = "" if parent is None else "."
    folder = where / f"{hidden}coaltree-{_host()}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
    folder.mkdir(mode=0o700)
    return folder


@contextmanager
def scratch(parent: Path | None = None) -> Iterator[Path]:
    """Yield a folder of `make_scratch` that is removed at the end."""
    folder = make_scratch(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def scratch_until_exit() -> Path:
    """Return a folder that is removed when the process ends."""
    folder = make_scratch()
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a forked child
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def sweep(parent: Path) -> None:
    """Remove folders of this machine's processes that are no more."""
    for folder in parent.glob("*coaltree-*.tmp"):
        found = _NAME.fullmatch(folder.name)
        if found is None or found["host"] != _host() or _is_alive(int(found["process"])):
            continue
        if folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)


def _host() -> str:
    return re.sub(r"[^0-9a-zA-Z_.]", "_", platform.node()) or "host"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True
