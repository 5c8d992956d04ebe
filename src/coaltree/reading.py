"""Tables from files: CSV, TSV, Excel, Parquet, Feather, npy, h5ad. What cannot be used is refused with a way out.

A row keeps its place whatever is in it: an empty line between others is a row of missing values.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coaltree import cells, storage
from coaltree._arrays import Floats
from coaltree.cells import NUMBER
from coaltree.errors import TableError
from coaltree.frame import Column, Frame, as_frame, from_parsed, listed
from coaltree.rows import restored

TEXT_SUFFIXES = (".csv", ".tsv", ".tab", ".txt")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet", ".pq", ".feather", ".xlsx", ".h5ad", ".npy")
MOST_NAMED = 6
_DELIMITERS = (",", "\t", ";")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ID_NAME = re.compile(
    r"(?i)(id|ids|key|uid|uuid|row_?names?|row_?id|name|names|sample|index)|.*[_ .-]ids?|[a-z0-9]+(Id|ID)"
)


class Raw(NamedTuple):
    """A table as it was read, before anything was chosen."""

    frame: Frame
    notes: list[str]
    row_names: str | None = None  # a column that the file itself marks as row names
    texts: Mapping[str, list[str]] = {}  # cells as they stand in the file, so that names keep their zeros


class Table(NamedTuple):
    """A table whose rows have names and whose columns were chosen."""

    frame: Frame
    notes: tuple[str, ...]  # what was decided on the way, for the reader

    @property
    def ids(self) -> tuple[str, ...]:
        """Names of the rows."""
        return self.frame.ids or ()

    @property
    def X(self) -> Floats:
        """All cells as numbers, levels by their places, (n, d)."""
        return self.frame.matrix()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.frame.names


def read_table(
    source: Any,
    id_column: str | None = None,
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    header: bool | None = None,
    drop_missing: bool = False,
) -> Table:
    """Read a table with columns of any kind to be clustered.

    Parameters
    ----------
    source : path, DataFrame or array
        A file whose name ends in one of `coaltree.reading.SUFFIXES`, or a table in memory.
    id_column : str, optional
        Column with the names of the rows. By default the first column if it has no name, as R and pandas write row
        names, or, of a file, one that differs in every row and is text or named like ids; otherwise rows are numbered
        from 1.
    features, drop : sequences of str
        Columns to keep, or to leave out; at most one of the two.
    header : bool, optional
        Whether the first line names the columns; by default it does unless all of it is numbers.
    drop_missing : bool
        Leave out rows with missing values; else they stay, as NaN.
    """
    table = _chosen(read_raw(source, header), id_column, features, drop, recognise=is_path(source) and not features)
    for column in table.frame.columns:
        if np.isinf(column.values).any():
            raise TableError(f"Column {column.name!r} holds infinite values. Correct them or leave it out with `drop`.")
    table = _settle_missing(table, drop_missing)
    n = table.frame.n_rows
    if n < 2:
        raise TableError(f"The table has {n} row{'s' * (n != 1)} left; a tree needs at least 2.")
    return table


def read_any(source: Any, id_column: str | None = None, drop: Sequence[str] = ()) -> Table:
    """Read a table of any columns and any number of rows, whose ids are those that are named."""
    return _chosen(read_raw(source), id_column, (), drop, recognise=False)


def read_raw(source: Any, header: bool | None = None) -> Raw:
    """Return the table of a file, or one in memory, before anything is chosen."""
    if isinstance(source, Raw):
        return source
    return read_frame(Path(source), header) if is_path(source) else Raw(as_frame(source), [])


def is_path(source: Any) -> bool:
    """Whether a table is given by the name of its file."""
    return isinstance(source, str | os.PathLike)


def split_names(texts: Sequence[str]) -> list[str]:
    """Return names given as `a,b` or in several texts; a name that holds a comma is quoted as in CSV."""
    return [name.strip() for row in csv.reader(texts, skipinitialspace=True) for name in row if name.strip()]


def read_frame(path: Path, header: bool | None = None) -> Raw:
    """Read a table from a file, by its ending; `header` says whether the first line of a text names columns."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise TableError(f"{path} must end in one of {', '.join(SUFFIXES)}: the ending decides the format.")
    if not path.is_file():
        raise TableError(f"{path} is {'not a file' if path.exists() else 'not there'}. Check the path.")
    readers: dict[str, Callable[[Path], Raw]] = {
        ".npy": _read_npy,
        ".parquet": _read_arrow,
        ".pq": _read_arrow,
        ".feather": _read_arrow,
        ".xlsx": _read_excel,
        ".h5ad": _read_anndata,
    }
    try:
        raw = readers[suffix](path) if suffix in readers else _read_text(path, header)
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}.") from error
    repeated = sorted({name for name in raw.frame.names if raw.frame.names.count(name) > 1})
    if repeated:
        raise TableError(f"The columns {listed(repeated)} appear more than once. Rename them.")
    if not raw.frame.columns or raw.frame.n_rows == 0:
        raise TableError(f"{path} has no rows. Give a table with one row per thing.")
    return raw


