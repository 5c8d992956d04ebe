"""Arrays in numpy's file format, read from untrusted bytes.

`np.load` takes the shape in a header at its word: it allocates before it looks at how much there is, and a header that
is no literal fails in as many ways as Python's parser. Here every array is exactly as large as its bytes, and every
fault is a ValueError that completes a sentence such as "table.npy is damaged: …".
"""

from __future__ import annotations

import io
import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree.errors import InputError

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def decode(data: bytes) -> npt.NDArray[Any]:
    """Return the array of an .npy file given as bytes; ValueError if it is not one, or holds Python objects."""
    stream = io.BytesIO(data)
    try:
        with warnings.catch_warnings(action="error"):
            shape, fortran_order, dtype = _HEADERS[np.lib.format.read_magic(stream)](stream)
    except Exception as error:  # numpy evaluates the header as a literal, which fails in many ways
        raise InputError("it has no header of a numpy array") from error
    if dtype.hasobject:
        raise InputError("it holds Python objects, which are never read")
    body = memoryview(data)[stream.tell() :]
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(body):
        raise InputError(f"it has {len(body)} bytes and its shape {shape} of type {dtype} needs another number")
    try:
        return np.ndarray(shape, dtype, body, order="F" if fortran_order else "C").copy()
    except (ValueError, TypeError) as error:  # more dimensions than numpy has, or elements of no size
        raise InputError(f"its shape {shape} of type {dtype} is not that of an array") from error
