"""Rows of results: a list of dicts that writes itself as CSV, Markdown or a DataFrame."""

import csv
import importlib
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

import numpy as np

# Texts that a spreadsheet would run as a formula, but for numbers and dashes; and those that look like a defused one.
_FORMULA = re.compile(r"'*(?:[=@\t\r]|[+-](?!-*$|\.?\d[\d.,]*(?:[eE][+-]?\d+)?$)).*", re.DOTALL)


class CsvWriter:
    """Writes every CSV file that users may open: cells that a spreadsheet would run as formulas begin with '."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = csv.writer(stream, lineterminator="\n")

    def write(self, cells: Iterable[Any]) -> None:
        """Write one line, NaN as an empty cell."""
        self._writer.writerow([_cell(value) for value in cells])


def restored(text: str) -> str:
    """Return the text of a cell as it was before `CsvWriter` wrote it."""
    return text[1:] if text.startswith("'") and _FORMULA.fullmatch(text) else text


class Rows(list[dict[str, Any]]):
    """Rows of equal keys, as a list of dicts, with ways out to other formats."""

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return the rows as CSV text, formulas defused, NaN as an empty cell; write it to `path` if one is given."""
        text = io.StringIO()
        if self:
            writer = CsvWriter(text)
            writer.write(self[0])
            for row in self:
                writer.write(row.values())
        if path is not None:
            Path(path).write_text(text.getvalue(), encoding="utf-8")
        return text.getvalue()

    def to_markdown(self, digits: int = 3) -> str:
        """Return the rows as a Markdown table, numbers rounded, NaN as NA."""
        if not self:
            return ""
        lines = ["| " + " | ".join(self[0]) + " |", "|" + "---|" * len(self[0])]
        lines += ["| " + " | ".join(_shown(value, digits) for value in row.values()) + " |" for row in self]
        return "\n".join(lines) + "\n"

    def to_dataframe(self) -> Any:
        """Return the rows as a pandas DataFrame; pandas must be installed."""
        return importlib.import_module("pandas").DataFrame(list(self))


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if np.isnan(value) else repr(float(value))
    return f"'{value}" if isinstance(value, str) and _FORMULA.fullmatch(value) else value


def _shown(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return "NA" if np.isnan(value) else f"{value:.{digits}f}"
    return str(value).replace("|", "\\|")
