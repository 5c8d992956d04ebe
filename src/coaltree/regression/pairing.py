"""Features and outcomes from two tables, matched row by row: by id, or in the order of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats, Ints
from coaltree.errors import TableError
from coaltree.frame import Column, listed
from coaltree.reading import read_any, read_raw
from coaltree.regression.encoding import Columns, Encoding, as_outcomes, columns_of


class Cells(NamedTuple):
    """Columns by name, numbers or text, and the names of the rows."""

    columns: Columns
    ids: tuple[str, ...]
    notes: tuple[str, ...]


class Data(NamedTuple):
    """Features and outcomes of the same rows."""

    columns: Columns  # features as given
    X: Floats  # (N, K), encoded
    Y: Floats  # (N, P): 0, 1 or NaN
    ids: tuple[str, ...]
    features: tuple[str, ...]
    outcomes: tuple[str, ...]
    notes: tuple[str, ...]


def read_data(features: Any, outcomes: Any, id_column: str | None = None, drop: Sequence[str] = ()) -> Data:
    """Match the rows of two tables: by id if a column is named, else by position.

    A table is a file or a DataFrame; `drop` names columns of either to leave out.
    """
    raws = read_raw(features), read_raw(outcomes)
    unknown = set(drop).difference(*(raw.frame.names for raw in raws))
    if unknown:
        raise TableError(f"`drop` names {listed(sorted(unknown))}, in neither of the tables.")
    left, right = (read_columns(raw, id_column, [name for name in drop if name in raw.frame.names]) for raw in raws)
    rows, others, ids, notes = _matched(left, right, id_column)
    if len(ids) < 2:
        raise TableError(f"{len(ids)} row is left; a regression needs at least 2.")
    columns = {name: values[rows] for name, values in left.columns.items()}
    try:
        encoding = Encoding.learn(columns)
        Y, names = as_outcomes({name: values[others] for name, values in right.columns.items()})
        X = encoding.encode(columns)
    except ValueError as error:
        raise TableError(f"{error} (`drop` leaves columns out, `id_column` names the rows.)") from error
    Y, names, remarks = _two_classes(Y, names)
    notes += remarks
    constant = [name for name, width in zip(encoding.names, np.ptp(X, axis=0), strict=True) if width == 0.0]
    if constant:
        notes.append(f"Features with one value only get the coefficient 0: {listed(constant)}.")
    gaps = [column.name for column in encoding.columns if column.missing]
    if gaps:
        notes.append(f"Missing values of {listed(gaps)} are filled in, and a feature says where they were missing.")
    n_missing = int(np.isnan(Y).sum())
    if n_missing:
        notes.append(f"{n_missing:,} of {Y.size:,} labels are missing; those rows count for the other outcomes.")
    return Data(columns, X, Y, ids, encoding.names, names, tuple(notes))


def read_columns(source: Any, id_column: str | None, drop: Sequence[str] = ()) -> Cells:
    """Read a table: numbers and dates as numbers, all else as text."""
    table = read_any(source, id_column, drop)
    columns = {column.name: _cells(column) for column in table.frame.columns}
    return Cells(columns_of(columns), table.ids, table.notes)


def _cells(column: Column) -> npt.NDArray[Any]:
    if not column.levels:
        return column.values
    return np.array([column.cell(i) or None for i in range(len(column.values))], dtype=object)


def _matched(left: Cells, right: Cells, id_column: str | None) -> tuple[Ints, Ints, tuple[str, ...], list[str]]:
    notes = list(dict.fromkeys((*left.notes, *right.notes)))
    if id_column is None:
        if len(left.ids) != len(right.ids):
            raise TableError(
                f"The features have {len(left.ids):,} rows and the outcomes {len(right.ids):,}. Without `id_column` "
                "rows are matched by their order, so both need the same number; or name the column that identifies a "
                "row."
            )
        if left.ids != right.ids and left.notes and right.notes:
            i = next(i for i, (a, b) in enumerate(zip(left.ids, right.ids, strict=True)) if a != b)
            raise TableError(
                f"Row {i + 1} is called {left.ids[i]!r} in the features and {right.ids[i]!r} in the outcomes. Give the "
                "column of names a name and pass it as `id_column`, or remove it to match rows by order."
            )
        every = np.arange(len(left.ids))
        return every, every, left.ids, notes
    position = {name: i for i, name in enumerate(right.ids)}
    common = [(i, position[name]) for i, name in enumerate(left.ids) if name in position]
    if not common:
        raise TableError(
            f"No {id_column!r} is in both tables (first in the features: {left.ids[0]!r}, in the outcomes: "
            f"{right.ids[0]!r}). Check `id_column`."
        )
    for name, table in (("features", left), ("outcomes", right)):
        if len(table.ids) > len(common):
            notes.append(f"{len(table.ids) - len(common):,} rows are in the {name} only and were left out.")
    rows, others = (np.array(part) for part in zip(*common, strict=True))
    return rows, others, tuple(left.ids[i] for i in rows), notes


def _two_classes(Y: Floats, names: tuple[str, ...]) -> tuple[Floats, tuple[str, ...], list[str]]:
    """Leave out outcomes that never vary: there is nothing to learn about them, and no place in the tree."""
    varies = np.array([len(set(y[~np.isnan(y)])) == 2 for y in Y.T])
    alone = [name for name, kept in zip(names, varies, strict=True) if not kept]
    if not varies.any():
        raise TableError(f"No outcome has both 0 and 1 ({listed(alone)}), so there is nothing to learn.")
    if not alone:
        return Y, names, []
    kept = tuple(name for name, two in zip(names, varies, strict=True) if two)
    told = f"Outcomes with one class only are left out, of the tree too: {listed(alone)}."
    return np.ascontiguousarray(Y[:, varies]), kept, [told]
