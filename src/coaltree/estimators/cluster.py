"""`cluster`: any table in, a fitted `CoalescentClustering` out, as on the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from coaltree.annotated import is_annotated, table_of
from coaltree.errors import InputError
from coaltree.estimators.clustering import CoalescentClustering
from coaltree.estimators.distances import EUCLIDEAN, compared_by, is_precomputed, square_matrix
from coaltree.frame import Frame, as_frame
from coaltree.model.guess import guess_columns
from coaltree.reading import read_table

KEY = "coaltree"


def cluster(
    data: Any,
    columns: Any = "auto",
    *,
    covariance: Any = None,
    random_state: Any = 0,
    representation: str | None = None,
    dates: str = "days",
    scale: str = "auto",
    id_column: str | None = None,
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    drop_missing: bool = False,
    metric: str = EUCLIDEAN,
    **settings: Any,
) -> CoalescentClustering:
    """Cluster a table with columns of any type; the same table gives the same tree as ``coaltree cluster``.

    Parameters
    ----------
    data : path, DataFrame, array or AnnData
        A file is read as by the command, including a column that names the rows. For an AnnData, `obsm["X_pca"]` is
        clustered, or X if it is narrow; labels are written into `obs["coaltree"]`, their probabilities into
        `obs["coaltree_sure"]`, and tree, expected overlaps and parameters into `uns["coaltree"]`.
    columns : "auto", dict or path of a TOML file
        Types of the columns, as in `CoalescentClustering`.
    covariance, random_state
        As in `CoalescentClustering`; the seed is 0, as on the command line.
    representation : str, optional
        For an AnnData, the entry of `obsm` to cluster.
    dates : {"days", "ignore"}
        Whether dates are used as numbers of days or ignored.
    scale : {"auto", "standard", "none"}
        Bring numbers to standard deviation 1 or keep their units; see `coaltree.model.guess`.
    id_column, features, drop, drop_missing
        The column that names the rows, columns to keep or to leave out, and whether to leave out rows with missing
        values, as in `coaltree.reading.read_table` and on the command line; not for an AnnData.
    metric : str
        As in `CoalescentClustering`: distances too may come from a file, whose first column then names the rows.
    **settings
        Other parameters of `CoalescentClustering`.

    Returns
    -------
    CoalescentClustering
        Fitted; `column_notes_` says how the columns were interpreted.

    Examples
    --------
    >>> import coaltree as ct
    >>> from sklearn.datasets import load_iris
    >>> model = ct.cluster(load_iris().data[::5], n_draws=20, warmup=30)
    >>> model.column_notes_[0]
    "Taken as rounded to 0.1: 'column 1', 'column 2', 'column 3', 'column 4'."
    """
    chosen = bool(id_column is not None or len(features) or len(drop) or drop_missing)
    if is_annotated(data):
        if chosen:
            raise InputError(
                "id_column, features, drop and drop_missing are for tables. Choose rows and columns of the AnnData, "
                "such as data[:, names]."
            )
        frame, told = table_of(data, representation)
        model = _fit(frame, (told,), columns, covariance, random_state, dates, scale, metric, settings)
        write_back(data, model)
        return model
    if chosen or isinstance(data, str | os.PathLike):
        frame, told_first = read_table(data, id_column, features, drop, drop_missing=drop_missing)
    else:
        frame, told_first = as_frame(square_matrix(data) if is_precomputed(metric) else data), ()
    return _fit(frame, told_first, columns, covariance, random_state, dates, scale, metric, settings)


def _fit(
    frame: Frame,
    told: tuple[str, ...],
    columns: Any,
    covariance: Any,
    random_state: Any,
    dates: str,
    scale: str,
    metric: str,
    settings: dict[str, Any],
) -> CoalescentClustering:
    frame, compared = compared_by(frame, metric)
    guessed = guess_columns(frame, columns, dates, scale)
    guessed = guessed._replace(notes=(*told, *compared, *guessed.notes))
    model = CoalescentClustering(covariance=covariance, random_state=random_state, columns=guessed, **settings)
    return model.fit(frame)


def write_back(data: Any, model: CoalescentClustering, key: str = KEY) -> None:
    """Write labels and their probabilities into an AnnData's obs; tree, overlaps and parameters into its uns."""
    import pandas as pd

    levels = [*map(str, range(model.n_clusters_)), *["-1"] * bool((model.labels_ < 0).any())]
    data.obs[key] = pd.Categorical(model.labels_.astype(str), categories=levels)
    data.obs[f"{key}_sure"] = model.probabilities_
    posterior, tree = model.posterior_, model.tree_
    none = np.full(tree.n_leaves - 1, np.nan)
    data.uns[key] = {
        "linkage": tree.to_linkage(),
        "expected_overlap": posterior.expected_overlap(tree) if len(posterior) > 1 else none,
        "expected_overlap_error": posterior.overlap_error(tree) if len(posterior) > 1 else none,
        "exact_support": posterior.clade_support(tree) if len(posterior) > 1 else none,
        "cluster_expected_overlap": model.expected_overlap_,
        "newick": tree.to_newick(),
        "leaf_order": np.asarray(tree.leaf_order()),
        "params": {name: str(value) for name, value in posterior.info.items()},
    }
