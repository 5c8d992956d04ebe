"""Imports of MEDS datasets, plain CSV files and claims in the layout of CMS DE-SynPUF."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coaltree.records.codes import BIRTH, DEATH, OBSERVATION_END, OBSERVATION_START, SEPARATOR
from coaltree.records.engine import parquet_files, read_names
from coaltree.records.enrolment import enrolment_periods
from coaltree.records.errors import RecordsError, check_keys, need
from coaltree.records.importer import Intake, Rows, choose_columns, import_into, read_rows
from coaltree.records.privacy import shown_count, shown_part

_CSV_COLUMNS = ("subject", "date", "code", "value", "cost", "vocabulary")


HELD_OUT = "held_out"
_SPLITS = ("train", "tuning", HELD_OUT)


def import_meds(path: str | Path, out: str | Path, timezone: str | None = None, duplicates: str = "keep") -> Path:
    """Validate a MEDS dataset and write it with normal codes, sorted, every subject in one shard.

    Subjects named by strings are numbered (names in metadata/subjects.parquet). Descriptions of codes and splits of
    subjects are carried over; columns beyond subject_id, time, code, numeric_value and cost are not.
    """
    root = Path(path)
    files = parquet_files(root)
    with import_into(out, "MEDS", path, timezone, None, duplicates) as intake:
        shards_of: dict[int, int] = {}
        split_up: set[int] = set()
        wanted = ("subject_id", "time", "code")
        for shard, file in enumerate(files):
            _check_meds(file)
            present: set[int] = set()
            for rows in read_rows(file, intake, wanted, ("numeric_value", "cost"), _told_apart(file, files)):
                subject = intake.subject_ids(rows.columns["subject_id"], rows.name, rows.row, "subject_id")
                time = intake.times(rows.columns["time"], rows.name, rows.row, "time", static=True)
                _list_missing_codes(intake, rows, "code")
                value, cost = (
                    intake.numbers(rows.columns[name], rows.name, rows.row, name) if name in rows.columns else None
                    for name in ("numeric_value", "cost")
                )
                intake.add(subject, time, rows.columns["code"], value, cost, static=True)
                present.update(subject.unique().drop_null().to_pylist())
            split_up.update(subject for subject in present if shards_of.setdefault(subject, shard) != shard)
        if split_up:
            intake.notes.append(
                f"{shown_count(len(split_up))} subject(s) were spread over several shards, which MEDS forbids; they "
                "are whole now."
            )
        intake.names |= read_names(root)
        _carry_splits(root, intake)
    return Path(out)


def _told_apart(file: Path, files: list[Path]) -> str:
    """Return the name of a shard, with its path below the common folder: several may be called 0.parquet."""
    common = Path(os.path.commonpath([other.parent for other in files]))
    return file.relative_to(common).as_posix()


def _carry_splits(root: Path, intake: Intake) -> None:
    """Carry over metadata/subject_splits.parquet, with the numbers given to subjects named by strings."""
    file = root / "metadata" / "subject_splits.parquet"
    if not file.exists():
        return
    try:
        table = need("pyarrow.parquet").read_table(file)
    except Exception as error:
        raise RecordsError(f"{file} cannot be read as parquet: {error}") from error
    choose_columns(table.column_names, ["subject_id", "split"], [], str(file))
    unknown = sorted({str(name) for name in table["split"].to_pylist()} - set(_SPLITS))
    if unknown:
        raise RecordsError(f"{file}: split {unknown[0]!r} is not one of {', '.join(_SPLITS)}.")
    rows = np.arange(1, len(table) + 1)
    subjects = intake.subject_ids(table["subject_id"].combine_chunks(), file.name, rows, "subject_id").to_pylist()
    pairs = zip(subjects, table["split"].to_pylist(), strict=True)
    intake.splits = {int(subject): str(split) for subject, split in pairs if subject is not None}


def read_splits(folder: Path) -> dict[int, str] | None:
    """Return the split of every subject of an imported dataset, None if it has no splits."""
    file = folder / "metadata" / "subject_splits.parquet"
    if not file.exists():
        return None
    table = need("pyarrow.parquet").read_table(file)
    return dict(zip(table["subject_id"].to_pylist(), table["split"].to_pylist(), strict=True))


def _check_meds(file: Path) -> None:
    """Refuse a file whose columns do not have the MEDS types."""
    pa = need("pyarrow")
    try:
        schema = need("pyarrow.parquet").read_schema(file)
    except Exception as error:
        raise RecordsError(f"{file} cannot be read as parquet: {error}") from error
    missing = [name for name in ("subject_id", "time", "code") if name not in schema.names]
    if missing:
        raise RecordsError(
            f"{file} is not MEDS: it lacks {', '.join(missing)} and has {', '.join(schema.names)}. "
            "For another layout use import_csv, import_omop or import_synpuf (on the command line --source "
            "csv, omop or synpuf)."
        )
    types = {name: schema.field(name).type for name in schema.names}
    texts = (pa.types.is_string, pa.types.is_large_string)
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    for name, allowed, wanted in (
        ("subject_id", (*texts, *numbers), "int64 (numbers and texts are converted)"),
        ("time", (pa.types.is_timestamp,), "timestamp[us]"),
        ("code", texts, "string"),
        ("numeric_value", numbers, "a number"),
        ("cost", numbers, "a number"),
    ):
        if name in types and not any(check(types[name]) for check in allowed):
            raise RecordsError(f"{file} is not MEDS: {name} must be {wanted}, not {types[name]}.")


def _list_missing_codes(intake: Intake, rows: Rows, column: str) -> None:
    for i in np.flatnonzero(np.asarray(need("pyarrow.compute").is_null(rows.columns[column]))):
        intake.reject(rows.name, int(rows.row[i]), column, None, "no code")


def import_csv(
    path: str | Path,
    out: str | Path,
    columns: Mapping[str, str] | None = None,
    vocabulary: str | None = None,
    date_format: str | None = None,
    timezone: str | None = None,
    duplicates: str = "keep",
) -> Path:
    """Import a CSV or parquet file, or a folder of them, with one event per row.

    `columns` maps subject, date, code and, if they exist, value, cost and vocabulary to the names in the file; by
    default these are the names. Codes written without a vocabulary get that of the column, or `vocabulary`. Dates
    are ISO (2009-01-31, 20090131, 2009-01-31T10:30) unless `date_format` is given as for strptime.
    """
    names = {name: name for name in _CSV_COLUMNS}
    if columns is not None:
        check_keys(columns, _CSV_COLUMNS, "columns")
        names |= columns
    pa, pc = need("pyarrow"), need("pyarrow.compute")
    source = Path(path)
    files = [source]
    if source.is_dir():
        files = sorted(file for file in source.iterdir() if re.search(r"\.(csv|csv\.gz|parquet)$", file.name))
    if not files:
        raise RecordsError(f"{source} holds no .csv, .csv.gz or .parquet files.")
    required = [names[name] for name in ("subject", "date", "code")]
    asked = [names[name] for name in _CSV_COLUMNS[3:] if columns is not None and name in columns]
    optional = [names[name] for name in _CSV_COLUMNS[3:] if names[name] not in asked]
    with import_into(out, "CSV", path, timezone, date_format, duplicates) as intake:
        for file in files:
            for rows in read_rows(file, intake, [*required, *asked], optional):
                column: dict[str, Any] = {name: rows.columns.get(names[name]) for name in _CSV_COLUMNS}
                subject = intake.subject_ids(column["subject"], rows.name, rows.row, names["subject"])
                time = intake.times(column["date"], rows.name, rows.row, names["date"])
                code = column["code"].cast(pa.string())
                code = pc.if_else(pc.equal(pc.utf8_trim_whitespace(code), ""), None, code)
                _list_missing_codes(intake, rows._replace(columns={names["code"]: code}), names["code"])
                prefix: Any = column["vocabulary"] if column["vocabulary"] is not None else vocabulary
                if prefix is not None:
                    named = pc.match_substring_regex(code, "/|^(MEDS|OBSERVATION)_")
                    prefix = pc.fill_null(prefix, "") if column["vocabulary"] is not None else prefix
                    joined = pc.binary_join_element_wise(prefix, code, SEPARATOR)
                    code = pc.if_else(named, code, joined)
                value, cost = (
                    intake.numbers(column[name], rows.name, rows.row, names[name]) if column[name] is not None else None
                    for name in ("value", "cost")
                )
                intake.add(subject, time, code, value, cost)
    return Path(out)


# ---- claims in the layout of DE-SynPUF

_BENEFICIARY, _CARRIER, _INPATIENT, _OUTPATIENT, _DRUGS = (
    "Beneficiary_Summary",
    "Carrier_Claims",
    "Inpatient_Claims",
    "Outpatient_Claims",
    "Prescription_Drug_Events",
)


def _numbered(name: str, n: int) -> list[str]:
    return [f"{name}_{i}" for i in range(1, n + 1)]


def import_synpuf(path: str | Path, out: str | Path, duplicates: str = "keep") -> Path:
    """Import a folder of CMS claims in the layout of DE-SynPUF (CSV, also .gz).

    Diagnoses of claims and lines become ICD9, procedures ICD9PROC, billing codes HCPCS with the line's payment as
    cost, drugs NDC with the total drug cost; an institution's claim is an event CLAIM//INPATIENT or CLAIM//OUTPATIENT
    with the claim's payment. The date is the first day of the claim. Admitting diagnoses, which are suspicions, are
    left out. Birth, death and sex come from the beneficiary summaries, and so do periods of observation: the months
    with part A and part B and without a managed plan (HMO), whose claims are not in these files (`enrolment_periods`).
    """
    folder = Path(path)
    files = sorted(f for f in folder.glob("*") if re.search(r"\.csv(\.gz)?$", f.name)) if folder.is_dir() else []
    kinds = {file: kind for file in files for kind in _SYNPUF if kind.lower() in file.name.lower()}
    if not kinds:
        raise RecordsError(
            f"{folder} holds no files of the DE-SynPUF layout; their names contain {', '.join(_SYNPUF)}."
        )
    with import_into(out, "DE-SynPUF", path, duplicates=duplicates) as intake:
        left_out = [file.name for file in files if file not in kinds]
        if left_out:
            intake.notes.append(f"not of the layout, not read: {', '.join(left_out)}.")
        told: set[tuple[int, str]] = set()
        months: dict[int, dict[int, int]] = {}
        deaths: dict[int, datetime.date] = {}
        for file, kind in kinds.items():
            if kind == _BENEFICIARY:
                _read_beneficiaries(file, intake, told, months, deaths)
            else:
                _read_claims(file, intake, kind)
        _add_enrolment(intake, months, deaths)
    return Path(out)


_SYNPUF = (_BENEFICIARY, _CARRIER, _INPATIENT, _OUTPATIENT, _DRUGS)
_ID = "DESYNPUF_ID"
_COVERED = ("BENE_HI_CVRAGE_TOT_MONS", "BENE_SMI_CVRAGE_TOT_MONS", "BENE_HMO_CVRAGE_TOT_MONS")  # parts A and B, HMO


def _add_enrolment(intake: Intake, months: dict[int, dict[int, int]], deaths: dict[int, datetime.date]) -> None:
    """Write the periods in which claims would be in these files."""
    if not months:
        intake.notes.append(
            "no months of coverage: summaries need a year in their names and the columns "
            f"{', '.join(_COVERED)}. Subjects are taken to be observed always."
        )
        return
    pa = need("pyarrow")
    found = enrolment_periods(months, deaths)
    periods = [(subject, *period) for subject, some in found.periods.items() for period in some]
    subjects = pa.array([subject for subject, _, _ in periods], pa.int64())
    for place, code in ((1, OBSERVATION_START), (2, OBSERVATION_END)):
        days = pa.array([period[place] for period in periods], pa.date32()).cast(pa.timestamp("us"))
        intake.add(subjects, days, pa.array([code] * len(periods), pa.string()))
    covered = shown_part(sum(map(bool, found.periods.values())), len(months))
    intake.notes.append(
        f"{covered} of {len(months):,} beneficiaries were covered by parts A and B without an HMO for some time, in "
        f"which they are observed; {shown_count(found.n_unplaced)} year(s) with some such months, of which it is not "
        "known which, do not count."
    )


def _read_beneficiaries(
    file: Path,
    intake: Intake,
    told: set[tuple[int, str]],
    months: dict[int, dict[int, int]],
    deaths: dict[int, datetime.date],
) -> None:
    """Birth, death and sex, each once, although every year's summary repeats them; months of coverage of the year."""
    pa, pc = need("pyarrow"), need("pyarrow.compute")
    year = re.search(r"(?<!\d)(19|20)\d\d(?!\d)", file.name)
    wanted = (_ID, "BENE_BIRTH_DT", "BENE_DEATH_DT")
    for rows in read_rows(file, intake, wanted, ("BENE_SEX_IDENT_CD", *_COVERED)):
        subject = intake.subject_ids(rows.columns[_ID], rows.name, rows.row, _ID)
        facts = [
            (column, code, intake.times(rows.columns[column], rows.name, rows.row, column, static=True))
            for column, code in (("BENE_BIRTH_DT", BIRTH), ("BENE_DEATH_DT", DEATH))
        ]
        for column, code, time in facts:
            fresh = [
                s is not None and t is not None and (s, column) not in told
                for s, t in zip(subject.to_pylist(), time.to_pylist(), strict=True)
            ]
            told.update((s, column) for s, new in zip(subject.to_pylist(), fresh, strict=True) if new)
            if code == DEATH:
                pairs = zip(subject.to_pylist(), time.to_pylist(), strict=True)
                deaths |= {s: t.date() for s, t in pairs if s is not None and t is not None}
            mask = pa.array(fresh)
            chosen = subject.filter(mask)
            intake.add(chosen, time.filter(mask), pa.array([code] * len(chosen), pa.string()))
        if "BENE_SEX_IDENT_CD" in rows.columns:
            fresh = [s is not None and (s, "sex") not in told for s in subject.to_pylist()]
            told.update((s, "sex") for s in subject.to_pylist())
            mask = pa.array(fresh)
            sex = pc.binary_join_element_wise("GENDER", rows.columns["BENE_SEX_IDENT_CD"], SEPARATOR)
            intake.add(subject.filter(mask), None, sex.filter(mask), static=True)
        if year is not None and all(name in rows.columns for name in _COVERED):
            parts = [intake.numbers(rows.columns[name], rows.name, rows.row, name).to_pylist() for name in _COVERED]
            for s, a, b, hmo in zip(subject.to_pylist(), *parts, strict=True):
                if s is not None:
                    months.setdefault(s, {})[int(year[0])] = max(int(min(a or 0, b or 0) - (hmo or 0)), 0)


