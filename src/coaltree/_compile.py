"""How kernels are compiled: the only place that names numba's options.

`error_model="numpy"` gives IEEE results (log 0 = −inf) instead of Python exceptions; `nogil` lets threads run
kernels side by side; `cache` makes the second process start without compiling. fastmath stays off because
−inf is a legal log weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

# Untyped on purpose: numba's own annotations differ between versions.
_njit: Any = numba.njit


def kernel(function: F) -> F:
    """Compile a function lazily: nothing happens until its first call."""
    try:
        compiled: F = _njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:
        # numba finds no folder it may write a cache to: compile anew in every process rather than fail to import.
        compiled = _njit(nogil=True, error_model="numpy")(function)
    return compiled


def inline(function: F) -> F:
    """Compile a small function for use inside kernels only: without an entry from Python it compiles faster."""
    options = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    compiled: F = _njit(**options)(function)
    return compiled
