"""`Draws`: what a chain keeps, in one object for chain, checkpoint, learner, estimator, files and predictions.

A draw is a tree with all that goes with it: Φ, leaf noise, and, of some draws of a table with latent coordinates, these
and the cutpoints.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from coaltree import storage
from coaltree._arrays import Floats, Ints, Singles
from coaltree._version import __version__
from coaltree.errors import InputError
from coaltree.model.family import CovarianceFamily, State
from coaltree.model.noise import NoiseFamily, noise_of
from coaltree.posterior.ensemble import TreePosterior
from coaltree.tree import Tree
from coaltree.validation import check_covariance, check_part

Arrays = dict[str, npt.NDArray[Any]]

KIND = "coaltree.Draws"
# The name of Φ itself among its parameters.
MATRIX = "matrix"


class Latent(NamedTuple):
    """What was drawn of a table."""

    entries: Singles  # in the order of the NaN of the encoded table
    cuts: Floats  # cutpoints of its columns, (C,)


class Draw(NamedTuple):
    """One draw."""

    children: npt.NDArray[Any]  # (n−1, 2)
    times: Floats  # (n−1,)
    log_joint: float
    phi: Mapping[str, Any]  # parameters of Φ
    noise: Floats  # of every row, (n,), or (1,) if all have the same
    tails: tuple[float, float]  # scale and degrees of freedom of the rows' noise
    latent: Latent | None = None  # of some draws

    @property
    def tree(self) -> Tree:
        """The tree."""
        return Tree(self.children, self.times)


@dataclass(frozen=True, eq=False, kw_only=True)
class Draws:
    """M draws, over n rows, in the order of the chain, those of the first chain before those of the second.

    Parameters
    ----------
    children, times, log_joint : arrays (M, n−1, 2), (M, n−1), (M,)
        The trees.
    phi : dict of arrays (M, …) or (1, …)
        Parameters of Φ by the names of its family, until `with_matrices` puts Φ in their place.
    noise : NoiseFamily
        Of which kind the leaf noise is.
    noises : array (M or 1, n or 1)
        Leaf noise: one entry where that of all draws, or of all rows, is the same.
    tails : array (M, 2)
        Scale and degrees of freedom of the rows' noise.
    index, entries, cuts : arrays (K,), (K, E), (K, C)
        Draws with latent coordinates, and these.
    """

    children: npt.NDArray[Any]
    times: Floats
    log_joint: Floats
    phi: dict[str, Floats]
    noise: NoiseFamily
    noises: Floats
    tails: Floats
    index: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    entries: Singles = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))
    cuts: Floats = field(default_factory=lambda: np.empty((0, 0)))

    @classmethod
    def of(cls, draws: Sequence[Draw], noise: NoiseFamily) -> Draws:
        """Gather single draws, at least one."""
        kept = [(k, draw.latent) for k, draw in enumerate(draws) if draw.latent is not None]
        latent: Arrays = {}
        if kept:
            latent["index"] = np.array([k for k, _ in kept], dtype=np.int64)
            latent["entries"] = np.array([each.entries for _, each in kept])
            latent["cuts"] = np.array([each.cuts for _, each in kept])
        return cls(
            children=np.array([draw.children for draw in draws]),
            times=np.array([draw.times for draw in draws]),
            log_joint=np.array([draw.log_joint for draw in draws]),
            phi={name: np.array([draw.phi[name] for draw in draws]) for name in draws[0].phi},
            noise=noise,
            noises=noise.stack([draw.noise for draw in draws]),
            tails=np.array([draw.tails for draw in draws]),
            **latent,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Draws]) -> Draws:
        """Put the draws of several runs of one model over one table after each other."""
        sizes = [len(part) for part in parts]
        first = np.cumsum([0, *sizes[:-1]])

        def join(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
            if all(len(each) == 1 and np.array_equal(each, arrays[0]) for each in arrays):
                return arrays[0]
            whole = [np.broadcast_to(each, (size, *each.shape[1:])) for each, size in zip(arrays, sizes, strict=True)]
            return np.concatenate(whole)

        latent = [part for part in parts if len(part.index)] or parts[:1]
        return replace(
            parts[0],
            children=np.concatenate([part.children for part in parts]),
            times=np.concatenate([part.times for part in parts]),
            log_joint=np.concatenate([part.log_joint for part in parts]),
            tails=np.concatenate([part.tails for part in parts]),
            phi={name: join([part.phi[name] for part in parts]) for name in parts[0].phi},
            noises=join([part.noises for part in parts]),
            index=np.concatenate([part.index + start for part, start in zip(parts, first, strict=True)]),
            entries=np.concatenate([part.entries for part in latent]),
            cuts=np.concatenate([part.cuts for part in latent]),
        )

    def __len__(self) -> int:
        return len(self.times)

    def __iter__(self) -> Iterator[Draw]:
        return (self[m] for m in range(len(self)))

    @overload
    def __getitem__(self, which: int) -> Draw: ...

    @overload
    def __getitem__(self, which: slice) -> Draws: ...

    def __getitem__(self, which: int | slice) -> Draw | Draws:
        if isinstance(which, slice):
            return self.take(range(len(self))[which])
        m = range(len(self))[which]
        kept = np.flatnonzero(self.index == m)
        return Draw(
            self.children[m],
            self.times[m],
            float(self.log_joint[m]),
            {name: _plain(each[m % len(each)]) for name, each in self.phi.items()},
            self.noises[m % len(self.noises)],
            (float(self.tails[m, 0]), float(self.tails[m, 1])),
            Latent(self.entries[kept[0]], self.cuts[kept[0]]) if len(kept) else None,
        )

    def take(self, chosen: Iterable[int]) -> Draws:
        """Return some of the draws, at least one and each once, in this order."""
        places = np.array(list(chosen), dtype=np.int64)
        if not len(places):
            raise InputError("draws must be taken one at least, got none.")
        position = {m: k for k, m in enumerate(places.tolist())}
        kept = [k for k, m in enumerate(self.index.tolist()) if m in position]
        kept.sort(key=lambda k: position[int(self.index[k])])

        def pick(each: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return each if len(each) == 1 else each[places]

        return replace(
            self,
            children=self.children[places],
            times=self.times[places],
            log_joint=self.log_joint[places],
            tails=self.tails[places],
            phi={name: pick(each) for name, each in self.phi.items()},
            noises=pick(self.noises),
            index=np.array([position[m] for m in self.index[kept].tolist()], dtype=np.int64),
            entries=self.entries[kept],
            cuts=self.cuts[kept],
        )

    def thin(self, step: int) -> Draws:
        """Return every `step`-th draw, beginning with the first."""
        return self[::step]

    # ---- what goes with each tree

    @property
    def n_leaves(self) -> int:
        """Number of rows n."""
        return int(self.times.shape[1]) + 1

    def states(self, family: CovarianceFamily, d: int) -> list[State]:
        """Rebuild the Φ of every draw from its parameters."""
        return [family.from_values(draw.phi, d) for draw in self]

    def with_matrices(self, states: Sequence[State]) -> Draws:
        """Return the same with Φ, from its `states`, in place of its parameters: one if it is known."""
        return replace(self, phi={MATRIX: np.array([state.compact() for state in states])})

    @property
    def covariances(self) -> Floats:
        """Φ of each draw, (M, d, d), or the variances of a diagonal one, (M, d); (1, …) if all are the same."""
        return self.phi[MATRIX]

    @property
    def leaf_noises(self) -> Floats:
        """Leaf noise of each draw, (M, n); (1, n) if it is known and Φ is."""
        longest = max(len(self.noises), *map(len, self.phi.values()))
        return np.broadcast_to(self.noises, (longest, self.n_leaves))

    @property
    def middle_noise(self) -> Floats:
        """Median of the leaf noise of every row, (n,)."""
        return np.array(np.broadcast_to(np.median(self.noises, axis=0), (self.n_leaves,)))

    @property
    def new_noises(self) -> Floats:
        """Leaf noise of a new row in each draw, (M,)."""
        return self.noise.new_rows(self.noises, self.tails)

    def noise_grid(self, m: int, d: int) -> tuple[Floats, Floats]:
        """Return a grid of what the noise of a row of d columns may be in a draw, and the log of its weights."""
        return self.noise.grid(self.noises[m % len(self.noises)], (self.tails[m, 0], self.tails[m, 1]), d)

    def surprise(self) -> Floats | None:
        """Probability of a row that fits as badly as each, (n,); None if all rows share one noise."""
        return self.noise.surprise(self.noises, self.tails)

    # ---- trees and files

    def posterior(
        self, names: Sequence[str] | None, info: Mapping[str, Any], log_evidence: float = math.nan
    ) -> TreePosterior:
        """Return the trees, equally weighted."""
        size = len(self)
        return TreePosterior(
            children=self.children,
            times=self.times,
            weights=np.full(size, 1.0 / size),
            log_evidence=log_evidence,
            log_joint=self.log_joint,
            ess_per_step=np.full(self.n_leaves - 1, float(size)),
            names=None if names is None else tuple(names),
            info=dict(info),
        )

    def to_arrays(self) -> Arrays:
        """Return everything but the kind of noise, by name."""
        own = ("children", "times", "log_joint", "noises", "tails", "index", "entries", "cuts")
        return {name: getattr(self, name) for name in own} | {f"phi.{name}": each for name, each in self.phi.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], noise: str) -> Draws:
        """Restore what `to_arrays` returned, of noise of this name; InputError if the parts do not belong together."""
        phi = storage.below(arrays, "phi.")
        own = {name: part for name, part in arrays.items() if not name.startswith("phi.")}
        draws = cls(phi=phi, noise=noise_of(noise, own["noises"][0]), **own)
        draws.check()
        return draws

    def check(self) -> None:
        """Raise InputError unless the parts are of types, shapes and values that belong together."""
        size, n, n_kept = len(self.log_joint), self.times.shape[-1] + 1, len(self.index)
        shapes: dict[str, tuple[int, ...]] = {
            "children": (size, n - 1, 2),
            "times": (size, n - 1),
            "log_joint": (size,),
            "tails": (size, 2),
            "index": (n_kept,),
            "entries": (n_kept, *self.entries.shape[1:2]),
            "cuts": (n_kept, *self.cuts.shape[1:2]),
        }
        if size == 0 or self.noises.shape not in {(a, b) for a in (1, size) for b in (1, n)}:
            raise InputError(f"noises must be those of {size} draws and {n} rows, got shape {self.noises.shape}.")
        for name, shape in shapes.items():
            kinds = "iu" if name in ("children", "index") else "f"
            check_part(getattr(self, name), name, shape, kinds, finite=name != "tails")
        check_part(self.noises, "noises", self.noises.shape)
        if self.noises.min() < 0.0 or (self.noise.varies and not self.tails.min() > 0.0):
            raise InputError("noises must not be negative, and tails must be positive.")
        for name, each in self.phi.items():
            check_part(each, name, (size if len(each) > 1 else 1, *each.shape[1:]))
        for phi in self.phi.get(MATRIX, ()):
            check_covariance(phi)
        if not np.isin(self.index, np.arange(size)).all():
            raise InputError("index must hold draws.")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the draws to an .npz file, without pickle."""
        storage.write(path, self.to_arrays(), {"version": __version__, "noise": self.noise.name}, KIND)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Draws:
        """Read what `save` wrote."""
        contents = storage.read(path, KIND)
        with storage.decoding(path, "draws"):
            noise = contents.pop("noise")
            del contents["version"]
            return cls.from_arrays(contents, noise)


def _plain(value: Any) -> Any:
    """A value of no dimension is a plain number."""
    return value if np.ndim(value) else float(value)
