"""CoalescentRegression: many correlated outcomes over a learned tree, as a scikit-learn estimator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags, assert_all_finite
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from coaltree import storage
from coaltree._arrays import Floats
from coaltree._compile import compiling_aloud
from coaltree.errors import InputError
from coaltree.randomness import RandomState, as_generator, seed_of
from coaltree.regression.encoding import (
    Encoding,
    as_outcomes,
    columns_of,
    is_frame,
    is_mapping,
    needs_encoding,
    read_outcomes,
)
from coaltree.regression.families import FAMILIES, Chosen
from coaltree.regression.families.base import Family
from coaltree.regression.fit import Options, RegressionFit, fit_regression
from coaltree.regression.likelihood import as_columns, row_weights
from coaltree.regression.model_file import read_model, write_model
from coaltree.regression.preparation import as_weights, dense
from coaltree.regression.stacking import FOLD_BURN_IN, FOLD_ITERATIONS, Stack, learn_stack
from coaltree.validation import check_choice

FEATURES = ("linear", "auto")


def _has(what: str) -> Any:
    """Whether the families of an estimator have something: a method is there only if one of them has."""
    return available_if(lambda self: any(getattr(each, what) for each in self._families()))


class CoalescentRegression(BaseEstimator):  # type: ignore[misc]
    """Joint regression of P outcomes whose coefficient vectors are the leaves of a coalescent tree.

    Outcomes are events, counts in a time at risk, measurements, or a mixture. Rare ones borrow strength from related
    ones, and every internal node of the tree is a usable model of a composite outcome. Nothing needs tuning: the size
    of coefficients, how far outcomes differ, which are related and whether one stands alone are learned. See
    `coaltree.regression.prior` for the model.

    Parameters
    ----------
    family : str, or one per outcome
        What outcomes are, given η = μ + xβ; `coaltree.regression.families` has all. "probit", "logit": 0 or 1, the
        probability of 1 is the normal or the logistic distribution function at η. "poisson": counts,
        y ~ Poisson(exposure · exp(η)), also for times to an event under censoring: y whether it was observed, exposure
        how long the subject was. One name for all outcomes; or a sequence in the order of the columns of Y, or a
        mapping by their names.
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
        "auto" adds nonlinear effects of binary outcomes: a forest, a ridge regression, a kernel regression and the
        linear model predict rows that they have not seen, and a second coalescent regression on their log odds makes
        the predictions if it does better on held-out rows. Coefficients, tree and node models remain those of the
        linear model. The kernel, and so a saved model, holds up to 2 000 rows of X. See `coaltree.regression.stacking`.

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
        Continuous outcomes enter it in standard deviations from their mean.
    covariance_ : ndarray (K, K)
        Φ, the covariance of coefficients per unit of time of the tree.
    trace_ : dict of ndarray (n_chains, n_iter)
        Log likelihood, leaf noise and more along the chains, burn-in included.
    diagnostics_ : dict
        The largest "r_hat" and the smallest "bulk_ess" over all coefficients, both for each, and the acceptance rate.
    convergence_ : Convergence
        The same judgement as `CoalescentClustering.convergence_`, with all coefficients: `converged`, and the `verdict`
        that the warning, the terminal and the report give.
    fit_ : RegressionFit
        Everything, all draws included.
    residual_sd_ : ndarray (P,)
        Standard deviation of continuous outcomes given the features; NaN for others.
    classes_ : ndarray
        Of binary outcomes: their numbers 0 … P−1; for a one-dimensional y its two labels.
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
    Y is an (N, P) table, NaN where a label is missing. With a one-dimensional y, `predict` gives (N,); if its labels
    are two and the family is binary, the estimator is a plain classifier and `predict_proba` gives (N, 2). DataFrames
    may hold text, categories, booleans and missing entries; binary outcomes in a DataFrame may be booleans or words
    such as yes and no.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, days = rng.normal(size=(300, 3)), rng.uniform(50, 365, size=300)
    >>> eta = X @ [[0.5, 0.5, -0.5], [0.0, 0.2, 0.3], [0.0, 0.0, 0.0]]
    >>> Y = rng.poisson(days[:, None] / 365 * np.exp(eta))
    >>> model = CoalescentRegression("poisson", n_iter=100, burn_in=50, n_chains=1, random_state=0)
    >>> model.fit(X, Y, exposure=days / 365).predict_mean(X).shape
    (300, 3)
    """

    fit_: RegressionFit

    def __init__(
        self,
        family: Chosen = "probit",
        n_iter: int = 1000,
        *,
        burn_in: int = 200,
        n_chains: int = 2,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
        scale: float = 1.0,
        method: str = "hmc",
        thin: int = 1,
        checkpoint: str | os.PathLike[str] | None = None,
        covariance: str = "auto",
        features: str = "linear",
    ) -> None:
        self.family = family
        self.n_iter = n_iter
        self.burn_in = burn_in
        self.n_chains = n_chains
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.scale = scale
        self.method = method
        self.thin = thin
        self.checkpoint = checkpoint
        self.covariance = covariance
        self.features = features

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, exposure: Any = None) -> Self:
        """Fit all outcomes.

        Parameters
        ----------
        X : array-like or sparse matrix (N, K)
            Features.
        y : array-like (N, P), or (N,) for one outcome
            Outcomes, NaN where there is no label: 0 and 1, or counts, as their `family` says.
        sample_weight : array-like (N,) or (N, P), optional
            Case weights, of rows or of single labels: a weight of 2 counts a label twice, its exposure included. With
            features="auto" and weights of labels, the forest and the kernel ridge regression, which learn all outcomes
            at once, take the mean weight of each row.
        exposure : array-like (N,) or (N, P), optional
            Time at risk of counts, by default 1: expected events are proportional to it. It has no effect on outcomes
            of other families.

        Returns
        -------
        self
        """
        check_choice(self.features, "features", FEATURES)
        binary = all(each.binary for each in self._families(check=True))
        if self.features == "auto" and not binary:
            raise InputError('features="auto" is for binary outcomes. Use features="linear" with other families.')
        X = self._check_features(X, reset=True)
        names = None
        if is_mapping(y) or is_frame(y):
            y, names = read_outcomes(y)
        labels, classes, self._flat = _encode(y, binary)
        if classes is not None:
            self.classes_ = classes
        self.outcome_names_ = names
        options: dict[str, Any] = {
            "family": self.family,
            "scale": self.scale,
            "covariance": self.covariance,
            "method": self.method,
        }
        with compiling_aloud(self.verbose > 0):
            self.fit_ = fit_regression(
                X,
                labels,
                sample_weight=sample_weight,
                exposure=exposure,
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

    def _families(self, check: bool = False) -> list[Family]:
        """Return the families in use; unknown ones are an error only if they are to be checked."""
        chosen = self.family
        names = (
            [chosen] if isinstance(chosen, str) else list(chosen.values() if isinstance(chosen, Mapping) else chosen)
        )
        if check:
            for name in names:
                check_choice(name, "family", FAMILIES)
        return [FAMILIES[name] for name in names if name in FAMILIES]

    @property
    def _binary(self) -> bool:
        """Whether every outcome is."""
        return all(family.binary for family in self.fit_.families)

    def _learn_stack(self, X: Any, labels: Floats, sample_weight: Any, options: dict[str, Any]) -> Stack:
        weights = as_weights(sample_weight, labels.shape)
        labels = np.where(as_columns(weights) > 0, labels, np.nan)
        counted = row_weights(weights) > 0
        rng = as_generator(self.random_state).spawn(self.n_chains + 1)[-1]

        def fit_linear(X: Any, Y: Floats, weights: Floats) -> RegressionFit:
            short: dict[str, Any] = {"n_iter": FOLD_ITERATIONS, "burn_in": FOLD_BURN_IN, "n_chains": 1, "n_jobs": 1}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a fold may lack a class, and its chain is short
                return fit_regression(X, Y, sample_weight=weights, random_state=rng, **short, **options)

        run = Options("hmc", self.n_iter, self.burn_in, self.thin, self.n_chains, float(self.scale))
        return learn_stack(X[counted], labels[counted], weights[counted], fit_linear, run, rng, self.n_jobs)

    def _unfold(self) -> None:
        """Expose the parts of the fit as attributes."""
        fit = self.fit_
        self.tree_, self.posterior_ = fit.tree, fit.posterior
        self.coef_, self.intercept_ = fit.coef, fit.intercept
        self.node_coef_, self.node_intercept_ = fit.node_coef, fit.node_intercept
        self.covariance_, self.trace_ = fit.covariance, fit.trace
        self.residual_sd_ = fit.residual_sd
        self.diagnostics_, self.convergence_ = fit.diagnostics, fit.convergence

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file, atomically and without pickle; `load` reads it."""
        check_is_fitted(self)
        params = {name: value for name, value in self.get_params(deep=False).items() if name != "random_state"}
        if self.checkpoint is not None:
            params["checkpoint"] = os.fspath(self.checkpoint)
        if not isinstance(self.family, str):
            params["family"] = dict(self.family) if isinstance(self.family, Mapping) else list(self.family)
        classes = getattr(self, "classes_", np.zeros(0, dtype=np.int64))
        settings = {
            "params": params | {"random_state": seed_of(self.random_state)},
            "classes": classes.tolist(),
            "classes_dtype": classes.dtype.str if classes.dtype.kind != "O" else "object",
            "flat": self._flat,
            "n_features_in": self.n_features_in_,
            "feature_names_in": [str(name) for name in getattr(self, "feature_names_in_", [])],
            "outcome_names": self.outcome_names_,
            "encoding": None if self.encoding_ is None else self.encoding_.as_json(),
        }
        write_model(path, self.fit_, self.stack_, settings)

    @classmethod
    def _from_settings(cls, params: dict[str, Any]) -> Self:
        """Make an estimator of the parameters in a file, which may be those of `CoalescentProbit`."""
        return cls(params.pop("link", None) or params.pop("family"), **params)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that `save` wrote; its predictions are bit-for-bit those of the saved one."""
        fit, stack, settings = read_model(path)
        with storage.decoding(path, "regression"):
            # Files of 0.1 and 0.2 have a number of particles too, of which nothing came.
            params = {name: value for name, value in settings["params"].items() if name != "n_particles"}
            model = cls._from_settings(params)
            model.fit_, model.stack_ = fit, stack
            # Files of 0.2 say whether a y of two labels was one-dimensional.
            model._flat = bool(settings["flat"] if "flat" in settings else settings["binary"])
            n_outcomes, n_features = fit.coef_draws.shape[2:]
            if model._binary:
                model.classes_ = np.array(settings["classes"], dtype=settings["classes_dtype"])
                if len(model.classes_) != (2 if model._flat else n_outcomes):
                    raise InputError("it must have a class for each outcome.")
            model.n_features_in_ = int(settings["n_features_in"])
            if settings["feature_names_in"]:
                model.feature_names_in_ = np.array(settings["feature_names_in"], dtype=object)
            names, encoding = settings["outcome_names"], settings["encoding"]
            model.outcome_names_ = None if names is None else tuple(names)
            model.encoding_ = None if encoding is None else Encoding.from_json(encoding)
            model._name_features()
            model._unfold()
            n_columns = model.n_features_in_ if model.encoding_ is None else len(model.encoding_.names)
            if n_columns != n_features:
                raise InputError(f"it must have {n_features} columns of features.")
        return model

    def predict_mean(self, X: Any, exposure: Any = None, *, return_std: bool = False) -> Any:
        """Expected outcomes, averaged over the posterior, (N, P); with `return_std`, also their posterior deviation.

        They are probabilities of binary outcomes and numbers of events in `exposure`, (N,) or (N, P), by default one
        unit of it.
        """
        check_is_fitted(self)
        X, stack = self._check_features(X, reset=False), self._used_stack()
        if stack is None:
            return self.fit_.predict_mean(X, exposure, return_std)
        return stack.predict(dense(X), self.fit_, None, return_std)

    @_has("with_events")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any, return_std: bool = False) -> Any:
        """Probability of every event, averaged over the posterior, (N, P).

        For counts it is the probability of at least one event in one unit of exposure, 1 − exp(−rate): with censored
        times and exposure as a share of the horizon, the risk within the horizon. Other outcomes have NaN. With
        `return_std`, also the posterior standard deviation, (N, P). After a one-dimensional y of two labels: (N, 2).
        """
        check_is_fitted(self)
        X, stack = self._check_features(X, reset=False), self._used_stack()
        if stack is None:
            result = self.fit_.predict_proba(X, return_std)
        else:
            result = stack.predict(dense(X), self.fit_, None, return_std)
        if not (self._flat and self._binary):
            return result
        mean = result[0] if return_std else result
        both = np.hstack([1.0 - mean, mean])
        return (both, np.repeat(result[1], 2, axis=1)) if return_std else both

    def predict(self, X: Any) -> Any:
        """Binary outcomes with a probability above one half as 0 and 1, of others the expected one; (N, P).

        Counts are those in one unit of exposure. After a one-dimensional y: its labels or expected values, (N,).
        """
        mean = self.predict_mean(X)
        if not self._binary:
            mean = np.where([family.binary for family in self.fit_.families], mean > 0.5, mean)
            return mean[:, 0] if self._flat else mean
        if self._flat:
            return self.classes_[(mean[:, 0] > 0.5).astype(np.int64)]
        return (mean > 0.5).astype(np.int64)

    def predict_node(self, X: Any, node: int, *, return_std: bool = False) -> Any:
        """Expected outcome under the model of one node of `tree_`, (N,): 0 … P−1 are the outcomes, P + k is merge k.

        All outcomes below the node must be of one family. Of continuous ones it is in standard deviations.
        """
        check_is_fitted(self)
        X, stack = self._check_features(X, reset=False), self._used_stack()
        if stack is None:
            return self.fit_.predict_node(X, node, return_std=return_std)
        result = stack.predict(dense(X), self.fit_, self.fit_.weights_of_node(node), return_std)
        return tuple(part[:, 0] for part in result) if return_std else result[:, 0]

    def _used_stack(self) -> Stack | None:
        """The stack, if there is one and it is better than the linear model."""
        return self.stack_ if self.stack_ is not None and self.stack_.chosen else None

    @_has("binary")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Floats:
        """Ψ⁻¹ of `predict_proba`, (N, P), which ranks as probabilities do; (N,) after a one-dimensional y.

        `fit_.linear_predictor` is the plain μ + xβ at the posterior mean, which is given for other families.
        """
        probability, eps = self.predict_mean(X), np.finfo(np.float64).eps
        score: Floats = np.empty_like(probability)
        for j, family in enumerate(self.fit_.families):
            p = probability[:, j]
            score[:, j] = family.predictor(np.clip(p, eps, 1.0 - eps) if family.binary else p)
        return score[:, 0] if self._flat else score

    def score(self, X: Any, y: Any, *, sample_weight: Any = None) -> float:
        """Accuracy of binary outcomes (all of a row at once); of others R², its mean over outcomes."""
        measure = accuracy_score if all(family.binary for family in self._families()) else r2_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

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
        # The message about NaN is left to `fit_regression`, which says what to do.
        return validate_data(
            self, X, reset=reset, accept_sparse=("csr", "csc"), dtype=np.float64, ensure_all_finite=False
        )

    def _name_features(self) -> None:
        if self.encoding_ is not None:
            self.encoded_features_ = self.encoding_.names

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        families = self._families()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.positive_only = any(family.with_exposure for family in families)
        if all(family.binary for family in families):
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=False, multi_label=True)
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
        return tags


def _encode(y: Any, binary: bool) -> tuple[Any, npt.NDArray[Any] | None, bool]:
    """Return labels as columns of numbers, `classes_` of binary ones, and whether y was one-dimensional."""
    if y is None:
        raise InputError("y must be given: this estimator requires y to be passed, but the target y is None.")
    labels = y if hasattr(y, "columns") or hasattr(y, "toarray") else np.asarray(y)
    if labels.ndim == 2:
        return labels, np.arange(labels.shape[1]) if binary else None, False
    if labels.ndim != 1:
        raise InputError(f"y must be (N, P), or (N,) for one outcome, got shape {labels.shape}.")
    assert_all_finite(labels, input_name="y")
    if not binary:
        return labels, None, True
    with np.errstate(invalid="ignore"):  # it casts to integers to check whether they are
        check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) != 2:
        shown = ", ".join(map(str, classes[:5])) + (", …" if len(classes) > 5 else "")
        raise InputError(
            f"Only binary classification is supported: a one-dimensional y must hold two labels, got {len(classes)} "
            f"class{'es' if len(classes) != 1 else ''} ({shown}). Use one 0/1 column per outcome, or "
            'family="poisson" if these are counts.'
        )
    return codes.astype(np.float64)[:, None], classes, True
