"""Events behind a query engine: every query is written once, in Ibis, and runs where the events are.

DuckDB, embedded and held to a memory limit, is the default; any Ibis connection does. What comes back is small:
one row a subject, or long triplets (subject, code, number).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree.records.codes import normalise
from coaltree.records.errors import RecordsError, need

DAY = 86_400_000_000  # microseconds
_REQUIRED = {"subject_id": "int64", "time": "timestamp", "code": "string"}


@dataclass(frozen=True, eq=False)
class Events:
    """A table of events and the distinct codes in it.

    Attributes
    ----------
    connection : ibis backend
        Where queries run.
    table : ibis table
        Columns subject_id, time, code and, if there are costs, cost.
    codes : dict of str to str
        Every spelling of a code that occurs, and its one normal spelling.
    """

    connection: Any
    table: Any
    codes: Mapping[str, str]

    @property
    def has_cost(self) -> bool:
        """Whether events carry observed payments."""
        return "cost" in self.table.columns

    def matching(self, test: Any) -> list[str]:
        """Return the spellings whose normal form passes a test."""
        verdict = {code: bool(test(code)) for code in set(self.codes.values())}
        return [spelling for spelling, code in self.codes.items() if verdict[code]]


def connect(memory_limit: str = "1GB", threads: int | None = None) -> Any:
    """Return an embedded DuckDB that keeps to a memory limit and spills to disk beyond it."""
    settings: dict[str, Any] = {"memory_limit": memory_limit, "preserve_insertion_order": False}
    if threads is not None:
        settings["threads"] = threads
    ibis, duckdb = need("ibis"), need("duckdb")
    try:
        connection = ibis.duckdb.connect(**settings)
    except duckdb.Error as error:
        raise RecordsError(f"DuckDB does not accept memory_limit={memory_limit!r}: {error}") from error
    connection.raw_sql("SET enable_progress_bar = false")
    return connection


def open_events(source: Any, connection: Any = None, memory_limit: str = "1GB") -> Events:
    """Open MEDS events: a dataset folder (with data/*.parquet), parquet files, or an Ibis table of `connection`.

    Times must be naive. Spellings of codes may be mixed: every query joins them to their normal form.
    """
    ibis = need("ibis")
    if isinstance(source, (str, Path)):
        connection = connect(memory_limit) if connection is None else connection
        table = _read(connection, parquet_files(Path(source)))
    elif isinstance(source, ibis.expr.types.Table):
        table, connection = source, source.get_backend() if connection is None else connection
    else:
        raise TypeError(f"source must be a path or an Ibis table, got {type(source).__name__}.")
    _check_columns(table)
    wanted = ["subject_id", "time", "code", *(["cost"] if "cost" in table.columns else [])]
    table = table[wanted]
    spellings = table.select("code").distinct().to_pyarrow()["code"].to_pylist()
    if not spellings:
        raise RecordsError("there are no events: the table is empty.")
    return Events(connection, table, {spelling: normalise(spelling) for spelling in sorted(filter(None, spellings))})


def _read(connection: Any, files: list[Path]) -> Any:
    """Return one table of several files; engines other than DuckDB read a file or a folder at a time."""
    if connection.name == "duckdb":
        return connection.read_parquet([str(file) for file in files])
    places = files if len(files) == 1 else sorted({file.parent for file in files})
    tables = [connection.read_parquet(str(place)) for place in places]
    return tables[0] if len(tables) == 1 else need("ibis").union(*tables)


def parquet_files(path: Path) -> list[Path]:
    """Return the parquet files of a MEDS dataset, of a folder, or the file itself."""
    folder = path / "data" if (path / "data").is_dir() else path
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.parquet"))
    if not files:
        raise RecordsError(f"no events at {path}: expected a folder with data/*.parquet.")
    return files


def _check_columns(table: Any) -> None:
    schema = table.schema()
    missing = [name for name in _REQUIRED if name not in schema]
    if missing:
        raise RecordsError(
            f"events lack the column(s) {', '.join(missing)}; they have {', '.join(schema.names)}. "
            "Convert them with `coaltree records import`."
        )
    if not schema["time"].is_timestamp():
        raise RecordsError(f"the column time must hold timestamps, not {schema['time']}. Import the events first.")
    # Spark has no other timestamps than those of the session's zone, which Ibis sets to UTC.
    if schema["time"].timezone not in (None, "UTC"):
        raise RecordsError(
            f"the column time has the time zone {schema['time'].timezone}, and days depend on it. Import the events "
            "with that zone as `timezone`, which stores local times without a zone."
        )


def memory_table(columns: Mapping[str, Any]) -> Any:
    """Return a small table for joins from arrays; integers stay integers, datetime64 becomes timestamps."""
    pa = need("pyarrow")
    arrays = {}
    for name, column in columns.items():
        array = np.asarray(column) if not isinstance(column, list) else column
        arrays[name] = pa.array(array)
    return need("ibis").memtable(pa.table(arrays))


def timestamps(days: npt.ArrayLike) -> npt.NDArray[np.datetime64]:
    """First microsecond of days counted from 1970-01-01."""
    return np.asarray(days, dtype=np.int64).astype("datetime64[D]").astype("datetime64[us]")


def fetch(expression: Any) -> dict[str, npt.NDArray[Any]]:
    """Run a query and return its columns as arrays."""
    table = expression.to_pyarrow()
    return {name: table[name].to_numpy() for name in table.column_names}


def fetch_large(connection: Any, expression: Any) -> dict[str, npt.NDArray[Any]]:
    """Run a query with a long result; DuckDB streams it through a file, so that its memory limit holds."""
    if getattr(connection, "name", "") != "duckdb":
        return fetch(expression)
    with tempfile.TemporaryDirectory(prefix="coaltree-") as folder:
        file = Path(folder) / "result.parquet"
        expression.to_parquet(file)
        table = need("pyarrow.parquet").read_table(file, memory_map=False)
    return {name: table[name].to_numpy() for name in table.column_names}
