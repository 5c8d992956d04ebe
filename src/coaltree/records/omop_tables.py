"""The tables of an OMOP data set as it is found: folders of files, archives, databases, connections."""

from __future__ import annotations

import re
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from coaltree.errors import InputTypeError
from coaltree.records.engine import connect
from coaltree.records.errors import RecordsError, need
from coaltree.records.intake import Intake
from coaltree.records.reading import Rows, choose_columns, read_rows
from coaltree.records.scratch import scratch

_SUFFIXES = (".parquet", ".csv", ".csv.gz")
_BATCH = 100_000


class OmopTables:
    """The tables of a folder, an archive, a database file or a connection, by lower-case name.

    A folder holds a file or a folder (as Spark writes them) a table, in it or one level below. An archive is a .zip of
    such a folder. Database files are those of DuckDB and SQLite. Use it in a `with` block.
    """

    def __init__(self, source: Any, schema: str | None = None) -> None:
        self._stack = ExitStack()
        self._files: dict[str, list[Path]] = {}
        self._names: dict[str, str] = {}
        self._connection: Any = None
        self._sqlite: sqlite3.Connection | None = None
        self._schema = schema
        if isinstance(source, (str, Path)):
            self._open_path(Path(source))
        elif hasattr(source, "list_tables"):
            self._open_connection(source)
        else:
            raise InputTypeError(f"source must be a path or an Ibis connection, got {type(source).__name__}.")
        self.names = {*self._files, *self._names}

    def __enter__(self) -> OmopTables:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _open_path(self, path: Path) -> None:
        if not path.exists():
            raise RecordsError(f"{path} does not exist.")
        if path.is_dir():
            self._files = _table_files(path)
        elif zipfile.is_zipfile(path):
            folder = self._stack.enter_context(scratch())
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder)
            self._files = _table_files(folder)
        elif path.read_bytes()[:16].startswith(b"SQLite format 3"):
            self._sqlite = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            self._stack.callback(self._sqlite.close)
            found = self._sqlite.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
            self._names = {name.lower(): name for (name,) in found}
        elif path.suffix in (".duckdb", ".db", ".ddb"):
            connection = connect()
            self._stack.callback(connection.disconnect)
            try:
                connection.attach(path, name="omop_source", read_only=True)
            except Exception as error:
                raise RecordsError(f"{path} cannot be opened as a DuckDB database: {error}") from error
            self._schema = f"omop_source.{self._schema or 'main'}"
            self._open_connection(connection)
        else:
            raise RecordsError(f"{path} is no folder, .zip, .duckdb or SQLite file of OMOP tables.")

    def _open_connection(self, connection: Any) -> None:
        self._connection = connection
        try:
            self._names = {name.lower(): name for name in connection.list_tables(database=self._database)}
        except Exception as error:
            raise RecordsError(f"the schema {self._schema!r} cannot be listed: {error}") from error

    @property
    def _database(self) -> Any:
        if self._schema is None:
            return None
        parts = tuple(self._schema.split("."))
        return parts if len(parts) > 1 else parts[0]

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns, in lower case."""
        if table in self._files:
            return [name.strip().lstrip("\ufeff").lower() for name in _header(self._files[table][0])]
        if self._sqlite is not None:
            found = self._sqlite.execute(f"PRAGMA table_info({_quoted(self._names[table])})")
            return [row[1].lower() for row in found]
        return [name.lower() for name in self._table(table).columns]

    def count(self, table: str) -> int:
        """Return the number of a table's rows."""
        if table in self._files:
            return sum(_count_rows(file) for file in self._files[table])
        if self._sqlite is not None:
            return int(self._sqlite.execute(f"SELECT count(*) FROM {_quoted(self._names[table])}").fetchone()[0])
        return int(self._table(table).count().to_pyarrow().as_py())

    def _table(self, table: str) -> Any:
        return self._connection.table(self._names[table], database=self._database)

    def rows(self, table: str, intake: Intake, wanted: list[str], optional: list[str]) -> Iterator[Rows]:
        """Yield the rows of a table."""
        if table in self._files:
            files = self._files[table]
            for file in files:
                name = file.name if len(files) == 1 else f"{table}/{file.name}"
                yield from read_rows(file, intake, wanted, optional, name)
        elif self._sqlite is not None:
            yield from self._sqlite_rows(table, intake, wanted, optional)
        else:
            expression = self._table(table)
            chosen = choose_columns(list(expression.columns), wanted, optional, f"the table {table}")
            with scratch() as folder:
                file = folder / f"{table}.parquet"
                expression.select(**{name: expression[column] for name, column in chosen.items()}).to_parquet(file)
                yield from read_rows(file, intake, list(chosen), [], table)

    def _sqlite_rows(self, table: str, intake: Intake, wanted: list[str], optional: list[str]) -> Iterator[Rows]:
        """Yield rows of SQLite, which has no dates: numbers in a column of dates are seconds since 1970."""
        import numpy as np

        pa, pc = need("pyarrow"), need("pyarrow.compute")
        assert self._sqlite is not None
        chosen = choose_columns(self.columns(table), wanted, optional, f"the table {table}")
        columns = ", ".join(_quoted(column) for column in chosen.values())
        cursor = self._sqlite.execute(f"SELECT {columns} FROM {_quoted(self._names[table])}")
        first = 1
        while batch := cursor.fetchmany(_BATCH):
            found = {}
            for name, values in zip(chosen, zip(*batch, strict=True), strict=True):
                array = _as_array(values)
                if re.search("_date(time)?$", name) and pa.types.is_floating(array.type):
                    array = pc.cast(pc.cast(array, pa.int64()), pa.timestamp("s"))
                found[name] = array
            rows = np.arange(first, first + len(batch))
            first += len(batch)
            intake.n_read[table] += len(batch)
            yield Rows(table, found, rows)


