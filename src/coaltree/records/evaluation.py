"""Fits of a study, each saved to a file when done, so that an interrupted study resumes where it stopped."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from coaltree import storage
from coaltree._arrays import Floats, Ints
from coaltree._version import __version__
from coaltree.errors import InputError
from coaltree.records.config import FACTORS_ALONE, NARROW, PROBIT, RIDGE_ALL, ModelConfig, StudyConfig
from coaltree.records.dataset import Period, StudyData
from coaltree.records.factors import CodeFactors, beside_codes
from coaltree.records.features import Counts, bare_code
from coaltree.records.labels import Labels
from coaltree.records.widths import GroupRidge, choose_width, relative_widths
from coaltree.regression.baselines import BASELINES
from coaltree.regression.comparison import Comparison, compare
from coaltree.regression.fit import N_PREDICTIVE, RegressionFit, fit_regression
from coaltree.regression.folds import stratified_folds
from coaltree.regression.preparation import dense
from coaltree.tree import Tree
from coaltree.validation import check_part

Arrays = dict[str, npt.NDArray[Any]]

KIND = "coaltree.StudyFit"
TEMPORAL = -1  # the fit on all training subjects, applied to the second cohort


class Store:
    """A folder of finished results; each file is written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str, compute: Callable[[], Arrays], check: Callable[[Arrays], None]) -> Arrays:
        """Return the result stored under a name if it passes the check, or compute and store it."""
        file = self.folder / f"{name}.npz"
        try:
            found = storage.read(file, KIND)
            with storage.decoding(file, "fit"):
                check(found)
            return found
        except (OSError, InputError):  # not there, or damaged
            pass
        result = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        storage.write(file, result, {}, KIND)
        return result


@dataclasses.dataclass(frozen=True)
class Task:
    """One training set with one set to predict: a fold, or the temporal validation."""

    number: int
    train: Counts
    labels: Floats
    weights: Floats | None
    new: Counts
    store: Path
    config: StudyConfig
    names: tuple[str, ...]
    events: Floats | None = None  # and exposure, where outcomes are times at risk
    exposure: Floats | None = None

    def keep(self, name: str, compute: Callable[[], Arrays], check: Callable[[Arrays], None]) -> Arrays:
        """Return this task's result stored under a name, or compute and store it."""
        label = "temporal" if self.number == TEMPORAL else f"fold-{self.number:02d}"
        return Store(self.store).get(f"{label}-{name}", compute, check)

    def features(self) -> Arrays:
        """Factors of both sets, fitted to the training set, and the names of single codes beside them."""
        return self.keep("features", partial(_factors, self), partial(_check_factors, self))


def regressors(features: Arrays, which: str, counts: Counts) -> Any:
    """Return all regressors of the "train" or "new" subjects; a sparse matrix if there are single codes."""
    return beside_codes(features[which], counts, [str(code) for code in features["singles"]])


def _widths(features: Arrays) -> Floats:
    """Relative widths of all regressors, (K,)."""
    return relative_widths(features["train"].shape[1], len(features["singles"]), float(features["width"]))


def family_of(config: StudyConfig) -> str:
    """The family of outcomes in the regression."""
    return "poisson" if config.model.outcomes == "time" else "probit"


def at_risk(labels: Labels, config: StudyConfig) -> tuple[Floats, Floats] | tuple[None, None]:
    """Return events and exposures where outcomes are times at risk."""
    if config.model.outcomes == "binary":
        return None, None
    assert labels.exposure is not None
    return np.where(labels.exposure > 0.0, labels.events, np.nan), labels.exposure


def methods(config: StudyConfig) -> tuple[str, ...]:
    """Names of the methods of a study, the probit first; where there are single codes, what factors alone would do."""
    told = (RIDGE_ALL, FACTORS_ALONE) if config.has_singles else ()
    return tuple(dict.fromkeys((PROBIT, *config.model.baselines, *told)))


def sees_codes(method: str, config: StudyConfig) -> bool:
    """Whether a method has single codes beside the factors."""
    return config.has_singles and method not in (*NARROW, FACTORS_ALONE)


def _settings(model: ModelConfig) -> str:
    """A short hash of everything the probit's results depend on."""
    return storage.fingerprint(model.n_iter, model.burn_in, model.n_chains, model.covariance, model.outcomes)[:8]


