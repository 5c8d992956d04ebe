r"""Continuous outcomes: y ~ N(η, σ²), σ² unknown in each outcome and integrated out.

    σ² ~ IG(a, b):   p(y | η) ∝ (b + ½ Σ_i w_i (y_i − η_i)²)^(−a − ½ Σ_i w_i)

So rows give the sum v = −½ Σ w (y − η)², and l = −A log(b − v) with A = a + ½ Σ w: the family is pooled, and no chain
has to draw σ². Given η it is IG(A, b − v).

Chains see y from its mean in units of its standard deviation, so the prior is the same in every unit of y. It weighs as
much as two labels with a residual of a tenth of that.
"""

from __future__ import annotations

import numpy as np

from coaltree._arrays import Bools, Floats
from coaltree._compile import kernel
from coaltree.regression.families.base import Data, Family, OutcomeScale

SHAPE, RATE = 1.0, 0.01  # a, b


@kernel
def residuals(eta: Floats, labels: Floats, weights: Floats, out_values: Floats, out: Floats) -> None:
    """Add −½ Σ_i w (y − η)² of each outcome to `out_values` (p,), and compute w (y − η) into `out`; NaN is no label."""
    n, n_outcomes = eta.shape
    own = min(weights.shape[1] - 1, 1)
    for i in range(n):
        for j in range(n_outcomes):
            if np.isnan(labels[i, j]):
                out[i, j] = 0.0
                continue
            gap = labels[i, j] - eta[i, j]
            out_values[j] -= 0.5 * weights[i, own * j] * gap * gap
            out[i, j] = weights[i, own * j] * gap


class Normal(Family):
    """Measurements."""

    name = "normal"
    holds = "finite numbers"
    lacks = "no two different values"
    instead = "mean"
    continuous = True
    with_events = False
    pooled = True

    def admits(self, labels: Floats) -> Bools:
        """Whatever is finite."""
        return np.isfinite(labels)

    def scale(self, labels: Floats, exposure: Floats, weights: Floats) -> OutcomeScale:
        """Weighted mean and standard deviation; two different labels are needed."""
        known = np.where(np.isnan(labels), 0.0, weights)
        total = np.maximum(known.sum(axis=0), np.finfo(np.float64).tiny)
        values = np.nan_to_num(labels)
        mean = (known * values).sum(axis=0) / total
        width = np.sqrt((known * (values - mean) ** 2).sum(axis=0) / total)
        fitted = width > 1e-10 * np.max(np.abs(values), axis=0, where=known > 0.0, initial=0.0)
        return OutcomeScale(fitted, mean, mean, np.where(fitted, width, 1.0))

    def observe(self, labels: Floats, exposure: Floats, scale: OutcomeScale) -> Data:
        """Labels from the mean, in standard deviations; NaN where there is none."""
        return (np.where(scale.fitted, (labels - scale.centre) / scale.width, np.nan),)

    def strata(self, labels: Floats) -> Floats:
        """Whether a label is above the middle one."""
        known = ~np.isnan(labels)
        middle = np.array([np.median(y[own]) if own.any() else 0.0 for y, own in zip(labels.T, known.T, strict=True)])
        return np.where(known, labels > middle, np.nan)

    def slopes(self, eta: Floats, data: Data, weights: Floats, out: Floats) -> None:
        """Weighted residuals."""
        residuals(eta, data[0], weights, np.zeros(eta.shape[1]), out)

    def values_and_slopes(self, eta: Floats, data: Data, weights: Floats, out_values: Floats, out: Floats) -> None:
        """Minus half their squares, and residuals."""
        residuals(eta, data[0], weights, out_values, out)

    def bend(self, eta: Floats, data: Data) -> Floats:
        """One where there is a label."""
        return np.asarray(~np.isnan(data[0]), dtype=np.float64)

    def size(self, data: Data, weights: Floats) -> Floats:
        """Weight of the labels."""
        return np.asarray(np.where(np.isnan(data[0]), 0.0, weights).sum(axis=0))

    def pool(self, values: Floats, size: Floats) -> tuple[Floats, Floats]:
        """−A log(b − v) and A/(b − v)."""
        A, rest = SHAPE + 0.5 * size, RATE - values
        return -A * np.log(rest), A / rest

    def residual_variance(self, values: Floats, size: Floats) -> Floats:
        """(b − v)/(A − 1), the mean of σ² given η; 0 without labels."""
        more = np.where(size > 0.0, SHAPE + 0.5 * size - 1.0, np.inf)
        return (RATE - values) / more

    def mean(self, eta: Floats) -> Floats:
        """η itself."""
        return eta

    def predictor(self, mean: Floats) -> Floats:
        """Likewise."""
        return mean

    def deviance(self, labels: Floats, mean: Floats) -> Floats:
        """The squared error, in the units of the labels and not of σ²."""
        return np.square(labels - mean)

    def probability(self, eta: Floats) -> Floats:
        """There are no events."""
        return np.full_like(eta, np.nan)


NORMAL = Normal()
