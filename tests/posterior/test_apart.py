"""What sets the sides of a split apart: against a plain twin, and words for it."""

import numpy as np
import pytest
from scipy.stats import norm

import coaltree as ct
from coaltree.model.columns import Columns
from coaltree.model.diffusion import node_posterior
from coaltree.model.kinds import BinaryLevels, Categorical, Continuous
from coaltree.posterior.splits import Shares, set_apart

COLUMNS = Columns(
    (
        Continuous("x"),
        Categorical("kind", ("a", "b", "c")),
        BinaryLevels("ok", ("no", "yes")),
    )
)


def test_against_the_sides_alone():
    tree = ct.sample_tree(9, random_state=1)
    Z = ct.sample_data(tree, 4, leaf_noise=0.1, random_state=2)
    phi, noise = np.array([2.0, 1.0, 1.0, 1.0]), np.full(9, 0.1)
    told = set_apart(tree, COLUMNS, [Z], phi, noise, top=3)
    clades = tree.clades()
    for k in (3, 5, 7):
        sides = []
        for child in tree.children[k]:
            if child < 9:
                sides.append((Z[child], 0.1))
                continue
            # The subtree alone: what its leaves say of its root.
            leaves = np.flatnonzero(clades[child - 9])
            inside = [
                m for m in range(8) if clades[m][leaves].any() and not clades[m][np.setdiff1d(range(9), leaves)].any()
            ]
            number = {leaf: i for i, leaf in enumerate(leaves)} | {9 + m: len(leaves) + i for i, m in enumerate(inside)}
            small = ct.Tree([[number[c] for c in tree.children[m]] for m in inside], tree.times[inside])
            up = node_posterior(small, Z[leaves], 0.1)
            sides.append((up.mean[-1], up.variance[-1]))
        gap, spread = sides[0][0] - sides[1][0], np.sqrt(sides[0][1] + sides[1][1])
        utility = COLUMNS.models[1].corners @ gap[1:3]
        size = [abs(gap[0]), np.abs(utility).max(), abs(gap[3])]
        sure = [
            norm.cdf(size[0] / spread / np.sqrt(2.0)),
            norm.cdf(size[1] / spread / np.sqrt(2 / 3)),
            norm.cdf(size[2] / spread),
        ]
        order = np.argsort(-np.array(size))
        np.testing.assert_array_equal(told.column[k], order)
        np.testing.assert_allclose(told.size[k], np.array(size)[order])
        np.testing.assert_allclose(told.sure[k], np.array(sure)[order])


def test_words():
    tree = ct.Tree([[0, 1], [2, 3], [4, 5]], [0.1, 0.2, 1.0])
    values = np.array([[1.0, 0, 1], [3.0, 0, np.nan], [10.0, 1, 0], [np.nan, 2, 0]])
    shares = Shares(tree, COLUMNS, values)
    assert shares.says(4, 5, 0) == "2 against 10"
    assert shares.says(4, 5, 1) == "a 100% against 0%"
    assert shares.says(4, 5, 2) == "no 0% against 100%"
    assert shares.says(2, 3, 0) == "missing on one side"
    np.testing.assert_allclose(shares.of(6, 1), [0.5, 0.25, 0.25])
    assert shares.of(5, 0) == pytest.approx([10.0])
