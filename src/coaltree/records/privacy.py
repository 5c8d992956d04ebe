"""What may be shown about patients: no count from 1 to 10, whether printed or deducible from other numbers.

A small count is hidden ("<11"). Anyone who knows a total can subtract, so the largest part beside a hidden one is
given only by a lower bound ("380+") that depends on the total alone. Scores of an outcome with fewer than 11 events, or
fewer than 11 labels without the event, are withheld: with m events among n labels AUROC × m (n − m) is a multiple of
one half, so its digits reveal m. Other scores are rounded until at least ten such multiples are consistent with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Bools, Floats
from coaltree.rows import Rows

FEWEST = 11  # the smallest number of patients that may be shown
MOST_DIGITS = 3  # after the point of a score
WITHHELD = "withheld"
N_SOLUTIONS = 10  # numbers of pairs that must be consistent with a rounded area under the ROC curve


def is_small(n: int) -> bool:
    """Whether a number of patients must be hidden."""
    return 0 < n < FEWEST


def shown_count(n: int) -> int | str:
    """Return a number of patients, or "<11" for 1 to 10."""
    return f"<{FEWEST}" if is_small(n) else n


def rounded_count(n: int) -> int | str:
    """Return a number of patients rounded down to a multiple of ten, as "370+"."""
    return shown_count(n) if n < FEWEST else f"{n // 10 * 10}+"


def shown_parts(parts: Sequence[int]) -> list[int | str]:
    """Return the parts of a known total.

    If some are small, "<11", the largest is given by a lower bound that is valid whatever the small ones are. Where no
    part is large enough for that, only zeros are shown.
    """
    n_small = sum(map(is_small, parts))
    if not n_small:
        return list(parts)
    place = int(np.argmax(parts))
    rest = parts[place] + sum(n for n in parts if is_small(n))  # what subtracting the other parts would reveal
    bound = rest - n_small * (FEWEST - 1)
    if bound < max([FEWEST, *(n for i, n in enumerate(parts) if i != place)]):
        return [0 if n == 0 else WITHHELD for n in parts]
    return [f"{bound}+" if i == place else shown_count(n) for i, n in enumerate(parts)]


def shown_part(n: int, total: int) -> int | str:
    """Return one part of a known total, when the rest is not shown."""
    return shown_parts([n, total - n])[0]


def score_digits(n_events: int, n_others: int) -> int | None:
    """Decimals that scores of an outcome may have; None if they are withheld."""
    if n_events < FEWEST or n_others < FEWEST:
        return None
    n_steps = 2 * n_events * n_others  # areas are multiples of one over this
    for digits in range(MOST_DIGITS, 0, -1):
        if n_steps * 10.0**-digits >= N_SOLUTIONS:
            return digits
    return None


class LabelNumbers(NamedTuple):
    """Counts of one outcome as they may be shown: labels, events, and subjects without a label by reason."""

    labels: int | str
    events: int | str
    prior: int | str
    censored: int | str


def label_numbers(y: Floats, prior: Bools) -> LabelNumbers:
    """Count a column of labels; subjects without one who had the outcome before are not also counted as censored."""
    known = ~np.isnan(y)
    if (prior & known).any():  # prior outcomes have not been masked: they say nothing about missing labels
        labels, censored = shown_parts([int(known.sum()), int((~known).sum())])
        return LabelNumbers(labels, shown_events(y), shown_part(int(prior.sum()), len(y)), censored)
    parts = [int(known.sum()), int(prior.sum()), int((~known & ~prior).sum())]
    labels, had, censored = shown_parts(parts)
    return LabelNumbers(labels, shown_events(y), had, censored)


def beside_earlier(first: LabelNumbers, second: LabelNumbers) -> LabelNumbers:
    """Return the numbers of a second threshold beside those of a first that has the same subjects.

    Who had an outcome before the second threshold had it before the first or since, but for a few. Each of the three
    numbers follows from the others: if one is hidden, another must be, and enough parts of its total.
    """
    is_exact = isinstance(first.prior, int) and isinstance(first.events, int)
    if is_exact == isinstance(second.prior, int) or second.prior in (0, shown_count(1)):
        return second
    return without_prior(second)


def without_prior(numbers: LabelNumbers) -> LabelNumbers:
    """Withhold how many had an outcome before, and of the other parts of the total what is needed to hide it."""
    parts = {name: getattr(numbers, name) for name in ("labels", "prior", "censored")}
    if all(isinstance(number, int) for number in parts.values()):
        largest = max(("labels", "censored"), key=parts.__getitem__)
        return numbers._replace(**dict.fromkeys(("prior", largest), WITHHELD))
    return numbers._replace(**{name: WITHHELD for name, number in parts.items() if number != 0})


def nearly_contained(had: Bools) -> set[int]:
    """Columns (N, P) with 11 or more subjects, all of whom are in another column that has 1 to 10 more.

    As with outcomes of which one is a part of another: the difference of their numbers is one of patients.
    """
    n = had.sum(axis=0)
    more, both = n - n[:, None], had.T.astype(np.int64) @ had.astype(np.int64)
    found = (both == n[:, None]) & (more > 0) & (more < FEWEST)
    return set(np.flatnonzero(found.any(axis=1) & (n >= FEWEST)).tolist())


def shown_events(y: Floats) -> int | str:
    """Return the number of events in a column of labels, "11+" if it would reveal how few have none."""
    n = int(np.nansum(y == 1.0))
    return shown_count(n) if n < FEWEST or outcome_digits(y[:, None])[0] is not None else f"{FEWEST}+"


def rounded(value: float, digits: int | None) -> float:
    """Return a score with the given number of decimals, NaN if it is withheld."""
    return float("nan") if digits is None or np.isnan(value) else float(round(float(value), digits))


def significant(value: float, digits: int = 3) -> float:
    """Return a number with the given number of significant digits."""
    return float(f"{value:.{digits - 1}e}")


def rounded_row(row: dict[str, Any], digits: int | None, exact: Iterable[str] = ()) -> dict[str, Any]:
    """Return a row of a table with its floats rounded or withheld, except those named in `exact`."""
    kept = set(exact)
    return {
        key: rounded(value, digits) if isinstance(value, float) and key not in kept else value
        for key, value in row.items()
    }


def outcome_digits(Y: Floats) -> list[int | None]:
    """Decimals that the scores of each column of labels may have."""
    return [score_digits(int(np.nansum(y == 1.0)), int(np.nansum(y == 0.0))) for y in Y.T]


def attrition_table(steps: Sequence[tuple[str, int]], earlier: Sequence[tuple[str, int]] = ()) -> Rows:
    """Return rule, subjects left and subjects removed; rules that remove 1 to 10 subjects are merged with others.

    So are rules after which 1 to 10 more or fewer are left than after the same rule of an `earlier` threshold: the two
    may differ only by those who died or were born in between.
    """
    before = dict(earlier)
    shown, pending = [steps[0]], []
    for place, (text, n) in enumerate(steps[1:], start=2):
        pending.append(text)
        told = is_small(shown[-1][1] - n) or is_small(abs(before.get(text, n) - n))
        if not told or (place == len(steps) and not is_small(shown[-1][1] - n)):
            shown.append(("; ".join(pending), n))
            pending = []
    if pending:  # the last rules removed few and join the step before
        shown[-1] = ("; ".join([shown[-1][0], *pending]), steps[-1][1])
    while len(shown) > 1 and is_small(shown[-2][1] - shown[-1][1]):
        text, n = shown.pop()
        shown[-1] = (f"{shown[-1][0]}; {text}", n)
    previous = [shown[0][1], *(n for _, n in shown[:-1])]
    return Rows({"rule": text, "left": n, "removed": last - n} for (text, n), last in zip(shown, previous, strict=True))


def attrition_tables(thresholds: Sequence[Sequence[tuple[str, int]]]) -> tuple[Rows, ...]:
    """Return the table of every threshold."""
    return tuple(attrition_table(steps, thresholds[0] if i else ()) for i, steps in enumerate(thresholds))
