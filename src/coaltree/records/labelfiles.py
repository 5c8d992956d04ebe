"""MEDS label files: subject_id, prediction_time and boolean_value, a file an outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from coaltree._arrays import Ints
from coaltree.records.engine import DAY
from coaltree.records.errors import RecordsError, need
from coaltree.records.reading import choose_columns
from coaltree.records.rule import CohortRule


def read_label_file(file: Path) -> Any:
    """Return a MEDS label file as a table with subject_id, prediction_time and boolean_value (null if it has none)."""
    pa, pq = need("pyarrow"), need("pyarrow.parquet")
    try:
        table = pq.read_table(file)
    except Exception as error:
        raise RecordsError(f"the label file {file} cannot be read as parquet: {error}") from error
    names = choose_columns(table.column_names, ["subject_id", "prediction_time"], ["boolean_value"], str(file))
    table = table.select(list(names.values())).rename_columns(list(names))
    if not pa.types.is_integer(table["subject_id"].type):
        raise RecordsError(f"{file}: subject_id must be whole numbers, not {table['subject_id'].type}.")
    kind = table["prediction_time"].type
    if not pa.types.is_timestamp(kind) or kind.tz is not None:
        raise RecordsError(f"{file}: prediction_time must be timestamps without a zone, not {kind}.")
    if "boolean_value" in table.column_names and not pa.types.is_boolean(table["boolean_value"].type):
        raise RecordsError(f"{file}: boolean_value must be true or false, not {table['boolean_value'].type}.")
    if table["subject_id"].null_count or table["prediction_time"].null_count:
        raise RecordsError(f"{file}: subject_id or prediction_time is missing in some rows.")
    return table


def prediction_days(table: Any, rule: CohortRule) -> tuple[Ints, Ints]:
    """Subjects of a label file and the day of their threshold.

    A prediction uses what is known up to and including its time: the lookback's last whole day is the last that has
    ended by then.
    """
    subject = table["subject_id"].to_numpy().astype(np.int64)
    times = table["prediction_time"].to_numpy().astype("datetime64[us]").astype(np.int64)
    twice = np.flatnonzero(np.diff(np.sort(subject)) == 0)
    if len(twice):
        raise RecordsError(
            f"subject {np.sort(subject)[twice[0]]} has several prediction times; a study has one row a subject."
        )
    return subject, (times + 1) // DAY - rule.lookback[1] - 1
