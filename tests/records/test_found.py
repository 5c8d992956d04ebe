"""OMOP and MEDS as they are found: databases, archives, folders of Spark, odd identifiers, names, splits, labels."""

import datetime
import sqlite3
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from coaltree.records import (
    RecordsError,
    build_cohort,
    build_labels,
    connect,
    import_meds,
    import_omop,
    load_config,
    load_outcomes,
    open_events,
    write_labels,
)
from coaltree.records.dataset import prepare_data, read_thresholds
from coaltree.records.importer import import_summary
from coaltree.records.sources import read_splits
from tests.records.test_import import read, write_meds


def day(*date):
    return datetime.datetime(*date)


TABLES = {
    "PERSON": {
        "PERSON_ID": [1.0, 2.0, 3.0],
        "YEAR_OF_BIRTH": [1950.0, 1960.0, 1970.0],
        "MONTH_OF_BIRTH": [4.0, 2.0, None],
        "DAY_OF_BIRTH": [9.0, None, None],
        "GENDER_CONCEPT_ID": [8532.0, 8507.0, 0.0],
        "GENDER_SOURCE_VALUE": ["f", "m", "U"],
    },
    "CONDITION_OCCURRENCE": {
        "PERSON_ID": [1.0, 1.0, 9.0],
        "CONDITION_START_DATE": ["2009-01-05", "2009-02-01", "2009-03-01"],
        "CONDITION_CONCEPT_ID": [192671.0, 4.0, 5.0],
        "CONDITION_SOURCE_CONCEPT_ID": [77.0, 0.0, 0.0],
        "CONDITION_SOURCE_VALUE": ["K92.2", "", None],
    },
    "VISIT_OCCURRENCE": {
        "PERSON_ID": [1.0, 2.0],
        "VISIT_START_DATE": ["2009-01-05", "2009-01-06"],
        "VISIT_CONCEPT_ID": [9201.0, 9202.0],
        "VISIT_SOURCE_VALUE": ["b2a6f7d3-bed4-4e23-aaf3-74bc5ad2d0c6", "67a46c8d-32aa-433e-8406-d95462fb6ffe"],
    },
    "OBSERVATION": {
        "PERSON_ID": [1.0],
        "OBSERVATION_DATE": ["2009-01-07"],
        "OBSERVATION_CONCEPT_ID": [8.0],
        "VALUE_AS_NUMBER": [3.5],
    },
    "DEVICE_EXPOSURE": {
        "PERSON_ID": [2.0],
        "DEVICE_EXPOSURE_START_DATE": ["2009-01-08"],
        "DEVICE_CONCEPT_ID": [9.0],
    },
    "DRUG_ERA": {"PERSON_ID": [1.0] * 12, "DRUG_CONCEPT_ID": [6.0] * 12},
    "CONCEPT": {
        "CONCEPT_ID": [77.0, 9201.0, 8.0],
        "VOCABULARY_ID": ["ICD10CM", "Visit", "LOINC"],
        "CONCEPT_CODE": ["K92.2", "IP", "8-8"],
        "CONCEPT_NAME": ["Gastrointestinal haemorrhage", "Inpatient visit", "Pain score"],
    },
    "OBSERVATION_PERIOD": {
        "PERSON_ID": [1.0, 1.0, 1.0, 2.0],
        "OBSERVATION_PERIOD_START_DATE": ["2008-01-01", "2008-06-01", "2010-06-01", "2009-01-01"],
        "OBSERVATION_PERIOD_END_DATE": ["2009-12-31", "2008-07-01", "2010-12-31", "2009-06-30"],
    },
}
EXPECTED = [
    (1, None, "GENDER//F"),
    (1, day(1950, 4, 9), "MEDS_BIRTH"),
    (1, day(2008, 1, 1), "OBSERVATION_START"),
    (1, day(2009, 1, 5), "ICD10//K92.2"),
    (1, day(2009, 1, 5), "Visit//IP"),
    (1, day(2009, 1, 7), "LOINC//8-8"),
    (1, day(2009, 2, 1), "CONDITION//4"),
    (1, day(2009, 12, 31), "OBSERVATION_END"),
    (1, day(2010, 6, 1), "OBSERVATION_START"),
    (1, day(2010, 12, 31), "OBSERVATION_END"),
    (2, None, "GENDER//M"),
    (2, day(1960, 2, 15), "MEDS_BIRTH"),
    (2, day(2009, 1, 1), "OBSERVATION_START"),
    (2, day(2009, 1, 6), "VISIT//9202"),
    (2, day(2009, 1, 8), "DEVICE//9"),
    (2, day(2009, 6, 30), "OBSERVATION_END"),
    (3, None, "GENDER//U"),
    (3, day(1970, 7, 1), "MEDS_BIRTH"),
    (9, day(2009, 3, 1), "CONDITION//5"),
]


