"""A run that is killed at random points, again and again, ends with the result of one that never was.

Every run is a forked child, killed by SIGKILL after a random time; a new one takes up what it left. Five kills of each
kind of run by default; COALTREE_KILLS=50 makes more.
"""

import argparse
import hashlib
import json
import os
import re
import select
import shutil
import signal
import threading
import time
import traceback

import numpy as np
import pytest
from tqdm import tqdm

import coaltree as ct
from coaltree.regression.fit import fit_regression
from tests.seeds import seed

if not hasattr(os, "fork"):
    pytest.skip("needs processes that fork", allow_module_level=True)

N_KILLS = int(os.environ.get("COALTREE_KILLS", "5"))


def in_child(run, after=None):
    """Run in a child: its result; or None if it was killed `after` so many seconds, before it ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read)
            # The lock of progress bars is one for all processes, and a kill may come while it is held.
            tqdm.set_lock(threading.RLock())
            answer = str(run()).encode()
            with os.fdopen(write, "wb") as pipe:
                pipe.write(answer)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    if after is not None:
        deadline = time.monotonic() + after
        while time.monotonic() < deadline and not _ended(read):
            time.sleep(0.002)
        os.kill(child, signal.SIGKILL)  # it waits to be reaped, ended or not
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if answer:
        return answer.decode()  # it was done, whether or not the kill came before its exit
    assert os.WIFSIGNALED(status), "the child failed: see its traceback above"
    return None


def _ended(pipe):
    """Whether the child has answered or is gone: either makes its pipe readable."""
    return bool(select.select([pipe], [], [], 0)[0])


def survive(run, clear, n_kills):
    """Kill `run` at random times until `n_kills` have hit; whenever it ends, its result is that of a run left alone."""
    rng = np.random.default_rng(seed(11))
    began = time.monotonic()
    whole = in_child(run)
    duration = time.monotonic() - began
    assert whole is not None
    clear()
    killed = finished = 0
    fresh = True
    while killed < n_kills or not finished:
        began = time.monotonic()
        result = in_child(run, after=rng.uniform(0.0, 0.9 * duration) if killed < n_kills else None)
        if result is None:
            killed += 1
            fresh = False
            continue
        assert result == whole
        if fresh:  # the first run may have compiled, and kills timed by it would come too late for all others
            duration = min(duration, time.monotonic() - began)
        finished += 1
        fresh = True
        clear()
    print(f"{killed} kills survived, {finished} runs ended with the same result")
    return killed


def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


@pytest.mark.slow
@pytest.mark.ci
def test_the_learner(tmp_path, monkeypatch):
    for name in ("SECONDS_BETWEEN_CHECKPOINTS", "CHECKPOINT_SHARE", "SECONDS_A_BLOCK"):
        monkeypatch.setattr(f"coaltree.inference.learning.running.{name}", 0.0)
    X = 10.0 * ct.sample_data(ct.sample_tree(20, random_state=1), 4, random_state=2)
    path = tmp_path / "run.npz"

    def run():
        learned = ct.learn_posterior(X, "diagonal", n_draws=50, warmup=5, thin=1, checkpoint=path)
        return digest(learned.posterior.times, learned.covariance, *learned.trace.values())

    ct.learn_posterior(X, "diagonal", n_draws=2, warmup=1)  # so that children inherit the kernels
    assert survive(run, lambda: path.unlink(missing_ok=True), N_KILLS) >= N_KILLS


@pytest.mark.slow
@pytest.mark.ci
def test_the_regression(tmp_path, monkeypatch):
    monkeypatch.setattr("coaltree.inference.learning.running.SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr("coaltree.inference.learning.running.CHECKPOINT_SHARE", 0.0)
    monkeypatch.setattr("coaltree.inference.learning.running.SECONDS_A_BLOCK", 0.0)
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 3))
    Y = (X @ rng.normal(size=(3, 4)) + rng.normal(size=(200, 4)) > 0.5).astype(float)
    path = tmp_path / "chains.npz"

    def run():
        fit = fit_regression(X, Y, n_iter=60, burn_in=20, n_chains=2, random_state=1, checkpoint=path)
        return digest(fit.coef_draws, fit.intercept_draws, fit.covariance, fit.posterior.times)

    fit_regression(X, Y, n_iter=3, burn_in=1, n_chains=2, random_state=2)
    assert survive(run, lambda: path.unlink(missing_ok=True), N_KILLS) >= N_KILLS


@pytest.mark.slow
@pytest.mark.ci
def test_the_comparison(tmp_path):
    from coaltree.regression.baselines import BASELINES
    from coaltree.regression.comparison import compare

    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 3))
    Y = (X @ rng.normal(size=(3, 3)) + rng.normal(size=(150, 3)) > 0.5).astype(float)
    models = {name: BASELINES[name]() for name in ("ml_probit", "ridge")}
    folder = tmp_path / "kept"

    def run():
        found = compare(models, X, Y, n_folds=8, n_resamples=20, checkpoint=folder)
        return digest(found.probability, found.score)

    def clear():
        for file in folder.glob("*"):
            file.unlink()

    compare(models, X, Y, n_folds=2, n_resamples=2)
    assert survive(run, clear, N_KILLS) >= N_KILLS


@pytest.mark.slow
@pytest.mark.ci
def test_the_study(tmp_path):
    """All of it in children, the simulation too: pyarrow's and DuckDB's threads do not outlive a fork."""
    pytest.importorskip("ibis", reason="the extra `records` is not installed")
    pytest.importorskip("meds", reason="the extra `records` is not installed")
    from coaltree.records.config import load_config
    from coaltree.records.simulate import simulate_cohort
    from coaltree.records.study import run_study
    from tests.records.test_study import CONFIG

    def simulate():
        folder = simulate_cohort(tmp_path / "cohort", 150, seed=5, n_factors=3, events_per_year=15.0)
        with np.load(folder / "truth" / "shard-0000.npz") as shard, np.load(folder / "truth" / "model.npz") as model:
            order = np.argsort(-np.nansum(shard["labels_0"], axis=0))
            return json.dumps([str(model["names"][j]) for j in order[:3]])

    text = CONFIG.format(path=tmp_path / "cohort", keys=in_child(simulate))
    for setting, smaller in (("n_factors", 2), ("n_iter", 12), ("burn_in", 4), ("n_resamples", 10)):
        text = re.sub(rf"^{setting} = \d+$", f"{setting} = {smaller}", text, flags=re.MULTILINE)
    config, private = tmp_path / "study.toml", tmp_path / "private"
    config.write_text(text)

    def run():
        result = run_study(load_config(config), private)
        scores = [(part.score, part.probability) for part in (result.cross_validation, result.temporal)]
        return digest(*(array for pair in scores for array in pair), result.tree.times, result.curves.mean)

    rng = np.random.default_rng(3)
    fit_regression(
        rng.normal(size=(30, 2)), rng.integers(0, 2, (30, 3)), n_iter=3, burn_in=1, n_chains=1, random_state=0
    )
    n_kills = N_KILLS if "COALTREE_KILLS" in os.environ else 2
    assert survive(run, lambda: shutil.rmtree(private, ignore_errors=True), n_kills) >= n_kills


def test_the_papers(tmp_path):
    """The tasks of an experiment: each finished one is a line of a file."""
    experiment = pytest.importorskip("papers.henao_lucas.experiment")
    path = tmp_path / "rows.jsonl"

    def draw(key, options, rng):
        X = ct.sample_data(ct.sample_tree(12, random_state=rng), 3, random_state=rng)
        post = ct.sample_posterior(X, n_particles=30, random_state=rng)
        return {"log_evidence": post.log_evidence, "times": post.cophenetic()[0].tolist()}

    nothing = dict.fromkeys(("summarise", "claims", "table"))
    work = experiment.Experiment("kills", tasks=lambda options: [("task", k) for k in range(30)], run=draw, **nothing)
    options = argparse.Namespace(quick=True, jobs=1)

    def run():
        rows = experiment._run_tasks(work, options, path)
        return json.dumps([[key, {**row, "seconds": 0}] for key, row in rows.items()])

    draw(None, None, np.random.default_rng(0))
    assert survive(run, lambda: path.unlink(missing_ok=True), N_KILLS) >= N_KILLS


def test_a_run_that_forgets_is_seen(tmp_path):
    """The control: a run whose state is not all in its checkpoint ends with another result once it was killed."""
    path = tmp_path / "count"

    def run():
        done = int(path.read_text()) if path.exists() else 0
        rng = np.random.default_rng(0)  # begun anew: that is the mistake
        total = 0.0
        for step in range(done, 20):
            total += rng.random()
            draft = path.with_suffix(".tmp")
            draft.write_text(str(step + 1))
            draft.replace(path)
            time.sleep(0.005)
        return total

    with pytest.raises(AssertionError):
        survive(run, lambda: path.unlink(missing_ok=True), 10)
