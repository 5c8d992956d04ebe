"""The binary merge tree that every other part of coaltree passes around.

A tree over n leaves is two arrays: `children` (n−1, 2) and `times` (n−1,). Leaves are the nodes 0 … n−1,
merge k is node n+k, the root is node 2n−2, and merges come in time order. Leaves sit at time 0 and time runs
backwards, so a merge time is also the cophenetic distance between the two sides of the merge.

Most questions are answered from one drawing of the tree in which every clade is a contiguous run of leaves: a
clade is an interval, each of the n−1 gaps between neighbouring leaves belongs to exactly one merge, and two
leaves meet at the latest merge among the gaps between them.
"""

from __future__ import annotations

import numbers
import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Bools, Floats, Ints
from coaltree.errors import InputError, InputTypeError


class _Layout(NamedTuple):
    """Where every node lies in a drawing without crossings."""

    order: Ints  # (n,) the leaf at each position
    start: Ints  # (2n−1,) the first position of each node
    size: Ints  # (2n−1,) how many leaves each node has


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Tree:
    """A rooted binary tree with merge times: an immutable value, checked when it is made.

    Parameters
    ----------
    children : array-like of int, shape (n − 1, 2)
        The two nodes joined by each merge. Leaves are 0 … n−1 and merge k makes node n+k.
    times : array-like of float, shape (n − 1,)
        Merge times: finite, non-negative, non-decreasing.
    names : iterable of str, optional
        One distinct name per leaf.

    Attributes
    ----------
    children : ndarray of int64, shape (n − 1, 2)
        Read-only copy.
    times : ndarray of float64, shape (n − 1,)
        Read-only copy.
    names : tuple of str or None
        None if no names were given; `leaf_names` always has one name per leaf.

    Notes
    -----
    Two trees are equal if their merges (as unordered pairs), times and names are equal; equal trees hash
    equally.

    Examples
    --------
    >>> tree = Tree([[0, 1], [2, 3]], [0.5, 1.0], names=["a", "b", "c"])
    >>> tree.cut(n_clusters=2)
    array([0, 0, 1])
    >>> tree.to_newick()
    '(c:1.0,(a:0.5,b:0.5):0.5);'
    """

    children: Ints
    times: Floats
    names: tuple[str, ...] | None

    def __init__(self, children: npt.ArrayLike, times: npt.ArrayLike, names: Iterable[str] | None = None) -> None:
        checked = _check_children(children)
        n_leaves = len(checked) + 1
        object.__setattr__(self, "children", _frozen(checked))
        object.__setattr__(self, "times", _frozen(_check_times(times, n_leaves)))
        object.__setattr__(self, "names", _check_names(names, n_leaves))

    @property
    def n_leaves(self) -> int:
        """The number of leaves n."""
        return len(self.times) + 1

    @property
    def leaf_names(self) -> tuple[str, ...]:
        """The leaf names, or "0" … "n−1" if the tree has none."""
        return self.names if self.names is not None else tuple(map(str, range(self.n_leaves)))

    # ---- nodes

    def parents(self) -> Ints:
        """Return the parent of every node, shape (2n−1,), with −1 at the root."""
        n = self.n_leaves
        parents = np.full(2 * n - 1, -1, dtype=np.int64)
        parents[self.children] = np.arange(n, 2 * n - 1)[:, None]
        return parents

    def node_times(self) -> Floats:
        """Return the time of every node, shape (2n−1,), zero at the leaves."""
        return np.concatenate([np.zeros(self.n_leaves), self.times])

    def sizes(self) -> Ints:
        """Return the number of leaves under each merge, shape (n−1,)."""
        return self._layout.size[self.n_leaves :].copy()

    def leaves(self, node: SupportsIndex) -> Ints:
        """Return the sorted leaf indices under a node (0 … 2n−2); a leaf is under itself."""
        node = as_index(node, "node")
        if not 0 <= node <= 2 * self.n_leaves - 2:
            raise InputError(
                f"node must be between 0 and {2 * self.n_leaves - 2} (the root) "
                f"for a tree with {self.n_leaves} leaves, got {node}."
            )
        order, start, size = self._layout
        return np.sort(order[start[node] : start[node] + size[node]])

    def leaf_order(self) -> Ints:
        """Return a drawing order of the leaves, shape (n,), in which every clade is contiguous."""
        return self._layout.order.copy()

    def spans(self) -> tuple[Ints, Ints]:
        """Return where each node's leaves begin in `leaf_order()` and how many they are, both of shape (2n−1,)."""
        return self._layout.start.copy(), self._layout.size.copy()

    # ---- clades and distances

    def clades(self) -> Bools:
        """Return the membership matrix, shape (n−1, n): entry (k, i) says if leaf i is under merge k."""
        n = self.n_leaves
        _, start, size = self._layout
        position, first = start[:n], start[n:, None]
        return (first <= position) & (position < first + size[n:, None])

    def cophenetic(self) -> Floats:
        """Return the time at which each pair of leaves merges, shape (n, n), with a zero diagonal."""
        n = self.n_leaves
        gap_times = np.zeros(n)
        gap_times[self._gaps()] = self.times
        # Row i, column j > i: the latest merge among the gaps i+1 … j, in drawing positions.
        upper = np.triu(np.broadcast_to(gap_times, (n, n)), 1)
        np.maximum.accumulate(upper, axis=1, out=upper)
        upper += upper.T
        position = self._layout.start[:n]
        return upper[np.ix_(position, position)]

    def cut(self, n_clusters: SupportsIndex | None = None, time: float | None = None) -> Ints:
        """Cut the tree into flat clusters, by their number or at a time.

        Parameters
        ----------
        n_clusters : int, optional
            Number of clusters, 1 … n: undoes the last n_clusters − 1 merges.
        time : float, optional
            The clusters that exist at this time: merges with time ≤ `time` are done.

        Returns
        -------
        labels : ndarray of int64, shape (n,)
            Clusters are numbered 0, 1, … in the order in which their first leaf appears.
        """
        n = self.n_leaves
        if (n_clusters is None) == (time is None):
            raise InputError("cut needs exactly one of n_clusters and time: give one, leave out the other.")
        if time is not None:
            n_merged = int(np.searchsorted(self.times, _as_time(time), side="right"))
        else:
            n_merged = n - as_index(n_clusters, "n_clusters")
            if not 0 <= n_merged < n:
                raise InputError(f"n_clusters must be between 1 and {n}, the number of leaves, got {n_clusters}.")
        borders = np.zeros(n, dtype=np.int64)
        borders[self._gaps()[n_merged:]] = 1
        cluster = np.cumsum(borders)[self._layout.start[:n]]
        _, first, inverse = np.unique(cluster, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[inverse]

    @cached_property
    def _layout(self) -> _Layout:
        n, merges = self.n_leaves, self.children.tolist()
        size, start = [1] * (2 * n - 1), [0] * (2 * n - 1)
        for node, (left, right) in enumerate(merges, start=n):
            size[node] = size[left] + size[right]
        for node in range(2 * n - 2, n - 1, -1):
            left, right = merges[node - n]
            start[left] = start[node]
            start[right] = start[node] + size[left]
        starts, sizes = np.array(start, dtype=np.int64), np.array(size, dtype=np.int64)
        return _Layout(np.argsort(starts[:n]), starts, sizes)

    def _gaps(self) -> Ints:
        """Return the position where the right side of each merge starts, shape (n−1,): 1 … n−1, each once."""
        return self._layout.start[self.children[:, 1]]

    # ---- formats

    def to_linkage(self) -> Floats:
        """Return a scipy linkage matrix, shape (n−1, 4); see `coaltree.formats.to_linkage`."""
        from coaltree import formats

        return formats.to_linkage(self)

    @classmethod
    def from_linkage(cls, Z: npt.ArrayLike, names: Iterable[str] | None = None) -> Tree:
        """Make a tree from a scipy linkage matrix; see `coaltree.formats.from_linkage`."""
        from coaltree import formats

        return formats.from_linkage(Z, names=names)

    def to_newick(self, support: npt.ArrayLike | None = None, digits: int | None = None) -> str:
        """Return the tree as Newick text; see `coaltree.formats.to_newick`."""
        from coaltree import formats

        return formats.to_newick(self, support=support, digits=digits)

    @classmethod
    def from_newick(cls, text: str, names: Iterable[str] | None = None, *, tolerance: float = 1e-5) -> Tree:
        """Read a tree from Newick text; see `coaltree.formats.from_newick`."""
        from coaltree import formats

        return formats.from_newick(text, names=names, tolerance=tolerance)

    def to_nexus(self, digits: int | None = None) -> str:
        """Return a Nexus file with this one tree; see `coaltree.formats.to_nexus` for many."""
        from coaltree import formats

        return formats.to_nexus(self, digits=digits)

    @classmethod
    def from_nexus(cls, text: str, tolerance: float = 1e-5) -> Tree:
        """Read the one tree of a Nexus file; see `coaltree.formats.from_nexus` for many."""
        from coaltree import formats

        trees = formats.from_nexus(text, tolerance=tolerance)
        if len(trees) != 1:
            raise InputError(f"The text holds {len(trees)} trees: read it with coaltree.formats.from_nexus.")
        return trees[0]

    # ---- identity

    def __repr__(self) -> str:
        names = ""
        if self.names is not None:
            shown = ", ".join(map(repr, self.names[:3]))
            names = f", names=({shown}{', …' if self.n_leaves > 3 else ''})"
        return f"Tree(n_leaves={self.n_leaves}, root_time={self.times[-1]:.6g}{names})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return (
            self.names == other.names
            and np.array_equal(self.times, other.times)
            and np.array_equal(np.sort(self.children, axis=1), np.sort(other.children, axis=1))
        )

    def __hash__(self) -> int:
        return hash((np.sort(self.children, axis=1).tobytes(), self.times.tobytes(), self.names))

    def __reduce__(self) -> tuple[type[Tree], tuple[Ints, Floats, tuple[str, ...] | None]]:
        # Unpickled arrays are writeable, so copies are made anew and checked and frozen again.
        return Tree, (self.children, self.times, self.names)


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.setflags(write=False)
    return array


