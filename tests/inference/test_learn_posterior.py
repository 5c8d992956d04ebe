"""`learn_posterior` at its boundary."""

import math
import warnings
from itertools import cycle

import joblib
import numpy as np
import pytest
from scipy.stats import gamma
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import coaltree as ct
from coaltree.inference import effort
from coaltree.inference.learning import chain, learn, running
from coaltree.model.diffusion import scatter
from coaltree.posterior.convergence import MIXED, diagnose
from tests.cluster import on_a_cluster
from tests.seeds import seed


@pytest.fixture(scope="module")
def X():
    return 10.0 * ct.sample_data(ct.sample_tree(15, random_state=1), 6, random_state=2)


@pytest.mark.parametrize("covariance", ["spherical", "diagonal", "wishart"])
def test_scale_is_learned(X, covariance):
    learned = ct.learn_posterior(X, covariance, n_draws=40, warmup=30)
    assert 20 < np.exp(np.mean(np.log(np.diag(learned.covariance)))) < 500
    assert learned.posterior.n_leaves == 15
    assert learned.leaf_noise.shape == (15,)
    assert all(values.shape[:2] == (2, 30 + 4 * 20) for values in learned.trace.values())
    assert learned.finished
    assert learned.warmup == 30
    assert len(learned.posterior) == 40
    np.testing.assert_allclose(learned.covariance, learned.covariance.T)


def test_gaussian_process_length_scale():
    coordinates = np.arange(12.0)[:, None]
    phi = 5.0 * RBF(3.0)(coordinates) + 1e-4 * np.eye(12)
    X = ct.sample_data(ct.sample_tree(40, random_state=3), phi, random_state=4)
    kernel = RBF(1.0, (0.1, 100.0)) + WhiteKernel(1e-3, (1e-7, 1.0))
    learned = ct.learn_posterior(X, kernel, coordinates=coordinates, leaf_noise=0.0, n_draws=40, warmup=30)
    length = [values for name, values in learned.trace.items() if "length_scale" in name]
    assert len(length) == 1
    assert 2.0 < np.median(length[0][:, 30:]) < 4.5


def test_same_seed_same_result(X):
    one, two = (ct.learn_posterior(X, n_draws=8, warmup=3, n_jobs=k) for k in (1, 2))
    assert one.covariance.tobytes() == two.covariance.tobytes()
    assert one.posterior.times.tobytes() == two.posterior.times.tobytes()


def test_chains_may_run_in_other_processes(X, monkeypatch):
    """They travel, go on there, and come back: the same bytes."""
    monkeypatch.setattr(running, "SECONDS_AWAY", 0.02)
    here = ct.learn_posterior(X, n_draws=8, warmup=20)
    with joblib.parallel_config(backend="loky"):
        away = ct.learn_posterior(X, n_draws=8, warmup=20, n_jobs=2)
    assert away.posterior.times.tobytes() == here.posterior.times.tobytes()
    assert away.covariance.tobytes() == here.covariance.tobytes()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.filterwarnings("ignore")
def test_a_lost_machine_changes_nothing(X):
    def work():
        return ct.learn_posterior(X, n_draws=200, warmup=1200, thin=4).posterior.times.tobytes()

    here = work()
    for away in on_a_cluster(work):
        assert away == here


def test_given_leaf_noise_stays(X):
    noise = np.linspace(0.0, 0.3, 15)
    learned = ct.learn_posterior(X, leaf_noise=noise, n_draws=6, warmup=2)
    np.testing.assert_array_equal(learned.leaf_noise, noise)
    np.testing.assert_array_equal(learned.leaf_noises, np.tile(noise, (6, 1)))
    known = ct.learn_posterior(X, np.eye(6), leaf_noise=noise, n_draws=6, warmup=2)
    np.testing.assert_array_equal(known.covariances, [np.ones(6)])
    np.testing.assert_array_equal(known.leaf_noises, [noise])


