"""R̂ and effective sample size where the truth is known."""

import numpy as np
import pytest

from coaltree.posterior.convergence import (
    FEWEST_DRAWS,
    HIGHEST_R_HAT,
    LOWEST_DRAWS,
    OUTCOMES,
    TOLERATED,
    Coefficients,
    Convergence,
    diagnose,
    judge_coefficients,
)
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


def judge(draws, **scalars):
    """The verdict on draws (chains, draws, outcomes, coefficients), with scalars (chains, draws) beside them."""
    names = [f"outcome{j}" for j in range(draws.shape[2])]
    coefficients = judge_coefficients(r_hat(draws), effective_size(draws), names)
    scalars = {"log_likelihood": np.random.default_rng(seed(9)).standard_normal(draws.shape[:2])} | scalars
    return diagnose(scalars, None, *draws.shape[:2], tuple(scalars), OUTCOMES, coefficients)


def test_chains_that_agree_are_not_complained_about():
    rng = np.random.default_rng(seed(10))
    assert judge(rng.standard_normal((2, 400, 20, 26))).converged
    slow = autoregressive(0.8, 2, 800, 20, rng).reshape(2, 800, 4, 5)
    found = judge(slow)
    assert found.converged
    assert found.verdict.startswith("The chains agree: largest R-hat 1.0")
    alone = judge(rng.standard_normal((1, 400, 4, 5)))
    assert alone.verdict.startswith("The halves of the only chain agree")


def test_chains_apart_are_named_with_what_to_do():
    rng = np.random.default_rng(seed(11))
    draws = rng.standard_normal((2, 400, 4, 3))
    draws[1, :, 2, 1] += 3.0
    found = judge(draws)
    assert not found.converged
    assert "of outcome outcome2" in found.verdict
    assert "1 of 12" in found.verdict
    assert found.verdict.endswith("Give a longer burn-in and more iterations.")
    # Many that are a little apart count too; an outcome that was not fitted does not.
    draws = rng.standard_normal((2, 400, 4, 3))
    draws[1] += 1.5
    assert "12 of 12" in judge(draws).verdict
    draws[:] = np.nan
    assert judge(draws).coefficients is None


def test_few_effective_draws_count_as_well_as_r_hat():
    """Chains that agree because they hardly move: long memory, and R-hat that is not alarmed by most of them."""
    sticky = autoregressive(0.97, 2, 800, 60, np.random.default_rng(seed(13))).reshape(2, 800, 6, 10)
    assert np.mean(effective_size(sticky) < FEWEST_DRAWS) > TOLERATED
    assert "fewer than 50 independent ones" in judge(sticky).verdict
    one = np.random.default_rng(seed(14)).standard_normal((2, 800, 6, 10))
    one[:, :, 3, 3] = sticky[:, :, 0, 0] if r_hat(sticky[:, :, 0, 0]) < HIGHEST_R_HAT else sticky[:, :, 1, 1]
    assert judge(one).converged == (effective_size(one[:, :, 3, 3]) >= LOWEST_DRAWS)  # one of sixty is tolerated


def test_a_scalar_that_has_not_converged_spoils_the_verdict():
    """Coefficients that are tolerable (R-hat 1.07, 47 draws) beside a leaf noise that is not (1.11 and 15)."""
    good = Convergence(
        *({"spread": 1.01, "leaf_noise": 1.02}, {"spread": 300.0, "leaf_noise": 90.0}),
        *({"spread": 300.0, "leaf_noise": 80.0}, 0.05, 0.99, 200.0, 2, 700, OUTCOMES),
        Coefficients(300, 6, 1.07, 47.0, "stroke"),
    )
    assert good.converged
    assert good.verdict.startswith("The chains agree on all but 6 of 300 coefficients: largest R-hat 1.070, fewest")
    bad = good._replace(r_hat=good.r_hat | {"leaf_noise": 1.11}, bulk_ess=good.bulk_ess | {"leaf_noise": 15.0})
    assert not bad.converged
    assert "the chains do not agree on the leaf noise (R-hat 1.11" in bad.verdict
    assert "the draws of the leaf noise are worth only 15 independent ones" in bad.verdict
    assert "coefficients" not in bad.verdict
    assert not good._replace(coefficients=Coefficients(300, 16, 1.07, 47.0, "stroke")).converged
    assert not good._replace(support_difference=0.2).converged


def test_few_draws_are_not_judged():
    draws = np.random.default_rng(seed(12)).standard_normal((2, 7, 2, 2))
    assert judge(draws).verdict.startswith("Not known to have converged: 7 draw(s) per chain are too few")
