"""Kinds of columns, one class each, by the names that users give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.frame import Column
from coaltree.model.kinds.base import ColumnKind
from coaltree.model.kinds.levels import Binary, Categorical, Ordinal
from coaltree.model.kinds.numbers import Continuous, Count, Rounded, Skewed

__all__ = [
    "KINDS",
    "Binary",
    "Categorical",
    "ColumnKind",
    "Continuous",
    "Count",
    "Maker",
    "Ordinal",
    "Rounded",
    "Skewed",
    "from_written",
    "named",
]

# Takes a column with its distinct values for a kind: returns it with its cells, or refuses.
Maker = Callable[[Column, Floats], tuple[ColumnKind, Floats]]

KINDS: dict[str, type[ColumnKind]] = {
    each.kind: each for each in (Continuous, Skewed, Rounded, Count, Binary, Ordinal, Categorical)
}


def named(kind: Any) -> Maker | None:
    """Return what makes columns of a kind that a user names; None if there is no such kind."""
    return KINDS[kind].of if isinstance(kind, str) and kind in KINDS else None


def from_written(content: dict[str, Any]) -> ColumnKind:
    """Return a column from what `ColumnKind.written` gave."""
    kind = content.get("kind")
    if kind not in KINDS:
        raise InputError(f"column {content.get('name')!r} must be of a known kind, got {kind!r}.")
    return KINDS[kind].restored(content)
