"""What each column of a table is taken for, by its type and values unless the user names a kind, and its scale.

Scale, `scale="auto"`: columns of a table are measurements in units of their own, so numbers are brought to standard
deviation 1. Numbers that have one unit keep it: components of one reduction, which are the representations of an
AnnData and columns named PC1, PC2, … (`is_reduction`), directions and distances (`Frame.one_unit`). "standard" and
"none" do the one or the other whatever the columns are.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Floats
from coaltree.cells import is_number
from coaltree.errors import InputError, InputTypeError
from coaltree.frame import BOOLEAN, CATEGORY, DATE, ORDERED, TEXT, Column, Frame, listed
from coaltree.model.columns import (
    BINARY,
    CATEGORICAL,
    CONTINUOUS,
    COUNT,
    KINDS,
    ORDINAL,
    ROUNDED,
    SKEWED,
    UNIT,
    ColumnModel,
    Columns,
    fitted,
    grid_step,
)
from coaltree.validation import check_choice

AUTO, IGNORE = "auto", "ignore"
STANDARD, NONE = "standard", "none"
SCALES = (AUTO, STANDARD, NONE)
_COMPONENT = re.compile(
    r"(?:x_)?(pc|pca|ica|nmf|svd|lsi|umap|tsne|t-sne|mds|scvi|harmony|factor|component|latent|truncatedsvd|kernelpca|"
    r"fastica|incrementalpca)[ _.-]?(\d+)",
    re.IGNORECASE,
)
# Standard deviations that differ by this factor are unequal.
UNEQUAL = 10.0
# Strings with more levels than this, and whole numbers with more values, are not guessed to be levels.
MOST_LEVELS, MOST_ORDINAL = 25, 12
# No column may have more levels than this, even if the user asks for it.
MOST_CATEGORIES = 200
# How many rare levels a note names.
MOST_NAMED = 6
# A grid matters if the standard deviation is at most this many of its steps, and rows share values.
COARSE = 50.0
# A grid is fine if the standard deviation is at least this many of its steps: `benchmarks/mixed.md`.
FINE = 1.0
SKEW = 2.0
FEWEST_FOR_SKEW = 20


class Guessed(NamedTuple):
    """Models of the columns that are used, the cells of these (n, J), and notes for the user."""

    columns: Columns
    values: Floats
    notes: tuple[str, ...]
    standardised: bool = True  # whether numbers were brought to standard deviation 1


def is_reduction(frame: Frame) -> bool:
    """Whether all columns are components of one reduction: known as such, or named like PC1, PC2, …."""
    found = [_COMPONENT.fullmatch(name) for name in frame.names]
    return frame.one_unit or (
        len(found) > 1 and all(found) and len({match[1].lower() for match in found if match}) == 1
    )


def read_kinds(told: Any) -> dict[str, str]:
    """Return {column: kind} from "auto", a mapping, or a TOML file, which may hold it in a table [columns]."""
    if isinstance(told, str) and told == AUTO:
        return {}
    if isinstance(told, Mapping):
        kinds = dict(told)
    elif isinstance(told, str | os.PathLike):
        try:
            with open(told, "rb") as file:
                content = tomllib.load(file)
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise InputError(
                f'columns must be "auto", a dict or a TOML file, but {told!s} cannot be read as one: {error}.'
            ) from error
        kinds = dict(content.get("columns", content))
    else:
        raise InputTypeError(f'columns must be "auto", a dict of kinds or the path of a TOML file, got {told!r}.')
    for name, kind in kinds.items():
        if kind not in (*KINDS, AUTO, IGNORE):
            choices = ", ".join(map(repr, (*KINDS, IGNORE, AUTO)))
            raise InputError(f"columns[{name!r}] must be one of {choices}, got {kind!r}.")
    return {str(name): str(kind) for name, kind in kinds.items() if kind != AUTO}


def guess_columns(frame: Frame, told: Any = AUTO, dates: str = "days", scale: str = AUTO) -> Guessed:
    """Decide what each column is; constant, empty, repeated and unusable ones are left out with a note.

    Columns of one unit are continuous, unless the user names a kind.
    """
    check_choice(scale, "scale", SCALES)
    if dates not in ("days", IGNORE):
        raise InputError(f'dates must be "days" or "ignore", got {dates!r}.')
    kinds = read_kinds(told)
    unknown = [name for name in kinds if name not in frame.names]
    if unknown:
        raise InputError(f"columns names {listed(unknown)}, not in the table. Its columns: {listed(frame.names)}.")
    reduction = is_reduction(frame)
    standardise = scale == STANDARD or (scale == AUTO and not reduction)
    if reduction:
        kinds = dict.fromkeys(frame.names, CONTINUOUS) | kinds
    models, values, notes = [], [], list[str]()
    constant, empty, repeated = list[str](), list[str](), list[str]()
    contents = set[tuple[str, bytes]]()
    for column in frame.columns:
        kind = kinds.get(column.name)
        if kind == IGNORE or (column.type == DATE and dates == IGNORE and kind is None):
            notes.append(f"Column {column.name!r} is left out, as requested.")
            continue
        if np.isinf(column.values).any():
            raise InputError(f"Column {column.name!r} holds infinite values. Correct them, or leave the column out.")
        distinct = np.unique(column.known)
        if len(distinct) < 2:
            (constant if len(distinct) else empty).append(column.name)
            continue
        notes += column.notes
        model, note = _model(column, kind, distinct, frame.n_rows)
        if note:
            notes.append(note)
        if model is not None:
            model, cells = _placed(model, column, distinct)
            content = (model.kind, _content(model, cells))
            if kind is None and content in contents:
                repeated.append(column.name)
                continue
            contents.add(content)
            models.append(fitted(model, cells, standardise))
            values.append(cells)
    if constant:
        notes.append(f"Left out because they hold a single value: {listed(constant)}.")
    if empty:
        notes.append(f"Left out because they hold no values: {listed(empty)}.")
    if repeated:
        notes.append(f"Left out because they repeat other columns, in other words or units: {listed(repeated)}.")
    models = _as_exact(models, values)
    if not models:
        raise InputError(" ".join(["No column is left that distinguishes rows. Add one in which they differ.", *notes]))
    notes += [*_rare(models, values), *_summary(models), *_scales(models, values, standardise)]
    return Guessed(Columns(tuple(models)), np.array(values).T.copy(), tuple(notes), standardise)


def unequal(deviations: Floats) -> bool:
    """Whether columns with these standard deviations would have very unequal weights."""
    return bool(len(deviations) > 1 and deviations.max() > UNEQUAL * deviations.min())


def _scales(models: list[ColumnModel], values: list[Floats], standardise: bool) -> list[str]:
    """Say what was done about the scales of numbers."""
    pairs = zip(models, values, strict=True)
    deviations = np.array([np.nanstd(cells) for model, cells in pairs if model.kind not in UNIT])
    if not len(deviations):
        return []
    span = f"from {deviations.min():.3g} to {deviations.max():.3g}" if unequal(deviations) else ""
    if standardise:
        return [f"Columns are standardised to mean 0 and standard deviation 1{span and f', which ranged {span}'}."]
    return [f"Columns are taken in their own units{span and f'; standard deviations range {span}'}."]


def _content(model: ColumnModel, cells: Floats) -> bytes:
    """Equal for columns of one kind that say the same of every row: up to names of levels, unit and sign."""
    gap = np.isnan(cells)
    known = cells[~gap]
    if model.kind == CATEGORICAL:
        _, first, codes = np.unique(known, return_index=True, return_inverse=True)
        unit = np.argsort(np.argsort(first))[codes].astype(np.float64)  # levels by where they first occur
    else:
        unit = (known - known.mean()) / (known.max() - known.min())
        unit = np.round(np.sign(unit[np.argmax(np.abs(unit) > 1e-6)]) * unit, 8) + 0.0
    return gap.tobytes() + unit.tobytes()


def _as_exact(models: list[ColumnModel], values: list[Floats]) -> list[ColumnModel]:
    """Take rounded values as they are in a table of nothing but numbers whose grids are all fine.

    Rounding is then a least variance of the noise (`learning.working`), and no coordinates need to be drawn.
    """
    for model, cells in zip(models, values, strict=True):
        if model.is_drawn and not (model.kind == ROUNDED and np.nanstd(cells) >= FINE * model.step):
            return models
    return [replace(model, exact=True) if model.kind == ROUNDED else model for model in models]


def _rare(models: list[ColumnModel], values: list[Floats]) -> list[str]:
    """Name levels that occur once: they set one row apart from all others, which may not be meant."""
    found = []
    for model, cells in zip(models, values, strict=True):
        if model.kind == CATEGORICAL:
            counts = np.bincount(cells[~np.isnan(cells)].astype(np.int64), minlength=model.n_levels)
            found += [f"{model.levels[k]!r} in {model.name!r}" for k in np.flatnonzero(counts == 1)]
    if not found:
        return []
    shown = ", ".join(found[:MOST_NAMED]) + ", …" * (len(found) > MOST_NAMED)
    return [f"Levels of a single row: {shown}. They say little; group them with others if they are not needed."]


def _summary(models: list[ColumnModel]) -> list[str]:
    """Describe what columns were taken for, grouped by kind."""
    said: dict[str, list[str]] = {}
    for model in models:
        key = model.says() if model.kind == ROUNDED else model.kind
        said.setdefault(key, []).append(model.name)
    return [f"Taken as {key}: {listed(names, 12)}." for key, names in said.items()]


def _model(column: Column, told: str | None, distinct: Floats, n: int) -> tuple[ColumnModel | None, str]:
    """Return a model with its kind, or None if the column is of no use, and a remark."""
    name = column.name
    kind = told or _guess(column, distinct, n)
    if kind is not None and told is None and column.type == TEXT and column.notes:
        return ColumnModel(name, kind, type=column.type), (
            f"Column {name!r} is therefore taken as levels; correct those cells if it should be numbers."
        )
    if kind is None:
        if column.notes and any(is_number(level) for level in column.levels):
            raise InputError(
                f"{column.notes[0]} Correct those cells, empty them if they are unknown, or leave the column out: "
                f"columns={{{name!r}: 'ignore'}}, or `drop`."
            )
        use = "name it 'categorical' to use it" if len(distinct) <= MOST_CATEGORIES else "group them to use it"
        return None, (
            f"Column {name!r} has {len(distinct):,} different texts and is left out; {use}, "
            "or give it as `id_column` if it names the rows."
        )
    if kind in UNIT and len(distinct) > MOST_CATEGORIES:
        raise InputError(
            f"Column {name!r} cannot be {kind}: it has {len(distinct):,} levels, and {MOST_CATEGORIES} are the most. "
            "Group them, or leave the column out."
        )
    if kind == BINARY and len(distinct) != 2:
        raise InputError(f"Column {name!r} cannot be binary: it has {len(distinct)} different values. Use 'ordinal'.")
    if kind == CATEGORICAL and len(distinct) == 2:
        kind = BINARY
    if kind not in UNIT and column.levels and column.type != BOOLEAN:
        raise InputError(f"Column {name!r} cannot be {kind}: it holds text such as {column.levels[0]!r}.")
    wrong = distinct[(distinct < 0) | (distinct != np.rint(distinct))]
    if kind == COUNT and len(wrong):
        raise InputError(f"Column {name!r} cannot be a count: it holds {wrong[0]:g}. Use 'continuous' or 'skewed'.")
    if kind == SKEWED and len(distinct) < 3:
        raise InputError(f"Column {name!r} cannot be skewed: it has {len(distinct)} different values. Use 'binary'.")
    return ColumnModel(name, kind, type=column.type), ""


def _guess(column: Column, distinct: Floats, n: int) -> str | None:
    """Kind of a column by its type and values; None if it has too many distinct strings to be of use."""
    if column.type == BOOLEAN or len(distinct) == 2:
        return BINARY
    if column.type == ORDERED:
        return ORDINAL if len(distinct) <= MOST_CATEGORIES else None
    if column.type in (TEXT, CATEGORY):
        return CATEGORICAL if len(distinct) <= min(MOST_LEVELS, max(n // 2, 2)) else None
    known = column.known
    step = grid_step(known)
    if step is None:
        return _shape(known)
    if step >= 1.0 and column.type != DATE:
        if len(distinct) <= MOST_ORDINAL and len(known) >= 3 * len(distinct):
            return ORDINAL
        if distinct[0] >= 0 and distinct[0] <= 1 and _is_skewed_until_logged(known):
            return COUNT
    shared = len(known) - len(distinct) > 0.1 * len(known)
    if shared and known.std() < COARSE * step and _skewness(known) <= SKEW:
        return ROUNDED
    return _shape(known)


def _shape(known: Floats) -> str:
    return SKEWED if len(np.unique(known)) >= FEWEST_FOR_SKEW and abs(_skewness(known)) > SKEW else CONTINUOUS


def _is_skewed_until_logged(known: Floats) -> bool:
    """Whether whole numbers are skewed and their logarithms much less: their spread then grows with their size."""
    skewness = _skewness(known)
    return skewness > 1.0 and abs(_skewness(np.log(known + 0.5))) < 0.5 * skewness


def _skewness(known: Floats) -> float:
    gap = known - known.mean()
    spread = float(np.sqrt((gap * gap).mean()))
    return float((gap**3).mean()) / spread**3 if spread > 0.0 else 0.0


def _placed(model: ColumnModel, column: Column, distinct: Floats) -> tuple[ColumnModel, Floats]:
    """Give a unit column its levels, those that occur, and return its cells as indices into them."""
    if model.kind not in UNIT:
        return model, column.values
    codes = np.searchsorted(distinct, column.values).astype(np.float64)
    codes[np.isnan(column.values)] = np.nan
    if column.levels:
        levels = tuple(column.levels[int(code)] for code in distinct)
        numbers: tuple[float, ...] = ()
    else:
        levels, numbers = tuple(f"{value:.15g}" for value in distinct), tuple(distinct.tolist())
    grid = (grid_step(distinct) or 0.0) if numbers else 0.0
    return ColumnModel(model.name, model.kind, levels, numbers, grid=grid, type=model.type), codes
