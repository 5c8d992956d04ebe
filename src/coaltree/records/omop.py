"""Import of the OMOP common data model, version 5.4: a folder of parquet or CSV files, or a database connection."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree.records.codes import BIRTH, DEATH, OBSERVATION_END, OBSERVATION_START, SEPARATOR
from coaltree.records.errors import RecordsError, need
from coaltree.records.intake import Intake, import_into
from coaltree.records.reading import Rows, choose_columns, read_rows

_SUFFIXES = (".parquet", ".csv", ".csv.gz")


class _Domain(NamedTuple):
    """A table of dated codes: its names of columns, its name in the cost table, and what its plain codes look like."""

    table: str
    key: str
    date: str
    prefix: str  # of *_source_value, *_source_concept_id, *_concept_id
    cost_domain: str
    shapes: tuple[tuple[str, str], ...]
    other: str


# Shapes are tried in turn on a source value without a vocabulary. E codes of ICD9 begin with E0, E8 or E9, and
# codes of ICD10 that begin with V are rare, so that the two can be told apart.
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
    _Domain("visit_occurrence", "visit_occurrence_id", "visit_start_date", "visit", "Visit", (), "VISIT"),
)  # fmt: skip
# (domain, text) pairs of the cost table that mean the same.
_COST_NAMES = {domain.cost_domain.lower(): domain.table for domain in _DOMAINS}


def import_omop(
    source: Any, out: str | Path, timezone: str | None = None, duplicates: str = "keep", paid: str = "total_paid"
) -> Path:
    """Import OMOP tables from a folder, or from an Ibis connection.

    A code is the source concept's vocabulary and code if the concept table is there, else the source value with the
    vocabulary that its shape tells. Visits become VISIT//… events. `paid` is the column of the cost table that is
    taken; costs are joined by domain and event, and a cost whose event is not there is listed as rejected. Observation
    periods become OBSERVATION_START and OBSERVATION_END: the first start and the last end count.
    """
    tables = _Tables(source)
    present = [domain for domain in _DOMAINS if domain.table in tables.names]
    if not present:
        raise RecordsError(
            f"{source} holds none of the OMOP tables {', '.join(domain.table for domain in _DOMAINS)}; "
            f"found {', '.join(sorted(tables.names)[:20]) or 'nothing'}."
        )
    with import_into(out, f"OMOP {source}", timezone, None, duplicates) as intake:
        concepts = _read_concepts(tables, intake)
        costs = _read_costs(tables, intake, paid)
        for domain in present:
            _read_domain(tables, intake, domain, concepts, costs.pop(domain.table, None))
        for table, (events, amounts, rows) in costs.items():
            for event, row in zip(events.tolist(), rows.tolist(), strict=True):
                intake.reject("cost", row, "cost_event_id", event, f"no event of {table} for this cost")
            del amounts
        _read_people(tables, intake)
        if not concepts:
            intake.notes.append("no concept table: vocabularies are told from the shapes of source values.")
    return Path(out)


class _Tables:
    """The tables of a folder or of a connection, by lower-case name."""

    def __init__(self, source: Any) -> None:
        if isinstance(source, (str, Path)):
            folder = Path(source)
            if not folder.is_dir():
                raise RecordsError(f"{folder} is not a folder of OMOP tables.")
            self._files = {
                file.name[: -len(suffix)].lower(): file
                for suffix in _SUFFIXES
                for file in sorted(folder.iterdir())
                if file.name.lower().endswith(suffix)
            }
            self._connection = None
            self.names = set(self._files)
        elif hasattr(source, "list_tables"):
            self._connection = source
            self._names = {name.lower(): name for name in source.list_tables()}
            self.names = set(self._names)
        else:
            raise TypeError(f"source must be a folder or an Ibis connection, got {type(source).__name__}.")

    def rows(self, table: str, intake: Intake, wanted: list[str], optional: list[str]) -> Iterator[Rows]:
        """Yield the rows of a table."""
        if self._connection is None:
            yield from read_rows(self._files[table], intake, wanted, optional)
            return
        expression = self._connection.table(self._names[table])
        chosen = choose_columns(list(expression.columns), wanted, optional, f"the table {table}")
        with tempfile.TemporaryDirectory(prefix="coaltree-") as folder:
            file = Path(folder) / f"{table}.parquet"
            expression.select(**{name: expression[column] for name, column in chosen.items()}).to_parquet(file)
            yield from read_rows(file, intake, list(chosen), [])


def _texts(column: Any) -> Any:
    return column.cast(need("pyarrow").string())


def _integers(column: Any) -> npt.NDArray[np.int64]:
    """Identifiers as int64, −1 where there is none or it is no integer."""
    pa, pc = need("pyarrow"), need("pyarrow.compute")
    texts = pc.utf8_trim_whitespace(_texts(column))
    numbers = pc.if_else(pc.fill_null(pc.match_substring_regex(texts, r"^-?\d{1,18}$"), False), texts, None)
    return np.asarray(pc.fill_null(numbers.cast(pa.int64()), -1))


def _read_concepts(tables: _Tables, intake: Intake) -> dict[int, str]:
    """VOCABULARY//code of every concept."""
    concepts: dict[int, str] = {}
    if "concept" in tables.names:
        for rows in tables.rows("concept", intake, ["concept_id", "vocabulary_id", "concept_code"], []):
            keys = _integers(rows.columns["concept_id"]).tolist()
            names = _texts(rows.columns["vocabulary_id"]).to_pylist()
            codes = _texts(rows.columns["concept_code"]).to_pylist()
            concepts |= {k: f"{v}{SEPARATOR}{c}" for k, v, c in zip(keys, names, codes, strict=True) if v and c}
    return concepts


