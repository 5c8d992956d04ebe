r"""One learned variance for all features: Φ = σ² I with σ ~ half-t(2, scale).

The half-t is a mixture, σ² | a ~ IG(1, 2/a) with a ~ IG(½, 1/scale²) (Wand et al. 2011), so that given a draw of a the
conjugate updates of `model.covariance.Spherical` do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from coaltree.model.covariance import Spherical
from coaltree.model.family import Integrated, Linear, State, Values, check_positive, sample_inverse_gamma
from coaltree.model.pooled import WIDTH_DF, log_half_t, sample_half_t


@dataclass(frozen=True)
class PooledSpherical(Linear):
    """Φ = σ² I; the one value is σ², densities are of it."""

    scale: float = 1.0
    value = "variance"
    diagonal_only = True

    def __post_init__(self) -> None:
        check_positive(self.scale, "scale")

    def n_free(self, d: int) -> int:
        """One."""
        return 1

    def start(self, guess: Any) -> State:
        """Take the mean variance."""
        return Spherical().start(guess)

    def from_values(self, values: Values, d: int) -> State:
        """Rebuild from {"variance": σ²}."""
        return Spherical().from_values(values, d)

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Draw a, then σ² | a, S."""
        return self._given(state, rng).update(state, S, m, rng)

    def integrated(self, state: State, rng: np.random.Generator) -> Integrated:
        """Integrate out σ² | a."""
        return self._given(state, rng).integrated(state, rng)

    def _given(self, state: State, rng: np.random.Generator) -> Spherical:
        """The prior of σ² given a draw of a | σ² ~ IG(3/2, 1/scale² + 2/σ²)."""
        rate = self.scale**-2.0 + WIDTH_DF / float(state.values["variance"])
        a = float(sample_inverse_gamma(0.5 * (WIDTH_DF + 1.0), rate, rng))
        return Spherical(0.5 * WIDTH_DF, WIDTH_DF / a)

    def log_prior(self, state: State) -> float:
        """Log density of σ²: that of σ over 2σ."""
        width = math.sqrt(float(state.values["variance"]))
        return log_half_t(width, self.scale) - math.log(2.0 * width)

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw σ."""
        return self.from_values({"variance": sample_half_t(self.scale, rng) ** 2}, d)

    def log_rescale(self, state: State, c: float) -> float:
        """log p(σ/√c) − log p(σ) − ½ log c, which a slice asks for often."""
        width = math.sqrt(float(state.values["variance"]))
        return log_half_t(width / math.sqrt(c), self.scale) - log_half_t(width, self.scale) - 0.5 * math.log(c)
