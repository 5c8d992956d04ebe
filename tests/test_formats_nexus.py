import numpy as np
import pytest
from hypothesis import example, given, settings

from coaltree import Tree
from coaltree.formats import from_nexus, nexus_with_weights, to_nexus
from tests.reference.trees import NAMES, assert_same_merges, caterpillar, clade_times, random_tree, trees

THREE = Tree([[0, 1], [2, 3]], [0.5, 2.0], names=["a", "b", "c"])
UNNAMED = Tree(THREE.children, THREE.times)
thorough = settings(deadline=None, max_examples=80)


@thorough
@given(trees(tied=False, names=NAMES))
@example(Tree([[0, 1], [2, 3]], [1.0, 2.0], names=["2", "3", "1"]))
@example(Tree([[0, 1], [2, 3]], [1.0, 2.0], names=["2", "0", "1"]))
@example(Tree([[0, 1], [2, 3]], [1.0, 2.0], names=["end", ";", "tree"]))
def test_nexus_identity_named(tree):
    assert_same_merges(Tree.from_nexus(tree.to_nexus()), tree)


@thorough
@given(trees(tied=False))
def test_nexus_identity_unnamed(tree):
    assert_same_merges(Tree.from_nexus(tree.to_nexus()), tree)


def test_many_weighted_trees():
    rng = np.random.default_rng(3)
    names = [f"leaf {i}" for i in range(6)]
    many = [random_tree(rng, 6, names) for _ in range(4)]
    weights = rng.dirichlet(np.ones(4))
    text = to_nexus(many, weights=weights)
    read, read_weights = nexus_with_weights(text)
    np.testing.assert_array_equal(read_weights, weights)
    for tree, other in zip(many, read, strict=True):
        assert_same_merges(other, tree)
    assert len(from_nexus(text)) == 4
    np.testing.assert_array_equal(nexus_with_weights(to_nexus(many))[1], np.ones(4))
    with pytest.raises(ValueError, match="4 trees"):
        Tree.from_nexus(text)


def test_deep_nexus():
    tree = caterpillar(20_000)
    assert_same_merges(Tree.from_nexus(tree.to_nexus()), tree)


def test_nexus_as_others_write_it():
    text = """#nexus [a comment; with marks]
    Begin Data; Dimensions ntax=3 nchar=1; Matrix c 0 a 1 b ?; End;
    begin taxa; dimensions ntax=3; taxlabels c Homo_a 'b b'; endblock;
    Begin Trees;
      Title 'some; title';
      Translate 1 c, x 'Homo a', y b_b,;
      Tree * first = [&R][&W 1/4] [lnL -3] (1:2,(x:0.5,y[&rate=1]:0.5)0.9:1.5);
      UTREE second=[&w 3](1:2,(2:0.5,3:0.5):1.5);
      tree 'third tree' = ((x:1,y:1):1,c:2);
    End;"""
    read, weights = nexus_with_weights(text)
    np.testing.assert_array_equal(weights, [0.25, 3, 1])
    expected = Tree([[1, 2], [0, 3]], [0.5, 2.0], names=["c", "Homo a", "b b"])
    assert read == [expected, expected, Tree([[1, 2], [0, 3]], [1.0, 2.0], names=expected.names)]


def test_nexus_without_taxa_or_translate():
    head = "#NEXUS BEGIN TREES;"
    tree = "TREE t = (3:2,(1:0.5,2:0.5):1.5); END;"
    assert Tree.from_nexus(f"{head} TRANSLATE 1 a, 2 b, 3 c; {tree}") == THREE
    assert Tree.from_nexus(head + tree).names == ("3", "1", "2")
    assert Tree.from_nexus(f"{head} TREE t = (2:2,(1:0.5,0:0.5):1.5);").names is None
    taxa = "#NEXUS BEGIN TAXA; TAXLABELS c b a; END; BEGIN TREES;"
    read = Tree.from_nexus(f"{taxa} TRANSLATE 1 a, 2 b, 3 c; {tree}")
    assert read.names == ("c", "b", "a")
    assert clade_times(read) == clade_times(THREE)


