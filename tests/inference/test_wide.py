"""Wide tables: a diagonal covariance is its d variances, the same as by its matrix, and nothing (d, d) is formed."""

import tracemalloc

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import coaltree as ct
from coaltree.model import diffusion, missing
from coaltree.model.covariance import (
    Diagonal,
    Fixed,
    HuangWand,
    InverseWishart,
    PooledWishart,
    ShrunkWishart,
    Spherical,
    as_family,
)
from coaltree.model.factorisations import root_of
from coaltree.model.family import Linear, diagonal_only
from coaltree.model.gp import GaussianProcess
from coaltree.places import predict
from coaltree.validation import check_covariance
from tests.seeds import seed

N, D = 20, 2000
VARIANCES = np.array([0.5, 2.0, 1.0, 4.0])
MATRIX = np.diag(VARIANCES) + 0.1
NOISE = np.linspace(0.05, 0.2, 12)
DIAGONAL = {
    "spherical": Spherical(2.0, 1.5),
    "diagonal": Diagonal(2.0, 1.5),
    "fixed variances": Fixed(VARIANCES),
    "fixed matrix": Fixed(np.diag(VARIANCES)),
}
FULL = {
    "fixed": Fixed(MATRIX),
    "inverse wishart": InverseWishart(MATRIX, 6.0),
    "huang wand": HuangWand(),
    "pooled wishart": PooledWishart(),
    "shrunk": ShrunkWishart(),
    "gaussian process": GaussianProcess(RBF() + WhiteKernel(), np.arange(4.0)),
}
by_diagonal = pytest.mark.parametrize("family", DIAGONAL.values(), ids=DIAGONAL.keys())
by_full = pytest.mark.parametrize("family", FULL.values(), ids=FULL.keys())


def rng(number=0):
    return np.random.default_rng(seed(number))


@pytest.fixture(scope="module")
def case():
    tree = ct.sample_tree(12, random_state=rng(1))
    return tree, ct.sample_data(tree, VARIANCES, leaf_noise=NOISE, random_state=rng(2))


def same(state, other):
    assert state.values.keys() == other.values.keys()
    np.testing.assert_allclose(state.compact(), other.compact(), rtol=1e-12)


# The diagonal of S says the same as S


