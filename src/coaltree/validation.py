"""Checks of arguments at the public boundary: each error names the argument and the fix."""

from __future__ import annotations

import numbers
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Floats
from coaltree.errors import InputError, InputTypeError


def as_floats(value: Any, name: str) -> Floats:
    """Return a float64 array of any shape, or say that `value` is not made of numbers.

    It is always a copy, writeable and in C order: kernels are compiled anew for every other layout.
    """
    try:
        given = np.asarray(value)
        if given.dtype.kind == "c":
            raise InputTypeError("got complex numbers")
        with np.errstate(over="ignore"):  # of longer floats; what overflows is infinite and refused as such
            return given.astype(np.float64, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise InputTypeError(f"{name} must be an array of numbers: {error}.") from error


def check_numbers(value: Any, name: str) -> Floats:
    """Return `value` as a finite float64 array of any shape."""
    array = as_floats(value, name)
    if not np.all(np.isfinite(array)):
        raise InputError(f"{name} must be finite, got {value!r}.")
    return array


def check_array(value: Any, name: str, ndim: int, missing: bool = False) -> Floats:
    """Return `value` as a finite, C-contiguous float64 array with `ndim` dimensions; NaN may pass as `missing`."""
    array = as_floats(value, name)
    if array.ndim != ndim:
        raise InputError(f"{name} must have {ndim} dimension(s), got shape {array.shape}.")
    bad = np.argwhere(np.isinf(array) if missing else ~np.isfinite(array))
    if len(bad):
        where = ", ".join(str(int(index)) for index in bad[0])
        raise InputError(
            f"{name} must be finite: {len(bad)} entr{'y is' if len(bad) == 1 else 'ies are'} "
            f"{'' if missing else 'NaN or '}infinite, the first at [{where}]. Remove or impute them."
        )
    return array


def check_part(
    value: Any, name: str, shape: tuple[int | None, ...], kinds: str = "f", finite: bool = True
) -> npt.NDArray[Any]:
    """Return an array from a file if it is of this shape (None: of any length), of one of these kinds, and finite.

    Kinds are numpy's letters. Numbers are as kernels take them: in the machine's byte order, floats of 4 or 8 bytes.
    """
    if not isinstance(value, np.ndarray):
        raise InputTypeError(f"{name} must be an array, got {type(value).__name__}.")
    if len(shape) != value.ndim or any(n not in (None, m) for n, m in zip(shape, value.shape, strict=True)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise InputError(f"{name} must have shape ({wanted}), got {value.shape}.")
    odd = value.dtype.kind == "f" and value.dtype.itemsize not in (4, 8)
    if value.dtype.kind not in kinds or not value.dtype.isnative or odd:
        raise InputTypeError(f"{name} must be an array of kind {kinds!r}, got {value.dtype}.")
    if finite and value.dtype.kind == "f" and not np.isfinite(value).all():
        raise InputError(f"{name} must be finite.")
    return value


def check_data(X: Any, missing: bool = False) -> Floats:
    """Return the (n, d) table as float64, n ≥ 2 rows and d ≥ 1 columns, all finite or `missing` (NaN)."""
    array = check_array(X, "X", 2, missing)
    if array.shape[0] < 2:
        raise InputError(f"X must have at least 2 rows to build a tree, got {array.shape[0]}.")
    if array.shape[1] < 1:
        raise InputError("X must have at least 1 column, got 0.")
    if missing:
        empty = np.flatnonzero(np.isnan(array).all(axis=0))
        if len(empty):
            raise InputError(f"X has no entry at all in column(s) {', '.join(map(str, empty))}. Drop them.")
    return array


def check_covariance(covariance: Any, d: int | None = None) -> Floats:
    """Return a symmetric positive-definite (d, d) matrix, or the d variances of a diagonal one, as it was given.

    None stands for the identity, of which the variances are returned.
    """
    if covariance is None:
        if d is None:
            raise InputTypeError("covariance must be a (d, d) array, d variances or an int d.")
        return np.ones(d)
    if np.ndim(covariance) == 1:
        return _check_variances(covariance, d)
    phi = check_array(covariance, "covariance", 2)
    if phi.shape[0] != phi.shape[1] or phi.shape[0] < 1 or (d is not None and phi.shape[0] != d):
        expected = "square" if d is None else f"({d}, {d}) to match the {d} column(s) of X"
        raise InputError(f"covariance must be {expected}, got shape {phi.shape}.")
    if is_diagonal(phi):
        _check_variances(np.diag(phi), d)
        return phi
    size = float(np.abs(phi).max())
    asymmetry = float(np.abs(0.5 * phi - 0.5 * phi.T).max()) * 2.0
    if asymmetry > 1e-8 * size:
        raise InputError(
            f"covariance must be symmetric: entries differ from their mirror by up to {asymmetry:.3g}. "
            "Use (covariance + covariance.T) / 2 if that is rounding."
        )
    phi = 0.5 * phi + 0.5 * phi.T
    eigenvalues = np.linalg.eigvalsh(phi / size) * size if size > 0 else np.zeros(len(phi))
    if eigenvalues[0] <= 0 or not _has_root(phi):
        raise InputError(
            f"covariance must be positive definite: the smallest of its {len(phi)} eigenvalues is "
            f"{eigenvalues[0]:.6g} (largest {eigenvalues[-1]:.6g}). Add a small multiple of the identity."
        )
    return phi


def is_diagonal(matrix: Floats) -> bool:
    """Whether a square matrix is zero off its diagonal."""
    return bool(np.count_nonzero(matrix) == np.count_nonzero(np.diag(matrix)))


def _check_variances(variances: Any, d: int | None) -> Floats:
    """Return the diagonal of a diagonal covariance, (d,), all positive."""
    phi = check_array(variances, "covariance", 1)
    if len(phi) < 1 or (d is not None and len(phi) != d):
        expected = "at least one variance" if d is None else f"{d} variances to match the {d} column(s) of X"
        raise InputError(f"covariance must be a square matrix or {expected}, got shape {phi.shape}.")
    if phi.min() <= 0:
        raise InputError(
            f"covariance must be positive definite: the smallest of its {len(phi)} variances is {phi.min():.6g} "
            f"(largest {phi.max():.6g}). Add a small number to them."
        )
    return phi


def _has_root(phi: Floats) -> bool:
    """Whether Cholesky's factor exists: rounding may deny it to a matrix whose eigenvalues are positive."""
    try:
        return bool(np.all(np.isfinite(np.linalg.cholesky(phi))))
    except np.linalg.LinAlgError:
        return False


def check_leaf_noise(leaf_noise: Any, n: int) -> Floats:
    """Return the (n,) leaf variances; a scalar is repeated."""
    if np.ndim(leaf_noise) == 0:
        noise = np.repeat(check_array([leaf_noise], "leaf_noise", 1), n)
    else:
        noise = check_array(leaf_noise, "leaf_noise", 1)
    if noise.shape != (n,):
        raise InputError(f"leaf_noise must be a number or have one entry per row of X ({n}), got {noise.shape}.")
    if np.any(noise < 0):
        raise InputError(f"leaf_noise must not be negative, got {float(noise.min()):.6g}.")
    return noise


def check_count(value: Any, name: str, at_least: int) -> int:
    """Return an integer that is at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputTypeError(f"{name} must be an integer, got {value!r}.")
    if value < at_least:
        raise InputError(f"{name} must be at least {at_least}, got {value}.")
    return int(value)


def check_choice(value: Any, name: str, choices: Collection[str]) -> str:
    """Return `value` if it is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")
    return value


def check_fraction(value: Any, name: str) -> float:
    """Return a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputTypeError(f"{name} must be a number between 0 and 1, got {value!r}.")
    if not 0 <= float(value) <= 1:
        raise InputError(f"{name} must be between 0 and 1, got {value}.")
    return float(value)


def check_real(value: Any, name: str, at_least: float) -> float:
    """Return a finite number that is at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputTypeError(f"{name} must be a number, got {value!r}.")
    if not at_least <= float(value) < np.inf:
        raise InputError(f"{name} must be a finite number ≥ {at_least:g}, got {value!r}.")
    return float(value)
