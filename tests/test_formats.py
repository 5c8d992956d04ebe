import doctest
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from coaltree import Tree, formats
from coaltree.formats import (
    from_linkage,
    from_newick,
    from_nexus,
    newick_with_support,
    to_linkage,
    to_newick,
)
from tests.reference import trees as reference
from tests.reference.trees import NAMES, assert_same_merges, caterpillar, clade_times, random_tree, trees

THREE = Tree([[0, 1], [2, 3]], [0.5, 2.0], names=["a", "b", "c"])
thorough = settings(deadline=None, max_examples=80)


def assert_same(tree, other):
    """Compare trees up to rounding of times and, where times are tied, the numbering of merges."""
    assert tree.names == other.names
    np.testing.assert_allclose(tree.times, other.times, rtol=1e-12)
    np.testing.assert_allclose(tree.cophenetic(), other.cophenetic(), rtol=1e-12)


# ---- linkage


@thorough
@given(trees())
def test_linkage_round_trip(tree):
    assert from_linkage(to_linkage(tree)) == tree
    assert hierarchy.is_valid_linkage(to_linkage(tree))
    assert np.all(to_linkage(tree)[:, 0] < to_linkage(tree)[:, 1])


@pytest.mark.parametrize("method", ["single", "complete", "average", "weighted", "ward"])
def test_linkage_of_scipy(method):
    points = np.random.default_rng(1).normal(size=(40, 3))
    Z = hierarchy.linkage(points, method=method)
    tree = Tree.from_linkage(Z, names=[f"p{i}" for i in range(40)])
    np.testing.assert_array_equal(tree.cophenetic(), squareform(hierarchy.cophenet(Z)))
    np.testing.assert_array_equal(tree.to_linkage(), Z)
    assert tree.names[:2] == ("p0", "p1")


def test_linkage_of_equal_points():
    tree = from_linkage(hierarchy.linkage(np.zeros((5, 2)), method="average"))
    np.testing.assert_array_equal(tree.times, np.zeros(4))


def test_inverted_linkage():
    Z = hierarchy.linkage([[0, 0], [1, 0], [0.5, 0.87]], method="centroid")
    with pytest.raises(ValueError, match=r"non-decreasing heights.*method='average'"):
        from_linkage(Z)


GOOD_Z = [[0, 1, 0.5, 2], [2, 3, 2.0, 3]]


@pytest.mark.parametrize(
    ("Z", "error", "words"),
    [
        (None, TypeError, "Z"),
        ([["a"] * 4], TypeError, "Z"),
        ([[0, 1, 1.0, 2], [0]], ValueError, "Z"),
        ([0, 1, 1.0, 2], ValueError, "shape"),
        ([[0, 1, 1.0]], ValueError, "shape"),
        (np.empty((0, 4)), ValueError, "shape"),
        ([[0, 1, np.nan, 2]], ValueError, "finite"),
        ([[0, 0.5, 1.0, 2]], ValueError, "nodes between 0 and 1"),
        ([[0, 1e300, 1.0, 2]], ValueError, "nodes between 0 and 1"),
        ([[-1, 0, 1.0, 2]], ValueError, "nodes between 0 and 1"),
        ([[0, 0, 1.0, 2]], ValueError, "node 0 appears 2 times"),
        ([[0, 1, -1.0, 2]], ValueError, "Z.*≥ 0"),
        ([[0, 1, 1.0, 3]], ValueError, r"Z\[0, 3\].*2 leaves.*got 3"),
        ([[0, 1, 2.0, 2], [2, 3, 0.5, 3]], ValueError, "non-decreasing"),
    ],
)
def test_bad_linkage(Z, error, words):
    assert from_linkage(GOOD_Z).n_leaves == 3
    with pytest.raises(error, match=words):
        from_linkage(Z)


# ---- Newick


def test_newick_by_hand():
    assert to_newick(THREE) == "(c:2.0,(a:0.5,b:0.5):1.5);"
    assert to_newick(THREE, support=[0.25, 1]) == "(c:2.0,(a:0.5,b:0.5)0.25:1.5)1.0;"
    assert to_newick(THREE, digits=3) == "(c:2,(a:0.5,b:0.5):1.5);"
    assert to_newick(Tree(THREE.children, THREE.times)) == "(2:2.0,(0:0.5,1:0.5):1.5);"
    assert to_newick(Tree([[0, 1]], [1.0], names=["it's", "0"])) == "('it''s':1.0,'0':1.0);"


@thorough
@given(trees())
def test_newick_twin(tree):
    assert to_newick(tree) == reference.newick(tree, tree.leaf_names)


@thorough
@given(trees(tied=False))
def test_newick_identity_unnamed(tree):
    assert_same_merges(Tree.from_newick(tree.to_newick()), tree)


