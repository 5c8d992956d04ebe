r"""The truncated generalised inverse Gaussian of a merge, and the Bessel function behind it.

    I(d, ε, λ, r) = ∫_r^∞ v^(−d/2) exp(−ε/2v − λv/2) dv

is the local evidence of merging a pair at squared distance ε whose accumulated variance is r, up to constants; the
merge time has the normalised integrand as its density in v. The untruncated integral is
2 K_ν(√(λε)) (λ/ε)^(ν/2), ν = d/2 − 1.

All functions broadcast. Computations stay in the log domain and rest on `coaltree.model.gig.quadrature`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import zeta

from coaltree._arrays import Floats
from coaltree._compile import inline, kernel
from coaltree.errors import InputError
from coaltree.model.gig import quadrature
from coaltree.randomness import RandomState, Stream, as_generator, make_streams
from coaltree.validation import check_count, check_numbers


@inline
def mode_in_log(p: float, eps: float, lam: float) -> tuple[float, float]:
    """√(p² + λε) = A + B at the mode in log v, and the mode itself."""
    product = lam * eps
    root = math.sqrt(p * p + product)
    if not 1e-290 < product < 1e290:
        root = math.hypot(p, math.sqrt(lam) * math.sqrt(eps))
    return root, eps / (root - p) if p < 0.0 else (p + root) / lam


@inline
def peak(d: float, eps: float, lam: float, r: float) -> tuple[float, float, float, float, float]:
    """Put the integrand in the normal form of `gig.quadrature`: v*, g, A, B, x_low with v = v* e^x."""
    p = 1.0 - 0.5 * d
    _, v = mode_in_log(p, eps, lam)
    if v > r:
        return v, 0.0, 0.5 * eps / v, 0.5 * lam * v, math.log(r / v)
    a = 0.5 * eps / r
    b = 0.5 * lam * r
    return r, min(p + a - b, 0.0), a, b, 0.0


@inline
def log_local(d: float, eps: float, lam: float, r: float) -> float:
    """log of e^(λr/2) I(d, ε, λ, r); the factor belongs to the model and removes the only large cancellation."""
    v, g, a, b, x_low = peak(d, eps, lam, r)
    if v == 0.0:
        return math.inf
    return (1.0 - 0.5 * d) * math.log(v) - a - 0.5 * lam * (v - r) + quadrature.log_mass(g, a, b, x_low)


@inline
def log_local_laplace(d: float, eps: float, lam: float, r: float) -> float:
    """Laplace's approximation of `log_local`, truncated at r: two logarithms, and an erfc where truncation matters."""
    p = 1.0 - 0.5 * d
    root, v = mode_in_log(p, eps, lam)
    if v > r:
        # At the mode A + B = root. The truncation costs nothing when it is 8 standard deviations away.
        area = math.sqrt(2.0 * math.pi / root)
        if (1.0 - r / v) ** 2 * root < 64.0:
            area *= 0.5 * math.erfc(math.log(r / v) * math.sqrt(0.5 * root))
        return p * math.log(v) - 0.5 * eps / v - 0.5 * lam * (v - r) + math.log(area)
    if r == 0.0:
        return math.inf
    a = 0.5 * eps / r
    b = 0.5 * lam * r
    scale = math.sqrt(2.0 * (a + b))
    area = math.sqrt(math.pi) / scale * scaled_erfc(-min(p + a - b, 0.0) / scale)
    return p * math.log(r) - a + math.log(area)


@inline
def scaled_erfc(x: float) -> float:
    """exp(x²) erfc(x) for x ≥ 0, relative error below 1e-13."""
    if x < 5.0:
        return math.exp(x * x) * math.erfc(x)
    fraction = x
    for k in range(24, 0, -1):
        fraction = x + 0.5 * k / fraction
    return 1.0 / (math.sqrt(math.pi) * fraction)


@inline
def draw_time(d: float, eps: float, lam: float, r: float, stream: Stream) -> tuple[float, float]:
    """Exact draw of v > r, and Δ = (v − r)/2 computed without cancellation."""
    v, g, a, b, x_low = peak(d, eps, lam, r)
    x = quadrature.draw(g, a, b, x_low, stream)
    drawn = v * math.exp(x)
    # v* e^x_low = r, so that near the truncation the difference is r (e^(x − x_low) − 1).
    excess = r * math.expm1(x - x_low) if x - x_low < 1.0 else drawn - r
    return drawn, 0.5 * excess


