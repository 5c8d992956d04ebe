"""Kinds of outcomes beside binary ones: their likelihoods, chains that leave the posterior alone, time at risk."""

import warnings

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, ndtr

import coaltree as ct
from coaltree.errors import InputError
from coaltree.model.covariance import PooledWishart
from coaltree.regression.families import FAMILIES, as_families
from coaltree.regression.families.base import Observed, OutcomeScale
from coaltree.regression.families.normal import RATE, SHAPE
from coaltree.regression.families.poisson import HIGHEST, POISSON
from coaltree.regression.fit import fit_regression
from coaltree.regression.likelihood import Likelihood, penalised_mode
from coaltree.regression.preparation import observe_labels
from coaltree.regression.prior import Prior, sample_prior
from tests.model.invariance import LIMIT
from tests.regression.invariance import K, N, drift
from tests.regression.test_calibration import ranks, worst
from tests.regression.test_sampler import trajectory, whole
from tests.seeds import seed

# Narrow, so that no replicate has counts beyond reason.
PRIOR = Prior(PooledWishart(5.0, 0.15), 0.2, 0.8)
LONG = [pytest.mark.slow, pytest.mark.ci]


def poisson_labels(eta, exposure, rng):
    return rng.poisson(exposure * np.exp(np.minimum(eta, 40.0))).astype(float)


def poisson_density(y, exposure, eta, weights):
    return np.sum(weights * stats.poisson.logpmf(y, exposure * np.exp(eta)))


def normal_labels(eta, exposure, rng):
    return eta + np.sqrt(RATE / rng.gamma(SHAPE, size=eta.shape[1:])) * rng.standard_normal(eta.shape)


def normal_density(y, exposure, eta, weights):
    """The residual variance is integrated out by quadrature."""
    square, n = np.sum(weights * (y - eta) ** 2), weights.sum()

    def log_density(log_variance):
        prior = -SHAPE * log_variance - RATE * np.exp(-log_variance)
        return prior - 0.5 * n * log_variance - 0.5 * square * np.exp(-log_variance)

    mode = np.log((RATE + 0.5 * square) / (SHAPE + 0.5 * n))
    top = log_density(mode)
    return top + np.log(integrate.quad(lambda x: np.exp(log_density(x) - top), mode - 4, mode + 4, epsabs=0)[0])


# Per family: labels given η and time at risk; log density of an outcome's labels.
DRAWS = {"poisson": poisson_labels, "normal": normal_labels}
DENSITIES = {
    "probit": lambda y, exposure, eta, weights: np.sum(weights * stats.bernoulli.logpmf(y.astype(int), ndtr(eta))),
    "logit": lambda y, exposure, eta, weights: np.sum(weights * stats.bernoulli.logpmf(y.astype(int), expit(eta))),
    "poisson": poisson_density,
    "normal": normal_density,
}
NEW = tuple(FAMILIES[name] for name in DRAWS)
# A claim that is wrong, of each.
WRONG = {"poisson": lambda data: (data[0], 2.0 * data[1]), "normal": lambda data: (1.3 * data[0] + 0.1,)}


def unit(n_outcomes):
    """Outcomes as they are, without a scale from the labels: then the prior is the same for all labels."""
    return OutcomeScale(np.ones(n_outcomes, dtype=bool), *np.zeros((2, n_outcomes)), np.ones(n_outcomes))


def simulate(n_outcomes, rng, family, n=N):
    """Hyperparameters, θ and labels from the prior; a tenth of the labels are missing."""
    hyper, theta = sample_prior(PRIOR, n_outcomes, K, rng)
    rows = np.hstack([np.ones((n, 1)), rng.standard_normal((n, K))])
    exposure = rng.uniform(0.1, 2.0, (n, n_outcomes))
    labels = DRAWS[family.name](rows @ theta.T, exposure, rng)
    labels[rng.random(labels.shape) < 0.1] = np.nan
    data = family.observe(labels, exposure, unit(n_outcomes))
    return hyper, theta, Likelihood(rows, (Observed(family, np.arange(n_outcomes), data),), np.ones(n))