def _read_claims(file: Path, intake: Intake, kind: str) -> None:
    pa, pc = need("pyarrow"), need("pyarrow.compute")
    if kind == _DRUGS:
        date, paid = "SRVC_DT", None
        families = [("NDC", ["PROD_SRVC_ID"], ["TOT_RX_CST_AMT"])]
    elif kind == _CARRIER:
        date, paid = "CLM_FROM_DT", None
        families = [
            ("ICD9", _numbered("ICD9_DGNS_CD", 8) + _numbered("LINE_ICD9_DGNS_CD", 13), []),
            ("HCPCS", _numbered("HCPCS_CD", 13), _numbered("LINE_NCH_PMT_AMT", 13)),
        ]
    else:
        date, paid = "CLM_FROM_DT", "CLM_PMT_AMT"
        families = [
            ("ICD9", _numbered("ICD9_DGNS_CD", 10), []),
            ("ICD9PROC", _numbered("ICD9_PRCDR_CD", 6), []),
            ("HCPCS", _numbered("HCPCS_CD", 45), []),
        ]
    optional = [column for _, codes, costs in families for column in (*codes, *costs)]
    wanted = [_ID, date, *([paid] if paid else []), *(["PROD_SRVC_ID"] if kind == _DRUGS else [])]
    for rows in read_rows(file, intake, wanted, [name for name in optional if name not in wanted]):
        subject = intake.subject_ids(rows.columns[_ID], rows.name, rows.row, _ID)
        time = intake.times(rows.columns[date], rows.name, rows.row, date)
        for vocabulary, codes, costs in families:
            for i, column in enumerate(codes):
                code = rows.columns.get(column)
                if code is None:
                    continue
                # An empty code field is not an event and is not listed.
                mask = pc.is_valid(code)
                if not bool(pc.any(mask).as_py()):
                    continue
                cost = rows.columns.get(costs[i]) if costs else None
                if cost is not None:
                    cost = intake.numbers(cost, rows.name, rows.row, costs[i]).filter(mask)
                text = pc.binary_join_element_wise(vocabulary, code.filter(mask), SEPARATOR)
                intake.add(subject.filter(mask), time.filter(mask), text, cost=cost)
        if paid is not None:
            claim = "CLAIM//INPATIENT" if kind == _INPATIENT else "CLAIM//OUTPATIENT"
            cost = intake.numbers(rows.columns[paid], rows.name, rows.row, paid)
            intake.add(subject, time, pa.array([claim] * len(rows.row), pa.string()), cost=cost)
