"""Outcomes that are 0 or 1: y ~ Bernoulli(Ψ(η)), Ψ a link of `coaltree.regression.links`.

A label becomes a sign, 1 or −1, and 0 where there is none: log Ψ(±η) is then one function of one number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from coaltree._arrays import Bools, Floats
from coaltree.regression import links
from coaltree.regression.families.base import Data, Family, OutcomeScale


def as_signs(labels: Floats) -> links.Signs:
    """Labels of 0, 1 and NaN as −1, 1 and 0."""
    return np.where(np.isnan(labels), 0, np.where(labels == 1, 1, -1)).astype(np.int8)


@dataclass(frozen=True)
class Binary(Family):
    """Events that happen or not, given their link."""

    name: str
    link: int

    holds = "0 and 1"
    lacks = "a single class"
    binary = True

    def admits(self, labels: Floats) -> Bools:
        """0 and 1."""
        return np.asarray((labels == 0) | (labels == 1))

    def scale(self, labels: Floats, exposure: Floats, weights: Floats) -> OutcomeScale:
        """The smoothed rate (events + ½)/(labels + 1); both classes are needed."""
        n, zeros = labels.shape[1], np.zeros(labels.shape[1])
        fitted = (labels == 1).any(axis=0) & (labels == 0).any(axis=0)
        return OutcomeScale(fitted, self.predictor(smoothed_rates(labels, weights)), zeros, np.ones(n))

    def observe(self, labels: Floats, exposure: Floats, scale: OutcomeScale) -> Data:
        """Signs."""
        return (as_signs(np.where(scale.fitted, labels, np.nan)),)

    def strata(self, labels: Floats) -> Floats:
        """Labels as they are."""
        return labels

    def slopes(self, eta: Floats, data: Data, weights: Floats, out: Floats) -> None:
        """±λ(±η), λ = (log Ψ)′."""
        links.slopes(eta, data[0], weights, links.table(self.link), self.link, out)

    def values_and_slopes(self, eta: Floats, data: Data, weights: Floats, out_values: Floats, out: Floats) -> None:
        """Log Ψ(±η), and slopes."""
        links.values_and_slopes(eta, data[0], weights, links.table(self.link), self.link, out_values, out)

    def bend(self, eta: Floats, data: Data) -> Floats:
        """λ(λ + z) for the probit and λ(1 − λ) for the logit."""
        z = data[0] * eta
        slope = links.link_slope(z, self.link)
        bend = slope * (slope + z) if self.link == links.PROBIT else slope * (1.0 - slope)
        # Far in the lower tail λ + z is a difference of near equals; the true value lies between 0 and 1.
        return np.asarray(np.clip(bend, 0.0, 1.0) * np.abs(data[0]))

    def mean(self, eta: Floats) -> Floats:
        """Ψ(η)."""
        return links.probability(eta, self.link)

    def predictor(self, mean: Floats) -> Floats:
        """Ψ⁻¹."""
        return links.quantile(mean, self.link)

    def deviance(self, labels: Floats, mean: Floats) -> Floats:
        """−2 log p of the label."""
        return np.asarray(-2.0 * (special.xlogy(labels, mean) + special.xlog1py(1.0 - labels, -mean)))

    def probability(self, eta: Floats) -> Floats:
        """Ψ(η)."""
        return links.probability(eta, self.link)


def smoothed_rates(labels: Floats, weights: Floats) -> Floats:
    """Weighted share of ones of each outcome, (p,), with half a one and half a zero more; weights (N, …)."""
    known = np.where(np.isnan(labels), 0.0, weights.reshape(len(weights), -1))
    return np.asarray((np.nansum(known * labels, axis=0) + 0.5) / (known.sum(axis=0) + 1.0))


PROBIT, LOGIT = (Binary(name, code) for name, code in links.LINKS.items())
