"""The settings of a study: one TOML file, checked before anything is read."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import re
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coaltree.records.censoring import CENSORING
from coaltree.records.cohort import LONGEST, CohortRule, as_day
from coaltree.records.cost import CRITERIA
from coaltree.records.errors import RecordsError, as_zone, check_keys, read_toml
from coaltree.records.factors import TRANSFORMERS
from coaltree.records.features import ALL_TIME
from coaltree.records.outcomes import read_definition
from coaltree.records.privacy import FEWEST
from coaltree.regression.fit import COVARIANCES

PROBIT = "coalescent_probit"  # the name of our own method among the baselines

RIDGE_ALL = "ridge_all"  # ridge regression on factors and single codes
FACTORS_ALONE = "ridge_factors"  # the same on factors alone: what they would have lost

# Beside factors and single codes, and beside factors alone (the paper's).
DEFAULT_BASELINES = ("random_forest", "boosting")
PAPERS_BASELINES = ("ml_probit", "ridge", "lasso", "elastic_net", "random_forest")
QUICK_BASELINES = ("ml_probit", "ridge", "wide_ridge")
# These solve for all coefficients of an outcome at once: where there are single codes they have the factors alone.
NARROW = ("ml_probit", "ml_logit", "ridge", "lasso", "elastic_net")

MODEL_FEATURES, OUTCOMES = ("all", "factors"), ("binary", "time")
SETTINGS = ("default", "paper")
# What `settings = "paper"` chooses.
PAPER: dict[str, dict[str, Any]] = {
    "cohort": {"death": "negative", "prior_outcome": "keep"},
    "outcomes": {"censoring": "absent"},
    "features": {"transformer": "nmf"},
    "model": {"features": "factors", "covariance": "full", "outcomes": "binary"},
    "cost": {"criterion": "gap"},
}


@dataclass(frozen=True)
class DataConfig:
    """Where the events are: files at `path`, or the table `events` of a `connection`, which is not copied.

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
    """Definitions (default: those shipped with the package), a selection, and how many training events each needs.

    `censoring` says how subjects count who leave before their label is known: the known labels get "weights" that make
    up for them (`coaltree.records.censoring`), or they are dropped ("drop"), which overstates risks. `labels` is a
    folder of MEDS label files, one per outcome, to be used instead of definitions.
    """

    file: str | None = None
    labels: str | None = None
    keys: list[str] | None = None
    inclusion: bool = True
    min_events: int = FEWEST
    censoring: str = "weights"


@dataclass(frozen=True)
class IndexConfig:
    """A threshold for each subject: the day of its first code from a set.

    The codes are written as in the definition of an outcome. A day with such a code in the `washout_days` before it is
    not an index day, nor are days before `begin` or after `end`. With `split`, subjects whose day and whole horizon
    fall before it are for training, and those whose day is on it or later for temporal validation.
    """

    codes: dict[str, Any] = field(default_factory=dict)
    washout_days: int = 0
    begin: datetime.date | None = None
    end: datetime.date | None = None
    split: datetime.date | None = None


@dataclass(frozen=True)
class FeatureConfig:
    """Codes to leave out by prefix, how many training subjects must have a code, the factors and their number.

    Counts are over the cohort's lookback, or over each of `windows`: days before the threshold, or "all". `age` and
    `sex` are additional regressors; `measurements` adds the last value and the yearly trend of every numeric code, and
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
    """The regression of all outcomes, its chains, and the baselines.

    `features` are "all", factors and single codes side by side, or "factors" alone. `covariance` is that of
    `fit_probit`: with "auto" every one of many regressors has its own width. `outcomes` are "binary", whether an event
    came in the horizon, or "time", the event and the days at risk until then.
    """

    n_iter: int = 1000
    burn_in: int = 200
    n_chains: int = 2
    features: str = "all"
    covariance: str = "auto"
    outcomes: str = "binary"
    baselines: list[str] = field(default_factory=lambda: list(DEFAULT_BASELINES))


@dataclass(frozen=True)
class ValidationConfig:
    """Folds, bootstrap resamples, the level of intervals, and the treatment of overlaps and splits.

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
    settings: str = "default"

    @property
    def has_singles(self) -> bool:
        """Whether single codes stand beside the factors."""
        return self.model.features == "all" and self.features.transformer != "none"

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
    file = Path(path)
    content = read_toml(file, "the config")
    check_keys(content, (*_SECTIONS, "cohort", "index", "seed", "title", "settings"), str(file))
    for name in (*_SECTIONS, "cohort", "index"):
        if not isinstance(content.get(name, {}), dict):
            raise RecordsError(f"{file}: {name} must be a table, [{name}].")
    chosen = content.get("settings", "default")
    check_keys([chosen], SETTINGS, f"{file}: settings")
    if chosen == "paper":
        content = _papers(content, file)
    content["model"] = {"baselines": _baselines(content.get("model", {})), **content.get("model", {})}
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
    sections = {
        name: read_section(kind, content.get(name, {}), f"{file}, [{name}]") for name, kind in _SECTIONS.items()
    }
    try:
        rule = read_section(CohortRule, cohort, f"{file}, [cohort]")
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
        settings=chosen,
        **sections,
    )
    return check_config(config, file)


