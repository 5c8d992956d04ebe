"""The width of single codes is found from held-out subjects, and each group of regressors keeps its own."""

import numpy as np
from scipy import sparse

from coaltree.records.widths import GroupRidge, choose_width, relative_widths
from coaltree.regression.fit import fit_regression
from coaltree.regression.preparation import prepare
from tests.seeds import seed


def cohort(codes_matter, rng, n=1500, n_codes=120):
    """Three factors that matter, and codes of which half do or none."""
    factors, codes = rng.standard_normal((n, 3)), (rng.random((n, n_codes)) < 0.2).astype(float)
    beta = np.zeros((n_codes, 2))
    beta[::2] = 0.8 * codes_matter * rng.choice([-1.0, 1.0], (n_codes // 2, 2))
    eta = factors @ [[0.8, 0.0], [0.0, 0.8], [0.5, 0.5]] + (codes - 0.2) @ beta - 1.0
    Y = (eta + rng.standard_normal((n, 2)) > 0).astype(float)
    return sparse.hstack([sparse.csr_matrix(factors), sparse.csr_matrix(codes)], format="csr"), Y


def test_codes_that_matter_are_given_width():
    rng = np.random.default_rng(seed(1))
    found = []
    for matter in (True, False):
        X, Y = cohort(matter, rng)
        found.append(choose_width(X, 3, Y, None, 0))
    assert found[0] >= 0.3
    assert found[1] <= 0.03  # the control


def test_labels_without_weight_do_not_count():
    rng = np.random.default_rng(seed(2))
    X, Y = cohort(True, rng)
    weights = np.ones(Y.shape)
    weights[::3] = 0.0
    spoilt = np.where(weights > 0, Y, np.nan)
    assert choose_width(X, 3, Y, weights, 0) == choose_width(X, 3, spoilt, weights, 0)


def test_the_ridge_keeps_widths():
    rng = np.random.default_rng(seed(3))
    X, Y = cohort(True, rng)
    X = X.toarray()
    alone = GroupRidge(np.ones(3)).fit(X[:, :3], Y)
    none = GroupRidge(relative_widths(3, 120, 1e-9)).fit(X, Y)
    np.testing.assert_allclose(none.predict_proba(X), alone.predict_proba(X[:, :3]), atol=1e-4)
    whole = GroupRidge(relative_widths(3, 120, 1.0)).fit(X, Y)
    assert np.abs(whole.predict_proba(X) - alone.predict_proba(X[:, :3])).max() > 0.1


def test_a_width_scales_a_prior():
    """Columns enter the chain divided by deviation and multiplied by width; coefficients come back in units of X."""
    rng = np.random.default_rng(seed(4))
    X = rng.standard_normal((60, 2)) * [1.0, 5.0]
    Y = (rng.random((60, 2)) < 0.5).astype(float)
    plain, halved = (prepare(X, Y, wide=True, widths=w).scaling for w in (None, [1.0, 0.5]))
    np.testing.assert_allclose(halved.apply(X), plain.apply(X) * [1.0, 1.0, 0.5])
    theta = rng.standard_normal((2, 3))
    intercept, coef = halved.undo(theta)
    np.testing.assert_allclose(intercept + X @ coef.T, halved.apply(X) @ theta.T)
    faint = fit_regression(X, Y, covariance="diagonal", widths=[1.0, 1e-6], n_iter=60, burn_in=30, n_chains=1)
    assert np.abs(faint.coef[:, 1]).max() < 1e-3
