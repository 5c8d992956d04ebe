r"""One log-concave family behind every merge time.

With v = v* e^x, the truncated generalised inverse Gaussian density of a merge becomes, up to a constant,

    exp h(x),   h(x) = g x − A φ(−x) − B φ(x),   φ(x) = e^x − 1 − x,   x ≥ x_low,

where v* is the mode (then g = 0 and x_low ≤ 0) or, if the mode is cut off, the truncation point (then g < 0 and
x_low = 0). h is concave with h(0) = 0 and everything here — bounds, quadrature, draws — rests on that. Writing the
exponent with φ keeps full precision when A and B are 10¹⁰ and x is 10⁻⁵.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from coaltree._arrays import Floats
from coaltree._compile import inline
from coaltree.model.gig.laplace import fast_exp
from coaltree.randomness import Stream, exponential, uniform

# Integrals ignore what lies below exp(−LEVEL) of the peak: 6e-16.
LEVEL = 32.0
# Gauss–Legendre panels: 40 points resolve a Gaussian out to LEVEL, and e^(−e^x) over 6 units of x, to 1e-13.
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(40)
_PANEL_WIDTH = 6.0
# Tails, which fall at least as fast as an exponential, need fewer.
_TAIL_NODES, _TAIL_WEIGHTS = np.polynomial.legendre.leggauss(16)
_SHORT_NODES, _SHORT_WEIGHTS = np.polynomial.legendre.leggauss(8)
# From this A + B on, the expansion below is exact to 1e-12 and replaces quadrature.
EXPANSION_FROM = 16.0


def _debye_polynomials(n_terms: int) -> np.ndarray:
    """Coefficients of q_k, where Debye's u_k(t) = t^k q_k(t²); shape (n_terms, n_terms), rows padded with 0.

    u_0 = 1, u_{k+1} = ½ t²(1 − t²) u_k′ + ⅛ ∫_0^t (1 − 5s²) u_k ds, in exact arithmetic.
    """
    u: dict[int, Fraction] = {0: Fraction(1)}
    out = np.zeros((n_terms, n_terms))
    for k in range(n_terms):
        for power, coefficient in u.items():
            out[k, (power - k) // 2] = float(coefficient)
        following: dict[int, Fraction] = {}
        for power, c in u.items():
            for shift, factor in (
                (1, Fraction(power, 2) + Fraction(1, 8 * (power + 1))),
                (3, -Fraction(power, 2) - Fraction(5, 8 * (power + 3))),
            ):
                following[power + shift] = following.get(power + shift, Fraction(0)) + c * factor
        u = following
    return out


# Ratios of successive terms in the series of (cosh x − 1)/(x²/2) and (sinh x − x)/(x³/6), last to first.
_N_SERIES = 7
_EVEN = 1.0 / np.array([(2 * k + 1) * (2 * k + 2) for k in range(_N_SERIES, 0, -1)], dtype=float)
_ODD = 1.0 / np.array([(2 * k + 2) * (2 * k + 3) for k in range(_N_SERIES, 0, -1)], dtype=float)

_N_DEBYE = 15
_DEBYE = _debye_polynomials(_N_DEBYE)


@inline
def _series(y: float) -> tuple[float, float]:
    """(cosh x − 1)/(x²/2) and (sinh x − x)/(x³/6) at y = x², for |x| up to about 0.6."""
    even = 1.0
    odd = 1.0
    for k in range(_N_SERIES):
        even = 1.0 + y * _EVEN[k] * even
        odd = 1.0 + y * _ODD[k] * odd
    return even, odd


@inline
def exponent(x: float, g: float, a: float, b: float) -> float:
    """h(x) = g x − A φ(−x) − B φ(x).

    Near 0 by the series of φ's even and odd parts, cosh x − 1 and sinh x − x: no cancellation, no exponential.
    """
    if abs(x) > 0.6:
        e = math.exp(x)
        return g * x - a * (1.0 / e - 1.0 + x) - b * (e - 1.0 - x)
    even, odd = _series(x * x)
    return x * (g - x * (0.5 * (a + b) * even + (b - a) * x / 6.0 * odd))


@inline
def slope_in_log(x: float, g: float, a: float, b: float) -> float:
    """h′(x)."""
    return g + a * math.expm1(-x) - b * math.expm1(x)


@inline
def _reach_bound(g: float, a: float, b: float, level: float) -> float:
    """Upper bound on the distance to the right at which h has fallen by `level`: the best of what each term gives."""
    x = math.inf
    if b > 0.0:
        y = level / b
        x = math.log1p(y + math.sqrt(2.0 * y))
    if a > 0.0:
        y = level / a
        x = min(x, 0.5 * y + math.sqrt(0.25 * y * y + 2.0 * y))
    if g < 0.0:
        x = min(x, -level / g)
    return x


@inline
def reach(g: float, a: float, b: float, level: float) -> float:
    """Distance to the right at which h has fallen by at least `level`, and not much more.

    Newton's method on a concave function approaches the root from outside, so stopping early only makes the answer a
    little large. The left side is reach(0, b, a, ·).
    """
    x = _reach_bound(g, a, b, level)
    for _ in range(4):
        excess = exponent(x, g, a, b) + level
        if excess > -0.05 * level:
            break
        x -= excess / slope_in_log(x, g, a, b)
    return x


@inline
def beyond_reach(x_low: float, a: float, b: float) -> bool:
    """Whether truncation at x_low < 0 is certain to cut off less than exp(−LEVEL) of the peak (cheap, sufficient)."""
    return -x_low > _reach_bound(0.0, b, a, LEVEL)


@inline
def log_expansion(a: float, b: float) -> float:
    """log ∫ exp h over the whole line for g = 0 and large A + B, by Debye's uniform expansion of K_ν.

    ∫ exp h = √(2π/s) Σ_k (−1)^k q_k(t²) / s^k with s = A + B, t = (A − B)/s; the first term is Laplace's.
    """
    s = a + b
    t = (a - b) / s
    t2 = t * t
    total = 0.0
    # Fewer terms do for larger s: 15 at s = 16, 7 at s = 100 reach 1e-12.
    for k in range(min(_N_DEBYE - 1, int(5.0 + 150.0 / s)), -1, -1):
        q = 0.0
        for j in range(k, -1, -1):
            q = q * t2 + _DEBYE[k, j]
        total = q - total / s
    return 0.5 * math.log(2.0 * math.pi / s) + math.log(total)


@inline
def limits(g: float, a: float, b: float, x_low: float) -> tuple[float, float]:
    """Interval outside of which exp h is negligible."""
    left = x_low
    if x_low < 0.0:
        left = max(x_low, -reach(0.0, b, a, LEVEL))
    return left, reach(g, a, b, LEVEL)


@inline
def weigh_panel(centre: float, half: float, g: float, a: float, b: float, weights: Floats, growths: Floats) -> None:
    """At the nodes of a panel: exp h times the node's weight, and e^x − 1; in arithmetic that compilers can vectorise.

    h is that of `exponent`, φ(±x) = e^(±x) − 1 ∓ x by the series near 0 and by exponentials elsewhere.
    """
    for node in range(_NODES.shape[0]):
        x = centre + half * _NODES[node]
        y = x * x
        even, odd = _series(y)
        e = fast_exp(x)
        near = abs(x) <= 0.6
        up = y * (0.5 * even + x / 6.0 * odd) if near else e - 1.0 - x
        down = y * (0.5 * even - x / 6.0 * odd) if near else 1.0 / e - 1.0 + x
        weights[node] = _NODE_WEIGHTS[node] * fast_exp(g * x - a * down - b * up)
        growths[node] = x + up


@inline
def log_mass(g: float, a: float, b: float, x_low: float) -> float:
    """log ∫_{x_low}^∞ exp h(x) dx."""
    if g == 0.0 and a + b >= EXPANSION_FROM and beyond_reach(x_low, a, b):
        return log_expansion(a, b)
    left, right = limits(g, a, b, x_low)
    n_panels = max(1, math.ceil((right - left) / _PANEL_WIDTH))
    half = 0.5 * (right - left) / n_panels
    weights, growths = np.empty(_NODES.shape[0]), np.empty(_NODES.shape[0])
    mass = 0.0
    for panel in range(n_panels):
        weigh_panel(left + (2 * panel + 1) * half, half, g, a, b, weights, growths)
        for node in range(weights.size):
            mass += weights[node]
    return math.log(mass * half)


@inline
def moments(g: float, a: float, b: float, x_low: float) -> tuple[float, float]:
    """Mean and variance of e^x − 1 under exp h on x ≥ x_low."""
    left, right = limits(g, a, b, x_low)
    n_panels = max(1, math.ceil((right - left) / _PANEL_WIDTH))
    half = 0.5 * (right - left) / n_panels
    weights, growths = np.empty(_NODES.shape[0]), np.empty(_NODES.shape[0])
    mass = 0.0
    first = 0.0
    second = 0.0
    for panel in range(n_panels):
        weigh_panel(left + (2 * panel + 1) * half, half, g, a, b, weights, growths)
        for node in range(weights.size):
            mass += weights[node]
            first += weights[node] * growths[node]
            second += weights[node] * growths[node] * growths[node]
    mean = first / mass
    return mean, max(second / mass - mean * mean, 0.0)


@inline
def draw(g: float, a: float, b: float, x_low: float, stream: Stream) -> float:
    """Exact draw from exp h on x ≥ x_low: rejection under tangents at 0 and where h ≈ −1 on either side.

    A tangent of a concave function lies above it, so the draw is exact wherever the tangents touch; the choice
    of points only decides how often a proposal is rejected (about one in four).
    """
    x_right = reach(g, a, b, 1.0)
    h_right = exponent(x_right, g, a, b)
    slope_right = slope_in_log(x_right, g, a, b)
    # Where the middle tangent g·x meets the right one; for a nearly straight h the middle one suffices.
    bend = g - slope_right
    edge_right = (h_right - slope_right * x_right) / bend if bend > -1e-9 * slope_right else math.inf

    edge_left = x_low
    slope_left = 0.0
    if x_low < 0.0:
        x_left = -reach(0.0, b, a, 1.0)
        slope_left = slope_in_log(x_left, 0.0, a, b)
        edge_left = max(x_low, x_left - exponent(x_left, 0.0, a, b) / slope_left)

    mass_left = -math.expm1(slope_left * (x_low - edge_left)) / slope_left if edge_left > x_low else 0.0
    mass_middle = edge_right - edge_left if g == 0.0 else math.expm1(g * edge_right) / g
    height_right = math.exp(g * edge_right) if edge_right < math.inf else 0.0
    mass_right = -height_right / slope_right
    total = mass_left + mass_middle + mass_right

    while True:
        u = uniform(stream) * total
        if u < mass_left:
            # The left tangent passes through 0 at edge_left; invert its truncated exponential.
            x = edge_left + math.log1p(-u * slope_left) / slope_left
            x = max(x, x_low)
            envelope = slope_left * (x - edge_left)
        elif u < mass_left + mass_middle:
            u -= mass_left
            x = edge_left + u if g == 0.0 else math.log1p(g * u) / g
            envelope = g * x
        else:
            excess = exponential(stream)
            x = edge_right - excess / slope_right
            envelope = g * edge_right - excess
        # Written so that NaN is accepted, and seen by the caller, instead of causing an endless loop.
        if not exponential(stream) < envelope - exponent(x, g, a, b):
            return x


@inline
def lower_tail(x: float, a: float, b: float, level: float) -> float:
    """∫ exp h over (−∞, x] for g = 0 and x < 0, up to exp(−level) of itself.

    To the left of x, h falls at least as fast as its tangent there.
    """
    half = 0.5 * level / slope_in_log(x, 0.0, a, b)
    mass = 0.0
    if level < 10.0:
        for node in range(_SHORT_NODES.shape[0]):
            mass += _SHORT_WEIGHTS[node] * math.exp(exponent(x - half + half * _SHORT_NODES[node], 0.0, a, b))
    else:
        for node in range(_TAIL_NODES.shape[0]):
            mass += _TAIL_WEIGHTS[node] * math.exp(exponent(x - half + half * _TAIL_NODES[node], 0.0, a, b))
    return mass * half


@inline
def _log_part(x: float, g: float, a: float, b: float, x_low: float, lower: bool) -> float:
    """log ∫ exp h over [x_low, x], or over [x, ∞) if not `lower`; to the LEVEL below its largest value."""
    height = exponent(x, g, a, b)
    if lower:
        right = x if x < 0.0 or g < 0.0 else min(x, reach(g, a, b, LEVEL))
        left = x_low if g < 0.0 else max(x_low, -reach(0.0, b, a, LEVEL - (height if x < 0.0 else 0.0)))
    else:
        left = x if x > 0.0 else max(x, -reach(0.0, b, a, LEVEL))
        right = reach(g, a, b, LEVEL - (height if x > 0.0 else 0.0))
    n_panels = max(1, math.ceil((right - left) / _PANEL_WIDTH))
    half = 0.5 * (right - left) / n_panels
    # Relative to its largest value on the interval; otherwise a far tail would underflow.
    top = height if (x < 0.0) == lower else 0.0
    mass = 0.0
    for panel in range(n_panels):
        centre = left + (2 * panel + 1) * half
        for node in range(_NODES.shape[0]):
            mass += _NODE_WEIGHTS[node] * math.exp(exponent(centre + half * _NODES[node], g, a, b) - top)
    return top + math.log(mass * half)


@inline
def _share(x: float, step: float, g: float, a: float, b: float, log_part: float) -> float:
    """∫ exp(h − log_part) from x to x + step, signed, over a step in which h changes little."""
    half = 0.5 * step
    mass = 0.0
    for node in range(_SHORT_NODES.shape[0]):
        mass += _SHORT_WEIGHTS[node] * math.exp(exponent(x + half + half * _SHORT_NODES[node], g, a, b) - log_part)
    return mass * half


@inline
def _normal_quantile(log_w: float) -> float:
    """x with log Φ(x) = log_w ≤ log ½, to 5e-4: Hastings' formula, Abramowitz & Stegun 26.2.23."""
    t = math.sqrt(-2.0 * log_w)
    above = 2.515517 + t * (0.802853 + t * 0.010328)
    return above / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t