@inline
def time_at(d: float, eps: float, lam: float, r: float, w: float) -> float:
    """Δ = (v − r)/2 at the quantile w of v > r: `draw_time` by inversion."""
    v, g, a, b, x_low = peak(d, eps, lam, r)
    x = quadrature.quantile_in_log(g, a, b, x_low, w)
    return 0.5 * (r * math.expm1(x - x_low) if x - x_low < 1.0 else v * math.exp(x) - r)


@inline
def log_cdf_bound(d: float, eps: float, lam: float, v: float) -> float:
    """Upper bound of log P(V ≤ v), whatever V is known to exceed; 0 from the mode on.

    Left of the mode of log V the distribution function F is at most exp h, because F over its density rises; and at
    most exp h / (h′ ∫ exp h), because h is concave.
    """
    p = 1.0 - 0.5 * d
    s, mode = mode_in_log(p, eps, lam)
    if v >= mode:
        return 0.0
    a, b = 0.5 * eps / mode, 0.5 * lam * mode
    x = math.log(v / mode)
    height = quadrature.exponent(x, 0.0, a, b)
    # ∫ exp h = √(2π/s) (1 + O(1/s)), and never below 4/5 of that for s ≥ 1 (see the tests).
    if s < 1.0:
        return height
    return height - math.log(max(quadrature.slope_in_log(x, 0.0, a, b) * 2.0 / math.sqrt(s), 1.0))


@inline
def farthest_due(d: float, lam: float, v: float, log_level: float) -> float:
    """An ε beyond which exp h, and with it P(V ≤ v), is at most exp(log_level).

    The fall of h from its mode to v is convex in ε with slope 1/2v − 1/2v*: Newton's method stays above the root.
    """
    if v <= 0.0:
        return 0.0
    p = 1.0 - 0.5 * d
    eps = max(v * (lam * v - 2.0 * p), 0.0) + 1e-3 * v
    above = False
    for _ in range(60):
        _, mode = mode_in_log(p, eps, lam)
        fall = p * math.log(mode / v) - 0.5 * eps * (1.0 / mode - 1.0 / v) - 0.5 * lam * (mode - v)
        if fall < -log_level:
            if above:
                break
            eps *= 2.0
            continue
        above = True
        smaller = eps - (fall + log_level) / (0.5 / v - 0.5 / mode)
        if not smaller < 0.98 * eps:
            break
        eps = smaller
    return eps * (1.0 + 1e-9)


@inline
def mean_untruncated(d: float, eps: float, lam: float) -> float:
    """Mean of v without truncation, √(ε/λ) K_{2−d/2}(z) / K_{1−d/2}(z) with z = √(λε)."""
    v, _, a, b, _ = peak(d, eps, lam, 0.0)
    if a + b < 1.5 * quadrature.EXPANSION_FROM:
        return v * (1.0 + quadrature.moments(0.0, a, b, -math.inf)[0])
    # The ratio I(d − 2)/I(d), both by the expansion, as differences that stay small.
    w, _, a1, b1, _ = peak(d - 2.0, eps, lam, 0.0)
    p = 1.0 - 0.5 * d
    height = p * math.log(w / v) - (a1 - a) - (b1 - b)
    return w * math.exp(height + quadrature.log_expansion(a1, b1) - quadrature.log_expansion(a, b))


@inline
def mean_excess(d: float, eps: float, lam: float, r: float) -> float:
    """Mean of v − r under truncation at r; always positive."""
    v, g, a, b, x_low = peak(d, eps, lam, r)
    return (v - r) + v * quadrature.moments(g, a, b, x_low)[0]


@kernel
def _log_integral(d: Floats, eps: Floats, lam: Floats, r: Floats, out: Floats) -> None:
    for i in range(out.size):
        out[i] = log_local(d[i], eps[i], lam[i], r[i]) - 0.5 * lam[i] * r[i]


@kernel
def _mean_variance(d: Floats, eps: Floats, lam: Floats, r: Floats, out: Floats) -> None:
    for i in range(out.shape[0]):
        v, g, a, b, x_low = peak(d[i], eps[i], lam[i], r[i])
        mean, variance = quadrature.moments(g, a, b, x_low)
        out[i, 0] = v * (1.0 + mean)
        out[i, 1] = v * v * variance


