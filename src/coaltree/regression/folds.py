"""Folds for many outcomes at once: each fold gets its share of every outcome's events."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputError
from coaltree.randomness import RandomState, as_generator
from coaltree.regression.encoding import as_outcomes
from coaltree.validation import check_count


def stratified_folds(Y: npt.ArrayLike, n_folds: int = 10, random_state: RandomState = 0) -> Ints:
    """Assign rows to folds so that every fold has about its share of each outcome's events.

    Iterative stratification (Sechidis, Tsoumakas & Vlahavas 2011): the outcome with the fewest unassigned events goes
    first, and each of its rows goes to the fold that lacks the most events of that outcome; ties go to the fold that
    lacks the most rows, then at random. Rows without events fill the folds up to equal size.

    Parameters
    ----------
    Y : array-like (N, P)
        Outcomes, 0 or 1; NaN where there is no label, which counts as no event.
    n_folds : int
        Number of folds, 2 … N.
    random_state : int, Generator, …
        The same seed gives the same folds.

    Returns
    -------
    folds : ndarray of int64, shape (N,)
        The fold of every row, 0 … n_folds − 1.
    """
    events = as_outcomes(Y)[0] == 1.0
    n_rows = len(events)
    n_folds = check_count(n_folds, "n_folds", 2)
    if n_folds > n_rows:
        raise InputError(f"n_folds must be at most the number of rows, {n_rows}, got {n_folds}.")
    rng = as_generator(random_state)
    folds = np.full(n_rows, -1, dtype=np.int64)
    lacking_rows = np.full(n_folds, n_rows / n_folds)
    left = events.sum(axis=0)
    lacking_events = np.tile(left / n_folds, (n_folds, 1))
    while left.any():
        outcome = int(np.argmin(np.where(left > 0, left, n_rows + 1)))
        for row in rng.permutation(np.flatnonzero(events[:, outcome] & (folds < 0))):
            wanted = lacking_events[:, outcome]
            among = np.flatnonzero(wanted >= wanted.max() - 1e-9)
            rows = lacking_rows[among]
            among = among[rows >= rows.max() - 1e-9]
            fold = int(among[rng.integers(len(among))]) if len(among) > 1 else int(among[0])
            folds[row] = fold
            lacking_rows[fold] -= 1.0
            lacking_events[fold, events[row]] -= 1.0
            left = left - events[row]
    rest = rng.permutation(np.flatnonzero(folds < 0))
    folds[rest] = _fill(lacking_rows, len(rest))
    return folds


def _fill(lacking: Floats, n_rows: int) -> Ints:
    """Folds for `n_rows` rows without events: each goes to the fold that lacks the most rows."""
    queue = [(-rows, fold) for fold, rows in enumerate(lacking.tolist())]
    heapq.heapify(queue)
    chosen = np.empty(n_rows, dtype=np.int64)
    for i in range(n_rows):
        excess, fold = queue[0]
        chosen[i] = fold
        heapq.heapreplace(queue, (excess + 1.0, fold))
    return chosen
