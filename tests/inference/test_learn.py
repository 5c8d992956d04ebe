"""The learner leaves the joint distribution of trees, Φ, s₀ and data as it is."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import coaltree as ct
from coaltree import sizes
from coaltree.estimators.learn import candidates, pilot_effort
from coaltree.inference.effort import Effort
from coaltree.inference.learning import chain as learn
from coaltree.inference.learning import table
from coaltree.inference.learning.chain import ChainSettings, TreeChain, Unknowns
from coaltree.inference.learning.working import Working
from coaltree.model.covariance import Diagonal, Fixed, HuangWand, InverseWishart, ShrunkWishart, Spherical
from coaltree.model.diffusion import log_likelihood
from coaltree.model.gp import GaussianProcess
from coaltree.model.missing import Imputed, impute_columns
from coaltree.model.noise import SHARED, GivenNoise
from tests.seeds import seed

N, D, N_REPLICATES, N_STEPS = 6, 2, 200, 2
KERNEL = RBF(1.0, (0.3, 3.0)) + WhiteKernel(0.1, (0.01, 1.0))
GAPS = np.array([[1, 0], [0, 1], [0, 0], [1, 1], [0, 0], [1, 0]], dtype=bool)
FAMILIES = {
    "spherical": Spherical(shape=3.0, scale=2.0),
    "diagonal": Diagonal(shape=3.0, scale=2.0),
    "inverse Wishart": InverseWishart(np.eye(D), df=6),
    "shrunk": ShrunkWishart(shape=3.0, scale=2.0),
    "Huang-Wand": HuangWand(df=4, scale=1.0, shape=0.5),
    "Gaussian process": GaussianProcess(KERNEL, np.arange(2.0), shape=3.0, scale=2.0),
    "fixed": Fixed(np.array([[1.0, 0.3], [0.3, 0.5]])),
}
LONG = [pytest.mark.slow, pytest.mark.ci]
MORE_FAMILIES = ("Huang-Wand", "Gaussian process")  # whose kernels alone are tested in tests/model


def draw_from_prior(family, rng, learn_noise, rounding=0.0):
    while True:
        noise = rng.exponential() if learn_noise else 0.2
        covariance = family.sample_prior(D, rng)
        if noise * covariance.amplitude >= rounding:
            rows = np.full(N, noise)
            known = SHARED if learn_noise else GivenNoise(rows)
            return Unknowns(ct.sample_tree(N, random_state=rng), covariance, rows, noise=known)


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
        np.log(unknowns.leaf_noise[0] * phi[0, 0]),
        phi[0, 1] / np.sqrt(phi[0, 0] * phi[1, 1]),
    ]


def simulate(family, learn_noise, rng, rounding=0.0):
    now = draw_from_prior(family, rng, learn_noise, rounding)
    return now, ct.sample_data(now.tree, now.covariance.matrix(), leaf_noise=now.leaf_noise, random_state=rng)


def iterate(now, X, family, rng, rounding=0.0):
    how = (lambda now: learn.draw_tree(now, X, rng), None, Working(1.0, rounding))
    return learn.iterate(now, X, family, rng, *how)


def smallest_p_value(family, learn_noise=True, kernel_family=None, gaps=False, rounding=0.0, kernel_rounding=None):
    """Successive-conditional test: prior → data → kernel must be distributed like the prior itself."""
    before, after = [], []
    for replicate in range(N_REPLICATES):
        rng = np.random.default_rng(seed(replicate))
        before.append(statistics(*simulate(family, learn_noise, rng, rounding)))
        now, X = simulate(family, learn_noise, rng, rounding)
        if gaps:
            hidden = X[GAPS].copy()
            X[GAPS] = np.nan
            now = now._replace(missing=Imputed(hidden, hidden))
        for _ in range(N_STEPS):
            bound = rounding if kernel_rounding is None else kernel_rounding
            now = iterate(now, X, kernel_family or family, rng, bound)
        after.append(statistics(now, X))
    before, after = np.array(before), np.array(after)
    varies = before.std(axis=0) > 1e-9
    return min(stats.ks_2samp(a, b).pvalue for a, b in zip(before.T[varies], after.T[varies], strict=True))


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG if name in MORE_FAMILIES else []) for name in FAMILIES])
def test_an_iteration_leaves_the_joint_distribution_alone(name):
    assert smallest_p_value(FAMILIES[name]) > 1e-3 / 6


@pytest.mark.parametrize(
    "name", ["diagonal", *(pytest.param(name, marks=LONG) for name in ("spherical", "inverse Wishart"))]
)
def test_with_missing_entries(name):
    """Exactly, where Φ is diagonal, and by augmentation, where it is full."""
    assert smallest_p_value(FAMILIES[name], gaps=True) > 1e-3 / 6


@pytest.mark.slow
@pytest.mark.ci
def test_missing_entries_drawn_as_if_columns_were_independent_are_noticed(monkeypatch):
    """Negative control: a correlated Φ needs the observed part of the row."""
    family = Fixed(np.array([[1.0, 0.95], [0.95, 1.0]]))
    assert smallest_p_value(family, gaps=True) > 1e-3 / 6
    monkeypatch.setattr(table, "draw_missing", draw_columns)
    assert smallest_p_value(family, gaps=True) < 1e-4


def draw_columns(now, X, rng):
    variances = np.diag(now.covariance.matrix())
    return now._replace(missing=impute_columns(now.tree, X, variances, now.leaf_noise, rng))


@pytest.mark.parametrize("name", ["spherical", "shrunk"])
@pytest.mark.parametrize("gaps", [False, pytest.param(True, marks=LONG)])
def test_with_a_bound_on_the_noise(name, gaps):
    assert smallest_p_value(FAMILIES[name], rounding=2.0, gaps=gaps) > 1e-3 / 6


@pytest.mark.parametrize("name", ["spherical", "shrunk"])
def test_a_bound_that_is_ignored_is_noticed(name):
    assert smallest_p_value(FAMILIES[name], rounding=2.0, kernel_rounding=0.0) < 1e-4


def test_with_given_leaf_noise():
    assert smallest_p_value(FAMILIES["spherical"], learn_noise=False) > 1e-3 / 6


def test_a_kernel_for_another_prior_is_noticed():
    other = InverseWishart(np.eye(D), df=9)
    assert smallest_p_value(FAMILIES["inverse Wishart"], kernel_family=other) < 1e-4


def test_scale_move_keeps_the_likelihood():
    rng = np.random.default_rng(0)
    family = FAMILIES["inverse Wishart"]
    now = draw_from_prior(family, rng, True)
    X = ct.sample_data(now.tree, now.covariance.matrix(), leaf_noise=now.leaf_noise, random_state=rng)
    new = learn.draw_scale(now, X, family, rng)
    assert new.tree.times[-1] != now.tree.times[-1]
    assert log_likelihood(new.tree, X, new.covariance.matrix(), new.leaf_noise) == pytest.approx(
        log_likelihood(now.tree, X, now.covariance.matrix(), now.leaf_noise), rel=1e-9
    )


def test_scale_move_improves_mixing(monkeypatch):
    """Autocorrelation of the log amplitude over iterations, with and without the joint move."""
    rng = np.random.default_rng(seed(1))
    X = ct.sample_data(ct.sample_tree(16, random_state=rng), 9.0 * np.eye(16), random_state=rng)

    def autocorrelation():
        family = Spherical()
        (first,), near = learn.first_guesses(X, family, SHARED, 1, np.random.default_rng(1))
        chain = TreeChain(X, family, ChainSettings(warmup=50), first, near, np.random.default_rng(2))
        for _ in range(300):
            chain.advance()
        x = np.log(chain.trace["variance"][50:])
        x = x - x.mean()
        return (x[1:] @ x[:-1]) / (x @ x)

    together = autocorrelation()
    monkeypatch.setattr(learn, "draw_scale", lambda now, *_: now)
    assert together < autocorrelation() - 0.1


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
    X = ct.sample_data(tree, np.array([[2.0]]), leaf_noise=0.5, random_state=rng)
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
    found = [learn.marginal_likelihood(integrated, X)(tree, np.full(6, noise), noise) for noise in noises]
    np.testing.assert_allclose(np.diff(found), np.diff([by_quadrature(noise) for noise in noises]), atol=1e-7)


def test_noise_mixes_because_the_covariance_is_integrated_out(monkeypatch):
    """Autocorrelation of log s₀ over blocks of noise and covariance alone, the tree as it was."""
    rng = np.random.default_rng(seed(4))
    tree, family = ct.sample_tree(20, random_state=rng), Spherical()
    X = ct.sample_data(tree, 4.0 * np.eye(12), leaf_noise=1.0, random_state=rng)

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
    now = learn.first_guess(X, family, GivenNoise(np.zeros(30)))
    now = now._replace(covariance=family.rescale(now.covariance, factor)[0])
    for _ in range(15):
        now = iterate(now, X, family, rng)
    assert 5.0 < now.covariance.matrix()[0, 0] < 80.0


# ---- whole chains


def chain_over(X, family, number, warmup=20, noise=SHARED, **how):
    starts, near = learn.first_guesses(X, family, noise, number + 1, np.random.default_rng(seed(1)))
    settings = ChainSettings(warmup, **how)
    return TreeChain(X, family, settings, starts[number], near, np.random.default_rng(seed(number)))


def test_chains_start_from_different_trees():
    X = ct.sample_data(ct.sample_tree(60, random_state=1), 4, random_state=2)
    starts, near = learn.first_guesses(X, Spherical(), SHARED, 3, np.random.default_rng(0))
    trees = [each.tree for each in starts]
    distances = [ct.metrics.robinson_foulds(trees[0], tree) for tree in trees[1:]]
    assert all(distance > 0 for distance in distances)
    assert near.shape == (60, sizes.NEAR_ROWS)
    assert all(np.all(np.diff(tree.times, prepend=0.0) > 0) for tree in trees)


def test_numbers_of_nodes_do_not_depend_on_a_tree_that_is_a_draw(monkeypatch):
    """They decide which node is cut when."""
    X, walks = np.random.default_rng(seed(1)).normal(size=(12, 2)), []

    class Recorded(learn.Walk):
        def __init__(self, *arguments, **how):
            super().__init__(*arguments, **how)
            walks.append(self.place.copy())

    monkeypatch.setattr(learn, "Walk", Recorded)
    for number, stream in ((1, 1), (2, 1), (1, 2)):
        now = Unknowns(ct.sample_tree(12, random_state=number), Spherical().sample_prior(2, stream_of(1)), np.ones(12))
        learn.draw_tree(now, X, stream_of(stream))
    np.testing.assert_array_equal(walks[0], walks[1])
    assert (walks[0] != walks[2]).any()


def stream_of(number):
    return np.random.default_rng(seed(number))


def test_missing_entries_before_the_first_draw_are_means_over_chains():
    X = np.array([[1.0, np.nan], [np.nan, 2.0], [np.nan, 3.0]])

    def chain(expected):
        missing = SimpleNamespace(expected=np.array(expected))
        return SimpleNamespace(now=SimpleNamespace(missing=missing), completed=SimpleNamespace(n=0))

    table, spread = learn.completed(X, [chain([1.0, 2.0, 3.0]), chain([3.0, 6.0, 9.0])])
    np.testing.assert_array_equal(table, [[1.0, 2.0], [4.0, 2.0], [6.0, 3.0]])
    np.testing.assert_array_equal(spread, 0.0)


def test_what_is_compared_and_for_how_long():
    X = stream_of(1).normal(size=(20, 4))
    assert candidates(X) == ("spherical", "diagonal", "wishart", "factors")
    assert candidates(X[:, :2]) == ("spherical", "diagonal", "wishart")
    assert candidates(X[:5]) == ("spherical", "diagonal", "factors")
    assert candidates(X[:, :1]) == candidates(np.hstack([X, np.ones((20, 1))])) == ("spherical",)
    # A quarter of the iterations, at least 100 if there are as many, half of them draws; two chains if those are few.
    assert pilot_effort(Effort(400, 800, 2, 2)) == Effort(150, 150, 1, 1)
    assert pilot_effort(Effort(100, 100, 2, 1)) == Effort(50, 50, 1, 1)
    assert pilot_effort(Effort(20, 60, 2, 1)) == Effort(25, 50, 2, 1)


def test_a_travelling_copy_goes_on_as_the_chain_would():
    X = ct.sample_data(ct.sample_tree(30, random_state=1), 4, random_state=2)
    X[3, 1] = np.nan
    one, other = chain_over(X, Diagonal(), 0, warmup=5), chain_over(X, Diagonal(), 0, warmup=5)
    for _ in range(8):
        one.advance()
    for _ in range(4):
        other.advance()
    light = other.without_draws()
    for _ in range(4):
        light.advance()
    other.follow(light)
    assert one.trace["log_joint"] == other.trace["log_joint"]
    assert len(one.draws) == len(other.draws) == 3
    assert one.draws[-1].times.tobytes() == other.draws[-1].times.tobytes()
    assert np.array_equal(one.completed.mean, other.completed.mean)


@pytest.mark.slow
@pytest.mark.ci
def test_ranks_of_the_truth_are_uniform():
    """Simulation-based calibration of the whole chain: tree, Φ and s₀ together, each from its prior."""
    family, ranks = Diagonal(shape=3.0, scale=2.0), []
    for replicate in range(120):
        rng = np.random.default_rng(seed(1000 + replicate))
        now, X = simulate(family, True, rng)
        (first,), near = learn.first_guesses(X, family, SHARED, 1, rng)
        chain = TreeChain(X, family, ChainSettings(warmup=40, thin=6), first, near, rng)
        for _ in range(40 + 6 * 19):
            chain.advance()
        drawn = np.array(
            [
                statistics(
                    Unknowns(
                        ct.Tree(draw.children, draw.times),
                        family.from_values(draw.phi, D),
                        np.full(N, draw.noise[0]),
                    ),
                    X,
                )[2:7]
                for draw in chain.draws
            ]
        )
        ranks.append((drawn < statistics(now, X)[2:7]).sum(axis=0))
    p_values = [stats.chisquare(np.bincount(column // 4, minlength=5)).pvalue for column in np.array(ranks).T]
    assert min(p_values) > 1e-3 / 5
    # Negative control: ranks of half the truth.
    shifted = np.array(ranks)[:, 0] // 2
    assert stats.chisquare(np.bincount(shifted // 4, minlength=5)).pvalue < 1e-4
