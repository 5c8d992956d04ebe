import copy
import doctest
import json
import pickle
import tracemalloc
import zipfile
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import coaltree.posterior.ensemble
from coaltree import Tree, TreePosterior, storage
from coaltree.model.covariance import Spherical
from tests.reference import posteriors as reference
from tests.reference.posteriors import make_posterior, noisy_posterior, unrelated_posterior
from tests.reference.trees import caterpillar, random_tree
from tests.seeds import seed

ARRAYS = ("children", "times", "weights", "log_joint", "ess_per_step")
NAMES = tuple("abcdefghij")


@pytest.fixture
def posterior():
    return noisy_posterior(np.random.default_rng(0), names=NAMES)


def assert_same(first, second):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
        assert getattr(first, name).dtype == getattr(second, name).dtype
    assert first.log_evidence == second.log_evidence
    assert (first.names, first.info) == (second.names, second.info)


# ---- the trees


def test_docstring():
    assert doctest.testmod(coaltree.posterior.ensemble).failed == 0


def test_basics(posterior):
    assert len(posterior) == 40
    assert posterior.n_leaves == 10
    assert posterior.ess == pytest.approx(1 / np.sum(posterior.weights**2))
    assert 1 < posterior.ess < 40
    tree = posterior[3]
    assert isinstance(tree, Tree)
    assert tree == Tree(posterior.children[3], posterior.times[3], NAMES)
    assert posterior[-1] == posterior[39]
    assert posterior[np.int64(2)] == posterior[2]
    assert [tree.times[-1] for tree in posterior] == posterior.times[:, -1].tolist()
    assert repr(posterior) == f"TreePosterior(n_leaves=10, n_trees=40, ess={posterior.ess:.4g}, log_evidence=-12.5)"


@pytest.mark.parametrize("index", [40, -41])
def test_index_out_of_range(posterior, index):
    with pytest.raises(IndexError, match=f"index {index} is out of range for a posterior of 40 trees"):
        posterior[index]


@pytest.mark.parametrize("index", [1.0, "a", slice(2), None])
def test_index_must_be_an_integer(posterior, index):
    with pytest.raises(TypeError, match="index must be an integer"):
        posterior[index]


def test_immutable(posterior):
    for name in ARRAYS:
        with pytest.raises(ValueError, match="read-only"):
            getattr(posterior, name)[0] = 0
    with pytest.raises(FrozenInstanceError):
        posterior.weights = None
    weights = np.full(3, 1 / 3)
    trees = [random_tree(np.random.default_rng(0), 4)] * 3
    made = make_posterior(trees, weights)
    weights[0] = 5.0
    assert made.weights[0] == 1 / 3


def test_copies_and_pickles(posterior):
    assert_same(posterior, copy.deepcopy(posterior))
    assert_same(posterior, pickle.loads(pickle.dumps(posterior)))


def test_best_tree(posterior):
    assert posterior.best_tree() == posterior[int(np.argmax(posterior.log_joint))]


def test_weights_off_by_rounding_are_corrected():
    trees = [random_tree(np.random.default_rng(0), 4)] * 3
    made = make_posterior(trees, np.array([0.2, 0.3, 0.5]) * (1 + 1e-7))
    np.testing.assert_allclose(made.weights, [0.2, 0.3, 0.5], rtol=1e-14)
    np.testing.assert_array_equal(made.consensus(1.0).support, 1.0)


def test_info_is_a_plain_deep_copy():
    info = {"parameters": {"method": ("a", "b")}}
    made = make_posterior([random_tree(np.random.default_rng(0), 4)], [1.0], info=info)
    info["parameters"]["method"] = None
    assert made.info == {"parameters": {"method": ["a", "b"]}}
    assert make_posterior([random_tree(np.random.default_rng(0), 4)], [1.0], info={}).info == {}


# ---- sampling


def test_sample(posterior):
    drawn = posterior.sample(20_000, random_state=1)
    assert len(drawn) == 20_000
    np.testing.assert_array_equal(drawn.weights, 1 / 20_000)
    which = {row.tobytes(): i for i, row in enumerate(posterior.times)}
    counts = np.bincount([which[row.tobytes()] for row in drawn.times], minlength=40)
    error = np.sqrt(posterior.weights * (1 - posterior.weights) / 20_000)
    assert (np.abs(counts / 20_000 - posterior.weights) < 5 * error).all()
    assert not (np.abs(counts / 20_000 - 1 / 40) < 5 * error).all()  # negative control: not uniform
    assert_same(posterior.sample(7, random_state=3), posterior.sample(7, random_state=3))
    assert drawn.names == NAMES