def csv_files(folder):
    folder.mkdir()
    for name, columns in TABLES.items():
        pyarrow.csv.write_csv(pa.table(columns), folder / f"{name}.csv")
    return folder


def spark_folders(folder):
    """A folder a table, with parts, a marker of success and checksums."""
    for name, columns in TABLES.items():
        table, place = pa.table(columns), folder / f"{name.lower()}.parquet"
        place.mkdir(parents=True)
        half = -(-len(table) // 2)
        for i in range(2):
            pq.write_table(table.slice(i * half, half), place / f"part-{i:05d}-c000.snappy.parquet")
        (place / "_SUCCESS").write_text("")
        (place / ".part-00000.crc").write_text("x")
    return folder


def duckdb_file(folder, schema="main"):
    import duckdb

    file = folder / "cdm.duckdb"
    with duckdb.connect(str(file)) as connection:
        if schema != "main":
            connection.execute(f"CREATE SCHEMA {schema}")
        for name, columns in TABLES.items():
            table = pa.table(columns)
            connection.register("given", table)
            connection.execute(f"CREATE TABLE {schema}.{name} AS FROM given")
            connection.unregister("given")
        connection.execute(f"CREATE TABLE {schema}.DEATH AS SELECT 'person_id' AS column0")  # a header became a row
    return file


def sqlite_file(folder):
    """Dates as seconds since 1970, as DatabaseConnector stores them."""
    file = folder / "cdm.sqlite"
    connection = sqlite3.connect(file)
    for name, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        rows = zip(*columns.values(), strict=True)
        dated = [column.endswith("_DATE") for column in columns]
        for row in rows:
            values = [
                datetime.datetime.fromisoformat(f"{value}T00:00:00+00:00").timestamp() if is_date else value
                for value, is_date in zip(row, dated, strict=True)
            ]
            connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values))})", values)
    connection.commit()
    connection.close()
    return file


@pytest.mark.parametrize("form", ["csv", "zip", "nested zip", "spark", "duckdb", "schema", "sqlite", "connection"])
def test_every_form_of_omop_is_the_same(tmp_path, form):
    schema = None
    if form in ("csv", "zip", "nested zip"):
        source = csv_files(tmp_path / "in")
        if form != "csv":
            archive = tmp_path / "cdm.zip"
            with zipfile.ZipFile(archive, "w") as packed:
                for file in source.iterdir():
                    packed.write(file, f"Cdm/{file.name}" if form == "nested zip" else file.name)
                packed.writestr("__MACOSX/._PERSON.csv", "x")
            source = archive
    elif form == "spark":
        source = spark_folders(tmp_path / "in")
    elif form == "sqlite":
        source = sqlite_file(tmp_path)
    elif form == "connection":
        source, schema = connect(), "cdm54"
        source.attach(duckdb_file(tmp_path, "cdm54"), name="hospital", read_only=True)
        schema = "hospital.cdm54"
    else:
        schema = "cdm54" if form == "schema" else None
        source = duckdb_file(tmp_path, schema or "main")
    out = import_omop(source, tmp_path / "out", schema=schema)
    assert [event[:3] for event in read(out)] == EXPECTED
    notes = " ".join(import_summary(out)["notes"])
    assert "<11 subject(s) with events are not in PERSON" in notes
    assert "drug_era, 12 rows, is not read: made from drug_exposure" in notes
    names = open_events(out).names
    assert names["ICD10//K92.2"] == "Gastrointestinal haemorrhage"
    assert names["Visit//IP"] == "Inpatient visit"
    assert import_summary(out)["rejected"] == {}


def test_a_schema_that_is_not_there(tmp_path):
    with pytest.raises(RecordsError, match=r"cannot be listed|holds none of the OMOP tables"):
        import_omop(duckdb_file(tmp_path), tmp_path / "out", schema="cdm54")


# ---- MEDS


