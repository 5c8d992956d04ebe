"""Import of the OMOP common data model, versions 5.3 and 5.4: files, archives, databases or a connection."""

from __future__ import annotations

import re
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputTypeError
from coaltree.records.codes import BIRTH, DEATH, OBSERVATION_END, OBSERVATION_START, SEPARATOR
from coaltree.records.cohort import make_periods
from coaltree.records.engine import connect, scratch
from coaltree.records.errors import RecordsError, need
from coaltree.records.importer import Intake, Rows, choose_columns, import_into, read_rows
from coaltree.records.privacy import shown_count

_SUFFIXES = (".parquet", ".csv", ".csv.gz")
_BATCH = 100_000


class OmopTables:
    """The tables of a folder, an archive, a database file or a connection, by lower-case name.

    A folder holds one file or folder (as Spark writes them) per table, directly or one level below. An archive is a
    .zip of such a folder. Database files are those of DuckDB and SQLite. Use it in a `with` block.
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
        """Return a table's column names, in lower case."""
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
        """Yield rows from SQLite, which has no date type: numbers in a column of dates are seconds since 1970."""
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
    """Return numbers as float64 and anything else as strings."""
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
    from coaltree.records.importer import read_header

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


class _Domain(NamedTuple):
    """A table of dated codes: its column names, its name in the cost table, and what its plain codes look like."""

    table: str
    key: str
    date: str
    prefix: str  # of *_source_value, *_source_concept_id, *_concept_id
    cost_domain: str
    shapes: tuple[tuple[str, str], ...]
    other: str


# Shapes are tried in turn on a source value without a vocabulary. E codes of ICD9 begin with E0, E8 or E9, and
# codes of ICD10 that begin with V are rare, so the two can be told apart.
_DIAGNOSES = (
    ("ICD9", r"(\d{3}|V\d{2})(\.?\d{1,2})?|E[089]\d{2}(\.?\d)?"),
    ("ICD10", r"[A-Z]\d[0-9A-Z](\.?[0-9A-Z]{1,4})?"),
)
_PROCEDURES = (
    ("HCPCS", r"\d{5}|[A-Z]\d{4}|\d{4}[A-Z]"),
    ("ICD9PROC", r"\d{2}\.\d{1,2}|\d{3,4}"),
    ("ICD10PCS", r"[0-9A-HJ-NP-Z]{7}"),
)
_DOMAINS = (
    _Domain("condition_occurrence", "condition_occurrence_id", "condition_start_date", "condition", "Condition",
            _DIAGNOSES, "CONDITION"),
    _Domain("procedure_occurrence", "procedure_occurrence_id", "procedure_date", "procedure", "Procedure",
            _PROCEDURES, "PROCEDURE"),
    _Domain("drug_exposure", "drug_exposure_id", "drug_exposure_start_date", "drug", "Drug",
            (("NDC", r"\d{9,11}|\d{4,5}-\d{3,4}-\d{1,2}"),), "DRUG"),
    _Domain("measurement", "measurement_id", "measurement_date", "measurement", "Measurement",
            (("LOINC", r"\d{1,7}-\d"),), "MEASUREMENT"),
    _Domain("observation", "observation_id", "observation_date", "observation", "Observation",
            (("LOINC", r"\d{1,7}-\d"), *_DIAGNOSES), "OBSERVATION"),
    _Domain("device_exposure", "device_exposure_id", "device_exposure_start_date", "device", "Device",
            (("HCPCS", r"[A-Z]\d{4}"),), "DEVICE"),
    _Domain("visit_occurrence", "visit_occurrence_id", "visit_start_date", "visit", "Visit", (), "VISIT"),
)  # fmt: skip
_VALUES = ("measurement", "observation")  # tables with value_as_number
# Tables of events that are not read, and why; others hold no events.
_SKIPPED = {
    "drug_era": "made from drug_exposure",
    "dose_era": "made from drug_exposure",
    "condition_era": "made from condition_occurrence",
    "visit_detail": "parts of visits",
    "specimen": "samples, not results",
    "note": "text",
    "note_nlp": "text",
    "episode": "made from other tables",
    "payer_plan_period": "insurance",
}
_GENDERS = {8507: "M", 8532: "F"}
# (domain, text) pairs of the cost table that mean the same.
_COST_NAMES = {domain.cost_domain.lower(): domain.table for domain in _DOMAINS}


