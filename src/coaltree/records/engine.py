"""Events behind a query engine: every query is written once, in Ibis, and runs where the events are.

DuckDB, embedded and with a memory limit, is the default; any Ibis connection will do. What comes back is small:
one row per subject, or long triplets (subject, code, number).

Temporary folders are readable only by their owner and named after the process that made them. A run that is killed
cannot clean up; the next one removes the folders of this machine's processes that no longer exist.
"""

from __future__ import annotations

import atexit
import os
import platform
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np
import numpy.typing as npt

from coaltree.errors import InputTypeError
from coaltree.records.codes import normalise
from coaltree.records.errors import HIDDEN, RecordsError, as_zone, need

DAY = 86_400_000_000  # microseconds
SPARK = "spark"
_REQUIRED = {"subject_id": "int64", "time": "timestamp", "code": "string"}
_OPTIONAL = ("numeric_value", "cost")


@dataclass(frozen=True, eq=False)
class Events:
    """A table of events and the distinct codes in it.

    Attributes
    ----------
    connection : ibis backend
        Where queries run.
    table : ibis table
        Columns subject_id, time, code and, if there are any, numeric_value and cost.
    codes : dict of str to str
        Every spelling of a code that occurs, and its one normal spelling.
    names : dict of str to str
        Descriptions of codes, in their normal spelling, as far as the data give them.
    """

    connection: Any
    table: Any
    codes: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_cost(self) -> bool:
        """Whether events have observed payments."""
        return "cost" in self.table.columns

    @property
    def has_values(self) -> bool:
        """Whether events have numeric values such as test results."""
        return "numeric_value" in self.table.columns

    def spellings_of(self, code: str) -> list[str]:
        """Return the spellings of one code, the code itself if it does not occur."""
        return self.matching(code.__eq__) or [code]

    def matching(self, test: Any) -> list[str]:
        """Return the spellings whose normal form passes a test."""
        verdict = {code: bool(test(code)) for code in set(self.codes.values())}
        return [spelling for spelling, code in self.codes.items() if verdict[code]]


def connect(memory_limit: str = "1GB", threads: int | None = None) -> Any:
    """Return an embedded DuckDB that respects a memory limit and spills to disk beyond it."""
    settings: dict[str, Any] = {"memory_limit": memory_limit, "preserve_insertion_order": False}
    if threads is not None:
        settings["threads"] = threads
    ibis, duckdb = need("ibis"), need("duckdb")
    try:
        connection = ibis.duckdb.connect(temp_directory=str(scratch_until_exit()), **settings)
    except duckdb.Error as error:
        raise RecordsError(f"DuckDB does not accept memory_limit={memory_limit!r}: {error}") from error
    connection.raw_sql("SET enable_progress_bar = false")
    return connection


def connect_to(where: str) -> Any:
    """Return the connection named by a string: "spark", "spark://HOST:PORT", or a URL that Ibis knows.

    "spark" is the session of the process, or one made from the settings of its environment.
    """
    ibis = need("ibis")
    try:
        if where == SPARK or where.startswith((f"{SPARK}://", "local[")):
            builder = need("pyspark.sql").SparkSession.builder
            session = (builder if where == SPARK else builder.master(where)).getOrCreate()
            return ibis.pyspark.connect(session)
        return ibis.connect(where)
    except ImportError:
        raise
    except Exception as error:  # every engine has its own errors, which may repeat the password: none is chained
        text = _without_login(f"cannot connect to {where!r}: {error}", where)
        raise RecordsError(f'{text}. Write "spark" or a URL of Ibis.') from None


def _without_login(text: str, url: str) -> str:
    """Return a text in which neither the user, the password nor an option of a URL is repeated."""
    found = urlsplit(url)
    login, _, _ = found.netloc.rpartition("@")
    options = [value for _, value in parse_qsl(found.query)]
    for secret in sorted({login, *login.split(":", 1), *options} - {""}, key=len, reverse=True):
        for spelling in {secret, unquote(secret)}:
            text = text.replace(spelling, HIDDEN)
    return text


