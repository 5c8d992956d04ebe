"""Φ from a Gaussian process over the features: any scikit-learn kernel on their coordinates.

    Φ = amplitude · (K(θ) + jitter · k̄ · I),   k̄ the mean of K's diagonal,

amplitude ~ IG(shape, scale) and θ, the logarithms of the kernel's free hyperparameters, uniform within the kernel's
bounds (where K is positive definite). One update slice-samples each θ with the amplitude integrated out,

    log p(S | θ) = −(m/2) log|K| − (shape + md/2) log(scale + ½ tr(K⁻¹S)) + const,

then draws amplitude | θ, S ~ IG(shape + md/2, scale + ½ tr(K⁻¹S)) exactly.

The paper's covariances, in scikit-learn's words (its squared-exponential ℓ is a squared length, exp(−d²/2ℓ), so
length_scale = √ℓ; being uniform in log length_scale is being uniform in log ℓ):

    RBF() + WhiteKernel()                                                                squared exponential + noise
    Columns(Matern(nu=1.5), [0]) * Columns(Matern(nu=1.5), [1]) + WhiteKernel()          axis-wise Matérn on an image

The amplitude multiplies all of K, so noise levels are relative to it, and a free constant in front of the kernel would
be redundant.

`Columns` restricts a kernel to some columns of the coordinates. On a full grid (every combination of the columns'
values once) a product of kernels of different columns is a Kronecker product of small matrices, one per column group,
and white noise only adds to its eigenvalues; this is used where it applies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk
from sklearn.gaussian_process.kernels import Kernel

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputError, InputTypeError
from coaltree.model.factorisations import DenseRoot, KroneckerRoot, Root, fold, kronecker_root
from coaltree.model.family import (
    DEFAULT_SCALE,
    DEFAULT_SHAPE,
    CovarianceFamily,
    Integrated,
    State,
    Values,
    check_dimension,
    check_positive,
    check_scatter,
    guess_variances,
    integrate_columns,
    log_inverse_gamma,
    log_inverse_gamma_marginal,
    median,
    sample_inverse_gamma,
)
from coaltree.model.slice import slice_step
from coaltree.validation import check_array

# Kernels whose k(x, y) depends on x and y alone. White noise does not: it asks whether x and y are the same row.
POINTWISE = (sk.RBF, sk.Matern, sk.RationalQuadratic, sk.ExpSineSquared, sk.DotProduct, sk.ConstantKernel)


class OnColumns(sk.Kernel):  # type: ignore[misc]
    """A kernel that sees only some columns of the coordinates.

    Its hyperparameters, theta and bounds are those of `kernel`, named `kernel__…`.

    >>> from sklearn.gaussian_process.kernels import Matern, WhiteKernel
    >>> image = OnColumns(Matern(nu=1.5), [0]) * OnColumns(Matern(nu=1.5), [1]) + WhiteKernel()
    >>> image.n_dims
    3

    Parameters
    ----------
    kernel : scikit-learn kernel
    columns : list of int
    """

    def __init__(self, kernel: Any, columns: Any) -> None:
        self.kernel = kernel
        self.columns = columns

    def _take(self, X: Any) -> Any:
        X = np.asarray(X)
        columns = np.atleast_1d(self.columns)
        valid = columns.ndim == 1 and columns.size > 0 and columns.dtype.kind in "iu"
        if not valid or X.ndim != 2 or columns.min() < 0 or columns.max() >= X.shape[1]:
            raise InputError(
                f"columns must be a list of column numbers of the coordinates (shape {X.shape}), got {self.columns!r}."
            )
        return X[:, columns]

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        """Return the kernel on those columns, and its gradient if requested."""
        return self.kernel(self._take(X), None if Y is None else self._take(Y), eval_gradient=eval_gradient)

    def diag(self, X: Any) -> Any:
        """Return the kernel's diagonal."""
        return self.kernel.diag(self._take(X))

    def is_stationary(self) -> Any:
        """Return whether the kernel is stationary."""
        return self.kernel.is_stationary()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return kernel and columns, and with `deep` the kernel's own parameters."""
        inner = self.kernel.get_params() if deep else {}
        return {
            "kernel": self.kernel,
            "columns": self.columns,
            **{f"kernel__{name}": value for name, value in inner.items()},
        }

    @property
    def hyperparameters(self) -> list[Any]:
        """The kernel's, renamed."""
        return [each._replace(name=f"kernel__{each.name}") for each in self.kernel.hyperparameters]

    @property
    def theta(self) -> Any:
        """Logarithms of the kernel's free hyperparameters."""
        return self.kernel.theta

    @theta.setter
    def theta(self, theta: Any) -> None:
        self.kernel.theta = theta

    @property
    def bounds(self) -> Any:
        """Bounds of theta."""
        return self.kernel.bounds

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, OnColumns)
            and bool(self.kernel == other.kernel)
            and np.array_equal(np.atleast_1d(self.columns), np.atleast_1d(other.columns))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Columns({self.kernel!r}, {self.columns!r})"


