"""Import: rows of any source become MEDS events, and every row that cannot is listed.

Sources are read batch by batch. A row without a subject, a code or a readable date is written to rejected.csv with its
file, line and value; nothing is dropped silently. Codes are put in their normal spelling. The events are then sorted by
subject and time and written in shards that keep every subject together.
"""

from __future__ import annotations

import datetime
import gzip
import json
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from coaltree._arrays import Ints
from coaltree._version import __version__
from coaltree.records.codes import is_regular, normalise, split
from coaltree.records.engine import connect, fetch, make_scratch, scratch
from coaltree.records.errors import RecordsError, as_zone, need
from coaltree.rows import CsvWriter
from coaltree.validation import check_choice

COMMAND = "coaltree records import"
DUPLICATES = ("keep", "drop")
UNREADABLE = "date cannot be read"
ROWS_PER_SHARD = 5_000_000
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)


class Intake:
    """Collects events and rejected rows while a source is read."""

    def __init__(self, folder: Path, zone: ZoneInfo | None, date_format: str | None) -> None:
        pa = need("pyarrow")
        self.schema = pa.schema(
            [
                ("subject_id", pa.int64()),
                ("time", pa.timestamp("us")),
                ("code", pa.string()),
                ("numeric_value", pa.float32()),
                ("cost", pa.float64()),
            ]
        )
        self.staged = folder / "staged.parquet"
        self._writer = need("pyarrow.parquet").ParquetWriter(self.staged, self.schema, compression="zstd")
        self._rejects = (folder / "rejected.csv").open("w", newline="", encoding="utf-8")
        self._list = CsvWriter(self._rejects)
        self._list.write(["file", "row", "column", "value", "reason"])
        self._zone = zone
        self._format = date_format
        self._codes: dict[str, str] = {}
        self._times: dict[str, int | None] = {}
        self._subjects: dict[str, int] | None = None
        self.n_events = 0
        self.n_read: Counter[str] = Counter()
        self.n_rejected: Counter[str] = Counter()
        self.unread: str | None = None  # the first date that cannot be read
        self.notes: list[str] = []
        self.names: dict[str, str] = {}  # of codes
        self.splits: dict[int, str] | None = None

    @property
    def subjects(self) -> dict[str, int] | None:
        """Number of each subject, if the source identifies them by strings."""
        return self._subjects

    def irregular_codes(self) -> list[str]:
        """Codes that do not have the shape of their vocabulary; they are kept unchanged."""
        return sorted({code for code in self._codes.values() if not is_regular(*split(code))})

    def known_codes(self) -> Collection[str]:
        """Codes of the events so far, in their normal spelling."""
        return self._codes.values()

    def reject(self, file: str, row: int, column: str, value: Any, reason: str) -> None:
        """List a row that does not become an event."""
        self._list.write([file, row, column, "" if value is None else value, reason])
        self.n_rejected[reason] += 1

    def subject_ids(self, values: Any, file: str, rows: Ints, column: str) -> Any:
        """Return int64 subjects with nulls for those rejected; strings are numbered in order of appearance."""
        pa, pc = need("pyarrow"), need("pyarrow.compute")
        if pa.types.is_floating(values.type):
            whole = pc.and_(pc.equal(pc.floor(values), values), pc.less(pc.abs(values), 2.0**53))
            for i in np.flatnonzero(~np.asarray(pc.fill_null(whole, True))):
                self.reject(file, int(rows[i]), column, values[i].as_py(), "subject is not an integer")
            numbers = pc.if_else(whole, values, None).cast(pa.int64())
        elif pa.types.is_integer(values.type) and not pa.types.is_uint64(values.type):
            numbers = values.cast(pa.int64())
        else:
            texts = pc.utf8_trim_whitespace(values.cast(pa.string()))
            texts = pc.if_else(pc.equal(texts, ""), None, texts)
            texts = pc.replace_substring_regex(texts, r"^(-?\d+)\.0*$", r"\1")  # floats and decimals that are whole
            numeric = pc.match_substring_regex(texts, r"^-?\d{1,18}$")
            if self._subjects is None and not self.n_events and not bool(pc.all(numeric).as_py()):
                self._subjects = {}
            if self._subjects is not None:
                coded = texts.dictionary_encode()
                known = [self._subjects.setdefault(t, len(self._subjects) + 1) for t in coded.dictionary.to_pylist()]
                numbers = pa.array(known, pa.int64()).take(coded.indices)
            else:
                for i in np.flatnonzero(~np.asarray(pc.fill_null(numeric, True))):
                    self.reject(file, int(rows[i]), column, texts[i].as_py(), "subject is not an integer")
                numbers = pc.if_else(numeric, texts, None).cast(pa.int64())
                values = pc.if_else(pc.fill_null(numeric, True), texts, "x")  # already listed
        for i in np.flatnonzero(np.asarray(pc.is_null(numbers)) & np.asarray(_blank(values))):
            self.reject(file, int(rows[i]), column, None, "no subject")
        return numbers

    def times(self, values: Any, file: str, rows: Ints, column: str, static: bool = False) -> Any:
        """Return naive microseconds with nulls for those rejected; `static` allows events without a time."""
        pa, pc = need("pyarrow"), need("pyarrow.compute")
        if pa.types.is_date(values.type):
            values = values.cast(pa.timestamp("us"))
        if pa.types.is_timestamp(values.type):
            if values.type.tz is not None:
                if self._zone is None:
                    raise _zone_error(file, None, column, f"type {values.type}")
                values = pc.local_timestamp(values.cast(pa.timestamp("us", self._zone.key)))
            stamps = values.cast(pa.timestamp("us"), safe=False)
        else:
            texts = values.cast(pa.string())
            coded = texts.dictionary_encode()
            parsed = [self._parse(text, file, column) for text in coded.dictionary.to_pylist()]
            stamps = pa.array(parsed, pa.int64()).take(coded.indices).cast(pa.timestamp("us"))
            wrong = np.asarray(pc.is_null(stamps)) & ~np.asarray(_blank(texts))
            for i in np.flatnonzero(wrong):
                self.reject(file, int(rows[i]), column, texts[i].as_py(), UNREADABLE)
                self.unread = self.unread or texts[i].as_py()
        if not static:
            for i in np.flatnonzero(np.asarray(_blank(values))):
                self.reject(file, int(rows[i]), column, None, "no date")
        return stamps

    def _parse(self, text: str, file: str, column: str) -> int | None:
        text = text.strip()
        if text in self._times:
            return self._times[text]
        try:
            if self._format is not None:
                stamp = datetime.datetime.strptime(text, self._format)
            else:
                stamp = datetime.datetime.fromisoformat(text)
        except ValueError:
            self._times[text] = None
            return None
        if stamp.tzinfo is not None:
            if self._zone is None:
                raise _zone_error(file, None, column, repr(text))
            stamp = stamp.astimezone(self._zone).replace(tzinfo=None)
        self._times[text] = (stamp - _EPOCH) // _MICROSECOND
        return self._times[text]

    def numbers(self, values: Any, file: str, rows: Ints, column: str) -> Any:
        """Return float64; a string that is not a number is listed, and its event loses only the number."""
        pa, pc = need("pyarrow"), need("pyarrow.compute")
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            return values.cast(pa.float64())
        texts = pc.utf8_trim_whitespace(values)
        fine = pc.match_substring_regex(texts, r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
        for i in np.flatnonzero(~np.asarray(pc.fill_null(fine, True)) & ~np.asarray(_blank(texts))):
            self.reject(file, int(rows[i]), column, texts[i].as_py(), "not a number (the event is kept without it)")
        return pc.if_else(fine, texts, None).cast(pa.float64())

    def add(
        self, subject: Any, time: Any, code: Any, value: Any = None, cost: Any = None, static: bool = False
    ) -> None:
        """Write events, except rows (already listed) whose subject, code or (unless `static`) time is null."""
        pa, pc = need("pyarrow"), need("pyarrow.compute")
        coded = code.cast(pa.string()).dictionary_encode()
        normal = [self._codes.setdefault(text, normalise(text)) for text in coded.dictionary.to_pylist()]
        n = len(code)
        table = pa.table(
            {
                "subject_id": subject,
                "time": time if time is not None else pa.nulls(n, pa.timestamp("us")),
                "code": pa.array(normal, pa.string()).take(coded.indices),
                "numeric_value": (value if value is not None else pa.nulls(n)).cast(pa.float32(), safe=False),
                "cost": (cost if cost is not None else pa.nulls(n)).cast(pa.float64()),
            },
            schema=self.schema,
        )
        keep = pc.and_(pc.is_valid(table["subject_id"]), pc.is_valid(table["code"]))
        if not static:
            keep = pc.and_(keep, pc.is_valid(table["time"]))
        table = table.filter(keep)
        self.n_events += len(table)
        self._writer.write_table(table)

    def close(self) -> None:
        """Close the files."""
        self._writer.close()
        self._rejects.close()


def _blank(values: Any) -> Any:
    """Whether a value is null or an empty string."""
    pa, pc = need("pyarrow"), need("pyarrow.compute")
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return pc.fill_null(pc.equal(pc.utf8_trim_whitespace(values), ""), True)
    return pc.is_null(values)


def date_advice(text: str) -> str:
    """Say how to state the format of dates, with the one that an example suggests."""
    parts = re.fullmatch(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})(.*)", text.strip())
    wanted = "%d/%m/%Y"
    if parts is not None:
        order = ("m", "d") if int(parts[3]) > 12 else ("d", "m")
        wanted = parts[2].join([*(f"%{part}" for part in order), "%Y" if len(parts[4]) == 4 else "%y"])
    return (
        f"Dates such as {text.strip()[:40]!r} cannot be read: they are not like 2009-01-31. Of a CSV file state "
        f'date_format = "{wanted}" in [data] (on the command line --date-format {wanted}), %d the day, %m the month.'
    )


