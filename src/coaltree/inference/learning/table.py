"""What a chain must know of its table: `Numbers`, with or without gaps, or coordinates that are drawn (`latent`)."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from coaltree._arrays import Floats
from coaltree.inference.learning.boxes import Boxes
from coaltree.inference.learning.start import Unknowns
from coaltree.inference.moves.walk import WANTED
from coaltree.model import missing
from coaltree.model.covariance import CovarianceFamily
from coaltree.model.diffusion import sample_nodes
from coaltree.model.factorisations import DenseRoot

# Alternating draws of missing entries and moves of the tree per iteration.
N_TURNS = 3


class ChainTable(Protocol):
    """A table in a chain. Only the tree step needs a complete one."""

    rough: Floats  # (n, d): what chains start from, NaN where nothing is known
    may_be_rounded: bool  # whether values are taken to be exact, though they may be rounded
    wanted: float  # how often searches for an edge are to find the old one
    n_turns: int  # alternating draws of what is not observed and moves of the tree per iteration
    n_ages: int  # draws of how old the tree is, likewise

    def first_level(self, rng: np.random.Generator) -> float | None:
        """Return the leaf noise to begin with; None to begin with what the tree suggests."""
        ...

    def begin(self, start: Unknowns, rng: np.random.Generator) -> Unknowns:
        """Return a start with a first draw of what is not observed."""
        ...

    def seen(self, now: Unknowns) -> Floats:
        """Return the table used for Φ, s₀ and scale: NaN where entries can be integrated out."""
        ...

    def draw(
        self, now: Unknowns, rng: np.random.Generator, move_cuts: bool = True, learn_noise: bool = False
    ) -> Unknowns:
        """Draw what is not observed, given the rest."""
        ...

    def draw_covariance(
        self, now: Unknowns, Z: Floats, family: CovarianceFamily, rng: np.random.Generator
    ) -> Unknowns | None:
        """Draw Φ together with the table's own scales; None where the family's update is enough."""
        ...

    def boxes(self, now: Unknowns, rng: np.random.Generator) -> Boxes | None:
        """Return whitened rows and where they can be, for moves of the tree that shift them; None if none can."""
        ...

    def unboxed(self, now: Unknowns, boxed: Boxes, rows: Floats) -> Unknowns:
        """Return the state with the coordinates of other whitened rows."""
        ...

    def log_scaled(self, now: Unknowns, c: float) -> float:
        """Log of prior ratio and Jacobian of the table's own scales when times are multiplied by c."""
        ...

    def scaled(self, now: Unknowns, c: float) -> Unknowns:
        """Scale what is drawn of the table when times are multiplied by c."""
        ...


class Numbers:
    """A table of numbers, (n, d); its missing entries, NaN, are drawn."""

    may_be_rounded = True
    wanted = WANTED
    n_ages = 0

    def __init__(self, X: Floats) -> None:
        self.X = self.rough = X
        self.n_turns = N_TURNS if np.isnan(X).any() else 0

    def first_level(self, rng: np.random.Generator) -> None:
        """Return None."""

    def begin(self, start: Unknowns, rng: np.random.Generator) -> Unknowns:
        """Return the start."""
        return start

    def seen(self, now: Unknowns) -> Floats:
        """X unchanged if NaN can be integrated out, else filled in."""
        return self.X if now.covariance.is_diagonal else filled(self.X, now)

    def draw(
        self, now: Unknowns, rng: np.random.Generator, move_cuts: bool = True, learn_noise: bool = False
    ) -> Unknowns:
        """Missing entries: jointly and exactly if Φ is diagonal, else given a draw of the internal nodes."""
        return draw_missing(now, self.X, rng) if self.n_turns else now

    def draw_covariance(self, now: Unknowns, Z: Floats, family: CovarianceFamily, rng: np.random.Generator) -> None:
        """Return None."""

    def boxes(self, now: Unknowns, rng: np.random.Generator) -> None:
        """Return None."""

    def unboxed(self, now: Unknowns, boxed: Boxes, rows: Floats) -> Unknowns:
        """Return the same."""
        return now

    def log_scaled(self, now: Unknowns, c: float) -> float:
        """Return 0: numbers stay as they are."""
        return 0.0

    def scaled(self, now: Unknowns, c: float) -> Unknowns:
        """Return the same."""
        return now


def filled(X: Floats, now: Unknowns) -> Floats:
    """X with its missing entries as last drawn."""
    return fill(X, now.missing.drawn) if len(now.missing.drawn) else X


def fill(X: Floats, values: Floats) -> Floats:
    """Return a copy of X with its NaN entries, in order, replaced by `values`."""
    table = X.copy()
    table[np.isnan(X)] = values
    return table


def draw_missing(now: Unknowns, X: Floats, rng: np.random.Generator) -> Unknowns:
    """Missing entries given the rest: jointly and exactly if Φ is diagonal, else given a draw of the internal nodes."""
    if now.covariance.is_diagonal:
        variances = now.covariance.variances()
        return now._replace(missing=missing.impute_columns(now.tree, X, variances, now.leaf_noise, rng))
    n = len(X)
    phi, times, above = now.covariance.matrix(), now.tree.times, now.tree.parents()[:n]
    spread = times[above - n] + now.leaf_noise
    precision = DenseRoot.of(phi).precision
    nodes = sample_nodes(now.tree, filled(X, now), phi, now.leaf_noise, random_state=rng)[0]
    return now._replace(missing=missing.impute_rows(X, nodes[above], spread, precision, rng))
