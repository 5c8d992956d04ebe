"""Full covariance matrices: inverse Wishart, Huang and Wand's with learned scales, and one with a single learned width.

IW(df, Ψ) has density ∝ |Φ|^(−(df + d + 1)/2) exp(−½ tr(Ψ Φ⁻¹)) with respect to the lower triangle of Φ.

`PooledWishart` has one learned width, an inverse Wishart whose scale is drawn with it:

    σ ~ half-t(2, scale),   Φ | σ ~ IW(df + d − 1, df σ² I).

Every feature has the same prior, Φ_kk ~ IG(df/2, df σ²/2), and together they determine σ. `HuangWand` gives each
feature its own width, which may be arbitrarily small: where data are weak, features then lose all variance, and
intervals become too narrow. Here none can fall far below σ, while the heavy tail leaves room for a few far above it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln, multigammaln

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.model.factorisations import DenseRoot
from coaltree.model.family import (
    DEFAULT_SHAPE,
    Integrated,
    Linear,
    State,
    Values,
    check_dimension,
    check_positive,
    check_scatter,
    guess_variances,
    median,
    sample_gamma,
    unchanged,
)
from coaltree.model.slice import slice_step
from coaltree.validation import check_array, check_covariance


class Full(Linear):
    """Shared by families of full matrices, whose one value is Φ."""

    value = "covariance"

    def n_free(self, d: int) -> int:
        """Count the lower triangle."""
        return d * (d + 1) // 2

    def start(self, guess: Any) -> State:
        """Take the variances, without correlations: `guess` may be singular, as when n ≤ d."""
        variances = guess_variances(guess)
        return self.from_values({"covariance": np.diag(variances)}, len(variances))

    def from_values(self, values: Values, d: int) -> State:
        """Rebuild from {"covariance": Φ}."""
        matrix = check_array(values["covariance"], "covariance", 2)
        if matrix.shape != (check_dimension(d), d):
            raise InputError(f"covariance must be ({d}, {d}), got shape {matrix.shape}.")
        return State({"covariance": matrix}, factorise(matrix, "covariance"))

    def summarise(self, states: Sequence[State]) -> State:
        """Invert the mean precision.

        It is always positive definite, equivariant under linear maps of the features, finite where the mean of Φ is
        not, and minimises the posterior mean of KL(N(0, Φ̂) ‖ N(0, Φ)). For IW(df, Ψ) it is Ψ/df, between the mode and
        the mean.
        """
        if not len(states):
            raise InputError("states must hold at least one state to summarise, got none.")
        return self._state(self._central(states))

    @staticmethod
    def _central(states: Sequence[State]) -> Floats:
        """Inverse of the mean precision."""
        mean_precision = np.mean([precision_of(state) for state in states], axis=0)
        return factorise(mean_precision, "precision").precision

    def _draw(self, df: float, scale: Floats, rng: np.random.Generator) -> Floats:
        """Draw Φ from IW(df, scale) by Bartlett's decomposition.

        With scale = C Cᵀ and an upper-triangular B, B Bᵀ ~ W(df, I), the factor C B⁻ᵀ of Φ is lower triangular.
        """
        d = len(scale)
        upper = np.triu(rng.standard_normal((d, d)), 1)
        upper[np.diag_indices(d)] = np.sqrt(rng.chisquare(df - d + 1 + np.arange(d)))
        factor = solve_triangular(upper, factorise(scale, "scale + S").factor.T).T
        return np.asarray(factor @ factor.T)

    def _integrate(self, df: float, scale: Floats) -> Integrated:
        """Φ ~ IW(df, scale) integrated out: −½ (df + m) log|scale + S|."""

        def log_marginal(u: Floats) -> float:
            return -0.5 * (df + len(u)) * factorise(scale + u.T @ u, "scale + S").log_det

        def draw(S: Floats, m: int, rng: np.random.Generator) -> State:
            return self._state(self._draw(df + m, scale + S, rng))

        return Integrated(unchanged, log_marginal, draw)

    def _state(self, matrix: Floats) -> State:
        return self.from_values({"covariance": matrix}, len(matrix))


@dataclass(frozen=True, eq=False)
class InverseWishart(Full):
    """Φ ~ IW(df, Ψ), with mean Ψ/(df − d − 1).

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
            object.__setattr__(self, "scale", check_covariance(check_array(self.scale, "scale", 2)))

    def parameters(self, d: int) -> tuple[float, Floats]:
        """Return df and Ψ in dimension d."""
        df = d + 2.0 if self.df is None else float(self.df)
        if df <= d - 1:
            raise InputError(f"df must exceed d − 1 = {d - 1} for a proper prior, got {df:.6g}. The default is d + 2.")
        if np.ndim(self.scale) == 0:
            return df, float(self.scale) * np.eye(d)
        if self.scale.shape != (d, d):
            raise InputError(f"scale must be a number or ({d}, {d}), got shape {self.scale.shape}.")
        return df, self.scale

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Draw Φ | S ~ IW(df + m, Ψ + S)."""
        S, m = check_scatter(S, m, state.d)
        return self.integrated(state, rng).draw(S, m, rng)

    def integrated(self, state: State, rng: np.random.Generator) -> Integrated:
        """Integrate out Φ."""
        return self._integrate(*self.parameters(state.d))

    def log_prior(self, state: State) -> float:
        """Log density of the lower triangle of Φ."""
        d = state.d
        df, scale = self.parameters(d)
        constant = 0.5 * df * (DenseRoot.of(scale).log_det - d * math.log(2.0)) - float(multigammaln(0.5 * df, d))
        return constant - 0.5 * ((df + d + 1) * state.log_det + state.trace_solve(scale))

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw Φ."""
        return self._state(self._draw(*self.parameters(check_dimension(d)), rng))