def _papers(content: dict[str, Any], file: Path) -> dict[str, Any]:
    """Add what the paper chooses; a setting that says otherwise is refused."""
    for section, choices in PAPER.items():
        for key, value in choices.items():
            given = content.get(section, {}).get(key, value)
            if given != value:
                raise RecordsError(
                    f'{file}: settings = "paper" stands for {key} = {value!r} in [{section}], which has {given!r}. '
                    f"Remove {key}, or settings."
                )
    return content | {section: {**content.get(section, {}), **choices} for section, choices in PAPER.items()}


def _baselines(model: dict[str, Any]) -> list[str]:
    """Return the baselines of a study that names none."""
    return list(PAPERS_BASELINES if model.get("features") == "factors" else DEFAULT_BASELINES)


def paper_settings(config: StudyConfig) -> StudyConfig:
    """Return a study with the paper's choices, as `settings = "paper"` makes them, and the paper's baselines."""
    parts = {name: dataclasses.replace(getattr(config, name), **choices) for name, choices in PAPER.items()}
    parts["model"] = dataclasses.replace(parts["model"], baselines=list(PAPERS_BASELINES))
    return dataclasses.replace(config, settings="paper", **parts)


def _index(table: dict[str, Any], file: Path) -> IndexConfig:
    """Read [index]: its own settings, and lists of codes as in a definition."""
    settings = {key: value for key, value in table.items() if key in _INDEX_KEYS}
    codes = {key: value for key, value in table.items() if key not in _INDEX_KEYS}
    return read_section(IndexConfig, {**settings, "codes": codes}, f"{file}, [index]")  # type: ignore[no-any-return]


def read_section(kind: Any, values: dict[str, Any], where: str) -> Any:
    """Build a dataclass from a table, accepting only known keys and the right types."""
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


# ---- checks of every value

SOURCES = ("meds", "omop", "synpuf", "csv")
COSTS = ("none", "prices", "observed")
OVERLAPS = ("refuse", "allow")
SPLITS = ("honour", "ignore")
COLUMNS = ("subject", "date", "code", "value", "cost", "vocabulary")
THRESHOLD_FILES = (".csv", ".csv.gz", ".parquet")
_MEMORY = re.compile(r"\s*(\d+(\.\d+)?)\s*([KMGT]i?B)\s*", re.IGNORECASE)
# Smallest and largest value of every whole number.
_NUMBERS = {
    "model": {
        "n_iter": (2, 10_000_000),
        "burn_in": (0, 10_000_000),
        "n_chains": (1, 1_000),
    },
    "features": {"n_factors": (1, 10_000), "min_subjects": (1, 10**9)},
    "validation": {"n_folds": (2, 1_000), "n_resamples": (10, 1_000_000)},
    "outcomes": {"min_events": (1, 10**9)},
    "cost": {"n_resamples": (10, 1_000_000)},
}


def check_threshold(value: Any, file: Path) -> Any:
    """Return a date as text, or the path of a table of dates per subject."""
    if isinstance(value, str) and value.endswith(THRESHOLD_FILES):
        return file.parent / value
    as_day(value, f"{file}, [cohort]: thresholds")
    return value if isinstance(value, str) else value.isoformat()


