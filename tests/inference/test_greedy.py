"""Greedy rules against a plain scan with means kept."""

from itertools import combinations

import numpy as np
import pytest

import coaltree as ct
from coaltree._compile import kernel
from coaltree.inference.greedy import truncated
from coaltree.inference.greedy.rules import MEAN, RULES, farthest
from coaltree.model import gig
from coaltree.model.diffusion import pair_distances
from coaltree.model.gig import tables
from tests.reference.greedy import plain_scan
from tests.seeds import seed


def plain_greedy(X, rule, leaf_noise=0.0):
    n, d = X.shape
    clusters = {i: (X[i], leaf_noise, 0.0) for i in range(n)}
    now, children, times = 0.0, [], []
    for k in range(n - 1):
        lam = len(clusters) * (len(clusters) - 1) / 2
        best = (np.inf, None)
        for i, j in combinations(sorted(clusters), 2):
            (m1, s1, t1), (m2, s2, t2) = clusters[i], clusters[j]
            eps = ((m1 - m2) ** 2).sum()
            r = 2 * now - t1 - t2 + s1 + s2
            v = {
                "mode": lambda e=eps, lam=lam: (-d / 2 + np.sqrt(d * d / 4 + lam * e)) / lam,
                "mean": lambda e=eps, lam=lam: gig.mean(d, e, lam),
                "truncated_mean": lambda e=eps, r=r, lam=lam: gig.mean(d, e, lam, r),
                "peak": lambda e=eps: e / d,
            }[rule]()
            best = min(best, ((v - r) / 2, (i, j)))
        now += max(best[0], 0.0)
        i, j = best[1]
        (m1, s1, t1), (m2, s2, t2) = clusters.pop(i), clusters.pop(j)
        v1, v2 = s1 + now - t1, s2 + now - t2
        clusters[n + k] = ((v2 * m1 + v1 * m2) / (v1 + v2), v1 * v2 / (v1 + v2), now)
        children.append((i, j))
        times.append(now)
    return ct.Tree(children, times)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("d", "leaf_noise"), [(1, 0.0), (2, 0.1), (3, 0.0), (40, 0.0)])
def test_same_tree_as_the_plain_scan(rule, d, leaf_noise):
    X = ct.sample_data(ct.sample_tree(14, random_state=d), d, leaf_noise=leaf_noise, random_state=d)
    ours, plain = ct.greedy_tree(X, rule=rule, leaf_noise=leaf_noise), plain_greedy(X, rule, leaf_noise)
    np.testing.assert_array_equal(np.sort(ours.children), np.sort(plain.children))
    np.testing.assert_allclose(ours.times, plain.times, rtol=1e-7)


def problem(kind, d, rng):
    """Rows and leaf noise of a kind that stresses a part of the bookkeeping."""
    n = int(rng.integers(70, 110))
    if kind == "tree":
        return ct.sample_data(ct.sample_tree(n, random_state=rng), d, random_state=rng), 0.0
    if kind == "star":  # all equally far: every bound is close to every other
        return rng.normal(size=(n, d)), 0.0
    if kind == "noise":
        return ct.sample_data(ct.sample_tree(n, random_state=rng), d, leaf_noise=0.3, random_state=rng), 0.3
    if kind == "noises":
        noise = rng.exponential(size=n) * (rng.random(n) < 0.7)
        return rng.normal(size=(n, d)) * np.exp(rng.normal(size=(n, 1))), noise
    X = rng.normal(size=(n, d))
    X[: n // 2] = X[rng.integers(n // 2, n, size=n // 2)]  # duplicates
    return X, 0.1


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["tree", "star", "noise", "noises", "duplicates"])
@pytest.mark.parametrize("d", [1, 2, 3, 10, 300])
def test_same_tree_as_a_look_at_every_pair(rule, kind, d):
    rng = np.random.default_rng(seed(100 * d + len(kind)))
    X, noise = problem(kind, d, rng)
    ours, plain = ct.greedy_tree(X, rule=rule, leaf_noise=noise), plain_scan(X, rule, noise)
    np.testing.assert_array_equal(ours.children, plain.children)
    np.testing.assert_allclose(ours.times, plain.times, rtol=1e-7)


@pytest.mark.parametrize("rule", ["mode", "peak"])
def test_of_equal_pairs_the_smallest_nodes_go_first(rule):
    """Corners of a cube: hundreds of exact ties."""
    X = np.array(np.meshgrid(*[[0.0, 1.0]] * 6)).reshape(6, -1).T
    ours, plain = ct.greedy_tree(X, rule=rule, leaf_noise=0.25), plain_scan(X, rule, 0.25)
    np.testing.assert_array_equal(ours.children, plain.children)
    assert ours.children[0].tolist() == [0, 1]