@dataclass(frozen=True, eq=False)
class HuangWand(Full):
    """Full Φ with a learned scale for every column (after Huang & Wand 2013, *Bayesian Analysis* 8).

    Φ | a ~ IW(df + d − 1, 2 df diag(1/a)), a_k ~ IG(shape, 1/scale_k²). For df = 2 correlations are uniform in (−1, 1).
    Below `scale` the density of a standard deviation σ is ∝ σ^(2 shape − 1), above it falls as a power, so any `scale`
    well above those of the data is as good as another: the default 1e5 is the authors'. A number, or one per column.

    Their shape is ½, half-t standard deviations, flat below `scale`. Here that would not be neutral: d flat standard
    deviations together pull Φ up by c^(d/2), and times and leaf noise down with it, since only their priors fix the
    common scale. The default shape makes log σ flat instead.

    The a_k are integrated out of the state and of `log_prior`, and redrawn within each update.

    A proper prior, so n ≤ d is allowed; but a full Φ then overfits. A constant column has no posterior.
    """

    df: float = 2.0
    scale: Any = 1e5
    shape: float = DEFAULT_SHAPE

    def __post_init__(self) -> None:
        check_positive(self.df, "df")
        check_positive(self.shape, "shape")
        for number in check_array(np.atleast_1d(self.scale), "scale", 1):
            check_positive(number, "scale")

    def rates(self, d: int) -> Floats:
        """Return 1/scale², (d,)."""
        scale = np.asarray(self.scale, dtype=np.float64)
        if scale.shape not in ((), (d,)):
            raise InputError(f"scale must be a number or {d} numbers, one per column, got shape {scale.shape}.")
        return np.broadcast_to(scale**-2.0, d)

    def _power(self, d: int) -> float:
        return self.shape + 0.5 * (self.df + d - 1)

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Draw a | Φ, then Φ | a, S.

        1/a_k ~ Gamma(shape + (df + d − 1)/2, rate df (Φ⁻¹)_kk + 1/scale_k²);
        Φ ~ IW(df + d − 1 + m, 2 df diag(1/a) + S).
        """
        S, m = check_scatter(S, m, state.d)
        check_independent(S, m)
        return self.integrated(state, rng).draw(S, m, rng)

    def integrated(self, state: State, rng: np.random.Generator) -> Integrated:
        """Draw a | Φ and integrate out Φ | a."""
        rate = self.df * np.diag(precision_of(state)) + self.rates(state.d)
        inverse_a = rng.gamma(self._power(state.d), size=state.d) / rate
        return self._integrate(self.df + state.d - 1, np.diag(2.0 * self.df * inverse_a))

    def log_prior(self, state: State) -> float:
        """Log density of the lower triangle of Φ, ∝ |Φ|^(−(df + 2d)/2) Π_k (df (Φ⁻¹)_kk + 1/scale_k²)^(−power)."""
        d, rates = state.d, self.rates(state.d)
        df, power = self.df + d - 1, self._power(d)
        constant = 0.5 * df * d * math.log(self.df) - float(multigammaln(0.5 * df, d))
        constant += d * float(gammaln(power) - gammaln(self.shape)) + self.shape * float(np.log(rates).sum())
        tails = float(np.log(self.df * np.diag(precision_of(state)) + rates).sum())
        return constant - 0.5 * (self.df + 2 * d) * state.log_det - power * tails

    def log_rescale(self, state: State, c: float) -> float:
        """Only the diagonal of Φ⁻¹ is needed: it is multiplied by c, and log|Φ| falls by d log c."""
        d, tails = state.d, self.df * np.diag(precision_of(state))
        power = 0.5 * d * (self.df + 2 * d) - 0.5 * d * (d + 1)
        rates = self.rates(d)
        ratio = float(np.log((c * tails + rates) / (tails + rates)).sum())
        return power * math.log(c) - self._power(d) * ratio

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw a, then Φ."""
        inverse_a = sample_gamma(self.shape, rng, check_dimension(d)) / self.rates(d)
        return self._state(self._draw(self.df + d - 1, np.diag(2.0 * self.df * inverse_a), rng))


