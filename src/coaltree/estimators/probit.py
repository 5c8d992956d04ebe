"""CoalescentProbit: many correlated binary outcomes over a learned tree, as a scikit-learn classifier."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from coaltree import storage
from coaltree._arrays import Floats
from coaltree._compile import compiling_aloud
from coaltree.errors import InputError
from coaltree.randomness import RandomState, as_generator, seed_of
from coaltree.regression.encoding import Encoding, as_outcomes, columns_of, is_frame, is_mapping, needs_encoding
from coaltree.regression.fit import Options, ProbitFit, fit_probit
from coaltree.regression.likelihood import as_columns, row_weights
from coaltree.regression.links import LINKS, quantile
from coaltree.regression.model_file import read_model, write_model
from coaltree.regression.preparation import as_weights, dense
from coaltree.regression.stacking import FOLD_BURN_IN, FOLD_ITERATIONS, Stack, learn_stack
from coaltree.validation import check_choice

FEATURES = ("linear", "auto")


class CoalescentProbit(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Joint probit regression of P binary outcomes whose coefficient vectors are the leaves of a coalescent tree.

    Rare outcomes borrow strength from related ones, and every internal node of the tree is a usable model of a
    composite outcome. Nothing needs tuning: the size of coefficients, how far outcomes differ, which are related and
    whether one stands alone are learned. See `coaltree.regression.prior` for the model.

    Parameters
    ----------
    n_iter, burn_in : int
        Iterations of every chain, and how many of them to drop.
    n_chains : int
        Independent chains.
    n_jobs : int, optional
        Number of chains run in parallel. The result does not depend on it.
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
        Keep every `thin`-th iteration after burn-in.
    checkpoint : path, optional
        File to which the chains are saved as they run, and from which an unfinished fit continues.
    covariance : {"auto", "full", "diagonal"}
        "diagonal": every feature has its own width, with heavy tails, for hundreds to thousands of features.
        "full": their coefficients correlate. "auto": full for up to 10 features and 300 unknowns.
    features : {"linear", "auto"}
        "auto" adds nonlinear effects: a forest, a ridge regression, a kernel regression and the linear model predict
        rows that they have not seen, and a second coalescent regression on their log odds makes the predictions if it
        does better on held-out rows. Coefficients, tree and node models remain those of the linear model. The kernel,
        and so a saved model, holds up to 2 000 rows of X. See `coaltree.regression.stacking`.

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
        leaves' common ancestor, a weighted mean of their coefficients; its intercept is the same mean of theirs.
    covariance_ : ndarray (K, K)
        Φ, the covariance of coefficients per unit of time of the tree.
    trace_ : dict of ndarray (n_chains, n_iter)
        Log likelihood, leaf noise and more along the chains, burn-in included.
    diagnostics_ : dict
        The largest "r_hat" and the smallest "bulk_ess" over all coefficients, both for each, and the acceptance rate.
    convergence_ : Convergence
        The same judgement as `CoalescentClustering.convergence_`, with all coefficients: `converged`, and the `verdict`
        that the warning, the terminal and the report give.
    fit_ : ProbitFit
        Everything, all draws included.
    classes_ : ndarray
        Outcome numbers 0 … P−1; for a one-dimensional y its two labels.
    outcome_names_ : tuple of str or None
        Columns of Y if it was a DataFrame; they name the leaves of `tree_`.
    stack_ : Stack or None
        With features="auto": the models behind the predictions, their log densities of held-out rows, and how much of
        the risk is linear (`stack_.linear_share`).
    encoding_ : Encoding or None
        How the columns of a table with text, categories, booleans or missing entries became numbers; see
        `coaltree.regression.encoding`. The columns of `coef_` are `encoded_features_`.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Y is an (N, P) table of 0 and 1, NaN where a label is missing, and `predict_proba` gives (N, P). With a
    one-dimensional y of two labels the estimator is a plain binary classifier: `predict_proba` gives (N, 2).
    DataFrames may hold text, categories, booleans and missing entries; outcomes in a DataFrame may be booleans or words
    such as yes and no. Counts and measurements as outcomes are not modelled.

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
        self.n_iter = n_iter
        self.burn_in = burn_in
        self.n_chains = n_chains
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.link = link
        self.scale = scale
        self.method = method
        self.thin = thin
        self.checkpoint = checkpoint
        self.covariance = covariance
        self.features = features

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CoalescentProbit:
        """Fit all outcomes.

        Parameters
        ----------
        X : array-like or sparse matrix (N, K)
            Features.
        y : array-like (N, P) of 0, 1 or NaN; or (N,) with two labels
            Outcomes.
        sample_weight : array-like (N,) or (N, P), optional
            Case weights, of rows or of single labels: a weight of 2 counts a label twice. With features="auto" and
            weights of labels, the forest and the kernel ridge regression, which learn all outcomes at once, take the
            mean weight of each row.

        Returns
        -------
        self
        """
        check_choice(self.features, "features", FEATURES)
        X = self._check_features(X, reset=True)
        names = None
        if is_mapping(y) or is_frame(y):
            y, names = as_outcomes(y)
        labels, self.classes_, self._binary = _encode(y)
        self.outcome_names_ = names
        options: dict[str, Any] = {
            "link": self.link,
            "scale": self.scale,
            "covariance": self.covariance,
            "method": self.method,
        }
        with compiling_aloud(self.verbose > 0):
            self.fit_ = fit_probit(
                X,
                labels,
                sample_weight=sample_weight,
                n_iter=self.n_iter,
                burn_in=self.burn_in,
                thin=self.thin,
                n_chains=self.n_chains,
                n_jobs=self.n_jobs,
                random_state=self.random_state,
                checkpoint=self.checkpoint,
                outcome_names=names,
                progress=bool(self.verbose),
                **options,
            )
        self.stack_ = None
        if self.features == "auto":
            self.stack_ = self._learn_stack(dense(X), as_outcomes(labels)[0], sample_weight, options)
        self._unfold()
        return self

    def _learn_stack(self, X: Any, labels: Floats, sample_weight: Any, options: dict[str, Any]) -> Stack:
        weights = as_weights(sample_weight, labels.shape)
        labels = np.where(as_columns(weights) > 0, labels, np.nan)
        counted = row_weights(weights) > 0
        rng = as_generator(self.random_state).spawn(self.n_chains + 1)[-1]

        def fit_linear(X: Any, Y: Floats, weights: Floats) -> ProbitFit:
            short: dict[str, Any] = {"n_iter": FOLD_ITERATIONS, "burn_in": FOLD_BURN_IN, "n_chains": 1, "n_jobs": 1}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a fold may lack a class, and its chain is short
                return fit_probit(X, Y, sample_weight=weights, random_state=rng, **short, **options)

        run = Options(self.link, "hmc", self.n_iter, self.burn_in, self.thin, self.n_chains, float(self.scale))
        return learn_stack(X[counted], labels[counted], weights[counted], fit_linear, run, rng, self.n_jobs)

    def _unfold(self) -> None:
        """Expose the parts of the fit as attributes."""
        fit = self.fit_
        self.tree_, self.posterior_ = fit.tree, fit.posterior
        self.coef_, self.intercept_ = fit.coef, fit.intercept
        self.node_coef_, self.node_intercept_ = fit.node_coef, fit.node_intercept
        self.covariance_, self.trace_ = fit.covariance, fit.trace
        self.diagnostics_, self.convergence_ = fit.diagnostics, fit.convergence

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file, atomically and without pickle; `CoalescentProbit.load` reads it."""
        check_is_fitted(self)
        params = {name: value for name, value in self.get_params(deep=False).items() if name != "random_state"}
        if self.checkpoint is not None:
            params["checkpoint"] = os.fspath(self.checkpoint)
        classes = self.classes_.tolist()
        settings = {
            "params": params | {"random_state": seed_of(self.random_state)},
            "classes": classes,
            "classes_dtype": self.classes_.dtype.str if self.classes_.dtype.kind != "O" else "object",
            "binary": self._binary,
            "n_features_in": self.n_features_in_,
            "feature_names_in": [str(name) for name in getattr(self, "feature_names_in_", [])],
            "outcome_names": self.outcome_names_,
            "encoding": None if self.encoding_ is None else self.encoding_.as_json(),
        }
        write_model(path, self.fit_, self.stack_, settings)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CoalescentProbit:
        """Read a model that `save` wrote; its predictions are bit-for-bit those of the saved one."""
        fit, stack, settings = read_model(path)
        with storage.decoding(path, "regression"):
            # Files of 0.1 and 0.2 have a number of particles too, of which nothing came.
            model = cls(**{name: value for name, value in settings["params"].items() if name != "n_particles"})
            model.fit_, model.stack_ = fit, stack
            model.classes_ = np.array(settings["classes"], dtype=settings["classes_dtype"])
            model._binary, model.n_features_in_ = bool(settings["binary"]), int(settings["n_features_in"])
            if settings["feature_names_in"]:
                model.feature_names_in_ = np.array(settings["feature_names_in"], dtype=object)
            names, encoding = settings["outcome_names"], settings["encoding"]
            model.outcome_names_ = None if names is None else tuple(names)
            model.encoding_ = None if encoding is None else Encoding.from_json(encoding)
            model._name_features()
            model._unfold()
            n_outcomes, n_features = fit.coef_draws.shape[2:]
            n_columns = model.n_features_in_ if model.encoding_ is None else len(model.encoding_.names)
            if n_columns != n_features or len(model.classes_) != (2 if model._binary else n_outcomes):
                raise InputError(f"it must have {n_features} columns of features, and a class for each outcome.")
        return model

    def predict_proba(self, X: Any, return_std: bool = False) -> Any:
        """Probability of every outcome, averaged over the posterior, (N, P).

        With `return_std`, also its posterior standard deviation, (N, P). After a one-dimensional y: (N, 2).
        """
        check_is_fitted(self)
        X = self._check_features(X, reset=False)
        stack = self._used_stack()
        if stack is None:
            result = self.fit_.predict_proba(X, return_std)
        else:
            result = stack.predict(dense(X), self.fit_, None, return_std)
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

    def predict_node(self, X: Any, node: int, *, return_std: bool = False) -> Any:
        """Probability under the model of one node of `tree_`, (N,): 0 … P−1 are the outcomes, P + k is merge k."""
        check_is_fitted(self)
        X, stack = self._check_features(X, reset=False), self._used_stack()
        if stack is None:
            return self.fit_.predict_node(X, node, return_std=return_std)
        result = stack.predict(dense(X), self.fit_, self.fit_.weights_of_node(node), return_std)
        return tuple(part[:, 0] for part in result) if return_std else result[:, 0]

    def _used_stack(self) -> Stack | None:
        """The stack, if there is one and it is better than the linear model."""
        return self.stack_ if self.stack_ is not None and self.stack_.chosen else None

    def decision_function(self, X: Any) -> Floats:
        """Ψ⁻¹ of `predict_proba`, (N, P), which ranks as probabilities do; (N,) after a one-dimensional y.

        `fit_.linear_predictor` is the plain μ + xβ at the posterior mean.
        """
        probability = self.predict_proba(X)
        probability = probability[:, 1] if self._binary else probability
        eps = np.finfo(np.float64).eps
        return quantile(np.clip(probability, eps, 1.0 - eps), LINKS[self.fit_.link])

    def _check_features(self, X: Any, reset: bool) -> Any:
        if reset:
            named = is_mapping(X) or needs_encoding(X)
            self.encoding_ = Encoding.learn(columns_of(X)) if named else None
            self._name_features()
        if self.encoding_ is not None:
            if not is_mapping(X) and not is_frame(X):
                raise InputError(
                    "X must be a table with named columns, as the one the model was fitted to: its columns are "
                    "found by name. Pass a DataFrame."
                )
            if reset:
                self.feature_names_in_ = np.array([column.name for column in self.encoding_.columns], dtype=object)
                self.n_features_in_ = len(self.feature_names_in_)
            return self.encoding_.encode(columns_of(X))
        # The message about NaN is left to `fit_probit`, which says what to do.
        return validate_data(
            self, X, reset=reset, accept_sparse=("csr", "csc"), dtype=np.float64, ensure_all_finite=False
        )

    def _name_features(self) -> None:
        if self.encoding_ is not None:
            self.encoded_features_ = self.encoding_.names

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
        raise InputError("y must be given: this estimator requires y to be passed, but the target y is None.")
    labels = y if hasattr(y, "columns") or hasattr(y, "toarray") else np.asarray(y)
    if labels.ndim == 2:
        return labels, np.arange(labels.shape[1]), False
    if labels.ndim != 1:
        raise InputError(f"y must be (N, P), or (N,) with two labels, got shape {labels.shape}.")
    assert_all_finite(labels, input_name="y")
    with np.errstate(invalid="ignore"):  # it casts to integers to check whether they are
        check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) != 2:
        shown = ", ".join(map(str, classes[:5])) + (", …" if len(classes) > 5 else "")
        raise InputError(
            f"Only binary classification is supported: a one-dimensional y must hold two labels, got {len(classes)} "
            f"class{'es' if len(classes) != 1 else ''} ({shown}). Use one 0/1 column per outcome."
        )
    return codes.astype(np.float64)[:, None], classes, True