def test_sample_keeps_tree_and_joint_together(posterior):
    drawn = posterior.sample(50, random_state=0)
    which = {row.tobytes(): i for i, row in enumerate(posterior.times)}
    for row, children, joint in zip(drawn.times, drawn.children, drawn.log_joint, strict=True):
        i = which[row.tobytes()]
        np.testing.assert_array_equal(children, posterior.children[i])
        assert joint == posterior.log_joint[i]


@pytest.mark.parametrize("size", [0, -1])
def test_bad_size(posterior, size):
    with pytest.raises(ValueError, match="size must be at least 1"):
        posterior.sample(size)


# ---- pairs of leaves


def test_cophenetic(posterior):
    expected = sum(w * tree.cophenetic() for w, tree in zip(posterior.weights, posterior, strict=True))
    np.testing.assert_allclose(posterior.cophenetic(), expected)
    np.testing.assert_array_equal(np.diag(posterior.cophenetic()), 0.0)


@pytest.mark.parametrize("n_clusters", [1, 2, 5, 9, 10])
def test_coclustering(posterior, n_clusters):
    expected = np.zeros((10, 10))
    for weight, tree in zip(posterior.weights, posterior, strict=True):
        labels = tree.cut(n_clusters=n_clusters)
        expected += weight * (labels[:, None] == labels)
    found = posterior.coclustering(n_clusters)
    np.testing.assert_allclose(found, expected, atol=1e-14)
    assert found.max() <= 1.0
    np.testing.assert_array_equal(np.diag(found), 1.0)


@pytest.mark.parametrize("n_clusters", [0, 11, -3])
def test_bad_n_clusters(posterior, n_clusters):
    with pytest.raises(ValueError, match="n_clusters must be between 1 and"):
        posterior.coclustering(n_clusters)


# ---- clades


@pytest.mark.parametrize("make", [noisy_posterior, unrelated_posterior])
def test_clade_support(make):
    posterior = make(np.random.default_rng(3))
    shares = reference.support(posterior)
    for tree in (posterior[0], random_tree(np.random.default_rng(9), posterior.n_leaves)):
        found = posterior.clade_support(tree)
        expected = [shares.get(clade, 0.0) for clade in reference.clades_of(tree)]
        np.testing.assert_allclose(found, expected, atol=1e-14)
        assert found[-1] == pytest.approx(1.0)
        assert found.max() <= 1.0


def test_narrower_time_intervals_are_inside(posterior):
    intervals, narrow = posterior.time_intervals(posterior[0]), posterior.time_intervals(posterior[0], level=0.2)
    assert (narrow[:, 0] >= intervals[:, 0]).all()
    assert (narrow[:, 1] <= intervals[:, 1]).all()


@pytest.mark.parametrize("level", [0.0, 1.0, 90, np.nan])
def test_bad_level(posterior, level):
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        posterior.time_intervals(posterior[0], level)


def test_tree_over_other_leaves(posterior):
    small = random_tree(np.random.default_rng(0), 4)
    renamed = Tree(posterior.children[0], posterior.times[0], NAMES[::-1])
    unnamed = Tree(posterior.children[0], posterior.times[0])
    for method in (posterior.clade_support, posterior.time_intervals):
        with pytest.raises(ValueError, match="tree has 4 leaves and the posterior 10"):
            method(small)
        with pytest.raises(ValueError, match="tree must name its leaves as the posterior does"):
            method(renamed)
        method(unnamed)


def test_mcc_tree_has_the_highest_credibility(posterior):
    score = reference.log_credibility(posterior)
    assert reference.log_credibility(posterior)[list(posterior).index(posterior.mcc_tree())] == score.max()


def test_mcc_tie_goes_to_the_highest_joint():
    tree = random_tree(np.random.default_rng(0), 6)
    other = random_tree(np.random.default_rng(1), 6)
    trees = [tree, Tree(tree.children, tree.times * 2), Tree(tree.children, tree.times * 3), other]
    posterior = make_posterior(trees, [0.3, 0.3, 0.3, 0.1], log_joint=[-5.0, -4.0, -6.0, 0.0])
    assert posterior.mcc_tree() == trees[1]


