"""`fit_regression`: features and outcomes in, a posterior over coefficients and outcome trees out."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Bools, Floats
from coaltree._version import __version__
from coaltree.errors import InputError
from coaltree.model.covariance import CovarianceFamily
from coaltree.model.diffusion import messages
from coaltree.model.family import check_positive
from coaltree.posterior.convergence import OUTCOMES, Convergence, diagnose, judge_coefficients
from coaltree.posterior.diagnostics import effective_size, r_hat
from coaltree.posterior.ensemble import TreePosterior
from coaltree.randomness import RandomState, as_generator, seed_of
from coaltree.regression.chain import ALBERT_CHIB, METHODS, Chain, Settings
from coaltree.regression.families import Chosen, Families, as_setting, grouped
from coaltree.regression.families.base import Family
from coaltree.regression.families.binary import PROBIT
from coaltree.regression.preparation import Prepared, as_exposure, as_features, dense, prepare
from coaltree.regression.prior import default_prior, wide_prior
from coaltree.regression.running import run_chains
from coaltree.tree import Tree
from coaltree.validation import check_choice, check_count

# Probabilities are averaged over this many draws, evenly spaced.
N_PREDICTIVE = 200
COVARIANCES = ("auto", "full", "diagonal")
# Numbers in one block of predictions.
BLOCK = 2_000_000
# Scalars of a chain that are judged: fit, width of the common level, noise, age of the tree, width of the differences.
JUDGED = ("log_likelihood", "spread", "leaf_noise", "last_time", "log_det")


@dataclass(frozen=True, eq=False, repr=False)
class RegressionFit:
    """A fitted regression. C chains, S kept draws each, P outcomes, K features, all in the units of X.

    Node models: internal node k of `tree` is the conditional mean of its leaves' common ancestor given those leaves, a
    weighted mean of them (row k of `node_weights`, which sums to one); its coefficients and its intercept are the same
    weighted mean of the leaves' coefficients and intercepts. Nodes 0 … P−1 are the outcomes themselves. Continuous
    outcomes enter the mean in units of their standard deviation, from their mean, as they do in the model.
    """

    coef_draws: Floats  # (C, S, P, K)
    intercept_draws: Floats  # (C, S, P)
    tree: Tree | None  # maximum clade credibility; None for a single outcome
    posterior: TreePosterior | None  # the kept trees, equally weighted
    node_weights: Floats  # (2P−1, P)
    covariance: Floats  # (K, K), Φ: the inverse of its posterior mean precision
    trace: dict[str, Floats]  # each (C, n_iter), burn-in included
    diagnostics: dict[str, Any]
    families: Families  # of the P outcomes
    units: Floats  # (2, P), centre and width of outcomes: 0 and 1, but mean and deviation of continuous ones
    residual_sd: Floats  # (P,), of continuous outcomes given the features; NaN for others
    outcome_names: tuple[str, ...] | None
    info: dict[str, Any]

    @property
    def coef(self) -> Floats:
        """Posterior mean of β, (P, K)."""
        return np.asarray(self.coef_draws.mean(axis=(0, 1), dtype=np.float64))

    @property
    def intercept(self) -> Floats:
        """Posterior mean of μ, (P,)."""
        return np.asarray(self.intercept_draws.mean(axis=(0, 1), dtype=np.float64))

    @property
    def node_coef(self) -> Floats:
        """Coefficients of all nodes, (2P−1, K); the first P are `coef`, others in standard units of outcomes."""
        coef = self.coef
        nodes: Floats = self.node_weights @ (coef / self.units[1][:, None])
        nodes[: len(coef)] = coef
        return nodes

    @property
    def node_intercept(self) -> Floats:
        """Intercepts of all nodes, (2P−1,)."""
        intercept = self.intercept
        nodes: Floats = self.node_weights @ ((intercept - self.units[0]) / self.units[1])
        nodes[: len(intercept)] = intercept
        return nodes

    @cached_property
    def convergence(self) -> Convergence:
        """What the chains say about themselves; its `verdict` is what the warning, the terminal and the report say."""
        n_chains, n_draws, n_outcomes = self.coef_draws.shape[:3]
        names = self.outcome_names or tuple(map(str, range(n_outcomes)))
        kept = self.info["burn_in"] + self.info["thin"] * np.arange(1, n_draws + 1) - 1
        return diagnose(
            {name: self.trace[name][:, kept] for name in JUDGED if not np.isnan(self.trace[name]).any()},
            None if self.posterior is None else self.posterior.children,
            n_chains,
            n_draws,
            JUDGED,
            OUTCOMES,
            judge_coefficients(self.diagnostics["theta_r_hat"], self.diagnostics["theta_bulk_ess"], names),
        )

    def __repr__(self) -> str:
        chains, draws, n_outcomes, n_features = self.coef_draws.shape
        return (
            f"RegressionFit(n_outcomes={n_outcomes}, n_features={n_features}, n_draws={chains * draws}, "
            f"r_hat={self.diagnostics['r_hat']:.3f}, bulk_ess={self.diagnostics['bulk_ess']:.0f})"
        )

    def linear_predictor(self, X: Any) -> Floats:
        """μ + xβ at the posterior mean, (N, P)."""
        return np.asarray(self._check(X) @ self.coef.T + self.intercept)

    def predict_proba(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean probability of an event, (N, P); with `return_std`, also its posterior deviation.

        For counts it is the probability of at least one event in one unit of exposure, and NaN for continuous outcomes.
        """
        return self._predict(self._check(X), None, return_std, _probability)

    def predict_mean(self, X: Any, exposure: Any = None, return_std: bool = False) -> Any:
        """Posterior mean of the expected outcome, (N, P): a probability, a number of events, or the outcome itself.

        Events are those in `exposure`, (N,) or (N, P), by default one unit.
        """
        result = self._predict(self._check(X), None, return_std, _mean)
        if exposure is None:
            return result
        mean = result[0] if return_std else result
        factor = as_exposure(exposure, np.zeros(mean.shape), self.families, self.outcome_names)[0]
        return tuple(part * factor for part in result) if return_std else mean * factor

    def predict_node(self, X: Any, node: int, return_std: bool = False) -> Any:
        """Posterior mean of the expected outcome under the model of one node of `tree`, (N,).

        It is a probability, a number of events in one unit of exposure, or a continuous outcome, for inner nodes in
        standard deviations from the mean. Outcomes below the node must be of one family.
        """
        weights = self.weights_of_node(node)
        below = {self.families[j] for j in np.flatnonzero(weights[0])}
        if len(below) > 1:
            raise InputError(
                f"node {node} joins outcomes of several families ({', '.join(sorted(each.name for each in below))}), "
                "which have no prediction in common. Use its coefficients, node_coef and node_intercept."
            )
        result = self._predict(self._check(X), weights, return_std, _mean, tuple(below), node < len(self.families))
        return tuple(part[:, 0] for part in result) if return_std else result[:, 0]

    def weights_of_node(self, node: int) -> Floats:
        """The weights of outcomes in a node's model, (1, P)."""
        n_nodes = len(self.node_weights)
        if not 0 <= check_count(node, "node", at_least=0) < n_nodes:
            raise InputError(f"node must be below {n_nodes}, the number of nodes of the tree, got {node}.")
        return self.node_weights[[node]]

    def _check(self, X: Any) -> Any:
        array, n_features = as_features(X), self.coef_draws.shape[-1]
        if array.shape[1] != n_features:
            raise InputError(f"X has {array.shape[1]} columns, but the model was fitted with {n_features}.")
        return array if self.info.get("covariance") == "diagonal" else dense(array)

    def _predict(
        self,
        X: Any,
        node_weights: Floats | None,
        return_std: bool,
        transform: Callable[[Family, Floats], Floats],
        families: Families | None = None,
        in_units: bool = True,
    ) -> Any:
        coef = self.coef_draws.reshape(-1, *self.coef_draws.shape[2:])
        intercept = self.intercept_draws.reshape(len(coef), -1)
        chosen = np.linspace(0, len(coef) - 1, min(len(coef), N_PREDICTIVE)).round().astype(int)
        coef, intercept = coef[chosen].astype(np.float64), intercept[chosen].astype(np.float64)
        if node_weights is not None:
            if not in_units:
                coef, intercept = coef / self.units[1][:, None], (intercept - self.units[0]) / self.units[1]
            coef, intercept = node_weights @ coef, intercept @ node_weights.T
        n_draws, n_models, n_features = coef.shape
        columns, constants = coef.reshape(-1, n_features).T, intercept.ravel()
        mean, deviation = np.empty((X.shape[0], n_models)), np.empty((X.shape[0], n_models))
        groups = grouped(families or self.families)
        size = max(1, BLOCK // len(constants))
        for first in range(0, X.shape[0], size):
            block = slice(first, first + size)
            eta = (X[block] @ columns + constants).reshape(-1, n_draws, n_models)
            if len(groups) == 1:
                values = transform(groups[0][0], eta)
            else:
                values = np.empty_like(eta)
                for family, own in groups:
                    values[..., own] = transform(family, eta[..., own])
            mean[block] = values.mean(axis=1)
            if return_std:
                deviation[block] = values.std(axis=1)
        return (mean, deviation) if return_std else mean


def _mean(family: Family, eta: Floats) -> Floats:
    return family.mean(eta)


def _probability(family: Family, eta: Floats) -> Floats:
    return family.probability(eta)


def fit_regression(
    X: Any,
    Y: Any,
    *,
    family: Chosen = "probit",
    sample_weight: Any = None,
    exposure: Any = None,
    method: str = "hmc",
    n_iter: int = 1000,
    burn_in: int = 200,
    thin: int = 1,
    n_chains: int = 2,
    scale: float = 1.0,
    covariance: CovarianceFamily | str = "auto",
    widths: Any = None,
    n_jobs: int | None = None,
    random_state: RandomState = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    outcome_names: Sequence[str] | None = None,
    progress: bool = False,
) -> RegressionFit:
    """Fit all outcomes together: y_ij depends on η_ij = μ_j + x_i β_j, the β_j leaves of a coalescent tree.

    The model is described in `coaltree.regression.prior`, the sampler in `chain` and `moves.coefficients`.

    Parameters
    ----------
    X : array-like or sparse matrix (N, K)
        Features. They are centred and scaled internally, and results are given in their original units.
    Y : array-like (N, P)
        Outcomes, NaN where a label is missing. Outcomes that have nothing to explain, such as a single class, are named
        in a warning and predicted by their smoothed rate, (events + ½)/(labels + 1).
    family : str, or one per outcome
        What the outcomes are, a name in `coaltree.regression.families`: "probit", "logit", "poisson", …. One name for
        all, a sequence in the order of the columns of Y, or a mapping by the names of the outcomes.
    sample_weight : array-like (N,) or (N, P), optional
        Case weights, of rows or of single labels: a weight of 2 counts a label twice, its exposure included.
    exposure : array-like (N,) or (N, P), optional
        Time at risk of counts, by default 1; it has no effect on outcomes of other families. Labels without any time at
        risk are left out.
    method : {"hmc", "albert-chib"}
        How coefficients are drawn: without latent variables, or by the reference method of Albert and Chib (probit
        without weights only), which mixes far more slowly.
    n_iter, burn_in : int
        Iterations of every chain, and how many of them to drop.
    thin : int
        Keep every `thin`-th of the others.
    n_chains : int
        Number of chains, started independently.
    scale : float
        Scale of the half-t priors on the two widths of coefficients of standardised features: of their common level,
        and of their differences. Both widths are learned; any scale near or above the truth will do.
    covariance : {"auto", "full", "diagonal"} or CovarianceFamily
        "diagonal": every feature has its own width, learned with heavy tails, suitable for hundreds to thousands of
        features; sparse X stays sparse. "full": an inverse Wishart with learned width, or another family. "auto": full
        up to 10 features and 300 intercepts and coefficients in all.
    widths : array-like (K,), optional
        How wide the prior of each standardised feature's coefficients is relative to others'; default: all alike.
    n_jobs : int, optional
        Number of chains run in parallel: as threads, or wherever ``joblib.parallel_config`` sends them. The result
        does not depend on it.
    random_state : int, Generator, …
        Seed.
    checkpoint : path, optional
        File that is written from time to time, at least ten seconds apart, and at the end. If it exists, its run is
        continued, and ends as it would have without interruption; a finished run can be extended with a larger
        `n_iter`.
    outcome_names : sequence of str, optional
        Names of the outcomes. Default: the columns of Y if it is a DataFrame.
    progress : bool
        Show a progress bar. Ctrl-C ends the run early and keeps the iterations done so far.

    Returns
    -------
    RegressionFit

    Warns
    -----
    sklearn.exceptions.ConvergenceWarning
        The chains have not converged (`RegressionFit.convergence`); the message says in what, and what to do.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> Y = (X @ [[1.0, 1.0, -1.0], [0.0, 0.2, 0.5], [0.0, 0.0, 0.0]] + rng.normal(size=(300, 3)) > 0).astype(int)
    >>> fit = fit_regression(X, Y, n_iter=120, burn_in=60, n_chains=1)
    >>> fit.coef.shape, fit.tree.n_leaves, fit.predict_proba(X).shape
    ((3, 3), 3, (300, 3))
    """
    n_iter = check_count(n_iter, "n_iter", at_least=1)
    burn_in = check_count(burn_in, "burn_in", at_least=0)
    if burn_in >= n_iter:
        raise InputError(f"burn_in must be below n_iter = {n_iter}, got {burn_in}.")
    thin = check_count(thin, "thin", at_least=1)
    if thin > n_iter - burn_in:
        raise InputError(f"thin must not exceed n_iter − burn_in = {n_iter - burn_in}, got {thin}.")
    n_chains = check_count(n_chains, "n_chains", at_least=1)
    if n_jobs is not None and n_jobs != -1:
        check_count(n_jobs, "n_jobs", at_least=1)
    check_choice(method, "method", METHODS)
    scale = check_positive(scale, "scale")
    names = _outcome_names(Y, outcome_names)
    wide = None
    if isinstance(covariance, str):
        wide = {"auto": None, "full": False, "diagonal": True}[check_choice(covariance, "covariance", COVARIANCES)]
    if method == ALBERT_CHIB or not isinstance(covariance, str):
        if wide:
            raise InputError('method="albert-chib" needs covariance="full". Use method="hmc".')
        wide = False
    prepared = prepare(X, Y, sample_weight, exposure, family, names, wide, widths)
    if method == ALBERT_CHIB and (set(prepared.families) != {PROBIT} or sample_weight is not None):
        raise InputError('method="albert-chib" needs family="probit" and no sample_weight. Use method="hmc".')
    options = Options(method, n_iter, burn_in, thin, n_chains, scale)
    given = None if isinstance(covariance, str) else covariance
    fit = fit_prepared(prepared, options, names, given, n_jobs, random_state, checkpoint, progress)
    _warn_if_unconverged(fit)
    return fit


class Options(NamedTuple):
    """How a fit runs: arguments of `fit_regression`, checked."""

    method: str = "hmc"
    n_iter: int = 1000
    burn_in: int = 200
    thin: int = 1
    n_chains: int = 2
    scale: float = 1.0


def fit_prepared(
    prepared: Prepared,
    options: Options,
    names: tuple[str, ...] | None = None,
    covariance: CovarianceFamily | None = None,
    n_jobs: int | None = None,
    random_state: RandomState = 0,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> RegressionFit:
    """Run the chains and combine them."""
    prior = wide_prior(options.scale) if prepared.wide else default_prior(options.scale)
    if covariance is not None:
        prior = prior._replace(family=covariance)
    settings = Settings(options.burn_in, options.method, options.thin)
    generators = as_generator(random_state).spawn(options.n_chains)
    chains = run_chains(prepared.likelihood, prior, settings, options.n_iter, generators, n_jobs, progress, checkpoint)
    info = {
        "version": __version__,
        "family": as_setting(prepared.families),
        **options._asdict(),
        "covariance": "diagonal" if prepared.wide else "full",
        "random_state": seed_of(random_state),
    }
    return _gather(chains, prepared, names, info)


def _warn_if_unconverged(fit: RegressionFit) -> None:
    if not fit.convergence.converged:
        from sklearn.exceptions import ConvergenceWarning  # slow to import

        warnings.warn(fit.convergence.verdict, ConvergenceWarning, stacklevel=3)


def _outcome_names(Y: Any, given: Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        columns = getattr(Y, "columns", None)
        given = None if columns is None else [str(column) for column in columns]
    names = None if given is None else tuple(given)
    if names is not None and len(set(names)) < len(names):
        raise InputError("outcome_names must be distinct: they name the leaves of the tree.")
    return names


def _gather(
    chains: list[Chain],
    prepared: Prepared,
    names: tuple[str, ...] | None,
    info: dict[str, Any],
) -> RegressionFit:
    """Combine the chains. After an interruption they may differ in length: all are cut to the shortest."""
    n_kept = min(len(chain.draws["theta"]) for chain in chains)
    n_done = min(len(chain.trace["n_steps"]) for chain in chains)
    draws = {name: np.array([chain.draws[name][:n_kept] for chain in chains]) for name in chains[0].draws}
    trace = {name: np.array([chain.trace[name][:n_done] for chain in chains]) for name in chains[0].trace}
    theta, fitted = draws["theta"], prepared.scale.fitted
    n_outcomes = theta.shape[2]
    kept = info["burn_in"] + info["thin"] * np.arange(1, n_kept + 1) - 1
    diagnostics = _diagnose(theta, {name: values[:, kept] for name, values in trace.items()}, fitted)
    intercept, coef = prepared.undo(theta)

    varying = prepared.scaling.varying
    inverse_width = np.divide(1.0, prepared.scaling.width, out=np.zeros_like(prepared.scaling.width), where=varying)
    phi = np.zeros((len(varying), len(varying)))
    tree, posterior, node_weights = None, None, np.ones((1, 1))
    if n_outcomes == 1:
        # With no differences there is no covariance of them: use the spread of the coefficients themselves.
        spread = np.mean(draws["spread"] ** 2, axis=(0, 1))  # one number, or one per feature
        phi[np.ix_(varying, varying)] = np.eye(int(varying.sum())) * spread
    else:
        n_precisions = sum(len(chain.draws["theta"]) for chain in chains)
        mean_precision = np.sum([chain.precision_sum for chain in chains], axis=0) / n_precisions
        full = mean_precision.ndim == 2
        phi[np.ix_(varying, varying)] = np.linalg.inv(mean_precision) if full else np.diag(1.0 / mean_precision)
        ess = effective_size(draws["times"])
        posterior = TreePosterior(
            children=draws["children"].reshape(-1, n_outcomes - 1, 2),
            times=draws["times"].reshape(-1, n_outcomes - 1),
            weights=np.full(len(chains) * n_kept, 1.0 / (len(chains) * n_kept)),
            log_evidence=np.nan,  # Markov chains do not estimate it
            log_joint=trace["log_joint"][:, kept].ravel(),
            ess_per_step=np.where(np.isnan(ess), 1.0, ess),
            names=names,
            info=info,
        )
        tree = posterior.mcc_tree()
        # An outcome without data says nothing about its ancestors.
        noise = np.where(fitted, np.median(draws["leaf_noise"]), 1e12 * (1.0 + float(tree.times[-1])))
        node_weights = messages(tree, np.eye(n_outcomes), noise).mean
    return RegressionFit(
        coef_draws=coef,
        intercept_draws=intercept,
        tree=tree,
        posterior=posterior,
        node_weights=node_weights,
        covariance=phi * np.outer(inverse_width, inverse_width),
        trace=trace,
        diagnostics=diagnostics,
        families=prepared.families,
        units=prepared.units,
        residual_sd=prepared.residual_sd(theta),
        outcome_names=names,
        info=info,
    )


def _diagnose(theta: Floats, trace: dict[str, Floats], fitted: Bools) -> dict[str, Any]:
    """R̂ and bulk effective sample size of every intercept and coefficient of the fitted outcomes."""
    outcomes = range(theta.shape[2])  # one by one: thousands of coefficients at once take many times the memory
    ratio, size = (np.stack([measure(theta[:, :, j]) for j in outcomes]) for measure in (r_hat, effective_size))
    ratio[~fitted], size[~fitted] = np.nan, np.nan
    return {
        "r_hat": _worst(np.max, ratio),
        "bulk_ess": _worst(np.min, size),
        "acceptance": float(trace["acceptance"].mean()),
        "n_steps": float(trace["n_steps"].mean()),
        "theta_r_hat": ratio,  # (P, 1 + varying features), intercepts first
        "theta_bulk_ess": size,
    }


def _worst(choose: Callable[[Floats], Any], values: Floats) -> float:
    """The largest or smallest finite value; NaN if there is none."""
    known = values[np.isfinite(values)]
    return float(choose(known)) if known.size else math.nan
