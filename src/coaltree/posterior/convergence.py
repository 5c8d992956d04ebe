"""Whether chains have forgotten where they began: the numbers, one set of thresholds, and one verdict in plain words.

Scalars of a chain (log joint, scale, widths, noise) are judged by ArviZ's split R-hat and effective sample sizes. Trees
are judged by their clades: the supports that each chain gives to the same clade should agree, and the draws of a clade
(present or not) have an effective size as well. The many coefficients of a regression are judged together, by the same
thresholds (`judge_coefficients`). Python's warning, terminal, report and summary.json all give `Convergence.verdict`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats
from coaltree.errors import InputTypeError
from coaltree.posterior.clades import clade_ids, support_of_clades
from coaltree.posterior.diagnostics import FEWEST, effective_size, effective_sizes, r_hat

# Beyond these a run is reported as not converged. With two chains R-hat is about 1 + 2/(effective draws), so the first
# two say much the same.
MOST_R_HAT = 1.05
FEWEST_DRAWS = 50.0
MOST_DIFFERENCE = 0.1
# With at least this many draws, clades are reported as stuck if the draws are worth less than this share of them.
TELLING, STUCK = 100, 0.05
# Clades to which some chain gives at least this support are compared; effective sizes are computed for this many.
NOTEWORTHY, MOST_CLADES = 0.1, 200
# Of thousands of coefficients a few always look bad by chance: this share of them may be beyond MOST_R_HAT or
# FEWEST_DRAWS, but none beyond these.
TOLERATED, HIGHEST_R_HAT, LOWEST_DRAWS = 0.05, 1.2, 10.0
RULE = (
    f"Chains that have forgotten where they began agree: R-hat is at most {MOST_R_HAT}, draws are worth "
    f"{FEWEST_DRAWS:.0f} independent ones or more, and the supports that chains give to a clade differ by at most "
    f"{MOST_DIFFERENCE} (root mean square)."
)
RULE_FOR_MANY = (
    f"Of many coefficients {TOLERATED:.0%} may be beyond these, but none beyond {HIGHEST_R_HAT} or with fewer than "
    f"{LOWEST_DRAWS:.0f} effective draws."
)
# Scalars of a clustering that are judged; the rest of a trace is for plots.
JUDGED = ("log_joint", "log_scale", "leaf_noise")
# What the chains are about, which decides what to do if they have not converged.
NUMBERS, MIXED, OUTCOMES = "numbers", "mixed", "outcomes"


class Coefficients(NamedTuple):
    """Intercepts and coefficients of a regression, judged together."""

    n: int  # of outcomes that were fitted
    n_beyond: int  # how many of them exceed a threshold
    r_hat: float  # the largest
    bulk_ess: float  # the smallest
    outcome: str  # the one to which the worst belongs

    @property
    def complaint(self) -> str:
        """What is wrong; empty if nothing is."""
        extreme = self.r_hat > HIGHEST_R_HAT or self.bulk_ess < LOWEST_DRAWS
        if self.n_beyond <= TOLERATED * self.n and not extreme:
            return ""
        return (
            f"{self.n_beyond} of {self.n} intercepts and coefficients have R-hat above {MOST_R_HAT} or draws worth "
            f"fewer than {FEWEST_DRAWS:.0f} independent ones; the worst, of outcome {self.outcome}, has R-hat "
            f"{self.r_hat:.2f}, and the fewest effective draws are {self.bulk_ess:.0f}"
        )


class Convergence(NamedTuple):
    """What the chains say about themselves. NaN where there are too few draws, or only one chain, to judge."""

    r_hat: dict[str, float]
    bulk_ess: dict[str, float]
    tail_ess: dict[str, float]
    support_difference: float  # root mean square difference of clade supports between chains
    support_correlation: float
    clade_ess: float  # median effective size of the draws of a clade
    n_chains: int
    n_draws: int  # of each chain
    about: str = NUMBERS
    coefficients: Coefficients | None = None

    @property
    def converged(self) -> bool:
        """Whether no number exceeds its threshold, and there are enough draws to tell."""
        return not self.warnings

    @property
    def verdict(self) -> str:
        """The sentence that Python's warning, terminal, report and summary.json give."""
        if self.warnings:
            return self.warnings[0]
        ratios, sizes = [*self.r_hat.values()], [*self.bulk_ess.values(), *self.tail_ess.values()]
        if self.coefficients is not None:
            ratios.append(self.coefficients.r_hat)
            sizes.append(self.coefficients.bulk_ess)
        largest, fewest = max(_or(ratio, 0.0) for ratio in ratios), min(map(_or, sizes))
        alone, many = self.n_chains == 1, self.coefficients
        but = f" on all but {many.n_beyond} of {many.n} coefficients" if many is not None and many.n_beyond else ""
        return (
            f"The {'halves of the only chain' if alone else 'chains'} agree{but}: largest R-hat {largest:.3f}, fewest "
            f"effective draws {fewest:,.0f}{'. Only several chains can tell more' if alone else ''}."
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong, in plain words, and what to do; empty if nothing is."""
        found = []
        worst = max(self.r_hat, key=lambda name: _or(self.r_hat[name], 0.0))
        if _or(self.r_hat[worst], 0.0) > MOST_R_HAT:
            found.append(
                f"the chains do not agree on the {worst.replace('_', ' ')} (R-hat {self.r_hat[worst]:.2f}, "
                f"should be below {MOST_R_HAT})"
            )
        sizes = {name: min(_or(self.bulk_ess[name]), _or(self.tail_ess[name])) for name in self.bulk_ess}
        fewest = min(sizes, key=lambda name: sizes[name])
        if sizes[fewest] < FEWEST_DRAWS:
            found.append(
                f"the draws of the {fewest.replace('_', ' ')} are worth only {sizes[fewest]:.0f} independent ones "
                f"(should be {FEWEST_DRAWS:.0f} or more)"
            )
        if self.coefficients is not None and self.coefficients.complaint:
            found.append(self.coefficients.complaint)
        if _or(self.support_difference, 0.0) > MOST_DIFFERENCE:
            found.append(
                f"clade supports differ by {self.support_difference:.2f} between chains (root mean square, should be "
                f"below {MOST_DIFFERENCE})"
            )
        if not found and self.n_draws < FEWEST:
            return (
                f"Not known to have converged: {self.n_draws} draw(s) per chain are too few to judge. Keep more draws.",
            )
        if not found:
            return ()
        return (f"Not converged: {'; '.join(found)}. {self._advice}",)

    @property
    def _advice(self) -> str:
        """What to do if chains have not converged."""
        if self.about == OUTCOMES:
            return (
                "Intervals and supports of clades are not to be trusted yet; predictions suffer less. Give a longer "
                "burn-in and more iterations."
            )
        n_draws = self.n_draws * self.n_chains
        apart = _or(self.support_difference, 0.0) > MOST_DIFFERENCE
        if apart and n_draws >= TELLING and self.clade_ess < STUCK * n_draws:
            stuck = f"Clades hardly move (their {n_draws} draws are worth {self.clade_ess:.0f} independent ones), as "
            if self.about == NUMBERS:
                return (
                    f"{stuck}happens with many columns: a longer run helps little, fewer columns (leading principal "
                    "components) help."
                )
            return (
                f"{stuck}happens with many columns, and with many levels: a longer run helps little; leave out columns "
                "that repeat what others say, or join rare levels."
            )
        if apart and self.about == MIXED:
            return (
                "Give a longer warmup and more draws. One row that fits two groups changes the clades of both: their "
                "expected overlaps suffer less."
            )
        return "Give a longer warmup and more draws."

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values: None where a number is not defined."""

        def plain(value: Any) -> Any:
            if isinstance(value, Coefficients):
                value = value._asdict()
            if isinstance(value, dict):
                return {name: plain(each) for name, each in value.items()}
            return value if value is None or isinstance(value, str) or math.isfinite(value) else None

        return {name: plain(value) for name, value in self._asdict().items()}

    @classmethod
    def from_dict(cls, parts: Mapping[str, Any] | None) -> Convergence | None:
        """Rebuild what `as_dict` returned of a clustering; one that was written before `about` is of numbers."""
        if parts is None:
            return None

        def number(value: Any) -> Any:
            if value is not None and not isinstance(value, int | float):
                raise InputTypeError(f"convergence must be made of numbers, got {value!r}.")
            return math.nan if value is None else value

        def numbers(table: Any) -> Any:
            return {str(key): number(each) for key, each in table.items()}

        tables: dict[str, Any] = {name: numbers(parts[name]) for name in cls._fields[:3]}
        if set(tables["bulk_ess"]) != set(tables["tail_ess"]):
            raise InputTypeError("convergence must have bulk_ess and tail_ess of the same numbers.")
        rest = {name: number(parts[name]) for name in cls._fields[3:8]}
        return cls(**tables, **rest, about=str(parts.get("about", NUMBERS)))


def _or(value: float, default: float = math.inf) -> float:
    return value if math.isfinite(value) else default


def diagnose(
    trace: Mapping[str, Floats],
    children: npt.NDArray[Any] | None,
    n_chains: int,
    n_draws: int | None = None,
    judged: Sequence[str] = JUDGED,
    about: str = NUMBERS,
    coefficients: Coefficients | None = None,
) -> Convergence:
    """Judge traces (C, I) without warm-up, and trees (M, n−1, 2): draws of the first chain, then of the second.

    `n_draws`, of each chain, is needed where there are no trees.
    """
    draws = {name: np.asarray(trace[name], dtype=np.float64) for name in judged if name in trace}
    difference = correlation = clade_ess = math.nan
    if children is not None:
        n_draws = len(children) // n_chains
        difference, correlation = compare_supports(children, n_chains)
        clade_ess = _clade_ess(children, n_chains)
    assert n_draws is not None
    return Convergence(
        r_hat={name: r_hat(values) for name, values in draws.items()},
        bulk_ess={name: effective_size(values) for name, values in draws.items()},
        tail_ess={name: effective_size(values, "tail") for name, values in draws.items()},
        support_difference=difference,
        support_correlation=correlation,
        clade_ess=clade_ess,
        n_chains=n_chains,
        n_draws=n_draws,
        about=about,
        coefficients=coefficients,
    )


def compare_supports(children: npt.NDArray[Any], n_chains: int) -> tuple[float, float]:
    """Root mean square difference and correlation of clade supports between chains, averaged over pairs of them."""
    if n_chains < 2 or len(children) < 2 * n_chains:
        return math.nan, math.nan
    ids = clade_ids(children)
    per_chain = len(children) // n_chains
    supports = np.zeros((n_chains, int(ids.max()) + 1))
    for k in range(n_chains):
        own = ids[k * per_chain : (k + 1) * per_chain]
        found = support_of_clades(own, np.full(per_chain, 1.0 / per_chain))
        supports[k, : len(found)] = found
    differences, correlations = [], []
    for i in range(n_chains):
        for j in range(i):
            kept = np.maximum(supports[i], supports[j]) >= NOTEWORTHY
            one, two = supports[i, kept], supports[j, kept]
            differences.append(float(np.sqrt(np.mean((one - two) ** 2))))
            if np.ptp(one) > 0.0 and np.ptp(two) > 0.0:
                correlations.append(float(np.corrcoef(one, two)[0, 1]))
    return float(np.mean(differences)), float(np.mean(correlations)) if correlations else math.nan


def _clade_ess(children: npt.NDArray[Any], n_chains: int) -> float:
    """Median effective size of clades neither always nor hardly ever present; of an even selection if many."""
    ids = clade_ids(children)
    support = support_of_clades(ids, np.full(len(ids), 1.0 / len(ids)))
    uncertain = np.flatnonzero((support >= NOTEWORTHY) & (support <= 1.0 - NOTEWORTHY))
    if not len(uncertain):
        return math.nan
    chosen = uncertain[np.linspace(0, len(uncertain) - 1, min(len(uncertain), MOST_CLADES)).astype(int)]
    there = np.stack([(ids == clade).any(axis=1) for clade in chosen], axis=1)
    sizes = effective_sizes(there.reshape(n_chains, -1, len(chosen)).astype(np.float64))
    return float(np.nanmedian(sizes)) if np.isfinite(sizes).any() else math.nan


def judge_coefficients(ratio: Floats, size: Floats, names: Sequence[str]) -> Coefficients | None:
    """Judge R-hat and bulk effective sizes (P, …) of the coefficients of outcomes with these names.

    NaN for outcomes that were not fitted, and everywhere if draws are too few; None if there are no others.
    """
    known = np.isfinite(ratio) & np.isfinite(size)
    if not known.any():
        return None
    ratios, sizes = np.where(known, ratio, -math.inf), np.where(known, size, math.inf)
    worst = int(np.unravel_index(int(ratios.argmax()), ratios.shape)[0])
    n_beyond = int(((ratios > MOST_R_HAT) | (sizes < FEWEST_DRAWS)).sum())
    return Coefficients(int(known.sum()), n_beyond, float(ratios.max()), float(sizes.min()), names[worst])
