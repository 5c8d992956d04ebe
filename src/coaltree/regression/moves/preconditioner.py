r"""Coordinates in which the posterior of all coefficients is nearly a standard normal, at the price of K × K matrices.

With w_j the mean curvature of outcome j's likelihood at a pilot point, Λ the widths of features and A the prior
precision between outcomes (`prior.outcome_precision`), the precision of (β_1 … β_P) is about

    M = diag(w) ⊗ G + A ⊗ Λ⁻²,

the second part exactly. G = Σ_i c_i x_i x_iᵀ, centred, with c_i the curvature of row i relative to w_j, the mean over
outcomes: rows whose labels are all but certain, as those of a rare feature with a strong effect, say little. With few
features c_i = 1.

After β ↦ diag(w)^½ β Λ⁻¹ the first part is I ⊗ ΛGΛ and the second diag(w)^−½ A diag(w)^−½ ⊗ I, so the eigenvectors U
of the first and E of the second make M diagonal: d_k + a_p, sums of an eigenvalue of each. To keep M positive definite,
d_k is truncated at zero, and a_p at a trillionth of the largest.

G is taken block by block, at most LARGEST_BLOCK features each: with B blocks the largest eigenvalue of M relative to
its block diagonal is at most B, so a trajectory needs at most √B times as many steps. An intercept is shifted by the
weighted mean of the features at the pilot, μ′_j = μ_j + c_j β_j, which removes most of its correlation with the
coefficients.

A frame need not be exact, only independent of the coefficients that are drawn in it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from coaltree._arrays import Bools, Floats
from coaltree.regression.likelihood import Likelihood

LARGEST_BLOCK = 400
# Up to this many features all rows count alike. There the rarest outcome of 21 had three effective draws a second with
# c_i, and six without: its curvature lies in few rows, which are not those of the others.
FEW_FEATURES = 32
# Smallest eigenvalue of the prior between outcomes, over the largest.
SMALLEST = 1e-12


class WidePilot(NamedTuple):
    """The likelihood around a point, as the frame uses it."""

    theta: Floats  # (P, K+1)
    weights: Floats  # (P,), w
    shear: Floats  # (P, K), c
    intercepts: Floats  # (P,), curvature along each intercept
    linear: Floats  # (P, K+1), curvature times θ plus the gradient, in sheared coordinates
    grams: list[tuple[slice, Floats]]  # G, block by block

    def faint(self, n_rows: float) -> Bools:
        """Features about whose effects the labels say little: less than their own variance, (K,)."""
        return np.asarray(n_rows * (self.weights @ self.theta[:, 1:] ** 2) < len(self.weights))

    def sheared(self, theta: Floats) -> Floats:
        """Intercepts μ′ = μ + cβ, (P,)."""
        return np.asarray(theta[:, 0] + np.einsum("jk,jk->j", self.shear, theta[:, 1:]))


class Basis(NamedTuple):
    """Eigenvectors and eigenvalues of ΛGΛ, block by block."""

    parts: tuple[tuple[slice, Floats], ...]
    spectrum: Floats  # (K,)

    def rotate(self, values: Floats) -> Floats:
        """Values (P, K) times U."""
        return np.hstack([values[:, part] @ vectors for part, vectors in self.parts])

    def rotate_back(self, values: Floats) -> Floats:
        """Values (P, K) times Uᵀ."""
        return np.hstack([values[:, part] @ vectors.T for part, vectors in self.parts])


def blocks_of(n_features: int) -> list[slice]:
    """Features in blocks of equal size, in their order: levels of one category stay together."""
    n_blocks = -(-n_features // LARGEST_BLOCK)
    edges = np.linspace(0, n_features, n_blocks + 1).round().astype(int)
    return [slice(int(first), int(last)) for first, last in pairwise(edges)]


def make_basis(pilot: WidePilot, widths: Floats) -> Basis:
    """Diagonalise ΛGΛ."""
    parts, spectrum = [], np.empty(len(widths))
    for part, gram in pilot.grams:
        values, vectors = np.linalg.eigh(gram * np.outer(widths[part], widths[part]))
        spectrum[part] = np.maximum(values, 0.0)
        parts.append((part, vectors))
    return Basis(tuple(parts), spectrum)


def make_wide_pilot(likelihood: Likelihood, theta: Floats) -> WidePilot:
    """Expand the likelihood around θ."""
    bend = likelihood.bend(theta)
    total = np.maximum(bend.sum(axis=0), np.finfo(np.float64).tiny)
    weights = np.maximum(total / likelihood.cases.sum(), 1e-8)
    shear = likelihood.transposed(bend)[:, 1:] / total[:, None]
    few = likelihood.n_features <= FEW_FEATURES
    curvature = likelihood.cases if few else (bend / weights).mean(axis=1)
    grams = [(part, likelihood.gram(part, curvature)) for part in blocks_of(likelihood.n_features)]
    gradient = likelihood.gradient(theta)
    linear = np.empty_like(theta)
    linear[:, 0] = gradient[:, 0] + total * (theta[:, 0] + np.einsum("jk,jk->j", shear, theta[:, 1:]))
    linear[:, 1:] = gradient[:, 1:] - gradient[:, :1] * shear
    for part, gram in grams:
        linear[:, 1:][:, part] += weights[:, None] * (theta[:, 1:][:, part] @ gram)
    return WidePilot(theta, weights, shear, total, linear, grams)


class Frame:
    """q ↔ θ, with θ about N(m, M⁻¹) where q is about N(0, I)."""

    def __init__(self, pilot: WidePilot, basis: Basis, widths: Floats, outcomes: Floats, intercept: float) -> None:
        self.pilot, self.basis, self.widths, self.intercept = pilot, basis, widths, intercept
        scale = np.sqrt(pilot.weights)
        a, self.vectors = np.linalg.eigh(outcomes / np.outer(scale, scale))
        a = np.maximum(a, SMALLEST * a[-1])
        self.scale = scale[:, None]
        self.root = np.sqrt(basis.spectrum + a[:, None])
        self.intercept_root = np.sqrt(pilot.intercepts + intercept)
        # Up to terms in w; for M, up to terms in w and Λ.
        self.log_det_outcomes = float(np.log(a).sum())
        self.log_det_root = float(np.log(self.root).sum())
        self.mean = self._pull(pilot.linear)

    def with_outcomes(self, outcomes: Floats) -> Frame:
        """The frame for another prior between outcomes: K × K matrices are reused."""
        return Frame(self.pilot, self.basis, self.widths, outcomes, self.intercept)

    def whiten(self, theta: Floats) -> Floats:
        """θ (P, K+1) → q."""
        beta = theta[:, 1:]
        q = np.empty_like(theta)
        q[:, 0] = (theta[:, 0] + np.einsum("jk,jk->j", self.pilot.shear, beta)) * self.intercept_root
        q[:, 1:] = self._between(self.basis.rotate(self.scale * beta / self.widths), self.root)
        return np.asarray(q - self.mean)

    def colour(self, q: Floats) -> Floats:
        """q → θ."""
        q = q + self.mean
        theta = np.empty_like(q)
        beta = self.basis.rotate_back(self._between(q[:, 1:], 1.0 / self.root)) * self.widths / self.scale
        theta[:, 1:] = beta
        theta[:, 0] = q[:, 0] / self.intercept_root - np.einsum("jk,jk->j", self.pilot.shear, beta)
        return theta

    def pull(self, gradient: Floats) -> Floats:
        """A gradient in θ as one in q."""
        sheared = gradient.copy()
        sheared[:, 1:] -= gradient[:, :1] * self.pilot.shear
        return self._pull(sheared)

    def _pull(self, sheared: Floats) -> Floats:
        out = np.empty_like(sheared)
        out[:, 0] = sheared[:, 0] / self.intercept_root
        turned = self.basis.rotate(sheared[:, 1:] * self.widths / self.scale)
        out[:, 1:] = self._between(turned, 1.0 / self.root)
        return out

    def _between(self, values: Floats, factors: Floats) -> Floats:
        """Multiply by `factors` along the eigenvectors E and rotate back: continuous in A, although E is not."""
        return np.asarray(self.vectors @ (factors * (self.vectors.T @ values)))

    def draw(self, rng: np.random.Generator) -> Floats:
        """A standard normal q, drawn in feature space and rotated: signs and order of eigenvectors do not matter."""
        q = rng.standard_normal(self.mean.shape)
        q[:, 1:] = self.basis.rotate(q[:, 1:])
        return q
