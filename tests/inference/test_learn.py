"""The learner leaves the joint distribution of trees, Φ, s₀ and data as it is."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import coaltree as ct
from coaltree.inference import learn
from coaltree.inference.learn import Settings, Unknowns
from coaltree.model.covariance import Diagonal, Fixed, HuangWand, InverseWishart, Spherical
from coaltree.model.diffusion import log_likelihood
from coaltree.model.gp import GaussianProcess
from coaltree.model.missing import Imputed, impute_columns
from tests.seeds import seed

N, D, N_REPLICATES, N_STEPS = 6, 2, 200, 2
KERNEL = RBF(1.0, (0.3, 3.0)) + WhiteKernel(0.1, (0.01, 1.0))
GAPS = np.array([[1, 0], [0, 1], [0, 0], [1, 1], [0, 0], [1, 0]], dtype=bool)
FAMILIES = {
    "spherical": Spherical(shape=3.0, scale=2.0),
    "diagonal": Diagonal(shape=3.0, scale=2.0),
    "inverse Wishart": InverseWishart(np.eye(D), df=6),
    "Huang-Wand": HuangWand(df=4, scale=1.0, shape=0.5),
    "Gaussian process": GaussianProcess(KERNEL, np.arange(2.0), shape=3.0, scale=2.0),
    "fixed": Fixed(np.array([[1.0, 0.3], [0.3, 0.5]])),
}


def draw_from_prior(family, rng, learn_noise):
    noise = rng.exponential() if learn_noise else 0.2
    return Unknowns(ct.sample_tree(N, random_state=rng), family.sample_prior(D, rng), np.full(N, noise))


def statistics(unknowns, X):
    """Summaries that have a distribution under the prior; the last is of entries that may be missing."""
    phi = unknowns.covariance.matrix()
    table = learn.filled(X, unknowns)
    return [
        table[0, 0] - table[1, 0],
        table[0, 1] - table[2, 1],
        np.log(unknowns.tree.times[-1]),
        np.log(unknowns.tree.times).mean(),
        np.log(unknowns.tree.cophenetic()[0, 1]),
        np.log(unknowns.leaf_noise[0]),
        np.log(phi[0, 0]),
        phi[0, 1] / np.sqrt(phi[0, 0] * phi[1, 1]),
    ]


def simulate(family, settings, rng):
    now = draw_from_prior(family, rng, settings.learn_noise)
    return now, ct.sample_data(now.tree, now.covariance.matrix(), now.leaf_noise, random_state=rng)


def smallest_p_value(family, settings, kernel_family=None, gaps=False):
    """Successive-conditional test: prior → data → kernel must be distributed like the prior itself."""
    before, after = [], []
    for replicate in range(N_REPLICATES):
        rng = np.random.default_rng(seed(replicate))
        before.append(statistics(*simulate(family, settings, rng)))
        now, X = simulate(family, settings, rng)
        if gaps:
            hidden = X[GAPS].copy()
            X[GAPS] = np.nan
            now = now._replace(missing=Imputed(hidden, hidden))
        for _ in range(N_STEPS):
            now = learn.iterate(now, X, kernel_family or family, settings, rng)
        after.append(statistics(now, X))
    before, after = np.array(before), np.array(after)
    varies = before.std(axis=0) > 1e-9
    return min(stats.ks_2samp(a, b).pvalue for a, b in zip(before.T[varies], after.T[varies], strict=True))


@pytest.mark.parametrize("name", FAMILIES)
def test_an_iteration_leaves_the_joint_distribution_alone(name):
    assert smallest_p_value(FAMILIES[name], Settings(n_particles=4)) > 1e-3 / 6


@pytest.mark.parametrize("name", ["spherical", "diagonal", "inverse Wishart"])
def test_with_missing_entries(name):
    """Exactly, where Φ is diagonal, and by augmentation, where it is full."""
    assert smallest_p_value(FAMILIES[name], Settings(n_particles=4), gaps=True) > 1e-3 / 6


def test_missing_entries_drawn_as_if_columns_were_independent_are_noticed(monkeypatch):
    """Negative control: a correlated Φ needs the observed part of the row."""
    family = Fixed(np.array([[1.0, 0.95], [0.95, 1.0]]))
    assert smallest_p_value(family, Settings(n_particles=4), gaps=True) > 1e-3 / 6
    monkeypatch.setattr(learn, "draw_missing", draw_columns)
    assert smallest_p_value(family, Settings(n_particles=4), gaps=True) < 1e-4


def draw_columns(now, X, rng):
    variances = np.diag(now.covariance.matrix())
    return now._replace(missing=impute_columns(now.tree, X, variances, now.leaf_noise, rng))


def test_with_given_leaf_noise():
    assert smallest_p_value(FAMILIES["spherical"], Settings(n_particles=4, learn_noise=False)) > 1e-3 / 6


def test_a_kernel_for_another_prior_is_noticed():
    other = InverseWishart(np.eye(D), df=9)
    assert smallest_p_value(FAMILIES["inverse Wishart"], Settings(n_particles=4), kernel_family=other) < 1e-4


def test_scale_move_keeps_the_likelihood():
    rng = np.random.default_rng(0)
    family = FAMILIES["inverse Wishart"]
    now = draw_from_prior(family, rng, True)
    X = ct.sample_data(now.tree, now.covariance.matrix(), now.leaf_noise, random_state=rng)
    new = learn.draw_scale(now, X, family, True, rng)
    assert new.tree.times[-1] != now.tree.times[-1]
    assert log_likelihood(new.tree, X, new.covariance.matrix(), new.leaf_noise) == pytest.approx(
        log_likelihood(now.tree, X, now.covariance.matrix(), now.leaf_noise), rel=1e-9
    )


def test_scale_move_improves_mixing():
    """Autocorrelation of the log amplitude over iterations, with and without the joint move."""
    rng = np.random.default_rng(seed(1))
    X = ct.sample_data(ct.sample_tree(16, random_state=rng), 9.0 * np.eye(16), random_state=rng)

    def autocorrelation(scale_move):
        settings = Settings(n_particles=5, scale_move=scale_move)
        result = learn.run(X, Spherical(), None, 300, settings, np.random.default_rng(2))
        x = np.log([u.covariance.matrix()[0, 0] for u in result.draws[50:]])
        x = x - x.mean()
        return (x[1:] @ x[:-1]) / (x @ x)

    assert autocorrelation(True) < autocorrelation(False) - 0.1


ONE = {
    "spherical": Spherical(shape=3.0, scale=2.0),
    "diagonal": Diagonal(shape=3.0, scale=2.0),
    "inverse Wishart": InverseWishart(1.5, df=6),
    "Gaussian process": GaussianProcess(RBF(1.0, "fixed"), [0.0], shape=3.0, scale=2.0, jitter=0.0),
}


@pytest.mark.parametrize("name", ONE)
def test_the_covariance_is_integrated_out(name):
    """In one dimension, against the trapezoidal rule in log φ."""
    family, rng = ONE[name], np.random.default_rng(seed(5))
    tree = ct.sample_tree(6, random_state=rng)
    X = ct.sample_data(tree, np.array([[2.0]]), 0.5, random_state=rng)
    integrated = family.integrated(family.start(np.array([[1.0]])), rng)
    log_phi = np.linspace(-8.0, 12.0, 400)
    key = next(iter(family.start(np.array([[1.0]])).values))
    like = np.shape(family.start(np.array([[1.0]])).values[key])
    states = [family.from_values({key: np.full(like, phi) if like else phi}, 1) for phi in np.exp(log_phi)]

    def by_quadrature(noise):
        terms = [
            family.log_prior(state) + state.log_det + log_likelihood(tree, X, state.matrix(), noise) for state in states
        ]
        return logsumexp(terms)

    noises = [0.01, 0.3, 4.0]
    found = [learn.marginal_likelihood(integrated, X)(tree, np.full(6, noise)) for noise in noises]
    np.testing.assert_allclose(np.diff(found), np.diff([by_quadrature(noise) for noise in noises]), atol=1e-7)


def test_noise_mixes_because_the_covariance_is_integrated_out(monkeypatch):
    """Autocorrelation of log s₀ over blocks of noise and covariance alone, the tree as it was."""
    rng = np.random.default_rng(seed(4))
    tree, family = ct.sample_tree(20, random_state=rng), Spherical()
    X = ct.sample_data(tree, 4.0 * np.eye(12), 1.0, random_state=rng)

    def autocorrelation():
        now, draws = Unknowns(tree, family.start(np.cov(X.T)), np.ones(20)), []
        for _ in range(400):
            now = learn.draw_noise(learn.draw_covariance(now, X, family, rng), X, family, rng)
            draws.append(np.log(now.leaf_noise[0]))
        x = np.array(draws[50:]) - np.mean(draws[50:])
        return (x[1:] @ x[:-1]) / (x @ x)

    together = autocorrelation()
    monkeypatch.setattr(Spherical, "integrated", lambda *_: None)
    apart = autocorrelation()
    assert together < 0.4
    assert apart > together + 0.3


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_amplitude_is_found_from_far_away(factor):
    rng = np.random.default_rng(seed(3))
    X = ct.sample_data(ct.sample_tree(30, random_state=rng), 20.0 * np.eye(30), random_state=rng)
    family = Spherical()
    now = learn.first_guess(X, family, np.zeros(30))
    now = now._replace(covariance=family.rescale(now.covariance, factor)[0])
    for _ in range(15):
        now = learn.iterate(now, X, family, Settings(n_particles=5, learn_noise=False), rng)
    assert 5.0 < now.covariance.matrix()[0, 0] < 80.0


def test_interrupt_returns_what_is_done(monkeypatch):
    X = ct.sample_data(ct.sample_tree(5, random_state=0), 2, random_state=0)
    calls = []
    original = learn.iterate

    def interrupted(*arguments):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(1)
        return original(*arguments)

    monkeypatch.setattr(learn, "iterate", interrupted)
    result = learn.run(X, Spherical(), None, 10, Settings(n_particles=3), np.random.default_rng(0))
    assert len(result.draws) == len(result.log_joint) == 3
