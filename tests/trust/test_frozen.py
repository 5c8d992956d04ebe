"""Files that an earlier version wrote: they must load, for ever, and give the numbers that they gave then.

`python -m tests.trust.test_frozen FOLDER` writes such files with the present version; a new format version gets new
files beside the old ones, which stay.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import coaltree as ct
from coaltree import storage
from coaltree.inference.learning.checkpoint import KIND as LEARNER
from coaltree.regression.running import KIND as PROBIT
from tests.fuzz.mutate import rezip, unzip

DATA = Path(__file__).parents[1] / "data"
KINDS = {
    "posterior-1.npz": storage.POSTERIOR,
    "clustering-1.npz": "coaltree.CoalescentClustering",
    "learner-1.npz": LEARNER,
    "probit-1.npz": PROBIT,
}


def read(name, path):
    """Read a file by the public way, or by the archive's for checkpoints, whose data are those of a test."""
    if name.startswith("posterior"):
        return ct.TreePosterior.load(path)
    if name.startswith("clustering"):
        return ct.CoalescentClustering.load(path)
    return storage.read(path, KINDS[name])


def test_posterior():
    post = ct.TreePosterior.load(DATA / "posterior-1.npz")
    assert (post.n_leaves, len(post), post.names) == (5, 4, ("a", "it's", "<b>", "ü", "e e"))
    expected = json.loads((DATA / "expected-1.json").read_text(encoding="utf-8"))["posterior"]
    assert post.log_evidence == pytest.approx(expected["log_evidence"], rel=1e-14)
    np.testing.assert_allclose(post.weights, expected["weights"], rtol=1e-14)
    np.testing.assert_allclose(post.cophenetic()[0], expected["cophenetic"], rtol=1e-12)
    assert post.mcc_tree().to_newick(digits=6) == expected["newick"]
    assert post.info["method"] == "tpost"


def test_clustering():
    model = ct.CoalescentClustering.load(DATA / "clustering-1.npz")
    expected = json.loads((DATA / "expected-1.json").read_text(encoding="utf-8"))["clustering"]
    assert model.labels_.tolist() == expected["labels"]
    assert (model.n_draws, model.warmup, model.n_clusters) == (3, 1, 2)  # former names in the file
    np.testing.assert_allclose(model.covariance_, expected["covariance"], rtol=1e-12)
    np.testing.assert_allclose(model.score_samples(np.array(expected["rows"])), expected["scores"], rtol=1e-6)


@pytest.mark.parametrize("name", ["learner-1.npz", "probit-1.npz"])
def test_checkpoints(name):
    parts = storage.read(DATA / name, KINDS[name])
    expected = json.loads((DATA / "expected-1.json").read_text(encoding="utf-8"))[name]
    assert sorted(parts) == sorted(expected)
    for part, total in expected.items():
        if total is not None:
            assert float(np.sum(parts[part])) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_damage_is_noticed(name, tmp_path):
    """Every byte of the contents counts: a flipped one is an error that names the file, never another result."""
    data = (DATA / name).read_bytes()
    path = tmp_path / name
    rng = np.random.default_rng(0)
    truth = storage.read(DATA / name, KINDS[name])
    for place in rng.integers(0, len(data), 60):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        try:
            found = storage.read(path, KINDS[name])
        except ValueError as error:
            message = str(error)
        else:  # bytes that zip itself does not read, such as dates
            message = name
            assert sorted(found) == sorted(truth)
            assert all(np.array_equal(found[key], truth[key]) for key in truth if isinstance(truth[key], np.ndarray))
        assert name in message
    for length in (0, 10, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match="damaged"):
            read(name, path)


@pytest.mark.parametrize("name", KINDS)
def test_a_newer_version_is_refused(name, tmp_path):
    members = dict(unzip((DATA / name).read_bytes()))
    old, new = b'"format_version": 1', b'"format_version": 9'
    assert old in members["header.npy"]
    members["header.npy"] = members["header.npy"].replace(old, new)
    (tmp_path / name).write_bytes(rezip(members))
    with pytest.raises(ValueError, match="format version 9 and this coaltree reads up to 1: upgrade"):
        read(name, tmp_path / name)


@pytest.mark.parametrize("name", KINDS)
def test_one_kind_is_not_taken_for_another(name):
    other = next(kind for kind in KINDS.values() if kind != KINDS[name])
    with pytest.raises(ValueError, match=r"it holds 'coaltree\."):
        storage.read(DATA / name, other)


def write(folder):
    """Write the files of the present version, and what they hold."""
    from tests.fuzz.readers import _learn, _regress

    names = ["a", "it's", "<b>", "ü", "e e"]
    X = ct.sample_data(ct.sample_tree(5, random_state=1), 2, random_state=2)
    post = ct.sample_posterior(X, n_particles=4, method="tpost", names=names)
    post.save(folder / "posterior-1.npz")
    model = ct.CoalescentClustering(2, n_draws=3, warmup=1, random_state=0).fit(10 * X)
    model.save(folder / "clustering-1.npz")
    for name, run in (("learner-1.npz", _learn), ("probit-1.npz", _regress)):
        (folder / name).unlink(missing_ok=True)
        run(folder / name)
    expected = {
        "posterior": {
            "log_evidence": post.log_evidence,
            "weights": post.weights.tolist(),
            "cophenetic": post.cophenetic()[0].tolist(),
            "newick": post.mcc_tree().to_newick(digits=6),
        },
        "clustering": {
            "labels": model.labels_.tolist(),
            "covariance": model.covariance_.tolist(),
            "rows": X[:2].tolist(),
            "scores": model.score_samples(X[:2]).tolist(),
        },
    }
    for name in ("learner-1.npz", "probit-1.npz"):
        parts = storage.read(folder / name, KINDS[name])
        expected[name] = {
            key: float(np.sum(part)) if isinstance(part, np.ndarray) and np.isfinite(part).all() else None
            for key, part in parts.items()
        }
    (folder / "expected-1.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
