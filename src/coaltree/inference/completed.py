"""What is kept of missing entries, draw by draw."""

from __future__ import annotations

import numpy as np

from coaltree.model.missing import Imputed


class Completed:
    """Running means of missing entries, and of their squared deviations (Welford)."""

    def __init__(self) -> None:
        self.n, self.expected, self.mean, self.squares = 0, np.zeros(0), np.zeros(0), np.zeros(0)

    def add(self, imputed: Imputed) -> None:
        """Count one more draw; arrays are replaced, never changed."""
        if self.n == 0:
            self.expected = self.mean = self.squares = np.zeros_like(imputed.drawn)
        self.n += 1
        self.expected = self.expected + (imputed.expected - self.expected) / self.n
        step = imputed.drawn - self.mean
        self.mean = self.mean + step / self.n
        self.squares = self.squares + step * (imputed.drawn - self.mean)
