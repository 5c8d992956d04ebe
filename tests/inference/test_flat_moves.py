"""Near rows of few outcomes, and moves along which the likelihood is flat: first merges against leaf noise."""

import numpy as np
import pytest

import coaltree as ct
from coaltree.inference.learning.chain import Unknowns, _near_rows, draw_offset
from coaltree.inference.neighbors import nearest
from coaltree.model.covariance import PooledWishart
from coaltree.model.diffusion import log_likelihood
from coaltree.sizes import NEAR_ROWS, ROWS_SORTED
from tests.model.invariance import LIMIT
from tests.seeds import seed


def state(n, rng):
    tree = ct.sample_tree(n, random_state=rng)
    return Unknowns(tree, PooledWishart(4.0, 1.0).sample_prior(2, rng), np.full(n, rng.exponential()))


@pytest.mark.parametrize("n", [2, 3, 10])
def test_likelihood_stays_and_first_merges_are_drawn_from_their_conditional(n):
    rng = np.random.default_rng(seed(n))
    now = state(n, rng)
    X = rng.standard_normal((n, 2))
    before = log_likelihood(now.tree, X, now.covariance.matrix(), now.leaf_noise)
    total = now.tree.times[0] + now.leaf_noise[0]
    firsts = []
    for _ in range(1500):
        now = draw_offset(now, rng)
        firsts.append(now.tree.times[0])
    assert now.tree.times[0] + now.leaf_noise[0] == pytest.approx(total)
    assert log_likelihood(now.tree, X, now.covariance.matrix(), now.leaf_noise) == pytest.approx(before, rel=1e-9)
    grid = (np.arange(20_000) + 0.5) / 20_000 * total

    def z(rate):
        weight = np.exp(-rate * grid)
        mean = (weight * grid).sum() / weight.sum()
        return abs(np.mean(firsts) - mean) / (np.std(firsts) / np.sqrt(len(firsts)))

    rate = n * (n - 1) / 2 - 1
    assert z(rate) < LIMIT
    assert z(2 * rate + 5 / total) > LIMIT  # seen however short the piece that is divided


@pytest.mark.parametrize("n", [2, 5, 21, ROWS_SORTED, ROWS_SORTED + 1])
def test_near_rows_are_those_of_the_search(n):
    rows = np.random.default_rng(n).standard_normal((n, 3))
    near = _near_rows(rows)
    assert near.dtype == np.int32
    np.testing.assert_array_equal(near, nearest(rows, NEAR_ROWS)[0])


def test_copies_of_a_row_are_near_rows_too():
    near = _near_rows(np.zeros((4, 2)))
    assert [sorted(row) for row in near.tolist()] == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