def check_config(config: StudyConfig, file: Path) -> StudyConfig:
    """Check choices, numbers and dates, and make paths independent of the working directory."""
    _check_data(config, file)
    for where, value, choices in (
        ("[features]: transformer", config.features.transformer, TRANSFORMERS),
        ("[outcomes]: censoring", config.outcomes.censoring, CENSORING),
        ("[model]: features", config.model.features, MODEL_FEATURES),
        ("[model]: covariance", config.model.covariance, COVARIANCES),
        ("[model]: outcomes", config.model.outcomes, OUTCOMES),
        ("[cost]: source", config.cost.source, COSTS),
        ("[cost]: criterion", config.cost.criterion, CRITERIA),
        ("[validation]: overlap", config.validation.overlap, OVERLAPS),
        ("[validation]: splits", config.validation.splits, SPLITS),
    ):
        check_keys([value], choices, f"{file}, {where}")
    if config.has_singles and config.model.covariance == "full":
        raise RecordsError(
            f'{file}, [model]: covariance = "full" cannot be learned for single codes: set features = "factors".'
        )
    if config.model.outcomes == "time":
        timed = config.outcomes.labels is None and config.outcomes.censoring == "weights"
        if not timed:
            raise RecordsError(
                f'{file}, [model]: outcomes = "time" needs days at risk, which label files do not have, and scores '
                'that are right under dropout: remove labels, and set censoring = "weights".'
            )
    _check_numbers(config, file)
    _check_lists(config, file)
    _check_small(config, file)
    if config.cost.source == "prices" and config.cost.prices is None:
        raise RecordsError(f"{file}, [cost]: source is prices, so prices must name a table with code and price.")
    if config.outcomes.labels is not None and (config.outcomes.file is not None or config.outcomes.keys is not None):
        raise RecordsError(f"{file}, [outcomes]: labels stand instead of definitions; remove file and keys.")
    _check_dates(config, file)
    if config.index is not None:
        _check_index(config, config.index, file)

    def beside(value: str | None) -> str | None:
        return None if value is None else str((file.parent / Path(value).expanduser()).resolve())

    for where, path in (
        ("[outcomes]: file", config.outcomes.file),
        ("[outcomes]: labels", config.outcomes.labels),
        ("[cost]: prices", config.cost.prices),
        ("[data]: path", config.data.path or None),
    ):
        if path is not None and "\0" in path:
            raise RecordsError(f"{file}, {where} {path!r} is not a path.")
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, path=str(beside(config.data.path)) if config.data.path else ""),
        outcomes=dataclasses.replace(
            config.outcomes, file=beside(config.outcomes.file), labels=beside(config.outcomes.labels)
        ),
        cost=dataclasses.replace(config.cost, prices=beside(config.cost.prices)),
    )


def _check_small(config: StudyConfig, file: Path) -> None:
    """Refuse limits that would reveal hidden numbers: the config is published with the results."""
    least = config.outcomes.min_events
    if FEWEST // 2 < least < FEWEST:
        raise RecordsError(
            f"{file}, [outcomes]: min_events must be at least {FEWEST} or at most {FEWEST // 2}, got {least}: with a "
            f'limit in between, "<{FEWEST}" events would tell their number.'
        )
    if config.features.min_subjects >= FEWEST:
        return
    if config.features.transformer in ("lda", "none"):
        raise RecordsError(
            f"{file}, [features]: min_subjects must be at least {FEWEST} with transformer "
            f"{config.features.transformer!r}, whose model holds totals of every code."
        )
    if config.has_singles:
        raise RecordsError(
            f"{file}, [features]: min_subjects must be at least {FEWEST} where single codes are regressors; or set "
            'features = "factors" in [model].'
        )


def _check_data(config: StudyConfig, file: Path) -> None:
    data = config.data
    if bool(data.path) == (data.events is not None):
        raise RecordsError(
            f"{file}: [data] needs path, the folder or file of the events, or events, the table of a connection."
        )
    if data.events is not None and data.connection is None:
        raise RecordsError(f'{file}, [data]: events is a table of a connection; state connection, such as "spark".')
    if data.connection is not None and data.events is None:
        raise RecordsError(f'{file}, [data]: connection needs events, the name of its table, such as "hosp.events".')
    for where, value, choices in (
        ("[data]: source", data.source, SOURCES),
        ("[data]: duplicates", data.duplicates, ("keep", "drop")),
        *((("[data]: columns", key, COLUMNS)) for key in data.columns or ()),
    ):
        check_keys([value], choices, f"{file}, {where}")
    memory = _MEMORY.fullmatch(data.memory_limit)
    if memory is None or float(memory[1]) == 0.0:
        raise RecordsError(f'{file}, [data]: memory_limit must be like "1GB" or "500MB", got {data.memory_limit!r}.')
    if data.timezone is not None:
        as_zone(data.timezone, f"{file}, [data]: timezone")
    if data.date_format is not None and "%" not in data.date_format:
        raise RecordsError(f"{file}, [data]: date_format must be like %d/%m/%Y, got {data.date_format!r}.")
    for key, only in (("columns", "csv"), ("vocabulary", "csv"), ("date_format", "csv"), ("schema", "omop")):
        if getattr(data, key) is not None and data.source != only:
            raise RecordsError(f"{file}, [data]: {key} is for source = {only!r}, not for {data.source!r}.")


