"""Mixed tables in the estimator: how columns are interpreted, and results in the form of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputError
from coaltree.estimators import inputs
from coaltree.estimators.distances import EUCLIDEAN
from coaltree.frame import Frame, as_frame, is_mixed
from coaltree.model.columns import Columns
from coaltree.model.guess import AUTO, SCALES, STANDARD, Guessed, guess_columns
from coaltree.model.kinds import Continuous
from coaltree.places import predict
from coaltree.places.gaps import Mixed
from coaltree.places.locate import Given
from coaltree.places.mixed import NewRows
from coaltree.places.predict import Attachment
from coaltree.posterior.splits import MOST_DRAWS, Apart, set_apart
from coaltree.tree import Tree
from coaltree.validation import check_choice


def understand(model: Any, X: Any) -> Guessed | None:
    """Return how columns are interpreted; None if X is to be used as plain numbers, in the units they have.

    So are arrays, distances and directions, and a table whose covariance is given as a matrix or kernel, unless
    `scale` or `columns` says otherwise.
    """
    check_choice(model.scale, "scale", SCALES)
    if isinstance(model.columns, Guessed):
        return model.columns
    if model.columns is not None or is_mixed(X):
        return guess_columns(as_frame(X), AUTO if model.columns is None else model.columns, scale=model.scale)
    if model.scale == STANDARD:
        frame = as_frame(X)
        kinds = AUTO if hasattr(X, "columns") else dict.fromkeys(frame.names, Continuous.kind)
        return guess_columns(frame, kinds, scale=STANDARD)
    named = model.covariance is None or isinstance(model.covariance, str)
    if hasattr(X, "columns") and model.metric == EUCLIDEAN and named:
        return guess_columns(as_frame(X), scale=model.scale)
    return None


def check(model: Any, X: Any, guessed: Guessed) -> Floats:
    """Set the estimator's attributes about its columns, and return the cells (n, J)."""
    if model.metric != EUCLIDEAN:
        raise InputError(f"metric={model.metric!r} is for numbers of one unit: leave out metric, or columns and scale.")
    frame = as_frame(X)
    model.n_features_in_ = len(frame.columns)
    if hasattr(X, "columns"):
        model.feature_names_in_ = np.array(frame.names, dtype=object)
    return guessed.values


def new_cells(X: Any, columns: Columns) -> Floats:
    """Return the cells of new rows, coded as in the fit, (B, J)."""
    frame = as_frame(X)
    if not hasattr(X, "columns") and len(frame.columns) == len(columns.models):
        named = zip(frame.columns, columns.names, strict=True)
        frame = frame.keep(column._replace(name=name) for column, name in named)
    return columns.matrix_of(frame)


class NumberRows:
    """New rows of numbers (B, d) under the draws of a fit, as `NewRows` are of mixed tables."""

    def __init__(self, model: Any, rows: Floats) -> None:
        draws = (model.draws_.covariances, model.draws_.leaf_noises, model.draws_.new_noises)
        self.fit = predict.make_fit(model.posterior_, model.completed_, *draws)
        self.rows, self.n_jobs = rows, model.n_jobs

    def log_density(self) -> Floats:
        """log p(row | table), (B,)."""
        return predict.log_predictive(self.fit, self.rows, self.n_jobs)

    def label_probabilities(self, labels: Ints) -> Floats:
        """Probability of every label for each row, (B, K)."""
        return predict.label_probabilities(self.fit, self.rows, labels, self.n_jobs)

    def attach(self, tree: Tree, given: Given, n_places: int) -> Attachment:
        """Find the likeliest edges of one tree over the table for each row."""
        return predict.attachments(tree, given, self.fit.X, self.rows, n_places)

    def filled(self) -> Floats:
        """Rows with every gap filled in by its mean."""
        return predict.impute(self.fit, self.rows, self.n_jobs)


def number_rows(model: Any, X: Any) -> NumberRows:
    """Return new rows as a fitted estimator of a table of numbers sees them."""
    check_is_fitted(model)
    return NumberRows(model, inputs.check_new(model, X))


def new_rows(model: Any, X: Any) -> NewRows | NumberRows:
    """Return new rows as a fitted estimator sees them."""
    check_is_fitted(model)
    return mixed_rows(model, X) if model.mixed_ else number_rows(model, X)


def mixed_rows(model: Any, X: Any) -> NewRows:
    """Return new rows as a fitted estimator of a mixed table sees them."""
    return NewRows(model.mixed_, model.posterior_, model.completed_, new_cells(X, model.columns_), model.n_jobs)


def as_table(columns: Columns, cells: Floats, like: Any = None) -> Any:
    """Return cells (n, J) as a DataFrame: levels as categories, ordered where the column is ordinal."""
    import pandas as pd

    index = like.index if hasattr(like, "iloc") else None
    if isinstance(like, Frame) and like.ids is not None:
        index = list(like.ids)
    content = {model.name: model.in_table(cells[:, j]) for j, model in enumerate(columns.models)}
    table = pd.DataFrame(content)
    return table if index is None else table.set_axis(index, axis=0)


def splits(model: Any, top: int) -> Apart:
    """Rank columns for every merge of a fitted estimator's tree."""
    mixed: Mixed | None = model.mixed_
    if mixed is None:
        names = getattr(model, "feature_names_in_", np.arange(model.completed_.shape[1]))
        scale = np.maximum(model.completed_.std(axis=0), 1e-300)
        columns = Columns(tuple(Continuous(str(name)) for name in names))
        phi = model.compact_covariance_ if model.compact_covariance_.ndim == 1 else np.diag(model.compact_covariance_)
        return set_apart(model.tree_, columns, [model.completed_ / scale], phi / scale**2, model.leaf_noise_, top)
    n_kept = len(mixed.draws.index)
    used = {round(k) for k in np.linspace(0, n_kept - 1, MOST_DRAWS)} if n_kept else set[int]()
    tables = [mixed.table(k) for k in sorted(used)] or [model.completed_]
    return set_apart(model.tree_, mixed.columns, tables, model.compact_covariance_, model.leaf_noise_, top)


def imputed(model: Any, X: Any = None) -> tuple[Any, dict[str, Any]]:
    """Return the fitted table, or new rows X, with gaps filled, and {column: probabilities of levels} for the gaps."""
    mixed, rows = model.mixed_, None if X is None else mixed_rows(model, X)
    cells, probability = mixed.impute() if rows is None else rows.impute()
    before, like = (mixed.values, Frame((), len(cells), model.tree_.names)) if rows is None else (rows.cells, X)
    return _with_shares(mixed.columns, before, cells, probability, like)


def _with_shares(
    columns: Columns, before: Floats, cells: Floats, probability: dict[int, Floats], like: Any
) -> tuple[Any, dict[str, Any]]:
    import pandas as pd

    table = as_table(columns, cells, like)
    shares = {}
    for j, values in probability.items():
        model, gaps = columns.models[j], np.isnan(before[:, j])
        shares[model.name] = pd.DataFrame(values, columns=list(model.levels), index=table.index[gaps])
    return table, shares
