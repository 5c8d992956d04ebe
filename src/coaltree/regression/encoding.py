r"""Mixed tables as columns of numbers: the encoding is learned once and then fixed.

| column | becomes |
|---|---|
| numbers | itself; missing entries get the median, and if there were any an indicator column is added |
| booleans, and text of two levels | one column, 1 for `True`, or for the level that comes second in the alphabet |
| categories and other text | one column for each level but the commonest, which is the reference |
| missing among text | a separate level, "(missing)", if there were any; else the reference |

The type of a column is inferred as for clustering (`coaltree.frame`): dates become days, and text such as "1,5", "NA"
or "?" a number or missing. Levels not seen when the encoding was learned, missing columns and infinite numbers raise an
error that names them. Outcomes are read by `as_outcomes`: 0 and 1, booleans, or words such as yes and no; empty or NaN
where unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.frame import Frame, as_frame, is_mixed, listed, read_column
from coaltree.regression.families import FAMILIES, Chosen, Families, as_families
from coaltree.regression.families.binary import PROBIT

Columns = dict[str, npt.NDArray[Any]]

NUMBER, TWO, MANY = "number", "two levels", "levels"
MISSING = "(missing)"
MOST_LEVELS = 100
_YES = {"1", "1.0", "yes", "y", "true", "t", "present", "positive"}
_NO = {"0", "0.0", "no", "n", "false", "f", "absent", "negative"}


def is_frame(X: Any) -> bool:
    """Whether X has named columns."""
    return hasattr(X, "columns") and hasattr(X, "__getitem__") and not hasattr(X, "tocsr")


def is_mapping(X: Any) -> bool:
    """Whether X maps names to columns; one format of sparse matrices is a dict too."""
    return isinstance(X, Mapping) and not hasattr(X, "tocsr")


def columns_of(X: Any) -> Columns:
    """Columns of a DataFrame, a mapping or a `Frame`: float64 with NaN, or text with None where an entry is missing.

    Cells are read as in `coaltree.frame`: numbers however written, dates (days), truth values, levels.
    """
    if is_mapping(X):
        read = [read_column(str(name), values) for name, values in X.items()]
    elif isinstance(X, Frame) or hasattr(X, "iloc"):
        read = list(as_frame(X).columns)
    else:
        read = [read_column(str(name), X[name]) for name in X.columns]
    return {
        column.name: np.array([column.cell(i) or None for i in range(len(column.values))], dtype=object)
        if column.levels
        else column.values
        for column in read
    }


def needs_encoding(X: Any) -> bool:
    """Whether a table has named columns, some of which are not plain finite numbers."""
    if not is_frame(X):
        return False
    return is_mixed(X) or any(np.isnan(values).any() for values in columns_of(X).values())


@dataclass(frozen=True)
class Column:
    """How one column is encoded."""

    name: str
    kind: str
    median: float = 0.0  # of numbers
    missing: bool = False  # whether missing entries have a separate column or level
    levels: tuple[str, ...] = ()  # one column each; the reference first

    @property
    def names(self) -> list[str]:
        """Names of the columns it becomes."""
        if self.kind == NUMBER:
            return [self.name, f"{self.name} {MISSING}"][: 1 + self.missing]
        return [f"{self.name} = {level}" for level in self.levels[1:]]

    def encode(self, values: npt.NDArray[Any]) -> Floats:
        """(N,) → (N, columns)."""
        if self.kind == NUMBER:
            if values.dtype.kind != "f":
                example = next(value for value in values if value is not None)
                raise InputError(
                    f"X column {self.name!r} held numbers when the model was fitted, and holds {example!r} now."
                )
            absent = np.isnan(values)
            filled = np.where(absent, self.median, values)
            return np.column_stack([filled, absent])[:, : 1 + self.missing].astype(np.float64)
        cells = _texts(values)
        position = {level: k for k, level in enumerate(self.levels)}
        unseen = sorted({cell for cell in cells if cell is not None and cell not in position})
        if unseen:
            raise InputError(
                f"X column {self.name!r} holds {listed(unseen)}, which the model has not seen: it knows "
                f"{listed(self.levels)}. Recode such entries as one of these, or leave them empty (missing)."
            )
        absent = position.get(MISSING, 0)
        codes = np.array([absent if cell is None else position[cell] for cell in cells])
        return np.asarray(codes[:, None] == np.arange(1, len(self.levels)), dtype=np.float64)


def _texts(values: npt.NDArray[Any]) -> list[str | None]:
    """Cells as text, including levels that happen to be numbers."""
    if values.dtype.kind != "f":
        return list(values)
    return [None if np.isnan(value) else f"{value:g}" for value in values]


def _learn_column(name: str, values: npt.NDArray[Any]) -> Column:
    if values.dtype.kind == "f":
        if np.isinf(values).any():
            raise InputError(f"X column {name!r} holds infinite values. Correct them or leave the column out.")
        absent = np.isnan(values)
        if absent.all():
            raise InputError(f"X column {name!r} holds no value at all. Leave it out.")
        return Column(name, NUMBER, float(np.median(values[~absent])), bool(absent.any()))
    cells = list(values)
    missing = any(cell is None for cell in cells)
    levels, counts = np.unique([cell for cell in cells if cell is not None], return_counts=True)
    ordered = [str(level) for level in levels]
    if len(levels) > min(MOST_LEVELS, max(2, len(cells) // 2)):
        raise InputError(
            f"X column {name!r} holds text of {len(levels)} levels in {len(cells)} rows, such as "
            f"{listed(ordered[:3])}: too many to learn from, at most {MOST_LEVELS} and half the rows. "
            "Leave the column out, group its levels, or use it to name the rows."
        )
    if len(ordered) == 2 and not missing:
        return Column(name, TWO, levels=tuple(ordered))
    reference = ordered[int(np.argmax(counts))]
    rest = [level for level in ordered if level != reference]
    return Column(name, MANY, missing=missing, levels=(reference, *rest, *([MISSING] if missing else [])))


@dataclass(frozen=True)
class Encoding:
    """How a table becomes columns of numbers."""

    columns: tuple[Column, ...]

    @classmethod
    def learn(cls, table: Columns) -> Encoding:
        """Learn the encoding from a table."""
        return cls(tuple(_learn_column(name, values) for name, values in table.items()))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(name for column in self.columns for name in column.names)

    def encode(self, table: Columns) -> Floats:
        """(N, encoded columns); columns are found by name, others are ignored."""
        absent = [column.name for column in self.columns if column.name not in table]
        if absent:
            raise InputError(
                f"X lacks the columns {listed(absent)} that the model needs; it has {listed(list(table))}. Add them, "
                "empty where nothing is known."
            )
        for column in self.columns:
            values = table[column.name]
            if values.dtype.kind == "f" and np.isinf(values).any():
                raise InputError(f"X column {column.name!r} holds infinite values. Correct them.")
        return np.hstack([column.encode(table[column.name]) for column in self.columns])

    def needs(self) -> list[dict[str, str]]:
        """The columns that a table must have: one row per column, in words."""
        rows = []
        for column in self.columns:
            what = "a number" if column.kind == NUMBER else f"one of {listed(column.levels)}"
            empty = f"the median, {column.median:.6g}" if column.kind == NUMBER else f"{column.levels[0]!r}"
            if column.missing:
                empty = "known as missing" if column.kind != NUMBER else f"{empty}, known as missing"
            rows.append({"column": column.name, "holds": what, "if empty": empty})
        return rows

    def as_json(self) -> list[dict[str, Any]]:
        """Plain values for a file."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, values: list[dict[str, Any]]) -> Encoding:
        """Rebuild from a file."""
        return cls(tuple(Column(**{**value, "levels": tuple(value["levels"])}) for value in values))


