r"""Where along one edge a cut-off subtree is attached: the density, its peak, and a proposal close to it.

A subtree with message N(m, s Φ) and birth t_c hangs on the edge above node a at time t. The messages of the rest of the
tree at that point are N(m_a, α Φ) from below and N(u, β Φ) from above, α = s_a + t − t_a, β = s_u + t_u − t, so with
D = α + β (constant along the edge) and ω = α/D the value there has

    mean (1 − ω) m_a + ω u,   variance α (1 − ω),

and the subtree contributes one normal density. Whitened, up to a constant,

    log f(t) = −Λ(t) − (d/2) log v − ε/2v,
    v = s + t − t_c + α(1 − ω),   ε = (1 − ω)|m − m_a|² + ω|m − u|² − ω(1 − ω)|m_a − u|².

Λ comes from the coalescent: the stem of the subtree meets each of the other live lineages at rate 1, so Λ′(t) is their
number. Above the root β = ∞, ω = 0, Λ′ = 1 and f is exactly the truncated GIG of `coaltree.model.gig`. Elsewhere f
has no closed form, and the proposal interpolates log f linearly between knots that are densest around its peak.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Floats
from coaltree._compile import borrowing, inline
from coaltree.model import gig
from coaltree.randomness import Stream, uniform

# Knots on either side of the peak.
N_SIDE = 3
N_KNOTS = 2 * N_SIDE + 1
# The proposal never falls below e^(−DEPTH) of its peak on an edge, so it can always be evaluated where the chain is.
DEPTH = 60.0
TIME, LOG = 0, 1  # rows of knots


class Edge(NamedTuple):
    """One edge as the subtree sees it; α = below + t, β = above − t, and s + t − t_c = offset + t."""

    low: float  # earliest time: the later of the edge's lower end and the subtree's birth
    high: float  # latest time, infinite above the root
    below: float
    above: float
    offset: float
    eps_below: float  # |m − m_a|²
    eps_above: float  # |m − u|²
    eps_span: float  # |m_a − u|²


class Others(NamedTuple):
    """The coalescent's Λ, linear between knots: exact, at the n − 2 merges that stay in place, or approximate."""

    times: Floats  # (K,), sorted
    exposure: Floats  # (K+1,): Λ at time 0 and at each of the times
    rate: Floats  # (K+1,): Λ′ before the first of the times, and after each


def make_others(n_times: int) -> Others:
    """Room for Λ with the given number of knots."""
    return Others(np.zeros(n_times), np.zeros(n_times + 1), np.ones(n_times + 1))


@borrowing
def fill_exposure(others: Others) -> None:
    """Λ(t) = ∫_0^t (n − 1 − number of other merges by then)."""
    before = 0.0
    others.exposure[0] = 0.0
    for k in range(others.times.size):
        others.rate[k] = others.times.size + 1 - k
        others.exposure[k + 1] = others.exposure[k] + others.rate[k] * (others.times[k] - before)
        before = others.times[k]
    others.rate[others.times.size] = 1.0


@borrowing
def n_until(times: Floats, time: float) -> int:
    """How many of the sorted times are ≤ `time`."""
    first = 0
    last = times.size
    while first < last:
        middle = (first + last) // 2
        if times[middle] <= time:
            first = middle + 1
        else:
            last = middle
    return first


@borrowing
def exposure(others: Others, time: float) -> tuple[float, float]:
    """Λ(t) and Λ′(t)."""
    done = n_until(others.times, time)
    rate: float = others.rate[done]
    before = others.times[done - 1] if done > 0 else 0.0
    return others.exposure[done] + rate * (time - before), rate


@borrowing
def blend_distance(share: float, eps_x: float, eps_y: float, eps_span: float) -> float:
    """|z − (1 − ω)x − ωy|² from |z − x|², |z − y|² and |x − y|² (Lance–Williams)."""
    return max((1.0 - share) * eps_x + share * eps_y - share * (1.0 - share) * eps_span, 0.0)


@borrowing
def expectation(edge: Edge, time: float) -> tuple[float, float, float, float]:
    """v, ε and their derivatives in t."""
    span = edge.below + edge.above
    alpha = edge.below + time
    share = alpha / span
    v = edge.offset + time + alpha * (1.0 - share)
    eps = blend_distance(share, edge.eps_below, edge.eps_above, edge.eps_span)
    eps_slope = (edge.eps_above - edge.eps_below - (1.0 - 2.0 * share) * edge.eps_span) / span
    return v, eps, 2.0 * (1.0 - share), eps_slope


