"""Features: how often, and how recently, each code occurs before a subject's threshold.

Counting is done by the engine, which returns triplets (subject, code, number) for a sparse matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from coaltree._arrays import Floats
from coaltree.records.codes import BIRTH, DEATH, OBSERVATION_END, OBSERVATION_START, sex_of
from coaltree.records.cohort import Cohort, CohortRule
from coaltree.records.engine import Events, fetch, fetch_large, memory_table, timestamps
from coaltree.records.errors import RecordsError

NO_FEATURES = (BIRTH, DEATH, OBSERVATION_START, OBSERVATION_END)


ALL_TIME = "all"
MAX_FEATURES_DAYS = 100_000  # before a threshold: all of the past
RECENCY_DAYS = 30.0
SINCE = " [days since]"


@dataclass(frozen=True, eq=False)
class Counts:
    """What is known about subjects before their threshold.

    Attributes
    ----------
    matrix : CSR matrix (n, C)
        How often each code occurs, in one window or in several; with `days_since` also how recently.
    codes : tuple of str
        Names of the columns: a code, or a code and its window, as in "ICD9//250.00 [30 days]".
    extra : ndarray (n, E), optional
        Additional regressors: age, sex, values of measurements; NaN where unknown.
    extra_names : tuple of str
        Their names.
    """

    matrix: Any
    codes: tuple[str, ...]
    extra: Floats | None = None
    extra_names: tuple[str, ...] = ()

    def take(self, rows: npt.NDArray[Any]) -> Counts:
        """Return some subjects."""
        return replace(self, matrix=self.matrix[rows], extra=None if self.extra is None else self.extra[rows])


def bare_code(label: str) -> str:
    """Return the code of a column's name, without its window."""
    return label.partition(" [")[0]


def window_labels(windows: Sequence[int | str] | None) -> list[str]:
    """Return the suffix of codes for each window; empty for the cohort's own lookback."""
    if windows is None:
        return [""]
    return [" [all time]" if days == ALL_TIME else f" [{days} days]" for days in windows]


def first_offsets(rule: CohortRule, windows: Sequence[int | str] | None) -> list[int]:
    """Return the first offset of each window; all end with the lookback."""
    if windows is None:
        return [rule.lookback[0]]
    open_end = rule.lookback_closed not in ("left", "both")
    return [-MAX_FEATURES_DAYS if days == ALL_TIME else -int(days) + open_end for days in windows]


def lookback_table(events: Events, cohort: Cohort, first: int, columns: Sequence[str] = ()) -> Any:
    """Return events from an offset to the end of the lookback, with `row`, the subject's, and `days` before its end."""
    rule = cohort.rule
    ends = timestamps(cohort.threshold + rule.lookback[1] + 1)
    window = memory_table(
        {
            "subject_id": cohort.subject,
            "row": np.arange(len(cohort)),
            "begins": timestamps(cohort.threshold + first),
            "ends": ends,
        }
    )
    # Constant bounds let the engine skip parts of files; each subject's own bounds follow.
    table = events.table[["subject_id", "time", "code", *columns]]
    table = table.filter(
        table.time >= timestamps(cohort.threshold.min() + first).item(), table.time < ends.max().item()
    )
    table = table.inner_join(window, "subject_id")
    return table.filter(table.time >= table.begins, table.time < table.ends)


def days_before(table: Any) -> Any:
    """Whole days from an event's day to the end of the lookback, 1 for its last day."""
    seconds = table.ends.epoch_seconds() - table.time.truncate("D").epoch_seconds()
    return (seconds / 86_400).cast("int64")


def counting_query(
    events: Events,
    cohort: Cohort,
    codes: Mapping[str, int],
    windows: Sequence[int | str] | None = None,
    days_since: bool = False,
) -> Any:
    """Return the query for (row, column, n_0 …): events of each window by subject and code; `codes` maps spellings."""
    firsts = first_offsets(cohort.rule, windows)
    columns = memory_table({"code": list(codes), "column": np.array(list(codes.values()), dtype=np.int32)})
    table = lookback_table(events, cohort, min(firsts)).inner_join(columns, "code")
    if len(firsts) == 1 and not days_since:
        return table.group_by("row", "column").agg(n_0=table.count())
    table = table.mutate(days=days_before(table))
    last = cohort.rule.lookback[1]
    # An event `days` before the end has the offset last + 1 − days.
    found = {f"n_{w}": table.count(where=last + 1 - table.days >= first) for w, first in enumerate(firsts)}
    return table.group_by("row", "column").agg(**found, **({"since": table.days.min()} if days_since else {}))


def count_codes(
    events: Events,
    cohort: Cohort,
    exclude: Sequence[str] = (),
    windows: Sequence[int | str] | None = None,
    days_since: bool = False,
) -> Counts:
    """Count the codes of every subject's lookback.

    Parameters
    ----------
    events : Events
        From `open_events`.
    cohort : Cohort
        From `build_cohort`.
    exclude : sequence of str
        Codes that begin with one of these prefixes, such as "HCPCS//", are not features. Nor are birth, death, sex and
        the limits of observation.
    windows : sequence, optional
        Numbers of days before the threshold, or "all", to count in instead of the cohort's lookback. Every window ends
        where the lookback does.
    days_since : bool
        Also give, for each code, how recently it was recorded: 1 / (1 + days / 30).
    """
    prefixes = tuple(exclude)
    normal = sorted(
        code
        for code in set(events.codes.values())
        if code not in NO_FEATURES and sex_of(code) is None and not code.startswith(prefixes)
    )
    if not normal:
        raise RecordsError("no codes are left for features; shorten features.exclude.")
    position = {code: i for i, code in enumerate(normal)}
    spellings = {spelling: position[code] for spelling, code in events.codes.items() if code in position}
    found = fetch_large(events.connection, counting_query(events, cohort, spellings, windows, days_since))
    labels = window_labels(windows)
    place = (found["row"].astype(np.int32), found["column"].astype(np.int32))
    shape = (len(cohort), len(normal))
    blocks: list[Any] = [
        sparse.csr_matrix((found[f"n_{w}"].astype(np.int32), place), shape=shape) for w in range(len(labels))
    ]
    if sum(block.nnz for block in blocks) == 0:
        raise RecordsError(
            "no subject of the cohort has a code in the lookback; check lookback_days and the threshold."
        )
    if days_since:
        recency = 1.0 / (1.0 + found["since"].astype(np.float64) / RECENCY_DAYS)
        blocks.append(sparse.csr_matrix((recency, place), shape=shape))
        labels = [*labels, SINCE]
    matrix = blocks[0] if len(blocks) == 1 else sparse.hstack(blocks).tocsr()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return Counts(matrix, tuple(code + label for label in labels for code in normal))


# ---- age, sex and measurements

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
    """Last value, and yearly trend if there are values on two days, of every numeric code: (n, 2M) and names.

    The last value is the mean over the last day that has one; the trend is the least-squares slope.
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
    # If a subject has several spellings of one code, the row with more values wins.
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
