"""log I(d, ε, λ, r) with the exponent in 40 digits, and log K_ν(z) in 80, by mpmath."""

from __future__ import annotations

import mpmath as mp
import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(30)
N_PANELS = 24


def log_integral(d, eps, lam, r):
    with mp.workdps(40):
        d, eps, lam, r = (mp.mpf(float(x)) for x in (d, eps, lam, r))
        p = 1 - d / 2
        root = mp.sqrt(p * p + lam * eps)
        mode = eps / (root - p) if p < 0 else (p + root) / lam
        peak = mp.log(max(mode, r))

        def h(u):
            e = mp.exp(u)
            return p * u - eps / 2 / e - lam / 2 * e

        top = h(peak)

        def edge(sign):
            """Where h has fallen by 45, found by doubling and bisection."""
            curvature = eps / 2 * mp.exp(-peak) + lam / 2 * mp.exp(peak)
            near, far = mp.mpf(0), 1 / (1 + mp.sqrt(curvature) + curvature)
            while h(peak + sign * far) - top > -45:
                near, far = far, 2 * far
            for _ in range(6):
                middle = (near + far) / 2
                near, far = (middle, far) if h(peak + sign * middle) - top > -45 else (near, middle)
            return peak + sign * far

        high = edge(1)
        low = mp.log(r) if mode <= r else max(edge(-1), mp.log(r) if r > 0 else -mp.inf)
        n_panels = max(N_PANELS, int(high - low))
        half = (high - low) / (2 * n_panels)
        total = 0.0
        for panel in range(n_panels):
            centre = low + (2 * panel + 1) * half
            for x, weight in zip(NODES, WEIGHTS, strict=True):
                total += weight * float(mp.exp(h(centre + half * mp.mpf(float(x))) - top))
        return top + mp.log(total * half)


def log_bessel_k(nu, z):
    """80 digits, because mpmath's two terms cancel as ν → 0."""
    with mp.workdps(80):
        return mp.log(mp.besselk(mp.mpf(float(nu)), mp.mpf(float(z))))