@borrowing
def log_edge_likelihood(edge: Edge, d: float, time: float) -> float:
    """Log f(t) without the coalescent's term −Λ(t) and the constant −(d/2) log 2π."""
    if d == 0.0:
        return 0.0
    v, eps, _, _ = expectation(edge, time)
    return -0.5 * (d * math.log(v) + eps / v) if v > 0.0 else -math.inf


@borrowing
def log_edge_density(edge: Edge, others: Others, d: float, time: float) -> float:
    """Log f(t), without the constant −(d/2) log 2π."""
    return log_edge_likelihood(edge, d, time) - exposure(others, time)[0]


@borrowing
def slope_on_edge(edge: Edge, others: Others, d: float, time: float) -> tuple[float, float]:
    """The derivative (log f)′, and the step that Newton's method takes to a zero of v² (log f)′.

    With ε and v′ constant and no prior, v² (log f)′ = (ε − dv) v′/2 is linear in t.
    """
    rate = exposure(others, time)[1]
    if d == 0.0:
        return -rate, -math.inf
    v, eps, v_slope, eps_slope = expectation(edge, time)
    if v <= 0.0:
        return math.inf, math.inf
    span = edge.below + edge.above
    ratio = eps / v
    value = -rate - 0.5 * (v_slope * (d - ratio) + eps_slope) / v
    # v² (log f)′ = −Λ′v² − ½ v′(dv − ε) − ½ ε′v, and v″ = −2/D, ε″ = 2|m_a − u|²/D².
    bend = (d - ratio) / span - edge.eps_span / (span * span) - 0.5 * d * v_slope * v_slope / v
    change = bend - 2.0 * rate * v_slope
    return value, -value * v / change if change < 0.0 else math.inf


@borrowing
def root_excess(edge: Edge) -> tuple[float, float]:
    """ε and r of the truncated GIG that f is above the root."""
    return edge.eps_below, 2.0 * edge.low + edge.offset + edge.below


@borrowing
def find_peak(edge: Edge, others: Others, d: float, tolerance: float) -> tuple[float, float]:
    """The time in [low, high] at which log f peaks (or one of its peaks), and the width of the peak.

    Newton's method in log v, kept inside a shrinking bracket, until a step is below the fraction `tolerance` of
    v/v′ √(1 + d/2), about the width; above the root, the mode of the GIG.
    """
    if edge.high == math.inf:
        eps, r = root_excess(edge)
        v = eps / (0.5 * d + math.sqrt(0.25 * d * d + eps)) if eps > 0.0 else 0.0
        return edge.low + 0.5 * max(v - r, 0.0), 1.0
    low, high = edge.low, edge.high
    tolerance /= math.sqrt(1.0 + 0.5 * d)
    time = high
    value = slope_on_edge(edge, others, d, high)[0]
    if value < 0.0:
        time = low
        value = slope_on_edge(edge, others, d, low)[0]
        if value > 0.0:
            time = 0.5 * (low + high)
            for _ in range(60):
                value, step = slope_on_edge(edge, others, d, time)
                if value > 0.0:
                    low = time
                else:
                    high = time
                before = time
                time += step
                if not low < time < high:
                    time = 0.5 * (low + high)
                v, _, v_slope, _ = expectation(edge, time)
                if abs(time - before) * v_slope <= tolerance * v:
                    break
            value = 0.0
    v, _, v_slope, _ = expectation(edge, time)
    span = edge.below + edge.above
    curvature = value * value
    if v > 0.0:
        curvature += 0.5 * d * (v_slope / v) ** 2 + edge.eps_span / (span * span * v)
    width = 1.0 / math.sqrt(curvature) if curvature > 0.0 else math.inf
    reach = edge.high - edge.low
    return time, min(max(width, 1e-9 * reach), reach)


@borrowing
def spread_knots(edge: Edge, peak: float, width: float, out: Floats) -> None:
    """Times of the proposal's knots, from low to high; out (2, N_KNOTS).

    Their distances from the peak grow geometrically from half a width to the ends of the edge, by no less than 3/2.
    """
    out[TIME, N_SIDE] = peak
    for side in (-1, 1):
        end = edge.high if side > 0 else edge.low
        reach = abs(end - peak)
        distance = min(0.5 * width, reach)
        ratio = max(1.5, (reach / distance) ** (1.0 / (N_SIDE - 1))) if distance > 0.0 else 1.5
        for k in range(1, N_SIDE + 1):
            out[TIME, N_SIDE + side * k] = peak + side * distance if distance < reach and k < N_SIDE else end
            distance *= ratio


