"""Files that hold a result: an .npz archive without pickle, with its kind, a format version and a checksum.

Archives may come from untrusted sources, and `np.load` trusts the shape in an array's header: it allocates before
checking how much data there is, and a header that is not a literal fails in as many ways as Python's parser. Here every
array must be exactly as large as its bytes, and every fault is a ValueError that completes a sentence such as
"table.npy is damaged: …".
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt

from coaltree.errors import InputError
from coaltree.memory import available_memory

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_PIECE = 1 << 20  # bytes read at a time


def decode(stream: IO[bytes], size: int) -> npt.NDArray[Any]:
    """Return the array in an .npy file of `size` bytes; ValueError if it is not one, or holds Python objects.

    The bytes are read into the array piece by piece: nothing is held twice.
    """
    try:
        with warnings.catch_warnings(action="error"):
            version = np.lib.format.read_magic(stream)
            shape, fortran_order, dtype = _HEADERS[version](stream)
    except Exception as error:  # numpy evaluates the header as a literal, which fails in many ways
        raise InputError("it has no header of a numpy array") from error
    if dtype.hasobject:
        raise InputError("it holds Python objects, which are never read")
    body = size - stream.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != body:
        raise InputError(f"it has {body} bytes and its shape {shape} of type {dtype} needs another number")
    raw = bytearray(body)
    try:
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, raw, order="F" if fortran_order else "C")
    except (ValueError, TypeError) as error:  # more dimensions than numpy has, or elements of no size
        raise InputError(f"its shape {shape} of type {dtype} is not that of an array") from error
    for first in range(0, body, _PIECE):
        piece = stream.read(min(_PIECE, body - first))
        if len(piece) != min(_PIECE, body - first):
            raise InputError(f"it ends before its {body} bytes")
        raw[first : first + len(piece)] = piece
    stream.read(1)  # at its end an archive compares the checksum of the member
    return array


POSTERIOR = "coaltree.TreePosterior"
FORMAT_VERSION = 1

Arrays = Mapping[str, npt.NDArray[Any]]
Chain = TypeVar("Chain")

_HEADER = "header"
_CHECKSUM = "sha256"


def write(path: str | os.PathLike[str], arrays: Arrays, texts: Mapping[str, Any], kind: str = POSTERIOR) -> None:
    """Write arrays and JSON values to `path`, whole or not at all.

    The archive is written beside its destination and moved over it, so a reader never sees half a file.
    """
    header = {"format": kind, "format_version": FORMAT_VERSION, **texts}
    contents: dict[str, Any] = {**arrays, _HEADER: _encode(json.dumps(header))}
    destination = Path(path)
    draft = destination.with_name(f".{destination.name}.{secrets.token_hex(8)}.tmp")
    try:
        with draft.open("xb") as file:
            _pack(file, contents | {_CHECKSUM: _encode(_digest(contents))})
            file.flush()
            os.fsync(file.fileno())
        draft.replace(destination)
    finally:
        draft.unlink(missing_ok=True)


def read(path: str | os.PathLike[str], kind: str = POSTERIOR, held: float = 2.0) -> dict[str, Any]:
    """Return the arrays and JSON values of a file of this kind written by `write`, by name.

    Arrays that would not fit into memory are refused: they are needed `held` times, once as they are read here and
    then in what the caller makes of them.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            contents = _unpack(file, held)
        header = json.loads(_decode(contents[_HEADER]))
        found, version = header.pop("format"), header.pop("format_version")
        if found != kind:
            raise InputError(f"it holds {found!r}")
        checksum = _decode(contents.pop(_CHECKSUM, np.empty(0)))
        if type(version) is not int:
            raise InputError(f"its format version is {version!r}")
    except Exception as error:  # damaged archives fail in many ways: zipfile, its decompressors, json
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the disk, not the contents
        raise InputError(
            f"{name} is not a readable {kind} file ({error}): it is damaged or was not written by coaltree as such."
        ) from error
    if version > FORMAT_VERSION:
        raise InputError(
            f"{name} has format version {version} and this coaltree reads up to {FORMAT_VERSION}: upgrade coaltree."
        )
    if _digest(contents) != checksum:
        raise InputError(f"{name} is damaged: its contents do not match their checksum.")
    del contents[_HEADER]
    return {**contents, **header}