def _factors(task: Task) -> Arrays:
    settings = task.config.features
    singles = task.config.has_singles
    model = CodeFactors(settings.n_factors, settings.min_subjects, settings.transformer, task.config.seed, singles)
    train, new = model.fit_transform(task.train), model.transform(task.new)
    n_factors = model.n_regressors - len(model.single_codes_)
    width = 0.0
    if model.single_codes_:
        width = choose_width(train, n_factors, task.labels, task.weights, task.config.seed)
    if width == 0.0:
        model.single_codes_ = ()
    top = model.top_codes(10)
    found = {
        "train": dense(train[:, :n_factors]),
        "new": dense(new[:, :n_factors]),
        "singles": np.array(model.single_codes_, dtype=str),
        "width": np.array(width),
        "top_code": np.array([[code for code, _ in row] for row in top], dtype=str),
        "top_share": np.array([[share for _, share in row] for row in top]),
        "n_codes": np.array(len(model.codes_)),
        "extra_names": np.array(model.extra_names_, dtype=str),
    }
    if task.number == TEMPORAL:
        found |= {f"state_{key}": value for key, value in model.state().items()}
    return found


def _check_factors(task: Task, found: Arrays) -> None:
    """Raise ValueError unless these can be the factors of a task."""
    n_factors = check_part(found["train"], "train", (task.train.matrix.shape[0], None)).shape[1]
    check_part(found["new"], "new", (task.new.matrix.shape[0], n_factors))
    shape = check_part(found["top_code"], "top_code", np.shape(found["top_code"]), "U").shape
    check_part(found["top_share"], "top_share", shape)
    check_part(found["n_codes"], "n_codes", (), "i")
    check_part(found["width"], "width", ())
    for name in ("extra_names", "singles"):
        check_part(found[name], name, (None,), "U")
    if task.number == TEMPORAL:
        CodeFactors.from_state(storage.below(found, "state_"))


def _check_fit(task: Task, method: str, found: Arrays) -> None:
    """Raise ValueError unless these can be the predictions of a method and, of the probit, its coefficients."""
    n_new, n_outcomes = task.new.matrix.shape[0], task.labels.shape[1]
    check_part(found["probability"], "probability", (n_new, n_outcomes))
    check_part(found["score"], "score", (n_new, n_outcomes), finite=False)
    check_part(found["seconds"], "seconds", ())
    if method != PROBIT:
        return
    n_features = check_part(found["coef"], "coef", (n_outcomes, None)).shape[1]
    shapes: dict[str, tuple[int | None, ...]] = {
        "intercept": (n_outcomes,),
        "node_coef": (2 * n_outcomes - 1, n_features),
        "node_intercept": (2 * n_outcomes - 1,),
    }
    if task.number == TEMPORAL:
        n_draws = len(found["coef_draws"])
        shapes |= {"coef_draws": (n_draws, n_outcomes, n_features), "intercept_draws": (n_draws, n_outcomes)}
    if n_outcomes > 1:
        shapes |= dict.fromkeys(("times", "support", "support_error", "exact", "exact_error"), (n_outcomes - 1,))
        shapes |= {"node_weights": (2 * n_outcomes - 1, n_outcomes)}
        Tree(found["children"], found["times"])
    for name, shape in shapes.items():
        check_part(found[name], name, shape)
    for name, kind in {"r_hat": "f", "bulk_ess": "f", "converged": "b", "verdict": "U"}.items():
        check_part(found[name], name, (), kind, finite=False)


def with_name(label: str, names: Mapping[str, str]) -> str:
    """Return the name of a column with the meaning of its code, if known."""
    name = names.get(bare_code(label))
    return label if name is None else f"{bare_code(label)} {name}{label[len(bare_code(label)) :]}"


def feature_names(features: Arrays, names: Mapping[str, str]) -> list[str]:
    """Describe each regressor: a factor with its two heaviest codes, a column, or an additional regressor."""
    found = []
    for k, codes in enumerate(features["top_code"]):
        texts = [with_name(str(code), names) for code in codes[:2]]
        found.append(texts[0] if len(codes) == 1 else f"factor {k + 1}: {', '.join(texts)}, …")
    others = [*features["extra_names"], *features["singles"]]
    return [*found, *(with_name(str(name), names) for name in others)]


