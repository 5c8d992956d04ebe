"""AnnData as a table: cells by components."""

from __future__ import annotations

from typing import Any

import numpy as np

from coaltree.cells import NUMBER
from coaltree.errors import InputError
from coaltree.frame import Column, Frame

COMPONENTS = "X_pca"
# More columns than these are no measurements to cluster by, but genes to take components of first.
MOST_GENES = 200


def is_annotated(data: Any) -> bool:
    """Whether `data` is an AnnData, without importing it."""
    return all(hasattr(data, name) for name in ("obs", "var", "obsm", "uns", "obs_names", "X"))


def table_of(data: Any, representation: str | None = None) -> tuple[Frame, str]:
    """Return the table to cluster and a remark: `obsm[representation]`, by default X_pca, else X if it is narrow."""
    if representation is None and COMPONENTS in data.obsm:
        representation = COMPONENTS
    if representation is not None:
        if representation not in data.obsm:
            raise InputError(f"representation must be one of obsm: {', '.join(data.obsm) or 'it is empty'}.")
        values, prefix = np.asarray(data.obsm[representation], dtype=np.float64), representation.removeprefix("X_")
        names = [f"{prefix}{j + 1}" for j in range(values.shape[1])]
        told = f"Clustered by obsm[{representation!r}], {values.shape[1]} components."
    else:
        if data.shape[1] > MOST_GENES:
            raise InputError(
                f"The AnnData has {data.shape[1]:,} variables and no obsm['X_pca']. Reduce it first, as with "
                "scanpy.pp.pca, or name a representation."
            )
        matrix = data.X.toarray() if hasattr(data.X, "toarray") else data.X
        values, names = np.asarray(matrix, dtype=np.float64), list(map(str, data.var_names))
        told = f"Clustered by X, {len(names)} variables."
    columns = tuple(Column(name, NUMBER, values[:, j].copy()) for j, name in enumerate(names))
    return Frame(columns, len(values), tuple(map(str, data.obs_names)), representation is not None), told
