r"""The prior of intercepts and coefficients.

    μ_j ~ N(0, 5²)                                            on centred features, in units of the link
    β_j − β_l, all pairs, given (tree, Φ, s₀): the leaves of a Brownian motion along the tree, covariance Φ
    β̄ = (1/P) Σ_j β_j ~ N(0, τ² I), independent of those differences;   τ ~ half-t(2, scale)
    tree ~ Kingman's coalescent;   s₀ ~ Exponential(1);   Φ ~ IW(ν + K − 1, ν σ² I);   σ ~ half-t(2, scale)

A flat prior at the root determines the density of differences between leaves and leaves their common level free. A
separate prior on that level, the plain mean β̄, makes the joint density proper, and because β̄ is independent of tree, Φ
and s₀, the conditionals of those three are the same as under a flat root: `inference.learning.chain` draws them as it
does for a table. (A prior N(0, cΦ) on the root itself would enter every tree move.) The width τ of β̄ is learned, so
that what all outcomes share is shrunk as in ridge regression, by as much as the data require. A single outcome has no
differences: only β ~ N(0, τ² I) remains.

The two widths τ and σ set the only scales, and both are learned, each from all features at once. Widths learned feature
by feature (Huang & Wand 2013) collapse to zero where labels say little, and intervals of coefficients are then too
short: when the true widths are equal, 90 % intervals cover 86 %.

Given everything else, (μ, β) is Gaussian with precision, over outcomes ⊗ features,

    Q ⊗ Φ⁻¹ + (1/P²) 1 1ᵀ ⊗ I/τ²,   Q = Σ_k c_k c_kᵀ,

where c_k are the weights of the leaves in contrast k (`model.diffusion.contrasts`).

**Many features** (`wide_prior`). A full Φ of hundreds of features cannot be learned, and few of them may matter. Then
every feature has its own width λ_k, which all outcomes share, and β_jk/λ_k has the prior above with Φ = σ² I:

    λ_k² ~ IG(ν/2, ν/2),   ν ∈ DFS, equally likely;   σ, τ ~ half-t(2, scale).

So the effects of a feature on P outcomes are jointly t-distributed with ν degrees of freedom, from Cauchy tails (a few
features matter a lot) to nearly normal ones (all matter a little, as in ridge regression); the data choose.
The precision of β is A ⊗ Λ⁻² with A = Q/σ² + 1 1ᵀ/(Pτ)².
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Floats
from coaltree._compile import kernel
from coaltree.inference.learning.chain import Unknowns
from coaltree.model.coalescent import sample_tree
from coaltree.model.covariance import CovarianceFamily, PooledWishart, Spherical
from coaltree.model.diffusion import contrasts, sample_data
from coaltree.model.family import Integrated, Linear, State, Values, check_positive, sample_inverse_gamma
from coaltree.model.wishart import WIDTH_DF, log_half_t, sample_half_t

INTERCEPT_SD = 5.0
# ν: the larger, the more alike the widths of features.
DF = 10.0
# Degrees of freedom of a feature's effects when features are many.
DFS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 64.0])


@dataclass(frozen=True)
class PooledSpherical(Linear):
    """One learned variance for all features: Φ = σ² I with σ ~ half-t(2, scale); densities are of σ².

    The half-t is a mixture, σ² | a ~ IG(1, 2/a) with a ~ IG(½, 1/scale²) (Wand et al. 2011), so that given a draw of a
    the conjugate updates of `model.covariance.Spherical` apply.
    """

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
        """log p(σ/√c) − log p(σ) − ½ log c, which slice sampling evaluates often."""
        width = math.sqrt(float(state.values["variance"]))
        return log_half_t(width / math.sqrt(c), self.scale) - log_half_t(width, self.scale) - 0.5 * math.log(c)


class Prior(NamedTuple):
    """What is fixed before any data."""

    family: CovarianceFamily
    spread_scale: float  # scale of τ
    intercept_sd: float = INTERCEPT_SD
    wide: bool = False  # every feature has its own width


class Hyper(NamedTuple):
    """All unknowns but the coefficients."""

    unknowns: Unknowns | None  # tree, Φ, s₀; None for a single outcome
    spread: float  # τ
    widths: Floats | None = None  # λ, (K,), for a wide prior
    df: float = np.inf  # ν


def wide_prior(scale: float) -> Prior:
    """The prior for many features."""
    return Prior(PooledSpherical(scale), scale, wide=True)


def default_prior(scale: float) -> Prior:
    """Φ and the common level on one scale: that of coefficients of features of unit variance."""
    return Prior(PooledWishart(DF, scale), scale)


@kernel
def _assemble(Q: Floats, phi_inverse: Floats, level: float, intercept: float, out: Floats) -> None:
    """Q ⊗ Φ⁻¹ + level 1 1ᵀ ⊗ I, with `intercept` on the diagonal of every outcome's first entry."""
    n_outcomes, n_features = len(Q), len(phi_inverse)
    for i in range(n_outcomes):
        for k in range(n_features + 1):
            for j in range(n_outcomes):
                if k == 0:
                    out[i, 0, j, :] = 0.0
                    continue
                out[i, k, j, 0] = 0.0
                for m in range(n_features):
                    out[i, k, j, m + 1] = Q[i, j] * phi_inverse[k - 1, m]
                out[i, k, j, k] += level
        out[i, 0, i, 0] = intercept


