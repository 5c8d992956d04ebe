"""Kernels on some columns, and the Kronecker structure of grids against the dense way."""

import math
import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel

from coaltree.model.gp import GaussianProcess, OnColumns
from tests.model.invariance import simulate, stream

MATERN = Matern(1.3, (0.1, 10.0), nu=1.5)
IMAGE = OnColumns(MATERN, [0]) * OnColumns(Matern(0.7, (0.1, 10.0), nu=1.5), [1]) + WhiteKernel(0.05, (1e-3, 1.0))


@pytest.fixture
def rng(request):
    return stream(request)


def pixels(*shape):
    return np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, len(shape)) * 1.0


# Columns


def test_columns_behave_as_scikit_learn_kernels_do(rng):
    kernel = OnColumns(RBF([1.0, 2.0], (0.1, 10.0)) + WhiteKernel(0.3, "fixed"), [2, 0])
    X, Y = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    inner = kernel.kernel
    np.testing.assert_array_equal(kernel(X), inner(X[:, [2, 0]]))
    np.testing.assert_array_equal(kernel(X, Y), inner(X[:, [2, 0]], Y[:, [2, 0]]))
    np.testing.assert_array_equal(kernel.diag(X), np.diag(kernel(X)))
    np.testing.assert_array_equal(kernel.bounds, inner.bounds)
    assert kernel.n_dims == 2
    assert kernel.is_stationary()
    copy = clone(kernel)
    assert copy == kernel
    assert copy is not kernel
    moved = kernel.clone_with_theta(np.log([3.0, 4.0]))
    np.testing.assert_allclose(moved.kernel.k1.length_scale, [3.0, 4.0])
    np.testing.assert_allclose(kernel.theta, np.log([1.0, 2.0]))
    assert moved != kernel
    assert OnColumns(MATERN, [0]) != OnColumns(MATERN, [1])
    assert [each.name for each in kernel.hyperparameters] == ["kernel__k1__length_scale", "kernel__k2__noise_level"]
    assert [each.fixed for each in kernel.hyperparameters] == [False, True]
    kernel.set_params(kernel__k2__noise_level=0.5, columns=[1, 0])
    assert kernel.get_params()["kernel__k2__noise_level"] == 0.5
    assert kernel.get_params(deep=False) == {"kernel": kernel.kernel, "columns": [1, 0]}
    assert repr(OnColumns(RBF(), [1])) == "Columns(RBF(length_scale=1), [1])"


def test_columns_gradient_equals_finite_differences(rng):
    X = rng.standard_normal((4, 2))
    _, gradient = IMAGE(X, eval_gradient=True)
    for k in range(IMAGE.n_dims):
        step = 1e-6 * (np.arange(IMAGE.n_dims) == k)
        up, down = (IMAGE.clone_with_theta(IMAGE.theta + sign * step)(X) for sign in (1, -1))
        np.testing.assert_allclose(gradient[:, :, k], (up - down) / 2e-6, atol=1e-8)


def test_columns_fit_within_scikit_learn(rng):
    X = rng.standard_normal((15, 2))
    y = np.sin(X[:, 1]) + 0.3 * rng.standard_normal(15)
    kernel = RBF(1.0) + WhiteKernel(0.1, (1e-5, 1e2))
    ours = GaussianProcessRegressor(OnColumns(kernel, [1])).fit(X, y)
    theirs = GaussianProcessRegressor(kernel).fit(X[:, [1]], y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X[:, [1]]))


@pytest.mark.parametrize("columns", [[2], [-1], [0.5], [], "a", [[0]]])
def test_columns_that_do_not_exist_are_named(columns):
    with pytest.raises(ValueError, match="columns must be a list of column numbers"):
        GaussianProcess(OnColumns(RBF(), columns), pixels(2, 2))


def test_the_papers_matern_on_an_image():
    family = GaussianProcess(IMAGE, pixels(3, 4), amplitude=1.0, jitter=0.0)
    gaps = np.abs(pixels(3, 4)[:, None] - pixels(3, 4)[None])
    scaled = math.sqrt(3) * gaps / [1.3, 0.7]
    truth = np.prod((1 + scaled) * np.exp(-scaled), axis=-1) + 0.05 * np.eye(12)
    assert family.grid is not None
    np.testing.assert_allclose(family.start(np.eye(12)).matrix(), truth, atol=1e-14)


# Grids


