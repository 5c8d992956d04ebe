r"""Square roots of covariance matrices: all that is ever needed of Φ, once its structure is known.

A root can whiten rows (x ↦ x R⁻ᵀ with Φ = R Rᵀ) and give log|Φ| and tr(Φ⁻¹ S). There are three structures: diagonal
(O(d)), dense (Cholesky, O(d³)) and, on a grid, Kronecker plus noise (O(d² Σ n_j)), with its factors' eigenvectors:

    Φ = V diag(e) Vᵀ,   V = V₁ ⊗ V₂ ⊗ …
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack, solve_triangular

from coaltree._arrays import Floats, Ints
from coaltree.validation import is_diagonal


class Root(Protocol):
    """A square root of a positive-definite (d, d) matrix."""

    @property
    def d(self) -> int:
        """Dimension."""
        ...

    @property
    def log_det(self) -> float:
        """log|Φ|."""
        ...

    @property
    def factor(self) -> Floats:
        """Lower Cholesky factor, (d, d)."""
        ...

    def matrix(self) -> Floats:
        """Φ itself, (d, d)."""
        ...

    def whiten(self, rows: Floats) -> Floats:
        """Return rows W, (n, d), with W Wᵀ = X Φ⁻¹ Xᵀ."""
        ...

    def colour(self, rows: Floats) -> Floats:
        """Return rows, (…, d), of covariance Φ from rows of covariance I."""
        ...

    def trace_solve(self, S: Floats) -> float:
        """tr(Φ⁻¹ S) of a symmetric S."""
        ...


@dataclass(frozen=True, eq=False)
class DiagonalRoot:
    """Root of diag(variances)."""

    variances: Floats  # (d,)

    @property
    def d(self) -> int:
        """Dimension."""
        return len(self.variances)

    @cached_property
    def log_det(self) -> float:
        """log|Φ|."""
        return float(np.log(self.variances).sum())

    @property
    def factor(self) -> Floats:
        """Lower Cholesky factor."""
        return np.diag(np.sqrt(self.variances))

    def matrix(self) -> Floats:
        """Φ itself."""
        return np.diag(self.variances)

    def whiten(self, rows: Floats) -> Floats:
        """Rows over their standard deviations."""
        return rows / np.sqrt(self.variances)

    def colour(self, rows: Floats) -> Floats:
        """Rows times the standard deviations."""
        return rows * np.sqrt(self.variances)

    def trace_solve(self, S: Floats) -> float:
        """tr(Φ⁻¹ S) of S, (d, d), or of its diagonal, (d,)."""
        return float((diagonal_of(S) / self.variances).sum())


@dataclass(frozen=True, eq=False)
class DenseRoot:
    """Cholesky root of a full matrix."""

    factor: Floats  # (d, d), lower

    @classmethod
    def of(cls, matrix: Floats) -> DenseRoot:
        """Factorise; raises numpy's LinAlgError where the matrix is not positive definite."""
        factor: Floats = np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
        return cls(factor)

    @property
    def d(self) -> int:
        """Dimension."""
        return len(self.factor)

    @cached_property
    def log_det(self) -> float:
        """log|Φ|."""
        return 2.0 * float(np.log(np.diag(self.factor)).sum())

    def matrix(self) -> Floats:
        """Φ itself."""
        return self.factor @ self.factor.T

    def whiten(self, rows: Floats) -> Floats:
        """Solve against the factor."""
        return np.ascontiguousarray(solve_triangular(self.factor, rows.T, lower=True).T)

    def colour(self, rows: Floats) -> Floats:
        """Multiply by the factor."""
        coloured: Floats = rows @ self.factor.T
        return coloured

    @property
    def precision(self) -> Floats:
        """Φ⁻¹, (d, d)."""
        upper = self._upper_precision()
        return upper + np.triu(upper, 1).T

    def trace_solve(self, S: Floats) -> float:
        """tr(Φ⁻¹ S)."""
        upper = self._upper_precision()
        return float(2.0 * np.vdot(upper, S) - np.vdot(np.diag(upper), np.diag(S)))

    def _upper_precision(self) -> Floats:
        """Upper triangle of Φ⁻¹, zeros below: LAPACK fills one triangle and leaves the factor's zeros in the other."""
        lower: Floats = lapack.dpotri(self.factor, lower=1)[0]
        return lower.T


