"""MCMC moves against the exact posterior, the prior and their own definitions."""

import math

import numpy as np
import pytest

import coaltree as ct
from coaltree.inference.moves.mutable_tree import make_chain, to_tree
from coaltree.inference.moves.whole_tree import MoveInfo, Schedule, trace
from coaltree.model import gig
from tests.inference.test_exactness import CASES, data, truth
from tests.reference.regraft import Proposal, hang
from tests.reference.trees import leaves_below
from tests.seeds import seed

N_BATCHES = 40


def sweep(tree, X, leaf_noise, n_sweeps, rng, schedule=None):
    """The tree after some sweeps, and the counts of moves."""
    chain = trace(tree, X, leaf_noise, 1, rng, thin=n_sweeps, schedule=schedule)
    return ct.Tree(chain.children[0], chain.times[0]), chain.info


def history(tree):
    """The ordered history of a tree as `exact_posterior` writes it."""
    return tuple(
        tuple(sorted(tuple(sorted(leaves_below(tree, node))) for node in pair)) for pair in tree.children.tolist()
    )


def statistics(chain, histories):
    """One row a tree: indicators of first pairs and of histories, log times."""
    n = chain.times.shape[1] + 1
    pairs = np.sort(chain.children[:, 0], axis=1)
    i, j = np.triu_indices(n, 1)
    patterns, which = np.unique(chain.children.reshape(len(chain.times), -1), axis=0, return_inverse=True)
    keys = [history(ct.Tree(p.reshape(-1, 2), np.arange(n - 1))) for p in patterns]
    found = np.array([[key == h for h in histories] for key in keys])[which.ravel()]
    return np.hstack([(pairs[:, :1] == i) & (pairs[:, 1:] == j), found, np.log(chain.times)])


def deviation(rows, expected, rarest=0.02):
    """Largest distance of the chain's averages from the truth, in standard errors by batch means.

    Events rarer than `rarest` have no usable standard error and are left out.
    """
    batches = rows[len(rows) % N_BATCHES :].reshape(N_BATCHES, -1, rows.shape[1]).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / math.sqrt(N_BATCHES)
    is_event = np.isin(rows, (0, 1)).all(axis=0)
    kept = ~is_event | (np.abs(expected - 0.5) < 0.5 - rarest)
    return np.max((np.abs(batches.mean(axis=0) - expected) / (error + 1e-4))[kept])


def deviation_from_posterior(n, d, leaf_noise, schedule, number, n_draws=8000, temperature=1.0):
    exact = truth(n, d, leaf_noise)
    start = ct.sample_tree(n, random_state=seed(number))
    rng = np.random.default_rng(seed(number))
    chain = trace(
        start,
        data(n, d, leaf_noise),
        np.full(n, leaf_noise),
        n_draws,
        rng,
        schedule=schedule,
        temperature=temperature,
    )
    expected = [*exact.first_pair.values(), *exact.history.values(), *exact.mean_log_times]
    return deviation(statistics(chain, list(exact.history))[200:], np.array(expected))


# ---- against the exact posterior


@pytest.mark.parametrize(("n", "d", "leaf_noise"), CASES)
def test_chain_agrees_with_quadrature(n, d, leaf_noise):
    assert deviation_from_posterior(n, d, leaf_noise, None, 10 * n + d) < 4.5


@pytest.mark.parametrize(("n", "d", "leaf_noise"), [(3, 2, 0.0), (4, 2, 0.3)])
@pytest.mark.parametrize("schedule", [Schedule(3, 0, 0), Schedule(2, 1, 0), Schedule(2, 0, 1), Schedule(1, 2, 2)])
def test_each_mixture_of_moves_agrees_with_quadrature(schedule, n, d, leaf_noise):
    assert deviation_from_posterior(n, d, leaf_noise, schedule, 100 + n, n_draws=6000) < 4.5


def test_another_temperature_fails():
    """Negative control of the comparison itself."""
    assert deviation_from_posterior(4, 2, 0.3, None, 7, temperature=1.25) > 6


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d", "leaf_noise"), [*CASES, (4, 1, 0.5), (4, 40, 0.05)])
@pytest.mark.parametrize("schedule", [None, Schedule(1, 0, 0), Schedule(1, 1, 0), Schedule(1, 0, 1)])
def test_long_chains_agree_with_quadrature(schedule, n, d, leaf_noise):
    assert deviation_from_posterior(n, d, leaf_noise, schedule, 1000 * n + d, n_draws=100_000) < 4.5


