"""Features: how often each code occurs in a subject's lookback, and factors of those counts.

Counting is done by the engine; what comes back are triplets (subject, code, number) for a sparse matrix. Factors are
fitted on training subjects alone and applied to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from coaltree.records.codes import BIRTH, DEATH, OBSERVATION_END, OBSERVATION_START
from coaltree.records.cohort import Cohort
from coaltree.records.engine import Events, fetch_large, memory_table, timestamps
from coaltree.records.errors import RecordsError
from coaltree.validation import check_choice, check_count

Floats = npt.NDArray[np.float64]

NO_FEATURES = (BIRTH, DEATH, OBSERVATION_START, OBSERVATION_END)


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of codes: `matrix` is CSR (subjects of the cohort, codes), codes in alphabetical order."""

    matrix: Any
    codes: tuple[str, ...]


def counting_query(events: Events, cohort: Cohort, codes: dict[str, int]) -> Any:
    """Return the query for (row, column, n): events of the lookback by subject and code; `codes` maps spellings."""
    window = cohort.window(*cohort.rule.lookback)
    columns = memory_table({"code": list(codes), "column": np.array(list(codes.values()), dtype=np.int32)})
    # A bound by constants lets the engine skip parts of files; the bound of each subject follows.
    first = timestamps(cohort.threshold.min() + cohort.rule.lookback[0]).item()
    last = timestamps(cohort.threshold.max() + cohort.rule.lookback[1] + 1).item()
    table = events.table[["subject_id", "time", "code"]]
    table = table.filter(table.time >= first, table.time < last)
    table = table.inner_join(window, "subject_id")
    table = table.filter(table.time >= table.begins, table.time < table.ends)
    table = table.inner_join(columns, "code")
    return table.group_by("row", "column").agg(n=table.count())


def count_codes(events: Events, cohort: Cohort, exclude: Sequence[str] = ()) -> Counts:
    """Count the codes of every subject's lookback.

    Birth, death and the limits of observation are no features, and neither are codes that begin with a text in
    `exclude`, such as "HCPCS//".
    """
    prefixes = tuple(exclude)
    normal = sorted(
        code for code in set(events.codes.values()) if code not in NO_FEATURES and not code.startswith(prefixes)
    )
    if not normal:
        raise RecordsError("no codes are left for features; shorten features.exclude.")
    position = {code: i for i, code in enumerate(normal)}
    spellings = {spelling: position[code] for spelling, code in events.codes.items() if code in position}
    found = fetch_large(events.connection, counting_query(events, cohort, spellings))
    matrix = sparse.csr_matrix(
        (
            found["n"].astype(np.int32),
            (found["row"].astype(np.int32), found["column"].astype(np.int32)),
        ),
        shape=(len(cohort), len(normal)),
    )
    matrix.sort_indices()
    if matrix.nnz == 0:
        raise RecordsError(
            "no subject of the cohort has a code in the lookback; check lookback_days and the threshold."
        )
    return Counts(matrix, tuple(normal))


# The transformers that go by a name, and how a report calls them.
TRANSFORMERS = {
    "nmf": "non-negative matrix factorisation",
    "svd": "truncated singular value decomposition",
    "lda": "latent Dirichlet allocation",
}


class CodeFactors:
    """Counts → the square root of frequent codes' counts → a transformer, by default NMF → standardised columns.

    Parameters
    ----------
    n_factors : int
        K, for a transformer that is named.
    min_subjects : int
        A code is used if so many training subjects have it.
    transformer : {"nmf", "svd", "lda"} or scikit-learn transformer
        A transformer object is copied and fitted on the sparse matrix of square roots.
    random_state : int
        Seed of a transformer that is named.
    """

    def __init__(
        self, n_factors: int = 25, min_subjects: int = 20, transformer: Any = "nmf", random_state: int = 0
    ) -> None:
        self.n_factors = check_count(n_factors, "n_factors", at_least=1)
        self.min_subjects = check_count(min_subjects, "min_subjects", at_least=1)
        if _named(transformer):
            check_choice(transformer, "transformer", TRANSFORMERS)
        self.transformer = transformer
        self.random_state = random_state

    def fit_transform(self, counts: Counts) -> Floats:
        """Fit to training subjects and return their factors, (n, K), each with mean 0 and variance 1."""
        from sklearn.base import clone

        n_subjects = np.asarray((counts.matrix > 0).sum(axis=0)).ravel()
        self.columns_ = np.flatnonzero(n_subjects >= self.min_subjects)
        self.codes_ = tuple(counts.codes[i] for i in self.columns_)
        if len(self.columns_) < (self.n_factors if _named(self.transformer) else 1):
            raise RecordsError(
                f"{len(self.columns_)} code(s) occur in at least {self.min_subjects} training subjects, fewer than "
                f"{self.n_factors} factors. Lower features.min_subjects or features.n_factors."
            )
        self.transformer_ = model = self._make() if _named(self.transformer) else clone(self.transformer)
        raw = _quietly(model.fit_transform, self._roots(counts))
        self.mean_, spread = raw.mean(axis=0), raw.std(axis=0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        return self._standardise(raw)

    def _make(self) -> Any:
        from sklearn.decomposition import NMF, LatentDirichletAllocation, TruncatedSVD

        if self.transformer == "nmf":
            return NMF(self.n_factors, init="nndsvda", tol=1e-3, max_iter=200, random_state=self.random_state)
        kind = TruncatedSVD if self.transformer == "svd" else LatentDirichletAllocation
        return kind(self.n_factors, random_state=self.random_state)

    def transform(self, counts: Counts) -> Floats:
        """Factors of other subjects, (n, K)."""
        return self._standardise(_quietly(self.transformer_.transform, self._roots(counts)))

    def top_codes(self, n: int = 10) -> list[list[tuple[str, float]]]:
        """For every factor its heaviest codes with their share of the factor's weight."""
        weights = getattr(self.transformer_, "components_", None)
        if weights is None:
            return []
        weights = np.abs(np.asarray(weights, dtype=np.float64))
        shares = weights / np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        return [[(self.codes_[i], float(row[i])) for i in np.argsort(-row, kind="stable")[:n]] for row in shares]

    def _roots(self, counts: Counts) -> Any:
        position = {code: i for i, code in enumerate(counts.codes)}
        found = [(new, position[code]) for new, code in enumerate(self.codes_) if code in position]
        if len(found) == len(self.codes_):
            return counts.matrix[:, [old for _, old in found]].astype(np.float64).sqrt()
        # Codes that these subjects' data do not know are zero.
        new, old = np.array(found, dtype=np.int64).reshape(-1, 2).T
        picker = sparse.csr_matrix((np.ones(len(new)), (old, new)), shape=(len(counts.codes), len(self.codes_)))
        return (counts.matrix.astype(np.float64) @ picker).sqrt().tocsr()

    def _standardise(self, raw: Any) -> Floats:
        return np.ascontiguousarray((np.asarray(raw, dtype=np.float64) - self.mean_) / self.scale_)


def _named(transformer: Any) -> bool:
    return isinstance(transformer, str)


def _quietly(function: Any, argument: Any) -> Any:
    """Call without NMF's warning that it stopped at its number of iterations: a factor need not be exact."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return function(argument)
