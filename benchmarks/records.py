"""Features of 50 million events: memory, and time beside plain DuckDB SQL in the same run.

    python -m benchmarks.records --events 50 --out /tmp/records-benchmark
    python -m benchmarks.records --events 20 --spark --out /tmp/records-benchmark
    python -m benchmarks.records --logistic study.toml --out /tmp/records-logistic

A cohort of five million events is simulated, imported and copied with new subjects until there are enough. Each
measurement runs in a process of its own, so that its peak memory is its own. The data are deleted at the end.

`--logistic` scores plain logistic regressions on all-time counts in the folds of a study, to compare with its report.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

THRESHOLD = "2009-01-01"
LIMIT = "1GB"
SQL = """
COPY (
    SELECT row, column_, count(*) AS n
    FROM read_parquet('{events}/data/*.parquet') AS events
    JOIN cohort USING (subject_id)
    JOIN codes USING (code)
    WHERE events.time >= cohort.begins AND events.time < cohort.ends
    GROUP BY row, column_
) TO '{out}' (FORMAT parquet)
"""


def make_data(folder: Path, millions: int) -> Path:
    import duckdb

    from coaltree.records.simulate import simulate_cohort
    from coaltree.records.sources import import_meds

    base, events = folder / "base", folder / "events"
    (events / "data").mkdir(parents=True)
    import_meds(simulate_cohort(folder / "raw", 18_000, seed=1), base)
    connection = duckdb.connect()
    (n,) = connection.execute(f"SELECT count(*) FROM '{base}/data/*.parquet'").fetchone() or (1,)
    for copy in range(-(-millions * 1_000_000 // n)):
        connection.execute(
            f"COPY (SELECT * REPLACE (subject_id + {copy} * 100000 AS subject_id) FROM '{base}/data/*.parquet') "
            f"TO '{events}/data/{copy:04d}.parquet' (FORMAT parquet, COMPRESSION zstd)"
        )
    return events


def run_coaltree(events: Path) -> dict[str, float]:
    from coaltree.records.cohort import build_cohort
    from coaltree.records.engine import open_events
    from coaltree.records.features import count_codes

    opened = open_events(events, memory_limit=LIMIT)
    cohort = build_cohort(opened, THRESHOLD)
    started, used = time.perf_counter(), time.process_time()
    counts = count_codes(opened, cohort)
    cpu = time.process_time() - used
    return {
        "seconds": time.perf_counter() - started,
        "cpu": cpu,
        "nnz": counts.matrix.nnz,
        "total": int(counts.matrix.sum()),
    }


def run_sql(events: Path) -> dict[str, float]:
    """The same windows and codes, written by hand in SQL; the result is read back into a sparse matrix as well."""
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq
    from scipy import sparse

    from coaltree.records.cohort import build_cohort
    from coaltree.records.engine import open_events
    from coaltree.records.features import NO_FEATURES

    opened = open_events(events, memory_limit=LIMIT)
    cohort = build_cohort(opened, THRESHOLD)
    window = cohort.window(*cohort.rule.lookback).to_pyarrow()
    codes = sorted(code for code in opened.codes if code not in NO_FEATURES)
    opened.connection.disconnect()
    connection = duckdb.connect(config={"memory_limit": LIMIT, "preserve_insertion_order": False})
    connection.execute("SET enable_progress_bar = false")
    connection.register("cohort", window)
    connection.register("codes", pa.table({"code": codes, "column_": pa.array(range(len(codes)), pa.int32())}))
    started, used = time.perf_counter(), time.process_time()
    out = events.parent / "sql.parquet"
    connection.execute(SQL.format(events=events, out=out))
    table = pq.read_table(out)
    matrix = sparse.csr_matrix(
        (table["n"].to_numpy(), (table["row"].to_numpy(), table["column_"].to_numpy())), shape=(len(window), len(codes))
    )
    matrix.sort_indices()
    cpu = time.process_time() - used
    return {"seconds": time.perf_counter() - started, "cpu": cpu, "nnz": matrix.nnz, "total": int(matrix.sum())}


def run_spark(events: Path) -> dict[str, float]:
    """Cohort and counts on Spark (local[2], Java), with the plan of the counting and the bytes it shuffled."""
    import ibis
    from pyspark.sql import SparkSession

    from coaltree.records.cohort import build_cohort
    from coaltree.records.engine import open_events
    from coaltree.records.features import count_codes

    log = events.parent / "spark-log"
    log.mkdir(exist_ok=True)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.rolling.enabled", "false")
        .config("spark.eventLog.dir", log.as_uri())
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    opened = open_events(events, ibis.pyspark.connect(session))
    started = time.perf_counter()
    cohort = build_cohort(opened, THRESHOLD)
    cohort_seconds = time.perf_counter() - started
    started = time.perf_counter()
    counts = count_codes(opened, cohort)
    seconds = time.perf_counter() - started
    session.stop()
    plan, shuffled = read_log(log)
    print(plan, file=sys.stderr)
    return {
        "cohort_seconds": cohort_seconds,
        "seconds": seconds,
        "nnz": counts.matrix.nnz,
        "total": int(counts.matrix.sum()),
        "shuffled_mb": shuffled / 1e6,
    }


def read_log(log: Path) -> tuple[str, int]:
    """Return the longest plan, that of the counting, and the bytes that all queries shuffled, from Spark's events."""
    plan, shuffled = "", 0
    for file in log.rglob("*"):
        for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else []:
            event = json.loads(line)
            if event["Event"].endswith("SparkListenerSQLExecutionStart"):
                plan = max(plan, event["physicalPlanDescription"], key=len)
            elif event["Event"] == "SparkListenerTaskEnd":
                written = (event.get("Task Metrics") or {}).get("Shuffle Write Metrics") or {}
                shuffled += written.get("Shuffle Bytes Written", 0)
    return plan, shuffled