def test_a_regraft_without_its_hastings_term_fails():
    """Negative control, by the plain twin: right with q(old)/q(new) in the acceptance ratio, wrong without."""
    n, d, leaf_noise, n_steps = 3, 2, 0.0, 600
    X, exact = data(n, d, leaf_noise), truth(n, d, leaf_noise)
    expected = np.array([*exact.first_pair.values(), *exact.mean_log_times])
    deviations = []
    for hastings in (True, False):
        rng = np.random.default_rng(seed(21))
        tree, rows = ct.sample_tree(n, random_state=rng), []
        for _ in range(n_steps):
            cut = int(rng.integers(2 * n - 2))
            sibling = next(c for pair in tree.children.tolist() if cut in pair for c in pair if c != cut)
            time = tree.times[tree.parents()[cut] - n]
            proposal = Proposal(tree, X, leaf_noise, cut)
            node, t = proposal.draw(rng, lambda eps, r, rng=rng: (gig.sample(d, eps, 1.0, r, 1, rng)[0] - r) / 2)
            log_ratio = proposal.log_f(node, t) - proposal.log_f(sibling, time)
            if hastings:
                log_ratio += proposal.log_q(sibling, time) - proposal.log_q(node, t)
            if -rng.exponential() < log_ratio:
                tree = ct.Tree(*hang(tree, cut, node, t))
            pair = tuple(sorted(tree.children[0].tolist()))
            rows.append([*(pair == p for p in exact.first_pair), *np.log(tree.times)])
        deviations.append(deviation(np.array(rows, dtype=float), expected))
    assert deviations[0] < 4.5
    assert deviations[1] > 6


# ---- slices and scalings by themselves


def log_joint_of_three(X, leaf_noise, low, gap):
    """Log p of ((0, 1), 2) with merges at `low` and `low + gap`, from the definitions."""
    d = X.shape[1]
    v_low = 2 * low + 2 * leaf_noise
    v_high = v_low / 4 + gap + leaf_noise + low + gap
    eps = ((X[0] - X[1]) ** 2).sum(), ((X[:2].mean(axis=0) - X[2]) ** 2).sum()
    log_z = -d / 2 * np.log((2 * np.pi) ** 2 * v_low * v_high) - eps[0] / (2 * v_low) - eps[1] / (2 * v_high)
    return log_z - 3 * low - gap


@pytest.mark.parametrize("schedule", [Schedule(0, 1, 0), Schedule(0, 1, 1)])
@pytest.mark.parametrize(("d", "leaf_noise"), [(2, 0.0), (8, 0.2)])
def test_slices_alone_sample_the_times_of_a_tree(schedule, d, leaf_noise):
    X = data(3, d, leaf_noise)
    low, gap = np.meshgrid(*[np.exp(np.linspace(-16, 4, 1000))] * 2)
    log_p = log_joint_of_three(X, leaf_noise, low, gap) + np.log(low * gap)
    p = np.exp(log_p - log_p.max())
    expected = np.array([(p * np.log(low)).sum(), (p * np.log(low + gap)).sum()]) / p.sum()
    start = ct.Tree([[0, 1], [2, 3]], [0.5, 1.0])
    chain = trace(start, X, np.full(3, leaf_noise), 8000, np.random.default_rng(seed(31)), schedule=schedule)
    assert np.all(chain.children == start.children)
    assert deviation(np.log(chain.times), expected) < 4.5


def test_slices_alone_exchange_the_order_of_merges():
    n, d, leaf_noise = 4, 2, 0.3
    exact = truth(n, d, leaf_noise)
    start = ct.Tree([[0, 1], [2, 3], [4, 5]], [0.1, 0.2, 1.0])
    swapped = ct.Tree([[2, 3], [0, 1], [4, 5]], [0.1, 0.2, 1.0])
    first, second = exact.history[history(start)], exact.history[history(swapped)]
    rng = np.random.default_rng(seed(32))
    chain = trace(start, data(n, d, leaf_noise), np.full(n, leaf_noise), 8000, rng, schedule=Schedule(0, 1, 1))
    rows = statistics(chain, [history(start)])[:, 6:7]
    assert deviation(rows, np.array([first / (first + second)])) < 4.5


