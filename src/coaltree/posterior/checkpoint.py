"""A learner's checkpoint: its iterations and the state of its generator, to go on as if never stopped."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree.inference.learn import Learned, Settings, Unknowns
from coaltree.model.covariance import CovarianceFamily
from coaltree.model.missing import Imputed
from coaltree.posterior import storage
from coaltree.tree import Tree

Floats = npt.NDArray[np.float64]

KIND = "coaltree.checkpoint"
# Time between two writes. An interrupted or killed run repeats at most this, and writing costs little beside it.
SECONDS = 10.0


class Checkpoint:
    """A file that follows a run of the learner.

    `load` gives what an earlier run left and sets the generator as it was then; `follow` is called after every
    iteration and `write` at the end. A run is told apart by its data, its family and its settings: the threads and the
    number of iterations may differ, so a finished run can be extended.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        X: Floats,
        family: CovarianceFamily,
        leaf_noise: Floats | None,
        settings: Settings,
        rng: np.random.Generator,
    ) -> None:
        self.path, self.family, self.rng, self.shape = Path(path), family, rng, X.shape
        digest = hashlib.sha256(X.tobytes())
        digest.update(b"learn" if leaf_noise is None else leaf_noise.tobytes())
        digest.update(repr((X.shape, settings._replace(n_jobs=None), rng.bit_generator.state)).encode())
        digest.update(_describe(family).encode())
        self.run = digest.hexdigest()
        self.written = time.monotonic()

    def load(self) -> Learned | None:
        """Return the iterations of an earlier run, or None if there was none; `rng` goes on where it was."""
        if not self.path.exists():
            if not self.path.parent.is_dir():
                raise ValueError(f"checkpoint must be in a folder that exists, got {self.path}.")
            return None
        parts = storage.read(self.path, KIND)
        if parts["run"] != self.run:
            raise ValueError(
                f"checkpoint {self.path} belongs to a run with other data, settings or seed. Pass those it was made "
                "with, or another path."
            )
        self.rng.bit_generator.state = parts["generator"]
        values = {name.removeprefix("value "): parts[name] for name in parts if name.startswith("value ")}
        draws = []
        for k, (children, times, noise) in enumerate(
            zip(parts["children"], parts["times"], parts["leaf_noise"], strict=True)
        ):
            # A value of no dimension was a plain number when it was written.
            state = {name: each[k] if each[k].ndim else float(each[k]) for name, each in values.items()}
            imputed = Imputed(parts["drawn"][k], parts["expected"][k]) if "drawn" in parts else None
            draws.append(Unknowns(Tree(children, times), self.family.from_values(state, self.shape[1]), noise, imputed))
        return Learned(draws, parts["log_joint"].tolist())

    def follow(self, learned: Learned) -> None:
        """Write, unless that was done a moment ago."""
        if time.monotonic() - self.written >= SECONDS:
            self.write(learned)

    def write(self, learned: Learned) -> None:
        """Write the iterations and the generator, whole or not at all."""
        draws = learned.draws
        arrays: dict[str, Any] = {
            "children": np.array([draw.tree.children for draw in draws]),
            "times": np.array([draw.tree.times for draw in draws]),
            "leaf_noise": np.array([draw.leaf_noise for draw in draws]),
            "log_joint": np.array(learned.log_joint),
        }
        for name in draws[0].covariance.values:
            arrays[f"value {name}"] = np.array([draw.covariance.values[name] for draw in draws])
        imputed = [draw.missing for draw in draws if draw.missing is not None]
        if imputed:
            arrays["drawn"] = np.array([each.drawn for each in imputed])
            arrays["expected"] = np.array([each.expected for each in imputed])
        storage.write(self.path, arrays, {"run": self.run, "generator": self.rng.bit_generator.state}, KIND)
        self.written = time.monotonic()


def _describe(thing: Any) -> str:
    """Text that differs where a family differs: arrays to the last bit, parameters of kernels, plain values."""
    if isinstance(thing, np.ndarray):
        return f"{thing.shape} {hashlib.sha256(np.ascontiguousarray(thing).tobytes()).hexdigest()}"
    if isinstance(thing, int | float | str | bool | list | tuple | None):
        return repr(thing)
    parts = thing.get_params() if hasattr(thing, "get_params") else getattr(thing, "__dict__", {})
    return f"{type(thing).__name__}({', '.join(f'{name}={_describe(parts[name])}' for name in sorted(parts))})"
