"""CoalescentProbit: CoalescentRegression of binary outcomes, as a scikit-learn classifier."""

from __future__ import annotations

import os
from typing import Any, Self

from sklearn.base import ClassifierMixin

from coaltree.errors import InputError
from coaltree.estimators.regression import CoalescentRegression
from coaltree.randomness import RandomState
from coaltree.regression.families import FAMILIES


class CoalescentProbit(ClassifierMixin, CoalescentRegression):  # type: ignore[misc]
    """`CoalescentRegression` of binary outcomes, whose family is their link: all else is described there.

    Parameters
    ----------
    n_iter, burn_in, n_chains, n_jobs, random_state, verbose, scale, method, thin, checkpoint, covariance, features
        As of `CoalescentRegression`.
    link : {"probit", "logit"}
        The normal or the logistic distribution function.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> Y = (X @ [[1.0, 1.0, -1.0], [0.0, 0.2, 0.5], [0.0, 0.0, 0.0]] + rng.normal(size=(300, 3)) > 0).astype(int)
    >>> model = CoalescentProbit(n_iter=100, burn_in=50, n_chains=1, random_state=0).fit(X, Y)
    >>> model.predict_proba(X).shape, model.node_coef_.shape
    ((300, 3), (5, 3))
    """

    def __init__(
        self,
        n_iter: int = 1000,
        burn_in: int = 200,
        *,
        n_chains: int = 2,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
        link: str = "probit",
        scale: float = 1.0,
        method: str = "hmc",
        thin: int = 1,
        checkpoint: str | os.PathLike[str] | None = None,
        covariance: str = "auto",
        features: str = "linear",
    ) -> None:
        super().__init__(
            link,
            n_iter,
            burn_in=burn_in,
            n_chains=n_chains,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            scale=scale,
            method=method,
            thin=thin,
            checkpoint=checkpoint,
            covariance=covariance,
            features=features,
        )

    @property
    def family(self) -> str:
        """The link, by another name."""
        return self.link

    @family.setter
    def family(self, link: str) -> None:
        self.link = link

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        return tags

    @classmethod
    def _from_settings(cls, params: dict[str, Any]) -> Self:
        link = params.pop("family", None) or params.pop("link")
        if not isinstance(link, str) or not FAMILIES[link].binary:
            raise InputError("its outcomes are not all binary: read it with CoalescentRegression.load.")
        return cls(link=link, **params)
