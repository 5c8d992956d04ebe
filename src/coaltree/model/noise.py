r"""Families of leaf noise: what is learned of the variance s_i of each row around its true value, in units of Φ.

| family | prior | drawn by |
|---|---|---|
| `GivenNoise` | known | none |
| `SharedNoise` | s_i = s₀, s₀ ~ Exponential(1) | slices |
| `RobustNoise` | s_i = s₀ w_i, w_i ~ IG(ν/2, ν/2), s₀ likewise, ν ~ Gamma(2, 1/10) on [½, 200] | slices, gamma |

Like the wait of one pair, s₀ is extra branch above each leaf. With `RobustNoise`, rows that fit badly cannot distort
the tree: measurements are distributed around the true value as a multivariate t with ν degrees of freedom, of the same
shape Φ and a different size for every row. The prior of ν is that of Juárez and Steel (2010): it allows anything
between outliers in every tenth row and none.

A family is a value of its own parameters, and is never changed; the noise of the rows, (n,), is kept beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy.special import gammaincc, gammainccinv, gammaln

from coaltree._arrays import Floats
from coaltree.model.slice import slice_step
from coaltree.validation import check_choice, check_leaf_noise

DF_SHAPE, DF_RATE = 2.0, 0.1
LEAST_DF, MOST_DF = 0.5, 200.0
FIRST_DF = 4.0
# Leaf noise below this is negligible beside rounding; the bound keeps a flat tail from drifting away.
LOG_SMALLEST = -40.0
SMALLEST_NOISE = math.exp(LOG_SMALLEST)
# Rows start with extra noise if their squared distance to the next row exceeds the median by more than this factor.
FAR = 30.0
LEARN, ROBUST = "learn", "robust"


class NoiseFamily(Protocol):
    """A prior on leaf noise with the blocks of a chain that draw it."""

    name: str  # in files
    learned: bool
    varies: bool  # whether rows have their own: single ones may then lie far off, and moments of columns say little

    @property
    def tails(self) -> tuple[float, float]:
        """Scale and degrees of freedom of the rows' noise around their common level, where it has any."""
        ...

    def with_tails(self, scale: float, df: float) -> NoiseFamily:
        """Return the family with these `tails`, if it has any."""
        ...

    def start(self, n: int, level: float, distance: Floats) -> tuple[Floats, NoiseFamily]:
        """Return the noise to begin with, (n,), from a rough level and squared distances to the next row (n,)."""
        ...

    def level(self, rows: Floats) -> float:
        """s₀: the noise that all rows share, or around which theirs varies; that of the first row if it is known."""
        ...

    def at_level(self, rows: Floats, level: float) -> tuple[Floats, NoiseFamily]:
        """Return all noise rescaled to another s₀."""
        ...

    def draw_rows(self, rows: Floats, draw: Callable[[float, float], Floats]) -> Floats:
        """Draw each row's own noise given the tree, by `draw(scale, df)`, if rows have their own."""
        ...

    def draw_offset(self, times: Floats, rows: Floats, least: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw δ of (t, s) → (t − δ, s + δ), along which the likelihood does not change; return both.

        Two leaves that merge at t differ by a variance of 2(t + s). Without this move first merges and leaf noise would
        hold each other in place. `least` is a bound of s₀.
        """
        ...

    def update(self, rows: Floats, least: float, rng: np.random.Generator) -> NoiseFamily:
        """Draw the distribution of the rows' noise given the rows', with s₀ no less than `least`."""
        ...

    def log_rescale(self, level: float, log_c: float) -> float:
        """Log of prior ratio times Jacobian, up to a constant, for s₀ = `level` → c s₀."""
        ...

    def trace(self) -> dict[str, float]:
        """Return what is worth following beside s₀."""
        ...

    def compact(self, rows: Floats) -> Floats:
        """Return the rows' noise in the least space: (1,) if all are equal."""
        ...

    def stack(self, rows: Sequence[Floats]) -> Floats:
        """Return the noise of many draws, each `compact`, as one array: (1, n) if it is the same in all."""
        ...

    def new_rows(self, rows: Floats, tails: Floats) -> Floats:
        """Return the noise of a new row in each of M draws, (M,), given those of rows (M, n) and `tails` (M, 2)."""
        ...

    def grid(self, rows: Floats, tails: tuple[float, float], d: int) -> tuple[Floats, Floats]:
        """Return a grid of what the noise of one more of d columns may be, ascending, and the log of its weights."""
        ...

    def surprise(self, rows: Floats, tails: Floats) -> Floats | None:
        """Probability that a new row has as much noise as each row (n,), mean over draws; None where all have one."""
        ...


class _Equal:
    """What families without a distribution of rows around a common level share."""

    varies = False

    @property
    def tails(self) -> tuple[float, float]:
        """None: no row varies."""
        return math.nan, math.inf

    def level(self, rows: Floats) -> float:
        """Noise of the first row."""
        return float(rows[0])

    def draw_rows(self, rows: Floats, draw: Callable[[float, float], Floats]) -> Floats:
        """Return the noise unchanged."""
        return rows

    def trace(self) -> dict[str, float]:
        """Nothing."""
        return {}

    def new_rows(self, rows: Floats, tails: Floats) -> Floats:
        """Take the median of each draw."""
        medians = np.median(rows, axis=1)
        return np.broadcast_to(medians, (len(tails),))

    def grid(self, rows: Floats, tails: tuple[float, float], d: int) -> tuple[Floats, Floats]:
        """Return a grid of one, the median."""
        return np.array([np.median(rows)]), np.zeros(1)

    def surprise(self, rows: Floats, tails: Floats) -> None:
        """Return None: a row is not more surprising than its distance says."""


@dataclass(frozen=True, eq=False)
class GivenNoise(_Equal):
    """Known noise of every row, (n,)."""

    rows: Floats
    name = "given"
    learned = False

    def with_tails(self, scale: float, df: float) -> GivenNoise:
        """Return the family."""
        return self

    def start(self, n: int, level: float, distance: Floats) -> tuple[Floats, GivenNoise]:
        """Return the known noise."""
        return self.rows, self

    def at_level(self, rows: Floats, level: float) -> tuple[Floats, GivenNoise]:
        """Return the known noise."""
        return rows, self

    def draw_offset(self, times: Floats, rows: Floats, least: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return both unchanged."""
        return times, rows

    def update(self, rows: Floats, least: float, rng: np.random.Generator) -> GivenNoise:
        """Return the family: there is nothing to learn."""
        return self

    def log_rescale(self, level: float, log_c: float) -> float:
        """Return 0: it stays."""
        return 0.0

    def compact(self, rows: Floats) -> Floats:
        """Return the known noise, which all draws hold together."""
        return rows

    def stack(self, rows: Sequence[Floats]) -> Floats:
        """Keep it once."""
        return rows[0][None]


@dataclass(frozen=True)
class SharedNoise(_Equal):
    """One noise s₀ ~ Exponential(1) for all rows."""

    name = "shared"
    learned = True

    def with_tails(self, scale: float, df: float) -> SharedNoise:
        """Return the family."""
        return self

    def start(self, n: int, level: float, distance: Floats) -> tuple[Floats, SharedNoise]:
        """Take the rough level."""
        return np.full(n, level), self

    def at_level(self, rows: Floats, level: float) -> tuple[Floats, SharedNoise]:
        """Give it to all rows."""
        return np.full_like(rows, level), self

    def draw_offset(self, times: Floats, rows: Floats, least: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw exactly.

        The priors leave the first merge, rate λ₁ = n(n−1)/2, with density ∝ e^(−(λ₁ − 1) t₁) on 0 < t₁ < t₁ + s₀.
        """
        n, total = len(rows), float(times[0] + rows[0])
        longest = total - max(2.0 * SMALLEST_NOISE, least)
        rate = 0.5 * n * (n - 1) - 1.0
        u = rng.random()
        first = -math.log1p(u * math.expm1(-rate * longest)) / rate if rate > 0 else u * longest
        if not 0.0 < first < longest:
            return times, rows
        return times - times[0] + first, np.full_like(rows, total - first)

    def update(self, rows: Floats, least: float, rng: np.random.Generator) -> SharedNoise:
        """Return the family: rows do not vary."""
        return self

    def log_rescale(self, level: float, log_c: float) -> float:
        """Log of Exponential(1) at c s₀ times c."""
        scaled = math.exp(log_c) * level
        return log_c - scaled if scaled > 0.99 * SMALLEST_NOISE else -math.inf

    def compact(self, rows: Floats) -> Floats:
        """Keep the first."""
        return rows[:1].copy()

    def stack(self, rows: Sequence[Floats]) -> Floats:
        """Return one number per draw."""
        return np.array(rows)


@dataclass(frozen=True)
class RobustNoise:
    """Noise of its own for every row: s_i / scale ~ IG(df/2, df/2)."""

    scale: float = 1.0  # s₀
    df: float = FIRST_DF  # ν
    name = "robust"
    learned = True
    varies = True

    @property
    def tails(self) -> tuple[float, float]:
        """s₀ and ν."""
        return self.scale, self.df

    def with_tails(self, scale: float, df: float) -> RobustNoise:
        """Take them."""
        return RobustNoise(scale, df)

    def start(self, n: int, level: float, distance: Floats) -> tuple[Floats, RobustNoise]:
        """Give more noise to rows that are very far from the next one."""
        typical = float(np.median(distance))
        ratio = distance / typical if typical > 0.0 else np.where(distance > 0.0, 1.0, 0.0)
        return np.asarray(level * np.where(ratio > FAR, ratio, 1.0), dtype=np.float64), RobustNoise(level, FIRST_DF)

    def level(self, rows: Floats) -> float:
        """s₀."""
        return self.scale

    def at_level(self, rows: Floats, level: float) -> tuple[Floats, RobustNoise]:
        """Rescale all rows by the same factor."""
        return (level / self.scale) * rows, replace(self, scale=level)

    def draw_rows(self, rows: Floats, draw: Callable[[float, float], Floats]) -> Floats:
        """Draw that of each row."""
        return draw(self.scale, self.df)

    def draw_offset(self, times: Floats, rows: Floats, least: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw by a slice."""
        first, n, shape = float(times[0]), len(rows), 0.5 * self.df
        rate = 0.5 * n * (n - 1)
        lower, upper = min(SMALLEST_NOISE - float(rows.min()), 0.0), first
        reach = upper - lower

        def log_density(shift: float) -> float:
            moved = rows + shift
            if not (moved.min() > 0.0 and shift < first):
                return -math.inf
            prior: float = -(shape + 1.0) * np.log(moved).sum() - shape * self.scale * (1.0 / moved).sum()
            return rate * shift + float(prior)

        shift, _ = slice_step(log_density, 0.0, log_density(0.0), rng, width=0.25 * reach, lower=lower, upper=upper)
        return times - shift, rows + shift

    def update(self, rows: Floats, least: float, rng: np.random.Generator) -> RobustNoise:
        """Draw s₀ by a gamma draw, and ν by a slice in log ν."""
        least = max(SMALLEST_NOISE, least)
        n, shape = len(rows), 0.5 * self.df
        rate = 1.0 + shape * float((1.0 / rows).sum())
        scale = rng.gamma(n * shape + 1.0) / rate
        if scale < least:
            above = float(gammaincc(n * shape + 1.0, rate * least)) * (1.0 - rng.random())
            scale = max(float(gammainccinv(n * shape + 1.0, above)) / rate, least)
        w = rows / scale

        def log_density(log_df: float) -> float:
            df = math.exp(log_df)
            return DF_SHAPE * log_df - DF_RATE * df + log_multipliers(w, df)

        now = math.log(self.df)
        bounds: dict[str, Any] = {"lower": math.log(LEAST_DF), "upper": math.log(MOST_DF)}
        log_df, _ = slice_step(log_density, now, log_density(now), rng, width=1.0, **bounds)
        return RobustNoise(scale, math.exp(log_df))

    def log_rescale(self, level: float, log_c: float) -> float:
        """Log of Exponential(1) at c s₀ times c: the rows' multipliers stay."""
        return SHARED.log_rescale(level, log_c)

    def trace(self) -> dict[str, float]:
        """ν."""
        return {"noise_df": self.df}

    def compact(self, rows: Floats) -> Floats:
        """Keep all."""
        return rows

    def stack(self, rows: Sequence[Floats]) -> Floats:
        """Return (M, n)."""
        return np.array(rows)

    def new_rows(self, rows: Floats, tails: Floats) -> Floats:
        """Draw one from each of M equal shares of the distribution of w, shuffled: the same for the same draws."""
        from scipy.stats import gamma  # slow to import

        rng, size = np.random.default_rng(0), len(tails)
        share = rng.permutation((np.arange(size) + rng.random(size)) / size)
        scale, shape = tails[:, 0], 0.5 * tails[:, 1]
        return np.asarray(scale * (shape / np.maximum(gamma.ppf(share, shape), np.finfo(np.float64).tiny)))

    def grid(self, rows: Floats, tails: tuple[float, float], d: int) -> tuple[Floats, Floats]:
        """Lay a grid in log w, for the trapezoid rule.

        Given d columns log w is known to within about √(2/d), so steps of this length lose next to nothing.
        """
        from scipy.stats import gamma

        scale, shape = tails[0], 0.5 * tails[1]
        lower = math.log(shape / gamma.ppf(0.9999, shape))
        upper = max(math.log(shape / gamma.ppf(0.001, shape)), math.log(float(rows.max()) / scale) + 1.0)
        log_w = np.linspace(lower, upper, max(6, math.ceil((upper - lower) / min(1.0, math.sqrt(2.0 / d)))))
        log_prior = shape * math.log(shape) - float(gammaln(shape)) - shape * (log_w + np.exp(-log_w))
        return scale * np.exp(log_w), log_prior + math.log(log_w[1] - log_w[0])

    def surprise(self, rows: Floats, tails: Floats) -> Floats:
        """Average the distribution function of w over draws."""
        from scipy.stats import gamma

        scale, shape = tails[:, :1], 0.5 * tails[:, 1:]
        share = np.asarray(gamma.cdf(shape * scale / rows, shape))
        return np.asarray(share.mean(axis=0))


SHARED = SharedNoise()


def log_multipliers(w: Floats, df: float) -> float:
    """Σ log density of w_i ~ IG(ν/2, ν/2)."""
    shape = 0.5 * df
    each = shape * math.log(shape) - float(gammaln(shape))
    return len(w) * each - float((shape + 1.0) * np.log(w).sum() + shape * (1.0 / w).sum())


def as_noise(leaf_noise: Any, n: int) -> NoiseFamily:
    """Return the family a user means: "learn", "robust", or the known variance of all rows or of each."""
    if isinstance(leaf_noise, str):
        families: dict[str, NoiseFamily] = {LEARN: SHARED, ROBUST: RobustNoise()}
        return families[check_choice(leaf_noise, "leaf_noise", families)]
    return GivenNoise(check_leaf_noise(leaf_noise, n))


def noise_of(name: str, rows: Floats) -> NoiseFamily:
    """Return the family of this name; `rows`, (n,), are those of a known one."""
    families: dict[str, NoiseFamily] = {"given": GivenNoise(rows), "shared": SHARED, "robust": RobustNoise()}
    return families[check_choice(name, "noise", families)]