def meds_dataset(folder, subjects=(1, 2, 3), splits=None, nested=False):
    shard = {
        "subject_id": list(subjects),
        "time": pa.array([day(2009, 1, 1)] * len(subjects), pa.timestamp("us")),
        "code": ["ICD9CM//25000", None, "LAB//X"][: len(subjects)],
    }
    write_meds(folder, [shard])
    if nested:
        for split in ("train", "held_out"):
            (folder / "data" / split).mkdir()
            pq.write_table(pa.table(shard), folder / "data" / split / "0.parquet")
        (folder / "data" / "0.parquet").unlink()
    (folder / "metadata").mkdir()
    codes = {"code": ["ICD9CM//25000", "LAB//X"], "description": ["Diabetes", "A test"]}
    pq.write_table(pa.table(codes), folder / "metadata" / "codes.parquet")
    if splits:
        table = pa.table({"subject_id": list(subjects), "split": splits})
        pq.write_table(table, folder / "metadata" / "subject_splits.parquet")
    return folder


def test_names_text_ids_and_shards(tmp_path):
    source = meds_dataset(tmp_path / "in", ("p-7", "p-8", "p-9"), ["train", "tuning", "held_out"], nested=True)
    out = import_meds(source, tmp_path / "out")
    assert open_events(out).names == {"ICD9//250.00": "Diabetes", "LAB//X": "A test"}
    subjects = pq.read_table(out / "metadata" / "subjects.parquet").to_pylist()
    number = {row["source_id"]: row["subject_id"] for row in subjects}
    assert read_splits(out) == {number["p-7"]: "train", number["p-8"]: "tuning", number["p-9"]: "held_out"}
    listed = {line.split(",")[0] for line in (out / "rejected.csv").read_text().splitlines()[1:]}
    assert listed == {"train/0.parquet", "held_out/0.parquet"}


def test_splits_are_honoured(cohort_folder, tmp_path):
    """Held-out subjects are validated on and never trained on; they can be ignored on demand."""
    source = tmp_path / "meds"
    (source / "metadata").mkdir(parents=True)
    (source / "data").symlink_to(cohort_folder / "data")
    subjects = np.arange(1, 401)
    splits = np.where(subjects % 4 == 0, "held_out", np.where(subjects % 4 == 1, "tuning", "train"))
    pq.write_table(
        pa.table({"subject_id": subjects, "split": splits.tolist()}), source / "metadata" / "subject_splits.parquet"
    )
    text = '[data]\npath = "meds"\n[cohort]\nthresholds = ["2009-01-01"]\n[outcomes]\nmin_events = 1\n'
    (tmp_path / "study.toml").write_text(text)
    data = prepare_data(load_config(tmp_path / "study.toml"), tmp_path / "private")
    train, held_out = (period.cohort.subject for period in data.periods)
    assert data.held_out
    assert (held_out % 4 == 0).all()
    assert (train % 4 != 0).all()
    (tmp_path / "study.toml").write_text(text + '[validation]\nsplits = "ignore"\n')
    data = prepare_data(load_config(tmp_path / "study.toml"), tmp_path / "private")
    assert len(data.periods) == 1
    assert len(data.periods[0].cohort) == len(train) + len(held_out)


def test_label_files_go_out_and_come_in(cohort_folder, events, tmp_path):
    """Labels that are written and read again, with their prediction times as thresholds, are the same."""
    outcomes = load_outcomes(keys=["copd", "depression"])
    cohort = build_cohort(events, "2009-01-01", inclusion=load_outcomes().inclusion)
    labels = build_labels(events, cohort, outcomes)
    write_labels(labels, outcomes, tmp_path / "labels")
    dates = read_thresholds(tmp_path / "labels" / "copd.parquet")
    assert set(dates.values()) == {datetime.date(2009, 1, 1)}
    (tmp_path / "study.toml").write_text(
        f'[data]\npath = "{cohort_folder}"\n[cohort]\nthresholds = ["labels/copd.parquet"]\n'
        '[outcomes]\nlabels = "labels"\nmin_events = 1\n'
    )
    data = prepare_data(load_config(tmp_path / "study.toml"), tmp_path / "private")
    period = data.periods[0]
    known = np.isin(cohort.subject, period.cohort.subject)
    names = [outcome.key for outcome in data.outcomes.outcomes]
    expected = labels.Y[known][:, [["copd", "depression"].index(name) for name in names]]
    np.testing.assert_array_equal(period.labels.Y, expected)
    table = pq.read_table(tmp_path / "labels" / "copd.parquet")
    twice = pa.concat_tables([table, table])
    pq.write_table(twice, tmp_path / "labels" / "copd.parquet")
    with pytest.raises(RecordsError, match="several prediction times"):
        prepare_data(load_config(tmp_path / "study.toml"), tmp_path / "private")
