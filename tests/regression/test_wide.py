"""Many features: the coordinates of a wide chain, its invariance, and what it survives."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import ndtr

from coaltree.regression import likelihood
from coaltree.regression.chain import Settings, WideChain
from coaltree.regression.families.base import Observed
from coaltree.regression.families.binary import PROBIT
from coaltree.regression.fit import fit_regression
from coaltree.regression.likelihood import OwnLikelihood
from coaltree.regression.moves import coefficients, preconditioner
from coaltree.regression.moves.preconditioner import Frame, make_basis, make_wide_pilot
from coaltree.regression.preparation import scale_features, sparse_likelihood
from coaltree.regression.prior import PooledSpherical, outcome_precision, sample_prior, wide_prior
from tests.model.invariance import LIMIT
from tests.regression.invariance import binary
from tests.regression.test_calibration import worst
from tests.seeds import seed

PRIOR = wide_prior(0.7)._replace(intercept_sd=1.2)


def simulate(n_outcomes, rng, n=15, n_features=3, prior=PRIOR):
    """Hyperparameters, θ and labels from the prior; a tenth of the labels are missing."""
    hyper, theta = sample_prior(prior, n_outcomes, n_features, rng)
    rows = np.hstack([np.ones((n, 1)), rng.standard_normal((n, n_features))])
    signs = np.where(rng.random((n, n_outcomes)) < PROBIT.mean(rows @ theta.T), 1, -1)
    signs[rng.random(signs.shape) < 0.1] = 0
    return hyper, theta, binary(rows, signs.astype(np.int8), np.ones(n))


def build(rng, n_outcomes=3, n_features=5, n=40):
    hyper, theta, labels = simulate(n_outcomes, rng, n, n_features)
    pilot = make_wide_pilot(labels, 0.1 * theta)
    A = outcome_precision(hyper, n_outcomes)
    return hyper, theta, labels, Frame(pilot, make_basis(pilot, hyper.widths), hyper.widths, A, 0.3), A


@pytest.mark.parametrize("few", [True, False])
def test_the_frame_is_the_kronecker_sum(monkeypatch, few):
    """In plain matrices: diag(w) ⊗ G + A ⊗ Λ⁻², sheared intercepts, and the mean M⁻¹b."""
    monkeypatch.setattr(preconditioner, "FEW_FEATURES", 32 if few else 0)
    rng = np.random.default_rng(seed(70))
    hyper, theta, labels, made, A = build(rng)
    n_outcomes, n_features = theta.shape[0], theta.shape[1] - 1
    pilot, bend, X = made.pilot, labels.bend(0.1 * theta), labels.rows[:, 1:]
    curvature = np.ones(len(X)) if few else (bend / pilot.weights).mean(axis=1)
    G = np.cov(X.T, aweights=curvature, ddof=0) * curvature.sum()
    M = np.kron(np.diag(pilot.weights), G) + np.kron(A, np.diag(hyper.widths**-2.0))
    mean = np.linalg.solve(M, pilot.linear[:, 1:].ravel()).reshape(n_outcomes, n_features)
    beta = theta[:, 1:] - mean
    intercept = theta[:, 0] + (pilot.shear * theta[:, 1:]).sum(axis=1)
    curvature = pilot.intercepts + 0.3
    expected = beta.ravel() @ M @ beta.ravel() + curvature @ (intercept - pilot.linear[:, 0] / curvature) ** 2
    q = made.whiten(theta)
    assert np.sum(q**2) == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(made.colour(q), theta, atol=1e-9)
    constant = n_features * np.log(pilot.weights).sum() - 2 * n_outcomes * np.log(hyper.widths).sum()
    assert 2 * made.log_det_root + constant == pytest.approx(np.linalg.slogdet(M)[1])
    # A gradient in q is the transposed derivative of θ.
    g, step = rng.standard_normal(theta.shape), rng.standard_normal(theta.shape)
    moved = made.colour(q + step) - theta
    assert np.sum(made.pull(g) * step) == pytest.approx(np.sum(g * moved))


def test_blocks_change_the_frame_and_nothing_else(monkeypatch):
    monkeypatch.setattr(preconditioner, "LARGEST_BLOCK", 2)
    rng = np.random.default_rng(seed(71))
    _, theta, _, made, _ = build(rng)
    assert [part.stop - part.start for part, _ in made.pilot.grams] == [2, 1, 2]
    np.testing.assert_allclose(made.colour(made.whiten(theta)), theta, atol=1e-9)


def statistics(hyper, theta, labels):
    found = [np.log(hyper.spread), theta[0, 0], theta[-1, 1], theta[:, 2].mean(), hyper.df]
    found += [np.log(hyper.widths[0]), np.log(hyper.widths).mean(), np.log(np.abs(theta[0, 1]))]
    if hyper.unknowns is not None:
        tree, covariance, noise = hyper.unknowns[:3]
        found += [np.log(tree.times[-1]), np.log(tree.times).mean(), np.log(tree.cophenetic()[0, 1])]
        found += [np.log(noise[0]), np.log(covariance.values["variance"]), np.log(np.ptp(theta[:, 1]))]
    found = np.array(found)
    value, gradient = labels.values_and_gradient(theta)
    return np.concatenate([found, np.clip(found, -9, 9) ** 2, [value.sum()], np.clip(gradient[:, 1], -20, 20)])


def drift(n_outcomes, n_replicates, first, spoil=lambda chain: None):
    """Z-scores of the mean change of every statistic by two iterations from an exact posterior draw."""
    changes = []
    for replicate in range(n_replicates):
        rng = np.random.default_rng([seed(first), replicate])
        hyper, theta, labels = simulate(n_outcomes, rng)
        chain = WideChain(labels, PRIOR, Settings(burn_in=0), rng)
        chain.moving = chain.start()._replace(point=coefficients.evaluate(labels, theta), hyper=hyper)
        chain.width_moves = 1.0  # by default for more features than these
        spoil(chain)
        for _ in range(2):
            chain.advance()
        changes.append(
            statistics(chain.moving.hyper, chain.moving.point.theta, labels) - statistics(hyper, theta, labels)
        )
    changes = np.array(changes)
    return changes.mean(axis=0) / changes.std(axis=0, ddof=1) * np.sqrt(n_replicates)


@pytest.mark.parametrize("n_outcomes", [1, pytest.param(4, marks=[pytest.mark.slow, pytest.mark.ci])])
def test_an_iteration_leaves_the_posterior_alone(n_outcomes):
    assert np.abs(drift(n_outcomes, 50, 72)).max() < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("n_outcomes", [1, 2, 5])
def test_an_iteration_leaves_the_posterior_alone_in_many_replicates(n_outcomes):
    assert np.abs(drift(n_outcomes, 1500, 73)).max() < LIMIT


@pytest.mark.slow
@pytest.mark.ci
def test_a_wrong_prior_of_intercepts_is_noticed():
    def spoil(chain):
        chain.intercept *= 20.0

    assert np.abs(drift(4, 50, 74, spoil)).max() > LIMIT


def drift_of_widths(n_replicates, first):
    """The same by ten moves of the widths of faint features alone; the rest of an iteration would hide an error."""
    changes = []
    for replicate in range(n_replicates):
        rng = np.random.default_rng([seed(first), replicate])
        hyper, theta, labels = simulate(4, rng)
        chain = WideChain(labels, PRIOR, Settings(burn_in=0), rng)
        pilot, point, now = chain.start().pilot, coefficients.evaluate(labels, theta), hyper
        A = outcome_precision(hyper, 4)
        frame = Frame(pilot, make_basis(pilot, hyper.widths), hyper.widths, A, chain.intercept)
        for _ in range(10):
            now, point, frame = chain.follow_widths(now, point, frame, A)
        changes.append(statistics(now, point.theta, labels) - statistics(hyper, theta, labels))
    changes = np.array(changes)
    changes = changes[:, changes.std(axis=0) > 0]  # tree and covariance stay
    return changes.mean(axis=0) / changes.std(axis=0, ddof=1) * np.sqrt(n_replicates)


def test_moves_of_faint_widths_leave_the_posterior_alone():
    found = drift_of_widths(150, 88)
    assert len(found) > 10
    assert np.abs(found).max() < LIMIT


@pytest.mark.parametrize("broken", ["prior", "jacobian"])
def test_wrong_moves_of_faint_widths_are_noticed(monkeypatch, broken):
    if broken == "prior":
        monkeypatch.setattr("coaltree.regression.chain.log_inverse_gamma", lambda *_: 0.0)
    else:
        plain = Frame.__init__

        def without(self, *arguments):
            plain(self, *arguments)
            self.log_det_root = 0.0

        monkeypatch.setattr(Frame, "__init__", without)
    assert np.abs(drift_of_widths(150, 88)).max() > LIMIT


def test_faint_features_are_those_the_labels_say_little_about():
    rng = np.random.default_rng(seed(89))
    X = rng.standard_normal((400, 3))
    signs = np.where(rng.random((400, 2)) < ndtr(X[:, :1]), 1, -1).astype(np.int8)
    labels = binary(np.hstack([np.ones((400, 1)), X]), signs, np.ones(400))
    chain = WideChain(labels, PRIOR, Settings(burn_in=40), rng)
    for _ in range(40):
        chain.advance()
    assert chain.moving.pilot.faint(400).tolist() == [False, True, True]


def test_the_short_way_to_rescale_is_the_long_one():
    family = PooledSpherical(0.7)
    state = family.from_values({"variance": 0.3}, 4)
    for c in (0.1, 1.0, 7.0):
        assert family.log_rescale(state, c) == pytest.approx(family.rescale(state, c)[1])
    assert family.log_rescale(state, 7.0) != pytest.approx(family.log_rescale(state, 1.0))


def ranks(n_replicates, n, n_outcomes, burn_in, thin, n_kept=24, prior=PRIOR):
    """Fractions of draws below the truth, (replicates, quantities), ties broken at random."""
    found = []
    for replicate in range(n_replicates):
        rng = np.random.default_rng([seed(87), replicate])
        hyper, theta, labels = simulate(n_outcomes, rng, n)
        n_first = len(statistics(hyper, theta, labels)) - n_outcomes - 1  # unknowns, and their squares
        truth = statistics(hyper, theta, labels)[: n_first // 2]
        chain = WideChain(labels, prior, Settings(burn_in), rng)
        chain.width_moves = 1.0
        below = np.zeros(len(truth))
        for step in range(burn_in + n_kept * thin):
            chain.advance()
            if step >= burn_in and (step - burn_in) % thin == thin - 1:
                drawn = statistics(chain.moving.hyper, chain.moving.point.theta, labels)[: n_first // 2]
                below += (drawn < truth) + rng.random(len(truth)) * (drawn == truth)
        found.append((below + rng.random(len(truth))) / (n_kept + 1))
    return np.array(found)


@pytest.mark.slow
def test_ranks_are_uniform():
    """Simulation-based calibration: 100 replicates, every unknown."""
    assert worst(ranks(100, 60, 5, burn_in=80, thin=6)) < LIMIT


@pytest.mark.slow
def test_another_prior_is_noticed():
    assert worst(ranks(40, 40, 4, burn_in=40, thin=3, prior=PRIOR._replace(spread_scale=0.02))) > LIMIT


def wide_tables(kind, n, n_features, rng):
    X = rng.standard_normal((n, n_features))
    if kind == "collinear":
        X = X[:, : max(n_features // 10, 2)] @ rng.standard_normal((max(n_features // 10, 2), n_features))
        X[:, 1] = X[:, 0]
    elif kind == "one-hot":
        X = np.eye(n_features)[rng.integers(n_features, size=n)]
    return X


@pytest.mark.parametrize(
    ("kind", "n_features"), [("noise", 240), ("collinear", 330), ("one-hot", 240), ("noise", 2000)]
)
def test_many_features_never_lose_positive_definiteness(kind, n_features):
    rng = np.random.default_rng(seed(75))
    X = wide_tables(kind, 120, n_features, rng)
    X[:, -1] = 1e9 * rng.random(120)  # units do not matter
    Y = (X[:, :1] + rng.standard_normal((120, 4)) > 0.5).astype(float)
    Y[:, 3] = np.arange(120) == 7  # a single event
    fit = fit_regression(X, Y, n_iter=8, burn_in=4, n_chains=1)
    assert fit.info["covariance"] == "diagonal"
    assert np.isfinite(fit.coef_draws).all()
    chance = fit.predict_proba(X)
    assert ((chance > 0) & (chance < 1)).all()
    assert fit.trace["acceptance"].max() > 0.1


def test_signal_is_found_among_noise():
    """Few features of many matter: their widths say which, and intervals hold the truth."""
    rng = np.random.default_rng(seed(76))
    X, beta = rng.standard_normal((500, 60)), np.zeros((5, 60))
    beta[:, :3] = [0.9, -0.8, 0.7] + 0.15 * rng.standard_normal((5, 3))
    Y = (rng.random((500, 5)) < ndtr(X @ beta.T - 0.5)).astype(float)
    fit = fit_regression(X, Y, n_iter=200, burn_in=90, n_chains=1)
    assert set(np.argsort(-np.diag(fit.covariance))[:3]) == {0, 1, 2}
    low, high = np.quantile(fit.coef_draws[0], [0.05, 0.95], axis=0)
    assert np.mean((low <= beta) & (beta <= high)) > 0.85
    assert np.mean((low <= beta)[:, :3] & (beta <= high)[:, :3]) > 0.6
    assert np.abs(fit.coef[:, 3:]).max() < 0.25


def test_sparse_features_are_never_dense_and_say_the_same(monkeypatch):
    monkeypatch.setattr(likelihood, "BLOCK", 16)
    monkeypatch.setattr("coaltree.regression.preparation.BLOCK", 16)
    rng = np.random.default_rng(seed(77))
    X = np.where(rng.random((50, 9)) < 0.3, rng.normal(2.0, 1.0, size=(50, 9)), 0.0)
    weights = rng.integers(1, 3, size=50).astype(float)
    signs = rng.choice(np.array([-1, 0, 1], dtype=np.int8), size=(50, 3))
    scaling, thin = scale_features(X, weights), scale_features(sparse.csr_array(X), weights)
    np.testing.assert_allclose(thin.centre, scaling.centre)
    np.testing.assert_allclose(thin.width, scaling.width)
    plain = binary(scaling.apply(X), signs, weights)
    compact = sparse_likelihood(sparse.csr_array(X), thin, plain.observed, weights)
    theta = rng.standard_normal((3, 10))
    for a, b in zip(plain.values_and_gradient(theta), compact.values_and_gradient(theta), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    np.testing.assert_allclose(plain.gradient(theta), compact.gradient(theta), rtol=1e-9)
    np.testing.assert_allclose(plain.bend(theta), compact.bend(theta), rtol=1e-8)
    own = rng.random(50)
    np.testing.assert_allclose(plain.gram(slice(2, 7), own), compact.gram(slice(2, 7), own), atol=1e-9)
    Y = (signs == 1).astype(float)
    options = {"n_iter": 5, "burn_in": 2, "n_chains": 1, "covariance": "diagonal", "sample_weight": weights}
    dense_fit, sparse_fit = fit_regression(X, Y, **options), fit_regression(sparse.csc_array(X), Y, **options)
    np.testing.assert_allclose(dense_fit.coef_draws, sparse_fit.coef_draws, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(dense_fit.predict_proba(X), sparse_fit.predict_proba(sparse.coo_array(X)), rtol=1e-4)


def test_columns_of_an_outcomes_own():
    """They are features of one outcome: as if each outcome had a table of its own."""
    rng = np.random.default_rng(seed(78))
    rows = np.hstack([np.ones((30, 1)), rng.standard_normal((30, 2))])
    own, theta = rng.standard_normal((2, 30, 3)), rng.standard_normal((3, 5))
    signs = rng.choice(np.array([-1, 1], dtype=np.int8), size=(30, 3))
    joint = OwnLikelihood(rows, (Observed(PROBIT, np.arange(3), (signs,)),), np.ones(30), own)
    values, gradient = joint.values_and_gradient(theta)
    curvature = joint.curvature(theta)
    for j in range(3):
        alone = binary(np.hstack([rows, own[:, :, j].T]), signs[:, [j]].copy(), np.ones(30))
        value, slope = alone.values_and_gradient(theta[[j]])
        assert values[j] == pytest.approx(value[0])
        np.testing.assert_allclose(gradient[j], slope[0])
        np.testing.assert_allclose(curvature[j], alone.curvature(theta[[j]])[0])
        np.testing.assert_allclose(joint.of_outcome(j).gradient(theta[[j]]), slope)


def test_stopped_and_continued_is_the_same_to_the_last_bit(tmp_path):
    rng = np.random.default_rng(seed(79))
    X = rng.standard_normal((60, 14))
    Y = (X[:, :3] + rng.standard_normal((60, 3)) > 0.3).astype(float)
    options = {"burn_in": 10, "n_chains": 2, "random_state": 3}
    whole = fit_regression(X, Y, n_iter=20, **options)
    assert whole.info["covariance"] == "diagonal"
    file = tmp_path / "chains.npz"
    fit_regression(X, Y, n_iter=12, checkpoint=file, **options)
    parts = fit_regression(X, Y, n_iter=20, checkpoint=file, n_jobs=2, **options)
    assert whole.coef_draws.tobytes() == parts.coef_draws.tobytes()
    assert whole.covariance.tobytes() == parts.covariance.tobytes()


def test_a_full_covariance_of_too_many_says_what_to_do():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 4)), (rng.random((30, 2)) < 0.5).astype(float)
    with pytest.raises(ValueError, match="covariance must be one of"):
        fit_regression(X, Y, covariance="wishart")
    with pytest.raises(ValueError, match='albert-chib" needs covariance="full"'):
        fit_regression(X, Y, covariance="diagonal", method="albert-chib")
    singular = np.zeros((2, 3, 2, 3))
    with pytest.raises(ValueError, match='Use covariance="diagonal"'):
        coefficients.combine(singular, np.zeros((2, 3, 3)), np.zeros((2, 3)))