@kernel
def _sample(d: float, eps: float, lam: float, r: float, stream: Stream, out: Floats) -> None:
    for i in range(out.size):
        out[i] = draw_time(d, eps, lam, r, stream)[0]


# Below this z the product λε = z² of the integral could underflow, and the terms omitted below, O(z²), are negligible.
_SMALL_Z = 1e-100
# ζ(2k + 1)/(2k + 1), last to first; the next adds less than 1e-12 to log K for orders up to 0.09.
_ODD_ZETA = np.array([zeta(k) / k for k in (9, 7, 5, 3)])


@inline
def log_bessel_k_at_small(nu: float, z: float) -> float:
    """log K_ν(z) for ν ≥ 0 and z < _SMALL_Z, by the terms of order z^−ν and z^ν, with L = log 2/z.

    ½ Γ(ν) e^(νL) where the second term is negligible; for smaller ν, where it is not, both as

        K_ν = √(πν / sin πν) sinh(δ) / ν,
        δ = νL + ½ log Γ(1 + ν)/Γ(1 − ν) = ν (L − γ − Σ_k ζ(2k + 1) ν^2k / (2k + 1)),

    which does not cancel as ν → 0.
    """
    log_ratio = math.log(2.0) - math.log(z)  # 2/z could overflow
    if nu > 0.09:
        return nu * log_ratio + math.lgamma(nu) - math.log(2.0)
    series = 0.0
    for k in range(_ODD_ZETA.shape[0]):
        series = nu * nu * (series + _ODD_ZETA[k])
    growth = log_ratio - np.euler_gamma - series
    delta = nu * growth
    log_value = math.log(growth)
    if delta > 0.0:
        log_value += math.log(math.sinh(delta) / delta) - 0.5 * math.log(math.sin(math.pi * nu) / (math.pi * nu))
    return log_value


@kernel
def _log_bessel_k(nu: Floats, z: Floats, out: Floats) -> None:
    for i in range(out.size):
        order = abs(nu[i])
        if z[i] < _SMALL_Z:
            out[i] = log_bessel_k_at_small(order, z[i])
        else:
            # K_ν(z) = ½ I(d, ε, λ, 0) at d = 2 + 2ν, ε = λ = z.
            out[i] = log_local(2.0 + 2.0 * order, z[i], z[i], 0.0) - math.log(2.0)


def _broadcast(run: Callable[..., None], columns: Sequence[Floats], width: int | None = None) -> Any:
    shape = columns[0].shape
    flat = [np.array(column).reshape(-1) for column in columns]
    out = np.empty(flat[0].size if width is None else (flat[0].size, width))
    run(*flat, out)
    if width is not None:
        return out.reshape(*shape, width)
    return out.reshape(shape)[()]


# Beyond these the exponents exceed the range of doubles.
_LARGEST, _LARGEST_ORDER, _LARGEST_OF_MOMENTS = 1e300, 1e9, 1e150


def _check(low: Mapping[str, float], **given: Any) -> list[Floats]:
    """Return the arguments as float64 arrays of one shape, all of them above (or at zero: not below) their bound."""
    columns = []
    for name, value in given.items():
        array = check_numbers(value, name)
        highest = _LARGEST_ORDER if name in ("d", "nu") else _LARGEST
        if low[name] == 0.0 and np.any(array < 0):
            raise InputError(f"{name} must be finite and non-negative, got {value!r}.")
        if low[name] > 0.0 and np.any(array < low[name]):
            raise InputError(f"{name} must be finite and positive (at least {low[name]:g}), got {value!r}.")
        if np.any(np.abs(array) > highest):
            raise InputError(f"{name} must be at most {highest:g}, got {value!r}. Rescale the problem.")
        columns.append(array)
    try:
        columns = list(np.broadcast_arrays(*columns))
    except ValueError as error:
        raise InputError(f"{', '.join(given)} must have shapes that broadcast: {error}.") from error
    if "eps" in given:
        eps, lam = columns[1:3]
        with np.errstate(under="ignore"):
            if np.any((eps > 0) & (eps * np.minimum(lam, 1.0) < _SMALLEST_PRODUCT)):
                raise InputError(
                    f"eps must be 0 or at least {_SMALLEST_PRODUCT:g}, eps · lam too. Rescale the problem."
                )
    return columns