@dataclass(frozen=True, eq=False)
class KroneckerRoot:
    """Root of V diag(e) Vᵀ with V = V₁ ⊗ V₂ ⊗ …, after reordering the features into the grid's order."""

    vectors: tuple[Floats, ...]  # eigenvectors of each factor, (n_j, n_j)
    eigenvalues: Floats  # (d,), in grid order (last axis fastest)
    order: Ints  # (d,): the feature at each position of the grid

    @property
    def d(self) -> int:
        """Dimension."""
        return len(self.eigenvalues)

    @cached_property
    def log_det(self) -> float:
        """log|Φ|."""
        return float(np.log(self.eigenvalues).sum())

    @cached_property
    def factor(self) -> Floats:
        """Lower Cholesky factor: O(d³), and only on request. `whiten` does not need it."""
        return DenseRoot.of(self.matrix()).factor

    def matrix(self) -> Floats:
        """Φ itself."""
        vectors: npt.NDArray[np.floating[Any]] = np.ones((1, 1))
        for each in self.vectors:
            vectors = np.kron(vectors, each)
        features = np.argsort(self.order)
        gridded = (vectors * self.eigenvalues) @ vectors.T
        return np.ascontiguousarray(gridded[np.ix_(features, features)])

    def whiten(self, rows: Floats) -> Floats:
        """Rotate to the eigenvectors, divide by the roots of the eigenvalues."""
        rotated = rows[:, self.order].reshape(-1, *map(len, self.vectors))
        for vectors in self.vectors:  # each axis in turn is contracted and comes back as the last
            rotated = np.tensordot(rotated, vectors, axes=(1, 0))
        return rotated.reshape(-1, self.d) / np.sqrt(self.eigenvalues)

    def colour(self, rows: Floats) -> Floats:
        """Multiply by the Cholesky factor."""
        coloured: Floats = rows @ self.factor.T
        return coloured

    def trace_solve(self, S: Floats) -> float:
        """tr(Φ⁻¹ S)."""
        return self.trace_folded(fold(S, self.order, tuple(map(len, self.vectors))))

    def trace_folded(self, folded: Floats) -> float:
        """tr(Φ⁻¹ S) = Σ_k (Vᵀ S V)_kk / e_k from `fold(S)`: only the diagonal is formed, one contraction per axis."""
        for vectors in self.vectors:
            first, second = np.triu_indices(len(vectors))
            folded = np.tensordot(folded, vectors[first] * vectors[second], axes=(0, 0))
        return float((folded.ravel() / self.eigenvalues).sum())


def diagonal_of(S: Floats) -> Floats:
    """Return the diagonal (d,) of a matrix, which may be given as its diagonal."""
    return S if S.ndim == 1 else np.diag(S)


def root_of(covariance: Floats) -> DiagonalRoot | DenseRoot:
    """Root of a checked Φ: the variances (d,) of a diagonal one, or a (d, d) matrix, diagonal or full."""
    variances = diagonal_of(covariance)
    if covariance.ndim == 1 or is_diagonal(covariance):
        return DiagonalRoot(variances)
    return DenseRoot.of(covariance)


def fold(S: Floats, order: Ints, shape: tuple[int, ...]) -> Floats:
    """Rearrange a symmetric S over a grid for `KroneckerRoot.trace_folded`: once per S, whatever the eigenvectors.

    (Vᵀ S V)_kk = Σ S[a, b] Π_j V_j[a_j, k_j] V_j[b_j, k_j] is symmetric in each (a_j, b_j): pairs a_j ≤ b_j suffice.
    Returns one axis per factor, of n_j (n_j + 1)/2 pairs.
    """
    n_axes = len(shape)
    folded = S[np.ix_(order, order)].reshape(shape + shape)
    folded = folded.transpose([axis for j in range(n_axes) for axis in (j, j + n_axes)])
    for n in shape:  # the first two axes become one, the last
        folded = folded + folded.swapaxes(0, 1)
        first, second = np.triu_indices(n)
        folded = folded[first, second]
        folded[first == second] *= 0.5
        folded = np.moveaxis(folded, 0, -1)
    return np.ascontiguousarray(folded)


def kronecker_root(factors: list[Floats], noise: float, order: Ints) -> KroneckerRoot:
    """Root of ⊗ factors + noise · I; raises LinAlgError where that is not positive definite."""
    pairs = [np.linalg.eigh(matrix) for matrix in factors]
    eigenvalues = np.ones(1)
    for values, _ in pairs:
        eigenvalues = np.outer(eigenvalues, values).ravel()
    eigenvalues = eigenvalues + noise
    # As in Cholesky: eigenvalues that rounding alone could have made positive do not count.
    if not eigenvalues.min() > len(eigenvalues) * math.ulp(eigenvalues.max()):
        raise np.linalg.LinAlgError("Kronecker product plus noise is not positive definite")
    return KroneckerRoot(tuple(vectors for _, vectors in pairs), eigenvalues, order)
