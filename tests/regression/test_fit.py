"""`fit_regression` from outside: what it finds, what its parts mean, and what it says about bad input."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning

import coaltree as ct
from coaltree.model.diffusion import messages
from coaltree.posterior.diagnostics import effective_size
from coaltree.regression.chain import Chain
from coaltree.regression.fit import fit_regression
from tests.seeds import seed

QUICK = {"n_iter": 60, "burn_in": 30, "n_chains": 1}


def simulate(n=600, n_outcomes=4, n_features=3, number=0):
    rng = np.random.default_rng(seed(number))
    tree = ct.sample_tree(n_outcomes, random_state=rng)
    beta = ct.sample_data(tree, 0.3 * np.eye(n_features), leaf_noise=0.05, random_state=rng)
    X = rng.standard_normal((n, n_features)) * [1.0, 20.0, 0.1][:n_features] + [0.0, 300.0, -1.0][:n_features]
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    eta = scaled @ beta.T - 0.7
    return X, (rng.random(eta.shape) < ndtr(eta)).astype(float), beta / X.std(axis=0), eta


@pytest.fixture(scope="module")
def fitted():
    X, Y, beta, eta = simulate()
    return X, Y, beta, eta, fit_regression(X, Y, n_iter=400, burn_in=100, n_chains=2)


def test_coefficients_come_back_in_the_units_of_the_features(fitted):
    X, _, beta, eta, fit = fitted
    deviation = fit.coef_draws.std(axis=(0, 1))
    assert np.abs((fit.coef - beta) / deviation).max() < 4.5
    assert np.sqrt(np.mean((fit.linear_predictor(X) - eta) ** 2)) < 0.3
    assert np.abs(fit.predict_proba(X) - ndtr(eta)).max() < 0.4


@pytest.mark.slow
@pytest.mark.ci
def test_both_samplers_agree(fitted):
    X, Y, _, _, fit = fitted
    other = fit_regression(X, Y, method="albert-chib", n_iter=600, burn_in=100, n_chains=2, random_state=5)
    for a, b in ((fit.coef_draws, other.coef_draws), (fit.intercept_draws, other.intercept_draws)):
        error = np.sqrt(sum(x.var(axis=(0, 1)) / effective_size(x) for x in (a, b)))
        assert np.abs((a.mean(axis=(0, 1)) - b.mean(axis=(0, 1))) / error).max() < 5
        np.testing.assert_allclose(np.log(a.std(axis=(0, 1)) / b.std(axis=(0, 1))), 0.0, atol=0.35)
    wrong = fit.coef_draws.mean(axis=(0, 1)) + fit.coef_draws.std(axis=(0, 1))
    error = np.sqrt(sum(x.var(axis=(0, 1)) / effective_size(x) for x in (fit.coef_draws, other.coef_draws)))
    assert np.abs((wrong - other.coef) / error).max() > 5


def test_diagnostics(fitted):
    diagnostics = fitted[4].diagnostics
    assert 1.0 <= diagnostics["r_hat"] < 1.1
    assert diagnostics["bulk_ess"] == diagnostics["theta_bulk_ess"].min() > 40
    assert 0.5 < diagnostics["acceptance"] <= 1
    assert "RegressionFit(n_outcomes=4, n_features=3, n_draws=600" in repr(fitted[4])


def test_nodes_are_what_the_tree_says(fitted):
    X, _, _, _, fit = fitted
    assert fit.node_coef.shape == (7, 3)
    np.testing.assert_allclose(fit.node_coef[:4], fit.coef, rtol=1e-12)
    np.testing.assert_allclose(fit.node_weights.sum(axis=1), 1.0)
    noise = np.median(fit.trace["leaf_noise"][:, 100:])
    np.testing.assert_allclose(fit.node_coef, messages(fit.tree, fit.coef, noise).mean, rtol=1e-10)
    for node in range(4):
        np.testing.assert_allclose(fit.predict_node(X, node), fit.predict_proba(X)[:, node], rtol=1e-12)
    root, deviation = fit.predict_node(X, 6, return_std=True)
    assert root.shape == deviation.shape == (600,)
    assert 0 < deviation.max() < 0.2
    with pytest.raises(ValueError, match="node must be below 7"):
        fit.predict_node(X, 7)


def test_probabilities_average_over_draws(fitted, monkeypatch):
    X, _, _, _, fit = fitted
    monkeypatch.setattr("coaltree.regression.fit.N_PREDICTIVE", 10**6)
    mean, deviation = fit.predict_proba(X[:7], return_std=True)
    draws = fit.coef_draws.reshape(-1, 4, 3), fit.intercept_draws.reshape(-1, 4)
    every = ndtr(np.array([X[:7] @ coef.T + intercept for coef, intercept in zip(*draws, strict=True)]))
    np.testing.assert_allclose(mean, every.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(deviation, every.std(axis=0), rtol=1e-8)
    monkeypatch.setattr("coaltree.regression.fit.BLOCK", 1)
    np.testing.assert_allclose(fit.predict_proba(X[:7]), mean, rtol=1e-12)


def test_posterior_trees(fitted):
    fit = fitted[4]
    assert len(fit.posterior) == 600
    assert fit.posterior.n_leaves == fit.tree.n_leaves == 4
    assert fit.trace["log_joint"].shape == (2, 400)
    assert fit.covariance.shape == (3, 3)
    # Features of deviation 1, 20 and 0.1 have coefficients on the inverse scale.
    assert np.all(np.diff(np.diag(fit.covariance)[[1, 0, 2]]) > 0)


def test_names_of_a_frame():
    X, Y, _, _ = simulate(100)
    frame = pd.DataFrame(Y, columns=["a", "b", "c", "d"])
    fit = fit_regression(X, frame, **QUICK)
    assert fit.tree.names == fit.outcome_names == ("a", "b", "c", "d")
    with pytest.raises(ValueError, match="distinct"):
        fit_regression(X, Y, outcome_names=["a", "a", "b", "c"], **QUICK)
    with pytest.raises(ValueError, match="must name 4 outcomes, got 2"):
        fit_regression(X, Y, outcome_names=["a", "b"], **QUICK)


def test_missing_labels_and_weights_are_rows_left_out_and_repeated():
    """The same likelihood written differently gives the same draws, up to rounding."""
    X, Y, _, _ = simulate(80)
    weights = np.where(np.arange(80) < 20, 2.0, np.where(np.arange(80) < 30, 0.0, 1.0))
    rows = np.concatenate([np.repeat(np.arange(20), 2), np.arange(30, 80)])
    short = {"n_iter": 6, "burn_in": 0, "n_chains": 1}
    weighted, repeated = fit_regression(X, Y, sample_weight=weights, **short), fit_regression(X[rows], Y[rows], **short)
    np.testing.assert_allclose(weighted.coef_draws, repeated.coef_draws, rtol=1e-5)
    without = np.where(np.arange(80)[:, None] < 30, np.nan, Y)
    again = np.where(np.arange(80)[:, None] < 30, np.nan, 1 - Y)
    again[30:] = Y[30:]
    np.testing.assert_array_equal(
        fit_regression(X, without, **short).coef_draws, fit_regression(X, again, **short).coef_draws
    )
    assert not np.allclose(fit_regression(X, without, **short).coef, fit_regression(X, Y, **short).coef, rtol=1e-5)


def test_sparse_input_is_dense_input():
    X, Y, _, _ = simulate(80)
    X = np.where(X.mean(axis=0) < X, X, 0.0)
    dense, thin = fit_regression(X, Y, **QUICK), fit_regression(sparse.csr_matrix(X), sparse.csr_array(Y), **QUICK)
    np.testing.assert_array_equal(dense.coef_draws, thin.coef_draws)
    np.testing.assert_array_equal(dense.predict_proba(X), thin.predict_proba(sparse.csc_array(X)))


@pytest.mark.parametrize("n_outcomes", [1, 2])
def test_few_outcomes(n_outcomes):
    X, Y, _, _ = simulate(150)
    fit = fit_regression(X, Y[:, :n_outcomes], **QUICK)
    assert fit.node_coef.shape == (2 * n_outcomes - 1, 3)
    assert fit.predict_proba(X).shape == (150, n_outcomes)
    np.testing.assert_allclose(fit.predict_node(X, 0), fit.predict_proba(X)[:, 0])
    assert (fit.tree is None) == (fit.posterior is None) == (n_outcomes == 1)
    assert np.linalg.eigvalsh(fit.covariance).min() > 0


def test_logit_link():
    X, Y, _, _ = simulate(400)
    probit, logit = (
        fit_regression(X, Y, family=family, n_iter=150, burn_in=50, n_chains=1) for family in ("probit", "logit")
    )
    assert np.abs(probit.predict_proba(X) - logit.predict_proba(X)).mean() < 0.03
    assert 1.3 < np.linalg.norm(logit.coef) / np.linalg.norm(probit.coef) < 2.2


def test_an_outcome_with_one_class_is_named_and_gets_its_rate():
    X, Y, _, _ = simulate(100, 5)
    Y[:, 1], Y[:, 3] = 0.0, np.nan
    with pytest.warns(UserWarning, match=r"2 outcome\(s\) have a single class.*: b, d\."):
        fit = fit_regression(X, Y, outcome_names=list("abcde"), **QUICK)
    probability, deviation = fit.predict_proba(X, return_std=True)
    np.testing.assert_allclose(probability[:, 1], 0.5 / 101)
    np.testing.assert_allclose(probability[:, 3], 0.5)
    np.testing.assert_allclose(deviation[:, [1, 3]], 0.0, atol=1e-12)
    assert np.all(fit.coef[[1, 3]] == 0)
    assert np.ptp(probability[:, 0]) > 0.01
    assert fit.node_coef.shape == (9, 3)
    # They say nothing of the nodes above them, unless nothing else does.
    informed = fit.node_weights[:, [0, 2, 4]].sum(axis=1)
    assert np.all((informed > 1 - 1e-6) | (informed < 1e-6))
    assert informed[-1] > 1 - 1e-6
    assert np.isnan(fit.diagnostics["theta_r_hat"][[1, 3]]).all()


def test_constant_duplicated_and_too_many_features():
    X, Y, _, _ = simulate(20, 3)
    wide = np.column_stack([X, X[:, 0], np.full(20, 7.0), np.random.default_rng(0).standard_normal((20, 20))])
    fit = fit_regression(wide, Y, **QUICK)
    assert np.all(fit.coef_draws[..., 4] == 0)
    assert np.all(np.isfinite(fit.coef_draws))
    with pytest.raises(ValueError, match="X must have a column that varies"):
        fit_regression(np.ones((20, 2)), Y, **QUICK)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("case", ["one feature", "one event", "copies", "more features than rows", "far away"])
def test_awkward_tables_are_fitted(case, covariance):
    X, Y, _, _ = simulate(40, 3)
    if case == "one feature":
        X = X[:, :1]
    elif case == "one event":
        Y[:, 0] = np.arange(40) == 7
    elif case == "copies":
        X = np.column_stack([X, X[:, 0], X[:, 0]])
    elif case == "more features than rows":
        X = np.column_stack([X, np.random.default_rng(0).standard_normal((40, 50))])
    else:
        X[:, 0] += 1e9
    fit = fit_regression(X, Y, covariance=covariance, **QUICK)
    p = fit.predict_proba(X)
    assert np.isfinite(fit.coef_draws).all()
    assert ((p > 0) & (p < 1)).all()
    assert fit.coef_draws.shape[2:] == (Y.shape[1], X.shape[1])


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_a_feature_of_a_billion_is_that_feature_in_other_units(covariance):
    X, Y, _, _ = simulate(40, 3)
    large = X * np.array([2.0**30, *np.ones(X.shape[1] - 1)])  # a power of two: no rounding
    one, other = (fit_regression(table, Y, covariance=covariance, **QUICK) for table in (X, large))
    np.testing.assert_array_equal(one.coef_draws[..., 0], 2.0**30 * other.coef_draws[..., 0])
    np.testing.assert_array_equal(one.coef_draws[..., 1:], other.coef_draws[..., 1:])


def test_separated_outcomes_are_finite():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2))
    Y = np.column_stack([X[:, 0] > 0, X[:, 0] < 0, X[:, 1] > 1.5]).astype(float)
    fit = fit_regression(X, Y, n_iter=200, burn_in=100, n_chains=1)
    assert np.all(np.isfinite(fit.coef_draws))
    assert np.abs(fit.coef).max() < 100
    assert (fit.predict_proba(X)[:, 0] > 0.5).mean() == pytest.approx(Y[:, 0].mean(), abs=0.1)


def test_many_unknowns_are_announced(monkeypatch):
    monkeypatch.setattr("coaltree.regression.preparation.LARGEST", 10)
    X, Y, _, _ = simulate(60)
    with pytest.warns(UserWarning, match="4 outcomes times 4 coefficients are 16 unknowns"):
        fit_regression(X, Y, **QUICK)


X0, Y0 = np.arange(12.0).reshape(6, 2) % 5, np.array([[0, 1], [1, 0], [0, 0], [1, 1], [0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("X", "Y", "options", "message"),
    [
        (X0, Y0 * 2, {}, "outcome 0 holds 2"),
        (X0, Y0 - 0.5, {"outcome_names": ["u", "v"]}, "outcome u holds -0.5, 0.5"),
        (X0, np.full((6, 2), "yes"), {}, "Y must hold 0, 1 or NaN"),
        (X0, Y0[:5], {}, "as many rows: 6 and 5"),
        (X0, np.zeros((6, 2)), {}, "no outcome with both classes"),
        (X0, np.zeros((6, 2, 1)), {}, "Y must be a table"),
        (np.where(X0 == 3, np.nan, X0), Y0, {}, "SimpleImputer"),
        (X0[:, 0], Y0, {}, "X must be a table"),
        (np.full((6, 2), "a"), Y0, {}, "X must be a table of numbers"),
        (X0, Y0, {"sample_weight": np.ones(5)}, "sample_weight must be one number per row"),
        (X0, Y0, {"sample_weight": -np.ones(6)}, "not negative"),
        (X0, Y0, {"sample_weight": np.zeros(6)}, "all weights are zero"),
        (X0, Y0, {"family": "cloglog"}, "family must be one of"),
        (X0, Y0, {"method": "gibbs"}, "method must be one of"),
        (X0, Y0, {"method": "albert-chib", "family": "logit"}, 'needs family="probit"'),
        (X0, Y0, {"burn_in": 1000}, "burn_in must be below n_iter = 1000"),
        (X0, Y0, {"n_chains": 0}, "n_chains must be at least 1"),
        (X0, Y0, {"scale": 0.0}, "scale must be positive"),
    ],
)
def test_bad_input(X, Y, options, message):
    with pytest.raises(ValueError, match=message):
        fit_regression(X, Y, **options)


def test_columns_at_prediction(fitted):
    X, *_, fit = fitted
    with pytest.raises(ValueError, match="X has 2 columns, but the model was fitted with 3"):
        fit.predict_proba(X[:, :2])


def test_chains_that_disagree_are_warned_about(monkeypatch):
    """Draws of one chain are shifted, as if it had found another mode."""
    X, Y, _, _ = simulate(n=80)
    advance = Chain.advance
    seen: list[Chain] = []

    def biased(chain):
        if chain not in seen:
            seen.append(chain)
        advance(chain)
        if chain.draws["theta"]:
            chain.draws["theta"][-1] = chain.draws["theta"][-1] + 9.0 * (seen.index(chain) == 0)

    monkeypatch.setattr(Chain, "advance", biased)
    with pytest.warns(ConvergenceWarning, match="Not converged: .* intercepts and coefficients have R-hat above"):
        fit_regression(X, Y, n_iter=220, burn_in=20, n_chains=2, n_jobs=1)


def test_a_generator_leaves_no_address_behind():
    X, Y, _, _ = simulate(n=50)
    assert (
        fit_regression(X, Y, **QUICK | {"n_iter": 32}, random_state=np.random.default_rng(0)).info["random_state"]
        is None
    )
    assert fit_regression(X, Y, **QUICK | {"n_iter": 32}, random_state=np.int64(4)).info["random_state"] == 4