def _fit(task: Task, method: str) -> Arrays:
    """Fit one method to the training set and predict the other set."""
    from threadpoolctl import threadpool_limits

    features = task.features()
    started = time.perf_counter()
    with threadpool_limits(1), warnings.catch_warnings():  # fits run side by side; small matrices lose time to threads
        # An outcome with one class in a fold is NA in the tables; convergence is in the report.
        warnings.simplefilter("ignore")
        if method == PROBIT:
            result = _fit_probit(task, features)
        else:
            train, new = features["train"], features["new"]
            if sees_codes(method, task.config):
                train, new = (dense(regressors(features, *part)) for part in (("train", task.train), ("new", task.new)))
            ridge = method in (RIDGE_ALL, FACTORS_ALONE)
            model = GroupRidge(_widths(features)[: train.shape[1]]) if ridge else BASELINES[method]()
            model.fit(train, task.labels, task.weights)
            result = {"probability": model.predict_proba(new), "score": model.decision_function(new)}
    return {**result, "seconds": np.array(time.perf_counter() - started)}


def _fit_probit(task: Task, features: Arrays) -> Arrays:
    settings, new = task.config.model, regressors(features, "new", task.new)
    timed = task.events is not None and task.exposure is not None
    fit = fit_regression(
        regressors(features, "train", task.train),
        task.events if timed else task.labels,
        family=family_of(task.config),
        sample_weight=None if timed else task.weights,
        exposure=task.exposure,
        covariance=settings.covariance,
        widths=_widths(features),
        n_iter=settings.n_iter,
        burn_in=settings.burn_in,
        n_chains=1 if len(features["singles"]) and task.number != TEMPORAL else settings.n_chains,
        random_state=np.random.SeedSequence([task.config.seed, task.number + 1]),
        outcome_names=task.names,
    )
    result = {
        "probability": fit.predict_proba(new),
        "score": fit.linear_predictor(new),
        "node_coef": fit.node_coef,
        "node_intercept": fit.node_intercept,
        "coef": fit.coef,
        "intercept": fit.intercept,
        "r_hat": np.array(fit.diagnostics["r_hat"]),
        "bulk_ess": np.array(fit.diagnostics["bulk_ess"]),
        "converged": np.array(fit.convergence.converged),
        "verdict": np.array(fit.convergence.verdict),
    }
    if task.number == TEMPORAL:
        result |= thinned_draws(fit)
    if fit.tree is not None and fit.posterior is not None:
        result |= {
            "children": fit.tree.children,
            "times": fit.tree.times,
            "support": np.asarray(fit.posterior.expected_overlap(fit.tree)),
            "support_error": np.asarray(fit.posterior.overlap_error(fit.tree)),
            "exact": fit.posterior.clade_support(fit.tree),
            "exact_error": fit.posterior.support_error(fit.tree),
            "node_weights": fit.node_weights,
        }
    return result


def thinned_draws(fit: RegressionFit) -> Arrays:
    """Return the draws whose mean is the predicted probabilities."""
    coef = fit.coef_draws.reshape(-1, *fit.coef_draws.shape[2:])
    intercept = fit.intercept_draws.reshape(len(coef), -1)
    chosen = np.linspace(0, len(coef) - 1, min(len(coef), N_PREDICTIVE)).round().astype(int)
    return {"coef_draws": coef[chosen], "intercept_draws": intercept[chosen]}


@dataclasses.dataclass(eq=False)
class StudyModel:
    """A method of a study as a pipeline for `compare`: rows of a cohort → factors of their codes → predictions.

    X holds numbers of rows, (n, 1). The factors of a fold are fitted to its training rows once for all methods.
    """

    method: str
    counts: Counts
    labels: Floats
    weights: Floats | None
    folds: Ints
    store: Path
    config: StudyConfig
    names: tuple[str, ...]
    events: Floats | None = None
    exposure: Floats | None = None

    def task(self, fold: int) -> Task:
        """Return the training rows and the held-out rows of a fold."""
        train, new = self.folds != fold, self.folds == fold
        weights, events, exposure = (
            None if part is None else part[train] for part in (self.weights, self.events, self.exposure)
        )
        parts = self.counts.take(train), self.labels[train], weights, self.counts.take(new)
        return Task(fold, *parts, self.store, self.config, self.names, events, exposure)

    def get_params(self, deep: bool = True) -> dict[str, str]:
        """Return what distinguishes this model's kept fits from others."""
        return {"data": self.store.name, "settings": _settings(self.config.model) if self.method == PROBIT else ""}

    def fit(self, X: Floats, Y: Floats, sample_weight: Floats | None = None) -> Self:
        """Fit to the training rows of a fold, with their weights."""
        (fold,) = np.setdiff1d(self.folds, self.folds[X[:, 0].astype(np.int64)])
        self.predictions_ = _fit(self.task(int(fold)), self.method)
        return self

    def predict_proba(self, X: Floats) -> Floats:
        """Return the probabilities of the held-out rows, (n, P)."""
        return self.predictions_["probability"]

    def decision_function(self, X: Floats) -> Floats:
        """Return the scores of the held-out rows, (n, P)."""
        return self.predictions_["score"]