_Costs = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]


def _read_costs(tables: _Tables, intake: Intake, paid: str) -> dict[str, _Costs]:
    """For every table of events: identifiers, amounts and rows of the cost table."""
    found: dict[str, list[_Costs]] = {}
    if "cost" not in tables.names:
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
    tables: _Tables, intake: Intake, domain: _Domain, concepts: dict[int, str], costs: _Costs | None
) -> None:
    pa = need("pyarrow")
    value = "value_as_number" if domain.table == "measurement" else None
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
    for text, source, standard in zip(given, sources, standards, strict=True):
        text = text.strip() if text else text
        if source > 0 and source in concepts:
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


def _read_people(tables: _Tables, intake: Intake) -> None:
    """Birth, sex, death and the limits of observation."""
    pa, pc = need("pyarrow"), need("pyarrow.compute")

    def add(table: str, date: str, code: str) -> None:
        for rows in tables.rows(table, intake, ["person_id", date], []):
            subject = intake.subject_ids(rows.columns["person_id"], rows.name, rows.row, "person_id")
            time = intake.times(rows.columns[date], rows.name, rows.row, date)
            intake.add(subject, time, pa.array([code] * len(rows.row), pa.string()))

    if "death" in tables.names:
        add("death", "death_date", DEATH)
    if "observation_period" in tables.names:
        add("observation_period", "observation_period_start_date", OBSERVATION_START)
        add("observation_period", "observation_period_end_date", OBSERVATION_END)
    if "person" in tables.names:
        for rows in tables.rows("person", intake, ["person_id", "year_of_birth"], ["gender_source_value"]):
            subject = intake.subject_ids(rows.columns["person_id"], rows.name, rows.row, "person_id")
            year = _texts(rows.columns["year_of_birth"])
            middle = pc.binary_join_element_wise(year, "07-01", "-")  # the day of birth is often withheld
            time = intake.times(middle, rows.name, rows.row, "year_of_birth", static=True)
            intake.add(subject, time, pa.array([BIRTH] * len(rows.row), pa.string()))
            if "gender_source_value" in rows.columns:
                sex = pc.binary_join_element_wise("GENDER", _texts(rows.columns["gender_source_value"]), SEPARATOR)
                intake.add(subject, None, sex, static=True)