@contextlib.contextmanager
def decoding(
    path: str | os.PathLike[str], what: str, fix: str = "It was altered, or is of another version: save it again."
) -> Iterator[None]:
    """Surround what makes an object of a file's parts: whatever fails is an error that names the file and the fix.

    A right checksum does not say that the parts are there, and of the types, shapes and values that they should have.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # parts that are not what they should be fail in as many ways as there are operations
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise InputError(f"{os.fspath(path)} does not hold a valid {what}: {reason.rstrip('.')}. {fix}") from error


def write_chains(path: str | os.PathLike[str], chains: Iterable[tuple[Arrays, Any]], run: str, kind: str) -> None:
    """Write the arrays and JSON value of every chain of a run, whole or not at all; `run` identifies the run."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    headers = []
    for number, (parts, header) in enumerate(chains):
        arrays |= {f"{number}.{name}": part for name, part in parts.items()}
        headers.append(header)
    write(path, arrays, {"run": run, "chains": headers}, kind)


def read_chains(
    path: str | os.PathLike[str],
    run: str,
    kind: str,
    chains: Sequence[Chain],
    unpack: Callable[[Chain, dict[str, npt.NDArray[Any]], Any], None],
) -> None:
    """Bring chains to what `write_chains` wrote of them, each by `unpack(chain, arrays, value)`.

    ValueError if the file is damaged or from another run.
    """
    parts = read(path, kind)
    if parts.get("run") != run:
        raise InputError(
            f"checkpoint {os.fspath(path)} belongs to a run with other data, settings or random_state, or of an "
            "earlier version, which drew otherwise. Delete it, or pass another path."
        )
    with decoding(path, "checkpoint", "Delete it, or pass another path."):
        for number, (chain, header) in enumerate(zip(chains, parts["chains"], strict=True)):
            unpack(chain, below(parts, f"{number}."), header)


def below(parts: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the parts whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): part for name, part in parts.items() if name.startswith(prefix)}


def fingerprint(*parts: Any) -> str:
    """SHA-256 of anything that determines a result: arrays to the last bit, plain values, objects by their fields."""
    return hashlib.sha256(_describe(parts).encode()).hexdigest()


def _describe(thing: Any) -> str:
    if isinstance(thing, np.ndarray):
        shown = hashlib.sha256(np.ascontiguousarray(thing).tobytes()).hexdigest()
        return f"{thing.dtype.str} {thing.shape} {shown}"
    if isinstance(thing, list | tuple):
        return f"[{', '.join(_describe(each) for each in thing)}]"
    parts = thing
    if not isinstance(thing, Mapping):
        parts = thing.get_params() if hasattr(thing, "get_params") else getattr(thing, "__dict__", None)
    if parts is None:
        return repr(thing)
    return f"{type(thing).__name__}({', '.join(f'{name}={_describe(parts[name])}' for name in sorted(parts))})"


def _pack(file: BinaryIO, contents: Arrays) -> None:
    """Write an .npz archive as `np.savez_compressed` does, but at the fastest level.

    Children and times hardly shrink further at the default level, which takes five times as long.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in contents.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.asarray(array), allow_pickle=False)


def _unpack(file: BinaryIO, held: float) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an archive by name, each checked against the archive's checksum."""
    with zipfile.ZipFile(file) as archive:
        parts = archive.infolist()
        needed = held * sum(part.file_size for part in parts)
        available = available_memory()
        if available is not None and needed > available:
            raise InputError(f"reading its arrays takes {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB are free")
        found = {}
        for part in parts:
            with archive.open(part) as stream:
                found[part.filename.removesuffix(".npy")] = decode(stream, part.file_size)
        return found


def _digest(contents: Arrays) -> str:
    """SHA-256 over the name, type, shape and bytes of every array, in order of name."""
    digest = hashlib.sha256()
    for key in sorted(contents):
        array = np.ascontiguousarray(contents[key])
        digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _encode(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _decode(array: npt.NDArray[Any]) -> str:
    return array.astype(np.uint8).tobytes().decode()
