"""Local regrafts: against the exact posterior, the full survey, the prior and their own bookkeeping."""

import math

import numpy as np
import pytest

import coaltree as ct
from coaltree.inference.moves import lineages, local
from coaltree.inference.moves.edge_density import exposure as rough_exposure
from coaltree.inference.moves.walk import Walk, recompute, slice_times
from coaltree.inference.moves.whole_tree import Trace, trace
from coaltree.posterior.consensus import clade_ids
from tests.inference.test_exactness import CASES, data, truth
from tests.inference.test_moves import deviation, statistics
from tests.seeds import seed


def all_others(n):
    """Near rows without any preference."""
    return np.array([[j for j in range(n) if j != i] for i in range(n)], dtype=np.int32)


def nearest_rows(X, k):
    eps = ((X[:, None] - X) ** 2).sum(axis=2)
    np.fill_diagonal(eps, np.inf)
    return np.argsort(eps, axis=1)[:, :k].astype(np.int32)


def walk_over(X, leaf_noise=0.0, number=0, near=None, tree=None, most=None, **how):
    n = len(X)
    tree = ct.sample_tree(n, random_state=seed(number)) if tree is None else tree
    noise = np.broadcast_to(np.asarray(leaf_noise, dtype=float), n)
    walk = Walk(tree, all_others(n) if near is None else near, X, noise, np.random.default_rng(seed(number)), **how)
    recompute(walk.state)  # a sweep does so itself, single moves do not
    if most is not None:
        walk.most = most
    return walk


def walk_on_its_way(n, d, leaf_noise, number):
    """Rows from the model, and a walk over them after two sweeps."""
    rng = np.random.default_rng(seed(number))
    X = ct.sample_data(ct.sample_tree(n, random_state=rng), d, leaf_noise=leaf_noise, random_state=rng)
    walk = walk_over(X, leaf_noise, number, nearest_rows(X, min(8, n - 1)))
    walk.sweep(2)
    return X, walk


def follow(walk, n_draws, step=None):
    children, times, joint = [], [], []
    for _ in range(n_draws):
        if step is None:
            walk.sweep()
        else:
            step(walk)
        for kept, array in zip((children, times), walk.to_arrays(), strict=True):
            kept.append(array)
        joint.append(walk.log_joint)
    return Trace(np.array(children), np.array(times), np.array(joint), None)


def deviation_from_posterior(walk, n, d, leaf_noise, n_draws, step=None):
    exact = truth(n, d, leaf_noise)
    chain = follow(walk, n_draws, step)
    expected = [*exact.first_pair.values(), *exact.history.values(), *exact.mean_log_times]
    return deviation(statistics(chain, list(exact.history))[200:], np.array(expected))


# ---- against the exact posterior


@pytest.mark.parametrize(
    ("n", "d", "leaf_noise", "most"),
    # With one of three leaves cut off there are three edges: larger searches are for four.
    [(*case, most) for case in CASES for most in (1, 3, 48) if most <= 3 or case[0] > 3],
)
def test_chain_agrees_with_quadrature(n, d, leaf_noise, most):
    """However few edges a search finds: here one or three of at most seven."""
    walk = walk_over(data(n, d, leaf_noise), leaf_noise, 10 * n + d, most=most)
    assert deviation_from_posterior(walk, n, d, leaf_noise, 8000) < 4.5


def only_regrafts(walk):
    local.regraft_nodes(walk.state, 0, 1, walk.most, walk.stream, walk.counts)


@pytest.mark.parametrize("near", [all_others(4), (np.arange(4)[:, None] + 1) % 4])
def test_regrafts_alone_agree_with_quadrature(near):
    n, d, leaf_noise = 4, 2, 0.3
    walk = walk_over(data(n, d, leaf_noise), leaf_noise, 3, near, most=2)
    assert deviation_from_posterior(walk, n, d, leaf_noise, 8000, only_regrafts) < 4.5
    counts = walk.counts
    assert counts[local.FOUND] < 0.95 * counts[local.ANCHORED]  # some searches do not find the old edge
    assert counts[local.SURROUNDED_ACCEPTED] > 0


