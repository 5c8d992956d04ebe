"""A simulated cohort of diabetic patients, as MEDS, with the truth beside it.

Three years of dated codes, 2008 to 2010, for two studies of one year each: thresholds 2009-01-01 and 2010-01-01. The
shards are independent draws, so a cohort of any size is written within the memory of one shard, and the first shards
of a larger cohort are those of a smaller one.

Traps on purpose: events on the first and last instants of windows, outcomes before the threshold, codes that tell of
history or look like outcomes of another vocabulary, dotted and undotted spellings, events without a time, bills
without a price, events after death, subjects who leave, exact duplicates, subjects without diabetes or with diabetes
diagnosed too late.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from coaltree._version import __version__
from coaltree.records.errors import RecordsError, need
from coaltree.records.generator import CohortModel, draw_model, with_habits
from coaltree.records.shards import HORIZON, KEYS, LOOKBACK, NO_TIME, THRESHOLDS, Events, code_list, draw_shard
from coaltree.records.vocabulary import spellings
from coaltree.validation import check_count

SUBJECTS_PER_SHARD = 10_000

_STUDY = """\
title = "Simulated cohort of diabetic patients"
seed = 0

[data]
source = "meds"  # meds, omop, synpuf or csv
path = "."

[cohort]
thresholds = ["2009-01-01", "2010-01-01"]  # training, temporal validation
lookback_days = 183
lookback_closed = "left"  # -183 <= day < 0
horizon_days = 365
horizon_closed = "left"  # 0 <= day < 365
prior_outcome = "mask"  # mask, remove or keep
death = "censor"  # censor or negative
min_follow_up_days = 0

[outcomes]
# file = "outcomes.toml"  # definitions of your own
inclusion = true

[features]
n_factors = {n_factors}
exclude = ["HCPCS//"]  # bills are for the costs

[model]
n_iter = 1000
burn_in = 200
baselines = ["ml_probit", "ridge", "lasso", "elastic_net", "random_forest"]

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
    hold, for each threshold, regressors, labels (NaN: undefined), counts of codes and costs. About
    4 × `events_per_year` × `n_subjects` rows. The same arguments write the same data. Cohorts of one seed and another
    `hospital` have the same tree and coefficients, other patients, and other habits of coding.
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