def test_scaling_alone_samples_the_scale_and_needs_its_jacobian():
    n, d, leaf_noise = 5, 3, 0.2
    tree = ct.sample_tree(n, random_state=3)
    X = ct.sample_data(tree, d, leaf_noise=leaf_noise, random_state=4)
    u = np.linspace(-8, 8, 4001)
    log_p = [
        ct.log_joint(ct.Tree(tree.children, tree.times * math.exp(x)), X, None, leaf_noise=leaf_noise) for x in u[::10]
    ]
    log_p = np.interp(u, u[::10], log_p)

    def mean_log_scale(jacobian):
        p = np.exp(log_p + jacobian * u - np.max(log_p + jacobian * u))
        return p @ u / p.sum()

    rng = np.random.default_rng(seed(33))
    chain = trace(tree, X, np.full(n, leaf_noise), 4000, rng, thin=5, schedule=Schedule(0, 0, 1))
    moved = np.log(chain.times[:, -1:] / tree.times[-1])
    np.testing.assert_allclose(chain.times / chain.times[:, -1:], np.tile(tree.times / tree.times[-1], (4000, 1)))
    assert deviation(moved, np.array([mean_log_scale(n - 1)])) < 4.5
    assert deviation(moved, np.array([mean_log_scale(0)])) > 6


# ---- against the prior


@pytest.mark.parametrize("schedule", [None, Schedule(3, 0, 0)])
def test_without_data_the_chain_samples_the_prior(schedule):
    n = 6
    start = ct.sample_tree(n, random_state=seed(41))
    rng = np.random.default_rng(seed(42))
    chain = trace(start, np.empty((n, 0)), np.zeros(n), 8000, rng, schedule=schedule)
    pairs = np.sort(chain.children[:, 0], axis=1)
    i, j = np.triu_indices(n, 1)
    rows = np.hstack([(pairs[:, :1] == i) & (pairs[:, 1:] == j), chain.times])
    live = np.arange(n, 1, -1)
    mean_times = np.cumsum(2 / (live * (live - 1)))
    assert mean_times[-1] == pytest.approx(2 * (1 - 1 / n))
    assert deviation(rows, np.concatenate([np.full(15, 1 / 15), mean_times])) < 4.5


def test_huge_leaf_noise_leaves_the_prior():
    n = 5
    rng = np.random.default_rng(seed(43))
    chain = trace(ct.sample_tree(n, random_state=rng), rng.normal(size=(n, 2)), np.full(n, 1e7), 6000, rng)
    live = np.arange(n, 1, -1)
    assert deviation(chain.times, np.cumsum(2 / (live * (live - 1)))) < 4.5


