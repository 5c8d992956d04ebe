"""Folders of results, written whole or not at all, and the files that several of them share."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import secrets
import shutil
import sys
import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from coaltree import formats
from coaltree._arrays import Floats
from coaltree._version import __version__
from coaltree.errors import FolderError
from coaltree.posterior.annotate import to_annotated_nexus
from coaltree.posterior.ensemble import TreePosterior
from coaltree.reading import is_path
from coaltree.tree import Tree

SUMMARY, REPORT = "summary.json", "report.html"
TREE, ANNOTATED, POSTERIOR_NEXUS = "tree.nwk", "tree.nex", "posterior.nex"
DIGITS = 6
_MOST_NEXUS_LEAVES = 2_000_000  # in all trees of posterior.nex, about 60 MB


def check_free(out: Path, overwrite: bool) -> None:
    """Refuse a folder that is not empty, unless it may be replaced, before any work is done."""
    try:
        taken = out.exists() and not (out.is_dir() and not any(out.iterdir()))
    except OSError as error:
        raise FolderError(f"cannot look into {out}: {error.strerror or error}. Choose another folder.") from error
    if taken and not overwrite:
        raise FolderError(f"{out} exists. Choose another folder, or replace earlier results with `overwrite=True`.")


@contextmanager
def replaced_folder(out: Path, command: str, allowed: Collection[str] | None = None) -> Iterator[Path]:
    """Yield a draft folder beside `out` that becomes `out` when the block ends without an error.

    An existing `out` is accepted if it is empty or if its summary.json names `command`. It stays in place, its result
    files are replaced one by one, the summary last, and any other files in it are left alone. With the names `allowed`
    nothing else is written, and files of that name from earlier results do not stay among the new ones.
    """
    destination = out.expanduser().resolve()
    draft = destination.parent / f".{destination.name}.{secrets.token_hex(8)}.tmp"
    try:
        if destination.exists() and not may_write_into(destination, command):
            raise FolderError(
                f"{destination} exists and was not made by `{command}`. Choose another folder or move it away."
            )
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        yield draft
        written = {file.name for file in draft.iterdir()}
        if allowed is not None and not written <= set(allowed):
            raise AssertionError(f"{', '.join(sorted(written - set(allowed)))} may not be published")
        if destination.exists():
            for name in set(allowed or ()) - written:
                (destination / name).unlink(missing_ok=True)
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


@contextmanager
def claimed(out: str | Path) -> Iterator[None]:
    """Keep other runs away from a folder while the block runs.

    The operating system holds the lock, on a file beside the folder, and drops it when a process ends, however it ends:
    a file that a killed run left behind keeps nobody away.
    """
    destination = Path(out).expanduser().resolve()
    file = destination.parent / f".{destination.name}.lock"
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        stream = file.open("a+b")
    except OSError as error:
        raise FolderError(
            f"cannot write {destination}: {error.strerror or error}. Choose a folder that you can write to."
        ) from error
    with stream:
        try:
            _lock(stream)
            is_ours = os.path.samestat(os.fstat(stream.fileno()), file.stat())  # not one that a run has just removed
        except OSError as error:
            is_ours = error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK, errno.ENOENT)  # else no locks here
        if not is_ours:
            raise FolderError(
                f"another run is writing to {destination}. Wait until it has ended, or choose another folder."
            )
        try:
            yield
        finally:
            with suppress(OSError):  # Windows does not remove an open file; the next run takes it
                file.unlink()


def _lock(stream: BinaryIO) -> None:
    """Lock a file for this process or raise OSError at once."""
    if sys.platform == "win32":
        import msvcrt

        stream.seek(0)
        msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _concerns(error: OSError, destination: Path) -> bool:
    """Whether an error is about this folder, its draft or a folder above; a full disk names no file."""
    if error.filename is None:
        return True
    file = Path(error.filename)
    return destination.parent in file.parents or file in destination.parents


def may_write_into(folder: Path, command: str) -> bool:
    """Whether a folder is empty or was made by `command`."""
    if not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        return True
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and summary.get("command") == command


# ---- files


def provenance(command: str, command_line: str, seed: Any) -> dict[str, Any]:
    """Return the first entries of a summary: what produced these results."""
    return {
        "command": command,
        "command_line": command_line,
        "version": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "seed": seed,
    }


def shown_parameters(summary: Mapping[str, Any]) -> dict[str, object]:
    """Return the parameters of a summary, and what produced it, as worded in a report."""
    chosen = {key.replace("_", " "): value for key, value in summary["parameters"].items()}
    made_by = {"seed": "seed", "coaltree": "version", "numpy": "numpy", "Python": "python"}
    return chosen | {name: summary[key] for name, key in made_by.items()}


def fingerprint_of_file(source: Any) -> dict[str, str | None]:
    """Return the name and the SHA-256 of a table's file; a table in memory has neither."""
    if not is_path(source):
        return {"file": f"a table in memory ({type(source).__name__})", "sha256": None}
    path = Path(source)
    return {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Write summary.json; non-finite values become null, since JSON has no form for them."""
    (folder / SUMMARY).write_text(json.dumps(_finite(summary), indent=2) + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def clade_shares(posterior: TreePosterior, which: Any) -> dict[str, Floats]:
    """How certain each clade of a tree, or cluster of labels, is, as columns of a table; NaN if there is one tree only.

    Expected overlap and exact support, with the Monte Carlo error of the first.
    """
    shares = {
        "expected_overlap": posterior.expected_overlap(which),
        "expected_overlap_error": posterior.overlap_error(which),
        "exact_support": posterior.clade_support(which),
    }
    return shares if len(posterior) > 1 else {name: np.full_like(values, np.nan) for name, values in shares.items()}


def write_trees(folder: Path, tree: Tree, posterior: TreePosterior) -> None:
    """Write the tree with transfer supports, again with all that is known of its clades, and all trees.

    A single tree has no supports: its clades would trivially be in all trees.
    """
    support = posterior.transfer_support(tree) if len(posterior) > 1 else None
    (folder / TREE).write_text(tree.to_newick(support=support, digits=DIGITS) + "\n", encoding="utf-8")
    (folder / ANNOTATED).write_text(to_annotated_nexus(posterior, tree), encoding="utf-8")
    (folder / POSTERIOR_NEXUS).write_text(_posterior_nexus(posterior), encoding="utf-8")


def _posterior_nexus(posterior: TreePosterior) -> str:
    """All trees, or, if they are many and large, as many as a viewer can open, evenly spaced."""
    most = max(_MOST_NEXUS_LEAVES // posterior.n_leaves, 1)
    if len(posterior) <= most:
        return formats.to_nexus(list(posterior), weights=posterior.weights, digits=DIGITS)
    chosen = np.linspace(0, len(posterior) - 1, most).round().astype(int)
    weights = posterior.weights[chosen]
    text = formats.to_nexus(
        [posterior[i] for i in chosen.tolist()], weights=weights / (weights.sum() or 1.0), digits=DIGITS
    )
    told = f"[{most} of {len(posterior)} trees, evenly spaced, their weights scaled to sum to one]"
    return text.replace("\n", f"\n{told}\n", 1)


# ---- progress


@dataclass(frozen=True)
class Progress:
    """Progress messages, or none."""

    shown: bool

    def say(self, text: str, end: str = "\n") -> None:
        """Print a line at once."""
        if self.shown:
            print(text, end=end, flush=True)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Print what is being done, and how long it took."""
        self.say(f"{what} ..", end="")
        started = time.perf_counter()
        yield
        self.say(f" {time.perf_counter() - started:.1f} s")


@contextmanager
def warnings_as_texts(convergence: bool = True) -> Iterator[list[str]]:
    """Yield a list that holds the block's UserWarnings once it has ended, with subclasses if `convergence` is true."""
    told: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield told
    for warning in caught:
        if issubclass(warning.category, UserWarning) if convergence else warning.category is UserWarning:
            told.append(str(warning.message))
    told[:] = dict.fromkeys(told)
