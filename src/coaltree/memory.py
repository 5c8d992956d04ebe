"""Whether arrays will fit into memory, asked before they are made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

MEMINFO = Path("/proc/meminfo")
# The control groups of this process, where they are mounted, and how versions 2 and 1 name limit, use and what of the
# use is files that can be dropped.
GROUPS = Path("/proc/self/cgroup")
MOUNTED = Path("/sys/fs/cgroup")
_NAMES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def available_memory() -> int | None:
    """Bytes that can be taken without swapping, or None where the system does not say.

    A container or a job has less than the machine: the limits of its control group, and of those above, count as well.
    """
    return min((free for free in (_free_of_machine(), *_free_of_groups()) if free is not None), default=None)


def _free_of_machine() -> int | None:
    try:
        return _entry(MEMINFO, "MemAvailable:") * 1024
    except (OSError, KeyError, ValueError):
        return None


def _free_of_groups() -> Iterator[int | None]:
    try:
        lines = GROUPS.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
        if "memory" in controllers.split(","):
            mounts, version = [MOUNTED / "memory"], 1
        elif not controllers:
            mounts, version = [MOUNTED, MOUNTED / "unified"], 2
        else:
            continue
        for mount in mounts:
            # A folder that a container does not see is passed over; the mount itself is then its own group.
            for depth in range(len(parts) + 1):
                yield _free_of_group(mount.joinpath(*parts[:depth]), version)


def _free_of_group(folder: Path, version: int) -> int | None:
    limit, use, reclaimable = _NAMES[version]
    try:
        total = int((folder / limit).read_text(encoding="ascii"))  # not "max", which is no limit
        used = int((folder / use).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    with contextlib.suppress(OSError, KeyError, ValueError):
        used -= _entry(folder / "memory.stat", reclaimable)
    return max(total - used, 0)


def _entry(file: Path, name: str) -> int:
    """The number beside a name in a file with one name per line."""
    for line in file.read_text(encoding="ascii").splitlines():
        words = line.split()
        if words[:1] == [name]:
            return int(words[1])
    raise KeyError(name)


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