def precision(hyper: Hyper, prior: Prior, n_outcomes: int, n_features: int) -> Floats:
    """Precision of (μ_j, β_j), j = 1 … P, shape (P, K+1, P, K+1)."""
    Q, phi_inverse = np.zeros((n_outcomes, n_outcomes)), np.eye(n_features)
    if hyper.unknowns is not None:
        now = hyper.unknowns
        Q = contrast_precision(now, n_outcomes)
        half = now.covariance.whiten(np.eye(n_features))
        phi_inverse = half @ half.T
    result = np.empty((n_outcomes, n_features + 1, n_outcomes, n_features + 1))
    level = (n_outcomes * hyper.spread) ** -2.0
    _assemble(Q, phi_inverse, level, prior.intercept_sd**-2.0, result)
    return result


def contrast_precision(unknowns: Unknowns, n_outcomes: int) -> Floats:
    """Q, (P, P)."""
    weights = contrasts(unknowns.tree, np.eye(n_outcomes), unknowns.leaf_noise)
    return np.asarray(weights.T @ weights)


def outcome_precision(hyper: Hyper, n_outcomes: int) -> Floats:
    """A = Q/σ² + 1 1ᵀ/(Pτ)² of a wide prior, (P, P)."""
    A = np.full((n_outcomes, n_outcomes), (n_outcomes * hyper.spread) ** -2.0)
    if hyper.unknowns is not None:
        A += contrast_precision(hyper.unknowns, n_outcomes) / float(hyper.unknowns.covariance.values["variance"])
    return A


def sample_prior(prior: Prior, n_outcomes: int, n_features: int, rng: np.random.Generator) -> tuple[Hyper, Floats]:
    """Draw everything: hyperparameters and (μ, β), (P, K+1). For simulation and for tests of calibration."""
    spread = sample_half_t(prior.spread_scale, rng)
    theta = np.empty((n_outcomes, n_features + 1))
    theta[:, 0] = prior.intercept_sd * rng.standard_normal(n_outcomes)
    theta[:, 1:] = spread * rng.standard_normal(n_features)
    hyper = Hyper(None, spread)
    if n_outcomes > 1:
        covariance = prior.family.sample_prior(n_features, rng)
        tree = sample_tree(n_outcomes, rng)
        noise = np.full(n_outcomes, rng.exponential())
        leaves = sample_data(tree, covariance.compact(), leaf_noise=noise, random_state=rng)
        theta[:, 1:] += leaves - leaves.mean(axis=0)
        hyper = Hyper(Unknowns(tree, covariance, noise), spread)
    if prior.wide:
        df = float(rng.choice(DFS))
        widths = np.sqrt(sample_inverse_gamma(np.full(n_features, 0.5 * df), 0.5 * df, rng))
        theta[:, 1:] *= widths
        hyper = hyper._replace(widths=widths, df=df)
    return hyper, theta
