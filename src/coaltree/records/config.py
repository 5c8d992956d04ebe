"""The settings of a study: one TOML file, checked before anything is read."""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coaltree.records.cohort import CohortRule, as_day
from coaltree.records.cost import CRITERIA
from coaltree.records.errors import RecordsError, check_keys, read_toml
from coaltree.records.features import TRANSFORMERS

SOURCES = ("meds", "omop", "synpuf", "csv")
COSTS = ("none", "prices", "observed")
DEFAULT_BASELINES = ("ml_probit", "ridge", "lasso", "elastic_net", "random_forest")
QUICK_BASELINES = ("ml_probit", "ridge")


@dataclass(frozen=True)
class DataConfig:
    """Where the events are; `columns`, `vocabulary` and `date_format` are for source "csv"."""

    path: str = ""
    source: str = "meds"
    columns: dict[str, str] | None = None
    vocabulary: str | None = None
    date_format: str | None = None
    timezone: str | None = None
    duplicates: str = "keep"
    memory_limit: str = "1GB"


@dataclass(frozen=True)
class OutcomeConfig:
    """Definitions (default: those the package ships), a choice of them, and how many training events one needs."""

    file: str | None = None
    keys: list[str] | None = None
    inclusion: bool = True
    min_events: int = 11


@dataclass(frozen=True)
class FeatureConfig:
    """Codes to leave out by prefix, how many training subjects must have a code, the factors and their number."""

    exclude: list[str] = field(default_factory=list)
    min_subjects: int = 20
    n_factors: int = 25
    transformer: str = "nmf"


@dataclass(frozen=True)
class ModelConfig:
    """The probit's chains, and the baselines beside it; `n_particles` of older files has no effect any more."""

    n_iter: int = 1000
    burn_in: int = 200
    n_chains: int = 2
    n_particles: int = 50
    baselines: list[str] = field(default_factory=lambda: list(DEFAULT_BASELINES))


@dataclass(frozen=True)
class ValidationConfig:
    """Folds, bootstrap resamples and the level of intervals."""

    n_folds: int = 10
    n_resamples: int = 1000
    level: float = 0.95


@dataclass(frozen=True)
class CostConfig:
    """Where costs come from, how the node is chosen, and the bootstrap of the curves."""

    source: str = "none"
    prices: str | None = None
    criterion: str = "rank"
    n_resamples: int = 500
    level: float = 0.9


@dataclass(frozen=True)
class StudyConfig:
    """All settings of a study."""

    data: DataConfig
    thresholds: tuple[Any, ...]
    cohort: CohortRule
    outcomes: OutcomeConfig
    features: FeatureConfig
    model: ModelConfig
    validation: ValidationConfig
    cost: CostConfig
    seed: int = 0
    title: str = "Study"

    def quick(self) -> StudyConfig:
        """Return settings for a first look: fewer folds, shorter chains, two baselines."""
        return dataclasses.replace(
            self,
            model=dataclasses.replace(
                self.model,
                n_iter=min(self.model.n_iter, 120),
                burn_in=min(self.model.burn_in, 40),
                n_chains=1,
                baselines=[name for name in self.model.baselines if name in QUICK_BASELINES],
            ),
            features=dataclasses.replace(self.features, n_factors=min(self.features.n_factors, 15)),
            validation=dataclasses.replace(self.validation, n_folds=min(self.validation.n_folds, 3), n_resamples=200),
            cost=dataclasses.replace(self.cost, n_resamples=min(self.cost.n_resamples, 100)),
        )


_SECTIONS: dict[str, Any] = {
    "data": DataConfig,
    "outcomes": OutcomeConfig,
    "features": FeatureConfig,
    "model": ModelConfig,
    "validation": ValidationConfig,
    "cost": CostConfig,
}


