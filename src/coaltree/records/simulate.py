"""A simulated cohort of diabetic patients, as MEDS, with the truth beside it.

There are three years of dated codes, 2008 to 2010, for two studies of one year each, with thresholds 2009-01-01 and
2010-01-01. The shards are independent draws, so a cohort of any size needs only the memory of one shard, and the first
shards of a larger cohort are those of a smaller one.

It contains deliberate traps: events at the first and last instants of windows, outcomes before the threshold, codes
that denote history or look like outcomes of another vocabulary, dotted and undotted spellings, events without a time,
bills without a price, events after death, subjects who leave, exact duplicates, and subjects without diabetes or with
diabetes diagnosed too late.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coaltree._arrays import Bools, Floats, Ints
from coaltree._version import __version__
from coaltree.records.codes import BIRTH, DEATH, OBSERVATION_END
from coaltree.records.errors import RecordsError, need
from coaltree.records.generator import (
    ALSO,
    BILLING,
    COMPLICATIONS,
    DECOYS,
    DIABETES,
    OUTCOME_CODES,
    YEARS,
    CohortModel,
    draw_intensities,
    draw_model,
    spellings,
    with_habits,
)
from coaltree.validation import check_count

THRESHOLDS = ("2009-01-01", "2010-01-01")
LOOKBACK, HORIZON = 183, 365  # days: [−183, 0) and [0, 365) around a threshold
DAY = 86_400_000_000  # microseconds
NO_TIME = np.iinfo(np.int64).min
KEYS = tuple(OUTCOME_CODES)


def _microseconds(date: str) -> int:
    return int(np.datetime64(date, "us").astype(np.int64))


START, END = _microseconds("2008-01-01"), _microseconds("2011-01-01")
_THRESHOLD_US = tuple(_microseconds(date) for date in THRESHOLDS)
_YEAR_START = tuple(_microseconds(f"{year}-01-01") for year in (*YEARS, YEARS[-1] + 1))


@dataclass
class Events:
    """Columns of events; `code` is a position in the list of codes."""

    subject: Ints
    time: Ints
    code: Ints
    value: Floats
    cost: Floats

    @classmethod
    def make(cls, subject: Any, time: Any, code: Any, value: Any = np.nan, cost: Any = np.nan) -> Events:
        """Columns broadcast to one length."""
        subject = np.asarray(subject, dtype=np.int64)
        fill = [np.broadcast_to(np.asarray(column), subject.shape) for column in (time, code, value, cost)]
        return cls(
            subject, fill[0].astype(np.int64), fill[1].astype(np.int64), fill[2].astype(float), fill[3].astype(float)
        )

    def take(self, index: Any) -> Events:
        """Rows by index or mask."""
        return Events(self.subject[index], self.time[index], self.code[index], self.value[index], self.cost[index])

    @staticmethod
    def concat(parts: list[Events]) -> Events:
        """Rows of all parts."""
        names = ("subject", "time", "code", "value", "cost")
        return Events(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def code_list(model: CohortModel) -> list[str]:
    """Every code of the cohort in one spelling, ordinary ones first."""
    special = [code for codes in OUTCOME_CODES.values() for code in codes]
    return [*model.codes, *BILLING, *DIABETES, *DECOYS, *special, BIRTH, OBSERVATION_END, "GENDER//F", "GENDER//M"]


def draw_shard(
    rng: np.random.Generator, n: int, model: CohortModel, codes: list[str]
) -> tuple[Events, dict[str, npt.NDArray[Any]]]:
    """Draw the events of n subjects (0 … n−1), and the truth about them."""
    place = {code: i for i, code in enumerate(codes)}
    intensity = draw_intensities(rng, n, model.drift)
    x = np.stack([model.regressors(year) for year in intensity])
    everyone = np.arange(n)
    outcome_events = _draw_outcomes(rng, n, model, x, place)
    death = _first_time(outcome_events, place[DEATH], n)
    leave = np.where(rng.random(n) < 0.04, rng.integers(_THRESHOLD_US[0], END, n), END - 1)
    last_day = np.minimum(np.minimum(death, leave), END - 1) // DAY
    diabetes = _draw_diabetes(rng, n, place)
    known = np.array([place[code] for code in (*DIABETES, *COMPLICATIONS)])
    first = np.minimum.reduce([_first_time(part, code, n) for part in (diabetes, outcome_events) for code in known])
    eligible = np.stack([first < threshold for threshold in _THRESHOLD_US], axis=1)

    parts = [outcome_events, diabetes, _draw_bills(rng, n, model, x, place)]
    parts += [_draw_visits(rng, year, model, intensity[year]) for year in range(len(YEARS))]
    picked = np.flatnonzero(rng.random(n) < 0.3)
    decoys = rng.choice([place[code] for code in DECOYS], len(picked))
    parts.append(Events.make(picked, rng.integers(START, END, len(picked)), decoys))
    # The day after the last window, and the first instant before the longest window of the first study.
    late = np.flatnonzero(rng.random(n) < 0.02)
    parts.append(Events.make(late, END, place["ICD9//410.01"]))
    early = np.flatnonzero(rng.random(n) < 0.02)
    parts.append(Events.make(early, _THRESHOLD_US[0] - LOOKBACK * DAY - 1, 0))
    early = np.flatnonzero(rng.random(n) < 0.02)
    parts.append(Events.make(early, _THRESHOLD_US[0] - LOOKBACK * DAY, 0))
    events = Events.concat(parts)
    # Nothing happens after the last day, except a few late entries for the dead.
    stray = (death[events.subject] < END) & (rng.random(len(events.subject)) < 0.02)
    events = events.take((events.time // DAY <= last_day[events.subject]) | stray | (events.time == END))
    twice = rng.random(len(events.subject)) < 0.001
    events = Events.concat([events, events.take(twice & (events.code != place[DEATH]))])

    left = np.flatnonzero(leave < END - 1)
    left = left[leave[left] // DAY <= death[left] // DAY]
    undated = np.flatnonzero(rng.random(n) < 0.01)
    gender = np.where(rng.random(n) < 0.5, place["GENDER//F"], place["GENDER//M"])
    birth = START - rng.integers(30 * 365, 85 * 365, n) * DAY
    events = Events.concat(
        [
            events,
            Events.make(left, leave[left], place[OBSERVATION_END]),
            Events.make(undated, NO_TIME, place["ICD9//431"]),
            Events.make(everyone, NO_TIME, gender),
            Events.make(everyone, birth, place[BIRTH]),
        ]
    )
    truth = _truth(events, n, model, codes, x, death, last_day, eligible)
    return events.take(np.lexsort((events.code, events.time, events.subject))), truth


def _draw_outcomes(rng: np.random.Generator, n: int, model: CohortModel, x: Floats, place: dict[str, int]) -> Events:
    """Dated codes of the outcomes of 2008 (thinned, as history for the first study), 2009 and 2010."""
    parts = []
    for year in range(len(YEARS)):
        risk = x[max(year - 1, 0)] @ model.coef.T + model.intercept[max(year - 1, 0)]
        happens = risk + rng.standard_normal(risk.shape) > 0
        if year == 0:
            happens &= rng.random(risk.shape) < 0.3
            happens[:, KEYS.index("death")] = False
        start, length = _YEAR_START[year], _YEAR_START[year + 1] - _YEAR_START[year]
        for j, key in enumerate(KEYS):
            who = np.flatnonzero(happens[:, j])
            when = start + rng.integers(0, length, len(who))
            edge = rng.random(len(who))
            when[edge < 0.02] = start
            when[edge > 0.98] = start + length - 1
            options = np.array([place[code] for code in OUTCOME_CODES[key]])
            parts.append(Events.make(who, when, rng.choice(options, len(who))))
            if key != "death":
                again = rng.random(len(who)) < 0.5
                later = when[again] + rng.integers(0, 60 * DAY, int(again.sum()))
                kept = later < END
                parts.append(Events.make(who[again][kept], later[kept], rng.choice(options, int(kept.sum()))))
    return _one_death(Events.concat(parts), place[DEATH])


def _one_death(events: Events, death: int) -> Events:
    """Drop all but a subject's first death."""
    rows = np.flatnonzero(events.code == death)
    rows = rows[np.lexsort((events.time[rows], events.subject[rows]))]
    repeated = np.zeros(len(rows), dtype=bool)
    repeated[1:] = events.subject[rows][1:] == events.subject[rows][:-1]
    keep = np.ones(len(events.subject), dtype=bool)
    keep[rows[repeated]] = False
    return events.take(keep)


