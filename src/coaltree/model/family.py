"""The protocol of a family of Φ: its state, what a prior and its MCMC kernel must provide, and shared checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from scipy.special import gammainc, gammaincinv, gammaln

from coaltree._arrays import Floats
from coaltree.errors import InputError
from coaltree.model.factorisations import DiagonalRoot, Root, diagonal_of
from coaltree.validation import check_array, check_count

Values = Mapping[str, float | Floats]

# Inverse gamma priors on variances: nearly flat in log φ, and still proper.
DEFAULT_SHAPE = 0.01
DEFAULT_SCALE = 1e-10
# A bounded draw whose bound leaves less than this of its distribution is approximated.
LITTLE = 1e-250


@dataclass(frozen=True, eq=False)
class State:
    """One value of Φ = amplitude · R Rᵀ. `values` names its parameters and suffices to rebuild it to the last bit."""

    values: Values
    root: Root
    amplitude: float = 1.0

    @property
    def d(self) -> int:
        """Dimension."""
        return self.root.d

    @property
    def log_det(self) -> float:
        """log|Φ|."""
        return self.root.log_det + self.d * math.log(self.amplitude)

    @property
    def factor(self) -> Floats:
        """Lower Cholesky factor of Φ, (d, d)."""
        return math.sqrt(self.amplitude) * self.root.factor

    @property
    def is_diagonal(self) -> bool:
        """Whether the family makes Φ diagonal, so that nothing of size (d, d) is needed."""
        return isinstance(self.root, DiagonalRoot)

    def matrix(self) -> Floats:
        """Φ, (d, d)."""
        return self.amplitude * self.root.matrix()

    def variances(self) -> Floats:
        """Diagonal of Φ, (d,)."""
        if isinstance(self.root, DiagonalRoot):
            return self.amplitude * self.root.variances
        return np.diag(self.matrix())

    def compact(self) -> Floats:
        """Φ as every function accepts it: the variances (d,) if it is diagonal, else the matrix (d, d)."""
        return self.variances() if self.is_diagonal else self.matrix()

    def whiten(self, rows: Floats) -> Floats:
        """Return W, (n, d), with W Wᵀ = X Φ⁻¹ Xᵀ, by whichever square root of Φ is cheapest."""
        if self.is_diagonal:
            return rows / np.sqrt(self.variances())
        return self.root.whiten(rows) / math.sqrt(self.amplitude)

    def trace_solve(self, S: Floats) -> float:
        """tr(Φ⁻¹ S). If Φ is diagonal, S may be given by its diagonal (d,)."""
        if S.ndim == 1 and not self.is_diagonal:
            raise InputError(f"S must be a (d, d) matrix under a full covariance, got its diagonal {S.shape}.")
        return self.root.trace_solve(S) / self.amplitude

    def log_likelihood(self, S: Floats, m: int) -> float:
        """−(m/2) log|Φ| − ½ tr(Φ⁻¹ S): log p(X | tree, Φ) up to terms without Φ. S as in `trace_solve`."""
        return -0.5 * (m * self.log_det + self.trace_solve(S))


class Integrated(NamedTuple):
    """Φ, or its amplitude, integrated out given the rest of its state, where its prior is conjugate.

    Contrasts are linear in X, so rows may be transformed once for all that follows.
    """

    rows: Callable[[Floats], Floats]  # X as `log_marginal` wants it
    log_marginal: Callable[[Floats], float]  # of the contrasts of such rows, (m, d), up to a constant
    draw: Callable[..., State]  # given S and m, of X itself, and a generator
    # `log_marginal` from Σ_k u_kj², (d,), and m, where these suffice: no contrast need be kept.
    log_marginal_of_sums: Callable[..., float] | None = None


@runtime_checkable
class CovarianceFamily(Protocol):
    """A prior on Φ with an MCMC kernel for its posterior given S and m. Families and states are never changed.

    A family of diagonal Φ has an attribute `diagonal_only = True`: it then receives S, and the guess it starts from, as
    diagonals (d,), and nothing of size (d, d) is ever formed. Those that ignore correlations can be given a `power` to
    which the likelihood is raised, as a keyword of `update` and of what `integrated` returns.
    """

    def start(self, guess: Any) -> State:
        """Return an initial state from a rough covariance such as that of the data: (d, d), or variances (d,)."""
        ...

    def from_values(self, values: Values, d: int) -> State:
        """Rebuild the state with these `values`, to the last bit."""
        ...

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Apply one MCMC kernel that leaves p(state | S, m) invariant."""
        ...

    def integrated(self, state: State, rng: np.random.Generator) -> Integrated | None:
        """Integrate out what has a conjugate prior, after drawing what the state leaves out; None if nothing has."""
        ...

    def log_prior(self, state: State) -> float:
        """Log prior density, with respect to the measure stated by the family."""
        ...

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw from the prior, exactly."""
        ...

    def rescale(self, state: State, c: float) -> tuple[State, float]:
        """Return the state with Φ/c and the log of (prior density ratio × Jacobian); −inf if Φ cannot be rescaled.

        It is Φ's contribution to log acceptance for (t, s₀, Φ) → (ct, cs₀, Φ/c), which leaves the likelihood unchanged.
        """
        ...

    def log_rescale(self, state: State, c: float) -> float:
        """Return only the second part of `rescale`: a slice needs it often, and the state once."""
        ...

    def summarise(self, states: Sequence[State]) -> State:
        """Return a central state of many: medians, or for full matrices the inverse of the mean precision."""
        ...


def diagonal_only(family: CovarianceFamily) -> bool:
    """Whether a family needs no more than the diagonals (d,) of S and of a guess."""
    return bool(getattr(family, "diagonal_only", False))


def check_positive(value: Any, name: str) -> float:
    """Return a positive finite number."""
    number = float(check_array([value], name, 1)[0])
    if number <= 0:
        raise InputError(f"{name} must be positive, got {number:.6g}.")
    return number


def check_dimension(d: Any, known: int | None = None) -> int:
    """Return d ≥ 1, equal to the family's own dimension if it has one."""
    size = check_count(d, "d", at_least=1)
    if known is not None and size != known:
        raise InputError(f"d must be {known}, the dimension of this covariance, got {d}.")
    return size


