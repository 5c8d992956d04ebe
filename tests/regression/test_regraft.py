"""Hanging one outcome elsewhere together with its coefficients."""

import numpy as np
import pytest
from scipy import stats

import coaltree as ct
from coaltree.model.diffusion import contrasts
from coaltree.randomness import make_streams
from coaltree.regression.likelihood import penalised_mode
from coaltree.regression.moves.coefficients import evaluate, make_pilot
from coaltree.regression.moves.regraft import Places, expansion, log_evidences, move_leaf, regrafted, survey
from tests.model.invariance import LIMIT
from tests.regression.invariance import PRIOR, drift, simulate
from tests.seeds import seed


def look(tree, leaf, beta, noise, n_places, rng):
    places = Places(
        np.empty(n_places, dtype=np.int64), np.empty(n_places), np.empty((n_places, beta.shape[1])), np.empty(n_places)
    )
    survey(tree.children, tree.node_times(), leaf, beta, noise, make_streams(rng, 1)[0], places)
    return places


@pytest.mark.parametrize("n", [2, 3, 7])
def test_places_say_what_the_regrafted_tree_says(n):
    """The leaf given the others, from the dense precision of the whole tree."""
    rng = np.random.default_rng(seed(0))
    for leaf in range(n):
        tree, beta = ct.sample_tree(n, random_state=rng), rng.standard_normal((n, 2))
        noise = rng.exponential(size=n)
        places = look(tree, leaf, beta, noise, 12, rng)
        others = np.delete(np.arange(n), leaf)
        for r in range(12):
            new = regrafted(tree, leaf, int(places.edge[r]), float(places.time[r]))
            if r == 0:
                assert new == tree
            weights = contrasts(new, np.eye(n), noise)
            Q = weights.T @ weights
            assert places.variance[r] == pytest.approx(1 / Q[leaf, leaf], rel=1e-9)
            np.testing.assert_allclose(places.mean[r], -Q[leaf, others] @ beta[others] / Q[leaf, leaf], rtol=1e-8)
            # The rest of the tree is as it was.
            rows = np.ix_(others, others)
            np.testing.assert_allclose(new.cophenetic()[rows], tree.cophenetic()[rows], rtol=1e-12)


def test_places_come_from_the_coalescent():
    """A tree of four leaves with one hung anew is again a draw from the coalescent."""
    rng = np.random.default_rng(seed(1))
    fresh, moved = [], []
    for _ in range(2000):
        tree = ct.sample_tree(4, random_state=rng)
        places = look(tree, 2, np.zeros((4, 1)), np.zeros(4), 2, rng)
        new = regrafted(tree, 2, int(places.edge[1]), float(places.time[1]))
        moved.append([new.times[-1], new.times[0], new.cophenetic()[2, 0], new.cophenetic()[2, 3]])
        other = ct.sample_tree(4, random_state=rng)
        fresh.append([other.times[-1], other.times[0], other.cophenetic()[2, 0], other.cophenetic()[2, 3]])
    for a, b in zip(np.array(fresh).T, np.array(moved).T, strict=True):
        assert stats.ks_2samp(a, b).pvalue > 1e-4
        assert stats.ks_2samp(a, 1.3 * b).pvalue < 1e-4


def kernel(correct):
    def move(hyper, theta, likelihood, rng):
        pilot = make_pilot(likelihood, np.zeros_like(theta))
        point = evaluate(likelihood, theta)
        for j in range(len(theta)):
            outcome = likelihood.of_outcome(j)
            if not correct:  # as if the expansion were the likelihood: every proposal is accepted
                flat = np.full_like(point.values, -np.inf)
                hyper, point, _ = move_leaf(hyper, point._replace(values=flat), j, outcome, pilot, PRIOR, rng)
            else:
                hyper, point, _ = move_leaf(hyper, point, j, outcome, pilot, PRIOR, rng)
        return hyper, point.theta

    return move


@pytest.mark.parametrize("n_outcomes", [2, 4])
def test_the_joint_distribution_stays(n_outcomes):
    assert np.abs(drift(kernel(True), n_outcomes, 250, 20)).max() < LIMIT


def test_without_its_correction_it_is_noticed():
    assert np.abs(drift(kernel(False), 4, 150, 20)).max() > LIMIT


def test_the_point_stays_complete():
    rng = np.random.default_rng(seed(3))
    accepted = 0
    for _ in range(5):
        hyper, theta, likelihood = simulate(3, rng)
        pilot = make_pilot(likelihood, penalised_mode(likelihood, np.ones(3)))
        point = evaluate(likelihood, theta)
        for step in range(15):
            outcome = likelihood.of_outcome(step % 3)
            hyper, point, moved = move_leaf(hyper, point, step % 3, outcome, pilot, PRIOR, rng)
            accepted += moved
        again = evaluate(likelihood, point.theta)
        np.testing.assert_allclose(point.values, again.values, rtol=1e-12)
        np.testing.assert_allclose(point.gradient, again.gradient, rtol=1e-9)
    assert accepted > 5


def test_expansion_is_second_order():
    rng = np.random.default_rng(4)
    _, theta, likelihood = simulate(2, rng)
    pilot = make_pilot(likelihood, theta)
    values = likelihood.values_and_gradient(theta)[0]
    step = rng.standard_normal(theta.shape)
    errors = []
    for size in (1e-1, 1e-2):
        near = likelihood.values_and_gradient(theta + size * step)[0][0] - values[0]
        errors.append(abs(near - expansion(pilot, 0, theta[0] + size * step[0])))
    assert errors[1] < errors[0] / 300


@pytest.mark.parametrize("n_features", [3, 400])
def test_a_place_is_weighted_by_the_integral_over_coefficients(n_features):
    """∫ N(γ; m, vσ² I) exp(bγ − ½ γᵀ diag(h + level) γ) dγ, from the density of b/(h + level) under prior and noise."""
    rng = np.random.default_rng(seed(5))
    mean, v = rng.standard_normal((4, n_features)), rng.exponential(size=4)
    places = Places(np.zeros(4, dtype=np.int64), np.zeros(4), mean, v)
    h, b, level, variance = 1e4 * rng.exponential(size=n_features), 30.0 * rng.standard_normal(n_features), 0.7, 0.3
    found = np.empty(4)
    log_evidences(places, variance, h, b, level, found)
    total = h + level
    spread = np.sqrt(variance * v[:, None] + 1.0 / total)
    expected = stats.norm.logpdf(b / total, mean, spread).sum(axis=1)
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-9, atol=1e-8)