def test_alternating_data_and_tree_keeps_the_prior():
    """Geweke's test: with X drawn anew from each tree, the chain of trees has the prior as its law, for any n and d."""
    n, d, leaf_noise = 8, 3, 0.1
    rng = np.random.default_rng(seed(44))
    tree, rows = ct.sample_tree(n, random_state=rng), []
    for _ in range(5000):
        X = ct.sample_data(tree, d, leaf_noise=leaf_noise, random_state=rng)
        tree, _ = sweep(tree, X, np.full(n, leaf_noise), 1, rng, schedule=Schedule(n // 2, 1, 1))
        cherries = (tree.children < n).all(axis=1).sum()
        rows.append([*tree.times, cherries])
    live = np.arange(n, 1, -1)
    assert deviation(np.array(rows), np.append(np.cumsum(2 / (live * (live - 1))), n / 3)) < 4.5


# ---- bookkeeping, seeds, edges of the domain


@pytest.mark.parametrize(("d", "leaf_noise"), [(1, 0.3), (6, 0.0), (100, 0.0)])
def test_log_joint_is_kept_through_thousands_of_moves(d, leaf_noise):
    n = 30
    rng = np.random.default_rng(seed(61))
    X = ct.sample_data(ct.sample_tree(n, random_state=rng), d, leaf_noise=leaf_noise, random_state=rng)
    # No scalings: they would recompute everything.
    schedule, start = Schedule(regrafts=200, slices=2, scales=0), ct.sample_tree(n, random_state=rng)
    chain = trace(start, X, np.full(n, leaf_noise), 20, rng, schedule=schedule)
    assert chain.info.regrafts == 4000
    for children, times, log_joint in zip(chain.children[::5], chain.times[::5], chain.log_joint[::5], strict=True):
        assert log_joint == pytest.approx(
            ct.log_joint(ct.Tree(children, times), X, None, leaf_noise=leaf_noise), rel=1e-8
        )


def test_same_seed_same_bytes():
    n = 12
    X = ct.sample_data(ct.sample_tree(n, random_state=1), 3, random_state=2)
    start = ct.sample_tree(n, random_state=5)
    first, second, other = (trace(start, X, np.zeros(n), 20, np.random.default_rng(k)) for k in (1, 1, 2))
    assert first.children.tobytes() == second.children.tobytes()
    assert first.times.tobytes() == second.times.tobytes()
    assert first.times.tobytes() != other.times.tobytes()
    tree, info = sweep(start, X, np.zeros(n), 20, np.random.default_rng(1))
    assert tree == ct.Tree(first.children[-1], first.times[-1])
    assert info == first.info


def test_most_moves_are_accepted():
    n = 40
    X = ct.sample_data(ct.sample_tree(n, random_state=1), 10, random_state=2)
    tree, _ = sweep(ct.sample_tree(n, random_state=5), X, np.zeros(n), 20, np.random.default_rng(seed(1)))
    _, info = sweep(tree, X, np.zeros(n), 50, np.random.default_rng(seed(1)))
    assert info == MoveInfo(2000, info.regrafts_accepted, info.regrafts_elsewhere, 50, info.scales_accepted)
    assert info.regrafts_accepted > 0.95 * info.regrafts
    assert 0 < info.regrafts_elsewhere < info.regrafts_accepted
    assert 0.2 < info.scales_accepted / info.scales < 0.9


def test_two_leaves():
    """The one merge time has the density of the root slice, an exact draw."""
    X = np.array([[0.0, 0.0], [1.0, 0.5]])
    chain = trace(ct.Tree([[0, 1]], [1.0]), X, np.full(2, 0.1), 6000, np.random.default_rng(seed(62)))
    v = gig.mean(2, 1.25, 1.0, 0.2)
    assert deviation(chain.times, np.array([(v - 0.2) / 2])) < 4.5


def test_ties_and_impossible_starts_are_left_at_once():
    n = 8
    X = ct.sample_data(ct.sample_tree(n, random_state=1), 2, random_state=2)
    caterpillar = [[0, 1], *([k + 1, n + k - 1] for k in range(1, n - 1))]
    for time in (0.0, 0.7):
        tied = ct.Tree(caterpillar, np.full(n - 1, time))
        tree, info = sweep(tied, X, np.zeros(n), 30, np.random.default_rng(seed(63)))
        assert np.all(np.diff(tree.times, prepend=0.0) > 0)
        assert info.regrafts_elsewhere > 0
        chain = trace(tied, X, np.zeros(n), 30, np.random.default_rng(seed(63)))
        assert chain.log_joint[-1] == pytest.approx(ct.log_joint(tree, X), rel=1e-8)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_extreme_scales(scale):
    n = 10
    X = scale * ct.sample_data(ct.sample_tree(n, random_state=1), 5, random_state=2)
    chain = trace(ct.sample_tree(n, random_state=3), X, np.zeros(n), 100, np.random.default_rng(seed(64)))
    tree = ct.Tree(chain.children[-1], chain.times[-1])
    assert chain.log_joint[-1] == pytest.approx(ct.log_joint(tree, X), rel=1e-8)
    assert chain.log_joint[-1] > ct.log_joint(ct.sample_tree(n, random_state=3), X)


def test_a_chain_returns_the_tree_it_was_given():
    tree = ct.sample_tree(15, random_state=3, names=[f"x{i}" for i in range(15)])
    X = ct.sample_data(tree, 2, random_state=2)
    assert to_tree(make_chain(tree, X, np.zeros(15)), tree.names) == tree
    with pytest.raises(ValueError, match=r"one row per leaf of the tree \(15\), got 14"):
        make_chain(tree, X[:14], np.zeros(14))
