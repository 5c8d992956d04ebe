"""Bayesian hierarchical clustering with Kingman's coalescent.

>>> import coaltree as ct
>>> tree = ct.sample_tree(6, random_state=0)
>>> X = ct.sample_data(tree, 3, random_state=0)
>>> post = ct.sample_posterior(X, n_particles=50)
>>> post.mcc_tree().cut(n_clusters=2).shape
(6,)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coaltree import metrics, model
from coaltree._version import __version__
from coaltree.errors import CoaltreeError
from coaltree.estimators.learn import learn_posterior
from coaltree.inference.greedy.build import greedy_tree
from coaltree.inference.moves.refine import refine
from coaltree.inference.smc.sampling import sample_posterior
from coaltree.model.coalescent import log_prior, sample_tree
from coaltree.model.diffusion import log_joint, sample_data
from coaltree.posterior.ensemble import TreePosterior
from coaltree.tree import Tree

if TYPE_CHECKING:
    from coaltree import results
    from coaltree.estimators.cluster import cluster
    from coaltree.estimators.clustering import CoalescentClustering
    from coaltree.estimators.probit import CoalescentProbit
    from coaltree.estimators.regression import CoalescentRegression

__all__ = [
    "CoalescentClustering",
    "CoalescentProbit",
    "CoalescentRegression",
    "CoaltreeError",
    "Tree",
    "TreePosterior",
    "__version__",
    "cluster",
    "greedy_tree",
    "learn_posterior",
    "log_joint",
    "log_prior",
    "metrics",
    "model",
    "refine",
    "results",
    "sample_data",
    "sample_posterior",
    "sample_tree",
]

# Imported when first asked for: scikit-learn's base classes are slow to load.
_LATER = {
    "CoalescentClustering": "coaltree.estimators.clustering",
    "CoalescentProbit": "coaltree.estimators.probit",
    "CoalescentRegression": "coaltree.estimators.regression",
    "cluster": "coaltree.estimators.cluster",
    "results": "coaltree.results",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'coaltree' has no attribute {name!r}")
    module = import_module(_LATER[name])
    return module if name == "results" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
