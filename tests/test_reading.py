"""Tables from files: what is read, what is refused and with which advice."""

import sys

import numpy as np
import pytest

from coaltree.reading import TableError, read_any, read_table

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
    assert "option header" in bare.notes[0]
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
    assert "Missing values: 1, in 1 of 3 rows" in table.notes[0]
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
        (b"\xff\xfe\x00x\x00", "begins like UTF-16 but is not"),
        (b"x,y\n\xff\x00,1\n", "is not text .*Save the table as CSV in UTF-8"),
        ("x,y\n1,2\n3\n", r"line 3 has 1 cells, the first line 2"),
        ('x,y\n1,"2\n3,4\n', "not a readable table"),
        ("x,y\n1,2\n", "1 row left; a tree needs at least 2"),
        ("x,x\n1,2\n3,4\n", "'x' appear more than once"),
        ("x,y\n1,inf\n3,4\n", "'y' holds infinite values"),
    ],
)
def test_bad_tables(write, content, message):
    with pytest.raises(TableError, match=message):
        read_table(write(content))


def test_any_columns_and_rows(write):
    table = read_any(write("x,kind,id\n1,red,7\n,red,7\n"), drop=["id"])
    assert table.features == ("x", "kind")
    assert table.ids == ("1", "2")
    assert table.frame.columns[1].cell(0) == "red"
    assert np.isnan(table.frame.columns[0].values[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,x\na,1\na,2\nb,3\n", r"Rows 1 and 2 have the same name 'a' in column 'id' \(1 repeats"),
        ("id,x\na,1\n,2\n", "Row 2 has no name"),
        ('id,x\n"a\nb",1\nc,2\n', r"name of row 1, 'a\\nb', holds a line break"),
        ("id,x\na\x07,1\nc,2\n", "control character"),
        ("name,x\na,1\nc,2\n", r"`id_column` 'id' is not a column. Its columns: 'name', 'x'"),
    ],
)
def test_bad_ids(write, content, message):
    with pytest.raises(TableError, match=message):
        read_table(write(content), "id")


def test_bad_choices(write, tmp_path):
    path = write("a,b\n1,2\n3,5\n")
    for arguments, message in [
        ({"features": ["z"]}, "`features` names 'z'"),
        ({"drop": ["z"]}, "`drop` names 'z'"),
        ({"drop": ["a"], "features": ["b"]}, "exclude each other"),
        ({"drop": ["a", "b"]}, "No column is left"),
    ]:
        with pytest.raises(TableError, match=message):
            read_table(path, **arguments)
    for wrong, message in [("none.csv", "is not there"), ("t.sav", "must end in one of"), (".", "must end in one of")]:
        with pytest.raises(TableError, match=message):
            read_table(tmp_path / wrong)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TableError, match="not a file"):
        read_table(tmp_path / "folder.csv")


# ---- any table


def test_a_row_without_values_keeps_its_place(write):
    table = read_table(write("x,y\n1,2\n,\n\nNA,-\n3,4\n\n\n"))
    assert table.ids == ("1", "2", "3", "4", "5")
    np.testing.assert_array_equal(table.X, [[1, 2], [np.nan] * 2, [np.nan] * 2, [np.nan] * 2, [3, 4]])
    assert "keep their place" in table.notes[-1]
    assert "'2', '3', '4'" in table.notes[-1]
    assert read_table(write("id,x\na,1\nb,\nc,3\n")).ids == ("a", "b", "c")


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1,234", "5", "1,000,000.5"], [1234, 5, 1000000.5]),
        (["1 234", "5", "1\u00a0000"], [1234, 5, 1000]),
        (["1,5", "2", "-,5"], None),
        (["1,5", "2", "0,25"], [1.5, 2, 0.25]),
        (["1.234,5", "2,5", "1.000"], None),
        (["1e3", "-", "2"], [1000, np.nan, 2]),
        (["?", ".", "2"], [np.nan, np.nan, 2]),
    ],
)
def test_numbers_however_written(write, cells, values):
    quoted = "".join(f'"{cell}"\n' for cell in cells)
    column = read_table(write(f"x\n{quoted}")).frame.columns[0]
    if values is None:
        assert column.type == "text" or column.notes
    else:
        assert column.type == "number"
        np.testing.assert_array_equal(column.values, values)


