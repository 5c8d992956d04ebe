"""TreePosterior: weighted trees over the same leaves, and what they say together."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from coaltree import storage
from coaltree._arrays import Floats, Ints, SmallInts
from coaltree.errors import InputError, InputTypeError
from coaltree.memory import check_matrix
from coaltree.posterior import clades, overlap, point
from coaltree.posterior import coclustering as leaf_pairs
from coaltree.posterior.consensus import ConsensusTree, majority_consensus
from coaltree.randomness import RandomState, as_generator
from coaltree.tree import Tree, as_index
from coaltree.validation import as_floats, check_choice, check_count, check_fraction

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

    children: Ints
    times: Floats
    weights: Floats
    log_evidence: float
    log_joint: Floats
    ess_per_step: Floats
    names: tuple[str, ...] | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        store = object.__setattr__
        store(self, "children", _read_only("children", self.children, np.int64))
        for name in ("times", "weights", "log_joint", "ess_per_step"):
            store(self, name, _read_only(name, getattr(self, name), np.float64))
        log_evidence = as_floats(self.log_evidence, "log_evidence")
        if log_evidence.ndim:
            raise InputError(f"log_evidence must be one number, got shape {log_evidence.shape}.")
        store(self, "log_evidence", float(log_evidence))
        if self.names is not None and not isinstance(self.names, Iterable):
            raise InputTypeError(f"names must be a sequence of texts, got {type(self.names).__name__}.")
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
            raise InputTypeError(f"index must be an integer, got {type(index).__name__}.") from None
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

        It is no better than the weighted trees it is drawn from: its `ess` counts repeats as if they were independent.
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

    def cophenetic(self, pairs: npt.ArrayLike | None = None) -> Floats:
        """Posterior mean of the merge time of pairs of leaves.

        Parameters
        ----------
        pairs : array-like of int (P, 2), optional
            The pairs asked for, by leaf index: no more memory than the trees. Default: all pairs, in O(M n²).

        Returns
        -------
        array (P,), or (n, n) with zeros on the diagonal
        """
        if pairs is not None:
            asked = leaf_pairs.check_pairs(pairs, self.n_leaves)
            return leaf_pairs.mean_pair_times(self.children, self.times, self.weights, asked)
        self._check_all_pairs("Ask for some pairs of leaves with pairs=[[i, j], …].")
        return leaf_pairs.pair_sums(self.children, self.weights[:, None] * self.times)

    def coclustering(self, n_clusters: int, pairs: npt.ArrayLike | None = None) -> Floats:
        """Posterior probability that two leaves share a cluster of the cut into `n_clusters`.

        Parameters
        ----------
        n_clusters : int
            Number of clusters that each tree is cut into, 1 … n.
        pairs : array-like of int (P, 2), optional
            The pairs asked for, by leaf index: no more memory than the trees. Default: all pairs, in O(M n²).

        Returns
        -------
        array (P,), or (n, n)
        """
        n = self.n_leaves
        if not 1 <= as_index(n_clusters, "n_clusters") <= n:
            raise InputError(f"n_clusters must be between 1 and the number of leaves {n}, got {n_clusters}.")
        if pairs is not None:
            asked = leaf_pairs.check_pairs(pairs, n)
            share = leaf_pairs.share_of_pairs(self.children, self.weights, int(n_clusters), asked)
            return clades.as_probability(share)
        self._check_all_pairs("Ask for some pairs of leaves with pairs=[[i, j], …].")
        below_cut = np.broadcast_to(self.weights[:, None], (len(self), n - n_clusters))
        together = leaf_pairs.pair_sums(self.children, below_cut)
        np.fill_diagonal(together, 1.0)
        return clades.as_probability(together)

    def _check_all_pairs(self, instead: str) -> None:
        # The sums, their transpose added, and the result: three matrices at a time.
        check_matrix(self.n_leaves, self.n_leaves, 3 * 8, "all pairs of leaves", instead)

    # ---- clades

    def clade_support(self, tree: Tree | npt.ArrayLike) -> Floats:
        """Exact support, the posterior probability of every clade of `tree`, (n−1,), or cluster of labels, (K,).

        In the order of its merges. It falls with the number of rows: one that wanders makes another clade. See
        `expected_overlap`, which does not.
        """
        if not isinstance(tree, Tree):
            return self._summary(tree).exact
        return clades.as_probability(clades.support_in(self._find_clades(tree), self.weights))

    def support_error(self, tree: Tree) -> Floats:
        """Monte Carlo error of `clade_support(tree)`, (n−1,): how far supports may move with another seed.

        Draws of a chain depend on each other, and chains may disagree: for a clade they are worth S independent draws
        (its effective sample size; for clades in all or none of the trees, the median of the others). The error is the
        standard deviation of Beta(1 + S p, 1 + S (1 − p)), the posterior of a share given S draws, so it is not zero
        where all draws agree. It does not say whether the model is right.
        """
        return clades.support_error(self._find_clades(tree), self.weights, self._n_chains)

    def expected_overlap(self, tree: Tree | npt.ArrayLike) -> Floats:
        """Expected overlap of every clade of `tree`, (n−1,), or of every cluster of labels, (K,).

        The mean over trees of the largest Jaccard index |C ∩ C'| / |C ∪ C'| with one of their clades C' of two rows or
        more. Unlike the exact support, it is not zero because one row of many wanders; one for a cluster of one row.

        Parameters
        ----------
        tree : Tree, or array-like of int (n,)
            A tree over the same leaves, from here or elsewhere; or the cluster of each row, 0, 1, …, −1 for none.
        """
        return self._summary(tree).overlap

    def overlap_error(self, tree: Tree | npt.ArrayLike) -> Floats:
        """Monte Carlo error of `expected_overlap(tree)`: how far it may move with another seed; see `support_error`."""
        return self._summary(tree).overlap_error

    def transfer_support(self, tree: Tree | npt.ArrayLike) -> Floats:
        """Transfer support of every clade of `tree`, (n−1,), or of every cluster of labels, (K,).

        The mean over trees of 1 − (fewest rows to move to make the clade one of the tree) / (|C| − 1).

        References
        ----------
        Lemoine, Domelevo Entfellner, Wilkinson, Correia, Dávila Felipe, De Oliveira, Gascuel (2018). Renewing
        Felsenstein's phylogenetic bootstrap in the era of big data. Nature 556:452–456.
        """
        return self._summary(tree).transfer

    def time_intervals(self, tree: Tree, level: float = 0.9) -> Floats:
        """Credible interval of the merge time of every clade of `tree`, (n−1, 2).

        Equal-tailed. The time in a draw is that of the clade with the largest overlap, among the draws where that is
        at least one half (all draws if there is none). Ends do not fall from child to parent.
        """
        if not 0.0 < check_fraction(level, "level") < 1.0:
            raise InputError(f"level must be between 0 and 1, got {level}; 0.9 gives a 90% interval.")
        return self._time_quantiles(tree, (1.0 - level) / 2.0, (1.0 + level) / 2.0)

    def median_times(self, tree: Tree) -> Floats:
        """Posterior median of the merge time of every clade of `tree`, (n−1,): of the times of `time_intervals`."""
        return self._time_quantiles(tree, 0.5)[:, 0]

    def shortest_time_intervals(self, tree: Tree, level: float = 0.95) -> Floats:
        """The shortest intervals with this share of the times of `time_intervals`, (n−1, 2)."""
        if not 0.0 < check_fraction(level, "level") < 1.0:
            raise InputError(f"level must be between 0 and 1, got {level}.")
        return clades.raise_to_children(clades.shortest_intervals(*self._summary(tree).held, level), tree.children)

    def _time_quantiles(self, tree: Tree, *shares: float) -> Floats:
        return clades.raise_to_children(clades.quantiles(self._summary(tree).held, shares), tree.children)

    def mcc_tree(self) -> Tree:
        """Maximum-clade-credibility tree: the sampled tree with the highest product of clade supports.

        It keeps its own merge times. Trees with the same clades tie; of those, the one with the highest joint
        density is returned.
        """
        score = clades.clade_credibility(clades.clade_ids(self.children), self.weights)
        tied = np.flatnonzero(np.isclose(score, score.max(), rtol=1e-10, atol=1e-10))
        return self[int(tied[np.argmax(self.log_joint[tied])])]

    def point_tree(self) -> Tree:
        """Tree made from all draws: the highest product of clade supports among trees all of whose clades were seen.

        Its clades need not have been seen in one tree, so it is at least as credible as `mcc_tree`, and two runs give
        nearly the same tree even if their best draws differ. Merge times are `median_times`. No (n, n) matrix is made.
        Ties between splits go to the tree with the highest joint density.

        References
        ----------
        Berling, Klawitter, Bouckaert, Xie, Gavryushkin, Drummond (2025). Accurate Bayesian phylogenetic point
        estimation using a tree distribution parameterized by clade probabilities. PLoS Computational Biology: CCD0-MAP.
        """
        tree = point.point_tree(self.children, self.times, self.weights, self.log_joint, self.names)
        return point.in_time_order(tree.children, self.median_times(tree), self.names)[0]

    def mean_tree(self, linkage: Literal["average", "complete", "single", "ward"] = "average") -> Tree:
        """Tree of the posterior mean merge times: scipy's linkage of `cophenetic()`.

        It uses all trees, whereas `mcc_tree` picks one of them, and is the more stable when the trees differ a lot.

        Parameters
        ----------
        linkage : {"average", "complete", "single", "ward"}
            "average" keeps the scale: merge times are mean times over pairs. "ward" favours clusters of even size, and
            its heights are not times.
        """
        from scipy.cluster import hierarchy
        from scipy.spatial.distance import squareform

        check_choice(linkage, "linkage", ("average", "complete", "single", "ward"))
        self._check_all_pairs("Take `point_tree()` instead, which needs no matrix.")
        pairs = squareform(self.cophenetic(), checks=False)
        return Tree.from_linkage(hierarchy.linkage(pairs, linkage), names=self.names)

    def consensus(self, threshold: float = 0.5) -> ConsensusTree:
        """Majority-rule consensus: the clades with support above one half and at least `threshold`."""
        return majority_consensus(self.children, self.times, self.weights, self.names, threshold)

    @property
    def _n_chains(self) -> int:
        return int(self.info.get("n_chains", 0))

    def _summary(self, tree: Tree | npt.ArrayLike) -> overlap.SetSummary:
        """Overlaps and times; those of the last tree are kept, because they are asked for one after the other."""
        draws = self.children, self.times, self.weights, self._n_chains
        if not isinstance(tree, Tree):
            return overlap.summarise(*draws, overlap.RowSets.of(tree, self.n_leaves))
        self._check_leaves(tree)
        # Trees with the same clades may number them in another order.
        words = clades.number_clades(tree.children[None]).words
        order = np.lexsort(words.T)
        last = self.__dict__.get("_last_summary")
        if last is None or not np.array_equal(last[0], words[order]):
            found = overlap.summarise(*draws, overlap.RowSets.of(tree, self.n_leaves))
            last = words[order], found.take(order)
            object.__setattr__(self, "_last_summary", last)
        known: overlap.SetSummary = last[1]
        return known.take(np.argsort(order))

    def _find_clades(self, tree: Tree) -> SmallInts:
        """The merge of `tree` with the same clade as each merge of the sampled trees, or −1, (M, n−1)."""
        self._check_leaves(tree)
        return clades.clades_in(self.children, tree.children)

    def _check_leaves(self, tree: Tree) -> None:
        if tree.n_leaves != self.n_leaves:
            raise InputError(
                f"tree has {tree.n_leaves} leaves and the posterior {self.n_leaves}: pass a tree over the same leaves."
            )
        if self.names is not None and tree.names is not None and tuple(tree.names) != self.names:
            raise InputError("tree must name its leaves as the posterior does, in the same order.")

    # ---- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the posterior to an .npz file: no pickle, a checksum, replaced atomically."""
        arrays = {
            "children": self.children.astype(np.min_scalar_type(2 * self.n_leaves)),  # reading widens them again
            "times": self.times,
            "weights": self.weights,
            "log_evidence": np.array(self.log_evidence),
            "log_joint": self.log_joint,
            "ess_per_step": self.ess_per_step,
        }
        storage.write(path, arrays, {"names": self.names, "info": self.info})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TreePosterior:
        """Read what `save` wrote; ValueError if the file is foreign, damaged or in a newer format."""
        contents: dict[str, Any] = storage.read(path, held=3.5)  # children take up to eight times the bytes
        with storage.decoding(path, "posterior"):
            return cls(**contents)


