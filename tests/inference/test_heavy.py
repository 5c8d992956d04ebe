"""Heavy-tailed leaf noise: its kernel is exact, and one wild row does not bend the tree."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

import coaltree as ct
from coaltree.inference.learning import chain
from coaltree.inference.learning.chain import Unknowns
from coaltree.inference.moves import row_noise
from coaltree.inference.moves.walk import Walk, recompute
from coaltree.model.covariance import Spherical
from coaltree.model.diffusion import log_likelihood
from coaltree.model.noise import DF_RATE, DF_SHAPE, LEAST_DF, MOST_DF, SMALLEST_NOISE, RobustNoise
from tests.seeds import seed

N, D, N_REPLICATES = 6, 2, 300
FAMILY = Spherical(shape=3.0, scale=2.0)


def draw_tails(rng):
    df = 0.0
    while not LEAST_DF < df < MOST_DF:
        df = rng.gamma(DF_SHAPE) / DF_RATE
    tails = RobustNoise(rng.exponential(), df)
    return tails, tails.scale * 0.5 * df / rng.gamma(0.5 * df, size=N)


def simulate(rng):
    tails, noise = draw_tails(rng)
    now = Unknowns(ct.sample_tree(N, random_state=rng), FAMILY.sample_prior(D, rng), noise, noise=tails)
    return now, ct.sample_data(now.tree, now.covariance.matrix(), leaf_noise=noise, random_state=rng)


def statistics(now):
    return [
        np.log(now.leaf_noise[0]),
        np.log(now.leaf_noise.max()),
        np.log(now.leaf_noise / now.noise.scale).mean(),
        np.log(now.noise.scale),
        np.log(now.noise.df),
        np.log(now.tree.times[0]),
        np.log(now.tree.times[-1]),
        np.log(now.covariance.matrix()[0, 0]),
    ]


def smallest_p_value():
    """Successive-conditional test: prior → data → an iteration must be distributed like the prior itself."""
    before, after = [], []
    for replicate in range(N_REPLICATES):
        rng = np.random.default_rng(seed(replicate))
        before.append(statistics(simulate(rng)[0]))
        now, X = simulate(rng)
        for _ in range(2):
            now = chain.iterate(now, X, FAMILY, rng, lambda now, X=X, rng=rng: chain.draw_tree(now, X, rng))
        after.append(statistics(now))
    pairs = zip(np.array(before).T, np.array(after).T, strict=True)
    return min(stats.ks_2samp(a, b).pvalue for a, b in pairs)


def test_an_iteration_leaves_the_joint_distribution_alone():
    assert smallest_p_value() > 1e-3 / 8


def test_a_law_with_a_wrong_scale_is_noticed(monkeypatch):
    exact = row_noise.slice_noise
    monkeypatch.setattr(
        "coaltree.inference.moves.walk.slice_noise", lambda state, shape, scale, s: exact(state, shape, 3.0 * scale, s)
    )
    assert smallest_p_value() < 1e-4


def test_a_shift_without_its_prior_is_noticed(monkeypatch):
    monkeypatch.setattr(
        RobustNoise,
        "draw_offset",
        lambda self, times, rows, least, rng: (
            times - (shift := rng.uniform(-rows.min() * 0.99, times[0] * 0.99)),
            rows + shift,
        ),
    )
    assert smallest_p_value() < 1e-4


def test_noise_of_a_row_against_quadrature():
    """Mean and variance of log s_0 given everything else, of many draws by the kernel."""
    rng = np.random.default_rng(seed(1))
    tree = ct.sample_tree(4, random_state=rng)
    noise, tails = np.array([0.5, 0.1, 0.2, 0.3]), RobustNoise(0.2, 3.0)
    X = ct.sample_data(tree, np.eye(3), leaf_noise=0.3, random_state=rng)
    X[0] += 2.0

    def log_p(log_s):
        s = np.append(math.exp(log_s), noise[1:])
        prior = stats.invgamma(1.5, scale=1.5 * tails.scale).logpdf(s[0]) + log_s
        return log_likelihood(tree, X, None, s) + prior

    top = max(log_p(x) for x in np.linspace(-6, 6, 50))
    moments = [quad(lambda x, k=k: x**k * math.exp(log_p(x) - top), -12, 12, limit=200)[0] for k in range(3)]
    mean = moments[1] / moments[0]
    sd = math.sqrt(moments[2] / moments[0] - mean**2)

    walk = Walk(tree, np.array([[1], [0], [0], [0]]), X, noise, rng)
    draws = []
    for _ in range(4000):
        walk.state.variance[walk.place[1:4]] = noise[1:]
        walk.given(X, walk.state.variance[walk.place[:4]])
        recompute(walk.state)
        draws.append(math.log(walk.draw_noise(*tails.tails)[0]))
    x = np.array(draws)
    worth = 4000 * (1 - np.corrcoef(x[1:], x[:-1])[0, 1]) / (1 + np.corrcoef(x[1:], x[:-1])[0, 1])
    assert abs(x.mean() - mean) < 4.5 * sd / math.sqrt(worth)
    assert x.std() == pytest.approx(sd, rel=0.15)


@pytest.fixture(scope="module")
def spoilt():
    X = ct.sample_data(ct.sample_tree(40, random_state=seed(1)), 4, leaf_noise=0.02, random_state=seed(2))
    X[7, 2] = 1e6
    return X


def test_one_cell_of_a_million_does_not_ruin_the_tree(spoilt):
    clean = np.delete(spoilt, 7, axis=0)
    effort = {"n_draws": 40, "warmup": 100}
    truth = ct.learn_posterior(clean, **effort)
    robust = ct.learn_posterior(spoilt, leaf_noise="robust", **effort)
    plain = ct.learn_posterior(spoilt, n_draws=10, warmup=20, n_chains=1)
    assert robust.covariance[0, 0] == pytest.approx(truth.covariance[0, 0], rel=0.5)
    assert plain.covariance[0, 0] > 1e4 * truth.covariance[0, 0]
    assert robust.surprise.argmin() == 7
    assert robust.surprise[7] < 1e-3 < 0.1 < np.delete(robust.surprise, 7).min()
    # Clades of the other rows are as they would be without it.
    rest = np.delete(np.arange(40), 7)
    with_it, without = robust.posterior.cophenetic()[np.ix_(rest, rest)], truth.posterior.cophenetic()
    pairs = np.triu_indices(39, 1)
    assert np.corrcoef(np.log(with_it[pairs]), np.log(without[pairs]))[0, 1] > 0.95


@pytest.mark.slow
@pytest.mark.ci
def test_new_rows_are_as_wild_as_those_seen():
    """Held-out density of rows with the noise of a t with one degree of freedom: the mixture over noise pays."""
    rng = np.random.default_rng(seed(5))
    tree = ct.sample_tree(120, random_state=rng)
    w = 0.5 / rng.gamma(0.5, size=120)
    X = ct.sample_data(tree, 8, leaf_noise=0.05 * w, random_state=rng)
    held = rng.permutation(120)[:40]
    effort = {"n_draws": 60, "warmup": 100, "n_clusters": 2, "random_state": 0}
    robust, plain = (
        ct.CoalescentClustering(leaf_noise=noise, **effort).fit(np.delete(X, held, axis=0)).score_samples(X[held])
        for noise in ("robust", "learn")
    )
    gap = robust - plain
    assert gap.mean() > 2.0 * gap.std(ddof=1) / math.sqrt(len(held))


@pytest.mark.slow
@pytest.mark.ci
def test_normal_data_need_no_tails():
    X = ct.sample_data(ct.sample_tree(80, random_state=seed(3)), 6, leaf_noise=0.1, random_state=seed(4))
    learned = ct.learn_posterior(X, leaf_noise="robust", n_draws=60, warmup=150)
    assert np.median(learned.trace["noise_df"][:, learned.warmup :]) > 8.0
    assert learned.surprise.min() > 0.01


def test_rows_that_agree_in_everything_leave_little_noise():
    """Tied values drive noise to nothing; it stays at its bound instead of running off."""
    rng = np.random.default_rng(seed(7))
    X = np.round(2.0 * ct.sample_data(ct.sample_tree(30, random_state=rng), 6, random_state=rng))
    X[:6] = X[0]
    learned = ct.learn_posterior(X, "diagonal", leaf_noise="robust", n_draws=40, warmup=150)
    assert np.isfinite(learned.trace["log_joint"]).all()
    assert learned.trace["leaf_noise"].min() >= 0.99 * SMALLEST_NOISE


def test_greedy_trees_have_one_noise():
    X = ct.sample_data(ct.sample_tree(8, random_state=1), 2, random_state=2)
    with pytest.raises(ValueError, match="leaf_noise"):
        ct.learn_posterior(X, leaf_noise="robust", method="greedy")


def test_a_checkpoint_goes_on_to_the_identical_result(tmp_path, spoilt):
    path, effort = tmp_path / "run.npz", {"leaf_noise": "robust", "warmup": 20, "n_chains": 2}
    whole = ct.learn_posterior(spoilt, n_draws=20, **effort, thin=1)
    ct.learn_posterior(spoilt, n_draws=8, **effort, thin=1, checkpoint=path)
    longer = ct.learn_posterior(spoilt, n_draws=20, **effort, thin=1, checkpoint=path)
    assert longer.posterior.times.tobytes() == whole.posterior.times.tobytes()
    assert longer.leaf_noises.tobytes() == whole.leaf_noises.tobytes()
    assert np.array_equal(longer.draws.new_noises, whole.draws.new_noises)
