r"""Gaussian messages along a tree: the one rule by which two are combined, and passes up and down.

A message N(m, s Φ) is what some leaves say about a point of the tree; along a branch of length b it becomes
N(m, (s + b) Φ). Where N(x, α Φ) and N(y, β Φ) meet, with v = α + β and ω = α/v, they are together

    N((1 − ω) x + ω y, α (1 − ω) Φ),   and   x − y ~ N(0, v Φ).

A variance may be infinite: such a message says nothing. Variances are the same in all columns of a table, or each
column has its own: (2n−1, 1) or (2n−1, d).
"""

from __future__ import annotations

import math

from coaltree._arrays import Floats, Ints
from coaltree._compile import borrowing, kernel


@borrowing
def meet(var_x: float, var_y: float) -> tuple[float, float, float]:
    """v, the share ω of y's mean, and the variance of two messages that meet."""
    if var_x == math.inf:
        return math.inf, 1.0, var_y
    v = var_x + var_y
    # Two points that are known exactly: any share does.
    share = var_x / v if v > 0.0 else 0.5
    return v, share, var_x * (1.0 - share)


@borrowing
def meet_by_weight(var_x: float, var_y: float) -> tuple[float, float, float]:
    """As `meet`, with x's weight 1 − ω: whole passes round this way, and the same seed must give the same bytes."""
    if var_x == math.inf:
        return math.inf, 0.0, var_y
    if var_y == math.inf:
        return math.inf, 1.0, var_x
    v = var_x + var_y
    weight = var_y / v if v > 0.0 else 0.5
    return v, weight, var_x * weight


@borrowing
def blend(x: Floats, i: int, y: Floats, j: int, share: float, out: Floats, k: int) -> None:
    """Row k of `out` = (1 − share) x_i + share y_j."""
    for column in range(x.shape[1]):
        out[k, column] = x[i, column] + share * (y[j, column] - x[i, column])


@borrowing
def squared_distance(x: Floats, i: int, y: Floats, j: int) -> float:
    """|x_i − y_j|² of two rows, by four independent partial sums."""
    sum_0 = sum_1 = sum_2 = sum_3 = 0.0
    whole = x.shape[1] - x.shape[1] % 4
    for k in range(0, whole, 4):
        gap_0 = x[i, k] - y[j, k]
        gap_1 = x[i, k + 1] - y[j, k + 1]
        gap_2 = x[i, k + 2] - y[j, k + 2]
        gap_3 = x[i, k + 3] - y[j, k + 3]
        sum_0 += gap_0 * gap_0
        sum_1 += gap_1 * gap_1
        sum_2 += gap_2 * gap_2
        sum_3 += gap_3 * gap_3
    for k in range(whole, x.shape[1]):
        gap_0 = x[i, k] - y[j, k]
        sum_0 += gap_0 * gap_0
    return (sum_0 + sum_1) + (sum_2 + sum_3)


@kernel
def pass_messages_up(children: Ints, times: Floats, mean: Floats, variance: Floats, merge_variance: Floats) -> None:
    """Messages of all merges, in time order, from those of the leaves, which are already filled in; v as well."""
    n, n_own = times.size + 1, variance.shape[1]
    for k in range(times.size):
        i, j = children[k]
        born_i, born_j = (times[i - n] if i >= n else 0.0), (times[j - n] if j >= n else 0.0)
        for own in range(n_own):
            if n_own == 1:  # two orders of adding up, for the same bytes as ever
                var_i, var_j = variance[i, own] + times[k] - born_i, variance[j, own] + times[k] - born_j
            else:
                var_i, var_j = variance[i, own] + (times[k] - born_i), variance[j, own] + (times[k] - born_j)
            v, weight, var = meet_by_weight(var_i, var_j)
            merge_variance[k, own], variance[n + k, own] = v, var
            for column in range(mean.shape[1]) if n_own == 1 else range(own, own + 1):
                mean[n + k, column] = weight * mean[i, column] + (1.0 - weight) * mean[j, column]


@kernel
def pass_down(
    parents: Ints, times: Floats, mean: Floats, variance: Floats, out_variance: Floats, out_nodes: Floats
) -> None:
    """From messages to variances of the nodes given all leaves, like `variance`, and values, (size, 2n−1, d).

    `out_nodes` has N(0, Φ) noise to begin with, for joint draws, or zeros, for means. Given its parent a node is
    N(m + ω (z_parent − m), ω · branch · Φ), where ω is the weight of its parent: 1 where the leaves below say nothing.
    """
    root, d, n_own = parents.size - 1, mean.shape[1], variance.shape[1]
    for node in range(root, -1, -1):
        parent = parents[node]
        branch = max(times[parent] - times[node], 0.0) if node < root else 0.0
        for own in range(n_own):
            var = variance[node, own]
            share = var / (var + branch) if branch > 0.0 and var < math.inf else 1.0
            spread = share * branch
            if node == root:
                share, spread = 0.0, var
            out_variance[node, own] = spread + share * share * (out_variance[parent, own] if node < root else 0.0)
            spread = math.sqrt(spread)
            for column in range(d) if n_own == 1 else range(own, own + 1):
                m = mean[node, column]
                for k in range(out_nodes.shape[0]):
                    centre = m + share * (out_nodes[k, parent, column] - m) if node < root else m
                    out_nodes[k, node, column] = centre + spread * out_nodes[k, node, column]