def as_array(value: npt.ArrayLike, name: str, kinds: str, wanted: str) -> npt.NDArray[Any]:
    """Copy an argument into an array of one of the dtype kinds, or say what it should have been."""
    try:
        array = np.array(value)
    except ValueError as error:
        raise InputError(f"{name} must be {wanted}, but numpy cannot make an array of it: {error}") from None
    if array.size and array.dtype.kind not in kinds:
        raise InputTypeError(f"{name} must be {wanted}, got dtype {array.dtype}: convert it first.")
    return array


def _check_children(children: npt.ArrayLike) -> Ints:
    array = as_array(children, "children", "iu", "integers of shape (n − 1, 2)")
    if array.ndim != 2 or array.shape[1] != 2 or len(array) == 0:
        raise InputError(
            "children must have shape (n − 1, 2), one row per merge, for n ≥ 2 leaves, "
            f"got shape {array.shape}: give a row [left, right] for each merge."
        )
    array = array.astype(np.int64, order="C")
    n_leaves = len(array) + 1
    node = np.arange(n_leaves, 2 * n_leaves - 1)
    bad = np.flatnonzero(((array < 0) | (array >= node[:, None])).any(axis=1))
    if bad.size:
        k = int(bad[0])
        raise InputError(
            f"children[{k}] = {array[k].tolist()} must hold nodes between 0 and {node[k] - 1}, because with "
            f"{n_leaves} leaves merge {k} is node {node[k]} and joins earlier nodes: order merges by time."
        )
    counts = np.bincount(array.ravel(), minlength=2 * n_leaves - 2)
    if counts.max() > 1:
        repeated, missing = int(np.argmax(counts > 1)), int(np.argmin(counts))
        raise InputError(
            "children must hold every node except the root exactly once, "
            f"but node {repeated} appears {counts[repeated]} times and node {missing} never."
        )
    return array


