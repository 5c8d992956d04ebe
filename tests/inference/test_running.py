"""Any chains, side by side, interrupted, elsewhere and back: always the same draws.

Chains of the regression lose a machine in `tests/regression/test_run.py`.
"""

import copy
import time

import joblib
import numpy as np
import pytest

from coaltree.inference.learning import running


class Dice:
    """A chain of random numbers."""

    def __init__(self, rng):
        self.rng, self.n_done, self.draws = rng, 0, []

    def advance(self):
        self.n_done += 1
        self.draws.append(self.rng.random())

    def without_draws(self):
        light = copy.deepcopy(self)
        light.draws = []
        return light

    def follow(self, other):
        self.rng, self.n_done = other.rng, other.n_done
        self.draws.extend(other.draws)

    def progress(self):
        return {"thrown": str(self.n_done)}


class Forgetful(Dice):
    """One that comes back without its generator, and throws the same numbers again."""

    def follow(self, other):
        self.n_done = other.n_done
        self.draws.extend(other.draws)


def dice(kind=Dice, n_chains=3):
    return [kind(rng) for rng in np.random.default_rng(0).spawn(n_chains)]


def thrown(n_iter=40, kind=Dice, **options):
    chains = dice(kind)
    assert running.run(chains, n_iter, **options)
    return [chain.draws for chain in chains]


def expected(n_iter=40):
    return [rng.random(n_iter).tolist() for rng in np.random.default_rng(0).spawn(3)]


class Late(Dice):
    """One whose first throw takes longer than a block, as if something had to be compiled."""

    def advance(self):
        if not self.n_done:
            time.sleep(1.1 * running.SECONDS_A_BLOCK)
        super().advance()


def test_the_time_left_does_not_count_the_first_block(monkeypatch):
    bars = []

    class Bar(running.tqdm):
        def __init__(self, **options):
            bars.append((options["initial"], options["total"]))
            super().__init__(**options)

    monkeypatch.setattr(running, "tqdm", Bar)
    monkeypatch.setattr(running, "SECONDS_A_BLOCK", 0.05)
    assert running.run(dice(Late), 40, progress=True)
    running.run(done := dice(), 40)
    running.run(done, 40, progress=True)  # nothing is left to do
    assert bars == [(3, 120), (120, 120), (120, 120)]  # of what is done when the bar begins


@pytest.fixture
def short_blocks(monkeypatch):
    """Chains wait for each other after every iteration."""
    monkeypatch.setattr(running, "SECONDS_A_BLOCK", 0.0)
    monkeypatch.setattr(running, "SECONDS_AWAY", 0.0)


@pytest.mark.parametrize("n_jobs", [None, 1, 2, -1])
@pytest.mark.usefixtures("short_blocks")
def test_threads_do_not_matter(n_jobs):
    assert thrown(n_jobs=n_jobs) == expected()


@pytest.mark.parametrize(("backend", "n_jobs"), [("loky", 2), ("threading", 2), ("sequential", 1)])
@pytest.mark.usefixtures("short_blocks")
def test_chains_may_run_anywhere(backend, n_jobs):
    with joblib.parallel_config(backend=backend):
        assert thrown(12, n_jobs=n_jobs) == expected(12)


@pytest.mark.usefixtures("short_blocks")
def test_a_chain_that_comes_back_without_its_state_is_seen():
    with joblib.parallel_config(backend="loky"):
        assert thrown(4, Forgetful, n_jobs=2) != expected(4)


def test_a_chain_goes_on_where_it_was():
    chains = dice()
    chains[1].advance()
    running.run(chains, 5)
    running.run(chains, 40)
    assert [chain.draws for chain in chains] == expected()
    running.run(chains, 30)
    assert [chain.n_done for chain in chains] == [40, 40, 40]


class Interrupted(Dice):
    """Presses Ctrl-C for the thread that waits, in the middle of its tenth iteration."""

    def advance(self):
        if self.n_done == 9:
            raise KeyboardInterrupt
        super().advance()


@pytest.mark.usefixtures("short_blocks")
def test_an_interrupt_ends_the_run_between_iterations():
    chains, saved = dice(Interrupted), []
    assert not running.run(chains, 40, n_jobs=2, save=lambda: saved.append([len(chain.draws) for chain in chains]))
    assert all(chain.n_done == len(chain.draws) < 40 for chain in chains)
    assert saved == [[chain.n_done for chain in chains]]  # once, when all chains had stopped
    rest = [Dice(chain.rng) for chain in chains]
    for new, old in zip(rest, chains, strict=True):
        new.n_done, new.draws = len(old.draws), old.draws
    running.run(rest, 40)
    assert [chain.draws for chain in rest] == expected()


class Broken(Dice):
    """Cannot be advanced."""

    def advance(self):
        raise RuntimeError("broken")


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_an_error_in_a_chain_reaches_the_caller(backend):
    with joblib.parallel_config(backend=backend), pytest.raises(RuntimeError, match="broken"):
        thrown(kind=Broken, n_jobs=2)


@pytest.mark.usefixtures("short_blocks")
def test_states_are_saved_along_the_way(monkeypatch):
    saved = []
    chains = dice()
    running.run(chains, 10, save=lambda: saved.append(chains[0].n_done))
    assert saved == [10]  # the run was too short for more
    monkeypatch.setattr(running, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(running, "CHECKPOINT_SHARE", 0.0)
    running.run(dice(), 10, save=lambda: saved.append(0))
    assert len(saved) == 12


@pytest.mark.usefixtures("short_blocks")
def test_saving_takes_a_small_share_of_the_time(monkeypatch):
    """By a clock that only saving moves: a save of 3 s is followed by a pause of twenty times that."""
    now = [0.0]
    monkeypatch.setattr(running.time, "monotonic", lambda: now[0])
    chains, saved = dice(n_chains=1), []
    advance = chains[0].advance

    def slowly():
        advance()
        now[0] += 6.0

    def save():
        saved.append(now[0])
        now[0] += 3.0

    chains[0].advance = slowly
    running.run(chains, 30, save=save)
    assert saved == [12.0, 81.0, 150.0, 189.0]


def test_progress_is_shown(capsys):
    thrown(progress=True)
    shown = capsys.readouterr().err
    assert "120/120" in shown
    assert "thrown=40" in shown
    thrown()
    assert capsys.readouterr().err == ""