def test_each_tree_goes_with_its_own_draw():
    """Given a tree, S_jj/2φ_j is Gamma(shape + m/2) a posteriori: at medians it would vary too little."""
    X = ct.sample_data(ct.sample_tree(10, random_state=1), np.diag([1.0, 2.0, 4.0]), leaf_noise=0.1, random_state=2)
    learned = ct.learn_posterior(X, "diagonal", n_draws=200, warmup=50, thin=4, random_state=seed(3))
    assert learned.covariances.shape == (200, 3)
    assert learned.leaf_noises.shape == (200, 10)

    def levels(covariances):
        own = zip(learned.posterior, cycle(covariances), learned.leaf_noises, strict=False)
        halves = np.array([np.diag(scatter(tree, X, noise)) / (2.0 * phi) for tree, phi, noise in own])
        return gamma.cdf(halves, 0.01 + 0.5 * 9)

    own = levels(learned.covariances)
    assert own.mean() == pytest.approx(0.5, abs=0.1)
    assert own.std() == pytest.approx(12**-0.5, abs=0.04)
    # Negative control: the same trees with the draws of others.
    assert np.abs(levels(np.roll(learned.covariances, 50, axis=0)).std() - 12**-0.5) > 0.04


def test_duplicates_need_noise(X):
    twice = np.repeat(X, 2, axis=0)
    learned = ct.learn_posterior(twice, n_draws=6, warmup=5)
    assert np.isfinite(learned.posterior.log_joint).all()
    assert learned.leaf_noise[0] > 0
    with pytest.raises(ValueError, match="duplicate rows"):
        ct.learn_posterior(twice, leaf_noise=0.0)


@pytest.mark.parametrize(
    "rows",
    [
        [[0.0, 1.0], [2.0, 3.0]],
        [[0.0], [1.0], [1.0], [1.0], [4.0]],
        [[0.0, 0.0]] * 40 + [[1.0, 2.0]] * 30 + [[1e6, 1e6]],
    ],
    ids=["two rows", "one column with copies", "many copies and one row far away"],
)
def test_odd_tables(rows):
    learned = ct.learn_posterior(np.array(rows), n_draws=8, warmup=10)
    assert np.isfinite(learned.posterior.log_joint).all()
    assert np.isfinite(learned.covariance).all()


def test_one_row_far_away_does_not_stop_the_chain():
    X = ct.sample_data(ct.sample_tree(40, random_state=1), 4, random_state=2)
    X[7] += 1e6
    learned = ct.learn_posterior(X, n_draws=40, warmup=60)
    assert (learned.posterior.children[:, -1] == 7).any(axis=1).all()
    assert len(np.unique(learned.trace["log_joint"][0, 60:])) > 30
    assert len({tuple(map(tuple, children)) for children in learned.posterior.children[:20].tolist()}) > 10


# ---- whether it has converged


def test_a_short_run_is_warned_of_and_a_long_one_is_not(X):
    with pytest.warns(ConvergenceWarning, match="Not known to have converged: 3 draw|Not converged: "):
        short = ct.learn_posterior(X, n_draws=6, warmup=0)
    assert short.convergence.warnings
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learned = ct.learn_posterior(X, n_draws=200, warmup=100)
    told = learned.convergence
    assert not told.warnings
    assert set(told.r_hat) == {"log_joint", "log_scale", "leaf_noise"}
    assert max(told.r_hat.values()) < 1.1
    assert told.support_correlation > 0.9
    assert told.n_chains == 2
    assert told.n_draws == 100
    assert type(told).from_dict(told.as_dict()) == told


def test_chains_that_disagree_are_told(X):
    learned = ct.learn_posterior(X, n_draws=40, warmup=20)
    trace = {name: values[:, 20:] for name, values in learned.trace.items() if values.ndim == 2}
    other = ct.learn_posterior(np.roll(X, 5, axis=0), n_draws=40, warmup=20)
    children = np.concatenate([learned.posterior.children[:20], other.posterior.children[:20]])
    told = diagnose({**trace, "log_joint": trace["log_joint"] + [[0.0], [50.0]]}, children, 2)
    assert told.r_hat["log_joint"] > 1.5
    assert told.support_difference > 0.2
    (message,) = told.warnings
    assert "the chains do not agree on the log joint" in message
    assert "clade supports differ by" in message
    assert message.endswith("Give a longer warmup and more draws.")
    # Of each chain the same tree over and over: what two chains that are stuck look like.
    stuck = diagnose(trace, np.repeat(children[[0, -1]], 60, axis=0), 2)
    assert "Clades hardly move (their 120 draws are worth" in stuck.warnings[0]
    assert "fewer columns (leading principal components) help" in stuck.warnings[0]
    # Categories have no principal components.
    mixed = stuck._replace(about=MIXED)
    assert "principal components" not in mixed.warnings[0]
    assert "leave out columns that repeat what others say, or join rare levels" in mixed.warnings[0]
    moving = stuck._replace(clade_ess=30.0)
    assert moving.warnings[0].endswith("Give a longer warmup and more draws.")