def _as_array(values: Any) -> Any:
    """Return numbers as float64 and anything else as texts."""
    pa = need("pyarrow")
    if all(value is None or isinstance(value, (int, float)) for value in values):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table_files(folder: Path) -> dict[str, list[Path]]:
    """Return the files of every table of a folder, or of its only folder if it has no table itself."""
    found: dict[str, list[Path]] = {}
    for place in sorted(folder.iterdir()):
        if place.name.startswith((".", "_")):
            continue
        suffix = next((suffix for suffix in _SUFFIXES if place.name.lower().endswith(suffix)), "")
        name = place.name[: len(place.name) - len(suffix)].lower()
        if place.is_file() and suffix:
            found.setdefault(name, []).append(place)
        elif place.is_dir():
            parts = [
                file
                for file in sorted(place.rglob("*"))
                if file.is_file() and not file.name.startswith((".", "_")) and file.name.lower().endswith(_SUFFIXES)
            ]
            if suffix or any(file.name.startswith("part-") for file in parts):
                found.setdefault(name, []).extend(parts)
    if not found:
        below = [place for place in folder.iterdir() if place.is_dir() and not place.name.startswith((".", "_"))]
        return _table_files(below[0]) if len(below) == 1 else {}
    return {name: files for name, files in found.items() if files}


def _header(file: Path) -> list[str]:
    from coaltree.records.reading import read_header

    if file.suffix == ".parquet":
        try:
            return list(need("pyarrow.parquet").read_schema(file).names)
        except Exception as error:
            raise RecordsError(f"{file} cannot be read as parquet: {error}") from error
    return read_header(file)


def _count_rows(file: Path) -> int:
    if file.suffix == ".parquet":
        return int(need("pyarrow.parquet").ParquetFile(file).metadata.num_rows)
    import gzip

    opener: Any = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rb") as stream:
        return max(sum(1 for line in stream if line.strip()) - 1, 0)
