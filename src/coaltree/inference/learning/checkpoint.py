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
        self.run = storage.fingerprint(X, *seen, leaf_noise, settings, n_chains, state, family)
        if not self.path.exists() and not self.path.parent.is_dir():
            raise InputError(f"checkpoint must be in a folder that exists, got {self.path}.")

    def load(self, chains: Sequence[Chain]) -> None:
        """Bring fresh chains to where the file left them, if there is one."""
        if not self.path.exists():
            return
        found = storage.read_chains(self.path, self.run, KIND)
        for chain, (arrays, header) in zip(chains, found, strict=True):
            try:
                _unpack(chain, arrays, header)
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                raise InputError(f"checkpoint {self.path} does not hold a valid run: {error}") from error

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


def _unpack(chain: Chain, arrays: Arrays, header: dict[str, Any]) -> None:
    chain.rng.bit_generator.state = header["generator"]
    chain.n_done = int(header["n_done"])
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
    chain.completed.n = int(header["n_completed"])
    for name, array in storage.below(arrays, "completed.").items():
        setattr(chain.completed, name, array)
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