def test_scatter_and_its_diagonal(case):
    S = diffusion.scatter(*case, NOISE)
    np.testing.assert_allclose(diffusion.scatter(*case, NOISE, diagonal=True), np.diag(S), rtol=1e-12)
    up = diffusion.pass_up(*case, NOISE)
    u = diffusion.contrasts(*case, NOISE)
    np.testing.assert_allclose(up.sums, (u**2).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(up.distance, (u**2).sum(axis=1) * up.messages.merge_variance, rtol=1e-12)


@by_diagonal
def test_diagonal_families_take_either_form(family, case):
    assert diagonal_only(family)
    S = diffusion.scatter(*case, NOISE)
    sums, m = np.diag(S), len(S) - 1
    state = family.start(VARIANCES)
    same(state, family.start(np.diag(VARIANCES)))
    assert state.is_diagonal
    assert state.compact().shape == (4,)
    np.testing.assert_array_equal(np.diag(state.compact()), state.matrix())
    np.testing.assert_array_equal(state.variances(), np.diag(state.matrix()))
    np.testing.assert_allclose(state.whiten(case[1]), case[1] @ np.diag(np.diag(state.matrix()) ** -0.5), rtol=1e-12)
    assert state.trace_solve(sums) == pytest.approx(np.trace(np.linalg.solve(state.matrix(), S)), rel=1e-12)
    assert state.log_likelihood(sums, m) == pytest.approx(state.log_likelihood(S, m), rel=1e-12)
    for counts in (m, np.array([m, m - 1, m, 0])):
        same(family.update(state, sums, counts, rng(3)), family.update(state, S, counts, rng(3)))
    integrated = family.integrated(state, rng(3))
    if integrated is not None:
        same(integrated.draw(sums, m, rng(3)), integrated.draw(S, m, rng(3)))


@by_full
def test_full_families_refuse_a_diagonal(family, case):
    assert not diagonal_only(family)
    S = diffusion.scatter(*case, NOISE)
    state = family.start(np.diag(VARIANCES))
    same(state, family.start(VARIANCES))  # of a guess the variances are all they take
    assert not state.is_diagonal
    np.testing.assert_array_equal(state.compact(), state.matrix())
    np.testing.assert_allclose(state.variances(), np.diag(state.matrix()), rtol=1e-12)
    for call in (
        lambda: state.trace_solve(np.diag(S)),
        lambda: family.update(state, np.diag(S), 11, rng(3)),
    ):
        with pytest.raises(ValueError, match="S must"):
            call()


@pytest.mark.parametrize("family", [DIAGONAL["spherical"], DIAGONAL["diagonal"], FULL["gaussian process"]])
def test_marginal_of_sums_is_that_of_the_contrasts(family, case):
    integrated = family.integrated(family.start(VARIANCES), rng(3))
    rows = integrated.rows(case[1])
    by_contrasts = integrated.log_marginal(diffusion.contrasts(case[0], rows, NOISE))
    sums = diffusion.scatter(case[0], rows, NOISE, diagonal=True)
    assert integrated.log_marginal_of_sums(sums, 11) == pytest.approx(by_contrasts, rel=1e-12)
    assert integrated.log_marginal_of_sums(sums, 10) != pytest.approx(by_contrasts, rel=1e-3)


def test_a_family_that_says_nothing_is_given_matrices():
    assert not diagonal_only(Linear)
    assert not diagonal_only(object())


@pytest.mark.parametrize("S", [np.ones(3), np.ones((4, 3)), np.ones((4, 4, 1)), -np.ones(4), [1.0, np.nan, 1.0, 1.0]])
def test_bad_diagonals_are_named(S):
    with pytest.raises(ValueError, match="S must"):
        Diagonal().update(Diagonal().start(VARIANCES), S, 3, rng())


def test_bad_guesses_are_named():
    for guess in (np.ones((2, 3)), np.ones(0), np.ones((2, 2, 2))):
        with pytest.raises(ValueError, match="guess must"):
            Spherical().start(guess)


# Variances wherever a matrix may be


def test_variances_are_a_diagonal_matrix_to_every_function(case):
    tree, X = case
    gaps = np.where(rng(4).random(X.shape) < 0.2, np.nan, X)
    for value in (
        lambda phi: diffusion.whiten(X, phi).rows,
        lambda phi: diffusion.whiten(X, phi).log_det,
        lambda phi: ct.log_joint(tree, X, phi, leaf_noise=NOISE),
        lambda phi: diffusion.log_likelihood(tree, gaps, phi, NOISE),
        lambda phi: ct.sample_data(tree, phi, leaf_noise=NOISE, random_state=5),
        lambda phi: diffusion.sample_nodes(tree, X, phi, NOISE, random_state=5),
        lambda phi: ct.greedy_tree(X, phi, leaf_noise=NOISE).times,
        lambda phi: ct.greedy_tree(X, phi, leaf_noise=NOISE, neighbors=4).times,
        lambda phi: ct.sample_posterior(X, phi, n_particles=5, leaf_noise=NOISE).times,
        lambda phi: ct.learn_posterior(X, phi, leaf_noise=NOISE, n_draws=2, warmup=1).posterior.times,
    ):
        np.testing.assert_array_equal(value(VARIANCES), value(np.diag(VARIANCES)))
        assert not np.array_equal(value(VARIANCES), value(VARIANCES[::-1]))
    same(as_family(VARIANCES, d=4).start(None), as_family(np.diag(VARIANCES), d=4).start(None))
    np.testing.assert_array_equal(
        ct.sample_data(tree, 4, random_state=5), ct.sample_data(tree, np.ones(4), random_state=5)
    )


def test_check_covariance_keeps_the_form():
    for phi in (VARIANCES, np.diag(VARIANCES), MATRIX):
        np.testing.assert_array_equal(check_covariance(phi, 4), phi)
        np.testing.assert_allclose(root_of(phi).matrix(), np.diag(phi) if phi.ndim == 1 else phi, rtol=1e-12)
    np.testing.assert_array_equal(check_covariance(None, 3), np.ones(3))
    for bad in ([1.0, 0.0, 1.0, 1.0], np.diag([1.0, -1.0, 1.0, 1.0]), np.zeros((4, 4))):
        with pytest.raises(ValueError, match="covariance must be positive definite"):
            check_covariance(bad, 4)
    for bad in (np.ones(3), np.ones((3, 3)), np.ones(0)):
        with pytest.raises(ValueError, match=r"covariance must be .*4"):
            check_covariance(bad, 4)


def test_prediction_takes_a_diagonal_by_columns(case):
    tree, X = case
    post = ct.sample_posterior(X, VARIANCES, n_particles=3, leaf_noise=NOISE)
    new = X[:5] + rng(6).normal(size=(5, 4))
    new[0, 1] = new[1, 0] = new[1, 2] = np.nan
    by_columns, by_matrix = (
        predict.make_fit(post, X, phi[None], NOISE[None]) for phi in (VARIANCES, np.diag(VARIANCES))
    )
    for summary in (predict.log_predictive, predict.impute):
        np.testing.assert_allclose(summary(by_columns, new), summary(by_matrix, new), rtol=1e-10)
    for one, other in zip(
        *(predict.attachments(tree, predict.Given(phi, NOISE), X, new) for phi in (VARIANCES, np.diag(VARIANCES))),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-10)


# Memory: 60 × 5 000 holds 2.4 MB, and one (d, d) matrix 200 MB


BOUND = 40 * N * D * 8


def peak_of(call):
    call()  # compiling takes memory too
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.fixture(scope="module")
def wide():
    tree = ct.sample_tree(N, random_state=rng(7))
    return tree, ct.sample_data(tree, rng(8).gamma(2.0, size=D), leaf_noise=0.05, random_state=rng(9))


@pytest.mark.parametrize("name", ["spherical", "diagonal", "fixed"])
@pytest.mark.parametrize("gaps", [False, True])
def test_an_iteration_forms_nothing_square(name, gaps, wide):
    X = np.where(rng(10).random(wide[1].shape) < 0.1, np.nan, wide[1]) if gaps else wide[1]
    family = Fixed(np.ones(D)) if name == "fixed" else as_family(name)

    def learn_a_little():
        learned = ct.learn_posterior(X, family, n_draws=1, n_chains=1, warmup=1, thin=1)
        assert np.isfinite(learned.posterior.log_joint).all()
        assert learned.covariances.shape == (1, D)

    assert peak_of(learn_a_little) < BOUND


def test_the_bound_is_broken_by_a_matrix(wide):
    assert peak_of(lambda: diffusion.scatter(*wide, 0.05)) > BOUND
    assert peak_of(lambda: np.diag(np.ones(D))) > BOUND


def test_public_functions_form_nothing_square(wide):
    tree, X = wide
    variances = X.var(axis=0)

    def use():
        ct.sample_data(tree, variances, random_state=1)
        ct.log_joint(tree, X, variances, leaf_noise=0.05)
        ct.greedy_tree(X, variances, leaf_noise=0.05)
        ct.sample_posterior(X, variances, n_particles=2, leaf_noise=0.05, method="smc1")
        diffusion.sample_nodes(tree, X, None, 0.05, random_state=1)
        missing.observed_scatter(tree, X, np.full(N, 0.05))

    assert peak_of(use) < BOUND


def test_prediction_forms_nothing_square(wide):
    tree, X = wide
    given = predict.Given(X.var(axis=0), np.full(N, 0.05))
    fit = predict.Fit(ct.sample_posterior(X, given.covariance, n_particles=2, leaf_noise=0.05), X, lambda m: given)
    new = X[:4] + 0.1
    new[:2, ::3] = np.nan

    def use():
        predict.log_predictive(fit, new)
        predict.impute(fit, new)
        predict.attachments(tree, given, X, new)

    assert peak_of(use) < BOUND
