"""Features and outcomes from two tables, matched row by row: by id, or in the order of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputError, TableError
from coaltree.frame import Column, listed
from coaltree.reading import read_any, read_raw
from coaltree.regression.encoding import Columns, Encoding, check_labels, columns_of, read_outcomes
from coaltree.regression.families import Chosen, Families, as_families
from coaltree.regression.preparation import as_exposure, observe_labels


class Cells(NamedTuple):
    """Columns by name, numbers or text, and the names of the rows."""

    columns: Columns
    ids: tuple[str, ...]
    notes: tuple[str, ...]


class Data(NamedTuple):
    """Features and outcomes of the same rows."""

    columns: Columns  # features as given
    X: Floats  # (N, K), encoded
    Y: Floats  # (N, P), NaN where there is no label
    ids: tuple[str, ...]
    features: tuple[str, ...]
    outcomes: tuple[str, ...]
    notes: tuple[str, ...]
    families: Families
    exposure: Floats | None  # (N, P), time at risk of counts


def read_data(
    features: Any,
    outcomes: Any,
    id_column: str | None = None,
    drop: Sequence[str] = (),
    family: Chosen = "probit",
    exposure: str | None = None,
) -> Data:
    """Match the rows of two tables: by id if a column is named, else by position.

    A table is a file or a DataFrame; `drop` names columns of either to leave out. `family` is one name, or a mapping by
    names of outcomes (others are binary); `exposure` the column of the outcomes with the time at risk of counts.
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
        labels = {name: values[others] for name, values in right.columns.items()}
        if exposure is not None and exposure not in labels:
            raise InputError(f"`exposure` must be a column of the outcomes, {listed(list(labels))}, got {exposure!r}.")
        times = None if exposure is None else labels.pop(exposure)
        Y, names = read_outcomes(labels)
        chosen = {**dict.fromkeys(names, "probit"), **family} if isinstance(family, Mapping) else family
        families = as_families(chosen, len(names), names)
        check_labels(Y, families, names)
        at_risk, Y = as_exposure(times, Y, families, names)
        X = encoding.encode(columns)
    except ValueError as error:
        raise TableError(f"{error} (`drop` leaves columns out, `id_column` names the rows.)") from error
    kept, remarks = _varying(Y, at_risk, names, families)
    notes += remarks
    Y, at_risk = np.ascontiguousarray(Y[:, kept]), at_risk[:, kept]
    names, families = tuple(names[j] for j in kept), tuple(families[j] for j in kept)
    constant = [name for name, width in zip(encoding.names, np.ptp(X, axis=0), strict=True) if width == 0.0]
    if constant:
        notes.append(f"Features with one value only get the coefficient 0: {listed(constant)}.")
    gaps = [column.name for column in encoding.columns if column.missing]
    if gaps:
        notes.append(f"Missing values of {listed(gaps)} are filled in, and a feature says where they were missing.")
    n_missing = int(np.isnan(Y).sum())
    if n_missing:
        notes.append(f"{n_missing:,} of {Y.size:,} labels are missing; those rows count for the other outcomes.")
    return Data(columns, X, Y, ids, encoding.names, names, tuple(notes), families, None if times is None else at_risk)


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


def _varying(Y: Floats, exposure: Floats, names: tuple[str, ...], families: Families) -> tuple[Ints, list[str]]:
    """Outcomes that have something to explain; the others have no place in the tree."""
    fitted = observe_labels(Y, exposure, np.ones(len(Y)), families)[1].fitted
    alone = [name for name, kept in zip(names, fitted, strict=True) if not kept]
    binary = all(family.binary for family in families)
    if not fitted.any():
        why = "No outcome has both 0 and 1" if binary else "No outcome has events or different values"
        raise TableError(f"{why} ({listed(alone)}), so there is nothing to learn.")
    what = "one class only" if binary else "no events or no different values"
    told = [f"Outcomes with {what} are left out, of the tree too: {listed(alone)}."] if alone else []
    return np.flatnonzero(fitted), told
