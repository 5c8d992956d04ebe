"""Rows of results: a list of dicts that writes itself as CSV, Markdown or a DataFrame."""

import csv
import importlib
import io
from pathlib import Path
from typing import Any

import numpy as np


class Rows(list[dict[str, Any]]):
    """Rows of equal keys, as a list of dicts, with ways out to other formats."""

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return the rows as CSV text, NaN as an empty cell; write it to `path` if one is given."""
        text = io.StringIO()
        if self:
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(self[0].keys())
            writer.writerows([_cell(value) for value in row.values()] for row in self)
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
    return value


def _shown(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return "NA" if np.isnan(value) else f"{value:.{digits}f}"
    return str(value).replace("|", "\\|")
