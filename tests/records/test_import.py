import csv
import datetime
import gzip
import inspect
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from coaltree.cli import app
from coaltree.cli.records import app as records_app
from coaltree.records import (
    CohortRule,
    RecordsError,
    build_cohort,
    connect,
    import_csv,
    import_meds,
    import_omop,
    import_synpuf,
    open_events,
)
from coaltree.records.enrolment import enrolment_periods
from coaltree.records.importer import import_summary


def read(folder):
    table = pq.read_table(folder / "data")
    return sorted(
        zip(*(table[name].to_pylist() for name in ("subject_id", "time", "code", "cost")), strict=True),
        key=lambda row: (row[0], row[1] or datetime.datetime.min, row[2]),
    )


def rejected(folder):
    with (folder / "rejected.csv").open(newline="") as stream:
        return [(row["file"], int(row["row"]), row["value"], row["reason"]) for row in csv.DictReader(stream)]


def day(*date):
    return datetime.datetime(*date)


# ---- plain CSV


def test_every_line_becomes_an_event_or_is_listed(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text(
        "subject,date,code,cost\n"
        "1,2009-01-01,250.00,5\n"
        "2,2009-02-30,410,1\n"
        "3,2009-01-01,410\n"  # a field is missing
        "4,20090103,41001,abc\n"
        ",2009-01-01,1,1\n"
        "5,,250,1\n"
        "6,2009-01-02,,1\n"
        "x7,2009-01-02,250,1\n"
        "8,2009-01-02T10:30:00.000001,V4581,1.5\n"
    )
    # Subjects are all integers in the first batch of a clean file; here one is not, so all are texts.
    import_csv(file, tmp_path / "out", vocabulary="ICD9")
    events, listed = read(tmp_path / "out"), rejected(tmp_path / "out")
    assert [event[1:] for event in events] == [
        (day(2009, 1, 1), "ICD9//250.00", 5.0),
        (day(2009, 1, 3), "ICD9//410.01", None),
        (day(2009, 1, 2), "ICD9//250", 1.0),
        (datetime.datetime(2009, 1, 2, 10, 30, 0, 1), "ICD9//V45.81", 1.5),
    ]
    assert sorted(listed, key=lambda row: row[1]) == [
        ("x.csv", 3, "2009-02-30", "date cannot be read"),
        ("x.csv", 4, "3,2009-01-01,410", "line has 3 fields instead of 4"),
        ("x.csv", 5, "abc", "not a number (the event is kept without it)"),
        ("x.csv", 6, "", "no subject"),
        ("x.csv", 7, "", "no date"),
        ("x.csv", 8, "", "no code"),
    ]
    assert import_summary(tmp_path / "out")["rejected"]["date cannot be read"] == 1
    names = pq.read_table(tmp_path / "out" / "metadata" / "subjects.parquet")
    assert "x7" in names["source_id"].to_pylist()


def test_columns_formats_and_vocabularies(tmp_path):
    file = tmp_path / "x.csv.gz"
    with gzip.open(file, "wt") as stream:
        stream.write("patient,when,dx,system\n10,31/01/2009,4280,ICD9CM\n10,01/02/2009,I50.9,ICD10CM\n")
    names = {"subject": "patient", "date": "when", "code": "dx", "vocabulary": "system"}
    import_csv(file, tmp_path / "out", columns=names, date_format="%d/%m/%Y")
    assert read(tmp_path / "out") == [
        (10, day(2009, 1, 31), "ICD9//428.0", None),
        (10, day(2009, 2, 1), "ICD10//I50.9", None),
    ]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("subject,day,code\n1,2009-01-01,250", {}, "lacks the column.*date; it has subject, day, code"),
        ("subject,date,code\n1,2009-01-01,250", {"columns": {"subjct": "subject"}}, "Did you mean 'subject'"),
        ("subject,date,code\n1,2009-01-01T00:00:00+02:00,250", {}, "has a time zone"),
        ("subject,date,code\n1,2009-01-01,250", {"timezone": "Mars"}, "not a known zone"),
        ("subject,date,code\n1,never,250", {}, "no events.*1 × date cannot be read"),
        ("subject,date,date,code\n", {}, "two columns named 'date'"),
        ("", {}, "is empty"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_and_nothing_is_written(tmp_path, text, options, message):
    file = tmp_path / "x.csv"
    file.write_text(text)
    with pytest.raises(RecordsError, match=message):
        import_csv(file, tmp_path / "out", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_time_zones_become_local_times(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text("subject,date,code\n1,2009-01-01T23:30:00Z,A\n1,2009-07-01T23:30:00+00:00,B\n1,2009-03-01,C\n")
    import_csv(file, tmp_path / "out", timezone="Europe/Paris")
    assert [event[1] for event in read(tmp_path / "out")] == [
        datetime.datetime(2009, 1, 2, 0, 30),
        day(2009, 3, 1),
        datetime.datetime(2009, 7, 2, 1, 30),
    ]


@pytest.mark.parametrize(("policy", "n"), [("keep", 4), ("drop", 2)])
def test_duplicates_are_counted_and_the_policy_is_followed(tmp_path, policy, n):
    file = tmp_path / "x.csv"
    file.write_text(
        "subject,date,code\n" + "1,2009-01-01,ICD9//250.00\n" * 2 + "1,2009-01-01,ICD9//25000\n2,2009-01-01,A\n"
    )
    import_csv(file, tmp_path / "out", duplicates=policy)
    assert len(read(tmp_path / "out")) == n
    assert import_summary(tmp_path / "out")["duplicates"] == {"policy": policy, "exact_copies": 2}


def test_folders_of_others_are_left_alone(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text("subject,date,code\n1,2009-01-01,A\n")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("precious")
    with pytest.raises(RecordsError, match="was not made by"):
        import_csv(file, taken)
    assert (taken / "mine.txt").read_text() == "precious"
    for _ in range(2):  # its own folder is replaced
        import_csv(file, tmp_path / "out")
    assert len(read(tmp_path / "out")) == 1


# ---- MEDS


def write_meds(folder, shards):
    (folder / "data").mkdir(parents=True)
    for i, columns in enumerate(shards):
        pq.write_table(pa.table(columns), folder / "data" / f"{i}.parquet")
    return folder


def stamps(*days):
    return pa.array([None if d is None else datetime.datetime.fromisoformat(d) for d in days], pa.timestamp("us"))


def test_a_subject_in_several_shards_is_made_whole(tmp_path):
    import meds

    source = write_meds(
        tmp_path / "in",
        [
            {"subject_id": [1, 2], "time": stamps("2009-01-01", None), "code": ["ICD9//4280", "GENDER//F"]},
            {"subject_id": [1], "time": stamps("2008-01-01"), "code": ["ICD9CM//428.0"]},
        ],
    )
    import_meds(source, tmp_path / "out")
    assert read(tmp_path / "out") == [
        (1, day(2008, 1, 1), "ICD9//428.0", None),
        (1, day(2009, 1, 1), "ICD9//428.0", None),
        (2, None, "GENDER//F", None),
    ]
    assert "<11 subject(s) were spread" in import_summary(tmp_path / "out")["notes"][0]
    table = pq.read_table(tmp_path / "out" / "data" / "0000.parquet")
    meds.DataSchema.validate(table.drop_columns(["cost"]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"patient": [1], "time": stamps("2009-01-01"), "code": ["A"]}, "lacks subject_id"),
        ({"subject_id": [True], "time": stamps("2009-01-01"), "code": ["A"]}, "subject_id must be int64"),
        ({"subject_id": [1], "time": ["2009-01-01"], "code": ["A"]}, "time must be timestamp"),
        ({"subject_id": [1], "time": stamps("2009-01-01").cast(pa.timestamp("us", "UTC")), "code": ["A"]}, "time zone"),
    ],
)
def test_what_is_not_meds_is_refused(tmp_path, columns, message):
    with pytest.raises(RecordsError, match=message):
        import_meds(write_meds(tmp_path / "in", [columns]), tmp_path / "out")
    with pytest.raises(RecordsError, match="no events at"):
        import_meds(tmp_path / "nothing", tmp_path / "out")


# ---- OMOP


def omop_tables():
    return {
        "person": {"person_id": [1, 2], "year_of_birth": [1950, 1960], "gender_source_value": ["F", "M"]},
        "condition_occurrence": {
            "condition_occurrence_id": [10, 11, 12],
            "person_id": [1, 1, 2],
            "condition_start_date": ["2009-01-05", "2009-02-01", "2009-02-31"],
            "condition_source_value": ["250.00", "E11.9", "401.9"],
            "condition_source_concept_id": [0, 0, 0],
            "condition_concept_id": [0, 0, 0],
        },
        "procedure_occurrence": {
            "procedure_occurrence_id": [10, 21],
            "person_id": [1, 2],
            "procedure_date": ["2009-01-06", "2009-01-07"],
            "procedure_source_value": ["99213", "37.22"],
        },
        "measurement": {
            "measurement_id": [30],
            "person_id": [1],
            "measurement_date": ["2009-01-06"],
            "measurement_source_value": ["4548-4"],
            "measurement_source_concept_id": [777],
            "value_as_number": [7.5],
        },
        "concept": {"concept_id": [777], "vocabulary_id": ["LOINC"], "concept_code": ["4548-4"]},
        # The identifier 10 is a condition and a procedure: domains tell them apart.
        "cost": {
            "cost_event_id": [10, 10, 99],
            "cost_domain_id": ["Procedure", "Procedure", "Condition"],
            "total_paid": [40.0, 2.5, 7.0],
        },
        "death": {"person_id": [2], "death_date": ["2009-12-31"]},
        "observation_period": {
            "person_id": [1],
            "observation_period_start_date": ["2008-01-01"],
            "observation_period_end_date": ["2010-06-30"],
        },
    }


EXPECTED_OMOP = [
    (1, None, "GENDER//F", None),
    (1, day(1950, 7, 1), "MEDS_BIRTH", None),
    (1, day(2008, 1, 1), "OBSERVATION_START", None),
    (1, day(2009, 1, 5), "ICD9//250.00", None),
    (1, day(2009, 1, 6), "HCPCS//99213", 42.5),
    (1, day(2009, 1, 6), "LOINC//4548-4", None),
    (1, day(2009, 2, 1), "ICD10//E11.9", None),
    (1, day(2010, 6, 30), "OBSERVATION_END", None),
    (2, None, "GENDER//M", None),
    (2, day(1960, 7, 1), "MEDS_BIRTH", None),
    (2, day(2009, 1, 7), "ICD9PROC//37.22", None),
    (2, day(2009, 12, 31), "MEDS_DEATH", None),
]


@pytest.mark.parametrize("form", ["csv", "parquet", "connection"])
def test_omop(tmp_path, form):
    source = tmp_path / "in"
    source.mkdir()
    if form == "connection":
        source = connect()
    for name, columns in omop_tables().items():
        table = pa.table(columns)
        if form == "connection":
            pq.write_table(table, tmp_path / f"{name}.parquet")
            source.raw_sql(f"CREATE TABLE {name} AS FROM '{tmp_path / name}.parquet'")
        elif form == "parquet":
            pq.write_table(table, source / f"{name}.parquet")
        else:
            import pyarrow.csv

            pyarrow.csv.write_csv(table, source / f"{name.upper()}.csv")
    import_omop(source, tmp_path / "out")
    assert read(tmp_path / "out") == EXPECTED_OMOP
    reasons = {(value, reason) for _, _, value, reason in rejected(tmp_path / "out")}
    assert reasons == {
        ("2009-02-31", "date cannot be read"),
        ("99", "no event of condition_occurrence for this cost"),
    }


def test_a_folder_without_omop_is_refused(tmp_path):
    with pytest.raises(RecordsError, match="none of the OMOP tables"):
        import_omop(tmp_path, tmp_path / "out")


# ---- DE-SynPUF


def test_synpuf(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    (source / "DE1_0_2008_Beneficiary_Summary_File_Sample_1.csv").write_text(
        "DESYNPUF_ID,BENE_BIRTH_DT,BENE_DEATH_DT,BENE_SEX_IDENT_CD\nAAA,19400101,,1\nBBB,19300101,20090301,2\n"
    )
    (source / "DE1_0_2009_Beneficiary_Summary_File_Sample_1.csv").write_text(
        "DESYNPUF_ID,BENE_BIRTH_DT,BENE_DEATH_DT,BENE_SEX_IDENT_CD\nAAA,19400101,,1\n"
    )
    (source / "DE1_0_2008_to_2010_Carrier_Claims_Sample_1A.csv").write_text(
        "DESYNPUF_ID,CLM_FROM_DT,ICD9_DGNS_CD_1,ICD9_DGNS_CD_2,HCPCS_CD_1,HCPCS_CD_2,LINE_NCH_PMT_AMT_1,"
        "LINE_NCH_PMT_AMT_2\nAAA,20090725,7245,,97001,99213,50.00,30.00\nAAA,,4280,,,,0.00,0.00\n"
    )
    (source / "DE1_0_2008_to_2010_Inpatient_Claims_Sample_1.csv").write_text(
        "DESYNPUF_ID,CLM_FROM_DT,CLM_PMT_AMT,ADMTNG_ICD9_DGNS_CD,ICD9_DGNS_CD_1,ICD9_PRCDR_CD_1\n"
        "BBB,20080312,4000.00,4580,41001,3722\n"
    )
    (source / "DE1_0_2008_to_2010_Prescription_Drug_Events_Sample_1.csv").write_text(
        "DESYNPUF_ID,SRVC_DT,PROD_SRVC_ID,TOT_RX_CST_AMT\nAAA,20080103,00247037252,120.00\n"
    )
    import_synpuf(source, tmp_path / "out")
    assert [event[1:] for event in read(tmp_path / "out")] == [
        (None, "GENDER//1", None),
        (day(1940, 1, 1), "MEDS_BIRTH", None),
        (day(2008, 1, 3), "NDC//00247037252", 120.0),
        (day(2009, 7, 25), "HCPCS//97001", 50.0),
        (day(2009, 7, 25), "HCPCS//99213", 30.0),
        (day(2009, 7, 25), "ICD9//724.5", None),
        (None, "GENDER//2", None),
        (day(1930, 1, 1), "MEDS_BIRTH", None),
        (day(2008, 3, 12), "CLAIM//INPATIENT", 4000.0),
        (day(2008, 3, 12), "ICD9//410.01", None),
        (day(2008, 3, 12), "ICD9PROC//37.22", None),
        (day(2009, 3, 1), "MEDS_DEATH", None),
    ]
    assert rejected(tmp_path / "out") == [("DE1_0_2008_to_2010_Carrier_Claims_Sample_1A.csv", 3, "", "no date")]
    assert json.loads((tmp_path / "out" / "metadata" / "dataset.json").read_text())["n_subjects"] == 2


# ---- dates


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("31/01/2009", "%d/%m/%Y"), ("01/31/2009", "%m/%d/%Y"), ("31.1.09", "%d.%m.%y"), ("5 May 2009", "%d/%m/%Y")],
)
def test_unread_dates_show_an_example_and_the_option(tmp_path, text, wanted):
    (tmp_path / "x.csv").write_text(f"subject,date,code\n1,{text},A\n")
    with pytest.raises(RecordsError, match=f"Dates such as '{text}' cannot be read.*--date-format {wanted}"):
        import_csv(tmp_path / "x.csv", tmp_path / "out")
    (tmp_path / "x.csv").write_text(f"subject,date,code\n1,{text},A\n2,2009-01-31,A\n")
    ran = CliRunner().invoke(
        app, ["records", "import", str(tmp_path / "x.csv"), "--source", "csv", "--out", str(tmp_path / "out")]
    )
    assert ran.exit_code == 0
    assert f"Dates such as '{text}'" in ran.output
    # Reports show notes, and no date of a patient.
    assert import_summary(tmp_path / "out")["notes"] == []


def test_apply_reads_records_as_import_does():
    """Every option of `import` on how records are read is one of `apply`."""
    commands = {
        command.name: inspect.signature(command.callback).parameters for command in records_app.registered_commands
    }
    reading = set(commands["import"]) - {"path", "out"}
    assert {"column", "date_format", "vocabulary", "duplicates"} < reading <= set(commands["apply"])


def test_rejected_cells_are_no_formulas(tmp_path):
    (tmp_path / "x.csv").write_text("subject,date,code\n1,2009-01-31,A\n2,=HYPERLINK(1),A\n3,-5,A\n")
    import_csv(tmp_path / "x.csv", tmp_path / "out")
    assert [row[2] for row in rejected(tmp_path / "out")] == ["'=HYPERLINK(1)", "-5"]


# ---- enrolment


def test_months_are_placed_where_they_can_only_be():
    date = datetime.date
    months = {
        1: {2008: 12, 2009: 12, 2010: 12},
        2: {2008: 5, 2009: 12, 2010: 0},  # joined in August 2008, left at the end of 2009
        3: {2008: 12, 2009: 4},  # left at the end of April
        4: {2008: 12, 2009: 6, 2010: 12},  # a gap somewhere in 2009
        5: {2008: 6, 2009: 0},  # anywhere
        6: {2008: 0, 2009: 12},
        7: {2008: 12, 2009: 3},  # died in March 2009: covered until then
        8: {2008: 0, 2009: 2},  # joined two months before
        9: {2008: 0},
    }
    found = enrolment_periods(months, {7: date(2009, 3, 7), 8: date(2009, 5, 9)})
    assert found.periods == {
        1: [(date(2008, 1, 1), date(2010, 12, 31))],
        2: [(date(2008, 8, 1), date(2009, 12, 31))],
        3: [(date(2008, 1, 1), date(2009, 4, 30))],
        4: [(date(2008, 1, 1), date(2008, 12, 31)), (date(2010, 1, 1), date(2010, 12, 31))],
        5: [],
        6: [(date(2009, 1, 1), date(2009, 12, 31))],
        7: [(date(2008, 1, 1), date(2009, 3, 31))],
        8: [(date(2009, 4, 1), date(2009, 5, 31))],
        9: [],
    }
    assert found.n_unplaced == 2


def test_claims_have_periods_of_observation(tmp_path):
    """Parts A and B count, months with a managed plan do not: its claims are elsewhere."""
    source = tmp_path / "in"
    source.mkdir()
    head = "DESYNPUF_ID,BENE_BIRTH_DT,BENE_DEATH_DT," + ",".join(
        f"BENE_{p}_CVRAGE_TOT_MONS" for p in ("HI", "SMI", "HMO")
    )
    for year, rows in (
        (2008, ("AAA,19400101,,12,12,0", "BBB,19300101,,12,12,12", "CCC,19300101,,12,9,0", "DDD,19300101,,12,12,0")),
        (2009, ("AAA,19400101,,12,12,0", "BBB,19300101,,12,12,0", "CCC,19300101,,0,12,0", "DDD,19300101,,12,12,8")),
    ):
        file = source / f"DE1_0_{year}_Beneficiary_Summary_File_Sample_1.csv"
        file.write_text("\n".join([head, *rows]) + "\n")
    events = open_events(import_synpuf(source, tmp_path / "out"))
    for at, expected in (("2008-06-01", [1, 4]), ("2009-04-30", [1, 2, 4]), ("2009-05-01", [1, 2])):
        assert build_cohort(events, at, CohortRule(data_end=datetime.date(2009, 12, 31))).subject.tolist() == expected
    assert "withheld of 4 beneficiaries" in import_summary(tmp_path / "out")["notes"][0]
