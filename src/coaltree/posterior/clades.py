"""Clades across weighted trees: identity, support, credibility, merge times.

A clade is recognised by a 64-bit fingerprint and a 64-bit check: every leaf has two random words, and those of a clade
are the sums of its leaves' words modulo 2⁶⁴ (Zobrist hashing). Fingerprints determine the place in a table; clades with
equal fingerprints are the same only if their checks are equal too, so a collision of fingerprints, which among C clades
has probability C² 2⁻⁶⁵, is detected and resolved. Two different clades are confused only if both words collide: among C
clades with probability below C² 2⁻¹²⁹, which is 10⁻²³ for a thousand trees of a hundred thousand leaves.

Everything here takes O(M n) steps and memory for M trees of n leaves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats, Ints, SmallInts, Words
from coaltree._compile import inline, kernel
from coaltree.errors import InputError
from coaltree.posterior.diagnostics import effective_sizes

# The keys are a hash function, not a sample: they are fixed so that every run numbers clades in the same way.
_KEY_SEED = 0xC0A1
# Sums of weights are exact up to rounding; supports closer than this are equal.
ROUNDING = 1e-10
# Quantities whose draws are processed together, to bound memory.
_AT_ONCE = 1000


class NumberedClades(NamedTuple):
    """The clades of M trees by number, and a table to look clades up."""

    ids: SmallInts  # (M, n−1) the number of every merge's clade, 0 … C−1 in order of first appearance
    words: Words  # (C, 2) fingerprint and check of every clade
    table: SmallInts  # numbers by fingerprint, with linear probing


class HeldTimes(NamedTuple):
    """Merge times of W clades in the trees that have them or near ones, ascending: those of w begin at start[w]."""

    start: Ints  # (W + 1,)
    time: Floats
    weight: Floats


def leaf_keys(n_leaves: int, bits: int = 64) -> Words:
    """Two random words per leaf, (n, 2), the same in every run; only the highest `bits` bits of the first vary."""
    keys = np.random.default_rng(_KEY_SEED).integers(0, 2**64, size=(n_leaves, 2), dtype=np.uint64)
    keys[:, 0] <<= np.uint64(64 - bits)
    return keys


def number_clades(children: npt.ArrayLike, bits: int = 64) -> NumberedClades:
    """Number the clades of M trees, children (M, n−1, 2), over the same leaves; equal clades have equal numbers.

    Fewer than 64 `bits` make fingerprints collide, to show that this does not matter.
    """
    merges = as_merges(children)
    return NumberedClades(*_number(merges[:0], merges, leaf_keys(merges.shape[1] + 1, bits), True))


def clade_ids(children: npt.ArrayLike, bits: int = 64) -> SmallInts:
    """Clade number of every merge of M trees, (M, n−1): see `number_clades`."""
    return number_clades(children, bits).ids


def clades_in(children: npt.ArrayLike, tree: npt.ArrayLike) -> SmallInts:
    """Find the clades of M trees in one: the merge of `tree` (n−1, 2) that makes the same clade, or −1, (M, n−1)."""
    merges, wanted = as_merges(children), as_merges(np.asarray(tree)[None])
    return _number(wanted, merges, leaf_keys(merges.shape[1] + 1), False)[0]


def as_merges(children: npt.ArrayLike) -> Ints:
    """View children as kernels expect them: contiguous and, so that one compiled version serves all, read-only."""
    given = np.asarray(children)
    if given.size >= 2**32:
        raise InputError(f"children hold {given.size // 2} merges: fewer than 2³¹ can be numbered, take fewer trees.")
    merges = np.ascontiguousarray(given, dtype=np.int64).view()
    merges.setflags(write=False)
    return merges


def support_of_clades(ids: SmallInts, weights: Floats) -> Floats:
    """Weighted share of the trees that contain each clade, (C,)."""
    return _sum_weights(ids, weights, int(ids.max()) + 1)


def support_in(found: SmallInts, weights: Floats) -> Floats:
    """Weighted share of the trees that contain each clade of one tree, `found` by `clades_in`, (n−1,)."""
    return _sum_weights(found, weights, found.shape[1])


def worth_of_draws(draws: Floats, weights: Floats, n_chains: int) -> Floats:
    """How many independent draws the M draws (M, B) of B quantities are worth, (B,), by their autocorrelation.

    For `n_chains` chains, one after the other; NaN if there are none (0) and for quantities that do not vary.
    """
    n_trees, n_quantities = draws.shape
    worth = np.full(n_quantities, np.nan)
    if n_chains < 1 or n_trees % n_chains or np.ptp(weights) > ROUNDING:
        return worth
    for first in range(0, n_quantities, _AT_ONCE):
        part = draws[:, first : first + _AT_ONCE]
        worth[first : first + _AT_ONCE] = effective_sizes(part.reshape(n_chains, -1, part.shape[1]))
    return worth


def effective_draws(worth: Floats, weights: Floats) -> Floats:
    """Complete `worth_of_draws`: by the median of the others, or if there is none by the weights alone."""
    if not np.isfinite(worth).any():
        return np.full(len(worth), 1.0 / float(np.sum(weights**2)))
    return np.minimum(np.where(np.isfinite(worth), worth, np.nanmedian(worth)), float(len(weights)))


def monte_carlo_error(mean: Floats, square: Floats, size: Floats) -> Floats:
    """Error of the means of quantities between 0 and 1 with these mean squares, over `size` independent draws, (B,).

    One draw of 0 and one of 1 are added, so that it is not zero where all draws agree. For shares p, of quantities
    0 or 1, this is the standard deviation of Beta(1 + S p, 1 + S (1 − p)), the posterior of a share given S draws.
    """
    middle = (1.0 + size * mean) / (size + 2.0)
    variance = (1.0 + size * square) / (size + 2.0) - middle**2
    return np.sqrt(np.maximum(variance, 0.0) / (size + 3.0))


def support_error(found: SmallInts, weights: Floats, n_chains: int) -> Floats:
    """Monte Carlo error of `support_in(found, weights)`, (n−1,); the root's support is not estimated."""
    share = support_in(found, weights)
    blocks = range(0, found.shape[1], _AT_ONCE)
    worth = [
        worth_of_draws(_in_trees(found, first, min(first + _AT_ONCE, found.shape[1])), weights, n_chains)
        for first in blocks
    ]
    error = monte_carlo_error(share, share, effective_draws(np.concatenate(worth), weights))
    error[-1] = 0.0
    return error


