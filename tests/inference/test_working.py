"""Columns that vary together and values that are rounded: how the likelihood is used then."""

import math

import mpmath
import numpy as np
import pandas
import pytest
from scipy import integrate, stats

import coaltree as ct
from coaltree.frame import as_frame
from coaltree.inference.learning.chain import draw_noise
from coaltree.inference.learning.start import Unknowns
from coaltree.inference.learning.working import Working, count_columns, effective_columns, rounding_variance
from coaltree.model.covariance import Diagonal, Spherical
from coaltree.model.family import LITTLE, log_gammainc, log_inverse_gamma_marginal, sample_bounded_inverse_gamma
from coaltree.model.guess import guess_columns
from coaltree.places import predict
from coaltree.places.host import make_host
from coaltree.places.leave_one_out import log_densities
from tests.seeds import seed

FEW = {"n_draws": 5, "warmup": 0, "n_chains": 1, "thin": 1, "random_state": 0}


@pytest.fixture(scope="module")
def table():
    return ct.sample_data(ct.sample_tree(20, random_state=1), 3, random_state=2)


def normal(m, covariance, key):
    return np.random.default_rng(seed(key)).multivariate_normal(np.zeros(len(covariance)), covariance, size=m)


@pytest.mark.parametrize("m", [30, 3000])
def test_effective_columns_of_normal_contrasts(m):
    """Without bias in both parts: the mean over many tables is (tr C)² / tr C², up to that of a ratio."""
    C = np.array([[2.0, 0.9, 0.0, 0.0], [0.9, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.5]])
    found = [effective_columns(normal(m, C, k)) for k in range(200)]
    truth = np.trace(C) ** 2 / np.trace(C @ C)
    assert abs(np.mean(found) - truth) < 4 * np.std(found) / math.sqrt(len(found)) + 0.02 * truth * (m == 30)


def test_independent_columns_count_fully():
    found = [effective_columns(normal(300, np.eye(8), k)) for k in range(50)]
    assert 7.8 < np.mean(found) <= 8.0


def test_more_columns_than_contrasts():
    """By products of contrasts instead of columns: the same number, here of copies of five columns."""
    u = normal(40, np.eye(5), 0)
    assert effective_columns(np.tile(u, 12)) == pytest.approx(effective_columns(np.tile(u, 2)), rel=1e-9)
    assert effective_columns(np.tile(u, 12)) == pytest.approx(effective_columns(u), rel=0.15)


def correlated(n, d, rho, key):
    """Rows along a tree, every two columns with the correlation rho."""
    rng = np.random.default_rng(seed(key))
    phi = np.full((d, d), rho) + (1.0 - rho) * np.eye(d)
    X = ct.sample_data(ct.sample_tree(n, random_state=rng), phi, leaf_noise=0.05, random_state=rng)
    return X / X.std()


@pytest.mark.parametrize(("n", "d"), [(80, 6), (30, 40)])
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_columns_are_counted_whatever_rows_are_near(n, d, rho, monkeypatch):
    """The tree of rows near in all columns alike counts twice as many; rows in turns with C, at most half too many."""
    truth = d / (1.0 + (d - 1) * rho**2)
    tables = [correlated(n, d, rho, key) for key in range(8)]
    found = np.array([count_columns(X, np.full(n, 1.0 / n)) for X in tables])
    assert truth / 1.5 < np.median(found) < truth * 1.5
    monkeypatch.setattr("coaltree.inference.learning.working.MOST_ROUNDS", 1)
    first = np.array([count_columns(X, np.full(n, 1.0 / n)) for X in tables])
    assert (np.median(first) > 2.0 * truth) == (rho > 0)


def test_columns_of_many_rows_are_counted_from_some(monkeypatch):
    X = correlated(150, 5, 0.8, 3)
    whole = count_columns(X, np.full(150, 1e-2))
    monkeypatch.setattr("coaltree.sizes.ROWS_COUNTED", 100)
    assert count_columns(X, np.full(150, 1e-2)) == pytest.approx(whole, rel=0.3)


def test_one_column_and_two_rows_count_fully():
    assert effective_columns(np.ones((5, 1))) == 1.0
    assert effective_columns(np.ones((1, 4))) == 4.0


