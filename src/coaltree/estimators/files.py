"""A fitted estimator in one file: arrays by name and settings as JSON, in the archive of `posterior.storage`."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from coaltree import storage
from coaltree._version import __version__
from coaltree.errors import InputError
from coaltree.estimators.distances import PLAIN, SQUARED, is_precomputed
from coaltree.places.gaps import restore_mixed
from coaltree.posterior.convergence import Convergence
from coaltree.posterior.draws import Draws
from coaltree.posterior.hierarchy import OUTLIER, find_outliers
from coaltree.posterior.left_out import Compared
from coaltree.tree import Tree
from coaltree.validation import check_count, check_covariance, check_part

KIND = "coaltree.CoalescentClustering"
_FITTED = ("completed_", "leaf_noise_", "labels_")
# For flat clusters; older files have none.
_CLUSTERS = ("probabilities_", "outlier_probability_", "cut_order_")
_KINDS = {"labels_": "iu", "cut_order_": "iu", "incomplete_": "b"}


def write_clustering(path: str | os.PathLike[str], model: Any) -> None:
    """Write a fitted `CoalescentClustering`."""
    arrays = {name: getattr(model, name) for name in (*_FITTED, *_CLUSTERS)}
    arrays["covariance_"], arrays["incomplete_"] = model.compact_covariance_, model.incomplete_
    arrays |= {f"draws/{name}": part for name, part in model.draws_.to_arrays().items()}
    arrays |= {f"trace/{name}": values for name, values in model.trace_.items()}
    arrays |= {"tree/children": model.tree_.children, "tree/times": model.tree_.times}
    if model.mixed_:
        arrays["mixed/values"] = model.mixed_.values
    plain: dict[str, Any] = {}
    for name, value in model.get_params(deep=False).items():
        if name == "columns" and isinstance(value, tuple):  # the guesses are stored with the columns themselves
            plain[name] = "auto"
        elif value is None or isinstance(value, (bool, int, float, str, dict)):
            plain[name] = value
        elif isinstance(value, os.PathLike):
            plain[name] = os.fspath(value)
        elif name == "covariance" and not isinstance(value, (np.ndarray, list, tuple)):
            arrays["param/covariance"] = model.compact_covariance_
        elif name != "random_state":  # a generator has moved on and would not give the same numbers again
            arrays[f"param/{name}"] = np.asarray(value)
    texts = {
        "version": __version__,
        "params": plain,
        "names": model.posterior_.names,
        "info": model.posterior_.info,
        "noise": model.draws_.noise.name,
        "log_evidence": model.__dict__.get("_log_evidence", model.posterior_.log_evidence),
        "missing": model.has_missing_,
        "warmup": model.warmup_,
        "finished": model.finished_,
        "convergence": None if model.convergence_ is None else model.convergence_.as_dict(),
        "compare": None if model.compare_ is None else [[name, *row] for name, row in model.compare_.items()],
        "features": list(map(str, getattr(model, "feature_names_in_", []))),
        "n_features_in": model.n_features_in_,
        "columns": model.mixed_ and [each.written() for each in model.mixed_.columns.models],
        "column_notes": list(model.column_notes_),
        "cluster_scores": [[k, score] for k, score in getattr(model, "cluster_scores_", {}).items()],
        "n_clusters_alternatives": list(getattr(model, "n_clusters_alternatives_", ())),
        "n_clusters_probability": [[k, p] for k, p in getattr(model, "n_clusters_probability_", {}).items()],
    }
    storage.write(path, arrays, texts, KIND)


def read_clustering(path: str | os.PathLike[str], model: Any) -> None:
    """Set the parameters and fitted attributes of a new `CoalescentClustering` from a file."""
    contents = storage.read(path, KIND)
    with storage.decoding(path, "clustering"):
        _restore(contents, model)
        model.n_clusters_ = model._n_features_out = _check(model)


def _restore(contents: dict[str, Any], model: Any) -> None:
    def part(prefix: str) -> dict[str, Any]:
        return {key.removeprefix(prefix): value for key, value in contents.items() if key.startswith(prefix)}

    model.set_params(**_renamed(contents["params"]), **part("param/"))
    for name in _FITTED:
        setattr(model, name, contents[name])
    model.compact_covariance_ = contents["covariance_"]
    if "posterior/times" in contents:
        contents = _in_draws(contents)
    model.draws_ = Draws.from_arrays(part("draws/"), contents["noise"])
    model.surprise_ = model.draws_.surprise()
    model.incomplete_ = contents.get("incomplete_", np.zeros(len(model.leaf_noise_), dtype=bool))
    compared = contents.get("compare")
    model.compare_ = None if compared is None else {str(name): Compared(*map(float, row)) for name, *row in compared}
    model.has_missing_, model.finished_ = bool(contents.get("missing", False)), bool(contents.get("finished", True))
    model.warmup_ = int(contents.get("warmup", contents["params"].get("burn_in") or 0))
    model.convergence_ = Convergence.from_dict(contents.get("convergence"))
    names = None if contents["names"] is None else tuple(contents["names"])
    model.posterior_ = model.draws_.posterior(names, contents["info"], contents["log_evidence"])
    counted = model.posterior_.info.get("effective_columns", model.completed_.shape[-1])  # all, in older files
    model.effective_columns_ = float(counted)
    model.tree_ = Tree(contents["tree/children"], contents["tree/times"], names)
    model.trace_ = part("trace/")
    model.n_features_in_ = contents["n_features_in"]
    values, notes = contents.get("mixed/values"), contents.get("column_notes", ())
    model.mixed_ = restore_mixed(contents.get("columns"), notes, values, model.draws_)
    model.columns_ = model.mixed_ and model.mixed_.columns
    model.column_notes_ = tuple(map(str, contents.get("column_notes", ())))
    if contents["features"]:
        model.feature_names_in_ = np.array(contents["features"], dtype=object)
    if contents["cluster_scores"]:
        model.cluster_scores_ = {int(k): float(score) for k, score in contents["cluster_scores"]}
        model.n_clusters_alternatives_ = tuple(int(k) for k in contents.get("n_clusters_alternatives", ()))
        shares = contents.get("n_clusters_probability", [])
        model.n_clusters_probability_ = {int(k): float(share) for k, share in shares}
    n = model.tree_.n_leaves
    missing = {"probabilities_": np.ones(n), "outlier_probability_": np.zeros(n), "cut_order_": np.arange(n - 1)[::-1]}
    for name in _CLUSTERS:
        setattr(model, name, contents.get(name, missing[name]))


def _renamed(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a file by their present names; files of 0.1 and 0.2 have others for the run's length."""
    params = dict(params)
    if "n_particles" in params:
        draws, warmup = params.pop("n_particles"), params.pop("burn_in")
        params |= {"n_draws": params.get("n_draws") or draws, "warmup": params.get("warmup") or warmup}
        del params["n_iter"]
        if params["metric"] == PLAIN:
            params["metric"] = SQUARED
    return params