_SMALLEST, _SMALLEST_PRODUCT = 1.0 / _LARGEST, 1e-305
_BOUNDS = {"d": 1e-9, "eps": 0.0, "lam": _SMALLEST, "r": 0.0}


def _proper(d: Any, eps: Any, lam: Any, r: Any) -> list[Floats]:
    """Return the checked arguments of a distribution, refusing the divergent integral."""
    columns = _check(_BOUNDS, d=d, eps=eps, lam=lam, r=r)
    if np.any((columns[0] >= 2) & (columns[1] == 0) & (columns[3] == 0)):
        raise InputError("eps = r = 0 with d >= 2 has no proper distribution: give a positive r or eps.")
    if np.any(np.maximum(columns[1], columns[3]) > _LARGEST_OF_MOMENTS):
        raise InputError(f"eps and r must be at most {_LARGEST_OF_MOMENTS:g}: squares overflow. Rescale the problem.")
    return columns


def log_integral(d: npt.ArrayLike, eps: npt.ArrayLike, lam: npt.ArrayLike, r: npt.ArrayLike = 0.0) -> Any:
    """log I(d, ε, λ, r) = log ∫_r^∞ v^(−d/2) exp(−ε/2v − λv/2) dv.

    The relative error of the integral is below 1e-10 wherever the result can express that: a double near 10¹⁰ has an
    ulp of 2e-6, so for |log I| ≫ 1 read it as an error of 1e-10 or 8 ulp of log I, whichever is larger. The integral
    diverges, and the result is +inf, for ε = r = 0 and d ≥ 2.

    Parameters
    ----------
    d, eps, lam, r : array-like
        Dimension d > 0, squared distance ε ≥ 0, rate λ > 0 and accumulated variance r ≥ 0; they are broadcast.

    Returns
    -------
    float or ndarray
    """
    return _broadcast(_log_integral, _check(_BOUNDS, d=d, eps=eps, lam=lam, r=r))


def log_bessel_k(nu: npt.ArrayLike, z: npt.ArrayLike) -> Any:
    """log K_ν(z), modified Bessel function of the second kind, any real order, z from 1e-300 on, without overflow."""
    return _broadcast(_log_bessel_k, _check({"nu": -1.0, "z": _SMALLEST}, nu=nu, z=z))


def mode(d: npt.ArrayLike, eps: npt.ArrayLike, lam: npt.ArrayLike, r: npt.ArrayLike = 0.0) -> Any:
    """Mode of v: (−d/2 + √(d²/4 + λε))/λ, or r if that is larger."""
    d, eps, lam, r = _check(_BOUNDS, d=d, eps=eps, lam=lam, r=r)
    half = 0.5 * d
    return np.maximum(eps / (half + np.sqrt(half**2 + lam * eps)), r)


def mean(d: npt.ArrayLike, eps: npt.ArrayLike, lam: npt.ArrayLike, r: npt.ArrayLike = 0.0) -> Any:
    """Mean of v given v > r."""
    return _broadcast(_mean_variance, _proper(d, eps, lam, r), width=2)[..., 0]


def variance(d: npt.ArrayLike, eps: npt.ArrayLike, lam: npt.ArrayLike, r: npt.ArrayLike = 0.0) -> Any:
    """Variance of v given v > r."""
    return _broadcast(_mean_variance, _proper(d, eps, lam, r), width=2)[..., 1]


def sample(
    d: float,
    eps: float,
    lam: float,
    r: float = 0.0,
    size: int | tuple[int, ...] = 1,
    random_state: RandomState = None,
) -> Floats:
    """Exact independent draws of v from the density ∝ v^(−d/2) exp(−ε/2v − λv/2) on v > r.

    Parameters
    ----------
    d, eps, lam, r : float
        As in `log_integral`.
    size : int or tuple of int
        Shape of the result.
    random_state : int, Generator, …
        Seed.

    Returns
    -------
    ndarray (size)
    """
    columns = _proper(d, eps, lam, r)
    if columns[0].ndim:
        raise InputError(f"d, eps, lam and r must be single numbers, got shape {columns[0].shape}.")
    d, eps, lam, r = (float(column) for column in columns)
    out = np.empty([check_count(each, "size", at_least=0) for each in (size if isinstance(size, tuple) else (size,))])
    stream = make_streams(as_generator(random_state), 1)[0]
    _sample(d, eps, lam, r, stream, out.reshape(-1))
    return out
