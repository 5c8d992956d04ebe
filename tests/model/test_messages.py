"""The rule by which two messages meet, against precisions; passes with one variance, and with one for each column."""

import math

import numpy as np
import pytest

import coaltree as ct
from coaltree._compile import kernel
from coaltree.model import messages


@kernel
def meet(x, y):
    return messages.meet(x, y)


@kernel
def weigh(x, y):
    return messages.meet_by_weight(x, y)


@pytest.mark.parametrize(("x", "y"), [(0.3, 1.7), (2.0, 1e-9), (0.0, 1.0), (1.0, 0.0), (5.0, math.inf)])
def test_precisions_add_up(x, y):
    v, share, variance = meet(x, y)
    with np.errstate(divide="ignore"):
        precision = np.divide(1.0, [x, y])
    assert v == x + y
    assert variance == pytest.approx(1.0 / precision.sum())
    if np.isfinite(precision).all():
        assert share == pytest.approx(precision[1] / precision.sum())


def test_what_says_nothing_leaves_the_other_as_it_is():
    for x, y in ((math.inf, 0.7), (0.7, math.inf), (0.0, 0.0), (0.3, 1.7)):
        v, weight, variance = weigh(x, y)
        assert (v, 1.0 - weight, variance) == pytest.approx(meet(x, y))
    assert meet(math.inf, 0.7) == (math.inf, 1.0, 0.7)
    assert meet(0.7, math.inf) == (math.inf, 0.0, 0.7)
    assert meet(math.inf, math.inf)[2] == math.inf
    assert meet(0.0, 0.0) == (0.0, 0.5, 0.0)


def test_columns_of_their_own_agree_with_columns_that_share():
    rng = np.random.default_rng(0)
    tree, X, noise = ct.sample_tree(9, random_state=1), rng.normal(size=(9, 4)), rng.exponential(size=9)
    zeros_and_noise = np.stack([np.zeros((17, 4)), rng.normal(size=(17, 4))])
    found = []
    for n_own in (1, 4):
        mean, variance, merge_variance = np.empty((17, 4)), np.empty((17, n_own)), np.empty((8, n_own))
        mean[:9], variance[:9] = X, noise[:, None]
        messages.pass_messages_up(tree.children, tree.times, mean, variance, merge_variance)
        nodes, given_all = zeros_and_noise.copy(), np.empty_like(variance)
        messages.pass_down(tree.parents(), tree.node_times(), mean, variance, given_all, nodes)
        found.append([mean, nodes, *(np.broadcast_to(part, (len(part), 4)) for part in (variance, given_all))])
    for one, each in zip(*found, strict=True):
        np.testing.assert_allclose(one, each, rtol=1e-13, atol=1e-13)
