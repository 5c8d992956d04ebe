r"""Families of Φ: what is learned about the covariance, given a tree.

Given a tree the contrasts are u_k ~ N(0, Φ), k = 1 … m = n − 1, so the data enter only through S = Σ u_k u_kᵀ,

    log p(X | tree, Φ) = const − (m/2) log|Φ| − ½ tr(Φ⁻¹ S),

and no step costs more than O(d³), whatever n is. Families of diagonal Φ, those with `diagonal_only`, need only the
diagonal of S: they take S as (d, d) or as that diagonal (d,), and cost O(d). A family is a prior on Φ and an MCMC
kernel for its posterior:

| family | prior (density with respect to) | update given S, m |
|---|---|---|
| `Fixed` | a known matrix | none |
| `Spherical` | Φ = φ I, φ ~ IG(shape, scale) (φ) | exact draw |
| `Diagonal` | Φ = diag(φ), φ_j ~ IG(shape, scale) (φ) | exact draw |
| `InverseWishart` | Φ ~ IW(df, Ψ) (lower triangle of Φ) | exact draw, IW(df + m, Ψ + S) |
| `HuangWand` | a learned scale for every column (lower triangle of Φ) | Gibbs |
| `Factors` | Φ = ΛΛᵀ + diag(ψ), a few factors that may vanish (ψ, Λ, their scales) | Gibbs |
| `ShrunkWishart` | Φ ~ IW(ν + d − 1, νσ² I), σ² and ν learned (lower triangle of Φ, σ², ν) | slices, exact draw |
| `PooledWishart` | Φ ~ IW(df + d − 1, df σ² I), σ ~ half-t(2, scale) (lower triangle of Φ, and σ) | slice, exact draw |
| `coaltree.model.gp.GaussianProcess` | Φ = amplitude · K(θ) | slice sampling and an exact draw |

IG(a, b) has density ∝ φ^(−a−1) e^(−b/φ). The default IG(0.01, 1e-10) is nearly flat in log φ above 1e-10: proper, and
negligible unless the data are that small; then pass a smaller `scale` or change the units. Flatness in log φ matters:
times and variances trade off in the likelihood, so priors of d columns add up along their common scale, and one that
prefers small or large φ, however slightly, stretches or shrinks the tree. No prior depends on the data: only `start`
does, and it only determines where a chain begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.errors import InputError, InputTypeError
from coaltree.model.factor import Factors
from coaltree.model.factorisations import DiagonalRoot, root_of
from coaltree.model.family import (
    DEFAULT_SCALE,
    DEFAULT_SHAPE,
    CovarianceFamily,
    Integrated,
    Linear,
    State,
    Values,
    check_dimension,
    check_positive,
    check_scatter,
    check_sums,
    guess_variances,
    integrate_columns,
    log_inverse_gamma,
    log_inverse_gamma_marginal,
    sample_bounded_inverse_gamma,
    sample_inverse_gamma,
    unchanged,
)
from coaltree.model.shrunk import ShrunkWishart
from coaltree.model.wishart import HuangWand, InverseWishart, PooledWishart
from coaltree.validation import check_array, check_choice, check_covariance, is_diagonal

__all__ = [
    "CovarianceFamily",
    "Diagonal",
    "Factors",
    "Fixed",
    "HuangWand",
    "InverseWishart",
    "PooledWishart",
    "ShrunkWishart",
    "Spherical",
    "State",
    "as_family",
]


@dataclass(frozen=True, eq=False)
class Fixed:
    """A known Φ, (d, d), or the variances (d,) of a diagonal one."""

    matrix: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", check_covariance(self.matrix))

    @property
    def diagonal_only(self) -> bool:
        """Whether the known matrix is diagonal."""
        return self.matrix.ndim == 1 or is_diagonal(self.matrix)

    def start(self, guess: Any = None) -> State:
        """Return the known matrix."""
        return State({}, root_of(self.matrix))

    def from_values(self, values: Values, d: int) -> State:
        """Return the known matrix."""
        check_dimension(d, len(self.matrix))
        return self.start()

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Return the state: there is nothing to learn."""
        if self.diagonal_only:
            check_sums(S, m, state.d)
        else:
            check_scatter(S, m, state.d)
        return state

    def integrated(self, state: State, rng: np.random.Generator) -> None:
        """Return None: there is nothing to integrate over."""

    def log_prior(self, state: State) -> float:
        """Return 0."""
        return 0.0

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Return the known matrix."""
        return self.from_values({}, d)

    def rescale(self, state: State, c: float) -> tuple[State, float]:
        """Refuse: a known matrix has no scale to move."""
        return state, self.log_rescale(state, c)

    def log_rescale(self, state: State, c: float) -> float:
        """Return −inf unless c is 1."""
        return 0.0 if check_positive(c, "c") == 1.0 else -math.inf

    def summarise(self, states: Sequence[State]) -> State:
        """Return the known matrix."""
        return self.start()


@dataclass(frozen=True)
class _Variances(Linear):
    """One variance or more, each ~ IG(shape, scale)."""

    shape: float = DEFAULT_SHAPE
    scale: float = DEFAULT_SCALE
    diagonal_only = True

    def __post_init__(self) -> None:
        check_positive(self.shape, "shape")
        check_positive(self.scale, "scale")

    def log_prior(self, state: State) -> float:
        """Log density of φ."""
        return log_inverse_gamma(state.values[self.value], self.shape, self.scale)


@dataclass(frozen=True)
class Spherical(_Variances):
    """Φ = φ I with φ ~ IG(shape, scale). With missing entries, m may be (d,): the contrasts in each column.

    Draws and marginal likelihood can be restricted to φ ≥ `least`, and the likelihood raised to a `power`.
    """

    value = "variance"

    def n_free(self, d: int) -> int:
        """One."""
        return 1

    def start(self, guess: Any) -> State:
        """Take the mean variance."""
        variances = guess_variances(guess)
        return self.from_values({"variance": float(variances.mean())}, len(variances))

    def from_values(self, values: Values, d: int) -> State:
        """Rebuild from {"variance": φ}."""
        variance = check_positive(values["variance"], "variance")
        return State({"variance": variance}, DiagonalRoot(np.ones(check_dimension(d))), variance)

    def update(
        self, state: State, S: Any, m: Any, rng: np.random.Generator, power: float = 1.0, least: float = 0.0
    ) -> State:
        """Draw φ | S ~ IG(shape + md/2, scale + tr S/2)."""
        sums, m = check_sums(S, m, state.d)
        shape = self.shape + 0.5 * power * float(np.sum(np.broadcast_to(m, state.d)))
        scale = self.scale + 0.5 * power * float(sums.sum())
        draw = sample_inverse_gamma(shape, scale, rng)
        if draw < least:
            draw = sample_bounded_inverse_gamma(shape, scale, least, rng)
        return self.from_values({"variance": draw}, state.d)

    def integrated(self, state: State, rng: np.random.Generator) -> Integrated:
        """Integrate out φ."""

        def log_marginal(sums: Floats, m: int, power: float = 1.0, least: float = 0.0) -> float:
            counted = power * m * len(sums)
            return log_inverse_gamma_marginal(self.shape, self.scale, counted, power * sums.sum(), least)

        return integrate_columns(unchanged, log_marginal, partial(self.update, state))

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw φ."""
        return self.from_values({"variance": sample_inverse_gamma(self.shape, self.scale, rng)}, d)