def _in_draws(contents: dict[str, Any]) -> dict[str, Any]:
    """Contents of a file of 0.1 or 0.2, in which draws were kept in parts; the oldest have one Φ for all trees."""
    size = len(contents["posterior/times"])
    noises = np.atleast_2d(contents.get("leaf_noises_", contents["leaf_noise_"]))
    tails = contents.get("tails_", np.column_stack([np.full(size, np.nan), np.full(size, np.inf)]))
    draws = {f"draws/{name}": contents[f"posterior/{name}"] for name in ("children", "times", "log_joint")}
    draws |= {"draws/noises": noises, "draws/tails": tails}
    draws["draws/phi.matrix"] = contents.get("covariances_", contents["covariance_"][None])
    former = {"index": "index", "entries": "latent", "cuts": "cuts"}
    draws |= {f"draws/{name}": contents[f"mixed/{was}"] for name, was in former.items() if f"mixed/{was}" in contents}
    kind = "robust" if "tails_" in contents else "shared" if noises.shape[1] == 1 else "given"
    return {**contents, **draws, "noise": kind}


def _check(model: Any) -> int:
    """Raise ValueError unless the parts belong together; return the number of clusters."""
    n = model.posterior_.n_leaves
    table = model.completed_.shape
    if len(table) != 2:
        raise InputError(f"completed_ must be a table, got shape {table}.")
    if np.shape(model.outlier_probability_) != (n,):
        raise InputError(f"outlier_probability_ must have {n} numbers, got {np.shape(model.outlier_probability_)}.")
    if not 0.0 < model.effective_columns_ <= table[1] * (1.0 + 1e-9):
        raise InputError(f"effective_columns must be above 0 and at most {table[1]}, got {model.effective_columns_}.")
    d = table[1]
    shapes = {
        "completed_": (n, d),
        "compact_covariance_": (d, d)[: model.compact_covariance_.ndim],
        "leaf_noise_": (n,),
        "labels_": (n,),
        "probabilities_": (n,),
        "outlier_probability_": (n,),
        "incomplete_": (n,),
        "cut_order_": (int((~find_outliers(model.outlier_probability_)).sum()) - 1,),
    }
    if model.draws_.covariances.shape[1:] not in {(d,), (d, d)}:
        raise InputError(f"covariances must be those of {d} columns, got shape {model.draws_.covariances.shape}.")
    for name, wanted in shapes.items():
        check_part(getattr(model, name), name, wanted, _KINDS.get(name, "f"))
    if model.leaf_noise_.min() < 0.0:
        raise InputError("leaf_noise_ must not be negative.")
    check_covariance(model.compact_covariance_)
    if model.n_jobs is not None:
        check_count(model.n_jobs, "n_jobs", at_least=-sys.maxsize)
    for name, values in model.trace_.items():
        check_part(values, f"trace of {name}", values.shape, finite=False)
    found = np.unique(model.labels_)
    found = found[found != OUTLIER]
    if model.tree_.n_leaves != n or not found.size or not np.array_equal(found, np.arange(found.size)):
        raise InputError("tree_ and labels_ must belong to the leaves of the posterior.")
    order = np.sort(model.cut_order_)
    if order.size and (order[0] < 0 or order[-1] > n - 2 or (np.diff(order) == 0).any()):
        raise InputError("cut_order_ must hold merges of tree_, each once.")
    if not model.mixed_ and model.n_features_in_ != (n if is_precomputed(model.metric) else table[1]):
        raise InputError(f"n_features_in_ must be the columns of X, got {model.n_features_in_!r}.")
    return int(found.size)