# ---- text


def _decoded(path: Path) -> tuple[str, str]:
    """Text of a file, and a remark if it is not UTF-8."""
    data = path.read_bytes()
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            return data.decode("utf-16"), ""
        except UnicodeDecodeError as error:
            raise TableError(f"{path} begins like UTF-16 but is not. Save the table as CSV in UTF-8.") from error
    try:
        return data.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        if b"\x00" in data:
            raise TableError(
                f"{path} is not text (byte {error.start} is not UTF-8, and there are zero bytes). Save the table as "
                "CSV in UTF-8."
            ) from error
        try:
            content = data.decode("cp1252")
        except UnicodeDecodeError:
            content = data.decode("latin-1")
        return content, "The file is not UTF-8 and was read as Latin-1; save it as UTF-8 if letters look wrong."


def _read_text(path: Path, header: bool | None) -> Raw:
    content, remark = _decoded(path)
    if not content.strip():
        raise TableError(f"{path} is empty. Give a table with one row per thing to cluster.")
    delimiter = _delimiter(path, content)
    try:
        reader = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, strict=True)
        lines = [(reader.line_num, [restored(cell.strip()) for cell in row]) for row in reader]
    except csv.Error as error:
        raise TableError(f"{path} is not a readable table: {error}. Check its quotation marks.") from error
    # Empty lines before the table and after it are no rows; between others they are, so that no row changes its place.
    filled = [k for k, (_, row) in enumerate(lines) if any(row)]
    if not filled:
        raise TableError(f"{path} has empty cells only. Give a table with one row per thing to cluster.")
    last = len(lines) - 1
    while not lines[last][1]:
        last -= 1
    lines = lines[filled[0] : last + 1]
    width = len(lines[0][1])
    for number, row in lines:
        if row and len(row) != width:
            raise TableError(
                f"{path} line {number} has {len(row)} cells, the first line {width}. "
                "Quote cells that hold the separator, or fix the line."
            )
    rows = [row or [""] * width for _, row in lines]
    notes = [remark] if remark else []
    if header is None:
        header = not all(cells.is_number(cell) for cell in rows[0])
        if not header:
            notes.append("The first line is all numbers and was read as data; the option header makes it names.")
    names = rows[0] if header else [f"column {j + 1}" for j in range(width)]
    body = rows[1:] if header else rows
    texts = [[row[j] for row in body] for j in range(width)]
    parsed = [cells.parse(name, each, delimiter == ";") for name, each in zip(names, texts, strict=True)]
    columns = tuple(map(from_parsed, names, parsed))
    index = "" if header and names[0] == "" else None
    return Raw(Frame(columns, len(body)), notes, index, dict(zip(names, texts, strict=True)))


def _delimiter(path: Path, content: str) -> str:
    if path.suffix.lower() in (".tsv", ".tab"):
        return "\t"
    first = content.lstrip("\r\n").splitlines()[0]
    counts = [len(next(csv.reader([first], delimiter=delimiter))) for delimiter in _DELIMITERS]
    return _DELIMITERS[int(np.argmax(counts))]


# ---- other formats


def _read_npy(path: Path) -> Raw:
    try:
        with path.open("rb") as stream:
            array = storage.decode(stream, path.stat().st_size)
    except ValueError as error:
        raise TableError(f"{path} is not a numpy array of numbers: {error}.") from error
    if array.ndim != 2 or array.dtype.kind not in "iufb":
        raise TableError(f"{path} must hold a table of numbers, got shape {array.shape} and type {array.dtype}.")
    return Raw(as_frame(array.astype(np.float64)), [])


