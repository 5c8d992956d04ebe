"""TreePosterior: weighted trees over the same leaves, and what they say together."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from coaltree.posterior import consensus, storage
from coaltree.posterior.consensus import ConsensusTree
from coaltree.randomness import RandomState, as_generator
from coaltree.tree import Tree, as_index
from coaltree.validation import as_floats, check_choice, check_count, check_fraction

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TreePosterior:
    """A posterior over trees, as M weighted trees with n leaves. Immutable: the arrays are read-only copies.

    Parameters
    ----------
    children : array-like (M, n−1, 2)
        Merges of every tree: leaves are 0 … n−1, merge k makes node n+k.
    times : array-like (M, n−1)
        Merge times, non-decreasing along every row.
    weights : array-like (M,)
        Normalised weights; a sum within 1e-6 of one is accepted, and corrected.
    log_evidence : float
        Estimate of log p(X); NaN where none was made.
    log_joint : array-like (M,)
        log p(X, t, π) of every tree.
    ess_per_step : array-like (n−1,)
        Effective sample size before resampling at every merge.
    names : sequence of str, optional
        Names of the leaves.
    info : mapping, optional
        Version, method, parameters and seed; anything JSON can hold.

    Examples
    --------
    >>> post = TreePosterior(
    ...     children=[[[0, 1], [2, 3]], [[1, 2], [0, 3]]],
    ...     times=[[0.2, 1.0], [0.3, 0.9]],
    ...     weights=[0.75, 0.25],
    ...     log_evidence=-3.0,
    ...     log_joint=[-2.0, -3.0],
    ...     ess_per_step=[2.0, 1.6],
    ... )
    >>> post
    TreePosterior(n_leaves=3, n_trees=2, ess=1.6, log_evidence=-3)
    >>> post.clade_support(post[0])
    array([0.75, 1.  ])
    """

    children: IntArray
    times: FloatArray
    weights: FloatArray
    log_evidence: float
    log_joint: FloatArray
    ess_per_step: FloatArray
    names: tuple[str, ...] | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        store = object.__setattr__
        store(self, "children", _read_only("children", self.children, np.int64))
        for name in ("times", "weights", "log_joint", "ess_per_step"):
            store(self, name, _read_only(name, getattr(self, name), np.float64))
        log_evidence = as_floats(self.log_evidence, "log_evidence")
        if log_evidence.ndim:
            raise ValueError(f"log_evidence must be one number, got shape {log_evidence.shape}.")
        store(self, "log_evidence", float(log_evidence))
        if self.names is not None and not isinstance(self.names, Iterable):
            raise TypeError(f"names must be a sequence of texts, got {type(self.names).__name__}.")
        store(self, "names", None if self.names is None else tuple(self.names))
        store(self, "info", _plain(self.info))
        _check(self)
        total = self.weights.sum()
        if abs(total - 1.0) > _ROUNDING:
            store(self, "weights", _read_only("weights", self.weights / total, np.float64))

    # ---- the trees

    @property
    def n_leaves(self) -> int:
        """Number of leaves n."""
        return int(self.children.shape[1]) + 1

    @property
    def ess(self) -> float:
        """Effective sample size of the weights, 1 / Σ w²."""
        return float(1.0 / np.sum(self.weights**2))

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, index: int) -> Tree:
        try:
            position = range(len(self))[index.__index__()]
        except AttributeError:
            raise TypeError(f"index must be an integer, got {type(index).__name__}.") from None
        except IndexError:
            raise IndexError(f"index {index} is out of range for a posterior of {len(self)} trees.") from None
        return Tree(self.children[position], self.times[position], self.names)

    def __iter__(self) -> Iterator[Tree]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return (
            f"TreePosterior(n_leaves={self.n_leaves}, n_trees={len(self)}, ess={self.ess:.4g}, "
            f"log_evidence={self.log_evidence:.8g})"
        )

    def best_tree(self) -> Tree:
        """Tree with the highest joint density p(X, t, π)."""
        return self[int(np.argmax(self.log_joint))]

    def sample(self, size: int, random_state: RandomState = None) -> TreePosterior:
        """Draw `size` trees independently, by weight: a posterior of equally weighted trees.

        It is no better than the weighted trees it is drawn from: its own `ess` counts repeats as if they were
        independent.
        """
        size = check_count(size, "size", at_least=1)
        chosen = as_generator(random_state).choice(len(self), size=size, p=self.weights)
        return TreePosterior(
            children=self.children[chosen],
            times=self.times[chosen],
            weights=np.full(size, 1.0 / size),
            log_evidence=self.log_evidence,
            log_joint=self.log_joint[chosen],
            ess_per_step=self.ess_per_step,
            names=self.names,
            info=self.info,
        )

    # ---- pairs of leaves

    def cophenetic(self) -> FloatArray:
        """Posterior mean of the merge time of every pair of leaves, (n, n), zero on the diagonal."""
        return consensus.pair_sums(self.children, self.weights[:, None] * self.times)

    def coclustering(self, n_clusters: int) -> FloatArray:
        """Posterior probability that two leaves share a cluster of the cut into `n_clusters`, (n, n)."""
        n = self.n_leaves
        if not 1 <= as_index(n_clusters, "n_clusters") <= n:
            raise ValueError(f"n_clusters must be between 1 and the number of leaves {n}, got {n_clusters}.")
        below_cut = np.broadcast_to(self.weights[:, None], (len(self), n - n_clusters))
        together = consensus.pair_sums(self.children, below_cut)
        np.fill_diagonal(together, 1.0)
        return consensus.as_probability(together)

    # ---- clades

    def clade_support(self, tree: Tree) -> FloatArray:
        """Posterior probability of every clade of `tree`, (n−1,), in the order of its merges."""
        ids = self._clade_ids(tree)
        support = consensus.support_of_clades(ids, np.append(self.weights, 0.0))
        return consensus.as_probability(support[ids[-1]])

    def time_intervals(self, tree: Tree, level: float = 0.9) -> FloatArray:
        """Credible interval of the merge time of every clade of `tree`, (n−1, 2).

        Equal-tailed, among the trees that contain the clade; NaN for clades that none contains.
        """
        if not 0.0 < check_fraction(level, "level") < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level}; 0.9 gives a 90% interval.")
        ids = self._clade_ids(tree)
        return consensus.intervals_of_clades(ids[:-1], self.times, self.weights, ids[-1], level)

    def mcc_tree(self) -> Tree:
        """Maximum-clade-credibility tree: the sampled tree with the highest product of clade supports.

        It keeps its own merge times. Trees with the same clades tie; of those, the one with the highest joint
        density is returned.
        """
        score = consensus.clade_credibility(consensus.clade_ids(self.children), self.weights)
        tied = np.flatnonzero(np.isclose(score, score.max(), rtol=1e-10, atol=1e-10))
        return self[int(tied[np.argmax(self.log_joint[tied])])]

    def mean_tree(self, linkage: Literal["average", "complete", "single", "ward"] = "average") -> Tree:
        """Tree of the posterior mean merge times: scipy's linkage of `cophenetic()`.

        It is made of all trees, where `mcc_tree` picks one of them, and is the steadier the more the trees differ.

        Parameters
        ----------
        linkage : {"average", "complete", "single", "ward"}
            "average" keeps the scale: merge times are mean times over pairs. "ward" favours clusters of even size, and
            its heights are not times.
        """
        from scipy.cluster import hierarchy
        from scipy.spatial.distance import squareform

        check_choice(linkage, "linkage", ("average", "complete", "single", "ward"))
        pairs = squareform(self.cophenetic(), checks=False)
        return Tree.from_linkage(hierarchy.linkage(pairs, linkage), names=self.names)

    def consensus(self, threshold: float = 0.5) -> ConsensusTree:
        """Majority-rule consensus: the clades with support above one half and at least `threshold`."""
        return consensus.majority_consensus(self.children, self.times, self.weights, self.names, threshold)

    def _clade_ids(self, tree: Tree) -> IntArray:
        """Clade numbers of the sampled trees and, in the last row, of `tree`, (M+1, n−1)."""
        if tree.n_leaves != self.n_leaves:
            raise ValueError(
                f"tree has {tree.n_leaves} leaves and the posterior {self.n_leaves}: pass a tree over the same leaves."
            )
        if self.names is not None and tree.names is not None and tuple(tree.names) != self.names:
            raise ValueError("tree must name its leaves as the posterior does, in the same order.")
        return consensus.clade_ids(np.concatenate([self.children, tree.children[None]]))

    # ---- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the posterior to an .npz file: no pickle, a checksum, replaced atomically."""
        arrays = {
            "children": self.children,
            "times": self.times,
            "weights": self.weights,
            "log_evidence": np.array(self.log_evidence),
            "log_joint": self.log_joint,
            "ess_per_step": self.ess_per_step,
        }
        storage.write(path, arrays, {"names": self.names, "info": self.info})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TreePosterior:
        """Read what `save` wrote; ValueError if the file is foreign, damaged or of a newer format."""
        contents: dict[str, Any] = storage.read(path)
        try:
            return cls(**contents)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(path)} does not hold a valid posterior: {error}") from error