@borrowing
def lay_knots(edge: Edge, others: Others, d: float, beta: float, peak: float, width: float, out: Floats) -> None:
    """Knots of the proposal, out (2, N_KNOTS): times from low to high and β log f there."""
    spread_knots(edge, peak, width, out)
    top = beta * log_edge_density(edge, others, d, peak)
    for k in range(N_KNOTS):
        out[LOG, k] = max(beta * log_edge_density(edge, others, d, out[TIME, k]), top - DEPTH)


@borrowing
def _relative_mass(drop: float) -> float:
    """(1 − e^(−x))/x: the mean of e^(−xu) over u in [0, 1]."""
    return -math.expm1(-drop) / drop if drop > 1e-9 else 1.0 - 0.5 * drop


@borrowing
def knot_mass(knots: Floats, segment: int, top: float) -> float:
    """Mass of the interpolated density between two knots, in units of e^top."""
    left, right = knots[LOG, segment], knots[LOG, segment + 1]
    length = knots[TIME, segment + 1] - knots[TIME, segment]
    mass: float = length * math.exp(max(left, right) - top) * _relative_mass(abs(right - left))
    return mass


@borrowing
def highest(knots: Floats) -> float:
    """The largest log density among the knots."""
    top = knots[LOG, 0]
    for k in range(1, N_KNOTS):
        top = max(top, knots[LOG, k])
    return float(top)


@borrowing
def log_knot_mass(knots: Floats) -> float:
    """Log of the total mass of the interpolated density."""
    top = highest(knots)
    total = 0.0
    for segment in range(N_KNOTS - 1):
        total += knot_mass(knots, segment, top)
    return top + math.log(total)


@borrowing
def interpolate(knots: Floats, time: float) -> float:
    """The interpolated log density, not normalised."""
    value: float = knots[LOG, N_KNOTS - 1]
    for segment in range(N_KNOTS - 1):
        left, right = knots[TIME, segment], knots[TIME, segment + 1]
        if time <= right and left < right:
            along = (time - left) / (right - left)
            value = knots[LOG, segment] + along * (knots[LOG, segment + 1] - knots[LOG, segment])
            break
    return value


@borrowing
def draw_from_knots(knots: Floats, stream: Stream) -> float:
    """A draw from the interpolated density."""
    top = highest(knots)
    total = 0.0
    for segment in range(N_KNOTS - 1):
        total += knot_mass(knots, segment, top)
    left_over = uniform(stream) * total
    chosen = 0
    for segment in range(N_KNOTS - 1):
        mass = knot_mass(knots, segment, top)
        if mass > 0.0:
            chosen = segment
            if left_over < mass:
                break
            left_over -= mass
    # Within a segment the density is e^(−drop·u), u measured from its higher end.
    change = knots[LOG, chosen + 1] - knots[LOG, chosen]
    drop = abs(change)
    u = uniform(stream)
    along = -math.log1p(u * math.expm1(-drop)) / drop if drop > 1e-9 else u
    if change > 0.0:
        along = 1.0 - along
    low, high = knots[TIME, chosen], knots[TIME, chosen + 1]
    time: float = min(max(low + along * (high - low), low), high)
    return time


@inline
def log_edge_mass(edge: Edge, others: Others, d: float, beta: float, peak: float, width: float, knots: Floats) -> float:
    """Log ∫ f^β over the edge, as proposed: exact above the root, by knots elsewhere (which are left in `knots`)."""
    if edge.high == math.inf:
        eps, r = root_excess(edge)
        log_prior = -exposure(others, edge.low)[0]
        return beta * log_prior + gig.log_local(beta * d, beta * eps, beta, r) - math.log(2.0)
    lay_knots(edge, others, d, beta, peak, width, knots)
    return log_knot_mass(knots)


@inline
def draw_edge_time(edge: Edge, d: float, beta: float, knots: Floats, stream: Stream) -> float:
    """A time from the proposal on an edge, after `log_mass`."""
    if edge.high == math.inf:
        eps, r = root_excess(edge)
        return edge.low + gig.draw_time(beta * d, beta * eps, beta, r, stream)[1]
    return draw_from_knots(knots, stream)