def as_probability(share: Floats) -> Floats:
    """Make sums of all weights exactly one."""
    return np.where(share > 1.0 - ROUNDING, 1.0, share)


def mean_time_of_clades(ids: SmallInts, times: Floats, weights: Floats) -> Floats:
    """Weighted mean merge time of each clade among the trees that contain it, (C,); NaN without support."""
    n_clades = int(ids.max()) + 1
    with np.errstate(invalid="ignore"):
        return _sum_times(ids, weights, times, n_clades) / _sum_weights(ids, weights, n_clades)


def clade_credibility(ids: SmallInts, weights: Floats) -> Floats:
    """log of the product of the clade supports of every tree, (M,); −inf for trees of no weight."""
    with np.errstate(divide="ignore"):
        log_support = np.log(support_of_clades(ids, weights))
    score = np.array([log_support[row].sum() for row in ids])
    return np.where(weights > 0.0, score, -np.inf)


def sort_times(times: Floats, weights: Floats) -> HeldTimes:
    """Gather merge times of W clades in M trees with the weights that they have there, both (M, W); without zeros."""
    order = np.argsort(times, axis=0)
    time, weight = np.take_along_axis(times, order, axis=0).T, np.take_along_axis(weights, order, axis=0).T
    kept = weight > 0.0
    return HeldTimes(np.concatenate([[0], np.cumsum(kept.sum(axis=1))]), time[kept], weight[kept])


def quantiles(held: HeldTimes, shares: npt.ArrayLike) -> Floats:
    """Quantiles of the merge times of each clade, (W, len(shares)); NaN for clades in no tree.

    The quantile q is the earliest time at which the weight of the trees up to it reaches a share q of the clade's.
    """
    return _quantiles(*held, np.asarray(shares, dtype=np.float64))


def raise_to_children(values: Floats, children: Ints) -> Floats:
    """Raise values (n−1, …) of the merges of a tree to the largest value among the clades inside each."""
    raised = values.copy()
    n = len(children) + 1
    for k, pair in enumerate(children.tolist()):
        for child in pair:
            if child >= n:
                raised[k] = np.maximum(raised[k], raised[child - n])
    return raised


# ---- kernels


@inline
def find(table: SmallInts, words: Words, fingerprint: np.uint64, check: np.uint64) -> np.int64:
    """Where the clade with these words is in the table; if absent, the free place it would take."""
    last = np.uint64(len(table) - 1)
    place = np.int64(fingerprint & last)
    while table[place] >= 0:
        number = table[place]
        if words[number, 0] == fingerprint and words[number, 1] == check:
            break
        place = (place + 1) & (len(table) - 1)
    return place


