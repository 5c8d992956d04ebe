import errno
import json
from pathlib import Path

import pytest

from coaltree.results import FolderError
from coaltree.results.folder import SUMMARY, replaced_folder

COMMAND = "coaltree something"


def fill(out, text):
    with replaced_folder(out, COMMAND) as folder:
        (folder / "result.txt").write_text(text)
        (folder / SUMMARY).write_text(json.dumps({"command": COMMAND}))


def fill_and_fail(out, error):
    with replaced_folder(out, COMMAND) as folder:
        (folder / "result.txt").write_text("half")
        raise error


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.name != SUMMARY}


def test_new_folder_and_its_parents(tmp_path):
    fill(tmp_path / "a" / "b", "one")
    assert contents(tmp_path / "a" / "b") == {"result.txt": "one"}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_empty_folder_is_used(tmp_path):
    fill(tmp_path, "one")
    assert contents(tmp_path) == {"result.txt": "one"}


def test_own_folder_is_replaced_and_strangers_files_stay(tmp_path):
    out = tmp_path / "out"
    fill(out, "one")
    (out / "notes.txt").write_text("mine")
    fill(out, "two")
    assert contents(out) == {"result.txt": "two", "notes.txt": "mine"}


@pytest.mark.parametrize("summary", [None, "not json", "[]", '{"command": "coaltree other"}'])
def test_foreign_folder_is_refused(tmp_path, summary):
    (tmp_path / "notes.txt").write_text("mine")
    if summary is not None:
        (tmp_path / SUMMARY).write_text(summary)
    with pytest.raises(FolderError, match="was not made by `coaltree something`"):
        fill(tmp_path, "one")
    assert contents(tmp_path) == {"notes.txt": "mine"}


def test_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "out").write_text("mine")
    for out in (tmp_path / "out", tmp_path / "out" / "below"):
        with pytest.raises(FolderError, match=r"was not made by|cannot write"):
            fill(out, "one")
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failure_leaves_nothing_behind(tmp_path, error):
    out = tmp_path / "out"
    fill(out, "one")
    with pytest.raises(error):
        fill_and_fail(out, error)
    assert contents(out) == {"result.txt": "one"}
    assert list(tmp_path.iterdir()) == [out]


def test_parent_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(path, *_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(FolderError, match=r"Permission denied\. Choose a folder that you can write to"):
        fill(tmp_path / "out", "one")


def test_full_disk_is_told_and_other_errors_pass(tmp_path):
    with pytest.raises(FolderError, match="No space left"):
        fill_and_fail(tmp_path / "out", OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        fill_and_fail(tmp_path / "out", FileNotFoundError(errno.ENOENT, "No such file", "/elsewhere/data.csv"))
    assert not list(tmp_path.iterdir())
