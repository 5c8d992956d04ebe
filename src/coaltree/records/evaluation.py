"""Fits of a study, each kept in a file when it is done, so that an interrupted study takes up where it was."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree.posterior import storage
from coaltree.records.config import ModelConfig, StudyConfig
from coaltree.records.features import CodeFactors, Counts
from coaltree.records.preparing import Period, StudyData
from coaltree.regression.baselines import BASELINES
from coaltree.regression.comparison import Comparison
from coaltree.regression.fit import fit_probit
from coaltree.regression.folds import stratified_folds

Floats = npt.NDArray[np.float64]
Arrays = dict[str, npt.NDArray[Any]]

KIND = "coaltree.StudyFit"
PROBIT = "coalescent_probit"
TEMPORAL = -1  # the fit on all training subjects, applied to the second cohort


class Store:
    """A folder of finished results; each file is written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str, compute: Callable[[], Arrays]) -> Arrays:
        """Return what is kept under a name, or compute and keep it."""
        file = self.folder / f"{name}.npz"
        try:
            return storage.read(file, KIND)
        except (OSError, ValueError):  # not there, or damaged
            pass
        result = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        storage.write(file, result, {}, KIND)
        return result


def fingerprint(*parts: Any) -> str:
    """Sixteen hexadecimal digits of arrays and JSON values."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(str((part.shape, part.dtype.str)).encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(json.dumps(part, sort_keys=True, default=str).encode())
    return digest.hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Task:
    """One training set with one set to predict: a fold, or the temporal validation."""

    number: int
    train: Counts
    labels: Floats
    new: Counts
    store: Path
    config: StudyConfig
    names: tuple[str, ...]


def methods(config: StudyConfig) -> tuple[str, ...]:
    """Names of the methods of a study, the probit first."""
    return (PROBIT, *config.model.baselines)


def run_task(task: Task) -> dict[str, Arrays]:
    """Fit every method to the training set and predict the others: arrays by method."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # folds run side by side, and small matrices lose time to threads
        return _run_methods(task)


def _run_methods(task: Task) -> dict[str, Arrays]:
    store = Store(task.store)
    label = "temporal" if task.number == TEMPORAL else f"fold-{task.number:02d}"
    factors: dict[str, Arrays] = {}

    def features() -> Arrays:
        if not factors:
            factors["kept"] = store.get(f"{label}-features", lambda: _factors(task))
        return factors["kept"]

    results = {}
    for method in methods(task.config):
        name = f"{label}-{method}" + (f"-{_settings(task.config.model)}" if method == PROBIT else "")
        results[method] = store.get(name, partial(_fit, task, method, features))
    if task.number == TEMPORAL:
        results["features"] = features()
    return results


def _settings(model: ModelConfig) -> str:
    """What the probit's results depend on, as a few digits."""
    return fingerprint([model.n_iter, model.burn_in, model.n_chains, model.n_particles])[:8]


def _factors(task: Task) -> Arrays:
    settings = task.config.features
    model = CodeFactors(settings.n_factors, settings.min_subjects, settings.transformer, task.config.seed)
    train = model.fit_transform(task.train)
    top = model.top_codes(10)
    return {
        "train": train,
        "new": model.transform(task.new),
        "top_code": np.array([[code for code, _ in row] for row in top]),
        "top_share": np.array([[share for _, share in row] for row in top]),
        "n_codes": np.array(len(model.codes_)),
    }


def _fit(task: Task, method: str, get_features: Callable[[], Arrays]) -> Arrays:
    features = get_features()
    started = time.perf_counter()
    with warnings.catch_warnings():
        # An outcome with one class in a fold is NA in the tables; convergence is in the report.
        warnings.simplefilter("ignore")
        if method == PROBIT:
            result = _fit_probit(task, features)
        else:
            model = BASELINES[method]().fit(features["train"], task.labels)
            result = {
                "probability": model.predict_proba(features["new"]),
                "score": model.decision_function(features["new"]),
            }
    return {**result, "seconds": np.array(time.perf_counter() - started)}