def _zone_error(file: str, row: int | None, column: str, value: str) -> RecordsError:
    where = f"{file}, row {row}" if row is not None else file
    return RecordsError(
        f"{where}: {column} has a time zone ({value}), and days depend on it. State in timezone (on the command line "
        "--timezone) whose local time to store, for example Europe/Paris."
    )


@contextmanager
def import_into(
    out: str | Path,
    layout: str,
    path: str | Path,
    timezone: str | None = None,
    date_format: str | None = None,
    duplicates: str = "keep",
) -> Iterator[Intake]:
    """Yield an Intake whose events become the MEDS dataset `out` when the block ends without an error.

    The dataset is named after its layout and the last part of `path`: reports show it, and no folder of this machine.
    """
    check_choice(duplicates, "duplicates", DUPLICATES)
    zone = None if timezone is None else as_zone(timezone)
    destination = Path(out).expanduser().resolve()
    if destination.exists() and not _replaceable(destination):
        raise RecordsError(f"{destination} exists and was not made by `{COMMAND}`. Choose another folder.")
    destination.parent.mkdir(parents=True, exist_ok=True)
    draft = make_scratch(destination.parent)  # it identifies patients
    try:
        intake = Intake(draft, zone, date_format)
        try:
            yield intake
        finally:
            intake.close()
        _finish(intake, draft, f"{layout} {Path(path).resolve().name}", duplicates)
        if destination.exists():
            with scratch(destination.parent) as old:
                destination.rename(old / "old")
                draft.rename(destination)
        else:
            draft.rename(destination)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _replaceable(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        return True
    try:
        summary = json.loads((folder / "metadata" / "dataset.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and summary.get("command") == COMMAND


def _finish(intake: Intake, draft: Path, source: str, duplicates: str) -> None:
    """Sort into shards, count duplicates, describe."""
    advice = [] if intake.unread is None else [date_advice(intake.unread)]
    if intake.n_events == 0:
        reasons = "; ".join(f"{n} × {reason}" for reason, n in intake.n_rejected.most_common()) or "no rows"
        raise RecordsError(" ".join([f"no events in {source}: {reasons}.", *advice]))
    ibis = need("ibis")
    connection = connect()
    staged = connection.read_parquet(str(intake.staged))
    n_shards = -(-intake.n_events // ROWS_PER_SHARD)
    n_duplicates = n_written = 0
    (draft / "data").mkdir()
    (draft / "metadata").mkdir()
    order = [ibis.asc("subject_id"), ibis.asc("time", nulls_first=True), *map(ibis.asc, ("code", "cost"))]
    for shard in range(n_shards):
        part = staged.filter((staged.subject_id % n_shards + n_shards) % n_shards == shard)
        distinct = part.distinct()
        n_all, n_distinct = (int(t.count().to_pyarrow().as_py()) for t in (part, distinct))
        n_duplicates += n_all - n_distinct
        chosen = distinct if duplicates == "drop" else part
        n_written += n_distinct if duplicates == "drop" else n_all
        if n_all:
            chosen.order_by(order).to_parquet(draft / "data" / f"{shard:04d}.parquet")
    found = fetch(staged.agg(n=staged.subject_id.nunique(), first=staged.time.min(), last=staged.time.max()))
    connection.disconnect()
    intake.staged.unlink()
    if intake.subjects is not None:
        pa = need("pyarrow")
        named = pa.table({"subject_id": list(intake.subjects.values()), "source_id": list(intake.subjects)})
        need("pyarrow.parquet").write_table(named, draft / "metadata" / "subjects.parquet")
    _write_metadata(intake, draft)
    irregular = intake.irregular_codes()
    summary = {
        "command": COMMAND,
        "dataset_name": source,
        "etl_name": "coaltree.records",
        "etl_version": __version__,
        "meds_version": "0.4.1",
        "n_subjects": int(found["n"][0]),
        "n_events": n_written,
        "rows_read": dict(intake.n_read),
        "rejected": dict(intake.n_rejected),
        "duplicates": {"policy": duplicates, "exact_copies": n_duplicates},
        "irregular_codes": {"number": len(irregular), "first": irregular[:20]},
        "first_time": str(found["first"][0]),
        "last_time": str(found["last"][0]),
        "notes": intake.notes,
        "advice": advice,  # for the importer's eyes: it shows a date, and reports do not
    }
    (draft / "metadata" / "dataset.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def _write_metadata(intake: Intake, draft: Path) -> None:
    """Write names of codes and splits of subjects in the MEDS layout, if there are any."""
    pa, write = need("pyarrow"), need("pyarrow.parquet").write_table
    used = set(intake.known_codes())
    names = {normalise(code): name for code, name in intake.names.items()}
    named = sorted((code, name) for code, name in names.items() if code in used)
    if named:
        columns = {
            "code": [code for code, _ in named],
            "description": [name for _, name in named],
            "parent_codes": pa.nulls(len(named), pa.list_(pa.string())),
        }
        write(need("meds").CodeMetadataSchema.align(pa.table(columns)), draft / "metadata" / "codes.parquet")
    if intake.splits is not None:
        columns = {"subject_id": list(intake.splits), "split": list(intake.splits.values())}
        table = need("meds").SubjectSplitSchema.align(pa.table(columns))
        write(table, draft / "metadata" / "subject_splits.parquet")


def import_summary(out: str | Path) -> dict[str, Any]:
    """Return the counts of an import."""
    summary: dict[str, Any] = json.loads((Path(out) / "metadata" / "dataset.json").read_text(encoding="utf-8"))
    return summary


# ---- rows of files, batch by batch, with their line numbers

BLOCK = 1 << 24


class Rows(NamedTuple):
    """A batch of columns by name; `row` is the line of a CSV file (its header is line 1) or a row counted from 1."""

    name: str
    columns: dict[str, Any]
    row: Ints


def read_rows(
    file: Path, intake: Intake, wanted: Sequence[str], optional: Sequence[str] = (), name: str | None = None
) -> Iterator[Rows]:
    """Yield the requested columns of a parquet or CSV file (also .gz); optional columns may be missing.

    Lines with a wrong number of fields are listed as rejected. Column names are compared ignoring case. `name` is
    what the file is called in lists, by default its own name.
    """
    read = _read_parquet if file.suffix == ".parquet" else _read_csv
    yield from read(file, intake, wanted, optional, name or file.name)


def choose_columns(
    present: Sequence[str], wanted: Sequence[str], optional: Sequence[str], where: str
) -> dict[str, str]:
    """Return the file's name for every requested column."""
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
        # Row numbers are known because the file is read by one thread; the first line after the header is row 2.
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