@thorough
@given(trees(tied=False, names=NAMES))
@example(Tree([[0, 1]], [1.0], names=["1", "0"]))
@example(Tree([[0, 1], [2, 3]], [1.0, 2.0], names=["_", "a_b", "a b"]))
@example(Tree([[0, 1], [2, 3]], [1.0, 2.0], names=["", " ", "'"]))
def test_newick_identity_named(tree):
    text = tree.to_newick()
    assert_same_merges(Tree.from_newick(text, names=tree.names), tree)
    assert from_newick(text).names == tuple(tree.names[i] for i in tree.leaf_order())
    assert clade_times(from_newick(text)).keys() == clade_times(tree).keys()


@thorough
@given(trees())
def test_newick_ties(tree):
    assert_same(from_newick(to_newick(tree)), tree)


def test_times_are_exact_along_the_older_child():
    rng = np.random.default_rng(9)
    n = 400  # 200 cherries below time 1, joined in a chain in which no time doubles
    cherries = np.arange(n).reshape(-1, 2)
    chain = np.column_stack([[n, *range(n + 200, 2 * n - 2)], np.arange(n + 1, n + 200)])
    times = np.concatenate([np.sort(rng.random(200)), 1 + np.cumsum(rng.random(199))])
    tree = Tree(np.concatenate([cherries, chain]), times)
    assert from_newick(to_newick(tree)) == tree


def test_rounding_does_not_pile_up():
    tree = random_tree(np.random.default_rng(2), 5000)
    np.testing.assert_allclose(from_newick(to_newick(tree)).times, tree.times, rtol=4e-16)


@thorough
@given(trees(tied=False), st.data())
def test_support_round_trip(tree, data):
    n_merges = tree.n_leaves - 1
    support = data.draw(st.lists(st.floats(-1e3, 1e3), min_size=n_merges, max_size=n_merges))
    read, labels = newick_with_support(tree.to_newick(support=support))
    assert_same_merges(read, tree)
    np.testing.assert_array_equal(labels, support)


def test_support_absent():
    _, labels = newick_with_support("((a:1,b:1)0.75:1,(c:1,d:1)name:1);")
    np.testing.assert_array_equal(labels, [0.75, np.nan, np.nan])


@pytest.mark.parametrize(
    "text",
    [
        "(c:2,(a:0.5,b:.5):1.5);",
        " ( c : 2. , \n\t( a:5e-1 , b:+5.0E-1 ) : 1.5 )\n;\n ",
        "[&R] (c[&x={1,2}]:[note]2,(a:0.5[;],b:0.5)inner:1.5)'the root':17;[end]",
        "('c':2,('a':0.5,'b':0.5)99:1.5):0.0;",
        "(c:2,(a:0.5000000001,b:0.5):1.5):-1;",
    ],
)
def test_newick_as_others_write_it(text):
    tree = from_newick(text)
    assert tree.names == ("c", "a", "b")
    np.testing.assert_array_equal(tree.children, [[1, 2], [0, 3]])
    np.testing.assert_allclose(tree.times, [0.5, 2], rtol=1e-9)


def test_underscores_and_quotes():
    assert from_newick("(Homo_sapiens:1,'Pan_paniscus':1);").names == ("Homo sapiens", "Pan_paniscus")
    assert from_newick("('''':1,'a''''b':1);").names == ("'", "a''b")


def test_integers_number_unnamed_leaves():
    assert from_newick("(1:1,0:1);") == Tree([[1, 0]], [1.0])
    for text in ("('1':1,'0':1);", "(1:1,2:1);", "(01:1,0:1);", "(1:1,'0':1);"):
        assert from_newick(text).names is not None


def test_leaf_order_can_be_given():
    assert from_newick(to_newick(THREE), names=iter("abc")) == THREE
    for names in (["a", "b"], ["a", "b", "x"], ["a", "b", "c", "d"], ["a", "b", "c", "c"]):
        with pytest.raises(ValueError, match="name"):
            from_newick(to_newick(THREE), names=names)
    with pytest.raises(TypeError, match="names"):
        from_newick(to_newick(THREE), names="abc")


