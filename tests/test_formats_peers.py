"""Other libraries read what we write, and we read what they write.

Each reader turns text into {names of the leaves under a merge: its time}, to compare with the tree's own.
"""

import io
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coaltree import Tree
from coaltree.formats import from_newick, from_nexus, newick_with_support, nexus_with_weights, to_nexus
from tests.reference.trees import NAMES, clade_times, random_tree

dendropy = pytest.importorskip("dendropy", reason="DendroPy reads our Newick and Nexus text")
Phylo = pytest.importorskip("Bio.Phylo", reason="Biopython reads our Newick and Nexus text")
skbio = pytest.importorskip("skbio", reason="scikit-bio reads our Newick text")


def clades_of(root, children_of, length_of, name_of):
    """Walk a peer's tree; also check that it is ultrametric."""
    found = {}

    def visit(node):
        children = list(children_of(node))
        if not children:
            return frozenset([name_of(node)]), 0.0
        below = [visit(child) for child in children]
        heights = [height + length_of(child) for (_, height), child in zip(below, children, strict=True)]
        np.testing.assert_allclose(heights, heights[0], rtol=1e-12)
        members = frozenset.union(*(names for names, _ in below))
        found[members] = heights[0]
        return members, heights[0]

    visit(root)
    return found


def dendropy_clades(text, schema):
    # Nexus takes names without case; ours are told apart by it.
    tree = dendropy.Tree.get(data=text, schema=schema, case_sensitive_taxon_labels=True)
    return clades_of(
        tree.seed_node,
        lambda node: node.child_nodes(),
        lambda node: node.edge_length,
        lambda node: node.taxon.label,
    )


def biopython_clades(text, schema):
    def name_of(clade):
        # Biopython's Nexus reader leaves the quotes on.
        match = re.fullmatch("'(.*)'", clade.name, re.DOTALL) if schema == "nexus" else None
        return match[1].replace("''", "'") if match else clade.name

    tree = Phylo.read(io.StringIO(text), schema)
    return clades_of(tree.root, lambda clade: clade.clades, lambda clade: clade.branch_length, name_of)


def skbio_clades(text, schema):
    tree = skbio.TreeNode.read([text], format=schema)
    return clades_of(tree, lambda node: node.children, lambda node: node.length, lambda node: node.name)


READERS = {
    "dendropy newick": (dendropy_clades, "newick"),
    "dendropy nexus": (dendropy_clades, "nexus"),
    "biopython newick": (biopython_clades, "newick"),
    "biopython nexus": (biopython_clades, "nexus"),
    "skbio newick": (skbio_clades, "newick"),
}


def read(peer, tree):
    clades, schema = READERS[peer]
    return clades(tree.to_newick() if schema == "newick" else tree.to_nexus(), schema)


def why_unreadable(peer, name):
    """Return why a peer cannot read a name that is legally quoted, or None if it can."""
    if peer.startswith(("dendropy", "skbio")) and name and not name.strip("();:,"):
        return "after unquoting, the peer takes a label that is made of marks for the marks"
    if peer.startswith("skbio") and name.strip("'") == "":
        return "scikit-bio takes the closing quote of '' for the start of a doubled quote"
    if peer.startswith("skbio") and "\r" in name:
        return "scikit-bio reads with universal newlines: a carriage return becomes a newline"
    if peer == "biopython newick" and re.search(r"^'|\n|\\($|')", name):
        return "Biopython drops quotes at the start, joins lines, and takes a backslash for an escape"
    if peer == "biopython nexus" and re.search(r"['\"\x00-\x1f\x7f-\x9f]|[^\S ]|  ", name):
        return "Biopython's Nexus reader joins white space, uses control characters, unquotes its own way"
    return None


@pytest.mark.parametrize("peer", READERS)
@pytest.mark.parametrize("named", [True, False])
def test_same_clades_and_times(peer, named):
    names = [f"leaf{i}" for i in range(40)] if named else None
    tree = random_tree(np.random.default_rng(4), 40, names)
    clades = read(peer, tree)
    expected = clade_times(tree)
    assert clades.keys() == expected.keys()
    for members, time in expected.items():
        assert clades[members] == pytest.approx(time, rel=1e-12)


HARD_NAMES = [
    *("two words", "it's", "'", "''", "'quoted'", '"quoted"', "(a)", "a,b", "a:b", "a;b", "[a]", "{a}"),
    *("(", ";", "a_b", "_", "a=b", "a-b", "a/b", "a\\", "*", "#", "&R", "A", "é", "日本 語", "🌲", "\xa0"),
    *("tree", "end", "42", "007", "1", "1e5", "-1", "nan", "None"),
    *("", " ", "a ", " a", "a\tb", "a\nb", "a\rb"),
]