def check_independent(S: Floats, m: int) -> None:
    """Refuse columns that are constant or determined by others: the posterior of their covariance is improper."""
    variances = np.diag(S)
    if m > 0 and not np.all(variances > 0):
        raise InputError(
            f"S is zero in column {int(np.argmin(variances))}: a constant column has no covariance to learn. Drop it."
        )
    if m < len(S):
        return
    try:
        unexplained = np.diag(np.linalg.cholesky(S / np.sqrt(np.outer(variances, variances)))) ** 2
    except np.linalg.LinAlgError:
        unexplained = np.zeros(len(S))
    if unexplained.min() < 1e-13:
        raise InputError(
            "S is singular: some columns are copies or linear combinations of others. Drop them, or use a diagonal or "
            "kernel covariance."
        )


def factorise(matrix: Floats, name: str) -> DenseRoot:
    """Factorise a positive definite matrix; ValueError that names it if it is not."""
    try:
        return DenseRoot.of(matrix)
    except np.linalg.LinAlgError as error:
        raise InputError(
            f"{name} is not positive definite to working precision: are columns copies or sums of others? Drop them, "
            "or use a diagonal or kernel covariance."
        ) from error


def precision_of(state: State) -> Floats:
    """Φ⁻¹."""
    root = state.root
    assert isinstance(root, DenseRoot)
    precision: Floats = root.precision / state.amplitude
    return precision


# Degrees of freedom of the half-t.
WIDTH_DF = 2.0


def log_half_t(x: float, scale: float) -> float:
    """Log density of a half-t with 2 degrees of freedom: 2^(−½)/scale · (1 + x²/2 scale²)^(−3/2)."""
    return -0.5 * math.log(2.0) - math.log(scale) - 1.5 * math.log1p(0.5 * (x / scale) ** 2)


def sample_half_t(scale: float, rng: np.random.Generator) -> float:
    """Draw from it."""
    return abs(scale * float(rng.standard_t(WIDTH_DF)))