def as_outcomes(
    Y: Any, names: tuple[str, ...] | None = None, n_rows: int | None = None
) -> tuple[Floats, tuple[str, ...]]:
    """Outcomes (N, P) of 0, 1 and NaN, and their names: `read_outcomes` where all are binary."""
    array, names = read_outcomes(Y, names, n_rows)
    check_labels(array, (PROBIT,) * array.shape[1], names)
    return array, names


def as_labels(
    Y: Any, family: Chosen = "probit", names: tuple[str, ...] | None = None, n_rows: int | None = None
) -> tuple[Floats, Families]:
    """Outcomes (N, P), NaN where there is no label, and the family of each."""
    array, found = read_outcomes(Y, names, n_rows)
    families = as_families(family, array.shape[1], found)
    check_labels(array, families, found)
    return array, families


def read_outcomes(
    Y: Any, names: tuple[str, ...] | None = None, n_rows: int | None = None
) -> tuple[Floats, tuple[str, ...]]:
    """Outcomes (N, P) as numbers and NaN, and their names: the one way by which every input comes in.

    Y may be an array of numbers, dense or sparse, or a DataFrame or a mapping of columns, which may hold booleans or
    words such as yes and no; a one-dimensional Y is one outcome. The outcomes of an array are named by `names`, or
    numbered.
    """
    if is_mapping(Y) or is_frame(Y):
        columns = columns_of(Y)
        names = tuple(columns)
        array = np.column_stack([_labels(name, values) for name, values in columns.items()])
    else:
        try:
            array = np.ascontiguousarray(Y.toarray() if hasattr(Y, "toarray") else Y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"Y must hold 0, 1 or NaN (no label), one column per outcome: {error}.") from error
        if array.ndim == 1:
            array = array[:, None]
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"Y must be a table (N, P) with rows and columns, got shape {np.shape(Y)}.")
    if n_rows is not None and len(array) != n_rows:
        raise InputError(f"Y must have one row for each of the {n_rows} rows of X, got {len(array)}.")
    names = names or tuple(str(j) for j in range(array.shape[1]))
    if len(names) != array.shape[1]:
        raise InputError(f"outcome_names must name {array.shape[1]} outcomes, got {len(names)}.")
    return array, names


