r"""Laplace's form of the local evidence for many pairs at once, in arithmetic that compilers can vectorise.

`gig.log_local_laplace` is one formula with two branches, two logarithms and an error function; here the branches are
selections, and log, exp and erfcx are polynomials, so that four pairs are computed together. Relative errors of the
evidence are below 1e-11.

With u = max(mode, r), A = ε/2u, B = λu/2 and s = A + B, the evidence is u^p exp(−A − λ(u − r)/2) √(2π/s) times

    1 − ½ erfc(y),  y = log(u/r) √(s/2),              if the mode is beyond r,
    ½ erfcx(y),     y = −min(p + A − B, 0)/√(2s),     if it is cut off.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx

from coaltree._arrays import Floats
from coaltree._compile import inline

# erfcx(y) = P((y − C)/(y + C))/(1 + 2y), with a polynomial P of this degree, is right to 2e-12 on y ≥ 0.
_CENTRE, _DEGREE = 3.75, 16


def _fit_erfcx() -> tuple[float, ...]:
    """Coefficients of P, highest first, by interpolation at Chebyshev's points."""
    u = np.cos(np.pi * (np.arange(4 * _DEGREE) + 0.5) / (4 * _DEGREE))
    y = _CENTRE * (1.0 + u) / (1.0 - u)
    chebyshev = np.polynomial.chebyshev.chebfit(u, (1.0 + 2.0 * y) * erfcx(y), _DEGREE)
    return tuple(float(c) for c in np.polynomial.chebyshev.cheb2poly(chebyshev)[::-1])


_C = _fit_erfcx()
_MANTISSA, _ONE, _INTEGER = np.uint64(0x000FFFFFFFFFFFFF), np.uint64(0x3FF0000000000000), np.uint64(0x4330000000000000)
_SHIFT = np.uint64(52)
# Adding this to a double rounds it to an integer, which is then in its low bits.
_ROUND = 1.5 * 2.0**52
# Pairs examined together, to see whether any of their modes is beyond r.
_BLOCK = 16
# ln 2 in two parts, the first with zeros at its end, so that k times it is exact.
_LN2, _LN2_HIGH, _LN2_LOW = math.log(2.0), 0.6931471803691238, 1.9082149292705877e-10


@inline
def fast_log(x: float) -> float:
    """log x for normal x > 0: 2 artanh((m − 1)/(m + 1)) of the mantissa m in [√½, √2]."""
    bits = np.float64(x).view(np.uint64)
    power = np.uint64((bits >> _SHIFT) | _INTEGER).view(np.float64) - (2.0**52 + 1023.0)
    m = np.uint64((bits & _MANTISSA) | _ONE).view(np.float64)
    large = m > math.sqrt(2.0)
    m = 0.5 * m if large else m
    power = power + 1.0 if large else power
    z = (m - 1.0) / (m + 1.0)
    y = z * z
    x = y * y
    even = 1.0 + x * (1.0 / 5.0 + x * (1.0 / 9.0 + x * (1.0 / 13.0 + x * (1.0 / 17.0))))
    odd = 1.0 / 3.0 + x * (1.0 / 7.0 + x * (1.0 / 11.0 + x * (1.0 / 15.0 + x * (1.0 / 19.0))))
    return float(power * _LN2 + 2.0 * z * (even + y * odd))


@inline
def fast_exp(x: float) -> float:
    """exp x for x ≤ 700; below −700 no smaller than there; NaN for NaN."""
    x = -700.0 if x <= -700.0 else x
    rounded = x * (1.0 / _LN2) + _ROUND
    power = rounded - _ROUND
    x = (x - power * _LN2_HIGH) - power * _LN2_LOW
    y = x * x
    even = 1.0 + y * (0.5 + y * (1.0 / 24.0 + y * (1.0 / 720.0 + y * (1.0 / 40320.0 + y * (1.0 / 3628800.0)))))
    odd = 1.0 + y * (1.0 / 6.0 + y * (1.0 / 120.0 + y * (1.0 / 5040.0 + y * (1.0 / 362880.0 + y * (1.0 / 39916800.0)))))
    t = even + x * odd
    # Adding k to the exponent's bits multiplies by 2^k.
    return float(
        np.uint64(np.float64(t).view(np.uint64) + (np.float64(rounded).view(np.uint64) << _SHIFT)).view(np.float64)
    )


