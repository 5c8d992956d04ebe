"""A fitted regression in one file: arrays by name and settings as JSON, in the archive of `posterior.storage`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree import storage
from coaltree.errors import InputError
from coaltree.posterior.ensemble import TreePosterior
from coaltree.regression.families import as_families, as_setting
from coaltree.regression.fit import RegressionFit
from coaltree.regression.forest import Forest
from coaltree.regression.kernel_ridge import Kernel
from coaltree.regression.penalised import Ridge
from coaltree.regression.stacking import MODELS, Stack
from coaltree.tree import Tree
from coaltree.validation import check_part

KIND = "coaltree.CoalescentProbit"

Arrays = dict[str, npt.NDArray[Any]]

_POSTERIOR = ("children", "times", "weights", "log_joint", "ess_per_step")
_DRAWS = ("coef_draws", "intercept_draws", "node_weights")
_UNITS = ("units", "residual_sd")


def pack_fit(fit: RegressionFit) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and JSON values from which a fit can be rebuilt."""
    arrays: Arrays = {name: getattr(fit, name) for name in (*_DRAWS, *_UNITS)}
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
    family = as_setting(fit.families)
    return arrays, {"diagnostics": plain, "family": family, "outcome_names": fit.outcome_names, "info": fit.info}


def unpack_fit(arrays: Mapping[str, Any], texts: Mapping[str, Any]) -> RegressionFit:
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
    covariance, n_outcomes = arrays["covariance"], arrays["coef_draws"].shape[2]
    # Versions before 0.3 had binary outcomes alone, and wrote their link.
    binary = {"units": np.repeat([[0.0], [1.0]], n_outcomes, axis=1), "residual_sd": np.full(n_outcomes, np.nan)}
    fit = RegressionFit(
        **{name: arrays[name] for name in _DRAWS},
        tree=tree,
        posterior=posterior,
        covariance=covariance if covariance.ndim == 2 else np.diag(covariance),
        trace=_under("trace/", arrays),
        diagnostics={**texts["diagnostics"], **_under("diagnostics/", arrays)},
        families=as_families(texts["family"] if "family" in texts else texts["link"], n_outcomes),
        **{name: arrays.get(name, binary[name]) for name in _UNITS},
        outcome_names=names,
        info=texts["info"],
    )
    _check_fit(fit)
    return fit


def _check_fit(fit: RegressionFit) -> None:
    """Raise ValueError unless the parts belong together."""
    n_chains, n_draws, n_outcomes, n_features = check_part(fit.coef_draws, "coef_draws", (None,) * 4).shape
    if 0 in (n_chains, n_draws, n_outcomes):
        raise InputError(f"coef_draws must hold draws, got shape {fit.coef_draws.shape}.")
    check_part(fit.intercept_draws, "intercept_draws", (n_chains, n_draws, n_outcomes))
    check_part(fit.node_weights, "node_weights", (2 * n_outcomes - 1, n_outcomes))
    check_part(fit.covariance, "covariance", (n_features, n_features))
    for name, values in fit.trace.items():
        check_part(values, f"trace of {name}", (n_chains, None), finite=False)
    for name in ("r_hat", "bulk_ess"):
        if not isinstance(fit.diagnostics[name], int | float):
            raise InputError(f"{name} must be a number, got {fit.diagnostics[name]!r}.")
    check_part(fit.units, "units", (2, n_outcomes))
    check_part(fit.residual_sd, "residual_sd", (n_outcomes,), finite=False)
    if not (fit.units[1] > 0.0).all():
        raise InputError("widths of outcomes must be positive.")
    trees = () if fit.tree is None or fit.posterior is None else (fit.tree, fit.posterior)
    if any(each.n_leaves != n_outcomes for each in trees):
        raise InputError(f"tree and posterior must have {n_outcomes} leaves, one per outcome.")
    if fit.outcome_names is not None and len(fit.outcome_names) != n_outcomes:
        raise InputError(f"there must be {n_outcomes} names of outcomes, got {len(fit.outcome_names)}.")