def import_omop(
    source: Any,
    out: str | Path,
    timezone: str | None = None,
    duplicates: str = "keep",
    paid: str = "total_paid",
    schema: str | None = None,
) -> Path:
    """Import OMOP tables from a folder, a .zip, a DuckDB or SQLite file, or an Ibis connection with a `schema`.

    A code is the source concept's vocabulary and code if the concept table is present, else the source value with the
    vocabulary implied by its shape, else the standard concept. Visits are identified by their concept. Names of
    concepts are imported too. `paid` is the column of the cost table to use; costs are joined by domain and event, and
    a cost whose event is missing is listed as rejected. Overlapping or adjacent observation periods are merged and
    become OBSERVATION_START and OBSERVATION_END. Tables that are not read are listed with their numbers of rows, and so
    are subjects who have events but are not in PERSON.
    """
    with OmopTables(source, schema) as tables:
        domains = [domain for domain in _DOMAINS if domain.table in tables.names]
        if not domains:
            raise RecordsError(
                f"{source} holds none of the OMOP tables {', '.join(domain.table for domain in _DOMAINS)}; "
                f"found {', '.join(sorted(tables.names)[:20]) or 'nothing'}."
            )
        path = source if isinstance(source, str | Path) else "connection"
        with import_into(out, "OMOP", path, timezone, None, duplicates) as intake:
            concepts = _read_concepts(tables, intake)
            costs = _read_costs(tables, intake, paid)
            subjects: set[int] = set()
            for domain in domains:
                if _is_readable(tables, intake, domain.table, ["person_id", domain.date]):
                    _read_domain(tables, intake, domain, concepts, costs.pop(domain.table, None), subjects)
            for table, (events, _, rows) in costs.items():
                for event, row in zip(events.tolist(), rows.tolist(), strict=True):
                    intake.reject("cost", row, "cost_event_id", event, f"no event of {table} for this cost")
            _read_people(tables, intake, subjects)
            _list_skipped(tables, intake)
            if not concepts:
                intake.notes.append("no concept table: vocabularies are guessed from the shapes of source values.")
    return Path(out)


def _is_readable(tables: OmopTables, intake: Intake, table: str, wanted: list[str]) -> bool:
    """Whether a table has the required columns; one without rows may lack them and is noted."""
    missing = [name for name in wanted if name not in tables.columns(table)]
    if not missing:
        return True
    if tables.count(table) > 1:  # an empty table whose header became its only row is found in exports
        raise RecordsError(f"the table {table} lacks the column(s) {', '.join(missing)}.")
    intake.notes.append(f"{table} has no {', '.join(missing)} and no events; not read.")
    return False


def _list_skipped(tables: OmopTables, intake: Intake) -> None:
    for table, why in _SKIPPED.items():
        n = tables.count(table) if table in tables.names and "person_id" in tables.columns(table) else 0
        if n:
            intake.notes.append(f"{table}, {shown_count(n)} rows, is not read: {why}.")


def _texts(column: Any) -> Any:
    return column.cast(need("pyarrow").string())


def _integers(column: Any) -> Ints:
    """Identifiers as int64, −1 where there is none or it is not an integer."""
    pa, pc = need("pyarrow"), need("pyarrow.compute")
    if pa.types.is_integer(column.type):
        return np.asarray(pc.fill_null(column.cast(pa.int64()), -1))
    if pa.types.is_floating(column.type):
        values = np.asarray(pc.fill_null(column.cast(pa.float64()), -1.0))
        whole = (values == np.floor(values)) & (np.abs(values) < 2.0**53)
        return np.where(whole, values, -1.0).astype(np.int64)
    texts = pc.replace_substring_regex(pc.utf8_trim_whitespace(_texts(column)), r"\.0*$", "")
    numbers = pc.if_else(pc.fill_null(pc.match_substring_regex(texts, r"^-?\d{1,18}$"), False), texts, None)
    return np.asarray(pc.fill_null(numbers.cast(pa.int64()), -1))