def test_due_times_rise_faster_the_farther_apart_as_the_rate_falls():
    """What makes a remembered bound certain: v falls with λ, and (v at λ′) − (v at λ > λ′) grows with ε."""
    eps = np.logspace(-4, 4, 60)
    for d in (1, 2, 3, 5, 16, 300):
        for high in (1e6, 1e3, 2.0):
            for function in (gig.mean, gig.mode):
                drift = function(d, eps, 0.9 * high) - function(d, eps, high)
                assert np.all(drift > 0)
                assert np.all(np.diff(drift) > -1e-9 * drift[1:])


@kernel
def bounds(d, lam, v, eps, r, out, close):
    truncated.floors(d, lam, eps, r, out)
    truncated.close_floors(d, lam, eps, r, close, np.empty((4, eps.size)))
    return farthest(MEAN, d, lam, v)


def test_bounds_of_the_mean():
    """Beyond `farthest` no mean is smaller; no mean wait is below its floor, nor far above it where pairs crowd."""
    rng = np.random.default_rng(seed(5))
    tight, fair = [], []
    for _ in range(300):
        d, lam = float(rng.integers(1, 300)), 10 ** rng.uniform(0, 6)
        eps, r = 10 ** rng.uniform(-5, 5, size=20), 10 ** rng.uniform(-6, 3, size=20)
        r[:10] = eps[:10] / d * 10 ** rng.uniform(-1, 1, size=10)
        floor, close = np.empty(20), np.empty(20)
        mean = gig.mean(d, eps[0], lam)
        assert eps[0] <= bounds(d, lam, mean, eps, r, floor, close)
        wait = gig.mean(d, eps, lam, r) - r
        assert np.all(floor <= wait + 1e-9 * r)
        assert np.all(close <= wait + 1e-9 * r)
        crowded = (lam * r > 1000 * d) & (d * r > eps)
        tight += list(wait[crowded] / floor[crowded] - 1)
        late = d * r > eps
        fair += list(wait[late] / close[late] - 1)
    assert np.median(tight) < 0.02
    assert np.quantile(fair, 0.9) < 0.1


def test_table_of_means():
    rng = np.random.default_rng(seed(6))
    for d in (1, 2, 3, 7, 40, 1000):
        table = tables.make_mean_table(d, 1e-6, 1e9)
        y = 10 ** rng.uniform(-6, 9, size=400)
        cell = (y.view(np.int64) >> 47) - table.first
        x = (y.view(np.int64) & ((1 << 47) - 1)) / 2.0**47
        got = np.polynomial.polynomial.polyval(x, table.cubics[cell].T, tensor=False)
        np.testing.assert_allclose(got, gig.mean(d, y, 1.0), rtol=5e-9)


def test_distances_are_not_copied():
    """The packed distances are all the memory of order n² that a greedy tree takes, and they are used up."""
    from coaltree.inference.greedy.build import build
    from coaltree.inference.greedy.rules import PEAK

    eps = pair_distances(np.random.default_rng(0).normal(size=(90, 4)))
    before = eps.copy()
    build(eps, 4, np.zeros(90), PEAK)
    assert not np.array_equal(eps, before)


def test_waiting_times_of_two_points():
    X, d, lam = np.array([[0.0, 0.0], [1.0, 2.0]]), 2, 1.0
    eps = 5.0
    assert ct.greedy_tree(X, rule="mode").times[0] == pytest.approx((-1 + np.sqrt(1 + eps)) / 2)
    assert ct.greedy_tree(X, rule="mean").times[0] == pytest.approx(gig.mean(d, eps, lam) / 2)
    assert ct.greedy_tree(X, rule="truncated_mean", leaf_noise=0.7).times[0] == pytest.approx(
        (gig.mean(d, eps, lam, 1.4) - 1.4) / 2
    )
    assert ct.greedy_tree(X, rule="peak").times[0] == pytest.approx(eps / d / 2)


def test_covariance_is_used():
    """Distances along the wide axis count for less."""
    X = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    assert sorted(ct.greedy_tree(X).children[0]) == [0, 2]
    assert sorted(ct.greedy_tree(X, np.diag([100.0, 1.0])).children[0]) == [0, 1]


def test_recovers_well_separated_clusters():
    rng = np.random.default_rng(0)
    centres = 20 * rng.normal(size=(4, 6))
    X = np.repeat(centres, 10, axis=0) + rng.normal(size=(40, 6))
    for rule in RULES:
        assert ct.metrics.subtree_score(ct.greedy_tree(X, rule=rule), np.repeat(range(4), 10)) == 1.0


def test_unknown_rule():
    with pytest.raises(ValueError, match="rule must be one of 'mode', 'mean', 'truncated_mean', 'peak', got 'median'"):
        ct.greedy_tree(np.eye(3), rule="median")
