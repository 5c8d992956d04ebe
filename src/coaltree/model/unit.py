r"""Families of Φ where some coordinates have variance 1: those of binary, ordinal and categorical columns.

Observations of such a column do not depend on the scale of its coordinates, so their variance is set to 1 per unit of
time. `UnitDiagonal` is "spherical" or "diagonal" with the others learned. `UnitWishart` is a full matrix with ones on
part of its diagonal: the prior of `HuangWand`, whose standard deviations are flat in their logarithm, restricted to
those ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coaltree._arrays import Bools, Floats
from coaltree.errors import InputError
from coaltree.model.covariance import Diagonal, Spherical, as_family
from coaltree.model.factorisations import DiagonalRoot
from coaltree.model.family import CovarianceFamily, Integrated, State, Values, integrate_columns, unchanged
from coaltree.model.wishart import HuangWand


@dataclass(frozen=True, eq=False)
class UnitDiagonal(CovarianceFamily):
    """A diagonal Φ whose entries are 1 where `unit`, and elsewhere those of `inner`, spherical or diagonal."""

    inner: Spherical | Diagonal
    unit: Bools  # (D,)
    diagonal_only = True

    @property
    def n_free(self) -> int:
        """Coordinates whose variance is learned."""
        return int(np.count_nonzero(~self.unit))

    def _wrap(self, inside: State | None) -> State:
        variances = np.ones(len(self.unit))
        if inside is None:
            return State({}, DiagonalRoot(variances))
        variances[~self.unit] = inside.variances()
        return State(inside.values, DiagonalRoot(variances))

    def _inside(self, state: State) -> State:
        return self.inner.from_values(state.values, self.n_free)

    def start(self, guess: Any) -> State:
        """Begin with the variances of the coordinates that have a scale."""
        return self._wrap(self.inner.start(np.asarray(guess)[~self.unit]) if self.n_free else None)

    def from_values(self, values: Values, d: int) -> State:
        """Rebuild."""
        return self._wrap(self.inner.from_values(values, self.n_free) if self.n_free else None)

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Draw the learned variances."""
        if not self.n_free:
            return state
        counts = np.asarray(m)[~self.unit] if np.ndim(m) else m
        sums = np.diag(S) if np.ndim(S) == 2 else np.asarray(S)
        return self._wrap(self.inner.update(self._inside(state), sums[~self.unit], counts, rng))

    def integrated(self, state: State, rng: np.random.Generator) -> Integrated | None:
        """Integrate out the learned variances; the others enter unchanged."""
        if not self.n_free:
            return None
        inside = self.inner.integrated(self._inside(state), rng)
        free = ~self.unit
        of_sums = inside.log_marginal_of_sums
        if of_sums is None:
            return None
        return integrate_columns(
            unchanged,
            lambda sums, m: of_sums(sums[free], m) - 0.5 * float(sums[self.unit].sum()),
            lambda S, m, rng: self.update(state, S, m, rng),
        )

    def log_prior(self, state: State) -> float:
        """Log density of the learned variances."""
        return self.inner.log_prior(self._inside(state)) if self.n_free else 0.0

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw them."""
        return self._wrap(self.inner.sample_prior(self.n_free, rng) if self.n_free else None)

    def rescale(self, state: State, c: float) -> tuple[State, float]:
        """Divide them by c; the ones stay, and the caller scales their coordinates instead."""
        if not self.n_free:
            return state, 0.0
        inside, log_ratio = self.inner.rescale(self._inside(state), c)
        return self._wrap(inside), log_ratio

    def log_rescale(self, state: State, c: float) -> float:
        """Return the second part of `rescale`."""
        return self.inner.log_rescale(self._inside(state), c) if self.n_free else 0.0

    def summarise(self, states: Sequence[State]) -> State:
        """Take medians."""
        return self._wrap(self.inner.summarise([self._inside(state) for state in states]) if self.n_free else None)


@dataclass(frozen=True, eq=False)
class UnitWishart(CovarianceFamily):
    """A full Φ with ones on the diagonal where `unit`."""

    inner: HuangWand
    unit: Bools
    diagonal_only = False

    def normalised(self, state: State) -> tuple[State, Floats]:
        """Return the state with ones where they belong, and the standard deviations that were there, 1 elsewhere."""
        deviations = np.where(self.unit, np.sqrt(state.variances()), 1.0)
        return self._state(state.matrix() / np.outer(deviations, deviations)), deviations

    def _state(self, matrix: Floats) -> State:
        exact = matrix.copy()
        exact[self.unit, self.unit] = 1.0
        return self.inner.from_values({"covariance": exact}, len(exact))

    def start(self, guess: Any) -> State:
        """Begin with the guess, scaled."""
        guess = np.asarray(guess)
        return self.normalised(self.inner.start(np.diag(guess) if guess.ndim == 1 else guess))[0]

    def from_values(self, values: Values, d: int) -> State:
        """Rebuild."""
        return self.inner.from_values(values, d)

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Draw Φ with a free diagonal, as `inner` does; `normalised` is for callers that can rescale coordinates."""
        return self.inner.update(state, S, m, rng)

    def integrated(self, state: State, rng: np.random.Generator) -> None:
        """Return None: with ones on the diagonal the prior is not conjugate."""

    def log_prior(self, state: State) -> float:
        """Log density of `inner` at the ones, up to a constant."""
        return self.inner.log_prior(state)

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw Φ and scale it."""
        return self.normalised(self.inner.sample_prior(d, rng))[0]

    def rescale(self, state: State, c: float) -> tuple[State, float]:
        """Divide by √c the rows and columns that have a scale; the Jacobian is that of the lower triangle."""
        factors = np.where(self.unit, 1.0, 1.0 / math.sqrt(c))
        new = self._state(state.matrix() * np.outer(factors, factors))
        log_jacobian = -0.5 * (state.d + 1) * int(np.count_nonzero(~self.unit)) * math.log(c)
        return new, self.inner.log_prior(new) - self.inner.log_prior(state) + log_jacobian

    def log_rescale(self, state: State, c: float) -> float:
        """Return the second part of `rescale`."""
        return self.rescale(state, c)[1]

    def summarise(self, states: Sequence[State]) -> State:
        """Take the central state of `inner`, scaled."""
        return self.normalised(self.inner.summarise(states))[0]


def unit_family(covariance: Any, unit: Bools) -> CovarianceFamily:
    """Return the family named by `covariance` for coordinates some of which have variance 1."""
    family = as_family(covariance, None, len(unit))
    if not unit.any():
        return family
    if isinstance(family, Spherical | Diagonal):
        return UnitDiagonal(family, unit)
    if isinstance(family, HuangWand):
        return UnitWishart(family, unit)
    raise InputError(
        'covariance must be "spherical", "diagonal" or "wishart" for a table with binary, ordinal or categorical '
        f"columns, got {covariance!r}."
    )