@dataclass(frozen=True)
class PooledWishart(Full):
    """Φ | σ ~ IW(df + d − 1, df σ² I) with σ ~ half-t(2, scale); values are Φ and σ, densities are of both.

    `df` says how similar features are: Φ_kk is about σ², up to a factor distributed as df/χ²_df, and correlations have
    a standard deviation near (df + d)^(−½). Any `scale` near or above the truth will do.
    """

    df: float = 10.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self.df, "df")
        check_positive(self.scale, "scale")

    def start(self, guess: Any) -> State:
        """Take the variances, without correlations, and their mean."""
        variances = guess_variances(guess)
        width = math.sqrt(float(variances.mean()))
        return self.from_values({"covariance": np.diag(variances), "width": width}, len(variances))

    def from_values(self, values: Values, d: int) -> State:
        """Rebuild from {"covariance": Φ, "width": σ}."""
        width = check_positive(values["width"], "width")
        state = super().from_values(values, d)
        return State({**state.values, "width": width}, state.root)

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Slice σ | S with Φ integrated out, then draw Φ | σ, S exactly.

        p(σ | S) ∝ p(σ) σ^(d(df + d − 1)) |df σ² I + S|^(−(df + d − 1 + m)/2).
        """
        S, m = check_scatter(S, m, state.d)
        d, df = state.d, self.df + state.d - 1
        spectrum = np.maximum(np.linalg.eigvalsh(S), 0.0)

        def log_density(log_width: float) -> float:
            width = math.exp(log_width)
            volume = float(np.log(self.df * width**2 + spectrum).sum())
            return log_half_t(width, self.scale) + (d * df + 1.0) * log_width - 0.5 * (df + int(m)) * volume

        now = math.log(float(state.values["width"]))
        log_width, _ = slice_step(log_density, now, log_density(now), rng, width=1.0, lower=-60.0, upper=60.0)
        return self._draw_given(math.exp(log_width), df + m, S, rng)

    def integrated(self, state: State, rng: np.random.Generator) -> Integrated:
        """Integrate out Φ | σ."""
        d, width = state.d, float(state.values["width"])
        df, scale = self.df + d - 1, self.df * width**2 * np.eye(d)

        def draw(S: Floats, m: int, rng: np.random.Generator) -> State:
            return self._draw_given(width, df + m, S, rng)

        return self._integrate(df, scale)._replace(draw=draw)

    def _draw_given(self, width: float, df: float, S: Any, rng: np.random.Generator) -> State:
        """Φ ~ IW(df, df₀ σ² I + S)."""
        covariance = self._draw(df, self.df * width**2 * np.eye(len(S)) + S, rng)
        return self.from_values({"covariance": covariance, "width": width}, len(S))

    def log_prior(self, state: State) -> float:
        """Log density of the lower triangle of Φ and of σ."""
        d, width = state.d, float(state.values["width"])
        df, scale = self.df + d - 1, self.df * width**2
        constant = 0.5 * df * d * math.log(0.5 * scale) - float(multigammaln(0.5 * df, d))
        trace = scale * float(np.trace(precision_of(state)))
        return constant - 0.5 * ((df + d + 1) * state.log_det + trace) + log_half_t(width, self.scale)

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw σ, then Φ."""
        return self._draw_given(sample_half_t(self.scale, rng), self.df + d - 1, np.zeros((d, d)), rng)

    def rescale(self, state: State, c: float) -> tuple[State, float]:
        """Divide Φ and σ² by c."""
        matrix, width = state.matrix() / check_positive(c, "c"), float(state.values["width"]) / math.sqrt(c)
        return self.from_values({"covariance": matrix, "width": width}, state.d), self.log_rescale(state, c)

    def log_rescale(self, state: State, c: float) -> float:
        """log p(σ/√c) − log p(σ) − ½ log c: Φ given σ has a density that follows the scale, Jacobian included."""
        width = float(state.values["width"])
        return log_half_t(width / math.sqrt(c), self.scale) - log_half_t(width, self.scale) - 0.5 * math.log(c)

    def summarise(self, states: Sequence[State]) -> State:
        """Invert the mean precision, and take the median of σ."""
        width = float(median(states, "width"))
        matrix = self._central(states)
        return self.from_values({"covariance": matrix, "width": width}, states[0].d)
