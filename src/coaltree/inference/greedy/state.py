"""The arrays of one greedy tree: clusters in slots of a fixed order, what is stored for each row, and the merge step.

A merge leaves a dead slot behind instead of moving another one there: rows keep their owners, and are read
sequentially. When many slots are dead the rest are packed, so that all the packing together costs O(n²).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree._compile import inline

# Slots are packed again when only this share of them is live.
CROWDED = 0.75


class Clusters(NamedTuple):
    """Slots, in a fixed order. A pair (i, j), i > j, is in row i; dead slots have node −1 and bound ∞."""

    eps: Floats  # (P,) squared distances, packed by rows
    offset: Floats  # (n,) a = s − t
    node: Ints  # (n,) node id
    partner: Ints  # (n,) slot of the first pair due in the row, −1 if it is gone
    sure: Ints  # (n,) 1 if the partner is also the closest: then it stays the first at any smaller λ
    closest: Floats  # (n,) smallest ε in the row, or less
    value: Floats  # (n,) v expected at `closest` when `bound` was set
    bound: Floats  # (n,) smallest due time 2t in the row, or less
    fresh: Floats  # (n,) ε between the newest cluster and the rows above it


def singletons(eps: Floats, leaf_noise: Floats) -> Clusters:
    """Every leaf alone; `eps` is taken over, not copied."""
    n = len(leaf_noise)
    return Clusters(
        eps=eps,
        offset=leaf_noise.copy(),
        node=np.arange(n),
        partner=np.full(n, -1),
        sure=np.zeros(n, dtype=np.int64),
        closest=np.empty(n),
        value=np.empty(n),
        bound=np.empty(n),
        fresh=np.empty(n),
    )


@inline
def join(state: Clusters, size: int, i: int, j: int, time: float) -> None:
    """Merge slots i > j at `time` into slot i; j dies. `state.fresh` gets the ε of the rows above i."""
    eps, offset, node = state.eps, state.offset, state.node
    own, other = i * (i - 1) // 2, j * (j - 1) // 2
    var_i, var_j = time + offset[i], time + offset[j]
    weight_i = var_j / (var_i + var_j)
    weight_j = var_i / (var_i + var_j)
    shift = weight_i * weight_j * eps[own + j]
    for q in range(j):
        eps[own + q] = max(weight_i * eps[own + q] + weight_j * eps[other + q] - shift, 0.0)
    pair = j * (j + 1) // 2 + j  # (q, j) is in row q
    for q in range(j + 1, i):
        if node[q] >= 0:
            eps[own + q] = max(weight_i * eps[own + q] + weight_j * eps[pair] - shift, 0.0)
        pair += q
    pair += i
    gap = i - j
    for q in range(i + 1, size):
        if node[q] >= 0:
            e = max(weight_i * eps[pair + gap] + weight_j * eps[pair] - shift, 0.0)
            eps[pair + gap] = e
            state.fresh[q] = e
        pair += q
    offset[i] = var_i * weight_i - time
    state.bound[j] = math.inf
    node[j] = -1


@inline
def pack(state: Clusters, size: int, kept: Ints) -> int:
    """Close the gaps that dead slots left, in order; `kept` (n,) is scratch. Returns how many slots are left."""
    eps = state.eps
    live = 0
    for i in range(size):
        if state.node[i] >= 0:
            kept[live] = i
            live += 1
    to = 0
    for k in range(live):
        row = kept[k] * (kept[k] - 1) // 2
        for q in range(k):
            eps[to] = eps[row + kept[q]]
            to += 1
    back = np.full(size, -1)
    for k in range(live):
        back[kept[k]] = k
    for k in range(live):
        i = kept[k]
        state.offset[k] = state.offset[i]
        state.node[k] = state.node[i]
        state.partner[k] = back[state.partner[i]] if state.partner[i] >= 0 else -1
        state.sure[k] = state.sure[i]
        state.closest[k] = state.closest[i]
        state.value[k] = state.value[i]
        state.bound[k] = state.bound[i]
    return live