@inline
def quantile_in_log(g: float, a: float, b: float, x_low: float, w: float) -> float:
    """x below which the share w in (0, 1) of exp h on x ≥ x_low lies.

    The log of either tail is concave, so Newton's method approaches the root from outside after the first step at the
    latest. It starts from the normal quantile, corrected for skewness, or where truncation matters from a point that is
    certain to lie outside, because a tail is at most exp h of its edge, and exp h at most 1; it never goes beyond that.
    After the first evaluation the tail is known except for what lies between two steps.
    """
    log_total = log_mass(g, a, b, x_low)
    lower = w < 0.5
    log_share = math.log(w) if lower else math.log1p(-w)
    target = log_share + log_total
    s = a + b
    if lower:
        outside = x_low + w * math.exp(log_total)
        if g == 0.0:
            outside = max(outside, -reach(0.0, b, a, -log_share))
    else:
        outside = reach(g, a, b, -log_share)
    x = outside
    if g == 0.0 and s > 1.0 and beyond_reach(x_low, a, b):
        z = _normal_quantile(log_share)
        if not lower:
            z = -z
        x = (z + (a - b) / (s * math.sqrt(s)) * (z * z + 2.0) / 6.0) / math.sqrt(s)
        x = max(x, outside) if lower else min(x, outside)
    log_part = _log_part(x, g, a, b, x_low, lower)
    for _ in range(60):
        missing = target - log_part
        step = missing * math.exp(log_part - exponent(x, g, a, b))
        if not lower:
            step = -step
        following = max(x + step, outside) if lower else min(x + step, outside)
        step = following - x
        # A step from 1e-7 away leaves 1e-14.
        if not abs(missing) > 1e-7 or step == 0.0:
            x = following
            break
        if abs(missing) < 0.5:
            share = _share(x, step, g, a, b, log_part)
            log_part += math.log1p(share if lower else -share)
        else:
            log_part = _log_part(following, g, a, b, x_low, lower)
        x = following
    return max(x, x_low)