def _first_time(events: Events, code: int, n: int) -> Ints:
    """Time of the first event with a code, END for those who have none."""
    first = np.full(n, END)
    chosen = events.take(events.code == code)
    np.minimum.at(first, chosen.subject, chosen.time)
    return first


def _draw_diabetes(rng: np.random.Generator, n: int, place: dict[str, int]) -> Events:
    """Diagnoses of diabetes; some subjects have none, or none before the first threshold."""
    first = rng.integers(START, _THRESHOLD_US[0], n)
    fate = rng.random(n)
    late = fate < 0.03
    first[late] = _THRESHOLD_US[0] + rng.integers(0, 300 * DAY, int(late.sum()))
    first[fate < 0.005] = _THRESHOLD_US[0]  # on the day itself: too late for the first study
    has = fate < 0.985
    options = np.array([place[code] for code in DIABETES])
    who = np.flatnonzero(has)
    again = np.repeat(who, rng.poisson(3.0, len(who)))
    later = rng.integers(first[again], END)
    return Events.make(
        np.concatenate([who, again]),
        np.concatenate([first[who], later]),
        rng.choice(options, len(who) + len(again)),
    )


def _draw_bills(rng: np.random.Generator, n: int, model: CohortModel, x: Floats, place: dict[str, int]) -> Events:
    """Bills: none for a quarter of the subjects in a year, otherwise overdispersed around a mean set by the node."""
    from coaltree.records.generator import COST_SLOPE

    price = np.array([model.prices.get(code, 20.0) for code in BILLING])
    weight = 1.0 / price**0.7
    parts = []
    for year in range(len(YEARS)):
        risk = np.clip(model.cost_risk(x[max(year - 1, 0)]), -4.0, 4.0)
        mean = 6.0 * np.exp(COST_SLOPE * risk) * rng.gamma(1.5, 1 / 1.5, n) * (rng.random(n) > 0.25)
        who = np.repeat(np.arange(n), rng.poisson(np.minimum(mean, 300.0)))
        when = rng.integers(_YEAR_START[year], _YEAR_START[year + 1], len(who))
        what = rng.choice(len(BILLING), len(who), p=weight / weight.sum())
        paid = np.round(price[what] * rng.lognormal(-0.045, 0.3, len(who)), 2)
        code = np.array([place[bill] for bill in BILLING])[what]
        parts.append(Events.make(who, when, code, cost=paid))
    return Events.concat(parts)