@inline
def _larger(words: Words) -> tuple[SmallInts, Words]:
    """Table and words with room for twice as many clades as there are, no more than half of the table in use."""
    more = np.empty((2 * len(words), 2), dtype=np.uint64)
    table = np.full(2 * len(more), -1, dtype=np.int32)
    for number in range(len(words)):
        more[number, 0], more[number, 1] = words[number, 0], words[number, 1]
        table[find(table, more, more[number, 0], more[number, 1])] = number
    return table, more


@kernel
def _number(known: Ints, children: Ints, keys: Words, insert: bool) -> tuple[SmallInts, Words, SmallInts]:
    """Number the clades of `known` trees and then of `children`; without `insert` the latter's new clades are −1."""
    n_known, n_trees, n_merges = len(known), len(children), children.shape[1]
    n = n_merges + 1
    words = np.empty((1024, 2), dtype=np.uint64)
    table = np.full(2048, -1, dtype=np.int32)
    ids = np.empty((n_trees, n_merges), dtype=np.int32)
    node = np.empty((2 * n - 1, 2), dtype=np.uint64)
    for i in range(n):
        node[i, 0], node[i, 1] = keys[i, 0], keys[i, 1]
    count = 0
    for m in range(-n_known, n_trees):
        tree = known[m + n_known] if m < 0 else children[m]
        for k in range(n_merges):
            left, right = tree[k, 0], tree[k, 1]
            fingerprint, check = node[left, 0] + node[right, 0], node[left, 1] + node[right, 1]
            node[n + k, 0], node[n + k, 1] = fingerprint, check
            number = table[find(table, words, fingerprint, check)]
            if number < 0 and (insert or m < 0):
                if count == len(words):
                    table, words = _larger(words)
                number = count
                table[find(table, words, fingerprint, check)] = number
                words[number, 0], words[number, 1] = fingerprint, check
                count += 1
            if m >= 0:
                ids[m, k] = number
    return ids, words[:count], table


@kernel
def _sum_weights(ids: SmallInts, weights: Floats, n_clades: int) -> Floats:
    total = np.zeros(n_clades)
    for m in range(len(ids)):
        for number in ids[m]:
            if number >= 0:
                total[number] += weights[m]
    return total


@kernel
def _in_trees(ids: SmallInts, first: int, last: int) -> Floats:
    """Whether each tree contains the clades first … last − 1: 0 or 1, (M, last − first)."""
    there = np.zeros((len(ids), last - first))
    for m in range(len(ids)):
        for number in ids[m]:
            if first <= number < last:
                there[m, number - first] = 1.0
    return there


@kernel
def _sum_times(ids: SmallInts, weights: Floats, times: Floats, n_clades: int) -> Floats:
    total = np.zeros(n_clades)
    for m in range(len(ids)):
        for k in range(ids.shape[1]):
            if ids[m, k] >= 0:
                total[ids[m, k]] += weights[m] * times[m, k]
    return total


@kernel
def _quantiles(start: Ints, time: Floats, weight: Floats, shares: Floats) -> Floats:
    result = np.full((len(start) - 1, len(shares)), np.nan)
    for w in range(len(start) - 1):
        if start[w] == start[w + 1]:
            continue
        total = weight[start[w] : start[w + 1]].sum()
        for q in range(len(shares)):
            place, reached = start[w], weight[start[w]]
            while reached < shares[q] * total * (1.0 - ROUNDING) and place + 1 < start[w + 1]:
                place += 1
                reached += weight[place]
            result[w, q] = time[place]
    return result


@kernel
def shortest_intervals(start: Ints, time: Floats, weight: Floats, level: float) -> Floats:
    """Shortest interval between two of the times of each clade with a share `level` of its weight, (W, 2)."""
    result = np.full((len(start) - 1, 2), np.nan)
    for w in range(len(start) - 1):
        needed = (level - 1e-12) * weight[start[w] : start[w + 1]].sum()
        end, held, shortest = start[w], 0.0, np.inf
        for first in range(start[w], start[w + 1]):
            # `end` is the first place after the interval; from late starts there is not enough weight left.
            while held < needed and end < start[w + 1]:
                held += weight[end]
                end += 1
            if held < needed:
                break
            if time[end - 1] - time[first] < shortest:
                shortest = time[end - 1] - time[first]
                result[w, 0], result[w, 1] = time[first], time[end - 1]
            held -= weight[first]
    return result