def _read_arrow(path: Path) -> Raw:
    """Parquet and Feather, through pyarrow alone."""
    feather = path.suffix.lower() == ".feather"
    kind = "Feather" if feather else "Parquet"
    try:
        from pyarrow import ArrowException, parquet
        from pyarrow import feather as feathers
    except ImportError as error:
        raise TableError(f"{kind} files need pyarrow: pip install 'coaltree[parquet]', or save as CSV.") from error
    try:
        table = feathers.read_table(str(path)) if feather else parquet.read_table(path)
    except ArrowException as error:
        raise TableError(f"{path} is not a readable {kind} file: {error}.") from error
    index = next((name for name in table.column_names if re.fullmatch(r"__index_level_\d+__", name)), None)
    columns = [_arrow_column(name, column) for name, column in zip(table.column_names, table.columns, strict=True)]
    return Raw(Frame(tuple(columns), table.num_rows), [], index)


def _arrow_column(name: str, column: Any) -> Column:
    from pyarrow import types

    if types.is_dictionary(column.type):
        combined = column.combine_chunks()
        levels = tuple(map(str, combined.dictionary.to_pylist()))
        codes = [np.nan if code is None else float(code) for code in combined.indices.to_pylist()]
        return Column(name, cells.ORDERED if column.type.ordered else cells.CATEGORY, np.array(codes), levels)
    values = column.to_pylist()
    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        return Column(name, NUMBER, np.array([np.nan if value is None else float(value) for value in values]))
    texts = ["" if value is None else str(value).strip() for value in values]
    return from_parsed(name, cells.parse(name, texts))


def _read_excel(path: Path) -> Raw:
    try:
        import openpyxl
    except ImportError as error:
        raise TableError("Excel files need openpyxl: pip install 'coaltree[excel]', or save as CSV.") from error
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheet = book.worksheets[0]
        rows = [list(row) for row in sheet.iter_rows(values_only=True)]
        notes = [f"Sheet {sheet.title!r}, the first of {len(book.worksheets)}."] if len(book.worksheets) > 1 else []
        book.close()
    except Exception as error:  # openpyxl lets errors of zip and XML through, whatever they are
        raise TableError(f"{path} is not a readable Excel file: {error}.") from error
    while rows and all(cell is None for cell in rows[-1]):
        rows.pop()
    if not rows:
        raise TableError(f"{path} is empty. Give a table with one row per thing to cluster.")
    width = max(j + 1 for row in rows for j, cell in enumerate(row) if cell is not None)
    names = ["" if cell is None else str(cell).strip() for cell in (rows[0] + [None] * width)[:width]]
    columns = []
    for j, name in enumerate(names):
        values = [row[j] if j < len(row) else None for row in rows[1:]]
        texts = ["" if value is None else str(value).strip() for value in values]
        columns.append(from_parsed(name, cells.parse(name, texts)))
    return Raw(Frame(tuple(columns), len(rows) - 1), notes, "" if names[0] == "" else None)


def _read_anndata(path: Path) -> Raw:
    try:
        import anndata
    except ImportError as error:
        raise TableError("h5ad files need anndata: pip install 'coaltree[anndata]', or save as CSV.") from error
    from coaltree.annotated import table_of

    try:
        data = anndata.read_h5ad(path)
    except Exception as error:  # h5py and anndata raise what they like
        raise TableError(f"{path} is not a readable h5ad file: {error}.") from error
    frame, note = table_of(data)
    return Raw(frame, [note])


# ---- names of rows


def choose_ids(raw: Raw, id_column: str | None, recognise: bool = True) -> tuple[Frame, tuple[str, ...], list[str]]:
    """Return the table without the column that names the rows, the names, and what to tell of that.

    It is the one asked for, the one that the file marks, one that is named like ids and differs in every row, or one of
    texts that differ in every row; else, and if nothing is to be recognised, rows are numbered from 1.
    """
    frame, notes = raw.frame, list[str]()
    if id_column is not None:
        if id_column not in frame.names:
            raise TableError(f"`id_column` {id_column!r} is not a column. Its columns: {listed(frame.names)}.")
    elif raw.row_names is not None:
        id_column = raw.row_names
        notes.append("Rows are named by the table's index, its column without a name of its own.")
    elif frame.ids is not None:
        return frame, frame.ids, notes
    elif recognise:
        id_column = recognised_ids(frame)
        if id_column is not None:
            notes.append(f"Rows are named by column {id_column!r}, which differs in every row.")
    if id_column is None:
        return frame, tuple(str(i + 1) for i in range(frame.n_rows)), notes
    column = frame.columns[frame.names.index(id_column)]
    ids = check_names(raw.texts.get(id_column) or [column.cell(i) for i in range(frame.n_rows)], id_column)
    return frame.keep(each for each in frame.columns if each.name != id_column), ids, notes


