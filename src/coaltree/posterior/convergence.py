"""Whether chains have forgotten where they began: the numbers, one set of thresholds, and a verdict in plain words.

Scalars of a chain (log joint, scale, noise) are judged by ArviZ's split R-hat and effective sample sizes. Trees are
judged by their clades: the supports that each chain gives to the same clade should agree, and the draws of a clade
(present or not) have an effective size as well. The many coefficients of a regression are judged together
(`judge_coefficients`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats
from coaltree.posterior.clades import clade_ids, support_of_clades
from coaltree.posterior.diagnostics import FEWEST, effective_size, effective_sizes, r_hat

# Beyond these a run is reported as not converged.
MOST_R_HAT = 1.1
FEWEST_DRAWS = 30.0
MOST_DIFFERENCE = 0.1
# With at least this many draws, clades are reported as stuck if the draws are worth less than this share of them.
TELLING, STUCK = 100, 0.05
# Clades to which some chain gives at least this support are compared; effective sizes are computed for this many.
NOTEWORTHY, MOST_CLADES = 0.1, 200
# Of thousands of coefficients a few always look bad by chance: this share of them may exceed MOST_R_HAT, but none this
# value; with fewer draws than this R-hat is uninformative.
TOLERATED, HIGHEST_R_HAT, FEWEST_KEPT = 0.05, 1.4, 200
# Scalars that are judged; the rest of a trace is for plots.
JUDGED = ("log_joint", "log_scale", "leaf_noise")


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

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong, in plain words, and what to do; empty if nothing is."""
        told = []
        worst = max(self.r_hat, key=lambda name: _or(self.r_hat[name], 0.0))
        if _or(self.r_hat[worst], 0.0) > MOST_R_HAT:
            told.append(
                f"the chains do not agree on the {worst.replace('_', ' ')} (R-hat {self.r_hat[worst]:.2f}, "
                f"should be below {MOST_R_HAT})"
            )
        sizes = {name: min(_or(self.bulk_ess[name]), _or(self.tail_ess[name])) for name in self.bulk_ess}
        fewest = min(sizes, key=lambda name: sizes[name])
        if sizes[fewest] < FEWEST_DRAWS:
            told.append(
                f"the draws of the {fewest.replace('_', ' ')} are worth only {sizes[fewest]:.0f} independent ones "
                f"(should be {FEWEST_DRAWS:.0f} or more)"
            )
        if _or(self.support_difference, 0.0) > MOST_DIFFERENCE:
            told.append(
                f"clade supports differ by {self.support_difference:.2f} between chains (root mean square, should be "
                f"below {MOST_DIFFERENCE})"
            )
        if not told and self.n_draws < FEWEST:
            return (
                f"Not known to have converged: {self.n_draws} draw(s) per chain are too few to judge. Keep more draws.",
            )
        if not told:
            return ()
        return (f"Not converged: {'; '.join(told)}. {self._advice}",)

    @property
    def _advice(self) -> str:
        """What to do if chains have not converged."""
        n_draws = self.n_draws * self.n_chains
        apart = _or(self.support_difference, 0.0) > MOST_DIFFERENCE
        if apart and n_draws >= TELLING and self.clade_ess < STUCK * n_draws:
            return (
                f"Clades hardly move (their {n_draws} draws are worth {self.clade_ess:.0f} independent ones), as "
                "happens with many columns: a longer run helps little, fewer columns (leading principal components) "
                "help."
            )
        return "Give a longer warmup and more draws."

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values: None where a number is not defined."""

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: plain(each) for name, each in value.items()}
            return value if math.isfinite(value) else None

        return {name: plain(value) for name, value in self._asdict().items()}

    @classmethod
    def from_dict(cls, parts: Mapping[str, Any] | None) -> Convergence | None:
        """Rebuild from what `as_dict` returned."""
        if parts is None:
            return None

        def number(value: Any) -> Any:
            if isinstance(value, dict):
                return {str(name): number(each) for name, each in value.items()}
            return math.nan if value is None else value

        return cls(**{name: number(parts[name]) for name in cls._fields})


def _or(value: float, default: float = math.inf) -> float:
    return value if math.isfinite(value) else default


def diagnose(trace: Mapping[str, Floats], children: npt.NDArray[Any], n_chains: int) -> Convergence:
    """Judge traces (C, I) without warm-up, and trees (M, n−1, 2): draws of the first chain, then of the second."""
    judged = {name: np.asarray(trace[name], dtype=np.float64) for name in JUDGED if name in trace}
    difference, correlation = compare_supports(children, n_chains)
    return Convergence(
        r_hat={name: r_hat(draws) for name, draws in judged.items()},
        bulk_ess={name: effective_size(draws) for name, draws in judged.items()},
        tail_ess={name: effective_size(draws, "tail") for name, draws in judged.items()},
        support_difference=difference,
        support_correlation=correlation,
        clade_ess=_clade_ess(children, n_chains),
        n_chains=n_chains,
        n_draws=len(children) // n_chains,
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


def judge_coefficients(ratio: Floats, size: Floats, names: Sequence[str], n_draws: int) -> tuple[bool, str]:
    """Whether chains can be relied on, and the sentence that says so: the same in Python, terminal and report.

    `ratio` and `size` (P, …) are R-hat and bulk effective sizes of the coefficients of outcomes with these names, NaN
    for those that were not fitted; `n_draws` is the number of kept draws per chain.
    """
    seen = np.isfinite(ratio)
    if n_draws < FEWEST_KEPT or not seen.any():
        return False, (
            f"Warning: chains of {n_draws} kept draws are too short to be judged: {FEWEST_KEPT} are the least. Raise "
            "n_iter (--iterations)."
        )
    bad = np.where(seen, ratio, 1.0)
    n_bad, n_seen = int((bad > MOST_R_HAT).sum()), int(seen.sum())
    if n_bad <= TOLERATED * n_seen and bad.max() <= HIGHEST_R_HAT:
        return True, (
            f"The chains agree: largest R-hat {np.nanmax(ratio):.3f}, and every coefficient is worth at least "
            f"{np.nanmin(size):,.0f} independent draws."
        )
    worst = int(np.unravel_index(int(bad.argmax()), bad.shape)[0])
    return False, (
        f"Warning: The chains have not converged: {n_bad} of {n_seen} intercepts and coefficients have R-hat above "
        f"{MOST_R_HAT}; the largest is {bad.max():.2f}, of outcome {names[worst]}, and the smallest effective number "
        f"of draws {np.nanmin(size):.0f}. Intervals and the support of clades are not to be trusted yet; predictions "
        "suffer less. Raise n_iter and burn_in, with thin to keep as many draws."
    )