def test_tolerance():
    text = "(a:1,b:1.001);"
    with pytest.raises(ValueError, match=r"not ultrametric.*differ by 0.001.*0.001 of the root.*tolerance"):
        from_newick(text)
    assert from_newick(text, tolerance=0.01).n_leaves == 2
    with pytest.raises(ValueError, match="tolerance"):
        from_newick(text, tolerance=float("nan"))
    older_than_parent = from_newick("(c:2,(a:2.001,b:2.001):0);", tolerance=0.01)
    np.testing.assert_array_equal(older_than_parent.times, [2.001, 2.001])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("[only a comment]", "empty"),
        (";", "leaf name"),
        ("a;", "two leaves"),
        ("a:1;", "two leaves"),
        ("(a:1,b:1)", "';'"),
        ("(a:1,b:1);x", "after the tree.*character 10: 'x'"),
        ("(a:1,b:1);(a:1,b:1);", "one tree at a time"),
        ("((a:1,b:1):1,c:2;", "Unbalanced.*character 0"),
        ("((a:1,b:1):1,c:2", "Unbalanced.*character 0"),
        ("(a:1,b:1));", "Unbalanced.*character 9"),
        ("a:1,b:1;", "Unbalanced"),
        (")", "leaf name"),
        ("(a:1,(b:1,c:1):0,\n(d:1,x:1,y:1):0);", "binary.*joins 3.*polytomies.*line 2, character 18"),
        ("(a:1,b:1,c:1);", "joins 3"),
        ("((a:1):1,b:2);", "joins 1"),
        ("(a:1);", "joins 1"),
        ("();", "leaf name"),
        ("(a:1,);", "leaf name"),
        ("(a:1,:1);", "leaf name"),
        ("(a:1,b);", "no branch length.*character 5"),
        ("((a:1,b:1),c:2);", "no branch length.*character 1"),
        ("(a:1,b:);", "branch length, a number"),
        ("(a:1,b:x);", "branch length, a number"),
        ("(a:1,b:nan);", "branch length, a number"),
        ("(a:1,b:1_0);", "branch length, a number"),
        ("(a:1,b:'1');", "branch length, a number"),
        ("(a:1,b:1:1);", "Expected"),
        ("(a:1,b:-1);", "≥ 0, got -1"),
        ("(a:1,b:1e999);", "got inf"),
        ("((a:1e308,b:1e308):1e308,(c:1e308,d:1e308):1e308);", "finite"),
        ("((a:1e308,b:1e308):1e308,c:1e308);", "not ultrametric"),
        ("(a b:1,c:1);", "quote names"),
        ("('a'b:1,c:1);", "quote names"),
        ("(a:1,a:1);", "'a' appears twice.*character 5"),
        ("(0:1,0:1);", "'0' appears twice"),
        ("(a:1,b:2);", "not ultrametric.*differ by 1"),
        ("(a:0,b:1e-300);", "not ultrametric"),
        ("('a:1,b:1);", "' without its closing partner.*character 1"),
        ("([a:1,b:1);", r"\[ without its closing partner"),
        ("(a]:1,b:1);", "] without its closing partner"),
        ("(a:1,b:1)c d;", "quote names"),
        ("(a:1,b:1)(c:1,d:1);", "Expected"),
    ],
)
def test_bad_newick(text, words):
    with pytest.raises(ValueError, match=words):
        from_newick(text)


@pytest.mark.parametrize("read", [from_newick, from_nexus])
@pytest.mark.parametrize("text", [None, b"(a:1,b:1);", 3, ["(a:1,b:1);"]])
def test_text_must_be_text(read, text):
    with pytest.raises(TypeError, match="text must be a str"):
        read(text)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"support": [1.0]}, ValueError, "support.*one number per merge"),
        ({"support": [1.0, np.nan]}, ValueError, "support must be finite"),
        ({"support": ["1", "2"]}, TypeError, "support"),
        ({"digits": 0}, ValueError, "digits"),
        ({"digits": 2.5}, TypeError, "digits"),
    ],
)
def test_bad_newick_options(arguments, error, words):
    with pytest.raises(error, match=words):
        THREE.to_newick(**arguments)


MARKS = st.text(st.sampled_from(list("()[],:;'=&ab01.e-+_ \n\u00e9")), max_size=40)


@settings(deadline=None, max_examples=300)
@given(MARKS)
def test_garbage_is_a_value_error(text):
    with suppress(ValueError):
        assert from_newick(text).n_leaves >= 2
    with suppress(ValueError):
        assert from_nexus("#NEXUS begin trees; tree t = " + text)


@settings(deadline=None, max_examples=150)
@given(trees(names=NAMES), st.data())
def test_damaged_text_is_read_or_refused(tree, data):
    for text, read in ((tree.to_newick(), from_newick), (tree.to_nexus(), from_nexus)):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 5)))
        with suppress(ValueError):
            read(text[:start] + data.draw(MARKS) + text[stop:])


@pytest.mark.parametrize("piece", ["(", ")", "'", "''", "[", "]", ",", ":", "a", "a ", "(a:1,", "[]", "'a'", "1"])
def test_garbage_takes_linear_time(piece):
    started = time.process_time()
    for prefix in ("", "(a:1,'", "(a:", "("):
        with pytest.raises(ValueError, match=r"character \d+|empty"):
            from_newick(prefix + piece * 20_000)
    assert time.process_time() - started < 5


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("shape", ["random", "caterpillar"])
def test_hundred_thousand_leaves(shape):
    n = 100_000
    tree = random_tree(np.random.default_rng(0), n) if shape == "random" else caterpillar(n)
    assert_same_merges(from_newick(to_newick(tree)), tree)
    assert from_linkage(to_linkage(tree)) == tree


def test_examples_in_docstrings():
    assert doctest.testmod(formats).failed == 0