def open_table(name: str, connection: Any, timezone: str | None = None) -> Events:
    """Open events that are a table of a connection, `events` or `schema.events`, without copying them."""
    schema, _, table = name.rpartition(".")
    try:
        found = connection.table(table, database=tuple(schema.split(".")) if "." in schema else schema or None)
    except Exception as error:
        raise RecordsError(f"the connection has no table {name!r}: {error}") from None  # it may repeat the login
    return open_events(found, connection, timezone=timezone)


def open_events(source: Any, connection: Any = None, memory_limit: str = "1GB", timezone: str | None = None) -> Events:
    """Open MEDS events: a dataset folder (with data/*.parquet), parquet files, or an Ibis table of `connection`.

    Spellings of codes may be mixed: every query joins them to their normal form. Times with a zone are converted to
    the local time of `timezone`; without it they are refused, because calendar days depend on the zone.
    """
    ibis = need("ibis")
    names: dict[str, str] = {}
    if isinstance(source, (str, Path)):
        connection = connect(memory_limit) if connection is None else connection
        table = _read(connection, parquet_files(Path(source)))
        names = read_names(Path(source))
    elif isinstance(source, ibis.expr.types.Table):
        table, connection = source, source.get_backend() if connection is None else connection
    else:
        raise InputTypeError(f"source must be a path or an Ibis table, got {type(source).__name__}.")
    _check_columns(table)
    table = _localise(connection, table, timezone)
    table = table[[*_REQUIRED, *(name for name in _OPTIONAL if name in table.columns)]]
    spellings = table.select("code").distinct().to_pyarrow()["code"].to_pylist()
    if not spellings:
        raise RecordsError("there are no events: the table is empty.")
    codes = {spelling: normalise(spelling) for spelling in sorted(filter(None, spellings))}
    return Events(connection, table, codes, names)


def read_names(folder: Path) -> dict[str, str]:
    """Return the descriptions of codes in metadata/codes.parquet of a MEDS dataset."""
    file = folder / "metadata" / "codes.parquet"
    if not file.exists():
        return {}
    table = need("pyarrow.parquet").read_table(file)
    if not {"code", "description"} <= set(table.column_names):
        return {}
    pairs = zip(table["code"].to_pylist(), table["description"].to_pylist(), strict=True)
    return {normalise(str(code)): str(name) for code, name in pairs if code and name}


def _read(connection: Any, files: list[Path]) -> Any:
    """Return several files as one table; engines other than DuckDB read a file or a folder at a time."""
    try:
        if connection.name == "duckdb":
            return connection.read_parquet([str(file) for file in files])
        places = files if len(files) == 1 else sorted({file.parent for file in files})
        tables = [connection.read_parquet(str(place)) for place in places]
    except Exception as error:
        raise RecordsError(f"{files[0].parent} cannot be read as parquet: {error}") from error
    return tables[0] if len(tables) == 1 else need("ibis").union(*tables)


def parquet_files(path: Path) -> list[Path]:
    """Return the parquet files of a MEDS dataset, of a folder, or the file itself."""
    folder = path / "data" if (path / "data").is_dir() else path
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.parquet"))
    files = [file for file in files if file.is_file() and not file.name.startswith((".", "_"))]
    if not files:
        raise RecordsError(f"no events at {path}: expected a folder with data/*.parquet.")
    return files


def _check_columns(table: Any) -> None:
    schema = table.schema()
    missing = [name for name in _REQUIRED if name not in schema]
    if missing:
        raise RecordsError(
            f"events lack the column(s) {', '.join(missing)}; they have {', '.join(schema.names)}. "
            "Convert them with import_csv or another import (on the command line `coaltree records import`)."
        )
    if not schema["time"].is_timestamp():
        raise RecordsError(f"the column time must hold timestamps, not {schema['time']}. Import the events first.")
    if not schema["subject_id"].is_integer():
        raise RecordsError(f"the column subject_id must hold whole numbers, not {schema['subject_id']}.")
    if not schema["code"].is_string():
        raise RecordsError(f"the column code must hold texts, not {schema['code']}.")


