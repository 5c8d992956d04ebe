r"""Φ = ΛΛᵀ + diag(ψ): a few common factors and a unique variance for every column.

For tables with more columns than rows, or with nearly collinear columns: a full matrix has d(d + 1)/2 entries to learn,
this one d(q + 1). The prior

    ψ_j ~ IG(shape, scale),   Λ_jh ~ N(0, ψ_j τ_h²),   τ_h ~ half-Cauchy(1),

lets unneeded factors vanish, and is as neutral in the common scale as the others: Λ scales with ψ.

Contrasts u_k = Λ f_k + e_k have factors f_k ~ N(βu_k, V), β = ΛᵀΦ⁻¹, V = I − βΛ. Only Σ u fᵀ and Σ f fᵀ matter, and
both can be drawn from S alone: with η_k ~ N(0, V) and S = E diag(e) Eᵀ of rank r, Σ u ηᵀ = E √e Z, the r rows of Z
drawn from N(0, V), and Σ η ηᵀ = ZᵀZ + Wishart(m − r, V). Given these, (Λ_j, ψ_j) is normal and inverse gamma.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.model.factorisations import DenseRoot
from coaltree.model.family import (
    DEFAULT_SCALE,
    DEFAULT_SHAPE,
    CovarianceFamily,
    State,
    Values,
    check_dimension,
    check_positive,
    check_scatter,
    guess_variances,
    log_inverse_gamma,
    sample_inverse_gamma,
)
from coaltree.validation import check_array, check_count

# A column has at least this share of its variance as unique variance; otherwise rounding makes Φ singular.
LEAST_SHARE = 1e-8


@dataclass(frozen=True)
class Factors(CovarianceFamily):
    """Φ = ΛΛᵀ + diag(ψ) with at most `n_factors` factors."""

    n_factors: int = 4
    shape: float = DEFAULT_SHAPE
    scale: float = DEFAULT_SCALE

    def __post_init__(self) -> None:
        check_count(self.n_factors, "n_factors", at_least=1)
        check_positive(self.shape, "shape")
        check_positive(self.scale, "scale")

    def start(self, guess: Any) -> State:
        """Take the first principal axes as factors."""
        variances = guess_variances(guess)
        d = len(variances)
        matrix = np.diag(variances) if np.ndim(guess) == 1 else np.asarray(guess, dtype=np.float64)
        values, vectors = np.linalg.eigh(matrix)
        rest = max(float(np.median(values)), 0.05 * float(values.mean()))
        sizes = np.zeros(self.n_factors)
        top = np.maximum(values[::-1][: self.n_factors] - rest, 0.0)
        sizes[: len(top)] = np.sqrt(top)
        axes = np.zeros((d, self.n_factors))
        axes[:, : len(top)] = vectors[:, ::-1][:, : self.n_factors]
        loadings = 0.9 * axes * sizes
        unique = np.maximum(variances - (loadings**2).sum(axis=1), 0.05 * variances)
        return self.from_values({"unique": unique, "loadings": loadings, "factor_scales": np.ones(self.n_factors)}, d)

    def from_values(self, values: Values, d: int) -> State:
        """Rebuild from {"unique": ψ, "loadings": Λ, "factor_scales": τ²}."""
        unique = check_array(values["unique"], "unique", 1)
        loadings = check_array(values["loadings"], "loadings", 2)
        scales = check_array(values["factor_scales"], "factor_scales", 1)
        d, q = check_dimension(d), self.n_factors
        if unique.shape != (d,) or loadings.shape != (d, q) or scales.shape != (q,):
            raise InputError(f"unique, loadings and factor_scales must be ({d},), ({d}, {q}) and ({q},).")
        if np.any(unique <= 0) or np.any(scales <= 0):
            raise InputError("unique and factor_scales must be positive.")
        root = DenseRoot.of(loadings @ loadings.T + np.diag(unique))
        return State({"unique": unique, "loadings": loadings, "factor_scales": scales}, root)

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Draw the factors, then loadings with ψ, then their scales."""
        d, q = state.d, self.n_factors
        S, m = check_scatter(S, m, d)
        loadings, scales = np.asarray(state.values["loadings"]), np.asarray(state.values["factor_scales"])
        across, within = _draw_factors(state, loadings, S, m, rng)
        precision = within + np.diag(1.0 / scales)
        root = np.linalg.cholesky(precision)
        mean = np.linalg.solve(precision, across.T).T
        left = np.maximum(np.diag(S) - np.einsum("jh,jh->j", mean, across), 0.0)
        unique = sample_inverse_gamma(np.full(d, self.shape + 0.5 * m), self.scale + 0.5 * left, rng)
        if m > 0:
            unique = np.maximum(unique, LEAST_SHARE * np.diag(S) / m)
        noise = np.linalg.solve(root.T, rng.standard_normal((q, d))).T
        loadings = mean + np.sqrt(unique)[:, None] * noise
        sums = (loadings**2 / unique[:, None]).sum(axis=0)
        # τ ~ half-Cauchy(1) is τ² ~ IG(½, 1/a), a ~ IG(½, 1).
        auxiliary = sample_inverse_gamma(np.ones(q), 1.0 + 1.0 / scales, rng)
        scales = sample_inverse_gamma(np.full(q, 0.5 * (d + 1)), 1.0 / auxiliary + 0.5 * sums, rng)
        return self.from_values({"unique": unique, "loadings": loadings, "factor_scales": scales}, d)

    def integrated(self, state: State, rng: np.random.Generator) -> None:
        """Nothing can be integrated out."""
        return

    def log_prior(self, state: State) -> float:
        """Log density of ψ, Λ and τ²."""
        unique, loadings = np.asarray(state.values["unique"]), np.asarray(state.values["loadings"])
        scales = np.asarray(state.values["factor_scales"])
        variance = unique[:, None] * scales
        normal = -0.5 * float((np.log(2.0 * math.pi * variance) + loadings**2 / variance).sum())
        cauchy = -float((np.log(math.pi * (1.0 + scales)) + 0.5 * np.log(scales)).sum())
        return log_inverse_gamma(unique, self.shape, self.scale) + normal + cauchy

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw ψ, τ and Λ."""
        d, q = check_dimension(d), self.n_factors
        unique = sample_inverse_gamma(np.full(d, self.shape), self.scale, rng)
        scales = np.maximum(rng.standard_cauchy(q) ** 2, 1e-12)
        loadings = np.sqrt(unique[:, None] * scales) * rng.standard_normal((d, q))
        return self.from_values({"unique": unique, "loadings": loadings, "factor_scales": scales}, d)

    def rescale(self, state: State, c: float) -> tuple[State, float]:
        """Divide ψ by c and Λ by √c; the density and Jacobian of Λ cancel."""
        check_positive(c, "c")
        values = {
            "unique": np.asarray(state.values["unique"]) / c,
            "loadings": np.asarray(state.values["loadings"]) / math.sqrt(c),
            "factor_scales": state.values["factor_scales"],
        }
        return self.from_values(values, state.d), self.log_rescale(state, c)

    def log_rescale(self, state: State, c: float) -> float:
        """Return the log ratio of the prior of ψ and the Jacobian, c^(−d)."""
        unique = np.asarray(state.values["unique"])
        return self.shape * math.log(c) * len(unique) - self.scale * (c - 1.0) * float((1.0 / unique).sum())

    def summarise(self, states: Sequence[State]) -> State:
        """Return the state whose Φ is nearest to the mean: factors may rotate and swap, which does not change Φ."""
        if not len(states):
            raise InputError("states must hold at least one state to summarise, got none.")
        mean = sum(state.matrix() for state in states) / len(states)
        size = np.sqrt(np.outer(np.diag(mean), np.diag(mean)))
        return min(states, key=lambda state: float((((state.matrix() - mean) / size) ** 2).sum()))


def _draw_factors(state: State, loadings: Floats, S: Floats, m: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Σ u fᵀ, (d, q), and Σ f fᵀ, (q, q), given S."""
    q = loadings.shape[1]
    unique = np.asarray(state.values["unique"])
    # β = (I + ΛᵀΨ⁻¹Λ)⁻¹ ΛᵀΨ⁻¹ and V = (I + ΛᵀΨ⁻¹Λ)⁻¹.
    scaled = loadings / unique[:, None]
    V = np.linalg.inv(np.eye(q) + loadings.T @ scaled)
    V = 0.5 * (V + V.T)
    beta, root = V @ scaled.T, np.linalg.cholesky(V)
    sizes, axes = np.linalg.eigh(S)
    kept = np.argsort(sizes)[::-1][: min(m, len(S))]
    kept = kept[sizes[kept] > 1e-12 * max(float(sizes[-1]), 1e-300)]
    Z = rng.standard_normal((len(kept), q)) @ root.T
    noise = (axes[:, kept] * np.sqrt(sizes[kept])) @ Z
    rest = rng.standard_normal((m - len(kept), q)) @ root.T
    across = S @ beta.T + noise
    drift = beta @ noise
    within = beta @ S @ beta.T + drift + drift.T + Z.T @ Z + rest.T @ rest
    return across, 0.5 * (within + within.T)