def _fit_probit(task: Task, features: Arrays) -> Arrays:
    settings = task.config.model
    fit = fit_probit(
        features["train"],
        task.labels,
        n_iter=settings.n_iter,
        burn_in=settings.burn_in,
        n_chains=settings.n_chains,
        n_particles=settings.n_particles,
        random_state=np.random.SeedSequence([task.config.seed, task.number + 1]),
        outcome_names=task.names,
    )
    result = {
        "probability": fit.predict_proba(features["new"]),
        "score": fit.linear_predictor(features["new"]),
        "node_coef": fit.node_coef,
        "node_intercept": fit.node_intercept,
        "r_hat": np.array(fit.diagnostics["r_hat"]),
        "bulk_ess": np.array(fit.diagnostics["bulk_ess"]),
    }
    if fit.tree is not None and fit.posterior is not None:
        result |= {
            "children": fit.tree.children,
            "times": fit.tree.times,
            "support": np.asarray(fit.posterior.clade_support(fit.tree)),
        }
    return result


def cross_validate(data: StudyData, config: StudyConfig, private: Path, n_jobs: int, progress: bool) -> Comparison:
    """Out-of-fold predictions of every method in the training cohort, factors fitted within each fold."""
    period = data.periods[0]
    Y = period.labels.Y
    folds = stratified_folds(Y, config.validation.n_folds, config.seed)
    store = private / "fits" / _digest(period, config, folds)
    names = data.outcomes.names
    tasks = []
    for fold in range(config.validation.n_folds):
        held_out = folds == fold
        tasks.append(Task(fold, _rows(period, ~held_out), Y[~held_out], _rows(period, held_out), store, config, names))
    chosen = methods(config)
    probability, score = np.full((2, len(chosen), *Y.shape), np.nan)
    seconds = np.zeros((len(chosen), len(tasks)))
    for task, result in _run(tasks, n_jobs, progress, "Cross-validation"):
        rows = folds == task.number
        for m, method in enumerate(chosen):
            probability[m, rows], score[m, rows] = result[method]["probability"], result[method]["score"]
            seconds[m, task.number] = float(result[method]["seconds"])
    return Comparison(chosen, names, Y, folds, probability, score, seconds, config.validation.n_resamples, config.seed)


def fit_all(data: StudyData, config: StudyConfig, private: Path) -> tuple[dict[str, Arrays], Comparison | None]:
    """Fit to the whole training cohort; with a second cohort, its predictions as a comparison."""
    period, last = data.periods[0], data.periods[-1]
    store = private / "fits" / _digest(period, config, last.labels.cohort.subject)
    everybody = np.ones(len(period.labels.Y), dtype=bool)
    new = _rows(last, np.ones(len(last.labels.Y), dtype=bool))
    task = Task(TEMPORAL, _rows(period, everybody), period.labels.Y, new, store, config, data.outcomes.names)
    results = run_task(task)
    if len(data.periods) == 1:
        return results, None
    chosen = methods(config)
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
    )
    return results, comparison


def _rows(period: Period, keep: npt.NDArray[np.bool_]) -> Counts:
    return Counts(period.counts.matrix[keep], period.counts.codes)


def _digest(period: Period, config: StudyConfig, which: npt.NDArray[Any]) -> str:
    matrix = period.counts.matrix
    settings = [dataclasses.asdict(config.features), config.seed, list(period.counts.codes)]
    return fingerprint(matrix.data, matrix.indices, matrix.indptr, period.labels.Y, which, settings)


def _run(tasks: list[Task], n_jobs: int, progress: bool, title: str) -> Any:
    """Yield tasks with their results, as they finish."""
    from joblib import Parallel, delayed
    from tqdm.auto import tqdm

    bar = tqdm(total=len(tasks), desc=title, disable=not progress)
    with bar:
        runs = Parallel(n_jobs=n_jobs, return_as="generator")(delayed(run_task)(task) for task in tasks)
        for task, result in zip(tasks, runs, strict=True):
            bar.update()
            yield task, result
