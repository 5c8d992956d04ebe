"""What the cells of a column are: numbers however written, truth values, dates, or levels of a text."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats

NUMBER, BOOLEAN, CATEGORY, ORDERED, TEXT, DATE = "number", "boolean", "category", "ordered", "text", "date"
# Marks of a missing value, in lower case; among texts "none" may be a level, and only the others count.
MISSING = {"", "na", "n/a", "nan", "null", "none", "-", "--", "?", ".", "#n/a", "<na>", "nat"}

_TRUTH = [("false", "true"), ("no", "yes"), ("n", "y"), ("f", "t"), ("off", "on"), ("nein", "ja"), ("non", "oui")]
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_POINT_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:\.\d{3})+(?:,\d*)?")
_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_SPACED = re.compile(r"[+-]?\d{1,3}(?:[ \u00a0\u202f'’]\d{3})+(?:[.,]\d*)?")
_ISO = re.compile(
    r"(?P<y>\d{4})[-/](?P<m>\d{1,2})[-/](?P<d>\d{1,2})"
    r"(?:[ T](?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2}(?:\.\d+)?))?(?:Z|[+-]\d{2}:?\d{2})?)?"
)
_DOTTED = re.compile(r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})")
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
_EPOCH = dt.date(1970, 1, 1).toordinal()


class Parsed(NamedTuple):
    """A type, values (n,) with NaN where nothing is known, levels where there are any, and remarks."""

    type: str
    values: Floats
    levels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def is_number(cell: str) -> bool:
    """Whether a cell is a number as programs write it."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell and cell.strip().lower() not in MISSING


def parse(name: str, texts: Sequence[str], decimal_comma: bool = False) -> Parsed:
    """Find out what the cells of the column `name` are; "1,234" is 1.234 if commas are decimal signs here."""
    plain = _plain_numbers(texts)
    if plain is not None:
        return Parsed(NUMBER, plain)
    known = [cell for cell in texts if cell.lower() not in MISSING]
    distinct = set(known)
    written = _written_numbers(distinct, decimal_comma)
    if written is not None:
        numbers, note = written
        return Parsed(NUMBER, _looked_up(texts, numbers), (), (f"Column {name!r}: {note}",))
    truth = _truth(distinct)
    if truth is not None:
        values = _looked_up(texts, {cell: float(cell.lower() == truth[1].lower()) for cell in distinct})
        return Parsed(BOOLEAN, values, truth)
    dates = _dates(distinct)
    if dates is not None:
        days, told = dates
        return Parsed(DATE, _looked_up(texts, days), (), (f"Column {name!r}: {told}",) if told else ())
    levels = sorted({cell for cell in texts if cell.lower() not in MISSING or cell == "none"})
    codes = {level: float(code) for code, level in enumerate(levels)}
    notes: tuple[str, ...] = ()
    if any(is_number(cell) for cell in levels):
        odd = next(cell for cell in levels if not is_number(cell))
        notes = (f"Column {name!r} holds numbers and text (row {list(texts).index(odd) + 1}: {odd[:30]!r}).",)
    return Parsed(TEXT, _looked_up(texts, codes), tuple(levels), notes)


def day_text(days: float) -> str:
    """Return a number of days since 1970-01-01 as a date, with the time of day if it has one."""
    ordinal = int(np.floor(days)) + _EPOCH
    if not 1 <= ordinal <= dt.date.max.toordinal():
        return f"{days:.15g} days since 1970-01-01"
    seconds = round((days - np.floor(days)) * 86400.0)
    date = dt.date.fromordinal(ordinal).isoformat()
    return date if seconds in (0, 86400) else f"{date} {seconds // 3600:02d}:{seconds // 60 % 60:02d}"


def _plain_numbers(texts: Sequence[str]) -> Floats | None:
    values = np.empty(len(texts))
    for i, cell in enumerate(texts):
        try:
            values[i] = float(cell)
        except ValueError:
            if cell.lower() not in MISSING:
                return None
            values[i] = np.nan
            continue
        if "_" in cell:
            return None
    return values


def _looked_up(texts: Sequence[str], values: dict[str, float]) -> Floats:
    return np.array([values.get(cell, np.nan) for cell in texts], dtype=np.float64)


def _written_numbers(distinct: set[str], decimal_comma: bool) -> tuple[dict[str, float], str] | None:
    """Numbers with separators of thousands or a decimal comma: one way of writing must fit all cells."""
    ways: list[tuple[str, re.Pattern[str], Callable[[str], str]]] = [
        ("commas separate thousands.", _THOUSANDS, lambda cell: cell.replace(",", "")),
        ("the comma is the decimal sign.", _COMMA, lambda cell: cell.replace(",", ".")),
        ("spaces separate thousands.", _SPACED, lambda cell: re.sub(r"[^0-9.,+-]", "", cell).replace(",", ".")),
        (
            "points separate thousands and the comma is the decimal sign.",
            _POINT_THOUSANDS,
            lambda cell: cell.replace(".", "").replace(",", "."),
        ),
    ]
    if decimal_comma:
        ways = [ways[1], ways[3], ways[2], ways[0]]
    for note, pattern, plain in ways:
        numbers = {}
        for cell in distinct:
            if pattern.fullmatch(cell):
                numbers[cell] = float(plain(cell))
            elif pattern is _POINT_THOUSANDS and _COMMA.fullmatch(cell):
                numbers[cell] = float(cell.replace(",", "."))
            elif is_number(cell):
                numbers[cell] = float(cell)
            else:
                break
        else:
            return numbers, note
    return None


def _truth(distinct: set[str]) -> tuple[str, str] | None:
    lowered = {cell.lower() for cell in distinct}
    for pair in _TRUTH:
        if lowered and lowered <= set(pair):
            as_written = {cell.lower(): cell for cell in sorted(distinct)}
            return (as_written.get(pair[0], pair[0]), as_written.get(pair[1], pair[1]))
    return None


def _dates(distinct: set[str]) -> tuple[dict[str, float], str] | None:
    if not distinct:
        return None
    slashed = [_SLASHED.fullmatch(cell) for cell in distinct]
    day_first, note = False, ""
    if all(slashed):
        firsts, seconds = (max(int(match[k]) for match in slashed if match) for k in (1, 2))
        day_first = firsts > 12
        if firsts <= 12 and seconds <= 12:
            note = "dates like 1/2/2020 are read with the month first; write them as 2020-01-02 to be sure."
    found = {}
    for cell in distinct:
        day = _day(cell, day_first)
        if day is None:
            return None
        found[cell] = day
    return found, note


def _day(cell: str, day_first: bool) -> float | None:
    """Days since 1970-01-01, or None if the cell is no date; any year from 1 to 9999."""
    match = _ISO.fullmatch(cell) or _DOTTED.fullmatch(cell)
    try:
        if match:
            parts = match.groupdict()
            date = dt.date(int(parts["y"]), int(parts["m"]), int(parts["d"]))
            clock = 3600.0 * int(parts.get("H") or 0) + 60.0 * int(parts.get("M") or 0) + float(parts.get("S") or 0)
            return date.toordinal() - _EPOCH + clock / 86400.0
        slashed = _SLASHED.fullmatch(cell)
        if slashed is None:
            return None
        first, second, year = map(int, slashed.groups())
        month, day = (second, first) if day_first else (first, second)
        return float(dt.date(year, month, day).toordinal() - _EPOCH)
    except ValueError:
        return None