def problem(family, n=60, n_outcomes=3, n_features=2):
    """Labels with gaps, their times at risk and weights, and the likelihood of them."""
    rng = np.random.default_rng([seed(150), len(family.name)])
    rows = np.hstack([np.ones((n, 1)), rng.standard_normal((n, n_features))])
    theta = 0.5 * rng.standard_normal((n_outcomes, n_features + 1))
    exposure, weights = rng.uniform(0.1, 2.0, (n, n_outcomes)), rng.integers(1, 4, (n, n_outcomes)).astype(float)
    eta = rows @ theta.T
    labels = DRAWS[family.name](eta, exposure, rng) if not family.binary else (rng.random(eta.shape) < ndtr(eta)) * 1.0
    labels[rng.random(labels.shape) < 0.2] = np.nan
    data = family.observe(labels, exposure, unit(n_outcomes))
    found = Likelihood(rows, (Observed(family, np.arange(n_outcomes), data),), weights)
    return labels, exposure, weights, theta, found


def slope_of(function, x, step=1e-5):
    """Central differences of a function of x along every entry."""
    found = []
    for place in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        found.append((function(up) - function(down)) / (2 * step))
    return np.array(found)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
def test_values_are_log_densities(family):
    """Up to terms in the labels alone: differences between two points."""
    labels, exposure, weights, theta, found = problem(family)
    other = theta + 0.3

    def density(theta, j):
        known = ~np.isnan(labels[:, j])
        eta = found.rows[known] @ theta[j]
        return DENSITIES[family.name](labels[known, j], exposure[known, j], eta, weights[known, j])

    gap = found.values_and_gradient(theta)[0] - found.values_and_gradient(other)[0]
    np.testing.assert_allclose(gap, [density(theta, j) - density(other, j) for j in range(3)], rtol=1e-7)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
def test_gradient_and_curvature_are_derivatives(family):
    _, _, _, theta, found = problem(family)
    expected = slope_of(lambda theta: found.values_and_gradient(theta)[0].sum(), theta)
    np.testing.assert_allclose(found.values_and_gradient(theta)[1].ravel(), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.gradient(theta).ravel(), expected, rtol=1e-6, atol=1e-6)
    theta = penalised_mode(found, np.full(3, 1e-9))  # where the curvature of every family is exact
    hessian = slope_of(lambda theta: found.gradient(theta).ravel(), theta)
    curvature = found.curvature(theta)
    for j in range(3):
        own = slice(3 * j, 3 * j + 3)
        np.testing.assert_allclose(-hessian[own, own], curvature[j], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=str)
def test_an_outcome_alone_is_the_same(family):
    _, _, _, theta, found = problem(family)
    values, gradient = found.values_and_gradient(theta)
    for j in range(3):
        value, slope = found.of_outcome(j).values_and_gradient(theta[[j]])
        np.testing.assert_allclose(value[0], values[j])
        np.testing.assert_allclose(slope[0], gradient[j])


def test_families_side_by_side_are_each_alone():
    """A mixture in any order, weights of labels included."""
    rng = np.random.default_rng(seed(151))
    names = ["poisson", "probit", *DRAWS, "logit", "poisson"]
    families, n = as_families(names, len(names)), 50
    rows = np.hstack([np.ones((n, 1)), rng.standard_normal((n, 2))])
    theta, exposure = rng.standard_normal((len(names), 3)), rng.uniform(0.1, 2.0, (n, len(names)))
    eta = 0.3 * rows @ theta.T
    labels = np.column_stack(
        [
            DRAWS[name](eta[:, j], exposure[:, j], rng) if name in DRAWS else rng.random(n) < expit(eta[:, j])
            for j, name in enumerate(names)
        ]
    ).astype(float)
    for weights in (rng.uniform(0.5, 2.0, n), rng.uniform(0.5, 2.0, labels.shape)):
        observed, scale = observe_labels(labels, exposure, weights, families)
        joint = Likelihood(rows, observed, weights)
        values, gradient = joint.values_and_gradient(theta)
        np.testing.assert_allclose(joint.gradient(theta), gradient)
        for j, family in enumerate(families):
            own = weights if weights.ndim == 1 else weights[:, [j]]
            (part,), alone = observe_labels(labels[:, [j]], exposure[:, [j]], own, (family,))
            assert [whole[j] for whole in scale] == [whole[0] for whole in alone]
            single = Likelihood(rows, (part,), own)
            value, slope = single.values_and_gradient(theta[[j]])
            np.testing.assert_allclose([values[j], *gradient[j]], [value[0], *slope[0]])
            np.testing.assert_allclose(joint.curvature(theta)[j], single.curvature(theta[[j]])[0])
            np.testing.assert_allclose(joint.of_outcome(j).gradient(theta[[j]])[0], slope[0])


