r"""Kinds of outcomes, one object each: `FAMILIES` has them by name.

Given η = μ + xβ,

| family | outcomes |
|---|---|
| probit | 0 and 1, P(y = 1) = Φ(η), the normal distribution function |
| logit | 0 and 1, P(y = 1) = 1/(1 + e^−η) |
| poisson | counts in a time at risk e, y ~ Poisson(e exp(η)); events and times at risk of censored subjects |
| normal | measurements, y ~ N(η, σ²) with an unknown σ² in each outcome |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coaltree.errors import InputError
from coaltree.regression.families.base import Family
from coaltree.regression.families.binary import LOGIT, PROBIT
from coaltree.regression.families.normal import NORMAL
from coaltree.regression.families.poisson import POISSON
from coaltree.validation import check_choice

FAMILIES: dict[str, Family] = {family.name: family for family in (PROBIT, LOGIT, POISSON, NORMAL)}

Families = tuple[Family, ...]
Chosen = str | Sequence[str] | Mapping[str, str]


def as_families(family: Chosen, n_outcomes: int, names: Sequence[str] | None = None) -> Families:
    """One family per outcome, from one name for all, a sequence of names, or a mapping by names of outcomes."""
    if isinstance(family, str):
        return (FAMILIES[check_choice(family, "family", FAMILIES)],) * n_outcomes
    if isinstance(family, Mapping):
        known = tuple(names or map(str, range(n_outcomes)))
        if set(known) != set(family):
            wrong = sorted(set(family) - set(known)) or sorted(set(known) - set(family))
            raise InputError(
                f"family must name each outcome once, and {', '.join(map(repr, wrong[:5]))} "
                f"{'is not among the outcomes' if set(family) - set(known) else 'has none'}: give one of "
                f"{', '.join(FAMILIES)} for each of {', '.join(known[:5])}{', …' if len(known) > 5 else ''}."
            )
        family = [family[name] for name in known]
    chosen = tuple(FAMILIES[check_choice(name, "family", FAMILIES)] for name in family)
    if len(chosen) != n_outcomes:
        raise InputError(f"family must be one name, or one for each of the {n_outcomes} outcomes, got {len(chosen)}.")
    return chosen


def grouped(families: Families) -> list[tuple[Family, np.ndarray]]:
    """Every family in use with the numbers of its outcomes."""
    return [(family, np.flatnonzero([each is family for each in families])) for family in dict.fromkeys(families)]


def as_setting(families: Families) -> str | list[str]:
    """How a user would give them: one name if all are the same."""
    names = [family.name for family in families]
    return names[0] if len(set(names)) == 1 else names