@pytest.mark.parametrize(
    ("kernel", "coordinates"),
    [
        (IMAGE, pixels(4, 5)),
        (IMAGE, pixels(4, 5)[::-1] ** 1.5),  # uneven steps, features in another order
        (2.5 * OnColumns(RBF(), 1) * OnColumns(MATERN, 0) * ConstantKernel(0.3), pixels(4, 3)),
        (WhiteKernel(0.2) + OnColumns(RBF(), [0]) * OnColumns(MATERN, [1]) * OnColumns(RBF(2.0), [2]), pixels(3, 2, 4)),
        (
            OnColumns(RBF([1.0, 2.0]), [0, 2]) * OnColumns(MATERN, [1]) + WhiteKernel(0.1) + WhiteKernel(0.2),
            pixels(3, 4, 2),
        ),
        (OnColumns(RBF(), [0]) * OnColumns(RBF(3.0) + DotProduct(), [1]) * OnColumns(MATERN**2, [0]), pixels(3, 4)),
    ],
    ids=["image", "permuted", "constants", "three axes", "two columns", "same axis twice"],
)
def test_kronecker_equals_dense(kernel, coordinates, rng):
    coordinates = coordinates[rng.permutation(len(coordinates))]
    grid, dense = (GaussianProcess(kernel, coordinates, separable=s, jitter=1e-4) for s in (True, False))
    assert grid.grid is not None
    assert dense.grid is None
    d = len(coordinates)
    u = rng.standard_normal((7, d))
    S = u.T @ u
    for _ in range(3):
        theta = rng.uniform(np.log(0.3), np.log(3.0), grid.kernel.n_dims)
        one, two = grid._state(theta, 1.7), dense._state(theta, 1.7)
        np.testing.assert_equal(one.values, two.values)
        np.testing.assert_allclose(one.matrix(), two.matrix(), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one.factor, two.factor, rtol=1e-9, atol=1e-9)
        assert one.log_det == pytest.approx(two.log_det, rel=1e-9)
        assert one.trace_solve(S) == pytest.approx(two.trace_solve(S), rel=1e-9)
        left, right = one.whiten(u), two.whiten(u)
        np.testing.assert_allclose(left @ left.T, right @ right.T, rtol=1e-9, atol=1e-9)


def test_kronecker_chain_equals_dense_chain():
    """The same random numbers give the same draws, and through the folded S."""
    chains = []
    for separable in (True, False):
        rng = np.random.default_rng(5)
        family = GaussianProcess(IMAGE, pixels(4, 3)[[5, 2, 8, 0, 1, 3, 4, 6, 7, 9, 11, 10]], separable=separable)
        state = family.sample_prior(12, rng)
        S = simulate(state, 15, np.random.default_rng(6))
        for _ in range(4):
            state = family.update(state, S, 15, rng)
        chains.append(list(state.values.values()))
    np.testing.assert_allclose(chains[0], chains[1], rtol=1e-8)


@pytest.mark.parametrize(
    ("kernel", "coordinates"),
    [
        (IMAGE, pixels(3, 3)[:-1]),  # a corner is missing
        (IMAGE, np.vstack([pixels(2, 2)[:3], [[0.0, 1.0]]])),  # a pixel twice
        (OnColumns(MATERN, [0]) + OnColumns(MATERN, [1]), pixels(3, 3)),
        (OnColumns(MATERN, [0, 1]) * OnColumns(MATERN, [1]), pixels(3, 3)),
        (OnColumns(MATERN + WhiteKernel(), [0]) * OnColumns(MATERN, [1]), pixels(3, 3)),  # noise is not an axis's own
        (OnColumns(MATERN, [0]) * MATERN, pixels(3, 3)),
        (OnColumns(MATERN, [0]) + WhiteKernel(), pixels(3, 1)),
        (RBF() + WhiteKernel(), pixels(3, 3)),
        (WhiteKernel(), pixels(3, 3)),
    ],
)
def test_what_does_not_separate_goes_the_dense_way(kernel, coordinates):
    family = GaussianProcess(kernel, coordinates)
    assert family.grid is None
    K = family.kernel(coordinates)
    truth = K + 1e-10 * np.diag(K).mean() * np.eye(len(K))
    root = family._root(family.theta, clone(family.kernel))
    if root is not None:
        np.testing.assert_allclose(root.matrix(), truth, atol=1e-12)


def test_a_grid_that_is_not_positive_definite_is_rejected():
    singular = OnColumns(DotProduct(1.0, (0.1, 10.0)), [0]) * OnColumns(MATERN, [1])
    assert GaussianProcess(singular, pixels(5, 3), jitter=0.0)._root(np.zeros(2), clone(singular)) is None
    with pytest.raises(ValueError, match="Add a WhiteKernel"):
        GaussianProcess(singular, pixels(5, 3), jitter=0.0).start(np.eye(15))


@pytest.mark.slow
def test_kronecker_is_faster(rng):
    """At 32 × 32 an update is tens of times faster; five is asked for, so that a busy machine does not matter."""
    seconds = []
    for separable in (True, False):
        family = GaussianProcess(IMAGE, pixels(32, 32), separable=separable)
        state = family.start(np.eye(1024))
        begin = time.process_time()
        family.update(state, np.eye(1024), 100, np.random.default_rng(0))
        seconds.append(time.process_time() - begin)
    assert seconds[1] > 5 * seconds[0]