def _read_concepts(tables: OmopTables, intake: Intake) -> dict[int, str]:
    """VOCABULARY//code of every concept; the names are passed to the intake."""
    concepts: dict[int, str] = {}
    wanted = ["concept_id", "vocabulary_id", "concept_code"]
    if "concept" in tables.names and _is_readable(tables, intake, "concept", wanted):
        for rows in tables.rows("concept", intake, wanted, ["concept_name"]):
            keys = _integers(rows.columns["concept_id"]).tolist()
            vocabularies = _texts(rows.columns["vocabulary_id"]).to_pylist()
            codes = _texts(rows.columns["concept_code"]).to_pylist()
            names = _texts(rows.columns["concept_name"]).to_pylist() if "concept_name" in rows.columns else None
            for i, (key, vocabulary, code) in enumerate(zip(keys, vocabularies, codes, strict=True)):
                if vocabulary and code and vocabulary != "None":
                    concepts[key] = f"{vocabulary}{SEPARATOR}{code}"
                    if names is not None and names[i]:
                        intake.names[concepts[key]] = names[i]
    return concepts


_Costs = tuple[Ints, Floats, Ints]


def _read_costs(tables: OmopTables, intake: Intake, paid: str) -> dict[str, _Costs]:
    """For every table of events: identifiers, amounts and rows of the cost table."""
    found: dict[str, list[_Costs]] = {}
    if "cost" not in tables.names:
        return {}
    if not _is_readable(tables, intake, "cost", ["cost_event_id", "cost_domain_id", paid]):
        return {}
    for rows in tables.rows("cost", intake, ["cost_event_id", "cost_domain_id", paid], []):
        events = _integers(rows.columns["cost_event_id"])
        amounts = np.asarray(intake.numbers(rows.columns[paid], rows.name, rows.row, paid).fill_null(np.nan))
        domains = np.array([str(text).strip().lower() for text in _texts(rows.columns["cost_domain_id"]).to_pylist()])
        for domain in np.unique(domains):
            mask = (domains == domain) & ~np.isnan(amounts)
            if domain in _COST_NAMES:
                part = (events[mask], amounts[mask], rows.row[mask])
                found.setdefault(_COST_NAMES[domain], []).append(part)
            else:
                for row in rows.row[mask].tolist():
                    intake.reject(rows.name, row, "cost_domain_id", domain, "domain of cost is not imported")
    joined = {}
    for table, parts in found.items():
        columns = [np.concatenate([part[i] for part in parts]) for i in range(3)]
        joined[table] = (columns[0], columns[1], columns[2])
    return joined


def _read_domain(
    tables: OmopTables,
    intake: Intake,
    domain: _Domain,
    concepts: dict[int, str],
    costs: _Costs | None,
    subjects: set[int],
) -> None:
    pa = need("pyarrow")
    value = "value_as_number" if domain.table in _VALUES else None
    plain, source_concept, concept = (
        f"{domain.prefix}_{name}" for name in ("source_value", "source_concept_id", "concept_id")
    )
    optional = [domain.key, plain, source_concept, concept, *([value] if value else [])]
    total: dict[int, float] = {}
    if costs is not None:
        for event, amount in zip(costs[0].tolist(), costs[1].tolist(), strict=True):
            total[event] = total.get(event, 0.0) + amount
    met: set[int] = set()
    for rows in tables.rows(domain.table, intake, ["person_id", domain.date], optional):
        subject = intake.subject_ids(rows.columns["person_id"], rows.name, rows.row, "person_id")
        subjects.update(subject.unique().drop_null().to_pylist())
        time = intake.times(rows.columns[domain.date], rows.name, rows.row, domain.date)
        code = _codes(rows, domain, concepts, plain, source_concept, concept)
        for i in np.flatnonzero([text is None for text in code]):
            intake.reject(rows.name, int(rows.row[i]), plain, None, "no code")
        number = rows.columns.get(value) if value else None
        if number is not None:
            number = intake.numbers(number, rows.name, rows.row, str(value))
        cost = None
        if total and domain.key in rows.columns:
            keys = _integers(rows.columns[domain.key]).tolist()
            met.update(keys)
            cost = pa.array([total.get(key) for key in keys], pa.float64())
        intake.add(subject, time, pa.array(code, pa.string()), number, cost)
    if costs is not None:
        for event, row in zip(costs[0].tolist(), costs[2].tolist(), strict=True):
            if event not in met:
                intake.reject("cost", row, "cost_event_id", event, f"no event of {domain.table} for this cost")


