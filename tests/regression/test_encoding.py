"""Tables with text, levels, booleans and gaps: learned once, the same ever after, refused by name."""

import json

import numpy as np
import pandas as pd
import pytest

from coaltree.frame import as_frame
from coaltree.regression.encoding import Encoding, as_outcomes, columns_of, needs_encoding


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "age": [1, 2, np.nan, 4, 5, 6],
            "sex": ["m", "f", "f", "m", "f", "f"],
            "ward": pd.Categorical(["a", "b", None, "a", "c", "a"]),
            "grade": pd.Categorical([1, 2, 2, 1, 3, 2]),
            "smoker": [True, False, True, True, False, False],
            "count": pd.array([1, None, 2, 3, 4, 5], dtype="Int64"),
            "digits": ["1", "2", " 3 ", "4", "NA", "6"],
        }
    )


def test_columns_and_values(frame):
    encoding = Encoding.learn(columns_of(frame))
    assert encoding.names == (
        *("age", "age (missing)", "sex = m", "ward = b", "ward = c", "ward = (missing)", "grade = 1", "grade = 3"),
        *("smoker = True", "count", "count (missing)", "digits", "digits (missing)"),
    )
    table = dict(zip(encoding.names, encoding.encode(columns_of(frame)).T, strict=True))
    np.testing.assert_array_equal(table["age"], [1, 2, 4, 4, 5, 6])
    np.testing.assert_array_equal(table["age (missing)"], [0, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal(table["sex = m"], [1, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(table["ward = (missing)"], [0, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal(table["grade = 3"], [0, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(table["smoker = True"], [1, 0, 1, 1, 0, 0])
    np.testing.assert_array_equal(table["count"], [1, 3, 2, 3, 4, 5])
    np.testing.assert_array_equal(table["digits"], [1, 2, 3, 4, 3, 6])
    assert Encoding.from_json(json.loads(json.dumps(encoding.as_json()))) == encoding
    assert [row["column"] for row in encoding.needs()] == list(frame.columns)


def test_new_rows_are_encoded_as_the_old_ones(frame):
    encoding = Encoding.learn(columns_of(frame))
    whole = encoding.encode(columns_of(frame))
    for order in (frame.columns[::-1], [*frame.columns, "more"]):
        other = frame.assign(more=1)[list(order)]
        np.testing.assert_array_equal(encoding.encode(columns_of(other)), whole)
    np.testing.assert_array_equal(encoding.encode(columns_of(frame.iloc[[4]])), whole[[4]])
    empty = encoding.encode(columns_of(frame.assign(ward=None, sex=None, age=np.nan).iloc[:1]))
    assert dict(zip(encoding.names, empty[0], strict=True))["ward = (missing)"] == 1
    assert dict(zip(encoding.names, empty[0], strict=True))["sex = m"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns=["sex", "age"]), "X lacks the columns 'age', 'sex'"),
        (lambda t: t.assign(ward="z"), "'ward' holds 'z', which the model has not seen: it knows 'a', 'b', 'c'"),
        (lambda t: t.assign(age="old"), "'age' held numbers when the model was fitted, and holds 'old' now"),
        (lambda t: t.assign(age=np.inf), "'age' holds infinite"),
    ],
)
def test_what_does_not_fit_is_refused(frame, change, message):
    encoding = Encoding.learn(columns_of(frame))
    with pytest.raises(ValueError, match=message):
        encoding.encode(columns_of(change(frame)))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [np.inf, 1.0]}, "'a' holds infinite"),
        ({"a": [np.nan, None]}, "'a' holds no value at all"),
        ({"id": [f"p{i}" for i in range(9)]}, "'id' holds text of 9 levels in 9 rows"),
    ],
)
def test_what_cannot_be_learned_is_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        Encoding.learn(columns_of(pd.DataFrame(columns)))


def test_plain_numbers_need_nothing(frame):
    assert needs_encoding(frame)
    assert needs_encoding(frame[["grade"]])
    assert not needs_encoding(pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}))
    assert not needs_encoding(np.ones((2, 2)))


def test_cells_are_read_as_for_clustering():
    """What is a number, a date or missing is one question with one answer, in Python and in the command."""
    table = pd.DataFrame(
        {
            "paid": ["1,5", "2,25", "?", "3,0"],
            "seen": ["2020-01-01", "2020-01-03", "-", "2020-01-02"],
            "when": pd.to_datetime(["2020-01-01", None, "2020-01-03", "2020-01-02"]),
        }
    )
    encoded = Encoding.learn(columns_of(table)).encode(columns_of(table))
    np.testing.assert_allclose(encoded[:, 0], [1.5, 2.25, 2.25, 3.0])
    np.testing.assert_array_equal(encoded[:, 1], [0, 0, 1, 0])
    np.testing.assert_array_equal(encoded[:, 2] - encoded[0, 2], [0, 2, 1, 1])
    np.testing.assert_array_equal(encoded[:, 4] - encoded[0, 4], [0, 1, 2, 1])
    columns, frame = columns_of(table), columns_of(as_frame(table))
    assert all(np.array_equal(columns[name], frame[name], equal_nan=True) for name in table)


def test_outcomes_in_words():
    Y, names = as_outcomes(
        pd.DataFrame(
            {
                "a": ["yes", "No", None, "y"],
                "b": [True, False, True, False],
                "c": [0, 1, np.nan, 1],
                "d": pd.array([1, None, 0, 1], dtype="Int64"),
                "e": pd.array([True, None, False, True], dtype="boolean"),
            }
        )
    )
    assert names == ("a", "b", "c", "d", "e")
    nan = np.nan
    expected = [[1, 0, nan, 1], [1, 0, 1, 0], [0, 1, nan, 1], [1, nan, 0, 1], [1, nan, 0, 1]]
    np.testing.assert_array_equal(Y.T, expected)
    for values, message in (([0, 1, 2, 5], "outcome o holds 2, 5.*counts"), (["maybe", "no", "yes", "no"], "'maybe'")):
        with pytest.raises(ValueError, match=message):
            as_outcomes(pd.DataFrame({"o": values}))
