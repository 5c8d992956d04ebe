r"""Counts of events in a time at risk e: y ~ Poisson(e exp(η)).

    l = yη − e exp(η)   up to terms in y and e alone

With y = 1 for an event and 0 for none, and e the part of the horizon until the event or the end of observation, this is
the likelihood of a constant hazard exp(η) under censoring, and 1 − exp(−exp(η)) the risk within one unit of e.

Chains see η less the log of an outcome's overall rate, so the unit of e does not matter.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from coaltree._arrays import Bools, Floats
from coaltree._compile import inline, kernel
from coaltree.regression.families.base import Data, Family, OutcomeScale

# Above this the log likelihood goes on with the slope it has here: such points have no likelihood to speak of, and
# numbers stay finite.
HIGHEST = 50.0


@inline
def _expected(eta: float, exposure: float) -> float:
    """Events to expect; NaN stays NaN, so a diverged step can be detected."""
    return exposure * math.exp(HIGHEST if eta > HIGHEST else eta)


@kernel
def count_slopes(eta: Floats, counts: Floats, exposure: Floats, weights: Floats, out: Floats) -> None:
    """w (y − e exp(η)) into `out` (n, p), which may be `eta`; weights (n, p), or (n, 1) if all outcomes share them."""
    n, n_outcomes = eta.shape
    own = min(weights.shape[1] - 1, 1)
    for i in range(n):
        for j in range(n_outcomes):
            out[i, j] = weights[i, own * j] * (counts[i, j] - _expected(eta[i, j], exposure[i, j]))


@kernel
def count_values_and_slopes(
    eta: Floats, counts: Floats, exposure: Floats, weights: Floats, out_values: Floats, out: Floats
) -> None:
    """Add Σ_i w (yη − e exp(η)) of each outcome to `out_values` (p,), and compute slopes as `count_slopes` does."""
    n, n_outcomes = eta.shape
    own = min(weights.shape[1] - 1, 1)
    for i in range(n):
        for j in range(n_outcomes):
            weight, expected = weights[i, own * j], _expected(eta[i, j], exposure[i, j])
            beyond = eta[i, j] - HIGHEST if eta[i, j] > HIGHEST else 0.0
            out_values[j] += weight * (counts[i, j] * eta[i, j] - expected * (1.0 + beyond))
            out[i, j] = weight * (counts[i, j] - expected)


class Poisson(Family):
    """Counts with exposure."""

    name = "poisson"
    holds = "counts (0, 1, 2, …)"
    lacks = "no event"
    with_exposure = True

    def admits(self, labels: Floats) -> Bools:
        """Whole numbers from 0."""
        return np.asarray((labels >= 0) & (labels == np.floor(labels)) & np.isfinite(labels))

    def scale(self, labels: Floats, exposure: Floats, weights: Floats) -> OutcomeScale:
        """The overall rate, with half an event in half a mean exposure more; an event is needed."""
        known = np.where(np.isnan(labels), 0.0, weights)
        events, at_risk = np.nansum(known * labels, axis=0), (known * exposure).sum(axis=0)
        total = known.sum(axis=0)
        usual = np.where(total > 0.0, at_risk / np.where(total > 0.0, total, 1.0), 1.0)
        log_rate = np.log((events + 0.5) / (at_risk + 0.5 * usual))
        return OutcomeScale(events > 0.0, log_rate, log_rate, np.ones(len(events)))

    def observe(self, labels: Floats, exposure: Floats, scale: OutcomeScale) -> Data:
        """Counts, and exposures times the overall rate; both 0 where there is no label."""
        known = ~np.isnan(labels) & scale.fitted
        return np.where(known, labels, 0.0), np.where(known, exposure * np.exp(scale.centre), 0.0)

    def strata(self, labels: Floats) -> Floats:
        """Whether there was an event."""
        return np.where(np.isnan(labels), np.nan, labels > 0.0)

    def slopes(self, eta: Floats, data: Data, weights: Floats, out: Floats) -> None:
        """Events less events to expect."""
        counts, exposure = data
        count_slopes(eta, counts, exposure, weights, out)

    def values_and_slopes(self, eta: Floats, data: Data, weights: Floats, out_values: Floats, out: Floats) -> None:
        """Log likelihood, and slopes."""
        counts, exposure = data
        count_values_and_slopes(eta, counts, exposure, weights, out_values, out)

    def bend(self, eta: Floats, data: Data) -> Floats:
        """Events to expect."""
        return np.asarray(data[1] * np.exp(np.minimum(eta, HIGHEST)))

    def mean(self, eta: Floats) -> Floats:
        """The rate, events per unit of exposure."""
        return np.exp(eta)

    def predictor(self, mean: Floats) -> Floats:
        """Its logarithm."""
        return np.log(mean)

    def deviance(self, labels: Floats, mean: Floats) -> Floats:
        """2 (y log(y/m) − y + m)."""
        return np.asarray(2.0 * (special.xlogy(labels, labels / mean) - labels + mean))

    def probability(self, eta: Floats) -> Floats:
        """1 − exp(−rate): the probability of at least one event in one unit of exposure."""
        return np.asarray(-special.expm1(-np.exp(eta)))


POISSON = Poisson()
