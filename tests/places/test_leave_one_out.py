"""Leave-one-out density against refits, quadrature over noise, ArviZ; and the choice of a model by it."""

import math
import warnings

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import coaltree as ct
from coaltree.estimators import learn
from coaltree.model.noise import RobustNoise
from coaltree.places import leave_one_out, predict
from coaltree.places.host import make_host
from coaltree.places.leave_one_out import log_densities
from coaltree.places.locate import Given
from coaltree.posterior import left_out
from coaltree.posterior.left_out import LeaveOneOut, compare, describe, stack
from tests.reference.places import log_densities as log_densities_of
from tests.reference.places import without
from tests.reference.posteriors import make_draws, make_posterior
from tests.seeds import seed


@pytest.mark.parametrize(("n", "d"), [(6, 1), (12, 3), (25, 8)])
def test_mass_of_a_leaf_is_the_density_of_a_new_point(n, d):
    """The tree without the leaf, and the leaf as a new point of it, placed in a tree that is built without it."""
    rng = np.random.default_rng(seed(n))
    tree = ct.sample_tree(n, random_state=rng)
    noise = 0.05 + 0.1 * rng.random(n)
    X = ct.sample_data(tree, d, leaf_noise=noise, random_state=rng)
    host, found = make_host(tree, X, noise), np.empty(n)
    for i in range(n):
        found[i] = log_densities(host, np.array([i]), (noise[i : i + 1], np.zeros(1)))[0]
        rest = np.delete(np.arange(n), i)
        alone = make_posterior([without(tree, i)], [1.0])
        fit = predict.make_fit(alone, X[rest], np.ones((1, d)), noise[rest][None], noise[i : i + 1])
        expected = predict.log_predictive(fit, X[i : i + 1])[0]
        assert found[i] - 0.5 * d * math.log(2 * math.pi) == pytest.approx(expected, abs=2e-4)
    # Held out one after the other in one go, nothing is left changed.
    law = (np.array([0.1]), np.zeros(1))
    apart = [log_densities(make_host(tree, X, np.full(n, 0.1)), np.array([i]), law)[0] for i in range(n)]
    host = make_host(tree, X, np.full(n, 0.1))
    before = [part.copy() for part in host if isinstance(part, np.ndarray)]
    np.testing.assert_array_equal(log_densities(host, np.arange(n), law), apart)
    after = [part for part in host if isinstance(part, np.ndarray)]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize(("n", "d", "noise"), [(300, 6, 0.05), (300, 1, 1e-3), (300, 16, 0.3), (900, 3, 1e-4)])
def test_leaves_of_larger_trees(n, d, noise):
    """Only what is near is looked at; everything is in the tree without the leaf, as it is with no bounds at all."""
    rng = np.random.default_rng(seed(n + d))
    tree = ct.sample_tree(n, random_state=rng)
    X = ct.sample_data(tree, d, leaf_noise=noise, random_state=rng)
    rows, law = rng.choice(n, 3, replace=False), (np.array([noise]), np.zeros(1))
    found = log_densities(make_host(tree, X, np.full(n, noise)), rows, law) - 0.5 * d * math.log(2 * math.pi)
    for i, log_f in zip(rows, found, strict=True):
        rest = np.delete(np.arange(n), i)
        expected = log_densities_of(without(tree, i), X[rest], np.full(n - 1, noise), X[i : i + 1], noise)[0]
        assert log_f == pytest.approx(expected, abs=2e-4)


def test_noise_of_its_own_is_summed_out():
    """Against quadrature over the quantiles of the multiplier."""
    rng = np.random.default_rng(seed(3))
    tree, tails = ct.sample_tree(8, random_state=rng), RobustNoise(0.1, 3.0)
    noise = np.full(8, 0.1)
    X = ct.sample_data(tree, 2, leaf_noise=noise, random_state=rng)
    X[0] += 3.0
    host = make_host(tree, X, noise)
    found = log_densities(host, np.arange(2), tails.grid(np.array([50.0]), tails.tails, 2))
    quantile = (np.arange(4000) + 0.5) / 4000
    w = stats.invgamma(1.5, scale=1.5).ppf(quantile)
    each = np.empty((4000, 2))
    for k in range(4000):
        each[k] = log_densities(host, np.arange(2), (np.array([tails.scale * w[k]]), np.zeros(1)))
    np.testing.assert_allclose(found, logsumexp(each, axis=0) - math.log(4000), atol=0.02)