def test_commas_are_decimal_between_semicolons(write):
    table = read_table(write("x;y\n1,234;1.234,5\n2;0,5\n"))
    np.testing.assert_array_equal(table.X, [[1.234, 1234.5], [2, 0.5]])


@pytest.mark.parametrize("pair", [("yes", "no"), ("TRUE", "False"), ("y", "n"), ("Ja", "Nein")])
def test_truth_values(write, pair):
    column = read_table(write(f"x\n{pair[0]}\n{pair[1]}\n\n{pair[0]}\n")).frame.columns[0]
    assert column.type == "boolean"
    assert column.levels == (pair[1], pair[0])
    np.testing.assert_array_equal(column.values, [1, 0, np.nan, 1])


@pytest.mark.parametrize(
    ("cells", "days"),
    [
        (["1970-01-02", "2970-01-01", "NA"], [1, 365243, np.nan]),
        (["02.01.1970", "31.12.1969", ""], [1, -1, np.nan]),
        (["1/2/1970", "1/31/1970", ""], [1, 30, np.nan]),
        (["2/1/1970", "31/1/1970", ""], [1, 30, np.nan]),
        (["1970-01-01 12:00", "1970-01-01T18:00:00Z", ""], [0.5, 0.75, np.nan]),
    ],
)
def test_dates_of_any_year(write, cells, days):
    column = read_table(write("d,x\n" + "".join(f"{cell},1\n" for cell in cells))).frame.columns[0]
    assert column.type == "date"
    np.testing.assert_allclose(column.values, days)


def test_ambiguous_dates_are_told(write):
    column = read_table(write("d,x\n1/2/1970,1\n3/4/1970,2\n")).frame.columns[0]
    assert "month first" in column.notes[0]
    assert read_table(write("d,x\n2021-02-30,1\n2021-02-01,2\n2021-02-01,3\n")).frame.columns[0].type == "text"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_encodings(write, encoding):
    table = read_table(write("Größe,x\nhübsch,1\nhübsch,2\n".encode(encoding)))
    assert table.features == ("Größe", "x")
    assert table.frame.columns[0].levels == ("hübsch",)
    assert any("Latin-1" in note for note in table.notes) == (encoding == "latin-1")


@pytest.mark.parametrize(
    ("content", "ids", "features"),
    [
        ("who,x,y\nann,1,2\nbob,3,4\n", ("ann", "bob"), ("x", "y")),
        ("patient_id,x\n007,1\n012,3\n", ("007", "012"), ("x",)),
        ("x,studyID\n1,20\n3,10\n", ("20", "10"), ("x",)),
        ("x,year\n1,20\n3,10\n", ("1", "2"), ("x", "year")),
        ("kind,x\na,1\na,2\nb,3\n", ("1", "2", "3"), ("kind", "x")),
        ("id,x\n1,1\n1,2\n2,3\n", ("1", "2", "3"), ("id", "x")),
    ],
)
def test_names_of_rows_are_recognised(write, content, ids, features):
    table = read_table(write(content))
    assert table.ids == ids
    assert table.features == features


def test_other_formats(tmp_path):
    pandas = pytest.importorskip("pandas")
    data = pandas.DataFrame(
        {
            "x": [1.5, None, 3.0],
            "kind": pandas.Categorical(["b", "a", None], categories=["a", "b"], ordered=True),
            "when": pandas.to_datetime(["2020-01-01", "2020-01-02", None]),
            "ok": [True, False, None],
        }
    )
    data.to_feather(tmp_path / "t.feather")
    data.to_parquet(tmp_path / "t.parquet")
    data.to_excel(tmp_path / "t.xlsx", index=False)
    for name in ("t.feather", "t.parquet", "t.xlsx"):
        table = read_table(tmp_path / name)
        assert [column.type for column in table.frame.columns][2:] == ["date", "boolean"]
        assert table.frame.columns[1].levels == ("a", "b")
        assert (table.frame.columns[1].type == "ordered") == (name != "t.xlsx")
        np.testing.assert_array_equal(table.X[:, 1], [1, 0, np.nan])
        np.testing.assert_array_equal(table.X[:, 2], [18262, 18263, np.nan])
    (tmp_path / "t.xlsx").write_bytes(b"PK no")
    with pytest.raises(TableError, match="not a readable Excel file"):
        read_table(tmp_path / "t.xlsx")
