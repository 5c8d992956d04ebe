"""A fitted estimator in one file: arrays by name and settings as JSON, in the archive of `posterior.storage`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from coaltree._version import __version__
from coaltree.posterior import storage
from coaltree.posterior.ensemble import TreePosterior
from coaltree.tree import Tree

KIND = "coaltree.CoalescentClustering"
_POSTERIOR = ("children", "times", "weights", "log_joint", "ess_per_step")
_FITTED = ("completed_", "covariance_", "leaf_noise_", "labels_")


def write_clustering(path: str | os.PathLike[str], model: Any) -> None:
    """Write a fitted `CoalescentClustering`."""
    arrays = {name: getattr(model, name) for name in _FITTED}
    arrays |= {f"posterior/{name}": getattr(model.posterior_, name) for name in _POSTERIOR}
    arrays |= {f"trace/{name}": values for name, values in model.trace_.items()}
    arrays |= {"tree/children": model.tree_.children, "tree/times": model.tree_.times}
    plain = {}
    for name, value in model.get_params(deep=False).items():
        if value is None or isinstance(value, (bool, int, float, str)):
            plain[name] = value
        elif isinstance(value, os.PathLike):
            plain[name] = os.fspath(value)
        elif name == "covariance" and not isinstance(value, (np.ndarray, list, tuple)):
            arrays["param/covariance"] = model.covariance_
        elif name != "random_state":  # a generator has moved on and would not give the same numbers again
            arrays[f"param/{name}"] = np.asarray(value)
    texts = {
        "version": __version__,
        "params": plain,
        "names": model.posterior_.names,
        "info": model.posterior_.info,
        "log_evidence": model.posterior_.log_evidence,
        "features": list(map(str, getattr(model, "feature_names_in_", []))),
        "n_features_in": model.n_features_in_,
        "cluster_scores": [[k, score] for k, score in getattr(model, "cluster_scores_", {}).items()],
    }
    storage.write(path, arrays, texts, KIND)


def read_clustering(path: str | os.PathLike[str], model: Any) -> None:
    """Give a new `CoalescentClustering` the parameters and the fitted attributes of a file."""
    contents = storage.read(path, KIND)

    def part(prefix: str) -> dict[str, Any]:
        return {key.removeprefix(prefix): value for key, value in contents.items() if key.startswith(prefix)}

    model.set_params(**contents["params"], **part("param/"))
    for name in _FITTED:
        setattr(model, name, contents[name])
    names = None if contents["names"] is None else tuple(contents["names"])
    model.posterior_ = TreePosterior(
        **part("posterior/"), log_evidence=contents["log_evidence"], names=names, info=contents["info"]
    )
    model.tree_ = Tree(contents["tree/children"], contents["tree/times"], names)
    model.trace_ = part("trace/")
    model.n_features_in_ = contents["n_features_in"]
    if contents["features"]:
        model.feature_names_in_ = np.array(contents["features"], dtype=object)
    if contents["cluster_scores"]:
        model.cluster_scores_ = {int(k): score for k, score in contents["cluster_scores"]}
    model.n_clusters_ = model._n_features_out = int(model.labels_.max()) + 1