def check_scatter(S: Any, m: Any, d: int) -> tuple[Floats, int]:
    """Return S (d, d) and the number of contrasts behind it."""
    S = check_array(S, "S", 2)
    if S.shape != (d, d):
        raise InputError(f"S must be ({d}, {d}) like the covariance, got shape {S.shape}.")
    _check_sums(np.diag(S))
    return S, check_count(m, "m", at_least=0)


def check_sums(S: Any, m: Any, d: int) -> tuple[Floats, Any]:
    """Return the diagonal (d,) of S, given by it or as (d, d), and an int m, or (d,) counts where columns differ."""
    S = check_array(S, "S", 1 if np.ndim(S) == 1 else 2)
    if S.shape not in ((d,), (d, d)):
        raise InputError(f"S must be ({d}, {d}) like the covariance, or its diagonal ({d},), got shape {S.shape}.")
    sums = diagonal_of(S)
    _check_sums(sums)
    if np.ndim(m) == 1:
        counts = np.asarray(m)
        if counts.shape != (d,) or counts.dtype.kind not in "iu" or np.any(counts < 0):
            raise InputError(f"m must be a count or {d} counts, one per column, got {m!r}.")
        return sums, counts
    return sums, check_count(m, "m", at_least=0)


def _check_sums(sums: Floats) -> None:
    if np.any(sums < 0):
        raise InputError("S must be a sum of u uᵀ, but its diagonal has negative entries.")


def guess_variances(guess: Any) -> Floats:
    """Return the variances (d,) of a rough covariance, all positive: a constant column gets a millionth of the mean."""
    guess = check_array(guess, "guess", 1 if np.ndim(guess) == 1 else 2)
    if guess.size < 1 or guess.shape[0] != guess.shape[-1]:
        raise InputError(f"guess must be a square matrix, a rough covariance, or variances, got shape {guess.shape}.")
    variances = diagonal_of(guess)
    if np.any(variances < 0) or not np.any(variances > 0):
        raise InputError("guess must have a non-negative diagonal with a positive entry: is every column constant?")
    floor = 1e-6 * float(variances.mean())
    return np.maximum(variances, floor)