def _draw_visits(rng: np.random.Generator, year: int, model: CohortModel, intensity: Floats) -> Events:
    """Ordinary codes of a year: episodes of visits a few days apart, several codes per visit."""
    start, end = _YEAR_START[year], _YEAR_START[year + 1]
    codes_per_visit, visits_per_episode = 2.0, 1.5
    group_rate = intensity * (model.events_per_year / (codes_per_visit * visits_per_episode))
    episodes = rng.poisson(group_rate)  # an episode belongs to one group of codes
    subject, group = np.nonzero(episodes)
    repeats = episodes[subject, group]
    subject, group = np.repeat(subject, repeats), np.repeat(group, repeats)
    begin = rng.integers(start, end, len(subject))
    visits = 1 + rng.poisson(visits_per_episode - 1, len(subject))
    subject, group, begin = (np.repeat(column, visits) for column in (subject, group, begin))
    when = begin + (rng.exponential(6.0, len(begin)) * DAY).astype(np.int64)
    size = 1 + rng.poisson(codes_per_visit - 1, len(subject))
    subject, group, when = (np.repeat(column, size) for column in (subject, group, when))
    inside = when < end
    subject, group, when = subject[inside], group[inside], when[inside]
    rank = np.searchsorted(np.cumsum(model.code_weight)[:-1], rng.random(len(subject)), side="right")
    code = model.group_code[group, rank]
    is_test = np.array([text.startswith("LOINC") for text in model.codes])[code]
    value = np.where(is_test, np.round(rng.normal(100.0, 15.0, len(code)), 1), np.nan)
    return Events.make(subject, when, code, value=value)


# ---- the truth, from what was drawn


