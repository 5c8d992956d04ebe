"""The table of a command: a file read, rows named, columns chosen. What cannot be used is refused with a way out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree.frame import Frame, listed
from coaltree.reading import TableError, choose_ids, read_frame

Floats = npt.NDArray[np.float64]

__all__ = ["MOST_NAMED", "Table", "TableError", "column_names", "listed", "read_any", "read_table"]
MOST_NAMED = 6


class Table(NamedTuple):
    """A table ready to be clustered."""

    frame: Frame
    ids: tuple[str, ...]
    notes: tuple[str, ...]  # what was decided on the way, for the reader

    @property
    def X(self) -> Floats:
        """All cells as numbers, levels by their places, (n, d)."""
        return self.frame.matrix()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.frame.names


def read_table(
    path: Path,
    id_column: str | None = None,
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    header: bool | None = None,
    drop_missing: bool = False,
) -> Table:
    """Read a file with columns of any kind.

    Parameters
    ----------
    path : Path
        A file whose name ends in one of `coaltree.reading.SUFFIXES`.
    id_column : str, optional
        Column with the names of the rows. By default the first column if it has no name, as R and pandas write row
        names, or one that differs in every row and is text or named like ids; otherwise rows are numbered from 1.
    features, drop : sequences of str
        Columns to keep, or to leave out; at most one of the two.
    header : bool, optional
        Whether the first line names the columns; by default it does unless all of it is numbers.
    drop_missing : bool
        Leave out rows with missing values; else they stay, as NaN.
    """
    raw = read_frame(path, header)
    _check_choice(raw.frame.names, features, drop)
    frame, ids, told = choose_ids(raw, id_column, recognise=not features)
    notes = [*raw.notes, *told]
    table = Table(_chosen(frame, features, drop), ids, ())
    for column in table.frame.columns:
        if np.isinf(column.values).any():
            raise TableError(f"Column {column.name!r} holds infinite values. Correct them or leave it out with --drop.")
    frame, ids = _settle_missing(table, drop_missing, notes)
    if frame.n_rows < 2:
        raise TableError(f"The table has {frame.n_rows} row{'s' * (frame.n_rows != 1)} left; a tree needs at least 2.")
    return Table(frame, ids, tuple(notes))


def read_any(path: Path, id_column: str | None = None, drop: Sequence[str] = ()) -> Table:
    """Read a file of any columns and any number of rows, whose ids are those that are named."""
    raw = read_frame(path)
    _check_choice(raw.frame.names, (), drop)
    frame, ids, told = choose_ids(raw, id_column, recognise=False)
    return Table(_chosen(frame, (), drop), ids, (*raw.notes, *told))


def column_names(path: Path) -> set[str]:
    """Names of all columns of a file."""
    return set(read_frame(path).frame.names)


# ---- choosing


def _check_choice(names: Sequence[str], features: Sequence[str], drop: Sequence[str]) -> None:
    if features and drop:
        raise TableError("--features and --drop exclude each other: give one of them.")
    for option, wanted in (("--features", features), ("--drop", drop)):
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise TableError(f"{option} names {listed(unknown)}, not in the table. Its columns: {listed(names)}.")


def _chosen(frame: Frame, features: Sequence[str], drop: Sequence[str]) -> Frame:
    named = {column.name: column for column in frame.columns}
    wanted = dict.fromkeys(features) if features else named
    columns = [named[name] for name in wanted if name in named and name not in drop]
    if not columns:
        raise TableError("No column is left to cluster by. Keep at least one with --features or --drop.")
    return frame.keep(columns)


def _settle_missing(table: Table, drop: bool, notes: list[str]) -> tuple[Frame, tuple[str, ...]]:
    """Leave out rows with missing values if asked to; else say how many values the model will have to infer."""
    names, ids = table.features, table.ids
    missing = np.isnan(table.X)
    if drop:
        missing &= ~missing.all(axis=0)  # columns without any value are left out whatever happens to rows
    rows = np.asarray(missing.any(axis=1))
    if not rows.any():
        return table.frame, ids
    if drop:
        notes.append(f"{rows.sum():,} of {len(rows):,} rows had missing values and were left out.")
        kept = np.flatnonzero(~rows)
        return table.frame.rows(kept), tuple(ids[i] for i in kept)
    counts = missing.sum(axis=0)
    worst = [f"{names[j]!r} ({counts[j]:,})" for j in np.argsort(-counts, kind="stable") if counts[j]][:MOST_NAMED]
    notes.append(
        f"Missing values: {missing.sum():,}, in {rows.sum():,} of {len(rows):,} rows, inferred with the tree; by "
        f"column: {', '.join(worst)}. --drop-missing leaves those rows out."
    )
    bare = [ids[i] for i in np.flatnonzero(missing.all(axis=1))]
    if bare:
        notes.append(
            f"Rows without any value keep their place, but can be anywhere in the tree: {listed(bare)}. "
            "--drop-missing leaves them out."
        )
    return table.frame, ids


# ---- words
