r"""What a search in a large tree knows of it beforehand, in O(n): a clock, and what is under each node.

The clock is Λ, linear between knots and never farther than CLOCK from it: at 100 000 leaves a thousand knots instead of
as many as leaves, which stay in the fastest memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats
from coaltree._compile import kernel
from coaltree.inference.attachment import Others
from coaltree.posterior.places import Sites, add_logs

# How far the clock may be from Λ.
CLOCK = 1e-5


class Clades(NamedTuple):
    """What is under each node."""

    radius: Floats  # (2n−1,): no row under it is farther from its mean
    log_prior: Floats  # (2n−1,): bound on log Σ ∫ exp(−Λ) of all edges under it
    most_noise: Floats  # (1,): the largest leaf noise


@kernel
def draw_clock(exact: Others, tolerance: float, out: Others) -> int:
    """Knots of a clock, from the exact Λ into `out` of the same size; returns their number.

    Λ is concave, so on a piece of length T along which its slope falls by J it is at most J T/4 above the chord.
    """
    size, begun, n_knots = exact.times.size, -1, 0
    out.exposure[0] = 0.0
    start = 0.0
    for k in range(size):
        # The piece from knot `begun` to merge k; the next would have one kink more inside.
        last = k == size - 1
        if not last:
            fall = exact.rate[begun + 1] - exact.rate[k + 1]
            last = fall * (exact.times[k + 1] - start) > 4.0 * tolerance
        if last:
            length = exact.times[k] - start
            gained = exact.exposure[k + 1] - out.exposure[n_knots]
            out.rate[n_knots] = gained / length if length > 0.0 else exact.rate[k]
            out.times[n_knots] = exact.times[k]
            out.exposure[n_knots + 1] = exact.exposure[k + 1]
            n_knots += 1
            begun, start = k, exact.times[k]
    out.rate[n_knots] = 1.0
    return n_knots


def make_clock(exact: Others, tolerance: float = CLOCK) -> Others:
    """Draw a clock that is nowhere farther than this from Λ."""
    size = exact.times.size
    room = Others(np.empty(size), np.empty(size + 1), np.empty(size + 1))
    n_knots = draw_clock(exact, tolerance, room)
    return Others(room.times[:n_knots].copy(), room.exposure[: n_knots + 1].copy(), room.rate[: n_knots + 1].copy())


@kernel
def measure_clades(sites: Sites, out: Clades) -> None:
    """Radius of every clade, by the triangle inequality along the tree, and what the prior says of it."""
    n = len(sites.children) + 1
    for leaf in range(n):
        out.radius[leaf], out.log_prior[leaf] = 0.0, -math.inf
        out.most_noise[0] = max(out.most_noise[0], sites.below[leaf])
    for node in range(n, 2 * n - 1):
        left, right = sites.children[node - n]
        gap, share = math.sqrt(sites.gap_below[node]), sites.share_below[node]
        out.radius[node] = max(share * gap + out.radius[left], (1.0 - share) * gap + out.radius[right])
        total = -math.inf
        for child in (left, right):
            for log_mass in (out.log_prior[child], sites.log_prior[child]):
                if log_mass > -math.inf:
                    total = add_logs(log_mass, total)
        out.log_prior[node] = total


def make_clades(sites: Sites) -> Clades:
    """Measure what is under each node."""
    clades = Clades(np.empty(len(sites.parent)), np.empty(len(sites.parent)), np.zeros(1))
    measure_clades(sites, clades)
    return clades