def _check_stack(stack: Stack, n_outcomes: int, n_features: int) -> None:
    """Likewise, and unless the forest's nodes lead to leaves."""
    n_models, n_kept = len(MODELS), len(check_part(stack.kept, "kept", (None,), "i"))
    if not n_kept or stack.kept.min() < 0 or stack.kept.max() >= n_outcomes or (np.diff(stack.kept) <= 0).any():
        raise InputError(f"kept must be numbers of outcomes, 0 … {n_outcomes - 1} in order.")
    n_shared = stack.fit.coef_draws.shape[3] - n_models
    n_nodes, n_leaves = len(stack.forest.left), len(stack.forest.votes)
    shapes: dict[str, tuple[int | None, ...]] = {
        "centre": (n_models, n_kept),
        "scale": (n_models,),
        "loadings": (n_models * n_kept, n_shared),
        "ridge.intercept": (n_kept,),
        "ridge.coef": (n_kept, n_features),
        "kernel.centre": (n_features,),
        "kernel.inverse_width": (n_features,),
        "kernel.rows": (None, n_features),
        "kernel.weights": (len(stack.kernel.rows), n_kept),
        "kernel.rates": (n_kept,),
        "forest.threshold": (n_nodes,),
        "forest.votes": (n_leaves, n_kept),
        "forest.rates": (n_kept,),
    }
    for name, shape in shapes.items():
        check_part(attrgetter(name)(stack), name, shape)
    for rates in (stack.forest.rates, stack.kernel.rates):
        if not ((rates > 0.0) & (rates < 1.0)).all():
            raise InputError("rates must be between 0 and 1.")
    if stack.fit.coef_draws.shape[2] != n_kept or not (stack.scale > 0.0).all():
        raise InputError(f"the stack must have {n_kept} outcomes, and positive scales.")
    for name in ("rates", *MODELS, "stack"):
        check_part(stack.densities[name], f"density of {name}", (n_outcomes,), finite=False)
    _check_nodes(stack.forest, n_features)


def _check_nodes(forest: Forest, n_features: int) -> None:
    """Every node is a leaf with votes, or has two later nodes below it; a kernel follows them without checks."""
    n_nodes = len(forest.left)
    for name in ("feature", "left", "right", "value"):
        check_part(getattr(forest, name), f"forest.{name}", (n_nodes,), "i")
    inner = (forest.left >= 0) | (forest.right >= 0)
    below = np.stack([forest.left, forest.right])[:, inner]
    ranges = {
        "roots": (check_part(forest.roots, "forest.roots", (None,), "i"), n_nodes),
        "value": (forest.value[~inner], len(forest.votes)),
        "feature": (forest.feature[inner], n_features),
    }
    for name, (numbers, end) in ranges.items():
        if ((numbers < 0) | (numbers >= end)).any():
            raise InputError(f"forest.{name} must be from 0 to {end - 1}.")
    if not forest.roots.size or (below <= np.flatnonzero(inner)).any() or (below >= n_nodes).any():
        raise InputError("nodes of the forest must come before those below them.")


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


def write_model(
    path: str | os.PathLike[str], fit: RegressionFit, stack: Stack | None, settings: dict[str, Any]
) -> None:
    """Write a model atomically; `settings` are JSON values of the estimator."""
    arrays, texts = pack_fit(fit)
    arrays = {f"linear/{name}": values for name, values in arrays.items()}
    header: dict[str, Any] = {"linear": texts, "settings": settings}
    if stack is not None:
        more, header["stack"] = pack_stack(stack)
        arrays |= {f"stack/{name}": values for name, values in more.items()}
    storage.write(path, arrays, header, KIND)


def read_model(path: str | os.PathLike[str]) -> tuple[RegressionFit, Stack | None, dict[str, Any]]:
    """Read what `write_model` wrote; ValueError if the file is truncated, altered or not a model."""
    contents = storage.read(path, KIND)
    with storage.decoding(path, "regression"):
        fit = unpack_fit(_under("linear/", contents), contents["linear"])
        stack = None if "stack" not in contents else unpack_stack(_under("stack/", contents), contents["stack"])
        if stack is not None:
            _check_stack(stack, *fit.coef_draws.shape[2:])
        return fit, stack, contents["settings"]
