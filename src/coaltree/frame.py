"""Tables of any columns in one form: numbers, truth values, dates and levels, from a file or from a DataFrame."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree import cells
from coaltree._arrays import Floats
from coaltree.cells import BOOLEAN, CATEGORY, DATE, NUMBER, ORDERED, TEXT, Parsed
from coaltree.errors import InputError

__all__ = [
    "BOOLEAN",
    "CATEGORY",
    "DATE",
    "NUMBER",
    "ORDERED",
    "TEXT",
    "Column",
    "Frame",
    "as_frame",
    "is_mixed",
    "names_of",
    "read_column",
]


class Column(NamedTuple):
    """One column: numbers, days since 1970-01-01, or places in `levels`; NaN where nothing is known."""

    name: str
    type: str  # one of NUMBER, BOOLEAN, CATEGORY, ORDERED, TEXT, DATE
    values: Floats  # (n,)
    levels: tuple[str, ...] = ()  # of all types but NUMBER and DATE
    notes: tuple[str, ...] = ()  # how it was read, where that is not plain

    @property
    def known(self) -> Floats:
        """The values that are there."""
        return self.values[~np.isnan(self.values)]

    def cell(self, i: int) -> str:
        """Return the value of row i in words, "" where it is missing."""
        value = self.values[i]
        if np.isnan(value):
            return ""
        if self.levels:
            return self.levels[int(value)]
        return cells.day_text(value) if self.type == DATE else f"{value:.15g}"


class Frame(NamedTuple):
    """Columns of one length, and the names of the rows if the table has them."""

    columns: tuple[Column, ...]
    n_rows: int
    ids: tuple[str, ...] | None = None
    one_unit: bool = False  # numbers of one unit, such as principal components, to be taken as they are

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    def matrix(self) -> Floats:
        """All values as numbers, (n, d): levels by their places."""
        if not self.columns:
            return np.empty((self.n_rows, 0))
        return np.ascontiguousarray(np.array([column.values for column in self.columns]).T)

    def keep(self, columns: Iterable[Column]) -> Frame:
        """Return the same rows with other columns."""
        return self._replace(columns=tuple(columns))

    def rows(self, index: npt.NDArray[Any]) -> Frame:
        """Return some of the rows."""
        ids = None if self.ids is None else tuple(self.ids[i] for i in index)
        columns = tuple(column._replace(values=column.values[index]) for column in self.columns)
        return Frame(columns, len(index), ids, self.one_unit)


def from_parsed(name: str, parsed: Parsed) -> Column:
    """Return a column of what its cells were found to be."""
    return Column(name, *parsed)


def is_mixed(X: Any) -> bool:
    """Whether X is a `Frame`, or a DataFrame that has columns of other things than numbers."""
    if isinstance(X, Frame):
        return True
    if not (hasattr(X, "columns") and hasattr(X, "dtypes")):
        return False
    if hasattr(X, "iloc"):
        kinds = [getattr(dtype, "kind", "O") for dtype in X.dtypes]
        return any(kind not in "iuf" for kind in kinds)
    return any(not dtype.is_numeric() for dtype in X.dtypes)  # polars


def as_frame(X: Any) -> Frame:
    """Return a DataFrame of pandas or polars, an array of numbers or a `Frame` in the one form.

    An index of texts or whole numbers gives the names of the rows.
    """
    if isinstance(X, Frame):
        return X
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return _from_pandas(X)
    if hasattr(X, "to_pandas") and hasattr(X, "columns"):
        return _from_pandas(X.to_pandas())
    array = np.asarray(X)
    if array.ndim != 2:
        raise InputError(f"X must be a table with 2 dimensions, got shape {array.shape}.")
    names = [f"column {j + 1}" for j in range(array.shape[1])]
    columns = [read_column(name, array[:, j]) for j, name in enumerate(names)]
    return Frame(tuple(columns), len(array))


def _from_pandas(X: Any) -> Frame:
    names = list(map(str, X.columns))
    if len(set(names)) < len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise InputError(f"X has columns of the same name: {', '.join(map(repr, repeated))}. Rename them.")
    columns = [read_column(name, X.iloc[:, j]) for j, name in enumerate(names)]
    return Frame(tuple(columns), len(X), names_of(X.index))


def names_of(index: Any) -> tuple[str, ...] | None:
    """Labels of rows as their names, if distinct and texts or whole numbers other than 0, 1, 2, …; else None."""
    labels = list(index)
    whole = all(isinstance(label, int | np.integer) and not isinstance(label, bool) for label in labels)
    if not labels or not (whole or all(isinstance(label, str) for label in labels)):
        return None
    if whole and labels == list(range(len(labels))):  # positions, which pandas gives to rows that have no names
        return None
    return tuple(map(str, labels)) if len(set(labels)) == len(labels) else None


def read_column(name: str, values: Any) -> Column:
    """Return one column of pandas or numpy by its dtype; of objects by looking at each."""
    categories = getattr(getattr(values, "cat", None), "categories", None)
    if categories is not None:
        codes = np.asarray(values.cat.codes, dtype=np.float64)
        codes[codes < 0] = np.nan
        return Column(name, ORDERED if values.cat.ordered else CATEGORY, codes, tuple(map(str, categories)))
    values = values if hasattr(values, "dtype") else np.asarray(values)
    kind = getattr(values.dtype, "kind", "O")
    if kind in "iuf":
        if hasattr(values, "to_numpy"):
            return Column(name, NUMBER, values.to_numpy(dtype=np.float64, na_value=np.nan))
        return Column(name, NUMBER, np.asarray(values, dtype=np.float64))
    if kind == "M":
        naive = values.dt.tz_localize(None) if getattr(values.dtype, "tz", None) is not None else values
        seconds = np.asarray(naive, dtype="datetime64[s]")
        days = seconds.astype(np.float64) / 86400.0
        days[np.isnat(seconds)] = np.nan
        return Column(name, DATE, days)
    if kind == "m":
        spans = np.asarray(values, dtype="timedelta64[s]")
        days = spans.astype(np.float64) / 86400.0
        days[np.isnat(spans)] = np.nan
        return Column(name, NUMBER, days)
    return from_parsed(name, cells.parse(name, [_text(value) for value in values]))


def _text(value: Any) -> str:
    """Return one object as the text that a file would hold."""
    if value is None or value is np.ma.masked:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, dt.datetime | dt.date):
        return "" if value != value else value.isoformat()
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else repr(float(value))
    text = str(value)
    return "" if text in ("<NA>", "NaT") else text


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names for a message, the first few."""
    shown = ", ".join(map(repr, names[:most]))
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown
