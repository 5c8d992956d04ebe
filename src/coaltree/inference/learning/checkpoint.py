"""A learner's checkpoint: its chains, so that a run can continue as if never stopped."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree import storage
from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.inference.learning.chain import Chain, Draw, Settings, Unknowns
from coaltree.inference.learning.latent import Augmentation
from coaltree.inference.moves.row_noise import Tails
from coaltree.model.covariance import CovarianceFamily
from coaltree.model.missing import Imputed
from coaltree.tree import Tree
from coaltree.validation import check_count, check_part

Arrays = dict[str, npt.NDArray[Any]]

KIND = "coaltree.checkpoint"
_COMPLETED = ("expected", "mean", "squares")


class Checkpoint:
    """A file that follows a run of the learner.

    `load` brings fresh chains to where an earlier run left them; `write` is called from time to time. A run is
    identified by its data, its family, its settings and its seed; the number of threads and of draws may differ, so a
    finished run can be extended.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        X: Floats,
        family: CovarianceFamily,
        leaf_noise: Floats | None,
        settings: Settings,
        n_chains: int,
        rng: np.random.Generator,
        latent: Augmentation | None = None,
    ) -> None:
        self.path = Path(path)
        seen = () if latent is None else (*latent.encoded, repr(latent.columns.models))
        state = rng.bit_generator.state
        how = settings if settings.checks else settings[:-1]  # as in files of runs before there were checks
        self.run = storage.fingerprint(X, *seen, leaf_noise, how, n_chains, state, family)
        if not self.path.exists() and not self.path.parent.is_dir():
            raise InputError(f"checkpoint must be in a folder that exists, got {self.path}.")

    def load(self, chains: Sequence[Chain]) -> None:
        """Bring fresh chains to where the file left them, if there is one."""
        if not self.path.exists():
            return
        storage.read_chains(self.path, self.run, KIND, chains, _unpack)

    def write(self, chains: Sequence[Chain]) -> None:
        """Write all chains, whole or not at all."""
        storage.write_chains(self.path, map(_pack, chains), self.run, KIND)


def _pack(chain: Chain) -> tuple[Arrays, dict[str, Any]]:
    now, draws = chain.now, chain.draws
    arrays: Arrays = {f"walk.{name}": array for name, array in chain.walk.to_file().items()}
    arrays |= {f"trace.{name}": np.array(values) for name, values in chain.trace.items()}
    arrays |= {f"now.{name}": np.asarray(value) for name, value in now.covariance.values.items()}
    arrays["children"], arrays["times"], arrays["leaf_noise"] = now.tree.children, now.tree.times, now.leaf_noise
    if now.tails is not None:
        arrays["tails"] = np.array(now.tails)
    if now.missing is not None:
        arrays["drawn"], arrays["expected"] = now.missing
        arrays |= {f"completed.{name}": getattr(chain.completed, name) for name in _COMPLETED}
    if now.cuts is not None:
        arrays["cuts"] = now.cuts
    if draws:
        arrays["draws.children"] = np.array([draw.children for draw in draws])
        arrays["draws.times"] = np.array([draw.times for draw in draws])
        arrays["draws.numbers"] = np.array([(draw.leaf_noise, draw.log_joint) for draw in draws])
        if draws[0].own_noise is not None:
            arrays["draws.own_noise"] = np.array([draw.own_noise for draw in draws])
            arrays["draws.df"] = np.array([draw.df for draw in draws])
        if draws[0].latent is not None:
            every = slice(None, None, chain.settings.keep_latent)
            arrays["latent"] = np.array([draw.latent for draw in draws[every]])
            arrays["latent cuts"] = np.array([draw.cuts for draw in draws[every]])
        for name in draws[0].values:
            arrays[f"draws.value {name}"] = np.array([draw.values[name] for draw in draws])
    header = {"generator": chain.rng.bit_generator.state, "n_done": chain.n_done, "n_completed": chain.completed.n}
    return arrays, header


