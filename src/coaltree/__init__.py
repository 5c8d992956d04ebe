"""Bayesian hierarchical clustering with Kingman's coalescent.

>>> import coaltree as ct
>>> tree = ct.sample_tree(6, random_state=0)
>>> X = ct.sample_data(tree, 3, random_state=0)
>>> post = ct.sample_posterior(X, n_particles=50)
>>> post.mcc_tree().cut(n_clusters=2).shape
(6,)
"""

from typing import TYPE_CHECKING, Any

from coaltree import metrics, model
from coaltree._version import __version__
from coaltree.inference.greedy import greedy_tree
from coaltree.inference.refine import refine
from coaltree.model.coalescent import log_prior, sample_tree
from coaltree.model.diffusion import log_joint, sample_data
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.learning import learn_posterior
from coaltree.posterior.sampling import sample_posterior
from coaltree.tree import Tree

if TYPE_CHECKING:
    from coaltree.estimators.cluster import cluster
    from coaltree.estimators.clustering import CoalescentClustering
    from coaltree.estimators.probit import CoalescentProbit

__all__ = [
    "CoalescentClustering",
    "CoalescentProbit",
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
    "sample_data",
    "sample_posterior",
    "sample_tree",
]


def __getattr__(name: str) -> Any:
    """Import the estimators when they are first asked for: scikit-learn's base classes are slow to load."""
    if name == "CoalescentClustering":
        from coaltree.estimators.clustering import CoalescentClustering

        return CoalescentClustering
    if name == "CoalescentProbit":
        from coaltree.estimators.probit import CoalescentProbit

        return CoalescentProbit
    if name == "cluster":
        from coaltree.estimators.cluster import cluster

        return cluster
    raise AttributeError(f"module 'coaltree' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
