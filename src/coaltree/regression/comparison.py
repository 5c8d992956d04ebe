"""Models of many binary outcomes on the same folds: out-of-fold predictions, their scores, paired differences."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree import storage
from coaltree._arrays import Floats, Ints
from coaltree._version import __version__
from coaltree.errors import InputError
from coaltree.regression import scores
from coaltree.regression.encoding import as_outcomes
from coaltree.regression.folds import stratified_folds
from coaltree.regression.likelihood import as_columns
from coaltree.regression.preparation import as_weights
from coaltree.rows import Rows
from coaltree.validation import check_array, check_part, check_real

KIND = "coaltree.ComparisonFit"
N_RESAMPLES = 1000
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Comparison:
    """Out-of-fold predictions of M methods for N rows and P outcomes, and their scores.

    Areas under the ROC curve compare rows of the same fold only, because the scores of two folds come from two models;
    they use the linear predictor where a model has one. Intervals and differences are from one bootstrap of the rows
    that all methods and outcomes share, so differences are paired. An outcome without both classes has NaN everywhere.

    Attributes
    ----------
    methods : tuple of str
        Names of the methods.
    outcomes : tuple of str
        Names of the outcomes.
    Y : ndarray (N, P)
        Labels: 0, 1 or NaN.
    folds : ndarray (N,)
        The fold in which a row was held out.
    probability, score : ndarray (M, N, P)
        Out-of-fold probabilities, and linear predictors (or probabilities, for a model that has none).
    seconds : ndarray (M, n_folds)
        Time of each fit and its predictions.
    n_resamples : int
        Bootstrap resamples.
    seed : int
        Seed of the folds and of the bootstrap.
    weights : ndarray (N, P), optional
        How much each label counts in every score, such as `coaltree.records.censoring_weights`; by default all alike.
    """

    methods: tuple[str, ...]
    outcomes: tuple[str, ...]
    Y: Floats
    folds: Ints
    probability: Floats
    score: Floats
    seconds: Floats
    n_resamples: int = N_RESAMPLES
    seed: int = 0
    weights: Floats | None = None

    def weights_of(self, outcome: int) -> Floats | None:
        """Return the weights of the labels of one outcome, (N,), None if all count alike."""
        return None if self.weights is None else self.weights[:, outcome]

    @property
    def n_events(self) -> Ints:
        """Events of every outcome, (P,)."""
        return np.asarray(np.nansum(self.Y, axis=0).astype(np.int64))

    @cached_property
    def auroc(self) -> Floats:
        """Area under the ROC curve, (M, P)."""
        out = np.empty((len(self.methods), len(self.outcomes)))
        for m, j in np.ndindex(out.shape):
            out[m, j] = scores.auroc(self.Y[:, j], self.score[m, :, j], self.folds, self.weights_of(j))
        return out

    @cached_property
    def resampled_auroc(self) -> Floats:
        """Area under the ROC curve of bootstrap resamples, (M, P, B); the same resamples for all."""
        counts = scores.resample_counts(len(self.Y), self.n_resamples, self.seed)
        out = np.empty((len(self.methods), len(self.outcomes), self.n_resamples))
        for m, j in np.ndindex(out.shape[:2]):
            out[m, j] = scores.bootstrap_auroc(
                self.Y[:, j], self.score[m, :, j], self.folds, counts=counts, sample_weight=self.weights_of(j)
            )
        return out

    def intervals(self, level: float = LEVEL) -> Floats:
        """Bootstrap interval of every area under the ROC curve, (M, P, 2)."""
        return np.array([[scores.interval(values, level) for values in rows] for rows in self.resampled_auroc])

    def table(self, level: float = LEVEL) -> Rows:
        """Every score: one row per outcome and method, outcome by outcome."""
        intervals, rows = self.intervals(level), Rows()
        for j, outcome in enumerate(self.outcomes):
            for m, method in enumerate(self.methods):
                y, p, w = self.Y[:, j], self.probability[m, :, j], self.weights_of(j)
                calibration = scores.calibration(y, p, w)
                rows.append(
                    {
                        "outcome": outcome,
                        "method": method,
                        "n": int(np.count_nonzero(~np.isnan(y))),
                        "events": int(self.n_events[j]),
                        "auroc": float(self.auroc[m, j]),
                        "auroc_low": float(intervals[m, j, 0]),
                        "auroc_high": float(intervals[m, j, 1]),
                        "auprc": scores.auprc(y, p, w),
                        "brier": scores.brier(y, p, w),
                        "log_loss": scores.log_loss(y, p, w),
                        "calibration_intercept": calibration.intercept,
                        "calibration_slope": calibration.slope,
                    }
                )
        return rows

    def summary(self, outcomes: Sequence[int] | None = None, level: float = LEVEL) -> Rows:
        """Mean over outcomes (all, or those whose positions are given) of every score: one row per method."""
        columns = list(range(len(self.outcomes))) if outcomes is None else list(outcomes)
        detailed, rows = self.table(level), Rows()
        for m, method in enumerate(self.methods):
            mine = [detailed[j * len(self.methods) + m] for j in columns]
            low, high = scores.interval(_mean(self.resampled_auroc[m, columns]), level)
            row: dict[str, Any] = {
                "method": method,
                "auroc": _mean([r["auroc"] for r in mine]),
                "auroc_low": low,
                "auroc_high": high,
            }
            row |= {key: _mean([r[key] for r in mine]) for key in ("auprc", "brier", "log_loss")}
            row["calibration_slope"] = _median([r["calibration_slope"] for r in mine])
            row["seconds"] = float(np.nansum(self.seconds[m]))
            rows.append(row)
        return rows

    def differences(
        self, reference: str, outcomes: Sequence[int] | None = None, level: float = LEVEL, mean_only: bool = False
    ) -> Rows:
        """Area under the ROC curve of `reference` minus that of every other method, per outcome and for the mean.

        `probability_above` is the share of resamples in which the reference is ahead.
        """
        if reference not in self.methods:
            raise InputError(f"reference must be one of {', '.join(self.methods)}, got {reference!r}.")
        columns = list(range(len(self.outcomes))) if outcomes is None else list(outcomes)
        r, rows = self.methods.index(reference), Rows()
        for m, method in enumerate(self.methods):
            if m == r:
                continue
            gap = self.auroc[r] - self.auroc[m]
            resampled = self.resampled_auroc[r] - self.resampled_auroc[m]
            parts = [] if mean_only else [(self.outcomes[j], float(gap[j]), resampled[j]) for j in columns]
            for outcome, value, values in [*parts, ("mean", _mean(gap[columns]), _mean(resampled[columns]))]:
                low, high = scores.interval(values, level)
                known = values[~np.isnan(values)]
                rows.append(
                    {
                        "method": method,
                        "outcome": outcome,
                        "difference": value,
                        "low": low,
                        "high": high,
                        "probability_above": float(np.mean(known > 0.0)) if len(known) else float("nan"),
                    }
                )
        return rows

    def calibration_table(self, method: str, outcome: int | None = None, n_bins: int = 10) -> scores.CalibrationTable:
        """Predicted and observed rates of one method in deciles, for one outcome or all pooled."""
        p = self.probability[self.methods.index(method)]
        if outcome is None:
            pooled = None if self.weights is None else self.weights.ravel()
            return scores.calibration_table(self.Y.ravel(), p.ravel(), n_bins, sample_weight=pooled)
        own = self.weights_of(outcome)
        return scores.calibration_table(self.Y[:, outcome], p[:, outcome], n_bins, sample_weight=own)


def _mean(values: Any) -> Any:
    """Mean over the first axis, ignoring NaN; NaN, without a warning, where nothing is left."""
    array = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(array)
    n = known.sum(axis=0)
    means = np.where(known, array, 0.0).sum(axis=0) / np.where(n > 0, n, np.nan)
    return float(means) if np.ndim(means) == 0 else means


def _median(values: list[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.median(known)) if known else float("nan")


# ---- the runs


def compare(
    models: Mapping[str, Any],
    X: npt.ArrayLike,
    Y: npt.ArrayLike,
    n_folds: int = 10,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: bool = False,
    checkpoint: str | Path | None = None,
    outcomes: Sequence[str] | None = None,
    n_resamples: int = N_RESAMPLES,
    sample_weight: npt.ArrayLike | None = None,
) -> Comparison:
    """Fit every model on the same stratified folds and gather their out-of-fold predictions.

    Parameters
    ----------
    models : mapping of name to model
        Anything with `fit(X, Y)` and `predict_proba(X)` → (N, P); `decision_function` is used for ranking if there
        is one. Models are copied, never fitted in place. `coaltree.regression.baselines.BASELINES` has some.
    X : array-like (N, K)
        Features.
    Y : array-like (N, P)
        Outcomes: 0, 1 or NaN where there is no label.
    n_folds : int
        Number of folds.
    random_state : int
        Seed of the folds and of the bootstrap.
    n_jobs : int, optional
        Number of parallel fits, as in joblib; by default one after the other.
    progress : bool
        Show a bar.
    checkpoint : path, optional
        Folder that keeps every finished fit, so that an interrupted comparison can resume. Fits of other data, folds
        or settings are never reused.
    outcomes : sequence of str, optional
        Names of the outcomes.
    n_resamples : int
        Bootstrap resamples for the intervals.
    sample_weight : array-like (N,) or (N, P), optional
        Weights of rows or labels, in fits, `fit(X, Y, sample_weight)`, and in scores alike.

    Returns
    -------
    Comparison
        Predictions and scores.
    """
    from joblib import Parallel, delayed
    from tqdm import tqdm

    features = check_array(X, "X", 2)
    labels = as_outcomes(Y, n_rows=len(features))[0]
    names = _outcome_names(outcomes, labels.shape[1])
    if not models:
        raise InputError("models must name at least one model.")
    folds = stratified_folds(labels, n_folds, random_state)
    folder = None if checkpoint is None else Path(checkpoint)
    weights = None if sample_weight is None else as_weights(sample_weight, labels.shape)
    data = storage.fingerprint(features, labels, folds, weights) if folder is not None else ""
    tasks = [(method, fold) for fold in range(n_folds) for method in models]
    # Each fit manages its own threads; results come in the order of the tasks, whichever finishes first.
    results = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_run_fold)(
            models[method], features, labels, weights, folds, fold, _file(folder, data, method, models, fold)
        )
        for method, fold in tasks
    )
    shape = (len(models), *labels.shape)
    probability, score, seconds = np.empty(shape), np.empty(shape), np.empty((len(models), n_folds))
    position = {method: m for m, method in enumerate(models)}
    bar = tqdm(zip(tasks, results, strict=True), total=len(tasks), desc="cross-validation", disable=not progress)
    for (method, fold), (p, s, elapsed) in bar:
        m, rows = position[method], folds == fold
        probability[m, rows], score[m, rows], seconds[m, fold] = p, s, elapsed
    scored = None if weights is None else np.array(np.broadcast_to(as_columns(weights), labels.shape))
    return Comparison(
        tuple(models), names, labels, folds, probability, score, seconds, n_resamples, random_state, scored
    )


def _outcome_names(outcomes: Sequence[str] | None, n_outcomes: int) -> tuple[str, ...]:
    if outcomes is None:
        return tuple(f"outcome {j}" for j in range(n_outcomes))
    if len(outcomes) != n_outcomes:
        raise InputError(f"outcomes must hold one name for each of the {n_outcomes} columns of Y, got {len(outcomes)}.")
    return tuple(str(name) for name in outcomes)


def _run_fold(
    model: Any, X: Floats, Y: Floats, weights: Floats | None, folds: Ints, fold: int, file: Path | None
) -> tuple[Floats, Floats, float]:
    """Probabilities and scores (n, P) of the held-out rows of one fold, and the seconds they took."""
    held_out = folds == fold
    shape = (int(held_out.sum()), Y.shape[1])
    if file is not None and (kept := _read(file, shape)) is not None:
        return kept
    started = time.perf_counter()
    fitted = copy.deepcopy(model)
    weighted = {} if weights is None else {"sample_weight": weights[~held_out]}
    fitted.fit(X[~held_out], Y[~held_out], **weighted)
    given = _predictions(fitted.predict_proba(X[held_out]), shape)
    probability = _probabilities(given, f"{type(fitted).__name__}.predict_proba")
    score = probability
    if hasattr(fitted, "decision_function"):
        score = _predictions(fitted.decision_function(X[held_out]), shape)
    seconds = time.perf_counter() - started
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        storage.write(file, {"probability": probability, "score": score}, {"seconds": seconds}, KIND)
    return probability, score, seconds


def _predictions(values: Any, shape: tuple[int, int]) -> Floats:
    """Predictions (N, P), also from the list of (N, 2) arrays that scikit-learn's multi-output models return."""
    if isinstance(values, list):
        values = np.column_stack([np.asarray(part)[:, -1] for part in values])
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.shape != shape:
        raise InputError(f"predictions must have shape {shape}, one column per outcome, got {array.shape}.")
    return array


def _probabilities(values: Floats, name: str) -> Floats:
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise InputError(f"{name} must give probabilities between 0 and 1.")
    return values


def _file(folder: Path | None, data: str, method: str, models: Mapping[str, Any], fold: int) -> Path | None:
    if folder is None:
        return None
    model = models[method]
    settings = model.get_params(deep=True) if hasattr(model, "get_params") else vars(model)
    parts = {name: repr(settings[name]) for name in sorted(settings)}
    key = storage.fingerprint(__version__, data, type(model).__qualname__, parts)[:16]
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in method)
    return folder / f"{safe}-{key}-fold{fold}.npz"


def _read(file: Path, shape: tuple[int, int]) -> tuple[Floats, Floats, float] | None:
    """Return what an earlier run saved, or None if there is nothing of use: the fit is made again."""
    try:
        parts = storage.read(file, KIND)
        with storage.decoding(file, "fit"):
            probability = _probabilities(check_part(parts["probability"], "probability", shape), "probability")
            score = check_part(parts["score"], "score", shape, finite=False)
            return probability, score, check_real(parts["seconds"], "seconds", at_least=0.0)
    except (OSError, InputError):  # missing or damaged
        return None
