r"""Families of Φ: what is learned about the covariance, given a tree.

Given a tree the contrasts are u_k ~ N(0, Φ), k = 1 … m = n − 1, so the data enter through S = Σ u_k u_kᵀ alone,

    log p(X | tree, Φ) = const − (m/2) log|Φ| − ½ tr(Φ⁻¹ S),

and no step costs more than O(d³), whatever n is. A family is a prior on Φ and an MCMC kernel for its posterior:

| family | prior (density with respect to) | update given S, m |
|---|---|---|
| `Fixed` | a known matrix | none |
| `Spherical` | Φ = φ I, φ ~ IG(shape, scale) (φ) | exact draw |
| `Diagonal` | Φ = diag(φ), φ_j ~ IG(shape, scale) (φ) | exact draw |
| `InverseWishart` | Φ ~ IW(df, Ψ) (lower triangle of Φ) | exact draw, IW(df + m, Ψ + S) |
| `HuangWand` | half-t(df, scale) standard deviations (lower triangle of Φ) | Gibbs |
| `coaltree.model.gp.GaussianProcess` | Φ = amplitude · K(θ) | slice sampling and an exact draw |

IG(a, b) has density ∝ φ^(−a−1) e^(−b/φ). The default IG(½, 1e-10) is worth one contrast of standard deviation 1.4e-5:
proper, and negligible unless the data are that small; then pass a smaller `scale` or change the units. No prior looks
at the data: `start` alone does, and it only says where a chain begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.special import gammaln, multigammaln

from coaltree.model.family import (
    CovarianceFamily,
    State,
    Values,
    check_dimension,
    check_positive,
    check_scatter,
    guess_variances,
    log_inverse_gamma,
    median,
    sample_inverse_gamma,
)
from coaltree.model.roots import DenseRoot, DiagonalRoot
from coaltree.validation import check_array, check_choice, check_covariance

Floats = npt.NDArray[np.float64]

DEFAULT_SHAPE = 0.5
DEFAULT_SCALE = 1e-10


@dataclass(frozen=True, eq=False)
class Fixed:
    """A known Φ, (d, d)."""

    matrix: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", check_covariance(self.matrix))

    def start(self, guess: Any = None) -> State:
        """Return the known matrix."""
        return State({}, DenseRoot.of(self.matrix))

    def from_values(self, values: Values, d: int) -> State:
        """Return the known matrix."""
        check_dimension(d, len(self.matrix))
        return self.start()

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Return the state: there is nothing to learn."""
        check_scatter(S, m, len(self.matrix))
        return state

    def log_prior(self, state: State) -> float:
        """Return 0."""
        return 0.0

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Return the known matrix."""
        return self.from_values({}, d)

    def rescale(self, state: State, c: float) -> tuple[State, float]:
        """Refuse: a known matrix has no scale to move."""
        return state, (0.0 if check_positive(c, "c") == 1.0 else -math.inf)

    def summarise(self, states: Sequence[State]) -> State:
        """Return the known matrix."""
        return self.start()


class _Linear(CovarianceFamily):
    """Shared by families whose one value is Φ itself, or the free part of it: dividing Φ by c divides the value."""

    value: str  # its name

    def n_free(self, d: int) -> int:
        """Count the free entries of Φ."""
        raise NotImplementedError

    def rescale(self, state: State, c: float) -> tuple[State, float]:
        """Divide the value by c; the Jacobian is c^(−n_free)."""
        new = self.from_values({self.value: state.values[self.value] / check_positive(c, "c")}, state.d)
        jacobian = -self.n_free(state.d) * math.log(c)
        return new, self.log_prior(new) - self.log_prior(state) + jacobian

    def summarise(self, states: Sequence[State]) -> State:
        """Take medians."""
        return self.from_values({self.value: median(states, self.value)}, states[0].d)


@dataclass(frozen=True)
class Spherical(_Linear):
    """Φ = φ I with φ ~ IG(shape, scale). With missing entries, m may be (d,): the contrasts in each column."""

    shape: float = DEFAULT_SHAPE
    scale: float = DEFAULT_SCALE
    value = "variance"

    def __post_init__(self) -> None:
        check_positive(self.shape, "shape")
        check_positive(self.scale, "scale")

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

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Draw φ | S ~ IG(shape + md/2, scale + tr S/2)."""
        S, m = check_scatter(S, m, state.d, per_column=True)
        shape = self.shape + 0.5 * float(np.sum(np.broadcast_to(m, state.d)))
        draw = sample_inverse_gamma(shape, self.scale + 0.5 * float(np.trace(S)), rng)
        return self.from_values({"variance": draw}, state.d)

    def log_prior(self, state: State) -> float:
        """Log density of φ."""
        return log_inverse_gamma(state.values["variance"], self.shape, self.scale)

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw φ."""
        return self.from_values({"variance": sample_inverse_gamma(self.shape, self.scale, rng)}, d)


@dataclass(frozen=True)
class Diagonal(_Linear):
    """Φ = diag(φ), φ_j ~ IG(shape, scale) independently. With missing entries, m may be (d,), a count per column."""

    shape: float = DEFAULT_SHAPE
    scale: float = DEFAULT_SCALE
    value = "variances"

    def __post_init__(self) -> None:
        check_positive(self.shape, "shape")
        check_positive(self.scale, "scale")

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
            raise ValueError(f"variances must be {d} positive numbers, got {variances}.")
        return State({"variances": variances}, DiagonalRoot(variances))

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Draw φ_j | S ~ IG(shape + m_j/2, scale + S_jj/2)."""
        S, m = check_scatter(S, m, state.d, per_column=True)
        shape = self.shape + 0.5 * np.broadcast_to(m, state.d)
        draw = sample_inverse_gamma(shape, self.scale + 0.5 * np.diag(S), rng)
        return self.from_values({"variances": draw}, state.d)

    def log_prior(self, state: State) -> float:
        """Log density of φ."""
        return log_inverse_gamma(state.values["variances"], self.shape, self.scale)

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw φ."""
        shape = np.full(check_dimension(d), self.shape)
        return self.from_values({"variances": sample_inverse_gamma(shape, self.scale, rng)}, d)


class _Full(_Linear):
    """Shared by families of full matrices, whose one value is Φ."""

    value = "covariance"

    def n_free(self, d: int) -> int:
        """Count the lower triangle."""
        return d * (d + 1) // 2

    def start(self, guess: Any) -> State:
        """Take the variances, without correlations: `guess` may be singular, as when n ≤ d."""
        return self.from_values({"covariance": np.diag(guess_variances(guess))}, len(guess))

    def from_values(self, values: Values, d: int) -> State:
        """Rebuild from {"covariance": Φ}."""
        matrix = check_array(values["covariance"], "covariance", 2)
        if matrix.shape != (check_dimension(d), d):
            raise ValueError(f"covariance must be ({d}, {d}), got shape {matrix.shape}.")
        return State({"covariance": matrix}, _factorise(matrix, "covariance"))

    def summarise(self, states: Sequence[State]) -> State:
        """Invert the mean precision.

        It is always positive definite, follows any linear change of the features, is finite where the mean of Φ is not,
        and minimises the posterior mean of KL(N(0, Φ̂) ‖ N(0, Φ)). For IW(df, Ψ) it is Ψ/df, between mode and mean.
        """
        if not len(states):
            raise ValueError("states must hold at least one state to summarise, got none.")
        mean_precision = np.mean([_precision(state) for state in states], axis=0)
        return self.from_values({"covariance": _factorise(mean_precision, "precision").precision}, states[0].d)

    def _draw(self, df: float, scale: Floats, rng: np.random.Generator) -> State:
        """Draw from IW(df, scale) by Bartlett's decomposition.

        With scale = C Cᵀ and an upper-triangular B, B Bᵀ ~ W(df, I), the factor C B⁻ᵀ of Φ is lower triangular.
        """
        d = len(scale)
        upper = np.triu(rng.standard_normal((d, d)), 1)
        upper[np.diag_indices(d)] = np.sqrt(rng.chisquare(df - d + 1 + np.arange(d)))
        factor = solve_triangular(upper, _factorise(scale, "scale + S").factor.T).T
        return self.from_values({"covariance": factor @ factor.T}, d)


@dataclass(frozen=True, eq=False)
class InverseWishart(_Full):
    """Φ ~ IW(df, Ψ), of mean Ψ/(df − d − 1).

    `scale` is Ψ as a (d, d) matrix, or a number times the identity; it has no sensible default (see `HuangWand`).
    `df` must exceed d − 1; None is d + 2, for which the mean is Ψ.
    """

    scale: Any
    df: float | None = None

    def __post_init__(self) -> None:
        if self.df is not None:
            check_positive(self.df, "df")
        if np.ndim(self.scale) == 0:
            check_positive(self.scale, "scale")
        else:
            object.__setattr__(self, "scale", check_covariance(self.scale))

    def parameters(self, d: int) -> tuple[float, Floats]:
        """Return df and Ψ in dimension d."""
        df = d + 2.0 if self.df is None else float(self.df)
        if df <= d - 1:
            raise ValueError(f"df must exceed d − 1 = {d - 1} for a proper prior, got {df:.6g}. The default is d + 2.")
        if np.ndim(self.scale) == 0:
            return df, float(self.scale) * np.eye(d)
        if self.scale.shape != (d, d):
            raise ValueError(f"scale must be a number or ({d}, {d}), got shape {self.scale.shape}.")
        return df, self.scale

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Draw Φ | S ~ IW(df + m, Ψ + S)."""
        S, m = check_scatter(S, m, state.d)
        df, scale = self.parameters(state.d)
        return self._draw(df + m, scale + S, rng)

    def log_prior(self, state: State) -> float:
        """Log density of the lower triangle of Φ."""
        d = state.d
        df, scale = self.parameters(d)
        constant = 0.5 * df * (DenseRoot.of(scale).log_det - d * math.log(2.0)) - float(multigammaln(0.5 * df, d))
        return constant - 0.5 * ((df + d + 1) * state.log_det + state.trace_solve(scale))

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw Φ."""
        return self._draw(*self.parameters(check_dimension(d)), rng)


@dataclass(frozen=True, eq=False)
class HuangWand(_Full):
    """Full Φ with a learned scale: half-t(df, scale) standard deviations (Huang & Wand 2013, *Bayesian Analysis* 8).

    Φ | a ~ IW(df + d − 1, 2 df diag(1/a)), a_k ~ IG(½, 1/scale_k²). With df = 2 correlations are uniform on (−1, 1).
    The density of a standard deviation is flat below `scale` and falls as a power above, so any `scale` well above
    those of the data is as good as another: the default 1e5 is the authors'. A number, or one per column. The a_k are
    integrated out of the state and of `log_prior`, and drawn anew within each update.

    A proper prior, so n ≤ d is allowed; but a full Φ then overfits (MODEL.md §7). A constant column has no posterior.
    """

    df: float = 2.0
    scale: Any = 1e5

    def __post_init__(self) -> None:
        check_positive(self.df, "df")
        for number in check_array(np.atleast_1d(self.scale), "scale", 1):
            check_positive(number, "scale")

    def rates(self, d: int) -> Floats:
        """Return 1/scale², (d,)."""
        scale = np.asarray(self.scale, dtype=np.float64)
        if scale.shape not in ((), (d,)):
            raise ValueError(f"scale must be a number or {d} numbers, one per column, got shape {scale.shape}.")
        return np.broadcast_to(scale**-2.0, d)

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Draw a | Φ, then Φ | a, S.

        1/a_k ~ Gamma((df + d)/2, rate df (Φ⁻¹)_kk + 1/scale_k²);  Φ ~ IW(df + d − 1 + m, 2 df diag(1/a) + S).
        """
        S, m = check_scatter(S, m, state.d)
        if m > 0 and not np.all(np.diag(S) > 0):
            column = int(np.argmin(np.diag(S)))
            raise ValueError(
                f"S is zero in column {column}: a constant column says nothing of its covariance. Drop it."
            )
        rate = self.df * np.diag(_precision(state)) + self.rates(state.d)
        inverse_a = rng.gamma(0.5 * (self.df + state.d), size=state.d) / rate
        return self._draw(self.df + state.d - 1 + m, np.diag(2.0 * self.df * inverse_a) + S, rng)

    def log_prior(self, state: State) -> float:
        """Log density of the lower triangle of Φ, ∝ |Φ|^(−(df + 2d)/2) Π_k (df (Φ⁻¹)_kk + 1/scale_k²)^(−(df + d)/2)."""
        d, rates = state.d, self.rates(state.d)
        df, power = self.df + d - 1, 0.5 * (self.df + d)
        constant = 0.5 * df * d * math.log(self.df) - float(multigammaln(0.5 * df, d))
        constant += d * (float(gammaln(power)) - 0.5 * math.log(math.pi)) + 0.5 * float(np.log(rates).sum())
        tails = float(np.log(self.df * np.diag(_precision(state)) + rates).sum())
        return constant - 0.5 * (self.df + 2 * d) * state.log_det - power * tails

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw a, then Φ."""
        inverse_a = rng.gamma(0.5, size=check_dimension(d)) / self.rates(d)
        return self._draw(self.df + d - 1, np.diag(2.0 * self.df * inverse_a), rng)


def _factorise(matrix: Floats, name: str) -> DenseRoot:
    try:
        return DenseRoot.of(matrix)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"{name} is not positive definite to working precision: are columns copies or sums of others? Drop them, "
            "or use a diagonal or kernel covariance."
        ) from error


def _precision(state: State) -> Floats:
    root = state.root
    assert isinstance(root, DenseRoot)
    return root.precision


def as_family(covariance: Any, coordinates: Any = None) -> CovarianceFamily:
    """Return the family a user means: a name, a (d, d) matrix, a scikit-learn kernel over `coordinates`, or a family.

    "spherical", "diagonal" and "wishart" (Huang–Wand) carry their default priors.
    """
    if isinstance(covariance, CovarianceFamily) and not isinstance(covariance, type):
        return covariance
    if isinstance(covariance, str):
        families = {"spherical": Spherical(), "diagonal": Diagonal(), "wishart": HuangWand()}
        return families[check_choice(covariance, "covariance", families)]
    if isinstance(covariance, np.ndarray | list | tuple):
        return Fixed(covariance)
    from coaltree.model.gp import GaussianProcess  # scikit-learn is imported only when a kernel is used

    return GaussianProcess(covariance, coordinates)
