r"""What the regression knows of a kind of outcome: how labels follow from the linear predictor η = μ + xβ.

A `Family` gives, for all its outcomes at once, the log likelihood of labels with its slope and curvature in η, the
expected label, and how labels are brought to the form and scale in which chains see them. Chains, moves and
predictions know nothing else of it, so a new family is one file and one line in `families.FAMILIES`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Bools, Floats, Ints

Data = tuple[npt.NDArray[Any], ...]


class OutcomeScale(NamedTuple):
    """What labels say before any feature is looked at; each (p,), one entry per outcome."""

    fitted: Bools  # whether there is anything to explain
    constant: Floats  # η of an outcome that is not fitted
    centre: Floats  # chains see (η − centre)/width
    width: Floats


class Family(ABC):
    """A kind of outcome. Labels are (N, p) with NaN where there is none; weights (N, 1) or (N, p)."""

    name: str
    holds: str  # what labels may be, in words
    lacks: str  # what an outcome that cannot be fitted has, in words
    instead: str = "smoothed rate"  # by what such an outcome is predicted
    binary: bool = False  # labels are 0 and 1
    with_exposure: bool = False  # labels count events in a time at risk
    continuous: bool = False  # labels have a unit, which chains replace by their standard deviation
    with_events: bool = True  # a label says whether, or how often, an event happened
    pooled: bool = False  # log likelihoods of rows are not added up as they are, see `pool`

    def __str__(self) -> str:
        return self.name

    # ---- labels

    @abstractmethod
    def admits(self, labels: Floats) -> Bools:
        """Whether each is a possible label."""

    @abstractmethod
    def scale(self, labels: Floats, exposure: Floats, weights: Floats) -> OutcomeScale:
        """Level and scale of outcomes, from labels and times at risk (N, p)."""

    @abstractmethod
    def observe(self, labels: Floats, exposure: Floats, scale: OutcomeScale) -> Data:
        """Arrays (N, p) that the kernels take; outcomes that are not fitted have no label in them."""

    @abstractmethod
    def strata(self, labels: Floats) -> Floats:
        """Labels as 0 and 1 (NaN where there is none), by which folds are balanced."""

    # ---- likelihood

    @abstractmethod
    def slopes(self, eta: Floats, data: Data, weights: Floats, out: Floats) -> None:
        """∂/∂η of the weighted log likelihood into `out` (n, p), which may be `eta`; 0 where there is no label."""

    @abstractmethod
    def values_and_slopes(self, eta: Floats, data: Data, weights: Floats, out_values: Floats, out: Floats) -> None:
        """Add the weighted log likelihood of each outcome to `out_values` (p,), up to terms in the labels alone."""

    @abstractmethod
    def bend(self, eta: Floats, data: Data) -> Floats:
        """Minus the second derivative in η of each log likelihood, (n, p), without weights."""

    def size(self, data: Data, weights: Floats) -> Floats:
        """Weight of the labels of each outcome, (p,)."""
        raise NotImplementedError

    def pool(self, values: Floats, size: Floats) -> tuple[Floats, Floats]:
        """If `pooled`: log likelihoods as functions of the sums over rows, and their derivatives, each (p,)."""
        raise NotImplementedError

    def residual_variance(self, values: Floats, size: Floats) -> Floats:
        """If `pooled`: posterior mean of the variance of labels given η, in the units of chains, (p,)."""
        raise NotImplementedError

    # ---- predictions

    @abstractmethod
    def mean(self, eta: Floats) -> Floats:
        """Expected label, for counts that in one unit of exposure."""

    @abstractmethod
    def predictor(self, mean: Floats) -> Floats:
        """η with that mean."""

    @abstractmethod
    def deviance(self, labels: Floats, mean: Floats) -> Floats:
        """Twice the log likelihood that an expected label loses against the label itself; NaN where there is none."""

    @abstractmethod
    def probability(self, eta: Floats) -> Floats:
        """Probability of an event; NaN for outcomes that have none."""


class Observed(NamedTuple):
    """The outcomes of one family, as its kernels take them."""

    family: Family
    columns: Ints  # (p,), their numbers
    data: Data

    def of_outcome(self, j: int) -> Observed:
        """One of them alone."""
        place = np.flatnonzero(self.columns == j)
        data = tuple(np.ascontiguousarray(array[:, place]) for array in self.data)
        return Observed(self.family, np.zeros(1, dtype=np.int64), data)
