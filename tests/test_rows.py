"""CSV that users open in a spreadsheet: no cell is a formula, and our own reader gives back what was written."""

import numpy as np
import pytest

from coaltree.reading import read_any
from coaltree.rows import Rows, restored

FORMULAS = ["=1+1", "+SUM(A1)", "-cmd|' /C calc'!A0", "@x", "\tx", "\r=1", "'=1", "''@x", "-a", "--x"]
PLAIN = ["+", "a", "1", "-1.5", "+2e-3", "-", "--", "'quoted'", "", "a=b", "x-1", "-.5", "1,234", "-1,5"]


def test_formulas_are_defused():
    for text in FORMULAS:
        assert Rows([{"x": text}]).to_csv().split("\n")[1].lstrip('"').startswith("'"), text
    for text in PLAIN:
        assert Rows([{"x": text}]).to_csv().splitlines()[1].strip('"') == text, text
    assert Rows([{"x": -1.5, "y": np.nan, "=z": -2}]).to_csv() == "x,y,'=z\n-1.5,,-2\n"


@pytest.mark.parametrize("text", FORMULAS + PLAIN)
def test_cells_are_restored(text):
    written = Rows([{"x": text}]).to_csv().removeprefix("x\n")[:-1]
    cell = written[1:-1].replace('""', '"') if written.startswith('"') else written
    assert restored(cell) == text


def test_our_reader_gives_back_names(tmp_path):
    names = ["=a", "@b", "+c", "-d", "'=e", "plain"]
    Rows({"id": name, "=x": k} for k, name in enumerate(names)).to_csv(tmp_path / "x.csv")
    table = read_any(tmp_path / "x.csv", id_column="id")
    assert list(table.ids) == names
    assert table.features == ("=x",)
