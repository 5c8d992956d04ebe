"""Factors of counts, fitted to training subjects only and applied to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from coaltree._arrays import Floats
from coaltree.errors import InputError, InputTypeError
from coaltree.records.errors import RecordsError
from coaltree.records.features import FEMALE, SINCE, Counts
from coaltree.records.privacy import FEWEST, significant
from coaltree.validation import check_choice, check_count, check_part

LARGEST = 5.0  # standard deviations an additional regressor may lie from its mean; units get mixed up

# The named transformers, and what a report calls them.
TRANSFORMERS = {
    "nmf": "non-negative matrix factorisation",
    "svd": "truncated singular value decomposition",
    "lda": "latent Dirichlet allocation",
    "none": "no factorisation: each column is a regressor",
}


class CodeFactors:
    """Counts → the square root of frequent codes' counts → a transformer, by default NMF → standardised columns.

    Additional regressors (`Counts.extra`) follow the factors, standardised, with missing values set to the mean. With
    `singles` the square roots themselves follow, as they are, and the table of all is sparse.

    Parameters
    ----------
    n_factors : int
        K, for a named transformer.
    min_subjects : int
        A code, or an additional regressor, is used if at least this many training subjects have it.
    transformer : {"nmf", "svd", "lda", "none"} or scikit-learn transformer
        A transformer object is copied and fitted on the sparse matrix of square roots.
    random_state : int
        Seed of a named transformer.
    singles : bool
        Whether the single codes stand beside their factors; not those that 1 to 10 training subjects lack.
    """

    def __init__(
        self,
        n_factors: int = 25,
        min_subjects: int = 20,
        transformer: Any = "nmf",
        random_state: int = 0,
        singles: bool = False,
    ) -> None:
        self.n_factors = check_count(n_factors, "n_factors", at_least=1)
        self.min_subjects = check_count(min_subjects, "min_subjects", at_least=1)
        if _named(transformer):
            check_choice(transformer, "transformer", TRANSFORMERS)
        self.transformer = transformer
        self.random_state = random_state
        self.singles = singles

    def fit_transform(self, counts: Counts) -> Any:
        """Fit to training subjects and return their regressors, (n, K): factors with mean 0 and variance 1, the others.

        An array, or with `singles` a sparse matrix.
        """
        from sklearn.base import clone

        n_subjects = np.asarray((counts.matrix > 0).sum(axis=0)).ravel()
        frequent = n_subjects >= self.min_subjects
        lacking = counts.matrix.shape[0] - n_subjects
        enough = (lacking == 0) | (lacking >= FEWEST)
        if self.transformer == "lda" and self.min_subjects >= FEWEST:
            frequent &= enough  # its components add up to the columns, which would reveal how many lack a code
        columns = np.flatnonzero(frequent)
        self.codes_ = tuple(counts.codes[i] for i in columns)
        alone = self.singles and self.transformer != "none"
        self.single_codes_ = tuple(counts.codes[i] for i in columns if enough[i]) if alone else ()
        least = self.n_factors if _named(self.transformer) and self.transformer != "none" else 1
        if len(columns) < least:
            raise RecordsError(
                f"{len(columns)} code(s) occur in at least {self.min_subjects} training subjects, fewer than "
                f"{self.n_factors} factors. Lower features.min_subjects or features.n_factors."
            )
        self.transformer_ = model = self._make() if _named(self.transformer) else clone(self.transformer)
        raw = _quietly(model.fit_transform, roots_of(counts, self.codes_))
        if self.transformer == "lda":  # exact sums of square roots would reveal how many subjects have each count
            _restore(model, np.vectorize(significant)(model.components_), len(columns))
            raw = model.transform(roots_of(counts, self.codes_))
        self.mean_, spread = raw.mean(axis=0), raw.std(axis=0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        self._fit_extra(counts)
        return self._join(raw, counts)

    def _make(self) -> Any:
        from sklearn.decomposition import NMF, LatentDirichletAllocation, TruncatedSVD

        if self.transformer == "none":
            return _Identity()
        if self.transformer == "nmf":
            return NMF(self.n_factors, init="nndsvda", tol=1e-3, max_iter=200, random_state=self.random_state)
        kind = TruncatedSVD if self.transformer == "svd" else LatentDirichletAllocation
        return kind(self.n_factors, random_state=self.random_state)

    def _fit_extra(self, counts: Counts) -> None:
        """Choose the regressors that enough subjects have and that vary, and standardise them."""
        given = counts.extra if counts.extra is not None else np.empty((counts.matrix.shape[0], 0))
        known = ~np.isnan(given)
        n = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, given, 0.0).sum(axis=0) / n
        spread = np.sqrt((np.where(known, given - mean, 0.0) ** 2).sum(axis=0) / n)
        kept = np.flatnonzero((known.sum(axis=0) >= self.min_subjects) & (spread > 1e-12))
        self.extra_names_ = tuple(counts.extra_names[i] for i in kept)
        self.extra_mean_, self.extra_scale_ = mean[kept], spread[kept]
        # Two values become −1 and 1: their mean, which is stored in the model, would reveal the number of each.
        for i, column in enumerate(kept):
            values = np.unique(given[known[:, column], column])
            if len(values) == 2:
                self.extra_mean_[i], self.extra_scale_[i] = values.mean(), 0.5 * np.ptp(values)

    def transform(self, counts: Counts) -> Any:
        """Regressors of other subjects, (n, K)."""
        return self._join(_quietly(self.transformer_.transform, roots_of(counts, self.codes_)), counts)

    @property
    def units(self) -> list[str]:
        """What one more of each regressor is, in words."""
        factor = "power of two next to the standard deviation" if self.transformer == "none" else "standard deviation"
        extra = ["half the difference from man to woman" if n == FEMALE else factor for n in self.extra_names_]
        single = ["record on the last day" if code.endswith(SINCE) else "record" for code in self.single_codes_]
        return [factor] * len(self.mean_) + extra + single

    @property
    def n_regressors(self) -> int:
        """K: factors, additional regressors and single codes, in this order."""
        return len(self.mean_) + len(self.extra_names_) + len(self.single_codes_)

    def top_codes(self, n: int = 10) -> list[list[tuple[str, float]]]:
        """For every factor its heaviest codes with their share of the factor's weight."""
        if isinstance(self.transformer_, _Identity):
            return [[(code, 1.0)] for code in self.codes_]
        weights = getattr(self.transformer_, "components_", None)
        if weights is None:
            return []
        weights = np.abs(np.asarray(weights, dtype=np.float64))
        shares = weights / np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        return [[(self.codes_[i], float(row[i])) for i in np.argsort(-row, kind="stable")[:n]] for row in shares]

    # ---- the state, for a portable model

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return arrays from which `from_state` makes an equal object; for named transformers only."""
        if not _named(self.transformer):
            raise InputTypeError("only a transformer that is named can be stored.")
        return {
            "codes": np.array(self.codes_, dtype=str),
            "components": np.asarray(getattr(self.transformer_, "components_", np.empty((0, 0))), dtype=np.float64),
            "mean": self.mean_,
            "scale": self.scale_,
            "extra_names": np.array(self.extra_names_, dtype=str),
            "extra_mean": self.extra_mean_,
            "extra_scale": self.extra_scale_,
            "settings": np.array([self.n_factors, self.min_subjects, self.random_state]),
            "transformer": np.array(self.transformer),
            "singles": np.array(self.single_codes_, dtype=str),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> CodeFactors:
        """Make a fitted object from what `state` returned."""
        n_factors, min_subjects, seed = check_part(state["settings"], "settings", (3,), "i").tolist()
        if not 0 <= seed < 2**32:
            raise InputError(f"the seed must be from 0 to 2^32 - 1, got {seed}.")
        singles = tuple(map(str, check_part(state["singles"], "singles", (None,), "U")))
        model = cls(n_factors, min_subjects, str(state["transformer"]), seed, bool(singles))
        model.codes_ = tuple(map(str, check_part(state["codes"], "codes", (None,), "U")))
        model.single_codes_ = singles
        n_columns = len(model.codes_) if model.transformer == "none" else n_factors
        n_extra = len(check_part(state["extra_names"], "extra_names", (None,), "U"))
        for name, length in {
            "mean": n_columns,
            "scale": n_columns,
            "extra_mean": n_extra,
            "extra_scale": n_extra,
        }.items():
            check_part(state[name], name, (length,))
        if not (state["scale"] > 0.0).all() or not (state["extra_scale"] > 0.0).all():
            raise InputError("scale and extra_scale must be positive.")
        model.mean_, model.scale_ = state["mean"], state["scale"]
        model.extra_names_ = tuple(map(str, state["extra_names"]))
        model.extra_mean_, model.extra_scale_ = state["extra_mean"], state["extra_scale"]
        model.transformer_ = model._make()
        if model.transformer != "none":
            check_part(state["components"], "components", (n_factors, len(model.codes_)))
            if model.transformer != "svd" and state["components"].min() < 0.0:
                raise InputError("components must not be negative.")
            _restore(model.transformer_, state["components"], len(model.codes_))
        return model

    def hide_means(self) -> tuple[Floats, Floats]:
        """Centre factors and scale single codes by round numbers; return how coefficients are divided and shifted.

        The mean of a column of counts, times the number of subjects, can reveal how many have the code, and the means
        of as many factors as codes reveal those of the codes. With new = old × a + b the scores are unchanged if
        coefficients are divided by a and intercepts lowered by the sum of b × coefficient / a.
        """
        k = len(self.mean_)
        factor, shift = np.ones(self.n_regressors), np.zeros(self.n_regressors)
        scale = 2.0 ** np.round(np.log2(self.scale_)) if self.transformer == "none" else self.scale_
        mean = scale * np.round(self.mean_ / scale)
        factor[:k], shift[:k] = self.scale_ / scale, (self.mean_ - mean) / scale
        self.mean_, self.scale_ = mean, scale
        return factor, shift

    # ---- columns

    def _join(self, raw: Any, counts: Counts) -> Any:
        return beside_codes(self._factors(raw, counts), counts, self.single_codes_)

    def _factors(self, raw: Any, counts: Counts) -> Floats:
        """Factors and additional regressors, standardised."""
        factors = (np.asarray(raw, dtype=np.float64) - self.mean_) / self.scale_
        if not self.extra_names_:
            return np.ascontiguousarray(factors)
        position = {name: i for i, name in enumerate(counts.extra_names)}
        extra = np.full((len(factors), len(self.extra_names_)), np.nan)
        for i, name in enumerate(self.extra_names_):
            if name in position and counts.extra is not None:
                extra[:, i] = counts.extra[:, position[name]]
        extra = np.clip((extra - self.extra_mean_) / self.extra_scale_, -LARGEST, LARGEST)
        return np.ascontiguousarray(np.column_stack([factors, np.nan_to_num(extra)]))


def roots_of(counts: Counts, codes: Sequence[str]) -> Any:
    """Square roots of the counts of some codes, a CSR matrix (n, C); of codes that do not occur they are 0."""
    position = {code: i for i, code in enumerate(counts.codes)}
    found = [(new, position[code]) for new, code in enumerate(codes) if code in position]
    if len(found) == len(codes):
        return counts.matrix[:, [old for _, old in found]].astype(np.float64).sqrt()
    new, old = np.array(found, dtype=np.int64).reshape(-1, 2).T
    picker = sparse.csr_matrix((np.ones(len(new)), (old, new)), shape=(len(counts.codes), len(codes)))
    return (counts.matrix.astype(np.float64) @ picker).sqrt().tocsr()


def beside_codes(factors: Floats, counts: Counts, codes: Sequence[str]) -> Any:
    """Factors with the square roots of some codes' counts beside them, a CSR matrix; without codes as they are."""
    if not len(codes):
        return factors
    return sparse.hstack([sparse.csr_matrix(factors), roots_of(counts, codes)], format="csr")


class _Identity:
    """The transformer that leaves columns unchanged."""

    def fit_transform(self, X: Any) -> Floats:
        return self.transform(X)

    def transform(self, X: Any) -> Floats:
        return np.asarray(X.todense(), dtype=np.float64)


def _restore(transformer: Any, components: Floats, n_codes: int) -> None:
    """Put components into an unfitted scikit-learn transformer."""
    transformer.components_ = components
    transformer.n_features_in_ = n_codes
    kind = type(transformer).__name__
    if kind == "NMF":
        transformer.n_components_ = len(components)
    elif kind == "LatentDirichletAllocation":
        from scipy.special import psi

        transformer._init_latent_vars(n_codes, np.float64)
        transformer.components_ = components
        transformer.exp_dirichlet_component_ = np.exp(psi(components) - psi(components.sum(axis=1))[:, None])


def _named(transformer: Any) -> bool:
    return isinstance(transformer, str)


def _quietly(function: Any, argument: Any) -> Any:
    """Call without NMF's warning that it stopped at its number of iterations: a factor need not be exact."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return function(argument)
