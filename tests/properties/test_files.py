"""Tables from files and the settings of a study: any content."""

import contextlib
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coaltree.reading import TableError, read_table
from tests.properties.strategies import COUNT, is_finite, tables, texts

cells = st.one_of(
    st.floats().map(repr), st.integers().map(str), texts, st.sampled_from(["NA", "1,5", "1e400", "٣", '"'])
)


def read(name, content, **options):
    COUNT[0] += 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            table = read_table(path, **options)
        except TableError:
            return None
    assert table.X.shape == (len(table.ids), len(table.features))
    assert len(table.X) >= 2
    assert len(set(table.ids)) == len(table.ids)
    assert not np.isinf(table.X).any()
    return table


@given(
    st.lists(st.lists(cells, max_size=4), max_size=5),
    st.sampled_from([",", "\t", ";", "|"]),
    st.sampled_from(["table.csv", "table.tsv", "table.txt", "table.xls"]),
    st.sampled_from([None, True, False]),
    st.booleans(),
)
def test_text(rows, mark, name, header, drop):
    read(
        name, "\n".join(mark.join(row) for row in rows).encode(errors="surrogatepass"), header=header, drop_missing=drop
    )


@given(st.binary(max_size=40), st.sampled_from(["t.csv", "t.npy", "t.parquet"]))
def test_bytes(content, name):
    read(name, content)


@given(tables(st.integers(2, 5), st.integers(1, 3)))
def test_numbers_come_back(X):
    array = np.asarray(X, dtype=np.float64)
    if array.ndim != 2:
        return
    text = "\n".join(",".join(map(repr, row)) for row in array.tolist())
    table = read("table.csv", text.encode(), header=False)
    if table is not None:
        np.testing.assert_array_equal(table.X, array)
        assert is_finite(table.X[~np.isnan(table.X)])


values = st.recursive(
    st.one_of(
        st.integers().map(str), st.floats().map(repr), st.booleans().map(lambda b: str(b).lower()), texts.map(repr)
    ),
    lambda inner: st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    max_leaves=4,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["data", "cohort", "outcomes", "features", "model", "validation", "cost", "seed", "title", "other"]
        ),
        st.one_of(
            st.dictionaries(
                st.sampled_from(
                    ["path", "source", "thresholds", "n_iter", "level", "n_folds", "horizon_days", "death", "x"]
                ),
                values,
                max_size=3,
            ),
            values,
        ),
        max_size=4,
    )
)
def test_settings_of_a_study(content):
    pytest.importorskip("ibis")
    from coaltree.records.config import load_config
    from coaltree.records.errors import RecordsError

    plain = [f"{key} = {value}" for key, value in content.items() if isinstance(value, str)]
    for key, value in content.items():
        if not isinstance(value, str):
            plain += [f"[{key}]", *(f"{name} = {each}" for name, each in value.items())]
    COUNT[0] += 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.toml"
        path.write_bytes("\n".join(plain).encode(errors="surrogatepass"))
        with contextlib.suppress(RecordsError):
            assert load_config(path).seed >= 0
