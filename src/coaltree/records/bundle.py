"""A portable model: everything needed to score patients elsewhere, in one file without patient-level data.

The file holds the definitions of outcomes and inclusion, the rules of cohort and windows, codes and factors, the draws
of coefficients, the tree, and versions. It is an archive of arrays and JSON, without pickle. Applied to other records,
the model scores their patients and, where outcomes are known, is validated externally.
"""

from __future__ import annotations

import dataclasses
import datetime
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from coaltree import storage
from coaltree._arrays import Floats
from coaltree._version import __version__
from coaltree.errors import InputError
from coaltree.records.cohort import Cohort, CohortRule, as_day, build_cohort, days_of
from coaltree.records.config import PROBIT, DataConfig, FeatureConfig, IndexConfig, StudyConfig, as_date, read_section
from coaltree.records.dataset import (
    Period,
    index_days,
    make_features,
    open_source,
    period_group,
    read_thresholds,
    taken_as_absent,
    weighted_labels,
)
from coaltree.records.engine import Events, fetch, timestamps
from coaltree.records.errors import RecordsError, need
from coaltree.records.factors import CodeFactors
from coaltree.records.features import Counts, bare_code, find_sex
from coaltree.records.labels import build_labels
from coaltree.records.outcomes import Definition, OutcomeSet, read_definition
from coaltree.records.privacy import FEWEST, attrition_table, outcome_digits, shown_count
from coaltree.records.review import (
    Review,
    auc_rows,
    calibration_rows,
    driver_rows,
    outcome_curves,
    outcome_rows,
    score_rows,
    subgroup_rows,
    summary_rows,
    table_one,
)
from coaltree.records.widths import deviations
from coaltree.regression.comparison import Comparison
from coaltree.rows import Rows
from coaltree.tree import Tree
from coaltree.validation import check_part

KIND = "coaltree.RecordsModel"
FILE = "model.npz"
_FACTORS = "factors_"
_INFO = {
    "title": str,
    "versions": dict,
    "training": dict,
    "names": dict,
    "regressors": list,
    "seed": int,
    "family": str,
}
_DATES = ("data_end", "begin", "end", "split")