def test_unnamed_taxa_are_numbers_in_any_order():
    text = "#NEXUS BEGIN TAXA; TAXLABELS 2 0 1; END; BEGIN TREES; TREE t = (2:2,(0:0.5,1:0.5):1.5); END;"
    assert Tree.from_nexus(text) == UNNAMED


def test_a_translation_holds_in_its_block():
    blocks = "BEGIN TREES; TRANSLATE 1 b, 2 a; TREE t = (1:1,2:1); END; BEGIN TREES; TREE t = (1:1,2:1); END;"
    first, second = from_nexus(f"#NEXUS BEGIN TAXA; TAXLABELS a b; END; {blocks}")
    np.testing.assert_array_equal(first.children, [[1, 0]])
    np.testing.assert_array_equal(second.children, [[0, 1]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "#NEXUS"),
        ("(a:1,b:1);", "#NEXUS.*from_newick"),
        ("#NEXUS", "no tree"),
        ("#NEXUS BEGIN TREES; END;", "no tree"),
        ("#NEXUS BEGIN TREES; TREE t = (a:1,b:1); END", "does not end.*character 40"),
        ("#NEXUS BEGIN TREES; TREE t (a:1,b:1); END;", "TREE name = "),
        ("#NEXUS BEGIN TREES; TREE t = a; END;", "TREE name = "),
        ("#NEXUS BEGIN TREES; TREE; END;", "TREE name = "),
        ("#NEXUS BEGIN TREES; TREE t = (a:1,b:1)", "does not end|';'"),
        ("#NEXUS BEGIN TREES; TREE t = (a:1,b:1,c:1); END;", "joins 3"),
        ("#NEXUS BEGIN TREES; TREE t = [&W 1/0] (a:1,b:1); END;", "weight"),
        ("#NEXUS BEGIN TREES; TREE t = [&W -1] (a:1,b:1); END;", "weight"),
        ("#NEXUS BEGIN TREES; TRANSLATE 1 a b; TREE t = (1:1,b:1); END;", "TRANSLATE"),
        ("#NEXUS BEGIN TREES; TRANSLATE 1 a, 1 b; TREE t = (1:1,b:1); END;", "TRANSLATE"),
        ("#NEXUS BEGIN TREES; TRANSLATE 1 a, 2 (b); TREE t = (1:1,2:1); END;", "taxon name"),
        ("#NEXUS BEGIN TREES; TRANSLATE 1 a, 2 a; TREE t = (1:1,2:1); END;", "'a' appears twice"),
        ("#NEXUS BEGIN TAXA; TAXLABELS a, b; END; BEGIN TREES; TREE t = (a:1,b:1); END;", "taxon name"),
        (
            "#NEXUS BEGIN TAXA; TAXLABELS a b c; END; BEGIN TREES; TREE t = (a:1,b:1); END;",
            "2 leaves.*3 names",
        ),
        (
            "#NEXUS BEGIN TAXA; TAXLABELS 0 1 2; END; BEGIN TREES; TREE t = (0:1,1:1); END;",
            "2 leaves.*3 names",
        ),
        ("#NEXUS BEGIN TAXA; TAXLABELS a b; END; BEGIN TREES; TREE t = (a:1,x:1); END;", "'x' is not among"),
    ],
)
def test_bad_nexus(text, words):
    with pytest.raises(ValueError, match=words):
        from_nexus(text)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([],), ValueError, "at least one"),
        (([THREE, UNNAMED],), ValueError, "same names"),
        (([THREE, Tree(THREE.children, THREE.times, names=["b", "a", "c"])],), ValueError, "same names"),
        (([UNNAMED, Tree(THREE.children, THREE.times, names=UNNAMED.leaf_names)],), ValueError, "same"),
        ((THREE, [1.0, 2.0]), ValueError, r"weights.*\(1,\)"),
        ((THREE, [-1.0]), ValueError, "weights must be ≥ 0"),
        ((THREE, [np.inf]), ValueError, "weights must be finite"),
        ((THREE, ["1"]), TypeError, "weights"),
    ],
)
def test_bad_nexus_options(arguments, error, words):
    with pytest.raises(error, match=words):
        to_nexus(*arguments)