def _localise(connection: Any, table: Any, timezone: str | None) -> Any:
    """Return the table with local times without a zone; refuse times with a zone if none is stated."""
    if timezone is not None:
        as_zone(timezone)
    zone = _zone_of(connection, table)
    if zone is None:
        return table
    if timezone is None:
        raise RecordsError(
            f"the column time has the time zone {zone}, and the day of an event depends on it. Set timezone to the "
            "zone whose local time counts, such as Europe/Paris."
        )
    ibis, dt = need("ibis"), need("ibis.expr.datatypes")
    stamp, zoned = dt.Timestamp(), dt.Timestamp("UTC")
    if connection.name == "pyspark":
        # Ibis sets the session's zone to UTC, in which times are shown: shifted ones show local time.
        shift = ibis.udf.scalar.builtin(
            lambda time, zone: None, name="from_utc_timestamp", signature=((stamp, dt.string), stamp)
        )
        return table.mutate(time=shift(table.time, timezone))
    local = ibis.udf.scalar.builtin(lambda zone, time: None, name="timezone", signature=((dt.string, zoned), stamp))
    return table.mutate(time=local(timezone, table.time.cast(zoned)))


def _zone_of(connection: Any, table: Any) -> str | None:
    """Return the zone of the column time; Spark's plain timestamps are instants, which Ibis does not report."""
    if connection.name == "pyspark":
        sql = connection.compile(table.select("time"))
        kind = dict(connection._session.sql(sql).dtypes)["time"]
        return None if kind == "timestamp_ntz" else "of the session"
    zone = table.schema()["time"].timezone
    return None if zone is None else str(zone)


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
    """Run a query with a long result; DuckDB streams it through a file, to stay within its memory limit."""
    if getattr(connection, "name", "") != "duckdb":
        return fetch(expression)
    with scratch() as folder:
        file = folder / "result.parquet"
        expression.to_parquet(file)
        table = need("pyarrow.parquet").read_table(file, memory_map=False)
    return {name: table[name].to_numpy() for name in table.column_names}


# ---- temporary folders for patient-level data

_NAME = re.compile(r"\.?coaltree-(?P<host>[0-9a-zA-Z_.-]+)-(?P<process>\d+)-[0-9a-f]{16}\.tmp")


def make_scratch(parent: Path | None = None) -> Path:
    """Return a new folder (mode 0700) in `parent`, by default the system's folder for temporary files."""
    where = Path(tempfile.gettempdir()) if parent is None else parent
    sweep(where)
    hidden = "" if parent is None else "."
    folder = where / f"{hidden}coaltree-{_host()}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
    folder.mkdir(mode=0o700)
    return folder


@contextmanager
def scratch(parent: Path | None = None) -> Iterator[Path]:
    """Yield a folder from `make_scratch` that is removed at the end."""
    folder = make_scratch(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def scratch_until_exit() -> Path:
    """Return a folder that is removed when the process ends."""
    folder = make_scratch()
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a forked child
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def sweep(parent: Path) -> None:
    """Remove folders of this machine's processes that no longer exist."""
    for folder in parent.glob("*coaltree-*.tmp"):
        found = _NAME.fullmatch(folder.name)
        if found is None or found["host"] != _host() or _is_alive(int(found["process"])):
            continue
        if folder.is_dir() and not folder.is_symlink() and _is_ours(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _host() -> str:
    return re.sub(r"[^0-9a-zA-Z_.]", "_", platform.node()) or "host"


def _is_ours(folder: Path) -> bool:
    # Windows has no such numbers; its folder for temporary files belongs to one user.
    return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()


def _is_alive(process: int) -> bool:
    if os.name == "nt":
        return _is_alive_on_windows(process)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's, or no number of a process
        return True
    return True


def _is_alive_on_windows(process: int) -> bool:
    """Ask for the process: `os.kill` would end it there, whatever the signal."""
    import ctypes

    query_limited_information, invalid_parameter, still_active = 0x1000, 87, 259
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined, unused-ignore]
    kernel.OpenProcess.restype = ctypes.c_void_p
    handle = kernel.OpenProcess(query_limited_information, False, ctypes.c_ulong(process))
    if not handle:  # there is none of this number, or it is somebody else's
        return bool(ctypes.get_last_error() != invalid_parameter)  # type: ignore[attr-defined, unused-ignore]
    handle, code = ctypes.c_void_p(handle), ctypes.c_ulong()
    try:
        return not kernel.GetExitCodeProcess(handle, ctypes.byref(code)) or code.value == still_active
    finally:
        kernel.CloseHandle(handle)