@pytest.mark.parametrize("how", [{}, {"leaf_noise": "robust"}, {"leaf_noise": 0.1}], ids=str)
def test_copies_of_columns_change_nothing(table, how):
    """To rounding, which makes chains part after some time."""
    plain = ct.learn_posterior(table, **how, **FEW, effective_columns="all")
    copied = ct.learn_posterior(np.hstack([table, table]), **how, **FEW, effective_columns=3)
    np.testing.assert_array_equal(copied.posterior.children, plain.posterior.children)
    np.testing.assert_allclose(copied.posterior.times, plain.posterior.times, rtol=1e-9)
    np.testing.assert_allclose(copied.leaf_noises, plain.leaf_noises, rtol=1e-9)
    np.testing.assert_allclose(copied.covariances[:, :3], plain.covariances, rtol=1e-9)
    counted = ct.learn_posterior(np.hstack([table, table]), **how, **FEW, effective_columns="all")
    assert np.abs(counted.posterior.times - plain.posterior.times).max() > 1e-3


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("family", [Spherical(2.0, 1.0), Diagonal(2.0, 1.0)], ids=["spherical", "diagonal"])
def test_the_noise_step_knows_the_power(table, family, gaps):
    """Draws of s₀ from a table with a copy of every column and power ½ are those without the copies, to rounding.

    With gaps Φ is given, without it is integrated out. A diagonal Φ has a variance for every copy.
    """
    X = np.where(np.arange(60).reshape(20, 3) % 11 == 4, np.nan, table) if gaps else table

    def draw(X, power):
        now = Unknowns(ct.sample_tree(20, random_state=1), family.start(np.eye(X.shape[1])), np.full(20, 0.2))
        rng, levels = np.random.default_rng(seed(5)), []
        for _ in range(20):
            now = draw_noise(now, X, family, rng, Working(power))
            levels.append(now.noise_level)
        return np.array(levels)

    once, both = draw(X, 1.0), np.hstack([X, X])
    if gaps or isinstance(family, Spherical):
        np.testing.assert_allclose(draw(both, 0.5), once, rtol=1e-6)
    assert np.abs(draw(both, 1.0) - once).max() > 1e-2


def test_copies_are_found_by_default(table):
    copied = np.hstack([table] * 4)
    assert ct.learn_posterior(copied, **FEW).effective_columns == pytest.approx(3.0, abs=0.7)
    gaps = copied.copy()
    gaps[::4, 5] = np.nan
    assert ct.learn_posterior(gaps, **FEW).effective_columns == pytest.approx(3.0, abs=1.0)
    mixed_up = table @ np.array([[1.0, 0.9, 0.9], [0.0, 0.1, 0.0], [0.0, 0.0, 0.1]])
    assert ct.learn_posterior(mixed_up, **FEW).effective_columns < 2.0
    assert ct.learn_posterior(mixed_up, "wishart", **FEW).effective_columns == 3.0
    assert ct.learn_posterior(mixed_up, np.eye(3), **FEW, effective_columns=2).effective_columns == 3.0
    assert ct.learn_posterior(copied, **FEW, effective_columns=5).effective_columns == pytest.approx(5.0)


def as_numbers(X, names="abcdefgh"):
    """Columns named as continuous, in their own units."""
    frame = as_frame(pandas.DataFrame(X, columns=list(names[: X.shape[1]])))
    return guess_columns(frame, dict.fromkeys(frame.names, "continuous"), scale="none")


def test_numbers_with_kinds_count_as_without(table):
    """The same chain, to rounding; where some kind is latent, all columns count."""
    plain = ct.learn_posterior(table, **FEW, effective_columns="all")
    twice = as_numbers(np.hstack([table, table]))
    copied = ct.learn_posterior(twice.values, columns=twice, **FEW, effective_columns=3)
    np.testing.assert_array_equal(copied.posterior.children, plain.posterior.children)
    np.testing.assert_allclose(copied.posterior.times, plain.posterior.times, rtol=1e-9)
    assert ct.learn_posterior(twice.values, columns=twice, **FEW).effective_columns == pytest.approx(3.0, abs=0.7)
    counted = ct.learn_posterior(twice.values, columns=twice, **FEW, effective_columns="all")
    assert np.abs(counted.posterior.times - plain.posterior.times).max() > 1e-3
    gaps = np.where(np.arange(20)[:, None] + np.arange(6) == 9, np.nan, twice.values)
    found = ct.learn_posterior(as_numbers(gaps).values, columns=as_numbers(gaps), **FEW)
    assert found.effective_columns < 4.5
    levels = guess_columns(as_frame(pandas.DataFrame(gaps).assign(level=gaps[:, 0] > 0.0)))
    assert ct.learn_posterior(levels.values, columns=levels, **FEW).effective_columns == levels.columns.d


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_leave_one_out_of_numbers_with_kinds_is_that_of_numbers(table, power):
    how = {"n_draws": 30, "warmup": 20, "n_chains": 1, "random_state": 0, "effective_columns": 3 * power}
    kinds = as_numbers(table)
    found = ct.learn_posterior(table, columns=kinds, **how).leave_one_out()
    expected = ct.learn_posterior(table, **how).leave_one_out()
    np.testing.assert_allclose(found.log_density, expected.log_density, atol=0.02)
    np.testing.assert_array_equal(found.rows, expected.rows)


