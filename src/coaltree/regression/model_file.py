"""A fitted regression in one file: arrays by name and settings as JSON, in the archive of `posterior.storage`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree import storage
from coaltree.errors import InputError
from coaltree.posterior.ensemble import TreePosterior
from coaltree.regression.fit import ProbitFit
from coaltree.regression.forest import Forest
from coaltree.regression.kernel_ridge import Kernel
from coaltree.regression.penalised import Ridge
from coaltree.regression.stacking import Stack
from coaltree.tree import Tree

KIND = "coaltree.CoalescentProbit"

Arrays = dict[str, npt.NDArray[Any]]

_POSTERIOR = ("children", "times", "weights", "log_joint", "ess_per_step")
_DRAWS = ("coef_draws", "intercept_draws", "node_weights")


def pack_fit(fit: ProbitFit) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and JSON values from which a fit can be rebuilt."""
    arrays: Arrays = {name: getattr(fit, name) for name in _DRAWS}
    full = fit.info.get("covariance") != "diagonal"
    arrays["covariance"] = fit.covariance if full else np.diag(fit.covariance)
    arrays |= {f"trace/{name}": values for name, values in fit.trace.items()}
    if fit.tree is not None and fit.posterior is not None:
        arrays |= {"tree/children": fit.tree.children, "tree/times": fit.tree.times}
        arrays |= {f"posterior/{name}": getattr(fit.posterior, name) for name in _POSTERIOR}
    plain = {}
    for name, value in fit.diagnostics.items():
        if isinstance(value, np.ndarray):
            arrays[f"diagnostics/{name}"] = value
        else:
            plain[name] = value
    return arrays, {"diagnostics": plain, "link": fit.link, "outcome_names": fit.outcome_names, "info": fit.info}


def unpack_fit(arrays: Mapping[str, Any], texts: Mapping[str, Any]) -> ProbitFit:
    """Rebuild a fit."""
    names = None if texts["outcome_names"] is None else tuple(texts["outcome_names"])
    tree = posterior = None
    if "tree/children" in arrays:
        tree = Tree(arrays["tree/children"], arrays["tree/times"], names)
        posterior = TreePosterior(
            **{name: arrays[f"posterior/{name}"] for name in _POSTERIOR},
            log_evidence=np.nan,
            names=names,
            info=texts["info"],
        )
    covariance = arrays["covariance"]
    fit = ProbitFit(
        **{name: arrays[name] for name in _DRAWS},
        tree=tree,
        posterior=posterior,
        covariance=covariance if covariance.ndim == 2 else np.diag(covariance),
        trace=_under("trace/", arrays),
        diagnostics={**texts["diagnostics"], **_under("diagnostics/", arrays)},
        link=texts["link"],
        outcome_names=names,
        info=texts["info"],
    )
    n_chains, n_draws, n_outcomes, n_features = fit.coef_draws.shape
    wanted = {
        "intercept_draws": (n_chains, n_draws, n_outcomes),
        "node_weights": (2 * n_outcomes - 1, n_outcomes),
        "covariance": (n_features, n_features),
    }
    for name, shape in wanted.items():
        if getattr(fit, name).shape != shape:
            raise InputError(f"{name} must have shape {shape}, got {getattr(fit, name).shape}.")
    return fit


def pack_stack(stack: Stack) -> tuple[Arrays, dict[str, Any]]:
    """The same for a stack."""
    inner, texts = pack_fit(stack.fit)
    arrays = {f"fit/{name}": values for name, values in inner.items()}
    for part in ("forest", "ridge", "kernel"):
        model = getattr(stack, part)
        arrays |= {f"{part}/{field.name}": getattr(model, field.name) for field in dataclasses.fields(model)}
    arrays |= {name: getattr(stack, name) for name in ("kept", "centre", "scale", "loadings")}
    arrays |= {f"densities/{name}": values for name, values in stack.densities.items()}
    return arrays, texts


def unpack_stack(arrays: Mapping[str, Any], texts: Mapping[str, Any]) -> Stack:
    """Rebuild a stack."""
    if "kernel/rows" not in arrays:
        raise InputError('it was saved by version 0.2.0, without a kernel regression. Fit with features="auto" again.')
    return Stack(
        fit=unpack_fit(_under("fit/", arrays), texts),
        forest=Forest(**_under("forest/", arrays)),
        ridge=Ridge(**_under("ridge/", arrays)),
        kernel=Kernel(**_under("kernel/", arrays)),
        densities=_under("densities/", arrays),
        **{name: arrays[name] for name in ("kept", "centre", "scale", "loadings")},
    )


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}


def write_model(path: str | os.PathLike[str], fit: ProbitFit, stack: Stack | None, settings: dict[str, Any]) -> None:
    """Write a model atomically; `settings` are JSON values of the estimator."""
    arrays, texts = pack_fit(fit)
    arrays = {f"linear/{name}": values for name, values in arrays.items()}
    header: dict[str, Any] = {"linear": texts, "settings": settings}
    if stack is not None:
        more, header["stack"] = pack_stack(stack)
        arrays |= {f"stack/{name}": values for name, values in more.items()}
    storage.write(path, arrays, header, KIND)


def read_model(path: str | os.PathLike[str]) -> tuple[ProbitFit, Stack | None, dict[str, Any]]:
    """Read what `write_model` wrote; ValueError if the file is truncated, altered or not a model."""
    contents = storage.read(path, KIND)
    try:
        fit = unpack_fit(_under("linear/", contents), contents["linear"])
        stack = None if "stack" not in contents else unpack_stack(_under("stack/", contents), contents["stack"])
        return fit, stack, contents["settings"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{os.fspath(path)} does not hold a valid regression: {error}") from error