def test_chains_end_when_they_have_converged(monkeypatch, tmp_path):
    """At a check, whatever the threads; a run that was stopped between two ends where it would have."""
    monkeypatch.setattr(effort, "CHECKS", (30, 60, 90, 120))
    monkeypatch.setattr(running, "SECONDS_A_BLOCK", 0.0)
    X = ct.sample_data(ct.sample_tree(8, random_state=1), 3, random_state=2)
    X[0, 0] = math.nan
    judged = []

    class Verdict:
        warnings = ()

        @property
        def converged(self):
            return len(judged) == 3

    diagnose = learn.diagnose

    def judge(trace, children, *rest, **how):
        judged.append((trace["log_joint"].shape[1], len(children)))
        return Verdict() if len(judged) <= 3 else diagnose(trace, children, *rest, **how)

    monkeypatch.setattr(learn, "diagnose", judge)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = ct.learn_posterior(X, n_jobs=2)
        assert judged[:3] == [(20, 40), (40, 80), (60, 120)]
        assert (whole.warmup, len(whole.posterior), whole.finished) == (30, 120, True)
        assert whole.trace["log_joint"].shape == (2, 90)
        # The first chain stops in the second round.
        advance, path = chain.TreeChain.advance, tmp_path / "run.npz"

        def interrupted(self):
            if self.n_done == 44:
                raise KeyboardInterrupt
            advance(self)

        judged.clear()
        with monkeypatch.context() as patch:
            patch.setattr(chain.TreeChain, "advance", interrupted)
            assert not ct.learn_posterior(X, checkpoint=path).finished
        judged[:] = judged[:1]
        again = ct.learn_posterior(X, checkpoint=path)
    for one, two in ((whole.posterior.children, again.posterior.children), (whole.completed, again.completed)):
        np.testing.assert_array_equal(one, two)


def test_effort_by_size():
    given = effort.settle(100, n_draws=200)
    assert given == effort.Effort(warmup=234, n_draws=200, n_chains=2, thin=4)
    assert given.window(634) == (234, 4)
    checked = effort.settle(100)
    assert (checked.warmup, checked.checks, checked.n_iter) == (50, effort.CHECKS, 1200)
    assert [checked.window(n) for n in (60, *effort.CHECKS)] == [
        (50, 1), (50, 1), (100, 2), (150, 3), (200, 4), (300, 6), (400, 8)
    ]  # fmt: skip
    slow = effort.settle(100, slow=True)
    assert [slow.window(n) for n in slow.checks] == [(200, 4), (300, 4), (400, 8)]
    latent = effort.settle(100, slow=True, latent=True)
    assert latent.checks == (300, 450, 600, 900, 1200)
    assert latent.most_kept == 2 * (1200 - latent.warmup) // latent.thin
    assert effort.settle(6_000).checks == (150, 300)
    assert effort.settle(10_000) == effort.Effort(warmup=50, n_draws=200, n_chains=2, thin=1)
    assert not effort.settle(4_000, slow=True).checks
    assert effort.settle(20_000) == effort.Effort(warmup=50, n_draws=200, n_chains=2, thin=1)
    assert effort.settle(100_000) == effort.Effort(warmup=50, n_draws=100, n_chains=2, thin=2)
    assert effort.settle(100_000, slow=True) == effort.Effort(warmup=100, n_draws=100, n_chains=2, thin=1)
    assert effort.settle(100, warmup=5, n_draws=3, n_chains=1).n_iter == 5 + 3 * 2
    sizes = [effort.settle(n).n_iter for n in (10, 1000, 3000, 10_000, 1_000_000)]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_draws": 0}, ValueError, "n_draws must be at least 1"),
        ({"warmup": -1}, ValueError, "warmup must be at least 0"),
        ({"n_chains": 0}, ValueError, "n_chains must be at least 1"),
        ({"thin": 0}, ValueError, "thin must be at least 1"),
        ({"neighbors": 5}, ValueError, "neighbors is for method"),
        ({"covariance": "full"}, ValueError, "covariance"),
        ({"leaf_noise": -1.0}, ValueError, "leaf_noise must not be negative"),
        ({"leaf_noise": "guess"}, ValueError, "leaf_noise must be one of 'learn', 'robust'"),
        ({"method": "gibbs"}, ValueError, "method must be one of"),
        ({"method": "insertion"}, ValueError, "method must be one of"),
    ],
)
def test_bad_options(X, options, error, message):
    with pytest.raises(error, match=message):
        ct.learn_posterior(X, **options)


