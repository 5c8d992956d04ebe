"""A learner's checkpoint: its chains, to go on as if never stopped."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.inference.augment import Augmentation
from coaltree.inference.heavy import Tails
from coaltree.inference.learn import Chain, Draw, Settings, Unknowns
from coaltree.model.covariance import CovarianceFamily
from coaltree.model.missing import Imputed
from coaltree.posterior import storage
from coaltree.tree import Tree

Arrays = dict[str, npt.NDArray[Any]]

KIND = "coaltree.checkpoint"
_COMPLETED = ("expected", "mean", "squares")


class Checkpoint:
    """A file that follows a run of the learner.

    `load` brings fresh chains to where an earlier run left them, `write` is called now and then. A run is told apart by
    its data, its family, its settings and its seed: the threads and the number of draws may differ, so that a finished
    run can be extended.
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
        digest = hashlib.sha256(X.tobytes())
        if latent is not None:
            for part in latent.encoded:
                digest.update(np.ascontiguousarray(part).tobytes())
            digest.update(repr(latent.columns.models).encode())
        digest.update(b"learn" if leaf_noise is None else leaf_noise.tobytes())
        digest.update(repr((X.shape, settings, n_chains, rng.bit_generator.state)).encode())
        digest.update(_describe(family).encode())
        self.run = digest.hexdigest()
        if not self.path.exists() and not self.path.parent.is_dir():
            raise InputError(f"checkpoint must be in a folder that exists, got {self.path}.")

    def load(self, chains: Sequence[Chain]) -> None:
        """Bring fresh chains to where the file left them, if there is one."""
        if not self.path.exists():
            return
        parts = storage.read(self.path, KIND)
        if parts["run"] != self.run:
            raise InputError(
                f"checkpoint {self.path} belongs to a run with other data, settings or seed. Pass those it was made "
                "with, or another path."
            )
        for number, chain in enumerate(chains):
            own = {name.partition(".")[2]: array for name, array in parts.items() if name.startswith(f"{number}.")}
            try:
                _unpack(chain, own, parts["chains"][number])
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                raise InputError(f"checkpoint {self.path} does not hold a valid run: {error}") from error

    def write(self, chains: Sequence[Chain]) -> None:
        """Write all chains, whole or not at all."""
        arrays: Arrays = {}
        headers = []
        for number, chain in enumerate(chains):
            parts, header = _pack(chain)
            arrays |= {f"{number}.{name}": part for name, part in parts.items()}
            headers.append(header)
        storage.write(self.path, arrays, {"run": self.run, "chains": headers}, KIND)


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
    def part(prefix: str) -> Arrays:
        return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

    chain.rng.bit_generator.state = header["generator"]
    chain.n_done = int(header["n_done"])
    chain.trace = {name: list(arrays[f"trace.{name}"]) for name in chain.trace}
    chain.now = Unknowns(
        Tree(arrays["children"], arrays["times"]),
        chain.family.from_values(_plain(part("now.")), chain.X.shape[1]),
        arrays["leaf_noise"],
        Imputed(arrays["drawn"], arrays["expected"]) if "drawn" in arrays else None,
        arrays.get("cuts"),
        Tails(*arrays["tails"].tolist()) if chain.now.tails is not None else None,
    )
    if not chain.settings.greedy:
        chain.walk.from_file(part("walk."), chain.now.tree)
    chain.completed.n = int(header["n_completed"])
    for name, array in part("completed.").items():
        setattr(chain.completed, name, array)
    values = part("draws.value ")
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


def _describe(thing: Any) -> str:
    """Text that differs where a family differs: arrays to the last bit, parameters of kernels, plain values."""
    if isinstance(thing, np.ndarray):
        return f"{thing.shape} {hashlib.sha256(np.ascontiguousarray(thing).tobytes()).hexdigest()}"
    if isinstance(thing, int | float | str | bool | list | tuple | None):
        return repr(thing)
    parts = thing.get_params() if hasattr(thing, "get_params") else getattr(thing, "__dict__", {})
    return f"{type(thing).__name__}({', '.join(f'{name}={_describe(parts[name])}' for name in sorted(parts))})"