@inline
def fast_erfcx(y: float) -> float:
    """exp(y²) erfc(y) for y ≥ 0. Written out, because a loop would keep the caller's from being vectorised."""
    both = 1.0 / ((y + _CENTRE) * (1.0 + 2.0 * y))
    u = (y - _CENTRE) * (1.0 + 2.0 * y) * both
    # Four short polynomials in u⁴ in parallel: one long one would be a chain of dependent steps.
    u2 = u * u
    x = u2 * u2
    t0 = (((_C[0] * x + _C[4]) * x + _C[8]) * x + _C[12]) * x + _C[16]
    t1 = ((_C[3] * x + _C[7]) * x + _C[11]) * x + _C[15]
    t2 = ((_C[2] * x + _C[6]) * x + _C[10]) * x + _C[14]
    t3 = ((_C[1] * x + _C[5]) * x + _C[9]) * x + _C[13]
    return ((t0 + u * t1) + u2 * (t2 + u * t3)) * (y + _CENTRE) * both


@inline
def log_local_laplace_all(d: float, lam: float, eps: Floats, r: Floats, out: Floats) -> None:
    """`gig.log_local_laplace` of pairs at squared distances `eps` (k,), accumulated variances `r` (k,), not both 0."""
    p = 1.0 - 0.5 * d
    for k in range(eps.size):
        e, low = eps[k], r[k]
        root = math.sqrt(p * p + lam * e)
        mode = e / (root - p) if p < 0.0 else (p + root) / lam
        inside = mode > low
        v = mode if inside else low
        a = 0.5 * e / v
        b = 0.5 * lam * v
        half = math.sqrt(0.5 * (a + b))
        fall = b - a - p
        fall = fall if fall > 0.0 else 0.0
        # A ratio beyond 10^290 means no truncation.
        truncated = low > 1e-290 * v
        y = fast_log(v / (low if truncated else v)) * half if inside else 0.5 * fall / half
        y = y if y < 1e100 and truncated else 1e100
        scaled = fast_erfcx(y)
        share = 1.0 - 0.5 * fast_exp(-y * y) * scaled if inside else 0.5 * scaled
        out[k] = p * fast_log(v) - a - 0.5 * lam * (v - low) + fast_log(math.sqrt(math.pi) / half * share)


@inline
def _log_local_late(d: float, lam: float, eps: Floats, r: Floats, out: Floats) -> None:
    """`log_local_laplace_all` where all modes are cut off: the same operations without those of the other case."""
    p = 1.0 - 0.5 * d
    for k in range(eps.size):
        e, v = eps[k], r[k]
        a = 0.5 * e / v
        b = 0.5 * lam * v
        half = math.sqrt(0.5 * (a + b))
        fall = b - a - p
        y = 0.5 * (fall if fall > 0.0 else 0.0) / half
        share = 0.5 * fast_erfcx(y if y < 1e100 else 1e100)
        out[k] = p * fast_log(v) - a + fast_log(math.sqrt(math.pi) / half * share)


@inline
def log_local_laplace_many(d: float, lam: float, eps: Floats, r: Floats, out: Floats) -> None:
    """`log_local_laplace_all` for long arrays: with few dimensions, where most modes are cut off, in half the time."""
    p = 1.0 - 0.5 * d
    for first in range(0, eps.size, _BLOCK):
        stop = min(first + _BLOCK, eps.size)
        # Where the log density still rises at r the mode is beyond.
        inside = 0
        for k in range(first, stop):
            inside += 1 if eps[k] > r[k] * (lam * r[k] - 2.0 * p) else 0
        if inside > 0:
            log_local_laplace_all(d, lam, eps[first:stop], r[first:stop], out[first:stop])
        else:
            _log_local_late(d, lam, eps[first:stop], r[first:stop], out[first:stop])


@inline
def pad(eps: Floats, r: Floats, n: int) -> int:
    """Pad n pairs to a multiple of four, as four take no longer than one; returns that number."""
    stop = (n + 3) // 4 * 4
    for k in range(n, stop):
        eps[k] = r[k] = 1.0
    return stop


@inline
def exponentials(log_values: Floats, top: float, out: Floats) -> None:
    """Put exp(log_values − top), none of which is above top, into `out`; `log_values` may be `out`."""
    for k in range(log_values.size):
        out[k] = fast_exp(log_values[k] - top)
