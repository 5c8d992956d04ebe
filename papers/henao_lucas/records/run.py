"""The regression table and the cost figure, on a simulated cohort and on a public sample of claims.

The paper's patients cannot be had. The simulated cohort of `coaltree.records` has the same shape (19 000 diabetic
patients, 21 outcomes, two thresholds a year apart) and a planted tree; the CMS sample (DE-SynPUF) has real layout and
no signal. Both go through the study that users run: factors of counts, cross-validation before the first threshold,
validation on the second, cost by quarters of risk. RECORDS_SUBJECTS in the environment makes the simulated cohort
smaller or larger.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import linkage

import coaltree as ct
from coaltree.plots.records import plot_cost_curves, plot_cost_node
from coaltree.records.config import PAPERS_BASELINES, PROBIT, ModelConfig, StudyConfig, ValidationConfig, load_config
from coaltree.records.cost import CostCurves
from coaltree.records.dataset import prepare_data
from coaltree.records.evaluation import fit_all
from coaltree.records.outcomes import load_outcomes
from coaltree.records.privacy import FEWEST
from coaltree.records.simulate import simulate_cohort
from coaltree.records.study import StudyResult, run_study
from coaltree.regression.baselines import BASELINES
from coaltree.regression.comparison import Comparison
from papers.henao_lucas.experiment import Claim, Experiment, Key, Options, Row, Summary

HERE = Path(__file__).parent
N_SUBJECTS, QUICK_SUBJECTS = int(os.environ.get("RECORDS_SUBJECTS", "19000")), 2_000
N_FACTORS, QUICK_FACTORS = 25, 8
# The first cohort has the study's own ten folds and two chains of 1 000; further ones have three folds.
FIRST_SEED, QUICK_SEED = 11, 1
MORE_FOLDS, QUICK_FOLDS = 3, 2
QUICK_ITER, QUICK_BURN_IN = 100, 40
RARE = 200  # events
METHODS = {
    PROBIT: "CR",
    "random_forest": "RF",
    "ml_probit": "MLE",
    "lasso": "Lasso",
    "elastic_net": "Enet",
    "ridge": "Ridge",
}
QUICK_BASELINES = ["ml_probit", "ridge"]
PARTS = {"cross_validation": "cross-validation", "temporal": "validation"}
DAYS = 5  # between the points of the cost curves that are kept

CLAIMS = """\
title = "CMS sample"
seed = 0
[data]
source = "synpuf"
path = {path}
[cohort]
thresholds = ["2009-01-01", "2010-01-01"]
[outcomes]
inclusion = false
[features]
n_factors = 10
min_subjects = 10
[model]
features = "factors"
[cost]
source = "observed"
"""


def tasks(options: Options) -> Sequence[Key]:
    """The simulated cohort, with --replicates so many seeds of it; the sample if its folder is there."""
    size = QUICK_SUBJECTS if options.quick else N_SUBJECTS
    first = QUICK_SEED if options.quick else FIRST_SEED
    simulated: list[Key] = [("simulated", first + k, size) for k in range(options.replicates or 1)]
    there = options.data is not None and (Path(options.data) / "synpuf").is_dir()
    return [*simulated, ("synpuf", 0)] if there else simulated


def factors_and_known_labels(config: StudyConfig) -> StudyConfig:
    """Use factors alone, and leave out subjects who leave or die before the outcome; README.md lists the departures."""
    cohort, outcomes = replace(config.cohort, death="censor"), replace(config.outcomes, censoring="drop")
    model = replace(config.model, features="factors", baselines=list(PAPERS_BASELINES))
    return replace(config, cohort=cohort, outcomes=outcomes, model=model)


def shortened(config: StudyConfig) -> StudyConfig:
    """Settings of a quick run."""
    chains = {"n_iter": QUICK_ITER, "burn_in": QUICK_BURN_IN, "n_chains": 1}
    model = ModelConfig(**chains, features="factors", baselines=QUICK_BASELINES)
    return replace(config, model=model, validation=ValidationConfig(n_folds=QUICK_FOLDS, n_resamples=200))


def run(key: Key, options: Options, rng: np.random.Generator) -> Row:
    """Run one study; the files of a full run stay in `private`, so that it goes on where it was stopped."""
    if options.quick:
        with tempfile.TemporaryDirectory() as folder:
            return study(key, options, Path(folder))
    return study(key, options, (options.out / "records" if options.out else HERE) / "private")


def study(key: Key, options: Options, folder: Path) -> Row:
    """Prepare the data, run the study and keep what may be shown."""
    kind, seed = str(key[0]), int(key[1])
    where = folder / "-".join(map(str, key))
    where.mkdir(parents=True, exist_ok=True)
    if kind == "simulated":
        cohort = where / "cohort"
        if not (cohort / "study.toml").exists():
            simulate_cohort(cohort, int(key[2]), seed, QUICK_FACTORS if options.quick else N_FACTORS)
        file = cohort / "study.toml"
    else:
        file = where / "study.toml"
        file.write_text(CLAIMS.format(path=repr(str((Path(options.data) / "synpuf").resolve()))), encoding="utf-8")
    config = factors_and_known_labels(load_config(file))
    config = shortened(config) if options.quick else config
    if kind == "simulated" and seed > FIRST_SEED:
        config = replace(config, validation=replace(config.validation, n_folds=MORE_FOLDS))
    result = run_study(config, where / "work", n_jobs=options.jobs)
    truth: Row = {"planted": []}
    if kind == "simulated":
        tree, truth["planted"] = planted(cohort)
        if result.tree is not None:
            truth["agreement"] = agreement(tree, config, where / "work", result.tree)
    parts = {"cross_validation": result.cross_validation, "temporal": result.temporal}
    return {
        "subjects": [int(n) for n in result.facts["n_subjects"]],
        "outcomes": list(result.cross_validation.outcomes),
        "folds": result.config.validation.n_folds,
        "iterations": result.config.model.n_iter,
        "r_hat": result.facts["r_hat"],
        **{name: scores(part) for name, part in parts.items() if part is not None},
        **truth,
        **cost(result),
    }


def planted(cohort: Path) -> tuple[ct.Tree, list[str]]:
    """The tree of the outcomes in a simulated cohort, and those under the node that cost follows."""
    titles = {each.key: each.name for each in load_outcomes().outcomes}
    with np.load(cohort / "truth" / "model.npz") as truth:
        tree = ct.Tree(truth["children"], truth["times"], [titles[str(name)] for name in truth["names"]])
        return tree, [tree.leaf_names[leaf] for leaf in tree.leaves(int(truth["cost_node"]))]


def agreement(truth: ct.Tree, config: StudyConfig, work: Path, found: ct.Tree) -> Row:
    """Correlation of cophenetic distances with those of the true tree.

    For the tree that was found, and for average linkage of maximum-likelihood coefficients of the same factors.
    """
    data = prepare_data(config, work)
    factors = fit_all(data, config, work)[0]["features"]["train"]
    model = BASELINES["ml_probit"]().fit(factors / factors.std(axis=0), data.periods[0].labels.Y)
    coef = [each.coef_ for each in model.models_]
    which = [truth.leaf_names.index(name) for name in found.leaf_names]
    below = np.tril_indices(len(which), -1)
    true = truth.cophenetic()[np.ix_(which, which)][below]
    trees = {"CR": found, "average linkage": ct.Tree.from_linkage(linkage(coef, "average"))}
    return {name: float(np.corrcoef(tree.cophenetic()[below], true)[0, 1]) for name, tree in trees.items()}


def scores(comparison: Comparison) -> Row:
    """Areas under the ROC curve, and the lead of CR over every other method with its bootstrap error."""
    rare = comparison.n_events < RARE
    lead: dict[str, Any] = {}
    for m, method in enumerate(comparison.methods[1:], start=1):
        gap = comparison.auroc[0] - comparison.auroc[m]
        drawn = comparison.resampled_auroc[0] - comparison.resampled_auroc[m]
        groups = {"all": np.ones_like(rare), "rare": rare}
        lead[METHODS[method]] = {
            name: [float(np.nanmean(gap[chosen])), float(np.nanmean(drawn[chosen], axis=0).std())]
            for name, chosen in groups.items()
            if chosen.any()
        }
    auroc = {METHODS[m]: [float(v) for v in row] for m, row in zip(comparison.methods, comparison.auroc, strict=True)}
    return {
        # Numbers of 1 to 10 patients are not shown.
        "events": [-1 if n < FEWEST else int(n) for n in comparison.n_events],
        "auroc": auroc,
        "lead": lead,
    }


def cost(result: StudyResult) -> Row:
    """The tree, the node that separates training cost best, and test cost by quarters of its risk."""
    if result.tree is None or result.separation is None:
        return {}
    best = result.separation.best
    found: Row = {
        "children": result.tree.children.tolist(),
        "times": result.tree.times.tolist(),
        "support": None if result.support is None else result.support.tolist(),
        "node": best,
        "node_outcomes": [result.tree.leaf_names[leaf] for leaf in result.tree.leaves(best)],
    }
    if result.curves is not None:
        curves = result.curves
        found["curves"] = {
            name: getattr(curves, name)[:, DAYS - 1 :: DAYS].round(2).tolist() for name in ("mean", "low", "high")
        }
        found["quarter"] = [int(n) for n in curves.n]
    return found


def overlap(a: Sequence[str], b: Sequence[str]) -> float:
    """Return |A ∩ B| / |A ∪ B|."""
    return len(set(a) & set(b)) / len(set(a) | set(b))


def most_alike(tree: ct.Tree, names: Sequence[str]) -> int:
    """Return the node whose leaves overlap most with some."""
    clades = [[tree.leaf_names[leaf] for leaf in tree.leaves(node)] for node in range(2 * tree.n_leaves - 1)]
    return int(np.argmax([overlap(clade, names) for clade in clades]))


def steps(tree: ct.Tree, a: int, b: int) -> int:
    """Return the number of edges between two nodes."""
    parents, n = tree.parents(), 0
    while a != b:
        # A parent has a larger number than its children.
        a, b = (int(parents[a]), b) if a < b else (a, int(parents[b]))
        n += 1
    return n


def summarise(rows: dict[Key, Row]) -> Summary:
    """Keep everything but the tree, for each study."""
    summary: Summary = {}
    for (kind, seed, *_), row in rows.items():
        kept = {k: v for k, v in row.items() if k not in ("children", "times", "support", "curves")}
        if row["planted"] and "node_outcomes" in row:
            kept["planted"] = [name for name in row["planted"] if name in row["outcomes"]]
            kept["node_overlap"] = overlap(kept["planted"], row["node_outcomes"])
            tree = ct.Tree(row["children"], row["times"], row["outcomes"])
            kept["node_steps"] = steps(tree, row["node"], most_alike(tree, kept["planted"]))
        if "curves" in row:
            mean, low, high = (np.array(row["curves"][name])[:, -1] for name in ("mean", "low", "high"))
            kept["final_cost"] = {"mean": mean.tolist(), "low": low.tolist(), "high": high.tolist()}
        summary[f"{kind} {seed}"] = kept
    return summary


def claims(summary: Summary, expected: Summary) -> Sequence[Claim]:
    """What the paper says of its table and figure, on the simulated cohort (the sample has no signal)."""
    found = []
    for name, row in summary.items():
        if not name.startswith("simulated"):
            continue
        for part, words in PARTS.items():
            for method, lead in row[part]["lead"].items():
                gain, error = lead["all"]
                found.append(Claim(f"{name}, {words}: mean AUC of CR above {method}", gain, 0.0, tolerance=2 * error))
            if "rare" in row[part]["lead"]["MLE"]:
                gain, error = row[part]["lead"]["MLE"]["rare"]
                found.append(
                    Claim(f"{name}, {words}: gain over MLE, outcomes under {RARE} events", gain, 0.01, tolerance=error)
                )
        if "node_steps" in row and row["folds"] > QUICK_FOLDS:
            words = f"{name}: edges between the node chosen by cost and the planted one"
            found.append(Claim(words, row["node_steps"], 1.0, at_least=False))
        if "agreement" in row and row["folds"] > QUICK_FOLDS:
            gain = row["agreement"]["CR"] - row["agreement"]["average linkage"]
            found.append(Claim(f"{name}: the tree closer to the planted one than average linkage of MLE", gain, 0.0))
        if "final_cost" in row:
            final = row["final_cost"]
            gap = final["low"][-1] - final["high"][0]
            found.append(Claim(f"{name}: cost of the highest quarter above the lowest, bands apart", gap, 0.0))
    return found


def table(summary: Summary, expected: Summary) -> Iterator[str]:
    """Yield the paper's table with ours beside it, and the means."""
    yield "Mean area under the ROC curve over outcomes; in brackets the lead of CR ± its bootstrap error."
    yield ""
    names = list(METHODS.values())
    yield "| study | " + " | ".join(names) + " | CR − MLE, rare outcomes |"
    yield "|---|" + "---|" * (len(names) + 1)
    for part, words in PARTS.items():
        means = {m: float(np.mean([row[part][m] for row in expected.values()])) for m in names}
        rare = [row[part]["CR"] - row[part]["MLE"] for row in expected.values() if row[part]["events"] < RARE]
        cells = [f"{means[m]:.3f}" for m in names]
        yield f"| the paper, {words} | " + " | ".join(cells) + f" | {np.mean(rare):+.3f} |"
        for name, row in summary.items():
            if part not in row:
                continue
            cells = []
            for m in names:
                areas, lead = row[part]["auroc"].get(m), row[part]["lead"].get(m)
                text = "–" if areas is None else f"{np.nanmean(areas):.3f}"
                cells.append(text if lead is None else f"{text} ({lead['all'][0]:+.3f} ± {lead['all'][1]:.3f})")
            rare_lead = row[part]["lead"]["MLE"].get("rare")
            rare_text = "–" if rare_lead is None else f"{rare_lead[0]:+.3f} ± {rare_lead[1]:.3f}"
            yield f"| {name}, {words} | " + " | ".join(cells) + f" | {rare_text} |"
    yield ""
    for name, row in summary.items():
        yield from _outcome_table(name, row)


