"""Tables of numbers from files: CSV, TSV, Parquet, npy. What cannot be clustered is refused with a way out."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree import _npy

Floats = npt.NDArray[np.float64]

SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".parquet", ".pq", ".npy")
_MISSING = {"", "na", "n/a", "nan", "null", "none"}
_DELIMITERS = (",", "\t", ";")
MOST_NAMED = 6
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class TableError(Exception):
    """The table cannot be used; the message says why and what to do."""


class Table(NamedTuple):
    """A table ready to be clustered."""

    X: Floats  # (n, d)
    ids: tuple[str, ...]
    features: tuple[str, ...]
    notes: tuple[str, ...]  # what was decided on the way, for the reader


class _Raw(NamedTuple):
    """Columns as they were read: text, or numbers already."""

    names: list[str]
    columns: list[list[str] | Floats]
    notes: list[str]
    row_names: str | None = None  # a column that the file itself marks as row names


def read_table(
    path: Path,
    id_column: str | None = None,
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    header: bool | None = None,
    drop_missing: bool = False,
) -> Table:
    """Read a file and keep its numeric columns.

    Parameters
    ----------
    path : Path
        A file whose name ends in one of `SUFFIXES`.
    id_column : str, optional
        Column with the names of the rows. By default the first column if it has no name, as R and pandas write row
        names; otherwise rows are numbered from 1.
    features, drop : sequences of str
        Columns to keep, or to leave out; at most one of the two.
    header : bool, optional
        Whether the first line names the columns; by default it does unless all of it is numbers.
    drop_missing : bool
        Leave out rows with missing values; else they stay, as NaN.
    """
    table = read_numbers(path, id_column, features, drop, header)
    notes = list(table.notes)
    X, ids = _settle_missing(table.X, table.ids, list(table.features), drop_missing, notes)
    _check_rows(X, list(table.features))
    return Table(X, ids, table.features, tuple(notes))


def read_numbers(
    path: Path,
    id_column: str | None = None,
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    header: bool | None = None,
) -> Table:
    """Read a file as `read_table` does and keep its numeric columns as they are: with missing values, even constant."""
    raw = _read(path, header)
    if not raw.columns or len(raw.columns[0]) == 0:
        raise TableError(f"{path} has no rows. Give a table with one row per thing.")
    notes = list(raw.notes)
    id_column = _choose_ids(raw, id_column, notes)
    chosen = _choose_columns(raw.names, id_column, features, drop)
    ids = _row_names(raw, id_column)
    return Table(_as_numbers(raw, chosen), ids, tuple(raw.names[j] for j in chosen), tuple(notes))


def column_names(path: Path) -> set[str]:
    """Names of all columns of a file."""
    return set(_read(path, None).names)


# ---- reading


def _read(path: Path, header: bool | None) -> _Raw:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise TableError(f"{path} must end in one of {', '.join(SUFFIXES)}: the ending tells the format.")
    if not path.is_file():
        raise TableError(f"{path} is {'not a file' if path.exists() else 'not there'}. Check the path.")
    try:
        if suffix == ".npy":
            return _read_npy(path)
        if suffix in (".parquet", ".pq"):
            return _read_parquet(path)
        return _read_text(path, header)
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}.") from error


def _read_text(path: Path, header: bool | None) -> _Raw:
    try:
        content = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(
            f"{path} is not text in UTF-8 (byte {error.start} does not fit). Save the table as CSV in UTF-8."
        ) from error
    if not content.strip():
        raise TableError(f"{path} is empty. Give a table with one row per thing to cluster.")
    delimiter = _delimiter(path, content)
    try:
        lines = [
            (number, row)
            for number, row in _numbered(csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, strict=True))
            if any(cell.strip() for cell in row)
        ]
    except csv.Error as error:
        raise TableError(f"{path} is not a readable table: {error}. Check its quotation marks.") from error
    if not lines:
        raise TableError(f"{path} has empty cells only. Give a table with one row per thing to cluster.")
    width = len(lines[0][1])
    for number, row in lines:
        if len(row) != width:
            raise TableError(
                f"{path} line {number} has {len(row)} cells, the first line {width}. "
                "Quote cells that hold the separator, or mend the line."
            )
    rows = [row for _, row in lines]
    notes: list[str] = []
    if header is None:
        header = not all(_is_number(cell) for cell in rows[0])
        if not header:
            notes.append("The first line is all numbers and was read as data; --header makes it the names of columns.")
    names = [cell.strip() for cell in rows[0]] if header else [f"column {j + 1}" for j in range(width)]
    body = rows[1:] if header else rows
    columns: list[list[str] | Floats] = [[row[j].strip() for row in body] for j in range(width)]
    if delimiter == ";":
        columns = [_with_points(column) for column in columns]
    index = "" if header and names[0] == "" else None
    return _Raw(names, columns, notes, index)


def _numbered(reader: Any) -> Any:
    return ((reader.line_num, row) for row in reader)


def _delimiter(path: Path, content: str) -> str:
    if path.suffix.lower() in (".tsv", ".tab"):
        return "\t"
    first = content.lstrip("\r\n").splitlines()[0]
    counts = [len(next(csv.reader([first], delimiter=delimiter))) for delimiter in _DELIMITERS]
    return _DELIMITERS[int(np.argmax(counts))]


def _with_points(column: list[str] | Floats) -> list[str] | Floats:
    """Where cells are separated by semicolons the decimal sign may be a comma."""
    swapped = [str(cell).replace(",", ".") for cell in column]
    numbers = all(_is_number(cell) or cell.lower() in _MISSING for cell in swapped)
    return swapped if numbers else column


def _read_npy(path: Path) -> _Raw:
    try:
        array = _npy.decode(path.read_bytes())
    except ValueError as error:
        raise TableError(f"{path} is not a numpy array of numbers: {error}.") from error
    if array.ndim != 2 or array.dtype.kind not in "iufb":
        raise TableError(f"{path} must hold a table of numbers, got shape {array.shape} and type {array.dtype}.")
    values = array.astype(np.float64)
    return _Raw([f"column {j + 1}" for j in range(array.shape[1])], list(values.T), [])


def _read_parquet(path: Path) -> _Raw:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise TableError("Parquet files need pyarrow: pip install 'coaltree[parquet]', or save as CSV.") from error
    try:
        table = parquet.read_table(path)
    except ArrowException as error:
        raise TableError(f"{path} is not a readable Parquet file: {error}.") from error
    index = next((name for name in table.column_names if re.fullmatch(r"__index_level_\d+__", name)), None)
    columns: list[list[str] | Floats] = []
    for column in table.columns:
        values = column.to_pylist()
        if all(value is None or isinstance(value, (int, float)) for value in values):
            columns.append(np.array([np.nan if value is None else float(value) for value in values]))
        else:
            columns.append(["" if value is None else str(value) for value in values])
    return _Raw(list(table.column_names), columns, [], index)


# ---- choosing


def _choose_ids(raw: _Raw, id_column: str | None, notes: list[str]) -> str | None:
    if id_column is not None:
        if id_column not in raw.names:
            raise TableError(f"--id-column {id_column!r} is not a column. {_columns_are(raw.names)}")
        return id_column
    if raw.row_names is not None:
        notes.append("Rows are named by the table's index, its column without a name of its own.")
    return raw.row_names


def _choose_columns(names: list[str], id_column: str | None, features: Sequence[str], drop: Sequence[str]) -> list[int]:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise TableError(f"The columns {listed(repeated)} appear more than once. Rename them.")
    if features and drop:
        raise TableError("--features and --drop exclude each other: give one of them.")
    for option, wanted in (("--features", features), ("--drop", drop)):
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise TableError(f"{option} names {listed(unknown)}, not in the table. {_columns_are(names)}")
    if features:
        chosen = [names.index(name) for name in dict.fromkeys(features) if name != id_column]
    else:
        chosen = [j for j, name in enumerate(names) if name != id_column and name not in drop]
    if not chosen:
        raise TableError("No column is left to cluster by. Keep at least one with --features or --drop.")
    return chosen


def _row_names(raw: _Raw, id_column: str | None) -> tuple[str, ...]:
    if id_column is None:
        return tuple(str(i + 1) for i in range(len(raw.columns[0])))
    column = raw.columns[raw.names.index(id_column)]
    ids = [f"{value:.15g}" if isinstance(value, float) else str(value) for value in column]
    option = f"column {id_column!r}" if id_column else "the first column"
    for i, name in enumerate(ids):
        if not name or name == "nan":
            raise TableError(f"Row {i + 1} has no name in {option}. Fill it in, or choose another --id-column.")
        if _CONTROL.search(name):
            raise TableError(
                f"The name of row {i + 1}, {name[:40]!r}, holds a line break or another control character, which tree "
                "files cannot carry. Remove it from the table."
            )
    seen: dict[str, int] = {}
    for i, name in enumerate(ids):
        if name in seen:
            raise TableError(
                f"Rows {seen[name] + 1} and {i + 1} have the same name {name!r} in {option} "
                f"({len(ids) - len(set(ids))} repeats in all). Names must differ."
            )
        seen[name] = i
    return tuple(ids)


def _as_numbers(raw: _Raw, chosen: list[int]) -> Floats:
    X = np.empty((len(raw.columns[0]), len(chosen)))
    text: dict[str, tuple[int, str]] = {}
    for k, j in enumerate(chosen):
        column = raw.columns[j]
        if isinstance(column, np.ndarray):
            X[:, k] = column
            continue
        for i, cell in enumerate(column):
            if cell.lower() in _MISSING:
                X[i, k] = np.nan
            elif _is_number(cell):
                X[i, k] = float(cell)
            else:
                text[raw.names[j]] = (i, cell)
                break
    if text:
        examples = "; ".join(
            f"{name!r} (row {i + 1}: {cell[:30]!r})" for name, (i, cell) in list(text.items())[:MOST_NAMED]
        )
        more = f" and {len(text) - MOST_NAMED} more" if len(text) > MOST_NAMED else ""
        first = next(iter(text))
        named = raw.columns[raw.names.index(first)]
        ids = f", or name the rows by it with --id-column {_words([first])}" if len(set(named)) == len(named) else ""
        raise TableError(
            f"Columns with text: {examples}{more}. Only numbers can be used: leave them out with "
            f"--drop {_words(list(text))}{ids}."
        )
    return X


def _settle_missing(
    X: Floats, ids: tuple[str, ...], names: list[str], drop: bool, notes: list[str]
) -> tuple[Floats, tuple[str, ...]]:
    """Leave out rows with missing values if asked to; else say how many values the model will have to infer."""
    if np.isinf(X).any():
        column = names[int(np.argmax(np.isinf(X).any(axis=0)))]
        raise TableError(f"Column {column!r} holds infinite values. Correct them or leave it out with --drop.")
    missing = np.isnan(X)
    rows = np.asarray(missing.any(axis=1))
    if not rows.any():
        return X, ids
    if drop:
        notes.append(f"{rows.sum():,} of {len(X):,} rows had missing values and were left out.")
        return X[~rows], tuple(ids[i] for i in np.flatnonzero(~rows))
    empty = [names[j] for j in np.flatnonzero(missing.all(axis=0))]
    if empty:
        raise TableError(f"The columns {listed(empty)} hold no value. Leave them out with --drop {_words(empty)}.")
    bare = np.flatnonzero(missing.all(axis=1))
    if bare.size:
        raise TableError(
            f"Rows without any value: {bare.size:,}, the first is {ids[bare[0]]!r}. Remove them, or leave out every "
            "row with missing values with --drop-missing."
        )
    counts = missing.sum(axis=0)
    worst = [f"{names[j]!r} ({counts[j]:,})" for j in np.argsort(-counts, kind="stable") if counts[j]][:MOST_NAMED]
    notes.append(
        f"Missing values: {missing.sum():,}, in {rows.sum():,} of {len(X):,} rows, inferred with the tree; by column: "
        f"{', '.join(worst)}. --drop-missing leaves those rows out."
    )
    return X, ids


def _check_rows(X: Floats, names: list[str]) -> None:
    if len(X) < 2:
        raise TableError(f"The table has {len(X)} row{'s' * (len(X) != 1)} left; a tree needs at least 2.")
    constant = [names[j] for j in np.flatnonzero(np.nanmin(X, axis=0) == np.nanmax(X, axis=0))]
    if len(constant) == X.shape[1]:
        raise TableError("All rows are equal, so there is nothing to tell them apart by. Check the table.")
    if constant:
        raise TableError(
            f"The columns {listed(constant)} hold one value only and tell nothing. Leave them out with "
            f"--drop {_words(constant)}."
        )


# ---- words


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell and cell.strip().lower() not in _MISSING


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first few."""
    shown = ", ".join(map(repr, names[:MOST_NAMED]))
    return f"{shown} and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else shown


def _columns_are(names: Sequence[str]) -> str:
    return f"Its columns: {listed(names)}."


def _words(names: Sequence[str]) -> str:
    """Names as they are given to an option."""
    return shlex.quote(",".join(names))