def _check_times(times: npt.ArrayLike, n_leaves: int) -> Floats:
    array = as_array(times, "times", "iuf", "real numbers of shape (n − 1,)")
    if array.shape != (n_leaves - 1,):
        raise InputError(f"times must have shape ({n_leaves - 1},), one time per row of children, got {array.shape}.")
    checked = array.astype(np.float64) + 0.0  # −0.0 becomes 0.0, so that equal trees have equal bytes
    bad = np.flatnonzero(~(np.isfinite(checked) & (checked >= 0)))
    if bad.size:
        raise InputError(f"times must be finite and ≥ 0, but times[{bad[0]}] = {checked[bad[0]]}.")
    bad = np.flatnonzero(np.diff(checked) < 0)
    if bad.size:
        k = int(bad[0])
        raise InputError(
            f"times must be non-decreasing, but times[{k}] = {checked[k]} > times[{k + 1}] = "
            f"{checked[k + 1]}: order merges by time."
        )
    return checked


def _check_names(names: Iterable[str] | None, n_leaves: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InputTypeError(f"names must be an iterable of {n_leaves} strings, got {type(names).__name__}.")
    given = list(names)
    for i, name in enumerate(given):
        if not isinstance(name, str):
            raise InputTypeError(f"names[{i}] = {name!r} must be a string: use [str(name) for name in names].")
    checked = tuple(map(str, given))
    if len(checked) != n_leaves:
        raise InputError(f"names must hold one name per leaf, {n_leaves} in all, got {len(checked)}.")
    if len(set(checked)) < n_leaves:
        repeated = Counter(checked).most_common(1)[0][0]
        raise InputError(f"names must be unique, but {repeated!r} appears more than once: rename one.")
    return checked


def as_index(value: SupportsIndex | None, name: str) -> int:
    """Check that an argument is an integer."""
    if isinstance(value, (bool, np.bool_)):
        raise InputTypeError(f"{name} must be an integer, got {value!r}.")
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputTypeError(f"{name} must be an integer, got {value!r} ({type(value).__name__}).") from None


def _as_time(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputTypeError(f"time must be a real number, got {value!r} ({type(value).__name__}).")
    if np.isnan(float(value)):
        raise InputError("time must be a number to cut at, got nan.")
    return float(value)