def test_an_anchor_that_depends_on_the_old_place_fails():
    """Negative control: near rows set before each move to a row beside the subtree, so that the search starts there."""
    n, d, leaf_noise = 4, 2, 0.3

    def broken(walk):
        state = walk.state
        for cut in range(n):
            beside = state.children[state.parent[cut]].tolist()
            beside.remove(cut)
            node = beside[0]
            while state.children[node, 0] >= 0:
                node = state.children[node, 0]
            state.near[cut] = node
            local.regraft_nodes(state, cut, 2 * n, 2, walk.stream, walk.counts)
        slice_times(state, walk.stream)

    walk = walk_over(data(n, d, leaf_noise), leaf_noise, 4, fresh=True)
    assert deviation_from_posterior(walk, n, d, leaf_noise, 8000, broken) > 6


def test_alternating_data_and_tree_keeps_the_prior():
    """Geweke's test: with X drawn anew from each tree, the chain of trees has the prior as its law, for any n and d."""
    n, d, leaf_noise = 12, 3, 0.1
    rng = np.random.default_rng(seed(44))
    tree, rows = ct.sample_tree(n, random_state=rng), []
    for _ in range(2000):
        X = ct.sample_data(tree, d, leaf_noise=leaf_noise, random_state=rng)
        walk = Walk(tree, nearest_rows(X, 3), X, np.full(n, leaf_noise), rng, fresh=True)
        walk.most = 6
        walk.sweep(rescaled=True)
        tree = walk.to_tree()
        cherries = (tree.children < n).all(axis=1).sum()
        rows.append([*tree.times, cherries])
    live = np.arange(n, 1, -1)
    assert deviation(np.array(rows), np.append(np.cumsum(2 / (live * (live - 1))), n / 3)) < 4.5


# ---- against the full survey


