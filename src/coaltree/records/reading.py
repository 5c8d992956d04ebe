"""Rows of files, batch by batch, with the numbers that their lines have."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Ints
from coaltree.records.errors import RecordsError, need
from coaltree.records.intake import Intake

BLOCK = 1 << 24


class Rows(NamedTuple):
    """A batch of columns by name; `row` is the line of a CSV file (its header is line 1) or a row counted from 1."""

    name: str
    columns: dict[str, Any]
    row: Ints


def read_rows(
    file: Path, intake: Intake, wanted: Sequence[str], optional: Sequence[str] = (), name: str | None = None
) -> Iterator[Rows]:
    """Yield the wanted columns of a parquet or CSV file (also .gz); columns that are optional may be missing.

    Lines with a wrong number of fields are listed as rejected. Names of columns are compared without case. `name` is
    what the file is called in lists, by default its own.
    """
    read = _read_parquet if file.suffix == ".parquet" else _read_csv
    yield from read(file, intake, wanted, optional, name or file.name)


def choose_columns(
    present: Sequence[str], wanted: Sequence[str], optional: Sequence[str], where: str
) -> dict[str, str]:
    """Return the file's name of every wanted column."""
    by_lower = {name.strip().lstrip("\ufeff").lower(): name for name in present}
    missing = [name for name in wanted if name.lower() not in by_lower]
    if missing:
        raise RecordsError(f"{where} lacks the column(s) {', '.join(missing)}; it has {', '.join(present[:40])}.")
    return {name: by_lower[name.lower()] for name in (*wanted, *optional) if name.lower() in by_lower}


def _read_parquet(
    file: Path, intake: Intake, wanted: Sequence[str], optional: Sequence[str], name: str
) -> Iterator[Rows]:
    pq = need("pyarrow.parquet")
    try:
        source = pq.ParquetFile(file)
    except Exception as error:
        raise RecordsError(f"{file} cannot be read as parquet: {error}") from error
    with source:
        chosen = choose_columns(source.schema_arrow.names, wanted, optional, str(file))
        first = 1
        for batch in source.iter_batches(columns=list(chosen.values())):
            rows = np.arange(first, first + batch.num_rows)
            first += batch.num_rows
            intake.n_read[name] += batch.num_rows
            yield Rows(name, {key: batch[column] for key, column in chosen.items()}, rows)


def _read_csv(file: Path, intake: Intake, wanted: Sequence[str], optional: Sequence[str], name: str) -> Iterator[Rows]:
    pa, pacsv = need("pyarrow"), need("pyarrow.csv")
    header = read_header(file)
    chosen = choose_columns(header, wanted, optional, str(file))
    skipped: list[int] = []

    def note(row: Any) -> str:
        # Numbers of rows are known because the file is read by one thread; the first line after the header is row 2.
        number = row.number if row.number is not None else 0
        skipped.append(number)
        reason = f"line has {row.actual_columns} fields instead of {row.expected_columns}"
        intake.reject(name, number, "", row.text[:200], reason)
        return "skip"

    settings = {
        "read_options": pacsv.ReadOptions(use_threads=False, block_size=BLOCK, column_names=header, skip_rows=1),
        "parse_options": pacsv.ParseOptions(invalid_row_handler=note),
        "convert_options": pacsv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()),
            include_columns=list(chosen.values()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=True,
        ),
    }
    last = 1
    try:
        reader = pacsv.open_csv(file, **settings)
        for batch in reader:
            rows = _lines(last, batch.num_rows, skipped)
            last = int(rows[-1]) if len(rows) else last
            intake.n_read[name] += batch.num_rows
            yield Rows(name, {key: batch[column] for key, column in chosen.items()}, rows)
    except (pa.ArrowInvalid, OSError) as error:
        raise RecordsError(f"{file} cannot be read as CSV: {error}") from error


def _lines(last: int, n: int, skipped: list[int]) -> Ints:
    """Return the next n line numbers after `last` that were not skipped."""
    candidates = np.arange(last + 1, last + 1 + n + len(skipped))
    return candidates[~np.isin(candidates, skipped)][:n]


def read_header(file: Path) -> list[str]:
    """Return the names of the columns of a CSV file."""
    import csv

    opener: Any = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as stream:
            first = next(csv.reader(stream), None)
    except FileNotFoundError:
        raise RecordsError(f"{file} does not exist.") from None
    except (UnicodeDecodeError, OSError, EOFError, csv.Error) as error:
        raise RecordsError(f"{file} cannot be read as text: {error}") from error
    if not first:
        raise RecordsError(f"{file} is empty.")
    if len(set(first)) < len(first):
        twice = next(name for name in first if first.count(name) > 1)
        raise RecordsError(f"{file} has two columns named {twice!r}.")
    return first
