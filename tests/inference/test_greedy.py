"""Greedy rules against a plain scan with means kept."""

from itertools import combinations

import numpy as np
import pytest

import coaltree as ct
from coaltree.inference.greedy import RULES
from coaltree.model import gig


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
    X = ct.sample_data(ct.sample_tree(14, random_state=d), d, leaf_noise, random_state=d)
    ours, plain = ct.greedy_tree(X, rule=rule, leaf_noise=leaf_noise), plain_greedy(X, rule, leaf_noise)
    np.testing.assert_array_equal(np.sort(ours.children), np.sort(plain.children))
    np.testing.assert_allclose(ours.times, plain.times, rtol=1e-7)


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