@pytest.mark.slow
@pytest.mark.ci
def test_supports_are_those_of_the_full_survey():
    n, d, n_draws = 60, 6, 800
    rng = np.random.default_rng(seed(5))
    X = ct.sample_data(ct.sample_tree(n, random_state=rng), d, leaf_noise=0.02, random_state=rng)
    noise = np.full(n, 0.02)
    full = trace(ct.greedy_tree(X, leaf_noise=0.02), X, noise, n_draws, rng, thin=2)
    near = follow(walk_over(X, 0.02, 6, nearest_rows(X, 8)), n_draws, lambda walk: walk.sweep(2))
    ids = clade_ids(np.concatenate([full.children[200:], near.children[200:]]))
    half = len(ids) // 2
    there = np.array([(ids == clade).any(axis=1) for clade in np.flatnonzero(np.bincount(ids.ravel()) > 0.1 * half)]).T
    batches = there.reshape(2, 20, half // 20, -1).mean(axis=2)
    error = np.sqrt(batches.var(axis=1, ddof=1).sum(axis=0) / 20) + 5e-3
    z = (batches[0].mean(axis=0) - batches[1].mean(axis=0)) / error
    assert np.sqrt(np.mean(z**2)) < 1.4
    assert np.max(np.abs(z)) < 5
    times = np.stack([np.log(full.times[200:, -8:]), np.log(near.times[200:, -8:])]).reshape(2, 20, half // 20, 8)
    means = times.mean(axis=2)
    gap = np.abs(means[0].mean(axis=0) - means[1].mean(axis=0))
    assert np.all(gap < 5 * np.sqrt(means.var(axis=1, ddof=1).sum(axis=0) / 20))


@pytest.mark.slow
@pytest.mark.ci
def test_another_noise_has_other_supports():
    """Negative control of the comparison: how far supports are apart when the target is another."""
    n, d = 60, 6
    rng = np.random.default_rng(seed(5))
    X = ct.sample_data(ct.sample_tree(n, random_state=rng), d, leaf_noise=0.02, random_state=rng)
    supports = []
    for noise in (0.02, 0.2):
        chain = follow(walk_over(X, noise, 6, nearest_rows(X, 8)), 400)
        supports.append(chain.children[100:])
    ids = clade_ids(np.concatenate(supports))
    size = int(ids.max()) + 1
    shares = [np.bincount(part.ravel(), minlength=size) / len(part) for part in np.split(ids, 2)]
    kept = np.maximum(*shares) > 0.1
    assert np.sqrt(np.mean((shares[0] - shares[1])[kept] ** 2)) > 0.15


# ---- lineages and the clock


def test_exposure_follows_merges_that_come_and_go():
    rng = np.random.default_rng(seed(7))
    n = 200
    time = np.zeros(2 * n)
    time[n:-1] = rng.exponential(size=n - 1) ** 3
    time[-1] = math.inf
    state = lineages.make_lineages(time)
    inside = set(range(n, 2 * n - 1))
    out = n
    lineages_remove(state, out, time[out])
    inside.remove(out)
    for _ in range(300):
        moved = int(rng.choice(sorted(inside)))
        lineages_remove(state, moved, time[moved])
        time[moved] = rng.exponential() ** 3
        lineages_insert(state, moved, time[moved])
        t = float(rng.choice([rng.exponential() ** 3, 0.0, time[moved], 30.0]))
        others = time[sorted(inside)]
        expected = (n - 1) * t - np.maximum(t - others, 0.0).sum()
        assert exact_exposure(state, time, t) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def compiled():
    import numba

    @numba.njit
    def insert(state, node, time):
        lineages.insert(state, node, time)

    @numba.njit
    def remove(state, node, time):
        lineages.remove(state, node, time)

    @numba.njit
    def exposure(state, times, time):
        return lineages.exposure_without(state, times, time)

    @numba.njit
    def clock(others, time):
        return rough_exposure(others, time)[0]

    return insert, remove, exposure, clock


lineages_insert, lineages_remove, exact_exposure, clock_exposure = compiled()


@pytest.mark.parametrize("n", [2, 3, 10, 5000])
def test_clock_is_close_to_the_exposure(n):
    merges = ct.sample_tree(n, random_state=seed(8)).times
    clock = lineages.make_coarse_clock(merges)
    assert len(clock.times) <= lineages.N_PIECES
    for t in np.geomspace(merges[0] / 2, 2 * merges[-1], 40):
        exact = (n - 1) * t - (n - 2) / (n - 1) * np.maximum(t - merges, 0.0).sum()
        assert clock_exposure(clock, t) == pytest.approx(exact, rel=0.02, abs=0.02)
    assert np.all(np.diff(lineages.expected_times(n)) > 0)
    assert lineages.expected_times(n)[-1] == pytest.approx(2 * (1 - 1 / n))


# ---- bookkeeping


@pytest.mark.parametrize(("n", "d", "leaf_noise"), [(2, 3, 0.1), (3, 1, 0.3), (40, 6, 0.0), (500, 16, 0.01)])
def test_log_joint_and_messages_are_kept(n, d, leaf_noise):
    X, walk = walk_on_its_way(n, d, leaf_noise, 61)
    for _ in range(3):
        only_regrafts(walk)
        slice_times(walk.state, walk.stream)
    joint = float(walk.state.log_joint[0])
    assert joint == pytest.approx(ct.log_joint(walk.to_tree(), X, None, leaf_noise=leaf_noise), rel=1e-8)
    mean, variance = walk.state.mean.copy(), walk.state.variance.copy()
    recompute(walk.state)
    assert np.array_equal(mean, walk.state.mean)
    assert np.array_equal(variance, walk.state.variance)
    assert walk.state.log_joint[0] == pytest.approx(joint, rel=1e-9)


def test_same_seed_same_bytes_and_a_file_goes_on():
    n = 80
    X = ct.sample_data(ct.sample_tree(n, random_state=1), 4, random_state=2)
    near = nearest_rows(X, 5)
    first, second, third = (walk_over(X, 0.05, k, near, ct.greedy_tree(X)) for k in (1, 1, 2))
    for walk in (first, second, third):
        walk.sweep(4)
        walk.adapt()
    assert first.to_tree() == second.to_tree() != third.to_tree()
    third.from_file(second.to_file(), second.to_tree())
    for walk in (second, third):
        walk.sweep(3)
    assert second.to_tree() == third.to_tree()


def test_searches_grow_until_they_find_the_old_edge():
    n = 400
    X = np.random.default_rng(seed(9)).normal(size=(n, 8))  # no tree in it
    walk = walk_over(X, 0.05, 9, nearest_rows(X, 10), ct.greedy_tree(X), most=16)
    for _ in range(12):
        walk.sweep()
        walk.adapt()
    assert walk.most > 16
    walk.sweep(2)
    assert walk.counts[local.FOUND] > 0.9 * walk.counts[local.ANCHORED]


# ---- edges of the domain


@pytest.mark.parametrize("n", [10, 20])
def test_searches_of_small_tables_adapt_too(n):
    # One sweep of so few rows has too few searches to judge by: outcomes add up over sweeps.
    X = ct.sample_data(ct.sample_tree(n, random_state=seed(40)), 6, leaf_noise=0.05, random_state=seed(41))
    walk = walk_over(X, 0.05)
    for _ in range(60):
        walk.sweep()
        walk.adapt()
    assert walk.most < 30  # of 48


def test_ties_and_impossible_starts_are_left_at_once():
    n = 8
    X = ct.sample_data(ct.sample_tree(n, random_state=1), 2, random_state=2)
    caterpillar = [[0, 1], *([k + 1, n + k - 1] for k in range(1, n - 1))]
    for time in (0.0, 0.7):
        walk = walk_over(X, 0.0, 63, tree=ct.Tree(caterpillar, np.full(n - 1, time)))
        walk.sweep(60)
        assert np.all(np.diff(walk.to_tree().times, prepend=0.0) > 0)
        assert walk.log_joint == pytest.approx(ct.log_joint(walk.to_tree(), X), rel=1e-8)


def test_equal_rows_and_one_far_away():
    n = 60
    X = np.zeros((n, 3))
    X[40:] = np.random.default_rng(0).normal(size=(20, 3))
    X[-1] = 1e6
    walk = walk_over(X, 0.1, 64, nearest_rows(X, 6), ct.greedy_tree(X, leaf_noise=0.1))
    walk.sweep(20)
    tree = walk.to_tree()
    assert walk.log_joint == pytest.approx(ct.log_joint(tree, X, None, leaf_noise=0.1), rel=1e-8)
    assert n - 1 in tree.children[-1]  # the last to merge
    assert walk.counts[local.ACCEPTED] > 0.5 * walk.counts[local.ANCHORED]


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_extreme_scales(scale):
    n = 10
    X = scale * ct.sample_data(ct.sample_tree(n, random_state=1), 5, random_state=2)
    walk = walk_over(X, 0.0, 65)
    before = float(walk.log_joint)
    walk.sweep(100)
    assert walk.log_joint == pytest.approx(ct.log_joint(walk.to_tree(), X), rel=1e-8)
    assert walk.log_joint > before


def test_rows_must_match_the_tree():
    tree = ct.sample_tree(15, random_state=3)
    with pytest.raises(ValueError, match=r"one row per leaf of the tree \(15\), got 14"):
        Walk(tree, all_others(14), np.zeros((14, 2)), np.zeros(14), np.random.default_rng(0))