@pytest.mark.parametrize("peer", READERS)
@pytest.mark.parametrize("name", HARD_NAMES)
def test_hard_names(peer, name):
    tree = Tree([[0, 1], [2, 3]], [0.5, 2.0], names=[name, "b", "c"])
    assert from_newick(tree.to_newick(), names=tree.names) == tree
    assert from_nexus(tree.to_nexus()) == [tree]
    reason = why_unreadable(peer, name)
    if reason:
        pytest.xfail(reason)
    assert read(peer, tree) == clade_times(tree)


@pytest.mark.parametrize("peer", READERS)
@settings(deadline=None, max_examples=60)
@given(name=NAMES | st.text(st.sampled_from(list("'()[],:;_= ab1")), max_size=8))
def test_any_name(peer, name):
    assume(name not in ("b", "c") and why_unreadable(peer, name) is None)
    tree = Tree([[0, 1], [2, 3]], [0.5, 2.0], names=[name, "b", "c"])
    assert read(peer, tree) == clade_times(tree)


def test_peers_read_weights():
    rng = np.random.default_rng(5)
    weights = rng.dirichlet(np.ones(3))
    text = to_nexus([random_tree(rng, 5) for _ in weights], weights=weights)
    theirs = dendropy.TreeList.get(data=text, schema="nexus", store_tree_weights=True)
    np.testing.assert_allclose([tree.weight for tree in theirs], weights, rtol=1e-12)
    assert all(tree.is_rooted for tree in theirs)
    np.testing.assert_allclose([tree.weight for tree in Phylo.parse(io.StringIO(text), "nexus")], weights)


def test_peers_read_support():
    tree = random_tree(np.random.default_rng(6), 8, list("abcdefgh"))
    support = np.linspace(0.1, 1, 7)
    text = tree.to_newick(support=support)
    theirs = dendropy.Tree.get(data=text, schema="newick")
    labels = [float(node.label) for node in theirs.internal_nodes()]
    np.testing.assert_array_equal(np.sort(labels), support)
    tree_bio = Phylo.read(io.StringIO(text), "newick")
    np.testing.assert_array_equal(np.sort([c.confidence for c in tree_bio.get_nonterminals()]), support)
    tree_skbio = skbio.TreeNode.read([text], format="newick")
    labels = [float(node.name) for node in tree_skbio.non_tips(include_self=True)]
    np.testing.assert_array_equal(np.sort(labels), support)
    np.testing.assert_array_equal(newick_with_support(text)[1], support)


def rewrite_dendropy(text):
    return dendropy.Tree.get(data=text, schema="newick").as_string(schema="newick")


def rewrite_dendropy_nexus(text):
    return dendropy.Tree.get(data=text, schema="newick").as_string(schema="nexus")


def rewrite_biopython(text):
    out = io.StringIO()
    Phylo.write(Phylo.read(io.StringIO(text), "newick"), out, "newick")
    return out.getvalue()


def rewrite_biopython_nexus(text):
    out = io.StringIO()
    Phylo.write(Phylo.read(io.StringIO(text), "newick"), out, "nexus")
    return out.getvalue()


def rewrite_skbio(text):
    return str(skbio.TreeNode.read([text], format="newick"))


@pytest.mark.parametrize(
    "rewrite",
    [rewrite_dendropy, rewrite_dendropy_nexus, rewrite_biopython, rewrite_biopython_nexus, rewrite_skbio],
)
def test_we_read_what_peers_write(rewrite):
    names = ["plain", "two words", "it's", "a_b", "(x)", "a,b", "x:y", "é", *map(str, range(12))]
    if rewrite is rewrite_skbio:
        names[2] = "its"  # written as it''s, which only scikit-bio reads: a quote inside must be quoted
    if rewrite is rewrite_biopython:
        names[3] = "ab"  # written bare, as a_b, which means a blank
    if rewrite is rewrite_biopython_nexus:
        names = [f"leaf{i}" for i in range(20)]  # written bare whatever they hold
    tree = random_tree(np.random.default_rng(7), 20, names)
    text = rewrite(tree.to_newick())
    ours = from_nexus(text)[0] if "nexus" in rewrite.__name__ else from_newick(text)
    expected, found = clade_times(tree), clade_times(ours)
    assert found.keys() == expected.keys()
    for members, time in expected.items():
        assert found[members] == pytest.approx(time, rel=1e-4)  # Biopython writes few digits


def test_dendropy_weights_read_back():
    rng = np.random.default_rng(8)
    weights = [0.125, 0.875]
    text = to_nexus([random_tree(rng, 5, list("abcde")) for _ in weights], weights=weights)
    theirs = dendropy.TreeList.get(data=text, schema="nexus", store_tree_weights=True)
    rewritten = theirs.as_string(schema="nexus", store_tree_weights=True)
    np.testing.assert_allclose(nexus_with_weights(rewritten)[1], weights)
