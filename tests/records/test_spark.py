"""The same queries on Spark: equal to DuckDB to the last count."""

import shutil

import numpy as np
import pytest

from coaltree.records.cohort import build_cohort
from coaltree.records.cost import future_costs
from coaltree.records.engine import open_events
from coaltree.records.features import count_codes
from coaltree.records.labels import build_labels
from coaltree.records.outcomes import load_outcomes

pytest.importorskip("pyspark", reason="pyspark is not installed")
if shutil.which("java") is None:
    pytest.skip("there is no Java", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def spark():
    import ibis
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    yield ibis.pyspark.connect(session)
    session.stop()


def test_spark_equals_duckdb(events, spark, cohort_folder):
    outcomes = load_outcomes()
    other = open_events(cohort_folder, connection=spark)
    assert other.codes == events.codes
    found = []
    for source in (events, other):
        cohort = build_cohort(source, "2009-01-01", inclusion=outcomes.inclusion)
        labels = build_labels(source, cohort, outcomes)
        found.append((cohort, labels, count_codes(source, cohort), future_costs(source, cohort)))
    (cohort, labels, counts, costs), (cohort_2, labels_2, counts_2, costs_2) = found
    np.testing.assert_array_equal(cohort.subject, cohort_2.subject)
    np.testing.assert_array_equal(cohort.last_day, cohort_2.last_day)
    np.testing.assert_array_equal(labels.Y, labels_2.Y)
    assert counts.codes == counts_2.codes
    assert (counts.matrix != counts_2.matrix).nnz == 0
    assert counts.matrix.nnz > 1000
    np.testing.assert_allclose(costs.daily.toarray(), costs_2.daily.toarray(), rtol=1e-12)
