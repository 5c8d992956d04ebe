"""Folders for patient-level data that processes leave behind, on systems with and without Unix's calls."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from coaltree.records import engine


def left_by(parent, process):
    folder = parent / f"coaltree-{engine._host()}-{process}-{'0' * 16}.tmp"
    folder.mkdir()
    (folder / "patients.parquet").touch()
    return folder


@pytest.fixture
def dead():
    """The number of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_folders_of_ended_processes_are_removed(tmp_path, dead):
    old, own = left_by(tmp_path, dead), left_by(tmp_path, os.getpid())
    engine.sweep(tmp_path)
    assert not old.exists()
    assert own.exists()


def test_numbers_that_are_no_process_are_left_alone(tmp_path):
    folder = left_by(tmp_path, 10**30)
    engine.sweep(tmp_path)
    assert folder.exists()


class Kernel:
    """Windows' kernel32 with process 7, which runs, 8, which has ended, and 9, of another user."""

    def __init__(self):
        self.closed, self.error = [], 0
        self.OpenProcess = lambda access, inherit, process: self.open(process.value)

    def open(self, process):
        self.error = {7: 0, 8: 0, 9: 5}.get(process, 87)
        return None if self.error else process

    def GetExitCodeProcess(self, handle, code):
        code._obj.value = {7: 259, 8: 0}[handle.value]
        return 1

    def CloseHandle(self, handle):
        self.closed.append(handle.value)


@pytest.fixture
def windows(monkeypatch):
    """The calls of `os` that Windows has; `os.kill` ends processes there."""
    kernel = Kernel()
    shown = SimpleNamespace(**{name: getattr(os, name) for name in dir(os) if name not in ("getuid", "kill", "name")})
    shown.name = "nt"
    shown.kill = lambda process, signal: pytest.fail("os.kill ends a process on Windows")
    monkeypatch.setattr(engine, "os", shown)
    monkeypatch.setattr(ctypes, "WinDLL", lambda name, use_last_error: kernel, raising=False)
    monkeypatch.setattr(ctypes, "get_last_error", lambda: kernel.error, raising=False)
    return kernel


def test_windows(tmp_path, windows):
    running, ended, gone, another = (left_by(tmp_path, process) for process in (7, 8, 6, 9))
    engine.sweep(tmp_path)
    assert running.exists()
    assert another.exists()
    assert not ended.exists()
    assert not gone.exists()
    assert windows.closed in ([7, 8], [8, 7])


UNIX = re.compile(
    r"\bos\.(?:kill|killpg|getuid|geteuid|fork|getpgid|setsid|sched_getaffinity|sysconf|uname|chown|mkfifo|rename|symlink)"
    r"\(|\bfcntl\.\w+\(|\bresource\.\w+\(|\bsignal\.\w+|\bpwd\.\w+\(|\.symlink_to\("
)


def test_calls_that_only_unix_has_are_listed():
    """Each of these is behind a question whether it is there; add a new one with its guard and a test."""
    source = Path(engine.__file__).parents[1]
    found = {
        (file.relative_to(source).as_posix(), call)
        for file in source.rglob("*.py")
        for call in UNIX.findall(file.read_text(encoding="utf-8"))
    }
    assert found == {
        ("records/engine.py", "os.kill("),
        ("records/engine.py", "os.getuid("),
        ("results/folder.py", "fcntl.flock("),
    }