def run_logistic(file: Path, private: Path) -> dict[str, float]:
    """Mean area under the ROC curve of logistic regressions on all-time counts, in the folds of the study."""
    import dataclasses
    import warnings

    import numpy as np
    from sklearn.linear_model import LogisticRegression

    from coaltree.records.config import load_config
    from coaltree.records.dataset import prepare_data
    from coaltree.regression.folds import stratified_folds
    from coaltree.regression.scores import auroc

    config = load_config(file)
    settings = dataclasses.replace(config.features, windows=["all"], age=False, sex=False)
    period = prepare_data(dataclasses.replace(config, features=settings), private).periods[0]
    counts, Y = period.counts.matrix.toarray(), period.labels.Y
    folds = stratified_folds(Y, config.validation.n_folds, config.seed)
    frequent = np.count_nonzero(counts, axis=0) >= settings.min_subjects
    found = {}
    for codes, X in (("all codes", counts), ("frequent codes", counts[:, frequent])):
        for kind, C in (("no penalty", np.inf), ("ridge penalty", 1.0)):
            score = np.empty(Y.shape)
            for j, fold in np.ndindex(Y.shape[1], config.validation.n_folds):
                train = (folds != fold) & ~np.isnan(Y[:, j])
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # without a penalty the coefficients of rare codes do not converge
                    model = LogisticRegression(C=C, max_iter=10_000).fit(X[train], Y[train, j])
                score[folds == fold, j] = model.decision_function(X[folds == fold])
            areas = [auroc(y, s, folds) for y, s in zip(Y.T, score.T, strict=True)]
            found[f"{codes}, {kind}"] = float(np.nanmean(areas))
    return found


def peak_memory() -> float:
    """Peak of this process alone in GB; getrusage would tell that of its parent if that is larger."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1e6
    raise RuntimeError("the system does not tell peak memory")


def measure(what: str, events: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.records", "--measure", what, "--out", str(events)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50, help="millions")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--measure", choices=["coaltree", "sql", "spark"])
    parser.add_argument("--spark", action="store_true", help="measure Spark once as well; its plan goes to stderr")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--logistic", type=Path, metavar="TOML", help="config of a study; --out is a private folder")
    options = parser.parse_args()
    if options.measure:
        result = {"coaltree": run_coaltree, "sql": run_sql, "spark": run_spark}[options.measure](options.out)
        print(json.dumps({**result, "peak_gb": peak_memory()}))
        return
    if options.logistic:
        for name, area in run_logistic(options.logistic, options.out).items():
            print(f"{name}: {area:.3f}", flush=True)
        return
    events = make_data(options.out, options.events)
    try:
        best: dict[str, dict[str, float]] = {}
        for _ in range(options.rounds):  # by turns, so that a busy machine is busy for both
            for what in ("coaltree", "sql"):
                result = measure(what, events)
                print(what, result, flush=True)
                if what not in best or result["seconds"] < best[what]["seconds"]:
                    best[what] = result
        assert best["coaltree"]["total"] == best["sql"]["total"]
        if options.spark:
            found = measure("spark", events)
            print("spark", found, flush=True)
            assert found["total"] == best["coaltree"]["total"]
        for unit in ("seconds", "cpu"):
            print(f"ratio of {unit} {best['coaltree'][unit] / best['sql'][unit]:.2f}", flush=True)
    finally:
        shutil.rmtree(options.out)


if __name__ == "__main__":
    main()