@dataclass(frozen=True, eq=False)
class TravellingModel:
    """A fitted study model.

    Attributes
    ----------
    outcomes : OutcomeSet
        Definitions of the outcomes, in the order of the model, and of inclusion.
    rule : CohortRule
        Windows and conditions.
    features : FeatureConfig
        What is counted.
    index : IndexConfig, optional
        Codes of the index event, if thresholds were index events.
    factors : CodeFactors
        From counts to regressors.
    arrays : dict
        coef (P, K) and intercept (P,), their draws, and the tree's children, times and support.
    info : dict
        Title, versions, facts about the training data, names of codes and regressors.
    """

    outcomes: OutcomeSet
    rule: CohortRule
    features: FeatureConfig
    index: IndexConfig | None
    factors: CodeFactors
    arrays: dict[str, npt.NDArray[Any]]
    info: dict[str, Any]

    def __post_init__(self) -> None:
        n_outcomes = len(self.outcomes.outcomes)
        n_regressors = self.factors.n_regressors
        n_draws = len(check_part(self.arrays["coef_draws"], "coef_draws", (None, n_outcomes, n_regressors)))
        check_part(self.arrays["intercept_draws"], "intercept_draws", (n_draws, n_outcomes))
        check_part(self.arrays["coef"], "coef", (n_outcomes, n_regressors))
        check_part(self.arrays["intercept"], "intercept", (n_outcomes,))
        if self.tree is not None:
            check_part(self.arrays["support"], "support", (n_outcomes - 1,))
        for name, kind in _INFO.items():
            if not isinstance(self.info[name], kind):
                raise InputError(f"info: {name} must be of type {kind.__name__}, got {self.info[name]!r}.")
        facts = {"events": dict, "subjects": int, "dataset": object, "threshold": object}
        known = all(isinstance(self.info["training"][name], kind) for name, kind in facts.items())
        known &= len(self.info["regressors"]) == n_regressors
        if not n_draws or not n_outcomes or not known:
            raise InputError("a model needs draws, outcomes, names of all regressors and events of its training data.")

    @classmethod
    def from_study(
        cls,
        config: StudyConfig,
        outcomes: OutcomeSet,
        fits: dict[str, Any],
        names: dict[str, str],
        training: dict[str, Any],
    ) -> TravellingModel:
        """Gather what a finished study has fitted to its whole training cohort."""
        from coaltree.records.evaluation import family_of, feature_names

        state = {
            key.removeprefix("state_"): value for key, value in fits["features"].items() if key.startswith("state_")
        }
        used = {bare_code(str(label)) for label in (*state["codes"], *state["extra_names"])}
        info = {
            "title": config.title,
            "versions": {"coaltree": __version__, "numpy": np.__version__, "python": platform.python_version()},
            "training": training,
            "inclusion_used": config.outcomes.inclusion,
            "censoring": config.outcomes.censoring,
            "family": family_of(config),
            "seed": config.seed,
            "names": {code: name for code, name in names.items() if code in used},
            "regressors": feature_names(fits["features"], names),
            "chains": {
                "n_iter": config.model.n_iter,
                "burn_in": config.model.burn_in,
                "n_chains": config.model.n_chains,
                "r_hat": float(fits[PROBIT]["r_hat"]),
            },
        }
        features = dataclasses.replace(config.features)
        rule = dataclasses.replace(config.cohort)
        factors = CodeFactors.from_state(state)
        arrays = _model_arrays(fits[PROBIT], *factors.hide_means())
        return cls(outcomes, rule, features, config.index, factors, arrays, info)

    # ---- predictions

    def predict(self, counts: Counts) -> tuple[Floats, Floats]:
        """Probabilities and linear predictors of every outcome, (n, P) each."""
        X = self.factors.transform(counts)
        score = X @ self.arrays["coef"].T + self.arrays["intercept"]
        coef, intercept = self.arrays["coef_draws"], self.arrays["intercept_draws"]
        probability = np.zeros_like(score)
        for beta, mu in zip(coef, intercept, strict=True):
            eta = X @ beta.T + mu
            probability += -np.expm1(-np.exp(eta)) if self.info["family"] == "poisson" else ndtr(eta)
        return probability / len(coef), score

    @property
    def tree(self) -> Tree | None:
        """The tree of the outcomes, None for one outcome."""
        if "children" not in self.arrays:
            return None
        return Tree(self.arrays["children"], self.arrays["times"], self.outcomes.names)

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes the model uses, without their windows."""
        labels = (*self.factors.codes_, *self.factors.extra_names_)
        return tuple(sorted({bare_code(label) for label in labels} - {"age", "female"}))

    # ---- the file

    def save(self, path: str | Path) -> None:
        """Write the model to one file."""
        arrays = {**self.arrays, **{_FACTORS + key: value for key, value in self.factors.state().items()}}
        settings = {
            "rule": _plain(self.rule),
            "features": _plain(self.features),
            "index": None if self.index is None else _plain(self.index),
            "outcomes": {outcome.key: outcome.as_table() for outcome in self.outcomes.outcomes},
            "origins": {outcome.key: outcome.origin for outcome in self.outcomes.outcomes if outcome.origin},
            "inclusion": None if self.outcomes.inclusion is None else self.outcomes.inclusion.as_table(),
        }
        storage.write(path, arrays, {"info": self.info, "settings": settings}, KIND)

    @classmethod
    def load(cls, path: str | Path) -> TravellingModel:
        """Read what `save` wrote."""
        if Path(path).is_dir():
            path = Path(path) / FILE
        try:
            content = storage.read(path, KIND)
            with storage.decoding(path, "model of a records study"):
                return cls._from_parts(content)
        except FileNotFoundError:
            raise RecordsError(f"the model {path} does not exist; a study writes {FILE} beside its report.") from None
        except OSError as error:
            raise RecordsError(f"the model {path} cannot be read: {error}") from error
        except InputError as error:
            raise RecordsError(str(error)) from error

    @classmethod
    def _from_parts(cls, content: dict[str, Any]) -> TravellingModel:
        settings, info = content.pop("settings"), content.pop("info")
        state = {key.removeprefix(_FACTORS): content.pop(key) for key in list(content) if key.startswith(_FACTORS)}
        origins = settings["origins"]
        outcomes = tuple(
            Definition(key, table["name"], (), (), origins[key]) if key in origins else read_definition(key, table, key)
            for key, table in settings["outcomes"].items()
        )
        inclusion = settings["inclusion"]
        return cls(
            OutcomeSet(outcomes, None if inclusion is None else read_definition("inclusion", inclusion, "inclusion")),
            read_section(CohortRule, _dated(settings["rule"]), "rule"),
            read_section(FeatureConfig, settings["features"], "features"),
            None if settings["index"] is None else read_section(IndexConfig, _dated(settings["index"]), "index"),
            CodeFactors.from_state(state),
            content,
            info,
        )


def _model_arrays(fit: dict[str, npt.NDArray[Any]], factor: Floats, shift: Floats) -> dict[str, npt.NDArray[Any]]:
    """The one place that knows how the regression is stored: its posterior mean, its draws, its tree.

    Coefficients are those of regressors × factor + shift.
    """
    found: dict[str, npt.NDArray[Any]] = {name: fit[name] for name in ("children", "times", "support") if name in fit}
    for ending in ("", "_draws"):
        coef = fit[f"coef{ending}"] / factor
        found |= {f"coef{ending}": coef, f"intercept{ending}": fit[f"intercept{ending}"] - coef @ shift}
    return found


def _plain(settings: Any) -> dict[str, Any]:
    """Return settings as JSON values."""
    return {
        key: value.isoformat() if isinstance(value, datetime.date) else value
        for key, value in dataclasses.asdict(settings).items()
    }


def _dated(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        key: datetime.date.fromisoformat(value) if key in _DATES and value is not None else value
        for key, value in settings.items()
    }


# ---- applied elsewhere

EXTERNAL = "external"
SCORES = "scores.parquet"


@dataclass(frozen=True, eq=False)
class Application:
    """The result of applying a model; everything except `scores`, a private file, may be shown.

    Attributes
    ----------
    model : TravellingModel
        The model.
    attrition : Rows
        Rule, subjects left, subjects removed.
    comparison : Comparison, optional
        External validation; None if no outcome can be evaluated.
    review : Review
        Table 1, curves, subgroups.
    known_codes : tuple of int
        How many of the model's codes occur in the data, and how many it has.
    """

    model: TravellingModel
    threshold: str
    source: str
    n_subjects: int
    attrition: Rows
    outcomes: Rows
    comparison: Comparison | None
    review: Review
    known_codes: tuple[int, int]
    notes: tuple[str, ...]
    scores: Path

    def tables(self, level: float = 0.95) -> dict[str, Rows]:
        """Return every table by the name of its file."""
        found = {"attrition": self.attrition, "outcomes": self.outcomes, "table-one": self.review.table_one}
        if self.comparison is not None:
            labels = {row["outcome"]: row["labels"] for row in self.outcomes}
            found |= {
                "auc": auc_rows({EXTERNAL: self.comparison}, self.comparison.outcomes),
                f"scores-{EXTERNAL}": score_rows(self.comparison, labels, level),
                f"summary-{EXTERNAL}": summary_rows(self.comparison, level),
                f"calibration-{EXTERNAL}": calibration_rows(self.comparison),
                "subgroups": self.review.subgroups,
            }
        return {name: table for name, table in found.items() if len(table)}


def apply_model(
    model: TravellingModel | str | Path,
    data: DataConfig | str | Path,
    private: str | Path,
    threshold: Any = None,
    connection: Any = None,
    n_resamples: int = 1000,
    level: float = 0.95,
) -> Application:
    """Score the subjects of a data set, and validate the model where the horizon has passed.

    Parameters
    ----------
    model : TravellingModel or path
        A model, or the file or folder that a study wrote.
    data : DataConfig or path
        The events; a path is a MEDS dataset.
    private : path
        Folder for imported events and for scores.parquet, which has one row per subject: do not share it.
    threshold : date, str, mapping or path, optional
        Day 0 of the subjects: one date, a mapping, or a file of dates or MEDS labels. By default the model's index
        events.
    connection : ibis backend, optional
        Where to run queries instead of an embedded DuckDB.
    n_resamples, level
        Bootstrap of the intervals.
    """
    found = model if isinstance(model, TravellingModel) else TravellingModel.load(model)
    settings = data if isinstance(data, DataConfig) else DataConfig(path=str(data))
    folder = Path(private)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    events, imported, _ = open_source(settings, folder, connection)
    at, name = _threshold(threshold, found, events)
    rule = dataclasses.replace(found.rule, min_follow_up_days=0, data_end=_data_end(events, at, found.rule))
    inclusion = found.outcomes.inclusion if found.info["inclusion_used"] else None
    cohort = build_cohort(events, at, rule, inclusion)
    labels = build_labels(events, cohort, found.outcomes)
    labels.Y[:, [bool(outcome.origin) for outcome in found.outcomes.outcomes]] = np.nan  # labels were files
    female = find_sex(events, labels.cohort)
    counts = make_features(events, labels.cohort, found.features, female)
    if found.info.get("censoring") == "weights":
        labels = weighted_labels(labels, counts, int(found.info["seed"]))
    elif found.info.get("censoring") == "absent":
        labels = taken_as_absent(labels)
    probability, score = found.predict(counts)
    scores = _write_scores(folder / SCORES, labels.cohort, found, probability)
    comparison = Comparison(
        (PROBIT,),
        found.outcomes.names,
        labels.Y,
        np.zeros(len(labels.Y), dtype=np.int64),
        probability[None],
        score[None],
        np.zeros((1, 1)),
        n_resamples,
        int(found.info["seed"]),
        labels.weights,
    )
    judged = any(digits is not None for digits in outcome_digits(labels.Y))
    occurring = {bare_code(label) for label in counts.codes}
    known = sum(code in occurring for code in found.codes)
    period = Period(name, labels, counts, None, female)
    if len(labels.cohort) < FEWEST:
        raise RecordsError(f"a cohort of {shown_count(len(labels.cohort))} subjects is too small to be reported.")
    return Application(
        found,
        name,
        str(imported["dataset_name"]),
        len(labels.cohort),
        attrition_table(labels.cohort.attrition),
        _with_training(outcome_rows(found.outcomes, {"": labels}), found),
        comparison if judged else None,
        Review(
            table_one([period_group(period)], found.outcomes.names),
            outcome_curves(comparison, PROBIT, level, comparison.seed) if judged else (),
            subgroup_rows(comparison, PROBIT, labels.cohort, female, level) if judged else Rows(),
            driver_rows(
                found.outcomes.names,
                found.info["regressors"],
                found.arrays["coef"],
                found.arrays["coef_draws"],
                level,
                deviations(found.factors.transform(counts)),
                found.factors.units,
                found.info["family"],
            ),
            "external validation",
        ),
        (known, len(found.codes)),
        (*cohort.notes, *(imported.get("notes") or [])),
        scores,
    )


def _threshold(given: Any, model: TravellingModel, events: Events) -> tuple[Any, str]:
    """Return the threshold in the form that `build_cohort` takes, and its name."""
    if given is None:
        if model.index is None:
            raise RecordsError(
                "state the threshold (on the command line --threshold): the model was trained on a date, not on "
                "index events."
            )
        days = index_days(events, dataclasses.replace(model.index, begin=None, end=None, split=None))
        if not days:
            raise RecordsError("no subject has one of the model's index events.")
        return {subject: as_date(day) for subject, day in days.items()}, "index events"
    if isinstance(given, Path) or (isinstance(given, str) and given.endswith((".csv", ".csv.gz", ".parquet"))):
        return read_thresholds(Path(given), model.rule), "one date a subject"
    if isinstance(given, dict):
        return given, "one date a subject"
    return given, str(as_date(as_day(given)))


def _data_end(events: Events, at: Any, rule: CohortRule) -> Any:
    """Allow patients to be scored on a day the data have not reached: the whole horizon is still in the future."""
    last = int(days_of(fetch(events.table.agg(last=events.table.time.max()))["last"])[0])
    day = max(as_day(value) for value in at.values()) if isinstance(at, dict) else as_day(at)
    return as_date(day + rule.horizon[0]) if last < day + rule.horizon[0] else None


def _write_scores(file: Path, cohort: Cohort, model: TravellingModel, probability: Floats) -> Path:
    """Write the subject, the time of prediction and the probability of every outcome."""
    pa = need("pyarrow")
    times = timestamps(cohort.threshold + cohort.rule.lookback[1] + 1) - np.timedelta64(1, "us")
    columns = {"subject_id": cohort.subject, "prediction_time": pa.array(times)}
    columns |= {outcome.key: probability[:, j] for j, outcome in enumerate(model.outcomes.outcomes)}
    need("pyarrow.parquet").write_table(pa.table(columns), file)
    file.chmod(0o600)
    return file


def _with_training(rows: Rows, model: TravellingModel) -> Rows:
    """Add the numbers of events on which the model was trained."""
    return Rows({**row, "events in training": model.info["training"]["events"].get(row["outcome"])} for row in rows)