@pytest.mark.parametrize("family", NEW, ids=str)
def test_predictions_and_predictors_are_inverse(family):
    eta = np.linspace(-4.0, 4.0, 9)
    np.testing.assert_allclose(family.predictor(family.mean(eta)), eta)


# ---- Poisson


def test_counts_against_high_precision():
    eta = np.concatenate([np.linspace(-60.0, HIGHEST, 45), [-700.0]])[None]
    counts, exposure = np.full(eta.shape, 3.0), np.full(eta.shape, 0.7)
    values, slopes = np.zeros(eta.size), np.empty_like(eta)
    POISSON.values_and_slopes(eta, (counts, exposure), np.ones((1, 1)), values, slopes)
    with mpmath.workdps(50):
        rates = [mpmath.mpf("0.7") * mpmath.exp(mpmath.mpf(float(x))) for x in eta[0]]
        expected = [
            (float(3 * mpmath.mpf(float(x)) - r), float(3 - r), float(r)) for x, r in zip(eta[0], rates, strict=True)
        ]
    np.testing.assert_allclose(np.column_stack([values, slopes[0]]), np.array(expected)[:, :2], rtol=1e-13)
    np.testing.assert_allclose(POISSON.bend(eta, (counts, exposure))[0], np.array(expected)[:, 2], rtol=1e-13)
    risks = [float(-mpmath.expm1(-mpmath.exp(mpmath.mpf(float(x))))) for x in eta[0]]
    np.testing.assert_allclose(POISSON.probability(eta)[0], risks, rtol=1e-12)


def test_counts_far_away_stay_finite():
    eta = np.array([[1e6, np.nan]])  # and the value falls, so that no mode is out there
    values, slopes = np.zeros(2), np.empty_like(eta)
    POISSON.values_and_slopes(eta, (np.ones((1, 2)), np.ones((1, 2))), np.ones((1, 1)), values, slopes)
    assert -np.inf < values[0] < -1e20
    assert slopes[0, 0] < -1e20
    assert np.isnan([values[1], slopes[0, 1]]).all()