def _check_numbers(config: StudyConfig, file: Path) -> None:
    for section, keys in _NUMBERS.items():
        for key, (least, most) in keys.items():
            number = getattr(getattr(config, section), key)
            if not least <= number <= most:
                wanted = f"at least {least}" if number < least else f"at most {most:,}"
                raise RecordsError(f"{file}, [{section}]: {key} must be {wanted}, got {number}.")
    for section in ("validation", "cost"):
        level = getattr(config, section).level
        if not 0.0 < level < 1.0:
            hint = f" Write {level / 100:g} for {level:g} per cent." if 1.0 < level < 100.0 else ""
            raise RecordsError(f"{file}, [{section}]: level must be between 0 and 1, got {level}.{hint}")
    if config.model.burn_in >= config.model.n_iter:
        raise RecordsError(f"{file}, [model]: burn_in must be below n_iter.")


def _check_lists(config: StudyConfig, file: Path) -> None:
    from coaltree.regression.baselines import BASELINES

    check_keys(config.model.baselines, BASELINES, f"{file}, [model]: baselines")
    windows = config.features.windows
    for where, values in (
        ("[model]: baselines", config.model.baselines),
        ("[outcomes]: keys", config.outcomes.keys),
        ("[features]: windows", windows),
        ("[features]: exclude", config.features.exclude),
    ):
        twice = next((value for value in values or () if list(values or ()).count(value) > 1), None)
        if twice is not None:
            raise RecordsError(f"{file}, {where} names {twice!r} twice.")
    for where, some in (("[outcomes]: keys", config.outcomes.keys), ("[features]: windows", windows)):
        if some is not None and not some:
            raise RecordsError(f"{file}, {where} is empty; leave the key out for the default.")
    for window in windows or ():
        if window != ALL_TIME and not (isinstance(window, int) and 1 <= window <= LONGEST):
            raise RecordsError(
                f'{file}, [features]: windows must be whole numbers of days from 1 to {LONGEST}, or "all", got '
                f"{window!r}."
            )
    if "" in config.features.exclude:
        raise RecordsError(f"{file}, [features]: exclude has an empty text, which begins every code. Remove it.")


def _check_dates(config: StudyConfig, file: Path) -> None:
    """Refuse thresholds that repeat or run backwards, and horizons that overlap."""
    days = [as_day(value) for value in config.thresholds if isinstance(value, str)]
    if len(days) == 2:
        first, second = config.thresholds
        if days[0] == days[1]:
            raise RecordsError(f"{file}, [cohort]: thresholds repeat {first}; give a later date for validation.")
        if days[1] < days[0]:
            raise RecordsError(f"{file}, [cohort]: thresholds run backwards ({first}, {second}); training comes first.")
        complaint = overlap_of_horizons(days[0], days[1], config)
        if complaint and config.validation.overlap == "refuse":
            raise RecordsError(f"{file}, [cohort]: {complaint} {ALLOW}")
    if len(config.thresholds) == 2 and config.thresholds[0] == config.thresholds[1]:
        raise RecordsError(f"{file}, [cohort]: thresholds name {config.thresholds[0]} twice.")
    end = config.cohort.data_end
    if end is not None and days and as_day(end) < max(days):
        raise RecordsError(f"{file}, [cohort]: data_end {end} is before the threshold; nobody is observed then.")


ALLOW = 'Move a threshold or shorten horizon_days; or set overlap = "allow" in [validation], and the report says so.'


def overlap_of_horizons(first: int, second: int, config: StudyConfig) -> str | None:
    """Describe how the training horizon of one day and the horizon of a later one overlap, if they do.

    Outcomes in the overlap would be both training labels and test labels of the same subjects.
    """
    begin, end = config.cohort.horizon
    shared = first + end - (second + begin) + 1
    if shared <= 0:
        return None
    return (
        f"the horizon of the training threshold goes on for {shared} day(s) after that of the second has begun, so "
        "that the same events are learned from and predicted."
    )


def _check_index(config: StudyConfig, index: IndexConfig, file: Path) -> None:
    read_definition("index", {**index.codes, "name": "Index"}, f"{file}, [index]")
    if not 0 <= index.washout_days <= LONGEST:
        raise RecordsError(f"{file}, [index]: washout_days must be from 0 to {LONGEST}, got {index.washout_days}.")
    dates = [(name, getattr(index, name)) for name in ("begin", "split", "end") if getattr(index, name) is not None]
    for (early, first), (late, second) in itertools.pairwise(dates):
        if first >= second:
            raise RecordsError(f"{file}, [index]: {early} {first} must be before {late} {second}.")
    if index.split is not None and index.begin is not None:
        days = (index.split - index.begin).days
        if days <= config.cohort.horizon_days:
            raise RecordsError(
                f"{file}, [index]: between begin and split are {days} days, fewer than horizon_days, so that nobody is "
                "left for training."
            )


def as_date(day: int) -> datetime.date:
    """Return the date of a day counted from 1970-01-01."""
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=day)
