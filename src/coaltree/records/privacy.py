"""What may be shown of patients: no number of them from 1 to 10, neither printed nor to be solved for.

A small number is hidden ("<11"). A number that would give away a small one by subtraction is rounded down to a ten
("370+"). Scores of an outcome with fewer than 11 events, or fewer than 11 labels without the event, are withheld: with
m events among n labels AUROC × m (n − m) is half a whole number, so that its digits tell m. Other scores are rounded
so far that at least ten such numbers fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from coaltree._arrays import Floats
from coaltree.regression.table import Table

FEWEST = 11  # the smallest number of patients that is shown
MOST_DIGITS = 3  # after the point of a score
N_SOLUTIONS = 10  # numbers of pairs that must fit a rounded area under the ROC curve


def is_small(n: int) -> bool:
    """Whether a number of patients must not be known."""
    return 0 < n < FEWEST


def shown_count(n: int) -> int | str:
    """Return a number of patients, or "<11" for 1 to 10."""
    return f"<{FEWEST}" if is_small(n) else n


def rounded_count(n: int) -> int | str:
    """Return a number of patients down to the ten below, as "370+"."""
    return shown_count(n) if n < FEWEST else f"{n // 10 * 10}+"


def shown_parts(parts: Sequence[int]) -> list[int | str]:
    """Return numbers whose sum is known: if one must be hidden, the others are rounded, or it could be subtracted."""
    if not any(is_small(n) for n in parts):
        return list(parts)
    return [rounded_count(n) for n in parts]


def shown_labels(n: int, total: int, hidden: bool) -> int | str:
    """Return a number of labels among `total` subjects, rounded if it would tell 1 to 10 others.

    `hidden` says that a part of those without a label is a number that is not shown: the exact n and the other part
    would give it away.
    """
    return rounded_count(n) if hidden or is_small(n) or is_small(total - n) else n


def score_digits(n_events: int, n_others: int) -> int | None:
    """Digits after the point that scores of an outcome may have; None if they are withheld."""
    if n_events < FEWEST or n_others < FEWEST:
        return None
    n_steps = 2 * n_events * n_others  # areas are multiples of one over this
    for digits in range(MOST_DIGITS, 0, -1):
        if n_steps * 10.0**-digits >= N_SOLUTIONS:
            return digits
    return None


def rounded(value: float, digits: int | None) -> float:
    """Return a score with so many digits, NaN if it is withheld."""
    return float("nan") if digits is None or np.isnan(value) else float(round(float(value), digits))


def rounded_row(row: dict[str, Any], digits: int | None, exact: Iterable[str] = ()) -> dict[str, Any]:
    """Return a row of a table with its floats rounded or withheld, but for those named `exact`."""
    kept = set(exact)
    return {
        key: rounded(value, digits) if isinstance(value, float) and key not in kept else value
        for key, value in row.items()
    }


def outcome_digits(Y: Floats) -> list[int | None]:
    """Digits that the scores of every column of labels may have."""
    return [score_digits(int(np.nansum(y == 1.0)), int(np.nansum(y == 0.0))) for y in Y.T]


def attrition_table(steps: Sequence[tuple[str, int]]) -> Table:
    """Return rule, subjects left and subjects removed; rules that remove 1 to 10 subjects are merged with others."""
    shown, pending = [steps[0]], []
    for text, n in steps[1:]:
        pending.append(text)
        if not is_small(shown[-1][1] - n):
            shown.append(("; ".join(pending), n))
            pending = []
    if pending:  # the last rules removed few and join the step before
        shown[-1] = ("; ".join([shown[-1][0], *pending]), steps[-1][1])
    while len(shown) > 1 and is_small(shown[-2][1] - shown[-1][1]):
        text, n = shown.pop()
        shown[-1] = (f"{shown[-1][0]}; {text}", n)
    before = [shown[0][1], *(n for _, n in shown[:-1])]
    return Table(
        {"rule": text, "left": n, "removed": previous - n} for (text, n), previous in zip(shown, before, strict=True)
    )
