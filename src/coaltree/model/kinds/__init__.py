"""Kinds of columns, one class each, by the names that users give them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.frame import Column
from coaltree.model.kinds.base import ColumnKind
from coaltree.model.kinds.circular import Circular
from coaltree.model.kinds.levels import BinaryLevels, Categorical, Ordinal
from coaltree.model.kinds.numbers import Continuous, Count, Rounded, Skewed

__all__ = [
    "KINDS",
    "BinaryLevels",
    "Categorical",
    "Circular",
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
    each.kind: each for each in (Continuous, Skewed, Rounded, Count, BinaryLevels, Ordinal, Categorical, Circular)
}


def named(kind: Any) -> Maker | None:
    """Return what makes columns of a kind that a user names; None if there is no such kind."""
    if not isinstance(kind, str):
        return None
    kind, told, period = kind.partition(":")
    if kind not in KINDS or (told and kind != Circular.kind):
        return None
    return partial(Circular.of, period=_positive(period)) if told else KINDS[kind].of


def _positive(period: str) -> float:
    try:
        value = float(period)
    except ValueError:
        value = math.nan
    if not 0.0 < value < math.inf:
        raise InputError(f"A circular column needs a positive period, as in 'circular:24', got {period!r}.")
    return value


def from_written(content: dict[str, Any]) -> ColumnKind:
    """Return a column from what `ColumnKind.written` gave."""
    kind = content.get("kind")
    if kind not in KINDS:
        raise InputError(f"column {content.get('name')!r} must be of a known kind, got {kind!r}.")
    return KINDS[kind].restored(content)
