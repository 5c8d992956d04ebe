"""Tables from files: what is read, what is refused and with which advice."""

import sys

import numpy as np
import pytest

from coaltree.cli.table import TableError, read_table

CSV = "name,height,weight\na,1.5,60\nb,1.7,70\nc,1.6,80\n"
NUMBERS = np.array([[1.5, 60], [1.7, 70], [1.6, 80]])


@pytest.fixture
def write(tmp_path):
    def write(content, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write


def test_csv_with_ids(write):
    table = read_table(write(CSV), "name")
    np.testing.assert_array_equal(table.X, NUMBERS)
    assert table.ids == ("a", "b", "c")
    assert table.features == ("height", "weight")
    assert table.notes == ()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("\ufeff" + CSV, "t.csv"),
        (CSV.replace("\n", "\r\n"), "t.csv"),
        (CSV.replace(",", "\t"), "t.tsv"),
        (CSV.replace(",", "\t"), "t.txt"),
        (CSV.replace(",", ";"), "t.csv"),
        (CSV.replace(",", ";").replace(".", ","), "t.csv"),
        (CSV + "\n\n", "t.csv"),
        ('"name" , "height","weight"\n"a","1.5","60"\nb, 1.7 ,7e1\nc,1.6,80', "T.CSV"),
    ],
)
def test_dialects(write, content, name):
    content = content.replace('" ,', '",')
    table = read_table(write(content, name), "name")
    np.testing.assert_array_equal(table.X, NUMBERS)
    assert table.ids == ("a", "b", "c")
    assert [feature.strip(' "') for feature in table.features] == ["height", "weight"]


def test_quotes_separators_and_html_in_names(write):
    table = read_table(write('id,x\n"a, b",1\n"say ""hi""",2\n<b>c</b>,3\n'), "id")
    assert table.ids == ("a, b", 'say "hi"', "<b>c</b>")


def test_index_without_a_name_is_used(write):
    table = read_table(write(",x,y\nr1,1,2\nr2,3,5\n"))
    assert table.ids == ("r1", "r2")
    assert table.features == ("x", "y")
    assert "index" in table.notes[0]


def test_rows_are_numbered_and_headers_guessed(write):
    assert read_table(write("x,y\n1,2\n3,5\n")).ids == ("1", "2")
    bare = read_table(write("1,2\n3,5\n"))
    assert bare.X.shape == (2, 2)
    assert bare.features == ("column 1", "column 2")
    assert "--header" in bare.notes[0]
    years = read_table(write("2001,2002\n1,2\n3,5\n"), header=True)
    assert years.features == ("2001", "2002")
    assert years.notes == ()


def test_features_and_drop(write):
    path = write("id,a,b,c\nx,1,2,3\ny,4,5,7\n")
    assert read_table(path, "id", features=["c", "a"]).features == ("c", "a")
    np.testing.assert_array_equal(read_table(path, "id", features=["c", "a"]).X, [[3, 1], [7, 4]])
    assert read_table(path, "id", drop=["b"]).features == ("a", "c")


def test_npy(tmp_path):
    np.save(tmp_path / "t.npy", NUMBERS.astype(np.float32))
    table = read_table(tmp_path / "t.npy")
    np.testing.assert_allclose(table.X, NUMBERS, rtol=1e-6)
    np.save(tmp_path / "t.npy", np.array([{"a": 1}, None]), allow_pickle=True)
    with pytest.raises(TableError, match="not a numpy array of numbers"):
        read_table(tmp_path / "t.npy")
    np.save(tmp_path / "t.npy", np.arange(3.0))
    with pytest.raises(TableError, match=r"got shape \(3,\)"):
        read_table(tmp_path / "t.npy")


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"name": ["a", "b", "c"], "height": [1.5, 1.7, 1.6], "weight": [60, 70, 80]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet", "name")
    np.testing.assert_array_equal(table.X, NUMBERS)
    assert table.ids == ("a", "b", "c")
    columns["__index_level_0__"] = columns.pop("name")
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").ids == ("a", "b", "c")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(TableError, match="not a readable Parquet file"):
        read_table(tmp_path / "t.parquet")