def _read_only(name: str, values: npt.ArrayLike, dtype: type) -> npt.NDArray[Any]:
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} must be an array: {error}") from error
    if dtype is np.int64 and given.dtype.kind not in "iu":
        raise InputError(f"{name} must hold integers, got dtype {given.dtype}.")
    if given.dtype.kind not in "iuf":
        raise InputError(f"{name} must hold real numbers, got dtype {given.dtype}.")
    array: npt.NDArray[Any] = np.array(given, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def _plain(info: Mapping[str, Any]) -> dict[str, Any]:
    """Deep copy of `info` through JSON, so that what is kept is what a file will give back."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(info)))
    except (TypeError, ValueError) as error:
        raise InputError(f"info must be a mapping of JSON values: {error}; convert arrays with .tolist().") from error
    return plain


def _check(post: TreePosterior) -> None:
    """Raise ValueError, naming the argument, unless the arrays describe M weighted trees."""
    shape = post.children.shape
    if len(shape) != 3 or shape[2] != 2 or 0 in shape:
        raise InputError(f"children must have shape (M, n-1, 2) with M and n-1 at least 1, got {shape}.")
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
            raise InputError(f"{name} must have shape {wanted} to match children, got {found}.")
    for part in _batches(n_trees, n):
        _check_trees(post.children[part], post.times[part])
    if not (post.weights >= 0).all() or not np.isclose(post.weights.sum(), 1.0, rtol=0.0, atol=1e-6):
        raise InputError("weights must be non-negative and sum to one; divide them by their sum.")
    if np.isnan(post.log_joint).any():
        raise InputError("log_joint must not be NaN.")
    post[0]  # Tree checks the names


def _batches(n_trees: int, n_leaves: int) -> Iterator[slice]:
    """Trees a few at a time, so that checking them needs little extra memory."""
    step = max(1, 1_000_000 // n_leaves)
    return (slice(first, first + step) for first in range(0, n_trees, step))


def _check_trees(children: Ints, times: Floats) -> None:
    n_trees, n_merges, _ = children.shape
    n = n_merges + 1
    used = np.sort(children.reshape(n_trees, -1), axis=1)
    too_early = children >= n + np.arange(n_merges)[:, None]
    if (used != np.arange(2 * n - 2)).any() or too_early.any():
        raise InputError("children must merge every node 0 ... 2n-3 exactly once, each after it was made.")
    if not np.isfinite(times).all() or (times < 0).any() or (np.diff(times) < 0).any():
        raise InputError("times must be finite, non-negative and non-decreasing along every row.")