def cross_validate(data: StudyData, config: StudyConfig, private: Path, n_jobs: int, progress: bool) -> Comparison:
    """Out-of-fold predictions of every method in the training cohort, with factors fitted within each fold."""
    period, n_folds = data.periods[0], config.validation.n_folds
    Y = period.labels.Y
    folds = stratified_folds(Y, n_folds, config.seed)
    store = private / "fits" / _digest(period, config, folds)
    shared = period.counts, Y, period.labels.weights, folds, store, config, data.outcomes.names
    shared = *shared, *at_risk(period.labels, config)
    models = {method: StudyModel(method, *shared) for method in methods(config)}
    tasks = (models[PROBIT].task(fold) for fold in range(n_folds))
    for _ in _side_by_side(((Task.features, task) for task in tasks), n_folds, n_jobs, progress, "Factors"):
        pass  # kept in files
    return compare(
        models,
        np.arange(len(Y), dtype=np.float64)[:, None],
        Y,
        n_folds=n_folds,
        random_state=config.seed,
        n_jobs=n_jobs,
        progress=progress,
        checkpoint=store,
        outcomes=data.outcomes.names,
        n_resamples=config.validation.n_resamples,
        sample_weight=period.labels.weights,
    )


def fit_all(
    data: StudyData, config: StudyConfig, private: Path, n_jobs: int = 1, progress: bool = False
) -> tuple[dict[str, Arrays], Comparison | None]:
    """Fit to the whole training cohort; with a second cohort, its predictions as a comparison."""
    period, last = data.periods[0], data.periods[-1]
    store = private / "fits" / _digest(period, config, last.labels.cohort.subject)
    labels = period.labels
    parts = period.counts, labels.Y, labels.weights, last.counts, store, config, data.outcomes.names
    task = Task(TEMPORAL, *parts, *at_risk(labels, config))
    chosen = methods(config)
    runs = _side_by_side(((_whole, task, method) for method in chosen), len(chosen), n_jobs, progress, "Whole cohort")
    results = dict(zip(chosen, runs, strict=True))
    results["features"] = task.features()
    if len(data.periods) == 1:
        return results, None
    comparison = Comparison(
        chosen,
        data.outcomes.names,
        last.labels.Y,
        np.zeros(len(last.labels.Y), dtype=np.int64),
        np.stack([results[method]["probability"] for method in chosen]),
        np.stack([results[method]["score"] for method in chosen]),
        np.array([[float(results[method]["seconds"])] for method in chosen]),
        config.validation.n_resamples,
        config.seed,
        last.labels.weights,
    )
    return results, comparison


def _digest(period: Period, config: StudyConfig, which: npt.NDArray[Any]) -> str:
    matrix = period.counts.matrix
    settings = [
        dataclasses.asdict(config.features),
        config.has_singles,
        config.seed,
        list(period.counts.codes),
        period.counts.extra_names,
    ]
    settings.append(__version__)  # another may keep other things of a fit
    extra = np.empty(0) if period.counts.extra is None else period.counts.extra
    labels = period.labels.Y, period.labels.weights, *at_risk(period.labels, config)
    return storage.fingerprint(matrix.data, matrix.indices, matrix.indptr, extra, *labels, which, settings)[:16]


def _whole(task: Task, method: str) -> Arrays:
    """Fit one method to the whole training cohort, or return the kept fit."""
    name = method + (f"-{_settings(task.config.model)}" if method == PROBIT else "")
    return task.keep(name, partial(_fit, task, method), partial(_check_fit, task, method))


def _side_by_side(
    calls: Iterable[tuple[Any, ...]], n_calls: int, n_jobs: int, progress: bool, title: str
) -> Iterator[Arrays]:
    """Yield the results of functions with their arguments, in order."""
    from joblib import Parallel, delayed
    from tqdm.auto import tqdm

    runs = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(function)(*arguments) for function, *arguments in calls
    )
    yield from tqdm(runs, title, n_calls, disable=not progress)