@pytest.mark.parametrize("linkage", ["average", "complete", "single"])
def test_mean_tree_of_one_tree_is_that_tree(posterior, linkage):
    one = posterior.sample(1, random_state=0)
    mean = one.mean_tree(linkage)
    np.testing.assert_allclose(mean.cophenetic(), one[0].cophenetic())
    assert mean.names == NAMES


def test_mean_tree_averages_over_pairs(posterior):
    mean, expected = posterior.mean_tree(), posterior.cophenetic()
    clades = mean.clades()
    for (left, right), time in zip(mean.children, mean.times, strict=True):
        sides = [clades[node - 10] if node >= 10 else np.arange(10) == node for node in (left, right)]
        np.testing.assert_allclose(time, expected[np.ix_(*sides)].mean())
    with pytest.raises(ValueError, match="linkage must be one of 'average'"):
        posterior.mean_tree("median")


def test_mcc_never_takes_a_tree_without_weight():
    tree = random_tree(np.random.default_rng(0), 6)
    trees = [tree, Tree(tree.children, tree.times * 2)]
    posterior = make_posterior(trees, [1.0, 0.0], log_joint=[-5.0, 0.0])
    assert posterior.mcc_tree() == tree


# ---- what the constructor refuses


CHERRY = [[[0, 1], [2, 3]], [[1, 2], [0, 3]]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"children": [[0, 1], [2, 3]]}, r"children must have shape \(M, n-1, 2\)"),
        ({"children": np.zeros((0, 2, 2), dtype=int)}, r"children must have shape \(M, n-1, 2\)"),
        ({"children": np.array(CHERRY) + 0.5}, "children must hold integers"),
        ({"children": [[[0, 1], [2, 3]], [[1, 2], [1, 3]]]}, "children must merge every node"),
        ({"children": [[[0, 3], [1, 2]], [[1, 2], [0, 3]]]}, "children must merge every node"),
        ({"children": [[[0, 1], [2, 3]], [[1, 2], [-1, 3]]]}, "children must merge every node"),
        ({"times": [[1.0, 2.0]]}, r"times must have shape \(2, 2\)"),
        ({"times": [[1.0, 2.0], [2.0, 1.0]]}, "times must be finite, non-negative and non-decreasing"),
        ({"times": [[1.0, 2.0], [-1.0, 1.0]]}, "times must be finite, non-negative and non-decreasing"),
        ({"times": [[1.0, np.nan], [0.5, 1.0]]}, "times must be finite, non-negative and non-decreasing"),
        ({"weights": [1.0]}, r"weights must have shape \(2,\)"),
        ({"weights": [1.0, 1.0]}, "weights must be non-negative and sum to one"),
        ({"weights": [1.5, -0.5]}, "weights must be non-negative and sum to one"),
        ({"weights": [np.nan, 1.0]}, "weights must be non-negative and sum to one"),
        ({"log_joint": [0.0]}, r"log_joint must have shape \(2,\)"),
        ({"log_joint": [0.0, np.nan]}, "log_joint must not be NaN"),
        ({"ess_per_step": [1.0]}, r"ess_per_step must have shape \(2,\)"),
        ({"names": ["a", "b"]}, "names must hold one name per leaf"),
        ({"names": ["a", "b", "b"]}, "names must be unique"),
        ({"info": {"x": np.zeros(3)}}, "info must be a mapping of JSON values"),
        ({"info": 3}, "info must be a mapping of JSON values"),
    ],
)
def test_bad_arguments(changes, message):
    good = {
        "children": CHERRY,
        "times": [[1.0, 2.0], [0.5, 1.0]],
        "weights": [0.25, 0.75],
        "log_evidence": 0.0,
        "log_joint": [-1.0, -np.inf],
        "ess_per_step": [2.0, 1.0],
    }
    TreePosterior(**good)
    with pytest.raises(ValueError, match=message):
        TreePosterior(**(good | changes))


# ---- files