def test_parquet_without_pyarrow(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r"pip install 'coaltree\[parquet\]'"):
        read_table(write(b"PAR1", "t.parquet"))


@pytest.mark.parametrize("mark", ["", "NA", "NaN", "n/a", "null", "None"])
def test_missing_values(write, mark):
    path = write(f"id,x,y\na,1,2\nb,{mark},3\nc,4,5\n")
    table = read_table(path, "id")
    assert np.isnan(table.X[1, 0])
    assert np.isnan(table.X).sum() == 1
    assert "1 values are missing, in 1 of 3 rows" in table.notes[0]
    assert "'x' (1)" in table.notes[0]
    table = read_table(path, "id", drop_missing=True)
    assert table.ids == ("a", "c")
    assert table.notes == ("1 of 3 rows had missing values and were left out.",)
    assert read_table(path, "id", drop=["x"]).ids == ("a", "b", "c")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("  \n\n", "is empty"),
        ("x,y\n", "has no rows"),
        (b"\xff\xfe\x00x", "not text in UTF-8"),
        ("x,y\n1,2\n3\n", r"line 3 has 1 cells, the first line 2"),
        ('x,y\n1,"2\n3,4\n', "not a readable table"),
        ("x,y\n1,2\n", "1 row left; a tree needs at least 2"),
        ("x,y\n1,2\n1,2\n1,2\n", "All rows are equal"),
        ("x,y\n1,2\n3,2\n", r"columns 'y' hold one value only.*--drop y"),
        ("x,x\n1,2\n3,4\n", "'x' appear more than once"),
        ("x,y\n1,inf\n3,4\n", "'y' holds infinite values"),
        ("x,my kind\n1,red\n3,red\n", r"'my kind' \(row 1: 'red'\).*--drop 'my kind'\.$"),
        ("x,kind\n1,red\n3,blue\n", r"--drop kind, or name the rows by it with --id-column kind\.$"),
        ("x,a,b\n1,u,v\n3,u,v\n", "--drop a,b"),
        ("x,y\n1,1_000\n3,4\n", "'1_000'"),
        ("x,y\n1,\n3,NA\n", r"columns 'y' hold no value.*--drop y"),
        ("x,y\n1,2\n,\nNA,NA\n3,4\n", r"1 rows hold no value, the first is '2'.*--drop-missing"),
        ("x,y\n1,2\nNA,2\n3,2\n", r"columns 'y' hold one value only"),
    ],
)
def test_bad_tables(write, content, message):
    with pytest.raises(TableError, match=message):
        read_table(write(content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,x\na,1\na,2\nb,3\n", r"Rows 1 and 2 have the same name 'a' in column 'id' \(1 repeats"),
        ("id,x\na,1\n,2\n", "Row 2 has no name"),
        ('id,x\n"a\nb",1\nc,2\n', r"name of row 1, 'a\\nb', holds a line break"),
        ("id,x\na\x07,1\nc,2\n", "control character"),
        ("name,x\na,1\nc,2\n", r"--id-column 'id' is not a column. Its columns: 'name', 'x'"),
    ],
)
def test_bad_ids(write, content, message):
    with pytest.raises(TableError, match=message):
        read_table(write(content), "id")


def test_bad_choices(write, tmp_path):
    path = write("a,b\n1,2\n3,5\n")
    for arguments, message in [
        ({"features": ["z"]}, "--features names 'z'"),
        ({"drop": ["z"]}, "--drop names 'z'"),
        ({"drop": ["a"], "features": ["b"]}, "exclude each other"),
        ({"drop": ["a", "b"]}, "No column is left"),
    ]:
        with pytest.raises(TableError, match=message):
            read_table(path, **arguments)
    for wrong, message in [("none.csv", "is not there"), ("t.xlsx", "must end in one of"), (".", "must end in one of")]:
        with pytest.raises(TableError, match=message):
            read_table(tmp_path / wrong)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TableError, match="not a file"):
        read_table(tmp_path / "folder.csv")