@dataclass(frozen=True, eq=False)
class FeatureGrid:
    """The axes of a full grid: one group of columns each, its distinct values, and the features in grid order."""

    groups: tuple[tuple[int, ...], ...]
    axes: tuple[Floats, ...]  # (n_j, columns in the group)
    order: Ints  # (d,)

    def root(self, kernel: Any, jitter: float) -> KroneckerRoot:
        """Root of K + jitter · mean diagonal · I for a kernel that `find_grid` accepted, whatever its theta now."""
        scale, noise, factors = 1.0, 0.0, [np.ones((len(axis), len(axis))) for axis in self.axes]
        for part in _terms(kernel, sk.Sum):
            if isinstance(part, sk.WhiteKernel):
                noise += part.noise_level
                continue
            for factor in _terms(part, sk.Product):
                if isinstance(factor, OnColumns):
                    axis = self.groups.index(_group(factor))
                    factors[axis] *= factor.kernel(self.axes[axis])
                else:
                    scale *= factor.constant_value
        mean_diagonal = scale * math.prod(float(np.diag(factor).mean()) for factor in factors) + noise
        factors[0] *= scale
        if not all(np.all(np.isfinite(factor)) for factor in factors):
            raise np.linalg.LinAlgError("kernel is not finite")
        return kronecker_root(factors, noise + jitter * mean_diagonal, self.order)

    def fold(self, S: Floats) -> Floats:
        """Rearrange S for `KroneckerRoot.trace_folded`."""
        return fold(S, self.order, tuple(map(len, self.axes)))


def find_grid(kernel: Any, coordinates: Floats) -> FeatureGrid | None:
    """Return the grid on which `kernel` separates, or None: then the dense computation is always right.

    It separates if it is a product of `Columns` on at least two disjoint groups of columns, and constants, plus white
    noise or not, and every combination of the groups' values is the coordinate of exactly one feature.
    """
    products = [part for part in _terms(kernel, sk.Sum) if type(part) is not sk.WhiteKernel]
    if len(products) != 1:
        return None
    factors = [part for part in _terms(products[0], sk.Product) if type(part) is not sk.ConstantKernel]
    if not all(type(factor) is OnColumns and _is_pointwise(factor.kernel) for factor in factors):
        return None
    groups = tuple(dict.fromkeys(_group(factor) for factor in factors))
    used = [column for group in groups for column in group]
    if len(groups) < 2 or len(used) != len(set(used)):
        return None
    axes, positions = [], []
    for group in groups:
        axis, inverse = np.unique(coordinates[:, group], axis=0, return_inverse=True)
        axes.append(axis)
        positions.append(inverse.ravel())
    shape = tuple(len(axis) for axis in axes)
    if math.prod(shape) != len(coordinates):
        return None
    flat = np.ravel_multi_index(tuple(positions), shape)
    if len(np.unique(flat)) != len(flat):
        return None
    return FeatureGrid(groups, tuple(axes), np.argsort(flat))


def _terms(kernel: Any, operator: Any) -> Iterator[Any]:
    """Flatten nested sums, or products."""
    if type(kernel) is operator:
        yield from _terms(kernel.k1, operator)
        yield from _terms(kernel.k2, operator)
    else:
        yield kernel


def _group(factor: OnColumns) -> tuple[int, ...]:
    return tuple(int(column) for column in np.atleast_1d(factor.columns))


