"""Whether arrays will fit into memory, asked before they are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

MEMINFO = Path("/proc/meminfo")


def available_memory() -> int | None:
    """Bytes that can be taken without swapping, or None where the system does not say."""
    try:
        for line in MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return None


def largest_that_fits(bytes_for: Callable[[int], int], available: int, most: int) -> int:
    """The largest size up to `most` whose `bytes_for(size)`, which rises, is available; 0 if none is."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if bytes_for(middle) <= available:
            low = middle
        else:
            high = middle - 1
    return low


def check_leaves(n: int) -> None:
    """Raise MemoryError if the distances of n leaves will not fit."""
    available = available_memory()
    if available is not None and _distances(n) > available:
        raise MemoryError(
            f"X has {n} rows: their distances need {_distances(n) / 1e9:.1f} GB and {available / 1e9:.1f} GB are free. "
            f"The largest n that fits is {largest_that_fits(_distances, available, n)}."
        )


def check_particles(n: int, n_particles: int, per_pair: int, per_leaf: int) -> None:
    """Raise MemoryError if particles of `per_pair` bytes per pair and `per_leaf` bytes per leaf will not fit."""
    available = available_memory()

    def one(size: int) -> int:
        return size * (size - 1) // 2 * per_pair + size * per_leaf

    if available is not None and n_particles * one(n) > available:
        raise MemoryError(
            f"n_particles={n_particles} with n = {n} leaves need {n_particles * one(n) / 1e9:.1f} GB and "
            f"{available / 1e9:.1f} GB are free. Reduce n_particles to at most {available // one(n)}, or n: "
            f"the largest n that fits is {largest_that_fits(lambda size: n_particles * one(size), available, n)}."
        )


def check_matrix(n_rows: int, n_columns: int, itemsize: int, what: str, instead: str) -> None:
    """Raise MemoryError if a matrix of `what` will not fit, saying what to do `instead`."""
    needed, available = n_rows * n_columns * itemsize, available_memory()
    if available is not None and needed > available:
        raise MemoryError(
            f"A matrix ({n_rows}, {n_columns}) of {what} needs {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB are "
            f"free. {instead}"
        )


def _distances(n: int) -> int:
    return 8 * (n * (n - 1) // 2)
