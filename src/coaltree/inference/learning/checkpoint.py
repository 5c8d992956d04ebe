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
from coaltree.inference.learning.chain import ChainSettings, TreeChain, Unknowns
from coaltree.model.covariance import CovarianceFamily
from coaltree.model.missing import Imputed
from coaltree.model.noise import NoiseFamily
from coaltree.posterior.draws import Draws
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
        noise: NoiseFamily,
        settings: ChainSettings,
        n_chains: int,
        rng: np.random.Generator,
        coded: Sequence[Any] = (),
    ) -> None:
        """`coded` is what determines a table of other columns than numbers."""
        self.path = Path(path)
        self.run = storage.fingerprint(X, *coded, noise, settings, n_chains, rng.bit_generator.state, family)
        if not self.path.exists() and not self.path.parent.is_dir():
            raise InputError(f"checkpoint must be in a folder that exists, got {self.path}.")

    def load(self, chains: Sequence[TreeChain]) -> None:
        """Bring fresh chains to where the file left them, if there is one."""
        if not self.path.exists():
            return
        storage.read_chains(self.path, self.run, KIND, chains, _unpack)

    def write(self, chains: Sequence[TreeChain]) -> None:
        """Write all chains, whole or not at all."""
        storage.write_chains(self.path, map(_pack, chains), self.run, KIND)


def _pack(chain: TreeChain) -> tuple[Arrays, dict[str, Any]]:
    now = chain.now
    arrays: Arrays = {f"walk.{name}": array for name, array in chain.walk.to_file().items()}
    arrays |= {f"trace.{name}": np.array(values) for name, values in chain.trace.items()}
    arrays |= {f"now.{name}": np.asarray(value) for name, value in now.covariance.values.items()}
    arrays["children"], arrays["times"], arrays["leaf_noise"] = now.tree.children, now.tree.times, now.leaf_noise
    arrays["tails"], arrays["cuts"] = np.array(now.noise.tails), now.cuts
    arrays["drawn"], arrays["expected"] = now.missing
    arrays |= {f"completed.{name}": getattr(chain.completed, name) for name in _COMPLETED}
    if chain.draws:
        arrays |= {f"draws.{name}": each for name, each in Draws.of(chain.draws, now.noise).to_arrays().items()}
    header = {"generator": chain.rng.bit_generator.state, "n_done": chain.n_done, "n_completed": chain.completed.n}
    return arrays, header


def _check(chain: TreeChain, arrays: Arrays, n_done: int, n_completed: int) -> None:
    """Raise ValueError unless the parts are those of this chain, which is a fresh one, after `n_done` iterations."""
    fresh, now = _pack(chain)[0], chain.now
    drawn, cuts = now.missing.drawn.shape, now.cuts.shape
    for name, like in fresh.items():
        if name.startswith("trace."):
            value = now.covariance.values.get(name.removeprefix("trace."), 0.0)
            check_part(arrays[name], name, (n_done, *(cuts if name == "trace.cuts" else np.shape(value))))
        elif name.startswith("completed."):
            check_part(arrays[name], name, drawn if n_completed else (0,))
        elif not name.startswith("walk."):  # which checks its own
            check_part(arrays[name], name, like.shape, like.dtype.kind, finite=name != "tails")
    if arrays["leaf_noise"].min() < 0.0 or (arrays["tails"] <= 0.0).any():
        raise InputError("leaf_noise must not be negative, and tails must be positive.")


def _draws(chain: TreeChain, arrays: Arrays, n_draws: int) -> Draws:
    """Restore the draws of a chain like this one; raise ValueError unless they are that many."""
    n, settings, now = len(chain.X), chain.settings, chain.now
    draws = Draws.from_arrays(storage.below(arrays, "draws."), now.noise.name)
    shapes: dict[str, tuple[int, ...]] = {"times": (n_draws, n - 1)}
    if settings.keep_latent:
        n_latent = len(range(0, n_draws, settings.keep_latent))
        shapes |= {"entries": (n_latent, *now.missing.drawn.shape), "cuts": (n_latent, *now.cuts.shape)}
    for name, shape in shapes.items():
        check_part(getattr(draws, name), name, shape)
    for name, value in now.covariance.values.items():
        check_part(draws.phi[name], name, (n_draws, *np.shape(value)))
    check_part(draws.noises, "noises", now.noise.stack([now.noise.compact(now.leaf_noise)] * n_draws).shape)
    for draw in draws:
        Tree(draw.children, draw.times)
    return draws


def _unpack(chain: TreeChain, arrays: Arrays, header: dict[str, Any]) -> None:
    chain.rng.bit_generator.state = header["generator"]
    n_done, n_completed = (check_count(header[name], name, at_least=0) for name in ("n_done", "n_completed"))
    _check(chain, arrays, n_done, n_completed)
    n_draws = max(n_done - chain.settings.warmup, 0) // chain.settings.thin
    chain.draws = list(_draws(chain, arrays, n_draws)) if n_draws else []
    chain.n_done = n_done
    chain.trace = {name: list(arrays[f"trace.{name}"]) for name in chain.trace}
    chain.now = Unknowns(
        Tree(arrays["children"], arrays["times"]),
        chain.family.from_values(_plain(storage.below(arrays, "now.")), chain.X.shape[1]),
        arrays["leaf_noise"],
        Imputed(arrays["drawn"], arrays["expected"]),
        arrays["cuts"],
        chain.now.noise.with_tails(*arrays["tails"].tolist()),
    )
    if not chain.settings.greedy:
        chain.walk.from_file(storage.below(arrays, "walk."), chain.now.tree)
    chain.completed.n = n_completed
    for name in _COMPLETED:
        setattr(chain.completed, name, arrays[f"completed.{name}"])


def _plain(values: Arrays) -> dict[str, Any]:
    """A value of no dimension was a plain number when it was written."""
    return {name: value if np.ndim(value) else float(value) for name, value in values.items()}