def _outcome_table(name: str, row: Row) -> Iterator[str]:
    parts = [part for part in PARTS if part in row]
    sizes = " and ".join(f"{n:,}" for n in row["subjects"])
    yield f"**{name}**: {sizes} subjects, {row['folds']} folds, {row['iterations']} iterations; the best in bold."
    yield ""
    heads = [f"{head} {PARTS[part][:1]}" for part in parts for head in ("events", *row[part]["auroc"])]
    yield "| outcome | " + " | ".join(heads) + " |"
    yield "|---|" + "---|" * len(heads)
    for j, outcome in enumerate(row["outcomes"]):
        cells = []
        for part in parts:
            events, areas = row[part]["events"][j], {m: v[j] for m, v in row[part]["auroc"].items()}
            cells.append(str(events) if events >= 0 else "≤ 10")
            most = np.nanmax(list(areas.values())) if not np.all(np.isnan(list(areas.values()))) else np.nan
            cells += [f"**{v:.3f}**" if v == most else f"{v:.3f}" for v in areas.values()]
        yield f"| {outcome} | " + " | ".join(cells) + " |"
    yield ""
    if "node_outcomes" in row:
        chosen = ", ".join(row["node_outcomes"])
        planted = ""
        if row["planted"]:
            near = f"overlap {row['node_overlap']:.2f}, {row['node_steps']} edge(s) away"
            planted = f" Planted: {', '.join(row['planted'])} ({near})."
        yield f"Node that separates training cost best: {chosen}.{planted}"
        yield ""
    if "agreement" in row:
        ours, theirs = row["agreement"]["CR"], row["agreement"]["average linkage"]
        yield (
            f"Correlation of cophenetic distances with the planted tree's: {ours:.2f}; of average linkage of the "
            f"maximum-likelihood coefficients: {theirs:.2f}."
        )
        yield ""


