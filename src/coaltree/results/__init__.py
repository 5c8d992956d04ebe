"""What the commands do, as functions: each writes a folder of results with a page that can be opened.

>>> import coaltree as ct
>>> found = ct.results.cluster("table.csv", "results")  # doctest: +SKIP
>>> found.model.labels_  # doctest: +SKIP
"""

from coaltree.errors import FolderError
from coaltree.results.clustering import Clustering, cluster
from coaltree.results.iris import demo
from coaltree.results.records import apply, private_folder, study
from coaltree.results.regression import Regression, predict, regress

__all__ = [
    "Clustering",
    "FolderError",
    "Regression",
    "apply",
    "cluster",
    "demo",
    "predict",
    "private_folder",
    "regress",
    "study",
]