def check_labels(labels: Floats, families: Families, names: tuple[str, ...]) -> None:
    """Raise InputError unless every label is possible in its family."""
    for name, family, values in zip(names, families, labels.T, strict=True):
        known = values[~np.isnan(values)]
        wrong = np.unique(known[~family.admits(known)])
        if not len(wrong):
            continue
        shown = f"{', '.join(f'{value:g}' for value in wrong[:5])}{', …' if len(wrong) > 5 else ''}"
        others = [
            f"`family` {other.name!r} for {other.holds}"
            for other in FAMILIES.values()
            if not other.binary and other.admits(known).all()
        ]
        what = "0, 1 or NaN (no label)" if family.binary else f"{family.holds} or NaN (no label)"
        fix = "Use one 0/1 column per outcome" if family.binary else ""
        fix = f"{fix}{', or ' if fix and others else ''}{', '.join(others)}" or "Correct them"
        raise InputError(f"Y must hold {what}, but outcome {name} holds {shown}. {fix}.")


def _labels(name: str, values: npt.NDArray[Any]) -> Floats:
    """Numbers unchanged; words as 0, 1 and NaN."""
    if values.dtype.kind == "f":
        return values
    lower = [None if value is None else str(value).lower() for value in values]
    unknown = sorted({cell for cell in lower if cell is not None and cell not in _YES | _NO})
    if unknown:
        raise InputError(
            f"Y must hold 0 and 1, booleans or yes and no, but outcome {name} holds {listed(unknown)}. Use one 0/1 "
            "column per outcome, and nothing where it is not known."
        )
    return np.array([np.nan if cell is None else float(cell in _YES) for cell in lower])
