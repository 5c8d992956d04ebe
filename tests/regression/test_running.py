"""Chains side by side, interrupted, saved and continued: always the same draws."""

import json

import joblib
import numpy as np
import pytest

from coaltree.inference.learning import running
from coaltree.regression.chain import Chain
from coaltree.regression.fit import fit_regression
from tests.cluster import on_a_cluster


def data(n_outcomes=3):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    Y = (X @ rng.standard_normal((2, n_outcomes)) + rng.standard_normal((60, n_outcomes)) > 0.5).astype(float)
    return X, Y


def fit(n_outcomes=3, **options):
    return fit_regression(*data(n_outcomes), **{"n_iter": 45, "burn_in": 25, "random_state": 1} | options)


def same(a, b):
    assert a.coef_draws.tobytes() == b.coef_draws.tobytes()
    assert a.intercept_draws.tobytes() == b.intercept_draws.tobytes()
    assert a.covariance.tobytes() == b.covariance.tobytes()
    for name in a.trace:
        assert a.trace[name].tobytes() == b.trace[name].tobytes(), name
    if a.posterior is not None:
        assert a.posterior.times.tobytes() == b.posterior.times.tobytes()


def interrupt_after(monkeypatch, n_advances):
    """Ctrl-C as the waiting thread sees it, once the chains have made this many iterations in all."""
    original, made = running._rounds, []
    advance = Chain.advance

    def counted(chain):
        advance(chain)
        made.append(chain)

    def rounds(*arguments):
        for each in original(*arguments):
            if len(made) >= n_advances:
                raise KeyboardInterrupt
            yield each

    monkeypatch.setattr(Chain, "advance", counted)
    monkeypatch.setattr(running, "_rounds", rounds)
    monkeypatch.setattr(running, "SECONDS_A_BLOCK", 0.0)


def test_threads_do_not_matter():
    one, two = fit(n_jobs=1), fit(n_jobs=2)
    same(one, two)
    assert not np.array_equal(one.coef_draws[0], one.coef_draws[1])
    assert not np.array_equal(one.coef_draws, fit(random_state=2).coef_draws)


def test_chains_may_run_anywhere(monkeypatch, tmp_path):
    """Threads, other processes, with and without a stop on the way: the same bytes."""
    here = fit()
    monkeypatch.setattr(running, "SECONDS_AWAY", 0.02)
    for backend, n_jobs in (("loky", 2), ("threading", 2)):
        with joblib.parallel_config(backend=backend):
            same(here, fit(n_jobs=n_jobs))
            file = tmp_path / f"{backend}-{n_jobs}.npz"
            fit(n_iter=26, n_jobs=n_jobs, checkpoint=file)
            same(here, fit(n_jobs=n_jobs, checkpoint=file))


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.filterwarnings("ignore")
def test_a_lost_machine_changes_nothing():
    here = fit(n_iter=450)
    for away in on_a_cluster(lambda: fit(n_iter=450)):
        same(here, away)


@pytest.mark.parametrize("n_outcomes", [1, 3])
@pytest.mark.parametrize("stopped_after", [20, 70])
def test_a_stopped_run_ends_like_one_that_was_not(n_outcomes, stopped_after, tmp_path):
    """Stopped in burn-in, where the sampler still adapts, and after."""
    path = tmp_path / "chains.npz"
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(patch, stopped_after)
        if stopped_after == 20:
            with pytest.raises(KeyboardInterrupt):
                fit(n_outcomes, checkpoint=path)
        else:
            partial = fit(n_outcomes, checkpoint=path)
            assert 0 < partial.coef_draws.shape[1] < 20
    assert path.exists()
    assert [file.name for file in tmp_path.iterdir()] == ["chains.npz"]
    same(fit(n_outcomes, checkpoint=path), fit(n_outcomes))


def test_a_finished_run_may_be_made_longer(tmp_path):
    path = tmp_path / "chains.npz"
    short = fit(checkpoint=path)
    same(fit(checkpoint=path), short)
    same(fit(checkpoint=path, n_iter=60), fit(n_iter=60))


def test_thinned_draws_are_some_of_all():
    every, third = fit(n_outcomes=3), fit(n_outcomes=3, thin=3)
    np.testing.assert_array_equal(every.coef_draws[:, 2::3], third.coef_draws)
    np.testing.assert_array_equal(every.posterior.log_joint.reshape(2, -1)[:, 2::3].ravel(), third.posterior.log_joint)
    np.testing.assert_array_equal(every.trace["spread"], third.trace["spread"])
    with pytest.raises(ValueError, match="thin must not exceed n_iter − burn_in = 20"):
        fit(thin=21)


@pytest.mark.parametrize("change", [{"random_state": 3}, {"burn_in": 24}, {"scale": 2.0}, {"n_outcomes": 2}])
def test_a_checkpoint_of_another_run_is_refused(change, tmp_path):
    path = tmp_path / "chains.npz"
    fit(checkpoint=path)
    with pytest.raises(ValueError, match="belongs to a run with other data, settings or random_state"):
        fit(checkpoint=path, **change)


def test_a_checkpoint_of_an_earlier_version_is_refused_by_name(tmp_path):
    """It can be read, but its chain would go on as another one than it began."""
    from tests.fuzz.readers import _regress
    from tests.trust.test_frozen import DATA

    path = tmp_path / "chains.npz"
    content = (DATA / "probit-1.npz").read_bytes()
    path.write_bytes(content)
    with pytest.raises(ValueError, match="earlier version, which drew otherwise"):
        _regress(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"nonsense", b""])
def test_a_damaged_checkpoint_is_named(content, tmp_path):
    path = tmp_path / "chains.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"chains\.npz is not a readable"):
        fit(checkpoint=path)
    assert path.read_bytes() == content


def test_checkpoints_hold_no_pickles(tmp_path):
    path = tmp_path / "chains.npz"
    fit(checkpoint=path)
    with np.load(path, allow_pickle=False) as parts:
        header = json.loads(parts["header"].tobytes())
        assert all(parts[name].dtype != object for name in parts.files)
    assert header["format"] == "coaltree.ProbitRun"


def test_interrupted_before_anything_is_kept(monkeypatch):
    interrupt_after(monkeypatch, 10)
    with pytest.raises(KeyboardInterrupt):
        fit()


def test_progress_is_shown(capsys):
    fit(n_chains=1, progress=True)
    assert "acceptance" in capsys.readouterr().err