def _truth(
    events: Events,
    n: int,
    model: CohortModel,
    codes: list[str],
    x: Floats,
    death: Ints,
    last_day: Ints,
    eligible: Bools,
) -> dict[str, npt.NDArray[Any]]:
    """Labels, counts and costs of both studies under the rules of the shipped example, in whole days.

    Events after a subject's last day do not count. Labels: 1 for an event in the horizon, else NaN if the outcome
    happened before, or if the subject died or left before the horizon ended, else 0.
    """
    meaning = np.zeros((len(codes), len(KEYS)), dtype=bool)
    for j, key in enumerate(KEYS):
        meaning[[codes.index(code) for code in OUTCOME_CODES[key]], j] = True
    for code, also in ALSO.items():
        for key in also:
            meaning[codes.index(code), KEYS.index(key)] = True
    price = np.array([model.prices.get(code, np.nan) for code in codes])
    dated = events.take((events.time != NO_TIME) & (events.time // DAY <= last_day[events.subject]))
    day = dated.time // DAY
    truth: dict[str, npt.NDArray[Any]] = {"death": death, "last_day": last_day}
    for study, threshold in enumerate(_THRESHOLD_US):
        offset = day - threshold // DAY
        horizon = (offset >= 0) & (offset < HORIZON)
        happened, before = np.zeros((2, n, len(KEYS)), dtype=bool)
        for mask, found in ((horizon, happened), (offset < 0, before)):
            rows = np.flatnonzero(mask & meaning[dated.code].any(axis=1))
            np.logical_or.at(found, dated.subject[rows], meaning[dated.code[rows]])
        died = (death < END) & (death // DAY <= last_day)
        left = (last_day < threshold // DAY + HORIZON - 1) & ~died
        labels = happened.astype(np.float64)
        labels[(left[:, None] & ~happened) | before] = np.nan
        window = (offset >= -LOOKBACK) & (offset < 0)
        pairs, count = np.unique(np.stack([dated.subject[window], dated.code[window]]), axis=1, return_counts=True)
        billed = price[dated.code]
        priced = horizon & ~np.isnan(billed)
        paid = horizon & ~np.isnan(dated.cost)
        truth |= {
            f"x_{study}": x[study].astype(np.float32),
            f"alive_{study}": last_day >= threshold // DAY,
            f"eligible_{study}": eligible[:, study] & (last_day >= threshold // DAY),
            f"labels_{study}": labels,
            f"count_subject_{study}": pairs[0],
            f"count_code_{study}": pairs[1],
            f"count_{study}": count,
            f"price_cost_{study}": np.bincount(dated.subject[priced], billed[priced], n),
            f"paid_cost_{study}": np.bincount(dated.subject[paid], dated.cost[paid], n),
        }
    return truth


SUBJECTS_PER_SHARD = 10_000

_STUDY = """\
title = "Simulated cohort of diabetic patients"
seed = 0
# settings = "paper"  # the choices of Henao and Lucas throughout

[data]
source = "meds"  # meds, omop, synpuf or csv
path = "."

[cohort]
thresholds = ["2009-01-01", "2010-01-01"]  # training, temporal validation
lookback_days = 183
lookback_closed = "left"  # -183 <= day < 0
horizon_days = 365
horizon_closed = "left"  # 0 <= day < 365
# prior_outcome = "mask"  # mask, remove or keep
# death = "negative"  # negative (a competing risk) or censor
min_follow_up_days = 0

[outcomes]
# censoring = "weights"  # weights, drop or absent: those who leave before their label is known
# file = "outcomes.toml"  # definitions of your own
inclusion = true

[features]
n_factors = {n_factors}
exclude = ["HCPCS//"]  # bills are for the costs

[model]
n_iter = 1000
burn_in = 200
# features = "all"  # factors and single codes, or "factors" alone
# outcomes = "binary"  # or "time": events and days at risk
# baselines = ["random_forest", "boosting"]

[validation]
n_folds = 10

[cost]
source = "prices"
prices = "prices.csv"
"""


def simulate_cohort(
    out: str | Path,
    n_subjects: int = 19_000,
    seed: int = 1,
    n_factors: int = 25,
    events_per_year: float = 90.0,
    progress: bool = False,
    hospital: int = 0,
) -> Path:
    """Write a cohort into the folder `out`: MEDS in data/ and metadata/, prices.csv, and the truth in truth/.

    truth/model.npz holds tree, coefficients, node values, intercepts and the node that cost follows; truth/shard-*.npz
    hold, for each threshold, regressors, labels (NaN: undefined), counts of codes and costs. There are about
    4 × `events_per_year` × `n_subjects` rows. The same arguments write the same data. Cohorts with the same seed and
    another `hospital` have the same tree and coefficients but other patients and coding habits.
    """
    from tqdm.auto import tqdm

    n_subjects = check_count(n_subjects, "n_subjects", at_least=10)
    n_factors = check_count(n_factors, "n_factors", at_least=2)
    folder = Path(out)
    if folder.exists() and any(folder.iterdir()):
        raise RecordsError(f"{folder} is not empty. Choose another folder or move it away.")
    for name in ("data", "metadata", "truth"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    n_shards = -(-n_subjects // SUBJECTS_PER_SHARD)
    model_seed, shards_seed = np.random.SeedSequence(seed).spawn(2)
    model = draw_model(np.random.default_rng(model_seed), n_factors, events_per_year)
    if check_count(hospital, "hospital", at_least=0):
        habits_seed, shards_seed = np.random.SeedSequence([seed, hospital]).spawn(2)
        model = with_habits(model, np.random.default_rng(habits_seed))
    codes = code_list(model)
    _write_model(folder, model, codes)
    n_rows = 0
    for shard, child in enumerate(tqdm(shards_seed.spawn(n_shards), desc="Shards", disable=not progress)):
        first = shard * SUBJECTS_PER_SHARD
        n = min(SUBJECTS_PER_SHARD, n_subjects - first)
        draws, dialects = (np.random.default_rng(stream) for stream in child.spawn(2))
        events, truth = draw_shard(draws, n, model, codes)
        arrays: dict[str, Any] = {"subject_id": first + np.arange(n) + 1, **truth}
        np.savez_compressed(folder / "truth" / f"shard-{shard:04d}.npz", **arrays)
        _write_shard(folder / "data" / f"{shard:04d}.parquet", events, codes, first, dialects)
        n_rows += len(events.subject)
    summary = {
        "command": "coaltree records simulate",
        "dataset_name": "coaltree simulated cohort",
        "dataset_version": __version__,
        "meds_version": "0.4.1",
        "etl_name": "coaltree.records.simulate",
        "etl_version": __version__,
        "n_subjects": n_subjects,
        "n_events": n_rows,
        "seed": seed,
        "n_factors": n_factors,
        "events_per_year": events_per_year,
        "hospital": hospital,
        "thresholds": list(THRESHOLDS),
        "lookback_days": LOOKBACK,
        "horizon_days": HORIZON,
    }
    (folder / "metadata" / "dataset.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    (folder / "study.toml").write_text(_STUDY.format(n_factors=n_factors), encoding="utf-8")
    return folder


# ---- files


def _write_model(folder: Path, model: CohortModel, codes: list[str]) -> None:
    np.savez_compressed(
        folder / "truth" / "model.npz",
        children=model.tree.children,
        times=model.tree.times,
        names=np.array(KEYS),
        coef=model.coef,
        nodes=model.nodes,
        intercept=model.intercept,
        cost_node=model.cost_node,
        drift=model.drift,
        codes=np.array(codes),
    )
    lines = ["code,price", *(f"{code},{price:.2f}" for code, price in model.prices.items())]
    (folder / "prices.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pa = need("pyarrow")
    meds = need("meds")
    nothing = {
        "description": pa.nulls(len(codes), pa.string()),
        "parent_codes": pa.nulls(len(codes), pa.list_(pa.string())),
    }
    table = pa.table({"code": codes, **nothing})
    need("pyarrow.parquet").write_table(meds.CodeMetadataSchema.align(table), folder / "metadata" / "codes.parquet")


def _write_shard(file: Path, events: Events, codes: list[str], first: int, rng: np.random.Generator) -> None:
    pa = need("pyarrow")
    dialects = [spellings(code) for code in codes]
    position = events.code + len(codes) * rng.integers(0, 3, len(events.code))
    texts = pa.array([spelling[k] for k in range(3) for spelling in dialects])
    null_time = events.time == NO_TIME
    table = pa.table(
        {
            "subject_id": pa.array(events.subject + first + 1),
            "time": pa.array(events.time, pa.timestamp("us"), mask=null_time),
            "code": texts.take(pa.array(position)),
            "numeric_value": pa.array(events.value, pa.float32(), mask=np.isnan(events.value)),
            "cost": pa.array(events.cost, pa.float64(), mask=np.isnan(events.cost)),
        }
    )
    need("pyarrow.parquet").write_table(table, file, compression="zstd")