@dataclass(frozen=True)
class Diagonal(_Variances):
    """Φ = diag(φ), φ_j ~ IG(shape, scale) independently. With missing entries, m may be (d,), a count per column.

    The likelihood can be raised to a `power`.
    """

    value = "variances"

    def n_free(self, d: int) -> int:
        """One per column."""
        return d

    def start(self, guess: Any) -> State:
        """Take the variances."""
        variances = guess_variances(guess)
        return self.from_values({"variances": variances}, len(variances))

    def from_values(self, values: Values, d: int) -> State:
        """Rebuild from {"variances": φ}."""
        variances = check_array(values["variances"], "variances", 1)
        if variances.shape != (check_dimension(d),) or np.any(variances <= 0):
            raise InputError(f"variances must be {d} positive numbers, got {variances}.")
        return State({"variances": variances}, DiagonalRoot(variances))

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator, power: float = 1.0) -> State:
        """Draw φ_j | S ~ IG(shape + m_j/2, scale + S_jj/2)."""
        sums, m = check_sums(S, m, state.d)
        shape = self.shape + 0.5 * power * np.broadcast_to(m, state.d)
        draw = sample_inverse_gamma(shape, self.scale + 0.5 * power * sums, rng)
        return self.from_values({"variances": draw}, state.d)

    def integrated(self, state: State, rng: np.random.Generator) -> Integrated:
        """Integrate out all φ_j."""
        return integrate_columns(
            unchanged,
            lambda sums, m, power=1.0: log_inverse_gamma_marginal(self.shape, self.scale, power * m, power * sums),
            partial(self.update, state),
        )

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw φ."""
        shape = np.full(check_dimension(d), self.shape)
        return self.from_values({"variances": sample_inverse_gamma(shape, self.scale, rng)}, d)


def as_family(covariance: Any, coordinates: Any = None, d: int | None = None) -> CovarianceFamily:
    """Return the family a user means: a name, a matrix, a scikit-learn kernel over `coordinates`, or a family.

    "spherical", "diagonal", "wishart" (Huang–Wand), "shrunk" (`ShrunkWishart`) and "factors" carry their default
    priors. A matrix is (d, d), or the (d,) variances of a diagonal one. With `d`, matrices and coordinates must match.
    """
    if isinstance(covariance, CovarianceFamily) and not isinstance(covariance, type):
        return covariance
    if isinstance(covariance, str):
        families: dict[str, CovarianceFamily] = {
            "spherical": Spherical(),
            "diagonal": Diagonal(),
            "shrunk": ShrunkWishart(),
            "wishart": HuangWand(),
            "factors": Factors(),
        }
        return families[check_choice(covariance, "covariance", families)]
    if isinstance(covariance, np.ndarray | list | tuple):
        return Fixed(check_covariance(covariance, d))
    from coaltree.model import gp  # scikit-learn is imported only when a kernel is used

    if not isinstance(covariance, gp.Kernel):
        raise InputTypeError(
            'covariance must be "spherical", "diagonal", "shrunk", "wishart", "factors", a (d, d) array, d variances, '
            f"a scikit-learn kernel or a family of coaltree.model.covariance, got {covariance!r}."
        )
    family = gp.GaussianProcess(covariance, coordinates)
    if d is not None:
        family.check_features(d)
    return family
