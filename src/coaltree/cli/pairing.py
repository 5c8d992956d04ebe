"""Features and outcomes from two files, row by row: by id, or in the order of the files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree.cli.table import MOST_NAMED, Table, TableError, column_names, listed, read_numbers

Floats = npt.NDArray[np.float64]


class Data(NamedTuple):
    """Features and outcomes of the same rows."""

    X: Floats  # (N, K)
    Y: Floats  # (N, P): 0, 1 or NaN
    ids: tuple[str, ...]
    features: tuple[str, ...]
    outcomes: tuple[str, ...]
    notes: tuple[str, ...]


def read_data(features: Path, outcomes: Path, id_column: str | None = None, drop: Sequence[str] = ()) -> Data:
    """Read both tables and bring their rows together: by id if a column is named, else in the order of the files."""
    unwanted = [name.strip() for row in csv.reader(drop, skipinitialspace=True) for name in row if name.strip()]
    tables, unknown = [], set(unwanted)
    for path in (features, outcomes):
        # Which of the two tables a column to drop is in is not known before reading.
        everything = column_names(path)
        tables.append(read_numbers(path, id_column, drop=[name for name in unwanted if name in everything]))
        unknown -= everything
    if unknown:
        raise TableError(f"--drop names {listed(sorted(unknown))}, in neither of the tables.")
    left, right = tables
    X, Y, ids, notes = _matched(left, right, id_column)
    _check_features(X, left.features)
    _check_outcomes(Y, right.features, ids)
    constant = [name for name, width in zip(left.features, np.ptp(X, axis=0), strict=True) if width == 0.0]
    if constant:
        notes.append(f"Features with one value only get the coefficient 0: {listed(constant)}.")
    n_missing = int(np.isnan(Y).sum())
    if n_missing:
        notes.append(f"{n_missing:,} of {Y.size:,} labels are missing; those rows count for the other outcomes.")
    return Data(X, Y, ids, left.features, right.features, tuple(notes))


def _matched(left: Table, right: Table, id_column: str | None) -> tuple[Floats, Floats, tuple[str, ...], list[str]]:
    notes = list(dict.fromkeys((*left.notes, *right.notes)))
    if id_column is None:
        if len(left.X) != len(right.X):
            raise TableError(
                f"The features have {len(left.X):,} rows and the outcomes {len(right.X):,}. Without --id-column rows "
                "are matched by their order, so both need the same number; or name the column that identifies a row."
            )
        if left.ids != right.ids and left.notes and right.notes:
            i = next(i for i, (a, b) in enumerate(zip(left.ids, right.ids, strict=True)) if a != b)
            raise TableError(
                f"Row {i + 1} is called {left.ids[i]!r} in the features and {right.ids[i]!r} in the outcomes. Give the "
                "column of names a name and pass it as --id-column, or remove it to match rows by order."
            )
        return left.X, right.X, left.ids, notes
    position = {name: i for i, name in enumerate(right.ids)}
    common = [(i, position[name]) for i, name in enumerate(left.ids) if name in position]
    if not common:
        raise TableError(
            f"No {id_column!r} is in both tables (first in the features: {left.ids[0]!r}, in the outcomes: "
            f"{right.ids[0]!r}). Check --id-column."
        )
    for name, table in (("features", left), ("outcomes", right)):
        if len(table.ids) > len(common):
            notes.append(f"{len(table.ids) - len(common):,} rows are in the {name} only and were left out.")
    rows, others = (np.array(part) for part in zip(*common, strict=True))
    return left.X[rows], right.X[others], tuple(left.ids[i] for i in rows), notes


def _check_features(X: Floats, names: tuple[str, ...]) -> None:
    bad = ~np.isfinite(X)
    if bad.any():
        counts = bad.sum(axis=0)
        worst = [f"{names[k]!r} ({counts[k]:,})" for k in np.argsort(-counts, kind="stable") if counts[k]][:MOST_NAMED]
        raise TableError(
            f"{bad.sum():,} values of the features are missing or infinite, in {bad.any(axis=1).sum():,} rows; by "
            f"column: {', '.join(worst)}. Impute them first, or leave the columns out with --drop."
        )
    if len(X) < 2:
        raise TableError(f"{len(X)} row is left; a regression needs at least 2.")


def _check_outcomes(Y: Floats, names: tuple[str, ...], ids: tuple[str, ...]) -> None:
    wrong = np.argwhere(~(np.isnan(Y) | (Y == 0.0) | (Y == 1.0)))
    if len(wrong):
        i, j = wrong[0]
        raise TableError(
            f"Outcome {names[j]!r} of row {ids[i]!r} is {Y[i, j]:g}. Outcomes must be 0 or 1 (empty if unknown): "
            "recode it, or leave the column out with --drop."
        )
    one_class = [name for name, y in zip(names, Y.T, strict=True) if len(set(y[~np.isnan(y)])) < 2]
    if len(one_class) == len(names):
        raise TableError(f"No outcome has both 0 and 1 ({listed(one_class)}), so there is nothing to learn.")