def _read_only(name: str, values: npt.ArrayLike, dtype: type) -> npt.NDArray[Any]:
    try:
        array = np.array(values, order="C")
    except ValueError as error:
        raise ValueError(f"{name} must be an array: {error}") from error
    if dtype is np.int64 and array.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold integers, got dtype {array.dtype}.")
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must hold real numbers, got dtype {array.dtype}.")
    array = array.astype(dtype, copy=False)
    array.setflags(write=False)
    return array


def _plain(info: Mapping[str, Any]) -> dict[str, Any]:
    """Deep copy of `info` through JSON, so that what is kept is what a file will give back."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(info)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"info must be a mapping of JSON values: {error}; convert arrays with .tolist().") from error
    return plain


def _check(post: TreePosterior) -> None:
    """Raise ValueError, naming the argument, unless the arrays describe M weighted trees."""
    shape = post.children.shape
    if len(shape) != 3 or shape[2] != 2 or 0 in shape:
        raise ValueError(f"children must have shape (M, n-1, 2) with M and n-1 at least 1, got {shape}.")
    n_trees, n_merges = shape[:2]
    n = n_merges + 1
    per_tree, per_merge = (n_trees,), (n_merges,)
    shapes = {
        "times": per_tree + per_merge,
        "weights": per_tree,
        "log_joint": per_tree,
        "ess_per_step": per_merge,
    }
    for name, wanted in shapes.items():
        found = getattr(post, name).shape
        if found != wanted:
            raise ValueError(f"{name} must have shape {wanted} to match children, got {found}.")
    used = np.sort(post.children.reshape(n_trees, -1), axis=1)
    too_early = post.children >= n + np.arange(n_merges)[:, None]
    if (used != np.arange(2 * n - 2)).any() or too_early.any():
        raise ValueError("children must merge every node 0 ... 2n-3 exactly once, each after it was made.")
    if not np.isfinite(post.times).all() or (post.times < 0).any() or (np.diff(post.times) < 0).any():
        raise ValueError("times must be finite, non-negative and non-decreasing along every row.")
    if not (post.weights >= 0).all() or not np.isclose(post.weights.sum(), 1.0, rtol=0.0, atol=1e-6):
        raise ValueError("weights must be non-negative and sum to one; divide them by their sum.")
    if np.isnan(post.log_joint).any():
        raise ValueError("log_joint must not be NaN.")
    post[0]  # Tree checks the names
