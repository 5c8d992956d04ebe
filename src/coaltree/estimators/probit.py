"""CoalescentProbit: many correlated binary outcomes over a learned tree, as a scikit-learn classifier."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from coaltree.randomness import RandomState
from coaltree.regression.fit import ProbitFit, fit_probit
from coaltree.regression.links import LINKS, quantile

Floats = npt.NDArray[np.float64]


class CoalescentProbit(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Joint probit regression of P binary outcomes whose coefficient vectors are the leaves of a coalescent tree.

    Rare outcomes borrow strength from related ones, and every internal node of the tree is a usable model of a
    composite outcome. Nothing needs tuning: the size of coefficients, how far outcomes differ, which are related and
    whether one stands alone are learned. See `coaltree.regression` for the model.

    Parameters
    ----------
    n_iter, burn_in : int
        Iterations of every chain, and how many of them to drop.
    n_chains : int
        Independent chains.
    n_particles : int
        No longer used: trees are drawn by a Markov chain.
    n_jobs : int, optional
        Chains that run at the same time. The result does not depend on it.
    random_state : int, Generator, …
        Seed.
    verbose : int
        Show a progress bar.
    link : {"probit", "logit"}
        The normal or the logistic distribution function.
    scale : float
        Scale of the half-t priors on the size of coefficients of standardised features.
    method : {"hmc", "albert-chib"}
        How coefficients are drawn; the second is a slow reference.
    thin : int
        Keep every so many iterations after burn-in.
    checkpoint : path, optional
        File to which the chains are saved as they run, and from which an unfinished fit goes on.

    Attributes
    ----------
    tree_ : Tree or None
        The maximum clade credibility tree of the outcomes; None for a single outcome.
    posterior_ : TreePosterior or None
        All kept trees, equally weighted.
    coef_ : ndarray (P, K)
        Posterior means, in the units of X.
    intercept_ : ndarray (P,)
        Posterior means.
    node_coef_, node_intercept_ : ndarray (2P−1, K), (2P−1,)
        Models of all nodes of `tree_`: outcomes first, then merges. An internal node is the conditional mean of its
        leaves' common ancestor, a weighted mean of their coefficients; its intercept is that mean of theirs.
    covariance_ : ndarray (K, K)
        Φ, the covariance of coefficients per unit of time of the tree.
    trace_ : dict of ndarray (n_chains, n_iter)
        Log likelihood, leaf noise and more along the chains, burn-in included.
    diagnostics_ : dict
        The largest "r_hat" and the smallest "bulk_ess" over all coefficients, these for each, and the acceptance rate.
    fit_ : ProbitFit
        Everything, all draws included.
    classes_ : ndarray
        Outcome numbers 0 … P−1; for a one-dimensional y its two labels.
    outcome_names_ : tuple of str or None
        Columns of Y if it was a DataFrame; they name the leaves of `tree_`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Y is an (N, P) table of 0 and 1, NaN where a label is missing, and `predict_proba` gives (N, P). With a
    one-dimensional y of two labels the estimator is a plain binary classifier: `predict_proba` gives (N, 2).

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

    fit_: ProbitFit

    def __init__(
        self,
        n_iter: int = 1000,
        burn_in: int = 200,
        n_chains: int = 2,
        n_particles: int = 50,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
        link: str = "probit",
        scale: float = 1.0,
        method: str = "hmc",
        thin: int = 1,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.n_iter = n_iter
        self.burn_in = burn_in
        self.n_chains = n_chains
        self.n_particles = n_particles
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.link = link
        self.scale = scale
        self.method = method
        self.thin = thin
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CoalescentProbit:
        """Fit all outcomes.

        Parameters
        ----------
        X : array-like or sparse matrix (N, K)
            Features.
        y : array-like (N, P) of 0, 1 or NaN; or (N,) with two labels
            Outcomes.
        sample_weight : array-like (N,), optional
            Case weights.

        Returns
        -------
        self
        """
        X = self._check_features(X, reset=True)
        labels, self.classes_, self._binary = _encode(y)
        fit = fit_probit(
            X,
            labels,
            sample_weight=sample_weight,
            link=self.link,
            method=self.method,
            n_iter=self.n_iter,
            burn_in=self.burn_in,
            thin=self.thin,
            n_chains=self.n_chains,
            scale=self.scale,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
            checkpoint=self.checkpoint,
            progress=bool(self.verbose),
        )
        self.fit_ = fit
        self.tree_, self.posterior_ = fit.tree, fit.posterior
        self.coef_, self.intercept_ = fit.coef, fit.intercept
        self.node_coef_, self.node_intercept_ = fit.node_coef, fit.node_intercept
        self.covariance_, self.trace_, self.diagnostics_ = fit.covariance, fit.trace, fit.diagnostics
        self.outcome_names_ = fit.outcome_names
        return self

    def predict_proba(self, X: Any, return_std: bool = False) -> Any:
        """Probability of every outcome, averaged over the posterior, (N, P).

        With `return_std` also its posterior standard deviation, (N, P). After a one-dimensional y: (N, 2).
        """
        check_is_fitted(self)
        result = self.fit_.predict_proba(self._check_features(X, reset=False), return_std)
        if not self._binary:
            return result
        mean = result[0] if return_std else result
        both = np.hstack([1.0 - mean, mean])
        return (both, np.repeat(result[1], 2, axis=1)) if return_std else both

    def predict(self, X: Any) -> Any:
        """Outcomes with a probability above one half, (N, P) of 0 and 1; after a one-dimensional y, labels (N,)."""
        probability = self.predict_proba(X)
        if self._binary:
            return self.classes_[np.argmax(probability, axis=1)]
        return (probability > 0.5).astype(np.int64)

    def predict_node(self, X: Any, node: int, return_std: bool = False) -> Any:
        """Probability under the model of one node of `tree_`, (N,): 0 … P−1 are the outcomes, P + k is merge k."""
        check_is_fitted(self)
        return self.fit_.predict_node(self._check_features(X, reset=False), node, return_std)

    def decision_function(self, X: Any) -> Floats:
        """Ψ⁻¹ of `predict_proba`, (N, P), which ranks as probabilities do; (N,) after a one-dimensional y.

        `fit_.linear_predictor` is the plain μ + xβ at the posterior mean.
        """
        probability = self.predict_proba(X)
        probability = probability[:, 1] if self._binary else probability
        eps = np.finfo(np.float64).eps
        return quantile(np.clip(probability, eps, 1.0 - eps), LINKS[self.fit_.link])

    def _check_features(self, X: Any, reset: bool) -> Any:
        # The message about NaN is `fit_probit`'s own, which says what to do.
        return validate_data(
            self, X, reset=reset, accept_sparse=("csr", "csc"), dtype=np.float64, ensure_all_finite=False
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        return tags


def _encode(y: Any) -> tuple[Any, npt.NDArray[Any], bool]:
    """Return labels as 0/1 columns, `classes_`, and whether y was one-dimensional."""
    if y is None:
        raise ValueError("y must be given: this estimator requires y to be passed, but the target y is None.")
    labels = y if hasattr(y, "columns") or hasattr(y, "toarray") else np.asarray(y)
    if labels.ndim == 2:
        return labels, np.arange(labels.shape[1]), False
    if labels.ndim != 1:
        raise ValueError(f"y must be (N, P), or (N,) with two labels, got shape {labels.shape}.")
    assert_all_finite(labels, input_name="y")
    with np.errstate(invalid="ignore"):  # it casts to integers to see whether they are
        check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) != 2:
        shown = ", ".join(map(str, classes[:5])) + (", …" if len(classes) > 5 else "")
        raise ValueError(
            f"Only binary classification is supported: a one-dimensional y must hold two labels, got {len(classes)} "
            f"class{'es' if len(classes) != 1 else ''} ({shown}). Use one 0/1 column an outcome."
        )
    return codes.astype(np.float64)[:, None], classes, True