@pytest.mark.slow
@pytest.mark.ci
def test_density_without_a_row_is_that_of_a_fit_without_it():
    X = ct.sample_data(ct.sample_tree(20, random_state=seed(1)), 3, leaf_noise=0.05, random_state=seed(2))
    learned = ct.learn_posterior(X, "diagonal", n_draws=100, warmup=60, thin=2, random_state=seed(0))
    found = learned.leave_one_out()
    assert np.quantile(found.pareto_k, 0.9) < left_out.HIGH_K
    assert found.p_loo > 0
    for i in (0, 5, 11):
        rest = ct.learn_posterior(
            np.delete(X, i, axis=0), "diagonal", n_draws=100, warmup=60, thin=2, random_state=seed(0)
        )
        fit = predict.make_fit(rest.posterior, np.delete(X, i, axis=0), rest.covariances, rest.leaf_noises)
        expected = predict.log_predictive(fit, X[i : i + 1])[0]
        assert found.log_density[i] == pytest.approx(expected, abs=0.25)
    # Negative control: with the row itself in the fit it looks far likelier.
    own = predict.make_fit(learned.posterior, X, learned.covariances, learned.leaf_noises)
    assert predict.log_predictive(own, X).mean() > found.log_density.mean() + 0.25


def test_smoothing_is_that_of_arviz():
    arviz = pytest.importorskip("arviz")
    rng = np.random.default_rng(0)
    log_f = rng.normal(size=(15, 2, 100))
    found = left_out.smooth(log_f, np.arange(15), 15)
    data = arviz.from_dict(posterior={"a": rng.normal(size=(2, 100))}, log_likelihood={"x": log_f.transpose(1, 2, 0)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of high k̂
        theirs = arviz.loo(data, pointwise=True, reff=loo_efficiency(log_f))
    np.testing.assert_allclose(found.log_density, theirs.loo_i.values, atol=5e-3)
    np.testing.assert_allclose(found.pareto_k, theirs.pareto_k.values, atol=0.1)


def test_expectations_without_a_row():
    """Of f itself it is the density; of g, that of the draws weighed by 1 / f."""
    rng = np.random.default_rng(0)
    log_f, log_g = rng.normal(size=(2, 15, 2, 500))
    found = left_out.smooth(log_f, np.arange(15), 15, log_f)
    np.testing.assert_allclose(found.log_density, left_out.smooth(log_f, np.arange(15), 15).log_density, atol=0.02)
    log_g += 2.0 * log_f
    by_hand = np.log((np.exp(log_g - log_f)).sum(axis=(1, 2)) / np.exp(-log_f).sum(axis=(1, 2)))
    np.testing.assert_allclose(left_out.smooth(log_f, np.arange(15), 15, log_g).log_density, by_hand, atol=0.1)


def loo_efficiency(log_f):
    worth = left_out.effective_size(log_f.sum(axis=0)) / 200
    return worth if 0 < worth < 1 else 1.0


def fake(log_density, n=None):
    values = np.asarray(log_density, dtype=float)
    return LeaveOneOut(np.arange(len(values)), values, np.zeros(len(values)), 1.0, n or len(values))


def test_comparison_and_its_words():
    rng = np.random.default_rng(0)
    base = rng.normal(size=50)
    table = compare({"worse": fake(base - 1.0 + 0.1 * rng.normal(size=50)), "good": fake(base)})
    assert list(table) == ["good", "worse"]
    assert table["good"].difference == 0.0
    assert table["worse"].difference == pytest.approx(-50, abs=3)
    assert table["worse"].difference_se < 2
    assert table["good"].weight > 0.95
    assert "worse is clearly worse" in describe(table)
    level = compare({"a": fake(base), "b": fake(base + rng.normal(size=50) * 0.5 - 0.01)})
    assert "not clearly worse" in describe(level)
    with pytest.raises(ValueError, match="same rows"):
        compare({"a": fake(base), "b": fake(base[:40], 50)})


def test_stacking_finds_the_best_mixture():
    p = np.array([[0.9] * 6 + [0.1] * 4, [0.2] * 10])
    weight = np.linspace(0, 1, 2001)
    best = weight[np.argmax([np.log(w * p[0] + (1 - w) * p[1]).sum() for w in weight])]
    assert stack(np.log(p))[0] == pytest.approx(best, abs=2e-3)


# ---- choosing


@pytest.mark.slow
@pytest.mark.ci
def test_auto_takes_what_the_data_come_from():
    rng = np.random.default_rng(seed(4))
    tree = ct.sample_tree(40, random_state=rng)
    unequal = ct.sample_data(tree, np.array([0.05, 1.0, 20.0]), leaf_noise=0.02, random_state=rng)
    learned = ct.learn_posterior(unequal, "auto", n_draws=60, warmup=100, n_chains=1, random_state=0)
    assert next(iter(learned.compared)) != "spherical"
    assert learned.compared["spherical"].difference < -20
    # The same seed with the name of the winner is the same fit.
    winner = next(iter(learned.compared))
    named = ct.learn_posterior(unequal, winner, n_draws=60, warmup=100, n_chains=1, random_state=0)
    assert named.posterior.times.tobytes() == learned.posterior.times.tobytes()


@pytest.mark.slow
@pytest.mark.ci
def test_auto_noise_finds_heavy_tails_and_refuses_them():
    rng = np.random.default_rng(seed(6))
    tree = ct.sample_tree(40, random_state=rng)
    wild = ct.sample_data(tree, 5, leaf_noise=np.where(np.arange(40) % 10 == 0, 2500.0, 0.02), random_state=rng)
    effort = {"leaf_noise": "auto", "n_draws": 40, "warmup": 60, "n_chains": 1, "random_state": 0}
    learned = ct.learn_posterior(wild, **effort)
    assert learned.compared["spherical"].difference < -20.0
    assert learned.surprise is not None
    tame = ct.sample_data(tree, 5, leaf_noise=0.05, random_state=rng)
    compared = ct.learn_posterior(tame, **effort).compared
    assert abs(compared["spherical, robust"].elpd - compared["spherical"].elpd) < 10.0


def test_candidates_suit_the_table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    assert learn.candidates(X) == ("spherical", "diagonal", "wishart", "factors")
    assert learn.candidates(np.column_stack([X, X[:, 0]])) == ("spherical", "diagonal", "factors")
    assert learn.candidates(rng.normal(size=(10, 30))) == ("spherical", "diagonal", "factors")
    assert learn.candidates(X[:, :1]) == ("spherical",)
    assert learn.candidates(np.column_stack([X, np.ones(40)])) == ("spherical",)


def test_greedy_trees_have_nothing_to_compare():
    X = ct.sample_data(ct.sample_tree(8, random_state=1), 2, random_state=2)
    with pytest.raises(ValueError, match="auto"):
        ct.learn_posterior(X, "auto", method="greedy")


def test_incomplete_rows_are_not_held_out(tmp_path):
    X = ct.sample_data(ct.sample_tree(25, random_state=1), 3, leaf_noise=0.05, random_state=2)
    X[3, 1] = np.nan
    model = ct.CoalescentClustering(
        covariance="auto", leaf_noise="auto", n_draws=40, warmup=50, n_chains=1, n_clusters=2, random_state=0
    ).fit(X)
    found = model.leave_one_out()
    assert 3 not in found.rows
    assert len(found.rows) == 24
    model.save(tmp_path / "model.npz")
    again = ct.CoalescentClustering.load(tmp_path / "model.npz")
    assert again.compare_ == model.compare_
    np.testing.assert_array_equal(again.leave_one_out().log_density, found.log_density)
    np.testing.assert_array_equal(again.score_samples(X[:3]), model.score_samples(X[:3]))


def test_given_noise_of_a_new_point():
    assert Given(np.ones(2), np.array([1.0, 2.0, 3.0])).new_noise == 2.0
    assert Given(np.ones(2), np.array([1.0, 2.0, 3.0]), 7.0).new_noise == 7.0


def test_two_complete_rows_are_needed():
    X = np.full((4, 2), np.nan)
    X[0] = 1.0
    tree = ct.sample_tree(4, random_state=0)
    with pytest.raises(ValueError, match="two rows"):
        leave_one_out.leave_one_out(
            make_posterior([tree], [1.0]), X, make_draws([tree], np.ones((1, 2)), np.full(4, 0.1))
        )
