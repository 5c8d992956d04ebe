r"""scikit-learn kernels on some columns of the coordinates, and the grids on which their products separate.

On a full grid (every combination of the columns' values once) a product of kernels of different columns is a Kronecker
product of small matrices, one per column group, and white noise only adds to its eigenvalues.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.gaussian_process import kernels as sk

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputError
from coaltree.model.roots import KroneckerRoot, fold, kronecker_root

# Kernels whose k(x, y) depends on x and y alone. White noise does not: it asks whether x and y are the same row.
POINTWISE = (sk.RBF, sk.Matern, sk.RationalQuadratic, sk.ExpSineSquared, sk.DotProduct, sk.ConstantKernel)


class Columns(sk.Kernel):  # type: ignore[misc]
    """A kernel that sees only some columns of the coordinates.

    Its hyperparameters, theta and bounds are those of `kernel`, named `kernel__…`.

    >>> from sklearn.gaussian_process.kernels import Matern, WhiteKernel
    >>> image = Columns(Matern(nu=1.5), [0]) * Columns(Matern(nu=1.5), [1]) + WhiteKernel()
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
        """Return the kernel on those columns, and its gradient if asked."""
        return self.kernel(self._take(X), None if Y is None else self._take(Y), eval_gradient=eval_gradient)

    def diag(self, X: Any) -> Any:
        """Return the kernel's diagonal."""
        return self.kernel.diag(self._take(X))

    def is_stationary(self) -> Any:
        """Tell whether the kernel is stationary."""
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
            isinstance(other, Columns)
            and bool(self.kernel == other.kernel)
            and np.array_equal(np.atleast_1d(self.columns), np.atleast_1d(other.columns))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Columns({self.kernel!r}, {self.columns!r})"


@dataclass(frozen=True, eq=False)
class Grid:
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
                if isinstance(factor, Columns):
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


def find_grid(kernel: Any, coordinates: Floats) -> Grid | None:
    """Return the grid on which `kernel` separates, or None: then the dense way is always right.

    It separates if it is a product of `Columns` on at least two disjoint groups of columns, and constants, plus white
    noise or not, and every combination of the groups' values is the coordinate of exactly one feature.
    """
    products = [part for part in _terms(kernel, sk.Sum) if type(part) is not sk.WhiteKernel]
    if len(products) != 1:
        return None
    factors = [part for part in _terms(products[0], sk.Product) if type(part) is not sk.ConstantKernel]
    if not all(type(factor) is Columns and _is_pointwise(factor.kernel) for factor in factors):
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
    return Grid(groups, tuple(axes), np.argsort(flat))


def _terms(kernel: Any, operator: Any) -> Iterator[Any]:
    """Flatten nested sums, or products."""
    if type(kernel) is operator:
        yield from _terms(kernel.k1, operator)
        yield from _terms(kernel.k2, operator)
    else:
        yield kernel


def _group(factor: Columns) -> tuple[int, ...]:
    return tuple(int(column) for column in np.atleast_1d(factor.columns))


def _is_pointwise(kernel: Any) -> bool:
    if type(kernel) in (sk.Sum, sk.Product):
        return _is_pointwise(kernel.k1) and _is_pointwise(kernel.k2)
    if type(kernel) is sk.Exponentiation:
        return _is_pointwise(kernel.kernel)
    return type(kernel) in POINTWISE
