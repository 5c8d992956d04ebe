"""The settings of a study: one TOML file, checked before anything is read."""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coaltree.records.errors import RecordsError, check_keys, read_toml
from coaltree.records.privacy import FEWEST
from coaltree.records.rule import CohortRule

DEFAULT_BASELINES = ("ml_probit", "ridge", "lasso", "elastic_net", "random_forest")
QUICK_BASELINES = ("ml_probit", "ridge")


@dataclass(frozen=True)
class DataConfig:
    """Where the events are: files at `path`, or the table `events` of a `connection`, which stays where it is.

    `columns`, `vocabulary` and `date_format` are for source "csv", `schema` for source "omop".
    """

    path: str = ""
    events: str | None = None
    connection: str | None = None
    schema: str | None = None
    source: str = "meds"
    columns: dict[str, str] | None = None
    vocabulary: str | None = None
    date_format: str | None = None
    timezone: str | None = None
    duplicates: str = "keep"
    memory_limit: str = "1GB"


@dataclass(frozen=True)
class OutcomeConfig:
    """Definitions (default: those the package ships), a choice of them, and how many training events one needs.

    `labels` is a folder of MEDS label files, one an outcome, to be used instead of definitions.
    """

    file: str | None = None
    labels: str | None = None
    keys: list[str] | None = None
    inclusion: bool = True
    min_events: int = FEWEST


@dataclass(frozen=True)
class IndexConfig:
    """Thresholds of their own for subjects: the day of their first code of a set.

    The codes are written as in a definition of an outcome. A code within `washout_days` before makes the day no index.
    Days before `begin` or after `end` are none. With `split`, subjects whose day is before it and whose horizon ends
    before it are for training, and those whose day is on it or later for temporal validation.
    """

    codes: dict[str, Any] = field(default_factory=dict)
    washout_days: int = 0
    begin: datetime.date | None = None
    end: datetime.date | None = None
    split: datetime.date | None = None


@dataclass(frozen=True)
class FeatureConfig:
    """Codes to leave out by prefix, how many training subjects must have a code, the factors and their number.

    Counts are of the cohort's lookback, or of each of `windows`: days before the threshold, or "all". `age` and `sex`
    are regressors beside the factors; `measurements` adds the last value and the yearly trend of every numeric code,
    `days_since` how long ago each code was last recorded.
    """

    exclude: list[str] = field(default_factory=list)
    windows: list[int | str] | None = None
    age: bool = False
    sex: bool = False
    measurements: bool = False
    days_since: bool = False
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
    """Folds, bootstrap resamples, the level of intervals, and what is done about overlaps and splits.

    `overlap` says whether a second horizon that begins before the first has ended is refused or allowed, with a
    warning in the report. `splits` says whether the subject_splits of a MEDS dataset are honoured or ignored.
    """

    n_folds: int = 10
    n_resamples: int = 1000
    level: float = 0.95
    overlap: str = "refuse"
    splits: str = "honour"


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
    index: IndexConfig | None = None

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
_INDEX_KEYS = ("washout_days", "begin", "end", "split")


def load_config(path: str | Path) -> StudyConfig:
    """Read and check a study's config; paths in it are relative to the file."""
    from coaltree.records.checking import check_config, check_threshold

    file = Path(path)
    content = read_toml(file, "the config")
    check_keys(content, (*_SECTIONS, "cohort", "index", "seed", "title"), str(file))
    for name in (*_SECTIONS, "cohort", "index"):
        if not isinstance(content.get(name, {}), dict):
            raise RecordsError(f"{file}: {name} must be a table, [{name}].")
    cohort = dict(content.get("cohort", {}))
    thresholds = cohort.pop("thresholds", None)
    index = _index(content["index"], file) if "index" in content else None
    if index is not None and thresholds is not None:
        raise RecordsError(f"{file}: give thresholds in [cohort] or codes in [index], not both.")
    if index is None and (not isinstance(thresholds, list) or not 1 <= len(thresholds) <= 2):
        raise RecordsError(
            f'{file}: [cohort] needs thresholds = ["2009-01-01", "2010-01-01"]: the date of the training study and, '
            "if there is to be temporal validation, that of the second. Or give the codes of an [index]."
        )
    sections = {name: _section(kind, content.get(name, {}), f"{file}, [{name}]") for name, kind in _SECTIONS.items()}
    try:
        rule = _section(CohortRule, cohort, f"{file}, [cohort]")
    except (ValueError, TypeError) as error:
        raise error if isinstance(error, RecordsError) else RecordsError(f"{file}, [cohort]: {error}") from error
    seed, title = content.get("seed", 0), content.get("title", "Study")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise RecordsError(f"{file}: seed must be a whole number, not negative and below 2^32, got {seed!r}.")
    if not isinstance(title, str):
        raise RecordsError(f"{file}: title must be a text, got {title!r}.")
    config = StudyConfig(
        thresholds=tuple(check_threshold(value, file) for value in thresholds or ()),
        cohort=rule,
        seed=seed,
        title=title,
        index=index,
        **sections,
    )
    return check_config(config, file)


def _index(table: dict[str, Any], file: Path) -> IndexConfig:
    """Read [index]: settings of its own, and lists of codes as in a definition."""
    settings = {key: value for key, value in table.items() if key in _INDEX_KEYS}
    codes = {key: value for key, value in table.items() if key not in _INDEX_KEYS}
    return _section(IndexConfig, {**settings, "codes": codes}, f"{file}, [index]")  # type: ignore[no-any-return]


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
    if hint is Any:
        return True
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
    if hint is datetime.date:
        return isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
    return isinstance(value, hint)


def _spoken(hint: Any) -> str:
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    names[datetime.date] = "a date without quotes, such as 2009-01-31"
    options = [option for option in typing.get_args(hint) if option is not types.NoneType]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_spoken(option) for option in options)
    if typing.get_origin(hint) is list:
        return "a list of texts" if options == [str] else 'a list of whole numbers or "all"'
    if typing.get_origin(hint) is dict:
        return "a table of texts"
    return names.get(hint, str(hint))