def _check(chain: Chain, arrays: Arrays, n_done: int, n_completed: int) -> None:
    """Raise ValueError unless the parts are those of this chain, which is a fresh one, after `n_done` iterations."""
    n, settings, fresh = len(chain.X), chain.settings, _pack(chain)[0]
    drawn = (0,) if chain.now.missing is None else chain.now.missing.drawn.shape
    cuts = (0,) if chain.now.cuts is None else chain.now.cuts.shape
    for name, like in fresh.items():
        if name.startswith("trace."):
            value = chain.now.covariance.values.get(name.removeprefix("trace."), 0.0)
            check_part(arrays[name], name, (n_done, *(cuts if name == "trace.cuts" else np.shape(value))))
        elif name.startswith("completed."):
            check_part(arrays[name], name, drawn if n_completed else (0,))
        elif not name.startswith("walk."):  # which checks its own
            check_part(arrays[name], name, like.shape, like.dtype.kind, finite=name != "tails")
    positive = [arrays[name] for name in ("tails", "draws.own_noise", "draws.df") if name in arrays]
    if arrays["leaf_noise"].min() < 0.0 or not all((part > 0.0).all() for part in positive):
        raise InputError("leaf_noise must not be negative, and tails must be positive.")
    n_draws = max(n_done - settings.warmup, 0) // settings.thin
    if not n_draws:
        return
    check_part(arrays["draws.children"], "draws.children", (n_draws, n - 1, 2), "i")
    shapes: dict[str, tuple[int, ...]] = {"draws.times": (n_draws, n - 1), "draws.numbers": (n_draws, 2)}
    for name, value in chain.now.covariance.values.items():
        shapes[f"draws.value {name}"] = (n_draws, *np.shape(value))
    if chain.now.tails is not None:
        shapes |= {"draws.own_noise": (n_draws, n), "draws.df": (n_draws,)}
    if settings.keep_latent:
        n_latent = len(range(0, n_draws, settings.keep_latent))
        shapes |= {"latent": (n_latent, *drawn), "latent cuts": (n_latent, *cuts)}
    for name, shape in shapes.items():
        check_part(arrays[name], name, shape, finite=name != "draws.df")
    for children, times in zip(arrays["draws.children"], arrays["draws.times"], strict=True):
        Tree(children, times)


def _unpack(chain: Chain, arrays: Arrays, header: dict[str, Any]) -> None:
    chain.rng.bit_generator.state = header["generator"]
    n_done, n_completed = (check_count(header[name], name, at_least=0) for name in ("n_done", "n_completed"))
    _check(chain, arrays, n_done, n_completed)
    chain.n_done = n_done
    chain.trace = {name: list(arrays[f"trace.{name}"]) for name in chain.trace}
    chain.now = Unknowns(
        Tree(arrays["children"], arrays["times"]),
        chain.family.from_values(_plain(storage.below(arrays, "now.")), chain.X.shape[1]),
        arrays["leaf_noise"],
        Imputed(arrays["drawn"], arrays["expected"]) if "drawn" in arrays else None,
        arrays.get("cuts"),
        Tails(*arrays["tails"].tolist()) if chain.now.tails is not None else None,
    )
    if not chain.settings.greedy:
        chain.walk.from_file(storage.below(arrays, "walk."), chain.now.tree)
    chain.completed.n = n_completed
    for name in _COMPLETED:
        setattr(chain.completed, name, arrays.get(f"completed.{name}", getattr(chain.completed, name)))
    values = storage.below(arrays, "draws.value ")
    chain.draws = [
        Draw(children, times, _plain({name: each[k] for name, each in values.items()}), *numbers.tolist())
        for k, (children, times, numbers) in enumerate(
            zip(*(arrays.get(f"draws.{name}", np.empty(0)) for name in ("children", "times", "numbers")), strict=True)
        )
    ]
    for k, (noise, df) in enumerate(zip(arrays.get("draws.own_noise", ()), arrays.get("draws.df", ()), strict=True)):
        chain.draws[k] = chain.draws[k]._replace(own_noise=noise, df=float(df))
    for k, (latent, cuts) in enumerate(zip(arrays.get("latent", ()), arrays.get("latent cuts", ()), strict=True)):
        place = k * chain.settings.keep_latent
        chain.draws[place] = chain.draws[place]._replace(latent=latent, cuts=cuts)


def _plain(values: Arrays) -> dict[str, Any]:
    """A value of no dimension was a plain number when it was written."""
    return {name: value if np.ndim(value) else float(value) for name, value in values.items()}