def test_the_unit_of_exposure_does_not_matter():
    rng = np.random.default_rng(seed(152))
    X, days = rng.standard_normal((200, 2)), rng.uniform(20, 365, 200)
    Y = rng.poisson(days[:, None] / 100 * np.exp(X @ [[0.4, 0.2], [0.0, -0.3]]))
    options = {"family": "poisson", "n_iter": 30, "burn_in": 10, "n_chains": 1, "random_state": 0}
    one, other = (fit_regression(X, Y, exposure=days / unit, **options) for unit in (1.0, 365.0))
    np.testing.assert_allclose(one.coef_draws, other.coef_draws, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(one.intercept_draws + np.log(365.0), other.intercept_draws, rtol=1e-5)
    np.testing.assert_allclose(one.predict_mean(X, days), other.predict_mean(X, days / 365.0), rtol=1e-5)


def test_weights_count_labels_with_their_exposure():
    rng = np.random.default_rng(seed(153))
    X, exposure = rng.standard_normal((80, 2)), rng.uniform(0.2, 1.0, (80, 2))
    Y = rng.poisson(exposure * np.exp(0.5 * X)).astype(float)
    weights = rng.integers(0, 3, 80).astype(float)
    rows = np.repeat(np.arange(80), weights.astype(int))
    options = {"family": "poisson", "n_iter": 24, "burn_in": 8, "n_chains": 1, "random_state": 0}
    weighted = fit_regression(X, Y, sample_weight=weights, exposure=exposure, **options)
    copied = fit_regression(X[rows], Y[rows], exposure=exposure[rows], **options)
    np.testing.assert_allclose(weighted.coef_draws, copied.coef_draws, rtol=1e-4, atol=1e-7)
    # No time at risk and no event is no label.
    none = np.where(rng.random(Y.shape) < 0.3, 0.0, exposure)
    Y[none == 0.0] = 0.0
    missing = np.where(none == 0.0, np.nan, Y)
    left_out = fit_regression(X, missing, exposure=exposure, **options)
    np.testing.assert_array_equal(fit_regression(X, Y, exposure=none, **options).coef_draws, left_out.coef_draws)


# ---- chains


@pytest.mark.parametrize("family", NEW, ids=str)
def test_trajectories_leave_the_posterior_alone(family):
    assert np.abs(drift(trajectory(prior=PRIOR), 3, 300, 154, family, simulate)).max() < LIMIT


@pytest.mark.parametrize("n_outcomes", [1, pytest.param(2, marks=LONG), pytest.param(4, marks=LONG)])
@pytest.mark.parametrize("family", NEW, ids=str)
def test_whole_iterations(family, n_outcomes):
    assert np.abs(drift(whole(prior=PRIOR), n_outcomes, 150, 155, family, simulate)).max() < LIMIT


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("family", NEW, ids=str)
def test_a_wrong_likelihood_is_noticed(family):
    def kernel(hyper, theta, likelihood, rng):
        (part,) = likelihood.observed
        claimed = Likelihood(likelihood.rows, (part._replace(data=WRONG[family.name](part.data)),), likelihood.weights)
        return whole(prior=PRIOR)(hyper, theta, claimed, rng)

    assert np.abs(drift(kernel, 3, 150, 156, family, simulate)).max() > LIMIT


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("family", NEW, ids=str)
def test_ranks_are_uniform(family):
    assert worst(ranks(10, 40, 3, burn_in=40, thin=4, prior=PRIOR, family=family, make=simulate)) < LIMIT


# ---- time to an event


def followed(rng, n=6000, n_outcomes=5, leaving=0.6, risk=0.10):
    """Events within a horizon of 1 at a constant hazard; some leave at random within it, before an event or not."""
    times = rng.exponential(-1.0 / np.log1p(-risk), (n, n_outcomes))
    end = np.where(rng.random((n, 1)) < leaving, rng.random((n, 1)), 1.0)
    return rng.standard_normal((n, 2)), (times <= end).astype(float), np.minimum(times, end), end


@pytest.mark.slow
@pytest.mark.ci
def test_risks_are_right_when_subjects_leave():
    """The time at risk carries the subjects who left; labels without them are biased."""
    X, Y, exposure, end = followed(np.random.default_rng(seed(157)))
    options = {"n_iter": 120, "burn_in": 60, "n_chains": 1, "random_state": seed(158)}
    model = ct.CoalescentRegression("poisson", **options)
    known = np.where((Y == 0) & (end < 1.0), np.nan, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a short chain
        risk = model.fit(X, Y, exposure=exposure).predict_proba(X).mean()
        biased = ct.CoalescentRegression("probit", **options).fit(X, known).predict_proba(X).mean()
    error = 0.10 / np.sqrt(Y.sum())  # of the mean of five outcomes, half that of one
    assert abs(risk - 0.10) < 3 * error
    assert biased > 0.14
    assert abs(biased - 0.10) > 10 * error


# ---- measurements


def test_measurements_are_regressed_as_by_least_squares():
    """With many rows: coefficients, the residual deviation, and nodes in standard deviations of their outcomes."""
    rng = np.random.default_rng(seed(161))
    X, coef, sd = rng.standard_normal((800, 2)), np.array([[3.0, -1.0], [0.04, 0.0]]), np.array([2.0, 0.05])
    Y = X @ coef.T + [50.0, -3.0] + sd * rng.standard_normal((800, 2))
    Y[::9, 0] = np.nan
    model = ct.CoalescentRegression("normal", 200, burn_in=100, n_chains=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a short chain
        model.fit(X, Y)
    error = sd[:, None] / np.sqrt(700)
    assert (np.abs(model.coef_ - coef) < 4 * error).all()
    assert (np.abs(model.intercept_ - [50.0, -3.0]) < 4 * error[:, 0]).all()
    np.testing.assert_allclose(model.residual_sd_, sd, rtol=4 / np.sqrt(1400))
    np.testing.assert_array_equal(model.node_coef_[:2], model.coef_)
    centre, width = np.nanmean(Y, axis=0), np.nanstd(Y, axis=0)
    standard = (model.predict_mean(X) - centre) / width
    below = model.fit_.node_weights[2]
    np.testing.assert_allclose(model.predict_node(X, 2), standard @ below, rtol=1e-8)
    assert model.score(X[1:9], Y[1:9]) < 1.0
    with pytest.raises(AttributeError, match="predict_proba"):
        model.predict_proba(X)


# ---- what users see


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(seed(159))
    X = rng.standard_normal((150, 2))
    Y = np.column_stack([rng.random(150) < ndtr(X[:, 0]), rng.poisson(np.exp(0.5 * X[:, 0]))]).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ct.CoalescentRegression(["logit", "poisson"], 40, burn_in=20, n_chains=1, random_state=0).fit(X, Y)
    return X, Y, model


def test_a_mixture_predicts_each_in_its_way(mixed, tmp_path):
    X, Y, model = mixed
    mean, chance, exposure = model.predict_mean(X), model.predict_proba(X), np.full(len(X), 2.0)
    np.testing.assert_allclose(mean[:, 0], chance[:, 0])
    assert np.corrcoef(mean[:, 1], Y[:, 1])[0, 1] > 0.3
    assert (chance[:, 1] < -np.expm1(-mean[:, 1])).all()  # Jensen: the mean of 1 − exp(−rate)
    np.testing.assert_allclose(model.predict_mean(X, exposure), mean * [1.0, 2.0])
    np.testing.assert_array_equal(model.predict(X), np.column_stack([mean[:, 0] > 0.5, mean[:, 1]]))
    np.testing.assert_allclose(model.predict_node(X, 1), mean[:, 1])
    with pytest.raises(InputError, match="joins outcomes of several families"):
        model.predict_node(X, 2)
    assert 0.0 < model.score(X, Y) < 1.0
    model.save(tmp_path / "model.npz")
    again = ct.CoalescentRegression.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict_mean(X), mean)
    assert again.family == ["logit", "poisson"]
    with pytest.raises(InputError, match=r"read it with CoalescentRegression\.load"):
        ct.CoalescentProbit.load(tmp_path / "model.npz")


def test_families_by_name():
    assert [each.name for each in as_families({"b": "logit", "a": "poisson"}, 2, ("a", "b"))] == ["poisson", "logit"]
    with pytest.raises(InputError, match="'c' is not among"):
        as_families({"a": "logit", "b": "logit", "c": "logit"}, 2, ("a", "b"))
    with pytest.raises(InputError, match="'b' has none"):
        as_families({"a": "logit"}, 2, ("a", "b"))
    with pytest.raises(InputError, match="each of the 2 outcomes, got 1"):
        as_families(["logit"], 2)
    with pytest.raises(InputError, match="family must be one of"):
        as_families(["logit", "gamma"], 2)


X0 = np.arange(12.0).reshape(6, 2)
COUNTS = np.array([0.0, 1.0, 2.0, 0.0, 4.0, 1.0])


@pytest.mark.parametrize(
    ("Y", "options", "message"),
    [
        (COUNTS, {"family": "probit"}, r"holds 2, 4.*`family` 'poisson' for counts"),
        (COUNTS - 1.0, {"family": "poisson"}, "Y must hold counts .* holds -1"),
        (COUNTS + 0.5, {"family": "poisson"}, "Y must hold counts"),
        (COUNTS > 0, {"exposure": np.ones(6)}, 'exposure .* needs family="poisson"'),
        (COUNTS, {"family": "poisson", "exposure": np.ones(5)}, "exposure must be one number per row"),
        (COUNTS, {"family": "poisson", "exposure": -np.ones(6)}, "finite and not negative"),
        (COUNTS, {"family": "poisson", "exposure": np.full(6, np.nan)}, "finite and not negative"),
        (COUNTS, {"family": "poisson", "exposure": np.zeros(6)}, "outcome 0 has events in no time at risk"),
        (np.zeros(6), {"family": "poisson"}, "each has no event or is missing"),
        (COUNTS > 0, {"family": "logit", "method": "albert-chib"}, 'needs family="probit"'),
    ],
)
def test_messages_name_the_argument(Y, options, message):
    with pytest.raises(InputError, match=message):
        fit_regression(X0, Y, n_iter=3, burn_in=1, n_chains=1, **options)


def test_outcomes_without_events_get_their_rate():
    rng = np.random.default_rng(seed(160))
    X, exposure = rng.standard_normal((60, 2)), rng.uniform(0.5, 1.5, 60)
    Y = np.column_stack([rng.poisson(exposure), np.zeros(60)])
    with pytest.warns(UserWarning, match="have no event and are predicted by their smoothed rate: 1"):
        fit = fit_regression(X, Y, family="poisson", exposure=exposure, n_iter=12, burn_in=6, n_chains=1)
    expected = 0.5 / (exposure.sum() + 0.5 * exposure.mean())
    np.testing.assert_allclose(fit.predict_mean(X)[:, 1], expected)
