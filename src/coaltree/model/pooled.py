r"""Full covariance with one learned width: an inverse Wishart whose scale is drawn with it.

    σ ~ half-t(2, scale),   Φ | σ ~ IW(df + d − 1, df σ² I).

Every feature has the same prior, Φ_kk ~ IG(df/2, df σ²/2), and together they say what σ is. `HuangWand` gives each
feature a width of its own and lets it be as small as it likes: where data are weak, features then lose all variance,
and intervals with it. Here none can fall far below σ, while the heavy tail leaves room for a few that are far above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import multigammaln

from coaltree._arrays import Floats
from coaltree.model.family import Integrated, State, Values, check_positive, check_scatter, guess_variances, median
from coaltree.model.slice import slice_step
from coaltree.model.wishart import Full, factorise, precision_of

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

    `df` says how much alike features are: Φ_kk is about σ², within a factor that 1/χ²_df allows, and correlations have
    a standard deviation near (df + d)^(−½). Any `scale` near or above the truth does.
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
        mean_precision = np.mean([precision_of(state) for state in states], axis=0)
        matrix = factorise(mean_precision, "precision").precision
        return self.from_values({"covariance": matrix, "width": width}, states[0].d)