def _is_pointwise(kernel: Any) -> bool:
    if type(kernel) in (sk.Sum, sk.Product):
        return _is_pointwise(kernel.k1) and _is_pointwise(kernel.k2)
    if type(kernel) is sk.Exponentiation:
        return _is_pointwise(kernel.kernel)
    return type(kernel) in POINTWISE


__all__ = ["GaussianProcess", "Kernel", "OnColumns"]

MAX_PRIOR_DRAWS = 1000


class GaussianProcess(CovarianceFamily):
    """Φ = amplitude · K(coordinates; θ).

    Parameters
    ----------
    kernel : scikit-learn kernel
        Its free hyperparameters are learned within their bounds, which must be finite; those marked "fixed" are kept.
    coordinates : array (d, q) or (d,)
        Where each feature lies: times, pixel positions, …
    shape, scale : float
        The amplitude's inverse-gamma prior.
    amplitude : float, optional
        Keep the amplitude at this value instead of learning it (then Φ cannot be rescaled).
    jitter : float
        Added to the diagonal, relative to its mean, so that smooth kernels stay positive definite in floating point.
        S = Σ u uᵀ itself has rounding errors of 1e-16 or so: nothing much below 1e-12 can be distinguished from zero.
    width : float
        First guess of a slice's length, in log units. Any is correct.
    separable : bool
        Use the Kronecker structure of a product of `Columns` kernels on a full grid, if there is one.
    """

    def __init__(
        self,
        kernel: Any,
        coordinates: Any,
        shape: float = DEFAULT_SHAPE,
        scale: float = DEFAULT_SCALE,
        amplitude: float | None = None,
        jitter: float = 1e-10,
        width: float = 1.0,
        separable: bool = True,
    ) -> None:
        if not isinstance(kernel, Kernel):
            raise InputTypeError(
                f"kernel must be an instance of a kernel of sklearn.gaussian_process.kernels, got {kernel!r}."
            )
        if coordinates is None:
            raise InputTypeError("coordinates must be given with a kernel: one row per column of X, got None.")
        where = check_array(coordinates, "coordinates", 1 if np.ndim(coordinates) == 1 else 2)
        if where.size == 0:
            raise InputError(f"coordinates must not be empty, got shape {where.shape}.")
        self.coordinates = where.reshape(len(where), -1)
        self.shape, self.scale = check_positive(shape, "shape"), check_positive(scale, "scale")
        self.amplitude = None if amplitude is None else check_positive(amplitude, "amplitude")
        self.jitter = float(check_array([jitter], "jitter", 1)[0])
        if self.jitter < 0:
            raise InputError(f"jitter must not be negative, got {self.jitter:.6g}.")
        self.width = check_positive(width, "width")
        self.kernel = clone(kernel)  # later changes to the caller's kernel do not matter
        self.names = [(each.name, each.n_elements) for each in self.kernel.hyperparameters if not each.fixed]
        self._check_kernel()
        self._check_bounds()
        self.grid = find_grid(self.kernel, self.coordinates) if separable else None

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.coordinates)

    def check_features(self, d: int) -> int:
        """Return d if it is the number of coordinates."""
        if d != self.d:
            raise InputError(
                f"coordinates must have one row per feature (column of X): {d} features, {self.d} coordinates."
            )
        return d

    def _check_bounds(self) -> None:
        with np.errstate(all="ignore"):
            self.bounds = np.asarray(self.kernel.bounds, dtype=np.float64).reshape(-1, 2)
            self.theta = np.asarray(self.kernel.theta, dtype=np.float64)
        labels = [name for name, count in self.names for _ in range(count)]
        if not len(labels) == len(self.bounds) == len(self.theta):
            raise InputError(
                f"kernel must have as many bounds ({len(self.bounds)}) and theta ({len(self.theta)}) as free "
                f"hyperparameters ({len(labels)}): {labels}."
            )
        for label, (low, high), theta in zip(labels, self.bounds, self.theta, strict=True):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise InputError(
                    f"kernel must have finite, positive bounds for {label}, lower below upper, got "
                    f"({math.exp(low):.6g}, {math.exp(high):.6g}): its prior is uniform in log between them. Set "
                    f'{label}_bounds, or mark it "fixed".'
                )
            if not low <= theta <= high:
                raise InputError(
                    f"kernel has {label} = {math.exp(theta):.6g} outside its bounds ({math.exp(low):.6g}, "
                    f"{math.exp(high):.6g}). Move the value or the bounds."
                )

    def _check_kernel(self) -> None:
        try:
            K = np.asarray(self.kernel(self.coordinates))
        except Exception as error:
            raise InputError(
                f"kernel cannot be evaluated on coordinates of shape {self.coordinates.shape}: {error}"
            ) from error
        if K.shape != (self.d, self.d):
            raise InputError(f"kernel must give a ({self.d}, {self.d}) matrix, got shape {K.shape}.")
        if not np.allclose(K, K.T, rtol=1e-8, atol=1e-8 * float(np.abs(K).max())):
            raise InputError("kernel must give a finite symmetric matrix on the coordinates.")

    def _root(self, theta: Floats, kernel: Any) -> Root | None:
        """Root of K(θ) with jitter, or None where that is not positive definite; sets the theta of `kernel`."""
        try:
            with np.errstate(all="ignore"):
                if theta.size:
                    kernel.theta = theta
                if self.grid is not None:
                    return self.grid.root(kernel, self.jitter)
                K = np.array(kernel(self.coordinates), dtype=np.float64)
                K[np.diag_indices(self.d)] += self.jitter * np.diag(K).mean()
                return DenseRoot.of(K) if np.all(np.isfinite(K)) else None
        except np.linalg.LinAlgError:
            return None

    def _state(self, theta: Floats, amplitude: float) -> State | None:
        """State at θ, or None where K is not positive definite.

        Values are kept on their natural scale and are what defines the state, so θ is read back from them.
        """
        values: dict[str, float | Floats] = {"amplitude": float(amplitude)}
        natural, used = np.exp(theta), 0
        for name, count in self.names:
            values[name] = float(natural[used]) if count == 1 else natural[used : used + count]
            used += count
        root = self._root(self._theta(values), clone(self.kernel))
        return None if root is None else State(values, root, float(amplitude))

    def _theta(self, values: Values) -> Floats:
        parts = [np.atleast_1d(values[name]) for name, _ in self.names]
        theta = np.log(np.concatenate(parts)) if parts else np.empty(0)
        # log(exp(θ)) may leave the bounds by a rounding error.
        return np.clip(theta, self.bounds[:, 0], self.bounds[:, 1])

    def start(self, guess: Any) -> State:
        """Start at the kernel's own hyperparameters, with the amplitude that gives the guess's mean variance."""
        variances = guess_variances(guess)
        self.check_features(len(variances))
        state = self._state(self.theta, 1.0 if self.amplitude is None else self.amplitude)
        if state is None:
            raise InputError(
                f"kernel {self.kernel!r} is not positive definite on the coordinates where it starts. Add a "
                "WhiteKernel, raise jitter, or start from other hyperparameters."
            )
        if self.amplitude is not None:
            return state
        amplitude = float(variances.mean() / np.diag(state.matrix()).mean())
        return self._with_amplitude(state, amplitude)

    def _with_amplitude(self, state: State, amplitude: float) -> State:
        return State({**state.values, "amplitude": amplitude}, state.root, amplitude)

    def from_values(self, values: Values, d: int) -> State:
        """Rebuild from {"amplitude": …, and each free hyperparameter on its natural scale}."""
        self.check_features(check_dimension(d))
        amplitude = check_positive(values["amplitude"], "amplitude")
        for name, count in self.names:
            if np.size(values[name]) != count:
                raise InputError(f"{name} must have {count} entries, got {np.size(values[name])}.")
        root = self._root(self._theta(values), clone(self.kernel))
        if root is None:
            raise InputError(f"values give a kernel matrix that is not positive definite: {dict(values)}.")
        return State(dict(values), root, amplitude)

    def update(self, state: State, S: Any, m: Any, rng: np.random.Generator) -> State:
        """Slice-sample each θ, amplitude integrated out, then draw the amplitude."""
        S, m = check_scatter(S, m, self.d)
        theta = self._theta(state.values)
        kernel = clone(self.kernel)
        shape = self.shape + 0.5 * float(m) * self.d

        folded = None if self.grid is None else self.grid.fold(S)

        def half_trace(root: Root) -> float:
            if isinstance(root, KroneckerRoot) and folded is not None:
                return 0.5 * max(root.trace_folded(folded), 0.0)
            return 0.5 * max(root.trace_solve(S), 0.0)  # rounding may make a tiny value negative

        def log_density(root: Root | None) -> float:
            if root is None:
                return -math.inf
            log_volume = 0.5 * float(m) * root.log_det
            if self.amplitude is not None:
                return -log_volume - half_trace(root) / self.amplitude
            return -log_volume - shape * math.log(self.scale + half_trace(root))

        current = log_density(state.root)
        for k, (low, high) in enumerate(self.bounds):

            def along(x: float, k: int = k) -> float:
                moved = theta.copy()
                moved[k] = x
                return log_density(self._root(moved, kernel))

            theta[k], current = slice_step(along, theta[k], current, rng, self.width, low, high)
        moved = self._state(theta, state.amplitude) if theta.size else state
        if moved is None:  # θ changed by a rounding error on its way through `values`, at the edge of what is allowed
            return state
        if self.amplitude is not None:
            return moved
        draw = sample_inverse_gamma(shape, self.scale + half_trace(moved.root), rng)
        return self._with_amplitude(moved, float(draw))

    def integrated(self, state: State, rng: np.random.Generator) -> Integrated | None:
        """Integrate out the amplitude, θ given; None if it is fixed."""
        if self.amplitude is not None:
            return None

        def log_marginal(sums: Floats, m: int) -> float:
            return log_inverse_gamma_marginal(self.shape, self.scale, m * self.d, sums.sum())

        def draw(S: Floats, m: int, rng: np.random.Generator) -> State:
            trace = max(state.root.trace_solve(S), 0.0)
            amplitude = sample_inverse_gamma(self.shape + 0.5 * m * self.d, self.scale + 0.5 * trace, rng)
            return self._with_amplitude(state, float(amplitude))

        return integrate_columns(state.root.whiten, log_marginal, draw)

    def log_prior(self, state: State) -> float:
        """Log density of (amplitude, θ), up to the prior probability that K(θ) is positive definite."""
        log_uniform = -float(np.log(self.bounds[:, 1] - self.bounds[:, 0]).sum())
        if self.amplitude is not None:
            return log_uniform
        return log_inverse_gamma(state.amplitude, self.shape, self.scale) + log_uniform

    def sample_prior(self, d: int, rng: np.random.Generator) -> State:
        """Draw θ uniformly where K(θ) is positive definite, and the amplitude."""
        self.check_features(check_dimension(d))
        amplitude = self.amplitude
        if amplitude is None:
            amplitude = float(sample_inverse_gamma(self.shape, self.scale, rng))
        for _ in range(MAX_PRIOR_DRAWS):
            state = self._state(rng.uniform(self.bounds[:, 0], self.bounds[:, 1]), amplitude)
            if state is not None:
                return state
        raise InputError(
            f"kernel is almost never positive definite within its bounds ({MAX_PRIOR_DRAWS} draws). Narrow the bounds, "
            "add a WhiteKernel or raise jitter."
        )

    def rescale(self, state: State, c: float) -> tuple[State, float]:
        """Divide the amplitude by c."""
        c = check_positive(c, "c")
        if self.amplitude is not None:
            return state, (0.0 if c == 1.0 else -math.inf)
        new = self._with_amplitude(state, state.amplitude / c)
        return new, self.log_prior(new) - self.log_prior(state) - math.log(c)

    def log_rescale(self, state: State, c: float) -> float:
        """Take it from `rescale`, which is cheap."""
        return self.rescale(state, c)[1]

    def summarise(self, states: Sequence[State]) -> State:
        """Take the median of each hyperparameter; should K not be positive definite there, the state nearest to it."""
        amplitude = float(median(states, "amplitude"))
        thetas = np.array([self._theta(state.values) for state in states])
        middle = np.median(thetas, axis=0)
        summary = self._state(middle, amplitude)
        if summary is not None:
            return summary
        nearest = states[int(np.argmin(((thetas - middle) ** 2).sum(axis=1)))]
        return self._with_amplitude(nearest, amplitude)
