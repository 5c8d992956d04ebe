"""What is fuzzed: a corpus of valid files, a reader, and the errors that it may raise."""

import functools
import hashlib
import io
import json
import math
import random
import tempfile
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import coaltree as ct
from coaltree import formats, storage
from coaltree.errors import CoaltreeError
from tests.fuzz.mutate import NUMBERS, SNIPPETS, mutate, rezip, unzip

Ours = tuple[type[BaseException], ...]


@dataclass(frozen=True)
class Reader:
    """`corpus()` gives valid files, `make(rng, corpus)` an input, `read(data)` a valid result or one of `errors`."""

    corpus: Callable[[], list[bytes]]
    make: Callable[[random.Random, list[bytes]], bytes]
    read: Callable[[bytes], Any]
    errors: Ours


def _plainly(words: str) -> Callable[[random.Random, list[bytes]], bytes]:
    return lambda rng, corpus: mutate(rng, corpus, [*SNIPPETS[words], *NUMBERS[:4]])


# ---- trees as text


def _trees() -> list[ct.Tree]:
    named = ct.sample_tree(5, random_state=1, names=["a", "it's", "b c", "(d)", "é"])
    return [named, ct.sample_tree(2, random_state=2), ct.sample_tree(12, random_state=3)]


def _newick_corpus() -> list[bytes]:
    texts = [tree.to_newick() for tree in _trees()]
    texts += [_trees()[0].to_newick(support=[0.5, 1.0, 0.25, 1.0], digits=8), "(a:1,b:1)x[&c]:0;", "((a:0,b:0):1,c:1);"]
    return [text.encode() for text in texts]


def _as_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape" if len(data) % 2 else "replace")


def check_tree(tree: ct.Tree) -> None:
    """A tree that was read is one that can be written and read again."""
    assert tree.n_leaves >= 2
    assert np.isfinite(tree.times).all()
    again = ct.Tree.from_newick(tree.to_newick(), tree.names, tolerance=1e-3)
    assert again.names == tree.names
    np.testing.assert_allclose(again.times, tree.times, rtol=1e-6, atol=1e-300)


def _read_newick(data: bytes) -> None:
    tree, support = formats.newick_with_support(_as_text(data))
    assert support.shape == tree.times.shape
    check_tree(tree)


def _nexus_corpus() -> list[bytes]:
    trees = _trees()
    texts = [formats.to_nexus([trees[0]] * 2, weights=[0.25, 0.75]), formats.to_nexus(trees[2]), trees[1].to_nexus()]
    texts.append("#NEXUS\nbegin trees;\n tree x = [&W 1/3] (a:1,b:1);\nend;\n")
    return [text.encode() for text in texts]


def _read_nexus(data: bytes) -> None:
    trees, weights = formats.nexus_with_weights(_as_text(data))
    assert weights.shape == (len(trees),)
    assert (weights >= 0).all()
    assert np.isfinite(weights).all()
    for tree in trees:
        check_tree(tree)


# ---- tables


