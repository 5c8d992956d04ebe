"""Regrafts of two subtrees at once: against the exact posterior, the prior and their own bookkeeping."""

import numpy as np
import pytest

import coaltree as ct
from coaltree.inference.moves import local, pairs
from coaltree.inference.moves.walk import Walk, recompute, slice_times
from tests.inference.test_exactness import data
from tests.inference.test_moves import deviation
from tests.inference.test_walk import deviation_from_posterior, follow, nearest_rows, walk_on_its_way, walk_over
from tests.seeds import seed

N, D, NOISE = 4, 2, 0.3


def only_pairs(walk):
    pairs.regraft_pairs(walk.state, 8, walk.most, walk.stream, walk.counts)
    slice_times(walk.state, walk.stream)


def two_leaves(choose):
    """Regraft leaf 0, 1, 2, 3 in turn, each together with a leaf that is chosen."""

    def step(walk):
        for one in range(N):
            two = choose(walk.state, one)
            if two < N:
                pairs.regraft_two(walk.state, one, two, walk.most, walk.stream, walk.counts)
        slice_times(walk.state, walk.stream)

    return step


def next_row(state, one):
    return (one + 1) % N


def sibling(state, one):
    beside = state.children[state.parent[one]].tolist()
    beside.remove(one)
    return beside[0]


@pytest.mark.parametrize(("most", "d", "leaf_noise"), [(48, 2, 0.3), (2, 2, 0.3), (48, 3, 0.0)])
def test_pairs_and_slices_agree_with_quadrature(most, d, leaf_noise):
    walk = walk_over(data(N, d, leaf_noise), leaf_noise, 81, most=most)
    assert deviation_from_posterior(walk, N, d, leaf_noise, 6000, only_pairs) < 4.5
    assert walk.counts[local.PAIRS_ACCEPTED] > 0.03 * walk.counts[local.PAIRS]


@pytest.mark.parametrize(("choose", "right"), [(next_row, True), (sibling, False)])
def test_the_second_subtree_must_not_depend_on_the_place_of_the_first(choose, right):
    """The sibling, where that is a leaf: after the move another one is, so the way back has another probability."""
    walk = walk_over(data(N, D, NOISE), NOISE, 82, fresh=True)
    z = deviation_from_posterior(walk, N, D, NOISE, 6000, two_leaves(choose))
    assert z < 4.5 if right else z > 6


def test_alternating_data_and_tree_keeps_the_prior():
    """Geweke's test, of pairs and slices alone; subtrees of all sizes, and searches that find little."""
    n, d, leaf_noise = 9, 3, 0.1
    rng = np.random.default_rng(seed(83))
    tree, rows, counts = ct.sample_tree(n, random_state=rng), [], np.zeros(local.N_COUNTS, dtype=np.int64)
    for _ in range(1500):
        X = ct.sample_data(tree, d, leaf_noise=leaf_noise, random_state=rng)
        walk = Walk(tree, nearest_rows(X, 3), X, np.full(n, leaf_noise), rng, fresh=True)
        recompute(walk.state)
        pairs.regraft_pairs(walk.state, 2 * n, 6, walk.stream, counts)
        slice_times(walk.state, walk.stream)
        tree = walk.to_tree()
        rows.append([*tree.times, (tree.children < n).all(axis=1).sum()])
    live = np.arange(n, 1, -1)
    assert deviation(np.array(rows), np.append(np.cumsum(2 / (live * (live - 1))), n / 3)) < 4.5
    assert counts[local.PAIRS_ACCEPTED] > 0


@pytest.mark.parametrize(("n", "d", "leaf_noise"), [(2, 3, 0.1), (3, 1, 0.3), (40, 6, 0.0), (300, 16, 0.01)])
def test_log_joint_and_messages_are_kept(n, d, leaf_noise):
    X, walk = walk_on_its_way(n, d, leaf_noise, 84)
    pairs.regraft_pairs(walk.state, 3 * n, walk.most, walk.stream, walk.counts)
    if n > 3:
        assert walk.counts[local.PAIRS_ACCEPTED] > 0
    joint = float(walk.state.log_joint[0])
    assert joint == pytest.approx(ct.log_joint(walk.to_tree(), X, None, leaf_noise=leaf_noise), rel=1e-8)
    mean = walk.state.mean.copy()
    recompute(walk.state)
    assert np.array_equal(mean, walk.state.mean)


def test_pairs_are_for_where_single_subtrees_hardly_move():
    """Noise in many columns, and in few; a file goes on with as many pairs."""
    n = 40
    for d, expected in ((4, 0), (300, n // 2)):
        rng = np.random.default_rng(seed(85))
        X = ct.sample_data(ct.sample_tree(n, random_state=rng), d, leaf_noise=0.05, random_state=rng)
        walk = walk_over(X, 0.05, 85, nearest_rows(X, 8), ct.greedy_tree(X, leaf_noise=0.05))
        for _ in range(3):
            walk.sweep(4)
            walk.adapt()
        assert walk.n_pairs == expected
    other = walk_over(X, 0.05, 86, nearest_rows(X, 8), ct.greedy_tree(X, leaf_noise=0.05))
    other.from_file(walk.to_file(), walk.to_tree())
    assert [each.n_pairs for each in (walk, other)] == [n // 2] * 2
    assert np.array_equal(follow(walk, 3).times, follow(other, 3).times)


# ---- the likelihood to a power, in warm-up


def test_a_heated_walk_has_the_posterior_of_fewer_columns():
    """At β = ½ a table whose columns are all there twice counts as if they were there once."""
    leaf_noise, half = NOISE, data(N, D, NOISE)
    walk = walk_over(np.hstack([half, half]), leaf_noise, 87)
    walk.state.heat[:] = D, 0.5
    recompute(walk.state)
    assert walk.state.log_joint[0] == pytest.approx(
        ct.log_joint(walk.to_tree(), half, None, leaf_noise=leaf_noise), rel=1e-9
    )

    def step(walk):
        walk.sweep(rescaled=True)
        pairs.regraft_pairs(walk.state, 2, walk.most, walk.stream, walk.counts)

    assert deviation_from_posterior(walk, N, D, leaf_noise, 6000, step) < 4.5
    walk.cool(1.0)
    assert deviation_from_posterior(walk, N, D, leaf_noise, 6000, step) > 6


def test_warm_up_ends_with_the_whole_likelihood():
    n, d, warmup = 20, 256, 50
    X = ct.sample_data(ct.sample_tree(n, random_state=1), d, leaf_noise=0.1, random_state=2)
    walk = walk_over(X, 0.1, 88, nearest_rows(X, 8))
    powers = []
    for done in range(1, warmup + 1):
        walk.sweep()
        walk.adapt(done, warmup)
        powers.append(float(walk.state.heat[1]))
    assert 0.25 < powers[0] < 0.3
    assert powers == sorted(powers)
    assert powers[29:] == [1.0] * 21
    assert walk.state.log_joint[0] == pytest.approx(ct.log_joint(walk.to_tree(), X, None, leaf_noise=0.1), rel=1e-8)
    walk.adapt(1, 20)  # too short a warm-up
    assert walk.state.heat.tolist() == [d, 1.0]
    other = walk_over(X, 0.1, 89, nearest_rows(X, 8))
    walk.cool(0.5)
    other.from_file(walk.to_file(), walk.to_tree())
    assert np.array_equal(follow(walk, 2).times, follow(other, 2).times)
    broken = {**walk.to_file(), "heat": np.array([d, np.nan])}
    with pytest.raises(ValueError, match="heat must be a power between 0 and 1"):
        other.from_file(broken, walk.to_tree())
