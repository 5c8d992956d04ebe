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
# Without an entry from Python a function compiles faster.
_INNER = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(function: F) -> F:
    """Compile a function lazily: nothing happens until its first call."""
    try:
        compiled: F = _njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:
        # numba finds no folder it may write a cache to: compile anew in every process rather than fail to import.
        compiled = _njit(nogil=True, error_model="numpy")(function)
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
    compiled: F = _njit(**_INNER, _nrt=False)(function)
    return compiled