def every_day(values: Sequence[float]) -> np.ndarray:
    """A curve at every day from one at every `DAYS` days, from 0 before the first."""
    known = np.arange(0, DAYS * len(values) + 1, DAYS)
    return np.interp(np.arange(1, known[-1] + 1), known, [0.0, *values])


def figures(rows: dict[Key, Row]) -> dict[str, Figure]:
    """Draw the tree with its circled node and the cost by quarters, a figure a study."""
    found = {}
    for (kind, seed, *_), row in rows.items():
        if "curves" not in row:
            continue
        tree = ct.Tree(row["children"], row["times"], row["outcomes"])
        figure = Figure(figsize=(9.6, 1.4 + 0.2 * max(tree.n_leaves, 16)), layout="constrained")
        left, right = figure.subplots(1, 2)
        plot_cost_node(tree, row["node"], left, support=row["support"])
        parts = {name: np.array([every_day(values) for values in row["curves"][name]]) for name in row["curves"]}
        plot_cost_curves(CostCurves(**parts, n=np.array(row["quarter"]), level=0.9, n_resamples=500), right)
        left.grid(visible=False)
        found[f"cost-{kind}" + (f"-{seed}" if seed > FIRST_SEED else "")] = figure
    return found


EXPERIMENT = Experiment("records", tasks, run, summarise, claims, table, figures)