_FOLDER = Path(tempfile.mkdtemp(prefix="coaltree-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))


def _file(name: str, data: bytes) -> Path:
    path = _FOLDER / name
    path.write_bytes(data)
    return path


def _csv_corpus() -> list[bytes]:
    return [
        b"name,x,y\na,1,2\nb,3,4.5\nc,-1e3,0\n",
        b"1,2\n3,4\n5,6\n",
        b'"";x;y\n"r;1";1,5;2\nr2;2,5;NA\nr3;3;4\n',
        "\ufeffx\ty\r\n1\t2\r\n3\t\r\n".encode(),
        b"a,b\n,1\nnan,2\n3,3\n",
    ]


def _check_table(path: Path, header: bool | None = None, drop_missing: bool = False) -> None:
    from coaltree.reading import read_table

    table = read_table(path, header=header, drop_missing=drop_missing)
    assert table.X.shape == (len(table.ids), len(table.features))
    assert len(table.X) >= 2
    assert not np.isinf(table.X).any()


def _read_csv(data: bytes) -> None:
    options = zlib.crc32(data)  # they vary with the input
    suffix = (".csv", ".csv", ".tsv", ".txt")[options & 3]
    _check_table(_file(f"table{suffix}", data), (None, None, True, False)[options >> 2 & 3], bool(options >> 4 & 1))


def _npy_corpus() -> list[bytes]:
    found = []
    for array in (np.arange(6.0).reshape(3, 2), np.array([[1, 2], [3, 5]], np.int8), np.ones((2, 2), np.float16)):
        stream = io.BytesIO()
        np.save(stream, array)
        found.append(stream.getvalue())
    return found


def _parquet_corpus() -> list[bytes]:
    import pyarrow as pa
    from pyarrow import parquet

    found = []
    for columns in (
        {"x": [1.0, None, 3.0], "y": [1, 2, 3]},
        {"name": ["a", "b"], "x": [1, 2], "__index_level_0__": ["p", "q"]},
    ):
        stream = io.BytesIO()
        parquet.write_table(pa.table(columns), stream)
        found.append(stream.getvalue())
    return found


def _table_errors() -> Ours:
    from coaltree.errors import TableError

    return (TableError,)


# ---- files of results


def _posterior() -> ct.TreePosterior:
    X = ct.sample_data(ct.sample_tree(4, random_state=1), 2, random_state=2)
    return ct.sample_posterior(X, n_particles=3, names=["a", "b", "c", "d"])


def _saved(save: Callable[[Path], Any]) -> bytes:
    path = _FOLDER / "saved.npz"
    save(path)
    data = path.read_bytes()
    path.unlink()
    return data


def _posterior_corpus() -> list[bytes]:
    return [_saved(_posterior().save)]


def _clustering() -> ct.CoalescentClustering:
    X = ct.sample_data(ct.sample_tree(5, random_state=1), 2, random_state=2)
    return ct.CoalescentClustering(n_draws=4, warmup=1, random_state=0).fit(X)


@functools.lru_cache(maxsize=256)
def _decoded(content: bytes) -> Any:
    return np.load(io.BytesIO(content))


def _sealed(members: dict[str, bytes]) -> dict[str, bytes]:
    """The same members with the checksum that belongs to them, if they are arrays at all."""
    try:
        arrays = {name.removesuffix(".npy"): _decoded(content) for name, content in members.items()}
        arrays.pop("sha256", None)
        digest = np.frombuffer(storage._digest(arrays).encode(), dtype=np.uint8)
    except Exception:
        return members
    stream = io.BytesIO()
    np.save(stream, digest)
    return {**members, "sha256.npy": stream.getvalue()}


def _make_archive(rng: random.Random, corpus: list[bytes], forged: bool = True) -> bytes:
    """A mutated archive: its bytes, or the bytes, shapes or values of its members, with right checksums if `forged`."""
    kind = rng.random()
    if kind < 0.3:
        return mutate(rng, corpus, SNIPPETS["bytes"])
    members = dict(unzip(rng.choice(corpus)))
    name = rng.choice(list(members))
    if kind < 0.4:
        del members[name]
    elif kind < 0.5:
        members[name] = members[rng.choice(list(members))]
    elif kind < 0.75:
        members[name] = mutate(rng, [members[name]], SNIPPETS["bytes"])
    else:
        members[name] = _npy(_other_values(rng, _decoded(members[name]), name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rezip(_sealed(members) if forged and rng.random() < 0.8 else members)


def _make_damaged(rng: random.Random, corpus: list[bytes]) -> bytes:
    """A checkpoint is told by its checksum to be as it was written: what can befall it is damage, not forgery."""
    return _make_archive(rng, corpus, forged=False)


def _other_values(rng: random.Random, array: Any, name: str) -> Any:
    if name in ("header.npy", "sha256.npy"):
        words = [*SNIPPETS["toml"], b"NaN", b"Infinity", b"null", b'"', b"{}", b"[]"]
        return np.frombuffer(mutate(rng, [array.tobytes()], words), dtype=np.uint8)
    array = array.copy()
    choice = rng.randrange(7)
    if choice == 0 and array.size:
        # −1 of an unsigned type is its largest number.
        array.flat[rng.randrange(array.size)] = np.array(rng.choice((0, -1, 1, 127))).astype(array.dtype)
    elif choice == 1 and array.size and array.dtype.kind == "f":
        array.flat[rng.randrange(array.size)] = rng.choice((math.nan, math.inf, -math.inf, 1e300, -0.0, 5e-324))
    elif choice == 2:
        array = array.reshape(array.shape[::-1])
    elif choice == 3:
        array = array[: rng.randrange(len(array) + 1)] if array.ndim else array[None]
    elif choice == 4:
        array = array.astype(rng.choice(("f4", "f2", "i1", "u8", "U4", "c16", "?", ">f8")), casting="unsafe")
    elif choice == 5:
        array = np.zeros(rng.choice([(0,), (0, 0), (3, 0), (1,), ()]), dtype=array.dtype)
    else:
        array = np.asfortranarray(array)
    return array


def _npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _read_posterior(data: bytes) -> None:
    post = ct.TreePosterior.load(_file("posterior.npz", data))
    assert abs(post.weights.sum() - 1) < 1e-9
    assert np.isfinite(post.cophenetic()).all()
    assert post.mcc_tree().n_leaves == post.n_leaves


def _read_clustering(data: bytes) -> None:
    model = ct.CoalescentClustering.load(_file("clustering.npz", data))
    assert model.tree_.n_leaves == len(model.labels_)
    assert model.n_clusters_ >= 1


_DATA = np.random.default_rng(0).normal(size=(5, 2))


def _learn(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # two draws do not tell whether they converge
        return ct.learn_posterior(_DATA, n_draws=2, warmup=0, thin=1, checkpoint=path)


def _regress(path: Path) -> Any:
    from coaltree.regression.fit import fit_regression

    X = np.linspace(-1, 1, 12)[:, None] ** [1, 2]
    Y = np.array([[i % 2, i % 3 == 0] for i in range(12)], dtype=float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # nor does one
        return fit_regression(X, Y, n_iter=2, burn_in=1, n_chains=1, random_state=0, checkpoint=path)


# ---- settings of a study


def _config_corpus() -> list[bytes]:
    from coaltree.records.simulate import _STUDY

    return [_STUDY.format(n_factors=4).encode()]


def _read_config(data: bytes) -> None:
    from coaltree.records.config import load_config

    assert json.dumps(load_config(_file("study.toml", data)).seed).isdigit()


_ARCHIVE_ERRORS: Ours = (ValueError,)

READERS: dict[str, Reader] = {
    "newick": Reader(_newick_corpus, _plainly("newick"), _read_newick, (ValueError,)),
    "nexus": Reader(_nexus_corpus, _plainly("nexus"), _read_nexus, (ValueError,)),
    "csv": Reader(_csv_corpus, _plainly("table"), _read_csv, _table_errors()),
    "npy": Reader(_npy_corpus, _plainly("bytes"), lambda data: _check_table(_file("table.npy", data)), _table_errors()),
    "parquet": Reader(
        _parquet_corpus, _plainly("bytes"), lambda data: _check_table(_file("table.parquet", data)), _table_errors()
    ),
    "posterior": Reader(_posterior_corpus, _make_archive, _read_posterior, _ARCHIVE_ERRORS),
    "clustering": Reader(lambda: [_saved(_clustering().save)], _make_archive, _read_clustering, _ARCHIVE_ERRORS),
    "learner": Reader(
        lambda: [_saved(_learn)], _make_damaged, lambda data: _learn(_file("learner.npz", data)), _ARCHIVE_ERRORS
    ),
    "probit": Reader(
        lambda: [_saved(_regress)], _make_damaged, lambda data: _regress(_file("probit.npz", data)), _ARCHIVE_ERRORS
    ),
    "config": Reader(_config_corpus, _plainly("toml"), _read_config, (ValueError,)),
}  # fmt: skip


# ---- files with a right checksum


def _named(load: Callable[[Path], Any], path: Path) -> Any:
    """Load a file; an error names it."""
    try:
        return load(path)
    except CoaltreeError as error:
        if path.name not in str(error):
            raise RuntimeError(f"an error that does not name {path.name}: {error}") from error
        raise


def _use_posterior(data: bytes) -> None:
    post = _named(ct.TreePosterior.load, _file("posterior.npz", data))
    post.cophenetic()
    post.expected_overlap(post.point_tree())


def _use_clustering(data: bytes) -> None:
    model = _named(ct.CoalescentClustering.load, _file("clustering.npz", data))
    model.predict(model.completed_[:2])
    model.score_samples(model.completed_[:2])
    assert model.convergence_ is None or model.convergence_.verdict


_ROWS = np.linspace(-1, 1, 40)[:, None] ** [1, 2]


def _probit(features: str) -> ct.CoalescentProbit:
    Y = np.array([[i % 2, i % 3 == 0] for i in range(40)], dtype=float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return ct.CoalescentProbit(n_iter=6, burn_in=3, n_chains=1, random_state=0, features=features).fit(_ROWS, Y)


def _stacked() -> ct.CoalescentProbit:
    model = _probit("auto")
    model.stack_.densities["stack"] += 1e3  # it shall be used
    return model


def _use_regression(data: bytes) -> None:
    model = _named(ct.CoalescentProbit.load, _file("regression.npz", data))
    model.predict_proba(_ROWS)
    repr(model.fit_)


def _counts() -> Any:
    from scipy import sparse

    from coaltree.records.features import Counts

    table = sparse.csr_matrix(np.random.default_rng(0).poisson(1.0, (30, 4)).astype(float))
    return Counts(table, ("ICD9//250", "ICD9//401", "ICD9//410", "ICD9//428"))


def _study_model() -> Any:
    from coaltree.records.bundle import TravellingModel
    from coaltree.records.cohort import CohortRule
    from coaltree.records.config import FeatureConfig
    from coaltree.records.factors import CodeFactors
    from coaltree.records.outcomes import OutcomeSet, read_definition

    factors = CodeFactors(2, 1)
    factors.fit_transform(_counts())
    outcomes = tuple(read_definition(key, {"name": key, "icd9": [code]}, key) for key, code in (("a", "1"), ("b", "2")))
    rng = np.random.default_rng(1)
    arrays = {"coef": rng.normal(size=(2, 2)), "intercept": rng.normal(size=2), "support": np.ones(1)}
    arrays |= {"coef_draws": rng.normal(size=(3, 2, 2)), "intercept_draws": rng.normal(size=(3, 2))}
    arrays |= {"children": np.array([[0, 1]]), "times": np.ones(1)}
    training = {"dataset": "x", "threshold": "2009-01-01", "subjects": 30, "events": {"a": 10, "b": 10}}
    info = {"title": "x", "versions": {"coaltree": "1"}, "training": training, "inclusion_used": False}
    info |= {"censoring": "drop", "seed": 0, "names": {}, "regressors": ["f", "g"], "chains": {}, "family": "probit"}
    return TravellingModel(OutcomeSet(outcomes), CohortRule(), FeatureConfig(), None, factors, arrays, info)


def _use_study_model(data: bytes) -> None:
    from coaltree.records.bundle import TravellingModel
    from coaltree.report.records import model_card

    model = _named(TravellingModel.load, _file("model.npz", data))
    model.predict(_counts())
    model_card(model)


_OURS: Ours = (CoaltreeError,)

STORED: dict[str, Reader] = {
    name: Reader(corpus, _make_archive, use, _OURS)
    for name, corpus, use in (
        ("posterior", _posterior_corpus, _use_posterior),
        ("clustering", lambda: [_saved(_clustering().save)], _use_clustering),
        ("regression", lambda: [_saved(_probit("linear").save)], _use_regression),
        ("stack", lambda: [_saved(_stacked().save)], _use_regression),
        ("study model", lambda: [_saved(_study_model().save)], _use_study_model),
        ("learner", lambda: [_saved(_learn)], lambda data: _named(_learn, _file("learner.npz", data))),
        ("probit", lambda: [_saved(_regress)], lambda data: _named(_regress, _file("probit.npz", data))),
    )
}


def seeded(reader: str, seed: int, number: int) -> random.Random:
    """The generator of one input."""
    return random.Random(int.from_bytes(hashlib.blake2b(f"{reader} {seed} {number}".encode(), digest_size=8).digest()))