def recognised_ids(frame: Frame) -> str | None:
    """Return the column that can only be the names of the rows, if there is one."""
    if len(frame.columns) < 2 or frame.n_rows < 2:
        return None
    for column in frame.columns:
        complete = not np.isnan(column.values).any() and len(np.unique(column.values)) == frame.n_rows
        if not complete or column.type == cells.DATE:
            continue
        whole = column.type == NUMBER and bool(np.all(column.values == np.rint(column.values)))
        if column.type == cells.TEXT or (whole and _ID_NAME.fullmatch(column.name)):
            return column.name
    return None


def check_names(ids: Sequence[str], id_column: str) -> tuple[str, ...]:
    """Refuse names of rows that are missing, repeated or cannot be written."""
    where = f"column {id_column!r}" if id_column else "the first column"
    for i, name in enumerate(ids):
        if not name:
            raise TableError(f"Row {i + 1} has no name in {where}. Fill it in, or choose another `id_column`.")
        if _CONTROL.search(name):
            raise TableError(
                f"The name of row {i + 1}, {name[:40]!r}, holds a line break or another control character, which tree "
                "files cannot carry. Remove it from the table."
            )
    seen: dict[str, int] = {}
    for i, name in enumerate(ids):
        if name in seen:
            raise TableError(
                f"Rows {seen[name] + 1} and {i + 1} have the same name {name!r} in {where} "
                f"({len(ids) - len(set(ids))} repeats in all). Names must differ."
            )
        seen[name] = i
    return tuple(ids)


# ---- choosing


def _chosen(raw: Raw, id_column: str | None, features: Sequence[str], drop: Sequence[str], recognise: bool) -> Table:
    if features and drop:
        raise TableError("`features` and `drop` exclude each other: give one of them.")
    names = raw.frame.names
    for option, wanted in (("`features`", features), ("`drop`", drop)):
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise TableError(f"{option} names {listed(unknown)}, not in the table. Its columns: {listed(names)}.")
    frame, ids, notes = choose_ids(raw, id_column, recognise)
    named = {column.name: column for column in frame.columns}
    columns = [named[name] for name in dict.fromkeys(features or named) if name in named and name not in drop]
    if not columns:
        raise TableError("No column is left to cluster by. Keep at least one with `features` or `drop`.")
    return Table(frame.keep(columns)._replace(ids=ids), (*raw.notes, *notes))


def _settle_missing(table: Table, drop: bool) -> Table:
    """Leave out rows with missing values if asked to; else say how many values the model will have to infer."""
    missing = np.isnan(table.X)
    if drop:
        missing &= ~missing.all(axis=0)  # columns without any value are left out whatever happens to rows
    rows = np.asarray(missing.any(axis=1))
    if not rows.any():
        return table
    if drop:
        told = f"{rows.sum():,} of {len(rows):,} rows had missing values and were left out."
        return Table(table.frame.rows(np.flatnonzero(~rows)), (*table.notes, told))
    counts = missing.sum(axis=0)
    order = [j for j in np.argsort(-counts, kind="stable") if counts[j]]
    worst = [f"{table.features[j]!r} ({counts[j]:,})" for j in order[:MOST_NAMED]]
    notes = [
        f"Missing values: {missing.sum():,}, in {rows.sum():,} of {len(rows):,} rows, inferred with the tree; by "
        f"column: {', '.join(worst)}. The option drop_missing leaves those rows out."
    ]
    bare = [table.ids[i] for i in np.flatnonzero(missing.all(axis=1))]
    if bare:
        notes.append(
            f"Rows without any value keep their place, but can be anywhere in the tree: {listed(bare)}. "
            "The option drop_missing leaves them out."
        )
    return Table(table.frame, (*table.notes, *notes))
