"""Annotated trees: the numbers by hand, and read by others."""

import re

import numpy as np
import pytest

import coaltree as ct
from coaltree.posterior.annotate import to_annotated_newick, to_annotated_nexus
from coaltree.posterior.clades import shortest_intervals

TREES = [
    ct.Tree([[0, 1], [2, 3]], [1.0, 4.0], names=["a", "b c", "d"]),
    ct.Tree([[0, 1], [2, 3]], [2.0, 5.0], names=["a", "b c", "d"]),
    ct.Tree([[1, 2], [0, 3]], [0.5, 9.0], names=["a", "b c", "d"]),
]
POSTERIOR = ct.TreePosterior(
    children=[tree.children for tree in TREES],
    times=[tree.times for tree in TREES],
    weights=[0.5, 0.25, 0.25],
    log_evidence=0.0,
    log_joint=[0.0, -1.0, -2.0],
    ess_per_step=[3.0, 3.0],
    names=TREES[0].names,
)


def notes_of(tree, level=0.95):
    """The comments at the merges, in the order in which the text closes them."""
    return re.findall(r"\[(&(?:expected_overlap|height)[^]]*)\]", to_annotated_nexus(POSTERIOR, tree, level))


def test_notes_by_hand():
    first, root = notes_of(TREES[0], level=0.5)
    # Weights ½, ¼, ¼ are worth 8/3 trees: Beta(3, 5/3) has the standard deviation √(5 / (14/3)² / (17/3)). The third
    # tree has {a, b c} best in the root, an overlap of ⅔ ≥ ½, and one row to move of one. With mean 11/12 and mean
    # square 31/36, the error of the overlap is √((89/27 · 3/14 − (31/9 · 3/14)²) / (17/3)).
    assert first == (
        "&expected_overlap=0.916667,expected_overlap_error=0.17,posterior=0.75,posterior_error=0.2,transfer_support=0.75,"
        "height=1,height_median=1,height_50%_HPD={1,1}"
    )
    assert root == (
        "&expected_overlap=1,expected_overlap_error=0,posterior=1,posterior_error=0,transfer_support=1,"
        "height=4,height_median=4,height_50%_HPD={4,4}"
    )


@pytest.mark.parametrize("level", [0.3, 0.8, 0.95])
def test_shortest_interval(level):
    rng = np.random.default_rng(0)
    times, weights = np.sort(rng.exponential(size=60)), rng.dirichlet(np.ones(60))
    pairs = [
        (b - a, a, b)
        for a in times
        for b in times
        if a <= b and weights[(times >= a) & (times <= b)].sum() >= level - 1e-12
    ]
    # Two clades, the first of which no tree holds.
    none, found = shortest_intervals(np.array([0, 0, 60]), times, weights, level)
    assert np.isnan(none).all()
    assert found == pytest.approx(min(pairs)[1:])


def test_dendropy_reads_the_notes():
    dendropy = pytest.importorskip("dendropy")
    tree = POSTERIOR.mcc_tree()
    for text, schema in ((to_annotated_nexus(POSTERIOR), "nexus"), (to_annotated_newick(POSTERIOR), "newick")):
        read = dendropy.Tree.get(data=text, schema=schema, extract_comment_metadata=True)
        nodes = {
            frozenset(leaf.taxon.label for leaf in node.leaf_iter()): node
            for node in read.preorder_internal_node_iter()
        }
        for members, support, time in zip(tree.clades(), POSTERIOR.clade_support(tree), tree.times, strict=True):
            notes = nodes[frozenset(np.array(tree.leaf_names)[members])].annotations
            assert float(notes.get_value("posterior")) == pytest.approx(support)
            assert float(notes.get_value("height")) == pytest.approx(time)
            low, high = map(float, notes.get_value("height_95%_HPD"))
            assert low <= time <= high


def test_we_read_them_too():
    assert ct.Tree.from_nexus(to_annotated_nexus(POSTERIOR)) == POSTERIOR.mcc_tree()


def test_bad_input():
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        to_annotated_nexus(POSTERIOR, TREES[0], level=1.0)
    with pytest.raises(ValueError, match="notes must be 2 texts"):
        ct.formats.to_newick(TREES[0], notes=["x"])
    with pytest.raises(ValueError, match="one sequence per tree"):
        ct.formats.to_nexus(TREES[0], notes=[["x", "y"], ["x", "y"]])
