r"""A full Φ shrunk towards one variance for all columns, by as much as the data ask for.

    Φ | σ², ν ~ IW(ν + d − 1, ν σ² I),   σ² ~ IG(shape, scale),   ν = 2 + x,   x / (x + d) ~ Uniform(0, 1).

ν is the strength: Φ is learned as if ν further contrasts had been seen that agree with σ² I. As ν → ∞ this is
`coaltree.model.covariance.Spherical` with the same prior; at ν = 2 correlations are uniform, as in `HuangWand`. With
f = ν + d − 1 and the eigenvalues λ of S, Φ integrates out of the m contrasts,

    p(S | σ², ν) ∝ Γ_d((f + m)/2) / Γ_d(f/2) · (νσ²)^(df/2) Π_j (νσ² + λ_j)^(−(f + m)/2),

so that σ² and ν take a slice each, at O(d) per density, and Φ is then drawn exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import multigammaln

from coaltree._arrays import Floats
from coaltree.model.factorisations import DenseRoot
from coaltree.model.family import (
    DEFAULT_SCALE,
    DEFAULT_SHAPE,
    Integrated,
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
from coaltree.model.slice import slice_step
from coaltree.model.wishart import Full, check_independent, precision_of

# The least strength, and the range of what exceeds it: beyond, Φ is spherical to all digits that matter.
LEAST_DF, LEAST_EXCESS, MOST_EXCESS = 2.0, 1e-6, 1e6
# Bounds of log σ².
FARTHEST = 60.0


def log_marginal(spectrum: Floats, m: int, variance: float, df: float) -> float:
    """log p(S | σ², ν) with Φ integrated out, up to terms of S and m alone, from the eigenvalues (d,) of S."""
    d, full, level = len(spectrum), df + len(spectrum) - 1.0, df * variance
    counts = float(multigammaln(0.5 * (full + m), d) - multigammaln(0.5 * full, d))
    # In differences to νσ²: both determinants alone are of the order ν.
    volume = 0.5 * (full + m) * float(np.log1p(spectrum / level).sum())
    return counts - 0.5 * m * d * math.log(level) - volume


@dataclass(frozen=True)
class ShrunkWishart(Full):
    """Full Φ shrunk towards σ² I with a learned strength ν; values are Φ, σ² and ν, and densities are of all three.

    The amplitude of a state is σ², which draws can restrict to σ² ≥ `least`.
    """

    shape: float = DEFAULT_SHAPE
    scale: float = DEFAULT_SCALE

    def __post_init__(self) -> None:
        check_positive(self.shape, "shape")
        check_positive(self.scale, "scale")

    def start(self, guess: Any) -> State:
        """Take the variances, without correlations, their mean, and a strength of d."""
        variances = guess_variances(guess)
        d = len(variances)
        values: Values = {"covariance": np.diag(variances), "variance": float(variances.mean()), "df": LEAST_DF + d}
        return self.from_values(values, d)

    def from_values(self, values: Values, d: int) -> State:
        """Rebuild from {"covariance": Φ, "variance": σ², "df": ν}."""
        variance, df = check_positive(values["variance"], "variance"), check_positive(values["df"], "df")
        plain = super().from_values(values, d)
        root = plain.root
        assert isinstance(root, DenseRoot)
        relative = DenseRoot(root.factor / math.sqrt(variance))
        return State({**plain.values, "variance": variance, "df": df}, relative, variance)

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator, least: float = 0.0) -> State:
        """Slice σ² and ν with Φ integrated out, then draw Φ ~ IW(ν + d − 1 + m, νσ² I + S)."""
        S, m = check_scatter(S, m, state.d)
        check_independent(S, m)
        spectrum = np.maximum(np.linalg.eigvalsh(S), 0.0)
        variance, df = float(state.values["variance"]), float(state.values["df"])

        def of_variance(x: float) -> float:
            prior = log_inverse_gamma(math.exp(x), self.shape, self.scale) + x
            return prior + log_marginal(spectrum, m, math.exp(x), df)

        lower = math.log(least) if least > 0.0 else -FARTHEST
        x = max(math.log(variance), lower)  # equal to the bound up to rounding, at least
        x, _ = slice_step(of_variance, x, of_variance(x), rng, lower=lower, upper=FARTHEST)
        variance = math.exp(x)

        def of_excess(x: float) -> float:
            excess = math.exp(x)
            return log_marginal(spectrum, m, variance, LEAST_DF + excess) + x - 2.0 * math.log(excess + state.d)

        bounds = {"lower": math.log(LEAST_EXCESS), "upper": math.log(MOST_EXCESS)}
        x = min(max(math.log(max(df - LEAST_DF, LEAST_EXCESS)), bounds["lower"]), bounds["upper"])
        x, _ = slice_step(of_excess, x, of_excess(x), rng, width=2.0, **bounds)
        return self._draw_given(variance, LEAST_DF + math.exp(x), S, m, rng)

    def _draw_given(self, variance: float, df: float, S: Any, m: int, rng: np.random.Generator) -> State:
        d = len(S)
        matrix = self._draw(df + d - 1.0 + m, df * variance * np.eye(d) + S, rng)
        return self.from_values({"covariance": matrix, "variance": variance, "df": df}, d)

    def integrated(self, state: State, rng: np.random.Generator) -> Integrated:
        """Integrate out Φ | σ², ν; these stay."""
        d, variance, df = state.d, float(state.values["variance"]), float(state.values["df"])

        def draw(S: Floats, m: int, rng: np.random.Generator, least: float = 0.0) -> State:
            return self._draw_given(variance, df, S, m, rng)

        return self._integrate(df + d - 1.0, df * variance * np.eye(d))._replace(draw=draw)

    def log_prior(self, state: State) -> float:
        """Log density of the lower triangle of Φ, of σ² and of ν."""
        d, variance, df = state.d, float(state.values["variance"]), float(state.values["df"])
        full, level = df + d - 1.0, df * variance
        constant = 0.5 * full * d * math.log(0.5 * level) - float(multigammaln(0.5 * full, d))
        wishart = constant - 0.5 * ((full + d + 1.0) * state.log_det + level * float(np.trace(precision_of(state))))
        strength = math.log(d) - 2.0 * math.log(df - LEAST_DF + d) - math.log(np.ptp(_shares(d)))
        return wishart + log_inverse_gamma(variance, self.shape, self.scale) + strength

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw σ² and ν, then Φ."""
        share = rng.uniform(*_shares(check_dimension(d)))
        variance = float(sample_inverse_gamma(self.shape, self.scale, rng))
        return self._draw_given(variance, LEAST_DF + d * share / (1.0 - share), np.zeros((d, d)), 0, rng)

    def rescale(self, state: State, c: float) -> tuple[State, float]:
        """Divide Φ and σ² by c; given σ², density and Jacobian of Φ cancel."""
        check_positive(c, "c")
        scaled: Values = {name: state.values[name] / c for name in ("covariance", "variance")}
        return self.from_values({**scaled, "df": state.values["df"]}, state.d), self.log_rescale(state, c)

    def log_rescale(self, state: State, c: float) -> float:
        """Return the log ratio of the prior of σ² and the Jacobian, 1/c."""
        return self.shape * math.log(c) - self.scale * (c - 1.0) / float(state.values["variance"])

    def summarise(self, states: Sequence[State]) -> State:
        """Invert the mean precision, and take the medians of σ² and ν."""
        values = {"variance": float(median(states, "variance")), "df": float(median(states, "df"))}
        matrix = self._central(states)
        return self.from_values({"covariance": matrix, **values}, states[0].d)


def _shares(d: int) -> Floats:
    """Bounds of x / (x + d)."""
    excess: Floats = np.array([LEAST_EXCESS, MOST_EXCESS])
    shares: Floats = excess / (excess + d)
    return shares
