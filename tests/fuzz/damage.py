"""Damages of a stored file that a checksum does not tell: parts are changed, and the file is sealed again."""

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.fuzz.mutate import rezip, unzip
from tests.fuzz.readers import _npy, _sealed

WRONG: tuple[Any, ...] = (None, "text", [], {}, [["x"]], -1, float("nan"))


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Every damage of every part of a file, with its name."""
    members = dict(unzip(data))
    header = json.loads(np.load(io.BytesIO(members["header.npy"])).tobytes())
    for name, content in members.items():
        if name in ("header.npy", "sha256.npy"):
            continue
        rest = {key: value for key, value in members.items() if key != name}
        yield f"{name} dropped", rezip(_sealed(rest))
        for what, array in _other_arrays(np.load(io.BytesIO(content))):
            yield f"{name} {what}", rezip(_sealed({**members, name: _npy(array)}))
        yield f"{name} a text", _with_header(rest, {**header, name.removesuffix(".npy"): "text"})
    for path, changed in _other_values(header):
        if path[0] not in ("format", "format_version", "run"):
            yield f"header {path}", _with_header(members, changed)


def _with_header(members: dict[str, bytes], header: Any) -> bytes:
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    return rezip(_sealed({**members, "header.npy": _npy(text)}))


def _other_arrays(array: Any) -> Iterator[tuple[str, Any]]:
    yield "with one more axis", array[None]
    yield "empty", array.ravel()[:0]
    if array.ndim:
        yield "one row short", array[:-1]
    yield "as texts", array.astype("U8")
    if array.dtype.kind in "fiu":
        yield "complex", array.astype(complex)
        yield "in other bytes", array.astype(array.dtype.newbyteorder())
        yield "as truths", array.astype(bool)
    if array.dtype.kind in "iu" and array.size:
        for value in (np.iinfo(array.dtype).min, np.iinfo(array.dtype).max):
            other = array.copy()
            other.flat[-1] = value
            yield f"with {value}", other
    if array.dtype.kind == "f" and array.size:
        yield "as halves", array.astype("f2")
        for value in (np.nan, np.inf):
            other = array.copy()
            other.flat[-1] = value
            yield f"with {value}", other


def _other_values(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value inside a JSON value dropped, or of another type."""
    if not isinstance(value, dict | list):
        return
    places = list(value) if isinstance(value, dict) else range(min(len(value), 2))
    for place in places:
        without = value.copy()
        del without[place]
        yield (place, "dropped"), without
        changes = [(("as", wrong), wrong) for wrong in WRONG if type(wrong) is not type(value[place])]
        for path, other in [*changes, *_other_values(value[place])]:
            copy = value.copy()
            copy[place] = other
            yield (place, *path), copy