def log_inverse_gamma(x: Any, shape: Any, scale: Any) -> float:
    """Log density of IG(shape, scale), summed over the entries of x."""
    return float(np.sum(shape * np.log(scale) - gammaln(shape) - (shape + 1.0) * np.log(x) - scale / x))


def sample_inverse_gamma(shape: Any, scale: Any, rng: np.random.Generator) -> Any:
    """Draw from IG(shape, scale)."""
    return scale / sample_gamma(shape, rng)


def sample_gamma(shape: Any, rng: np.random.Generator, size: int | None = None) -> Any:
    """Draw from Gamma(shape, 1): never zero, which small shapes occasionally give by underflow."""
    return np.maximum(rng.gamma(shape, size=size), np.finfo(np.float64).tiny)


def sample_bounded_inverse_gamma(shape: float, scale: float, least: float, rng: np.random.Generator) -> float:
    """Draw from IG(shape, scale) above `least`, by the inverse of its distribution function."""
    top = scale / least
    share = float(gammainc(shape, top))
    if share > LITTLE:
        return max(scale / float(gammaincinv(shape, share * (1.0 - rng.random()))), least)
    # So far out in the tail, which only remote starts are, the density of log φ falls exponentially.
    return least * math.exp(rng.exponential() / max(shape - top, 1.0))


def unchanged(X: Floats) -> Floats:
    """Return the rows unchanged."""
    return X


def log_inverse_gamma_marginal(shape: float, scale: float, m: float, sums: Any, least: float = 0.0) -> float:
    """Σ −(shape + m/2) log(scale + ½ sum): φ ~ IG integrated out of m normal contrasts of each sum of squares.

    With `least`, over φ ≥ least only.
    """
    value = -(shape + 0.5 * m) * float(np.log(scale + 0.5 * sums).sum())
    if least > 0.0:
        value += float(np.sum(log_gammainc(shape + 0.5 * m, (scale + 0.5 * sums) / least)))
    return value


def log_gammainc(shape: float, x: Any) -> Any:
    """Log of the regularised lower incomplete gamma function, by the first terms of its series where it underflows."""
    value = gammainc(shape, x)
    with np.errstate(divide="ignore", invalid="ignore"):
        tail = shape * np.log(x) - x - gammaln(shape + 1.0) - np.log1p(-x / (shape + 1.0))
        return np.where(value > LITTLE, np.log(value), tail)


def integrate_columns(
    rows: Callable[[Floats], Floats],
    log_marginal: Callable[..., float],
    draw: Callable[..., State],
) -> Integrated:
    """Φ integrated out where `log_marginal` needs only Σ_k u_kj², (d,), and m from the contrasts."""
    return Integrated(rows, lambda u: log_marginal(np.einsum("kj,kj->j", u, u), len(u)), draw, log_marginal)


def median(states: Sequence[State], name: str) -> Any:
    """Median of one named value over states."""
    if not len(states):
        raise InputError("states must hold at least one state to summarise, got none.")
    return np.median([state.values[name] for state in states], axis=0)


class Linear(CovarianceFamily):
    """Shared by families whose one value is Φ itself, or the free part of it: dividing Φ by c divides the value."""

    value: str  # its name
    diagonal_only = False

    def n_free(self, d: int) -> int:
        """Count the free entries of Φ."""
        raise NotImplementedError

    def rescale(self, state: State, c: float) -> tuple[State, float]:
        """Divide the value by c; the Jacobian is c^(−n_free)."""
        new = self.from_values({self.value: state.values[self.value] / check_positive(c, "c")}, state.d)
        jacobian = -self.n_free(state.d) * math.log(c)
        return new, self.log_prior(new) - self.log_prior(state) + jacobian

    def log_rescale(self, state: State, c: float) -> float:
        """Take it from `rescale`; full matrices have a shorter way."""
        return self.rescale(state, c)[1]

    def summarise(self, states: Sequence[State]) -> State:
        """Take medians."""
        return self.from_values({self.value: median(states, self.value)}, states[0].d)
