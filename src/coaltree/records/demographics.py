"""Age, sex and measurements of subjects: what is known of them beside the number of codes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coaltree._arrays import Floats
from coaltree.records.codes import sex_of
from coaltree.records.cohort import Cohort
from coaltree.records.engine import Events, fetch, fetch_large, memory_table
from coaltree.records.features import Counts, bare_code, days_before, first_offsets, lookback_table

AGE, FEMALE = "age", "female"
_SCALE = 10_000  # values are added up as whole numbers of 1/10 000: the same on every engine, in any order
_LARGEST = 1e7


def find_sex(events: Events, cohort: Cohort) -> Floats:
    """Return 1 for women, 0 for men, NaN where nothing or both are recorded, (n,)."""
    spellings = events.matching(lambda code: sex_of(code) is not None)
    female = np.full(len(cohort), np.nan)
    if not spellings:
        return female
    table = events.table.filter(events.table.code.isin(spellings))
    table = table.inner_join(memory_table({"subject_id": cohort.subject}), "subject_id")
    found = fetch(table.select("subject_id", "code").distinct())
    place = np.searchsorted(cohort.subject, found["subject_id"])
    said = np.array([float(bool(sex_of(events.codes[str(code)]))) for code in found["code"]])
    for value in (0.0, 1.0):
        rows = place[said == value]
        clash = ~np.isnan(female[rows]) & (female[rows] != value)
        female[rows] = value
        female[rows[clash]] = np.nan
    return female


def measured_values(
    events: Events, cohort: Cohort, counts: Counts, windows: Sequence[int | str] | None
) -> tuple[Floats, tuple[str, ...]]:
    """Last value, and trend a year if there are values of two days, of every code with numbers: (n, 2M) and names.

    The last value is the mean of the last day on which there is one; the trend is the slope of least squares.
    """
    known = {bare_code(label) for label in counts.codes}
    if not events.has_values:
        return np.empty((len(cohort), 0)), ()
    table = lookback_table(events, cohort, min(first_offsets(cohort.rule, windows)), ["numeric_value"])
    number = table.numeric_value.cast("float64")
    table = table.filter(number.notnull(), ~number.isnan(), number.abs() <= _LARGEST)
    table = table.mutate(days=days_before(table), whole=(number * _SCALE).round().cast("int64"))
    daily = table.group_by("row", "code", "days").agg(n=table.count(), total=table.whole.sum())
    query = daily.group_by("row", "code").agg(
        n=daily.n.sum(),
        t=(daily.n * daily.days).sum(),
        tt=(daily.n * daily.days * daily.days).sum(),
        v=daily.total.sum(),
        tv=(daily.days * daily.total).sum(),
        last=daily.total.argmin(daily.days),
        n_last=daily.n.argmin(daily.days),
    )
    found = fetch_large(events.connection, query)
    normal = np.array([events.codes[str(code)] for code in found.pop("code")], dtype=str)
    codes = sorted(set(normal.tolist()) & known)
    column = {code: i for i, code in enumerate(codes)}
    values = np.full((len(cohort), 2 * len(codes)), np.nan)
    # Spellings of one code are joined where a subject has several: the row with more values wins.
    order = np.argsort(found["n"], kind="stable")
    n, t, tt, v, tv = (found[name].astype(np.float64) for name in ("n", "t", "tt", "v", "tv"))
    spread = n * tt - t * t
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(spread > 0, -(n * tv - t * v) / spread / _SCALE * 365.25, np.nan)  # days count backwards
    last = found["last"].astype(np.float64) / found["n_last"] / _SCALE
    for i in order:
        place = column.get(str(normal[i]))
        if place is not None:
            values[int(found["row"][i]), [place, len(codes) + place]] = last[i], slope[i]
    return values, (*(f"{code} [last value]" for code in codes), *(f"{code} [trend a year]" for code in codes))