def test_constant_data(X):
    with pytest.raises(ValueError, match="constant"):
        ct.learn_posterior(np.ones((5, 2)))
    partly = X.copy()
    partly[:, 2] = 1.0
    for covariance in ("diagonal", "wishart"):
        with pytest.raises(ValueError, match=r"constant in column\(s\) 2"):
            ct.learn_posterior(partly, covariance)
    assert ct.learn_posterior(partly, n_draws=4, warmup=10).covariance[0, 0] > 1


def test_a_full_covariance_of_few_rows_is_warned_of(X):
    with pytest.warns(UserWarning, match="from 6 rows"):
        learned = ct.learn_posterior(X[:6], "wishart", n_draws=4, warmup=1)
    assert np.isfinite(learned.covariance).all()


@pytest.fixture(scope="module")
def gaps(X):
    hidden = np.random.default_rng(5).random(X.shape) < 0.2
    table = X.copy()
    table[hidden] = np.nan
    return table


@pytest.mark.parametrize("covariance", ["spherical", "diagonal", "wishart"])
def test_missing_entries_are_learned(X, gaps, covariance):
    learned = ct.learn_posterior(gaps, covariance, n_draws=40, warmup=20, thin=1)
    hidden = np.isnan(gaps)
    np.testing.assert_array_equal(learned.completed[~hidden], X[~hidden])
    assert not learned.completed_sd[~hidden].any()
    error = learned.completed[hidden] - X[hidden]
    columns = np.broadcast_to(np.nanmean(gaps, axis=0), X.shape)[hidden] - X[hidden]
    assert np.median(np.abs(error)) < 0.7 * np.median(np.abs(columns))
    assert (learned.completed_sd[hidden] > 0).all()
    assert len(learned.posterior) == 40
    assert np.isfinite(learned.posterior.log_joint).all()
    assert np.isnan(learned.posterior.log_evidence)


def test_a_row_with_no_entry_and_a_column_with_none(gaps):
    table = gaps.copy()
    table[3] = np.nan
    learned = ct.learn_posterior(table, n_draws=4, warmup=2)
    assert np.isfinite(learned.completed).all()
    table[:, 1] = np.nan
    with pytest.raises(ValueError, match=r"no entry at all in column\(s\) 1"):
        ct.learn_posterior(table)


@pytest.mark.parametrize("table", ["X", "gaps"])
def test_greedy_loop(table, request):
    data = request.getfixturevalue(table)
    learned = ct.learn_posterior(data, method="greedy", n_draws=10, warmup=5)
    assert len(learned.posterior) == 1
    assert 20 < learned.covariance[0, 0] < 500
    assert learned.convergence is None
    if table == "X":
        built = ct.greedy_tree(data, learned.covariance, rule="peak", leaf_noise=learned.leaf_noise)
        assert ct.metrics.robinson_foulds(built, learned.posterior[0]) <= 4


def kernel_over_columns():
    return {"covariance": RBF(2.0, (0.1, 50.0)) + WhiteKernel(0.1, (1e-3, 1.0)), "coordinates": np.arange(6.0)}


