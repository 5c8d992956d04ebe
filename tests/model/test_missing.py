"""Missing entries against the dense Gaussian they come from."""

import numpy as np
import pytest
from scipy import stats

import coaltree as ct
from coaltree.model import diffusion, missing
from tests.reference import missing as plain_missing
from tests.seeds import seed

N, D = 7, 3
VARIANCES = np.array([0.5, 1.0, 3.0])


@pytest.fixture
def rng():
    return np.random.default_rng(seed(11))


@pytest.fixture
def tree(rng):
    return ct.sample_tree(N, random_state=rng)


NOISE = np.linspace(0.0, 0.4, N)


def table(tree, rng):
    X = ct.sample_data(tree, np.diag(VARIANCES), leaf_noise=NOISE, random_state=rng)
    X[rng.random(X.shape) < 0.3] = np.nan
    X[0] = np.nan  # a row with nothing
    X[-2:] = np.where(np.isnan(X[-2:]), 0.7, X[-2:])  # and no column without two entries
    return X


def shared_variance(tree, noise):
    """Covariance of the leaves, root at the origin, in units of Φ: time from the root to the common ancestor."""
    return tree.times[-1] - tree.cophenetic() + np.diag(noise)


def conditional(covariance, values):
    """Mean and covariance of the NaN entries of a flat-mean Gaussian vector given the others, and their log density."""
    known = ~np.isnan(values)
    wide = covariance + 1e7  # a flat root
    inner = wide[np.ix_(known, known)]
    weights = np.linalg.solve(inner, wide[np.ix_(known, ~known)]).T
    cov = wide[np.ix_(~known, ~known)] - weights @ wide[np.ix_(known, ~known)]
    # The density of the differences: the known entries under a flat mean.
    first, *rest = np.flatnonzero(known)
    contrast = values[rest] - values[first]
    among = covariance[np.ix_(rest, rest)] - covariance[rest][:, [first]] - covariance[[first]][:, rest]
    among = among + covariance[first, first]
    log_p = stats.multivariate_normal(cov=among).logpdf(contrast) if rest else 0.0
    return weights @ values[known], cov, float(log_p)


def test_likelihood_is_that_of_the_observed_differences(tree, rng):
    X = table(tree, rng)
    truth = sum(
        conditional(phi * shared_variance(tree, NOISE), column)[2] for phi, column in zip(VARIANCES, X.T, strict=True)
    )
    assert diffusion.log_likelihood(tree, X, np.diag(VARIANCES), NOISE) == pytest.approx(truth, rel=1e-9)
    assert ct.log_joint(tree, X, np.diag(VARIANCES), leaf_noise=NOISE) == pytest.approx(
        truth + ct.log_prior(tree), rel=1e-9
    )


def test_without_gaps_it_is_the_usual_likelihood(tree, rng):
    X = ct.sample_data(tree, np.diag(VARIANCES), leaf_noise=NOISE, random_state=rng)
    usual = diffusion.log_likelihood(tree, X, np.diag(VARIANCES), NOISE)
    assert missing.log_observed_likelihood(tree, X, VARIANCES, NOISE) == pytest.approx(usual, rel=1e-12)
    S, m = missing.observed_scatter(tree, X, NOISE)
    np.testing.assert_allclose(S, np.diag(diffusion.scatter(tree, X, NOISE)))
    assert m.tolist() == [N - 1] * D


def test_columns_are_drawn_from_their_conditional(tree, rng):
    X = table(tree, rng)
    draws = [missing.impute_columns(tree, X, VARIANCES, NOISE, rng) for _ in range(4000)]
    drawn = np.array([draw.drawn for draw in draws])
    where = np.nonzero(np.isnan(X))
    for j, phi in enumerate(VARIANCES):
        here = where[1] == j
        mean, cov, _ = conditional(phi * shared_variance(tree, NOISE), X[:, j])
        np.testing.assert_allclose(draws[0].expected[here], mean, rtol=1e-5, atol=1e-5)
        error = np.sqrt(np.diag(cov) / len(drawn))
        assert np.all(np.abs(drawn[:, here].mean(axis=0) - mean) < 4.5 * error)
        np.testing.assert_allclose(np.atleast_2d(np.cov(drawn[:, here].T)), cov, atol=6 * cov.max() / 60)


def test_rows_are_drawn_from_their_conditional(rng):
    phi = np.array([[2.0, 0.8, 0.1], [0.8, 1.0, -0.3], [0.1, -0.3, 0.5]])
    X = np.array([[np.nan, 1.0, np.nan], [0.2, 0.1, 0.3]])
    centres, spread = np.array([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0]]), np.array([0.7, 0.4])
    draws = [missing.impute_rows(X, centres, spread, np.linalg.inv(phi), rng) for _ in range(4000)]
    drawn = np.array([draw.drawn for draw in draws])
    weights = phi[[0, 2], 1] / phi[1, 1]
    np.testing.assert_allclose(draws[0].expected, centres[0, [0, 2]] + weights * 2.0)
    cov = 0.7 * (phi[np.ix_([0, 2], [0, 2])] - np.outer(weights, phi[1, [0, 2]]))
    assert np.all(np.abs(drawn.mean(axis=0) - draws[0].expected) < 4.5 * np.sqrt(np.diag(cov) / 4000))
    np.testing.assert_allclose(np.cov(drawn.T), cov, atol=6 * cov.max() / 60)


def test_a_full_covariance_cannot_be_integrated_over(tree, rng):
    X = table(tree, rng)
    with pytest.raises(ValueError, match="covariance must be diagonal where X has missing entries"):
        ct.log_joint(tree, X, np.diag(VARIANCES) + 0.1)
    X[:, 1] = np.nan
    with pytest.raises(ValueError, match=r"no entry at all in column\(s\) 1"):
        ct.log_joint(tree, X)


def test_kernels_draw_what_their_plain_twins_draw(tree, rng):
    """The same numbers from the same stream: gaps anywhere, rows and columns with nothing, merges at time 0."""
    X = table(tree, rng)
    X[:, 1] = np.nan
    tied = ct.Tree(tree.children, np.maximum(tree.times - tree.times[2], 0.0))
    phi = np.cov(rng.normal(size=(D, 9)))
    centres, spread = rng.normal(size=X.shape), rng.random(N)
    for case in (
        lambda by, r: by.impute_columns(tree, X[:, [0, 2]], VARIANCES[[0, 2]], NOISE, r),
        lambda by, r: by.impute_columns(tied, X[:, [0, 2]], VARIANCES[[0, 2]], NOISE, r),
        lambda by, r: by.impute_rows(X, centres, spread, np.linalg.inv(phi), r),
    ):
        found, plain = (case(by, np.random.default_rng(3)) for by in (missing, plain_missing))
        np.testing.assert_allclose(found.expected, plain.expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.drawn, plain.drawn, rtol=1e-12, atol=1e-12)
        assert np.abs(found.drawn - found.expected).max() > 0.01
