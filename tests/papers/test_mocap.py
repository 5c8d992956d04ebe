"""The findings on motion capture: they are seen in a tree that has them and not in one that does not."""

from argparse import Namespace

import numpy as np
import pytest
from papers.henao_lucas.experiment import MissingDataError, perform
from papers.henao_lucas.mocap.drawing import subtree
from papers.henao_lucas.mocap.markers import AXES, NINE, PARTS, body_part
from papers.henao_lucas.mocap.run import EXPERIMENT, closest_clade, findings, share_later

import coaltree as ct
from tests.papers.real_data import real_data

PLACES = ("BHD", "FHD", "SHO", "UPA", "ELB", "THI", "KNE", "ANK")
MARKERS = tuple(side + place for side in "LR" for place in PLACES)
NAMES = tuple(f"{marker}:{axis}" for marker in MARKERS for axis in AXES)


def tree_of_a_body(names):
    """Axes apart, body parts together within them, heads first and legs last."""
    part = [body_part(name.split(":")[0]) for name in names]
    depth = {"Head": 0.1, "Torso": 0.2, "Arm:R": 0.2, "Arm:L": 0.2, "Leg:R": 0.4, "Leg:L": 0.4}
    groups = {}
    for leaf, name in enumerate(names):
        groups.setdefault((name[-1], part[leaf]), []).append(leaf)
    merges, live = [], {}
    for (axis, which), leaves in groups.items():
        steps = [depth[which] + 1e-3 * k + 1e-5 * len(merges) for k in range(len(leaves) - 1)]
        merges += [(time, ("leaf", axis, which), leaf) for time, leaf in zip(steps, leaves[1:], strict=True)]
        live["leaf", axis, which] = leaves[0]
    return merges, live


def built(names):
    """The tree of `tree_of_a_body` with parts joined at 0.6 and axes at 1."""
    merges, live = tree_of_a_body(names)
    children, times, n = [], [], len(names)

    def join(time, a, b):
        children.append(sorted((a, b)))
        times.append(time)
        return n + len(children) - 1

    for time, group, leaf in sorted(merges, key=lambda merge: merge[0]):
        live[group] = join(time, live[group], leaf)
    tops = {}
    for k, ((_, axis, _), node) in enumerate(live.items()):
        tops[axis] = node if axis not in tops else join(0.6 + 1e-3 * k, tops[axis], node)
    first, *others = tops.values()
    for k, node in enumerate(others):
        first = join(1.0 + k, first, node)
    return ct.Tree(children, times, names)


def test_every_marker_is_on_the_body():
    assert {body_part(marker) for marker in (*MARKERS, "C7")} == set(PARTS)
    assert body_part("C7") == body_part("LBWT") == "Torso"
    assert {body_part(marker) for marker in NINE} == {"Head", "Torso", "Arm:R", "Arm:L"}
    with pytest.raises(ValueError, match="XYZ"):
        body_part("XYZ")


def test_findings_are_found_where_they_are():
    found = findings(built(NAMES))
    for axis in AXES:
        assert found[f"clade_{axis}"] == 1.0
    assert found["apart_Y"] == found["apart_Z"] == 1.0
    assert found["leg"] == 1.0
    assert found["head"] == 0.0
    mean, spread = found["body_shuffled"]
    assert found["body"] > 0.9 > mean + 3 * spread


def test_findings_are_not_found_where_they_are_not():
    """Negative control: the same tree with its names dealt out at random."""
    tree = built(NAMES)
    shuffled = ct.Tree(tree.children, tree.times, np.random.default_rng(1).permutation(NAMES).tolist())
    found = findings(shuffled)
    assert max(found[f"clade_{axis}"] for axis in AXES) < 0.7
    assert abs(found["leg"] - 0.5) < 0.35
    mean, spread = found["body_shuffled"]
    assert found["body"] < mean + 3 * spread


def test_closest_clade_and_share_later_by_hand():
    clades = np.array([[True, True, False, False], [True, True, True, True]])
    assert closest_clade(clades, np.array([True, False, False, False])) == (0.5, 0)
    axis = np.array(list("YYYYZZZZ"))
    chosen = np.array([True, False, False, False] * 2)
    times = np.array([3.0, 1.0, 2.0, 4.0, 9.0, 1.0, 2.0, 3.0])
    assert share_later(times, chosen, axis) == pytest.approx((2 / 3 + 1.0) / 2)


def test_a_subtree_keeps_times_and_merges():
    tree = ct.sample_tree(12, random_state=3)
    leaves = np.array([1, 4, 5, 9])
    small = subtree(tree, leaves)
    assert np.array_equal(small.cophenetic(), tree.cophenetic()[np.ix_(leaves, leaves)])


def stand_in(folder, n_frames=24):
    """Write series drawn down the tree of a body."""
    names = tuple(f"{marker}:{axis}" for marker in (*MARKERS, "C7") for axis in AXES)
    squares = np.subtract.outer(np.arange(n_frames), np.arange(n_frames)) ** 2.0
    series = ct.sample_data(built(names), np.exp(-squares / 18.0) + 1e-4 * np.eye(n_frames), random_state=5)
    Y = 100.0 * series.T.reshape(n_frames, -1, 3)
    np.savez(folder / "osu_run1.npz", Y=Y, names=np.array([*MARKERS, "C7"]))


@pytest.mark.slow
@pytest.mark.ci
def test_a_quick_run_on_a_stand_in_finds_what_was_put_there(tmp_path):
    stand_in(tmp_path)
    options = Namespace(quick=True, replicates=None, data=tmp_path, jobs=1)
    results = perform(EXPERIMENT, options, tmp_path / "out")
    assert [claim["statement"] for claim in results["claims"] if not claim["holds"]] == []
    assert len(results["claims"]) >= 6
    for name in ("subtrees.png", "subtrees.svg", "heat-maps.png", "README.md"):
        assert (tmp_path / "out" / name).stat().st_size > 0


@pytest.mark.slow
@pytest.mark.ci
def test_a_quick_run_on_the_recording_bears_the_findings_out(tmp_path):
    options = Namespace(quick=True, replicates=None, data=real_data("osu_run1.npz"), jobs=1)
    results = perform(EXPERIMENT, options, tmp_path)
    assert [claim["statement"] for claim in results["claims"] if not claim["holds"]] == []


def test_a_missing_recording_is_one_line(tmp_path):
    options = Namespace(quick=True, replicates=None, data=tmp_path, jobs=1)
    with pytest.raises(MissingDataError, match=r"osu_run1.npz does not exist.*OSU ACCAD.*--data FOLDER"):
        perform(EXPERIMENT, options, tmp_path)