def load_config(path: str | Path) -> StudyConfig:
    """Read and check a study's config; paths in it are relative to the file."""
    file = Path(path)
    content = read_toml(file, "the config")
    check_keys(content, (*_SECTIONS, "cohort", "seed", "title"), str(file))
    for name in (*_SECTIONS, "cohort"):
        if not isinstance(content.get(name, {}), dict):
            raise RecordsError(f"{file}: {name} must be a table, [{name}].")
    cohort = dict(content.get("cohort", {}))
    thresholds = cohort.pop("thresholds", None)
    if not isinstance(thresholds, list) or not 1 <= len(thresholds) <= 2:
        raise RecordsError(
            f'{file}: [cohort] needs thresholds = ["2009-01-01", "2010-01-01"]: the date of the training study and, '
            "if there is to be temporal validation, that of the second."
        )
    sections = {name: _section(kind, content.get(name, {}), f"{file}, [{name}]") for name, kind in _SECTIONS.items()}
    try:
        rule = _section(CohortRule, cohort, f"{file}, [cohort]")
    except (ValueError, TypeError) as error:
        raise error if isinstance(error, RecordsError) else RecordsError(f"{file}, [cohort]: {error}") from error
    seed, title = content.get("seed", 0), content.get("title", "Study")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise RecordsError(f"{file}: seed must be a whole number, not negative, got {seed!r}.")
    config = StudyConfig(
        thresholds=tuple(_threshold(value, file) for value in thresholds),
        cohort=rule,
        seed=seed,
        title=str(title),
        **sections,
    )
    return _resolve(config, file)


def _section(kind: Any, values: dict[str, Any], where: str) -> Any:
    """Build a dataclass from a table, with known keys and the right types only."""
    hints = typing.get_type_hints(kind)
    check_keys(values, hints, where)
    for key, value in values.items():
        if not _fits(value, hints[key]):
            raise RecordsError(f"{where}: {key} must be {_spoken(hints[key])}, got {value!r}.")
    return kind(**values)


def _fits(value: Any, hint: Any) -> bool:
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in options)
    if origin is list:
        return isinstance(value, list) and all(_fits(item, options[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(item, options[1]) for item in value.values())
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _spoken(hint: Any) -> str:
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", datetime.date: "a date"}
    options = [option for option in typing.get_args(hint) if option is not types.NoneType]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_spoken(option) for option in options)
    if typing.get_origin(hint) is list:
        return "a list of texts"
    if typing.get_origin(hint) is dict:
        return "a table of texts"
    return names.get(hint, str(hint))


def _threshold(value: Any, file: Path) -> Any:
    """Return a date, or the path of a table of dates per subject."""
    if isinstance(value, str) and value.endswith((".csv", ".csv.gz")):
        return file.parent / value
    as_day(value, f"{file}, [cohort]: thresholds")
    return value if isinstance(value, str) else value.isoformat()


def _resolve(config: StudyConfig, file: Path) -> StudyConfig:
    """Check choices, and make paths independent of the working directory."""
    if not config.data.path:
        raise RecordsError(f"{file}: [data] needs path, the folder or file of the events.")
    for where, value, choices in (
        ("[data]: source", config.data.source, SOURCES),
        ("[data]: duplicates", config.data.duplicates, ("keep", "drop")),
        ("[features]: transformer", config.features.transformer, TRANSFORMERS),
        ("[cost]: source", config.cost.source, COSTS),
        ("[cost]: criterion", config.cost.criterion, CRITERIA),
    ):
        check_keys([value], choices, f"{file}, {where}")
    from coaltree.regression.baselines import BASELINES

    check_keys(config.model.baselines, BASELINES, f"{file}, [model]: baselines")
    if config.cost.source == "prices" and config.cost.prices is None:
        raise RecordsError(f"{file}, [cost]: source is prices, so prices must name a table with code and price.")
    for where, number, least in (
        ("[model]: n_iter", config.model.n_iter, 2),
        ("[model]: burn_in", config.model.burn_in, 0),
        ("[model]: n_chains", config.model.n_chains, 1),
        ("[features]: n_factors", config.features.n_factors, 1),
        ("[features]: min_subjects", config.features.min_subjects, 1),
        ("[validation]: n_folds", config.validation.n_folds, 2),
        ("[validation]: n_resamples", config.validation.n_resamples, 10),
        ("[outcomes]: min_events", config.outcomes.min_events, 1),
        ("[cost]: n_resamples", config.cost.n_resamples, 10),
    ):
        if number < least:
            raise RecordsError(f"{file}, {where} must be at least {least}, got {number}.")
    if config.model.burn_in >= config.model.n_iter:
        raise RecordsError(f"{file}, [model]: burn_in must be below n_iter.")

    def beside(value: str | None) -> str | None:
        return None if value is None else str((file.parent / Path(value).expanduser()).resolve())

    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, path=str(beside(config.data.path))),
        outcomes=dataclasses.replace(config.outcomes, file=beside(config.outcomes.file)),
        cost=dataclasses.replace(config.cost, prices=beside(config.cost.prices)),
    )
