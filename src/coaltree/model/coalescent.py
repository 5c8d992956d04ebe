"""Kingman's coalescent: every pair of live clusters merges at rate 1."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from coaltree._arrays import Floats
from coaltree.randomness import RandomState, as_generator
from coaltree.tree import Tree
from coaltree.validation import check_count


def merge_rates(n: int) -> Floats:
    """λ_k = (n − k + 1)(n − k)/2 for k = 1 … n − 1: the number of pairs that could merge at stage k."""
    live = np.arange(n, 1, -1, dtype=np.float64)
    return 0.5 * live * (live - 1.0)


def log_prior(tree: Tree) -> float:
    """log p(t, π) = −Σ_k λ_k Δ_k, a density over times and an enumeration of labelled merge histories.

    Parameters
    ----------
    tree : Tree
        Its merge times have the waits Δ_k between them.

    Returns
    -------
    float
    """
    gaps = np.diff(tree.times, prepend=0.0)
    return -float(merge_rates(tree.n_leaves) @ gaps)


def sample_tree(n: int, random_state: RandomState = None, *, names: Iterable[str] | None = None) -> Tree:
    """Draw a tree with `n` leaves from the coalescent.

    Parameters
    ----------
    n : int
        Number of leaves, at least 2.
    random_state : int, Generator, …
        Seed.
    names : iterable of str, optional
        One distinct name per leaf.

    Returns
    -------
    Tree
    """
    n = check_count(n, "n", at_least=2)
    rng = as_generator(random_state)
    times = np.cumsum(rng.exponential(1.0 / merge_rates(n)))
    children = np.empty((n - 1, 2), dtype=np.int64)
    live = np.arange(n)
    for k in range(n - 1):
        # Two distinct live clusters, uniformly; the merged one takes the first's place, the last fills the gap.
        last = n - k - 1
        i, j = rng.integers(last + 1), rng.integers(last)
        j += j >= i
        children[k] = sorted((live[i], live[j]))
        live[i] = n + k
        live[j] = live[last]
    return Tree(children, times, names)