def _codes(
    rows: Rows, domain: _Domain, concepts: dict[int, str], plain: str, source_concept: str, concept: str
) -> list[str | None]:
    n = len(rows.row)
    given = _texts(rows.columns[plain]).to_pylist() if plain in rows.columns else [None] * n
    sources = _integers(rows.columns[source_concept]).tolist() if source_concept in rows.columns else [-1] * n
    standards = _integers(rows.columns[concept]).tolist() if concept in rows.columns else [-1] * n
    cache: dict[str, str] = {}
    codes: list[str | None] = []
    by_concept = domain.table == "visit_occurrence"  # its source value is the visit's own identifier
    for text, source, standard in zip(given, sources, standards, strict=True):
        text = text.strip() if text and not by_concept else None
        if by_concept and standard > 0:
            codes.append(concepts.get(standard, f"{domain.other}{SEPARATOR}{standard}"))
        elif source > 0 and source in concepts:
            codes.append(concepts[source])
        elif text:
            if text not in cache:
                cache[text] = _told_by_shape(text, domain)
            codes.append(cache[text])
        elif standard > 0:
            codes.append(concepts.get(standard, f"{domain.other}{SEPARATOR}{standard}"))
        else:
            codes.append(None)
    return codes


def _told_by_shape(text: str, domain: _Domain) -> str:
    if SEPARATOR in text:
        return text
    named = re.fullmatch(r"(ICD-?9\w*|ICD-?10\w*|CPT4?|HCPCS|NDC|LOINC)\s*[:|]\s*(.+)", text, re.IGNORECASE)
    if named:
        return f"{named[1]}{SEPARATOR}{named[2]}"
    for vocabulary, shape in domain.shapes:
        if re.fullmatch(shape, text.upper()):
            return f"{vocabulary}{SEPARATOR}{text}"
    return f"{domain.other}{SEPARATOR}{text}"


def _read_people(tables: OmopTables, intake: Intake, subjects: set[int]) -> None:
    """Birth, sex, death and the periods of observation."""
    pa = need("pyarrow")
    if "death" in tables.names and _is_readable(tables, intake, "death", ["person_id", "death_date"]):
        for rows in tables.rows("death", intake, ["person_id", "death_date"], []):
            subject = intake.subject_ids(rows.columns["person_id"], rows.name, rows.row, "person_id")
            subjects.update(subject.unique().drop_null().to_pylist())
            time = intake.times(rows.columns["death_date"], rows.name, rows.row, "death_date")
            intake.add(subject, time, pa.array([DEATH] * len(rows.row), pa.string()))
    _read_periods(tables, intake, subjects)
    wanted = ["person_id", "year_of_birth"]
    if "person" not in tables.names or not _is_readable(tables, intake, "person", wanted):
        intake.notes.append("there is no table person: age and sex are not known.")
        return
    people: set[int] = set()
    parts = ["month_of_birth", "day_of_birth", "birth_datetime", "gender_concept_id", "gender_source_value"]
    for rows in tables.rows("person", intake, wanted, parts):
        subject = intake.subject_ids(rows.columns["person_id"], rows.name, rows.row, "person_id")
        people.update(subject.unique().drop_null().to_pylist())
        time = intake.times(_births(rows), rows.name, rows.row, "year_of_birth", static=True)
        known = time.is_valid()
        intake.add(subject.filter(known), time.filter(known), pa.array([BIRTH] * sum(known.to_pylist()), pa.string()))
        intake.add(subject, None, _sexes(rows), static=True)
    strangers = len(subjects - people)
    if strangers:
        intake.notes.append(f"{shown_count(strangers)} subject(s) with events are not in PERSON: no age, no sex.")


