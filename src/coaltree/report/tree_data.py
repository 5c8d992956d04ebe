"""The data behind the interactive tree of a report, compact enough for 100 000 rows.

A row takes about 30 bytes of the page, its name up to 20, and each of its values one or two. The page itself computes
sizes, the order of the rows, cuts and means of clades.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.report.page import packed
from coaltree.tree import Tree

_MOST_FINE = 500_000  # values stored in two bytes each; with more, one byte each
_MOST_VALUES = 1_700_000  # beyond this, columns are left out
_FINE, _COARSE = 32_766, 253  # largest codes
_MISSING = 255
_MOST_NAME_BYTES = 2_000_000
_SHORTEST_NAME = 8
_SUPPORT_CODES = 65_534
_HEAT_LIMIT = 2.5


def tree_data(
    tree: Tree, overlap: Floats | None = None, exact: Floats | None = None, intervals: Floats | None = None
) -> dict[str, Any]:
    """Merges, times and intervals, overlaps, exact supports and names; times in units of the last one, in 32 bits."""
    unit = float(tree.times[-1]) or 1.0
    data: dict[str, Any] = {
        "n": tree.n_leaves,
        **name_data(tree.leaf_names),
        "children": packed(tree.children.astype(np.int32)),
        "times": packed((tree.times / unit).astype(np.float32)),
        "unit": unit,
        "overlap": None,
        "exact": None,
        "low": None,
        "high": None,
    }
    for name, shares in (("overlap", overlap), ("exact", exact)):
        if shares is not None:
            data[name] = packed(np.rint(_SUPPORT_CODES * shares).astype(np.uint16))
    if intervals is not None:
        data["low"], data["high"] = (packed((ends / unit).astype(np.float32)) for ends in intervals.T)
    return data


def name_data(names: tuple[str, ...]) -> dict[str, Any]:
    """The names of the rows: a prefix and the first number if they are numbered consecutively, else a list.

    In a list that takes too much space, long names are shortened, and `shortened` says so.
    """
    match = re.fullmatch(r"(.*?)(0|[1-9][0-9]{0,8})", names[0], flags=re.DOTALL)
    if match:
        prefix, start = match[1], int(match[2])
        if all(name == f"{prefix}{start + i}" for i, name in enumerate(names)):
            return {"numbered": {"prefix": prefix, "start": start}, "shortened": False}
    kept, longest = list(names), max(map(len, names))
    while sum(map(_n_bytes, kept)) > _MOST_NAME_BYTES and longest > _SHORTEST_NAME:
        longest = max(int(0.8 * min(longest, 64)), _SHORTEST_NAME)
        kept = [_shortened(name, longest) for name in names]
    return {"names": kept, "shortened": kept != list(names)}


def _n_bytes(name: str) -> int:
    return len(json.dumps(name)) + 1


def _shortened(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name
    end = (longest - 1) // 2  # numbers at the end distinguish names more often than the beginning does
    return f"{name[: longest - 1 - end]}\N{HORIZONTAL ELLIPSIS}{name[-end:]}"


def heat_data(X: Floats, features: tuple[str, ...], levels: tuple[tuple[str, ...], ...] = ()) -> dict[str, Any]:
    """The data as integers.

    Small tables use 15 bits, value = low + step · code within each column, and −1 where a value is missing. Large ones
    use 8 bits on a scale that is finest near the column's mean, value = mean + deviation · sinh(low + step · code), and
    255 where it is missing. A column with levels holds their positions, and their names are listed.
    """
    n, d = X.shape
    kept = np.unique(np.linspace(0, d - 1, min(d, max(_MOST_VALUES // n, 1))).round().astype(int))
    values = np.asarray(X[:, kept], dtype=np.float64)
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, values, 0.0).sum(axis=0) / count
    deviation = np.sqrt((np.where(known, values - mean, 0.0) ** 2).sum(axis=0) / count)
    coarse = values.size > _MOST_FINE
    if coarse:
        values = np.arcsinh((values - mean) / np.where(deviation > 0.0, deviation, 1.0))
    low = np.where(known, values, np.inf).min(axis=0)
    low = np.where(np.isfinite(low), low, 0.0)
    span = np.where(known, values, -np.inf).max(axis=0) - low
    step = np.where(np.isfinite(span) & (span > 0.0), span, 1.0) / (_COARSE if coarse else _FINE)
    codes = np.rint((np.where(known, values, low) - low) / step)
    codes = np.where(known, codes, _MISSING if coarse else -1.0)
    return {
        "codes": packed(codes.astype(np.uint8 if coarse else np.int16)),
        "low": low.tolist(),
        "step": step.tolist(),
        "mean": mean.tolist(),
        "deviation": deviation.tolist(),
        "columns": [features[j] for j in kept],
        "levels": [list(levels[j]) if levels and levels[j] else None for j in kept],
        "limit": _HEAT_LIMIT,
    }