@pytest.mark.parametrize("names", [None, NAMES, tuple(f"leaf {i}\x00 é" for i in range(10))])
def test_save_and_load(tmp_path, names):
    posterior = noisy_posterior(np.random.default_rng(0), names=names)
    path = tmp_path / "posterior.npz"
    posterior.save(path)
    assert_same(TreePosterior.load(path), posterior)
    assert [file.name for file in tmp_path.iterdir()] == ["posterior.npz"]
    first = path.read_bytes()
    TreePosterior.load(str(path)).save(str(path))
    assert path.read_bytes() == first  # overwrites; the same posterior gives the same bytes


@pytest.mark.parametrize(("n_leaves", "dtype"), [(10, np.uint8), (200, np.uint16), (40_000, np.uint32)])
def test_children_are_small_on_disk_and_wide_in_memory(tmp_path, n_leaves, dtype):
    posterior = make_posterior([caterpillar(n_leaves)], [1.0])
    posterior.save(tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz") as parts:
        assert parts["children"].dtype == dtype
        assert parts["times"].dtype == np.float64
    assert_same(TreePosterior.load(tmp_path / "p.npz"), posterior)


def test_memory_of_making_and_reading(tmp_path):
    """Made, a posterior takes its arrays and little else; read, no more than three times as much."""
    posterior = make_posterior([caterpillar(20_000)] * 100, np.full(100, 0.01))
    posterior.save(tmp_path / "p.npz")
    size = posterior.children.nbytes + posterior.times.nbytes
    arguments = {name: getattr(posterior, name) for name in (*ARRAYS, "log_evidence")}

    def peak(make):
        tracemalloc.start()
        try:
            make()
            return tracemalloc.get_traced_memory()[1] / size
        finally:
            tracemalloc.stop()

    assert peak(lambda: TreePosterior(**arguments)) < 2.0
    assert peak(lambda: TreePosterior.load(tmp_path / "p.npz")) < 3.0


def test_file_holds_no_pickle(tmp_path, posterior):
    posterior.save(tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz", allow_pickle=False) as parts:
        header = json.loads(parts["header"].tobytes())
        assert header["format"] == "coaltree.TreePosterior"
        assert header["format_version"] == storage.FORMAT_VERSION
        assert all(parts[key].dtype != object for key in parts.files)


def test_failed_save_leaves_the_old_file_and_no_draft(tmp_path, posterior, monkeypatch):
    path = tmp_path / "p.npz"
    posterior.save(path)
    before = path.read_bytes()

    def fail(file, array, **options):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(OSError, match="disk full"):
        posterior.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["p.npz"]


def test_save_into_a_missing_folder(tmp_path, posterior):
    with pytest.raises(FileNotFoundError):
        posterior.save(tmp_path / "nowhere" / "p.npz")


def test_load_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        TreePosterior.load(tmp_path / "p.npz")


def test_every_damaged_byte_is_noticed_or_harmless(tmp_path, posterior):
    path = tmp_path / "p.npz"
    posterior.save(path)
    good = path.read_bytes()
    n_refused = 0
    for position in np.random.default_rng(0).integers(len(good), size=150):
        damaged = bytearray(good)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        try:
            loaded = TreePosterior.load(path)
        except ValueError:
            n_refused += 1
        else:  # a byte that zip readers ignore, such as a date
            assert_same(loaded, posterior)
    assert n_refused > 100


@pytest.mark.parametrize("length", [0, 10, 500])
def test_truncated_file(tmp_path, posterior, length):
    path = tmp_path / "p.npz"
    posterior.save(path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match="is not a readable coaltree"):
        TreePosterior.load(path)


def test_foreign_files(tmp_path):
    text, plain, array, other = (tmp_path / name for name in ("a.txt", "b.npz", "c.npy", "d.zip"))
    text.write_text("hello")
    np.savez(plain, x=np.zeros(3))
    np.save(array, np.zeros(3))
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", "hello")
    listed = tmp_path / "e.npz"
    np.savez(listed, header=np.frombuffer(b"[1, 2]", dtype=np.uint8))
    pickled = tmp_path / "f.npz"
    np.savez(pickled, header=np.array([{"format": 1}], dtype=object))
    for path in (text, plain, array, other, listed, pickled):
        with pytest.raises(ValueError, match="is not a readable coaltree"):
            TreePosterior.load(path)


def rewrite(path, **changes):
    """Change entries of the header without touching the arrays, and without mending the checksum."""
    with np.load(path) as parts:
        contents = {key: parts[key] for key in parts.files}
    header = json.loads(contents["header"].tobytes()) | changes
    contents["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **contents)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 99}, "has format version 99 and this coaltree reads up to 1: upgrade"),
        ({"format": "other.Thing"}, "it holds 'other.Thing'"),
        ({"info": {"seed": 8}}, "is damaged: its contents do not match their checksum"),
    ],
)
def test_changed_header(tmp_path, posterior, changes, message):
    path = tmp_path / "p.npz"
    posterior.save(path)
    rewrite(path, **changes)
    with pytest.raises(ValueError, match=message):
        TreePosterior.load(path)


def test_invalid_contents_with_a_valid_checksum(tmp_path, posterior):
    path = tmp_path / "p.npz"
    storage.write(path, {"weights": posterior.weights}, {"names": None})
    with pytest.raises(ValueError, match="does not hold a valid posterior"):
        TreePosterior.load(path)


# ---- errors of supports

AB, BC = [[0, 1], [2, 3]], [[1, 2], [0, 3]]  # two trees of three leaves


def by_turns(there, n_chains=2):
    """Posterior of chains whose draws hold the clade {0, 1} where `there`, (C, I), says so."""
    flat = np.asarray(there).ravel()
    return TreePosterior(
        children=[AB if each else BC for each in flat],
        times=np.tile([1.0, 2.0], (len(flat), 1)),
        weights=np.full(len(flat), 1.0 / len(flat)),
        log_evidence=np.nan,
        log_joint=np.zeros(len(flat)),
        ess_per_step=[1.0, 1.0],
        info={"n_chains": n_chains},
    )


def test_error_of_a_support_is_its_spread_over_seeds():
    """Clades that come and go slowly: two states, each left with probability .05, so that 19.5 draws are worth one."""
    tree, leave, n_draws = Tree(AB, [1.0, 2.0]), 0.05, 200
    rng = np.random.default_rng(seed(3))
    supports, errors = [], []
    for _ in range(120):
        first = rng.integers(2, size=(2, 1))
        changes = np.cumsum(rng.random((2, n_draws)) < leave, axis=1)
        posterior = by_turns((first + changes) % 2)
        supports.append(posterior.clade_support(tree)[0])
        errors.append(posterior.support_error(tree)[0])
    spread = np.sqrt(np.mean((np.array(supports) - 0.5) ** 2))
    ratio = np.sqrt(np.mean(np.square(errors))) / spread
    assert 0.75 < ratio < 1.35  # the spread is known within 6 %; a size from dependent draws within 20 %
    independent = 0.5 / np.sqrt(2 * n_draws)
    assert independent / spread < 0.4  # draws counted one by one would not do


def test_error_where_draws_agree_or_chains_do_not():
    tree = Tree(AB, [1.0, 2.0])
    always = by_turns(np.ones((2, 50), bool)).support_error(tree)
    assert always == pytest.approx([np.sqrt(101.0 / 103.0) / 102.0, 0.0])  # Beta(101, 1); the root is certain
    apart = by_turns(np.repeat([[True], [False]], 50, axis=1))
    assert apart.clade_support(tree)[0] == pytest.approx(0.5)
    assert apart.support_error(tree)[0] > 0.15
    few = by_turns([[True, False, True]], n_chains=1).support_error(tree)[0]
    assert few > 0.15


def test_fingerprints_differ_where_anything_does():
    kernel = RBF(1.0) + WhiteKernel(0.1)
    parts = ([np.zeros(3), {"b": 1, "a": (2.0, None)}, kernel], Spherical())
    found = storage.fingerprint(*parts)
    assert found == storage.fingerprint(
        [np.zeros(3), {"a": (2.0, None), "b": 1}, RBF(1.0) + WhiteKernel(0.1)], Spherical()
    )
    for other in (np.zeros(4), np.zeros(3, dtype=np.float32), np.array([0.0, 0.0, -0.0])):
        assert storage.fingerprint([other, *parts[0][1:]], parts[1]) != found
    for other in (RBF(np.nextafter(1.0, 2.0)) + WhiteKernel(0.1), WhiteKernel(0.1) + RBF(1.0)):
        assert storage.fingerprint([*parts[0][:2], other], parts[1]) != found
    assert storage.fingerprint(*parts[0], parts[1]) != found
