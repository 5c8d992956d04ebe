"""Inputs that once got past a reader, each kept as a test of its own."""

import io
import zipfile

import numpy as np
import pytest

import coaltree as ct
from coaltree import formats, storage
from coaltree.reading import TableError, read_table


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def test_a_weight_that_overflows_is_refused():
    text = "#NEXUS\nBEGIN TREES;\nTREE x = [&W 1e300/1e-300] (a:1,b:1);\nEND;"
    with pytest.raises(ValueError, match="weight must be finite"):
        formats.from_nexus(text)


@pytest.mark.parametrize("content", ['""\n', ",,\n,,\n", '"",""\n" "\n'])
def test_a_table_of_empty_cells(tmp_path, content):
    path = tmp_path / "table.csv"
    path.write_text(content)
    with pytest.raises(TableError, match="empty cells only"):
        read_table(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no header"),
        (npy(np.ones(3)).replace(b"(3,)", b"(3, "), "no header"),
        (npy(np.ones(3)).replace(b"(3,)", b"(3L,)"), "no header"),
        (npy(np.ones(3)).replace(b"(3,), }", b"(9999999999999,), }"[:7]), "no header"),
        (npy(np.ones(3))[:-1], "23 bytes"),
        (npy(np.array([{}], dtype=object)), "Python objects"),
    ],
)
def test_headers_of_arrays(data, message):
    with pytest.raises(ValueError, match=message):
        storage.decode(io.BytesIO(data), len(data))


def test_a_shape_is_not_taken_at_its_word():
    """`np.load` would ask for eight terabytes."""
    whole = npy(np.ones(3))
    claimed = whole.replace(b"'shape': (3,), }              ", b"'shape': (1000000000000,), }  ")
    assert claimed != whole
    with pytest.raises(ValueError, match="24 bytes and its shape"):
        storage.decode(io.BytesIO(claimed), len(claimed))


@pytest.mark.parametrize(
    "array", [np.zeros((0, 3)), np.asfortranarray(np.arange(6).reshape(2, 3)), np.array(1.5, ">f4")]
)
def test_arrays_come_back(array):
    data = npy(array)
    found = storage.decode(io.BytesIO(data), len(data))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    assert found.flags.writeable


def test_complex_times_are_refused():
    with pytest.raises(ValueError, match="times must hold real numbers"):
        ct.TreePosterior(
            children=[[[0, 1]]], times=[[1j]], weights=[1.0], log_evidence=0.0, log_joint=[0.0], ess_per_step=[1.0]
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"log_evidence": "high"}, "log_evidence must be"),
        ({"log_evidence": [1.0]}, "log_evidence must be one number"),
        ({"names": 3}, "names must be a sequence"),
        ({"times": [[1.0], [1.0, 2.0]]}, "times must be an array"),
    ],
)
def test_parts_of_a_posterior_name_themselves(change, message):
    parts = {"children": [[[0, 1]]], "times": [[1.0]], "weights": [1.0], "log_joint": [0.0], "ess_per_step": [1.0]}
    with pytest.raises((TypeError, ValueError), match=message):
        ct.TreePosterior(**{**parts, "log_evidence": 0.0, **change})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    X = ct.sample_data(ct.sample_tree(5, random_state=1), 2, random_state=2)
    path = tmp_path_factory.mktemp("models") / "model.npz"
    ct.CoalescentClustering(n_draws=4, warmup=1, random_state=0).fit(X).save(path)
    return path


def test_an_archive_that_points_outside_itself(saved, tmp_path):
    data = saved.read_bytes()
    end = data.rindex(b"PK\x05\x06")
    path = tmp_path / "model.npz"
    path.write_bytes(data[: end + 16] + b"\xff\xff\xff\x7f" + data[end + 20 :])  # where the directory begins
    with pytest.raises(ValueError, match="is not a readable"):
        ct.CoalescentClustering.load(path)


def test_an_archive_that_claims_more_than_there_is(saved, tmp_path, monkeypatch):
    monkeypatch.setattr("coaltree.storage.available_memory", lambda: 100)
    with pytest.raises(ValueError, match="reading its arrays takes"):
        ct.CoalescentClustering.load(saved)


@pytest.mark.parametrize("name", ["completed_", "labels_", "tree/times", "draws/times"])
def test_parts_that_are_missing_or_do_not_belong(saved, tmp_path, name):
    from tests.fuzz.mutate import rezip
    from tests.fuzz.readers import _sealed

    with zipfile.ZipFile(saved) as archive:
        members = {part.filename: archive.read(part) for part in archive.infolist()}
    path = tmp_path / "model.npz"
    for content in (None, npy(np.array([9, 0, 9])), npy(np.array([1j, 2.0, 3.0, 4.0, 5.0]))):
        changed = {key: value for key, value in members.items() if key != f"{name}.npy"}
        if content is not None:
            changed[f"{name}.npy"] = content
        path.write_bytes(rezip(_sealed(changed)))
        with pytest.raises(ValueError, match="does not hold a valid clustering"):
            ct.CoalescentClustering.load(path)