def test_a_row_is_held_out_with_the_same_power(table):
    tree = ct.sample_tree(20, random_state=3)
    law, noise = (np.array([0.1]), np.zeros(1)), np.full(20, 0.1)
    plain = log_densities(make_host(tree, table, noise), np.arange(20), law)
    both = math.sqrt(0.5) * np.hstack([table, table])
    copied = log_densities(make_host(tree, both, noise), np.arange(20), law, 0.5)
    np.testing.assert_allclose(copied, plain, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.ci
def test_leave_one_out_density_with_a_power_is_that_of_refits():
    X = ct.sample_data(ct.sample_tree(15, random_state=4), np.array([[1.0, 0.95], [0.95, 1.0]]), random_state=5)
    how = {"effective_columns": 1.0, "n_draws": 200, "warmup": 60, "thin": 2, "random_state": seed(0)}
    found = ct.learn_posterior(X, **how).leave_one_out()
    for i in (0, 5, 11):
        rest = np.delete(X, i, axis=0)
        refitted = ct.learn_posterior(rest, **how)
        fit = predict.make_fit(refitted.posterior, rest, refitted.covariances, refitted.leaf_noises)
        assert found.log_density[i] == pytest.approx(predict.log_predictive(fit, X[i : i + 1])[0], abs=0.25)


def test_steps_of_rounded_columns():
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    fine, coarse = np.round(x, 1), np.round(2 * x) / 2
    assert rounding_variance(np.column_stack([coarse, coarse, x])) == pytest.approx(0.25 / 12)
    assert rounding_variance(np.column_stack([coarse, x, x])) == 0.0  # the median column
    assert rounding_variance(np.column_stack([fine, coarse, fine])) == pytest.approx(0.01 / 12)
    rare = (np.arange(200) == 7).astype(float) / 0.07  # one column of ones and zeros does not decide
    assert rounding_variance(np.column_stack([fine, fine, rare])) == pytest.approx(0.01 / 12)
    assert rounding_variance(np.column_stack([(fine - 0.3) / 0.7])) == pytest.approx((0.1 / 0.7) ** 2 / 12)
    fine[3] = np.nan
    assert rounding_variance(np.column_stack([fine])) == pytest.approx(0.01 / 12)


@pytest.mark.parametrize("noise", ["learn", "robust"])
@pytest.mark.parametrize("gaps", [False, True])
def test_noise_is_no_less_than_rounding(noise, gaps):
    X = np.round(ct.sample_data(ct.sample_tree(25, random_state=1), 2, random_state=2))
    least = rounding_variance(X)
    assert least > 0.0
    if gaps:
        X[3, 0] = np.nan
    learned = ct.learn_posterior(X, leaf_noise=noise, n_draws=60, warmup=30, n_chains=1, random_state=0)
    spread = learned.trace["leaf_noise"] * learned.trace["variance"]
    assert spread.min() >= least * (1.0 - 1e-9)
    assert spread.min() < 3.0 * least  # and the bound matters here


def test_bounded_draws_of_the_variance():
    rng = np.random.default_rng(seed(0))
    for shape, scale, least in ((3.0, 2.0, 0.3), (3.0, 2.0, 2.0), (40.0, 20.0, 1.5)):
        draws = [sample_bounded_inverse_gamma(shape, scale, least, rng) for _ in range(2000)]
        law = stats.invgamma(shape, scale=scale)
        below = law.cdf(least)
        assert stats.kstest(draws, lambda x, law=law, below=below: (law.cdf(x) - below) / (1 - below)).pvalue > 1e-4
        assert min(draws) >= least
    assert stats.gamma.cdf(1.0, 400.0) < LITTLE
    far = [sample_bounded_inverse_gamma(400.0, 1.0, 1.0, rng) for _ in range(200)]  # all but out of reach
    assert 1.0 <= min(far) <= max(far) < 1.1


def test_bounded_marginal_likelihood_by_quadrature():
    shape, scale, m, total, least = 2.0, 1.5, 5, 4.0, 0.8
    by_hand, _ = integrate.quad(
        lambda phi: phi ** (-shape - 1 - m / 2) * math.exp(-(scale + total / 2) / phi), least, np.inf
    )
    log_norm = math.lgamma(shape + m / 2)
    found = log_inverse_gamma_marginal(shape, scale, m, np.array([total]), least)
    assert found + log_norm == pytest.approx(math.log(by_hand), abs=1e-8)


def test_the_incomplete_gamma_function_in_its_tail():
    for shape, x in ((3.0, 0.1), (500.0, 400.0), (500.0, 80.0), (1e6, 8e5), (40.0, 60.0)):
        exact = mpmath.log(mpmath.gammainc(shape, 0, x, regularized=True)) if shape < 1e5 else None
        if exact is None:  # by its series
            terms = np.cumprod(x / (shape + np.arange(1, 400)))
            exact = shape * math.log(x) - x - math.lgamma(shape + 1) + math.log1p(terms.sum())
        assert float(log_gammainc(shape, x)) == pytest.approx(float(exact), rel=1e-6, abs=1e-4)


def test_a_bound_far_from_where_the_variance_would_be():
    """A large table at a remote start: its noise moves to what the data say."""
    X = np.round(5.0 * ct.sample_data(ct.sample_tree(400, random_state=1), 6, random_state=2))
    learned = ct.learn_posterior(X, n_draws=10, warmup=30, n_chains=1, random_state=0)
    spread = (learned.trace["leaf_noise"] * learned.trace["variance"])[0]
    assert spread.min() >= 1.0 / 12
    assert spread[-10:].max() < 1.0


def test_greedy_trees_learn_noise_above_rounding():
    X = np.round(ct.sample_data(ct.sample_tree(60, random_state=1), 3, random_state=2))
    learned = ct.learn_posterior(X, method="greedy", random_state=0)
    assert learned.leaf_noise[0] * learned.covariance[0, 0] >= 1.0 / 12 * 0.5  # medians of each
    assert learned.effective_columns == 3.0


@pytest.mark.parametrize("value", ["some", 0.0, -1.0, 3.5, math.nan, None, [2]])
def test_bad_effective_columns_are_named(table, value):
    with pytest.raises(ct.CoaltreeError, match="effective_columns"):
        ct.learn_posterior(table, effective_columns=value, **FEW)


def test_the_estimator_tells_and_keeps_it(table, tmp_path):
    model = ct.CoalescentClustering(n_draws=30, warmup=20, random_state=0).fit(np.hstack([table] * 3))
    assert 1.0 <= model.effective_columns_ < 4.0
    assert any("count as" in note for note in model.column_notes_)
    model.save(tmp_path / "model.npz")
    loaded = ct.CoalescentClustering.load(tmp_path / "model.npz")
    assert loaded.effective_columns_ == model.effective_columns_
    np.testing.assert_array_equal(loaded.leave_one_out().log_density, model.leave_one_out().log_density)
    typed = ct.CoalescentClustering(n_draws=30, warmup=20, random_state=0, columns=as_numbers(np.hstack([table] * 2)))
    assert any("these 6 count as" in note for note in typed.fit(np.hstack([table] * 2)).column_notes_)
    alone = ct.CoalescentClustering(n_draws=30, warmup=20, random_state=0).fit(table)
    assert not any("count as" in note for note in alone.column_notes_)


def test_rows_far_from_all_others_are_told_of(table):
    rows = np.vstack([table, table.mean(axis=0) + 30.0 * np.eye(3)[:2]])
    short = {"n_draws": 20, "warmup": 20, "random_state": 0}
    model = ct.CoalescentClustering(**short).fit(rows)
    assert any("2 rows are far from all others" in note for note in model.column_notes_)
    for X, how in ((table, {}), (rows, {"leaf_noise": "robust"}), (np.round(rows), {"leaf_noise": 0.5})):
        told = ct.CoalescentClustering(**short, **how).fit(X).column_notes_
        assert not any("far from" in note for note in told)
