"""R̂ and effective sample size where the truth is known."""

import numpy as np
import pytest

from coaltree.posterior.convergence import FEWEST_KEPT, judge_coefficients
from coaltree.posterior.diagnostics import effective_size, r_hat
from tests.seeds import seed


def autoregressive(rho, n_chains, n_draws, n_columns, rng):
    x = np.empty((n_chains, n_draws, n_columns))
    x[:, 0] = rng.standard_normal((n_chains, n_columns))
    noise = np.sqrt(1 - rho**2) * rng.standard_normal(x.shape)
    for t in range(1, n_draws):
        x[:, t] = rho * x[:, t - 1] + noise[:, t]
    return x


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.5, 0.9])
def test_effective_size_of_autoregressions(rho):
    """n (1 − ρ)/(1 + ρ), whatever monotone function of the draws is looked at; one estimate is off by 1 to 7 %."""
    x = autoregressive(rho, 4, 10_000, 20, np.random.default_rng(seed(0)))
    found, truth = effective_size(x), 40_000 * (1 - rho) / (1 + rho)
    tolerance = 5 * found.std(ddof=1) / np.sqrt(20) + 0.02 * truth  # the estimate has a bias of up to 1 %
    assert abs(found.mean() - truth) < tolerance
    assert abs(found.mean() - 1.2 * truth) > tolerance
    np.testing.assert_allclose(effective_size(np.exp(5 * x)), found, rtol=1e-9)


def test_agreeing_chains_have_r_hat_one():
    x = np.random.default_rng(seed(1)).standard_normal((4, 1000, 20))
    assert r_hat(x).shape == (20,)
    assert np.all(r_hat(x) < 1.01)
    assert np.all(effective_size(x) > 2500)


@pytest.mark.parametrize("change", [lambda x: x + np.arange(4)[:, None], lambda x: x * np.array([[1], [1], [1], [4]])])
def test_chains_that_differ_in_place_or_width_are_noticed(change):
    x = np.random.default_rng(seed(2)).standard_normal((4, 1000))
    assert r_hat(change(x)) > 1.05


def test_a_trend_within_a_chain_is_noticed():
    x = np.random.default_rng(seed(3)).standard_normal((1, 1000)) + np.linspace(0, 3, 1000)
    assert r_hat(x) > 1.05


def test_constant_and_short_chains():
    assert np.isnan(r_hat(np.ones((2, 10))))
    assert np.isnan(effective_size(np.ones((2, 10))))
    draws = np.random.default_rng(seed(4)).standard_normal((2, 10, 3))
    draws[:, :, 1] = 1.0
    assert np.isnan(r_hat(draws)).tolist() == np.isnan(effective_size(draws)).tolist() == [False, True, False]
    assert np.isnan(r_hat(draws[:, :7])).all()
    assert np.isnan(effective_size(draws[:, :7])).all()


def judge(draws):
    """Whether draws (chains, draws, outcomes, coefficients) may be relied on, and what is said."""
    names = [f"outcome{j}" for j in range(draws.shape[2])]
    return judge_coefficients(r_hat(draws), effective_size(draws), names, draws.shape[1])


def test_chains_that_agree_are_not_complained_about():
    rng = np.random.default_rng(seed(10))
    assert judge(rng.standard_normal((2, 400, 20, 26)))[0]
    slow = autoregressive(0.9, 2, 800, 20, rng).reshape(2, 800, 4, 5)
    agree, message = judge(slow)
    assert agree
    assert message.startswith("The chains agree")


def test_chains_apart_are_named_with_what_to_do():
    rng = np.random.default_rng(seed(11))
    draws = rng.standard_normal((2, 400, 4, 3))
    draws[1, :, 2, 1] += 3.0
    agree, message = judge(draws)
    assert not agree
    assert "of outcome outcome2" in message
    assert "1 of 12" in message
    assert "Raise n_iter" in message
    # Many that are a little apart count too; an outcome that was not fitted does not.
    draws = rng.standard_normal((2, 400, 4, 3))
    draws[1] += 1.5
    assert "12 of 12" in judge(draws)[1]
    ratio, size = r_hat(draws), effective_size(draws)
    ratio[:], size[:] = np.nan, np.nan
    assert "too short to be judged" in judge_coefficients(ratio, size, list("abcd"), 400)[1]


def test_few_draws_are_not_judged():
    draws = np.random.default_rng(seed(12)).standard_normal((2, FEWEST_KEPT - 1, 2, 2))
    draws[1] += 5.0
    assert "too short to be judged" in judge(draws)[1]
    draws = np.concatenate([draws, draws[:, :1]], axis=1)
    assert "not converged" in judge(draws)[1]
