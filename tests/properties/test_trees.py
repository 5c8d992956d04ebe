"""Trees, their formats and their scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster import hierarchy

import coaltree as ct
from coaltree import formats, metrics
from tests.properties.strategies import Refused, arrays, counts, is_finite, outcome, scalars, tables, texts, trees

anything = st.one_of(tables(), scalars, st.lists(st.lists(st.integers(-1, 5), max_size=3), max_size=4), texts)


@given(
    st.one_of(anything, trees().map(lambda tree: tree.children)),
    st.one_of(anything, arrays((3,))),
    st.none() | anything,
)
def test_only_trees_are_made(children, times, names):
    tree = outcome(ct.Tree, children, times, names)
    assert isinstance(tree, Refused) or tree.n_leaves == len(tree.times) + 1


@given(st.data(), trees())
def test_methods(data, tree):
    n = tree.n_leaves
    assert is_finite(tree.cophenetic(), tree.node_times())
    assert tree.cophenetic().max() == tree.times[-1]
    assert sorted(tree.leaf_order()) == list(range(n))
    found = outcome(tree.leaves, data.draw(counts))
    assert isinstance(found, Refused) or len(found) >= 1
    labels = outcome(tree.cut, data.draw(st.none() | counts), data.draw(st.none() | scalars), also=["cut"])
    assert isinstance(labels, Refused) or sorted(set(labels.tolist())) == list(range(labels.max() + 1))
    assert hash(tree) == hash(ct.Tree(tree.children[:, ::-1], tree.times, tree.names))


@given(trees(), st.none() | counts)
def test_text_comes_back(tree, digits):
    """Newick and Nexus give back names and times, as far as the digits and the differences of doubles go."""
    text = outcome(tree.to_newick, None, digits)
    if isinstance(text, Refused):
        return
    if digits is None:
        again = ct.Tree.from_newick(text, tree.names)
        assert again.names == tree.names
        np.testing.assert_allclose(again.cophenetic(), tree.cophenetic(), rtol=1e-9, atol=1e-300)
        (again,) = formats.from_nexus(tree.to_nexus())
        assert again.names == tree.names
        np.testing.assert_allclose(again.cophenetic(), tree.cophenetic(), rtol=1e-9, atol=1e-300)


@given(st.data(), trees())
def test_writers(data, tree):
    support = data.draw(st.one_of(st.none(), scalars, arrays((tree.n_leaves - 1,))))
    text = outcome(formats.to_newick, tree, support, digits=data.draw(st.none() | counts))
    assert isinstance(text, Refused) or text.endswith(";")
    weights = data.draw(st.one_of(st.none(), scalars, arrays((2,))))
    text = outcome(formats.to_nexus, [tree, tree], weights, digits=data.draw(st.none() | counts))
    assert isinstance(text, Refused) or text.startswith("#NEXUS")


@given(st.data(), trees())
def test_linkage(data, tree):
    again = ct.Tree.from_linkage(tree.to_linkage(), tree.names)
    assert again == tree
    hierarchy.is_valid_linkage(tree.to_linkage(), throw=True)
    found = outcome(ct.Tree.from_linkage, data.draw(st.one_of(anything, arrays((tree.n_leaves - 1, 4)))))
    assert isinstance(found, Refused) or is_finite(found.times)


@given(st.one_of(texts, st.text("()ab:1.,;'[]", max_size=30), scalars), scalars)
def test_any_text(text, tolerance):
    for read in (formats.from_newick, formats.from_nexus):
        found = outcome(
            read, text, tolerance=tolerance, also=["Expected", "expected", "tree", "parentheses", "partner"]
        )
        for tree in found if isinstance(found, list) else [found]:
            assert isinstance(tree, Refused) or is_finite(tree.times)


@given(st.data(), trees())
def test_scores_against_labels(data, tree):
    n = tree.n_leaves
    some = st.one_of(
        st.lists(st.integers(0, 2), min_size=n, max_size=n),
        st.lists(texts, min_size=n, max_size=n),
        arrays((n,)),
        scalars,
    )
    labels = data.draw(some)
    for score in (metrics.subtree_score, metrics.ari_auc):
        value = outcome(score, tree, labels)
        assert isinstance(value, Refused) or -1 <= value <= 1 + 1e-12


@given(st.data(), trees(), trees())
def test_scores_against_trees(data, one, two):
    n = one.n_leaves
    for distance in (metrics.robinson_foulds, metrics.kuhner_felsenstein):
        value = outcome(distance, one, two)
        assert isinstance(value, Refused) or (is_finite(value) and value >= 0)
        assert distance(one, one) == 0
    times = data.draw(st.one_of(arrays((2, n - 1)), arrays((n - 1,)), tables(), scalars))
    weights = data.draw(st.one_of(st.none(), arrays((2,)), scalars))
    for score in (metrics.merge_time_errors, metrics.last_time_difference):
        value = outcome(score, one, times, weights=weights)
        assert isinstance(value, Refused) or not np.isnan(value).any()  # squares may be infinite
    value = outcome(metrics.distance_errors, one, data.draw(st.one_of(arrays((n, n)), tables())))
    assert isinstance(value, Refused) or not np.isnan(value).any()


def test_the_rule_itself():
    """An error of numpy's, a message that names nothing and a warning are no outcome."""
    import warnings

    def leaks(X):
        return np.linalg.cholesky(X)

    def mumbles(X):
        return ct.Tree([[0, 1]], X)  # speaks of times, an argument that `mumbles` does not have

    def warns(X):
        warnings.warn("X", stacklevel=1)

    with pytest.raises(np.linalg.LinAlgError):
        outcome(leaks, np.ones((2, 3)))
    with pytest.raises(AssertionError, match="names no argument"):
        outcome(mumbles, [1j])
    with pytest.raises(UserWarning):
        outcome(warns, 1)
