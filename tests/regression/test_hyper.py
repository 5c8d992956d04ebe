"""Moves along which the likelihood is flat: first merges against leaf noise, times against covariance."""

import numpy as np
import pytest
from scipy import stats

import coaltree as ct
from coaltree.inference import learn
from coaltree.inference.learn import Unknowns, draw_offset
from coaltree.model.covariance import HuangWand
from coaltree.model.diffusion import log_likelihood
from coaltree.regression.hyper import draw_scale
from tests.model.invariance import LIMIT
from tests.seeds import seed


def state(n, rng):
    tree = ct.sample_tree(n, random_state=rng)
    return Unknowns(tree, HuangWand(4.0, 1.0).sample_prior(2, rng), np.full(n, rng.exponential()))


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
    assert z(2 * rate + 3) > LIMIT


def test_scale_equals_the_general_move():
    """The same density as `learn.draw_scale` slices: the mean height over many draws from one state."""
    rng = np.random.default_rng(seed(5))
    now = state(5, rng)
    X = rng.standard_normal((5, 2))
    family = HuangWand(4.0, 1.0)
    before = log_likelihood(now.tree, X, now.covariance.matrix(), now.leaf_noise)

    def heights(move):
        found, here = [], now
        for _ in range(1000):
            here = move(here)
            found.append(np.log(here.tree.times[-1]))
        assert log_likelihood(here.tree, X, here.covariance.matrix(), here.leaf_noise) == pytest.approx(before)
        return np.array(found).reshape(25, -1).mean(axis=1)

    fast = heights(lambda here: draw_scale(here, X, family, rng))
    slow = heights(lambda here: learn.draw_scale(here, X, family, True, rng))
    wrong = heights(lambda here: draw_scale(here, X, HuangWand(4.0, 0.05), rng))
    assert abs(stats.ttest_ind(fast, slow, equal_var=False).statistic) < LIMIT
    assert abs(stats.ttest_ind(wrong, slow, equal_var=False).statistic) > LIMIT
