"""A folder of results, written whole or not at all."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SUMMARY = "summary.json"


class FolderError(Exception):
    """The folder cannot be written; the message says why and what to do."""


@contextmanager
def replaced_folder(out: Path, command: str) -> Iterator[Path]:
    """Yield a draft folder beside `out` that becomes `out` when the block ends without an error.

    An existing `out` is accepted if it is empty or if its summary.json names `command`. It stays in place, its own
    files are replaced one by one, the summary last, and files that somebody else put there are left alone.
    """
    destination = out.expanduser().resolve()
    draft = destination.parent / f".{destination.name}.{secrets.token_hex(8)}.tmp"
    try:
        if destination.exists() and not _may_write_into(destination, command):
            raise FolderError(
                f"{destination} exists and was not made by `{command}`. Choose another folder or move it away."
            )
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        yield draft
        if destination.exists():
            for file in sorted(draft.iterdir(), key=lambda file: file.name == SUMMARY):
                file.replace(destination / file.name)
        else:
            draft.rename(destination)
    except OSError as error:
        if not _concerns(error, destination):
            raise
        raise FolderError(
            f"cannot write {destination}: {error.strerror or error}. Choose a folder that you can write to."
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _concerns(error: OSError, destination: Path) -> bool:
    """Whether an error is about this folder, its draft or a folder above; a full disk names no file."""
    if error.filename is None:
        return True
    file = Path(error.filename)
    return destination.parent in file.parents or file in destination.parents


def _may_write_into(folder: Path, command: str) -> bool:
    if not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        return True
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and summary.get("command") == command