def _births(rows: Rows) -> Any:
    """ISO days of birth: the parts that are given, with the middle of the year or month for those withheld."""
    pa = need("pyarrow")
    n = len(rows.row)
    year = _integers(rows.columns["year_of_birth"])
    month, day = (
        _integers(rows.columns[name]) if name in rows.columns else np.full(n, -1)
        for name in ("month_of_birth", "day_of_birth")
    )
    texts: list[str | None] = []
    for y, m, d in zip(year.tolist(), month.tolist(), day.tolist(), strict=True):
        if y < 1:
            texts.append(None)
        elif not 1 <= m <= 12:
            texts.append(f"{y:04d}-07-01")
        else:
            texts.append(f"{y:04d}-{m:02d}-{d if 1 <= d <= 31 else 15:02d}")
    if "birth_datetime" in rows.columns:  # only where there is no year
        stamps = _texts(rows.columns["birth_datetime"]).to_pylist()
        texts = [text or (stamp[:10] if stamp else None) for text, stamp in zip(texts, stamps, strict=True)]
    return pa.array(texts, pa.string())


def _sexes(rows: Rows) -> Any:
    """GENDER//F and GENDER//M by concept, else by the source value; null where neither is informative."""
    n = len(rows.row)
    concept = _integers(rows.columns["gender_concept_id"]) if "gender_concept_id" in rows.columns else np.full(n, -1)
    values = [None] * n
    if "gender_source_value" in rows.columns:
        values = _texts(rows.columns["gender_source_value"]).to_pylist()
    bodies = [_GENDERS.get(key, value) for key, value in zip(concept.tolist(), values, strict=True)]
    return need("pyarrow").array([None if body is None else f"GENDER{SEPARATOR}{body}" for body in bodies])


def _read_periods(tables: OmopTables, intake: Intake, subjects: set[int]) -> None:
    """Observation periods, with overlapping or adjacent ones merged."""
    pa = need("pyarrow")
    names = ["observation_period_start_date", "observation_period_end_date"]
    wanted = ["person_id", *names]
    if "observation_period" not in tables.names or not _is_readable(tables, intake, "observation_period", wanted):
        return
    parts = []
    for rows in tables.rows("observation_period", intake, wanted, []):
        subject = intake.subject_ids(rows.columns["person_id"], rows.name, rows.row, "person_id")
        subjects.update(subject.unique().drop_null().to_pylist())
        begin, end = (intake.times(rows.columns[name], rows.name, rows.row, name) for name in names)
        table = pa.table({"subject": subject, "begin": begin.cast(pa.date32()), "end": end.cast(pa.date32())})
        table = table.drop_null()
        backwards = np.asarray(need("pyarrow.compute").greater(table["begin"], table["end"]))
        if backwards.any():
            intake.notes.append(
                f"{shown_count(int(backwards.sum()))} observation period(s) end before they begin; not used."
            )
        parts.append(table.filter(pa.array(~backwards)))
    table = pa.concat_tables(parts)
    subject = np.asarray(table["subject"])
    begin, end = (np.asarray(table[name]).astype("datetime64[D]").astype(np.int64) for name in ("begin", "end"))
    subject, begin, end = _joined(subject, begin, end)
    periods = make_periods(
        np.concatenate([subject, subject]), np.concatenate([begin, end]), np.repeat([True, False], len(subject))
    )
    for days, code in ((periods.begins, OBSERVATION_START), (periods.ends, OBSERVATION_END)):
        times = pa.array(days.astype("datetime64[D]").astype("datetime64[us]"))
        intake.add(pa.array(periods.subject), times, pa.array([code] * len(days), pa.string()))


def _joined(subject: Any, begin: Any, end: Any) -> tuple[Any, Any, Any]:
    """Merge intervals of one subject that overlap or are adjacent, in any order and however nested."""
    if not len(subject):
        return subject, begin, end
    order = np.lexsort((begin, subject))
    subject, begin, end = subject[order], begin[order], end[order]
    # The latest end so far within a subject: a running maximum over ends offset by the subject's rank.
    rank = np.unique(subject, return_inverse=True)[1].astype(np.int64) * 10_000_000
    latest = np.maximum.accumulate(end + rank) - rank
    new = np.ones(len(subject), dtype=bool)
    new[1:] = (subject[1:] != subject[:-1]) | (begin[1:] > latest[:-1] + 1)
    heads = np.flatnonzero(new)
    tails = np.append(heads[1:], len(subject)) - 1
    return subject[heads], begin[heads], latest[tails]