@pytest.mark.parametrize("table", ["X", "gaps"])
@pytest.mark.parametrize(
    "options",
    [{"covariance": "diagonal"}, {"covariance": "wishart"}, kernel_over_columns(), {"method": "greedy"}],
    ids=["diagonal", "wishart", "kernel", "greedy"],
)
def test_an_interrupted_run_resumes_to_the_identical_result(options, table, request, tmp_path, monkeypatch):
    data = request.getfixturevalue(table)
    options = {"n_draws": 8, "warmup": 4, "thin": 1, **options}
    whole = ct.learn_posterior(data, **options)
    path = tmp_path / "run.npz"
    monkeypatch.setattr(running, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(running, "CHECKPOINT_SHARE", 0.0)
    monkeypatch.setattr(running, "SECONDS_A_BLOCK", 0.0)
    for stop_at in (3, 6):  # in warm-up, and after
        original, count = chain.iterate, iter(range(100))

        def killed(*arguments, original=original, count=count, stop_at=stop_at):
            if next(count) == stop_at:
                raise SystemExit
            return original(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(chain, "iterate", killed)
            with pytest.raises(SystemExit):
                ct.learn_posterior(data, **options, checkpoint=path)
    resumed = ct.learn_posterior(data, **options, checkpoint=path, n_jobs=2)
    again = ct.learn_posterior(data, **options, checkpoint=path)
    for result in (resumed, again):
        assert result.posterior.children.tobytes() == whole.posterior.children.tobytes()
        assert result.posterior.times.tobytes() == whole.posterior.times.tobytes()
        assert result.covariance.tobytes() == whole.covariance.tobytes()
        assert result.completed.tobytes() == whole.completed.tobytes()
        assert all(result.trace[name].tobytes() == whole.trace[name].tobytes() for name in whole.trace)


def test_a_finished_run_is_extended(X, tmp_path):
    path = tmp_path / "run.npz"
    options = {"warmup": 3, "thin": 2}
    ct.learn_posterior(X, n_draws=4, **options, checkpoint=path)
    longer = ct.learn_posterior(X, n_draws=8, **options, checkpoint=path)
    straight = ct.learn_posterior(X, n_draws=8, **options)
    assert longer.posterior.times.tobytes() == straight.posterior.times.tobytes()


@pytest.mark.parametrize("stop_at", [4, 14])
def test_an_interrupt_ends_with_what_is_done(X, monkeypatch, stop_at):
    """Ctrl-C reaches the thread that waits; chains end their iterations."""
    monkeypatch.setattr(running, "SECONDS_A_BLOCK", 0.0)
    original = running._rounds

    def interrupted(*given):
        for number, _ in enumerate(original(*given)):
            if number == stop_at:
                raise KeyboardInterrupt
            yield

    monkeypatch.setattr(running, "_rounds", interrupted)
    learned = ct.learn_posterior(X, n_draws=20, warmup=8, thin=1)
    assert not learned.finished
    assert learned.trace["log_joint"].shape == (2, stop_at)
    info = learned.posterior.info
    assert (info["iterations"], info["iterations_wanted"]) == (stop_at, 18)
    assert len(learned.posterior) == (2 if stop_at == 4 else 12)


def test_checkpoints_that_do_not_fit(X, tmp_path):
    path = tmp_path / "run.npz"
    options = {"n_draws": 2, "warmup": 1, "thin": 1, "checkpoint": path}
    ct.learn_posterior(X, **options)
    for change in (
        {"random_state": 1},
        {"covariance": "diagonal"},
        {"n_chains": 3},
        {"leaf_noise": 0.1},
        {"warmup": 2},
    ):
        with pytest.raises(ValueError, match="belongs to a run with other data, settings or random_state"):
            ct.learn_posterior(X, **{**options, **change})
    with pytest.raises(ValueError, match="belongs to a run"):
        ct.learn_posterior(2 * X, **options)
    given = options | {"leaf_noise": 0.1, "checkpoint": tmp_path / "given.npz"}
    ct.learn_posterior(X, **given)
    for noise in (0.2, np.linspace(0.1, 0.2, len(X))):  # the settings are the same: a noise that is given
        with pytest.raises(ValueError, match="belongs to a run"):
            ct.learn_posterior(X, **{**given, "leaf_noise": noise})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"not a readable coaltree\.checkpoint file"):
        ct.learn_posterior(X, **options)
    with pytest.raises(ValueError, match="folder that exists"):
        ct.learn_posterior(X, **{**options, "checkpoint": tmp_path / "none" / "run.npz"})


def test_kernels_that_cannot_be_learned(X):
    with pytest.raises(ValueError, match="coordinates"):
        ct.learn_posterior(X, RBF(), coordinates=np.arange(5.0))
    with pytest.raises(TypeError, match="coordinates must be given"):
        ct.learn_posterior(X, RBF())
    with pytest.raises(ValueError, match="bounds"):
        ct.learn_posterior(X, RBF(1.0, (1e-3, np.inf)), coordinates=np.arange(6.0))


def test_the_result_tells_its_seed():
    X = np.random.default_rng(0).normal(size=(5, 2))
    options = {"n_draws": 2, "warmup": 1}
    for random_state, told in ((7, 7), (np.int64(7), 7), (np.random.default_rng(7), None), (None, None)):
        assert ct.learn_posterior(X, random_state=random_state, **options).posterior.info["random_state"] == told
