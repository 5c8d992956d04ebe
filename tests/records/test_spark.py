"""The same queries on Spark: equal to DuckDB to the last count, on files and on tables of a catalogue."""

import shutil

import numpy as np
import pytest

from coaltree.records import (
    RecordsError,
    build_cohort,
    build_labels,
    connect,
    count_codes,
    future_costs,
    load_config,
    load_outcomes,
    open_events,
    open_table,
)
from coaltree.records.dataset import prepare_data
from coaltree.records.features import find_sex, measured_values
from tests.records import patients
from tests.records.patients import PATIENTS, check_patients, rows_of, write_meds

pytest.importorskip("pyspark", reason="pyspark is not installed")
if shutil.which("java") is None:
    pytest.skip("there is no Java", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    import ibis
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield ibis.pyspark.connect(session)
    session.stop()


def test_spark_equals_duckdb(events, spark, cohort_folder):
    outcomes = load_outcomes()
    other = open_events(cohort_folder, connection=spark)
    assert other.codes == events.codes
    found = []
    windows = [30, 365, "all"]
    for source in (events, other):
        cohort = build_cohort(source, "2009-01-01", inclusion=outcomes.inclusion)
        labels = build_labels(source, cohort, outcomes)
        counts = count_codes(source, cohort, windows=windows, days_since=True)
        values = measured_values(source, cohort, counts, windows)
        found.append((cohort, labels, counts, values, find_sex(source, cohort), future_costs(source, cohort)))
    (cohort, labels, counts, values, sex, costs), (cohort_2, labels_2, counts_2, values_2, sex_2, costs_2) = found
    np.testing.assert_array_equal(cohort.subject, cohort_2.subject)
    np.testing.assert_array_equal(cohort.last_day, cohort_2.last_day)
    np.testing.assert_array_equal(labels.Y, labels_2.Y)
    assert counts.codes == counts_2.codes
    assert (counts.matrix != counts_2.matrix).nnz == 0
    assert counts.matrix.nnz > 1000
    assert values[1] == values_2[1]
    np.testing.assert_array_equal(values[0], values_2[0])
    assert np.isfinite(values[0]).sum() > 100
    np.testing.assert_array_equal(sex, sex_2)
    np.testing.assert_allclose(costs.daily.toarray(), costs_2.daily.toarray(), rtol=1e-12)


def test_thirty_patients(spark, tmp_path):
    folder = write_meds(tmp_path / "meds", rows_of({**PATIENTS, "anchor": patients.ANCHOR}))
    assert check_patients(open_events(folder, connection=spark)) == {}


def test_a_study_on_a_table_of_the_catalogue(spark, cohort_folder, tmp_path):
    """Cohort, labels and counts without a local copy of rows, equal to those of the files."""
    session = spark._session
    session.sql("CREATE DATABASE IF NOT EXISTS hosp")
    session.read.parquet(str(cohort_folder / "data")).write.mode("overwrite").saveAsTable("hosp.events")
    text = '[cohort]\nthresholds = ["2009-01-01"]\n[outcomes]\nmin_events = 1\n'
    (tmp_path / "table.toml").write_text('[data]\nevents = "hosp.events"\nconnection = "spark"\n' + text)
    (tmp_path / "files.toml").write_text(f'[data]\npath = "{cohort_folder}"\n' + text)
    there = prepare_data(load_config(tmp_path / "table.toml"), tmp_path / "there")
    here = prepare_data(load_config(tmp_path / "files.toml"), tmp_path / "here")
    np.testing.assert_array_equal(there.periods[0].cohort.subject, here.periods[0].cohort.subject)
    np.testing.assert_array_equal(there.periods[0].labels.Y, here.periods[0].labels.Y)
    assert (there.periods[0].counts.matrix != here.periods[0].counts.matrix).nnz == 0
    copied = [file for file in (tmp_path / "there").rglob("*.parquet") if "labels" not in file.parts]
    assert copied == []
    with pytest.raises(RecordsError, match=r"no table 'hosp.nothing'"):
        open_table("hosp.nothing", spark)


def test_zoned_times_are_converted_or_refused_the_same_in_both_engines(spark, tmp_path):
    """23:30 in New York is the next day in UTC, and the day decides."""
    stamps = ("2009-12-31T23:30:00-05:00", "2010-01-01T00:30:00-05:00", "2010-07-01T23:30:00-04:00")
    values = ", ".join(f"({i + 1}, '{stamp}')" for i, stamp in enumerate(stamps))
    duck = connect()
    duck.raw_sql(
        "CREATE TABLE zoned AS SELECT s::BIGINT AS subject_id, t::TIMESTAMPTZ AS time, 'A' AS code "
        f"FROM (VALUES {values}) AS v(s, t)"
    )
    spark._session.sql(
        "SELECT CAST(s AS BIGINT) AS subject_id, CAST(t AS TIMESTAMP) AS time, 'A' AS code "
        f"FROM VALUES {values} AS v(s, t)"
    ).createOrReplaceTempView("zoned")
    for zone, day_0 in (("America/New_York", [1, 0, 0]), ("UTC", [0, 0, 0]), ("Asia/Tokyo", [0, 0, 0])):
        found = []
        for connection in (duck, spark):
            events = open_table("zoned", connection, timezone=zone)
            cohort = build_cohort(events, "2010-01-01")
            found.append(count_codes(events, cohort).matrix.toarray()[:, 0].tolist() if any(day_0) else None)
            if not any(day_0):
                with pytest.raises(RecordsError, match="no subject of the cohort has a code in the lookback"):
                    count_codes(events, cohort)
        assert found[0] == found[1] == (day_0 if any(day_0) else None), zone
    for connection in (duck, spark):
        with pytest.raises(RecordsError, match="has the time zone"):
            open_table("zoned", connection)
